"""What a server's pod waits for, or why it will not start: from the API server's own object, in plain words.

All text is Kubernetes' or the container's own, as plain text; the caller escapes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Pod = Mapping[str, Any]

_IMAGE_MISSING = {"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"}
_IMAGE_WRONG = {"InvalidImageName", "ErrImageNeverPull"}
_NOT_MADE = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_NO_NUMBER = "runAsNonRoot"
"""In what a node says of an image that runs as root, or as a user without a number."""
_WORDS_CHARS = 500


@dataclass(frozen=True)
class PodState:
    """How a pod that is being started is.

    Attributes:
        percent: Of the whole start.
        text: For the spawn page.
        hopeless: Whether waiting for it makes no sense.
        passing: Whether it may also pass by itself, so that some seconds are worth waiting: a registry that is away.
        kind: A short label of the failure, for the Hub's metrics.
    """

    percent: int
    text: str
    hopeless: bool = False
    passing: bool = False
    kind: str = ""


def state_of(pod: Pod, image: str = "") -> PodState:
    """Return how a pod is, in words.

    Args:
        pod: As the API server gives it.
        image: Of its server, for messages.
    """
    status = pod.get("status") or {}
    node = (pod.get("spec") or {}).get("nodeName")
    phase = status.get("phase")
    if pod["metadata"].get("deletionTimestamp"):
        return PodState(75, "The pod is being deleted, by someone else than this Hub", hopeless=True, kind="deleted")
    if phase in {"Failed", "Succeeded"}:
        return PodState(75, _ended(status), hopeless=True, kind="pod_ended")
    for name, waiting, last in _waiting(status):
        if (found := _stuck(name, waiting, last, image)) is not None:
            return found
    if not node:
        return PodState(72, _unscheduled(status))
    if phase == "Running":
        return PodState(90, f"The server starts on {node}")
    return PodState(78, f"{node} prepares the pod")


def _waiting(status: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Yield name, waiting state and last end of each container that waits."""
    for of in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(of) or []:
            waiting = (container.get("state") or {}).get("waiting")
            if waiting:
                yield container.get("name", ""), waiting, (container.get("lastState") or {}).get("terminated") or {}


def _stuck(name: str, waiting: Mapping[str, Any], last: Mapping[str, Any], image: str) -> PodState | None:
    reason, said = waiting.get("reason") or "", _words(waiting.get("message"))
    if reason in _IMAGE_WRONG:
        return PodState(78, f"The image {image} cannot be used: {said or reason}", hopeless=True, kind="image")
    if reason in _IMAGE_MISSING:
        text = f"The image {image} cannot be pulled: {said or reason}"
        return PodState(78, text, hopeless=True, passing=True, kind="image")
    if reason in _NOT_MADE:
        hint = ". The image names no user by number: set c.DetKubeSpawner.uid" if _NO_NUMBER in said else ""
        text = f"The container {name} cannot be made: {said or reason}{hint}"
        return PodState(80, text, hopeless=True, kind="container")
    if reason == "CrashLoopBackOff":
        return PodState(85, _container_ended(name, last), hopeless=True, kind="crashed")
    return None


def _unscheduled(status: Mapping[str, Any]) -> str:
    """Return why no node has the pod."""
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            said = _words(condition.get("message"))
            if condition.get("reason") == "SchedulingGated":
                return f"The pod is held back by the cluster's own queue: {said or 'its scheduling gates are closed'}"
            return f"No node takes the pod yet: {said or condition.get('reason') or 'unschedulable'}"
    return "The pod waits for a node"


def _ended(status: Mapping[str, Any]) -> str:
    """Return why a pod is over."""
    if status.get("reason") or status.get("message"):
        return f"The pod has ended: {status.get('reason') or ''} {_words(status.get('message'))}".strip()
    for container in status.get("containerStatuses") or []:
        end = (container.get("state") or {}).get("terminated")
        if end:
            return _container_ended(container.get("name", ""), end)
    return "The pod has ended"


def _container_ended(name: str, end: Mapping[str, Any]) -> str:
    if end.get("reason") == "OOMKilled":
        return f"The container {name} needed more memory than it may have, and was ended (OOMKilled)"
    said = _words(end.get("message"))
    code = end.get("exitCode")
    return f"The container {name} ended with exit code {code}" + (f": {said}" if said else "")


def _words(text: Any) -> str:
    """Return a message in one line of bounded length."""
    words = " ".join(str(text or "").split())
    return words if len(words) <= _WORDS_CHARS else words[: _WORDS_CHARS - 1] + "…"
