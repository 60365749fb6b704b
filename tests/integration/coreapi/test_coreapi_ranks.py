"""Messages between real processes: results, deaths, strays."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from detlab.testing.ports import free_port

Agree = Callable[..., list[str]]
RanksOf = Callable[..., list[tuple[int, str]]]


def test_every_operation_among_four_ranks(agree: Agree, task: Any) -> None:
    code = """
    d = context()
    assert d.gather(rank) == ([0, 1, 2, 3] if rank == 0 else None)
    assert d.gather_local(rank) == ([0, 1, 2, 3] if rank == 0 else None)
    assert d.allgather({"r": rank}) == [{"r": r} for r in range(4)]
    assert d.allgather_local(rank * 2) == [0, 2, 4, 6]
    assert d.broadcast("chief" if rank == 0 else None) == "chief"
    assert d.broadcast_local("local" if rank == 0 else None) == "local"
    for turn in range(200):
        assert sum(d.allgather(turn)) == 4 * turn
    big = d.broadcast(b"x" * 30_000_000 if rank == 0 else None)
    assert len(big) == 30_000_000
    assert [len(part) for part in d.allgather(bytes(3_000_000 + rank))] == [3_000_000 + r for r in range(4)]
    d.close()
    print("fine")
    """
    assert agree(code, 4) == ["fine"] * 4
    assert not [path for path in task.root.iterdir() if path.name.startswith("rank_address")]


def test_groups_one_after_another(agree: Agree) -> None:
    code = """
    for turn in range(3):
        d = context()
        assert d.allgather(turn) == [turn] * 2
        d.close()
    """
    agree(code, 2)


def test_a_killed_rank_is_noticed_at_once(ranks: RanksOf) -> None:
    code = """
    import signal, time
    d = context()
    d.allgather(None)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    try:
        d.allgather(None)
    except det.core.DistributedError as error:
        print(f"{time.monotonic() - start < 5} {error}")
    """
    results = ranks(code, 3)
    assert results[1][0] == -signal.SIGKILL
    assert results[0][1].startswith("True rank 1 is gone")
    assert results[2][1].startswith("True rank 0 is gone")  # the chief left after its error


def test_a_killed_chief_is_noticed_at_once(ranks: RanksOf) -> None:
    code = """
    import signal
    d = context()
    d.allgather(None)
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        d.broadcast(None)
    except det.core.DistributedError as error:
        print(error)
    """
    results = ranks(code, 3)
    assert all("rank 0 is gone" in results[rank][1] for rank in (1, 2))


def test_a_rank_that_never_starts_is_named(ranks: RanksOf) -> None:
    code = """
    if rank == 2: sys.exit(0)
    try:
        d = context(timeout=2)
        d.allgather(None)
    except det.core.DistributedError as error:
        print(error)
    """
    results = ranks(code, 3)
    assert "rank 2 did not connect to the chief within 2 s" in results[0][1]
    assert "rank 0 is gone" in results[1][1]


def test_a_silent_rank_is_named(ranks: RanksOf) -> None:
    code = """
    import threading
    d = context(operation_timeout=1)
    try:
        if rank != 1: d.allgather(None)
        else: d._world._links[0].sock.settimeout(20); d.broadcast(None)
    except det.core.DistributedError as error:
        print(error)
    """
    results = ranks(code, 3)
    assert "rank 1 did not call allgather() within 1 s" in results[0][1]


def test_ranks_out_of_step_are_told(ranks: RanksOf) -> None:
    code = """
    d = context()
    try:
        d.allgather(1) if rank == 0 else d.gather(1)
    except det.core.DistributedError as error:
        print(error)
    """
    results = ranks(code, 2)
    assert "this one called allgather(), rank 1 called gather()" in results[0][1]


def test_off_cluster_ranks_use_a_port_and_a_private_secret(task: Any, tmp_path: Any) -> None:
    port = free_port()
    code = """
    import os, detlab as det
    rank = int(os.environ["RANK"])
    d = det.core.DistributedContext(
        rank=rank, size=2, local_rank=rank, local_size=2, cross_rank=0, cross_size=1,
        pub_port=int(os.environ["PORT"]), timeout=30)
    with det.core.init(distributed=d, checkpoint_storage="ck") as core:
        assert core.distributed.allgather(rank) == [0, 1]
        assert core.preempt.should_preempt() is False
        with core.checkpoint.store_path({"steps_completed": 1}, shard=True) as (path, uuid):
            (path / str(rank)).write_text("1")
        with core.checkpoint.restore_path(uuid) as path:
            print(sorted(p.name for p in path.iterdir()))
    """
    extra = {"PORT": str(port), "XDG_STATE_HOME": str(tmp_path / "state"), "DET_TASK_DIR": ""}
    processes = [task.start(code, RANK=str(rank), **extra) for rank in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert set(outputs) == {"['0', '1', 'manifest.json', 'metadata.json']\n"}
    assert (tmp_path / "state" / "detlab" / "rank_key").stat().st_mode & 0o777 == 0o600


def test_two_nodes_on_one_machine(task: Any) -> None:
    """Four ranks as two nodes of two: local groups are apart, the world group uses chief_ip and a given secret."""
    port = free_port()
    code = """
    import os, detlab as det
    rank = int(os.environ["RANK"])
    d = det.core.DistributedContext(
        rank=rank, size=4, local_rank=rank % 2, local_size=2, cross_rank=rank // 2, cross_size=2,
        chief_ip="127.0.0.1", pub_port=int(os.environ["PORT"]), timeout=30)
    assert d.allgather(rank) == [0, 1, 2, 3]
    node = rank // 2 * 2
    assert d.allgather_local(rank) == [node, node + 1]
    assert d.broadcast_local(rank) == node
    assert d.gather_local(rank) == ([node, node + 1] if rank % 2 == 0 else None)
    d.close()
    """
    extra = {"PORT": str(port), "DET_RANK_KEY": os.urandom(32).hex(), "DET_TASK_DIR": ""}
    processes = [task.start(code, RANK=str(rank), **extra) for rank in range(4)]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, outputs


def test_torchruns_variables_make_a_group(ranks: RanksOf) -> None:
    code = """
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size))
    os.environ.update(GROUP_RANK="0", GROUP_WORLD_SIZE="1")
    d = det.core.DistributedContext.from_torch_distributed()
    assert d.allgather(rank) == [0, 1]
    assert "torch" not in sys.modules
    d.close()
    """
    assert [status for status, _ in ranks(code, 2)] == [0, 0]


def test_only_the_chief_reports(agree: Agree, task: Any) -> None:
    code = """
    with start() as core:
        try:
            core.train.report_training_metrics(steps_completed=1, metrics={"x": rank})
            print("reported")
        except RuntimeError as error:
            print(error)
    """
    chief, worker = agree(code, 2)
    assert chief == "reported"
    assert worker.startswith("only the chief (rank 0) may report metrics, not rank 1")
    assert len(task.records()) == 1
