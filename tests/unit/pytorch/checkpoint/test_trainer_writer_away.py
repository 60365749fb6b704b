"""The writer of checkpoints while the storage is slow or does not answer: training goes on, nothing is lost."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from detlab.core import DummyDistributedContext, full_disk
from detlab.core.checkpoint.context import CheckpointContext
from detlab.errors import StorageRefused
from detlab.pytorch.checkpoint.files import read_state
from detlab.pytorch.checkpoint.writer import CheckpointWriteFailed, CheckpointWriter
from testbed.away_storage import AwayStorage
from testbed.waiting import until


class Session:
    """Of a master that takes every checkpoint."""

    held_up = False

    def __init__(self) -> None:
        self.committed: list[str] = []

    def call(self, _method: str, _path: str, body: Any = None, **__: Any) -> None:
        self.committed.append(body["uuid"])


@pytest.fixture
def store(tmp_path: Path) -> AwayStorage:
    return AwayStorage(tmp_path)


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_disk, "PAUSE", 0.02)


@pytest.fixture
def alive() -> list[int]:
    return []


@pytest.fixture
def writer(store: AwayStorage, session: Session, alive: list[int]) -> CheckpointWriter:
    context = CheckpointContext(DummyDistributedContext(), store, session)  # type: ignore[arg-type]
    return CheckpointWriter(context, alive=lambda: alive.append(1))


def tree_of(value: float) -> dict[str, Any]:
    return {"models_state_dict": [{"a": torch.full((50_000,), value)}], "callbacks": {}}


@pytest.mark.slow
def test_a_slow_store_does_not_hold_the_loop_up(store: AwayStorage, writer: CheckpointWriter) -> None:
    store.slow = 1.0
    with writer:
        writer.submit(tree_of(1.0), {"steps_completed": 1})
        assert writer.stall_s < 0.5
        assert writer.busy
    assert len(store.uuids()) == 1


@pytest.mark.slow
def test_training_goes_on_while_the_store_is_away(
    store: AwayStorage, writer: CheckpointWriter, session: Session, alive: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    store.leave()
    with writer:
        tree = tree_of(1.0)
        writer.submit(tree, {"steps_completed": 7})
        tree["models_state_dict"][0]["a"].zero_()  # training goes on
        assert not writer.wait(1.2)
        assert writer.poll() == []
        assert alive, "to the watchdog it is no hang"
        store.come_back()
        assert writer.wait(30)
        (finished,) = writer.poll()
    state = read_state(store.root / finished.uuid, allow_pickle=False)
    assert state["models_state_dict"][0]["a"].unique().tolist() == [1.0]
    assert session.committed == [finished.uuid]
    said = [record.getMessage() for record in caplog.records if "away" in record.getMessage()]
    assert said[0].startswith("the checkpoint storage is away: 503 Service Unavailable. ")
    assert len(said) == 1, "said once"
    assert "the storage answers again" in caplog.text


@pytest.mark.parametrize("method", ["seal", "publish"])
def test_an_answer_that_is_lost_is_asked_for_again(
    store: AwayStorage, writer: CheckpointWriter, session: Session, method: str
) -> None:
    store.fail_after[method] = 3
    with writer:
        writer.submit(tree_of(2.0), {"steps_completed": 7})
        assert writer.wait(30)
    assert store.uuids() == session.committed
    assert store.calls[method] == 4


def test_a_writer_that_is_closed_meanwhile_ends_at_once(
    store: AwayStorage, writer: CheckpointWriter, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a preemption: the grace period is not spent on a store that does not answer."""
    store.leave()
    writer.submit(tree_of(1.0), {"steps_completed": 7})
    until(lambda: "is away" in caplog.text, seconds=20)
    began = time.monotonic()
    writer.close()
    assert time.monotonic() - began < 5
    assert "the checkpoint at step 7 was dropped" in caplog.text
    assert (store.uuids(), session.committed) == ([], [])


def test_a_store_that_says_no_is_not_waited_for(
    store: AwayStorage, writer: CheckpointWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as credentials that were revoked meanwhile."""

    def publish(*_: object) -> None:
        raise StorageRefused("ExpiredToken")

    monkeypatch.setattr(store, "publish", publish)
    with writer:
        writer.submit(tree_of(1.0), {"steps_completed": 7})
        with pytest.raises(CheckpointWriteFailed, match="ExpiredToken"):
            writer.wait(30)
