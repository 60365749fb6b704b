"""Workspaces, their members and projects, as the services keep them: names, roles, moves, the last admin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from services_scripted import ALICE, BOB, ROOT, config

from detlab.errors import ConfigError, Conflict, Forbidden, NotFound
from detlab.schemas.wire import CreateExperiment, GrantRequest, GrantTo
from detlab.schemas.wire.projects import CreateProject, EditProject, MoveExperiment, MoveModel
from detlab.schemas.wire.registry import CreateModel
from detlab.schemas.wire.workspaces import CreateWorkspace, EditWorkspace, MemberRequest
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.projects.members import MembersOfWorkspaces
from detlab_hub.services.projects.moves import Moves
from detlab_hub.services.projects.projects import Projects
from detlab_hub.services.projects.workspaces import Workspaces
from detlab_hub.services.registry.models import Models

CAROL = replace(BOB, name="carol", groups=frozenset({"vision"}))
MALLORY = replace(BOB, name="mallory")
ALICES_RUN = replace(ALICE, run="1.a.0")


def words(found: pytest.ExceptionInfo[ConfigError]) -> list[tuple[str, str, str | None]]:
    return [(one.path, one.message, one.hint) for one in found.value.problems]


async def submit_refused(world: Any, caller: Any = ALICE, **where: str) -> list[tuple[str, str, str | None]]:
    """What a submit is refused with; a dry run in the same words."""
    told = []
    for dry in (True, False):
        request = CreateExperiment(config=config(**where), dry_run=dry)
        with pytest.raises(ConfigError) as found:
            await world.services[Experiments].create(caller, request)
        told.append(words(found))
    assert told[0] == told[1]
    return told[0]


# --- names


@pytest.mark.parametrize(("one", "other"), [("Vision", "VISION"), ("café", "cafe\u0301"), ("ﬁne", "fine")])
async def test_names_that_differ_only_in_case_or_in_unicodes_form_are_taken(make_world, one, other):
    world = await make_world()
    made = await world.workspace(one, one)
    with pytest.raises(Conflict, match="differ only in case or in how Unicode writes them"):
        await world.services[Workspaces].create(ALICE, CreateWorkspace(name=other))
    with pytest.raises(Conflict, match="differ only in case"):
        await world.services[Projects].create(ALICE, other, CreateProject(name=other))
    # It is found by either, and may be written anew.
    view = await world.submit(config(workspace=other, project=other))
    assert (view.workspace_id, view.workspace, view.project) == (made.id, one, one)
    edited = await world.services[Workspaces].edit(ALICE, one, EditWorkspace(name=other))
    assert (edited.id, edited.name) == (made.id, CreateWorkspace(name=other).name)
    # Names of others are others' affair, and nobody learns of them.
    assert (await world.workspace(one, caller=BOB)).id != made.id


@pytest.mark.parametrize("name", ["Uncategorized", "uncategorized", "UNCATEGORIZED"])
async def test_nobody_takes_the_name_of_the_personal_workspace(make_world, name):
    world = await make_world()
    with pytest.raises(Conflict, match="everybody's personal workspace"):
        await world.services[Workspaces].create(ALICE, CreateWorkspace(name=name))
    made = await world.workspace("lab")
    with pytest.raises(Conflict, match="everybody's personal workspace"):
        await world.services[Workspaces].edit(ALICE, str(made.id), EditWorkspace(name=name))


@pytest.mark.parametrize("name", ["", " ", "12", "a/b", "a:b", "\u202ex", "../x", "x" * 201, "a\x00b", "a\nb/c", "-w"])
def test_a_name_that_could_be_mistaken_is_none(name):
    for model in (CreateWorkspace, CreateProject):
        with pytest.raises(ValueError, match="name"):
            model(name=name)


# --- submit


async def test_an_unknown_name_at_submit_is_refused_with_the_command_that_makes_one(make_world):
    world = await make_world()
    assert await submit_refused(world, workspace="vision lab") == [
        ("workspace", "there is no workspace 'vision lab'", "make it: det workspace create 'vision lab'")
    ]
    await world.workspace("lab")
    assert await submit_refused(world, workspace="lab", project="digits") == [
        ("project", "there is no project 'digits' in workspace 'lab'", "make it: det project create lab digits")
    ]
    assert await submit_refused(world, project="digits") == [
        (
            "project",
            "there is no project 'digits' in your personal workspace",
            "make it: det project create Uncategorized digits",
        )
    ]
    await world.services[Projects].create(ALICE, "Uncategorized", CreateProject(name="digits"))
    view = await world.submit(config(project="digits"))
    assert (view.workspace, view.project) == ("Uncategorized", "digits")


async def test_hidden_and_absent_names_answer_alike(make_world):
    world = await make_world()
    hidden = await world.workspace("secret", "plan")
    absent = str(hidden.id + 1000)
    names = [("alice/secret", "alice/nothing"), (str(hidden.id), absent)]
    for there, nowhere in names:
        told = [await submit_refused(world, BOB, workspace=name, project="plan") for name in (there, nowhere)]
        ends = [name.rpartition("/")[2] for name in (there, nowhere)]  # one is told how to make one of that name
        assert str(told[0]).replace(ends[0], "NAME") == str(told[1]).replace(ends[1], "NAME")
        calls = [
            lambda name: world.services[Workspaces].get(BOB, name),
            lambda name: world.services[Workspaces].edit(BOB, name, EditWorkspace(name="mine")),
            lambda name: world.services[Workspaces].delete(BOB, name),
            lambda name: world.services[MembersOfWorkspaces].list(BOB, name),
            lambda name: world.services[MembersOfWorkspaces].put(BOB, name, MemberRequest(kind="user", name="bob")),
            lambda name: world.services[MembersOfWorkspaces].remove(BOB, name, GrantTo(kind="user", name="bob")),
            lambda name: world.services[Projects].list(BOB, name),
            lambda name: world.services[Projects].get(BOB, name, "plan"),
            lambda name: world.services[Projects].create(BOB, name, CreateProject(name="x")),
            lambda name: world.services[Projects].edit(BOB, name, "plan", EditProject(name="x")),
            lambda name: world.services[Projects].delete(BOB, name, "plan"),
            lambda name: world.services[Experiments].list(BOB, workspace=name),
            lambda name: world.services[Models].list(BOB, workspace=name),
        ]
        for call in calls:
            said = []
            for name in (there, nowhere):
                with pytest.raises(NotFound) as found:
                    await call(name)
                said.append((str(found.value), found.value.hint, str(name)))
            assert said[0][0].replace(there, "NAME") == said[1][0].replace(nowhere, "NAME")
            assert said[0][1] == said[1][1]
    # The same name of one's own is free: who makes it learns nothing.
    assert (await world.workspace("secret", caller=BOB)).owner == "bob"
    assert [one.id for one in (await world.services[Workspaces].list(MALLORY)).items] == []


async def test_a_name_alone_never_means_a_workspace_of_somebody_else(make_world):
    """Else its admin could rename it, and another come to see what is submitted into it."""
    world = await make_world()
    await world.workspace("vision", bob="editor")
    assert await submit_refused(world, BOB, workspace="vision") == [
        ("workspace", "you have no workspace 'vision'", "Others' are named with their owner: alice/vision")
    ]
    view = await world.submit(config(workspace="ALICE/vision".replace("ALICE", "alice")), BOB)
    assert (view.workspace, view.owner) == ("alice/vision", "bob")
    # As it is stored, everybody who submits it again means the same.
    assert view.config["workspace"] == "alice/vision"
    mine = await world.submit(config(workspace="vision"))
    assert (mine.workspace, mine.config["workspace"]) == ("vision", "alice/vision")


async def test_only_its_maker_gives_a_workspace_another_name(make_world):
    """Another admin could have a name of the maker's mean a workspace that the maker does not expect."""
    world = await make_world()
    made = await world.workspace("lab", bob="admin")
    with pytest.raises(Forbidden, match="one of alice's names"):
        await world.services[Workspaces].edit(BOB, "alice/lab", EditWorkspace(name="draft"))
    assert (await world.services[Workspaces].edit(BOB, "alice/lab", EditWorkspace(description="x"))).name == "lab"
    for caller, name in ((ALICE, "draft"), (ROOT, "final")):
        assert (await world.services[Workspaces].edit(caller, str(made.id), EditWorkspace(name=name))).name == name


