"""The answers: Optuna's samplers on all trials of a question. Imported only in the process that answers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any

import cmaes
import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, TPESampler
from optuna.trial import TrialState

from detlab.schemas.space import Space
from detlab.schemas.space.values import weighted
from detlab_hub.core.searchers.method import Question
from detlab_hub.core.searchers.model_based.axes import Coordinate, Points, SearchAxis, axes_of, coordinates
from detlab_hub.core.searchers.model_based.parzen import NarrowTPE
from detlab_hub.core.searchers.model_based.records import GP_MOST, Record
from detlab_hub.core.searchers.model_based.studies import Studies, StudyKind
from detlab_hub.core.searchers.randomness import SearchRandom
from detlab_hub.core.searchers.scores import order

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


_STUDIES = Studies()


def suggest(question: Question, studies: Studies = _STUDIES) -> list[dict[str, Any]]:
    """Answer a question of a model-based search with points of its space.

    Args:
        question: The question.
        studies: Of earlier questions. They save time, and change no answer.
    """
    space = Space(question.space, question.require)
    axes = axes_of(question.space)
    known = question.known
    ended = _inside(axes, known["ended"])
    running = _inside(axes, known["running"])
    options = known["options"]
    if not axes:
        return [Points(space).build(_no_axis) for _ in range(question.count)]
    make = _cma if options["sampler"] == "cmaes" else partial(_optuna, studies)
    ask = make(axes, penalised(ended), running, question, options)
    at_random = SearchRandom(question.seed)
    tried = {tuple(record.at) for record in (*ended, *running)} if options.get("distinct") else set()
    found = []
    for _ in range(question.count):
        found.append(_allowed(space, ask, at_random, axes, tried))
        if options.get("distinct"):
            tried.add(tuple(coordinates(axes, found[-1])))
    return found


Ask = Callable[[], tuple[dict[str, Any], Callable[[], object]]]
"""Returns a point, and what to call if it breaks a relation, before another one is asked for."""
_TRIES = 20
"""Points that a sampler is asked for until one is to be tried."""


def _no_axis(axis: SearchAxis) -> Coordinate:
    raise AssertionError(axis)


def _allowed(
    space: Space,
    ask: Ask,
    at_random: SearchRandom,
    axes: Sequence[SearchAxis],
    tried: Set[tuple[Coordinate | None, ...]],
) -> dict[str, Any]:
    """Return a suggestion that meets the relations and was not tried, else a random point that meets them."""
    for _ in range(_TRIES):
        found, refuse = ask()
        if space.allows(found) and not (tried and tuple(coordinates(axes, found)) in tried):
            return found
        refuse()
    return space.sample(at_random)


def _inside(axes: Sequence[SearchAxis], told: Sequence[Any]) -> list[Record]:
    """Return the records, without those outside of bounds that have been edited since."""
    records = [_read(record) for record in told]
    return [record for record in records if all(map(_contains, axes, record.at))]


def _read(told: Sequence[Any]) -> Record:
    record = Record(*told)
    return record._replace(others=tuple(record.others))


def _contains(axis: SearchAxis, coordinate: Coordinate | None) -> bool:
    return coordinate is None or axis.low <= coordinate <= axis.high


def penalised(ended: Sequence[Record]) -> list[Record]:
    """Give failed trials the worst result there is, so that no model looks there again; without any, leave them out.

    The worst is that of each objective, and of the constraints; a violation without end counts as that, too.
    """
    done = [record for record in ended if record.loss is not None]
    if not done:
        return []
    loss, *others = map(max, zip(*(record.score.losses for record in done), strict=True))
    violation = max((one.violation for one in done if one.violation < math.inf), default=0.0) or _VIOLATED
    violation = violation if any(one.violation for one in done) else 0.0
    worst = {"loss": loss, "others": tuple(others), "violation": violation}
    return [
        record._replace(**worst) if record.loss is None else record._replace(violation=min(record.violation, violation))
        for record in ended
    ]


_VIOLATED = 1.0
"""Counts for a violation without end where no other is known."""


def _distribution(axis: SearchAxis) -> BaseDistribution:
    match axis.kind:
        case "int" | "stepped":
            return IntDistribution(int(axis.low), int(axis.high), log=axis.log)
        case "categorical":
            return CategoricalDistribution(tuple(range(len(axis.choices))))
        case _:  # the coordinate of a log is its exponent
            return FloatDistribution(float(axis.low), float(axis.high))


def _optuna(
    studies: Studies,
    axes: Sequence[SearchAxis],
    ended: Sequence[Record],
    running: Sequence[Record],
    question: Question,
    options: dict[str, Any],
) -> Ask:
    distributions = {axis.name: _distribution(axis) for axis in axes}
    name = "tpe" if options["sampler"] == "gp" and len(ended) > GP_MOST else options["sampler"]
    options = options | {"conditional": any(axis.leaf is not None and axis.leaf.conditions for axis in axes)}
    sampler = _SAMPLERS[name](question.seed, question.known["startup"], options)
    kind = StudyKind(
        distributions, options.get("objectives", 1), options.get("population", 0), bool(options.get("constrained"))
    )
    study = studies.study(kind, ended, running, sampler)
    points = Points(Space(question.space))

    def ask() -> tuple[dict[str, Any], Callable[[], object]]:
        trial = study.ask()
        found = points.build(lambda axis: _suggested(trial, axis))
        return found, lambda: study.tell(trial, state=TrialState.FAIL)

    return ask


def _suggested(trial: optuna.Trial, axis: SearchAxis) -> Coordinate:
    match axis.kind:
        case "int" | "stepped":
            return trial.suggest_int(axis.name, int(axis.low), int(axis.high), log=axis.log)
        case "categorical":
            return trial.suggest_categorical(axis.name, tuple(range(len(axis.choices))))
        case _:
            return trial.suggest_float(axis.name, float(axis.low), float(axis.high))


def _tpe(seed: int, startup: int, options: Mapping[str, Any]) -> BaseSampler:
    # With conditions: one joint distribution for each set of hyperparameters that trials have together.
    group = bool(options["conditional"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        warnings.simplefilter("ignore", FutureWarning)  # `gamma` is there until Optuna 6
        kind = _kind_of_tpe(options)
        make = partial(kind, seed=seed, n_startup_trials=startup, multivariate=True, group=group, constant_liar=True)
        return make(gamma=good_of(options["fewest_good"])) if "fewest_good" in options else make()


def _kind_of_tpe(options: Mapping[str, Any]) -> type[TPESampler]:
    """Return Optuna's for rungs and several objectives: narrower kernels were not measured there."""
    return TPESampler if "fewest_good" in options or options.get("objectives", 1) > 1 else NarrowTPE


