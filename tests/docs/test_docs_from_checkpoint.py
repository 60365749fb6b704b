"""The page "From checkpoint to production": its commands, in order, in a real cluster; and a folder as a version."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from docs_snippets import DOCS, blocks

from detlab.client import Client
from testbed.cluster import Cluster

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]

PAGE = DOCS / "how-to" / "from-checkpoint-to-production.md"
TRIAL = """
import detlab as det

with det.core.init() as core:
    for step in (1, 2):
        core.train.report_validation_metrics(step, {"accuracy": step / 10, "loss": 1 / step})
        metadata = {"steps_completed": step, "data_digests": {"train": "sha256:aa"}}
        with core.checkpoint.store_path(metadata) as (folder, _):
            (folder / "weights.txt").write_text(str(step))
"""
CONFIG = {
    "name": "for the registry",
    "entrypoint": ["python3", "train.py"],
    "searcher": {"name": "single", "metric": "accuracy", "smaller_is_better": False},
    "hyperparameters": {"lr": 0.05},
    "max_restarts": 0,
}


def test_the_commands_of_the_page_run_as_printed(docs_cluster: Cluster, tmp_path: Path) -> None:
    with Client(docs_cluster.url, docs_cluster.token) as client:
        experiment = client.create_experiment(CONFIG, files={"train.py": TRIAL})
        assert experiment.wait(120) == "COMPLETED", docs_cluster.logs()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**docs_cluster.environment, "DET_URL": docs_cluster.url, "DET_TOKEN": docs_cluster.token, "PATH": path}

    def ended(line: str) -> subprocess.CompletedProcess[str]:
        words = ["sh", "-c", line]
        return subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)

    def run(line: str) -> str:
        done = ended(line)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "model.safetensors").write_bytes(b"x")
    lines = [line for block in blocks(PAGE, "sh") for line in block.text.splitlines()]
    said: dict[str, str] = {}
    for line in lines:
        said[line] = run(line.replace("--experiment 7", f"--experiment {experiment.id}"))
        if "register-version" in line:
            made = json.loads(run("det model register-version digits --folder exported --json"))
    assert (made["version"], made["format"], made["lineage"]["experiment_name"]) == (
        2,
        "safetensors",
        "register digits",
    )
    assert "0.2" in said["det model compare digits staging latest"]
    assert "digits" in said["det model best accuracy --where 'label = vision and dataset = v3'"]
    assert "beats 1.1.0" in said["det model history digits"]
    version = json.loads(run("det model describe digits@production --json"))
    assert (version["version"], version["semver"], version["labels"]) == (1, "1.2.0", ["production", "staging"])
    lineage = version["lineage"]
    assert (lineage["steps_completed"], lineage["metrics"]["accuracy"]) == (2, 0.2)
    assert lineage["environment"]["python"].startswith("3.")
    assert "detlab" in lineage["environment"]
    assert lineage["data"] == {"train": "sha256:aa"}
    assert (tmp_path / "serving" / "weights.txt").read_text() == "2"
    refused = ended("det model search --where 'label ='")
    assert refused.returncode == 2
    assert "column 8" in refused.stderr
