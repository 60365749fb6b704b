"""What people write about an experiment, the archive, and how long it took."""

from __future__ import annotations

from dataclasses import replace

import pytest
from services_scripted import ALICE, BOB, ROOT, config, training

from detlab.errors import Conflict, Forbidden, NotFound
from detlab.schemas.wire import EditExperiment, ExperimentState, GrantRequest
from detlab.schemas.wire.registry import CreateModel, CreateVersion, EditModel, EditVersion
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.cluster.overview import Overview
from detlab_hub.services.experiments.edits import Edits
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.experiments.timeline import Timeline
from detlab_hub.services.finding.finding import RunFinder
from detlab_hub.services.registry.models import Models
from detlab_hub.services.registry.versions import Versions


async def actions(world) -> list[tuple[str, str, str]]:
    page = await world.services[Audit].page(ROOT, action="experiment")
    return [(item.actor, item.action, item.detail) for item in reversed(page.items)]


async def edit(world, number, caller=ALICE, **changes):
    return await world.services[Edits].edit(caller, number, EditExperiment(**changes))


@pytest.fixture
async def ended(make_world):
    world = await make_world(training(3))
    await world.add_agent()
    made = await world.submit(config(name="first", labels=["x"]))
    await world.finish(made.id)
    return world, made.id


async def test_an_edit_is_kept_audited_and_told_once(ended) -> None:
    world, number = ended
    view = await edit(world, number, name="second", description="wider", notes="n\x00<b>", add_labels=["y", "x"])
    assert (view.name, view.description, view.labels) == ("second", "wider", ["x", "y"])
    assert view.edited_at == world.now
    assert view.notes == "n\N{REPLACEMENT CHARACTER}<b>"
    await world.reboot()
    found = await world.view(number)
    assert (found.name, found.notes, found.config["name"]) == ("second", view.notes, "first")
    (listed,), _ = await world.services[Experiments].list(ALICE)
    assert (listed.name, listed.labels, listed.notes, listed.edited_at) == ("second", ["x", "y"], None, view.edited_at)
    before = (await world.services[Experiments].curves(ALICE, number)).cursor
    await edit(world, number, name="second", add_labels=["x"], remove_labels=["z"])
    assert (await world.services[Experiments].curves(ALICE, number)).cursor == before
    edits = [one for one in await actions(world) if one[1] == "experiment.edit"]
    assert edits == [("alice", "experiment.edit", "name, description, notes, labels")]


async def test_labels_that_differ_only_in_how_unicode_writes_them_are_one(ended) -> None:
    world, number = ended
    assert (await edit(world, number, labels=["cafe\u0301", "caf\xe9"])).labels == ["caf\xe9"]
    assert (await edit(world, number, add_labels=["cafe\u0301"])).labels == ["caf\xe9"]
    assert (await edit(world, number, remove_labels=["cafe\u0301"])).labels == []
    assert (await world.submit(config(labels=["cafe\u0301", "caf\xe9", "Caf\xe9"]))).labels == ["caf\xe9", "Caf\xe9"]


async def test_labels_are_replaced_and_bounded(ended) -> None:
    world, number = ended
    assert (await edit(world, number, labels=["b", "a", "b"], remove_labels=["a"])).labels == ["b"]
    with pytest.raises(Conflict, match="101 labels; 100 is the most"):
        await edit(world, number, add_labels=[str(one) for one in range(100)])
    assert (await world.view(number)).labels == ["b"]


async def test_archived_experiments_are_left_out_of_lists(ended) -> None:
    world, number = ended
    other = await world.submit(config(name="other"))

    async def listed(**wanted):
        return [view.id for view in (await world.services[Experiments].list(ALICE, **wanted))[0]]

    view = await edit(world, number, archived=True)
    assert view.archived_at == world.now
    world.now += 10
    assert (await edit(world, number, archived=True)).archived_at == view.archived_at
    assert await listed() == await listed(archived="no") == [other.id]
    assert await listed(archived="only") == [number]
    assert await listed(archived="any") == [other.id, number]
    shown = await world.services[Overview].view(ALICE)
    assert [one.id for one in shown.experiments] == [other.id]
    assert (await edit(world, number, archived=False)).archived_at is None
    assert await listed() == [other.id, number]
    said = [one[1] for one in await actions(world) if "archive" in one[1]]
    assert said == ["experiment.archive", "experiment.unarchive"]
    timeline = await world.services[Timeline].view(ALICE, number)
    assert [item.what for item in timeline.items][-2:] == ["archived", "unarchived"]


async def test_only_what_has_ended_is_archived(ended) -> None:
    world, _ = ended
    living = await world.submit(config())
    with pytest.raises(Conflict, match="only one that has ended can be archived"):
        await edit(world, living.id, name="changed", archived=True)
    assert (await world.view(living.id)).name != "changed"  # all of an edit or nothing


