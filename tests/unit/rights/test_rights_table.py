"""The whole table of rights, each cell by a caller and an object that have just that relation; and what it promises."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab_hub.core.rights import (
    TABLE,
    AgentIdentity,
    AttemptIdentity,
    CallerRelation,
    ObjectKind,
    Person,
    Right,
    Role,
    Thing,
    Who,
    relations,
    right_of,
)

ANN = Person("ann", frozenset({"vision"}))
ANNS_RUN = Person("ann", run=True)
ROOT = Person("root", admin=True)
TRIAL = AttemptIdentity(experiment_id=1, trial_id=2)
NODE = AgentIdentity("node-1")

CASES: dict[CallerRelation, tuple[Who, dict[str, object]]] = {
    CallerRelation.ADMIN: (ROOT, {}),
    CallerRelation.OWNER: (ANN, {"owner": "ann"}),
    CallerRelation.RUN: (ANNS_RUN, {"owner": "ann"}),
    CallerRelation.EDITOR: (ANN, {"users": {"ann": True}}),
    CallerRelation.READER: (ANN, {"groups": {"vision": False}}),
    CallerRelation.WORKSPACE_ADMIN: (ANN, {"members": {"ann": Role.ADMIN}}),
    CallerRelation.WORKSPACE_EDITOR: (ANN, {"member_groups": {"vision": Role.EDITOR}}),
    CallerRelation.WORKSPACE_VIEWER: (ANN, {"members": {"ann": Role.VIEWER}}),
    CallerRelation.ITSELF: (TRIAL, {"trial_id": 2}),
    CallerRelation.SIBLING: (TRIAL, {"experiment_id": 1}),
    CallerRelation.SOURCE: (TRIAL, {"source_of": (1,)}),
    CallerRelation.HOST: (NODE, {"agents": ("node-1",)}),
    CallerRelation.USES: (NODE, {"used_by": (Thing(ObjectKind.TASK, agents=("node-1",)),)}),
    CallerRelation.USER: (ANN, {}),
}
ALWAYS = {CallerRelation.USER}
"""Every user is that beside the relation of the case."""

RIGHTS = """
                 admin owner run   editor reader r_admin r_editor r_viewer itself sibling source host uses user
