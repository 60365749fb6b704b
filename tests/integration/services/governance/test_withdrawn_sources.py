"""A source is withdrawn: what trains on it pauses, and nothing that has learnt from it goes on or is promoted."""

from __future__ import annotations

from typing import Any

import pytest
from governed_world import POLICY, another_trial, governed_trial
from services_scripted import ALICE, BOB, ROOT, config
from sqlalchemy import update

from detlab.errors import ConfigError, Conflict, DetlabError, Forbidden, NotFound
from detlab.schemas.wire import CreateExperiment
from detlab.schemas.wire.continuing import ContinueExperiment
from detlab.schemas.wire.governance.evidence import RestoreSource, WithdrawSource
from detlab.schemas.wire.projects import MoveExperiment
from detlab.schemas.wire.registry import CreateModel, CreateVersion, MoveLabel
from detlab_hub.services.alerts.alerts import Alerts
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.experiments.continuing import Continuing
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.governance.reading import EvidenceReading
from detlab_hub.services.projects.moves import Moves
from detlab_hub.services.registry.labels import Labels
from detlab_hub.services.registry.models import Models
from detlab_hub.services.registry.versions import Versions
from detlab_hub.services.registry.withdrawals import Withdrawals
from detlab_hub.store.tables import ExperimentRow, TrialRow

ONE, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64
WITHOUT: dict[str, Any] = {"version": 1, "sources": [{"name": "own"}], "default": "allow", "rules": []}


SINGLE = {"name": "single", "metric": "loss", "max_length": {"batches": 9}}


REFUSED = [
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "detlab.governance.refusals.GovernanceError: governed training is refused:",
    "  REVOKED: the source 'web' was withdrawn in the cluster; the weights were trained on it",
]


def declaring(manifest: str) -> dict[str, Any]:
    return {**POLICY, "sources": [{"name": "trusted"}, {"name": "web", "manifest": manifest}]}


async def withdraw(world: Any, source: str = "web", caller: Any = ROOT, **more: Any) -> Any:
    wanted = WithdrawSource(source=source, **{"reason": "a takedown", **more})
    return await world.services[Withdrawals].withdraw(caller, wanted)


async def undo(world: Any, source: str = "web", caller: Any = ROOT, **more: Any) -> Any:
    return await world.services[Withdrawals].undo(caller, RestoreSource(source=source, reason="solved", **more))


async def experiment_of(trial: Any) -> int:
    found = await trial.world.services.context.read(lambda s: s.get_one(TrialRow, trial.trial_id))
    return found.experiment_id


async def version_of(world: Any, uuid: str) -> Any:
    await world.services[Models].create(ALICE, CreateModel(name="m"))
    return await world.services[Versions].register(ALICE, "m", CreateVersion(checkpoint=uuid))


async def submit(world: Any, block: Any, **more: Any) -> Any:
    dry = more.pop("dry_run", False)
    request = CreateExperiment(config=config(governance=block, **more), dry_run=dry)
    return await world.services[Experiments].create(ALICE, request)


