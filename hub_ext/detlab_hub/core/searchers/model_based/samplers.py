"""The answers: Optuna's samplers, told all trials with each question. Imported only in the process that answers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cmaes
import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from detlab_hub.core.searchers.method import Question
from detlab_hub.core.searchers.model_based.axes import Axis, Coordinate, axes_of, point
from detlab_hub.core.searchers.model_based.records import GP_MOST, Record

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def suggest(question: Question) -> list[dict[str, Any]]:
    """Answer a question of a model-based search with points of its space."""
    axes = axes_of(question.space)
    known = question.known
    ended = [Record(*record) for record in known["ended"]]
    running = [Record(*record) for record in known["running"]]
    options = known["options"]
    if not axes:
        return [point(question.space, axes, ()) for _ in range(question.count)]
    answer = _cma if options["sampler"] == "cmaes" else _optuna
    found = answer(axes, penalised(ended), running, question, options)
    return [point(question.space, axes, coordinates) for coordinates in found]


def penalised(ended: Sequence[Record]) -> list[Record]:
    """Give failed trials the worst result there is, so that no model looks there again; without any, leave them out."""
    worst = max((record.loss for record in ended if record.loss is not None), default=None)
    if worst is None:
        return []
    return [record if record.loss is not None else record._replace(loss=worst) for record in ended]


def _distribution(axis: Axis) -> BaseDistribution:
    match axis.kind:
        case "int":
            return IntDistribution(int(axis.low), int(axis.high))
        case "categorical":
            return CategoricalDistribution(tuple(range(len(axis.choices))))
        case _:  # the coordinate of a log is its exponent
            return FloatDistribution(float(axis.low), float(axis.high))


def _optuna(
    axes: Sequence[Axis],
    ended: Sequence[Record],
    running: Sequence[Record],
    question: Question,
    options: dict[str, Any],
) -> list[list[Coordinate]]:
    distributions = {axis.name: _distribution(axis) for axis in axes}
    name = "tpe" if options["sampler"] == "gp" and len(ended) > GP_MOST else options["sampler"]
    sampler = _SAMPLERS[name](question.seed, question.known["startup"], options)
    study = optuna.create_study(sampler=sampler)
    size = options.get("population", 0)
    for number, record in enumerate(ended):
        # Generations of the genetic algorithm: the results in the order in which they came.
        attributes = {NSGAIISampler._get_generation_key(): number // size} if size else {}
        study.add_trial(_frozen(record, TrialState.COMPLETE, axes, distributions, attributes))
    for record in running:
        study.add_trial(_frozen(record, TrialState.RUNNING, axes, distributions, {}))
    if isinstance(sampler, NSGAIISampler):
        for generation in range(1, len(ended) // size + 1):  # each from the one before: alone, the last would recurse
            sampler.get_parent_population(study, generation)
    asked = [study.ask(distributions).params for _ in range(question.count)]
    return [[params[axis.name] for axis in axes] for params in asked]


def _frozen(
    record: Record,
    state: TrialState,
    axes: Sequence[Axis],
    distributions: dict[str, BaseDistribution],
    attributes: dict[str, Any],
) -> FrozenTrial:
    params = {axis.name: coordinate for axis, coordinate in zip(axes, record.at, strict=True)}
    value = record.loss if state is TrialState.COMPLETE else None
    return create_trial(state=state, value=value, params=params, distributions=distributions, system_attrs=attributes)


def _tpe(seed: int, startup: int, options: Mapping[str, Any]) -> BaseSampler:
    return TPESampler(seed=seed, n_startup_trials=startup, multivariate=True, constant_liar=True)


def _gp(seed: int, startup: int, options: Mapping[str, Any]) -> BaseSampler:
    return GPSampler(seed=seed, n_startup_trials=startup)


def _nsga2(seed: int, startup: int, options: Mapping[str, Any]) -> BaseSampler:
    return NSGAIISampler(seed=seed, population_size=options["population"])


_SAMPLERS: dict[str, Callable[[int, int, Mapping[str, Any]], BaseSampler]] = {"tpe": _tpe, "gp": _gp, "nsga2": _nsga2}


def _cma(
    axes: Sequence[Axis],
    ended: Sequence[Record],
    running: Sequence[Record],
    question: Question,
    options: dict[str, Any],
) -> list[list[Coordinate]]:
    """CMA-ES on the axes with an order, scaled to 0..1; choices are drawn at random.

    The state is a function of the results in order, so it is computed anew instead of being kept: `Record.ended` says
    from which generation a trial is.
    """
    ordered = [at for at, axis in enumerate(axes) if axis.kind != "categorical"]
    draw = np.random.default_rng(question.seed)
    optimizer = _replayed([axes[at] for at in ordered], ordered, ended, question.seed, options) if ordered else None
    found = []
    for _ in range(question.count):
        chosen: list[Coordinate] = [int(draw.integers(0, int(axis.high) + 1)) for axis in _zeroed(axes)]
        if optimizer is not None:
            sampled = optimizer.ask()
            for at, part in zip(ordered, sampled, strict=True):
                chosen[at] = _scaled_back(axes[at], float(part))
        found.append(chosen)
    return found


def _zeroed(axes: Sequence[Axis]) -> list[Axis]:
    return [axis if axis.kind == "categorical" else Axis(axis.route, "int", 0, 0) for axis in axes]


def _replayed(
    axes: Sequence[Axis], ordered: Sequence[int], ended: Sequence[Record], seed: int, options: Mapping[str, Any]
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
        at = np.array([_scaled(axis, record.at[place]) for axis, place in zip(axes, ordered, strict=True)])
        generation.append((at, float(record.loss or 0.0)))
        if len(generation) == optimizer.population_size:
            optimizer.tell(generation)
            generation, began = [], number + 1
            if optimizer.should_stop():
                break
    return optimizer


def _scaled(axis: Axis, coordinate: Coordinate) -> float:
    low, width = _span(axis)
    return min(max((coordinate - low) / width, 0.0), 1.0)


def _scaled_back(axis: Axis, part: float) -> Coordinate:
    low, width = _span(axis)
    found = low + part * width
    return round(found) if axis.kind == "int" else found


def _span(axis: Axis) -> tuple[float, float]:
    """Return where an axis begins and how wide it is; an int owns half a unit on both sides."""
    half = 0.5 if axis.kind == "int" else 0.0
    return float(axis.low) - half, float(axis.high) - float(axis.low) + 2 * half
