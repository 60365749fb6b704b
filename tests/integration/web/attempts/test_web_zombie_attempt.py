"""A node that stands still for longer than its agent may be silent, and goes on: its attempt of a trial is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from detlab.client import Client
from detlab.client.resources import Trial
from detlab.launch.host import procfs
from detlab_hub.store.tables import CheckpointRow, MetricPoint
from testbed import small_search
from testbed.cluster import Cluster
from testbed.master_forks import Masters
from testbed.scripted_node import Service, service_at
from testbed.waiting import until

pytestmark = pytest.mark.hub

SILENCE = 8.0
"""Seconds without a word of an agent, which speaks every five, after which its tasks run elsewhere."""
PROGRAM = """
import time
import detlab as det

info = det.get_cluster_info()
with det.core.init() as core:
    step = 0
    if info.latest_checkpoint is not None:
        with core.checkpoint.restore_path(info.latest_checkpoint) as path:
            step = int((path / "step").read_text())
    while not core.preempt.should_preempt():
        time.sleep(0.2)
        step += 1
        core.train.report_validation_metrics(step, {"error": 1.0 / step})
        with core.checkpoint.store_path({"steps_completed": step}) as (path, uuid):
            (path / "step").write_text(str(step))
"""
CONFIG: dict[str, Any] = {
    "name": "zombie",
    "entrypoint": ["python3", "trains.py"],
    "searcher": {"name": "single", "metric": "error"},
    "hyperparameters": {},
    "max_restarts": 0,
}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that tasks of every user may pass."""
    path = Path(tempfile.mkdtemp(prefix="detlab-zombie-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


class Agent:
    """An agent with one slot, as a process, and its tasks'."""

    def __init__(self, name: str, service: Service, folder: Path, token: Path, environment: dict[str, str]) -> None:
        self.folder = folder / name
        options = () if os.geteuid() == 0 else ("--serves-user", os.environ["USER"])
        command = [sys.executable, "-P", "-m", "detlab_agent", "--master", service.base, "--dir", str(self.folder)]
        command += ["--name", name, "--slots", "1", "--enrolment-token-file", str(token), *options]
        with (folder / f"{name}.log").open("wb") as log:
            self.process = subprocess.Popen(command, cwd="/", env=environment, stdout=log, stderr=log)

    @property
    def task_dirs(self) -> list[Path]:
        """Of the tasks that it knows."""
        tasks = self.folder / "tasks"
        return [path for path in tasks.iterdir() if path.is_dir()] if tasks.is_dir() else []

    def processes(self) -> list[procfs.Process]:
        """Of its tasks: launchers and what they started."""
        return [process for path in self.task_dirs for process in procfs.task_processes(path, None, None)]

    def launcher(self) -> int:
        """The launcher of its one task."""
        (path,) = self.task_dirs
        return int(json.loads((path / "launcher.json").read_text())["pid"])


@contextmanager
def running(agents: list[Agent]) -> Iterator[None]:
    """End them and their tasks at the end, also those that stand still."""
    try:
        yield
    finally:
        for agent in agents:
            agent.process.kill()
            agent.process.wait()
            until(lambda agent=agent: not procfs.send_signal(agent.processes(), signal.SIGKILL), "they do not end", 20)


def rows_of_run(url: str, run: int) -> tuple[list[Any], list[Any]]:
    """The points and checkpoints that an attempt has written."""
    with small_search.reading(url) as s:
        points = s.execute(
            select(MetricPoint.series_id, MetricPoint.step, MetricPoint.value)
            .where(MetricPoint.run == run)
            .order_by(MetricPoint.step)
        )
        saved = s.scalars(select(CheckpointRow.uuid).where(CheckpointRow.run == run).order_by(CheckpointRow.uuid))
        return [tuple(row) for row in points], list(saved)


def test_I3_a_node_that_stood_still_past_its_lease_is_refused_everywhere_and_its_trial_ends(
    cluster: Cluster, forks: Masters, open_folder: Path, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/detlab.sqlite"
    state = open_folder / "state"
    service, _ = service_at(url, cluster, forks, state, f"--DetHub.agent_reconnect_wait={SILENCE}")
    state.chmod(0o711)
    (state / "checkpoints").mkdir()
    (state / "checkpoints").chmod(0o1777)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "trains.py").write_text(PROGRAM)
    service.start()
    with ExitStack() as stack:
        stack.callback(lambda: forks.end(service.process))
        client = stack.enter_context(Client(service.base, cluster.token))
        until(lambda: answers(service), service.log.read_text, 60)
        made = [
            Agent(name, service, open_folder, state / "enrolment_token", cluster.environment) for name in ("one", "two")
        ]
        stack.enter_context(running(made))
        experiment = client.create_experiment(CONFIG, tmp_path / "code")
        trial = experiment.await_first_trial(60)
        until(lambda: now(client, trial).view.steps_completed >= 3, service.log.read_text, 60)
        (agent,) = [agent for agent in made if agent.task_dirs]
        frozen = agent.processes()
        launcher = agent.launcher()
        users = [process for process in frozen if process.pid != launcher]
        assert users
        # the whole node stands still; the trial is given to the other one, which no restart is counted for
        agent.process.send_signal(signal.SIGSTOP)
        procfs.send_signal(frozen, signal.SIGSTOP)
        until(lambda: rows_of_run(url, 2)[1], service.log.read_text, 90)
        before = rows_of_run(url, 1)
        assert before[0]
        # the trial alone goes on: its next checkpoint waits for its reports, it hears that it does in vain, and ends
        procfs.send_signal(users, signal.SIGCONT)
        until(lambda: not any(lives(process) for process in users), "the zombie trains on", 60)
        # then its launcher: the reports that were left are refused
        os.kill(launcher, signal.SIGCONT)
        until(lambda: not any(lives(process) for process in frozen), "its launcher delivers for ever", 60)
        # then the agent: it is told that nothing of this attempt counts, and forgets it
        agent.process.send_signal(signal.SIGCONT)
        until(lambda: not agent.task_dirs, "the agent keeps the attempt", 60)
        steps = now(client, trial).view.steps_completed
        until(lambda: now(client, trial).view.steps_completed > steps + 2, service.log.read_text, 60)
        assert rows_of_run(url, 1) == before
        view = now(client, trial).view
        assert (view.run, view.restarts, view.state) == (2, 0, "ACTIVE")
        refused = service.log.read_text()
        assert "409 GET /services/detlab/api/v1/task/preempt" in refused
        assert "409 POST /services/detlab/api/v1/task/records" in refused
        experiment.kill()
        assert experiment.wait(60)


def answers(service: Service) -> bool:
    """Whether the master serves."""
    try:
        return httpx.get(f"{service.base}health", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def lives(process: procfs.Process) -> bool:
    """Whether it still runs."""
    return procfs.is_alive(process.pid, process.start_time)


def now(client: Client, trial: Trial) -> Trial:
    """The trial as it is."""
    return client.get_trial(trial.id)
