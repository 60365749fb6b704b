"""Records of runs that no cluster started: sent by their processes, each with numbers of its own, stored exactly once.

A run is known to its script by a key, which is the user's own: the same key of two users is two runs, and a key that is
another's run leads to one's own, as one that nobody has does. What is sent again is skipped by its number, so that a
folder may be sent at any time, by anybody who may log into the run, from any machine.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from detlab.errors import Conflict, Forbidden
from detlab.schemas.wire import AlertRecord, LogRecord, RecordAck, RefusedRecord, decode_float, encode_floats
from detlab.schemas.wire.logged_names import BadKey, check_key
from detlab.schemas.wire.runs import (
    SUMMARY_CHARS,
    BeginRun,
    LoggedMetrics,
    LoggedValues,
    PrintedLine,
    RaisedAlert,
    RunBegun,
    RunRecords,
    WriterBegins,
    WriterExit,
    is_drawn_key,
)
from detlab_hub.core.rights import ACTIONS, Action, Right, may, right_of
from detlab_hub.core.tracking import keys
from detlab_hub.core.tracking.writers import (
    SHOWN_DIGITS,
    SILENT_SECONDS,
    WriterFacts,
    WriterState,
    run_id_of_key,
    run_ids_of_key,
    standing_of,
)
from detlab_hub.services.alerts.evaluation import WithAlertRules
from detlab_hub.services.alerts.of_runs import tell_of_end, tell_of_metrics
from detlab_hub.services.base.access import check_may_ask, person, tracked_thing
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.notify.telling import say_of_run
from detlab_hub.services.tracking.access import made_place, place_named, run_for, trial_of
from detlab_hub.services.tracking.experiments import BadRequest, add_project
from detlab_hub.services.tracking.facts import GROUP_TAG, JOB_TYPE_TAG, NOTES_TAG, as_text, flat
from detlab_hub.services.tracking.logging import MOST_NAMES, MOST_STEP
from detlab_hub.services.tracking.run_views import run_view
from detlab_hub.services.tracking.runs import add_run, check_size
from detlab_hub.store.queries.logs import lines as logs
from detlab_hub.store.queries.logs.chunks import LEVELS
from detlab_hub.store.queries.tracking import points, runs, writers
from detlab_hub.store.queries.tracking.points import LoggedPoint
from detlab_hub.store.tables import TrackedRunRow, TrackedWriterRow

_log = logging.getLogger(__name__)
"""A key that a script has drawn: no name for people."""
MOST_WRITERS = 4096
"""Processes of one run."""
MOST_LINES = 1_000_000
"""Of the output of one run; later ones are left out."""
REASON_CHARS = 2000
MAX_SEQ = 2**53
SWEPT = 200
"""Processes that are found to be lost in one transaction."""
LOST = "not heard from any more: its process was killed, its machine went down, or it has no connection"


@dataclass
class _Taken:
    """What the records of one request come to."""

    refused: list[RefusedRecord] = field(default_factory=list)
    points: list[LoggedPoint] = field(default_factory=list)
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    summary: dict[str, str] = field(default_factory=dict)
    lines: list[LogRecord] = field(default_factory=list)
    alerts: list[AlertRecord] = field(default_factory=list)
    began: float | None = None
    exit: WriterExit | None = None


class RunReports(WithAlertRules):
    """Use cases of the processes of runs from elsewhere."""

    async def begin(self, caller: Caller, wanted: BeginRun) -> RunBegun:
        """Make a run, or find it: it is asked for again before anything is sent.

        Raises:
            BadRequest: The key is that of a trial, which has its own API.
            ConfigError: The project cannot have this name.
            Conflict: The project is archived, or the run is deleted.
            Forbidden: The caller is no editor of the workspace, or may read the run and not log into it.
            NotFound: There is no such workspace for the caller.
        """
        if trial_of(wanted.key) is not None:
            raise BadRequest(
                f"{wanted.key} is the id of a trial, whose own code logs into it", hint="Choose another id."
            )

        def begin(unit: UnitOfWork) -> RunBegun:
            row = _known(unit, caller, wanted.key) or _begun(unit, caller, wanted)
            acked = 0
            if wanted.writer is not None:
                acked = _writer(unit, row, wanted.writer).acked
            unit.session.flush()
            return RunBegun(run=run_view(unit.session, caller, row.id), acked=acked)

        return await self._context.write(begin)

    async def take(self, caller: Caller, run_id: str, writer: str, sent: RunRecords) -> RecordAck:
        """Store records of a process that are not stored yet; none: it says that it lives.

        Raises:
            BadRequest: The run would have more than it may.
            Conflict: The process has not begun.
            Forbidden: The caller may not log into the run.
            NotFound: There is no such run for the caller.
        """

        def take(unit: UnitOfWork) -> RecordAck:
            row = run_for(unit.session, caller, run_id, Action.RUN_REPORT).row
            if row is None or row.is_trial:
                raise BadRequest(f"run {run_id} is a trial, whose own code logs into it")
            found = writers.locked(unit.session, row.id, writer)
            if found is None:
                raise Conflict(f"run {row.id} does not know its process {writer}", hint="It begins by POST runs.")
            taken = _taken(found, sent)
            found.heard_at = unit.now
            before = row.status
            _store(unit, row, taken)
            if taken.points:
                tell_of_metrics(unit, rules, row, taken.points)
            _settle(unit, row, found, taken)
            tell_of_end(unit, rules, row, before)
            row.updated_at = unit.now
            unit.outbox.wake_logs.add(row.id)
            return RecordAck(acked=found.acked, refused=taken.refused)

        rules = await self._evaluation.rules()
        return await self._context.write(take)

    async def sweep(self) -> int:
        """Note the processes that were not heard from for too long; return how many. A start of the master forgives."""
        context = self._context
        before = context.clock() - SILENT_SECONDS
        if context.started_at > before:
            return 0

        def lose(unit: UnitOfWork) -> int:
            silent = writers.silent(unit.session, WriterState.OPEN, before, SWEPT)
            for run_id, name in silent:
                row, one = unit.session.get(TrackedRunRow, run_id), writers.locked(unit.session, run_id, name)
                if row is None or one is None:
                    continue
                one.state, one.reason = WriterState.LOST, LOST
                one.ended_ms = max(round(one.heard_at * 1000), one.begun_ms)
                stood = row.status
                _restate(unit, row)
                tell_of_end(unit, rules, row, stood)
            return len(silent)

        rules = await self._evaluation.rules()
        lost = 0
        while found := await context.write(lose):
            lost += found
        if lost:
            _log.info("%d processes of runs were not heard from for %.0f s", lost, SILENT_SECONDS)
        return lost


# --- beginning


def _known(unit: UnitOfWork, caller: Caller, key: str) -> TrackedRunRow | None:
    """Return the run of a key: of this id, if the caller may read it, else the caller's own of this key."""
    s = unit.session
    row = s.get(TrackedRunRow, key)
    if row is None or row.is_trial or right_of(person(caller), tracked_thing(s, caller, row)) < Right.READ:
        mine = (s.get(TrackedRunRow, one) for one in run_ids_of_key(person(caller).name, key))
        row = next((one for one in mine if one is not None), None)
    if row is None:
        return None
    if not may(person(caller), Action.RUN_REPORT, tracked_thing(s, caller, row)):
        check_may_ask(caller, Action.RUN_REPORT)
        raise Forbidden(f"run {row.id} is {row.owner}'s, and you may not {ACTIONS[Action.RUN_REPORT].does}")
    if row.deleted_at is not None:
        raise Conflict(f"run {row.id} is deleted", hint="Begin another one: without its id, or with another")
    return row


