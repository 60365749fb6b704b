"""Population based training: `pbt`.

Jaderberg et al., "Population Based Training of Neural Networks" (2017), with truncation selection, in rounds, as
Determined had it: after each round the worst trials are replaced by clones of as many of the best, which continue from
their parent's checkpoint with changed hyperparameters.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from detlab.schemas.expconf import PBTConfig, SearcherBlock
from detlab_hub.core.searchers.errors import SearcherConfigError, SteeringRefused
from detlab_hub.core.searchers.events import (
    INVALID_REASONS,
    CreateTrial,
    Decision,
    ExitReason,
    PauseSearch,
    PauseTrial,
    ResumeTrial,
    StopTrial,
)
from detlab_hub.core.searchers.fields import Fields
from detlab_hub.core.searchers.method import SearchMethod, Standing, TrialFactory
from detlab_hub.core.searchers.objectives import Score, time_of
from detlab_hub.core.searchers.population.explore import Explore
from detlab_hub.core.searchers.population.members import Origin, PopulationMember
from detlab_hub.core.searchers.scores import order


@dataclass(frozen=True)
class PBTPlan:
    """The resolved block.

    Attributes:
        size: Trials of the population.
        rounds: Rounds at most.
        length: Units of the time metric of a round.
        time_metric: Name of the metric that counts a trial's training.
        replaced: Trials replaced after each round.
        explore: How clones differ from their parents.
        worst: Score of a trial that ended before its round did.
    """

    size: int
    rounds: int
    length: int
    time_metric: str
    replaced: int
    explore: Explore
    worst: Score


class PBT(SearchMethod):
    """A population that trains round by round.

    A trial that has ended takes part in the choice after its round, and leaves the population then; only replacing
    the worst brings new ones, so trials that fail make it smaller.
    """

    name = "pbt"
    Config: ClassVar[type[SearcherBlock]] = PBTConfig
    wants_checkpoints = True
    needs_metric = True

    def __init__(self, plan: PBTPlan) -> None:
        self._plan = plan
        self._rounds = plan.rounds
        self._round = 0
        self._members: dict[str, PopulationMember] = {}
        self._trained: dict[str, int] = {}
        """The round of each trial that has left the population."""
        self._awaited = 0
        """Clones whose hyperparameters are being computed."""
        self._why: dict[str, str] = {}
        """Why trials were replaced, for people: not part of the state."""

    @classmethod
    def from_config(cls, fields: Fields, space: Mapping[str, Any]) -> Self:
        """Make the method that the `searcher` block describes."""
        return cls(cls.planned(fields))

    @classmethod
    def planned(cls, fields: Fields) -> PBTPlan:
        """Return the block, resolved.

        Raises:
            SearcherConfigError: A field is missing or out of range.
        """
        size = fields.count("population_size")
        fraction = _share(fields, "replace_function", "truncate_fraction", 0.5)
        return PBTPlan(
            size=size,
            rounds=fields.count("num_rounds"),
            length=fields.count("length_per_round"),
            time_metric=str(fields.get("time_metric")),
            replaced=int(fraction * size),
            explore=cls.exploring(fields),
            worst=fields.objectives.worst(sys.float_info.max),
        )

    @classmethod
    def exploring(cls, fields: Fields) -> Explore:
        """Return how clones differ from their parents."""
        resample = _share(fields, "explore_function", "resample_probability", 1.0)
        return Explore(resample, _share(fields, "explore_function", "perturb_factor", 1.0))

    @property
    def budget(self) -> int:
        """The population, and those that replace some of it after each round but the last."""
        return self._plan.size + self._plan.replaced * (self._rounds - 1)

    def start(self, factory: TrialFactory) -> list[Decision]:
        """Create the population."""
        return [self._join(factory.draw(), None) for _ in range(self._plan.size)]

    def _join(self, trial: CreateTrial, origin: Origin | None) -> CreateTrial:
        offset = 0 if origin is None else None
        self._members[trial.request_id] = PopulationMember(trial.request_id, trial.hparams, self._round, origin, offset)
        return trial

    def validated(self, factory: TrialFactory, request_id: str, score: Score, time: float | None) -> list[Decision]:
        """Pause a trial at the end of its round, stop it at the end of the last.

        Raises:
            SearcherInputError: The report has no finite value of the time metric.
        """
        member = self._members.get(request_id)
        if member is None or member.place != "training":
            return []
        time = time_of(self._plan.time_metric, time, request_id)
        length = self._plan.length
        if member.units(time, self._round * length) < (self._round + 1) * length:
            return []
        member.score = score
        if self._round == self._rounds - 1:
            self._leave(member)
            return [StopTrial(request_id, finished=True)]
        member.place = "leaving"
        return [PauseTrial(request_id)]

    def checkpointed(self, factory: TrialFactory, request_id: str, uuid: str, steps_completed: int) -> list[Decision]:
        """Keep a trial's newest checkpoint."""
        member = self._members.get(request_id)
        if member is None:
            return []
        member.saved(uuid)
        if member.place == "without_checkpoint":
            member.place = "waiting"
        return self._turn(factory)

    def paused(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Replace the worst once all have left their slots; pause the search if one has not saved."""
        member = self._members.get(request_id)
        if member is None or member.place != "leaving":
            return []
        if member.checkpoint is not None:
            member.place = "waiting"
            return self._turn(factory)
        told = any(one.place == "without_checkpoint" for one in self._members.values())
        member.place = "without_checkpoint"
        return [] if told else [PauseSearch(_without_checkpoint(request_id, self._round))]

    def continued(self, factory: TrialFactory) -> list[Decision]:
        """Let the trials that had not saved train their round again."""
        decisions: list[Decision] = []
        for member in self._members.values():
            if member.place == "without_checkpoint":
                member.begin(self._round)
                decisions.append(ResumeTrial(member.request_id))
        return decisions

    def exited_early(self, factory: TrialFactory, request_id: str, reason: ExitReason) -> list[Decision]:
        """Replace a trial with an invalid point by another; any other has the worst score, unless it has one."""
        member = self._members.get(request_id)
        if member is None:
            return []
        if reason not in INVALID_REASONS:
            return self._end(factory, member)
        self._leave(member)
        held = [] if member.place == "gone" else [StopTrial(request_id)]
        return [*held, self._another(factory, member.origin)]

    def _another(self, factory: TrialFactory, origin: Origin | None) -> CreateTrial:
        if origin is None:
            return self._join(factory.draw(), None)
        hparams = self._plan.explore.changed(factory.space, origin.hparams, factory.rng)
        return self._join(factory.at(factory.allowed(hparams), origin.checkpoint), origin)

    def stopped(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Count what a trial scored that a stopping policy or a user ended."""
        return self._ended(factory, request_id)

    def exited(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Count what a trial scored whose code is done; it can still be a parent."""
        return self._ended(factory, request_id)

    def _ended(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        member = self._members.get(request_id)
        return [] if member is None or member.place == "gone" else self._end(factory, member)

    def _end(self, factory: TrialFactory, member: PopulationMember) -> list[Decision]:
        member.place = "gone"
        member.score = member.score or self._plan.worst
        return self._turn(factory)

    def _leave(self, member: PopulationMember) -> None:
        del self._members[member.request_id]
        self._trained[member.request_id] = member.round

    def _turn(self, factory: TrialFactory) -> list[Decision]:
        """Begin the next round if all trials are at the end of this one."""
        ranked = self._ranked()
        if not ranked or self._awaited or self._round == self._rounds - 1:
            return []
        worst = ranked[max(len(ranked) - self._plan.replaced, (len(ranked) + 1) // 2) :]
        best = [one for one in ranked if self._may_be_parent(one) and one not in worst][: len(worst)]
        origins = [Origin(one.request_id, one.checkpoint or "", one.hparams) for one in best]
        decisions: list[Decision] = [StopTrial(one.request_id) for one in worst if one.place == "waiting"]
        for place, one in enumerate(ranked, start=1):
            if one in worst:
                self._why[one.request_id] = _replaced(place, len(ranked), self._round, len(worst), len(origins))
        self._begin_round(ranked)
        self._round += 1
        for member in ranked:
            if member in worst or member.place == "gone":
                self._leave(member)
                continue
            member.begin(self._round)
            decisions.append(ResumeTrial(member.request_id))
        return decisions + self._clone(factory, origins)

    def _may_be_parent(self, member: PopulationMember) -> bool:
        """Whether it has something to train on from, and a score that says that this is worth it."""
        return member.checkpoint is not None and member.score != self._plan.worst

    def _begin_round(self, ranked: Sequence[PopulationMember]) -> None:
        """Note how a round ended."""

    def _ranked(self) -> list[PopulationMember]:
        """Return the population, the best first; empty while one of them still trains its round."""
        members = list(self._members.values())
        scored = [one.score for one in members if one.score is not None and one.place in ("waiting", "gone")]
        return [members[place] for place in order(scored)] if len(scored) == len(members) else []

    def _clone(self, factory: TrialFactory, origins: Sequence[Origin]) -> list[Decision]:
        """Create a clone of each parent."""
        return [self._another(factory, origin) for origin in origins]

    def extended(self, factory: TrialFactory, trials: int, units: int) -> list[Decision]:
        """Add the rounds that the units amount to, unless a trial has finished the last round.

        Raises:
            SteeringRefused: It has, or further trials are asked for.
        """
        if trials:
            raise SteeringRefused(f"the population of {self.name} keeps its size: rounds can be added, trials cannot")
        if any(trained == self._rounds - 1 for trained in self._trained.values()):
            raise SteeringRefused("a trial has finished the last round")
        self._rounds += math.ceil(units / self._plan.length)
        return self._turn(factory)

    def explain(self, request_id: str) -> str:
        """Return a replaced trial's place in its round."""
        return self._why.get(request_id, "")

    def needs_checkpoints(self) -> frozenset[str]:
        """Return those of the population, and those that clones start from which have not saved yet."""
        return frozenset[str]().union(*(member.pinned for member in self._members.values()))

    def level_of(self, request_id: str) -> int:
        """Return the round of a trial, one less before the first report of a clone."""
        member = self._members.get(request_id)
        if member is None:
            return self._trained[request_id]
        return member.round - (member.offset is None)

    def standing(self) -> list[Standing]:
        """Count the trials of each round until now: who trains it, who waits for the others, and who left after it."""
        places = [member.place for member in self._members.values()]
        left = list(self._trained.values())
        found = [Standing(self._where(number), {"left": left.count(number)}) for number in range(self._round)]
        ended = "finished" if self._round == self._rounds - 1 else "ended"
        now = {
            "running": places.count("training"),
            "waiting": len(places) - places.count("training") - places.count("gone"),
            ended: places.count("gone") + left.count(self._round),
        }
        return [*found, Standing(self._where(self._round), now)]

    def _where(self, number: int) -> str:
        return f"round {number + 1} of {self._rounds}, to {self._plan.time_metric} {(number + 1) * self._plan.length}"

    def units_of(self, request_id: str) -> list[int]:
        """Return the ends of the rounds."""
        return [self._plan.length * (number + 1) for number in range(self._rounds)]

    @property
    def first_units(self) -> int | None:
        """The end of the first round."""
        return self._plan.length

    def progress(self, shares: Mapping[str, float], closed: Set[str]) -> float:
        """Return the part of the rounds that is done."""
        through = sum(member.score is not None for member in self._members.values())
        part = through / len(self._members) if self._members else 0.0
        return (self._round + part) / self._rounds

    def state(self) -> dict[str, Any]:
        """Return the round and the members."""
        return {
            "round": self._round,
            "rounds": self._rounds,
            "members": {name: member.state() for name, member in self._members.items()},
            "trained": self._trained,
            "awaited": self._awaited,
        }


def _share(fields: Fields, block: str, key: str, most: float) -> float:
    """Return a number from 0 to `most` of a block inside of the searcher's.

    Raises:
        SearcherConfigError: It is out of range.
    """
    value = (fields.get(block, {}) or {}).get(key)
    value = 0.2 if value is None else float(value)
    if not 0 <= value <= most:
        raise SearcherConfigError(f"searcher.{block}.{key}: must be from 0 to {most:g}, is {value:g}")
    return value


def _replaced(place: int, size: int, number: int, worst: int, clones: int) -> str:
    told = (
        f"place {place} of {size} in round {number + 1}: the worst {worst} are replaced by clones of the best {clones}"
    )
    if not clones:
        return f"place {place} of {size} in round {number + 1}: the worst {worst} are stopped; none can be cloned"
    return told if worst > 1 else f"place {place} of {size} in round {number + 1}: replaced by a clone of the best"


def _without_checkpoint(request_id: str, number: int) -> str:
    return (
        f"trial {request_id} left round {number + 1} without a checkpoint: neither it nor a clone of it can continue."
        " Let the training code save when it is asked to stop (the Core API: save a checkpoint once"
        " `core.preempt.should_preempt()` is true; the Trainer does so), then activate the experiment: the trial"
        " trains the round again"
    )
