"""How a process finds its ranks, what it says when their number is wrong, and which rank counts as failed."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from detlab.core import DistributedContext
from detlab.core.distributed.channel import DistributedError
from detlab.errors import InvalidHP
from detlab.info import ClusterInfo
from detlab.launch.ranks.watchdog import HUNG
from detlab.launch.taskdir import TaskDir, first_failing_rank
from detlab.pytorch import TrainerError
from detlab.pytorch.errors import WorldSizeError
from detlab.pytorch.parallel.process_group import (
    connect,
    device_and_backend,
    disconnect,
    is_own_failure,
    note_failing_rank,
)

LIMIT = 10.0


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    launcher = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "MASTER_", "DET_", "TORCHELASTIC_")
    for name in [name for name in os.environ if name.startswith(launcher)]:
        monkeypatch.delenv(name)
    yield
    assert not dist.is_initialized()


def task(tmp_path: Path, slots: int) -> ClusterInfo:
    return ClusterInfo(
        master_url="http://127.0.0.1:1/",
        cluster_id="c",
        agent_id="a",
        slot_ids=list(range(slots)),
        task_id="t",
        allocation_id="t.1",
        task_type="TRIAL",
        latest_checkpoint=None,
        user_data={},
        container_addrs=["127.0.0.1"],
        container_rank=0,
        container_slot_counts=[slots],
        gpu_uuids=[],
        task_dir=tmp_path,
    )


def launch(monkeypatch: pytest.MonkeyPatch, size: int, **others: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    variables = {
        "RANK": "0",
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": str(size),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        **others,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def alone() -> DistributedContext:
    return DistributedContext(rank=0, size=1, local_rank=0, local_size=1, cross_rank=0, cross_size=1)


# --- meeting


@pytest.mark.parametrize("slots", [None, 0, 1])
def test_one_process_needs_no_group(tmp_path: Path, slots: int | None) -> None:
    assert connect(None if slots is None else task(tmp_path, slots), None, LIMIT) is None
    disconnect()


def test_a_context_given_for_one_process_is_kept() -> None:
    given = alone()
    assert connect(None, given, LIMIT) is given


@pytest.mark.parametrize("limit", [LIMIT, math.inf])
def test_one_process_under_a_launcher_makes_a_group_and_leaves_it(monkeypatch: Any, limit: float) -> None:
    launch(monkeypatch, 1)
    ranks = connect(None, None, limit)
    assert ranks is not None
    assert (ranks.rank, ranks.size, ranks.local_size) == (0, 1, 1)
    assert (dist.get_world_size(), dist.get_backend()) == (1, "gloo")
    disconnect()
    assert not dist.is_initialized()
    disconnect()


def test_a_group_of_the_scripts_own_is_used_and_left_alone(monkeypatch: Any) -> None:
    launch(monkeypatch, 1)
    dist.init_process_group("gloo")
    for name in ("RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name)
    try:
        ranks = connect(None, None, LIMIT)
        assert ranks is not None
        assert ranks.size == 1
        disconnect()
        assert dist.is_initialized()
    finally:
        dist.destroy_process_group()


def test_several_slots_without_a_launcher_say_how_to_start(tmp_path: Path) -> None:
    with pytest.raises(WorldSizeError, match="this task has 2 slots, and only one process was started") as caught:
        connect(task(tmp_path, 2), None, LIMIT)
    assert "python3 -m detlab.launch.torch_distributed" in str(caught.value)


def test_wrong_world_size_says_all_numbers_and_the_next_step(tmp_path: Path, monkeypatch: Any) -> None:
    launch(monkeypatch, 3)
    with pytest.raises(WorldSizeError, match="wrong world size") as caught:
        connect(task(tmp_path, 2), alone(), LIMIT)
    text = str(caught.value)
    assert "this task has 2 slot(s)" in text
    assert "the launcher started 3 process(es) (WORLD_SIZE)" in text
    assert "pytorch.init(distributed=…) has 1 rank(s)" in text
    assert "without --nproc_per_node" in text


def test_a_world_of_one_of_several_nodes_is_told_how_to_stay_on_one(tmp_path: Path, monkeypatch: Any) -> None:
    launch(monkeypatch, 2)
    over_two = dataclasses.replace(
        task(tmp_path, 2), container_addrs=["10.0.0.1", "10.0.0.2"], container_slot_counts=[2, 2]
    )
    with pytest.raises(TrainerError, match=r"this task has 4 slot\(s\)") as caught:
        connect(over_two, None, LIMIT)
    assert "on 2 nodes: resources.is_single_node: true keeps it on one" in str(caught.value)


def test_a_given_context_of_another_size_is_refused(monkeypatch: Any) -> None:
    launch(monkeypatch, 2)
    with pytest.raises(TrainerError, match=r"has 1 rank\(s\)"):
        connect(None, alone(), LIMIT)


def test_an_initialised_group_of_another_size_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    launch(monkeypatch, 1)
    dist.init_process_group("gloo")
    try:
        with pytest.raises(TrainerError, match=r"torch.distributed is initialised with 1 process\(es\)"):
            connect(task(tmp_path, 2), None, LIMIT)
    finally:
        dist.destroy_process_group()


def test_a_launchers_variables_that_are_no_numbers_are_listed(monkeypatch: Any) -> None:
    launch(monkeypatch, 1, WORLD_SIZE="two")
    monkeypatch.delenv("MASTER_PORT")
    with pytest.raises(TrainerError) as caught:
        connect(None, None, LIMIT)
    assert "WORLD_SIZE is 'two'" in str(caught.value)
    assert "MASTER_PORT is not set" in str(caught.value)


@pytest.mark.parametrize("limit", [0, -1.0, math.nan])
def test_a_hang_timeout_must_be_positive(limit: float) -> None:
    with pytest.raises(TrainerError, match="hang_timeout must be a positive number of seconds"):
        connect(None, None, limit)


# --- who failed


def test_a_failure_for_want_of_another_rank_is_not_ones_own() -> None:
    lost = RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1")
    wrapped = TrainerError("a callback failed")
    wrapped.__cause__ = lost
    for error in (
        None,
        lost,
        wrapped,
        DistributedError("rank 1 is gone"),
        SystemExit(0),
        SystemExit(),
        InvalidHP("no"),
    ):
        assert not is_own_failure(error), error
    for own in (RuntimeError("no"), SystemExit(3), KeyboardInterrupt(), TrainerError("x")):
        assert is_own_failure(own), own


def test_the_first_rank_noted_is_the_one_that_failed(tmp_path: Path, monkeypatch: Any) -> None:
    note_failing_rank(1, HUNG)
    monkeypatch.setenv("DET_TASK_DIR", str(tmp_path))
    note_failing_rank(1, HUNG)
    (tmp_path / "spool").mkdir()
    note_failing_rank(1, HUNG)
    note_failing_rank(0, 1)
    assert first_failing_rank(TaskDir(tmp_path).ranks) == 1
    assert json.loads(TaskDir(tmp_path).ranks.read_text().splitlines()[0])["exit_code"] == HUNG


@pytest.mark.parametrize(
    ("gpus", "local_rank", "device", "backend"),
    [
        (0, 0, None, "gloo"),
        (0, 3, None, "gloo"),
        (1, 0, 0, "cpu:gloo,cuda:nccl"),
        (4, 3, 3, "cpu:gloo,cuda:nccl"),
        (2, 2, None, "cpu:gloo,cuda:nccl"),
    ],
)
def test_each_rank_has_the_gpu_of_its_local_rank_and_nccl_carries_its_tensors(
    gpus: int, local_rank: int, device: int | None, backend: str
) -> None:
    assert device_and_backend(gpus, local_rank) == (device, backend)
