"""Media in a real cluster: a training logs them, its launcher sends them, its owner lists and downloads them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from detlab.client import Client
from testbed.cluster import Cluster

pytestmark = pytest.mark.hub

SAID = {
    "PUT task/media": {
        "who": ["task"],
        "query": ["caption", "key", "kind", "logged_at", "media_type", "place", "step"],
    },
    "GET trials/{trial_id}/media": {"who": ["read"], "query": ["after", "at", "key", "kind", "limit", "step"]},
    "GET trials/{trial_id}/media/keys": {"who": ["read"], "query": ["skip"]},
    "GET trials/{trial_id}/media/steps": {"who": ["read"], "query": ["after", "key"]},
    "GET trials/{trial_id}/media/{media_id}/document": {"who": ["read"], "query": ["scripts"]},
}

SCRIPT = """
import detlab as det

with det.core.init() as core:
    for step in (1, 2, 3):
        core.train.report_media(step, {
            "samples": [det.Image([[0, step], [step, 0]], caption=f"{place}") for place in range(4)],
            "table": det.Table([{"step": step, "loss": 1 / step}]),
            "said": f"step {step}",
            "bad": object(),
        })
    core.train.report_validation_metrics(3, {"x": 1.0})
"""
CONFIG = {
    "name": "media",
    "entrypoint": [sys.executable, "train.py"],
    "searcher": {"name": "single", "metric": "x", "max_length": 3},
    "max_restarts": 0,
}


def test_what_a_training_logs_is_there_when_it_has_ended(cluster: Cluster, tmp_path: Path) -> None:
    with Client(cluster.url, cluster.token) as client:
        experiment = client.create_experiment(CONFIG, files={"train.py": SCRIPT})
        assert experiment.wait(60) == "COMPLETED", cluster.logs()
        (trial,) = experiment.list_trials()
        found = trial.list_media()
        assert [(one.step, one.key, one.place) for one in found if one.key == "samples"] == [
            (step, "samples", place) for step in (1, 2, 3) for place in range(4)
        ]
        assert {one.key: one.count for one in trial.media_keys()} == {"samples": 12, "table": 3, "said": 3}
        (text,) = trial.list_media(key="said", at=2)
        assert trial.read_media(text) == b"step 2"
        paths = trial.download_media(tmp_path / "media", found)
        assert len({path.name for path in paths}) == 18
        assert trial.download_media(tmp_path / "media") == paths, "again: nothing twice"
        said = "".join(line.text for line in trial.iter_logs())
        assert said.count("'bad' (object) was not logged") == 1
