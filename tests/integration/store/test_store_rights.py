"""The rows that a query shows are those that the table of rights gives, for any owners, grants and callers (I9)."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from sqlalchemy import select

from detlab_hub.core.rights import ObjectKind, Person, Right, Role, Thing, right_of
from detlab_hub.store import Store
from detlab_hub.store.queries import rights, workspaces
from detlab_hub.store.tables import ExperimentRow, GrantRow, MemberRow, QuotaRow, TaskRow, WorkspaceRow
from testbed.databases.store_rows import add_experiment

USERS = ["ann", "bob", "cas", "a%", "vision"]
GROUPS = ["vision", "speech", "ann"]
VIEWERS = [
    Person(name, frozenset(groups), admin, run)
    for name, groups, admin, run in itertools.product(
        ["ann", "bob", "dan", "vision", ""], [[], ["vision"], GROUPS], [False, True], [False, True]
    )
]


def fill(s: Any, drawn: random.Random) -> None:
    """Write objects of random owners with random grants."""
    places = [None, *fill_workspaces(s, drawn)]
    for number in range(25):
        experiment = add_experiment(s, owner=drawn.choice(USERS))
        s.get(ExperimentRow, experiment).workspace_id = drawn.choice(places)
        for kind, names in ((rights.USER, USERS), (rights.GROUP, GROUPS)):
            for name in drawn.sample(names, drawn.choice([0, 0, 1, 2])):
                write = drawn.random() < 0.4
                s.add(GrantRow(experiment_id=experiment, kind=kind, name=name, write=write, granted_by="ann"))
        task = TaskRow(id=f"shell-{number}", kind="shell", name="x", owner=drawn.choice(USERS), state="ACTIVE")
        task.workspace_id = drawn.choice(places)
        s.add(task)
    s.add_all(QuotaRow(kind=rights.USER, name=name, slots=1) for name in USERS)
    s.add_all(QuotaRow(kind=rights.GROUP, name=name, slots=1) for name in GROUPS)


def fill_workspaces(s: Any, drawn: random.Random) -> list[int]:
    """Write workspaces with random members, and everybody's personal one; return the ids of the shared ones."""
    for owner in USERS:
        workspaces.personal(s, owner, 1.0)
    found = []
    for number in range(5):
        owner, name = drawn.choice(USERS), f"w{number}"
        row = WorkspaceRow(path=workspaces.path_of(owner, name), name=name, owner=owner)
        s.add(row)
        s.flush()
        found.append(row.id)
        for kind, names in ((rights.USER, USERS), (rights.GROUP, GROUPS)):
            for member in drawn.sample(names, drawn.choice([0, 1, 2])):
                s.add(MemberRow(workspace_id=row.id, kind=kind, name=member, role=drawn.choice([*Role]).wire))
    return found


def workspace_things(s: Any) -> dict[int, Thing]:
    """All workspaces with all their members."""
    found = {}
    for row in s.scalars(select(WorkspaceRow)):
        members = rights.members_of_each(s, [row.id]).get(row.id, rights.NOBODY)
        owner = row.owner if row.kind == workspaces.PERSONAL else None
        found[row.id] = Thing(ObjectKind.WORKSPACE, owner, members=members.users, member_groups=members.groups)
    return found


def experiments(s: Any) -> dict[Any, Thing]:
    """All experiments with all their grants and roles."""
    places, nowhere = workspace_things(s), Thing(ObjectKind.WORKSPACE)
    found = {}
    for row in s.scalars(select(ExperimentRow)):
        given = rights.grants_of(s, row.id)
        users = {one.name: one.write for one in given if one.kind == rights.USER}
        groups = {one.name: one.write for one in given if one.kind == rights.GROUP}
        place = places.get(row.workspace_id, nowhere)
        found[row.id] = Thing(ObjectKind.EXPERIMENT, row.owner, users, groups, place.members, place.member_groups)
    return found


def task_states(s: Any) -> dict[Any, Thing]:
    """The states of all user tasks with all roles."""
    places, nowhere = workspace_things(s), Thing(ObjectKind.WORKSPACE)
    found = {}
    for row in s.scalars(select(TaskRow)):
        place = places.get(row.workspace_id, nowhere)
        roles = {"members": place.members, "member_groups": place.member_groups}
        found[row.id] = Thing(ObjectKind.TASK_STATE, row.owner, **roles)
    return found


