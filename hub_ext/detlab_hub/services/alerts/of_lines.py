"""Rules about lines of output: a regular expression that is looked for in the lines that trials send.

Matched as log policies are: by RE2, before the lines are written, within a time limit, and on the time of the rule's
owner. A rule tells once of each trial. Who may not read the experiment has nothing looked for in it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from detlab.errors import Unavailable
from detlab.schemas.patterns import BadPattern
from detlab.schemas.wire import LogRecord, RecordBatch
from detlab_hub.core.alerts import AlertRule, RuleMark
from detlab_hub.services.alerts.evaluation import AlertEvaluation, WithAlertRules
from detlab_hub.services.base.access import may_read
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import ServiceContext
from detlab_hub.services.base.masking import masked_text, secrets_of
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle.log_policies import literal_of
from detlab_hub.services.logs.matching import Check, search_lines
from detlab_hub.services.notify.telling import OF_RULE, Said, of_rule, tell
from detlab_hub.store.queries.notify import alerts
from detlab_hub.store.tables import AlertRuleRow, AllocationRow, TrialRow

KIND = "log"
RULE_SECONDS, BATCH_SECONDS = 0.1, 0.5
"""Processor time that one rule may take for the lines of one batch, and all rules together."""
LOOKED_AT_CHARS, SHOWN_CHARS = 4000, 1000
"""Characters of a line that are matched, and that are told."""
MOST_RULES = 20
"""That look at one batch: those of the experiment's owner first, then the oldest."""
MOST_GIVEN_UP = 10_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LineFound:
    """A line that a rule waits for; or why the rule is not looked at any more."""

    rule: AlertRule
    line: str
    given_up: str = ""


class LineRules(WithAlertRules):
    """Looks for what rules wait for in incoming lines."""

    def __init__(self, context: ServiceContext, evaluation: AlertEvaluation) -> None:
        super().__init__(context, evaluation)
        self._given_up: set[int] = set()
        """Rules that take too long; tried again by the next master."""

    async def match(self, allocation_id: str, batch: RecordBatch, check: Check) -> list[LineFound]:
        """Return what rules find in a batch, each at most once.

        Args:
            allocation_id: The attempt that sends the batch, or claims to.
            batch: What was received.
            check: Raises where the sender must not write.
        """
        index = await self._evaluation.rules() if batch.stream == "logs" else None
        if index is None or KIND not in index.kinds:
            return []
        texts = [one.text[:LOOKED_AT_CHARS] for one in batch.records if isinstance(one, LogRecord)]
        if not texts:
            return []

        def looking(s: Session) -> list[AlertRule]:
            check(s)
            row = s.get(AllocationRow, allocation_id)
            experiment, trial = (0, 0) if row is None else (row.experiment_id or 0, row.trial_id or 0)
            subject = alerts.subjects(s, [experiment]).get(experiment) if trial else None
            rules = [] if subject is None else index.matching(KIND, subject)
            key = alerts.trial_key(trial)
            told = alerts.marks(s, [(rule.id, key) for rule in rules])
            waiting = [one for one in rules if (one.id, key) not in told and one.id not in self._given_up]
            waiting.sort(key=lambda one: (subject is None or one.owner != subject.owner, one.id))
            return [one for one in waiting if _reads(s, one, experiment)]

        rules = (await self._context.read(looking))[:MOST_RULES]
        found = [await self._look(rule, texts, min(RULE_SECONDS, BATCH_SECONDS / len(rules))) for rule in rules]
        return [one for one in found if one is not None]

    async def _look(self, rule: AlertRule, texts: Sequence[str], seconds: float) -> LineFound | None:
        literal = literal_of(rule.pattern)
        if literal is not None:
            line = next((text for text in texts if literal in text), None)
            return None if line is None else LineFound(rule, line)
        try:
            hits, looked = await self._context.workers.policies.run(
                rule.owner, search_lines, rule.pattern, texts, seconds
            )
        except BadPattern as error:  # of an older version
            return self._give_up(rule, f"the regular expression {error}")
        except Unavailable as error:
            _log.warning("rule %d has not been looked at for %d lines: %s", rule.id, len(texts), error.message)
            return None
        if hits:
            return LineFound(rule, texts[hits[0]])
        if looked < len(texts):
            return self._give_up(rule, f"its regular expression takes more than {seconds:g} s for {len(texts)} lines")
        return None

    def _give_up(self, rule: AlertRule, why: str) -> LineFound:
        if len(self._given_up) >= MOST_GIVEN_UP:
            self._given_up.clear()
        self._given_up.add(rule.id)
        return LineFound(rule, "", given_up=why)


def tell_of_lines(unit: UnitOfWork, trial: TrialRow, agent_id: str | None, found: Sequence[LineFound]) -> None:
    """Tell the owners of rules what was found in the output of a trial, each rule once of a trial."""
    if not found:
        return
    experiment, key = unit.experiment(trial.experiment_id), alerts.trial_key(trial.id)
    told = alerts.marks(unit.session, [(one.rule.id, key) for one in found])
    secrets = secrets_of(experiment.config)
    for one in found:
        row = unit.session.get(AlertRuleRow, one.rule.id)
        if row is None or (row.id, key) in told or not _reads(unit.session, one.rule, experiment.id):
            continue
        name = f"trial {trial.id} of experiment {experiment.id} ({experiment.name[:100]})"
        if one.given_up:
            title = f"rule {row.id} is not looked at any more"
            said = Said(KIND, title, f"{one.given_up}. Remove it: det alert remove-rule {row.id}", "warn")
        else:
            line = masked_text(one.line.strip(), secrets)[:SHOWN_CHARS]  # cut first, a part of a secret would stay
            text = f"{line}\n\nfits {one.rule.pattern[:200]}"
            about = {"pattern": one.rule.pattern, "task": f"trial-{trial.id}", "node": agent_id or "", "line": line}
            said = Said(KIND, f"{name} printed", text, "info", experiment.id, trial.id, line=about)
        alerts.put_marks(unit.session, {(row.id, key): RuleMark(told=True)})
        hooks = [] if row.hook_id is None else [row.hook_id]
        tell(unit, row.owner, of_rule(row.id), said, most=OF_RULE, bell=row.bell, hooks=hooks, email=row.email)


def _reads(s: Session, rule: AlertRule, experiment_id: int) -> bool:
    return may_read(s, Caller(rule.owner, groups=rule.groups), experiment_id)