async def test_viewers_put_nothing_into_a_workspace_and_archived_ones_take_nothing(make_world):
    world = await make_world()
    made = await world.workspace("lab", "digits", bob="viewer", carol="editor")
    with pytest.raises(Forbidden, match="the role editor"):
        await world.submit(config(workspace="alice/lab"), BOB)
    with pytest.raises(Forbidden, match="the role editor"):
        await world.services[Projects].create(BOB, "alice/lab", CreateProject(name="x"))
    await world.services[Projects].edit(ALICE, "lab", "digits", EditProject(archived=True))
    assert [path for path, *_ in await submit_refused(world, workspace="lab", project="digits")] == ["project"]
    await world.services[Workspaces].edit(ALICE, "lab", EditWorkspace(archived=True))
    told = await submit_refused(world, CAROL, workspace="alice/lab")
    assert told == [("workspace", "'alice/lab' is archived: it takes nothing new", "det workspace unarchive alice/lab")]
    with pytest.raises(Conflict, match="archived"):
        await world.services[Projects].create(CAROL, "alice/lab", CreateProject(name="x"))
    assert (await world.services[Workspaces].list(ALICE)).items == []
    found = await world.services[Workspaces].list(ALICE, archived="only")
    assert [one.id for one in found.items] == [made.id]


