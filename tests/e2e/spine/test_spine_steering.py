"""Promotion, populations and steering with real trials: slots are freed by a pause, clones train on, det steers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from spine_lab import Lab

from detlab.schemas.wire import TrialState

pytestmark = pytest.mark.hub

TIMED = {"metric": "error", "smaller_is_better": True, "time_metric": "step"}
SPACE = {"x": {"type": "double", "minval": 0.1, "maxval": 1.0}, "steps": 50, "pause": 0.02, "save_every": 1}


def config(searcher: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A search over `toy.py`."""
    return {
        "name": "steered",
        "entrypoint": ["python3", "toy.py"],
        "searcher": TIMED | searcher,
        "hyperparameters": SPACE,
        "max_restarts": 0,
        "reproducibility": {"experiment_seed": 11},
        **more,
    }


def det(lab: Lab, *arguments: str) -> str:
    """What `det` prints."""
    return lab.cluster.det(*arguments).stdout


def test_a_promoted_trial_trains_on_from_where_it_was_paused(lab: Lab) -> None:
    rungs = {"num_rungs": 2, "max_time": 6, "divisor": 3, "max_trials": 3, "max_concurrent_trials": 1}
    ended = lab.completed(lab.submit(config({"name": "asha", **rungs})), 90)
    trials = ended.list_trials()
    [promoted] = [trial for trial in trials if trial.view.steps_completed >= 6]
    assert promoted.view.run == 2, "it was paused and resumed"
    assert lab.steps(promoted) == list(range(1, promoted.view.steps_completed + 1)), "no step was trained again"
    starts = [int(more[0]) for _, _, more in lab.journal(promoted, "start")]
    assert len(starts) == 2
    assert starts[0] == 0
    assert starts[1] >= 2
    assert all(trial.state is TrialState.COMPLETED for trial in trials)


def test_a_clone_starts_from_its_parents_checkpoint(lab: Lab) -> None:
    population = {
        "name": "pbt",
        "population_size": 2,
        "num_rounds": 2,
        "length_per_round": 2,
        "replace_function": {"truncate_fraction": 0.5},
    }
    ended = lab.completed(lab.submit(config(population)), 90)
    [clone] = [trial for trial in ended.list_trials() if trial.view.index == 2]
    [start] = [int(more[0]) for _, _, more in lab.journal(clone, "start")]
    assert start >= 2


def test_det_search_steers_and_tells(lab: Lab) -> None:
    searcher = {"name": "random", "max_trials": 1, "max_concurrent_trials": 1}
    item = lab.submit(config(searcher, hyperparameters=SPACE | {"steps": 2}), activate=False)
    key = str(item.id)
    assert f"Experiment {key}: extended by 1 trial" in det(lab, "search", "extend", key, "--trials", "1")
    point = json.dumps({**SPACE, "x": 0.5, "steps": 2})
    assert f"Experiment {key}: 1 point added" in det(lab, "search", "add", key, point)
    item.activate()
    ended = lab.completed(item, 60)
    assert len(ended.list_trials()) == 3
    assert 0.5 in [trial.hparams["x"] for trial in ended.list_trials()]
    journal = json.loads(det(lab, "search", "journal", key, "--json"))
    assert [one["event"]["author"] for one in journal if "author" in one["event"]] == [lab.cluster.user] * 2
    assert "3 of 3 trials made, 100% done; the search is over" in det(lab, "search", "replay", key)
    first = json.loads(det(lab, "search", "replay", key, "--at", "1", "--json"))
    assert len(first["trials"]) == 1
    assert len(ended.search_journal()) == len(journal)
    assert "extended: 1 further trial" in det(lab, "search", "show", key)
    again = ended.clone({"searcher.max_trials": 2}, name="again", activate=False)
    assert (again.view.bundle, again.view.trials_total) == (ended.view.bundle, 2)


def test_a_policy_stops_all_ranks_and_tells_its_evidence_and_a_dry_run_only_notes(lab: Lab) -> None:
    policies = [
        {"name": "no_improvement", "patience": 3},
        {"name": "threshold", "lower": 0.6, "dry_run": True},
    ]
    ranks = ["python3", "-m", "detlab.launch.torch_distributed", "two_stop.py"]
    searched = config({"name": "single"}, entrypoint=ranks, resources={"slots_per_trial": 2}, stopping=policies)
    ended = lab.completed(lab.submit(searched), 90)
    [trial] = ended.list_trials()
    assert trial.state is TrialState.COMPLETED
    assert "no_improvement" in trial.view.stop_evidence
    said = sorted(line.text for line in trial.logs() if "leaves at step" in line.text)
    assert [line.split(" leaves")[0] for line in said] == ["rank 0", "rank 1"]
    assert len({line.rpartition(" ")[2] for line in said}) == 1, "all ranks leave at the same step"
    assert "no_improvement" in det(lab, "trial", "describe", str(trial.id))
    noted = [one for entry in ended.search_journal() for one in entry.decisions if one["type"] == "would_stop"]
    assert len(noted) == 1
    assert "threshold" in noted[0]["evidence"]
