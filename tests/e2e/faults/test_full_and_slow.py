"""Disks without room, and a node that is slow: nothing is lost, nobody is restarted, and somebody says what it is.

The spool, the database and the checkpoints of this cluster are on small file systems of their own.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from spine_lab import Lab, lab_of, single, until

from detlab.client.resources import Trial
from detlab.storage.posix import PosixStorage
from testbed.cluster import Cluster, running_cluster
from testbed.small_disks import CannotRun, Disk, small_disk, throttled
from testbed.stores import names_in

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]

STEPS = 100
CPU = 0.1
"""Of one CPU, for an agent and all its tasks together."""
WRITES = 10
"""A second, of those that somebody waits for."""


@dataclass(frozen=True)
class Site:
    """A cluster and its disks."""

    lab: Lab
    spool: Disk
    database: Disk
    checkpoints: Disk


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A cluster whose agent, database and checkpoints each have a disk of 24 MB."""
    root = tmp_path_factory.mktemp("small")
    folder = root / ".detlab"
    folder.mkdir(mode=0o711)
    with contextlib.ExitStack() as stack:
        try:
            spool = stack.enter_context(small_disk(folder / "agent", 24, 0o711))
            database = stack.enter_context(small_disk(root / "database", 24, 0o700))
            checkpoints = stack.enter_context(small_disk(folder / "checkpoints", 24, 0o1777))
        except CannotRun as error:
            pytest.skip(str(error))
        config = f"c.DetHub.db_url = 'sqlite:///{database.folder}/detlab.sqlite'\nc.EmbeddedCluster.docker = False\n"
        cluster = stack.enter_context(running_cluster(root, slots=2, config=config))
        yield Site(stack.enter_context(lab_of(cluster)), spool, database, checkpoints)


@contextlib.contextmanager
def full(disk: Disk) -> Iterator[None]:
    """A disk without room, as long as the block lasts."""
    disk.fill()
    try:
        yield
    finally:
        disk.free()


def training(lab: Lab, script: str = "toy.py", **hparams: Any) -> Trial:
    """A trial that has just begun to train, with some seconds to go."""
    hparams = {"steps": STEPS, "pause": 0.06, **hparams}
    return lab.at_step(lab.first_trial(lab.submit(single(script, hparams=hparams, max_restarts=2))), 5)


def said(trial: Trial, text: str) -> list[str]:
    """The lines of a trial's output with a text."""
    return [line.text for line in trial.logs(search=text)]


def unharmed(lab: Lab, trial: Trial) -> Trial:
    """The same trial at its end: one attempt, no restart, every step once and in order."""
    (ended,) = lab.completed(trial.get_experiment(), 90).list_trials()
    assert (ended.view.run, ended.view.restarts) == (1, 0)
    assert lab.steps(ended) == list(range(1, STEPS + 1))
    return ended


@pytest.mark.soak
def test_a_full_disk_of_the_spool_is_said_and_holds_the_trial_up_until_there_is_room(site: Site) -> None:
    lab = site.lab
    trial = training(lab)
    with full(site.spool):
        # Its launcher says so, or it does itself: whoever needs a block first.
        line = until("the trial says that there is no room", lambda: said(trial, "disk full"), 30)[0]
        assert str(site.spool.folder) in line
        assert "(df -h)" in line
        now = lab.trial(trial).view
        assert now.display_state == "RUNNING"
        assert now.steps_completed < STEPS
    ended = unharmed(lab, trial)
    assert said(ended, "disk has space again")
    steps = [int(more[0]) for _, _, more in lab.journal(ended, "asked")]
    assert steps == list(range(1, STEPS + 1)), "no line of its output is lost"


def without_write_ahead_log(database: Path) -> None:
    """Empty the log of a database: what is written next needs room, and does not reuse what the log had taken."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        until("its log is empty", lambda: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0, 10)


def test_a_full_disk_of_the_database_is_said_acknowledges_nothing_and_heals_by_itself(site: Site) -> None:
    lab, cluster = site.lab, site.lab.cluster
    trial = training(lab)
    without_write_ahead_log(site.database.folder / "detlab.sqlite")
    with full(site.database):

        def told() -> str | None:
            done = cluster.det("status")
            return done.stdout if done.returncode != 0 and "df -h" in done.stdout else None

        status = " ".join(until("det status says what is full", told, 40).split())
        assert f"make room on its disk (df -h {site.database.folder})" in status
        with cluster.client() as api:
            refused = api.post("experiments", json={"config": single("toy.py", name="refused", entrypoint="true")})
        assert refused.status_code >= 500
    unharmed(lab, trial)
    assert "refused" not in {experiment.view.name for experiment in lab.client.list_experiments(limit=100)}
    assert cluster.det("status").returncode == 0


@pytest.mark.soak
def test_a_full_checkpoint_storage_is_said_and_the_checkpoint_waits_until_there_is_room(site: Site) -> None:
    lab = site.lab
    trial = training(lab, "uploads.py", every=20, size=200_000)
    with full(site.checkpoints):
        line = until("the trial says that there is no room", lambda: said(trial, "disk full:"), 30)[0]
        assert "No space left on device" in line
        assert str(site.checkpoints.folder) in line
        now = lab.trial(trial).view
        assert now.display_state == "RUNNING"
        assert now.steps_completed < STEPS
    ended = unharmed(lab, trial)
    assert said(ended, "disk has space again")
    store = PosixStorage(site.checkpoints.folder)
    kept = {item.view.steps_completed: item for item in ended.get_experiment().list_checkpoints()}
    assert STEPS in kept
    for step, item in kept.items():
        if item.view.state == "COMPLETED":
            with store.restore_path(item.uuid, store.manifest(item.uuid)) as path:  # verifies every file
                assert f'"step": {step}' in (path / "state.json").read_text()
    assert not [name for name in names_in(site.checkpoints.folder) if name.startswith(".stage-")]


def losses(lab: Lab, trial: Trial) -> list[float]:
    with lab.api() as api:
        query = {"group": "training", "name": "loss", "max_points": 1000}
        (series,) = api.get(f"trials/{trial.id}/metrics", params=query).json()["items"]
    return list(series["values"])


@pytest.mark.soak
def test_a_node_with_a_slow_disk_and_a_tenth_of_a_cpu_is_not_shot(site: Site) -> None:
    """Its agent is never lost; its trial is not restarted, and ends as on a node that is quick."""
    lab = site.lab
    config = single("toy.py", hparams={"steps": 30, "pause": 0.02, "save_every": 10}, max_restarts=2)
    (calm,) = lab.completed(lab.submit(config), 60).list_trials()
    agent = lab.cluster.pid("agent")
    assert agent is not None
    begun = master_log(lab.cluster).stat().st_size
    try:
        with throttled(agent, cpu=CPU, disk=site.spool, writes=WRITES) as throttle:
            (slow,) = lab.completed(lab.submit(config), 120).list_trials()
            held_up = throttle.periods_held_up
    except CannotRun as error:
        pytest.skip(str(error))
    assert held_up >= 10, "it was slow"
    assert (slow.view.run, slow.view.restarts) == (1, 0)
    assert losses(lab, slow) == losses(lab, calm)
    assert len(losses(lab, slow)) == 30
    with master_log(lab.cluster).open() as log:
        log.seek(begun)
        assert "lost" not in log.read()
    assert lab.cluster.pid("agent") == agent


def master_log(cluster: Cluster) -> Path:
    return cluster.folder / "logs" / "master.log"
