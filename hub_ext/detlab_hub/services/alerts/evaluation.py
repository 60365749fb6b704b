"""Evaluates the rules from committed events, and what grows by itself (waiting, budgets, quotas) every half a minute.

The cursor in the event log, what rules remember, the alerts and the calls of webhooks are written in one transaction:
after a crash nothing is told twice and nothing is left out. Without rules nothing is read.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

from sqlalchemy.orm import Session

from detlab.errors import Unavailable
from detlab.schemas.wire import Event, ExperimentState, decode_float
from detlab_hub.core.alerts import AlertRule, AlertSubject, RuleIndex, RuleMark, judge
from detlab_hub.services.alerts import growing
from detlab_hub.services.base.access import may_read
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.base.wakeups import wait_until
from detlab_hub.services.failures.diverging import values_warning
from detlab_hub.services.notify.telling import OF_RULE, Said, hold_back, of_rule, tell
from detlab_hub.store.queries import consumers, events
from detlab_hub.store.queries.notify import alerts
from detlab_hub.store.tables import AlertRuleRow, ExperimentRow

CURSOR = "alerts"
"""Names the place of the evaluation in the event log."""
BATCH = 500
KEPT_SUBJECTS = 20_000
KEPT_MARKS = 50_000
"""Experiments, and what rules remember of them, that are known without a look."""
WRITE_AFTER = 2000
"""Events without an alert after which the cursor is written."""
LOOK_AGAIN = 30.0
PAUSE = 1.0
"""Seconds between two looks at the event log that have found all there was."""
ENDS = {ExperimentState.COMPLETED.value: "completed", ExperimentState.ERROR.value: "failed"}
OF_METRICS = ("improved", "plateau")
MOST_OF_OWNER = 600
"""Alerts by rules of one owner that are written at once, whatever happens: the writer is everybody's."""
_log = logging.getLogger(__name__)

Key = tuple[int, int]
"""(rule, experiment)"""


@dataclass
class _Seen:
    """What a batch of events came to."""

    marks: dict[Key, RuleMark] = field(default_factory=dict)
    told: list[tuple[AlertRule, Said]] = field(default_factory=list)


