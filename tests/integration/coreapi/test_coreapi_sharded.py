"""Checkpoints of several ranks: real processes, one checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from detlab.testing.master import MasterDouble
from testbed.stores import names_in

Agree = Callable[..., list[str]]
RanksOf = Callable[..., list[tuple[int, str]]]


def test_upload_unites_files_and_metadata(agree: Agree, api: MasterDouble, task: Any) -> None:
    code = """
    with start() as core:
        mine = None
        if rank != 1:
            mine = Path(f"dir{rank}"); (mine / "model").mkdir(parents=True)
            (mine / "model" / f"shard{rank}").write_text(str(rank))
        meta = {"steps_completed": 5, "ranks": {str(rank): "here"}}
        print(core.checkpoint.upload(mine, meta, shard=True))
    """
    (uuid,) = set(agree(code, 3))
    view = api.checkpoints[uuid]
    assert set(view["files"]) == {"model/shard0", "model/shard2", "metadata.json"}
    assert view["metadata"] == {"steps_completed": 5, "ranks": {"0": "here", "1": "here", "2": "here"}}
    assert json.loads((task.checkpoints / uuid / "metadata.json").read_text()) == view["metadata"]
    assert api.calls.count("POST task/checkpoints") == 1


def test_one_directory_given_by_all_is_stored_once(agree: Agree, api: MasterDouble) -> None:
    code = """
    with start() as core:
        shared = Path("shared"); shared.mkdir(exist_ok=True)
        (shared / f"shard{rank}").write_text(str(rank))
        core.distributed.allgather(None)
        print(core.checkpoint.upload(shared, {"steps_completed": 5}, shard=True))
    """
    (uuid,) = set(agree(code, 3))
    assert set(api.checkpoints[uuid]["files"]) == {"shard0", "shard1", "shard2", "metadata.json"}


def test_conflicts_name_the_ranks_on_every_rank(ranks: RanksOf, api: MasterDouble, task: Any) -> None:
    code = """
    with start() as core:
        mine = Path(f"dir{rank}"); mine.mkdir()
        (mine / ("same" if rank != 1 else "other")).write_text(str(rank))
        core.checkpoint.upload(mine, {"steps_completed": 5}, shard=True)
    """
    for status, output in ranks(code, 3):
        assert status == 1
        assert "same: ranks 0, 2" in output
    assert not api.checkpoints


def test_equal_files_of_several_ranks_are_stored_once(agree: Agree, api: MasterDouble, task: Any) -> None:
    code = """
    with start() as core:
        mine = Path(f"dir{rank}"); mine.mkdir()
        (mine / "vocabulary").write_text("the same")
        (mine / f"shard{rank}").write_text(str(rank))
        uuid = core.checkpoint.upload(mine, {"steps_completed": 5}, shard=True)
        with core.checkpoint.restore_path(uuid) as path:
            print(uuid, (path / "vocabulary").read_text())
    """
    (line,) = set(agree(code, 3))
    uuid, text = line.split(" ", 1)
    assert text == "the same"
    assert set(api.checkpoints[uuid]["files"]) == {"vocabulary", "shard0", "shard1", "shard2", "metadata.json"}


def test_each_rank_reads_only_its_own_files(agree: Agree, api: MasterDouble) -> None:
    """The chief joins the ranks' manifests: with shards of a terabyte it must not read those of all others."""
    code = """
    opened = []
    with start() as core:
        mine = Path(f"dir{rank}"); mine.mkdir()
        (mine / f"shard{rank}").write_text(str(rank) * 1000)
        core.distributed.allgather(None)
        sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
        core.checkpoint.upload(mine, {"steps_completed": 5}, shard=True)
        others = [name for name in opened if "shard" in name and f"shard{rank}" not in name]
        print(others, any(f"shard{rank}" in name for name in opened))
    """
    assert set(agree(code, 3)) == {"[] True"}
    (view,) = api.checkpoints.values()
    assert {name: file["size"] for name, file in view["files"].items() if "shard" in name} == {
        "shard0": 1000,
        "shard1": 1000,
        "shard2": 1000,
    }


def test_metadata_conflicts_name_the_ranks(ranks: RanksOf, api: MasterDouble) -> None:
    code = """
    with start() as core:
        with core.checkpoint.store_path({"steps_completed": 5 + rank}, shard=True): pass
    """
    for status, output in ranks(code, 2):
        assert status == 1
        assert "steps_completed: ranks 0, 1" in output
    assert not api.checkpoints


def test_store_path_of_all_ranks(agree: Agree, api: MasterDouble) -> None:
    code = """
    with start() as core:
        with core.checkpoint.store_path({"steps_completed": 5}, shard=True) as (path, uuid):
            (path / f"shard{rank}").write_text("x" * 1000)
        print(uuid)
    """
    (uuid,) = set(agree(code, 3))
    assert set(api.checkpoints[uuid]["files"]) == {"shard0", "shard1", "shard2", "metadata.json"}


