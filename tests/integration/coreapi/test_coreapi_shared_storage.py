"""Two users, one of them hostile, with one checkpoint storage that both may write into (mode 1777), as is the default.

Their processes have uids of their own. Alice stores as a trial does; Bob tries what the kernel lets him.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from detlab.core.checkpoint.abandoned import TrialLeftovers
from detlab.core.metrics.tensorboard import TensorboardManager, TensorboardMode
from detlab.run.tensorboard import Feeder
from detlab.storage import DirectoryStorage
from testbed.people.other_users import PATIENCE, User, users

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become two other users")
ALICE, BOB = 24501, 24502
UUID = "11111111-1111-4111-8111-111111111111"
SECRET, FORGED = "what only Alice may read", "what Bob made up"
EVENTS = "events.out.tfevents.1"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody may pass (pytest's own are 0700), with one that everybody may write into."""
    path = Path(tempfile.mkdtemp(prefix="detlab-shared-"))
    path.chmod(0o755)
    for name, mode in (("checkpoints", 0o1777), ("mine", 0o700), ("bobs", 0o777)):
        (path / name).mkdir()
        (path / name).chmod(mode)
    os.chown(path / "mine", ALICE, ALICE)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def root(place: Path) -> Path:
    return place / "checkpoints"


@pytest.fixture
def both() -> Iterator[list[User]]:
    with users(ALICE, BOB) as started:
        yield started


# --- what Alice does


def begin(root: Path) -> None:
    TrialLeftovers(DirectoryStorage(root), "c1", 7, 1).begin(UUID)


def write(root: Path, name: str = "state") -> None:
    (DirectoryStorage(root).stage(UUID) / name).write_text(SECRET)


def publish(root: Path) -> None:
    DirectoryStorage(root).publish(UUID, {"steps_completed": 1})


def stored(root: Path) -> dict[str, str]:
    """What is in the checkpoint, verified."""
    store = DirectoryStorage(root)
    with store.restore_path(UUID, store.manifest(UUID)) as path:
        return {found.name: found.read_text() for found in path.iterdir() if found.name.startswith("state")}


def upload(root: Path, mine: Path) -> None:
    """Copy an event file to the storage, as the trainer does."""
    (mine / "events").mkdir()
    (mine / "events" / EVENTS).write_text(SECRET)
    store = DirectoryStorage(root)
    TensorboardManager(mine / "events", TensorboardMode.MANUAL, 0, store, "tensorboard-c1-3-7").sync()


def shown(root: Path, mine: Path) -> list[str]:
    """What the feeder of a TensorBoard copies of trial 7 of experiment 3, which has ended."""
    config = {"checkpoint_storage": {"type": "shared_fs", "host_path": str(root)}}
    ended = SimpleNamespace(terminal=True)
    experiment = SimpleNamespace(id=3, view=SimpleNamespace(config=config), state=ended)
    Feeder(cast("Any", None), mine / "board", "c1")._copy(
        cast("Any", experiment), cast("Any", SimpleNamespace(trials={7}))
    )
    return [path.read_text() for path in (mine / "board").rglob("*tfevents*")]


# --- what Bob tries


def listed(root: Path) -> list[str]:
    """The names of all that he can see."""
    return [name for _, folders, names in os.walk(root) for name in (*folders, *names)]


def list_until(root: Path, stop: Path) -> list[str]:
    """All names that he has ever seen until a file is there."""
    seen: set[str] = set()
    give_up = time.monotonic() + PATIENCE
    while not stop.exists() and time.monotonic() < give_up:
        seen |= set(listed(root))
    return sorted(seen)


def read_all(root: Path) -> str:
    """All that he can read."""
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(OSError):
                found.append((Path(folder) / name).read_text(errors="replace"))
    return "\n".join(found)


def squat(path: Path, what: str) -> None:
    """Take a name before Alice does."""
    if what == "folder":
        path.mkdir()
        path.chmod(0o777)
    elif what == "closed":
        path.mkdir(mode=0o700)
    elif what == "link":
        elsewhere = path.parents[1] / "bobs" / "open"
        elsewhere.mkdir(exist_ok=True)
        elsewhere.chmod(0o777)
        path.symlink_to(elsewhere)
    else:
        path.write_text("")
        path.chmod(0o666)


