"""Servers in pods that the Hub's own Kubernetes cluster runs; needs the extra `kube`."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextvars import ContextVar
from html import escape
from typing import Any

from kubernetes_asyncio.client import ApiException
from kubespawner import KubeSpawner
from traitlets import Enum, Integer, Unicode

from detlab.schemas.podspec import HELD_LABEL
from detlab.schemas.taskwire import SpawnView
from detlab_hub.spawners.allocation import AllocationMixin
from detlab_hub.spawners.holding import HoldingMixin
from detlab_hub.spawners.pod_security import PRIVILEGED, RESTRICTED, restrict
from detlab_hub.spawners.pods import PodState, state_of
from detlab_hub.spawners.wording import SpawnFailed

GPU_RESOURCE = "nvidia.com/gpu"
NODE_LABEL = "kubernetes.io/hostname"
PROCESSORS = "cpu"
"""What slots that are no GPUs begin with."""
IMAGE_PATIENCE = 60.0
"""Seconds for which an image that cannot be pulled is waited for: registries have pauses."""
LOOKS_EVERY = 0.5
TAIL_LINES = 20
_only_the_pod: ContextVar[bool] = ContextVar("_only_the_pod", default=False)
"""Whether this is KubeSpawner's own start: what it stops is a pod, and not the allocation of the one to come."""


