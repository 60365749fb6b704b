"""The bench of searches trains the points that a search chose, drawn when trials are placed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"


@pytest.fixture(autouse=True)
def bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


class Table:
    """A small table of ordered values."""

    sizes: ClassVar[dict[str, int]] = {"width": 10, "depth": 4}
    space: ClassVar[dict[str, Any]] = {
        "width": {"type": "int", "minval": 0, "maxval": 9},
        "depth": {"type": "int", "minval": 0, "maxval": 3},
    }


@pytest.mark.parametrize("name", ["random", "tpe", "cmaes", "nsga2"])
def test_each_trial_of_a_sampler_has_a_point(name: str) -> None:
    from quality.tuners import Detlab

    tuner = Detlab(name, Table(), 12, 3, 1)  # type: ignore[arg-type]
    tried = []
    while (asked := tuner.ask()) is not None:
        tried.append(asked[1])
        tuner.tell(asked[0], float(asked[1]["width"] + asked[1]["depth"]))
    assert len(tried) == 12
    assert all(set(point) == {"width", "depth"} for point in tried)


@pytest.mark.parametrize("name", ["asha", "bohb", "dehb"])
def test_a_method_with_rungs_trains_on_curves(name: str) -> None:
    from dataclasses import replace

    from quality.curves import network_task
    from quality.rungs import ENTRIES, search

    found = search(ENTRIES[name], replace(network_task("digits"), trials=6), 1)
    assert found["total"] >= 0.9
    assert found["regret"][-1] < 1


def test_the_writer_is_measured_with_questions() -> None:
    from quality.cost import MEASURED, Grown

    grown = Grown("tpe", 40)
    grown.measure()
    assert len(grown.questions) == MEASURED
    assert all(question.known["ended"] for question in grown.questions)


@pytest.mark.parametrize("name", ["branin", "bowl", "training", "networks"])
def test_defaults_are_compared_on_a_function(name: str) -> None:
    from quality.defaults import FUNCTIONS, Optunas, Ours, regret

    function = FUNCTIONS[name]()
    for tuner in (Ours("tpe", function.space, 12, 1), Optunas(function.space, 12, 1)):
        assert 0 <= regret(tuner, function.loss, 3, 1) < 1000


def test_what_is_beyond_noise() -> None:
    from quality.defaults import Compared, pooled, worse

    rng = np.random.default_rng(1)
    theirs = rng.uniform(1, 2, 20)
    alike = Compared("f", 20, "1", rng.uniform(1, 2, 20), theirs)
    better, much_worse = (Compared("f", 20, "2", factor * theirs, theirs) for factor in (0.5, 2.0))
    assert worse([alike, better, much_worse]) == [much_worse]
    assert better.ratio == pytest.approx((0.5, 0.0))
    assert pooled([better, much_worse])[0] == pytest.approx(1.25)
