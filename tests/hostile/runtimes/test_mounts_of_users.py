"""A user who may mount parts of a directory has the path lead out of it: by a link, or by one that comes in between."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from detlab.schemas import wire

if TYPE_CHECKING:
    from conftest import Place

MALLORY = 23000
"""The uid of the double's first user."""
READS = "import pathlib, sys; print(pathlib.Path('/mnt/x/word').read_text(), flush=True)"
SECRET = "of root alone"
ATTEMPTS = 24
_EXCHANGE, _CWD = 2, -100


def mount(path: Path, **more: bool) -> wire.Mount:
    return wire.Mount(host_path=str(path), container_path="/mnt/x", **more)


@pytest.fixture
def secret(open_place: Path) -> Path:
    """A folder that only root may enter; in a container it would be behind no such folder."""
    behind = open_place / "closed"
    behind.mkdir(mode=0o700)
    (behind / "folder").mkdir(mode=0o755)
    (behind / "folder/word").write_text(SECRET)
    return behind / "folder"


def folder_of_mallory(allowed: Path, secret: Path) -> Path:
    own = allowed / "mallory"
    for name in ("data", "x"):
        (own / name).mkdir(parents=True)
        (own / name / "word").write_text("her own")
    (own / "out").symlink_to(secret)
    for path in (own, *own.iterdir()):
        os.chown(path, MALLORY, MALLORY, follow_symlinks=False)
    return own


@contextmanager
def exchanging(one: Path, other: Path) -> Iterator[None]:
    """Exchange two names without a pause: each look at a path may find the other thing there."""
    rename = ctypes.CDLL(None, use_errno=True).renameat2
    over = threading.Event()

    def exchange() -> None:
        while not over.is_set():
            assert rename(_CWD, os.fsencode(one), _CWD, os.fsencode(other), _EXCHANGE) == 0

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("runtime", ["docker", "kubernetes"])
def test_a_link_out_of_the_allowed_directory_shows_nothing(
    start: Callable[[str], Place], runtime: str, secret: Path
) -> None:
    """On Kubernetes `allowed/x -> /` was the root of the node."""
    place = start(runtime)
    own = folder_of_mallory(place.allowed, secret)
    (own / "word").write_text("her own")
    fine = place.run("mallory", READS, mounts=(mount(own / "data" if runtime == "kubernetes" else own),))
    outside = place.run("mallory", READS, mounts=(mount(own / "out"),))
    assert place.ended(outside).reason in {"refused", "setup"}
    assert place.said(outside) == []
    assert place.ended(fine).exit_code == 0
    assert place.said(fine) == ["her own"]


def test_a_path_that_is_exchanged_while_the_engine_follows_it_shows_nothing(
    start: Callable[[str], Place], secret: Path
) -> None:
    """The agent had looked at the path, and the engine looked again."""
    place = start("docker")
    own = folder_of_mallory(place.allowed, secret)
    with exchanging(own / "x", own / "out"):
        tasks = [place.run("mallory", READS, mounts=(mount(own / "x"),)) for _ in range(ATTEMPTS)]
        for task in tasks:
            place.ended(task, 120)
    assert not [line for task in tasks for line in place.said(task) if line == SECRET]
    assert {task.exits[0].reason for task in tasks} <= {"refused", "setup"}


@pytest.mark.parametrize("runtime", ["docker", "kubernetes"])
def test_a_neighbour_whose_name_begins_in_the_same_way_is_not_mounted(
    start: Callable[[str], Place], runtime: str
) -> None:
    """`/data` is no permission for `/data-evil`."""
    place = start(runtime)
    neighbour = place.allowed.with_name(f"{place.allowed.name}-evil")
    neighbour.mkdir()
    (neighbour / "word").write_text(SECRET)
    task = place.run("mallory", READS, mounts=(mount(neighbour),))
    assert place.ended(task).reason in {"refused", "setup"}
    assert place.said(task) == []
