"""Sends the records and files of a run's folder to the master: as they come, or all of it later.

The master keeps for each process the number of its last record that it has, and says so when it is asked to begin:
sending starts behind it, so that a folder may be sent any number of times, by several at once, and to another master.
What decides when what is sent has no thread and no clock of its own (`detlab.launch.delivery.shipping`).
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from detlab.errors import DetlabError, Unavailable
from detlab.launch.delivery.shipping import (
    MAX_BYTES,
    MAX_RECORDS,
    Acked,
    Failed,
    Phase,
    RecordRefusal,
    Rejected,
    StreamShipper,
    judge,
)
from detlab.launch.delivery.spool import SpoolReader, open_regular
from detlab.schemas.wire import RefusedRecord
from detlab.schemas.wire.artifacts.artifacts import ArtifactVersionView
from detlab.schemas.wire.runs import BeginRun, RunView, is_drawn_key
from detlab.track.artifacts import KeptArtifact, kept_in
from detlab.track.code import UNFINISHED
from detlab.track.folder import RECORDS, RunDescription, RunFolder, numbered, waiting_media
from detlab.track.master import RunMaster
from detlab.track.records import RunSpool, has_ended, newest

logger = logging.getLogger("detlab.track")
BEAT_SECONDS = 30.0
"""Between two signs of life of a process that logs nothing."""
DIED = "its process ended without saying so: it was killed, or ran out of memory"
MEDIA_AT_ONCE = 20
"""Objects of a process that are sent before its records have their turn again."""
MOST_SAID = 20
_MEDIA_FACTS = ("key", "step", "place", "kind", "media_type", "caption")
_ALIVE = b'{"records":[]}'
_NOT_BEGUN = frozenset({404, 409})


@dataclass
class _WriterStream:
    """The records of one process on their way."""

    writer: str
    directory: Path
    run_id: str = ""
    """As the master knows the run; empty: it was not asked yet."""
    shipper: StreamShipper = field(default_factory=lambda: StreamShipper("metrics"))
    reader: SpoolReader | None = None
    heard_at: float = 0.0
    """When the master last took something."""


class RunDelivery:
    """Delivers records of some processes of a run.

    Args:
        folder: The run's.
        writers: The processes; none: all that are in the folder.
        master: Where to.
        project: Instead of the one that the script has named.
        clock: Seconds that never go back.

    Attributes:
        failure: Why the last step did not get through.
        sent: Records that the master has taken from this delivery.
        refused: Those that it will never take.
        dropped: Images and other objects that it will never take; they are not kept for ever.
        run: The run, as the master has it.
    """

    def __init__(
        self,
        folder: RunFolder,
        writers: Sequence[str],
        master: RunMaster,
        *,
        project: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        where = folder.run.project if project is None else project
        self._described = replace(folder.run, key=folder.sent_as, project=where)
        self._master = master
        self._clock = clock
        self._streams = [_WriterStream(name, folder.path / name) for name in writers or folder.writers()]
        self._files: set[str] = set()
        self.failure: DetlabError | None = None
        self.sent = 0
        self.refused: list[RecordRefusal] = []
        self.dropped = 0
        self._unknown: Path | None = None
        """The object for which the master knew no such run."""
        self.run: RunView | None = None

    def step(self) -> bool:
        """Send what there is; return whether the master has all of it. What goes wrong is in `failure`."""
        try:
            left = [stream for stream in self._streams if not self._pump(stream)]
            left += [stream for stream in self._streams if not self._put_media(stream)]
            self._put_files()
            self._put_artifacts()
        except DetlabError as error:
            self._fail(error)
            return False
        except Exception as error:  # of our own disk, of the network; the process that sends goes on in any case
            self._fail(DetlabError(f"the run cannot be sent: {type(error).__name__}: {error}"))
            return False
        if not left:
            self.failure = None
        return not left

    def beat(self) -> None:
        """Say that processes live from which the master has heard nothing for a while."""
        for stream in self._streams:
            if stream.run_id and self._clock() - stream.heard_at >= BEAT_SECONDS:
                try:
                    status, body = self._master.send(stream.run_id, stream.writer, _ALIVE)
                except DetlabError as error:
                    self._fail(error)
                    return
                stream.heard_at = self._clock()
                if not isinstance(judge(status, body), Acked):
                    stream.run_id = ""

    def begin(self) -> None:
        """Ask the master for the run, also if no process of it has written anything.

        Raises:
            DetlabError: It refused, or did not answer.
        """
        self.run = self._master.begin(_wanted(self._described, None)).run

    def close(self) -> None:
        """Close files and connections."""
        for stream in self._streams:
            if stream.reader is not None:
                stream.reader.close()
        self._master.close()

    def _fail(self, error: DetlabError) -> None:
        self.failure = error
        self._master.close()  # the next attempt looks for the cluster, and for a new token, again

    def _pump(self, stream: _WriterStream) -> bool:
        if not stream.run_id:
            self._begin(stream)
        assert stream.reader is not None
        shipper = stream.shipper
        shipper.retry_now()
        sent_all = False
        while True:
            if shipper.phase is Phase.HUNGRY:
                shipper.load(stream.reader.read(MAX_RECORDS, MAX_BYTES))
                if sent_all and shipper.pending:
                    return False  # come meanwhile: for the next step, or a script that logs fast would have no pause
            batch = shipper.poll(self._clock())
            if batch is None:
                return shipper.phase is Phase.HUNGRY
            try:
                status, body = self._master.send(stream.run_id, stream.writer, batch.body())
            except Exception as error:
                shipper.settle(Failed(str(error)), self._clock())
                raise
            before, outcome = shipper.acked, judge(status, body)
            shipper.settle(outcome, self._clock())
            self._note_refused(stream)
            if not isinstance(outcome, Acked | Rejected):
                if status in _NOT_BEGUN:  # a master that was restored from before
                    stream.run_id = ""
                raise Unavailable(getattr(outcome, "why", "") or getattr(outcome, "message", ""), status=status)
            sent_all = not shipper.pending and len(batch.entries) < MAX_RECORDS
            if shipper.acked > before:
                self.sent += shipper.acked - before
                stream.heard_at = self._clock()
                _note(stream.directory / "metrics.acked", str(shipper.acked))

    def _begin(self, stream: _WriterStream) -> None:
        begun = self._master.begin(_wanted(self._described, stream.writer))
        self.run = begun.run
        if stream.reader is not None:
            stream.reader.close()
        stream.shipper = StreamShipper("metrics", acked=begun.acked)
        stream.reader = SpoolReader(partial(open_regular, stream.directory / RECORDS), begun.acked)
        stream.run_id, stream.heard_at = begun.run.id, self._clock()

    def _note_refused(self, stream: _WriterStream) -> None:
        found, stream.shipper.refused = stream.shipper.refused, []
        if not found:
            return
        self.refused += found
        lines = [RefusedRecord(seq=one.seq, code=one.code, message=one.message).model_dump_json() for one in found]
        for one in found[:20]:
            logger.warning("record %d of %s is refused: %s", one.seq, stream.writer, one.message)
        with (stream.directory / "refused.jsonl").open("a", encoding="utf-8") as file:
            file.write("\n".join([*lines, ""]))

    def _put_media(self, stream: _WriterStream) -> bool:
        """Send some of the objects that wait, the oldest first, and remove them; return whether none is left."""
        waiting = waiting_media(stream.directory)
        for facts in waiting[:MEDIA_AT_ONCE]:
            body = facts.with_suffix(".bin")
            try:
                told = json.loads(facts.read_text(encoding="utf-8"))
                known = {name: told[name] for name in _MEDIA_FACTS}
                since = {"logged_at": told["logged_at"]} if "logged_at" in told else {}  # earlier code left none
                self._master.put_media(stream.run_id, {**known, **since}, body)
                stream.heard_at = self._clock()
            except (OSError, ValueError, KeyError, TypeError) as error:  # sent by somebody else, or changed
                self._say_dropped(f"{facts.name} cannot be read: {type(error).__name__}: {error}")
            except DetlabError as error:
                if not _refused(error):
                    raise
                if getattr(error, "status", 0) == 404 and self._unknown != facts:  # a master restored from before?
                    self._unknown, stream.run_id = facts, ""
                    raise Unavailable(error.message, status=404) from error
                self._say_dropped(error.message)
            for file in (facts, body):
                file.unlink(missing_ok=True)
        return len(waiting) <= MEDIA_AT_ONCE

    def _say_dropped(self, why: str) -> None:
        self.dropped += 1
        if self.dropped <= MOST_SAID:
            logger.warning("an object of the run is not kept: %s", why)

    def _put_files(self) -> None:
        run_id = next((stream.run_id for stream in self._streams if stream.run_id), "")
        if not run_id:
            return
        for path in sorted(self._folder.files.rglob("*")):
            name = path.relative_to(self._folder.files).as_posix()
            if name in self._files or path.is_symlink() or not path.is_file() or path.name.startswith(UNFINISHED):
                continue
            try:
                self._master.put(run_id, name, path)
            except DetlabError as error:
                if not _refused(error):
                    raise
                logger.warning("the file %s of the run is not taken: %s", name, error)
            self._files.add(name)

    def _put_artifacts(self) -> None:
        run_id = next((stream.run_id for stream in self._streams if stream.run_id), "")
        for kept in kept_in(self._folder.path) if run_id else ():
            if kept.settled:
                continue
            try:
                kept.note_logged(self._sent_artifact(run_id, kept))
            except DetlabError as error:
                if not _refused(error):
                    raise
                kept.note_refused(str(error))
                logger.warning("an artifact of the run is not taken: %s", error)
            except (ValueError, KeyError, TypeError) as error:  # files of it were changed, or have gone
                kept.note_refused(f"{kept.path} is damaged: {error}")
                logger.warning("an artifact of the run is damaged, and not sent: %s: %s", kept.path, error)

    def _sent_artifact(self, run_id: str, kept: KeptArtifact) -> ArtifactVersionView:
        logged = kept.version
        if logged is None:
            return self._master.use_artifact(run_id, *kept.use)
        name, wanted = logged
        wanted = wanted.model_copy(update={"run": run_id})
        return self._master.log_artifact(name, wanted, kept.sources(), lambda *_: self.beat())


def _refused(error: DetlabError) -> bool:
    """Whether the master will never take it; else it may be sent later."""
    status = getattr(error, "status", 0)
    return not isinstance(error, Unavailable) and status in range(400, 500) and status not in {401, 408, 429}


def _wanted(run: RunDescription, writer: str | None) -> BeginRun:
    return BeginRun(
        key=run.key,
        project=run.project,
        name=run.name,
        group=run.group,
        job_type=run.job_type,
        notes=run.notes,
        started=run.started,
        writer=writer,
    )


def _note(path: Path, text: str) -> None:
    """Write a mark, at once or not at all; without it nothing is lost."""
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        logger.warning("%s is not written: %s", path, error)


def note_death(folder: RunFolder, writer: str, *, known: bool = False) -> bool:
    """Write down that a process has ended without saying so; return whether it has. Only its own machine can tell.

    Args:
        folder: The run's.
        writer: The process.
        known: Whether it is known to be dead.

    Raises:
        SpoolError: It cannot be written.
    """
    directory = folder.path / writer
    if has_ended(directory) or not (known or folder.process_of(writer).lives is False):
        return False
    RunSpool(directory).append("exit", {"status": "FAILED", "reason": DIED})
    return True


def _keep_apart(folder: RunFolder, master: RunMaster) -> None:
    """Give the run another key where the master has a run of its own that had ended before, or began after its end.

    That one is of another folder, so that `init` could not tell. What overlaps are processes of one run.
    """
    run = folder.run
    if run.joins or folder.sent_as != run.key or is_drawn_key(run.key):
        return
    began, ended = run.started, _end_of(folder)
    key = next(one for one in numbered(run.key) if not _is_apart(master.find(one), began, ended))
    if key != run.key:
        folder.send_as(key)
        logger.warning("run %s is another one there, and ended before: %s is sent as %s", run.key, folder.path, key)


def _end_of(folder: RunFolder) -> float:
    """Return when the last process has ended; infinity while one runs, or if that is not known."""
    last = [newest(folder.path / writer)[-1:] for writer in folder.writers()]
    ends = [one[0].get("time") if one and one[0].get("kind") == "exit" else None for one in last]
    known = [end for end in ends if isinstance(end, int | float)]
    return max(known) if known and len(known) == len(ends) else math.inf


def _is_apart(known: RunView | None, began: float, ended: float) -> bool:
    if known is None or known.status in {"RUNNING", "SCHEDULED"} or known.ended_at is None or not began:
        return False
    return known.ended_at < began or ended < known.started_at


def sync_folder(folder: RunFolder, master: RunMaster, *, project: str | None = None) -> RunDelivery:
    """Send all that a folder has, and return what came of it.

    Raises:
        DetlabError: The master refused the run, or did not answer.
        SpoolError: A process has died, and that cannot be written down.
    """
    for writer in folder.writers():
        note_death(folder, writer)
    _keep_apart(folder, master)
    delivery = RunDelivery(folder, [], master, project=project)
    try:
        delivery.begin()
        while not delivery.step():
            if delivery.failure is not None:
                raise delivery.failure
    finally:
        delivery.close()
    return delivery