def _begun(unit: UnitOfWork, caller: Caller, wanted: BeginRun) -> TrackedRunRow:
    s = unit.session
    place = place_named(s, caller, wanted.project or "Default")
    if place is None:
        place = add_project(unit, caller, wanted.project, {})
    place = made_place(unit, caller, place)
    started = round((wanted.started or unit.now) * 1000)
    name = wanted.name or (f"run-{wanted.key[:SHOWN_DIGITS]}" if is_drawn_key(wanted.key) else wanted.key)
    row = add_run(unit, caller, place, name, started, run_id_of_key(person(caller).name, wanted.key))
    s.flush()
    tags = {runs.KEY_TAG: wanted.key, GROUP_TAG: wanted.group, JOB_TYPE_TAG: wanted.job_type, NOTES_TAG: wanted.notes}
    runs.put_values(s, row.id, runs.TAG, {key: keys.cut_value(key, value) for key, value in tags.items() if value})
    return row


def _writer(unit: UnitOfWork, row: TrackedRunRow, name: str) -> TrackedWriterRow:
    s = unit.session
    s.flush()
    found = writers.locked(s, row.id, name)
    if found is None:
        if writers.count(s, row.id) >= MOST_WRITERS:
            raise BadRequest(f"run {row.id} has had {MOST_WRITERS:,} processes already", hint="Log from one of them.")
        found = TrackedWriterRow(run_id=row.id, name=name, heard_at=unit.now, acked=0, state=WriterState.OPEN)
        s.add(found)
        s.flush()
        _restate(unit, row)
    return found


# --- taking


def _taken(writer: TrackedWriterRow, sent: RunRecords) -> _Taken:
    """Sort the records that are new."""
    taken = _Taken()
    for record in sent.records:
        if not 0 < record.seq <= MAX_SEQ:
            taken.refused.append(_refusal(record.seq, "record.seq", f"record numbers go from 1 to {MAX_SEQ}"))
            continue
        if record.seq <= writer.acked:
            continue
        writer.acked = record.seq
        try:
            _sort(taken, record)
        except (BadKey, ValueError) as error:
            taken.refused.append(_refusal(record.seq, "record.invalid", str(error)))
    return taken


