"""Hyperband with suggestions: `bohb`.

Falkner et al., "BOHB: Robust and Efficient Hyperparameter Optimization at Scale" (ICML 2018): new trials come from a
TPE that is fitted to the results of the highest rung that has enough of them, and a fraction is drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from detlab.schemas.expconf import BOHBConfig
from detlab_hub.core.searchers.errors import SearcherConfigError
from detlab_hub.core.searchers.events import CreateTrial, Decision, Suggest
from detlab_hub.core.searchers.fields import Fields
from detlab_hub.core.searchers.halving.adaptive import limit_of
from detlab_hub.core.searchers.halving.async_halving import HalvingConfig
from detlab_hub.core.searchers.halving.hyperband import Hyperband
from detlab_hub.core.searchers.halving.promoting import PromotingBracket
from detlab_hub.core.searchers.method import Question, TrialFactory
from detlab_hub.core.searchers.model_based.axes import Axis, Coordinate, axes_of, coordinates, with_new_bounds
from detlab_hub.core.searchers.model_based.records import Record
from detlab_hub.core.searchers.objectives import Score
from detlab_hub.core.searchers.scores import comparable, order

RANDOM_FRACTION = 1 / 3
Point = tuple[Coordinate | None, ...]


def ranked(results: Sequence[Sequence[Any]]) -> list[Record]:
    """Return results as records, in the order of their trials, each with its rank as its loss: TPE uses no more.

    Args:
        results: Number of the trial, point, score of each.
    """
    rank = {results[place][0]: at for at, place in enumerate(order([Score(*score) for _, _, score in results]))}
    told = sorted((number, tuple(point)) for number, point, _ in results)
    return [Record(point, "done", float(rank[number]), 0) for number, point in told]


class AskingBracket(PromotingBracket):
    """A bracket whose new trials may be asked for, instead of drawn."""

    def __init__(self, config: HalvingConfig) -> None:
        super().__init__(config)
        self.ask: Callable[[TrialFactory], Suggest | None] = lambda factory: None
        """Asks for a point; None if the next trial is to be drawn."""

    def _begin(self, factory: TrialFactory) -> Decision:
        asked = self.ask(factory)
        if asked is None:
            return self._create(factory)
        self._awaited += 1
        return asked

    def take(self, factory: TrialFactory, point: dict[str, Any]) -> CreateTrial:
        """Create the trial that was asked for."""
        self._awaited -= 1
        return self._admit(factory.at(point))


class BOHB(Hyperband):
    """Promoting brackets that share what they know."""

    name = "bohb"
    Config = BOHBConfig
    suggests = True

    def __init__(
        self, brackets: Sequence[AskingBracket], axes: Sequence[Axis], fraction: float, limit: int | None = None
    ) -> None:
        super().__init__(brackets, limit)
        self._asking = list(brackets)
        self._axes = axes
        self._fraction = fraction
        self._points: dict[str, tuple[int, Point]] = {}
        """Each trial's place in the order of their creation, and its point."""
        self._asked = 0
        self._open: dict[int, int] = {}
        """The bracket of each question that is not answered."""
        for number, bracket in enumerate(self._asking):
            bracket.ask = self._asker(number)

    @classmethod
    def from_config(cls, fields: Fields, space: Mapping[str, Any]) -> Self:
        """Make the method that the `searcher` block describes.

        Raises:
            SearcherConfigError: A field is missing or out of range.
        """
        fraction = float(fields.get("random_fraction", RANDOM_FRACTION))
        if not 0 <= fraction <= 1:
            raise SearcherConfigError(f"searcher.random_fraction: must be from 0 to 1, is {fraction:g}")
        return cls(cls.made(AskingBracket, fields), axes_of(space), fraction, limit_of(fields))

    def _asker(self, number: int) -> Callable[[TrialFactory], Suggest | None]:
        def ask(factory: TrialFactory) -> Suggest | None:
            if factory.enqueued or not self._model_results() or factory.rng.uniform(0.0, 1.0) < self._fraction:
                return None
            asked = Suggest(self._asked, 1)
            self._open[asked.ticket] = number
            self._asked += 1
            return asked

        return ask

    def _claim(self, bracket: int, decisions: list[Decision]) -> list[Decision]:
        for decision in decisions:
            if isinstance(decision, CreateTrial):
                point = tuple(coordinates(self._axes, decision.hparams))
                self._points[decision.request_id] = len(self._points), point
        return super()._claim(bracket, decisions)

    def _model_results(self) -> list[tuple[Score, str]]:
        """Return the results of the highest rung that has two more than a model needs, of all brackets."""
        count: dict[int, int] = {}
        rungs = [rung for bracket in self._asking for rung in bracket.rungs]
        for rung in rungs:
            count[rung.units_needed] = count.get(rung.units_needed, 0) + len(rung.entries)
        enough = [units for units, results in count.items() if results >= len(self._axes) + 3]
        if not enough or not self._axes:
            return []
        return [entry for rung in rungs if rung.units_needed == max(enough) for entry in rung.entries]

    def known(self, ticket: int) -> Any:
        """Return the results of one rung, and what trains beside them; they are ranked where there is time for it."""
        found = [entry for entry in self._model_results() if entry[1] in self._points]
        results = [(*self._points[name], comparable(score)) for score, name in found]
        have = {number for number, _, _ in results}
        training = [self._points[name] for one in self._asking for name in one.active if name in self._points]
        running = [Record(point, "running", None, 0) for number, point in sorted(training) if number not in have]
        options = {"sampler": "tpe", "fewest_good": len(self._axes) + 1}
        return {"options": options, "startup": 1, "results": results, "running": running}

    @classmethod
    def suggest(cls, question: Question) -> Sequence[dict[str, Any]]:
        """Ask the sampler."""
        from detlab_hub.core.searchers.model_based import samplers  # imports Optuna: never in the master

        ended = ranked(question.known["results"])
        return samplers.suggest(replace(question, known={**question.known, "ended": ended}))

    def respaced(self, factory: TrialFactory, space: Mapping[str, Any]) -> list[Decision]:
        """Take new bounds; what was found outside of them is forgotten by the model.

        Raises:
            SteeringRefused: The hyperparameters themselves, or their choices, are others.
        """
        self._axes = with_new_bounds(self._axes, space, self.name)
        return []

    def suggested(self, factory: TrialFactory, ticket: int, points: Sequence[dict[str, Any]]) -> list[Decision]:
        """Create the suggested trial in the bracket that asked."""
        number = self._open.pop(ticket)
        return self._claim(number, [self._asking[number].take(factory, point) for point in points])

    def state(self) -> dict[str, Any]:
        """Return the brackets, and the open questions."""
        return {**super().state(), "open": self._open, "asked": self._asked}
