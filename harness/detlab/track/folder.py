"""The folder of a run on disk: what it is called, its processes with the records of each, its files.

detlab-runs/KEY/run.json            what the run is; written once
detlab-runs/KEY/WRITER/             one for each process that logs
    process.json                    who it is, by which it is found out whether it still lives
    metrics.jsonl, metrics.seq …    its records (`detlab.core.metrics.spool`): appended, never changed
    media/                          images and other objects that the master does not have yet
detlab-runs/KEY/files/              code, packages
detlab-runs/KEY/companion.log       what the process that sends has to say
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import socket
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from detlab.schemas.wire.runs import RUN_KEY_CHARS, RUN_KEY_PATTERN
from detlab.track.errors import RunFolderError

RUNS_FOLDER = "detlab-runs"
FOLDER_VARIABLE = "DET_RUNS_DIR"
RECORDS, PROCESS_FILE, RUN_FILE, FILES, MEDIA = "metrics.jsonl", "process.json", "run.json", "files", "media"
SENT_AS = "sent_as"
VERSION = 1
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class RunDescription:
    """What a run is, as its script said when it began.

    Attributes:
        key: By which its script and its folder know it; drawn, or chosen by the user.
        project: `NAME`, `WORKSPACE/NAME` or `OWNER/WORKSPACE/NAME`; empty: none.
        name: For people.
        group: What it belongs to.
        job_type: Its part in that.
        notes: For people.
        started: Seconds since the epoch.
        joins: Whether it goes on with a run of its key that has ended: it is resumed, or shares a variable with others.
    """

    key: str
    project: str = ""
    name: str = ""
    group: str = ""
    job_type: str = ""
    notes: str = ""
    started: float = 0.0
    joins: bool = False


@dataclass(frozen=True)
class ScriptProcess:
    """A process, so that it is known again, and not taken for a later one with its number."""

    host: str = ""
    boot: str = ""
    pid: int = 0
    began: str = ""
    """Of /proc/PID/stat, in ticks since the machine booted; empty: not known."""

    @classmethod
    def own(cls, pid: int | None = None) -> ScriptProcess:
        """Return that of this process, or of another one of this machine."""
        number = os.getpid() if pid is None else pid
        return cls(socket.gethostname(), _boot(), number, _began(number))

    @property
    def lives(self) -> bool | None:
        """Whether it runs; None: it cannot be told from here, as it ran on another machine."""
        if not self.pid or not self.boot or (self.host, self.boot) != (socket.gethostname(), _boot()):
            return None
        if not _began(self.pid):
            return False
        return not self.began or self.began == _began(self.pid)


def _boot() -> str:
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _began(pid: int) -> str:
    """Return when a process began, in ticks since the boot; empty: there is none, or it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    parts = text[text.rfind(")") + 1 :].split()
    return "" if len(parts) < 20 or parts[0] in {"Z", "X"} else parts[19]


