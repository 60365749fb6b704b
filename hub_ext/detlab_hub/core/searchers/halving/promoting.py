"""One bracket of asynchronous successive halving, promotion variant.

Li et al., "A System for Massively Parallel Hyperparameter Tuning" (MLSys 2020), algorithm 2: a trial that reaches its
rung is paused unless it is among the best 1/divisor there; a free place goes to the highest paused trial that has come
to be among them, and otherwise to a new trial. Nothing is stopped for good while it may still be promoted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from typing import Any

from detlab_hub.core.searchers.errors import SteeringRefused
from detlab_hub.core.searchers.events import (
    INVALID_REASONS,
    Decision,
    ExitReason,
    PauseTrial,
    ResumeTrial,
    StopTrial,
)
from detlab_hub.core.searchers.halving.async_halving import FAILED, OVERHEAD, AsyncHalving, BracketConfig
from detlab_hub.core.searchers.method import TrialFactory
from detlab_hub.core.searchers.objectives import Score


class PromotingBracket(AsyncHalving):
    """One bracket of promotion ASHA.

    A trial holds a place while it trains: from its creation, or from its promotion, until it is paused or ends.
    """

    def __init__(self, config: BracketConfig) -> None:
        super().__init__(config)
        self._places = config.concurrency
        self._budget = config.max_trials
        self._paused: dict[str, None] = {}
        """Trials that wait at the rung of their level, in the order in which they came."""
        self._promoted: list[set[str]] = [set() for _ in self._rungs]
        """For each rung the trials that have gone beyond it, or would have had they not ended."""
        self._awaited = 0
        """New trials whose hyperparameters are being computed."""

    @property
    def budget(self) -> int:
        """`max_trials`, and what users added."""
        return self._budget

    def validated(self, factory: TrialFactory, request_id: str, score: Score, time: float | None) -> list[Decision]:
        """Evaluate a trial at every rung that it has reached; pause it at the first where it is not among the best.

        Raises:
            SearcherInputError: The report has no finite value of the time metric.
        """
        if request_id not in self._active:
            return []
        reached = self._units_reached(request_id, time)
        if reached < self._rungs[self._level[request_id]].units_needed:
            return []
        top = len(self._rungs) - 1
        while reached >= self._rungs[self._level[request_id]].units_needed:
            level = self._level[request_id]
            self._rungs[level].insert(request_id, score)
            if level == top:
                return self._leave(factory, request_id, StopTrial(request_id, finished=True))
            if not self._passes(request_id) and request_id not in self._best(level):
                self._paused[request_id] = None
                return self._leave(factory, request_id, PauseTrial(request_id))
            self._promote(request_id)
        return self._settle(factory)

    def _leave(self, factory: TrialFactory, request_id: str, decision: Decision) -> list[Decision]:
        self._active.discard(request_id)
        return [decision, *self._settle(factory)]

    def _best(self, level: int) -> list[str]:
        """Return the best 1/divisor of a rung, the best first."""
        entries = self._rungs[level].entries
        return [name for _, name in entries[: int(len(entries) / self._config.divisor)]]

    def _rule(self, request_id: str, results: int) -> str:
        """Return how many of the results of a rung continue; of fewer than the divisor none does."""
        if (kept := int(results / self._config.divisor)) > 0:
            return f"the best {kept} continue"
        lacking = math.ceil(self._config.divisor) - results
        needed = f"{lacking} more result{'s' if lacking > 1 else ''}"
        verb = ("are" if lacking > 1 else "is") if request_id in self._paused else "would have been"
        return f"1 of {self._config.divisor:g} continues, {needed} {verb} needed"

    def _promote(self, request_id: str) -> None:
        level = self._level[request_id]
        self._promoted[level].add(request_id)
        self._level[request_id] = level + 1

    def _promotable(self, level: int) -> str | None:
        """Return the best paused trial of a rung that belongs beyond it."""
        for request_id in self._best(level):
            if request_id in self._paused and self._level[request_id] == level:
                return request_id
        return None

    def _settle(self, factory: TrialFactory) -> list[Decision]:
        """Give free places to promoted trials, then to new ones; stop paused ones that cannot be promoted any more."""
        decisions: list[Decision] = []
        self._pass_ended()
        while self.holding < self._places and self.room() and (found := self._next(factory)) is not None:
            decisions.append(found)
        return decisions + self._close()

    @property
    def holding(self) -> int:
        """Places that are taken, those of trials whose points are being computed too."""
        return len(self._active) + self._awaited

    def fill(self, factory: TrialFactory) -> list[Decision]:
        """Use the places that are free."""
        return self._settle(factory)

    def _pass_ended(self) -> None:
        """Let trials that have ended and belong beyond their rung count in the next one, with the score they have."""
        for level, rung in enumerate(self._rungs[:-1]):
            best = set(self._best(level)) - self._promoted[level]
            for score, request_id in rung.entries[: len(best) + len(self._promoted[level])]:
                if request_id in best and request_id not in self._active and request_id not in self._paused:
                    self._promoted[level].add(request_id)
                    if not any(name == request_id for _, name in self._rungs[level + 1].entries):
                        self._rungs[level + 1].insert(request_id, score)

    def _next(self, factory: TrialFactory) -> Decision | None:
        for level in range(len(self._rungs) - 2, -1, -1):
            request_id = self._promotable(level)
            if request_id is not None:
                return self._resume(request_id)
        return self._begin(factory) if self._may_create else None

    def _begin(self, factory: TrialFactory) -> Decision:
        """Create a new trial."""
        return self._create(factory)

    @property
    def _may_create(self) -> bool:
        return len(self._level) - self._invalid + self._awaited < self._budget

    def _resume(self, request_id: str) -> ResumeTrial:
        self._paused.pop(request_id, None)
        self._active.add(request_id)
        self._promote(request_id)
        return ResumeTrial(request_id)

    def _close(self) -> list[Decision]:
        """Stop the trials of each rung, from the first, to which no further trial can come."""
        decisions: list[Decision] = []
        if self._may_create or self._awaited:
            return decisions
        coming = min((self._level[request_id] for request_id in self._active), default=len(self._rungs))
        for level in range(min(coming, len(self._rungs))):
            best = set(self._best(level))
            here = [request_id for request_id in self._paused if self._level[request_id] == level]
            hopeless = [request_id for request_id in here if request_id not in best]
            for request_id in hopeless:
                del self._paused[request_id]
            decisions += [StopTrial(request_id) for request_id in hopeless]
            if len(hopeless) < len(here):
                break  # those wait for a place, and will come to the next rung
        return decisions

    def exited_early(self, factory: TrialFactory, request_id: str, reason: ExitReason) -> list[Decision]:
        """Count an early end as the worst result of its rung, an invalid point as if it had never been."""
        held = request_id in self._active or request_id in self._paused
        level = self._level[request_id]
        decisions: list[Decision] = []
        if reason in INVALID_REASONS:
            self._invalid += 1
            for rung, promoted in zip(self._rungs, self._promoted, strict=True):
                rung.remove(request_id)
                promoted.discard(request_id)
            if held:
                decisions.append(StopTrial(request_id))
        elif request_id in self._active:
            self._rungs[level].insert(request_id, self._config.worst)
        self._forget(request_id)
        return decisions + self._settle(factory)

    def _forget(self, request_id: str) -> None:
        self._active.discard(request_id)
        self._paused.pop(request_id, None)

    def count_stopped(self, request_id: str, score: Score | None) -> None:
        """Count a trial that a policy or a user stops on its way to a rung there: the others are not to wait for it."""
        if request_id in self._active:
            self._rungs[self._level[request_id]].insert(request_id, score or self._config.worst)

    def stopped(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Free the place of a trial that a stopping policy or a user ended; its scores stay."""
        self._forget(request_id)
        return self._settle(factory)

    def disqualified(self, factory: TrialFactory, request_id: str, score: Score) -> list[Decision]:
        """Give what it was promoted to to the next best of each rung, which may wait there."""
        for level, promoted in enumerate(self._promoted):
            rung = self._rungs[level]
            if any(name == request_id for _, name in rung.entries):
                rung.remove(request_id)
                rung.insert(request_id, score)
                if request_id not in self._best(level):
                    promoted.discard(request_id)
        return self.stopped(factory, request_id)

    def exited(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Count an end; the place of a trial that ended by itself below the top rung is filled again."""
        self._exited += 1
        self._forget(request_id)
        return self._settle(factory)

    def resized(self, factory: TrialFactory, limit: int) -> list[Decision]:
        """Change how many trials train at a time; those that do are left to."""
        self._places = limit or max(self._config.concurrency, self._budget)
        return self._settle(factory)

    def extended(self, factory: TrialFactory, trials: int, units: int) -> list[Decision]:
        """Add trials, and units to the top rung, for those that have not come through it."""
        self._budget += trials
        self._rungs[-1].units_needed += units
        return self._settle(factory)

    def promoted(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Resume a paused trial at once, beyond the places if all are taken; let one that trains pass its next rung.

        Raises:
            SteeringRefused: It has ended, trains to the top rung, or was promoted already.
        """
        if request_id in self._paused:
            self._lifted[request_id] = self._level[request_id] + 1
            return [self._resume(request_id)]
        if request_id not in self._active:
            raise SteeringRefused("the trial has ended or is about to end")
        if self._level[request_id] == len(self._rungs) - 1:
            raise SteeringRefused("the trial trains to the top rung already")
        self._lift(request_id)
        return []

    def _counts(self, level: int) -> dict[str, int]:
        failed = self._failed(level)
        reached = {name for _, name in self._rungs[level].entries} - failed
        paused = sum(self._level[name] == level for name in self._paused)
        beyond = self._promoted[level] & reached
        held = {
            name for name in reached if self._level[name] == level and (name in self._active or name in self._paused)
        }
        end = "finished" if level == len(self._rungs) - 1 else "stopped"
        left = len(reached - beyond - held)
        told = {"running": self._running(level), "paused": paused, "promoted": len(beyond), end: left}
        return {**told, FAILED: len(failed)}

    def progress(self, shares: Mapping[str, float], closed: Set[str]) -> float:
        """Return the filled part of rung 0, less a sixth for the upper rungs, or the ended part if that is more."""
        reached, ended = len(self._rungs[0].entries), self._exited - self._invalid
        return max(reached / (OVERHEAD * self._budget), ended / self._budget)

    def state(self) -> dict[str, Any]:
        """Return the rungs, levels and counters, and who waits."""
        return {
            **super().state(),
            "places": self._places,
            "budget": self._budget,
            "paused": sorted(self._paused),
            "promoted": [sorted(names) for names in self._promoted],
            "awaited": self._awaited,
        }
