"""Studies of Optuna's for the questions of searches: a trial that has ended is told once, not with each question.

Each question says all that a search knows, and its answer depends on nothing else. What is kept here only saves time:
the studies of the last searches, with their ended trials. A question whose results begin with those of a kept study
gets a copy of it, with the new ones added.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, NSGAIISampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from detlab_hub.core.searchers.model_based.records import Record

NAME = "search"
MOST = 4
"""Studies that are kept: those of the searches that asked last."""
_WHEN = datetime(2000, 1, 1)
"""Optuna wants a time of each trial; its samplers do not look at it."""
CONSTRAINT = "constraints:violation"
"""Where Optuna keeps a trial's constraint of that name; more than 0 is infeasible."""


class StudyTrial(FrozenTrial):
    """A trial of a study's; Optuna replaces one that changes, so that copies of a study may share it."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


@dataclass(frozen=True)
class StudyKind:
    """How records become trials.

    Attributes:
        distributions: Of the space, in the order of a record's coordinates.
        objectives: How many there are.
        population: Of a genetic algorithm, whose generations are the results in the order in which they came; else 0.
        constrained: Whether violations count.
    """

    distributions: dict[str, BaseDistribution]
    objectives: int
    population: int
    constrained: bool

    def trial(self, record: Record, number: int, state: TrialState) -> StudyTrial:
        """Return a record as a trial."""
        params = {name: at for name, at in zip(self.distributions, record.at, strict=True) if at is not None}
        ended = state is TrialState.COMPLETE
        attributes: dict[str, Any] = {}
        if ended and self.population:
            attributes[NSGAIISampler._get_generation_key()] = number // self.population
        if ended and self.constrained:
            attributes[CONSTRAINT] = record.violation
        return StudyTrial(
            number=number,
            trial_id=number,
            state=state,
            value=None,
            values=record.score.losses if ended else None,
            datetime_start=_WHEN,
            datetime_complete=_WHEN if ended else None,
            params=params,
            distributions={name: self.distributions[name] for name in params},
            user_attrs={},
            system_attrs=attributes,
            intermediate_values={},
        )


class Results:
    """Trials that have ended, in a study.

    Args:
        kind: How records become trials.
    """

    def __init__(self, kind: StudyKind) -> None:
        self._kind = kind
        self._ended: list[Record] = []
        self._generations = 0
        self._storage = InMemoryStorage()
        optuna.create_study(study_name=NAME, storage=self._storage, directions=["minimize"] * kind.objectives)

    def begin(self, kind: StudyKind, ended: Sequence[Record]) -> bool:
        """Whether the results of a search begin with these."""
        return self._kind == kind and self._ended == ended[: len(self._ended)]

    def extend(self, ended: Sequence[Record]) -> None:
        """Add the results that are new."""
        study = optuna.load_study(study_name=NAME, storage=self._storage)
        for number in range(len(self._ended), len(ended)):
            study.add_trial(self._kind.trial(ended[number], number, TrialState.COMPLETE))
        self._ended = list(ended)
        if size := self._kind.population:
            parents = NSGAIISampler(population_size=size)
            while self._generations < len(ended) // size:  # each from the one before: alone, the last would recurse
                self._generations += 1
                parents.get_parent_population(study, self._generations)

    def study(self, running: Sequence[Record], sampler: BaseSampler) -> optuna.Study:
        """Return a study of its own, with running trials too."""
        study = optuna.load_study(study_name=NAME, storage=copy.deepcopy(self._storage), sampler=sampler)
        for number, record in enumerate(running, len(self._ended)):
            study.add_trial(self._kind.trial(record, number, TrialState.RUNNING))
        return study


class Studies:
    """The studies that are kept."""

    def __init__(self) -> None:
        self._kept: deque[Results] = deque(maxlen=MOST)

    def study(
        self, kind: StudyKind, ended: Sequence[Record], running: Sequence[Record], sampler: BaseSampler
    ) -> optuna.Study:
        """Return a study with these trials, for one question."""
        found = next((results for results in self._kept if results.begin(kind, ended)), None)
        if found is None:
            found = Results(kind)
        else:
            self._kept.remove(found)
        found.extend(ended)
        self._kept.appendleft(found)
        return found.study(running, sampler)
