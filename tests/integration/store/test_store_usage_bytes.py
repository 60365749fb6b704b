"""Who stores how many bytes: sums over checkpoints, trash, code and outputs, and who may see them (I9)."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from detlab_hub.core.rights import Person
from detlab_hub.store.queries.storage import usage
from detlab_hub.store.tables import (
    BundleRow,
    BundleUpload,
    CheckpointRow,
    ExperimentRow,
    FreedRow,
    GrantRow,
    OutputRow,
    ProjectRow,
    RemovalRow,
    TaskRow,
    TrialRow,
    WorkspaceRow,
)

ROOT = Person("root", admin=True)
ADA = Person("ada", frozenset({"vision"}))
BEN = Person("ben", frozenset({"vision", "speech"}))
CY = Person("cy")


def add(s: Any, key: int, owner: str, groups: list[str], project: int | None, *sizes: tuple[str, int]) -> None:
    """Add an experiment with checkpoints of these states and sizes."""
    s.add(
        ExperimentRow(
            id=key, name=f"run {key}", owner=owner, state="ACTIVE", owner_groups=groups, project_id=project, bundle="b1"
        )
    )
    s.flush()
    s.add(TrialRow(id=key, experiment_id=key, idx=0, request_id="r", state="ACTIVE"))
    s.flush()
    for number, (state, size) in enumerate(sizes):
        uuid = f"{key}-{number}"
        s.add(CheckpointRow(uuid=uuid, trial_id=key, experiment_id=key, state=state.rstrip("?"), size=size))
        s.flush()
        if state == "DELETED?":
            s.add(RemovalRow(uuid=uuid, paths=None))
        elif state == "PARTIALLY_DELETED":
            s.add(RemovalRow(uuid=uuid, paths=["a"]))


@pytest.fixture
def stored(store: Any) -> Any:
    """Three users' experiments; `DELETED?` is still in the trash."""

    def make(s: Any) -> None:
        s.add_all(BundleRow(digest=name, size=size) for name, size in (("b1", 1000), ("b2", 2000)))
        s.add(WorkspaceRow(id=1, path="ada/lab", name="lab", owner="ada"))
        s.flush()
        s.add_all(
            ProjectRow(id=key, workspace_id=1, key=name, name=name, owner="ada")
            for key, name in ((1, "one"), (2, "two"))
        )
        s.add_all(BundleUpload(digest="b1", name=name) for name in ("ada", "ben"))
        s.flush()
        add(s, 1, "ada", ["vision"], 1, ("COMPLETED", 10), ("PARTIALLY_DELETED", 5), ("DELETED", 70))
        add(s, 2, "ada", [], 2, ("COMPLETED", 100), ("DELETED?", 30))
        add(s, 3, "ben", ["vision", "speech"], 1, ("COMPLETED", 7))
        add(s, 4, "cy", [], None)
        s.get(ExperimentRow, 4).bundle = None
        s.add(TaskRow(id="t1", kind="command", name="t", owner="ben", state="COMPLETED", owner_groups=["speech"]))
        s.flush()
        s.add(OutputRow(task_id="t1", name="out", digest="d", size=9))

    store.write_sync(make)
    return store


def found(store: Any, by: Any, viewer: Person) -> dict[Any, tuple[int, int, int, int]]:
    sums, _ = store.read_sync(lambda s: usage.usage(s, by, viewer))
    shown = {
        key: (one.checkpoints, one.checkpoint_bytes, one.trash_bytes, one.other_bytes) for key, one in sums.items()
    }
    return {key: one for key, one in shown.items() if any(one)}


def test_bytes_by_user(stored: Any) -> None:
    assert found(stored, "user", ROOT) == {"ada": (3, 115, 30, 1000), "ben": (1, 7, 0, 1009)}
    assert found(stored, "user", ADA) == {"ada": (3, 115, 30, 1000)}
    assert found(stored, "user", CY) == {}


def test_bytes_by_group_are_those_that_its_members_stored_while_in_it(stored: Any) -> None:
    everything = {"vision": (3, 22, 0, 1000), "speech": (1, 7, 0, 1009)}
    assert found(stored, "group", ROOT) == everything
    assert found(stored, "group", ADA) == {"vision": everything["vision"]}
    assert found(stored, "group", BEN) == everything
    assert found(stored, "group", CY) == {}


