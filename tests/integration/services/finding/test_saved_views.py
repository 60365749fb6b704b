"""Saved views: each user has their own, under names; what is wrong with one is said when it is saved."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, BOB, ROOT, training

from detlab.errors import ConfigError, Conflict, NotFound
from detlab.schemas.wire.saved_views import SaveView
from detlab_hub.services.finding import saved_views
from detlab_hub.services.finding.saved_views import SavedViews

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
