"""A cluster whose pool `slurm` is a real Slurm's, by an agent of its own: for the tests in `slurm/`."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from spine_lab import Lab, lab_of

from testbed import processes
from testbed.cluster import Cluster, running_cluster
from testbed.slurm import SlurmCluster, accounts_for, missing
from testbed.waiting import until

POOLS = (
    'c.DetHub.pools = {"default": {"description": "this machine"}, "slurm": {"description": "jobs of Slurm"}}\n'
    "c.DetHub.agent_reconnect_wait = 60.0\n"
)


@dataclass
class SlurmAgent:
    """`det agent run --slurm`, started and killed at will."""

    cluster: Cluster
    slurm: SlurmCluster
    folder: Path
    more: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None
    environ: dict[str, str] = field(default_factory=dict)
    url: str = ""
    """Of the master, if not the cluster's own."""

    @property
    def log(self) -> str:
        """What it has said so far, over all of its starts."""
        path = self.folder / "agent.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def start(self, says: str = "connected to cluster") -> None:
        """Start it, enrolled as `batch`, and wait until it says something."""
        token = self.folder / "token"
        if not token.exists():
            token.touch(mode=0o600)
            token.write_text(self.cluster.det("agent", "enrol", check=True).stdout, encoding="ascii")
        words = [sys.executable, "-P", "-m", "detlab_agent", "--master", self.url or self.cluster.url]
        words += ["--name", "batch"]
        words += ["--pool", "slurm", "--slurm", "--slurm-interval", "0.5"]
        words += ["--slurm-dir", str(self.folder / "jobs")]
        words += ["--dir", str(self.folder / "agent"), "--enrolment-token-file", str(token), *self.more]
        environ = {**self.cluster.environment, "SLURM_CONF": str(self.slurm.conf), **self.environ}
        began = self.log.count(says)
        with (self.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(words, cwd="/", env=environ, stdout=log, stderr=log)
        until(lambda: self.log.count(says) > began, lambda: self.log, 40)

    def kill(self) -> None:
        """SIGKILL it; its jobs run on."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def end(self) -> None:
        """Ask it to end."""
        if self.process is not None:
            processes.end(self.process, 20)


@dataclass(frozen=True)
class SlurmLab:
    """All of it."""

    lab: Lab
    slurm: SlurmCluster
    agent: SlurmAgent


@contextmanager
def slurm_lab(*more: str, config: str = "") -> Iterator[SlurmLab]:
    """Start Slurm, a cluster and the agent between them."""
    if why := missing():
        pytest.skip(f"no Slurm here: {why}")
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="detlab-slurm-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        slurm = stack.enter_context(SlurmCluster(folder / "slurm"))
        (folder / "cluster").mkdir()  # where accounts reach the checkpoints
        accounts = stack.enter_context(accounts_for("root", "ada"))
        config += f"c.EmbeddedCluster.user_map = {accounts}\n"
        cluster = stack.enter_context(running_cluster(folder / "cluster", slots=1, config=POOLS + config))
        (folder / "agent").mkdir()
        agent = SlurmAgent(cluster, slurm, folder / "agent", more)
        stack.callback(agent.end)
        agent.start()
        yield SlurmLab(stack.enter_context(lab_of(cluster)), slurm, agent)
