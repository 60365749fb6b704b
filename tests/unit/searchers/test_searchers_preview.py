"""`det preview-search` as a user runs it."""

import json

import pytest
from click.testing import CliRunner

from detlab_hub.preview import counted, preview_search

HALVING = """
hyperparameters:
  lr: {type: log, base: 10, minval: -4, maxval: -1}
  net: {width: {type: int, minval: 8, maxval: 64}}
searcher:
  name: async_halving
  metric: loss
  num_rungs: 3
  divisor: 3
  max_trials: 6
  max_concurrent_trials: 2
  time_metric: epochs
  max_time: 9
reproducibility: {experiment_seed: 11}
"""
RANDOM = """
hyperparameters: {x: {type: double, minval: 0, maxval: 1}}
searcher: {name: random, metric: loss, max_trials: 4}
"""
OBJECTIVES = """
from neighbour import PENALTY

class InvalidHP(Exception):
    pass

def worse(trial_index, hparams, step):
    print("objectives may print")
    return trial_index + PENALTY / step

def fails(trial_index, hparams, step):
    if trial_index == 1 and step == 3:
        raise ValueError("boom")
    if trial_index == 2:
        return "much"
    return 1.0

def invalid_once(trial_index, hparams, step):
    hparams.clear()
    if trial_index == 0:
        raise InvalidHP("too wide")
    return 1.0

def always_invalid(trial_index, hparams, step):
    raise InvalidHP("no point is good")

def nan(trial_index, hparams, step):
    return float("nan")

def two(trial_index, hparams):
    return 0.0
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "halving.yaml").write_text(HALVING)
    (tmp_path / "random.yaml").write_text(RANDOM)
    (tmp_path / "toy.py").write_text(OBJECTIVES)
    (tmp_path / "neighbour.py").write_text("PENALTY = 0.5\n")

    def invoke(*arguments):
        return CliRunner().invoke(preview_search, list(arguments), catch_exceptions=False)

    return invoke


def trials(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["trials"]


def ends(result):
    return [(t["index"], t["steps"], t["ended"]) for t in trials(result)]


def test_searchers_preview_json_of_a_halving_search(run):
    """Each trial is worse than the one before: the first trains to the top, all others stop at rung 1."""
    result = run("halving.yaml", "--objective", "toy.py:worse", "--json")
    assert ends(result) == [(0, 9, "stopped"), *[(i, 1, "stopped") for i in range(1, 6)]]
    assert set(trials(result)[0]) >= {"index", "hparams", "steps", "ended"}
    assert "objectives may print" not in result.stdout
    assert result.stderr.count("objectives may print") == 9 + 5  # one call per step trained


def test_searchers_preview_reports_at_multiples_of_n_and_at_the_end(run):
    """Reports at 4, 8 and 9: the last one reaches the top rung."""
    result = run("halving.yaml", "--objective", "toy.py:worse", "--report-every", "4", "--json")
    assert ends(result) == [(0, 9, "stopped"), *[(i, 4, "stopped") for i in range(1, 6)]]


def test_searchers_preview_shows_all_trials_where_the_first_rung_does_not_divide_max_time(run, tmp_path):
    """The first rung is 6 of 27 epochs: without a report at 27 none left its bracket, and 2 of 6 were shown."""
    (tmp_path / "odd.yaml").write_text(
        "entrypoint: model_def:T\nhyperparameters: {lr: {type: double, minval: 0.1, maxval: 1}}\n"
        "searcher: {name: adaptive_asha, metric: loss, time_metric: epoch, max_time: 27, max_trials: 6,"
        " max_concurrent_trials: 2}\n"
    )
    assert len(trials(run("odd.yaml", "--json"))) == 6


def test_searchers_preview_length_ends_what_no_searcher_stops(run):
    result = run("halving.yaml", "--objective", "toy.py:worse", "--length", "2", "--json")
    assert ends(result)[0] == (0, 2, "completed")
    assert ends(run("random.yaml", "--length", "7", "--json")) == [(i, 7, "completed") for i in range(4)]
    assert ends(run("random.yaml", "--json")) == [(i, 1, "completed") for i in range(4)]
    assert ends(run("random.yaml", "--report-every", "5", "--json")) == [(i, 5, "completed") for i in range(4)]


def test_searchers_preview_a_length_below_the_period_is_reported_once(run):
    result = run("halving.yaml", "--objective", "toy.py:worse", "--report-every", "50", "--length", "10", "--json")
    assert ends(result) == [(0, 10, "stopped"), *[(i, 10, "stopped") for i in range(1, 6)]]
    assert "objectives may print" in result.stderr


def test_searchers_preview_an_objective_that_raises_ends_the_trial(run):
    result = run("random.yaml", "--objective", "toy.py:fails", "--report-every", "1", "--length", "4", "--json")
    assert ends(result) == [(0, 4, "completed"), (1, 2, "error"), (2, 0, "error"), (3, 4, "completed")]
    assert "trial 1: ValueError: boom (toy.py, line 13)" in result.stderr
    assert "trial 2: returned 'much', which is not a number" in result.stderr


def test_searchers_preview_invalid_hp_is_replaced(run):
    result = run("random.yaml", "--objective", "toy.py:invalid_once", "--json")
    assert [t["ended"] for t in trials(result)] == ["error", *["completed"] * 4]
    assert trials(result)[0]["why"] == "invalid hyperparameters"
    assert all(t["hparams"] for t in trials(result))


def test_searchers_preview_a_search_that_cannot_end_gives_up(run):
    result = run("random.yaml", "--objective", "toy.py:always_invalid")
    assert result.exit_code == 1
    assert "401 trials were invalid and replaced; gave up" in result.stderr


def test_searchers_preview_nan_is_strict_json_and_ranks_worst(run):
    result = run("halving.yaml", "--objective", "toy.py:nan", "--json")
    assert [t["metric"] for t in trials(result)] == ["NaN"] * 6


def test_searchers_preview_seed_comes_from_option_config_or_zero(run):
    def points(*arguments):
        return [t["hparams"] for t in trials(run(*arguments, "--json"))]

    assert points("halving.yaml") == points("halving.yaml", "--seed", "11") != points("halving.yaml", "--seed", "0")
    assert points("random.yaml") == points("random.yaml", "--seed", "0")
    assert "previewing with seed 0" in run("random.yaml").stderr
    assert "previewing with seed" not in run("random.yaml", "--seed", "0").stderr


def test_searchers_preview_is_deterministic(run):
    assert run("halving.yaml", "--json").stdout == run("halving.yaml", "--json").stdout


def test_searchers_preview_table_and_summary(run):
    result = run("halving.yaml", "--objective", "toy.py:worse")
    assert result.exit_code == 0
    assert "net.width=" in result.stdout
    assert "stopped at the top rung (9 epochs)" in result.stdout
    assert "stopped at rung 1 of 3 (1 epoch)" in result.stdout
    assert "6 trials, 14 epochs in all: 26 % of the 54 of full training; stopped 5 at 1, 1 at 9 (top)." in result.stdout


def test_searchers_preview_says_why_a_policy_stops_a_trial_of_a_search_without_rungs(run, tmp_path):
    policy = "stopping: [{name: threshold, upper: 1}]\n"
    random = "searcher: {name: random, metric: loss, max_trials: 2}\n"
    (tmp_path / "stopping.yaml").write_text(
        "hyperparameters: {lr: {type: log, base: 10, minval: -4, maxval: -1}}\n" + random + policy
    )
    result = run("stopping.yaml", "--objective", "toy.py:worse", "--length", "9")
    assert "2 trials, 10 steps in all" in result.stdout
    assert "stopped by a policy 1; completed 1." in " ".join(result.stdout.split())


def test_searchers_preview_shows_all_objectives_and_the_size_of_the_pareto_front(run, tmp_path):
    text = (
        "searcher:\n  name: random\n  max_trials: 12\n"
        "  metrics: [{name: loss}, {name: speed, smaller_is_better: false}]\n"
        "hyperparameters: {lr: {type: double, minval: 0, maxval: 1}}\n"
    )
    path = tmp_path / "two.yaml"
    path.write_text(text)
    told = json.loads(run(str(path), "--json").stdout)
    values = [(one["metrics"]["loss"], one["metrics"]["speed"]) for one in told["trials"]]
    front = [index for index, (loss, speed) in enumerate(values) if not any(a < loss and b > speed for a, b in values)]
    assert sorted(told["pareto_front"]) == front
    assert 1 <= len(front) < 12
    shown = run(str(path)).stdout
    assert "last loss" in shown
    assert "last speed" in shown
    assert f"{len(front)} on the Pareto front of loss and speed" in " ".join(shown.split())


def test_searchers_preview_takes_several_metrics_and_constraints(run, tmp_path):
    more = "  metrics: [{name: loss}, {name: seconds}]\n  constraints: {memory: {max: 5}}"
    (tmp_path / "several.yaml").write_text(HALVING.replace("  metric: loss", more))
    assert "6 trials" in run("several.yaml").stdout


def test_searchers_preview_shows_one_trial_of_each_point_and_says_how_many_there_are(run, tmp_path):
    (tmp_path / "seeds.yaml").write_text(HALVING.replace("  divisor: 3", "  divisor: 3\n  seeds: 4"))
    result = run("seeds.yaml", "--objective", "toy.py:worse")
    assert "stopped at rung 1 of 3 (1 epoch)" in result.stdout
    assert "6 trials, 14 epochs in all" in result.stdout
    assert "; each of them is trained 4 times, with different seeds." in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("unit", "one"), [("epochs", "epoch"), ("batches", "batch"), ("steps", "step"), ("pass", "pass")]
)
def test_searchers_preview_one_of_a_unit_is_no_plural(unit, one):
    assert counted(1, unit) == f"1 {one}"
    assert counted(2, unit) == f"2 {unit}"


def test_searchers_preview_names_every_mistake_at_once(run, tmp_path):
    (tmp_path / "bad.yaml").write_text(
        "surprise: 1\n"
        "hyperparameters: {lr: {type: int, minval: 3, maxval: 1}}\n"
        "searcher: {name: random, max_trials: 0}\n"
    )
    result = run("bad.yaml", "--objective", "gone.py:f")
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    for start in ("surprise: ", "hyperparameters.lr: ", "searcher.max_trials: ", "--objective: there is no file"):
        assert any(line.startswith(start) for line in lines), (start, lines)
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("searcher: {name: random}\n", "searcher.max_trials: is required"),
        ("searcher: {name: async_halving, max_trials: 3}\n", "searcher.time_metric: is required"),
        ("hyperparameters: {}\n", "searcher: is required"),
        ("searcher: {name: adaptive}\n", "searcher.name: "),
        ("searcher: {name: grid}\nhyperparameters: {x: {type: double, minval: 0, maxval: 1}}\n", "count"),
        ("searcher: [\n", "line 2"),
        ("", "is empty"),
    ],
)
def test_searchers_preview_refuses_what_cannot_be_searched(run, tmp_path, text, complaint):
    (tmp_path / "bad.yaml").write_text(text)
    result = run("bad.yaml")
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_searchers_preview_refuses_a_missing_or_binary_config(run, tmp_path):
    assert run("nowhere.yaml").exit_code == 2
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    result = run("binary.yaml")
    assert result.exit_code == 2
    assert "not UTF-8" in result.stderr


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("toy.py", "not of the form FILE.py:function"),
        ("toy.py:", "not of the form FILE.py:function"),
        ("gone.py:f", "there is no file gone.py"),
        ("toy.py:wrose", "toy.py has no function 'wrose'; it defines worse, fails"),
        ("toy.py:PENALTY", "has no function 'PENALTY'"),
        ("toy.py:two", "must take (trial_index, hparams, step), but takes (trial_index, hparams)"),
        ("halving.yaml:f", "is not a Python file"),
        ("broken.py:f", "broken.py cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("broken.py:f", "(broken.py, line 2)"),
        ("syntax.py:f", "SyntaxError: "),
        ("syntax.py:f", "(syntax.py, line 1)"),
        ("exits.py:f", "SystemExit: 3 (exits.py, line 2)"),
    ],
)
def test_searchers_preview_refuses_an_unusable_objective(run, tmp_path, spec, complaint):
    (tmp_path / "broken.py").write_text("x = 1\nimport nowhere_at_all\n")
    (tmp_path / "syntax.py").write_text("def f(:\n")
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(3)\n")
    result = run("halving.yaml", "--objective", spec)
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_searchers_preview_hostile_hyperparameters_are_shown_as_text(run, tmp_path):
    (tmp_path / "hostile.yaml").write_text(
        'hyperparameters: {x: {type: categorical, vals: ["[bold]a", "[/]b"]}}\n'
        "searcher: {name: random, metric: m, max_trials: 8}\n"
    )
    result = run("hostile.yaml")
    assert result.exit_code == 0
    assert "x=[bold]a" in result.stdout
    assert "x=[/]b" in result.stdout


def test_searchers_preview_help_has_an_example(run):
    result = run("--help")
    assert result.exit_code == 0
    assert "det preview-search adaptive.yaml --objective toy.py:loss" in result.stdout


def test_searchers_preview_reads_standard_input_and_names_it():
    # `-` was refused as a file that does not exist, although `det config check -` reads it.
    def preview(text):
        return CliRunner().invoke(preview_search, ["-", "--json"], input=text, catch_exceptions=False)

    assert [trial["index"] for trial in json.loads(preview(RANDOM).stdout)["trials"]] == [0, 1, 2, 3]
    broken = preview("a: [")
    assert broken.exit_code == 2
    assert broken.stderr.startswith("standard input: line 1")


PBT = """
hyperparameters: {x: {type: double, minval: 0, maxval: 1}}
searcher:
  name: pbt
  metric: loss
  population_size: 4
  num_rounds: 3
  length_per_round: 2
  time_metric: epochs
  replace_function: {truncate_fraction: 0.25}
