"""I9: a model is its owner's; readers also read the checkpoints of its versions, others do not learn of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from services_scripted import ALICE, BOB, ROOT, config
from sqlalchemy import update

from detlab.errors import Conflict, Forbidden, NotFound
from detlab.schemas.wire import GrantRequest, GrantTo
from detlab.schemas.wire.registry import (
    CreateVersion,
    EditModel,
    EditVersion,
    MoveLabel,
    RemoveLabel,
)
from detlab_hub.services.checkpoints.checkpoints import Checkpoints
from detlab_hub.services.checkpoints.collecting import Collecting
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.registry.comparing import Comparisons
from detlab_hub.services.registry.labels import Labels
from detlab_hub.services.registry.models import Models
from detlab_hub.services.registry.versions import Versions
from detlab_hub.services.streams.stream import Stream
from detlab_hub.store.tables import VersionRow

VERA = replace(BOB, name="vera", groups=frozenset({"vision"}))


def looks(services, caller):
    return {
        "get": lambda: services[Models].get(caller, "alice/digits"),
        "versions": lambda: services[Versions].list(caller, "alice/digits"),
        "version": lambda: services[Versions].get(caller, "alice/digits", "1"),
        "lineage": lambda: services[Versions].lineage(caller, "alice/digits", "1"),
        "compare": lambda: services[Comparisons].compare(caller, "alice/digits", ["1", "2"]),
        "history": lambda: services[Labels].history(caller, "alice/digits"),
        "grants": lambda: services[Models].grants(caller, "alice/digits"),
    }


def changes(services, caller, uuid):
    labels, versions = services[Labels], services[Versions]
    return {
        "edit": lambda: services[Models].edit(caller, "alice/digits", EditModel(description="x")),
        "register": lambda: versions.register(caller, "alice/digits", CreateVersion(checkpoint=uuid)),
        "edit version": lambda: versions.edit(caller, "alice/digits", "1", EditVersion(comment="x")),
        "move": lambda: labels.move(caller, "alice/digits", "x", MoveLabel(version=1)),
        "remove": lambda: labels.remove(caller, "alice/digits", "x", RemoveLabel()),
    }


def ownings(services, caller):
    return {
        "delete": lambda: services[Models].delete(caller, "alice/digits"),
        "rename": lambda: services[Models].edit(caller, "alice/digits", EditModel(name="other")),
        "archive": lambda: services[Models].edit(caller, "alice/digits", EditModel(archived=True)),
        "delete version": lambda: services[Versions].delete(caller, "alice/digits", "2", force=True),
        "share": lambda: services[Models].share(caller, "alice/digits", GrantRequest(kind="user", name="carol")),
        "unshare": lambda: services[Models].unshare(caller, "alice/digits", GrantTo(kind="user", name="bob")),
    }


async def refusals(asked):
    found = {}
    for name, act in asked.items():
        try:
            await act()
        except (NotFound, Forbidden) as error:
            found[name] = type(error).__name__.replace("Hidden", "NotFound")
    return found


def all_are(asked, kind):
    return dict.fromkeys(asked, kind)


@pytest.fixture
async def two(place):
    await place.register(0)
    await place.register(1)
    return place


async def test_i9_what_is_not_shared_is_not_there(two) -> None:
    services = two.services
    asked = {**looks(services, BOB), **changes(services, BOB, two.checkpoints[2]), **ownings(services, BOB)}
    assert await refusals(asked) == all_are(asked, "NotFound")
    assert (await services[Models].list(BOB)).items == []
    assert (await services[Versions].search(BOB, best="accuracy")).items == []
    assert (await services[Versions].search(BOB, where="owner = alice")).items == []
    assert await services[Models].words(BOB) == []
    # The same words as for one that does not exist; and Bob may have one of that name.
    with pytest.raises(NotFound) as theirs:
        await services[Models].get(BOB, "digits")
    assert theirs.value.message == "there is no model 'digits'"
    await two.model(caller=BOB)
    assert (await services[Models].get(BOB, "digits")).owner == "bob"


async def test_who_may_read_reads_the_checkpoints_too_and_changes_nothing(two) -> None:
    services = two.services
    with pytest.raises(NotFound):
        await services[Checkpoints].get(BOB, two.checkpoints[0])
    await services[Models].share(ALICE, "digits", GrantRequest(kind="user", name="bob"))
    assert await refusals(looks(services, BOB)) == {}
    assert (await services[Models].get(BOB, "alice/digits")).right == "read"
    assert (await services[Checkpoints].get(BOB, two.checkpoints[0])).uuid == two.checkpoints[0]
    with pytest.raises(NotFound):  # of the same trial, but no version
        await services[Checkpoints].get(BOB, two.checkpoints[2])
    with pytest.raises(NotFound):
        await services[Experiments].get(BOB, two.experiment)
    asked = {**changes(services, BOB, two.checkpoints[0]), **ownings(services, BOB)}
    assert await refusals(asked) == all_are(asked, "Forbidden")
    assert [one.version for one in (await services[Versions].search(BOB, best="accuracy")).items] == [2, 1]
    await services[Models].unshare(ALICE, "digits", GrantTo(kind="user", name="bob"))
    assert len(await refusals(looks(services, BOB))) == len(looks(services, BOB))
    with pytest.raises(NotFound):
        await services[Checkpoints].get(BOB, two.checkpoints[0])


async def test_a_group_may_change_it_and_not_own_it(two) -> None:
    services = two.services
    await services[Models].share(ALICE, "digits", GrantRequest(kind="group", name="vision", write=True))
    assert (await services[Models].get(VERA, "alice/digits")).right == "write"
    await services[Labels].move(VERA, "alice/digits", "x", MoveLabel(version=1))
    # A checkpoint is registered in the rights of who registers it.
    with pytest.raises(NotFound, match="no checkpoint"):
        await services[Versions].register(VERA, "alice/digits", CreateVersion(checkpoint=two.checkpoints[2]))
    assert await refusals(ownings(services, VERA)) == all_are(ownings(services, VERA), "Forbidden")
    assert len(await refusals(looks(services, BOB))) == len(looks(services, BOB))


async def test_i9_who_may_only_read_a_checkpoint_cannot_register_it_and_so_share_and_pin_it(two) -> None:
    services = two.services
    await two.model("mine", caller=BOB)
    await services[Models].share(ALICE, "digits", GrantRequest(kind="user", name="bob"))
    for place in (0, 1):  # read by way of the model
        with pytest.raises(Forbidden, match="would share it"):
            await two.register(place, "mine", caller=BOB)
    for write in (False, True):
        await services[Grants].put(ALICE, two.experiment, GrantRequest(kind="user", name="bob", write=write))
        with pytest.raises(Forbidden, match="would share it, which only alice may"):
            await two.register(2, "mine", caller=BOB)
        with pytest.raises(Forbidden, match="would share it"):
            await services[Versions].register(BOB, "mine", CreateVersion(experiment_id=two.experiment))
    assert (await services[Models].get(BOB, "mine")).versions == 0


async def test_who_may_change_both_registers_a_checkpoint_in_a_model_of_its_owner(two) -> None:
    services = two.services
    await services[Models].share(ALICE, "digits", GrantRequest(kind="user", name="bob", write=True))
    await services[Grants].put(ALICE, two.experiment, GrantRequest(kind="user", name="bob"))
    with pytest.raises(Forbidden, match="not change it"):
        await two.register(2, "alice/digits", caller=BOB)
    await services[Grants].put(ALICE, two.experiment, GrantRequest(kind="user", name="bob", write=True))
    made = await two.register(2, "alice/digits", caller=BOB)
    assert (made.version, made.owner, made.model_reference) == (3, "bob", "alice/digits")


async def test_i9_the_owner_alone_puts_a_checkpoint_into_anothers_model_and_so_shares_it(two) -> None:
    """Not even a notebook run of theirs, which may not share; the model's owner says who reads it from then on."""
    services = two.services
    await two.model("team", caller=BOB)
    await services[Models].share(BOB, "team", GrantRequest(kind="user", name="alice", write=True))
    with pytest.raises(Forbidden, match="would share it"):
        await two.register(2, "bob/team", caller=replace(ALICE, run="a1"))
    await two.register(2, "bob/team", caller=ALICE)
    await services[Models].share(BOB, "team", GrantRequest(kind="user", name="vera"))
    assert (await services[Checkpoints].get(VERA, two.checkpoints[2])).uuid == two.checkpoints[2]


