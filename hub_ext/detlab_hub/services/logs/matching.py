"""Users' regular expressions, matched by RE2 in time linear in the text; log policies of incoming lines."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence

from sqlalchemy.orm import Session

from detlab.errors import Unavailable
from detlab.schemas.patterns import BadPattern, compile_pattern
from detlab.schemas.wire import LogRecord, RecordBatch
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.lifecycle import log_policies
from detlab_hub.services.lifecycle.log_policies import Finding, LogRule
from detlab_hub.store.tables import AllocationRow, ExperimentRow

_log = logging.getLogger(__name__)
POLICY_SECONDS = 0.25
"""Processor time that one policy may take for the lines of one batch, a thousand at most."""
BATCH_SECONDS = 1.0
"""The same for all policies of an experiment together; each has its share of it."""
POLICY_CHARS = 4000
"""Characters of a line that policies match."""
MOST_REMEMBERED = 10_000
"""Cached attempts with policies, attempts that were warned of slow ones, and experiments that have such."""
Check = Callable[[Session], object]
"""Raises if a batch will not be accepted."""


def search_lines(pattern: str, texts: Iterable[str], seconds: float) -> tuple[list[int], int]:
    """Search texts for a regular expression, within a time limit.

    Run it in a thread of its own: RE2 works without the interpreter's lock.

    Args:
        pattern: In the syntax of RE2.
        texts: Where to look.
        seconds: Processor time; a single text, of 16 kB at most, takes less than one second.

    Returns:
        The indexes of the texts in which it is found, and how many texts there was time for, at least one.

    Raises:
        BadPattern: It is not a valid regular expression.
    """
    search, end = compile_pattern(pattern).search, time.thread_time() + seconds
    hits, looked = [], 0
    for text in texts:
        if search(text if text.isascii() else text.encode(errors="replace").decode()) is not None:
            hits.append(looked)
        looked += 1
        if time.thread_time() > end:
            break
    return hits, looked


class PolicyMatcher(Service):
    """Matches log policies against incoming lines, before they are written."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._known: dict[str, tuple[int, str, tuple[LogRule, ...]]] = {}
        """Experiment, owner and policies, by attempt."""
        self._given_up: dict[tuple[int, str], str] = {}
        """Why, by experiment and pattern: it is not tried again."""
        self._told: set[tuple[str, str]] = set()
        """(allocation, pattern): its trial has the warning."""

    async def match(self, allocation_id: str, batch: RecordBatch, check: Check) -> list[Finding]:
        """Return what the policies of an attempt's experiment find in a batch, each at most once.

        A pattern that takes too long, or that RE2 does not accept (of an experiment from an older version), is given up
        for the experiment, once the result has been `written`.

        Args:
            allocation_id: The attempt that sends the batch, or claims to.
            batch: What was received.
            check: Raises where the sender must not write: strangers must not run others' patterns on their own text.
        """
        if batch.stream != "logs":
            return []
        experiment_id, owner, policies = await self._policies(allocation_id)
        lines = [record for record in batch.records if isinstance(record, LogRecord)] if policies else []
        if not lines:
            return []
        tried = [one for one in policies if one.literal is None and (experiment_id, one.pattern) not in self._given_up]
        if tried:
            await self._context.read(check)
        found = [_literal(policy, lines) for policy in policies if policy.literal is not None]
        found += await self._tried(owner, tried, lines)
        for policy in policies:
            why = self._given_up.get((experiment_id, policy.pattern))
            if why is not None and (allocation_id, policy.pattern) not in self._told:
                found.append(Finding(policy, "", 0.0, given_up=why))
        return [finding for finding in found if finding is not None]

    def written(self, allocation_id: str, findings: Sequence[Finding]) -> None:
        """Note that the matches are written: an abandoned policy is not tried again, nor its trial warned again."""
        experiment_id, *_ = self._known.get(allocation_id, (0, "", ()))
        for finding in findings if experiment_id else ():
            if not finding.given_up:
                continue
            if max(len(self._given_up), len(self._told)) >= MOST_REMEMBERED:
                self._given_up.clear()
                self._told.clear()
            if (experiment_id, finding.policy.pattern) not in self._given_up:
                _log.warning("experiment %d: a log policy is given up: %s", experiment_id, finding.given_up)
                self._given_up[experiment_id, finding.policy.pattern] = finding.given_up
            self._told.add((allocation_id, finding.policy.pattern))

    async def _tried(self, who: str, policies: Sequence[LogRule], lines: Sequence[LogRecord]) -> list[Finding | None]:
        texts = [line.text[:POLICY_CHARS] for line in lines] if policies else []
        found: list[Finding | None] = []
        for policy in policies:
            seconds = min(POLICY_SECONDS, BATCH_SECONDS / len(policies))
            try:
                hits, looked = await self._context.workers.policies.run(
                    who, search_lines, policy.pattern, texts, seconds
                )
            except BadPattern as error:
                found.append(Finding(policy, "", 0.0, given_up=f"the regular expression {error}"))
            except Unavailable as error:
                # Output matters more than its policies: it is stored, and policies match the lines that follow.
                _log.warning("log policies have not been matched against %d lines: %s", len(lines), error.message)
                break
            else:
                if hits:
                    found.append(Finding(policy, lines[hits[0]].text, lines[hits[0]].time))
                elif looked < len(texts):
                    found.append(Finding(policy, "", 0.0, given_up=_slow(seconds, len(texts))))
        return found

    async def _policies(self, allocation_id: str) -> tuple[int, str, tuple[LogRule, ...]]:
        known = self._known.get(allocation_id)
        if known is None:

            def read(s: Session) -> tuple[int, str, tuple[LogRule, ...]] | None:
                row = s.get(AllocationRow, allocation_id)
                if row is None:
                    return None
                experiment = None if row.experiment_id is None else s.get(ExperimentRow, row.experiment_id)
                found = () if experiment is None else log_policies.policies_of(experiment.config)
                return row.experiment_id or 0, row.owner, found

            known = await self._context.read(read)
            if known is None:
                return 0, "", ()
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[allocation_id] = known
        return known


def _literal(policy: LogRule, lines: Sequence[LogRecord]) -> Finding | None:
    text = policy.literal or ""
    line = next((line for line in lines if line.text.find(text, 0, POLICY_CHARS) >= 0), None)
    return None if line is None else Finding(policy, line.text, line.time)


def _slow(seconds: float, lines: int) -> str:
    return f"the regular expression takes more than {seconds:g} s for {lines} lines; repeat less in it"