async def test_what_trains_on_it_is_paused_and_every_way_back_is_refused(make_world):
    trial = await governed_trial(make_world)
    world, uuid = trial.world, await trial.save(5)
    number = await experiment_of(trial)
    other = await another_trial(world, {**POLICY, "sources": [{"name": "trusted"}], "rules": POLICY["rules"][:1]})
    untouched = await experiment_of(other)
    done = await withdraw(world)
    assert done.paused == [number]
    service = world.services[Experiments]
    view = await service.get(ALICE, number)
    assert view.state == "PAUSED"
    (said,) = view.warnings
    assert said.startswith("paused: a source was withdrawn: the source 'web' was withdrawn in the cluster on ")
    assert "a takedown" in said
    assert (await service.get(ALICE, untouched)).state == "ACTIVE"
    # going on from its checkpoint, as after a crash
    assert await trial.codes(uuid) == ["REVOKED"]
    forked = CreateExperiment(config=view.config, forked_from=number)
    ways = {
        "activate": lambda: service.activate(ALICE, number),
        "submit": lambda: submit(world, POLICY),
        "dry run": lambda: submit(world, POLICY, dry_run=True),
        "audit": lambda: submit(world, {**POLICY, "enforce": "audit"}),
        "fork": lambda: service.create(ALICE, forked),
        "warm start": lambda: submit(world, WITHOUT, searcher={**SINGLE, "source_checkpoint_uuid": uuid}),
        "warm start from the trial": lambda: submit(
            world, None, searcher={**SINGLE, "source_trial_id": trial.trial_id}
        ),
        "register": lambda: version_of(world, uuid),
    }
    for name, act in ways.items():
        with pytest.raises(DetlabError) as error:
            await act()
        assert error.value.code == "governance.revoked", name
        assert "REVOKED" in str(error.value), name
        assert "a takedown" in str(error.value), name
    await service.kill(ALICE, number)
    await world.steps(3)
    with pytest.raises(ConfigError, match="REVOKED"):
        await world.services[Continuing].go_on(ALICE, number, ContinueExperiment())
    seen = await world.services[EvidenceReading].of_checkpoint(ALICE, uuid)
    assert (seen.problems, [one.code for one in seen.withdrawn]) == ([], ["REVOKED"])  # it is intact, and no more


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        pytest.param(-9, [], id="killed just before"),
        pytest.param(1, REFUSED, id="its next attempt asks too late"),
    ],
)
async def test_who_dies_as_it_is_withdrawn_is_paused_and_no_error(make_world, code, lines):
    """Its exit came after the withdrawal had paused it, and ended the experiment as an error."""
    trial = await governed_trial(make_world, max_restarts=0)
    world, number, uuid = trial.world, await experiment_of(trial), await trial.save(5)
    await withdraw(world)
    trial.task.ops = iter([*(("log", None, line) for line in lines), ("exit", code)])
    await world.steps(6)
    service = world.services[Experiments]
    (held,) = await world.trials(number)
    assert ((await service.get(ALICE, number)).state, held.state, held.restarts) == ("PAUSED", "PAUSED", 0)
    with pytest.raises(ConfigError, match="REVOKED"):
        await service.activate(ALICE, number)
    await undo(world)
    agent = next(iter(world.agents.values()))
    await service.activate(ALICE, number)
    await world.steps(3)
    (again,) = [one for one in agent.tasks.values() if one.launch.run == held.run + 1]
    assert again.launch.info.latest_checkpoint == uuid


async def test_a_policy_that_refuses_while_nobody_paused_still_ends_a_trial_at_once(make_world):
    trial = await governed_trial(make_world)
    trial.task.ops = iter([*(("log", None, line) for line in REFUSED), ("exit", 1)])
    assert (await trial.world.finish(await experiment_of(trial))).state == "ERROR"


async def test_it_goes_on_once_that_is_undone_and_both_are_audited(make_world):
    trial = await governed_trial(make_world)
    number, service = await experiment_of(trial), trial.world.services[Experiments]
    await withdraw(trial.world)
    assert (await undo(trial.world)).source == "web"
    view = await service.get(ALICE, number)
    assert view.state == "PAUSED"
    assert view.warnings == [
        f"paused: a source was withdrawn: 'web', and {ROOT.name} has since taken that back; "
        f"det experiment activate {number}"
    ]
    view = await service.activate(ALICE, number)
    assert (view.state, view.warnings) == ("ACTIVE", [])
    with pytest.raises(NotFound, match="is not withdrawn in the cluster"):
        await undo(trial.world)
    page = await trial.world.services[Audit].page(ROOT, action="source")
    assert [(one.action, one.subject, one.actor) for one in page.items] == [
        ("source.restore", "source web", ROOT.name),
        ("source.withdraw", "source web", ROOT.name),
    ]
    assert page.items[1].detail == "a takedown; any manifest; paused 1 experiments"


async def test_owners_are_told_that_it_was_undone_unless_another_withdrawal_still_holds(make_world):
    trial = await governed_trial(make_world)
    world, number = trial.world, await experiment_of(trial)
    await withdraw(world)
    await withdraw(world, manifest="", source="trusted")

    async def told() -> list[str]:
        return [one.title for one in (await world.services[Alerts].list(ALICE)).items]

    async def said() -> str:
        (one,) = (await world.services[Experiments].get(ALICE, number)).warnings
        return one

    before = await told()
    await undo(world, "web")
    assert "the source 'trusted' was withdrawn" in await said()
    assert await told() == before
    await undo(world, "trusted")
    assert "'trusted', and " in await said()
    assert set(await told()) - set(before) == {f"{ROOT.name} has taken back the withdrawal of the source 'trusted'"}