# --- rights by roles


async def right(world: Any, caller: Any, number: int) -> str:
    """What a caller may do with an experiment; empty: they do not see it, in no way."""
    listed = {one.id: one.may for one in (await world.services[Experiments].list(caller))[0]}
    try:
        found = (await world.services[Experiments].get(caller, number)).may
    except NotFound:
        assert number not in listed
        return ""
    assert listed[number] == found
    return found


async def test_what_lies_in_a_workspace_is_seen_by_its_members_and_by_nobody_else(make_world):
    world = await make_world()
    await world.workspace("lab", at_vision="viewer", bob="editor", dan="admin")
    view = await world.submit(config(workspace="lab"))
    elsewhere = await world.submit(config())
    dan = replace(BOB, name="dan")
    people = {"alice": ALICE, "bob": BOB, "carol": CAROL, "dan": dan, "mallory": MALLORY, "root": ROOT}
    assert {name: await right(world, one, view.id) for name, one in people.items()} == {
        "alice": "own",
        "bob": "write",
        "carol": "read",
        "dan": "own",
        "mallory": "",
        "root": "own",
    }
    assert {name for name, one in people.items() if await right(world, one, elsewhere.id)} == {"alice", "root"}
    # A run of an admin's is an editor at most.
    assert await right(world, replace(dan, run="1.a.0"), view.id) == "write"
    # Of role and grant the better, either way.
    grant = GrantRequest(kind="user", name="carol", write=True)
    await world.services[Grants].put(ALICE, view.id, grant)
    assert await right(world, CAROL, view.id) == "write"
    await world.services[Grants].put(ALICE, view.id, GrantRequest(kind="user", name="bob", write=False))
    assert await right(world, BOB, view.id) == "write"
    await world.services[Experiments].pause(BOB, view.id)
    with pytest.raises(Forbidden):
        await world.services[Experiments].pause(replace(CAROL, name="nina"), view.id)


async def test_a_role_that_is_taken_away_is_gone_at_once_and_the_owners_own_stays(make_world):
    world = await make_world()
    await world.workspace("lab", bob="editor")
    theirs = await world.submit(config(workspace="alice/lab"), BOB)
    mine = await world.submit(config(workspace="lab"))
    assert await right(world, BOB, mine.id) == "write"
    await world.services[MembersOfWorkspaces].put(ALICE, "lab", MemberRequest(kind="user", name="bob", role="viewer"))
    assert await right(world, BOB, mine.id) == "read"
    await world.services[MembersOfWorkspaces].remove(ALICE, "lab", GrantTo(kind="user", name="bob"))
    assert await right(world, BOB, mine.id) == ""
    assert await right(world, BOB, theirs.id) == "own"
    with pytest.raises(NotFound):
        await world.services[Workspaces].get(BOB, "alice/lab")


# --- the last admin


