"""How a process finds its ranks, what it says when their number is wrong, and whom the watchdog names."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from detlab.core import DistributedContext
from detlab.core.distributed.channel import DistributedError, Link
from detlab.errors import InvalidHP
from detlab.info import ClusterInfo
from detlab.launch.taskdir import TaskDir, first_failing_rank
from detlab.pytorch import TrainerError
from detlab.pytorch.parallel.process_group import connect, device_and_backend, disconnect
from detlab.pytorch.parallel.watchdog import (
    HUNG,
    Pulse,
    Sign,
    Verdict,
    Watchdog,
    is_own_failure,
    judge,
    note_failing_rank,
    whereabouts,
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
    with pytest.raises(TrainerError, match="this task has 2 slots, and only one process was started") as caught:
        connect(task(tmp_path, 2), None, LIMIT)
    assert "python3 -m detlab.launch.torch_distributed" in str(caught.value)


def test_wrong_world_size_says_all_numbers_and_the_next_step(tmp_path: Path, monkeypatch: Any) -> None:
    launch(monkeypatch, 3)
    with pytest.raises(TrainerError, match="wrong world size") as caught:
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


# --- whom the watchdog names


def sign(
    batch: int = 7, phase: str = "backward", still: float = LIMIT, *, silent: float = 0.0, waits: bool = True
) -> Sign:
    return Sign(batch, phase, still, None, waits, "n1", 77, silent)


def named(**ranks: Sign) -> int | None:
    verdict = judge({int(name[1:]): one for name, one in ranks.items()}, LIMIT)
    return None if verdict is None else verdict.rank


def test_nobody_is_named_while_one_rank_gets_further() -> None:
    assert named(r0=sign(), r1=sign(still=LIMIT - 0.1, phase="train_batch", waits=False)) is None
    assert named() is None


def test_the_rank_in_the_trials_code_is_named() -> None:
    assert named(r0=sign(), r1=sign(phase="train_batch", waits=False), r2=sign()) == 1
    assert named(r0=sign(phase="data", waits=False), r1=sign()) == 0


def test_a_rank_of_the_trials_code_that_waits_for_others_is_not_named() -> None:
    both = {"r0": sign(phase="validation"), "r1": sign(phase="validation", waits=False)}
    assert named(**both) == 1


def test_a_silent_process_is_named_before_all_others() -> None:
    assert named(r0=sign(phase="train_batch", waits=False), r1=sign(silent=LIMIT * 0.9)) == 1


def test_a_process_that_says_nothing_for_the_whole_timeout_is_named_although_others_get_further() -> None:
    assert named(r0=sign(still=0.0), r1=sign(silent=LIMIT, still=LIMIT)) == 1


def test_when_all_wait_the_one_furthest_behind_is_named() -> None:
    assert named(r0=sign(8, "backward"), r1=sign(7, "step")) == 1
    assert named(r0=sign(7, "sync"), r1=sign(7, "backward")) == 1
    assert named(r0=sign(), r1=sign()) == 0


def test_a_sign_grows_old() -> None:
    old = sign(still=2.0).aged(3.0)
    assert (old.still, old.silent) == (5.0, 3.0)


def test_the_message_says_who_where_since_when_and_what_to_do() -> None:
    told = Sign(12, "train_batch", 1800.4, "train.py, line 9, in train_batch", False, "n1", 77)
    line = Verdict(1, told, silent=False).line(1800.0)
    assert "rank 1 (host n1, pid 77) hangs: for 1800.4 s it has been in train_batch, at batch 12" in line
    assert "(train.py, line 9, in train_batch)" in line
    assert "restarts from its last checkpoint" in line
    assert "pytorch.init(hang_timeout=…)" in line
    assert "\n" not in line
    stopped = Verdict(0, told.aged(3.0), silent=True).line(2.0)
    assert "its process has been stopped or blocked for 3.0 s" in stopped


def test_whereabouts_of_code_and_of_waiting() -> None:
    where, waits = whereabouts(sys._getframe())
    assert where is not None
    assert "in test_whereabouts_of_code_and_of_waiting" in where
    assert not waits
    assert whereabouts(None) == (None, False)

    left, right = socket.socketpair()
    link = Link(left, b"key", serving=False)

    def wait() -> None:
        with contextlib.suppress(DistributedError):
            link.receive("x")

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        while (frame := sys._current_frames()[thread.ident or 0]).f_code.co_name != "_exactly":
            pass
        where, waits = whereabouts(frame)
        assert waits
        assert where is not None
        assert "test_trainer_process_group" in where
    finally:
        right.close()
        thread.join()
        left.close()


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


def test_a_watchdog_of_one_rank_does_nothing() -> None:
    watchdog = Watchdog(Pulse(), alone(), 0.001)
    before = threading.active_count()
    watchdog.start()
    assert threading.active_count() == before
    watchdog.close()


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
