"""The stream of random numbers: NumPy's, draw by draw, in the documented order."""

import math
import tracemalloc
import uuid

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab_hub.core.searchers import CreateTrial, SearcherConfigError, Started, make_searcher
from detlab_hub.core.searchers.hyperparameters import SpaceGrid, check_space, even_point, int_point, sample
from detlab_hub.core.searchers.randomness import SearchRandom

SPACE = {
    "zeta": {"type": "categorical", "vals": ["a", "b", "c"]},
    "alpha": {"type": "int", "minval": -3, "maxval": 12},
    "nested": {
        "y": {"type": "double", "minval": 0.5, "maxval": 2.5},
        "x": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
        "empty": {},
    },
    "const": {"type": "const", "val": 64},
    "bare": [1, 2],
}


def test_searchers_integers_are_numpys_for_seed_42():
    """`[RandomState(42).randint(0, 10) ...]`, the numbers NumPy has given since 2005."""
    rng = SearchRandom(42)
    assert [rng.below(10) for _ in range(12)] == [6, 3, 7, 4, 6, 9, 2, 6, 7, 4, 3, 7]
    rng = SearchRandom(999)
    assert [rng.trial_seed() for _ in range(3)] == [1303213504, 648491356, 118207333]
    rng = SearchRandom(999)
    assert rng.below(2**60 - 10) == 985573361606668636


def test_searchers_uniform_is_numpys_for_seed_1():
    rng = SearchRandom(1)
    assert [rng.uniform(0, 1) for _ in range(3)] == [
        0.417022004702574,
        0.7203244934421581,
        0.00011437481734488664,
    ]


def test_searchers_a_choice_of_one_draws_nothing():
    rng = SearchRandom(7)
    before = rng.fingerprint()
    assert rng.below(1) == 0
    assert rng.fingerprint() == before
    rng.below(2)
    assert rng.fingerprint() != before


def expected_trial(state: np.random.RandomState) -> tuple[dict, str, int]:
    """The draw order, written out independently of the implementation."""
    alpha = -3 + int(state.randint(0, 16))
    x = 10.0 ** float(state.uniform(-4, -1))
    y = float(state.uniform(0.5, 2.5))
    zeta = "abc"[int(state.randint(0, 3))]
    hparams = {
        "alpha": alpha,
        "bare": [1, 2],
        "const": 64,
        "nested": {"empty": {}, "x": x, "y": y},
        "zeta": zeta,
    }
    raw = bytearray(state.bytes(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    return hparams, str(uuid.UUID(bytes=bytes(raw))), int(state.randint(0, 2**31))


@pytest.mark.parametrize("seed", [0, 1, 1234, 2**31 - 1])
def test_searchers_trials_are_drawn_hparams_then_id_then_seed(seed):
    search = make_searcher({"name": "random", "max_trials": 5, "max_concurrent_trials": 0}, SPACE, seed)
    state = np.random.RandomState(seed)
    decisions = search.step(Started())
    assert len(decisions) == 5
    for index, decision in enumerate(decisions):
        hparams, request_id, trial_seed = expected_trial(state)
        assert decision == CreateTrial(request_id, trial_seed, hparams, index)
        assert uuid.UUID(decision.request_id).version == 4


def test_searchers_golden_first_trial_of_seed_0():
    """Fixed numbers, so that no refactoring of test and code together can shift the stream."""
    search = make_searcher(
        {"name": "single"},
        {
            "lr": {"type": "log", "base": 10.0, "minval": -3.0, "maxval": -1.0},
            "n": {"type": "int", "minval": 1, "maxval": 8},
        },
        0,
    )
    (trial,) = search.step(Started())
    assert trial == CreateTrial(
        request_id="c0cc21d8-43b3-4e9a-bb52-a2dbc3767d8b",
        trial_seed=1491434855,
        hparams={"lr": 0.012520653814999462, "n": 6},
        index=0,
    )


def test_searchers_hparams_are_plain_python_numbers():
    point = sample(SPACE, SearchRandom(3))
    assert type(point["alpha"]) is int
    assert type(point["nested"]["x"]) is float
    assert type(point["nested"]["y"]) is float


def test_searchers_int_range_includes_both_ends():
    rng = SearchRandom(5)
    seen = {sample({"n": {"type": "int", "minval": 1, "maxval": 3}}, rng)["n"] for _ in range(200)}
    assert seen == {1, 2, 3}


def test_searchers_sampled_values_do_not_share_state_with_the_config():
    space = {"c": {"type": "categorical", "vals": [{"deep": [1]}]}, "k": {"type": "const", "val": [1]}}
    first = sample(space, SearchRandom(0))
    first["c"]["deep"].append(2)
    first["k"].append(2)
    assert sample(space, SearchRandom(0)) == {"c": {"deep": [1]}, "k": [1]}


@pytest.mark.parametrize(
    ("ends", "rounded"),
    [((0, 1), 1), ((1, 2), 2), ((2, 3), 3), ((-1, 0), -1), ((-3, -2), -3), ((2, 2), 2), ((-5, 2), -2)],
)
def test_searchers_rounding_takes_halves_away_from_zero(ends, rounded):
    assert int_point(*ends, 1, 0) == rounded


@given(st.integers(-(10**6), 10**6), st.integers(1, 10**6), st.integers(2, 1000), st.data())
def test_searchers_points_of_an_int_are_those_of_the_formula_in_floats_where_floats_are_exact(low, width, count, data):
    place = data.draw(st.integers(0, count - 1))
    value = low + place * width / (count - 1)
    whole = math.trunc(value)
    rounded = whole + (math.copysign(1, value) if abs(value - whole) >= 0.5 else 0)
    assert int_point(low, low + width, count, place) == rounded


@pytest.mark.parametrize(("low", "high"), [(-(2**62), 2**62 - 1), (2**53 + 1, 2**63 - 1), (-(2**63), -(2**62) + 3)])
def test_searchers_points_of_a_wide_int_are_exact_and_within_its_range(low, high):
    grid = SpaceGrid({"p": {"type": "int", "minval": low, "maxval": high, "count": 10**9}})
    assert (grid.point(0)["p"], grid.point(10**9 - 1)["p"]) == (low, high)
    some = [grid.point(i)["p"] for i in range(0, 10**9, 10**7)]
    assert some == sorted(set(some))
    assert low <= some[0] <= some[-1] <= high


@given(st.floats(-8e307, 8e307), st.floats(-8e307, 8e307), st.integers(1, 10**12), st.data())
def test_searchers_points_of_a_double_are_finite_and_exact_at_the_ends(low, high, count, data):
    low, high = min(low, high), max(low, high)
    place = data.draw(st.integers(0, count - 1))
    assert math.isfinite(even_point(low, high, count, place))
    if count > 1:
        assert (even_point(low, high, count, 0), even_point(low, high, count, count - 1)) == (low, high)


def test_searchers_points_of_a_double_do_not_overflow_on_the_way():
    assert even_point(-8e307, 8e307, 1001, 500) == pytest.approx(0.0, abs=1e300)
    assert even_point(1.6e308, 1.7e308, 1, 0) == pytest.approx(1.65e308)


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        ({"type": "int", "minval": 0, "maxval": 10, "count": 3}, [0, 5, 10]),
        ({"type": "int", "minval": 0, "maxval": 5, "count": 3}, [0, 3, 5]),
        ({"type": "int", "minval": -5, "maxval": 0, "count": 3}, [-5, -3, 0]),
        ({"type": "int", "minval": 1, "maxval": 3, "count": 10}, [1, 2, 3]),
        ({"type": "int", "minval": 2, "maxval": 5, "count": 1}, [4]),
        ({"type": "double", "minval": 0.0, "maxval": 1.0, "count": 5}, [0.0, 0.25, 0.5, 0.75, 1.0]),
        ({"type": "double", "minval": 0.0, "maxval": 1.0, "count": 1}, [0.5]),
        ({"type": "log", "base": 10, "minval": -2, "maxval": 0, "count": 3}, [0.01, 0.1, 1.0]),
        ({"type": "log", "base": 2, "minval": 0, "maxval": 4, "count": 1}, [4.0]),
        ({"type": "categorical", "vals": [None, {"a": 1}, "x"]}, [None, {"a": 1}, "x"]),
        ({"type": "const", "val": "v"}, ["v"]),
        ({}, [{}]),
        (3, [3]),
        ([1, 2], [[1, 2]]),
    ],
)
def test_searchers_grid_axis(spec, values):
    grid = SpaceGrid({"p": spec})
    assert [grid.point(i)["p"] for i in range(grid.size)] == values


