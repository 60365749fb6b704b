"""A real Slurm on this machine, of Debian's packages: two nodes with GPUs that are none, as processes of the test.

with SlurmCluster(directory) as slurm:
    slurm.environ       # for sbatch, squeue, …
    slurm.controller.kill(); slurm.controller.start()
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType

from detlab.testing.ports import free_ports
from testbed.waiting import until

NODES = ("n0", "n1")
GPUS = 2
"""GPUs of each node: devices by number that are none."""
ACCOUNT = "lab"
"""Of jobs that name an account, only those of this one are taken, as by the accounting of a real site."""
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scontrol", "scancel")
_ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


def missing() -> str:
    """Return why there can be no Slurm here; "" if there can."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:{_ENV['PATH']}") is None]
    if absent:
        return f"no {', '.join(absent)}: apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "Slurm's daemons and devices are root's to make"


@contextmanager
def accounts_for(*users: str) -> Iterator[dict[str, int]]:
    """Make an account of this machine for each Hub user, and remove it: Slurm runs jobs of no others.

    Yields:
        The uid of each.
    """
    made: dict[str, int] = {}
    with ExitStack() as stack:
        for user in users:
            name = f"detlab-{os.getpid()}-{user}"
            # An account that is there for a test alone: no home, no mail, no login.
            subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/sh", name], check=True, env=_ENV)
            stack.callback(subprocess.run, ["userdel", name], check=True, env=_ENV)
            made[user] = pwd.getpwnam(name).pw_uid
        yield made


