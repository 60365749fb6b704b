"""`det.init(tensorboard="import")`: what a run's process writes for TensorBoard is logged, too."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_track_in_trial import task
from track_doubles import records_of

from detlab.media.signals import write_png
from detlab.track import current
from detlab.track.this_run import Run
from testbed.event_files import event, field, file_of, name, scalar, value_of

__all__ = ["task"]


def write(folder: Path, number: int = 0) -> None:
    """Write an event file of now, as a SummaryWriter of this process would."""
    folder.mkdir(parents=True, exist_ok=True)
    now = time.time()
    image = value_of("sample", field(4, field(4, write_png(1, 1, 1, [b"a"]))))
    events = [event(scalar("score", 0.5), scalar("loss", 2.0), image, step=3, at=now)]
    (folder / name(number, os.getpid())).write_bytes(file_of(*events, at=now))


def test_what_is_written_while_a_run_lasts_is_logged_at_its_own_steps(
    make_run: Callable[..., Run], tmp_path: Path
) -> None:
    run = make_run()
    run.import_tensorboard(tmp_path / "runs")
    run.log({"own": 1})
    write(tmp_path / "runs")
    run.finish()
    assert [(one["step"], one["values"]) for one in records_of(run, "metrics")] == [
        (0, {"own": 1.0}),
        (3, {"score": 0.5, "loss": 2.0}),
    ]
    assert run.summary["loss"] == 2.0
    assert run.step == 1
    (told,) = [json.loads(path.read_text()) for path in Path(run.dir).rglob("media/*.json")]
    assert (told["key"], told["step"]) == ("sample", 3)


@pytest.mark.parametrize("asked", [{"tensorboard": "import"}, {"sync_tensorboard": True}])
def test_both_names_mean_the_same(make_run: Callable[..., Run], asked: dict[str, Any], monkeypatch: Any) -> None:
    run, followed = make_run(), []
    monkeypatch.setattr(Run, "import_tensorboard", lambda _self, folder: followed.append(folder))
    monkeypatch.setattr(current, "_made", lambda *_args, **_more: run)
    monkeypatch.setattr(current, "_current", None)
    current.init(code=False, output=False, **asked)
    run.finish()
    assert followed == [Path.cwd()]


def test_in_a_trial_they_are_reports_of_the_trial_in_its_groups(task: Path) -> None:
    run = current.init(tensorboard=task / "runs")
    write(task / "runs")
    run.finish()
    lines = (task / "spool" / "metrics.jsonl").read_text().splitlines()
    assert [(one["group"], one["steps_completed"], one["metrics"]) for one in map(json.loads, lines)] == [
        ("validation", 3, {"score": 0.5}),
        ("training", 3, {"loss": 2.0}),
    ]


def test_in_a_trial_whose_launcher_imports_the_script_does_not(task: Path) -> None:
    info = json.loads((task / "info.json").read_text())
    info["config"]["tensorboard"] = "import"
    (task / "info.json").write_text(json.dumps(info))
    run = current.init(tensorboard=task / "runs")
    write(task / "runs")
    run.finish()
    assert not (task / "spool" / "metrics.jsonl").exists()
