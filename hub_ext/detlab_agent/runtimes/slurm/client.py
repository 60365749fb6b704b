"""What the runtime asks of a Slurm cluster, and the answers by its commands, here or over ssh.

The commands print what `--format` asks for: that is the same in all versions, while `--json` differs from one to the
next.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Protocol

from detlab.schemas.wire import QueueHello
from detlab_agent.runtimes.slurm.answers import (
    FIELDS,
    PREFIX,
    JobEnd,
    SlurmJob,
    each_of,
    job_of,
    partition_of,
    status_of,
)
from detlab_agent.runtimes.slurm.options import WHOLE_OPTION
from detlab_agent.runtimes.taskfiles import open_owned

PATIENCE = 60.0
"""Seconds for one command. A controller that is away is asked again by Slurm's own commands for a while."""
_AWAY = re.compile(
    r"unable to contact slurm controller|unable to connect|socket timed out|connection refused|zero bytes were trans"
    r"|standby mode|communication connection failure|endpoint is not connected|temporarily un|try again later"
    r"|munge|authentication|not responding|no route to host|connection (?:reset|timed out|closed)",
    re.IGNORECASE,
)
_LATER = re.compile(r"submit ?(?:job)? ?limit|MaxSubmitJob|MaxJobCount|partition.*(?:down|inactive)", re.IGNORECASE)
_OVER = re.compile(
    r"invalid job id|already (?:completing|completed)|invalid state|not running|"
    r"^scancel ends with status 229$",  # what is left of ESLURM_ALREADY_DONE, 2021: it says nothing else
    re.IGNORECASE,
)
_UNKNOWN_JOB = re.compile(r"invalid job id|^job \S+ not found", re.IGNORECASE | re.MULTILINE)
_SAID = re.compile(r"^(?:sbatch|scontrol|squeue|scancel|sinfo|sacct): (?:error: |fatal: )?", re.MULTILINE)
_GPUS = re.compile(r"(?:^|,)(?:gres/)?gpu(?::(?P<type>[^:,()=]+))??[:=](?P<count>\d+)")
_COUNT = re.compile(r"[0-9]{1,9}")  # what a user writes into a job's comment is not always one
_TAIL = 20_000
_ACCOUNTED = "--format=State,ExitCode,NodeList,Timelimit"
MOST_PARTITIONS = 100


OWNERS = "owners"
"""In the shared folder: has a folder for each owner, by uid, in which none but they and root may look."""
_THE_AGENTS_OWN = frozenset({"SLURM_JWT", "SSH_AUTH_SOCK"})
_SQUASHED = (
    "where the file system takes root for nobody (root_squash) an agent of root cannot keep its users apart: export"
    " --slurm-dir to this machine without it, or run an agent for each user"
)


@dataclass(frozen=True)
class Whose:
    """The account that a job has.

    Attributes:
        uid: Its uid; None: that of the account at the other end of ssh, whichever it is.
        gid: Its group.
        folder: Where its jobs' files are, to be made by root; None: in the shared folder itself.
    """

    uid: int | None = None
    gid: int | None = None
    folder: PurePath | None = None

    @property
    def switched(self) -> bool:
        """Whether it is another account than the agent's."""
        return self.folder is not None


THE_AGENTS = Whose()


class SlurmAway(Exception):
    """Slurm does not answer now: what it was asked may have happened or not."""


class SlurmRefused(Exception):
    """Slurm says no; the message is its own."""


class SlurmFull(SlurmRefused):
    """Slurm takes no more jobs now, and will later."""


