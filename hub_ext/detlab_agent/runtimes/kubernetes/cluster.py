"""A cluster as the tasks of an agent need it: what is there, and how pods are made and deleted for good."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from detlab.backoff import Backoff
from detlab.schemas.podspec import MAIN_CONTAINER
from detlab.schemas.shares import device_of
from detlab.schemas.wire import NodeHello
from detlab_agent.runtimes.base import RefusedTask, SetupFailed
from detlab_agent.runtimes.kubernetes import endings, nodes
from detlab_agent.runtimes.kubernetes.api import MERGE, Api, ApiAway, ApiRefused, Object
from detlab_agent.runtimes.kubernetes.options import NodeGroup, Rules
from detlab_agent.runtimes.kubernetes.others import OtherPods, TakenSlots
from detlab_agent.runtimes.kubernetes.pods import AGENT_LABEL, POD_GROUPS, group_name
from detlab_agent.runtimes.kubernetes.reflector import Reflector
from detlab_agent.runtimes.kubernetes.scaling import PlacedPod, by_whom, come_already, count_elsewhere, nodes_to_come

_log = logging.getLogger(__name__)

_AGAIN_SECONDS = 40.0
"""Seconds for which at least a pod is asked for again while the API server is away; `pending_limit` may be more."""
_ANSWER_SECONDS = 10.0
"""Seconds after which it is asked for once more: a store that hung may have lost the question."""
_LATE_SECONDS = 70.0
"""Seconds after which nothing is made any more of what was asked for: API servers give requests up after 60."""
_SETTLE = 0.5
"""Seconds that nodes may change before the master is told."""
_SETTLE_OTHERS = 5.0
"""The same for what others use of them, which changes often: a pod that comes too early waits in the cluster."""
MOST_LINES, MOST_OUTPUT = 20_000, 8 << 20
"""Lines and bytes that are read of a pod's output."""
KUEUE = "kueue.x-k8s.io/v1beta1"
_UNCERTAIN = 500
"""From this status on the store may still do what the API server gave up."""
_NOT_FOUND, _CONFLICT, _INVALID, _FORBIDDEN = 404, 409, 422, 403