class AlertEvaluation(Service):
    """The evaluation of all rules."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._index: RuleIndex | None = None
        self._version = 0
        """How often the rules were changed."""
        self._elsewhere: tuple[int, RuleIndex] | None = None
        """Of which version, and the rules, for others while the evaluation has not read them yet."""
        self._cursor: int | None = None
        self._written = 0
        self._subjects: dict[int, AlertSubject] = {}
        self._marks: dict[Key, RuleMark] = {}
        self._looked = 0.0

    def rules_changed(self) -> None:
        """Read the rules again with the next step: call it after the commit."""
        self._index = None
        self._version += 1
        self._context.wakeups.wake("streams")

    async def run(self) -> None:
        """Evaluate until the master stops."""
        with self._context.wakeups.listen("streams") as news:
            while not self._context.stopped:
                news.clear()
                more = await self.step()
                now = self._context.clock()
                if now - self._looked >= LOOK_AGAIN:
                    self._looked = now
                    await self.look()
                if not more:
                    await wait_until(news, LOOK_AGAIN)
                    await asyncio.sleep(PAUSE)  # so that many commits are one look

    async def step(self) -> bool:
        """Evaluate what comes next in the event log; return whether there may be more.

        Raises:
            Unavailable: The database is busy or broken; the same comes again.
        """
        index = await self._rules()
        if not index or self._cursor is None:
            return False
        kinds = {"experiment"} | ({"metrics"} if index.kinds.intersection(OF_METRICS) else set())
        cursor = self._cursor

        def read(s: Session) -> tuple[int, list[Event]]:
            floor, head = events.bounds(s)
            return head, events.after(s, max(cursor, floor), BATCH, kinds=kinds)

        head, batch = await self._context.read(read)
        full = len(batch) == BATCH
        upto = batch[-1].id if full else head
        if upto <= cursor:
            return False
        try:
            seen = await self._seen(index, batch)
            if seen.marks or seen.told or upto - self._written >= WRITE_AFTER:
                await self._context.write(lambda unit: _write(unit, seen, upto))
                self._written = upto
        except Unavailable:
            self._forget()
            raise
        self._cursor = upto
        return full

    async def look(self) -> None:
        """Look at what grows by itself: how long experiments wait, budgets, quotas."""
        index = await self._rules()
        for kind, look in growing.LOOKS.items():
            if kind in index.kinds:
                found = await self._context.read(
                    partial(_grown, look=look, rules=index.of_kind(kind), now=self._context.clock())
                )
                for begin in range(0, len(found), MOST_OF_OWNER):
                    await self._context.write(partial(_write_grown, found=found[begin : begin + MOST_OF_OWNER]))

    async def rules(self) -> RuleIndex:
        """Return all rules, as they are looked up by: for what is told where it happens.

        It leaves alone what the evaluation knows, which may be in the middle of a step.
        """
        if self._index is not None:
            return self._index
        version, known = self._version, self._elsewhere
        if known is None or known[0] != version:
            known = self._elsewhere = version, RuleIndex(await self._context.read(alerts.rules))
        return known[1]

    async def _rules(self) -> RuleIndex:
        known = self._index
        if known is not None:
            return known
        version = self._version
        found = RuleIndex(await self._context.read(alerts.rules))
        if found and self._cursor is None:
            row = await self._context.write(lambda unit: consumers.register(unit.session, CURSOR, unit.now).cursor)
            self._cursor = self._written = row
        elif not found and await self._context.write(_forget_cursor):
            self._cursor = None
        self._forget()
        if version == self._version:  # else they have changed meanwhile, and are read again
            self._index = found
        return found

    def _forget(self) -> None:
        self._subjects.clear()
        self._marks.clear()

    async def _seen(self, index: RuleIndex, batch: list[Event]) -> _Seen:
        """Find what the rules say to some events."""
        seen = _Seen()
        for event in batch:
            # It may have moved to another project, and its members with it.
            if event.kind == "experiment" and event.experiment_id is not None:
                self._subjects.pop(event.experiment_id, None)
        wanted = [one for one in batch if one.experiment_id is not None and _counts(one)]
        await self._know({one.experiment_id for one in wanted if one.experiment_id is not None})
        matched = [(event, *self._matched(index, event)) for event in wanted]
        judged = [(subject, rules) for event, subject, rules in matched if event.kind == "metrics"]
        await self._recall({(rule.id, subject.experiment_id) for subject, rules in judged for rule in rules})
        for event, subject, rules in matched:
            for rule in rules:
                if event.kind == "metrics":
                    self._judge(seen, rule, subject, event)
                else:
                    seen.told.append((rule, _ended(rule.kind, subject.experiment_id)))
        return seen

    async def _know(self, ids: set[int]) -> None:
        if len(self._subjects) > KEPT_SUBJECTS:
            self._subjects.clear()
        missing = ids - self._subjects.keys()
        if missing:
            self._subjects |= await self._context.read(lambda s: alerts.subjects(s, missing))

    async def _recall(self, keys: set[Key]) -> None:
        if len(self._marks) > KEPT_MARKS:
            self._marks.clear()
        missing = keys - self._marks.keys()
        if missing:
            found = await self._context.read(lambda s: alerts.marks(s, missing))
            self._marks |= {key: found.get(key, RuleMark()) for key in missing}

    def _matched(self, index: RuleIndex, event: Event) -> tuple[AlertSubject, list[AlertRule]]:
        subject = self._subjects.get(event.experiment_id or 0)
        if subject is None:  # it is deleted
            return AlertSubject(event.experiment_id or 0, ""), []
        if event.kind == "experiment":
            return subject, index.matching(ENDS[event.data[events.MOVED]["to"]], subject)
        if subject.metric not in event.data["metrics"]:
            return subject, []
        return subject, [rule for kind in OF_METRICS for rule in index.matching(kind, subject)]

    def _judge(self, seen: _Seen, rule: AlertRule, subject: AlertSubject, event: Event) -> None:
        value = decode_float(event.data["metrics"][subject.metric])
        if value is None:
            return
        if not _keeps(subject, event.data["metrics"]):
            value = math.nan  # a validation, and no improvement
        key = rule.id, subject.experiment_id
        before = self._marks[key]
        judged = judge(rule.kind, rule.amount, before, value, smaller_is_better=subject.smaller_is_better)
        if judged.mark != before:
            self._marks[key] = seen.marks[key] = judged.mark
        if judged.text:
            title = "has improved" if rule.kind == "improved" else "does not improve any more"
            said = Said(rule.kind, title, f"{subject.metric}: {judged.text}", "info", subject.experiment_id)
            seen.told.append((rule, said))


class WithAlertRules(Service):
    """Use cases that need the rules of alerts.

    Args:
        context: Reads and writes.
        evaluation: Knows the rules, and hears when they change.
    """

    def __init__(self, context: ServiceContext, evaluation: AlertEvaluation) -> None:
        super().__init__(context)
        self._evaluation = evaluation

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Self:
        """Make the one of a master."""
        return cls(services.context, services[AlertEvaluation])


def _keeps(subject: AlertSubject, metrics: Mapping[str, Any]) -> bool:
    """Whether a report keeps the constraints of its search, whose metrics it has with it."""
    values = {name: decode_float(metrics.get(name)) for name, _, _ in subject.bounds}
    return all((value := values[name]) is not None and low <= value <= high for name, low, high in subject.bounds)


def _counts(event: Event) -> bool:
    """Whether an event is one that a rule may wait for."""
    if event.kind == "metrics":
        return bool(event.data.get("group") == "validation" and event.data.get("metrics"))
    return (event.data.get(events.MOVED) or {}).get("to") in ENDS


def _ended(kind: str, experiment_id: int) -> Said:
    if kind == "failed":
        return Said(kind, "has failed", f"det experiment describe {experiment_id}", "error", experiment_id)
    return Said(kind, "has completed", "", "info", experiment_id)


def _grown(s: Session, look: growing.Look, rules: list[AlertRule], now: float) -> list[growing.Change]:
    """Look at what grows by itself. What is too much of one owner comes with the next look, as nothing is noted yet."""
    of_owner, found = Counter[str](), []
    for change in look(s, rules, now):
        of_owner[change[0].owner] += 1
        if of_owner[change[0].owner] <= MOST_OF_OWNER:
            found.append(change)
    return found


def _write_grown(unit: UnitOfWork, found: list[growing.Change]) -> None:
    alerts.put_marks(unit.session, {(rule.id, key): mark for rule, key, mark, _ in found})
    for rule, _, _, said in found:
        if said is not None:
            _tell(unit, rule, said)


def _write(unit: UnitOfWork, seen: _Seen, upto: int) -> None:
    alerts.put_marks(unit.session, seen.marks)
    told = Counter[AlertRule]()
    rules_of = Counter(rule.owner for rule in {rule for rule, _ in seen.told})
    for rule, said in seen.told:
        told[rule] += 1
        if told[rule] <= max(1, MOST_OF_OWNER // rules_of[rule.owner]):
            _tell(unit, rule, said)
    for rule, count in told.items():
        over = count - max(1, MOST_OF_OWNER // rules_of[rule.owner])
        if over > 0:
            hold_back(unit, rule.owner, of_rule(rule.id), over)
    consumers.advance(unit.session, CURSOR, upto, unit.now)


def _forget_cursor(unit: UnitOfWork) -> bool:
    """Forget the cursor where there are no rules: nothing is evaluated, and no event kept for it."""
    if alerts.any_rule(unit.session):
        return False
    consumers.forget(unit.session, CURSOR)
    return True


def _tell(unit: UnitOfWork, rule: AlertRule, said: Said) -> None:
    """Tell the owner of a rule, if the rule is still there, and they may read what it is about."""
    row = unit.session.get(AlertRuleRow, rule.id)
    if row is None:
        return
    name = ""
    if said.experiment_id is not None:
        experiment = unit.session.get(ExperimentRow, said.experiment_id)
        if experiment is None or not may_read(unit.session, Caller(rule.owner, groups=rule.groups), experiment.id):
            return
        name = f"experiment {experiment.id} ({experiment.name[:100]}) "
        if said.kind == "failed" and (cause := (experiment.failure or {}).get("message")):
            said = replace(said, text=f"{cause}\n{said.text}")
        if said.kind == "completed" and (warning := values_warning(experiment)):
            said = replace(said, text=warning, level="warn")
    whole = replace(said, title=name + said.title)
    hooks = [] if row.hook_id is None else [row.hook_id]
    tell(unit, rule.owner, of_rule(rule.id), whole, most=OF_RULE, bell=row.bell, hooks=hooks, email=row.email)
