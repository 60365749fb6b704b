"""DistributedContext in one process: arguments, where ranks come from, secrets."""

from __future__ import annotations

import threading
import types
from pathlib import Path
from typing import Any

import pytest

from detlab.core import DistributedContext, DistributedError, DummyDistributedContext
from detlab.core.distributed import rendezvous

ONE = {"rank": 0, "size": 1, "local_rank": 0, "local_size": 1, "cross_rank": 0, "cross_size": 1}


def test_a_group_of_one_answers_itself() -> None:
    for context in (DistributedContext(**ONE), DummyDistributedContext()):
        assert context.gather(1) == context.gather_local(1) == [1]
        assert context.allgather(2) == context.allgather_local(2) == [2]
        assert context.broadcast(3) == context.broadcast_local(3) == 3
        assert (context.get_rank(), context.get_local_rank(), context.get_size(), context.get_num_agents()) == (
            0,
            0,
            1,
            1,
        )
        context.close()
        context.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": None}, "or none"),
        ({"rank": 1}, "rank 1 is not below its size 1"),
        ({"rank": -1}, "not below"),
        ({"local_rank": 3}, "local_rank 3"),
        ({"local_size": 2}, "local_size 2 is more than size 1"),
        ({"size": 2}, "chief_ip is required"),
    ],
)
def test_ranks_that_do_not_fit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DistributedContext(**{**ONE, **changes})


def test_from_torch_distributed_reads_torchruns_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "RANK": 0,
        "WORLD_SIZE": 1,
        "LOCAL_RANK": 0,
        "LOCAL_WORLD_SIZE": 1,
        "GROUP_RANK": 0,
        "GROUP_WORLD_SIZE": 1,
    }
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))
    assert DistributedContext.from_torch_distributed().size == 1
    monkeypatch.delenv("GROUP_RANK")
    with pytest.raises(RuntimeError, match="GROUP_RANK not set"):
        DistributedContext.from_torch_distributed()


def test_from_deepspeed_needs_its_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RuntimeError, match="RANK, WORLD_SIZE"):
        DistributedContext.from_deepspeed()


def test_from_deepspeed_takes_the_ranks_of_our_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_SIZE", raising=False)
    monkeypatch.setattr(DistributedContext, "_join", lambda self, *_: None)
    names = {"RANK": 1, "WORLD_SIZE": 2, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1}
    for name, value in names.items():
        monkeypatch.setenv(name, str(value))
    ranks = DistributedContext.from_deepspeed()
    assert (ranks.rank, ranks.size, ranks.local_size, ranks.cross_size) == (1, 2, 2, 1)


def test_from_horovod() -> None:
    hvd = types.SimpleNamespace(**{name: (lambda value=value: value) for name, value in ONE.items()})
    assert DistributedContext.from_horovod(hvd).rank == 0
    with pytest.raises(RuntimeError, match="horovod module"):
        DistributedContext.from_horovod(object())


def test_from_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr(DistributedContext, "__init__", lambda self, **given: seen.update(given))
    cluster = {"worker": ["10.0.0.1:2222", "10.0.0.1:2223", "10.0.0.2:2222"]}
    DistributedContext.from_tf_config({"cluster": cluster, "task": {"type": "worker", "index": 2}})
    assert seen == {
        "rank": 2,
        "size": 3,
        "local_rank": 0,
        "local_size": 1,
        "cross_rank": 1,
        "cross_size": 2,
        "chief_ip": "10.0.0.1",
    }
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(RuntimeError, match="TF_CONFIG"):
        DistributedContext.from_tf_config()
    with pytest.raises(RuntimeError, match="TF_CONFIG"):
        DistributedContext.from_tf_config({"cluster": cluster, "task": {"index": 9}})


def test_all_threads_get_one_secret(tmp_path: Path) -> None:
    found: list[bytes] = []
    start = threading.Barrier(8)

    def look() -> None:
        start.wait()
        found.append(rendezvous.shared_secret(tmp_path, one_node=True))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert len(found[0]) == 32
    assert [path.name for path in tmp_path.iterdir()] == ["rank_key"]
    assert (tmp_path / "rank_key").stat().st_mode & 0o777 == 0o600


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rank_key").write_bytes(b"x" * 32)
    (tmp_path / "rank_key").chmod(0o644)
    with pytest.raises(DistributedError, match="mode 0600"):
        rendezvous.shared_secret(tmp_path, one_node=True)


def test_several_nodes_need_a_given_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DET_RANK_KEY", raising=False)
    with pytest.raises(DistributedError, match="DET_RANK_KEY"):
        rendezvous.shared_secret(tmp_path, one_node=False)
    monkeypatch.setenv("DET_RANK_KEY", "00ff")
    assert rendezvous.shared_secret(tmp_path, one_node=False) == b"\x00\xff"
    monkeypatch.setenv("DET_RANK_KEY", "nonsense")
    with pytest.raises(DistributedError, match="hexadecimal"):
        rendezvous.shared_secret(tmp_path, one_node=False)