"""


def test_searchers_preview_of_a_population_has_rounds_and_parents(run, tmp_path):
    (tmp_path / "pbt.yaml").write_text(PBT)
    found = json.loads(run("pbt.yaml", "--json").stdout)["trials"]
    said = {one["why"] for one in found}
    assert "trained all rounds (6 epochs)" in said
    assert "replaced after round 1 of 3 (2 epochs)" in said
    clones = [one for one in found if "parent" in one]
    assert len(found) == 4 + len(clones)
    assert all(one["parent"] < one["index"] for one in clones)
    assert f"began as a clone of trial {clones[0]['parent']}" in " ".join(run("pbt.yaml").stdout.split())


def test_searchers_preview_names_the_budget_and_says_that_policies_see_one_report(run, tmp_path):
    budget = "budget: {slot_hours: 4, wall_clock: 2h}"
    text = RANDOM.replace("max_trials: 4}", f"max_trials: 4, {budget}}}") + "stopping: [{name: divergence}]\n"
    (tmp_path / "budget.yaml").write_text(text)
    told = run("budget.yaml").stderr
    assert "after 4 slot hours or 7200 s from the start of the first trial" in told
    assert "each trial reports once" in told
    assert "reports once" not in run("budget.yaml", "--length", "9").stderr


def test_a_search_of_a_billion_trials_is_refused_before_it_is_run(run, tmp_path):
    (tmp_path / "grid.yaml").write_text(
        "hyperparameters: {x: {type: double, minval: 0, maxval: 1, count: 1000000000}}\n"
        "searcher: {name: grid, metric: loss}\n"
    )
    result = run("grid.yaml")
    assert result.exit_code == 2
    assert "1,000,000,000 points" in result.output
    (tmp_path / "many.yaml").write_text(RANDOM.replace("max_trials: 4", "max_trials: 1000000000"))
    result = run("many.yaml")
    assert result.exit_code == 2
    assert "1,000,000,000 trials" in result.output


def test_searchers_preview_of_a_custom_search_says_that_its_class_runs_on_the_cluster(run, tmp_path):
    searcher = "searcher: {name: custom, metric: loss, entrypoint: 'mine:Mine'}"
    (tmp_path / "custom.yaml").write_text(f"{searcher}\nhyperparameters: {{x: {{type: int, minval: 1, maxval: 3}}}}\n")
    result = run("custom.yaml")
    assert result.exit_code != 0
    assert "decided by your class" in result.output


@pytest.mark.parametrize(
    ("searcher", "told"),
    [
        ("name: hyperband, max_trials: 5", "no trial is promoted, only those that begin with all of max_time reach it"),
        ("name: hyperband, max_trials: 6", None),
        ("name: hyperband, max_trials: 2, max_brackets: 1", "is 2 for 1 bracket: too few"),
        ("name: hyperband, max_trials: 81, max_brackets: 1", None),
        ("name: hyperband, max_brackets: 2", None),
        ("name: bohb, max_trials: 20", "too few for one that is promoted to the last rung, none reaches max_time"),
        ("name: bohb, max_trials: 150", None),
        ("name: bohb, max_trials: 2, max_brackets: 5, max_time: 1", None),
    ],
)
def test_hyperband_with_too_few_trials_for_its_brackets_is_warned_of(run, tmp_path, searcher, told):
    """It was said of `asha` alone."""
    length = "" if "max_time" in searcher else ", max_time: 81"
    (tmp_path / "h.yaml").write_text(
        "hyperparameters: {x: {type: double, minval: 0, maxval: 1}}\n"
        f"searcher: {{metric: loss, time_metric: epochs{length}, {searcher}}}\n"
    )
    result = run("--json", "h.yaml")
    assert result.exit_code == 0, result.output
    assert ("searcher.max_trials" in result.stderr) == (told is not None), result.stderr
    assert told is None or told in result.stderr
    steps = [trial["steps"] for trial in json.loads(result.stdout)["trials"]]
    assert ("none reaches" in (told or "") or "too few" in (told or "")) == (max(steps) < 81 and length != "")


@pytest.mark.parametrize(
    ("change", "needed"),
    [
        ({}, "or 9 or more max_trials"),
        ({"divisor: 3": "divisor: 2.5", "max_trials: 6": "max_trials: 7"}, "or 8 or more max_trials"),
        ({"max_trials: 6": "max_trials: 9"}, None),
        ({"num_rungs: 3": "num_rungs: 2"}, None),
        ({"num_rungs: 3": ""}, None),
        ({"num_rungs: 3": "variant: stopping\n  num_rungs: 3"}, None),
        ({"num_rungs: 3": "num_rungs: 90"}, "below 1 of `time_metric`"),
    ],
    ids=str,
)
def test_searchers_preview_warns_of_a_search_in_which_no_trial_comes_to_max_time(run, tmp_path, change, needed):
    text = HALVING.replace("async_halving", "asha")
    for old, new in change.items():
        text = text.replace(old, new)
    file = tmp_path / "asha.yaml"
    file.write_text(text)
    result = run("--json", str(file)) if needed is None else run(str(file))
    assert result.exit_code == 0, result.output
    warned = "none reaches max_time" in result.output + result.stderr or "below 1 of" in result.output
    assert warned == (needed is not None)
    assert needed is None or needed in result.output + result.stderr
    if needed is None:
        assert max(trial["steps"] for trial in json.loads(result.stdout)["trials"]) == 9
