"""The table of actions: each row as it was meant, written by hand, and what no row may ever say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_rights_table import callers

from detlab_hub.core.rights import (
    ACTIONS,
    TABLE,
    Action,
    AgentIdentity,
    AttemptIdentity,
    CallerKind,
    CallerRelation,
    ObjectKind,
    Person,
    Right,
    Role,
    Thing,
    may,
    may_ask,
    right_of,
)
from testbed.resource_tests import declared

ANY_PERSON = """
none  experiment.create bundle.upload model.create task.create
write experiment.edit experiment.pause experiment.activate experiment.cancel experiment.kill
write search.steer search.ask search.tell trial.kill checkpoint.edit checkpoint.bookmark checkpoint.register
write model.edit version.register version.edit label.move label.remove task.kill artifact.edit
"""
"""What a user, and a notebook run of theirs, may."""
ANY_WRITER = """
none  tracked_run.register artifact.create
read  artifact.use
write tracked_run.create tracked_run.log artifact.log
"""
"""What a trial may, too, with what is its own."""
NO_RUN = """
none task.start_server
read checkpoint.unbookmark
own  experiment.archive experiment.delete experiment.gc experiment.delete_event_files experiment.log_retention
own  experiment.move experiment.share experiment.unshare search.code job.update trash.empty
own  checkpoint.unbookmark_all checkpoint.delete checkpoint.undelete checkpoint.remove_files
own  checkpoint.register_elsewhere
own  tracked_run.delete task.move artifact.move artifact.delete
own  model.move model.rename model.archive model.delete model.share model.unshare version.delete
"""
ADMINISTRATORS = """
own enrolment.create node.enable node.disable node.drain node.forget cluster.drain quota.set quota.remove token.revoke
"""
PROGRAMS = {
    CallerKind.TASK: """
        none attempt.report attempt.meet attempt.commit attempt.collect attempt.renew
        own attempt.delete_checkpoint
    """,
    CallerKind.AGENT: "none agent.records",
    CallerKind.ENROLMENT: "none agent.enrol",
    CallerKind.SPAWNERS: "none spawn.start spawn.claim spawn.end",
}
ANN, ANNS_RUN = Person("ann"), Person("ann", run=True)
BOB = Person("bob")


def written() -> dict[Action, tuple[Right, set[CallerKind]]]:
    """The rows as they are written above, and in the tests of resources (`RIGHTS`)."""
    found = {}
    person, run = CallerKind.PERSON, CallerKind.RUN
    texts = [
        (ANY_PERSON, {person, run}),
        (ANY_WRITER, {person, run, CallerKind.TASK}),
        (NO_RUN, {person}),
        (ADMINISTRATORS, {CallerKind.ADMIN}),
    ]
    for text, callers_ in [*texts, *((text, {kind}) for kind, text in PROGRAMS.items())]:
        for line in text.strip().splitlines():
            right, *names = line.split()
            found |= {Action(name): (Right[right.upper()], callers_) for name in names}
    for name, text in declared("RIGHTS").items():
        right, tokens = text.split(maxsplit=1)
        found[Action(name)] = (Right[right.upper()], {CallerKind(token) for token in tokens.split(", ")})
    return found


def test_the_table_is_as_it_is_written_here() -> None:
    assert {action: (rule.least, set(rule.callers)) for action, rule in ACTIONS.items()} == written()
    assert set(ACTIONS) == set(Action)


@pytest.mark.parametrize("action", Action)
def test_a_row_that_lets_a_notebook_run_ask_lets_it_act(action: Action) -> None:
    """What the table of actions says of runs is what the table of rights gives them on what is their owner's."""
    rule = ACTIONS[action]
    for kind in rule.kinds:
        given_ = TABLE[kind].get(CallerRelation.RUN, Right.NONE) >= rule.least
        assert given_ or CallerKind.RUN not in rule.callers
        if CallerKind.PERSON in rule.callers:
            assert TABLE[kind][CallerRelation.OWNER] >= rule.least
            assert may(ANN, action, Thing(kind, "ann"))
            assert may(ANNS_RUN, action, Thing(kind, "ann")) is (CallerKind.RUN in rule.callers)


