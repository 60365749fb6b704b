"""Saved views: each user has their own, under names; what is wrong with one is said when it is saved."""

from __future__ import annotations

from dataclasses import replace

import pytest
from services_scripted import ALICE, BOB, ROOT, training

from detlab.errors import ConfigError, Conflict, Forbidden, NotFound
from detlab.schemas.wire import GrantTo
from detlab.schemas.wire.saved_views import SaveView
from detlab.schemas.wire.workspaces import MemberRequest
from detlab_hub.services.finding import saved_views
from detlab_hub.services.finding.saved_views import SavedViews
from detlab_hub.services.projects.members import MembersOfWorkspaces
from detlab_hub.services.projects.projects import Projects
from detlab_hub.services.projects.workspaces import Workspaces

MALLORY = replace(BOB, name="mallory")
GOOD = SaveView(name="good", table="trials", filter="acc > 0.9", sort=["-acc"], columns=["acc", "hp.lr"])


@pytest.fixture
async def views(make_world):
    return (await make_world(training(1))).services[SavedViews]


async def names(views, caller=ALICE, **more):
    return [one.name for one in (await views.list(caller, **more)).items]


async def test_a_view_is_kept_replaced_and_removed(views):
    made = await views.save(ALICE, GOOD)
    assert (made.filter, made.sort, made.columns, made.owner, made.project_id) == (
        "acc > 0.9",
        ["-acc"],
        ["acc", "hp.lr"],
        "alice",
        None,
    )
    again = await views.save(ALICE, GOOD.model_copy(update={"filter": "acc > 0.5", "layout": {"pinned": ["acc"]}}))
    assert (again.id, again.filter, again.layout) == (made.id, "acc > 0.5", {"pinned": ["acc"]})
    await views.save(ALICE, GOOD.model_copy(update={"table": "experiments"}))
    await views.save(ALICE, GOOD.model_copy(update={"name": "other"}))
    assert await names(views) == ["good", "good", "other"]
    assert await names(views, table="experiments") == ["good"]
    page = await views.list(ALICE, limit=2)
    assert await names(views, limit=2, after=page.next) == ["other"]
    assert (await views.remove(ALICE, "trials", "good")).id == made.id
    with pytest.raises(NotFound, match="you have no saved view 'good' of trials"):
        await views.remove(ALICE, "trials", "good")
    assert await names(views) == ["good", "other"]


async def test_nobody_sees_or_removes_anothers_view(views):
    await views.save(ALICE, GOOD)
    for caller in (BOB, ROOT):
        assert await names(views, caller) == []
        with pytest.raises(NotFound):
            await views.remove(caller, "trials", "good")
    theirs = await views.save(BOB, GOOD.model_copy(update={"filter": ""}))
    assert (await views.list(ALICE)).items[0].filter == "acc > 0.9"
    assert theirs.owner == "bob"


async def test_what_cannot_be_read_is_not_kept(views):
    for wrong, path in (
        ({"filter": "acc >"}, "filter"),
        ({"sort": ["a b"]}, "sort.0"),
        ({"columns": ["acc", "hp."]}, "column.1"),
        ({"layout": {"x": "y" * 20_000}}, "layout"),
    ):
        with pytest.raises(ConfigError) as refused:
            await views.save(ALICE, GOOD.model_copy(update=wrong))
        assert [one.path for one in refused.value.problems] == [path]
    assert await names(views) == []


async def test_there_are_only_so_many(views, monkeypatch):
    monkeypatch.setattr(saved_views, "MOST_VIEWS", 2)
    for name in ("a", "b"):
        await views.save(ALICE, GOOD.model_copy(update={"name": name}))
    with pytest.raises(Conflict, match="you have 2 saved views"):
        await views.save(ALICE, GOOD.model_copy(update={"name": "c"}))
    await views.save(ALICE, GOOD.model_copy(update={"name": "b", "filter": ""}))
    await views.save(BOB, GOOD)


async def test_the_members_of_a_project_have_the_views_in_it_as_long_as_they_have_a_role(make_world):
    world = await make_world(training(1))
    views, members = world.services[SavedViews], world.services[MembersOfWorkspaces]
    await world.workspace("vision", "digits")
    await members.put(ALICE, "vision", MemberRequest(kind="user", name="bob", role="viewer"))
    made = await views.save(ALICE, GOOD.model_copy(update={"workspace": "vision", "project": "digits"}))
    assert (made.workspace, made.project, made.owner) == ("alice/vision", "digits", "alice")
    (seen,) = (await views.list(BOB)).items
    assert seen == made
    with pytest.raises(NotFound):
        await views.remove(BOB, "trials", "good")
    for other in (MALLORY, ROOT):
        assert await names(views, other) == []
    # One of bob's own by that name is another one, and he may not put it there.
    await views.save(BOB, GOOD.model_copy(update={"filter": ""}))
    with pytest.raises(Forbidden):
        await views.save(BOB, GOOD.model_copy(update={"workspace": "alice/vision", "project": "digits"}))
    assert [one.owner for one in (await views.list(BOB)).items] == ["alice", "bob"]
    await members.remove(ALICE, "vision", GrantTo(kind="user", name="bob"))
    assert [one.owner for one in (await views.list(BOB)).items] == ["bob"]
    assert (await views.save(ALICE, GOOD)).project_id is None, "kept again without a project: alice's alone"


async def test_a_view_names_no_project_that_its_owner_may_not_read_any_more(make_world):
    world = await make_world(training(1))
    views, members = world.services[SavedViews], world.services[MembersOfWorkspaces]
    await world.workspace("vision", "digits")
    await members.put(ALICE, "vision", MemberRequest(kind="user", name="bob", role="editor"))
    await views.save(BOB, GOOD.model_copy(update={"workspace": "alice/vision", "project": "digits"}))
    assert [one.project for one in (await views.list(ALICE)).items] == ["digits"]
    await members.remove(ALICE, "vision", GrantTo(kind="user", name="bob"))
    (his,) = (await views.list(BOB)).items
    assert (his.project_id, his.project, his.workspace) == (None, "", "")


async def test_a_hidden_and_an_absent_project_answer_alike(make_world):
    world = await make_world(training(1))
    await world.workspace("secret", "plan")
    told = []
    for place in ("alice/secret", "alice/nothing"):
        with pytest.raises(ConfigError) as refused:
            await world.services[SavedViews].save(BOB, GOOD.model_copy(update={"workspace": place, "project": "plan"}))
        told.append(str(refused.value).replace(place, "PLACE").replace(place.partition("/")[2], "NAME"))
    assert told[0] == told[1]


async def test_a_deleted_project_leaves_its_views_to_their_owners(make_world):
    world = await make_world(training(1))
    views = world.services[SavedViews]
    await world.workspace("vision", "digits")
    await world.workspace("speech", "other")
    await views.save(ALICE, GOOD.model_copy(update={"workspace": "vision", "project": "digits"}))
    await views.save(ALICE, GOOD.model_copy(update={"name": "b", "workspace": "speech", "project": "other"}))
    await world.services[Projects].delete(ALICE, "vision", "digits")
    await world.services[Workspaces].delete(ALICE, "speech")
    assert [(one.name, one.project_id) for one in (await views.list(ALICE)).items] == [("good", None), ("b", None)]