async def test_versions_that_hold_it_are_listed_and_marked_and_get_no_label(make_world):
    trial = await governed_trial(make_world)
    world = trial.world
    version = await version_of(world, await trial.save(5))
    assert version.withdrawn == []
    done = await withdraw(world)
    name = f"{ALICE.name}/m@1"
    assert done.versions == [name]
    (listed,) = (await world.services[Versions].list(ALICE, "m")).items
    (said,) = listed.withdrawn
    assert "the source 'web' was withdrawn" in said
    with pytest.raises(Conflict, match="REVOKED") as error:
        await world.services[Labels].move(ALICE, "m", "production", MoveLabel(version=1))
    assert error.value.code == "governance.revoked"
    page = await world.services[Withdrawals].page(ALICE)
    assert [(one.source, one.reason, one.versions) for one in page.items] == [("web", "a takedown", [name])]
    (other,) = (await world.services[Withdrawals].page(BOB)).items
    assert other.versions == []  # it is not hers to know of


async def test_a_source_that_reached_no_layer_is_not_in_the_weights(make_world):
    closed = {**POLICY, "rules": [*POLICY["rules"][:1], {"source": "web", "layers": ".*", "scale": 0.0}]}
    trial = await governed_trial(make_world, closed)
    version = await version_of(trial.world, await trial.save(5))
    assert (await withdraw(trial.world)).versions == []
    assert (await trial.world.services[Versions].get(ALICE, "m", "1")).withdrawn == version.withdrawn == []


async def test_a_manifest_is_withdrawn_under_whatever_name(make_world):
    trial = await governed_trial(make_world, declaring(ONE))
    world, uuid = trial.world, await trial.save(5)
    assert (await withdraw(world, manifest=OTHER)).paused == []
    assert await trial.codes(uuid) == []
    done = await withdraw(world, "crawl", manifest=ONE)
    assert done.paused == [await experiment_of(trial)]
    assert await trial.codes(uuid) == ["REVOKED"]
    assert len((await world.services[Withdrawals].page(ALICE)).items) == 2


async def test_what_was_inherited_counts_with_the_manifest_of_then(make_world):
    first = await governed_trial(
        make_world, {**POLICY, "sources": [{"name": "trusted"}, {"name": "web", "manifest": ONE}]}
    )
    world, uuid = first.world, await first.save(5)
    block = {**POLICY, "sources": [{"name": "trusted"}, {"name": "web", "manifest": OTHER}]}
    start = {"name": "single", "metric": "loss", "max_length": {"batches": 9}, "source_checkpoint_uuid": uuid}
    second = await another_trial(world, block, searcher=start)
    assert await second.codes(uuid) == []
    later = await second.save(3, uuid, 0)
    done = await withdraw(world, manifest=ONE)
    assert done.paused == sorted([await experiment_of(first), await experiment_of(second)])
    assert await second.codes(later) == ["REVOKED"]


async def test_a_workspace_withdraws_for_itself_alone(make_world):
    trial = await governed_trial(make_world)
    world, uuid = trial.world, await trial.save(5)
    place = (await world.workspace("strict")).id
    for caller in (ALICE, BOB):
        with pytest.raises(Forbidden):
            await withdraw(world, caller=caller)
    with pytest.raises(NotFound):
        await withdraw(world, caller=BOB, workspace=f"{ALICE.name}/strict")
    assert (await withdraw(world, caller=ALICE, workspace="strict")).paused == []
    assert await trial.codes(uuid) == []
    assert (await world.services[Withdrawals].page(BOB)).items == []
    with pytest.raises(ConfigError, match="REVOKED"):
        await submit(world, POLICY, workspace="strict")
    number = await experiment_of(trial)
    with pytest.raises(ConfigError, match="REVOKED"):
        await world.services[Moves].experiment(ALICE, number, MoveExperiment(workspace="strict"))
    # a checkpoint that lies there is not used from elsewhere either
    await world.services.context.write(
        lambda unit: unit.session.execute(
            update(ExperimentRow).where(ExperimentRow.id == number).values(workspace_id=place)
        )
    )
    with pytest.raises(ConfigError, match="REVOKED"):
        await submit(world, WITHOUT, searcher={**SINGLE, "source_checkpoint_uuid": uuid})
    assert (await undo(world, caller=ALICE, workspace="strict")).workspace == f"{ALICE.name}/strict"
    assert await trial.codes(uuid) == []