def good_of(fewest: int) -> Callable[[int], int]:
    """Return how many of so many results are good, as in BOHB: 15%, at least as many as a density needs."""
    return lambda results: min(max(fewest, math.floor(0.15 * results)), results)


def _gp(seed: int, startup: int, options: Mapping[str, Any]) -> BaseSampler:
    return GPSampler(seed=seed, n_startup_trials=startup)


def _nsga2(seed: int, startup: int, options: Mapping[str, Any]) -> BaseSampler:
    return NSGAIISampler(seed=seed, population_size=options["population"])


_SAMPLERS: dict[str, Callable[[int, int, Mapping[str, Any]], BaseSampler]] = {"tpe": _tpe, "gp": _gp, "nsga2": _nsga2}


def _cma(
    axes: Sequence[SearchAxis],
    ended: Sequence[Record],
    running: Sequence[Record],
    question: Question,
    options: dict[str, Any],
) -> Ask:
    """CMA-ES on the axes with an order, scaled to 0..1; choices are drawn at random.

    The state is a function of the results in order, so it is computed anew instead of being kept: `Record.ended` says
    from which generation a trial is.
    """
    if options.get("constrained"):  # the strategy goes by ranks only
        places = order([record.score for record in ended])
        ended = [ended[place]._replace(loss=float(places.index(place))) for place in range(len(ended))]
    ordered = [at for at, axis in enumerate(axes) if axis.kind != "categorical"]
    draw = np.random.default_rng(question.seed)
    optimizer = _replayed([axes[at] for at in ordered], ordered, ended, question.seed, options) if ordered else None
    points = Points(Space(question.space))

    def ask() -> tuple[dict[str, Any], Callable[[], object]]:
        chosen: list[Coordinate] = [_drawn(axis, draw) for axis in _zeroed(axes)]
        if optimizer is not None:
            for at, part in zip(ordered, optimizer.ask(), strict=True):
                chosen[at] = _scaled_back(axes[at], float(part))
        by_name = {axis.name: coordinate for axis, coordinate in zip(axes, chosen, strict=True)}
        return points.build(lambda axis: by_name[axis.name]), lambda: None

    return ask


def _zeroed(axes: Sequence[SearchAxis]) -> list[SearchAxis]:
    return [axis if axis.kind == "categorical" else SearchAxis(axis.route, "int", 0, 0) for axis in axes]


def _drawn(axis: SearchAxis, draw: np.random.Generator) -> int:
    weights = axis.leaf.spec.get("weights") if axis.leaf is not None else None
    return weighted(weights, draw.random()) if weights else int(draw.integers(0, int(axis.high) + 1))


def _replayed(
    axes: Sequence[SearchAxis], ordered: Sequence[int], ended: Sequence[Record], seed: int, options: Mapping[str, Any]
) -> cmaes.CMA:
    size = options.get("population") or 4 + math.floor(3 * math.log(len(axes)))
    optimizer = cmaes.CMA(
        mean=np.full(len(axes), 0.5),
        sigma=1 / 6,
        bounds=np.tile([0.0, 1.0], (len(axes), 1)),
        seed=seed % 2**31,
        population_size=max(size, 2),
    )
    generation: list[tuple[np.ndarray, float]] = []
    began = 0
    for number, record in enumerate(ended):
        if record.ended < began:
            continue  # suggested by an earlier generation, whose results were complete without it
        at = np.array([_middle_or(axis, record.at[place]) for axis, place in zip(axes, ordered, strict=True)])
        generation.append((at, float(record.loss or 0.0)))
        if len(generation) == optimizer.population_size:
            optimizer.tell(generation)
            generation, began = [], number + 1
            if optimizer.should_stop():
                break
    return optimizer


def _middle_or(axis: SearchAxis, coordinate: Coordinate | None) -> float:
    """Return where a trial is on an axis, 0 to 1: in the middle if it does not have it."""
    return 0.5 if coordinate is None else _scaled(axis, coordinate)


def _scaled(axis: SearchAxis, coordinate: Coordinate) -> float:
    low, width = _span(axis)
    return min(max((axis.along(coordinate) - low) / width, 0.0), 1.0)


def _scaled_back(axis: SearchAxis, part: float) -> Coordinate:
    low, width = _span(axis)
    found = axis.back(low + part * width)
    return round(found) if axis.kind in _WHOLE else found


_WHOLE = ("int", "stepped")


def _span(axis: SearchAxis) -> tuple[float, float]:
    """Return where an axis begins and how wide it is; an int owns half a unit on both sides."""
    return axis.span(0.5 if axis.kind in _WHOLE else 0.0)