def test_searchers_grid_last_sorted_axis_is_fastest_nested_maps_included():
    grid = SpaceGrid(
        {
            "b": {
                "q": {"type": "categorical", "vals": [1, 2]},
                "p": {"type": "categorical", "vals": ["x", "y"]},
            },
            "a": {"type": "categorical", "vals": [10, 20]},
        }
    )
    points = [grid.point(i) for i in range(grid.size)]
    assert [(p["a"], p["b"]["p"], p["b"]["q"]) for p in points] == [
        (10, "x", 1),
        (10, "x", 2),
        (10, "y", 1),
        (10, "y", 2),
        (20, "x", 1),
        (20, "x", 2),
        (20, "y", 1),
        (20, "y", 2),
    ]


def test_searchers_a_huge_grid_costs_nothing_and_is_counted_exactly():
    space = {f"p{i:02}": {"type": "double", "minval": 0, "maxval": 1, "count": 10**9} for i in range(20)}
    tracemalloc.start()
    try:
        grid = SpaceGrid(space)
        assert grid.size == 10**180
        assert grid.point(10**180 - 1) == dict.fromkeys(space, 1.0)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert SpaceGrid({f"b{i}": {"type": "categorical", "vals": [True, False]} for i in range(63)}).size == 2**63


@pytest.mark.parametrize(
    ("space", "complaint"),
    [
        ({"a": {"type": "integer"}}, "hyperparameters.a: unknown hyperparameter type 'integer'"),
        ({"n": {"a": {"type": "int", "minval": 1}}}, "hyperparameters.n.a: int needs maxval"),
        ({"a": {"type": "double", "minval": 2, "maxval": 2}}, "minval 2 must be below maxval 2"),
        ({"a": {"type": "categorical", "vals": []}}, "at least one value"),
        ({"a": {"type": "log", "base": 10, "minval": 0, "maxval": 400}}, "too large for a float"),
        ({"a": {"type": "log", "base": -1, "minval": 0, "maxval": 1}}, "base -1 must be above 0"),
        ({"a": {"type": "log", "base": 1, "minval": -1.7e308, "maxval": 1.7e308}}, "too large for a float"),
        ({"a": {"type": "int", "minval": -(2**63), "maxval": 2**62}}, "below 2\\*\\*63"),
    ],
)
def test_searchers_unusable_space_is_refused_with_its_path(space, complaint):
    with pytest.raises(SearcherConfigError, match=complaint):
        check_space(space)


def test_searchers_grid_without_count_is_refused():
    with pytest.raises(SearcherConfigError, match=r"hyperparameters\.n\.lr: a grid needs count"):
        make_searcher({"name": "grid"}, {"n": {"lr": {"type": "double", "minval": 0, "maxval": 1}}}, 0)
