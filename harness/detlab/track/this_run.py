"""A run of this process: what it logs, its configuration and results, and its end."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from detlab.core.event_files.importing import EventImport
from detlab.core.event_files.trials import import_of_process
from detlab.core.metrics.media import MediaSpool
from detlab.media import EncodedMedia, kinds
from detlab.media.convert import media_of
from detlab.pasted import word
from detlab.schemas.wire.runs import METRIC_TAG, ExitStatus
from detlab.track.artifacts import ArtifactFinder, keep_use, keep_version, kept_in
from detlab.track.exits import ExitWatch
from detlab.track.folder import MEDIA, RunFolder, ScriptProcess, waiting_media
from detlab.track.logged import number_of, plain, plain_config, sorted_values
from detlab.track.output import OutputCopy, Stream
from detlab.track.records import LoggedRecords

if TYPE_CHECKING:
    from detlab.client.artifacts.draft import Artifact
    from detlab.client.artifacts.logged import ArtifactVersion

logger = logging.getLogger("detlab.track")
Mode = Literal["online", "offline", "disabled"]
FINISH_SECONDS = 60.0
"""That `finish` waits at most for the records to reach the master."""
FINISH_VARIABLE = "DET_RUN_FINISH_SECONDS"
_ALERT_CHARS = 4000
_LEVELS = frozenset({"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"})
MOST_TOLD = 100
"""Problems of values that are told, of one run."""


class RunConfig(MutableMapping[str, Any]):
    """The configuration of a run: `run.config["lr"]`, `run.config.lr`; what is set is logged."""

    def __init__(self, records: LoggedRecords | None) -> None:
        object.__setattr__(self, "_records", records)
        object.__setattr__(self, "_values", {})

    def update(self, *given: Any, allow_val_change: bool = True, **more: Any) -> None:
        """Set several: of a mapping, arguments of a command line, a dataclass or a pydantic model."""
        values = {key: value for one in given for key, value in plain_config(one).items()} | plain_config(more)
        if not values:
            return
        self._values.update(values)
        if self._records is not None:
            self._records.append("config", {"values": values})

    setdefaults = update

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def __delitem__(self, key: str) -> None:
        raise TypeError("a parameter that was logged stays; set another value")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError as error:
            raise AttributeError(f"this run's configuration has no {name!r}: {', '.join(self._values)}") from error

    def __setattr__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __repr__(self) -> str:
        return repr(self._values)


class RunResults(MutableMapping[str, Any]):
    """The results of a run: the newest value of each metric, unless the script has said another."""

    def __init__(self, records: LoggedRecords | None) -> None:
        self._records = records
        self._said: dict[str, Any] = {}
        self._newest: dict[str, float] = {}

    def update(self, *given: Any, **more: Any) -> None:
        """Set several."""
        values = {str(key): plain(value) for key, value in dict(*given, **more).items()}
        if values:
            self._said.update(values)
            if self._records is not None:
                self._records.append("summary", {"values": values})

    def __getitem__(self, key: str) -> Any:
        return self._said[key] if key in self._said else self._newest[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def __delitem__(self, key: str) -> None:
        raise TypeError("a result that was logged stays; set another value")

    def __iter__(self) -> Iterator[str]:
        return iter({**self._newest, **self._said})

    def __len__(self) -> int:
        return len({**self._newest, **self._said})

    def __repr__(self) -> str:
        return repr(dict(self))


class Run:
    """A run that this process has begun, or is a process of; made by `detlab.init`.

    Attributes:
        id: By which it is resumed, and found: `det run describe ID`.
        folder: What of it is on disk; None: it is disabled.
        config: Its configuration.
        summary: Its results.
        strict: Whether what cannot be logged raises.
    """

    def __init__(
        self,
        folder: RunFolder | None,
        key: str,
        *,
        writer: str = "",
        mode: Mode = "online",
        strict: bool = False,
        first_step: int = 0,
        records: LoggedRecords | None = None,
        media: MediaSpool | None = None,
    ) -> None:
        self.id = key
        self.folder = folder
        self._writer = writer
        self.strict = strict
        self._records = LoggedRecords(folder.path / writer, strict=strict) if folder is not None else records
        self._media = MediaSpool(folder.path / writer / MEDIA) if folder is not None else media
        self.mode: Mode = mode if self._records is not None else "disabled"
        self.config = RunConfig(self._records)
        self.summary = RunResults(self._records)
        self._finder = ArtifactFinder()
        self._pid = os.getpid()
        self._step = first_step
        self._lock = threading.RLock()
        self._pending: dict[str, Any] = {}
        self._told = 0
        self._measured = False
        self._known_problems: set[str] = set()
        self._companion: subprocess.Popen[bytes] | None = None
        self._output = OutputCopy(self.print_line)
        self._exit = ExitWatch(self._at_exit)
        self._board: EventImport | None = None
        self.finished = False

    # --- what it is

    def __repr__(self) -> str:
        about = {"id": self.id, "name": self.name, "project": self.project, "group": self.group}
        told = ", ".join(f"{key}={value!r}" for key, value in about.items() if value)
        return f"Run({told}, {'ended' if self.finished else self.mode if self.mode != 'online' else 'running'})"

    @property
    def name(self) -> str:
        """For people."""
        return "" if self.folder is None else self.folder.run.name

    @property
    def project(self) -> str:
        """Where it lies; empty: in the one for what names none."""
        return "" if self.folder is None else self.folder.run.project

    @property
    def group(self) -> str:
        """What it belongs to."""
        return "" if self.folder is None else self.folder.run.group

    @property
    def job_type(self) -> str:
        """Its part in the group."""
        return "" if self.folder is None else self.folder.run.job_type

    @property
    def dir(self) -> str:
        """The path of its folder; empty: it is disabled."""
        return "" if self.folder is None else str(self.folder.path)

    @property
    def step(self) -> int:
        """Of the next call of `log` that names none."""
        return self._step

    def begin(self, *, copy_output: bool = True, code: bool = True, script: str | None = None) -> None:
        """Write the first record, start the process beside this one, and watch how this one ends.

        Args:
            copy_output: Keep what is printed.
            code: Keep the commit, what differs from it, the script and the installed packages.
            script: Its path; None: it is that of this process.
        """
        if self._records is None or self.folder is None:
            return
        own = ScriptProcess.own()
        self._records.append("begin", {"host": own.host, "pid": own.pid})
        self._start_companion((_script() if script is None else script) if code else None)
        self._exit.start()
        if copy_output:
            self._output.start()

    def import_tensorboard(self, folder: str | os.PathLike[str], own: Path | None = None) -> None:
        """Log what this process writes for TensorBoard from now on, as it is written, until the run ends.

        Args:
            folder: Where else event files of this run are written, such as by a process that this one starts.
            own: The folder of a trainer's own event files.
        """
        if self._records is not None and self._board is None and not self.finished:
            target = _BoardTarget(self._records, self._media, self.summary)
            self._board = import_of_process(target, Path(folder).absolute(), logger.warning, own=own)
            self._board.start()

    # --- logging

    def log(self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        """Log values of metrics. It returns at once: a process of its own sends them.

        A value is a number, or anything with one element; mappings are looked into (`{"val": {"loss": 1}}` is
        `val.loss`). A text becomes a result. What cannot be logged is told once, and raises only if the run is strict.

        Args:
            data: Values by name.
            step: Counted by the run itself if there is none: one more for each call. It may go back: several values at
                a step are kept.
            commit: False: they are logged with those of the next call, at its step.

        Raises:
            TypeError: `data` is no mapping, and the run is strict.
            ValueError: A value cannot be logged, and the run is strict.
        """
        try:
            self._log(data, step, commit)
        except Exception as error:  # whatever a value raises when it is looked at
            if self.strict:
                raise
            self._problem(f"not logged: {type(error).__name__}: {error}")

    def _log(self, data: Mapping[str, Any], step: int | None, commit: bool | None) -> None:
        if not isinstance(data, Mapping):
            raise TypeError(f"log() takes a dict of name to value, not {type(data).__name__}")
        if self._ended("log"):
            return
        with self._lock:
            if commit is False or self._pending:
                self._pending.update(data)
                data = self._pending
            at = self._step if step is None else _whole(step)
            if commit is False:
                self._step = at
                return
            self._pending = {}
            self._step = max(self._step, at + 1)
        found = sorted_values(data)
        assert self._records is not None
        if found.numbers:
            self._records.append("metrics", {"step": at, "values": found.numbers})
            self.summary._newest.update(found.numbers)
        if found.texts:
            self.summary.update(found.texts)
        for name, value in found.others.items():
            self._log_object(name, value, at)
        for problem in found.problems:
            self._problem(problem)

    def _log_object(self, name: str, value: Any, step: int) -> None:
        """Log what is neither a number nor a text: an image, a table, a figure, or a list of them."""
        if self._media is None:
            self._problem(f"{name} is a {type(value).__name__}, which is not logged here")
            return
        values = list(value) if isinstance(value, list | tuple) else [value]
        if len(values) > kinds.MOST_AT_ONCE:
            self._problem(f"{name} has {len(values):,} objects: the first {kinds.MOST_AT_ONCE} are kept")
        for place, one in enumerate(values[: kinds.MOST_AT_ONCE]):
            try:
                self._media.add(name, max(0, step), place, media_of(one).encode())
            except Exception as error:  # whatever a library raises for an object, or the disk
                self._problem(f"{name} is not logged: {'; '.join(str(error).splitlines())}")

    def alert(self, title: str, text: str = "", level: str = "INFO", **_: Any) -> None:
        """Tell the owner of the run something, and everybody who has a rule for its alerts.

        It is in their list of alerts and at their webhooks, and a line in the output of the run. Ten in a minute are
        kept; the last one counts the others.

        Args:
            title: A short summary; 200 characters are kept.
            text: Details; 4,000 characters are kept.
            level: `INFO`, `WARN` or `ERROR`.
        """
        if not self._ended("alert") and self._records is not None:
            said = f"{title}: {text}" if text else str(title)
            name = str(getattr(level, "value", level)).upper()
            known = {"WARN": "WARNING"}.get(name, name)
            known = known if known in _LEVELS else "INFO"
            self.print_line("stderr", said, known)
            told = {"title": title, "text": text, "level": known.lower()}
            cut = {key: str(value)[:_ALERT_CHARS].encode(errors="replace").decode() for key, value in told.items()}
            self._records.append("alert", cut)

    def set_tags(self, tags: Mapping[str, Any]) -> None:
        """Set tags: texts by which runs are found; each replaces one of the same name."""
        if not self._ended("set_tags") and self._records is not None:
            self._records.append("tags", {"values": {str(key): str(plain(value)) for key, value in tags.items()}})

    def define_metric(
        self, name: str, step_metric: Any = None, *, summary: str | None = None, goal: str | None = None, **_: Any
    ) -> None:
        """Say by which metric the run is measured: rules of alerts look at it (`improved`, `plateau`).

        The first one counts for which it is said what is better. In a trial the searcher's metric does.

        Args:
            name: The metric.
            step_metric: Has no meaning here: charts choose their axis.
            summary: `min` or `max`: which of its values is the best.
            goal: `minimize` or `maximize`: the same.
        """
        ways = {"minimize": "min", "maximize": "max", "min": "min", "max": "max"}
        said = [str(goal or ""), *str(summary or "").split(",")]
        way = next((ways[one.strip().lower()] for one in said if one.strip().lower() in ways), None)
        if way is None or "*" in str(name) or self._measured:
            return
        self._measured = True
        self.set_tags({METRIC_TAG: f"{way} {name}"})

    def log_artifact(
        self,
        artifact_or_path: Artifact | str | os.PathLike[str],
        name: str | None = None,
        type: str | None = None,  # noqa: A002  (as others have it)
        aliases: Iterable[str] | None = None,
        **ignored: Any,
    ) -> Artifact:
        """Log a version of an artifact that this run has made: `det.Artifact("cats", type="dataset")`.

        Its files are copied to the run's folder, and sent from there; in a trial they are sent at once. `wait()` of
        what is returned waits until the cluster has them.

        Args:
            artifact_or_path: What was put together; or the path of a file or a folder.
            name: Of the artifact, if it is a path.
            type: What it is, if it is a path.
            aliases: Names of the version.
            **ignored: Settings of others.

        Raises:
            DetlabError: It cannot be logged, and the run is strict. So may be raised what opening its files raises.
        """
        del ignored
        from detlab.client.artifacts.draft import Artifact, as_artifact

        given = artifact_or_path if isinstance(artifact_or_path, Artifact) else None
        try:
            made = as_artifact(artifact_or_path, name, type)
            given = made
            if not self._ended("log_artifact"):
                self._log_artifact(made, list(aliases or ()))
        except Exception as error:  # a file that is gone, a full disk, a name that is none
            if self.strict:
                raise
            self._problem(f"the artifact is not logged: {error}")
            return given if given is not None else Artifact(name or "unnamed", type)
        return made

    def _log_artifact(self, made: Artifact, aliases: list[str]) -> None:
        assert self.folder is not None
        kept = keep_version(self.folder.path, made, aliases)
        made.comes_by(partial(self._finder.wait_for, kept, made.name))

    def use_artifact(
        self,
        artifact_or_name: Artifact | str,
        type: str | None = None,  # noqa: A002  (as others have it)
        **ignored: Any,
    ) -> ArtifactVersion:
        """Return a version of an artifact, and record that this run uses it.

        Args:
            artifact_or_name: `cats:v3`, `cats:best`, `ada/cats:latest`, or `cats`, which is the newest version; or an
                artifact that was logged before.
            type: Not needed.
            **ignored: Settings of others.

        Raises:
            DetlabError: There is no such version, or the cluster does not answer: a run goes by what it uses.
        """
        del type, ignored
        found = self._found_version(artifact_or_name)
        if not self._ended("use_artifact") and self.folder is not None:
            try:
                keep_use(self.folder.path, found.view)
            except OSError as error:
                self._problem(f"that the run uses {found.reference} is not recorded: {error}")
        return found

    def _found_version(self, given: Artifact | str) -> ArtifactVersion:
        return self._finder.find(given) if isinstance(given, str) else given.logged

    def watch(self, *_: Any, **__: Any) -> None:
        """Do nothing: gradients are not recorded by themselves; log what you want to see of them."""
        self._problem("watch() records nothing: log what you need of gradients, such as their norm")

    # --- the end

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        """End the run: write what is left, and wait for the master to have it, for a minute at most.

        What is not there by then stays on disk: the message names the command that sends it. A second call does
        nothing.

        Args:
            exit_code: 0, or the code of a failure. None: as the process has fared so far.
            quiet: Print nothing.
        """
        del quiet
        if self.finished or self._pid != os.getpid():  # a forked child's end is not that of its parent
            return
        if exit_code is not None:
            self._exit.status = "FINISHED" if exit_code == 0 else "FAILED"
            self._exit.reason = "" if exit_code == 0 else f"exit code {exit_code}"
        self.end(self._exit.status, self._exit.reason)

    def end(self, status: ExitStatus, reason: str = "") -> None:
        """End the run with a status."""
        try:
            self._end(status, reason)
        except Exception as error:  # the script's own end is not for us to break
            if self.strict:
                raise
            logger.warning("the run did not end as it should: %s: %s", type(error).__name__, error)

    def _end(self, status: ExitStatus, reason: str) -> None:
        if self._pending and not self.finished:
            self.log({})
        if self._board is not None:
            self._board.finish()
        self.finished = True
        self._exit.stop()
        self._output.stop()
        self._finder.close()
        if self._records is None:
            return
        self._records.append("exit", {"status": status, "reason": reason})
        whole = self._records.flush()
        if self.folder is None:
            return
        self._wait_for_companion()
        self._tell_end(whole)

    def _tell_end(self, whole: bool) -> None:
        assert self.folder is not None
        assert self._records is not None
        if not whole or self._records.lost:
            logger.warning("%d records of the run could not be written, and are lost", self._records.lost or 1)
        left = self._records.last - self._records.delivered
        media = len(waiting_media(self.folder.path / self._writer))
        unsent = [one for one in kept_in(self.folder.path) if not one.settled]
        say(f"run {self.id} has ended" + ("" if left or media or unsent else ": the master has all of it"))
        if media and not left:
            say(f"{media} images and other objects are on disk only. Send them: det sync {word(self.dir)}")
        if left:
            trouble = _trouble(self.folder.path / self._writer)
            why = f" ({trouble})" if trouble else ""
            first = (
                "Log in: det login URL. "
                if any(one in trouble for one in ("no cluster found", "no cluster is named"))
                else ""
            )
            send = f"{first}Send them: det sync {word(self.dir)}"
            say(f"{left} of {self._records.last} records are on disk only{why}. {send}")
        elif unsent:
            say(f"{len(unsent)} artifacts are on disk only. Send them: det sync {word(self.dir)}")

    def _at_exit(self) -> None:
        if not self.finished and self._pid == os.getpid():
            self.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if kind is not None:
            self._exit.failed(kind, error)
        self.finish()

    # --- the process beside this one, which sends

    def _start_companion(self, script: str | None) -> None:
        assert self.folder is not None
        options = ["--offline"] * (self.mode == "offline")
        options += [] if script is None else ["--code", script]
        try:
            with (self.folder.path / COMPANION_LOG).open("ab") as log:
                self._companion = subprocess.Popen(
                    [
                        *(sys.executable, "-P", "-m", "detlab.track.companion"),
                        *(str(self.folder.path.resolve()), self._writer, *options),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for the script
                )
        except (OSError, TypeError, ValueError) as error:  # also where this interpreter has no name
            logger.warning("what the run logs stays on disk, as no process could be started to send it: %s", error)

    def _wait_for_companion(self) -> None:
        if self._companion is not None and self._companion.poll() not in {None, 0}:
            self._start_companion(None)  # the last one was killed; the folder has everything
        if self._companion is None:
            return
        assert self._companion.stdin is not None
        try:
            self._companion.stdin.close()  # it now sends what there is, and ends
            self._companion.wait(_seconds())
        except (OSError, subprocess.TimeoutExpired) as error:
            logger.info("the process that sends goes on: %s", error)
        except KeyboardInterrupt:
            say("not waiting any more; the process that sends goes on for a while")
        if self._companion.returncode is None:
            self._companion.returncode = 0  # it goes on by itself: nobody is to warn that it was not waited for
        self._companion = None

    # --- what is told

    def _ended(self, what: str) -> bool:
        if self._records is None:
            return True
        if self.finished:
            self._problem(
                f"{what}() after the end of run {self.id}: nothing is logged. Begin another run, or resume this one"
            )
        return self.finished

    def _problem(self, message: str) -> None:
        if self.strict:
            raise ValueError(message)
        if message not in self._known_problems and self._told < MOST_TOLD:
            self._known_problems.add(message)
            self._told += 1
            logger.warning("%s", message)

    def print_line(self, stream: Stream, text: str, level: str | None = None) -> None:
        """Add a line to the output of the run."""
        if self._records is not None:
            fields = {"stdtype": stream, "text": text.encode(errors="replace").decode(), "level": level}
            self._records.append("log", fields)


class _BoardTarget:
    """Logs what event files say, with the steps and times that they have: the run's own count of steps stays."""

    def __init__(self, records: LoggedRecords, media: MediaSpool | None, results: RunResults) -> None:
        self._records, self._media, self._results = records, media, results

    def metrics(self, step: int, values: dict[str, float], at: float) -> None:
        self._records.append("metrics", {"step": step, "values": values, "time": at})
        self._results._newest.update(values)

    def media(self, key: str, step: int, place: int, encoded: EncodedMedia) -> None:
        if self._media is not None:
            self._media.add(key, step, place, encoded)


def say(text: str) -> None:
    """Print a line about a run, unless that was not wanted."""
    if os.environ.get("DET_RUN_QUIET") != "1" and sys.stderr is not None:
        sys.stderr.write(f"detlab: {text}\n")
        sys.stderr.flush()


def _whole(step: Any) -> int:
    """Return a step, also of an array or a tensor with one element.

    Raises:
        TypeError: It is no number.
    """
    number = number_of(step) if not isinstance(step, int) else step
    if number is None or number != number // 1:
        raise TypeError(f"step={step!r} is no whole number")
    return int(number)


def _seconds() -> float:
    try:
        return max(0.0, float(os.environ.get(FINISH_VARIABLE, FINISH_SECONDS)))
    except ValueError:
        return FINISH_SECONDS


def _script() -> str:
    """Return the path of the script that runs; empty: it is none."""
    path = sys.argv[0] if sys.argv else ""
    return os.path.realpath(path) if path.endswith(".py") and Path(path).is_file() else ""


def _trouble(directory: Path) -> str:
    try:
        return (directory / TROUBLE_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


COMPANION_LOG = "companion.log"
TROUBLE_FILE = "trouble"
"""Why the last attempt to send failed; empty or missing: it did not."""