def test_one_rank_that_fails_fails_all_and_nothing_is_stored(ranks: RanksOf, api: MasterDouble, task: Any) -> None:
    code = """
    with start() as core:
        with core.checkpoint.store_path({"steps_completed": 5}, shard=True) as (path, uuid):
            (path / f"shard{rank}").write_text("x")
            if rank == 1: raise ValueError("no memory left")
    """
    results = ranks(code, 3)
    assert [status for status, _ in results] == [1, 1, 1]
    for rank in (0, 2):
        assert "rank 1 failed" in results[rank][1]
        assert "no memory left" in results[rank][1]
    assert not api.checkpoints
    assert names_in(task.checkpoints) == []


def test_a_link_on_one_rank_fails_all(ranks: RanksOf, api: MasterDouble) -> None:
    code = """
    with start() as core:
        mine = Path(f"dir{rank}"); mine.mkdir()
        (mine / f"f{rank}").write_text("1")
        if rank == 1: (mine / "bad").symlink_to("/etc/passwd")
        core.checkpoint.upload(mine, {"steps_completed": 5}, shard=True)
    """
    results = ranks(code, 2)
    assert [status for status, _ in results] == [1, 1]
    assert all("symbolic link" in output for _, output in results)
    assert not api.checkpoints


def test_ranks_of_a_node_share_one_download(agree: Agree, api: MasterDouble) -> None:
    code = """
    with start() as core:
        with core.checkpoint.store_path({"steps_completed": 5}, shard=True) as (path, uuid):
            (path / f"shard{rank}").write_text(str(rank))
        want = None if rank == 0 else lambda name: name == f"shard{rank}"
        want = lambda name: name == f"shard{rank}"
        core.checkpoint.download(uuid, "shared", selector=want)
        names = sorted(p.name for p in Path("shared").iterdir())
        core.checkpoint.download(uuid, f"own{rank}", det.core.DownloadMode.NoSharedDownload)
        own = sorted(p.name for p in Path(f"own{rank}").iterdir())
        with core.checkpoint.restore_path(uuid) as path:
            print(names, own, (path / "shard1").read_text())
    """
    (seen,) = set(agree(code, 2))
    assert seen == "['shard0', 'shard1'] ['metadata.json', 'shard0', 'shard1'] 1"
    # one look-up for the shared download, one for the restore, one per rank for its own
    assert len([call for call in api.calls if call.startswith("GET task/checkpoints/")]) == 4


def test_a_damaged_shard_is_told_to_all_ranks(ranks: RanksOf, task: Any) -> None:
    code = f"""
    with start() as core:
        with core.checkpoint.store_path({{"steps_completed": 5}}, shard=True) as (path, uuid):
            (path / f"shard{{rank}}").write_text(str(rank))
        if rank == 0: (Path({str(task.checkpoints)!r}) / uuid / "shard1").write_text("?")
        core.distributed.allgather(None)
        with core.checkpoint.restore_path(uuid) as path: print("restored")
    """
    for status, output in ranks(code, 2):
        assert status == 1
        assert "shard1 of checkpoint" in output
        assert "restored" not in output


def test_only_the_chief_stores_without_shard(ranks: RanksOf) -> None:
    code = """
    with start() as core:
        try:
            with core.checkpoint.store_path({"steps_completed": 5}): pass
            print("stored")
        except RuntimeError as error:
            print(error)
    """
    (_, chief), (_, worker) = ranks(code, 2)
    assert "stored" in chief
    assert "is for the chief (rank 0), not rank 1" in worker


def test_no_directory_from_any_rank(ranks: RanksOf) -> None:
    code = """
    with start() as core:
        core.checkpoint.upload(None, {"steps_completed": 5}, shard=True)
    """
    for status, output in ranks(code, 2):
        assert status == 1
        assert "at least one needs a directory" in output


TESTS = str(Path(__file__).parents[2])
"""Where `testbed` is found."""

AWAY = """
    import threading
    from detlab.core import full_disk
    from testbed.away_storage import AwayStorage
    full_disk.PAUSE = 0.05
    with start() as core:
        store = core.checkpoint._storage = AwayStorage(Path(os.environ["STORE"]))
        mine = Path(f"dir{rank}"); mine.mkdir()
        (mine / f"shard{rank}").write_text(str(rank))
        if rank == 1:
            store.leave()
            threading.Timer(1.5, store.come_back).start()
        if rank == 0:
            store.fail_after["publish"] = 2
        print(core.checkpoint.upload(mine, {"steps_completed": 5}, shard=True), store.calls["upload"] > 1)
"""


def test_a_store_that_is_away_for_one_rank_is_waited_for_by_all(agree: Agree, api: MasterDouble, task: Any) -> None:
    """Each rank uploads its own shards; the chief's commit joins them once all are there."""
    printed = [line.split()[-2:] for line in agree(AWAY, 3, STORE=str(task.checkpoints), PYTHONPATH=TESTS)]
    assert len({uuid for uuid, _ in printed}) == 1
    assert [again for _, again in printed] == ["False", "True", "False"]
    (view,) = api.checkpoints.values()
    assert set(view["files"]) == {"shard0", "shard1", "shard2", "metadata.json"}
    assert api.calls.count("POST task/checkpoints") == 1
