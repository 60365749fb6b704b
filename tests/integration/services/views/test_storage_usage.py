"""The storage usage as people see it: most first, their limits, warnings, and names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from services_scripted import ALICE, BOB, ROOT, config, training

from detlab.schemas.jobwire import QuotaRequest
from detlab_hub.services.admission.quotas import Quotas
from detlab_hub.services.cluster.storage import Storage
from detlab_hub.store.tables import CheckpointRow

VERA = replace(BOB, name="vera", groups=frozenset({"vision"}))


async def stored(make_world: Any) -> Any:
    """A world where alice and vera have stored checkpoints."""
    world = await make_world(training(2))
    await world.add_agent()
    for caller, name in ((ALICE, "small"), (VERA, "<b>large</b>")):
        project = "large" if "large" in name else "small"
        await world.workspace("lab", project, caller=caller)
        made = await world.submit(config(name=name, workspace="lab", project=project), caller)
        await world.finish(made.id)

    def grow(unit: Any) -> None:
        for row in unit.session.query(CheckpointRow):
            row.size = 100 * row.experiment_id

    await world.services.context.write(grow)
    return world


async def test_usage_by_everything(make_world):
    world = await stored(make_world)
    usage = world.services[Storage].usage
    by_user = await usage(ROOT)
    assert [(one.name, one.checkpoint_bytes) for one in by_user.items] == [("vera", 200), ("alice", 100), ("root", 0)]
    assert (by_user.total.checkpoint_bytes, by_user.total.checkpoints, by_user.more) == (300, 2, 0)
    by_experiment = await usage(ROOT, "experiment", 1)
    assert [(one.experiment_id, one.name, one.owner) for one in by_experiment.items] == [(2, "<b>large</b>", "vera")]
    assert (by_experiment.more, by_experiment.total.checkpoint_bytes) == (1, 300)
    assert [one.name for one in (await usage(ROOT, "project")).items] == ["vera/lab/large", "alice/lab/small"]
    assert [(one.name, one.used) for one in (await usage(ROOT, "group")).items] == [("vision", 200)]


async def test_I9_usage_is_ones_own(make_world):
    world = await stored(make_world)
    usage = world.services[Storage].usage
    for by, expected in (("user", ["alice"]), ("group", []), ("project", ["lab/small"]), ("experiment", ["small"])):
        found = await usage(ALICE, by)
        assert [one.name for one in found.items] == expected
        assert found.total.checkpoint_bytes == (100 if expected else 0)
    assert [(one.name, one.used) for one in (await usage(replace(BOB, name="new"))).items] == [("new", 0)]


async def test_usage_tells_the_limits_and_warns_those_whom_they_bind(make_world):
    world = await stored(make_world)
    for kind, name, size in (("user", "vera", 200), ("group", "vision", 240), ("user", "quiet", 7)):
        request = QuotaRequest.model_validate({"kind": kind, "name": name, "storage": size})
        await world.services[Quotas].put(ROOT, request)
    seen = await world.services[Storage].usage(VERA)
    assert [(one.name, one.used, one.limit) for one in seen.items] == [("vera", 200, 200)]
    assert seen.warnings == [
        "the storage quota of user vera is used up: 200 B of 200 B, 100%",
        "the storage quota of group vision is nearly used up: 200 B of 240 B, 83%",
    ]
    assert [one.limit for one in (await world.services[Storage].usage(VERA, "group")).items] == [240]
    everybody = await world.services[Storage].usage(ROOT)
    assert {one.name: one.limit for one in everybody.items} == {"vera": 200, "alice": None, "quiet": 7, "root": None}
    assert everybody.warnings == []
    assert (await world.services[Storage].usage(ALICE)).warnings == []