class SlurmClient(Protocol):
    """A Slurm cluster. Each method raises `SlurmAway` when it does not answer."""

    def submit(self, arguments: Sequence[str], script: str, whose: Whose) -> str:
        """Submit a job; return its id.

        Raises:
            SlurmRefused: It does not take it.
        """
        ...

    def job(self, job_id: str) -> SlurmJob | None:
        """Return what Slurm says of a job that waits or runs, or has ended lately; None if it knows none."""
        ...

    def jobs(self) -> list[SlurmJob]:
        """Return the jobs of this user (of all, for root) that wait or run, and those that ended lately."""
        ...

    def end_of(self, job_id: str, name: str) -> JobEnd | None:
        """Return how a job ended; None if Slurm has forgotten it.

        Everywhere a job is meant by its number and its name: a controller that dies gives the numbers of its last
        seconds out again.
        """
        ...

    def signal(self, job_id: str, name: str, number: str, *, steps: bool) -> None:
        """Send a signal to the first process of a job, or to its steps. A job that is not there any more gets none."""
        ...

    def cancel(self, job_id: str, name: str, *, at_once: bool = False) -> None:
        """End a job, with SIGKILL if `at_once`."""
        ...

    def addresses_of(self, node: str) -> list[str]:
        """Return where a node is reached: IPv4 addresses, or only its name where none is known."""
        ...

    def largest_array(self) -> int:
        """Return how many jobs an array may have; 0 where there are no arrays.

        Raises:
            SlurmRefused: It does not say.
        """
        ...

    def size(self, partition: str) -> tuple[QueueHello, bool]:
        """Return how large the cluster is and what its nodes do, and whether its slots are GPUs.

        Raises:
            SlurmRefused: There is no such partition.
        """
        ...

    def read(self, path: PurePath, whose: Whose) -> str:
        """Return a job's file; "" if it does not exist, or is no regular file of the job's account."""
        ...

    def prepare(self, directory: PurePath) -> None:
        """Make the shared folder, and in it that of the folders of owners where jobs have their owners' accounts.

        Raises:
            SlurmRefused: It cannot be made, or others could put their own files there.
        """
        ...

    def remove(self, paths: Sequence[PurePath]) -> None:
        """Remove files of the shared folder; those that do not exist are fine."""
        ...