@pytest.mark.parametrize("action", Action)
def test_what_deletes_shares_hides_or_purges_is_the_owners(action: Action) -> None:
    word = action.value.partition(".")[2]
    if word in {"delete", "share", "unshare", "archive", "gc", "remove_files", "empty", "rename", "log_retention"}:
        rule = ACTIONS[action]
        assert (rule.least, rule.callers) == (Right.OWN, {CallerKind.PERSON}), action
        for kind in rule.kinds:
            assert not may(BOB, action, Thing(kind, "ann", users={"bob": True}))


@pytest.mark.parametrize("action", Action)
def test_a_grant_for_changes_carries_what_needs_no_more(action: Action) -> None:
    rule = ACTIONS[action]
    for kind in set(rule.kinds) & {ObjectKind.EXPERIMENT, ObjectKind.CHECKPOINT, ObjectKind.MODEL}:
        people = CallerKind.PERSON in rule.callers
        assert may(BOB, action, Thing(kind, "ann", users={"bob": True})) is (people and rule.least <= Right.WRITE)
        assert may(BOB, action, Thing(kind, "ann", users={"bob": False})) is (people and rule.least <= Right.READ)


@pytest.mark.parametrize("action", Action)
def test_a_role_carries_what_its_right_does_but_nothing_that_runs_as_the_owner(action: Action) -> None:
    rule = ACTIONS[action]
    with_roles = {ObjectKind.EXPERIMENT, ObjectKind.CHECKPOINT, ObjectKind.MODEL, ObjectKind.WORKSPACE}
    for kind in set(rule.kinds) & with_roles:
        people = CallerKind.PERSON in rule.callers
        for role, right in ((Role.VIEWER, Right.READ), (Role.EDITOR, Right.WRITE), (Role.ADMIN, Right.OWN)):
            thing = Thing(kind, "ann", members={"bob": role})
            assert may(BOB, action, thing) is (people and rule.by_role and rule.least <= right), (kind, role)
    assert rule.by_role is (action is not Action.SEARCH_CODE)


def test_of_a_user_task_a_role_gives_its_state_and_to_admins_its_end() -> None:
    kill, move = Action.TASK_KILL, Action.TASK_MOVE
    given_ = {
        role: [may(BOB, action, Thing(ObjectKind.TASK_STATE, "ann", members={"bob": role})) for action in (kill, move)]
        for role in Role
    }
    assert given_ == {Role.VIEWER: [False, False], Role.EDITOR: [False, False], Role.ADMIN: [True, False]}
    for role in Role:
        whole = Thing(ObjectKind.TASK, "ann", members={"bob": role}, member_groups={"vision": role})
        assert right_of(Person("bob", frozenset({"vision"})), whole) is Right.NONE
        run = Person("bob", run=True)
        assert not may(run, kill, Thing(ObjectKind.TASK_STATE, "ann", members={"bob": role}))


relations = st.fixed_dictionaries(
    {
        "owner": st.sampled_from(["ann", "bob"]),
        "users": st.sampled_from([{}, {"ann": True}, {"ann": False}]),
        "members": st.sampled_from([{}, *({"ann": role} for role in Role)]),
        "trial_id": st.integers(1, 2),
        "agents": st.sampled_from([(), ("node-1",)]),
    }
)


@given(callers, st.sampled_from(Action), st.sampled_from(ObjectKind), relations)
def test_nobody_may_without_the_right_and_the_kind_of_token(who, action, kind, facts) -> None:
    thing = Thing(kind, **facts)
    rule = ACTIONS[action]
    if thing.kind not in rule.kinds:
        with pytest.raises(ValueError, match="is not about"):
            may(who, action, thing)
        return
    told = thing if rule.by_role else replace(thing, members={})
    assert may(who, action, thing) is (may_ask(who, action) and right_of(who, told) >= rule.least)
    if isinstance(who, AttemptIdentity):
        assert may_ask(who, action) is (CallerKind.TASK in rule.callers)
    if isinstance(who, AgentIdentity):
        assert may_ask(who, action) is (CallerKind.AGENT in rule.callers)