class DetKubeSpawner(HoldingMixin, KubeSpawner):
    """A KubeSpawner whose pods start when the master has given them their slots, on the node that has them.

    Its spawn page has the place in the master's queue and the reason first, then what the pod waits for in words and
    the pod's events. A pod that cannot start is given up with its reason, instead of after `start_timeout`, which also
    counts the queue.
    """

    gpu_resource = Unicode(
        GPU_RESOURCE, help="The resource that a slot is: nvidia.com/gpu, amd.com/gpu, or that of a MIG profile."
    ).tag(config=True)
    pod_timeout = Integer(
        600, min=1, help="Seconds from the creation of a pod until its server must run; the queue does not count."
    ).tag(config=True)
    pod_security = Enum(
        [RESTRICTED, PRIVILEGED],
        RESTRICTED,
        help="Level of Pod Security that servers' pods meet: restricted, or privileged where the site's own settings "
        "for them go beyond it.",
    ).tag(config=True)

    # the types of KubeSpawner's traits
    extra_resource_limits: dict[str, str]
    extra_labels: dict[str, str]
    node_selector: dict[str, str]
    node_affinity_required: list[Any] | dict[str, Any]

    def __init__(self, *arguments: Any, **traits: Any) -> None:
        self._told: set[str] = set()
        self._made = False
        self._site_terms: list[dict[str, Any]] | None = None
        super().__init__(*arguments, **traits)

    def use(self, view: SpawnView) -> None:
        """Ask for as many GPUs as there are slots, on the allocation's node.

        A node is called like its agent, or, where one agent speaks for a whole cluster, AGENT/NODE.
        """
        limits = {name: value for name, value in self.extra_resource_limits.items() if name != self.gpu_resource}
        gpus = len(view.gpu_uuids) or sum(not slot.startswith(PROCESSORS) for slot in view.slots)
        if gpus:
            limits[self.gpu_resource] = str(gpus)
        self.extra_resource_limits = limits
        agent, _, node = (view.agent_id or "").rpartition("/")
        selector = {name: value for name, value in self.node_selector.items() if name != NODE_LABEL}
        if node and not agent:  # an agent of that node alone, which is called like the machine
            selector[NODE_LABEL] = node
        self.node_selector = selector
        self.node_affinity_required = _bound(self._terms_of_site(), node if agent else "")
        self.extra_labels = {**self.extra_labels, HELD_LABEL: "true"}

    def _terms_of_site(self) -> list[dict[str, Any]]:
        """Return the site's terms, as they were before the first start."""
        if self._site_terms is None:
            given = self.node_affinity_required  # KubeSpawner takes a mapping, too, in the order of its keys
            self._site_terms = [given[key] for key in sorted(given)] if isinstance(given, dict) else list(given)
        return self._site_terms

    # --- the start

    def handed_over(self) -> None:
        """Keep the page's lines open: those about the pod follow."""

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yield what happens to the allocation, then to the pod."""
        async for event in AllocationMixin.progress(self):
            yield event

    async def _start(self) -> Any:
        """Start the pod; KubeSpawner calls this.

        Raises:
            SpawnFailed: It cannot start, or does not in time; the Hub then removes it.
        """
        self._made, self._told = False, set()
        starting = asyncio.ensure_future(self._start_pod())
        watching = asyncio.ensure_future(self._watch())
        try:
            await asyncio.wait({starting, watching}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                return starting.result()
            raise await self._failure(watching.result())
        except ApiException as error:
            raise _refused(error) from error
        finally:
            for task in (starting, watching):
                task.cancel()
            await asyncio.gather(starting, watching, return_exceptions=True)
            if self._made:
                self._tell_events()
            self._news.close()

    async def _start_pod(self) -> Any:
        _only_the_pod.set(True)
        return await super()._start()

    async def stop(self, now: bool = False) -> None:
        """End the server, then release the allocation; KubeSpawner calls it in a start, to replace an older pod."""
        if _only_the_pod.get():
            await super(AllocationMixin, self).stop(now)
        else:
            await super().stop(now)

    async def get_pod_manifest(self) -> Any:
        """Return the pod, at its level of Pod Security.

        Raises:
            SpawnFailed: The site's settings break it.
        """
        pod = await super().get_pod_manifest()
        if self.pod_security == RESTRICTED:
            restrict(pod, self.api.api_client.sanitize_for_serialization)
        return pod

    async def _make_create_pod_request(self, pod: Any, request_timeout: float) -> bool:
        self._made = bool(await super()._make_create_pod_request(pod, request_timeout))
        return self._made

    async def _watch(self) -> PodState:
        """Say what the pod waits for; return its state once waiting makes no sense."""
        while not self._made:  # until then, what the watch has is an older pod of the same name
            await asyncio.sleep(LOOKS_EVERY / 5)
        deadline = time.monotonic() + self.pod_timeout
        failing_since: float | None = None
        seen = False
        while True:
            pod = self._own_pod()
            state = state_of(pod, self.image) if pod is not None else None
            self._tell_events()
            if state is not None:
                seen = True
                self._news.say(state.percent, state.text)
            elif seen:
                return PodState(75, "The pod is gone: someone deleted it", hopeless=True, kind="deleted")
            now = time.monotonic()
            failing_since = (failing_since or now) if state is not None and state.hopeless else None
            patience = IMAGE_PATIENCE if state is not None and state.passing else 0.0
            if state is not None and failing_since is not None and now - failing_since >= patience:
                return state
            if now > deadline:
                said = state.text if state is not None else "it does not appear in the cluster's API"
                return PodState(75, f"The pod did not start within {self.pod_timeout} s. {said}", kind="timeout")
            await asyncio.sleep(LOOKS_EVERY)

    def _own_pod(self) -> Any:
        """Return this server's pod, as the Hub's watch has it; None if there is none."""
        reflector = self.pod_reflector
        return reflector.pods.get(f"{self.namespace}/{self.pod_name}") if reflector is not None else None

    def _tell_events(self) -> None:
        """Say the pod's events; a repeated one is left out."""
        for event in self.events if self.events_enabled else []:
            if (uid := event["metadata"]["uid"]) not in self._told:
                self._told.add(uid)
                self._news.say(0, f"[{event['type']}] {event['message']}")

    async def _failure(self, state: PodState) -> SpawnFailed:
        """Return the exception for a pod that does not start, with the last lines of a server that has run."""
        self._news.say(state.percent, state.text)
        tail = await self._tail() if state.kind in {"crashed", "pod_ended"} else ""
        where = f"kubectl --namespace {self.namespace} describe pod {self.pod_name}"
        html = f"<p>{escape(state.text)}</p>"
        if tail:
            html += f'<p>Its last lines:</p><pre class="text-start det-log-tail">{escape(tail)}</pre>'
        html += f"<p>An administrator sees more with: {escape(where)}</p>"
        text = f"{state.text}\n{tail}" if tail else state.text
        return SpawnFailed(text, reason=state.kind or "pod", html=html, status_code=500)

    async def _tail(self) -> str:
        """Return the last lines of the server; empty if the Hub may not read them or there are none."""
        for previous in (False, True):
            try:
                said = await self.api.read_namespaced_pod_log(
                    self.pod_name, self.namespace, tail_lines=TAIL_LINES, previous=previous, _request_timeout=10
                )
            except (ApiException, TimeoutError, OSError) as error:
                self.log.info("%s: no output of its pod: %s", self._log_name, error)
                continue
            if said:
                return str(said)
        return ""


def _bound(terms: list[dict[str, Any]], node: str) -> list[dict[str, Any]]:
    """Return terms of a node affinity that only one node meets; "" is any node that meets them."""
    if not node:
        return terms
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    return [{**term, "matchFields": [*term.get("matchFields", []), here]} for term in terms or [{}]]


def _refused(error: ApiException) -> SpawnFailed:
    """Return the exception for a pod that the API server does not take."""
    said = _message(error)
    if error.status == 403 and "exceeded quota" in said:
        return SpawnFailed(f"The namespace has no room for the pod: {said}", reason="quota", status_code=400)
    if error.status == 403:
        text = f"The Hub's service account may not do this: {said}. The chart's Role has what it needs."
        return SpawnFailed(text, reason="forbidden", status_code=500)
    return SpawnFailed(f"Kubernetes refuses the pod: {said}", reason="refused", status_code=500)


def _message(error: ApiException) -> str:
    try:
        return str(json.loads(error.body or "")["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason or error.status)
