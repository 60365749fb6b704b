"""Population based bandits: `pb2`.

Parker-Holder et al., "Provably Efficient Online Hyperparameter Optimization with Population-Based Bandits" (NeurIPS
2020): PBT, but the numbers of a clone come from a Gaussian process that knows what each trial gained in each round; its
choices are those of its parent. With several metrics, parents are chosen by all of them and by the constraints, while
the process knows gains in the first metric only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from detlab.schemas.expconf import PB2Config, SearcherBlock
from detlab_hub.core.searchers.events import CreateTrial, Decision, Suggest
from detlab_hub.core.searchers.fields import Fields
from detlab_hub.core.searchers.method import Question, TrialFactory
from detlab_hub.core.searchers.model_based.axes import axes_of, coordinates, with_new_bounds
from detlab_hub.core.searchers.population.members import Gain, Origin, PopulationMember
from detlab_hub.core.searchers.population.pbt import PBT, PBTPlan


class PB2(PBT):
    """A population whose clones are suggested."""

    name = "pb2"
    Config: ClassVar[type[SearcherBlock]] = PB2Config
    suggests = True

    def __init__(self, plan: PBTPlan, space: Mapping[str, Any]) -> None:
        super().__init__(plan)
        self._axes = axes_of(space)
        self._gains: list[Gain] = []
        self._losses: dict[str, float] = {}
        """Of each trial, at the end of its newest round."""
        self._asked = 0
        self._open: dict[int, list[Origin]] = {}
        """The parents of the clones that each open question is about."""

    @classmethod
    def from_config(cls, fields: Fields, space: Mapping[str, Any]) -> Self:
        """Make the method that the `searcher` block describes."""
        return cls(cls.planned(fields), space)

    def _begin_round(self, ranked: Sequence[PopulationMember]) -> None:
        """Note what each trial gained in the round that is over."""
        losses = {
            member.request_id: member.score.losses[0]
            for member in ranked
            if member.score is not None and member.score != self._plan.worst and math.isfinite(member.score.losses[0])
        }
        for member in ranked:
            if (loss := losses.get(member.request_id)) is not None:
                before = self._losses.get(member.request_id)
                if before is None and member.origin is not None:
                    before = self._losses.get(member.origin.request_id)
                gain = -loss if before is None else before - loss
                self._gains.append(Gain(tuple(coordinates(self._axes, member.hparams)), member.round, gain))
        self._losses = losses

    def _clone(self, factory: TrialFactory, origins: Sequence[Origin]) -> list[Decision]:
        """Ask for the clones of all parents at once."""
        if not origins or not self._axes:
            return super()._clone(factory, origins)
        asked = Suggest(self._asked, len(origins))
        self._asked += 1
        self._open[asked.ticket] = list(origins)
        self._awaited += len(origins)
        return [asked]

    def known(self, ticket: int) -> Any:
        """Return what was gained so far, and the parents' hyperparameters."""
        parents = [origin.hparams for origin in self._open[ticket]]
        return {"gains": list(self._gains), "round": self._round, "parents": parents}

    @classmethod
    def suggest(cls, question: Question) -> Sequence[dict[str, Any]]:
        """Ask the bandit."""
        from detlab_hub.core.searchers.population import bandit  # computes for seconds: never in the master

        return bandit.suggest(question)

    def suggested(self, factory: TrialFactory, ticket: int, points: Sequence[dict[str, Any]]) -> list[Decision]:
        """Create the clones."""
        origins = self._open.pop(ticket)
        self._awaited -= len(origins)
        clones: list[Decision] = []
        for origin, point in zip(origins, points, strict=True):
            trial: CreateTrial = factory.at(factory.allowed(point), origin.checkpoint)
            clones.append(self._join(trial, origin))
        return clones + self._turn(factory)

    def respaced(self, factory: TrialFactory, space: Mapping[str, Any]) -> list[Decision]:
        """Take new bounds.

        Raises:
            SteeringRefused: The hyperparameters themselves, or their choices, are others.
        """
        self._axes = with_new_bounds(self._axes, space, self.name)
        return []

    def needs_checkpoints(self) -> frozenset[str]:
        """Return those of PBT, and those of the parents whose clones are being computed."""
        asked = {origin.checkpoint for origins in self._open.values() for origin in origins}
        return frozenset(super().needs_checkpoints() | asked)

    def state(self) -> dict[str, Any]:
        """Return the state of the population, what was gained, and the open questions."""
        opened = {ticket: [origin.checkpoint for origin in origins] for ticket, origins in self._open.items()}
        return {**super().state(), "gains": self._gains, "losses": self._losses, "open": opened, "asked": self._asked}