@dataclass(frozen=True)
class RunFolder:
    """A run's folder."""

    path: Path
    run: RunDescription = field(compare=False)

    @classmethod
    def made(cls, above: Path, run: RunDescription) -> RunFolder:
        """Make the folder of a run, or open the one that is there: then what it says of the run holds.

        Raises:
            OSError: It cannot be written.
            RunFolderError: There is a folder that is none of a run.
        """
        path = above / run.key
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(OSError), (above / ".gitignore").open("x", encoding="ascii") as ignored:
            ignored.write("*\n")
        try:
            _write_once(path / RUN_FILE, {"version": VERSION, **asdict(run)})
        except FileExistsError:
            return cls.opened(path)
        return cls(path, run)

    @classmethod
    def opened(cls, path: Path) -> RunFolder:
        """Open a folder that is there.

        Raises:
            RunFolderError: It is none of a run, or of one that this version cannot read.
        """
        try:
            said: Any = json.loads((path / RUN_FILE).read_text(encoding="utf-8"))
            version = said.pop("version")
            known = {name: said[name] for name in RunDescription.__dataclass_fields__ if name in said}
            run = RunDescription(**known)
            if not isinstance(run.key, str) or not is_run_key(run.key):
                raise ValueError(f"{run.key!r} is no id of a run")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunFolderError(
                f"{path} is no folder of a run: {error}",
                hint=f"A run has one below {RUNS_FOLDER}/, with the file {RUN_FILE} in it",
            ) from error
        if version != VERSION:
            raise RunFolderError(f"{path} is a run's folder of version {version}, which needs a newer detlab")
        return cls(path, run)

    @property
    def sent_as(self) -> str:
        """The key by which the master has it: another than its own where that was of a run that had ended before."""
        try:
            said = (self.path / SENT_AS).read_text(encoding="utf-8").strip()
        except OSError:
            return self.run.key
        return said if is_run_key(said) else self.run.key

    def send_as(self, key: str) -> None:
        """Remember that key, before anything is sent under it.

        Raises:
            OSError: It cannot be written.
        """
        new = self.path / f".{SENT_AS}.{os.getpid()}"
        new.write_text(key, encoding="utf-8")
        new.replace(self.path / SENT_AS)

    @property
    def files(self) -> Path:
        """Where its files are."""
        return self.path / FILES

    def new_writer(self) -> str:
        """Make the folder of a process's records, and return its name.

        Raises:
            OSError: It cannot be written.
        """
        host = re.sub(r"[^a-z0-9-]", "-", socket.gethostname().lower())[:24]
        name = f"{host}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        folder = self.path / name
        folder.mkdir(mode=0o700)
        _write_once(folder / PROCESS_FILE, asdict(ScriptProcess.own()))
        return name

    def writers(self) -> list[str]:
        """Return the names of all folders of records."""
        return sorted(path.parent.name for path in self.path.glob(f"*/{PROCESS_FILE}"))

    def process_of(self, writer: str) -> ScriptProcess:
        """Return the process that writes some records; an empty one where that is not known."""
        try:
            said: Mapping[str, Any] = json.loads((self.path / writer / PROCESS_FILE).read_text(encoding="utf-8"))
            known = {name: said[name] for name in ScriptProcess.__dataclass_fields__ if name in said}
            return ScriptProcess(**known)
        except (OSError, ValueError, TypeError):
            return ScriptProcess()


def waiting_media(directory: Path) -> list[Path]:
    """Return what says of each object of a process that waits for the master what it is, the oldest first."""
    return sorted((directory / MEDIA).glob("*.json"))


def is_run_key(text: str) -> bool:
    """Whether a text can be the key of a run, and so the name of a folder."""
    return len(text) <= RUN_KEY_CHARS and re.fullmatch(RUN_KEY_PATTERN.strip("^$"), text) is not None


def numbered(key: str) -> Iterator[str]:
    """Give a key, and then those of further runs that were to have it: `baseline`, `baseline-2` and so on."""
    yield key
    yield from (f"{key[: RUN_KEY_CHARS - 10]}-{number}" for number in itertools.count(2))


def folders_in(paths: list[Path]) -> list[RunFolder]:
    """Return the runs of some folders: each is one itself, or has some in it.

    Raises:
        RunFolderError: One of them is neither.
    """
    found: dict[Path, RunFolder] = {}
    for path in paths:
        inside = [path] if (path / RUN_FILE).is_file() else sorted(one.parent for one in path.glob(f"*/{RUN_FILE}"))
        if not inside and path.name != RUNS_FOLDER:
            inside = sorted(one.parent for one in path.glob(f"{RUNS_FOLDER}/*/{RUN_FILE}"))
        if not inside:
            raise RunFolderError(
                f"there is no run in {path}", hint=f"Name a folder of a run, or the folder {RUNS_FOLDER} with several"
            )
        found.update((one.resolve(), RunFolder.opened(one)) for one in inside)
    return list(found.values())


def _write_once(path: Path, value: Mapping[str, Any]) -> None:
    """Write a file whole, unless there is one.

    Raises:
        FileExistsError: There is one.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:6]}")
    try:
        with new.open("x", encoding="utf-8") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(new, path)
        except FileExistsError:
            raise
        except OSError as error:  # a file system without hard links
            if path.exists():
                raise FileExistsError(path) from error
            new.replace(path)
    finally:
        new.unlink(missing_ok=True)
