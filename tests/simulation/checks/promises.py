"""The promises of the master, checked while the simulation runs: all of them at each commit, I7 at the end.

I1 an acknowledged submit is neither lost nor doubled. I2 a slot has one live owner, in the database and on the machine.
I3 no older attempt writes after a newer one. I4 acknowledged metrics are there, once, as reported. I5 a committed
checkpoint is complete. I6 no pinned checkpoint is lost: `machines.collected`. I7 every trial ends. I8 the journal
replayed gives the decisions that were taken.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from detlab.launch.delivery.sender import DeliveryEnding
from detlab.schemas.wire import CreateExperimentReply, Launch, RecordAck
from detlab.storage.manifest import Manifest
from detlab.storage.posix import PosixStorage
from detlab_hub.core.scheduling import PlacementDecision, Snapshot
from detlab_hub.services import TaskCaller
from simulation.checks.journal import TERMINAL, Journals
from simulation.checks.written import Written
from simulation.machines.gang import part_of

if TYPE_CHECKING:
    from simulation.machines.master import Master
    from simulation.machines.network import Request
    from simulation.machines.node import Node
    from simulation.world import World

PROMISES = (
    *(f"I{number}" for number in range(1, 11)),
    *("agents", "demands", "elastic", "engines", "gangs", "max_time", "pools", "quota", "shares", "slots"),
)
"""Names of all that may be broken, also in the worlds that promise more."""
PLACED = ("ASSIGNED", "PULLING", "STARTING", "RUNNING", "TERMINATING")
_PLACES = f"SELECT id, agent_id, slots FROM allocations WHERE state IN {PLACED!r}"

_POINTS = (
    "SELECT s.trial_id, n.name, p.step, p.run, p.value FROM points p "
    "JOIN series s ON s.id = p.series_id JOIN metric_names n ON n.id = s.name_id"
)
_SERIES = "SELECT s.id, s.count, count(p.step) FROM series s LEFT JOIN points p ON p.series_id = s.id GROUP BY s.id"
_EVENTS = "SELECT id, trial_id, data FROM events WHERE kind='metrics' ORDER BY id"
_HALVING = "json_extract(e.config, '$.searcher.name') IN ('async_halving', 'adaptive_asha')"


class BrokenPromise(AssertionError):
    """A promise does not hold; the message begins with its name."""


@dataclass
class Attempt:
    """What one attempt of a trial has done, as the machine knows it."""

    trial_id: int
    run: int
    machine: str
    first: int | None = None
    """Step of the checkpoint it went on from."""
    reports: dict[int, tuple[int, dict[str, float]]] = field(default_factory=dict)
    """seq -> (step, metrics)"""
    acked: int = 0
    ending: DeliveryEnding | None = None


class Stored(NamedTuple):
    """What a database holds of metrics: rows."""

    marks: list[Any]
    points: list[Any]
    series: list[Any]
    events: list[Any]


Expected = defaultdict[int, dict[int, tuple[int, dict[str, float]]]]
"""trial -> step -> attempt and metrics that should be stored"""


class Part(NamedTuple):
    """What took part in a seed: trials of asynchronous halving, and machines on which attempts of those ran."""

    asha_trials: int
    asha_agents: int


@dataclass
class Promises:
    """The checks of one seed."""

    world: World
    attempts: dict[str, Attempt] = field(default_factory=dict)
    submitted: dict[str, int] = field(default_factory=dict)
    """Idempotency key -> experiment that was acknowledged."""
    commands: dict[str, str] = field(default_factory=dict)
    """Name of a command -> user task that was acknowledged"""
    checks: Counter[str] = field(default_factory=Counter)
    written: Written = field(default_factory=Written)
    queues: frozenset[str] = frozenset()
    """Agents whose batch system places their tasks."""
    _reader: sqlite3.Connection | None = None
    _runs: dict[int, int] = field(default_factory=dict)
    _old_points: dict[tuple[int, int], int] = field(default_factory=dict)
    _began: set[tuple[int, int]] = field(default_factory=set)
    _version: int | None = None
    """Of the database, when a commit was looked at last"""
    _journals: Journals = field(init=False)
    _stored: Stored | None = None
    """Metrics when they were compared last"""
    _events: list[Any] = field(default_factory=list)
    """Events of metrics when they were looked at last, in the order of the stream"""
    _told_steps: defaultdict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """trial -> attempt and step of each of them"""
    _sound: set[tuple[str, str, int]] = field(default_factory=set)
    """Checkpoints that were read whole: uuid, digest, steps"""

    def __post_init__(self) -> None:
        self._journals = Journals(self._all, self._broken)

    # --- what happens, told by the world

    def begins(self, node: Node, launch: Launch) -> None:
        """A task starts on a machine: its slots must have no other live task (I2)."""
        for other in node.tasks.values():
            if other.alive and set(other.slots) & set(launch.slots):
                self._broken("I2", f"{launch.allocation_id} starts on slots of {other.allocation_id}, which lives")
        if part_of(launch) in self.attempts:
            self._broken("I2", f"{part_of(launch)} is started a second time")
        self.checks["I2 on the machine"] += 1
        self.attempts[part_of(launch)] = Attempt(launch.info.trial_id or 0, launch.run, node.name)

    def met(self, launch: Launch, *, whole: bool) -> None:
        """A rank of a gang goes on from the rendezvous: all of them must be there."""
        if not whole:
            self._broken("gangs", f"{part_of(launch)} begins, and not all of its nodes are there")
        self.checks["gangs met"] += 1

    def resumed(self, launch: Launch, step: int) -> None:
        """A trial goes on from a step."""
        self.attempts[launch.allocation_id].first = step

    def reported(self, launch: Launch, seq: int, kind: str, fields: dict[str, Any]) -> None:
        """A trial has appended a record to its spool."""
        if kind == "metrics":
            self.attempts[launch.allocation_id].reports[seq] = (fields["steps_completed"], fields["metrics"])

    def acknowledged(self, allocation_id: str, seq: int) -> None:
        """The master said that it has all up to `seq`."""
        attempt = self.attempts[allocation_id]
        attempt.acked = max(attempt.acked, seq)

    def delivered(self, launch: Launch, ending: DeliveryEnding) -> None:
        """A delivery has ended."""
        self.attempts[part_of(launch)].ending = ending

    def answered(self, master: Master, request: Request, caller: Any, result: Any) -> None:
        """A good answer leaves a master: what it says must be committed."""
        if isinstance(result, RecordAck) and isinstance(caller, TaskCaller):
            (mark,) = self._one("SELECT metrics_seq FROM allocations WHERE id=?", caller.allocation_id) or (0,)
            if mark < result.acked:
                self._broken("I4", f"{master.name} acknowledges {result.acked}, committed is {mark}")
            self.checks["I4 acknowledged is committed"] += 1
        if isinstance(result, CreateExperimentReply) and result.experiment is not None:
            if self._one("SELECT id FROM experiments WHERE id=?", result.experiment.id) is None:
                self._broken(
                    "I1", f"{master.name} acknowledges experiment {result.experiment.id}, which is not committed"
                )
            self.checks["I1 acknowledged is committed"] += 1

    def launch_sent(self, master: Master, launch: Launch) -> None:
        """A launch leaves a master: the placement must be committed, for this attempt."""
        row = self._one("SELECT run, state FROM allocations WHERE id=?", launch.allocation_id)
        if row is None or row[0] != launch.run or row[1] == "PENDING":
            self._broken("I2", f"{master.name} sends a launch of {launch.allocation_id} that is not committed: {row}")
        self.checks["published is committed"] += 1

    def decided(self, snapshot: Snapshot, decision: PlacementDecision) -> None:
        """The scheduler has made a pass."""

    # --- at each commit

    def committed(self, master: Master) -> None:
        """A master has committed a transaction."""
        with self._one_look():
            self._check_lease(master)
            if self._has_changed():
                self._check_commit(master)

    def _check_lease(self, master: Master) -> None:
        assert master.store is not None
        found = self._one("SELECT epoch, holder FROM lease")
        if found != (master.store.epoch, master.name):
            self._broken("I3", f"{master.name} of epoch {master.store.epoch} has written under the lease of {found}")

    def _check_commit(self, master: Master) -> None:
        """What a commit that has changed something must have left whole."""
        if self.written.nothing():
            self.written.forget()  # nobody knows what has changed
        self._check_slots()
        self._check_attempts()
        self._check_rows()

    def _check_slots(self) -> None:
        self.checks["I2 in the database"] += 1
        if self.written.is_known("slots", "allocations"):
            return
        owners: dict[tuple[str, str], str] = {}
        for name, agent, slots in self._all(_PLACES):
            for slot in json.loads(slots):
                where, _, one = slot.rpartition("/")  # a gang's slots name their agents
                if (where or agent) in self.queues:
                    continue  # its batch system chooses the devices
                other = owners.setdefault((where or agent, one), name)
                if other != name:
                    self._broken("I2", f"slot {slot} belongs to {other} and {name}")

    def _check_attempts(self) -> None:
        """Points of an attempt that is not the newest may become fewer, never more."""
        self.checks["I3"] += 1
        if self.written.is_known("attempts", "trials", "points", "series", "checkpoints"):
            return
        trials = self._all("SELECT id, run, metrics_run FROM trials")
        runs = {number: run for number, run, _ in trials}
        began = {(number, metrics_run) for number, _, metrics_run in trials if metrics_run > 1}
        if began - self._began:
            self._check_metrics()  # a new attempt has reported: what lies beyond its checkpoint is gone
        self._began = began
        counts = Counter[tuple[int, int]]()
        for trial, run, number in self._all(
            "SELECT s.trial_id, p.run, count(*) FROM points p JOIN series s ON s.id = p.series_id GROUP BY 1, 2"
        ):
            counts[trial, run] += number
        for trial, run, number in self._all("SELECT trial_id, run, count(*) FROM checkpoints GROUP BY 1, 2"):
            counts[trial, run] += number * 1_000_000
        for (trial, run), number in counts.items():
            before = self._runs.get(trial, 0)
            if run < before and number > self._old_points.get((trial, run), 0):
                self._broken("I3", f"attempt {run} of trial {trial} has written after attempt {before} began")
            if run > runs[trial]:
                self._broken("I3", f"trial {trial} has points of attempt {run}, its newest is {runs[trial]}")
        self._runs, self._old_points = runs, dict(counts)

    # --- whole

    def check_all(self) -> None:
        """I1, I4, I5 and I8 of all that the database holds, whether it was looked at before or not."""
        self.written.forget()
        self._check_rows()

    def _check_rows(self) -> None:
        """The same of what may have changed."""
        self._check_submits()
        self._check_metrics()
        self._check_checkpoints()
        self._check_journal()

    def _check_submits(self) -> None:
        self.checks["I1"] += 1
        said = (len(self.submitted), len(self.commands))
        if self.written.is_known("submits", "experiments", "idempotency", "tasks", of=said):
            return
        (made,) = self._one("SELECT count(*) FROM experiments") or (0,)
        acts = "substr(key, 1, 7) = 'search '"
        (known,) = self._one(f"SELECT count(*) FROM idempotency WHERE NOT {acts}") or (0,)
        if made != known:
            self._broken("I1", f"{made} experiments were made by {known} submits")
        for key, experiment_id in self.submitted.items():
            row = self._one("SELECT experiment_id FROM idempotency WHERE key=?", key)
            if row is None or row[0] != experiment_id:
                self._broken("I1", f"submit {key} was acknowledged as experiment {experiment_id}, now there is {row}")
        submitted = "FROM tasks WHERE json_extract(source, '$.gc') IS NULL"
        tasks = dict(self._all(f"SELECT name, id {submitted}"))
        if len(tasks) != (self._one(f"SELECT count(*) {submitted}") or (0,))[0]:
            self._broken("I1", "a command was made twice")
        for name, task in self.commands.items():
            if tasks.get(name) != task:
                self._broken("I1", f"command {name} was acknowledged as {task}, now there is {tasks.get(name)}")

    def _check_metrics(self) -> None:
        self.checks["I4"] += 1
        if self.written.is_known("metrics", "allocations", "points", "series", "metric_names", "events of metrics"):
            return
        marks = self._all("SELECT id, trial_id, run, metrics_seq FROM allocations ORDER BY run")
        for name, _, _, mark in marks:
            attempt = self.attempts.get(name)
            if attempt is not None and attempt.acked > mark:
                self._broken("I4", f"{name}: acknowledged up to {attempt.acked}, the database has {mark}")
        stored = Stored(marks, *map(self._all, (_POINTS, _SERIES, _EVENTS)))
        if stored != self._stored:  # else it was compared already
            expected, told = self._expect(marks)
            self._compare_points(expected, stored)
            self._compare_events(told, stored.events)
            self._stored = stored

    def _expect(self, marks: list[Any]) -> tuple[Expected, dict[int, list[tuple[int, int]]]]:
        """What of each trial should be stored, and (attempt, step) of what its stream should tell."""
        expected: Expected = defaultdict(dict)
        told: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for name, trial, run, mark in marks:
            attempt = self.attempts.get(name)
            if attempt is None:
                continue
            reports = [report for seq, report in sorted(attempt.reports.items()) if seq <= mark]
            if reports:
                kept = {step: point for step, point in expected[trial].items() if step <= (attempt.first or 0)}
                expected[trial] = kept
            for step, metrics in reports:
                expected[trial][step] = (run, metrics)
                told[trial].append((run, step))
        return expected, told

    def _compare_points(self, expected: Expected, stored: Stored) -> None:
        found: defaultdict[int, dict[tuple[str, int], tuple[int, float]]] = defaultdict(dict)
        for trial, name, step, run, value in stored.points:
            found[trial][name, step] = (run, value)
        for trial in set(expected) | set(found):
            wanted = {
                (name, step): (run, value)
                for step, (run, metrics) in expected[trial].items()
                for name, value in metrics.items()
            }
            if wanted != found[trial]:
                differences = sorted(set(wanted.items()) ^ set(found[trial].items()))[:6]
                self._broken("I4", f"trial {trial}: reported and stored differ: {differences}")
        for series, count, there in stored.series:
            if count != there:
                self._broken("I4", f"series {series} says {count} points and has {there}")

    def _compare_events(self, wanted: dict[int, list[tuple[int, int]]], rows: list[Any]) -> None:
        """Who follows the stream by its numbers is told each report once, in the order in which it was made."""
        if rows[: len(self._events)] != self._events:
            self._broken("I4", "an event of metrics came before one that could be read already, or is gone")
        for _, trial, data in rows[len(self._events) :]:
            event = json.loads(data)
            self._told_steps[trial].append((event["run"], event["steps_completed"]))
        self._events = rows
        for trial in sorted(set(wanted) | set(self._told_steps)):
            if wanted[trial] != self._told_steps[trial]:
                said = f"{wanted[trial]} were reported, in the stream are {self._told_steps[trial]}"
                self._broken("I4", f"trial {trial}: {said} (attempt, step)")

    def _check_checkpoints(self) -> None:
        if self.written.is_known("checkpoints", "checkpoints", "allocations"):
            return
        store = PosixStorage(self.world.checkpoints)
        for uuid, digest, steps, name, mark in self._all(
            "SELECT c.uuid, c.manifest_digest, c.steps_completed, a.id, a.metrics_seq FROM checkpoints c "
            "JOIN allocations a ON a.trial_id = c.trial_id AND a.run = c.run WHERE c.state = 'COMPLETED'"
        ):
            if (uuid, digest, steps) in self._sound:
                continue  # until the end, where all are read again
            made = self.attempts[name].reports if name in self.attempts else {}
            if missing := [step for seq, (step, _) in sorted(made.items()) if step <= steps and seq > mark]:
                # Who goes on from it makes them never again.
                self._broken("I4", f"checkpoint {uuid} of step {steps} is committed before the reports {missing}")
            try:
                manifest: Manifest = store.manifest(uuid)
                with store.restore_path(uuid, manifest) as path:
                    step = json.loads((path / "state.json").read_bytes())["step"]
            except Exception as error:  # whatever keeps it from being read breaks the promise
                self._broken("I5", f"checkpoint {uuid} is committed, and {error}")
            if manifest.digest != digest or step != steps:
                self._broken("I5", f"checkpoint {uuid} is not the one that was committed")
            self._sound.add((uuid, digest, steps))
            self.checks["I5"] += 1

    def _check_journal(self) -> None:
        if self.written.is_known("journal", "searcher_journal", "trials", "experiments"):
            return
        self.checks["I8"] += self._journals.check()

    # --- at the end

    def check_end(self) -> None:
        """Everything has ended, nothing is left over (I7)."""
        for number, state in self._all("SELECT id, state FROM experiments"):
            if state not in TERMINAL:
                self._broken("I7", f"experiment {number} is {state}")
        for number, state in self._all("SELECT id, state FROM trials"):
            if state not in TERMINAL:
                self._broken("I7", f"trial {number} is {state}")
        for name, state in self._all("SELECT id, state FROM tasks"):
            if state not in TERMINAL:
                self._broken("I7", f"task {name} is {state}")
            self.checks["I7 commands"] += 1
        for name, state in self._all("SELECT id, state FROM allocations WHERE state != 'TERMINATED'"):
            self._broken("I7", f"allocation {name} is {state}")
        for node in self.world.nodes:
            if node.tasks:
                self._broken("I7", f"{node.name} still has {sorted(node.tasks)}")
        self._sound.clear()
        self._journals.forget()
        self._stored = None
        self.check_all()
        self._check_complete()
        self.checks["I7"] += 1

    def _check_complete(self) -> None:
        """A trial that completed by itself has every point of its last attempt."""
        for trial, run, name in self._all(
            "SELECT t.id, t.run, a.id FROM trials t JOIN allocations a ON a.trial_id = t.id AND a.run = t.run "
            "WHERE t.state = 'COMPLETED' AND a.exit_code = 0"
        ):
            attempt = self.attempts.get(name)
            if attempt is None:
                continue
            (mark,) = self._one("SELECT metrics_seq FROM allocations WHERE id=?", name) or (0,)
            if attempt.reports and mark < max(attempt.reports):
                self._broken(
                    "I4", f"trial {trial} completed in attempt {run} with {mark} of {max(attempt.reports)} records"
                )

    def took_part(self) -> Part:
        """How many trials of asynchronous halving ran, and on how many machines."""
        query = f"SELECT t.id FROM trials t JOIN experiments e ON e.id = t.experiment_id WHERE {_HALVING}"
        halving = {number for (number,) in self._all(query)}
        ran = [(attempt.trial_id, attempt.machine) for attempt in self.attempts.values() if attempt.trial_id]
        theirs = [(trial, machine) for trial, machine in ran if trial in halving]
        return Part(len({trial for trial, _ in theirs}), len({machine for _, machine in theirs}))

    # --- reading

    def database_moved(self) -> None:
        """The file is another one: what was not acknowledged may be gone."""
        if self._reader is not None:
            self._reader.close()
        self._reader = self._version = self._stored = None
        self.written.forget()
        self._runs, self._old_points = {}, {}
        self._events = []
        self._told_steps.clear()

    def close(self) -> None:
        """Let go of the database."""
        self.database_moved()

    @contextmanager
    def _one_look(self) -> Iterator[None]:
        """Read all in one transaction: SQLite then asks once, not for each query, whether there is something new."""
        reader = self._cursor()
        reader.execute("BEGIN")
        try:
            yield
        finally:
            reader.execute("COMMIT")

    def _has_changed(self) -> bool:
        """Whether what the database holds is not what it held when a commit was looked at last."""
        (version,) = self._one("PRAGMA data_version")
        before, self._version = self._version, version
        return bool(version != before)

    def _cursor(self) -> sqlite3.Connection:
        if self._reader is None:
            self._reader = sqlite3.connect(self.world.db_path, isolation_level=None)
        return self._reader

    def _all(self, query: str, *values: Any) -> list[Any]:
        return self._cursor().execute(query, values).fetchall()

    def _one(self, query: str, *values: Any) -> Any:
        return self._cursor().execute(query, values).fetchone()

    def _broken(self, name: str, message: str) -> NoReturn:
        assert name in PROMISES, name
        self.world.loop.errors.append(f"{name}: {message}")
        raise BrokenPromise(f"{name}: {message}")
