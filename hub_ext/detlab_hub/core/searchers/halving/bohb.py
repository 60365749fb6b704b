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
from detlab_hub.core.searchers.events import CreateTrial, Decision, SetPoint, Suggest
from detlab_hub.core.searchers.fields import Fields
from detlab_hub.core.searchers.halving.adaptive import limit_of
from detlab_hub.core.searchers.halving.async_halving import BracketConfig
from detlab_hub.core.searchers.halving.hyperband import Hyperband
from detlab_hub.core.searchers.halving.promoting import PromotingBracket
from detlab_hub.core.searchers.method import Question, TrialFactory
from detlab_hub.core.searchers.model_based.axes import Coordinate, SearchAxis, axes_of, coordinates, with_new_bounds
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
    """A bracket whose new trials get their points when they are placed; by earlier rules, may be asked for."""

    def __init__(self, config: BracketConfig) -> None:
        super().__init__(config)
        self.ask: Callable[[TrialFactory], Suggest | None] = lambda factory: None
        """Asks for a point; None if the next trial is to be drawn."""

    def _create(self, factory: TrialFactory) -> CreateTrial:
        return self._admit(factory.later() if factory.late else factory.draw())

    def _begin(self, factory: TrialFactory) -> Decision:
        if factory.late:
            return self._create(factory)
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
    draws_late = True
    draws_anew = False

    def __init__(
        self, brackets: Sequence[AskingBracket], axes: Sequence[SearchAxis], fraction: float, limit: int | None = None
    ) -> None:
        super().__init__(brackets, limit)
        self._asking = list(brackets)
        self._axes = axes
        self._fraction = fraction
        self._points: dict[str, tuple[int, Point]] = {}
        """Each trial's place in the order in which their points were drawn, and its point."""
        self._asked = 0
        self._open: dict[int, int] = {}
        """The bracket of each question that is not answered, by earlier rules."""
        self._due: list[str] = []
        """Trials that were placed, and for whose points no question is open yet."""
        self._for: dict[int, list[str]] = {}
        """The trials for whose points a question is open."""
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
            if self._drawn(factory):
                return None
            asked = Suggest(self._asked, 1)
            self._open[asked.ticket] = number
            self._asked += 1
            return asked

        return ask

    def _drawn(self, factory: TrialFactory) -> bool:
        """Whether the next point is a user's or a random one."""
        return bool(factory.enqueued) or not self._model_results() or factory.rng.uniform(0.0, 1.0) < self._fraction

    def placed(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Give it a user's or a random point, or ask for a suggestion."""
        if self._drawn(factory):
            return [self._set(request_id, factory.due())]
        self._due.append(request_id)
        return self._ask()

    def _ask(self) -> list[Decision]:
        """Ask for the points of all trials that lack one: one question at a time, so that each knows earlier points."""
        if not self._due or self._for:
            return []
        asked = Suggest(self._asked, len(self._due))
        self._for[asked.ticket], self._due = self._due, []
        self._asked += 1
        return [asked]

    def _set(self, request_id: str, hparams: dict[str, Any]) -> SetPoint:
        self._note_point(request_id, hparams)
        return SetPoint(request_id, hparams)

    def _note_point(self, request_id: str, hparams: dict[str, Any]) -> None:
        self._points[request_id] = len(self._points), tuple(coordinates(self._axes, hparams))

    def _claim(self, bracket: int, decisions: list[Decision]) -> list[Decision]:
        for decision in decisions:
            if isinstance(decision, CreateTrial) and not decision.later:
                self._note_point(decision.request_id, decision.hparams)
        return super()._claim(bracket, decisions)

    def exited(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Ask for no point of a trial that has ended; pass on to its bracket."""
        self._due = [one for one in self._due if one != request_id]
        return super().exited(factory, request_id)

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
        """Give the trials that wait for them their points; by earlier rules, create the trial in its bracket."""
        if ticket in self._for:
            given: list[Decision] = [self._set(*one) for one in zip(self._for.pop(ticket), points, strict=True)]
            return [*given, *self._ask()]
        number = self._open.pop(ticket)
        return self._claim(number, [self._asking[number].take(factory, point) for point in points])

    def state(self) -> dict[str, Any]:
        """Return the brackets, and the open questions."""
        asking = {"open": self._open, "asked": self._asked, "due": self._due, "for": self._for}
        return {**super().state(), **asking, "points": sorted(self._points)}