async def test_i9_what_somebody_else_had_registered_follows_the_grants_of_the_experiment(two) -> None:
    """A version of bob's, of a checkpoint of alice's: as masters before let him make one, and as administrators may."""
    services, uuid = two.services, two.checkpoints[2]
    await two.model("mine", caller=BOB)
    await services[Models].share(BOB, "mine", GrantRequest(kind="user", name="vera"))
    await two.register(2, "bob/mine", caller=ROOT)
    two.world.store.write_sync(
        lambda s: s.execute(update(VersionRow).values(owner="bob").where(VersionRow.owner == "root"))
    )
    assert (await services[Versions].get(VERA, "bob/mine", "1")).checkpoint == uuid
    for reader in (BOB, VERA):
        with pytest.raises(NotFound, match="no checkpoint"):
            await services[Checkpoints].get(reader, uuid)
    await two.world.submit(config(entrypoint=["evaluate", uuid]), caller=BOB, activate=False)
    assert [one.kind for one in (await services[Collecting].pins(ALICE, uuid)).items] == ["version"]
    await services[Grants].put(ALICE, two.experiment, GrantRequest(kind="user", name="bob"))
    assert (await services[Checkpoints].get(BOB, uuid)).uuid == uuid
    with pytest.raises(NotFound, match="no checkpoint"):
        await services[Checkpoints].get(VERA, uuid)
    await services[Grants].remove(ALICE, two.experiment, GrantTo(kind="user", name="bob"))
    with pytest.raises(NotFound, match="no checkpoint"):
        await services[Checkpoints].get(BOB, uuid)