experiment       own   own   write write  read   own     write    read     -      read    -      read -    -
checkpoint       own   own   write write  read   own     write    read     own    read    read   -    read -
model            own   own   write write  read   own     write    read     -      -       -      -    -    -
artifact         own   own   write -      -      own     write    read     -      -       -      -    -    -
workspace        own   own   write -      -      own     write    read     -      -       -      -    -    -
run from elsewhere own own   write write  read   own     write    read     write  read    -      -    -    -
user task        own   own   write -      -      -       -        -        read   -       -      read -    -
state of a user task own own write -   -      write   read     read     -      -       -      -    -    -
code bundle      read  read  read  -      -      -       -        -        -      -       -      -    read -
job in the queue own   own   read  -      -      -       -        -        -      -       -      -    -    -
allocation       read  read  read  -      -      -       -        -        -      -       -      -    -    -
user             read  read  read  -      -      -       -        -        -      -       -      -    -    -
quota            own   -     -     -      read   -       -        -        -      -       -      -    -    -
webhook          own   own   read  -      -      -       -        -        -      -       -      -    -    -
alert rule       own   own   read  -      -      -       -        -        -      -       -      -    -    -
schedule         own   own   read  -      -      -       -        -        -      -       -      -    -    -
agent            own   -     -     -      -      -       -        -        -      -       -      -    -    read
cluster          own   -     -     -      -      -       -        -        -      -       -      -    -    read
administration   own   -     -     -      -      -       -        -        -      -       -      -    -    -
"""
SHORT = {"r_admin": "WORKSPACE_ADMIN", "r_editor": "WORKSPACE_EDITOR", "r_viewer": "WORKSPACE_VIEWER"}
"""Columns of roles."""


def written() -> dict[tuple[ObjectKind, CallerRelation], Right]:
    """The cells of the table as it is written above."""
    head, *rows = RIGHTS.strip("\n").splitlines()
    columns = [CallerRelation[SHORT.get(name, name.upper())] for name in head.split()]
    found = {}
    for row in rows:
        *name, cells = [" ".join(row.split()[: -len(columns)]), row.split()[-len(columns) :]]
        for relation, cell in zip(columns, cells, strict=True):
            found[ObjectKind(name[0]), relation] = Right.NONE if cell == "-" else Right[cell.upper()]
    return found


WRITTEN = written()


def test_the_table_is_whole():
    assert {kind for kind, _ in WRITTEN} == set(ObjectKind) == set(TABLE)
    assert {relation for _, relation in WRITTEN} == set(CallerRelation) == set(CASES)


@pytest.mark.parametrize(("kind", "relation"), WRITTEN, ids=lambda one: one.name)
def test_a_caller_has_the_right_of_their_relation(kind, relation):
    who, facts = CASES[relation]
    thing = Thing(kind, **facts)
    assert set(relations(who, thing)) - ALWAYS == {relation} - ALWAYS
    wanted = WRITTEN[kind, relation]
    if isinstance(who, Person):
        wanted = max(wanted, WRITTEN[kind, CallerRelation.USER])
    assert right_of(who, thing) is wanted


def test_each_right_includes_those_before_it():
    assert Right.NONE < Right.READ < Right.WRITE < Right.OWN
    assert [right.wire for right in (Right.READ, Right.WRITE, Right.OWN)] == ["read", "write", "own"]


# --- properties

names = st.sampled_from(["ann", "bob", "cas", "vision", ""])
numbers = st.none() | st.integers(1, 3)
tasks = st.none() | st.sampled_from(["shell-1", "shell-2"])
grants = st.dictionaries(names, st.booleans(), max_size=3)
persons = st.builds(Person, names, st.frozensets(names, max_size=2), st.booleans())
attempts = st.builds(AttemptIdentity, numbers, numbers, tasks)
callers = persons | attempts | st.builds(AgentIdentity, st.sampled_from(["node-1", "node-2"]))
roles = st.dictionaries(names, st.sampled_from(Role), max_size=3)
plain = st.builds(
    Thing,
    st.sampled_from(ObjectKind),
    st.none() | names,
    grants,
    grants,
    roles,
    roles,
    numbers,
    numbers,
    tasks,
    st.lists(st.integers(1, 3), max_size=2),
    st.lists(st.sampled_from(["node-1", "node-2"]), max_size=2),
)
objects = plain | st.builds(lambda thing, used_by: replace(thing, used_by=used_by), plain, st.lists(plain, max_size=2))


@given(callers, objects)
def test_i9_without_a_relation_nobody_has_any_right(who, thing):
    found = set(relations(who, thing))
    assert right_of(who, thing) == max((TABLE[thing.kind].get(one, Right.NONE) for one in found), default=Right.NONE)
    if not found:
        assert right_of(who, thing) is Right.NONE


@given(callers, st.sampled_from(ObjectKind))
def test_i9_an_object_without_facts_is_for_administrators_and_what_all_users_may_read(who, kind):
    everybody = TABLE[kind].get(CallerRelation.USER, Right.NONE) if isinstance(who, Person) else Right.NONE
    if isinstance(who, Person) and who.admin:
        assert right_of(who, Thing(kind)) is TABLE[kind][CallerRelation.ADMIN]
    else:
        assert right_of(who, Thing(kind)) is everybody
    assert everybody <= Right.READ


@given(persons, objects)
def test_a_grant_never_gives_more_than_changes(who, thing):
    bare = replace(thing, users={}, groups={})
    assert right_of(who, bare) <= right_of(who, thing) <= max(right_of(who, bare), Right.WRITE)
    if not any([*thing.users.values(), *thing.groups.values()]):
        assert right_of(who, thing) <= max(right_of(who, bare), Right.READ)


@given(persons, objects)
def test_of_role_and_grant_a_user_has_the_better(who, thing):
    """A role is that of a member, or of a group of theirs."""
    bare = replace(thing, members={}, member_groups={})
    held = [role for name, role in thing.members.items() if name == who.name]
    held += [role for name, role in thing.member_groups.items() if name in who.groups]
    if not held:
        assert right_of(who, thing) is right_of(who, bare)
        return
    most = Right(min(max(held), Right.WRITE if who.run else Right.OWN))
    by_uses = right_of(who, Thing(thing.kind, used_by=thing.used_by))
    in_workspaces = {ObjectKind.EXPERIMENT, ObjectKind.CHECKPOINT, ObjectKind.MODEL, ObjectKind.TRACKED_RUN}
    if thing.kind in {*in_workspaces, ObjectKind.ARTIFACT, ObjectKind.WORKSPACE}:
        assert right_of(who, thing) is max(right_of(who, bare), most, by_uses)
    elif thing.kind is ObjectKind.TASK_STATE:  # admins of its workspace may end it; other members see it
        assert right_of(who, thing) is max(right_of(who, bare), Right.WRITE if most is Right.OWN else Right.READ)
    else:
        assert right_of(who, thing) is right_of(who, bare)


@given(persons, objects)
def test_a_notebook_run_has_no_more_than_its_owner_and_is_no_administrator(who, thing):
    theirs = right_of(replace(who, admin=False, run=False), thing)
    ran = replace(who, run=True)
    assert right_of(ran, thing) is right_of(replace(ran, admin=True), thing)
    assert right_of(ran, thing) <= theirs
    assert right_of(ran, thing) <= Right.WRITE


@given(persons, objects)
def test_a_grant_to_others_gives_nothing(who, thing):
    others = replace(
        thing,
        users={name: write for name, write in thing.users.items() if name != who.name},
        groups={name: write for name, write in thing.groups.items() if name not in who.groups},
    )
    assert right_of(who, others) is right_of(who, replace(thing, users={}, groups={}))


@given(attempts, objects)
def test_a_task_has_no_right_of_its_owner(who, thing):
    assert right_of(who, thing) is right_of(
        who, replace(thing, owner=None, users={}, groups={}, members={}, member_groups={})
    )


@given(persons, objects)
def test_an_administrator_has_what_an_owner_has(who, thing):
    row = TABLE[thing.kind]
    assert row[CallerRelation.ADMIN] >= max(
        row.get(one, Right.NONE) for one in CallerRelation if one is not CallerRelation.ADMIN
    )
    assert right_of(replace(who, admin=True), thing) >= right_of(who, thing)