class Daemon:
    """One of Slurm's programs in the foreground, started and killed at will."""

    def __init__(self, words: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
        self._words, self._environ, self._log = list(words), dict(environ), log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._words, env=self._environ, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        """SIGKILL it: it saves nothing."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def end(self) -> None:
        """Ask it to end; kill it if it does not."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()


class SlurmCluster:
    """munged, slurmctld and a slurmd for each node; a context manager.

    Args:
        directory: Where all of their files are; made if missing.
        partition: More options of the partition `main`, such as a time limit.
        address: Of all nodes.
    """

    def __init__(self, directory: Path, partition: str = "", address: str = "127.0.0.1") -> None:
        self.directory, self._partition, self._address = directory, partition, address
        self.conf = directory / "slurm.conf"
        self.environ = {**_ENV, "SLURM_CONF": str(self.conf)}
        self._ended = ExitStack()
        socket_ = directory / "munge" / "munge.sock"
        self.munged = Daemon(
            [
                "setpriv", "--reuid", "munge", "--regid", "munge", "--clear-groups",
                "munged", "--foreground", "--force",
                "--socket", str(socket_), "--log-file", str(directory / "munge/munged.log"),
                "--pid-file", str(directory / "munge/munged.pid"), "--seed-file", str(directory / "munge/seed"),
                "--key-file", str(directory / "munge/key"),
            ],
            _ENV,
            directory / "log/munged.out",
        )  # fmt: skip
        self.controller = Daemon(["slurmctld", "-D", "-i"], self.environ, directory / "log/slurmctld.out")
        self.nodes = {
            name: Daemon(["slurmd", "-D", "-N", name], self.environ, directory / f"log/slurmd-{name}.out")
            for name in NODES
        }

    def __enter__(self) -> SlurmCluster:
        self._lay_out()
        self._ended.callback(self._end)
        try:
            self.munged.start()
            until((self.directory / "munge/munge.sock").exists, self.logs, 20)
            self.controller.start()
            for node in self.nodes.values():
                node.start()
            self.wait_until_idle()
        except BaseException:
            self._ended.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.close()

    def wait_until_idle(self) -> None:
        """Wait until every node can take jobs."""
        until(
            lambda: self.ask("sinfo", "-h", "-N", "-o", "%t").split() == ["idle"] * len(NODES),
            lambda: self.ask("sinfo") + self.logs(),
            40,
        )

    def ask(self, *words: str) -> str:
        """Run one of Slurm's commands; return what it prints, errors too."""
        done = subprocess.run(
            words,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout

    def save(self, job: str) -> None:
        """Have the controller save what it knows of a job: it does so by itself, but late on a busy machine."""
        began = time.time()
        self.ask("scontrol", "update", f"JobId={job}", "AdminComment=saved")
        until(lambda: (self.directory / "state/job_state").stat().st_mtime > began, self.logs, 40)

    def jobs(self) -> list[str]:
        """Return the names of the jobs that wait, run or end."""
        return self.ask("squeue", "-h", "-o", "%j").split()

    def logs(self) -> str:
        """Return the ends of the daemons' logs."""
        parts = [path.read_text(errors="replace")[-3000:] for path in sorted((self.directory / "log").glob("*.out"))]
        return "\n".join(parts)

    def _lay_out(self) -> None:
        top = self.directory
        for folder in ("munge", "state", "log", *(f"spool-{name}" for name in NODES)):
            (top / folder).mkdir(parents=True, exist_ok=True)
        top.chmod(0o755)
        (top / "munge").chmod(0o755)
        (top / "munge/key").write_bytes(os.urandom(128))
        (top / "munge/key").chmod(0o400)
        for path in (top / "munge", top / "munge/key"):
            shutil.chown(path, "munge", "munge")
        for number in range(GPUS):
            os.mknod(top / f"nvidia{number}", 0o666 | stat.S_IFCHR, os.makedev(1, (3, 5)[number]))
            (top / f"nvidia{number}").chmod(0o666)
        ports = free_ports(1 + len(NODES))
        self.conf.write_text(
            _CONF.format(top=top, port=ports[0], partition=self._partition)
            + "".join(
                f"NodeName={name} NodeHostname=localhost NodeAddr={self._address} Port={port} CPUs=4 RealMemory=8000 "
                f"Gres=gpu:{GPUS} State=UNKNOWN\n"
                for name, port in zip(NODES, ports[1:], strict=True)
            )
            + f"PartitionName=main Nodes=ALL Default=YES State=UP {self._partition}\n"
        )
        (top / "job_submit.lua").write_text(_ACCOUNTS.format(account=ACCOUNT))
        gpus = f"Name=gpu Flags=nvidia_gpu_env File={top}/nvidia[0-{GPUS - 1}]\n"
        (top / "gres.conf").write_text("AutoDetect=off\n" + "".join(f"NodeName={name} {gpus}" for name in NODES))

    def _end(self) -> None:
        try:
            self.ask("scancel", *self.ask("squeue", "-h", "-o", "%A").split())
            until(lambda: not self.ask("squeue", "-h").strip(), "jobs stay", 20) if self._answers() else None
        finally:
            for daemon in (*self.nodes.values(), self.controller, self.munged):
                daemon.end()

    def _answers(self) -> bool:
        return "UP" in self.ask("scontrol", "ping")


_CONF = """\
ClusterName=tests
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={top}/munge/munge.sock
CryptoType=crypto/munge
StateSaveLocation={top}/state
SlurmdSpoolDir={top}/spool-%n
SlurmctldPidFile={top}/slurmctld.pid
SlurmdPidFile={top}/slurmd-%n.pid
SlurmctldLogFile={top}/log/slurmctld.log
SlurmdLogFile={top}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=100000
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/linux
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SlurmctldTimeout=10
SlurmdTimeout=30
SlurmdParameters=config_overrides
MessageTimeout=10
KillWait=5
OverTimeLimit=0
GresTypes=gpu
DefMemPerCPU=500
JobSubmitPlugins=lua
"""
_ACCOUNTS = """\
function slurm_job_submit(job, partitions, uid)
    if job.account ~= nil and job.account ~= "{account}" then
        return slurm.ESLURM_INVALID_ACCOUNT
    end
    return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
    return slurm.SUCCESS
end
"""
