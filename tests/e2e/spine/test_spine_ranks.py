"""One node, several processes: the chief reports once, every line knows its rank, the first failing rank is named."""

from __future__ import annotations

from typing import Any

import pytest
from spine_lab import Lab, single

from detlab.schemas.wire import ExperimentState

pytestmark = pytest.mark.hub
TORCH = ["python3", "-m", "detlab.launch.torch_distributed", "two_ranks.py"]


def two_slots(**more: Any) -> dict[str, Any]:
    """A config of one trial with two slots."""
    return single("two_ranks.py", **{"resources": {"slots_per_trial": 2}, **more})


@pytest.fixture(scope="module")
def runs(lab: Lab) -> dict[str, Any]:
    """Submitted at once: importing torch is most of their time."""
    return {
        "good": lab.submit(two_slots(entrypoint=TORCH, hparams={"fail_rank": -1})),
        "bad": lab.submit(two_slots(entrypoint=TORCH, hparams={"fail_rank": 1})),
    }


def test_two_processes_under_torch_distributed_report_once_and_log_with_ranks(lab: Lab, runs: dict[str, Any]) -> None:
    ended = lab.completed(runs["good"], 90)
    (trial,) = ended.list_trials()
    assert lab.steps(trial, "training", "total") == [1, 2, 3]
    assert lab.trial(trial).view.summary["training"]["total"].mean == 2.0
    hello = {(line.rank, line.text) for line in trial.logs() if line.text.startswith("hello")}
    assert hello == {(0, "hello of 0 of 2"), (1, "hello of 1 of 2")}
    assert [line.text for line in trial.logs(rank=1) if "hello" in line.text] == ["hello of 1 of 2"]
    shown = lab.cluster.det("t", "logs", str(trial.id), "--rank", "0")
    assert "hello of 0 of 2" in shown.stdout
    assert "hello of 1 of 2" not in shown.stdout


def test_the_first_failing_rank_is_named_with_its_own_lines(lab: Lab, runs: dict[str, Any]) -> None:
    ended = lab.finish(runs["bad"], 90)
    assert ended.state is ExperimentState.ERROR
    card = ended.view.failure
    assert card is not None
    assert card.rank == 1
    assert card.message == "RuntimeError: rank 1 has had enough"
    assert (card.where or "").startswith("two_ranks.py, line ")
    assert len(card.log_tail) <= 20
    assert not any("hello of 0" in line for line in card.log_tail)


def test_a_launcher_of_ones_own_with_wrap_rank(lab: Lab) -> None:
    ended = lab.completed(lab.submit(two_slots(entrypoint=["python3", "plain_ranks.py"])))
    (trial,) = ended.list_trials()
    said = {(line.rank, line.text) for line in trial.logs() if line.text.startswith("I am")}
    assert said == {(0, "I am number 0"), (1, "I am number 1")}