async def test_an_editor_of_the_model_repeats_a_registration_without_rights_to_the_experiment(two) -> None:
    await two.services[Models].share(ALICE, "digits", GrantRequest(kind="user", name="bob", write=True))
    assert (await two.register(0, "alice/digits", caller=BOB, labels=["x"])).labels == ["x"]


async def test_i9_a_reader_of_the_model_alone_sees_no_config(two) -> None:
    """It holds the values of environment variables; who may read the experiment sees them, too."""
    services = two.services
    await services[Models].share(ALICE, "digits", GrantRequest(kind="user", name="bob", write=True))
    seen = [
        await services[Versions].get(BOB, "alice/digits", "1"),
        await services[Versions].edit(BOB, "alice/digits", "1", EditVersion(comment="x")),
        *(await services[Comparisons].compare(BOB, "alice/digits", ["1", "2"])).versions,
        *(await services[Versions].list(BOB, "alice/digits")).items,
        *(await services[Versions].search(BOB)).items,
    ]
    assert [one.lineage.config for one in seen] == [{}] * len(seen)
    assert seen[0].lineage.hyperparameters["lr"] == 0.1
    await services[Grants].put(ALICE, two.experiment, GrantRequest(kind="user", name="bob"))
    assert (await services[Versions].get(BOB, "alice/digits", "1")).lineage.config["name"] == "mine"


async def test_a_notebook_run_may_change_and_not_own(two) -> None:
    services, run = two.services, replace(ALICE, run="a1")
    await services[Labels].move(run, "digits", "x", MoveLabel(version=1))
    assert await refusals(ownings(services, run)) == all_are(ownings(services, run), "Forbidden")


