"""`det.experiment.create`: a function as a trial, from the submission to what it reports."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trial_functions import broken, quality, several

import detlab as det
from detlab.errors import ConfigError
from detlab.remote_functions import FunctionNotShipped
from detlab.run.function import arguments_for, metrics_of
from detlab.testing.master import MasterDouble
from testbed.fake_master.api import FakeMaster
from testbed.task_dirs import make_task_dir

CONFIG = {
    "hyperparameters": {"lr": 0.5, "depth": 3, "other": 1},
    "searcher": {"name": "single", "metric": "quality", "max_time": 1, "time_metric": "epochs"},
}


@pytest.fixture
def run(runner: Any, tmp_path: Path) -> Callable[..., tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]]:
    """Submits a function and runs what was submitted as a trial; returns how it ended and what it reported."""

    def go(function: Any) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
        made = det.experiment.create(CONFIG, function)
        master: FakeMaster = runner.master
        config = made.view.config or {}
        with MasterDouble() as api:
            root = make_task_dir(
                tmp_path / "trial", api.url, storage={"type": "shared_fs", "host_path": str(tmp_path / "checkpoints")}
            )
            info = json.loads((root / "info.json").read_text())
            info |= {"hparams": CONFIG["hyperparameters"], "config": {**info["config"], "searcher": CONFIG["searcher"]}}
            (root / "info.json").write_text(json.dumps(info))
            bundle = master.bundles[master.experiment(made.id).bundle]
            with tarfile.open(fileobj=io.BytesIO(bundle)) as archive:
                archive.extractall(root / "work")
            env = {key: value for key, value in os.environ.items() if not key.startswith("DET_")}
            command = [sys.executable, *config["entrypoint"][1:]]
            done = subprocess.run(
                command,
                cwd=root / "work",
                env={**env, "DET_TASK_DIR": str(root)},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        spool = root / "spool" / "metrics.jsonl"
        records = [json.loads(line) for line in spool.read_text().splitlines()] if spool.exists() else []
        return done, [record for record in records if record["kind"] == "metrics"]

    return go


def test_a_number_is_the_searchers_metric(run: Any) -> None:
    done, records = run(quality)
    assert done.returncode == 0, done.stderr
    assert "lr 0.5" in done.stdout
    assert [(one["group"], one["steps_completed"], one["metrics"]) for one in records] == [
        ("validation", 1, {"quality": 4.0, "epochs": 1})
    ]


def test_a_function_may_report_by_itself(run: Any) -> None:
    done, records = run(several)
    assert done.returncode == 0, done.stderr
    assert [(one["group"], one["steps_completed"], one["metrics"]) for one in records] == [
        ("training", 4, {"loss": 0.5}),
        ("validation", 5, {"quality": 0.5, "epochs": 7}),
    ]


def test_what_it_raises_fails_the_trial_with_its_lines(run: Any) -> None:
    done, records = run(broken)
    assert done.returncode == 1
    assert records == []
    assert "RuntimeError: no good" in done.stderr
    assert 'raise RuntimeError("no good")' in done.stderr


def test_the_config_names_no_program(runner: Any) -> None:
    with pytest.raises(ConfigError, match=r"entrypoint: is made of quality\(\): leave it out"):
        det.experiment.create({**CONFIG, "entrypoint": "x"}, quality)
    with pytest.raises(FunctionNotShipped):
        det.experiment.create(CONFIG, 3)  # type: ignore[arg-type]
    made = det.experiment.create({**CONFIG, "resources": {"slots_per_trial": 2}}, quality)
    assert made.view.config["entrypoint"][:3] == ["python3", "-m", "detlab.launch.torch_distributed"]
    assert made.name == "quality"


def test_hyperparameters_go_where_they_are_named() -> None:
    assert arguments_for(quality, {"lr": 1, "x": 2}) == {"lr": 1}
    assert arguments_for(lambda **all_of_them: None, {"lr": 1, "x": 2}) == {"lr": 1, "x": 2}
    with pytest.raises(ConfigError) as raised:
        arguments_for(lambda a, b, core_context: None, {"x": 2})
    assert [problem.path for problem in raised.value.problems] == ["hyperparameters.a", "hyperparameters.b"]


def test_results_that_are_no_metrics_are_told() -> None:
    assert metrics_of(3, "loss") == {"loss": 3.0}
    assert metrics_of({"a": 1}, "loss") == {"a": 1}
    with pytest.raises(TypeError, match="it returned a list"):
        metrics_of([1], "loss")
