"""One act on many experiments: an answer for each, rights for each, and what takes it back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from services_scripted import ALICE, BOB, World, config, training

from detlab.errors import ConfigError, Forbidden
from detlab.schemas.wire import EditExperiment, ExperimentState, GrantRequest
from detlab.schemas.wire.batches import MOST_AT_ONCE, BatchReply, BatchRequest
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.batches import batches
from detlab_hub.services.batches.batches import ManyExperiments
from detlab_hub.services.experiments.edits import Edits
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.store.tables import ExperimentRow

ALICES_RUN = replace(ALICE, run="1.a.0")


async def act(world: World, name: str, *ids: int, caller=ALICE, **more) -> BatchReply:
    return await world.services[ManyExperiments].run(caller, BatchRequest(act=name, experiment_ids=list(ids), **more))


async def undone(world: World, reply: BatchReply, caller=ALICE) -> list[BatchReply]:
    return [await world.services[ManyExperiments].run(caller, request) for request in reply.undo]


def results(reply: BatchReply) -> dict[int, str]:
    return {one.id: one.result for one in reply.items}


async def ended(world: World, count: int, caller=ALICE, **more) -> list[int]:
    """Make experiments that have ended, in one write: what ran in them is of no interest here."""
    made = await world.submit(config(**more), caller)

    def copies(unit) -> list[int]:
        first = unit.session.get_one(ExperimentRow, made.id)
        skipped = {"id"}
        facts = {key.key: getattr(first, key.key) for key in ExperimentRow.__table__.columns if key.key not in skipped}
        rows = [ExperimentRow(**{**facts, "state": "COMPLETED", "ended_at": unit.now}) for _ in range(count)]
        unit.session.add_all(rows)
        unit.session.flush()
        return [row.id for row in rows]

    return await world.services.context.write(copies)


async def test_each_has_its_answer_and_the_others_are_done_all_the_same(make_world):
    world = await make_world()
    old = await ended(world, 2)
    running = (await world.submit(config())).id
    hidden = (await world.submit(config(), BOB)).id
    absent = hidden + 1000
    reply = await act(world, "archive", *old, running, hidden, absent)
    assert results(reply) == {
        old[0]: "done", old[1]: "done", running: "refused", hidden: "refused", absent: "refused"
    }  # fmt: skip
    by_id = {one.id: one for one in reply.items}
    assert "only one that has ended can be archived" in by_id[running].reason
    assert by_id[running].hint == f"det experiment kill {running}"
    hidden_says, absent_says = (by_id[one].model_dump_json().replace(str(one), "N") for one in (hidden, absent))
    assert hidden_says == absent_says
    assert results(await act(world, "archive", *old)) == dict.fromkeys(old, "unchanged")
    audited = await world.services[Audit].page(replace(ALICE, name="root", admin=True), action="experiment.archive")
    assert [one.actor for one in audited.items] == ["alice", "alice"]


async def test_five_hundred_selected_rows_are_one_request_and_more_are_refused_at_once(make_world):
    world = await make_world()
    ids = await ended(world, MOST_AT_ONCE)
    reply = await act(world, "archive", *ids)
    assert results(reply) == dict.fromkeys(ids, "done")
    assert reply.left == []
    [back] = reply.undo
    assert (back.act, back.experiment_ids) == ("unarchive", ids)
    with pytest.raises(ValueError, match="at most 500 items"):
        BatchRequest(act="archive", experiment_ids=[*ids, ids[-1] + 1])


async def test_a_filter_means_what_the_caller_sees_in_parts(make_world, monkeypatch):
    monkeypatch.setattr(batches, "MOST_AT_ONCE", 3)
    world = await make_world()
    mine, theirs = await ended(world, 5, labels=["old"]), await ended(world, 2, BOB, labels=["old"])
    await ended(world, 1, labels=["new"])
    wanted = BatchRequest(act="archive", filter="label = old and state = COMPLETED")
    looked = await world.services[ManyExperiments].run(ALICE, wanted.model_copy(update={"dry_run": True}))
    assert [one.id for one in looked.items] == sorted(mine, reverse=True)[:3]
    first = await world.services[ManyExperiments].run(ALICE, wanted)
    assert first.next == sorted(mine, reverse=True)[2]
    second = await world.services[ManyExperiments].run(ALICE, wanted.model_copy(update={"before": first.next}))
    assert second.next is None
    assert {**results(first), **results(second)} == dict.fromkeys(mine, "done")
    assert not set(theirs) & set(results(first) | results(second))
    gone = await world.services[ManyExperiments].run(ALICE, wanted)
    assert gone.items == []  # archived ones are left out, as in lists


async def test_a_request_answers_in_time_with_what_is_left(make_world, monkeypatch):
    world = await make_world()
    ids = await ended(world, 4)
    ticks = iter(range(0, 1000, 9))
    monkeypatch.setattr(world, "clock", lambda: 1_000_000.0 + next(ticks))
    world.services.context.clock = world.clock
    reply = await act(world, "archive", *ids)
    assert 0 < len(reply.items) < 4
    assert [one.id for one in reply.items] + reply.left == ids


@pytest.mark.parametrize("name", ["pause", "activate", "cancel", "kill"])
async def test_what_runs_is_steered(make_world, name):
    world = await make_world()
    ids = [(await world.submit(config(), activate=name != "activate")).id for _ in range(2)]
    reply = await act(world, name, *ids)
    assert results(reply) == dict.fromkeys(ids, "done")
    states = {(await world.view(one)).state for one in ids}
    assert states <= {
        ExperimentState.PAUSED, ExperimentState.ACTIVE, ExperimentState.CANCELED, ExperimentState.STOPPING_CANCELED
    }  # fmt: skip


async def test_labels_come_and_go_and_undo_gives_each_what_it_had(make_world):
    world = await make_world()
    ids = await ended(world, 3)
    await world.services[Edits].edit(ALICE, ids[0], EditExperiment(add_labels=["a"]))
    reply = await act(world, "add_labels", *ids, labels=["a", "b"])
    assert results(reply) == dict.fromkeys(ids, "done")
    assert [(one.labels, one.experiment_ids) for one in reply.undo] == [(["a"], ids[1:]), (["b"], ids)]
    await undone(world, reply)
    assert [(await world.view(one)).labels for one in ids] == [["a"], [], []]
    again = await act(world, "remove_labels", *ids, labels=["a"])
    assert results(again) == {ids[0]: "done", ids[1]: "unchanged", ids[2]: "unchanged"}
    await undone(world, again)
    assert (await world.view(ids[0])).labels == ["a"]


async def test_a_move_is_taken_back_to_where_each_was(make_world):
    world = await make_world()
    await world.workspace("lab", "digits")
    ids = await ended(world, 2)
    inside = await ended(world, 1, workspace="lab", project="digits")
    before = {one: (await world.view(one)).project_id for one in [*ids, *inside]}
    target = await world.workspace("other")
    reply = await act(world, "move", *ids, *inside, workspace="other")
    assert results(reply) == dict.fromkeys([*ids, *inside], "done")
    assert {(await world.view(one)).workspace_id for one in ids} == {target.id}
    assert len(reply.undo) == 2
    for back in await undone(world, reply):
        assert {one.result for one in back.items} == {"done"}
    assert {one: (await world.view(one)).project_id for one in before} == before


async def test_a_move_to_another_storage_is_refused_for_each_until_it_is_said(make_world):
    world = await make_world()
    ids = await ended(world, 2)
    bucket = {"checkpoint_storage": {"type": "s3", "bucket": "b"}}
    made = await world.workspace("stored")
    from detlab.schemas.wire.workspaces import EditWorkspace
    from detlab_hub.services.projects.workspaces import Workspaces

    await world.services[Workspaces].edit(ALICE, str(made.id), EditWorkspace(defaults=bucket))
    reply = await act(world, "move", *ids, workspace="stored")
    assert results(reply) == dict.fromkeys(ids, "refused")
    assert all("has another" in one.reason and "--keep-storage" in one.hint for one in reply.items)
    reply = await act(world, "move", *ids, workspace="stored", keep_storage=True)
    assert results(reply) == dict.fromkeys(ids, "done")
    assert [one.keep_storage for one in reply.undo] == [True]
    await undone(world, reply)
    assert {(await world.view(one)).workspace for one in ids} == {"Uncategorized"}


async def test_a_place_that_is_not_there_is_said_of_each(make_world):
    world = await make_world()
    ids = await ended(world, 2)
    reply = await act(world, "move", *ids, workspace="nowhere")
    assert {one.reason for one in reply.items} == {"there is no workspace 'nowhere'"}


async def test_deleting_many_needs_the_right_to_each(make_world, tmp_path):
    world = await make_world(training(2))
    await world.add_agent()
    made = await world.submit(config())
    await world.finish(made.id)
    await world.services[Grants].put(ALICE, made.id, GrantRequest(kind="user", name="bob", write=True))
    mine = await ended(world, 1, BOB)
    looked = await act(world, "delete", made.id, *mine, caller=BOB, dry_run=True)
    assert results(looked) == {made.id: "refused", mine[0]: "done"}
    reply = await act(world, "delete", made.id, *mine, caller=BOB)
    assert results(reply) == {made.id: "refused", mine[0]: "done"}
    assert "is alice's" in reply.items[0].reason
    assert reply.undo == []


@pytest.mark.parametrize("name", ["archive", "unarchive", "delete", "move"])
async def test_a_notebook_run_does_to_many_no_more_than_to_one(make_world, name):
    world = await make_world()
    ids = await ended(world, 1)
    with pytest.raises(Forbidden):
        await act(world, name, *ids, caller=ALICES_RUN)
    assert (await world.view(ids[0])).archived_at is None


@pytest.mark.parametrize(
    ("wanted", "path"),
    [
        ({"act": "archive"}, "experiment_ids"),
        ({"act": "archive", "filter": "  "}, "experiment_ids"),
        ({"act": "archive", "experiment_ids": [1], "filter": "id > 0"}, "experiment_ids"),
        ({"act": "add_labels", "experiment_ids": [1]}, "labels"),
        ({"act": "archive", "experiment_ids": [1], "labels": ["a"]}, "labels"),
        ({"act": "archive", "experiment_ids": [1], "workspace": "lab"}, "workspace"),
        ({"act": "archive", "filter": "state ="}, "filter"),
    ],
)
async def test_a_request_that_cannot_be_meant_is_refused_whole(make_world, wanted, path):
    world = await make_world()
    with pytest.raises(ConfigError) as found:
        await world.services[ManyExperiments].run(ALICE, BatchRequest(**wanted))
    assert [one.path for one in found.value.problems] == [path]


async def test_members_do_what_their_role_lets_them(make_world):
    world = await make_world()
    await world.workspace("lab", bob="viewer", carol="editor")
    ids = await ended(world, 2, workspace="lab")
    refused = await act(world, "add_labels", *ids, caller=BOB, labels=["x"])
    assert results(refused) == dict.fromkeys(ids, "refused")
    done = await act(world, "add_labels", *ids, caller=replace(BOB, name="carol"), labels=["x"])
    assert results(done) == dict.fromkeys(ids, "done")
    found = BatchRequest(act="add_labels", filter="label = x", labels=["y"])
    assert len((await world.services[ManyExperiments].run(replace(BOB, name="carol"), found)).items) == 2