async def test_a_name_alone_is_ones_own_whatever_others_share(two) -> None:
    services = two.services
    carol = replace(BOB, name="carol")
    for caller in (BOB, carol):
        await two.model(caller=caller, description=caller.name)
        await services[Models].share(caller, "digits", GrantRequest(kind="user", name="alice"))
        await services[Models].share(caller, "digits", GrantRequest(kind="user", name="vera"))
    mine, his = await services[Models].get(ALICE, "digits"), await services[Models].get(ALICE, "bob/digits")
    assert (mine.owner, mine.reference) == ("alice", "digits")
    assert (his.description, his.reference) == ("bob", "bob/digits")
    assert {one.reference for one in (await services[Models].list(ALICE)).items} == {
        "digits",
        "bob/digits",
        "carol/digits",
    }
    with pytest.raises(NotFound, match="you have no model 'digits'") as none:
        await services[Models].get(VERA, "digits")
    assert none.value.hint == "Others' are named with their owner: bob/digits, carol/digits"


async def test_i9_code_that_names_its_own_model_never_gets_a_strangers(two) -> None:
    """Whatever the owner does to theirs, and if others share one of that name: it is refused, with what to write."""
    services = two.services
    await two.model(caller=BOB)
    await services[Models].share(BOB, "digits", GrantRequest(kind="user", name="alice"))
    await services[Models].edit(ALICE, "digits", EditModel(name="renamed"))
    for ask in (
        lambda: services[Models].get(ALICE, "digits"),
        lambda: services[Versions].get(ALICE, "digits", "production"),
        lambda: services[Versions].list(ALICE, "digits"),
        lambda: services[Labels].history(ALICE, "digits"),
        lambda: two.register(2),
    ):
        with pytest.raises(NotFound, match="you have no model 'digits'") as refused:
            await ask()
        assert "bob/digits" in refused.value.hint
    await services[Models].unshare(BOB, "digits", GrantTo(kind="user", name="alice"))
    with pytest.raises(NotFound, match="there is no model 'digits'") as refused:
        await services[Models].get(ALICE, "digits")
    assert "bob" not in refused.value.hint


async def test_an_event_of_each_change_goes_to_those_who_may_read_it(two) -> None:
    services = two.services
    await services[Models].share(ALICE, "digits", GrantRequest(kind="user", name="vera"))

    async def follow(caller):
        found = []
        async for batch in services[Stream].events(caller, None, after=0):
            found += [event for event in batch if event.kind == "model"]
            if found and found[-1].data["did"] == "deleted":
                break
        return found

    told = {caller.name: asyncio.create_task(follow(caller)) for caller in (ALICE, VERA, ROOT, BOB)}
    await services[Labels].move(ALICE, "digits", "production", MoveLabel(version=1))
    await services[Models].delete(ALICE, "digits", force=True)
    mine = await asyncio.wait_for(told["alice"], 10)
    assert [event.data["did"] for event in mine][-2:] == ["label", "deleted"]
    (moved,) = [event for event in mine if event.data["did"] == "label"]
    assert (moved.data["label"], moved.data["to_version"], moved.data["by"]) == ("production", 1, "alice")
    assert all("shared" not in event.data for event in mine)
    assert (await asyncio.wait_for(told["root"], 10))[-1].data["did"] == "deleted"
    assert (await asyncio.wait_for(told["vera"], 10))[-1].data["did"] == "deleted"
    assert not told["bob"].done()
    told["bob"].cancel()


async def test_i9_a_key_of_another_act_gives_no_view_of_the_experiment_that_it_was_noted_with(two) -> None:
    services = two.services
    await services[Models].share(ALICE, "digits", GrantRequest(kind="user", name="bob", write=True))
    await services[Labels].move(BOB, "alice/digits", "x", MoveLabel(version=1, idempotency_key="k"))
    again = CreateVersion(checkpoint=two.checkpoints[0], labels=["y"], idempotency_key="k")
    await services[Versions].register(BOB, "alice/digits", again)
    model = (await services[Models].get(BOB, "alice/digits")).id
    for key in (f"label {model} x k", f"register {model} k"):
        with pytest.raises(Conflict, match="idempotency_key"):
            await two.world.submit(config(), caller=BOB, idempotency_key=key)
    await two.world.submit(config(), caller=BOB, idempotency_key=f"label {model} z k")
    with pytest.raises(Conflict, match="idempotency_key"):  # and not a failure of the master
        await services[Labels].move(BOB, "alice/digits", "z", MoveLabel(version=1, idempotency_key="k"))
