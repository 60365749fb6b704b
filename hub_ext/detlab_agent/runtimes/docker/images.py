"""Images: find them, pull them, and explain when one does not exist."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterator
from typing import Any

import docker
from docker.utils import parse_repository_tag

from detlab.schemas.wire import ContainerSpec
from detlab_agent.runtimes.base import Say, SetupFailed
from detlab_agent.runtimes.docker.engine import Engine, EngineAway, EngineRefused, Gone

_SAY_EVERY = 1.0


def find_image(engine: Engine, name: str) -> dict[str, Any] | None:
    """Return the engine's description of an image, or None if it does not have the image.

    Raises:
        EngineAway: The engine does not answer.
        SetupFailed: The engine refuses the name.
    """
    try:
        return engine.ask_again(lambda client: client.api.inspect_image(name))
    except Gone:
        return None
    except EngineRefused as error:
        raise SetupFailed(f"image {name}: {error}") from error


def pull_image(engine: Engine, spec: ContainerSpec, say: Say, wanted: list[bool]) -> None:
    """Pull an image and report progress; give up when `wanted` is emptied.

    Raises:
        SetupFailed: It cannot be pulled.
        EngineAway: The engine does not answer.
    """
    repository, tag = parse_repository_tag(spec.image)

    def pull(client: docker.DockerClient) -> None:
        stream = client.api.pull(
            repository, tag=tag or "latest", stream=True, decode=True, auth_config=spec.registry_auth
        )
        for message in _progress(stream):
            if not wanted:
                return
            say("pulling", f"pulling {spec.image}{message}")

    say("pulling", f"pulling {spec.image}")
    try:
        engine.ask(pull)
    except (Gone, EngineRefused) as error:
        raise SetupFailed(unknown_image(engine, spec.image, str(error))) from error


def _progress(stream: Iterator[dict[str, Any]]) -> Iterator[str]:
    """Yield about once a second how much of the layers has arrived.

    Raises:
        EngineRefused: The engine reports an error in the stream.
    """
    layers: dict[str, tuple[int, int]] = {}
    said = 0.0
    for line in stream:
        if "error" in line:
            raise EngineRefused(str(line["error"]))
        detail = line.get("progressDetail") or {}
        if line.get("status") == "Downloading" and detail.get("total"):
            layers[str(line.get("id"))] = (int(detail.get("current", 0)), int(detail["total"]))
        if time.monotonic() - said >= _SAY_EVERY:
            said = time.monotonic()
            total = sum(size for _, size in layers.values())
            yield f", {100 * sum(done for done, _ in layers.values()) // total} %" if total else ""


def unknown_image(engine: Engine, name: str, trouble: str) -> str:
    """Return the message about an image that is missing and cannot be pulled, with similar names."""
    message = f"image {name} is not on this node and cannot be pulled: {trouble}"
    try:
        found = engine.ask_again(lambda client: client.api.images())
    except (EngineAway, EngineRefused, Gone):  # the message is about the image; what is here is only a help
        return message
    tags = sorted({tag for image in found for tag in image.get("RepoTags") or [] if tag != "<none>:<none>"})
    near = difflib.get_close_matches(name, tags, n=3, cutoff=0.5)
    if near:
        return f"{message}. Images here with a like name: {', '.join(near)}"
    return f"{message}. Images here: {', '.join(tags[:10])}" if tags else f"{message}. There are no images here"
