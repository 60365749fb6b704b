"""What `check` says of searchers, lengths and hyperparameters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from schemas_problems import GOOD, errors, hints, warnings

from detlab.schemas.expconf import check, errors_of, parse, resolve
from detlab.schemas.expconf.blocks.searchers import MEMBERS
from detlab.schemas.expconf.checks.search_spaces import MAX_GRID_POINTS, grid_points
from detlab.schemas.expconf.checks.suggestions import MOST_NAMES, WORD_CHARS, closest
from detlab_hub.core.searchers import Started, make_searcher

# --- searchers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sync_halving", "adaptive", "adaptive_simple"])
def test_removed_searchers_are_refused_by_name_with_the_reason(name: str) -> None:
    raw = {"searcher": {"name": name, "metric": "loss", "anything": 1}}
    [problem] = errors_of(check(raw))
    assert problem.path == "searcher.name"
    assert f"'{name}'" in problem.message
    assert "removed" in problem.message
    assert problem.hint


@pytest.mark.parametrize("entrypoint", ["my_search.py", "my_search", "a b:C", ":X", "my-search:X", "os:system('x')"])
def test_class_of_a_custom_search_is_named_with_its_module(entrypoint: str) -> None:
    raw = {"searcher": {"name": "custom", "metric": "loss", "entrypoint": entrypoint}}
    [problem] = errors_of(check(raw))
    assert problem.path == "searcher.entrypoint"
    assert problem.message == f"must be module:Class, not {entrypoint!r}"
    assert "my_search:MyMethod" in (problem.hint or "")


def test_custom_search_needs_its_class() -> None:
    problems = errors_of(check({"searcher": {"name": "custom", "metric": "loss"}}, complete=True))
    assert ("searcher.entrypoint", "is required") in [(one.path, one.message) for one in problems]


@pytest.mark.parametrize("name", ["bayes", "", 3, [], "Single"])
def test_unknown_searchers(name: object) -> None:
    [problem] = errors_of(check({"searcher": {"name": name, "metric": "loss"}}))
    assert problem.path == "searcher.name"
    assert f"must be one of {', '.join(MEMBERS)}, not " in problem.message


@pytest.mark.parametrize(
    ("searcher", "needs"),
    [
        ({"name": "single"}, {"metric"}),
        ({"name": "random"}, {"metric", "max_trials"}),
        ({"name": "grid"}, {"metric"}),
        ({"name": "async_halving"}, {"metric", "num_rungs", "max_trials", "time_metric", "max_time"}),
        ({"name": "adaptive_asha"}, {"metric", "max_trials", "time_metric", "max_time"}),
        ({}, {"name", "metric"}),
        ({"max_trials": 3}, {"name", "metric"}),
    ],
)
def test_what_a_searcher_needs(searcher: dict[str, Any], needs: set[str]) -> None:
    raw = {"entrypoint": "x", "searcher": searcher}
    assert set(errors(raw, complete=True)) == {f"searcher.{key}" for key in needs}
    assert errors(raw) == {}, "sanity: a template can still supply them"
    assert set(warnings(raw)) == {f"searcher.{key}" for key in needs}


def test_old_asha_file_is_told_what_to_write() -> None:
    raw = {
        **GOOD,
        "searcher": {"name": "adaptive_asha", "metric": "x", "max_trials": 4, "max_length": {"epochs": 10}},
    }
    found = {problem.path: problem.hint or "" for problem in errors_of(check(raw, complete=True))}
    assert "`time_metric: epochs`" in found["searcher.time_metric"]
    assert "`max_time: 10`" in found["searcher.max_time"]


@pytest.mark.parametrize("length", [0, 100, 1e3, {"batches": 1}, {"records": 5}, {"epochs": 3, "batches": None}])
def test_max_length_forms(length: object) -> None:
    assert errors({"searcher": {"name": "single", "metric": "x", "max_length": length}}) == {}


@pytest.mark.parametrize(
    "length", [-1, "10", True, 1.5, [], {}, {"batches": 0}, {"batches": 1, "epochs": 1}, {"steps": 3}, {"batches": -1}]
)
def test_bad_max_length(length: object) -> None:
    found = errors({"searcher": {"name": "single", "metric": "x", "max_length": length}})
    assert found
    assert all(path.startswith("searcher.max_length") for path in found)


def test_max_length_is_deprecated_or_ignored() -> None:
    single = warnings({"searcher": {"name": "single", "metric": "x", "max_length": 1}})
    assert single["searcher.max_length"] == "is deprecated"
    asha = warnings({"searcher": {"name": "async_halving", "metric": "x", "max_length": 1, "stop_once": True}})
    assert asha["searcher.max_length"] == "is accepted and has no effect"
    assert asha["searcher.stop_once"] == "is accepted and has no effect"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("divisor", 1),
        ("divisor", "4"),
        ("max_rungs", 0),
        ("mode", "fast"),
        ("max_trials", 0),
        ("max_time", 0),
        ("max_time", 1.5),
        ("max_concurrent_trials", -1),
        ("bracket_rungs", 3),
        ("bracket_rungs", [0]),
        ("smaller_is_better", "no"),
        ("time_metric", ""),
        ("num_rungs", 3),
    ],
)
def test_adaptive_asha_bounds(key: str, value: object) -> None:
    found = errors({"searcher": {"name": "adaptive_asha", key: value}})
    assert [path for path in found if path.startswith(f"searcher.{key}")]


def test_one_warm_start() -> None:
    raw = {"searcher": {"name": "single", "metric": "x", "source_trial_id": 1, "source_checkpoint_uuid": "u"}}
    assert errors(raw) == {"searcher": "at most one of source_trial_id and source_checkpoint_uuid may be set"}


# --- hyperparameters ----------------------------------------------------------------------------------------


def test_hyperparameter_forms() -> None:
    raw = {
        "bare": 1,
        "null": None,
        "list": [1, "fish", {"a": {"b": 1}}],
        "const": {"type": "const", "val": None},
        "int": {"type": "int", "minval": -1, "maxval": 1, "count": 2},
        "double": {"type": "double", "minval": 0, "maxval": 0.5},
        "log": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
        "categorical": {"type": "categorical", "vals": [None, True, 0, "x", [1], {"type": "adam"}]},
        "nested": {"empty": {}, "deeper": {"x": {"type": "int", "minval": 0, "maxval": 1}}},
    }
    assert check({"hyperparameters": raw}) == []
    hyperparameters = parse({"hyperparameters": raw}).hyperparameters
    assert hyperparameters["bare"].val == 1
    assert hyperparameters["null"].val is None
    assert hyperparameters["list"].val == [1, "fish", {"a": {"b": 1}}]
    assert hyperparameters["nested"]["deeper"]["x"].maxval == 1


@pytest.mark.parametrize(
    ("hyperparameter", "path"),
    [
        ({"type": "int", "minval": 1, "maxval": 1}, ""),
        ({"type": "double", "minval": 2, "maxval": 1}, ""),
        ({"type": "log", "base": 10, "minval": 0, "maxval": 0}, ""),
        ({"type": "log", "base": 0, "minval": 0, "maxval": 1}, ".base"),
        ({"type": "log", "base": -2, "minval": 0, "maxval": 1}, ".base"),
        ({"type": "int", "minval": 0.5, "maxval": 3}, ".minval"),
        ({"type": "int", "minval": False, "maxval": 3}, ".minval"),
        ({"type": "int", "minval": 0, "maxval": 3, "count": 0}, ".count"),
        ({"type": "int", "minval": 0, "maxval": 3, "count": True}, ".count"),
        ({"type": "int", "minval": 0}, ".maxval"),
        ({"type": "categorical", "vals": []}, ".vals"),
        ({"type": "categorical", "vals": "ab"}, ".vals"),
        ({"type": "categorical"}, ".vals"),
        ({"type": "const"}, ".val"),
        ({"type": "uniform", "minval": 0, "maxval": 1}, ""),
        ({"type": None}, ""),
        ({"type": "int", "minval": 0, "maxval": 1, "steps": 1}, ".steps"),
        ([{"type": "categorical"}], "[0].vals"),
        ({"a": [[{"type": "int", "minval": 3, "maxval": 1}]]}, ".a[0][0]"),
    ],
)
def test_bad_hyperparameters(hyperparameter: object, path: str) -> None:
    assert set(errors({"hyperparameters": {"h": hyperparameter}})) == {f"hyperparameters.h{path}"}


def test_a_hyperparameter_named_like_a_type_keeps_its_path() -> None:
    raw = {"hyperparameters": {"int": {"const": {"type": "int", "minval": 2, "maxval": "x"}}}}
    assert set(errors(raw)) == {"hyperparameters.int.const.maxval"}


def test_a_top_level_hyperparameter_may_be_called_type() -> None:
    assert errors({"hyperparameters": {"type": "adam", "lr": {"type": "int", "minval": 2, "maxval": 1}}}) == {
        "hyperparameters.lr": "minval must be less than maxval, but 2 >= 1"
    }
    assert "hyperparameters.type" in warnings({"hyperparameters": {"type": "int", "minval": 1, "maxval": 2}})


def test_grid_needs_counts_everywhere() -> None:
    raw = {
        "searcher": {"name": "grid", "metric": "x"},
        "hyperparameters": {
            "a": {"type": "int", "minval": 0, "maxval": 3},
            "b": {"c": {"type": "log", "base": 2, "minval": 0, "maxval": 3}},
            "d": {"type": "double", "minval": 0, "maxval": 3, "count": 2},
            "e": [{"type": "double", "minval": 0, "maxval": 3}],
            "f": {"type": "categorical", "vals": [1]},
        },
    }
    assert set(errors(raw)) == {"hyperparameters.a", "hyperparameters.b.c", "hyperparameters.e[0]"}
    raw["searcher"] = {"name": "random", "metric": "x"}
    assert errors(raw) == {}


def test_a_range_in_a_list_is_pointed_at() -> None:
    found = warnings({"hyperparameters": {"l": [{"type": "int", "minval": 0, "maxval": 3}]}})
    assert "not searched" in found["hyperparameters.l[0]"]


def test_nothing_to_search_is_pointed_at() -> None:
    raw = {**GOOD, "searcher": {"name": "random", "metric": "x", "max_trials": 3}, "hyperparameters": {"a": 1}}
    [problem] = check(raw, complete=True)
    assert (problem.path, problem.level) == ("hyperparameters", "warning")


# --- named regressions --------------------------------------------------------------------------------------


def test_a_forgotten_type_is_pointed_at() -> None:
    raw = {
        "hyperparameters": {"lr": {"minval": 0, "maxval": 1}, "n": {"o": {"vals": [1, 2]}}, "minval": 1, "maxval": 2}
    }
    assert set(warnings(raw)) == {"hyperparameters.lr", "hyperparameters.n.o"}


# --- how large a search may be -------------------------------------------------------------------------------


def _grid(hyperparameters: dict[str, Any]) -> dict[str, Any]:
    return {**GOOD, "searcher": {"name": "grid", "metric": "loss"}, "hyperparameters": hyperparameters}


def _axis(count: int, **more: Any) -> dict[str, Any]:
    return {"type": "double", "minval": 0, "maxval": 1, "count": count, **more}


@pytest.mark.parametrize(
    ("hyperparameters", "points"),
    [
        ({"x": _axis(10**9)}, "1,000,000,000"),
        ({"x": _axis(100_001)}, "100,001"),
        ({f"b{i}": {"type": "categorical", "vals": [True, False]} for i in range(63)}, f"{2**63:,}"),
        ({f"x{i}": _axis(10) for i in range(20)}, f"{10**20:,}"),
        ({"x": {"nested": {"deep": _axis(1e6)}}, "list": [_axis(7)], "c": {"type": "const", "val": 1}}, "1,000,000"),
        ({f"x{i}": _axis(10**9) for i in range(2000)}, "more than 10**30"),
        ({"x": {"type": "int", "minval": 0, "maxval": 2**62, "count": 10**9}}, "1,000,000,000"),
    ],
)
def test_a_grid_of_too_many_points_is_refused_with_their_number(hyperparameters: dict[str, Any], points: str) -> None:
    found = errors(_grid(hyperparameters), complete=True)
    assert found["hyperparameters"].startswith(f"the grid has {points} points")
    assert found.keys() == {"hyperparameters"}
    assert errors(_grid(hyperparameters)) == found, "also before it is complete"


@pytest.mark.parametrize(
    "hyperparameters",
    [
        {"x": _axis(100_000)},
        {"x": {"type": "int", "minval": 1, "maxval": 10, "count": 10**9}},
        {"x": _axis(10**9), "y": {"type": "double", "minval": 0, "maxval": 1}},  # the missing count is what is said
    ],
)
def test_a_grid_is_not_refused_for_points_that_it_has_not(hyperparameters: dict[str, Any]) -> None:
    assert "hyperparameters" not in errors(_grid(hyperparameters), complete=True)


def test_many_points_are_no_mistake_where_no_grid_walks_them() -> None:
    assert errors({**_grid({"x": _axis(10**9)}), "searcher": {"name": "random", "metric": "x", "max_trials": 3}}) == {}


_NUMBERS = st.one_of(st.integers(-(2**63) + 1, 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False))
_SPECS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["int", "double"]), "minval": _NUMBERS, "maxval": _NUMBERS, "count": _NUMBERS}
    ),
    st.fixed_dictionaries(
        {"type": st.just("log"), "base": _NUMBERS, "minval": _NUMBERS, "maxval": _NUMBERS, "count": _NUMBERS}
    ),
    st.fixed_dictionaries(
        {"type": st.just("int"), "minval": st.integers(-5, 0), "maxval": st.integers(1, 9), "count": st.integers(1, 99)}
    ),
    st.fixed_dictionaries({"type": st.just("categorical"), "vals": st.lists(st.booleans(), max_size=40)}),
    st.just({"type": "const", "val": [1, 2]}),
    st.lists(st.integers(), max_size=2),
)
_WIDE = {"type": "int", "minval": 0, "maxval": float(2**53), "count": 2}
"""Of more integers than floats tell apart: its points were counted as one."""
_SPACES = st.dictionaries(st.sampled_from("abcde"), st.one_of(_SPECS, st.dictionaries(st.sampled_from("pq"), _SPECS)))


@settings(deadline=None)
@example({"a": _WIDE, "b": {**_WIDE, "minval": -5, "maxval": 2**62, "count": 300}})
@given(_SPACES)
def test_what_check_accepts_can_be_searched_and_has_as_many_points_as_it_counts(space: dict[str, Any]) -> None:
    raw = _grid(space)
    if errors(raw, complete=True):
        return
    resolved = resolve(raw)["hyperparameters"] or {}
    grid = make_searcher({"name": "grid"}, resolved, 0)
    assert grid.trials_total == grid_points(space) <= MAX_GRID_POINTS
    make_searcher({"name": "random", "max_trials": 2}, resolved, 0).step(Started())
    grid.step(Started())


# --- likely mistakes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ({"base": 10, "minval": 1e-4, "maxval": 1e-1}, "minval: -4, maxval: -1"),
        ({"base": 10, "minval": 0.0001, "maxval": 1}, "minval: -4, maxval: 0"),
        ({"base": 2, "minval": 16, "maxval": 512}, "minval: 4, maxval: 9"),
        ({"base": 10, "minval": 0, "maxval": 0.1}, "0.0001 to 0.1 write {type: log, base: 10, minval: -4, maxval: -1}"),
        ({"base": 10, "minval": 0, "maxval": 100}, "minval: -1, maxval: 2"),
    ],
)
def test_exponents_that_look_like_values_are_warned_about_with_the_right_line(
    spec: dict[str, float], meant: str
) -> None:
    raw = {"hyperparameters": {"a": {"lr": {"type": "log", **spec}}}}
    assert "are exponents" in warnings(raw)["hyperparameters.a.lr"]
    assert meant in str(hints(raw)["hyperparameters.a.lr"])
    assert errors(raw) == {}


@pytest.mark.parametrize(
    ("base", "low", "high"), [(10, -4, -1), (10, 0.5, 1), (10, 0, 1), (2, 3, 9), (10, -4, 0.5), (10, 1, 3), (0.5, 1, 9)]
)
def test_exponents_that_may_be_meant_are_not_warned_about(base: float, low: float, high: float) -> None:
    assert check({"hyperparameters": {"x": {"type": "log", "base": base, "minval": low, "maxval": high}}}) == []


@pytest.mark.parametrize(
    ("group", "meant"),
    [
        ({"min": 0.001, "max": 0.1}, "{type: double, minval: 0.001, maxval: 0.1}"),
        ({"low": 1, "high": 8, "step": 2}, "{type: int, minval: 1, maxval: 8}"),
        ({"low": 1, "high": 64, "log": True}, "{type: int, minval: 1, maxval: 64, log: true}"),
        ({"low": 0.1, "high": 1, "log": True}, "{type: log, base: 10, minval: -1, maxval: 0}"),
        ({"values": [16, 32]}, "{type: categorical, vals: [16, 32]}"),
        (
            {"distribution": "log_uniform_values", "min": 0.001, "max": 1},
            "{type: log, base: 10, minval: -3, maxval: 0}",
        ),
    ],
)
def test_a_range_in_the_words_of_another_tool_is_shown_in_ours(group: dict[str, Any], meant: str) -> None:
    raw = {"hyperparameters": {"net": {"lr": group}}}
    assert "group of constants" in warnings(raw)["hyperparameters.net.lr"]
    assert meant in str(hints(raw)["hyperparameters.net.lr"])
    assert errors(raw) == {}, "it may be meant"


@pytest.mark.parametrize("group", [{"min": 1, "max": 2, "pad": 0}, {"values": 3}, {"min": [1], "max": [2]}, {"max": 3}])
def test_constants_that_are_no_range_are_not_warned_about(group: dict[str, Any]) -> None:
    assert warnings({"hyperparameters": {"clip": group}}) == {}


def test_keys_of_other_tools_and_of_small_blocks_are_answered_with_ours() -> None:
    raw = {
        "hyperparameters": {"n": {"type": "int", "min": 1, "max": 3}, "c": {"type": "categorical", "values": [1]}},
        "searcher": {"name": "random", "metric": "loss", "n_trials": 3, "budget": {"gpu_hours": 3, "money": 2}},
        "resources": {"gpus": 2},
    }
    found = hints(raw)
    assert found["hyperparameters.n.min"] == "did you mean `minval`?"
    assert found["hyperparameters.n.max"] == "did you mean `maxval`?"
    assert found["hyperparameters.c.values"] == "did you mean `vals`?"
    weighted = {"hyperparameters": {"c": {"type": "categorical", "vals": [1, 2], "probabilities": [1, 2]}}}
    assert hints(weighted)["hyperparameters.c.probabilities"] == "did you mean `weights`?"
    directions = {"name": "random", "metric": "loss", "goal": "maximize", "target": 0.9}
    assert hints({"searcher": directions})["searcher.goal"] == "write `smaller_is_better: false`"
    assert hints({"searcher": directions})["searcher.target"] == "did you mean `goal`?"
    assert found["searcher.n_trials"] == "did you mean `max_trials`?"
    assert found["searcher.budget.gpu_hours"] == "did you mean `slot_hours`?"
    assert "there are slot_hours, wall_clock" in str(found["searcher.budget.money"])
    assert found["resources.gpus"] == "did you mean `slots_per_trial`?"


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("grid_search", "`grid`"),
        ("random_search", "`random`"),
        ("RandomSearch", "`random`"),
        ("optuna", "`tpe`"),
        ("hyperopt", "`tpe`"),
        ("bayes", "`bayesian`"),
        ("bayesianoptimization", "`bayesian`"),
        ("successive-halving", "`async_halving`"),
        ("PopulationBasedTraining", "`pbt`"),
        ("nsga-ii", "`nsga2`"),
        ("medianstop", "`stopping: [{name: median}]`"),
        ("randm", "`random`"),
    ],
)
def test_a_method_by_its_name_elsewhere_is_answered_with_ours(name: str, method: str) -> None:
    assert method in str(hints({"searcher": {"name": name}})["searcher.name"])


def test_a_range_inside_a_choice_is_warned_about_by_its_path() -> None:
    momentum = {"type": "double", "minval": 0.0, "maxval": 0.9}
    vals = ["adam", {"name": "sgd", "more": [{"momentum": momentum}]}, {"type": "categorical", "vals": [1]}]
    found = warnings({"hyperparameters": {"optimizer": {"type": "categorical", "vals": vals}}})
    assert set(found) == {
        "hyperparameters.optimizer.vals[1].more[0].momentum",
        "hyperparameters.optimizer.vals[2]",
    }
    plain = [{"type": "adam"}, {"type": "log"}, {"minval": 1, "maxval": 2}]  # words of the user's own code
    assert warnings({"hyperparameters": {"optimizer": {"type": "categorical", "vals": plain}}}) == {}


def test_a_similar_word_is_looked_for_among_words_that_people_misspell() -> None:
    """In the writer, too: the time grows with the square of the characters, which a user chooses."""
    longest = "m" * WORD_CHARS
    assert closest(longest[:-1], [longest]) == longest
    assert closest(longest, [longest + "m"]) is None
    assert closest(longest + "m", [longest]) is None
    assert closest("loss", [*(f"name {number}" for number in range(MOST_NAMES)), "losss"]) is None


@pytest.mark.parametrize("name", ["acc", "val_accuracy", "validation.f1", "top5_acc", "test-AUC"])
def test_a_metric_of_which_more_is_better_is_not_minimized_in_silence(name: str) -> None:
    def told(**searcher: Any) -> dict[str, str]:
        return warnings({**GOOD, "searcher": {**GOOD["searcher"], **searcher}})

    assert f"the search minimizes {name!r}" in told(metric=name)["searcher.smaller_is_better"]
    assert "searcher.smaller_is_better" not in told(metric=name, smaller_is_better=True)
    assert "searcher.smaller_is_better" not in told(metric=name, smaller_is_better=False)
    several = [{"name": "loss"}, {"name": name}]
    assert "searcher.metrics[1].smaller_is_better" in told(metrics=several)


@pytest.mark.parametrize(
    "name", ["loss", "1 - accuracy", "accuracy_error", "neg_f1", "accepted", "recall_loss", "faces"]
)
def test_other_metrics_are_minimized_without_a_word(name: str) -> None:
    assert "searcher.smaller_is_better" not in warnings({**GOOD, "searcher": {**GOOD["searcher"], "metric": name}})