def _sort(taken: _Taken, record: Any) -> None:
    match record:
        case WriterBegins():
            taken.began = record.time
        case LoggedMetrics():
            taken.points += _points_of(record)
        case LoggedValues(kind="config"):
            taken.params.update({_key(key, "parameter"): text for key, text in flat(record.values).items()})
        case LoggedValues(kind="tags"):
            taken.tags.update({_key(key, "tag"): as_text(value) for key, value in record.values.items()})
        case LoggedValues():
            taken.summary.update({_key(key, "result"): _json(key, value) for key, value in record.values.items()})
        case PrintedLine():
            taken.lines.append(_line(record))
        case RaisedAlert():
            taken.alerts.append(
                AlertRecord(seq=record.seq, time=record.time, title=record.title, text=record.text, level=record.level)
            )
        case WriterExit():
            taken.exit = record


def _points_of(record: LoggedMetrics) -> list[LoggedPoint]:
    ms = round(record.time * 1000) if abs(record.time) < 2**43 else -1
    if not (abs(record.step) <= MOST_STEP and 0 <= ms <= MOST_STEP):
        raise ValueError(f"step {record.step} and time {record.time} must be below 2**53, the time above 0")
    found = []
    for key, said in record.values.items():
        value = decode_float(said)
        if value is None:
            raise ValueError(f"metric {key[:80]!r} is no number")
        found.append(LoggedPoint(_key(key, "metric"), value, ms, record.step))
    return found


def _line(record: PrintedLine) -> LogRecord:
    level = record.level if record.level in LEVELS else None
    return LogRecord(seq=record.seq, time=record.time, stdtype=record.stdtype, level=level, text=record.text)


def _key(key: str, what: str) -> str:
    return check_key(key, what)


def _json(key: str, value: Any) -> str:
    text = json.dumps(encode_floats(value))
    if len(text) > SUMMARY_CHARS:
        raise ValueError(f"the result {key[:80]!r} has {len(text):,} characters as JSON; {SUMMARY_CHARS:,} is the most")
    return text


def _refusal(seq: int, code: str, message: str) -> RefusedRecord:
    return RefusedRecord(seq=seq, code=code, message=message)


def _store(unit: UnitOfWork, row: TrackedRunRow, taken: _Taken) -> None:
    s = unit.session
    values: Mapping[str, Mapping[str, str]] = {
        runs.PARAM: {key: keys.cut_value(key, text) for key, text in taken.params.items()},
        runs.TAG: {key: keys.cut_value(key, text) for key, text in taken.tags.items()},
        runs.SUMMARY: taken.summary,
    }
    for kind, those in values.items():
        runs.put_values(s, row.id, kind, those)
    if any(values.values()):
        check_size(s, row)
    if taken.points:
        points.append(s, row.id, taken.points)
        s.flush()
        if points.count(s, row.id) > MOST_NAMES:
            raise BadRequest(f"run {row.id} would have more than {MOST_NAMES:,} metrics")
    if taken.alerts:
        say_of_run(unit, row, taken.alerts)
    if taken.lines:
        _append_lines(unit, row.id, taken.lines)


def _append_lines(unit: UnitOfWork, run_id: str, lines: Sequence[LogRecord]) -> None:
    there = writers.lines_of(unit.session, run_id)
    kept = list(lines[: max(0, MOST_LINES - there)])
    if len(kept) < len(lines) and there < MOST_LINES:
        text = f"[detlab: a run has {MOST_LINES:,} lines of output at most; what follows is left out]"
        kept[-1:] = [LogRecord(seq=0, time=lines[0].time, stdtype="stderr", level="WARNING", text=text)]
    logs.append(unit.session, run_id, 0, kept)


# --- how it stands


def _settle(unit: UnitOfWork, row: TrackedRunRow, writer: TrackedWriterRow, taken: _Taken) -> None:
    before = writer.state, writer.begun_ms, writer.ended_ms
    if writer.state == WriterState.LOST:
        writer.state, writer.reason, writer.ended_ms = WriterState.OPEN, "", None
    if taken.began is not None:
        writer.begun_ms = _ms(taken.began)
    if taken.exit is not None:
        writer.state, writer.reason = WriterState(taken.exit.status), taken.exit.reason[:REASON_CHARS]
        writer.ended_ms = max(_ms(taken.exit.time), writer.begun_ms)  # its clock may have been set back
    if (writer.state, writer.begun_ms, writer.ended_ms) != before:
        _restate(unit, row)


def _ms(seconds: float) -> int:
    return round(1000 * min(max(seconds, 0.0), 2.0**43)) if math.isfinite(seconds) else 0


def _restate(unit: UnitOfWork, row: TrackedRunRow) -> None:
    """Set the status of a run by how its processes stand."""
    unit.session.flush()
    there = writers.of_run(unit.session, row.id)
    found = standing_of([WriterFacts(WriterState(one.state), one.begun_ms, one.ended_ms, one.reason) for one in there])
    row.status, row.ended_ms, row.end_reason = found.status, found.ended_ms, found.reason
    unit.outbox.wake_logs.add(row.id)
