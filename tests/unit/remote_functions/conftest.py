"""A fake master that runs the cells it is asked for, each in a process of its own, and scripts that use it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from detlab.client import Client, singleton
from detlab.schemas.taskwire import TaskView
from testbed.fake_master.api import FakeMaster
from testbed.task_outputs import make_cell_dir, taking_outputs


@dataclass
class Runner:
    """Runs what is asked of the master.

    Attributes:
        master: Who is asked.
        folder: Where tasks have their folders.
        holds: Whether tasks wait until it is set.
    """

    master: FakeMaster
    folder: Path
    hold: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self, view: TaskView) -> None:
        bundle = self.master.asked[-1].bundle
        assert bundle is not None
        thread = threading.Thread(target=self._run, args=(view.id, self.master.bundles[bundle]))
        self.threads.append(thread)
        thread.start()

    def _run(self, task_id: str, bundle: bytes) -> None:
        assert self.hold.wait(60)
        if self.master.tasks[task_id].state.terminal:
            return
        self.master.bring_up(task_id)
        with taking_outputs() as taker:
            work = make_cell_dir(self.folder / task_id, taker.url)
            with tarfile.open(fileobj=io.BytesIO(bundle)) as archive:
                archive.extractall(work)
            env = {key: value for key, value in os.environ.items() if not key.startswith("DET_")}
            env |= {"DET_TASK_DIR": str(work.parent), "PYTHONUNBUFFERED": "1"}
            command = [sys.executable, "-m", "detlab.run.cell"]
            done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, timeout=60, check=False)
            for line in done.stdout.splitlines():
                self.master.task_log(task_id, line, stdtype="stdout")
            for line in done.stderr.splitlines():
                self.master.task_log(task_id, line, stdtype="stderr")
            for name, content in taker.taken.items():
                self.master.add_output(task_id, name, content)
        if not self.master.tasks[task_id].state.terminal:
            self.master.end_task(task_id, done.returncode)

    def close(self) -> None:
        self.hold.set()
        for thread in self.threads:
            thread.join()


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    """What the functions of `detlab.client` find is this master."""
    with FakeMaster() as master:
        monkeypatch.setenv("DET_URL", master.url)
        monkeypatch.setenv("DET_TOKEN", master.token)
        for name in ("DET_TASK_DIR", "JUPYTERHUB_API_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        found = Runner(master, tmp_path / "tasks")
        found.hold.set()
        master.on_create = found.start
        yield found
        found.close()
        singleton.logout()


@pytest.fixture
def client(runner: Runner) -> Client:
    return singleton.current_client()


@dataclass
class Script:
    """How a script ended."""

    status: int
    stdout: str
    stderr: str


@pytest.fixture
def run_script(runner: Runner, tmp_path: Path) -> Callable[[str], Script]:
    """Runs a script in a process of its own, which asks the same master."""

    def go(text: str) -> Script:
        path = tmp_path / "script" / "train.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
        command = [sys.executable, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False, cwd=path.parent)
        return Script(done.returncode, done.stdout, done.stderr)

    return go