def quotas(s: Any) -> dict[Any, Thing]:
    """All quotas, as things that are for whom they name."""
    found = {}
    for row in s.scalars(select(QuotaRow)):
        named = {row.name: False}
        found[row.kind, row.name] = (
            Thing(ObjectKind.QUOTA, users=named) if row.kind == rights.USER else Thing(ObjectKind.QUOTA, groups=named)
        )
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_list_shows_what_the_table_of_rights_gives(store: Store, seed: int) -> None:
    store.write_sync(lambda s: fill(s, random.Random(seed)))

    def compare(s: Any) -> int:
        shared, named, states = experiments(s), quotas(s), task_states(s)
        shown = 0
        for viewer, least in itertools.product(VIEWERS, [Right.READ, Right.WRITE, Right.OWN]):
            query = select(ExperimentRow.id).where(rights.visible_experiments(viewer, least))
            found = set(s.scalars(query))
            assert found == {key for key, thing in shared.items() if right_of(viewer, thing) >= least}, (viewer, least)
            shown += len(found)
            ways = rights.ways_to_experiments(viewer, least)
            assert found == {key for way in ways for key in s.scalars(select(ExperimentRow.id).where(way))}
            for kind in (ObjectKind.TASK, ObjectKind.JOB, ObjectKind.USER, ObjectKind.ALLOCATION):
                where = rights.visible(kind, viewer, owner=TaskRow.owner, least=least)
                rows = {(row.id, row.owner) for row in s.scalars(select(TaskRow))}
                wanted = {key for key, owner in rows if right_of(viewer, Thing(kind, owner)) >= least}
                assert set(s.scalars(select(TaskRow.id).where(where))) == wanted, (viewer, kind, least)
            state = {"owner": TaskRow.owner, "workspace_id": TaskRow.workspace_id}
            where = rights.visible(ObjectKind.TASK_STATE, viewer, **state, least=least)
            assert set(s.scalars(select(TaskRow.id).where(where))) == {
                key for key, thing in states.items() if right_of(viewer, thing) >= least
            }, (viewer, least)
            where = rights.visible(ObjectKind.QUOTA, viewer, named=(QuotaRow.kind, QuotaRow.name), least=least)
            assert {(row.kind, row.name) for row in s.scalars(select(QuotaRow).where(where))} == {
                key for key, thing in named.items() if right_of(viewer, thing) >= least
            }
        places = workspace_things(s)
        for viewer in VIEWERS:
            found = set(s.scalars(select(WorkspaceRow.id).where(workspaces.visible_to(viewer))))
            assert found == {key for key, thing in places.items() if right_of(viewer, thing) >= Right.READ}, viewer
        return shown

    assert store.read_sync(compare) > 100


def test_roles_of_a_user_are_the_best_of_those_that_apply(store: Store) -> None:
    store.write_sync(lambda s: fill(s, random.Random(5)))

    def compare(s: Any) -> int:
        places = {key: thing for key, thing in workspace_things(s).items() if thing.owner is None}
        for viewer in VIEWERS:
            user = Person(viewer.name, viewer.groups)
            found = rights.roles_among(s, list(places), viewer)
            wanted = [(key, right_of(user, thing)) for key, thing in places.items()]
            assert {key: int(one) for key, one in found.items()} == {key: int(one) for key, one in wanted if one}
        return len(places)

    assert store.read_sync(compare) == 5


def test_grants_of_a_user_are_the_best_of_those_that_apply(store: Store) -> None:
    store.write_sync(lambda s: fill(s, random.Random(7)))

    def compare(s: Any) -> None:
        for viewer in VIEWERS:
            found = rights.grants_among(s, list(experiments(s)), viewer)
            user = Person(viewer.name, viewer.groups)
            wanted = {
                key: right_of(user, Thing(ObjectKind.EXPERIMENT, None, thing.users, thing.groups))
                for key, thing in experiments(s).items()
            }
            assert {key: Right.WRITE if write else Right.READ for key, write in found.items()} == {
                key: right for key, right in wanted.items() if right is not Right.NONE
            }

    store.read_sync(compare)
