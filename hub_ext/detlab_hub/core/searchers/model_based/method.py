"""The search of the model-based methods: which trials there are, and when a suggestion is asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any, ClassVar, Self

from detlab.schemas.expconf.blocks.model_searchers import (
    BayesianConfig,
    CMAESConfig,
    GPConfig,
    ModelBasedConfig,
    NSGA2Config,
    TPEConfig,
)
from detlab.schemas.space import leaves_of
from detlab_hub.core.searchers.events import INVALID_REASONS, CreateTrial, Decision, ExitReason, SetPoint, Suggest
from detlab_hub.core.searchers.fields import Fields
from detlab_hub.core.searchers.hyperparameters import make_space
from detlab_hub.core.searchers.method import Question, SearchMethod, Standing, TrialFactory
from detlab_hub.core.searchers.model_based.axes import SearchAxis, axes_of, coordinates, with_new_bounds
from detlab_hub.core.searchers.model_based.records import GP_MOST, Outcome, Record
from detlab_hub.core.searchers.objectives import Objectives, Score
from detlab_hub.core.searchers.scores import better
from detlab_hub.core.searchers.sweep import refuse_units


class ModelBased(SearchMethod):
    """Random trials first; then each point is a suggestion that knows all trials, running ones too.

    A trial gets its point when it is placed, so that trials which wait for slots leave the model no less to learn from.
    Under the rules of earlier versions it gets it when it is created.

    Args:
        axes: Of the space.
        max_trials: Trials whose hyperparameters turned out valid.
        max_concurrent: Trials at a time; 0 for all at once, from which the model learns nothing.
        startup: Random trials before the first suggestion.
        options: Further input of the sampler besides the trials, plain JSON values.
        results: Points and losses that are known before the search begins.
        expected: What priors expect to be good, a part of a point; it is tried among the first.
    """

    Config: ClassVar[type[ModelBasedConfig]]
    suggests = True
    draws_late = True
    needs_metric = True
    starts_at_random: ClassVar[bool] = True
    """By earlier rules: whether all places are filled at random at first; if not, only the startup trials are."""

    def __init__(
        self,
        axes: Sequence[SearchAxis],
        max_trials: int,
        max_concurrent: int,
        startup: int,
        *,
        options: Mapping[str, Any],
        results: Sequence[tuple[dict[str, Any], float]] = (),
        expected: dict[str, Any] | None = None,
    ) -> None:
        self._axes = axes
        self._max_trials = max_trials
        self._max_concurrent = max_concurrent
        self._startup = startup
        self._options = dict(options)
        self._given = [
            Record(tuple(coordinates(axes, hparams)), "done", loss, place)
            for place, (hparams, loss) in enumerate(results)
        ]
        self._at_random = max(0, startup - len(self._given))
        """Trials that are made without a suggestion."""
        self._expected = expected
        self._records: dict[str, Record] = {}
        self._order: list[str] = []
        """Trials with a result, in the order of their ends."""
        self._ended: list[Record] = []
        """Their records, which do not change any more."""
        self._running: dict[str, None] = {}
        """Trials that have not ended, in the order of their creation."""
        self._invalid = 0
        self._asked = 0
        self._open: dict[int, int] = {}
        """By earlier rules: how many points the questions that are not answered are to have."""
        self._due: list[str] = []
        """Trials that were placed, and for whose points no question is open yet."""
        self._for: dict[int, list[str]] = {}
        """The trials for whose points a question is open."""
        self._drawn = 0
        """Points that trials were given when they were placed, or are about to."""

    @classmethod
    def from_config(cls, fields: Fields, space: Mapping[str, Any]) -> Self:
        """Make the method that the `searcher` block describes."""
        axes = axes_of(space)
        max_trials = fields.count("max_trials")
        return cls(
            axes,
            max_trials,
            fields.max_concurrent,
            fields.count("startup_trials", cls.default_startup(axes, max_trials)),
            options=cls.options(fields, axes, max_trials) | _aims(fields.objectives) | _distinct(fields, axes),
            results=_fitting(space, fields),
            expected=_expected(space),
        )

    @classmethod
    def default_startup(cls, axes: Sequence[SearchAxis], max_trials: int) -> int:
        """Return how many trials are random if the config does not say."""
        return min(10, max(1, max_trials // 3))

    @classmethod
    def options(cls, fields: Fields, axes: Sequence[SearchAxis], max_trials: int) -> dict[str, Any]:
        """Return the sampler's name and settings."""
        return {"sampler": cls.name}

    @property
    def budget(self) -> int:
        """`max_trials`."""
        return self._max_trials

    def start(self, factory: TrialFactory) -> list[Decision]:
        """Create as many trials as may run at a time.

        They are random unless the sampler has its own first points, or results are known already.
        """
        if self._expected:
            factory.enqueue([self._expected])
        if self.starts_at_random and not self._given and not factory.late:
            return [self._take(factory.draw()) for _ in range(self._places)]
        return self._fill(factory)

    @property
    def _places(self) -> int:
        return min(self._max_concurrent or self._max_trials, self._max_trials)

    def extended(self, factory: TrialFactory, trials: int, units: int) -> list[Decision]:
        """Make further trials, at once where a place is free."""
        refuse_units(self.name, units)
        self._max_trials += trials
        return self._fill(factory)

    def resized(self, factory: TrialFactory, limit: int) -> list[Decision]:
        """Fill new places; with a lower limit, leave places empty as trials end."""
        self._max_concurrent = limit
        return self._fill(factory)

    def _take(self, trial: CreateTrial) -> CreateTrial:
        self._running[trial.request_id] = None
        if trial.later:
            self._records[trial.request_id] = Record((), "waiting", None, 0)
        else:
            self._drawn += 1
            self._note_point(trial.request_id, trial.hparams)
        return trial

    def _note_point(self, request_id: str, hparams: dict[str, Any]) -> None:
        at = tuple(coordinates(self._axes, hparams))
        self._records[request_id] = Record(at, "running", None, len(self._given) + len(self._order))

    def placed(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Give it a point that users added, or a random one while there are few; else ask for a suggestion."""
        self._drawn += 1
        if factory.enqueued or self._drawn - self._invalid <= self._at_random:
            return [self._set(request_id, factory.due())]
        self._due.append(request_id)
        return self._ask()

    def _set(self, request_id: str, hparams: dict[str, Any]) -> SetPoint:
        self._note_point(request_id, hparams)
        return SetPoint(request_id, hparams)

    def _ask(self) -> list[Decision]:
        """Ask for the points of all trials that lack one: one question at a time, so that each knows earlier points."""
        if not self._due or self._for:
            return []
        asked = Suggest(self._asked, len(self._due))
        self._for[asked.ticket], self._due = self._due, []
        self._asked += 1
        return [asked]

    def validated(self, factory: TrialFactory, request_id: str, score: Score, time: float | None) -> list[Decision]:
        """Keep a trial's best report; with several objectives its latest one, as none need be the best."""
        record = self._records[request_id]
        if not all(map(math.isfinite, score.losses)):
            return []
        if record.loss is None or (record.score != score if score.losses[1:] else better(score, record.score)):
            first, *others = score.losses
            self._records[request_id] = record._replace(
                loss=first, reports=record.reports + 1, others=tuple(others), violation=score.violation
            )
        return []

    def level_of(self, request_id: str) -> int:
        """Return how often the trial's result changed."""
        return self._records[request_id].reports

    def exited_early(self, factory: TrialFactory, request_id: str, reason: ExitReason) -> list[Decision]:
        """Record how it ended; an invalid one gives its budget back, a failed one counts as the worst result."""
        if reason in INVALID_REASONS:
            self._invalid += 1
            self._records[request_id] = self._records[request_id]._replace(outcome="invalid", loss=None)
        elif reason == "errored":
            self._records[request_id] = self._records[request_id]._replace(outcome="failed", loss=None)
        return []

    def exited(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Record the result, and fill the free places."""
        record = self._records[request_id]
        del self._running[request_id]
        if not record.at and self._axes:  # it never had a point: there is nothing to learn from it
            self._records[request_id] = record._replace(outcome="invalid" if record.outcome == "invalid" else "failed")
            self._due = [one for one in self._due if one != request_id]
            return self._fill(factory)
        if record.outcome in ("waiting", "running"):
            outcome: Outcome = "done" if record.loss is not None else "failed"
            self._records[request_id] = record = record._replace(outcome=outcome)
        if record.outcome != "invalid":
            self._order.append(request_id)
            self._ended.append(record)
        return self._fill(factory)

    def _fill(self, factory: TrialFactory) -> list[Decision]:
        asked = sum(self._open.values())
        made = len(self._records) - self._invalid + asked
        free = min(self._places - len(self._running) - asked, self._max_trials - made)
        decisions: list[Decision] = []
        if factory.late:
            return [self._take(factory.later()) for _ in range(free)]
        while free > 0 and (made < self._at_random or factory.enqueued):
            decisions.append(self._take(factory.draw()))
            free, made = free - 1, made + 1
        if free > 0:
            decisions.append(Suggest(self._asked, free))
            self._open[self._asked] = free
            self._asked += 1
        return decisions

    def suggested(self, factory: TrialFactory, ticket: int, points: Sequence[dict[str, Any]]) -> list[Decision]:
        """Give the trials that wait for them their points; by earlier rules, create the suggested trials."""
        if ticket in self._for:
            waiting = zip(self._for.pop(ticket), points, strict=True)
            given = [self._set(name, found) for name, found in waiting if self._records[name].outcome == "waiting"]
            return [*given, *self._ask()]
        del self._open[ticket]
        return [self._take(factory.at(found)) for found in points]

    def notes(self) -> list[str]:
        """Return a note if another sampler answers than the config names."""
        if self._options["sampler"] == "gp" and len(self._given) + len(self._order) > GP_MOST:
            return [f"searcher {self.name}: tpe has suggested since {GP_MOST} results: a Gaussian process is too slow"]
        return []

    def respaced(self, factory: TrialFactory, space: Mapping[str, Any]) -> list[Decision]:
        """Take new bounds; results outside of them no longer count for the model.

        Raises:
            SteeringRefused: The hyperparameters themselves, or their choices, are others.
        """
        self._axes = with_new_bounds(self._axes, space, self.name)
        return []

    def known(self, ticket: int) -> Any:
        """Return the sampler's settings and all results: given ones, trials in the order of their ends, running ones.

        It is called while the writer is held, so that the cost must not be that of looking at each trial.
        """
        ended = [*self._given, *self._ended]
        running = [record for name in self._running if (record := self._records[name]).outcome == "running"]
        return {"options": self._options, "startup": self._startup, "ended": ended, "running": running}

    @classmethod
    def suggest(cls, question: Question) -> Sequence[dict[str, Any]]:
        """Ask the sampler."""
        from detlab_hub.core.searchers.model_based import samplers  # imports Optuna: never in the master

        return samplers.suggest(question)

    def progress(self, shares: Mapping[str, float], closed: Set[str]) -> float:
        """Return the part of the budget that is done; invalid trials do not count, since they are replaced."""
        done = sum(1.0 if request_id in closed else share for request_id, share in shares.items())
        return done / self._max_trials

    def state(self) -> dict[str, Any]:
        """Return the records and the open questions."""
        return {
            "records": {name: list(record) for name, record in self._records.items()},
            "order": self._order,
            "running": len(self._running),
            "invalid": self._invalid,
            "open": self._open,
            "asked": self._asked,
            "due": self._due,
            "for": self._for,
            "drawn": self._drawn,
            "max_trials": self._max_trials,
            "max_concurrent": self._max_concurrent,
        }


def _aims(objectives: Objectives) -> dict[str, Any]:
    """Return a sampler's settings for several objectives and constraints; none for a single objective."""
    found: dict[str, Any] = {"objectives": 1 + len(objectives.others)} if objectives.others else {}
    return found | ({"constrained": True} if objectives.bounds else {})


def _distinct(fields: Fields, axes: Sequence[SearchAxis]) -> dict[str, Any]:
    """Return the sampler's setting that no point is suggested twice; none where ranges are continuous."""
    return {} if fields.repeats or any(axis.kind in ("double", "log") for axis in axes) else {"distinct": True}


def _fitting(space: Mapping[str, Any], fields: Fields) -> list[tuple[dict[str, Any], float]]:
    """Return the known results, as losses, whose points are of the space.

    They are of one metric: beside several, or constraints, they cannot be ranked, and none is used.
    """
    if fields.objectives.names:
        return []
    made = make_space(space)
    return [(point, loss) for point, loss in fields.results if not made.problems(point, partial=False)]


def _expected(space: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the centers of all priors, as a part of a point; None without any."""
    leaves = [leaf for leaf in leaves_of(space) if isinstance(leaf.spec, Mapping) and leaf.spec.get("prior")]
    made: dict[str, Any] = {}
    for leaf in leaves:
        level = made
        for name in leaf.route[:-1]:
            level = level.setdefault(name, {})
        level[leaf.route[-1]] = leaf.spec["prior"]["center"]
    return made or None


class TPE(ModelBased):
    """Tree-structured Parzen estimator: Bergstra et al., NeurIPS 2011; with kernels as in `parzen.py`."""

    name = "tpe"
    Config = TPEConfig


class GP(ModelBased):
    """A Gaussian process with log expected improvement; TPE answers beyond `GP_MOST` trials: its cost is cubic."""

    name = "gp"
    Config = GPConfig


class CMAES(ModelBased):
    """CMA evolution strategy: Hansen, arXiv:1604.00772."""

    name = "cmaes"
    Config = CMAESConfig
    starts_at_random = False

    @classmethod
    def default_startup(cls, axes: Sequence[SearchAxis], max_trials: int) -> int:
        """One: the others are drawn around the middle of the space."""
        return 1

    @classmethod
    def options(cls, fields: Fields, axes: Sequence[SearchAxis], max_trials: int) -> dict[str, Any]:
        """Tell the sampler the population, too."""
        return {"sampler": cls.name, "population": fields.optional_count("population")}


class NSGA2(ModelBased):
    """Genetic algorithm with non-dominated sorting: Deb et al., IEEE Trans. Evol. Comput. 6(2), 2002."""

    name = "nsga2"
    Config = NSGA2Config
    starts_at_random = False

    @classmethod
    def options(cls, fields: Fields, axes: Sequence[SearchAxis], max_trials: int) -> dict[str, Any]:
        """Add the population to the sampler's settings; by default a fifth of the budget, 10 to 50."""
        chosen = fields.count("population", min(50, max(10, max_trials // 5)))
        return {"sampler": cls.name, "population": chosen}

    def standing(self) -> list[Standing]:
        """Count the trials of the generation that is being trained: each is as many as its population."""
        size = int(self._options["population"])
        done = sum(one.outcome == "done" for one in self._ended)
        number, ended = divmod(done, size)
        return [Standing(f"generation {number + 1}, of {size} trials", {"running": len(self._running), "ended": ended})]

    @classmethod
    def default_startup(cls, axes: Sequence[SearchAxis], max_trials: int) -> int:
        """One: the sampler draws its first generation at random itself."""
        return 1


class Bayesian(ModelBased):
    """The model-based method that fits the space and the budget: see `choose`."""

    name = "bayesian"
    Config = BayesianConfig

    @classmethod
    def options(cls, fields: Fields, axes: Sequence[SearchAxis], max_trials: int) -> dict[str, Any]:
        """Choose the sampler."""
        return {"sampler": choose(axes, max_trials)}

    def notes(self) -> list[str]:
        """Say which sampler was chosen, too."""
        return [f"searcher bayesian: suggestions come from {self._options['sampler']}", *super().notes()]


GP_AXES = 20
"""Hyperparameters beyond which a Gaussian process has too little to go by."""
GP_MOST_ON_CHOICES = 50
"""Trials up to which a Gaussian process is taken where most hyperparameters are choices, too."""


def choose(axes: Sequence[SearchAxis], max_trials: int) -> str:
    """Return the sampler that `bayesian` uses.

    A Gaussian process needs the fewest trials: with 25, and with 50, it was ahead of TPE on spaces of choices, too
    (docs/explanation/searchers.md). TPE takes large budgets, many hyperparameters, spaces whose hyperparameters are
    mostly choices unless trials are few, and those with conditions.
    """
    if any(axis.leaf is not None and axis.leaf.conditions for axis in axes):
        return "tpe"
    choices = sum(1 for axis in axes if axis.kind == "categorical")
    most = GP_MOST_ON_CHOICES if 2 * choices > len(axes) else GP_MOST
    return "tpe" if max_trials > most or len(axes) > GP_AXES else "gp"