@dataclass
class Commands:
    """A Slurm cluster by its commands.

    Attributes:
        host: Where they are, by ssh; "": here.
        environ: The environment for them.
        everyone: Whether jobs have the accounts of their owners: then those of all users are listed.
    """

    host: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    everyone: bool = False
    patience: float = PATIENCE
    _folders: set[PurePath] = field(default_factory=set, init=False)

    def _run(
        self, words: Sequence[str], given: str = "", whose: Whose = THE_AGENTS
    ) -> subprocess.CompletedProcess[str]:
        command, environ = list(words), dict(self.environ)
        if whose.switched:
            command = ["setpriv", f"--reuid={whose.uid}", f"--regid={whose.gid}", "--clear-groups", "--", *command]
            if not self.host:  # that user can read the environment of this process
                environ = {name: value for name, value in environ.items() if name not in _THE_AGENTS_OWN}
        if self.host:
            command = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", self.host, "--", shlex.join(command)]
        try:
            done = subprocess.run(
                command, input=given, env=environ, cwd="/", capture_output=True, text=True, errors="replace",
                timeout=self.patience, check=False,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise SlurmRefused(f"there is no {command[0]} here: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise SlurmAway(f"{words[0]} does not end within {self.patience:.0f} s") from error
        if self.host and done.returncode == 255:
            raise SlurmAway(f"ssh {self.host}: {done.stderr.strip()[-300:]}")
        return done

    def _ask(self, *words: str, given: str = "", whose: Whose = THE_AGENTS) -> str:
        done = self._run(words, given, whose)
        if done.returncode == 0:
            return done.stdout
        said = _SAID.sub("", done.stderr.strip() or done.stdout.strip())
        brief = "; ".join(dict.fromkeys(line.strip() for line in said.splitlines() if line.strip()))[-400:]
        if _LATER.search(said):
            raise SlurmFull(brief)
        if _AWAY.search(said):
            raise SlurmAway(brief)
        raise SlurmRefused(brief or f"{words[0]} ends with status {done.returncode}")

    def submit(self, arguments: Sequence[str], script: str, whose: Whose) -> str:
        """See `SlurmClient.submit`.

        sbatch itself has the rights of the job's owner, so that it reads no file and asks for no priority that its
        owner could not. The script comes by its standard input, as long as no word is its name.
        """
        for word in arguments:
            if WHOLE_OPTION.fullmatch(word) is None:
                raise SlurmRefused(f"{word[:80]!r} is no whole option of sbatch, and is not passed on")
        if whose.folder is not None and whose.folder not in self._folders:
            self._make_folder(whose)
        said = self._ask("sbatch", "--parsable", *arguments, given=script, whose=whose)
        found = said.strip().splitlines()[-1].partition(";")[0] if said.strip() else ""
        if not found.isdigit():
            raise SlurmRefused(f"sbatch answers {said.strip()[:200]!r} instead of a job's number")
        return found

    def _make_folder(self, whose: Whose) -> None:
        made = str(whose.folder)
        try:
            self._ask("install", "-d", "-m", "700", "-o", str(whose.uid), "-g", str(whose.gid), "--", made)
            self._ask("test", "-w", made, whose=whose)
        except SlurmRefused as error:
            raise SlurmRefused(f"the folder {made} of uid {whose.uid} cannot be made: {error}; {_SQUASHED}") from error
        if whose.folder is not None:
            self._folders.add(whose.folder)

    def job(self, job_id: str) -> SlurmJob | None:
        """See `SlurmClient.job`."""
        try:
            found = self._listed("squeue", "--noheader", "--states=all", f"--jobs={job_id}")
        except SlurmRefused as error:
            if _UNKNOWN_JOB.search(str(error)):
                return None
            raise
        return next(iter(found), None)

    def jobs(self) -> list[SlurmJob]:
        """See `SlurmClient.jobs`."""
        whose = [] if self.everyone else ["--me"]
        # The indices of arrays are shortened without that; a line for each index of all arrays of all would be many.
        found = self._listed("env", "SLURM_BITSTR_LEN=0", "squeue", "--noheader", "--states=all", *whose)
        return [one for job in found for one in (each_of(job) if job.name.startswith(PREFIX) else [job])]

    def _listed(self, *words: str) -> list[SlurmJob]:
        """Ask squeue for jobs. A user's comment may have lines that look like others' jobs: ours have a mark."""
        mark = secrets.token_hex(8)
        lines = self._ask(*words, f"--format={mark}|{FIELDS}").splitlines()
        ours = [line.removeprefix(f"{mark}|") for line in lines if line.startswith(f"{mark}|")]
        return [job for line in ours if (job := job_of(line)) is not None]

    def end_of(self, job_id: str, name: str) -> JobEnd | None:
        """See `SlurmClient.end_of`; the accounting is asked where Slurm itself has forgotten the job."""
        try:
            said = self._ask("scontrol", "--oneliner", "show", "job", job_id)
            if _UNKNOWN_JOB.search(said):  # so it says of a member of an array that it does not know
                return self._accounted(job_id, name)
        except SlurmRefused as error:
            if _UNKNOWN_JOB.search(str(error)):
                return self._accounted(job_id, name)
            raise
        known = dict(re.findall(r"(?:^| )(\w+)=(\S*)", said))
        if known.get("JobName", name) != name:
            return self._accounted(job_id, name)
        return JobEnd(
            known.get("JobState", ""),
            status_of(known.get("ExitCode", "")),
            known.get("BatchHost") or known.get("NodeList", ""),
            known.get("TimeLimit", ""),
            int(known["Restarts"]) if _COUNT.fullmatch(known.get("Restarts", "")) else 0,
        )

    def _accounted(self, job_id: str, name: str) -> JobEnd | None:
        try:
            said = self._ask("sacct", "-n", "-P", "-X", "-j", job_id, f"--name={name}", _ACCOUNTED).strip()
        except SlurmRefused:
            return None  # many clusters have no accounting
        fields = said.splitlines()[-1].split("|") if said else []
        if len(fields) != 4:
            return None
        return JobEnd(fields[0].split()[0], status_of(fields[1]), fields[2], fields[3])

    def signal(self, job_id: str, name: str, number: str, *, steps: bool) -> None:
        """See `SlurmClient.signal`."""
        self._cancel(*_only(job_id, name), f"--signal={number}", *([] if steps else ["--batch"]), job_id)

    def cancel(self, job_id: str, name: str, *, at_once: bool = False) -> None:
        """See `SlurmClient.cancel`."""
        if at_once:
            self._cancel(*_only(job_id, name), "--signal=KILL", "--full", job_id)
        if "_" not in job_id:
            self._cancel(f"--name={name}", job_id)
        elif self._unless_over("squeue", "--noheader", "--array", f"--jobs={job_id}", "--format=%j").strip() == name:
            self._cancel(job_id)

    def _cancel(self, *words: str) -> None:
        self._unless_over("scancel", *words)

    def _unless_over(self, *words: str) -> str:
        """Ask for something of a job; "" if it is not there any more."""
        try:
            return self._ask(*words)
        except SlurmRefused as error:
            if not _OVER.search(str(error)):
                raise
            return ""

    def addresses_of(self, node: str) -> list[str]:
        """See `SlurmClient.addresses_of`."""
        try:
            found = re.search(r" NodeAddr=(\S+)", self._ask("scontrol", "--oneliner", "show", "node", node))
        except SlurmRefused:
            found = None
        name = found[1] if found else node
        try:
            lines = self._ask("getent", "ahostsv4", name).splitlines()
        except SlurmRefused:
            lines = []  # no such name here
        return list(dict.fromkeys(line.split()[0] for line in lines if line.strip())) or [name]

    def largest_array(self) -> int:
        """See `SlurmClient.largest_array`."""
        found = re.search(r"^MaxArraySize\s*=\s*(\d+)", self._ask("scontrol", "show", "config"), re.MULTILINE)
        return int(found[1]) if found else 0

    def size(self, partition: str) -> tuple[QueueHello, bool]:
        """See `SlurmClient.size`."""
        where = [f"--partition={partition}"] if partition else []
        said = self._ask("sinfo", "--noheader", "--Node", *where, "--format=%N|%c|%G")
        nodes = {line.split("|")[0]: line.split("|") for line in said.splitlines() if line.count("|") == 2}
        if partition and not nodes:
            raise SlurmRefused(f"there is no partition {partition}, or it has no node")
        gpus = [sum(int(found["count"]) for found in _GPUS.finditer(fields[2])) for fields in nodes.values()]
        cores = [int(fields[1]) for fields in nodes.values() if fields[1].isdigit()]
        each = gpus if any(gpus) else cores
        found = QueueHello(name="Slurm", slots_per_node=max(each, default=0), slots=sum(each))
        lines = self._ask("sinfo", "--noheader", *where, "--format=%P|%a|%l|%F").splitlines()
        partitions = [one for line in lines if (one := partition_of(line)) is not None]
        return found.model_copy(update={"partitions": partitions[:MOST_PARTITIONS]}), any(gpus)

    def read(self, path: PurePath, whose: Whose) -> str:
        """See `SlurmClient.read`."""
        if self.host:
            # Of a user's FIFO it would wait for an end, and with it a thread of all users.
            regular = 'test -f "$1" && exec tail -c "$2" -- "$1"'
            done = self._run(["timeout", "5", "sh", "-c", regular, "sh", str(path), str(_TAIL)], whose=whose)
            return done.stdout if done.returncode == 0 else ""
        # Users write there: none of them is to show this agent another file under that name.
        try:
            with open_owned(Path(path.parent), path.name, os.getuid() if whose.uid is None else whose.uid) as file:
                if os.fstat(file.fileno()).st_mode & stat.S_IWOTH:
                    return ""
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
                return file.read(_TAIL).decode("utf-8", errors="replace")
        except OSError:
            return ""

    def prepare(self, directory: PurePath) -> None:
        """See `SlurmClient.prepare`."""
        if not self.everyone:
            self._ask("mkdir", "-p", "-m", "700", "--", str(directory))
            return
        owners = directory / OWNERS
        try:
            # The upper one is left as it is: jobs of an earlier version still leave their reports there.
            self._ask("test", "-d", str(directory))
        except SlurmRefused:
            self._ask("mkdir", "-p", "-m", "711", "--", str(directory))
        self._ask("mkdir", "-p", "-m", "711", "--", str(owners))
        uid, mode, kind = self._ask("stat", "-c", "%u %a %F", "--", str(owners)).split(" ", 2)
        if uid != "0" or kind.strip() != "directory" or int(mode, 8) & 0o022:
            raise SlurmRefused(
                f"{owners} is a {kind.strip()} of uid {uid} with mode {mode}: it must be root's, and others may not"
                f" write there; {_SQUASHED}"
            )

    def remove(self, paths: Sequence[PurePath]) -> None:
        """See `SlurmClient.remove`."""
        self._ask("rm", "-f", "--", *map(str, paths))


def _only(job_id: str, name: str) -> list[str]:
    """Return the options by which scancel signals a job of that number only if that is its name.

    With a filter it takes one member of an array that waits for all that wait: these are one job to it.
    """
    return [f"--name={name}", *(["--state=RUNNING"] if "_" in job_id else [])]
