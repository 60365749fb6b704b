"""What all integrations share: reports that cannot fail training, and when to ask whether to stop."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import detlab as det
from detlab.frameworks import FrameworkError, TrialControl, random_states
from detlab.frameworks.trial import counts


@pytest.fixture
def trial() -> Any:
    with det.core.init() as core_context:
        yield TrialControl(core_context)


def test_what_cannot_be_reported_is_left_out_with_one_warning(
    trial: TrialControl, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for step in (1, 2):
        trial.report("training", step, {"loss": 0.5, "none": None, "thing": object(), "nan": float("nan")})
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert "'none'" in warnings[0]
    assert "'thing'" in warnings[1]
    reported = [record.getMessage() for record in caplog.records if "metrics at step" in record.getMessage()]
    assert len(reported) == 2
    assert "loss" in reported[1]


def test_a_validation_is_reported_once_for_a_step_and_not_before_training_resumes(
    trial: TrialControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, dict[str, Any]]] = []
    monkeypatch.setattr(
        trial.core.train, "report_validation_metrics", lambda step, metrics: seen.append((step, metrics))
    )
    for step in (5, 5, 4, 6):
        trial.report_validation(step, {"loss": 0.5}, 1.0)
    assert seen == [(step, {"loss": 0.5, "batches": step, "epochs": 1}) for step in (5, 6)]
    again = TrialControl(trial.core)
    again.resumed_at = 8
    for step in (0, 8, 9):
        again.report_validation(step, {}, 1.0)
    assert [step for step, _ in seen] == [5, 6, 8, 9]


def test_off_cluster_nothing_stops_and_nothing_is_resumed(trial: TrialControl) -> None:
    assert not any(trial.should_stop(step) for step in range(1000))
    assert (trial.latest_checkpoint, trial.trial_id, trial.length) == (None, None, None)
    trial.check_length(batches=1, epochs=None, setting="anything")


def test_a_stop_that_was_asked_for_stays(trial: TrialControl, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, True])
    monkeypatch.setattr(trial.core.preempt, "should_preempt", lambda: next(answers))
    assert [trial.should_stop(step) for step in range(1, 5)] == [False, True, True, True]
    with pytest.raises(SystemExit) as left:
        trial.leave()
    assert left.value.code == 0


def test_something_else_than_a_context_is_named() -> None:
    with pytest.raises(FrameworkError, match="core_context must be what"):
        TrialControl({"core": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(("epochs", "said"), [(2.0000000001, 2), (2.5, 2.5), (0.0, 0), (None, None)])
def test_whole_epochs_are_whole_numbers(epochs: float | None, said: float | None) -> None:
    found = counts(7, epochs)
    assert found["batches"] == 7
    assert found.get("epochs") == said
    assert not isinstance(said, int) or isinstance(found["epochs"], int)


def test_random_states_come_back_through_json() -> None:
    import json
    import random

    import torch

    def draw() -> list[float]:
        return [random.random(), float(np.random.rand()), float(np.random.randn()), float(torch.rand(()))]

    np.random.randn()  # leaves a second normal number in the state
    states = json.loads(json.dumps(random_states.capture()))
    first = draw()
    assert draw() != first
    random_states.restore(states)
    assert draw() == first


@pytest.mark.parametrize("name", ["detlab", "detlab.core", "detlab.frameworks"])
def test_no_framework_is_imported_unless_its_door_is(name: str) -> None:
    code = f"import sys, {name}; print(sorted({{'transformers', 'lightning', 'keras', 'torch'}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
