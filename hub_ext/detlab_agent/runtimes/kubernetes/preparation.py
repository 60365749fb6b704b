"""What an agent finds out before it begins: the cluster answers, its rights suffice, the namespace is its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from detlab.launch.host import procfs
from detlab.launch.taskdir import write_json
from detlab.schemas.podspec import reserved
from detlab.schemas.runtimes import KUBERNETES
from detlab_agent.runtimes.kubernetes.api import Api, ApiAway, ApiRefused, Object
from detlab_agent.runtimes.kubernetes.kubeconfig import Access, Opened
from detlab_agent.runtimes.kubernetes.lease import HeldLease, holder_of
from detlab_agent.runtimes.kubernetes.options import Rules, allowed
from detlab_agent.runtimes.kubernetes.pods import (
    AGENT_LABEL,
    ALLOCATION_NOTE,
    NODE_NOTE,
    POD_GROUPS,
    PORT_NOTE,
    RUN_NOTE,
    SLOTS_NOTE,
    TASK_LABEL,
)
from detlab_agent.runtimes.preparation import record_name
from detlab_agent.settings import AgentError

_log = logging.getLogger(__name__)

PATIENCE = 60.0
"""Seconds to try for while the API server does not answer."""
_PAUSE = 2.0
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 401, 403, 404


@dataclass(frozen=True)
class NeededRight:
    """Something that the agent must be allowed to do."""

    verb: str
    plural: str
    group: str = ""
    sub: str = ""
    everywhere: bool = False

    def __str__(self) -> str:
        name = f"{self.plural}.{self.group}" if self.group else self.plural
        return f"{self.verb} {name}/{self.sub}" if self.sub else f"{self.verb} {name}"


NEEDED = (
    *(NeededRight(verb, "nodes", everywhere=True) for verb in ("list", "watch")),
    *(NeededRight(verb, "pods") for verb in ("get", "list", "watch", "create", "delete")),
    *(NeededRight(verb, "secrets") for verb in ("create", "patch", "delete")),
    *(NeededRight(verb, "leases", "coordination.k8s.io") for verb in ("get", "create", "update")),
)
USEFUL = (
    *(NeededRight(verb, "pods", sub="exec") for verb in ("get", "create")),
    NeededRight("get", "pods", sub="log"),
    NeededRight("list", "events"),
)
"""Without exec a task that is killed cannot deliver its last lines; without the log of its pod those of a launcher that
did not reach the master are lost; without events a preemption is not named."""

HOMES = NeededRight("create", "persistentvolumeclaims")
"""Needed where the agent makes the homes of users."""
GROUPS = tuple(NeededRight(verb, "podgroups", "scheduling.k8s.io") for verb in ("create", "delete"))
"""Needed for `gang: native`."""
SERVICES = NeededRight("list", "services")
"""With this, the agent warns of Services that a pod of a user can join."""
EVERYWHERE = tuple(NeededRight(verb, "pods", everywhere=True) for verb in ("list", "watch"))
"""With these, what others use is known."""


async def prepare(access: Access, lease: str, rules: Rules, directory: Path, tasks: Path) -> tuple[Opened, bool]:
    """Check the cluster and the rights, take the lease, and write records of pods that have none.

    Args:
        access: How the cluster is reached.
        lease: Name of the lease.
        rules: What pods may be.
        directory: Of the agent.
        tasks: Where records are.

    Returns:
        How the API server is reached, and whether the pods of all namespaces may be listed.

    Raises:
        AgentError: The agent cannot work here; it says why.
    """
    opened = await access.open()
    api = Api(opened)
    try:
        async with asyncio.timeout(PATIENCE):
            await _answered(api)
        if clocks := api.clocks():
            _log.warning("%s", clocks)
        if rules.options.gang == "native":
            await _check_groups(api)
        await _check_rights(api, rules)
        await HeldLease(api, lease, holder_of(directory, rules.agent)).acquire()
        for namespace in (opened.namespace, *rules.namespaces(opened.namespace)):
            await _prepare_namespace(Api(opened, namespace), rules, tasks, first=namespace == opened.namespace)
        return opened, rules.options.count_others and await _sees_all(api)
    except TimeoutError as error:
        raise AgentError(f"the Kubernetes API server at {api.url} ({api.origin}) does not answer") from error
    except ApiAway as error:
        raise AgentError(str(error)) from error
    except ApiRefused as error:
        raise _explained(api, error) from error
    finally:
        await api.close()


async def _prepare_namespace(api: Api, rules: Rules, tasks: Path, *, first: bool) -> None:
    """Check the rights in a namespace of tasks, and write records of its pods that have none."""
    try:
        if not first:
            await _check_rights(api, rules)
        await _warn_of_services(api, rules)
        pods = await api.ask("GET", api.path("pods"), labelSelector=f"{AGENT_LABEL}={rules.agent}")
        adopt(pods.get("items") or (), tasks)
    except ApiRefused as error:
        raise _explained(api, error) from error
    finally:
        await api.close()


async def _warn_of_services(api: Api, rules: Rules) -> None:
    """Warn of Services whose traffic a user can have sent to a pod of theirs."""
    if not await _may(api, SERVICES):
        return
    ours = {**rules.options.labels, "app.kubernetes.io/managed-by": "detlab"}
    found = await api.ask("GET", api.path("services"))
    for service in found.get("items") or ():
        selector = (service.get("spec") or {}).get("selector") or {}
        met = [
            key
            for key, value in selector.items()
            if ours.get(key) == value or (not reserved(key) and allowed(rules.options.allow_labels, key))
        ]
        if selector and len(met) == len(selector):
            _log.warning(
                "Service %s of namespace %s goes by %s, which users may set (labels and allow_labels in the settings): "
                "any of them can receive what is sent to it. Give tasks a namespace of their own",
                service["metadata"]["name"],
                api.namespace,
                ", ".join(met),
            )


async def _answered(api: Api) -> None:
    """Wait until the API server answers; it may be starting."""
    said = ""
    while True:
        try:
            await api.ask("GET", "/version", timeout=10.0)
        except ApiAway as error:
            if str(error) != said:
                _log.warning("%s; trying for %d s", error, PATIENCE)
                said = str(error)
            if "CERTIFICATE_VERIFY_FAILED" in said or "Name or service not known" in said:
                raise
            await asyncio.sleep(_PAUSE)
        else:
            return


def _explained(api: Api, error: ApiRefused) -> AgentError:
    where = f"the Kubernetes API server at {api.url} ({api.origin})"
    if error.code == _UNAUTHORIZED:
        clocks = f"; {clocks}" if (clocks := api.clocks()) else ""
        return AgentError(f"{where} does not accept the credentials: {error}{clocks}. Try it with kubectl get pods")
    if error.code == _NOT_FOUND:
        return AgentError(f"{where}: {error}. kubectl create namespace {api.namespace}, or another --namespace")
    if error.code == _FORBIDDEN:
        return AgentError(f"{where}: {error}")
    return AgentError(f"{where} answers with status {error.code}: {error}")


async def _check_groups(api: Api) -> None:
    """Check that the cluster's own scheduler has pod groups, in the version that is known here.

    Raises:
        AgentError: It has not.
    """
    try:
        found = await api.ask("GET", f"/apis/{POD_GROUPS}")
    except ApiRefused as error:
        if error.code != _NOT_FOUND:
            raise
        found = {}
    if not any(one.get("name") == "podgroups" for one in found.get("resources") or ()):
        raise AgentError(
            f"gang: native needs PodGroups of {POD_GROUPS}, which this cluster does not serve (kubectl api-resources "
            "--api-group scheduling.k8s.io): leave gang out, which works everywhere, or use kueue"
        )


async def _check_rights(api: Api, rules: Rules) -> None:
    """Ask for each right.

    Raises:
        AgentError: Some are missing; all of them are named.
    """
    home = rules.options.home
    groups = GROUPS if rules.options.gang == "native" else ()
    needed = (*NEEDED, *groups, *([HOMES] if home is not None and home.size else []))
    missing = [right for right in needed if not await _may(api, right)]
    if missing:
        names = ", ".join(map(str, missing))
        raise AgentError(
            f"missing rights in namespace {api.namespace}: {names}. Add these verbs to the agent's Role (nodes: to its "
            f"ClusterRole); kubectl auth can-i {missing[0].verb} {missing[0].plural} shows each"
        )
    lacking = [right for right in USEFUL if not await _may(api, right)]
    if lacking:
        _log.warning(
            "without the rights %s the last output of killed tasks may be lost, or the reason of an end not told",
            ", ".join(map(str, lacking)),
        )


async def _sees_all(api: Api) -> bool:
    for right in EVERYWHERE:
        if not await _may(api, right):
            _log.warning(
                "without the rights list and watch pods of all namespaces (a ClusterRole) GPUs that others use are "
                "offered, too: pods may have to wait for them. count_others: false in the settings says so on purpose"
            )
            return False
    return True


async def _may(api: Api, right: NeededRight) -> bool:
    asked: Object = {"verb": right.verb, "resource": right.plural, "group": right.group, "subresource": right.sub}
    if not right.everywhere:
        asked["namespace"] = api.namespace
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {name: value for name, value in asked.items() if value}},
    }
    path = api.path("selfsubjectaccessreviews", group="authorization.k8s.io/v1", namespaced=False)
    found = await api.ask("POST", path, body)
    return (found.get("status") or {}).get("allowed") is True


def adopt(pods: Sequence[Object], tasks: Path) -> None:
    """Write the records of pods that have none here: the agent was moved, or its directory was lost."""
    for pod in pods:
        meta = pod["metadata"]
        notes = meta.get("annotations") or {}
        if not {ALLOCATION_NOTE, RUN_NOTE, SLOTS_NOTE} <= set(notes) or meta.get("labels", {}).get(TASK_LABEL) is None:
            continue
        node = notes.get(NODE_NOTE, "")
        record = tasks / f"{record_name(notes[ALLOCATION_NOTE], node)}.json"
        if "/" in notes[ALLOCATION_NOTE] or record.exists():
            continue
        port = notes.get(PORT_NOTE)
        write_json(
            record,
            {
                "runtime": KUBERNETES,
                "run": int(notes[RUN_NOTE]),
                "slots": [slot for slot in notes[SLOTS_NOTE].split(",") if slot],
                "pid": None,
                "life": procfs.machine_life(),
                "address": None,
                "port": int(port) if port else None,
                "allocation_id": notes[ALLOCATION_NOTE],
                "node": node,
                "waiting": True,
                "pod": meta["name"],
                "namespace": str(meta.get("namespace") or ""),
            },
        )
        _log.info("pod %s is adopted by its labels", meta["name"])