def take_what_is_begun(root: Path) -> list[str]:
    """Take the places of all checkpoints whose uuid he can see."""
    seen = {name.split(".")[-1] for name in listed(root) if name.startswith(".pending-")}
    seen |= {name.removeprefix(".stage-") for name in listed(root) if name.startswith(".stage-")}
    for uuid in seen:
        for name in (f".stage-{uuid}", uuid):
            with contextlib.suppress(FileExistsError):
                squat(root / name, "folder")
    return sorted(seen)


def forge(root: Path) -> None:
    """Put an event file where that of Alice's trial would lie."""
    for folder in root.glob("tensorboard-c1-3-7*"):
        with contextlib.suppress(OSError):
            (folder / f"{EVENTS}.bob").write_text(FORGED)


# --- what comes of it


def test_no_uuid_of_a_checkpoint_is_seen_by_another_user_before_it_is_published(
    root: Path, place: Path, both: list[User]
) -> None:
    alice, bob = both
    bob.begin(list_until, root, place / "stop")
    for step in (begin, write):
        alice(step, root)
        time.sleep(0.1)
    (place / "stop").touch()
    seen = bob.result()
    assert [name for name in seen if UUID in name] == []
    assert seen == [f".unfinished-{ALICE}"]
    alice(publish, root)
    assert UUID in bob(listed, root)
    assert SECRET not in bob(read_all, root)
    assert alice(stored, root) == {"state": SECRET}


@pytest.mark.parametrize("what", ["folder", "closed", "link", "file"])
def test_who_takes_the_names_of_what_another_user_begins_reads_nothing_and_stops_nothing(
    root: Path, place: Path, both: list[User], what: str
) -> None:
    alice, bob = both
    for name in (f".unfinished-{ALICE}", f".unfinished-{ALICE}.1"):
        bob(squat, root / name, what)
    alice(begin, root)
    assert bob(take_what_is_begun, root) == []
    alice(write, root)
    assert bob(take_what_is_begun, root) == []
    assert SECRET not in bob(read_all, place)
    alice(publish, root)
    assert SECRET not in bob(read_all, place)
    assert alice(stored, root) == {"state": SECRET}
    assert (root / UUID).stat().st_uid == ALICE


def test_nobody_can_be_in_the_place_of_what_another_user_publishes(root: Path, both: list[User]) -> None:
    alice, bob = both
    alice(begin, root)
    alice(write, root)
    bob(take_what_is_begun, root)
    assert not (root / UUID).exists()
    alice(publish, root)
    assert alice(stored, root) == {"state": SECRET}


def test_who_gives_a_taken_name_up_divides_no_checkpoint(root: Path, both: list[User]) -> None:
    """The rank that begins after it stages where the chief does."""
    alice, bob = both
    bob(squat, root / f".unfinished-{ALICE}", "folder")
    alice(begin, root)
    alice(write, root, "state0")
    bob(os.rmdir, root / f".unfinished-{ALICE}")
    with users(ALICE) as (rank,):
        rank(write, root, "state1")
        assert SECRET not in bob(read_all, root)
    alice(publish, root)
    assert alice(stored, root) == {"state0": SECRET, "state1": SECRET}


@pytest.mark.parametrize("what", ["folder", "link", "file"])
def test_event_files_are_neither_shown_to_nor_taken_from_who_took_the_folders_name(
    root: Path, place: Path, both: list[User], what: str
) -> None:
    alice, bob = both
    bob(squat, root / "tensorboard-c1-3-7", what)
    bob(forge, root)
    alice(upload, root, place / "mine")
    bob(forge, root)
    assert SECRET not in bob(read_all, place)
    assert alice(shown, root, place / "mine") == [SECRET]


def test_a_tensorboard_shows_nothing_that_another_user_made_up_for_a_trial(
    root: Path, place: Path, both: list[User]
) -> None:
    alice, bob = both
    bob(squat, root / "tensorboard-c1-3-7", "folder")
    bob(forge, root)
    assert alice(shown, root, place / "mine") == []