def test_what_two_groups_have_counts_once_in_the_total(stored: Any) -> None:
    _, total = stored.read_sync(lambda s: usage.usage(s, "group", ROOT))
    assert (total.checkpoints, total.checkpoint_bytes, total.other_bytes) == (3, 22, 1009)
    _, total = stored.read_sync(lambda s: usage.usage(s, "user", ROOT))
    assert total.other_bytes == 1009, "one file of code that two have uploaded"


def test_I9_bytes_of_projects_and_experiments_are_of_what_one_may_read(stored: Any) -> None:
    assert found(stored, "project", ROOT) == {1: (3, 22, 0, 1000), 2: (1, 100, 30, 1000)}
    assert found(stored, "project", BEN) == {1: (1, 7, 0, 1000)}
    assert found(stored, "experiment", BEN) == {3: (1, 7, 0, 1000)}
    assert found(stored, "experiment", CY) == {}
    stored.write_sync(lambda s: s.add(GrantRow(experiment_id=2, kind="user", name="cy")))
    assert found(stored, "experiment", CY) == {2: (1, 100, 30, 1000)}
    assert found(stored, "project", CY) == {2: (1, 100, 30, 1000)}
    assert found(stored, "user", CY) == {}, "it is still ada's"


def test_freed_bytes_outlive_the_experiment_for_its_owner(stored: Any) -> None:
    def free(s: Any) -> None:
        s.add_all(
            FreedRow(experiment_id=key, owner=owner, bytes=size)
            for key, owner, size in ((1, "ada", 40), (2, "ada", 2), (99, "ada", 100), (3, "ben", 5))
        )

    stored.write_sync(free)

    def freed(by: Any, viewer: Person) -> dict[Any, int]:
        sums, total = stored.read_sync(lambda s: usage.usage(s, by, viewer))
        return {key: one.freed_bytes for key, one in sums.items() if one.freed_bytes} | {"": total.freed_bytes}

    assert freed("user", ROOT) == {"ada": 142, "ben": 5, "": 147}
    assert freed("user", BEN) == {"ben": 5, "": 5}
    assert freed("group", ROOT) == {"vision": 45, "speech": 5, "": 45}
    assert freed("project", ADA) == {1: 40, 2: 2, "": 42}
    assert freed("experiment", BEN) == {3: 5, "": 5}


def test_trash_is_all_of_a_checkpoint_also_what_was_to_go_before(stored: Any) -> None:
    def more(s: Any) -> None:
        s.get(RemovalRow, "2-1").bytes = 50

    stored.write_sync(more)
    assert found(stored, "user", ADA)["ada"][2] == 50


def test_the_sums_of_quotas_are_those_of_the_list(stored: Any) -> None:
    by_user, _ = stored.read_sync(lambda s: usage.usage(s, "user", ROOT))
    by_group, _ = stored.read_sync(lambda s: usage.usage(s, "group", ROOT))
    for name in ("ada", "ben", "cy", "nobody"):
        assert stored.read_sync(lambda s, name=name: usage.of_user(s, name)) == by_user.get(name, usage.Use())
    assert stored.read_sync(lambda s: usage.of_groups(s, ["vision", "speech", "none"])) == {
        **by_group,
        "none": usage.Use(),
    }
    assert stored.read_sync(lambda s: usage.largest(s, "ada", 5)) == [(2, "run 2", 100), (1, "run 1", 15)]


def test_the_sums_read_an_index_and_no_row_of_a_checkpoint(store: Any) -> None:
    plan = "SELECT experiment_id, count(*), sum(size) FROM checkpoints WHERE state != 'DELETED' GROUP BY experiment_id"

    def explain(s: Any) -> str:
        if s.get_bind().dialect.name == "postgresql":
            s.execute(text("SET LOCAL enable_seqscan = off"))
            return "\n".join(row[0] for row in s.execute(text(f"EXPLAIN {plan}")))
        return "\n".join(row[-1] for row in s.execute(text(f"EXPLAIN QUERY PLAN {plan}")))

    said = store.read_sync(explain)
    assert "ix_checkpoints_experiment_id_state_size" in said
    assert "COVERING INDEX" in said or "Index Only Scan" in said
