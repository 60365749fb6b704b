"""A start that has to bring a large database up to date first is waited for, however long that takes."""

from __future__ import annotations

import gzip
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from detlab.testing.ports import free_ports
from detlab_hub.app import DetHub
from detlab_hub.embedded import lifecycle
from detlab_hub.embedded import parts as names
from detlab_hub.embedded.process import identify
from detlab_hub.embedded.report import ClusterReport, PartReport, PartState, write_report
from detlab_hub.embedded.state import StartPlan, StateFolder
from detlab_hub.embedded.supervisor import Keeper
from detlab_hub.store import migrate

OLDER = Path(__file__).parents[2] / "integration" / "services" / "upgrades" / "0005.sqlite.sql.gz"


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    found = StateFolder(tmp_path / "state")
    found.create()
    return found


@pytest.fixture
def supervised(folder: StateFolder) -> Iterator[StateFolder]:
    """A folder on which a supervisor runs."""
    with folder.lock():
        yield folder


def up_for_now(folder: StateFolder, said: list[str]) -> lifecycle.StartWatch:
    """What waits for a cluster whose master is this process, and whose Hub never answers."""
    me = identify(os.getpid())
    assert me is not None
    part = PartReport(state=PartState.RUNNING, pid=me.pid, ticks=me.ticks)
    write_report(folder, ClusterReport(pid=me.pid, ticks=me.ticks, started_at=0.0, parts={names.MASTER: part}))
    return lifecycle.StartWatch(folder, StartPlan(*free_ports(4), "ann"), None, said.append)


def test_time_does_not_count_while_the_master_upgrades_its_database(
    supervised: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade of minutes was ended by the 90 seconds of det up, and started over at each next one."""
    said: list[str] = []
    waiting = up_for_now(supervised, said)
    supervised.upgrade_note.write_text(f"{os.getpid()}\n")
    polls = []

    def pause(seconds: float) -> None:
        polls.append(seconds)
        if len(polls) == 5:
            supervised.upgrade_note.unlink()

    monkeypatch.setattr(lifecycle.time, "sleep", pause)
    with pytest.raises(lifecycle.PartFailed, match="the hub does not come up"):
        waiting.until_ready(time.monotonic() - 1.0)
    assert len(polls) == 5
    assert len(said) == 1
    assert "takes minutes" in said[0]


def test_a_note_of_a_master_that_was_killed_delays_nothing(
    supervised: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    waiting = up_for_now(supervised, said)
    monkeypatch.setattr(lifecycle.time, "sleep", lambda _: pytest.fail("the time is up"))
    for note in (f"{os.getppid()}\n", "", "nonsense"):
        supervised.upgrade_note.write_text(note)
        with pytest.raises(lifecycle.PartFailed):
            waiting.until_ready(time.monotonic() - 1.0)
    assert said == []


def test_nobody_waits_for_a_supervisor_that_has_ended(folder: StateFolder) -> None:
    """Killed, it held its lock a moment longer than det up needed to look; the Hub was then waited for in vain."""
    waiting = up_for_now(folder, [])
    with pytest.raises(lifecycle.SupervisorEnded):
        waiting.until_ready(time.monotonic() + 60.0)


def test_a_killed_supervisor_that_still_has_its_lock_is_not_joined(supervised: StateFolder) -> None:
    """Its parts answer, and det up said that the cluster runs; nobody watched over it."""
    waiting = up_for_now(supervised, [])
    assert waiting._look_for_failures()
    me = identify(os.getpid())
    assert me is not None
    killed = me.ticks + 1  # another process had our pid
    write_report(supervised, ClusterReport(pid=me.pid, ticks=killed, started_at=0.0))
    assert not waiting._look_for_failures()


def test_a_supervisor_has_the_sockets_of_what_it_takes_over_before_it_reports_them() -> None:
    me = identify(os.getpid())
    assert me is not None
    taken: list[tuple[int, object]] = []

    class Listeners:
        def take_back(self, pid: int, addresses: object) -> None:
            taken.append((pid, addresses))

    part = SimpleNamespace(name="hub", digest="1", listens=(7,))
    keeper = Keeper(part, Listeners(), lambda: None)  # type: ignore[arg-type]  # all that it asks of them
    keeper.adopt(PartReport(state=PartState.RUNNING, pid=me.pid, ticks=me.ticks, digest="1"))
    assert taken == [(me.pid, (7,))]


def test_the_master_notes_an_upgrade_while_it_lasts_and_no_other_start(
    folder: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = sqlite3.connect(folder.root / "db" / "detlab.sqlite")
    database.executescript(gzip.decompress(OLDER.read_bytes()).decode())
    database.close()
    seen: list[str | None] = []
    upgrade = migrate.upgrade

    def watched(connection: migrate.Connection) -> None:
        note = folder.upgrade_note
        seen.append(note.read_text() if note.exists() else None)
        upgrade(connection)

    monkeypatch.setattr(migrate, "upgrade", watched)
    for _ in range(2):
        DetHub(state_dir=str(folder.root))._open_store().close()
        assert not folder.upgrade_note.exists()
    (folder.root / "db" / "detlab.sqlite").unlink()
    folder.upgrade_note.write_text("1\n")
    DetHub(state_dir=str(folder.root))._open_store().close()
    assert seen == [f"{os.getpid()}\n", None, "1\n"]
    assert not folder.upgrade_note.exists(), "left by one that was killed"
