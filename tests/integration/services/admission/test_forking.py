"""Forks: config and code of an earlier experiment, whose secrets go along for its owner and for nobody else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from services_scripted import ALICE, BOB, DIGEST, ROOT, World, config
from sqlalchemy import delete

from detlab.errors import BundleError, ConfigError, NotFound
from detlab.schemas.wire import CreateExperiment, GrantRequest
from detlab_hub.services.admission.bundles import bundle_file
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.store.queries import bundles
from detlab_hub.store.tables import BundleRow, BundleUpload, ExperimentRow

MASK = "********"
SECRETS = {
    "data": {"secrets": {"key": "of-alice"}, "path": "/d"},
    "environment": {"registry_auth": {"username": "a", "password": "pass-of-alice"}},
    "checkpoint_storage": {
        "type": "azure",
        "container": "c",
        "account_url": "https://acc.blob.core.windows.net/?sv=1&sig=of-alice",
    },
}


async def fork(world: World, number: int, caller=ALICE, changes: dict[str, Any] | None = None, **more: Any):
    view = await world.services[Experiments].get(caller, number)
    made = {**(view.config or {}), **(changes or {})}
    request = CreateExperiment(config=made, bundle=view.bundle, forked_from=number, **more)
    return await world.services[Experiments].create(caller, request)


async def stored(world: World, number: int) -> dict[str, Any]:
    return await world.store.read(lambda s: s.get_one(ExperimentRow, number).config)


async def shared(world: World, number: int, *, write: bool = False) -> None:
    await world.services[Grants].put(ALICE, number, GrantRequest(kind="user", name="bob", write=write))


async def test_its_owner_forks_it_with_the_secrets_that_nobody_sees(make_world):
    world = await make_world()
    made = await world.submit(config(**SECRETS))
    shown = str((await world.services[Experiments].get(ALICE, made.id)).config)
    assert "of-alice" not in shown
    reply = await fork(world, made.id, changes={"name": "again"})
    assert reply.experiment is not None
    assert "of-alice" not in reply.model_dump_json()
    again = await stored(world, reply.experiment.id)
    before = await stored(world, made.id)
    for block in SECRETS:
        assert again[block] == before[block]
    assert MASK not in str(again)
    assert (reply.experiment.forked_from, reply.experiment.name) == (made.id, "again")


async def test_a_dry_run_of_a_fork_judges_the_same(make_world):
    world = await make_world()
    made = await world.submit(config(**SECRETS))
    reply = await fork(world, made.id, dry_run=True)
    assert reply.experiment is None
    assert "of-alice" not in reply.model_dump_json()


@pytest.mark.parametrize("write", [False, True])
async def test_others_are_told_which_secrets_a_fork_does_not_take_along(make_world, write):
    world = await make_world()
    made = await world.submit(config(**SECRETS))
    await shared(world, made.id, write=write)
    with pytest.raises(ConfigError) as found:
        await fork(world, made.id, BOB)
    places = {one.path: one.hint for one in found.value.problems if one.level == "error"}
    assert sorted(places) == [
        "checkpoint_storage.account_url", "data.secrets.key", "environment.registry_auth.password"
    ]  # fmt: skip
    assert all("it is alice's, which a fork does not take along" in str(hint) for hint in places.values())
    mine = {
        "data": {"secrets": {"key": "of-bob"}},
        "environment": {"registry_auth": {"username": "b", "password": "pass-of-bob"}},
        "checkpoint_storage": None,
    }
    reply = await fork(world, made.id, BOB, mine)
    assert reply.experiment is not None
    assert "alice" not in str((await stored(world, reply.experiment.id))["data"])


@pytest.mark.parametrize("who", [ROOT, replace(ALICE, run="1.a.0")])
async def test_neither_an_administrator_nor_a_notebook_run_gets_at_them(make_world, who):
    world = await make_world()
    made = await world.submit(config(**SECRETS))
    with pytest.raises(ConfigError, match="mask"):
        await fork(world, made.id, who)


@pytest.mark.parametrize(
    "block",
    [
        {"data": {"secrets": {"key": MASK}}},
        {"data": {"secrets": MASK}},
        {"environment": {"registry_auth": {"username": "a", "password": MASK}}},
        {"checkpoint_storage": {"type": "s3", "bucket": "b", "access_key": MASK, "secret_key": MASK}},
        {"checkpoint_storage": {"type": "s3", "bucket": "b", "endpoint_url": f"https://{MASK}@h"}},
        {"checkpoint_storage": {"type": "fsspec", "url": "ftp://h/x", "options": {"password": MASK}}},
    ],
)
async def test_a_mask_is_no_secret_without_a_fork_either(make_world, block):
    world = await make_world()
    with pytest.raises(ConfigError) as found:
        await world.submit(config(**block))
    assert any("is a mask, not the secret" in one.message for one in found.value.problems), found.value.problems


async def test_a_mask_elsewhere_or_changed_is_not_filled_in(make_world):
    world = await make_world()
    made = await world.submit(config(**SECRETS))
    other = {"data": {"secrets": {"key": MASK, "other": MASK}, "path": "/d"}}
    with pytest.raises(ConfigError) as found:
        await fork(world, made.id, changes=other)
    assert [one.path for one in found.value.problems if one.level == "error"] == ["data.secrets.other"]
    reply = await fork(world, made.id, changes={"hyperparameters": {"lr": 0.1, "word": MASK}})
    assert reply.experiment is not None
    assert (await stored(world, reply.experiment.id))["hyperparameters"]["word"]["val"] == MASK


async def test_what_the_cluster_gives_to_everybody_is_given_to_a_fork(make_world):
    storage = {"type": "s3", "bucket": "b", "access_key": "AK", "secret_key": "of-the-cluster"}
    world = await make_world(default_checkpoint_storage=storage)
    made = await world.submit(config())
    await shared(world, made.id)
    reply = await fork(world, made.id, BOB)
    assert reply.experiment is not None
    assert (await stored(world, reply.experiment.id))["checkpoint_storage"]["secret_key"] == "of-the-cluster"
    evil = {"checkpoint_storage": {"type": "s3", "bucket": "other", "access_key": MASK, "secret_key": MASK}}
    with pytest.raises(ConfigError, match="mask"):
        await fork(world, made.id, BOB, evil)


# --- lineage


async def test_only_who_may_see_the_earlier_one_learns_of_it(make_world):
    world = await make_world()
    made = await world.submit(config())
    reply = await fork(world, made.id, source={"forked_from": 99, "note": "x"})
    assert reply.experiment is not None
    number = reply.experiment.id
    assert reply.experiment.source == {"note": "x"}
    await shared(world, number)
    view = await world.services[Experiments].get(BOB, number)
    assert (view.forked_from, view.source) == (None, {"note": "x"})
    await shared(world, made.id)
    assert (await world.services[Experiments].get(BOB, number)).forked_from == made.id
    plain = await world.submit(config(), source={"forked_from": made.id})
    assert (await world.services[Experiments].get(ALICE, plain.id)).forked_from is None


async def test_hidden_and_absent_experiments_answer_alike(make_world):
    world = await make_world()
    made = await world.submit(config(**SECRETS))
    told = []
    for number in (made.id, made.id + 1000):
        with pytest.raises(NotFound) as found:
            await world.services[Experiments].create(BOB, CreateExperiment(config=config(), forked_from=number))
        told.append((found.value.message.replace(str(number), "N"), found.value.hint))
    assert told[0] == told[1]


# --- code that is gone


@pytest.mark.parametrize("swept", [False, True])
async def test_a_fork_of_deleted_code_says_what_to_do(make_world, swept):
    world = await make_world()
    file = bundle_file(world.settings, DIGEST)
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x")

    def uploaded(unit):
        bundles.note_upload(unit.session, DIGEST, 1, "alice", unit.now)

    await world.services.context.write(uploaded)

    def name_it(unit):
        unit.session.get_one(ExperimentRow, 1).bundle = DIGEST

    made = await world.submit(config())
    await world.services.context.write(name_it)
    file.unlink()
    if swept:
        await world.store.write(lambda s: s.execute(delete(BundleUpload)))
        await world.store.write(lambda s: s.execute(delete(BundleRow)))
    with pytest.raises(BundleError, match=f"the code of experiment {made.id} is gone") as found:
        await fork(world, made.id)
    assert found.value.hint == f"with other code: det experiment fork {made.id} --code DIR"
    reply = await world.services[Experiments].create(ALICE, CreateExperiment(config=config(), forked_from=made.id))
    assert reply.experiment is not None