async def test_i9_who_may_change_it_may_edit_it(ended) -> None:
    world, number = ended
    with pytest.raises(NotFound):
        await edit(world, number, BOB, name="bob's")
    await world.services[Grants].put(ALICE, number, GrantRequest(kind="user", name="bob"))
    with pytest.raises(Forbidden):
        await edit(world, number, BOB, name="bob's")
    await world.services[Grants].put(ALICE, number, GrantRequest(kind="user", name="bob", write=True))
    assert (await edit(world, number, BOB, name="bob's")).name == "bob's"
    for archived in (True, False):
        with pytest.raises(Forbidden, match="only they, admins of its workspace and"):
            await edit(world, number, BOB, archived=archived)
    with pytest.raises(Forbidden, match="a notebook run may not archive it"):
        await edit(world, number, replace(ALICE, run="a1"), archived=True)


async def left(world, number):
    """Whether the one trial of an experiment has saved and freed its slots."""
    (trial,), _ = await world.services[Experiments].trials(ALICE, number)
    return trial.works_since is None


async def test_took_counts_no_pause(make_world) -> None:
    world = await make_world(training(40))
    await world.add_agent()
    made = await world.submit(config(), activate=False)
    world.now += 500
    world.store.renew_lease()
    await world.services[Experiments].activate(ALICE, made.id)
    await world.until(lambda: begun(world, made.id))
    started = (await world.view(made.id)).started_at
    for _ in range(2):
        await world.services[Experiments].pause(ALICE, made.id)
        view = await world.services[Experiments].pause(ALICE, made.id)
        assert view.paused_at == world.now
        await world.steps(4)
        await world.until(lambda: left(world, made.id))
        world.now += 1000 - (world.now - view.paused_at)
        world.store.renew_lease()
        await world.services[Experiments].activate(ALICE, made.id)
        await world.steps(4)
    done = await world.finish(made.id)
    assert done.state is ExperimentState.COMPLETED
    assert done.paused_at is None
    assert done.paused_seconds == pytest.approx(2000)
    assert done.took == pytest.approx(done.ended_at - started - 2000)
    assert 0 < done.took < 500
    (trial,), _ = await world.services[Experiments].trials(ALICE, made.id)
    assert trial.ended_at - trial.started_at > 2000
    assert 0 < trial.worked < 500, "as its experiment's, without the pauses"
    assert trial.works_since is None
    found = await world.services[RunFinder].trials(ALICE, filter="duration < 500", column=["duration"])
    assert [one.values for one in found.items] == [[pytest.approx(trial.worked)]]


async def begun(world, number) -> bool:
    return (await world.view(number)).started_at is not None


async def test_notes_that_somebody_has_changed_meanwhile_are_not_replaced_unseen(ended) -> None:
    world, number = ended
    await edit(world, number, notes="of alice", notes_before="")
    with pytest.raises(Conflict, match="have been changed since you opened them"):
        await edit(world, number, name="also not done", notes="of another", notes_before="")
    assert ((await world.view(number)).notes, (await world.view(number)).name) == ("of alice", "first")
    await edit(world, number, notes="of alice", notes_before="")  # the same again, as after a lost reply
    await edit(world, number, description="beside the notes", notes_before="whatever")
    assert (await edit(world, number, notes="of both", notes_before="of alice")).notes == "of both"
    assert (await edit(world, number, notes="who says nothing replaces anything")).notes.startswith("who")


async def test_two_people_who_edit_one_note_do_not_overwrite_each_other(ended) -> None:
    world, number = ended
    await world.services[Grants].put(ALICE, number, GrantRequest(kind="user", name="bob", write=True))
    await edit(world, number, notes="by alice", notes_before="")
    with pytest.raises(Conflict, match=f"the notes of experiment {number} have been changed") as found:
        await edit(world, number, BOB, notes="by bob", notes_before="", name="other")
    assert found.value.hint == "Open them again, and write yours into them"
    view = await world.view(number)
    assert (view.notes, view.name) == ("by alice", "first")
    assert (await edit(world, number, notes="by alice", notes_before="")).notes == "by alice"  # sent twice
    assert (await edit(world, number, BOB, notes="by both", notes_before="by alice")).notes == "by both"
    assert (await edit(world, number, BOB, labels=["z"], notes_before="old")).labels == ["z"]


async def test_two_people_who_edit_the_notes_of_a_model_or_a_version_do_not_either(make_world) -> None:
    world = await make_world(training(2))
    await world.add_agent()
    made = await world.submit(config())
    await world.finish(made.id)
    [trial] = await world.trials(made.id)
    await world.services[Models].create(ALICE, CreateModel(name="m"))
    await world.services[Versions].register(ALICE, "m", CreateVersion(checkpoint=trial.latest_checkpoint))
    edits = (
        lambda **said: world.services[Models].edit(ALICE, "m", EditModel(**said)),
        lambda **said: world.services[Versions].edit(ALICE, "m", "1", EditVersion(**said)),
    )
    for change in edits:
        await change(notes="first", notes_before="")
        with pytest.raises(Conflict, match="have been changed since you opened them"):
            await change(notes="second", notes_before="")
        assert (await change(notes="second", notes_before="first")).notes == "second"