async def test_the_last_admin_neither_leaves_nor_becomes_less(make_world):
    world = await make_world()
    await world.workspace("lab", bob="editor", at_vision="admin")
    members = world.services[MembersOfWorkspaces]
    for caller in (ALICE, ROOT):
        with pytest.raises(Conflict, match="the last user who is an admin"):
            await members.remove(caller, "alice/lab", GrantTo(kind="user", name="alice"))
        with pytest.raises(Conflict, match="the last user who is an admin"):
            await members.put(caller, "alice/lab", MemberRequest(kind="user", name="alice", role="editor"))
    await members.put(ALICE, "lab", MemberRequest(kind="user", name="bob", role="admin"))
    await members.remove(ALICE, "lab", GrantTo(kind="user", name="alice"))
    with pytest.raises(NotFound):  # who made it has no right to it by that
        await world.services[Workspaces].get(ALICE, "lab")
    with pytest.raises(Conflict, match="the last user"):
        await members.remove(BOB, "alice/lab", GrantTo(kind="user", name="bob"))


async def test_members_leave_by_themselves_and_remove_no_others(make_world):
    world = await make_world()
    await world.workspace("lab", bob="viewer", dora="editor")
    members = world.services[MembersOfWorkspaces]
    with pytest.raises(Forbidden, match="the role admin"):
        await members.remove(BOB, "alice/lab", GrantTo(kind="user", name="dora"))
    assert (await members.remove(BOB, "alice/lab", GrantTo(kind="user", name="bob"))).items == []
    found = await members.list(ALICE, "lab")
    assert [(one.kind, one.name, one.role) for one in found.items] == [
        ("user", "alice", "admin"),
        ("user", "dora", "editor"),
    ]


# --- what is not empty, and what is personal


async def test_a_project_or_workspace_with_runs_in_it_is_not_deleted(make_world):
    world = await make_world()
    await world.workspace("lab", "digits")
    view = await world.submit(config(workspace="lab", project="digits"))
    with pytest.raises(Conflict, match="1 experiment lies in it") as found:
        await world.services[Projects].delete(ALICE, "lab", "digits")
    assert "det experiment list --workspace alice/lab --project digits" in found.value.hint
    with pytest.raises(Conflict, match=r"it holds 1 experiment\b"):
        await world.services[Workspaces].delete(ALICE, "lab")
    model = await world.services[Models].create(ALICE, CreateModel(name="m", workspace="lab"))
    await world.services[Moves].experiment(ALICE, view.id, MoveExperiment())
    await world.services[Projects].delete(ALICE, "lab", "digits")
    with pytest.raises(Conflict, match="it holds 1 model"):
        await world.services[Workspaces].delete(ALICE, "lab")
    await world.services[Models].move(ALICE, str(model.id), MoveModel())
    await world.services[Workspaces].delete(ALICE, "lab")
    assert (await world.services[Experiments].get(ALICE, view.id)).workspace == "Uncategorized"


async def test_a_personal_workspace_is_its_owners_alone(make_world):
    world = await make_world()
    view = await world.submit(config())
    number = str(view.workspace_id)
    for act in (
        world.services[MembersOfWorkspaces].put(ALICE, number, MemberRequest(kind="user", name="bob")),
        world.services[Workspaces].edit(ALICE, number, EditWorkspace(name="x")),
        world.services[Workspaces].edit(ALICE, number, EditWorkspace(archived=True)),
        world.services[Workspaces].delete(ALICE, number),
    ):
        with pytest.raises(Conflict, match="alice's personal one"):
            await act
    with pytest.raises(NotFound):
        await world.services[Workspaces].get(BOB, number)
    assert [
        one["path"] if isinstance(one, dict) else one[0] for one in await submit_refused(world, ROOT, workspace=number)
    ] == ["workspace"]
    shown = await world.services[Workspaces].list(ROOT)
    assert [one.owner for one in shown.items] == []  # nor are those of all users in an administrator's list


async def test_a_personal_workspace_counts_its_owners_models(make_world):
    """Models in it name no workspace: it said that there were none."""
    world = await make_world()
    await world.workspace("lab", "digits")
    number = str((await world.submit(config())).workspace_id)
    models = world.services[Models]
    for caller, name, where in ((ALICE, "m", None), (ALICE, "n", "lab"), (BOB, "o", None)):
        await models.create(
            caller, CreateModel(name=name) if where is None else CreateModel(name=name, workspace=where)
        )
    assert (await world.services[Workspaces].get(ALICE, number)).models == 1
    assert (await world.services[Workspaces].get(ALICE, "lab")).models == 1


