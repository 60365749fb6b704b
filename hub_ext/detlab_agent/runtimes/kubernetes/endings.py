"""What the state of a pod means for its task: it waits, runs, or has ended, and by whose fault."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from detlab.schemas.podspec import MAIN_CONTAINER
from detlab_agent.runtimes.base import Stage, TaskExit
from detlab_agent.runtimes.kubernetes.api import Object
from detlab_agent.runtimes.records import TaskElsewhere

NOT_ITS_FAULT = "machine_restarted"
"""The reason for which the master counts no restart."""
GATED = "SchedulingGated"
"""Something has still to open a gate of the pod before a scheduler looks at it."""
KUEUES_GATES = "kueue.x-k8s.io/"
"""What the names of the gates begin with that Kueue opens: waiting in its queue has no limit."""
OOM_KILLED = "OOMKilled"
NO_PYTHON = frozenset({"StartError", "ContainerCannotRun"})
IMAGE_TROUBLE = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError"})
HOPELESS = frozenset({"InvalidImageName", "ErrImageNeverPull"})
START_TROUBLE = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
CREATING = "ContainerCreating"
"""So long its node mounts volumes and makes a network; what lacks is only in its events."""
_ADMISSION = ("OutOf", "NodeAffinity", "UnexpectedAdmissionError", "Topology", "InsufficientResource")
"""What the reasons of a node begin with that did not take a pod after all."""
_SAID = 600


@dataclass(frozen=True)
class PodWait:
    """Why a pod does not run yet.

    Attributes:
        stage: As in a `TaskStage`: "queued" as long as no node has it.
        message: For people.
        trouble: "" | gate | place | unseen | image | creating | start | hopeless.
    """

    stage: Stage
    message: str
    trouble: str = ""

    @property
    def limit(self) -> str:
        """What limits the patience: one limit counts for every pod without a node, whatever the reason."""
        return "place" if self.trouble == "unseen" else self.trouble


def kept_pod(pod: Object) -> Object:
    """Return the part of a pod that is needed here."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    return {
        "metadata": {
            "name": meta["name"],
            "uid": meta.get("uid"),
            "labels": meta.get("labels") or {},
            "annotations": {
                name: value for name, value in (meta.get("annotations") or {}).items() if name.startswith("detlab.io/")
            },
            "deleted": bool(meta.get("deletionTimestamp")),
        },
        "node": spec.get("nodeName") or "",
        "scheduler": spec.get("schedulerName") or "default-scheduler",
        "gates": [str(gate.get("name")) for gate in spec.get("schedulingGates") or ()],
        "status": {
            name: status[name]
            for name in (
                "phase",
                "reason",
                "message",
                "podIP",
                "conditions",
                "containerStatuses",
                "initContainerStatuses",
            )
            if status.get(name)
        },
    }


def main_state(pod: Object) -> Object:
    """Return the state of the task's container; {} if there is none yet."""
    for one in pod["status"].get("containerStatuses") or ():
        if one.get("name") == MAIN_CONTAINER:
            return dict(one.get("state") or {})
    return {}


def is_running(pod: Object) -> bool:
    """Whether the task's container has started."""
    return "running" in main_state(pod)


def is_over(pod: Object) -> bool:
    """Whether the task has ended: its container has, or the pod will never start it."""
    return (
        "terminated" in main_state(pod)
        or pod["status"].get("phase") in {"Failed", "Succeeded"}
        or bool(pod.get("gone"))
    )


def address_of(pod: Object) -> str | None:
    """Return the address of a pod."""
    found = pod["status"].get("podIP")
    return str(found) if found else None


def waiting_for(pod: Object) -> PodWait | None:
    """Return why a pod does not run yet; None if it says nothing of that."""
    state = main_state(pod).get("waiting") or {}
    for one in pod["status"].get("initContainerStatuses") or ():
        told = (one.get("state") or {}).get("waiting") or {}
        if told.get("reason") in IMAGE_TROUBLE | HOPELESS | START_TROUBLE:
            state = told
    reason, message = str(state.get("reason") or ""), str(state.get("message") or "")
    said = f"{reason}: {message}" if message else reason
    if reason in HOPELESS:
        return PodWait("pulling", said, "hopeless")
    if reason in IMAGE_TROUBLE:
        return PodWait("pulling", said, "image")
    if reason in START_TROUBLE:
        return PodWait("starting", said, "start")
    unplaced = _condition(pod, "PodScheduled")
    if unplaced.get("status") == "False":
        told, why = str(unplaced.get("message") or ""), str(unplaced.get("reason") or "Unschedulable")
        queued = why == GATED and _only_kueues(pod["gates"])
        return PodWait("queued", f"{why}: {told}" if told else why, "gate" if queued else "place")
    if not pod["node"] and not is_running(pod):
        return _unseen(pod)
    if reason:
        trouble = "creating" if reason == CREATING else ""
        return PodWait("starting", f"{reason} on node {pod['node']}", trouble)
    return None


