"""Hyperband, BOHB, DEHB and PB2 against their papers: bracket sizes, what models learn from, who descends from whom."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from detlab.schemas.expconf import BOHBConfig, HyperbandConfig
from detlab_hub.core.searchers import (
    CheckpointCommitted,
    CreateTrial,
    Decision,
    Question,
    Searcher,
    SearcherConfigError,
    SetPoint,
    SpaceEdited,
    Started,
    SteeringRefused,
    Suggest,
    TrialExited,
    TrialPaused,
    TrialPlaced,
    ValidationReported,
    make_searcher,
)
from detlab_hub.core.searchers.halving import bohb
from detlab_hub.core.searchers.halving.hyperband import bracket_sizes
from detlab_hub.core.searchers.model_based import samplers
from detlab_hub.core.searchers.model_based.method import TPE
from detlab_hub.core.searchers.model_based.records import Record
from detlab_hub.core.searchers.objectives import Score
from detlab_hub.core.searchers.population import bandit
from detlab_hub.core.searchers.population.dehb import jobs_of
from detlab_hub.core.searchers.randomness import SearchRandom
from detlab_hub.core.searchers.scores import comparable
from detlab_hub.testing.searchers import drive

SPACE: dict[str, Any] = {"x": {"type": "double", "minval": 0.0, "maxval": 1.0}}
BLOCK = {"metric": "loss", "time_metric": "step", "max_time": 9, "divisor": 3}


def test_hyperband_brackets_have_the_sizes_of_the_paper() -> None:
    assert bracket_sizes(5, 3) == [81, 34, 15, 8, 5], "Li et al., algorithm 1, with R = 81 and eta = 3"
    search = make_searcher({"name": "hyperband", **BLOCK}, SPACE, 1)
    assert search.trials_total == 9 + 5 + 3
    assert search.method.first_units == 1


def placed(search: Searcher, decisions: Sequence[Decision], tickets: list[int] | None = None) -> list[CreateTrial]:
    """Place the trials that are created, in their order; return those that have points then, and note questions."""
    found = []
    for trial in (one for one in decisions if isinstance(one, CreateTrial)):
        if not trial.later:
            found.append(trial)
            continue
        for decision in search.step(TrialPlaced(trial.request_id)):
            if isinstance(decision, SetPoint):
                found.append(replace(trial, hparams=decision.hparams, later=False))
            if isinstance(decision, Suggest) and tickets is not None:
                tickets.append(decision.ticket)
    return found


def reported(search: Searcher, created: list[CreateTrial], step: float, tickets: list[int] | None = None) -> None:
    """Let all trials report their x, in the order of their creation, until no new one comes."""
    for trial in created:
        created += placed(search, search.step(ValidationReported(trial.request_id, trial.hparams["x"], step)), tickets)


def test_bohb_asks_once_a_rung_has_results_and_learns_from_the_highest_that_has_enough() -> None:
    block = {"name": "bohb", **BLOCK, "max_rungs": 2, "max_trials": 40, "max_concurrent_trials": 8}
    search = make_searcher({**block, "random_fraction": 0.0}, SPACE, 3)
    created = placed(search, search.step(Started()))
    tickets: list[int] = []
    reported(search, created, 3, tickets)
    assert tickets, "the first rung has enough results"
    [question, *_] = search.questions()
    ended = bohb.ranked(question.known["results"])
    assert len(ended) >= 4, "two more than a model of one number needs"
    at = {record.at[0]: record.loss for record in ended}
    assert [at[x] for x in sorted(at)] == [float(rank) for rank in range(len(ended))], "ranks"
    points = [record.at[0] for record in ended]
    assert points == [trial.hparams["x"] for trial in created if trial.hparams["x"] in points], "order of creation"
    again = json.loads(json.dumps(question.known["results"]))
    assert bohb.ranked(again) == ended, "the same in the process that answers"


def test_what_has_diverged_is_told_as_the_worst_and_equals_itself_when_it_is_read_again() -> None:
    told = comparable(Score(0.0, (float("nan"), 0.5)))
    assert told == Score(0.0, (float("inf"), 0.5))
    assert comparable(Score(0.0, (float("-inf"),))) == Score(0.0, (float("inf"),))
    results = [(0, (0.1,), comparable(Score(0.0, (float("nan"),)))), (1, (0.2,), Score(0.0, (3.0,)))]
    assert [record.loss for record in bohb.ranked(json.loads(json.dumps(results)))] == [1.0, 0.0]


def test_bohb_fits_its_good_density_to_enough_results() -> None:
    """Falkner et al., section 4.1: the best 15%, but at least one more than there are hyperparameters."""
    good = {count: samplers.good_of(3)(count) for count in (2, 4, 19, 20, 40, 100)}
    assert good == {2: 2, 4: 3, 19: 3, 20: 3, 40: 6, 100: 15}
    block = {"name": "bohb", **BLOCK, "max_rungs": 2, "max_trials": 40, "random_fraction": 0.0}
    search = make_searcher(block, SPACE, 3)
    created = placed(search, search.step(Started()))
    tickets: list[int] = []
    reported(search, created, 3, tickets)
    assert search.questions()[0].known["options"]["fewest_good"] == 2


def test_bohb_refuses_a_fraction_above_one() -> None:
    with pytest.raises(SearcherConfigError, match=r"searcher\.random_fraction: must be from 0 to 1, is 2"):
        make_searcher({"name": "bohb", **BLOCK, "random_fraction": 2}, SPACE, 1)


def test_dehb_gives_trials_out_in_the_order_of_the_brackets() -> None:
    jobs = jobs_of(3, 3)
    levels = [level for level, _ in jobs]
    assert levels == [0] * 9 + [1] * 3 + [2] + [1] * 5 + [2] + [2] * 3
    assert jobs[9:12] == [(1, 0), (1, 1), (1, 2)]


def test_dehb_first_bracket_promotes_the_best_and_later_ones_descend_from_them() -> None:
    block = {"name": "dehb", **BLOCK, "max_trials": 60, "max_concurrent_trials": 1}
    early: list[float] = []
    late: list[float] = []
    for seed in range(1, 25):
        search = make_searcher(block, SPACE, seed)
        created = placed(search, search.step(Started()))
        reported(search, created, 9)
        points = [trial.hparams["x"] for trial in created]
        assert len(points) == 60
        assert points[9:12] == pytest.approx(sorted(points[:9])[:3]), "the best third of rung 0, as they are"
        assert points[12] == pytest.approx(min(points[:9]))
        early += points[:9]
        late += [point for point, (level, _) in zip(points[22:], jobs_of(3, 3), strict=False) if level == 0]
    assert np.mean(late) < np.mean(early), "evolution has found smaller losses"


def test_dehb_fills_a_rung_only_when_the_one_below_has_its_results() -> None:
    search = make_searcher({"name": "dehb", **BLOCK, "max_trials": 60, "max_concurrent_trials": 16}, SPACE, 3)
    created = placed(search, search.step(Started()))
    assert len(created) == 9
    reported(search, created[:8], 9)
    last = search.step(ValidationReported(created[8].request_id, 0.5, 9.0))
    assert [one.index for one in last if isinstance(one, CreateTrial)] == [9, 10, 11]


def test_pb2_asks_for_its_clones_with_what_each_trial_gained_and_pins_their_parents_meanwhile() -> None:
    block = {**BLOCK, "name": "pb2", "population_size": 4, "num_rounds": 3, "length_per_round": 3}
    block["replace_function"] = {"truncate_fraction": 0.25}
    search = make_searcher(block, SPACE, 3)
    created = placed(search, search.step(Started()))
    last = []
    for trial in created:
        search.step(ValidationReported(trial.request_id, trial.hparams["x"], 3.0))
        search.step(CheckpointCommitted(trial.request_id, f"of {trial.index}", 3))
        last = search.step(TrialPaused(trial.request_id))
    assert [decision for decision in last if isinstance(decision, Suggest)] == [Suggest(0, 1)]
    best = min(created, key=lambda trial: trial.hparams["x"])
    [question] = search.questions()
    assert question.known["parents"] == [best.hparams]
    assert [gain.gain for gain in question.known["gains"]] == sorted((-t.hparams["x"] for t in created), reverse=True)
    assert f"of {best.index}" in search.needs_checkpoints()


def test_pb2_bandit_looks_where_trials_gained_and_keeps_choices() -> None:
    space = {**SPACE, "act": {"type": "categorical", "vals": ["relu", "tanh"]}}
    draw = SearchRandom(1)
    gains = [((0, x), 1, -abs(x - 0.8)) for x in (draw.uniform(0.0, 1.0) for _ in range(40))]
    known = {"gains": gains, "round": 2, "parents": [{"x": 0.1, "act": "tanh"}] * 3}
    found = bandit.suggest(Question(0, 3, 5, space, known))
    assert [point["act"] for point in found] == ["tanh"] * 3
    assert all(abs(point["x"] - 0.8) < 0.15 for point in found)
    assert found == bandit.suggest(Question(0, 3, 5, space, known)), "the same for the same seed"


@pytest.mark.parametrize("worst", [-1e30, -1.7e308])
def test_pb2_bandit_learns_from_rounds_in_which_a_trial_exploded(worst: float) -> None:
    draw = SearchRandom(1)
    gains = [((x,), 1, -abs(x - 0.8)) for x in (draw.uniform(0.0, 1.0) for _ in range(40))]
    known = {"gains": [((0.1,), 1, worst), *gains], "round": 2, "parents": [{"x": 0.1}] * 3}
    found = bandit.suggest(Question(0, 3, 5, SPACE, known))
    assert all(abs(point["x"] - 0.8) < 0.15 for point in found)


def test_pb2_trial_that_failed_has_gained_nothing() -> None:
    """A trial that ends early after its report counts as the worst: by a number that is no loss."""
    block = {**BLOCK, "name": "pb2", "population_size": 8, "num_rounds": 4, "length_per_round": 2}
    block["replace_function"] = {"truncate_fraction": 0.3}
    for seed in range(12):
        driven = drive(block, SPACE, seed, steering=0.1, accidents=0.05)
        assert all(abs(gain.gain) < 10 for gain in driven.search.method.state()["gains"])


@pytest.mark.parametrize("chosen", ["gp", "tpe"])
def test_bayesian_asks_what_the_method_that_it_chose_asks(chosen: str) -> None:
    trials = 20 if chosen == "gp" else 301
    asked = []
    for name in ("bayesian", chosen):
        block = {"name": name, "metric": "loss", "max_trials": trials, "max_concurrent_trials": 2, "startup_trials": 2}
        search = make_searcher(block, SPACE, 1)
        first, _ = placed(search, search.step(Started()))
        search.step(ValidationReported(first.request_id, 0.5))
        assert placed(search, search.step(TrialExited(first.request_id))) == []
        asked.append(search.questions())
    assert len(asked[0]) == 1
    assert asked[0] == asked[1]


def test_bayesian_says_which_sampler_it_chose_and_gp_when_it_hands_over() -> None:
    block = {"name": "bayesian", "metric": "loss", "max_trials": 20}
    assert make_searcher(block, SPACE, 1).method.notes() == ["searcher bayesian: suggestions come from gp"]
    choices = {"x": {"type": "categorical", "vals": [1, 2, 3]}}
    for trials, sampler in ((50, "gp"), (51, "tpe")):
        [note] = make_searcher({**block, "max_trials": trials}, choices, 1).method.notes()
        assert note.endswith(f" {sampler}")
    many = make_searcher({**block, "max_trials": 400}, SPACE, 1)
    assert many.method.notes() == ["searcher bayesian: suggestions come from tpe"]
    gp = make_searcher(
        {**block, "name": "gp", "max_trials": 302, "max_concurrent_trials": 0, "startup_trials": 302}, SPACE, 1
    )
    created = placed(gp, gp.step(Started()))
    for trial in created[:300]:
        gp.step(ValidationReported(trial.request_id, 0.5))
        gp.step(TrialExited(trial.request_id))
    assert gp.method.notes() == []
    gp.step(TrialExited(created[300].request_id))
    [note] = gp.method.notes()
    assert "tpe has suggested since 300 results" in note


@pytest.mark.parametrize("name", ["bohb", "pb2", "dehb", "tpe"])
def test_an_edit_of_the_space_is_taken_or_refused_but_breaks_nothing(name: str) -> None:
    block: dict[str, Any] = {**BLOCK, "name": name, "max_trials": 20}
    if name == "tpe":
        block = {"name": name, "metric": "loss", "max_trials": 20}
    if name == "pb2":
        block |= {"population_size": 2, "num_rounds": 2, "length_per_round": 3}
    search = make_searcher(block, SPACE, 3)
    search.step(Started())
    before = search.fingerprint()
    with pytest.raises(SteeringRefused):
        search.step(SpaceEdited({"y": {"type": "double", "minval": 0.0, "maxval": 1.0}}))
    assert search.fingerprint() == before
    if name != "dehb":
        search.step(SpaceEdited({"x": {"type": "double", "minval": 0.5, "maxval": 1.0}}))
        assert search.space["x"]["minval"] == 0.5


@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
def test_suggestions_after_an_edit_lie_in_the_new_bounds_whatever_was_found_outside(sampler: str) -> None:
    ended = [Record((x / 10,), "done", x / 10, number) for number, x in enumerate(range(10))]
    space = {"x": {"type": "double", "minval": 0.5, "maxval": 0.9}}
    known = {"options": {"sampler": sampler}, "startup": 1, "ended": ended, "running": [ended[0]]}
    points = TPE.suggest(Question(0, 5, 3, space, known))
    assert len(points) == 5
    assert all(0.5 <= point["x"] <= 0.9 for point in points)


def test_hyperband_and_bohb_keep_as_many_brackets_as_they_are_told_those_that_stop_earliest() -> None:
    rounds = {"name": "hyperband", **BLOCK, "max_brackets": 2}
    assert make_searcher(rounds, SPACE, 1).trials_total == 9 + 5
    for name, given, brackets in (("hyperband", {}, 3), ("bohb", {}, 3), ("bohb", {"max_brackets": 2}, 2)):
        search = make_searcher({"name": name, **BLOCK, "max_trials": 40, **given}, SPACE, 1)
        assert len(search.method.state()["brackets"]) == brackets, "a journal from before the field has all"
    assert BOHBConfig.model_validate({"name": "bohb", **BLOCK, "max_trials": 40}).max_brackets == 2
    assert HyperbandConfig.model_validate({"name": "hyperband", **BLOCK}).max_brackets is None