async def test_of_two_people_who_edit_one_note_the_second_is_told(make_world):
    world = await make_world()
    await world.workspace("lab", "digits", bob="editor")
    projects = world.services[Projects]
    edits = [EditProject(notes=f"by {name}", notes_before="") for name in ("alice", "bob")]
    await projects.edit(ALICE, "lab", "digits", edits[0])
    with pytest.raises(Conflict, match="changed since you opened them"):
        await projects.edit(BOB, "alice/lab", "digits", edits[1])
    assert (await projects.edit(ALICE, "lab", "digits", edits[0])).notes == "by alice"  # the same again
    again = EditProject(notes="by both", notes_before="by alice")
    assert (await projects.edit(BOB, "alice/lab", "digits", again)).notes == "by both"


# --- moves


async def test_a_move_shows_it_to_the_members_of_the_other_workspace_alone(make_world):
    world = await make_world()
    await world.workspace("one", bob="viewer")
    two = await world.workspace("two", "final", carol="viewer")
    view = await world.submit(config(workspace="one"))
    moved = await world.services[Moves].experiment(ALICE, view.id, MoveExperiment(workspace="two", project="final"))
    assert (moved.workspace_id, moved.workspace, moved.project) == (two.id, "two", "final")
    assert [await right(world, one, view.id) for one in (BOB, CAROL)] == ["", "read"]
    assert [one.id for one in (await world.services[Experiments].list(ALICE, workspace="two", project="final"))[0]] == [
        view.id
    ]
    assert (await world.services[Experiments].list(ALICE, workspace="one"))[0] == []
    # The same again changes nothing.
    assert (
        await world.services[Moves].experiment(ALICE, view.id, MoveExperiment(workspace="two", project="final"))
        == moved
    )


async def test_who_may_move_what_where(make_world):
    world = await make_world()
    await world.workspace("lab", bob="editor", dan="admin")
    await world.workspace("bobs", caller=BOB)
    view = await world.submit(config(workspace="lab"))
    moves = world.services[Moves]
    with pytest.raises(Forbidden):  # an editor moves nothing of others'
        await moves.experiment(BOB, view.id, MoveExperiment(workspace="bobs"))
    with pytest.raises(Forbidden):
        await moves.experiment(ALICES_RUN, view.id, MoveExperiment())
    with pytest.raises(ConfigError, match=r"^this cannot be the destination\n  workspace: there is no .*'bob/bobs'"):
        await moves.experiment(ALICE, view.id, MoveExperiment(workspace="bob/bobs"))
    dan = replace(BOB, name="dan")
    moved = await moves.experiment(dan, view.id, MoveExperiment())  # out of the workspace, to its owner
    assert (moved.workspace_id, moved.owner) == (
        (await world.services[Workspaces].get(ALICE, "Uncategorized")).id,
        "alice",
    )
    with pytest.raises(NotFound):
        await world.services[Experiments].get(dan, view.id)


async def test_models_lie_in_workspaces_too(make_world):
    world = await make_world()
    await world.workspace("lab", bob="viewer", carol="editor")
    made = await world.services[Models].create(ALICE, CreateModel(name="digits", workspace="lab"))
    assert (made.workspace, (await world.services[Models].get(BOB, str(made.id))).right) == ("alice/lab", "read")
    assert [one.id for one in (await world.services[Models].list(CAROL, workspace="alice/lab")).items] == [made.id]
    with pytest.raises(Forbidden):
        await world.services[Models].move(CAROL, str(made.id), MoveModel())
    assert (await world.services[Models].move(ALICE, "digits", MoveModel())).workspace == ""
    with pytest.raises(NotFound):
        await world.services[Models].get(BOB, str(made.id))
    assert [one.id for one in (await world.services[Models].list(ALICE, workspace="Uncategorized")).items] == [made.id]
    with pytest.raises(ConfigError, match="there is no workspace"):
        await world.services[Models].create(BOB, CreateModel(name="x", workspace="alice/nothing"))