def _only_kueues(gates: list[str]) -> bool:
    return all(gate.startswith(KUEUES_GATES) for gate in gates)


def _unseen(pod: Object) -> PodWait:
    """Return why a pod waits that has no node and of which no scheduler has said anything."""
    if pod["gates"]:
        said = f"scheduling gates {', '.join(pod['gates'])}: no controller has removed them"
        return PodWait("queued", said, "gate" if _only_kueues(pod["gates"]) else "unseen")
    said = f"no scheduler has looked at the pod: is the scheduler {pod['scheduler']!r} (schedulerName) installed?"
    return PodWait("queued", said, "unseen")


def _condition(pod: Object, kind: str) -> Object:
    for one in pod["status"].get("conditions") or ():
        if one.get("type") == kind:
            return dict(one)
    return {}


def exit_of(pod: Object, *, ours: bool, note: str = "") -> TaskExit:
    """Return how the task of a pod that is over has ended.

    Args:
        pod: Its last known state.
        ours: Whether this agent has deleted it.
        note: What the events say of its end, such as that it was preempted.
    """
    ended = main_state(pod).get("terminated")
    status, name = pod["status"], pod["metadata"]["name"]
    by_others = not ours and (pod["metadata"]["deleted"] or bool(pod.get("gone")))
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    if ended is not None and ended.get("exitCode") is not None:
        exit_ = _of_container(ended, name)
        if exit_.exit_code == 0 or not (by_others or _is_nodes_doing(reason)):
            return exit_
    elif reason.startswith(_ADMISSION):
        return TaskExit(reason="refused", message=f"the node did not take pod {_named(pod)}: {reason}: {message}")
    return _by_others(pod, reason, message, note, ours=ours)


def _named(pod: Object) -> str:
    where = f" on node {pod['node']}" if pod["node"] else ""
    return f"{pod['metadata']['name']}{where}"


def _is_nodes_doing(reason: str) -> bool:
    return reason in {"Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting", "NodeAffinity"}


def _by_others(pod: Object, reason: str, message: str, note: str, *, ours: bool) -> TaskExit:
    """Return the exit of a task that the cluster or a person has ended."""
    name, told = _named(pod), _condition(pod, "DisruptionTarget")
    if reason:
        said = f"pod {name} was ended by its node: {reason}: {message}" if message else f"pod {name}: {reason}"
    elif told.get("status") == "True":
        said = f"pod {name} was ended by the cluster: {told.get('reason')}: {told.get('message')}"
    elif note:
        said = f"pod {name}: {note}"
    elif ours:
        return TaskExit(reason="launcher_lost", message=f"pod {name} ended without a report", delivered=False)
    elif pod["metadata"]["deleted"] or pod.get("gone"):
        said = f"pod {name} was deleted, not by detlab (kubectl delete, a drained node)"
    else:
        said = f"pod {name} ended without saying how ({pod['status'].get('phase')})"
    return TaskExit(reason=NOT_ITS_FAULT, message=said)


def _of_container(ended: Object, name: str) -> TaskExit:
    """Return what the end of the container says."""
    code, reason = int(ended["exitCode"]), str(ended.get("reason") or "")
    text = str(ended.get("message") or "")
    if reason in NO_PYTHON:
        return TaskExit(
            reason="setup",
            message=f"the image cannot run the task: it needs python3 and the package detlab: {text[-_SAID:]}",
        )
    report = text if text.lstrip().startswith("{") else ""
    exit_ = TaskElsewhere.exit_of(code, report)
    if reason == OOM_KILLED and exit_.exit_code != 0:
        said = "the container reached its memory limit, and the kernel ended it (resources.memory)"
        said = said if exit_.reason == "launcher_lost" else exit_.message or said
        delivered = exit_.delivered or exit_.reason == "launcher_lost"  # who has died so has left nothing behind
        return replace(exit_, exit_code=exit_.exit_code or -9, reason="oom", message=said, delivered=delivered)
    if not report and code != 0 and exit_.reason != "launcher_lost":
        # Whatever the launcher says comes as a report: this is Python itself, or the image.
        said = f"the image could not run the task, it needs Python 3.11 and the package detlab: {text[-_SAID:]}"
        return TaskExit(reason="setup", message=said)
    if exit_.reason == "launcher_lost" and text and not report:
        return replace(exit_, message=f"{exit_.message}: {text[-_SAID:]}")
    return exit_


def disruption_note(events: list[dict[str, Any]]) -> str:
    """Return what the events of a pod say of who ended it; "" if nothing."""
    for event in events:
        if event.get("reason") in {"Preempted", "Evicted", "TaintManagerEviction", "NodeNotReady", "DeletingNode"}:
            return f"{event.get('reason')}: {event.get('message')}"
    return ""
