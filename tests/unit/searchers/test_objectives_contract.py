"""Methods that rank trials keep their contract with two metrics and a constraint, and beside stopping policies."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import pytest
from test_built_in_methods_contract import HALVING, MB, TestBOHB, TestDEHB, TestPBT

from detlab_hub.core.searchers import Question, StopTrial, WouldStop
from detlab_hub.core.searchers.model_based import samplers
from detlab_hub.core.searchers.model_based.records import Record
from detlab_hub.testing.searchers import SearchMethodContract, drive

TWO = {"metrics": [{"name": "loss"}, {"name": "speed", "smaller_is_better": False}]}
BOUND = {"constraints": {"size": {"max": 0.6}}}
POLICIES = [
    {"name": "median", "min_trials": 2},
    {"name": "no_improvement", "patience": 3, "dry_run": True},
    {"name": "wall_clock", "seconds": 8},
]


class Both(SearchMethodContract):
    stopping: ClassVar = POLICIES
    seeds = range(4)


class TestRandom(Both):
    config: ClassVar[dict[str, Any]] = {"name": "random", "max_trials": 12, "max_concurrent_trials": 3, **TWO, **BOUND}


class TestAsha(Both):
    config: ClassVar[dict[str, Any]] = {"name": "asha", **HALVING, "max_concurrent_trials": 4, **TWO, **BOUND}


class TestAshaByStopping(Both):
    config: ClassVar[dict[str, Any]] = {**TestAsha.config, "variant": "stopping"}


class TestAdaptive(Both):
    config: ClassVar[dict[str, Any]] = {**TestAsha.config, "name": "adaptive_asha"}


class TestHyperband(Both):
    config: ClassVar[dict[str, Any]] = {**TestAsha.config, "name": "hyperband"}


class TestBOHBOfBoth(Both):
    config: ClassVar[dict[str, Any]] = {**TestBOHB.config, **TWO, **BOUND}
    seeds = range(1)


@pytest.mark.slow
class TestDEHBOfBoth(Both):
    config: ClassVar[dict[str, Any]] = {**TestDEHB.config, **TWO, **BOUND}


class TestPBTOfBoth(Both):
    config: ClassVar[dict[str, Any]] = {**TestPBT.config, **TWO, **BOUND}


class TestPB2OfBoth(Both):
    config: ClassVar[dict[str, Any]] = {**TestPBT.config, "name": "pb2", **TWO, **BOUND}
    seeds = range(1)


class TestTPE(Both):
    config: ClassVar[dict[str, Any]] = {"name": "tpe", **MB, **TWO, **BOUND}
    seeds = range(1)


@pytest.mark.slow
class TestGP(Both):
    config: ClassVar[dict[str, Any]] = {"name": "gp", **MB, "max_trials": 8, **TWO, **BOUND}
    seeds = range(1)
    lost_answers = 0.7


class TestNSGA2(Both):
    config: ClassVar[dict[str, Any]] = {"name": "nsga2", **MB, "population": 3, **TWO, **BOUND}
    seeds = range(1)


class TestCMA(Both):
    config: ClassVar[dict[str, Any]] = {"name": "cmaes", **MB, **BOUND}
    seeds = range(1)


del TestBOHB, TestDEHB, TestPBT  # their own module runs them


def test_policies_decide_in_these_searches() -> None:
    decided = [one for made in drive(TestRandom.config, Both.space, 3, stopping=POLICIES).decided for one in made]
    assert any(isinstance(one, StopTrial) and one.evidence for one in decided)
    noted = [one.request_id for one in decided if isinstance(one, WouldStop)]
    assert noted
    assert len(noted) == len(set(noted)), "each trial is noted once"


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["tpe", "gp", "nsga2", "cmaes"])
def test_samplers_keep_away_from_what_breaks_a_constraint(sampler: str) -> None:
    """The smaller x the better, but below 5 it is not allowed."""
    draw = random.Random(1)
    points = [tuple(draw.uniform(0, 10) for _ in range(4)) for _ in range(80)]
    ended = [Record(at, "done", at[3], place, 1, (), max(0.0, 5.0 - at[3])) for place, at in enumerate(points)]
    axis = {"type": "double", "minval": 0, "maxval": 10}
    space = dict.fromkeys(("a", "b", "c", "x"), axis)
    mean = {}
    for constrained in (False, True):
        options = {"sampler": sampler, "constrained": constrained, "population": 10}
        known = {"options": options, "startup": 1, "ended": ended, "running": []}
        found = [samplers.suggest(Question(0, 4, seed, space, known)) for seed in range(3)]
        xs = [point["x"] for answers in found for point in answers]
        mean[constrained] = sum(xs) / len(xs)
    assert mean[True] > mean[False] + 0.5


@pytest.mark.parametrize("sampler", ["tpe", "nsga2"])
def test_samplers_know_both_metrics(sampler: str) -> None:
    """Losses x**2 and (x - 4)**2: the front is from 0 to 4; by the first alone it is at 0."""
    draw = random.Random(2)
    xs = [draw.uniform(-10, 10) for _ in range(60)]
    ended = [Record((*[0.5] * 3, x), "done", x**2, at, 1, ((x - 4) ** 2,)) for at, x in enumerate(xs)]
    axis = {"type": "double", "minval": -10, "maxval": 10}
    space = dict.fromkeys(("a", "b", "c", "x"), axis)
    options = {"sampler": sampler, "objectives": 2, "population": 20}
    known = {"options": options, "startup": 1, "ended": ended, "running": []}
    found = [point["x"] for seed in range(5) for point in samplers.suggest(Question(0, 4, seed, space, known))]
    assert sum(-1 <= x <= 5 for x in found) > len(found) / 2
