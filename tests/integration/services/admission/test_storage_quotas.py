"""Quotas of bytes: nothing new is begun when one is used up, what runs stores on, and all of it is said early."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from services_scripted import ALICE, BOB, ROOT, config, report

from detlab.errors import Forbidden, NotFound
from detlab.schemas.jobwire import QuotaRequest, QuotaTo
from detlab.schemas.wire import CreateExperiment
from detlab_hub.services.admission.quotas import Quotas
from detlab_hub.services.admission.storage_quotas import QuotaStanding, StorageFull
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.store.queries.logs import lines
from detlab_hub.store.tables import CheckpointRow, clean_text

GIB = 1024**3
VERA = replace(BOB, name="vera", groups=frozenset({"vision"}))
WIM = replace(BOB, name="wim", groups=frozenset({"vision"}))


class Saving:
    """Saves as often as it is told to."""

    def __init__(self) -> None:
        self.wanted, self.done = 1, False

    def __call__(self, launch: Any) -> Any:
        step = 0
        while not self.done:
            if step < self.wanted:
                step += 1
                yield report(step, loss=1.0 / step)
                yield ("save", step)
            else:
                yield ("wait",)
        yield ("exit", 0)


async def limit(world: Any, kind: str, name: str, size: int) -> None:
    await world.services[Quotas].put(ROOT, QuotaRequest.model_validate({"kind": kind, "name": name, "storage": size}))


async def store(world: Any, experiment: int, size: int) -> None:
    """Make the checkpoints of an experiment so large in sum."""

    def grow(unit: Any) -> None:
        rows = unit.session.query(CheckpointRow).filter_by(experiment_id=experiment).all()
        for row in rows:
            row.size = size // len(rows)

    await world.services.context.write(grow)


async def saved(world: Any, script: Saving, count: int, experiment: int) -> None:
    script.wanted = count

    async def there() -> bool:
        return len(await world.services[Experiments].checkpoints(ROOT, experiment)) == count

    await world.until(there)


async def said_in_log(world: Any, experiment: int) -> list[str]:
    (trial,) = await world.trials(experiment)
    found = await world.services.context.read(lambda s: lines.last_lines(s, trial.id, 1, 100))
    return [line.text for line in found if line.text.startswith("detlab: the storage quota")]


async def running(make_world: Any, caller: Any = ALICE) -> tuple[Any, Saving, int]:
    script = Saving()
    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(), caller)
    await saved(world, script, 1, made.id)
    return world, script, made.id


@pytest.mark.parametrize(
    ("used", "size", "level"), [(0, 0, 2), (79, 100, 0), (80, 100, 1), (99, 100, 1), (100, 100, 2), (300, 100, 2)]
)
def test_levels_of_a_quota(used: int, size: int, level: int) -> None:
    assert QuotaStanding("user", "ada", used, size).level == level


async def test_a_used_up_quota_refuses_what_is_new_and_tells_what_would_free_most(make_world):
    world, _, made = await running(make_world)
    await store(world, made, 3 * GIB)
    await limit(world, "user", "alice", 2 * GIB)
    for dry in (True, False):
        with pytest.raises(StorageFull) as refused:
            await world.services[Experiments].create(ALICE, CreateExperiment(config=config(), dry_run=dry))
        assert refused.value.message == (
            "no new experiment: the storage quota of user alice is used up: 3.0 GiB of 2.0 GiB, 150%"
        )
        assert f"most bytes: {made} (3.0 GiB)" in (refused.value.hint or "")
        assert "det storage usage --by experiment" in (refused.value.hint or "")
    await world.submit(config(), BOB)
    await limit(world, "user", "alice", 4 * GIB)
    await world.submit(config())


async def test_a_submit_is_warned_from_four_fifths_on(make_world):
    world, _, made = await running(make_world)
    await limit(world, "user", "alice", 10 * GIB)
    await store(world, made, 8 * GIB - 1)
    asked = CreateExperiment(config=config(), dry_run=True)
    assert (await world.services[Experiments].create(ALICE, asked)).warnings == []
    await store(world, made, 8 * GIB)
    (warning,) = (await world.services[Experiments].create(ALICE, asked)).warnings
    assert (warning.level, warning.path) == ("warning", "checkpoint_storage")
    assert warning.message == "the storage quota of user alice is nearly used up: 8.0 GiB of 10.0 GiB, 80%"


async def test_a_trial_that_runs_stores_on_and_is_warned_once_at_each_level(make_world):
    world, script, made = await running(make_world)
    await limit(world, "user", "alice", 100)
    await store(world, made, 85)
    assert (await world.view(made)).warnings == []
    await saved(world, script, 2, made)
    nearly = "the storage quota of user alice is nearly used up"
    assert (await world.view(made)).warnings == [nearly]
    (line,) = await said_in_log(world, made)
    assert line.startswith(f"detlab: {nearly}; this trial stores on")
    await saved(world, script, 3, made)
    assert len(await said_in_log(world, made)) == 1, "the same is not said again"
    await store(world, made, 150)
    await saved(world, script, 4, made)
    full = "the storage quota of user alice is used up"
    assert (await world.view(made)).warnings == [full]
    assert [line.partition(";")[0] for line in await said_in_log(world, made)] == [
        f"detlab: {nearly}",
        f"detlab: {full}",
    ]
    assert len(await world.services[Experiments].checkpoints(ROOT, made)) == 4, "nothing is lost"
    await store(world, made, 4)
    await saved(world, script, 5, made)
    assert (await world.view(made)).warnings == [], "it has room again"
    script.done = True
    assert (await world.finish(made)).state == "COMPLETED"


async def test_a_group_has_one_quota_for_the_bytes_of_all_its_users(make_world):
    world, _, made = await running(make_world, VERA)
    await store(world, made, 10 * GIB)
    await limit(world, "group", "vision", 10 * GIB)
    with pytest.raises(StorageFull, match="group vision is used up") as refused:
        await world.submit(config(), WIM)
    assert "--by group" in (refused.value.hint or ""), "none of the bytes are wim's own to free"
    await world.submit(config(), BOB)
    (shown,) = (await world.services[Quotas].list(WIM)).storage
    assert (shown.kind, shown.name, shown.storage, shown.used) == ("group", "vision", 10 * GIB, 10 * GIB)


async def test_an_experiment_that_stores_nothing_is_not_refused(make_world):
    world = await make_world()
    await limit(world, "user", "alice", 0)
    with pytest.raises(StorageFull):
        await world.submit(config())
    searcher = {"name": "random", "metric": "loss", "max_trials": 2}
    made = config(searcher, unmanaged=True)
    del made["entrypoint"], made["resources"]
    await world.submit(made)


async def test_quotas_of_bytes_are_set_beside_those_of_slots_noted_and_last(make_world):
    world = await make_world()
    quotas = world.services[Quotas]
    both = QuotaRequest(kind="user", name="alice", slots=4, storage=GIB)
    found = await quotas.put(ROOT, both)
    assert [(one.name, one.slots) for one in found.items] == [("alice", 4)]
    assert [(one.name, one.storage, one.used, one.set_by) for one in found.storage] == [("alice", GIB, 0, "root")]
    assert await quotas.put(ROOT, both) == found
    await limit(world, "user", "alice", 2 * GIB)
    await world.reboot()
    quotas = world.services[Quotas]
    assert [(one.slots) for one in (await quotas.list(ALICE)).items] == [4], "what is not named stays"
    assert (await quotas.list(BOB)).storage == []
    to = QuotaTo(kind="user", name="alice")
    left = await quotas.remove(ROOT, to, "storage")
    assert (len(left.items), len(left.storage)) == (1, 0)
    with pytest.raises(NotFound, match="no quota of storage"):
        await quotas.remove(ROOT, to, "storage")
    await limit(world, "user", "alice", 2 * GIB)
    left = await quotas.remove(ROOT, to)
    assert (left.items, left.storage) == ([], [])
    for refused in (quotas.put(ALICE, both), quotas.remove(ALICE, to)):
        with pytest.raises(Forbidden, match="only administrators"):
            await refused
    page = await world.services[Audit].page(ROOT, action="quota")
    assert [item.detail for item in page.items][::-1] == [
        "4 slots, before none; 1.0 GiB of storage, before none",
        "2.0 GiB of storage, before 1.0 GiB",
        "no quota of storage any more",
        "2.0 GiB of storage, before none",
        "no quota any more",
    ]


async def test_a_name_that_no_database_holds_is_the_same_user(make_world):
    world = await make_world()
    odd = replace(ALICE, name="al\x00ice")
    await limit(world, "user", "al\x00ice", 0)
    with pytest.raises(StorageFull, match=clean_text("al\x00ice")):
        await world.submit(config(), odd)
