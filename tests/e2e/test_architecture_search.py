"""examples/architecture_search: every network of its space can be trained, and the search runs on a real cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from spine_lab import Lab

from detlab.schemas import expconf
from detlab.schemas.space import Space
from detlab_hub.core.searchers.randomness import SearchRandom

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "architecture_search"
BUILD_ALL = """
import json, sys, torch
from train import PIXELS, build
for hparams in json.load(sys.stdin):
    assert build(hparams)(torch.zeros(3, PIXELS)).shape == (3, 10)
    print(hparams["kind"])
"""


def config() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((EXAMPLE / "search.yaml").read_text(encoding="utf-8"))
    return loaded


def test_every_network_of_the_space_can_be_built() -> None:
    resolved = expconf.resolve(config())
    space, rng = Space(resolved["hyperparameters"], resolved["searcher"]["require"]), SearchRandom(1)
    points = json.dumps([space.sample(rng) for _ in range(200)])
    done = subprocess.run(
        [sys.executable, "-c", BUILD_ALL],
        cwd=EXAMPLE,
        input=points,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"dense", "conv"}


def test_script_trains_off_the_cluster() -> None:
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=EXAMPLE, capture_output=True, text=True, timeout=120, check=True
    )
    assert "accuracy" in done.stdout + done.stderr


def test_search_trains_networks_of_both_families(lab: Lab) -> None:
    wish = config()
    wish["hyperparameters"]["epochs"] = 2
    wish["searcher"] |= {"max_trials": 4, "startup_trials": 3}
    wish["environment"] = {"environment_variables": ["OMP_NUM_THREADS=1"]}
    experiment = lab.completed(lab.client.create_experiment(wish, EXAMPLE), 180)
    trials = sorted(experiment.list_trials(), key=lambda trial: trial.id)
    assert len(trials) == 4
    points = [trial.hparams for trial in trials]
    assert points[0]["dense"] == {"layers": 1, "layer_1": {"width": 64, "act": "relu"}}
    assert points[1]["conv"] == {"channels": 16, "kernel": 3, "pooled": True}
    assert all((point["kind"] == "dense") == ("dense" in point) != ("conv" in point) for point in points)
    best = [trial.view.best_validation for trial in trials]
    assert all(value is not None and value > 0.3 for value in best), best
