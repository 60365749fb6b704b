"""What callers may say about artifacts, for the tests that look at all routes, and artifacts in a real cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from detlab.client import Artifact, Client
from testbed.cluster import Cluster

pytestmark = pytest.mark.hub

SAID = {
    "GET artifacts": {"who": ["read"], "query": ["after", "kind", "limit", "name", "owner", "workspace"]},
    "DELETE artifacts/{artifact}": {"who": ["write"], "query": ["force"]},
    "POST artifacts/{artifact}/edit": {"who": ["write"], "body": ["description", "name", "workspace"]},
    "GET artifacts/{artifact}/versions": {"who": ["read", "task"], "query": ["after", "limit"]},
    "POST artifacts/{artifact}/versions": {
        "who": ["task", "write"],
        "body": [
            "aliases",
            "comment",
            "description",
            "files",
            "files.digest",
            "files.path",
            "files.size",
            "files.uri",
            "kind",
            "metadata.*",
            "run",
            "workspace",
        ],
    },
    "DELETE artifacts/{artifact}/versions/{version}": {"who": ["write"], "query": ["force"]},
    "POST artifacts/{artifact}/versions/{version}/edit": {
        "who": ["write"],
        "body": ["add_aliases", "comment", "remove_aliases", "remove_metadata", "set_metadata.*"],
    },
    "GET artifacts/{artifact}/versions/{version}/file": {"who": ["read", "task"], "query": ["path"]},
    "GET artifacts/{artifact}/versions/{version}/files": {"who": ["read", "task"], "query": ["after", "limit"]},
    "POST artifacts/{artifact}/versions/{version}/use": {"who": ["task", "write"], "body": ["run"]},
    "GET runs/{run_id}/artifacts": {"who": ["read"], "query": ["skip"]},
}

VALID_BODIES = {
    "artifact.log": {
        "files": [
            {
                "path": "a",
                "size": 1,
                "digest": "sha256:0000000000000000000000000000000000000000000000000000000000000000",
            }
        ]
    },
    "artifact.create": {
        "files": [
            {
                "path": "a",
                "size": 1,
                "digest": "sha256:0000000000000000000000000000000000000000000000000000000000000000",
            }
        ]
    },
    "artifact.use": {},
    "artifact.edit": {"description": "x"},
    "artifact.move": {"name": "other"},
}

SCRIPT = """
import detlab as det

with det.core.init() as core:
    folder = core.artifacts.use("raw").download("raw")
    (folder / "a.txt").rename("made.txt")
    core.artifacts.log("made.txt", name="made", type="result")
    core.train.report_validation_metrics(1, {"x": 1.0})
"""
CONFIG = {
    "name": "artifacts",
    "entrypoint": [sys.executable, "train.py"],
    "searcher": {"name": "single", "metric": "x", "max_length": 1},
    "max_restarts": 0,
}


def test_a_trial_uses_an_artifact_and_logs_another(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    with Client(cluster.url, cluster.token) as client:
        raw = Artifact("raw")
        raw.add_file(tmp_path / "a.txt")
        client.log_artifact(raw)
        experiment = client.create_experiment(CONFIG, files={"train.py": SCRIPT})
        assert experiment.wait(60) == "COMPLETED", cluster.logs()
        (trial,) = experiment.list_trials()
        made = client.get_artifact("made")
        assert made.view.logged_by == [f"{trial.id:032x}"]
        assert client.get_artifact("raw").view.used_by == made.view.logged_by
        assert (made.download(tmp_path / "got") / "made.txt").read_text() == "a"
