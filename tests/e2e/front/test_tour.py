"""The tutorial's tour (docs/tutorial/the-tour.md), taken in a real browser; and that page and steps are the same."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.containers import docker, docker_images
from testbed.front import tour
from testbed.front.lab import chromium

pytestmark = pytest.mark.soak

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "tutorial" / "the-tour.md"
IMAGES = DOCS / "images"
KILOBYTES, ALL_KILOBYTES = 200, 4000


@pytest.fixture
def taken(docker_engine: docker.Engine, tmp_path: Path) -> Iterator[tour.Tour]:
    """Somebody before a cluster that `det up` has just started."""
    with tour.ready(tmp_path, docker_engine) as cluster, chromium() as browser:
        walk = tour.Tour(cluster, browser, docker_images.EMPTY)
        yield walk
        walk.close()


@pytest.mark.hub
@pytest.mark.browser
@pytest.mark.timeout(900)
def test_the_tour_is_taken_step_by_step(taken: tour.Tour) -> None:
    for heading, take in tour.STEPS.items():
        try:
            take(taken)
        except BaseException as error:
            error.add_note(f"at the step {heading!r} of {PAGE.name}\n{taken.cluster.logs()}")
            raise
    assert taken.ran == commands()
    assert taken.wrong == []


def sections() -> dict[str, str]:
    """The page's numbered sections: heading to text, in order."""
    parts = re.split(r"^## \d+\. (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    last = re.split(r"^## ", parts[-1], flags=re.MULTILINE)[0]
    return dict(zip(parts[1::2], [*parts[2:-1:2], last], strict=True))


def commands() -> list[str]:
    """What the page says to type, in order."""
    return [line for text in sections().values() for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
            for line in block.splitlines()]  # fmt: skip


def test_the_steps_are_the_headings_in_their_order() -> None:
    assert list(tour.STEPS) == list(sections())


@pytest.mark.parametrize("heading", list(tour.STEPS))
def test_a_step_presses_and_types_what_its_section_says(heading: str) -> None:
    source = inspect.getsource(tour.STEPS[heading])
    section = sections()[heading]
    named = {*re.findall(r"\*\*(.+?)\*\*", section), *re.findall(r"`([\w.]+)`", re.sub(r"```.*?```", "", section))}
    assert {" ".join(word.split()) for word in named if word not in source} - UNTOUCHED == set()


# Said on the page without being pressed there.
UNTOUCHED = {"UUID", "A process on the node"}


# Taken by docs/screenshots.py beside the way.
BESIDE = {"spawn-queued"}


@pytest.mark.parametrize("heading", list(tour.STEPS))
def test_a_section_shows_the_pictures_that_its_step_takes(heading: str) -> None:
    shown = re.findall(r"\(\.\./images/([\w-]+)\.png\)", sections()[heading])
    taken = re.findall(r"picture\(\"([\w-]+)\"", inspect.getsource(tour.STEPS[heading]))
    assert [name for name in taken if name in shown] == [name for name in shown if name not in BESIDE]


def test_pictures_are_there_and_small() -> None:
    sizes = {path.name: path.stat().st_size // 1024 for path in IMAGES.glob("*.png")}
    assert set(re.findall(r"images/([\w-]+\.png)", PAGE.read_text(encoding="utf-8"))) <= set(sizes)
    assert {name: size for name, size in sizes.items() if size >= KILOBYTES} == {}
    assert sum(sizes.values()) < ALL_KILOBYTES
