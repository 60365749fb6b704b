"""`tpe` beside Optuna's TPE with its defaults: the same suggestions, but for narrower kernels of good points."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import TPESampler
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator, _ParzenEstimatorParameters
from optuna.samplers._tpe.sampler import default_weights
from optuna.trial import TrialState, create_trial

from detlab_hub.core.searchers import Question
from detlab_hub.core.searchers.model_based import samplers
from detlab_hub.core.searchers.model_based.parzen import NARROWEST, NarrowKernels, NarrowTPE

SPACE: dict[str, Any] = {
    "act": {"type": "categorical", "vals": [0, 1, 2]},
    "batch": {"type": "int", "minval": 8, "maxval": 512, "log": True},
    "layers": {"type": "int", "minval": 1, "maxval": 8},
}
DISTRIBUTIONS: dict[str, BaseDistribution] = {
    "act": CategoricalDistribution([0, 1, 2]),
    "batch": IntDistribution(8, 512, log=True),
    "layers": IntDistribution(1, 8),
}
CUBE: dict[str, Any] = {name: {"type": "double", "minval": 0.0, "maxval": 1.0} for name in "xyz"}
AXES: dict[str, BaseDistribution] = {name: FloatDistribution(0.0, 1.0) for name in "xyz"}


def points_of(rng: random.Random, count: int) -> list[dict[str, int]]:
    return [{"act": rng.randrange(3), "batch": rng.randint(8, 512), "layers": rng.randint(1, 8)} for _ in range(count)]


def known(ended: list[Any], running: list[Any], **options: Any) -> dict[str, Any]:
    return {"options": {"sampler": "tpe", **options}, "startup": 10, "ended": ended, "running": running}


@pytest.mark.parametrize(("results", "running"), [(9, 0), (10, 0), (24, 3), (40, 7)])
def test_the_suggestion_is_that_of_optunas_default_where_no_axis_is_continuous(results: int, running: int) -> None:
    """So `tpe` can be worse than Optuna's only by its startup trials and its kernels."""
    for seed in range(5):
        points = points_of(random.Random(seed), results + running)
        losses = [point["layers"] + point["act"] + math.log(point["batch"]) for point in points]
        ended = [[list(point.values()), "done", loss, 0] for point, loss in zip(points, losses, strict=True)][:results]
        others = [[list(point.values()), "running", None, 0] for point in points[results:]]
        (ours,) = samplers.suggest(Question(0, 1, seed, SPACE, known(ended, others)))
        study = optuna.create_study(sampler=TPESampler(seed=seed))
        for number, (point, loss) in enumerate(zip(points, losses, strict=True)):
            done = {"value": loss} if number < results else {"state": TrialState.RUNNING}
            study.add_trial(create_trial(params=point, distributions=DISTRIBUTIONS, **done))
        assert ours == study.ask(DISTRIBUTIONS).params


PLAIN = _ParzenEstimatorParameters(1.0, True, False, default_weights, True)


def widths(kind: type[_ParzenEstimator], axis: FloatDistribution | IntDistribution, at: list[float]) -> list[float]:
    made = kind({"x": np.array(at)}, {"x": axis}, PLAIN)
    return list(made._mixture_distribution.distributions[0].sigma)


@pytest.mark.parametrize("axis", [FloatDistribution(0.0, 10.0), FloatDistribution(1.0, math.exp(10.0), log=True)])
def test_kernels_of_good_points_that_lie_together_are_narrow(axis: FloatDistribution) -> None:
    at = [math.exp(one) if axis.log else one for one in (3.0, 3.01, 3.02)]
    floor = 10.0 / (3 + 2)
    assert widths(_ParzenEstimator, axis, at) == pytest.approx([floor] * 3 + [10.0])
    assert widths(NarrowKernels, axis, at) == pytest.approx([NARROWEST * floor] * 3 + [10.0])


def test_kernels_are_as_wide_as_the_distance_to_the_next_good_point() -> None:
    axis, at = FloatDistribution(0.0, 10.0), [1.0, 5.0, 9.0]
    assert widths(NarrowKernels, axis, at) == pytest.approx(widths(_ParzenEstimator, axis, at))


@pytest.mark.parametrize("axis", [IntDistribution(0, 9), IntDistribution(1, 64, log=True)])
def test_kernels_of_integers_stay_as_they_are(axis: IntDistribution) -> None:
    at = [3.0, 3.0, 4.0]
    assert widths(NarrowKernels, axis, at) == widths(_ParzenEstimator, axis, at)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, NarrowTPE),
        ({"constrained": True}, NarrowTPE),
        ({"objectives": 2}, TPESampler),
        ({"fewest_good": 4}, TPESampler),
    ],
)
def test_rungs_and_several_objectives_keep_optunas_sampler(options: dict[str, Any], kind: type[TPESampler]) -> None:
    assert type(samplers._SAMPLERS["tpe"](1, 10, {**options, "conditional": False})) is kind


def test_suggestions_stay_nearer_to_good_points_that_lie_together_than_optunas_default() -> None:
    """Red with Optuna's kernels: with four good points of 40, none of them is narrower than a sixth of the range."""
    ours, theirs = [], []
    for seed in range(12):
        rng = random.Random(seed)
        points = [{name: rng.random() for name in AXES} for _ in range(32)]
        points += [{name: rng.gauss(0.3, 0.02) for name in AXES} for _ in range(8)]
        ended = [[list(point.values()), "done", off(point), 0] for point in points]
        (found,) = samplers.suggest(Question(0, 1, seed, CUBE, known(ended, [])))
        ours.append(off(found))
        study = optuna.create_study(sampler=TPESampler(seed=seed))
        for point in points:
            study.add_trial(create_trial(params=point, distributions=AXES, value=off(point)))
        theirs.append(off(study.ask(AXES).params))
    assert sum(ours) < 0.75 * sum(theirs)


def off(point: dict[str, Any]) -> float:
    """Return how far a point is from the best one."""
    return math.sqrt(sum((at - 0.3) ** 2 for at in point.values()))