class KubernetesCluster:
    """The cluster, as far as this agent uses it.

    Args:
        api: The client.
        rules: What pods may be.
        sees_all: Whether it may list the pods of all namespaces.
    """

    def __init__(self, api: Api, rules: Rules, *, sees_all: bool = False) -> None:
        self.api, self.rules = api, rules
        labels = f"{AGENT_LABEL}={rules.agent}"
        self.pods = Reflector(
            api, api.path("pods"), endings.kept_pod, self._pod_changed, labels=labels, keeps_last=True
        )
        path = api.path("nodes", namespaced=False)
        self.nodes = Reflector(api, path, nodes.kept_node, self._node_changed)
        self.others = OtherPods(api, rules, self._others_changed) if sees_all and rules.options.count_others else None
        self.elsewhere: Sequence[Reflector] = ()
        """Pods of this agent in other namespaces."""
        self._used: dict[str, tuple[str, tuple[str, ...]]] = {}
        """Names of the pods of tasks, with their nodes and slots."""
        self._taken = TakenSlots(rules.options)
        self._to_come: dict[str, Object] = {}
        self._offered: list[NodeHello] = []
        self._settling: asyncio.TimerHandle | None = None
        self._on_change: Callable[[], None] = lambda: None
        self._deleting: dict[str, asyncio.Task[None]] = {}
        self.may_make: Callable[[], None] = lambda: None
        """Raises RefusedTask when another agent makes the pods of the namespace."""

    async def begin(self, on_change: Callable[[], None], patience: float) -> None:
        """Start to follow the cluster.

        Raises:
            TimeoutError: The API server does not say in time what there is.
        """
        self.pods.start()
        self.nodes.start()
        if self.others is not None:
            self.others.pods.start()
        async with asyncio.timeout(patience):
            await self.pods.synced()
            await self.nodes.synced()
            if self.others is not None:
                await self.others.pods.synced()
        self._offered = self._offer()
        self._on_change = on_change

    async def close(self) -> None:
        """Follow it no more."""
        jobs = list(self._deleting.values())
        for job in jobs:
            job.cancel()
        followed = [self.pods, self.nodes, *([] if self.others is None else [self.others.pods])]
        await asyncio.gather(*jobs, *(one.close() for one in followed), return_exceptions=True)
        await self.api.close()

    # --- nodes ------------------------------------------------------------------------------------------------

    def offered(self) -> list[NodeHello]:
        """Return the nodes for the Hello."""
        return self._offered

    def _offer(self) -> list[NodeHello]:
        options, there = self.rules.options, self.nodes.items
        placed = [PlacedPod(node, slots, self._node_of(pod)) for pod, (node, slots) in self._used.items()]
        busy: dict[str, set[str]] = {}
        for one in placed:
            busy.setdefault(one.named, set()).update(map(device_of, one.slots))
        self._to_come = nodes_to_come(options, there, placed)
        amounts = {} if self.others is None else self.others.amounts()
        count_elsewhere(placed, there, options, amounts)
        chosen = self._taken.choose(amounts, there, busy)
        taken = {name: by_whom(slots, name, placed) for name, slots in chosen.items()}
        taken |= come_already(placed, self._to_come, options)
        return nodes.offered({**there, **self._to_come}, options, busy, taken)

    def node(self, name: str) -> Object | None:
        """Return a node, one that is there or one to come; None: neither."""
        return self.nodes.items.get(name) or self._to_come.get(name)

    def group_of(self, node: str) -> NodeGroup | None:
        """Return the group of a node to come; None: it is one that is there, or was."""
        name = self._to_come.get(node, {}).get(nodes.TO_COME)
        return next((group for group in self.rules.options.autoscaled if group.name == name), None)

    def _node_of(self, pod: str) -> str:
        """Return the node to which a pod is bound; "" as long as it is to none."""
        kept = next((one.items[pod] for one in (self.pods, *self.elsewhere) if pod in one.items), {})
        return str(kept.get("node", ""))

    def pod_changed(self, name: str) -> None:
        """Note that a pod of this agent has changed, in whatever namespace."""
        self._pod_changed(name)

    def _pod_changed(self, name: str) -> None:
        if self._used.get(name, ("", ()))[0] in self._to_come:
            self._settle_in(_SETTLE)

    def _node_changed(self, name: str) -> None:
        self._settle_in(_SETTLE)

    def _others_changed(self) -> None:
        self._settle_in(_SETTLE_OTHERS)

    def _settle_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._settling is not None and self._settling.when() > loop.time() + seconds:
            self._settling.cancel()
            self._settling = None
        if self._settling is None:
            self._settling = loop.call_later(seconds, self._settle)

    def _settle(self) -> None:
        self._settling = None
        offer = self._offer()
        if offer != self._offered:
            gone = {one.name for one in self._offered} - {one.name for one in offer}
            new = {one.name for one in offer} - {one.name for one in self._offered}
            _log.info("nodes: %d, new: %s, gone: %s", len(offer), sorted(new) or "none", sorted(gone) or "none")
            self._offered = offer
            self._on_change()

    # --- pods -------------------------------------------------------------------------------------------------

    def use(self, pod: str, node: str, slots: Sequence[str]) -> None:
        """Note that a node has a pod of ours: it is offered even if it takes no new ones."""
        self._used[pod] = node, tuple(slots)

    def forget(self, pod: str) -> None:
        """Note that a pod is no more."""
        if self._used.pop(pod, None) is not None:
            self._settle_in(_SETTLE)

    async def look(self, name: str) -> Object | None:
        """Return what is known of a pod; None if it certainly is not there."""
        found = self.pods.items.get(name)
        if found is not None:
            return found
        backoff = Backoff(first=0.5, cap=15.0)
        while True:
            try:
                made = await self.api.ask("GET", self.api.path("pods", name))
            except ApiRefused as error:
                if error.code == _NOT_FOUND:
                    return self.pods.items.get(name)
                _log.warning("pod %s: %s", name, error)
            except ApiAway as error:
                _log.warning("%s", error)
            else:
                self.pods.put(made)
                return self.pods.items.get(name)
            await asyncio.sleep(backoff.next_pause())

    async def create(self, secret: Object, pod: Object, first: Sequence[tuple[str, Object]] = ()) -> None:
        """Make the pod of a task and its secret; doing it again changes nothing.

        Args:
            secret: This.
            pod: The pod.
            first: What is made before, if it is not there: plurals and objects.

        Raises:
            RefusedTask: Not here, or not now.
            SetupFailed: The API server says that the pod is not valid.
        """
        name = pod["metadata"]["name"]
        until = asyncio.get_running_loop().time() + max(_AGAIN_SECONDS, self.rules.options.pending_limit)
        try:
            for plural, one in first:
                await self._make(plural, one, until)
            await self._make("secrets", secret, until)
            made = await self._make("pods", pod, until)
        except RefusedTask:
            self.give_up(name, first)
            raise
        except ApiAway as error:
            self.give_up(name, first)
            raise RefusedTask(str(error)) from error
        except ApiRefused as error:
            if error.code >= _UNCERTAIN:
                self.give_up(name, first)
            else:
                await self.delete(name, 0)  # the secret has no owner yet
                await self._forget_groups(first)
            raise self._refusal(error) from error
        self.pods.put(made)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": made["metadata"]["uid"]}
        await self._own(name, owner)

    async def _make(self, plural: str, body: Object, until: float) -> Object:
        """Make an object; while the API server does not answer, again and again `until` then on the loop's clock."""
        backoff, loop = Backoff(first=0.2, cap=5.0), asyncio.get_running_loop()
        while True:
            self.may_make()
            try:
                return await self._made(plural, body)
            except ApiAway:
                if loop.time() > until:
                    raise
                await asyncio.sleep(backoff.next_pause())

    async def _made(self, plural: str, body: Object) -> Object:
        """Ask for an object once; return it as it is there."""
        version = str(body.get("apiVersion") or "v1")
        try:
            path = self.api.path(plural, group=version if "/" in version else "")
            return dict(await self.api.ask("POST", path, body, timeout=_ANSWER_SECONDS))
        except ApiRefused as error:
            if error.code != _CONFLICT or error.reason != "AlreadyExists":
                raise
        # We asked before, and did not hear the answer.
        if plural not in {"pods", "secrets"}:
            return body
        path = self.api.path(plural, body["metadata"]["name"])
        if plural == "secrets":
            return dict(await self.api.ask("PATCH", path, {"data": body["data"]}, content=MERGE))
        return dict(await self.api.ask("GET", path))

    async def _own(self, name: str, owner: Object) -> None:
        """Let the pod own a secret, so that it goes with the pod whoever deletes that."""
        try:
            body = {"metadata": {"ownerReferences": [owner]}}
            await self.api.ask("PATCH", self.api.path("secrets", name), body, content=MERGE)
        except (ApiAway, ApiRefused) as error:
            _log.warning("secret %s has no owner: %s", name, error)  # it is deleted with its task

    def _refusal(self, error: ApiRefused) -> Exception:
        where = f"namespace {self.api.namespace}"
        if error.code == _INVALID or (error.code == 400 and error.reason in {"BadRequest", "Invalid"}):
            return SetupFailed(f"the cluster does not take the pod: {error}")
        if error.code == _NOT_FOUND:
            return RefusedTask(f"{where} is gone or going: {error} (kubectl create namespace {self.api.namespace})")
        if error.code == _FORBIDDEN:
            return RefusedTask(f"{where} does not take the pod: {error}")
        return RefusedTask(f"the cluster does not take the pod now: {error}")

    async def delete(self, name: str, grace: int | None) -> None:
        """Delete a task's pod and secret. What fails is tried again until it works, in the background."""
        if not await self._delete(name, grace) and name not in self._deleting:
            job = asyncio.create_task(self._delete_at_last(name, grace))
            self._deleting[name] = job
            job.add_done_callback(lambda _: self._deleting.pop(name, None))

    def give_up(self, name: str, first: Sequence[tuple[str, Object]] = ()) -> None:
        """Delete what was asked for and may be made when the API server answers again: another attempt will run.

        Args:
            name: The pod's.
            first: What was made before it, see `create`.
        """

        async def twice() -> None:
            await self._delete_at_last(name, 0)
            await self._forget_groups(first)
            await asyncio.sleep(_LATE_SECONDS)
            await self._delete_at_last(name, 0)
            await self._forget_groups(first)

        if name not in self._deleting:
            job = asyncio.create_task(twice())
            self._deleting[name] = job
            job.add_done_callback(lambda _: self._deleting.pop(name, None))

    async def _delete_at_last(self, name: str, grace: int | None) -> None:
        backoff = Backoff(first=1.0, cap=30.0)
        while not await self._delete(name, grace):
            await asyncio.sleep(backoff.next_pause())

    async def _delete(self, name: str, grace: int | None) -> bool:
        body: Mapping[str, Any] = {} if grace is None else {"gracePeriodSeconds": grace}
        done = True
        for plural in ("pods", "secrets"):
            try:
                path = self.api.path(plural, name)
                await self.api.ask("DELETE", path, body if plural == "pods" else None)
            except ApiRefused as error:
                if error.code != _NOT_FOUND:
                    _log.warning("%s %s stays for now: %s", plural, name, error)
                    done = False
            except ApiAway:
                done = False
        return done

    async def forget_group(self, allocation_id: str) -> None:
        """Delete the PodGroup of an allocation, one of whose pods is over: by then all are placed, or none will be."""
        if self.rules.options.gang == "native":
            await self._forget_group(group_name(allocation_id))

    async def _forget_groups(self, made: Sequence[tuple[str, Object]]) -> None:
        """Delete the PodGroup among what was made for a pod that will not be; the home of a user stays."""
        for plural, one in made:
            if plural == "podgroups":
                await self._forget_group(one["metadata"]["name"])

    async def _forget_group(self, name: str) -> None:
        try:
            await self.api.ask("DELETE", self.api.path("podgroups", name, group=POD_GROUPS))
        except (ApiAway, ApiRefused) as error:
            if getattr(error, "code", 0) != _NOT_FOUND:
                _log.warning("the PodGroup %s stays: %s", name, error)

    async def queued(self, allocation_id: str) -> str:
        """Return what Kueue says of an allocation that it has not admitted; "" where it says nothing."""
        if self.rules.options.gang != "kueue":
            return ""
        path = self.api.path("workloads", group_name(allocation_id), group=KUEUE)
        try:
            found = await self.api.ask("GET", path)
        except (ApiAway, ApiRefused):
            return ""
        for one in (found.get("status") or {}).get("conditions") or ():
            if one.get("type") in {"QuotaReserved", "Admitted"} and one.get("status") == "False":
                return str(one.get("message") or one.get("reason") or "")
        return ""

    async def output(self, pod: str) -> str:
        """Return the end of what the container of a task has written; "" if there is nothing, or it may not be read."""
        query: dict[str, Any] = {"container": MAIN_CONTAINER, "tailLines": MOST_LINES, "limitBytes": MOST_OUTPUT}
        for pause in (1.0, 5.0, 0.0):
            try:
                return str(await self.api.ask("GET", self.api.path("pods", pod, "log"), **query))
            except ApiRefused as error:
                _log.warning("pod %s: its output cannot be read: %s", pod, error)
                return ""
            except ApiAway as error:
                _log.warning("%s", error)
                await asyncio.sleep(pause)
        return ""

    async def disruption(self, pod: Object) -> str:
        """Return what the cluster says of who ended a pod; "" where it says nothing, or may not be asked."""
        return endings.disruption_note(await self._events(f"involvedObject.uid={pod['metadata']['uid']}"))

    async def not_scaled(self, pod: str) -> str:
        """Return why the autoscaler adds no node for a pod; "" where it does not say."""
        events = await self._events(f"involvedObject.name={pod}")
        said = [str(one.get("message")) for one in events if one.get("reason") == "NotTriggerScaleUp"]
        return said[-1] if said else ""

    async def not_created(self, pod: str) -> str:
        """Return why its node does not make the containers of a pod; "" where it does not say."""
        events = await self._events(f"involvedObject.name={pod}")
        said = [str(one.get("message")) for one in events if str(one.get("reason")).startswith("Failed")]
        return said[-1][:600] if said else ""

    async def _events(self, selector: str) -> list[Object]:
        try:
            found = await self.api.ask("GET", self.api.path("events"), fieldSelector=selector, limit=50)
        except (ApiAway, ApiRefused):
            return []
        return list(found.get("items") or [])
