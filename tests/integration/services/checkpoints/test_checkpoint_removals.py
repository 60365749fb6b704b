"""Checkpoints that people change: metadata, deletion of all files or of some, the metrics of a step."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from services_scripted import ALICE, BOB, DIGEST, ROOT, CrashError, Flaw, config, report
from sqlalchemy import update
from sqlalchemy.orm import Session

from detlab.errors import CheckpointError, ConfigError, Conflict, Forbidden, NotFound
from detlab.schemas.wire import EditCheckpoint, GrantRequest
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.checkpoints.checkpoints import Checkpoints
from detlab_hub.services.checkpoints.removals import AGAIN_AFTER, Removals, matching
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.store.queries import checkpoints as queries
from detlab_hub.store.tables import CheckpointRow

NAMES = ("model.pt", "optimizer/a.pt", "optimizer/deep/b.pt", "run.log")


class Saving:
    """Reports and saves twice, then waits to be let go."""

    def __init__(self):
        self.done = False

    def __call__(self, launch):
        for step in (1, 2):
            yield report(step, loss=1.0 / step, accuracy=0.5 + step / 10, f1=math.nan)
            yield ("metrics", "training", step, {"loss": 2.0 / step})
            yield ("save", step)
        while not self.done:
            yield ("wait",)
        yield ("exit", 0)


class Place:
    """A world whose one trial has saved twice, each time the same files."""

    def __init__(self, world, script, root: Path, experiment: int) -> None:
        self.world, self.script, self.root, self.experiment = world, script, root, experiment

    @property
    def removals(self):
        return self.world.services[Removals]

    async def saved(self):
        found = await self.world.services[Experiments].checkpoints(ALICE, self.experiment)
        return sorted(found, key=lambda item: item.steps_completed)

    async def end(self) -> None:
        self.script.done = True
        await self.world.finish(self.experiment)

    def there(self, uuid: str) -> set[str]:
        folder = self.root / uuid
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}

    async def pending(self) -> int:
        return len(await self.world.services.context.read(queries.removals))


@pytest.fixture
async def place(make_world, tmp_path: Path) -> Place:
    script = Saving()
    world = await make_world(script, trash_window=0.0)
    await world.add_agent()
    made = await world.submit(config())
    here = Place(world, script, tmp_path / "checkpoints", made.id)

    async def both() -> bool:
        return len(await here.saved()) == 2

    await world.until(both)

    def add_files(unit) -> None:
        for uuid in queries.of_experiment(unit.session, made.id):
            unit.session.get_one(CheckpointRow, uuid).files = {
                name: {"size": 1, "digest": DIGEST, "mode": 0o644} for name in NAMES
            }

    await world.services.context.write(add_files)
    for item in await here.saved():
        for name in NAMES:
            path = here.root / item.uuid / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")
    return here


async def test_a_deleted_checkpoint_loses_its_files_and_keeps_its_record(place: Place) -> None:
    first, second = await place.saved()
    view = await place.removals.delete(ALICE, first.uuid)
    assert view.state == "DELETED"
    assert not (place.root / first.uuid).exists()
    assert place.there(second.uuid) == set(NAMES)
    assert await place.pending() == 0
    assert view.removing, "as it was told"
    assert await place.removals.delete(ALICE, first.uuid) == view.model_copy(update={"removing": False})
    actions = [item.action for item in (await place.world.services[Audit].page(ROOT, action="checkpoint")).items]
    assert actions == ["checkpoint.delete"]
    with pytest.raises(NotFound):
        await place.world.services[Checkpoints].open_archive(ALICE, first.uuid)


async def test_what_a_trial_would_resume_from_is_refused(place: Place) -> None:
    first, second = await place.saved()
    with pytest.raises(Conflict, match="which has not ended, resumes from it"):
        await place.removals.delete(ALICE, second.uuid)
    with pytest.raises(Conflict, match="resumes from it"):
        await place.removals.remove_files(ALICE, second.uuid, ["*.log"])
    assert place.there(second.uuid) == set(NAMES)
    await place.end()
    source = {"name": "single", "metric": "loss", "source_checkpoint_uuid": second.uuid}
    other = await place.world.submit(config(source), activate=False)
    with pytest.raises(Conflict, match=f"experiment {other.id}, which has not ended, starts from it"):
        await place.removals.delete(ALICE, second.uuid)
    await place.world.services[Experiments].kill(ALICE, other.id)
    await place.removals.delete(ALICE, second.uuid)
    (trial,) = await place.world.trials(place.experiment)
    assert trial.latest_checkpoint == first.uuid


async def test_some_files_are_removed_and_the_others_stay(place: Place) -> None:
    first, _ = await place.saved()
    view = await place.removals.remove_files(ALICE, first.uuid, ["optimizer/**", "*.log"])
    assert (view.state, list(view.files), view.size) == ("PARTIALLY_DELETED", ["model.pt"], 1)
    assert place.there(first.uuid) == {"model.pt"}
    again = await place.removals.remove_files(ALICE, first.uuid, ["*.log"])
    assert again == view.model_copy(update={"removing": False})
    assert await place.pending() == 0
    assert (await place.world.services[Checkpoints].open_file(ALICE, first.uuid, DIGEST)).size == 1
    assert (await place.removals.remove_files(ALICE, first.uuid, ["**"])).state == "DELETED"
    assert not (place.root / first.uuid).exists()


async def test_no_trial_starts_from_a_part_of_a_checkpoint(place: Place) -> None:
    _, second = await place.saved()
    await place.end()
    await place.removals.remove_files(ALICE, second.uuid, ["run.log"])
    (trial,) = await place.world.trials(place.experiment)
    assert trial.latest_checkpoint != second.uuid
    source = {"name": "single", "metric": "loss", "source_checkpoint_uuid": second.uuid}
    with pytest.raises(ConfigError):
        await place.world.submit(config(source))


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("*.pt", "model.pt"),
        ("**/*.pt", "model.pt optimizer/a.pt optimizer/deep/b.pt"),
        ("optimizer/*", "optimizer/a.pt"),
        ("optimizer/**", "optimizer/a.pt optimizer/deep/b.pt"),
        ("run.?og", "run.log"),
        ("run.l", ""),
        ("(.*)", ""),
        ("*a*a*a*a*a*a*a*a*b", ""),
    ],
)
def test_a_pattern_means(glob: str, found: str) -> None:
    assert matching(dict.fromkeys(NAMES), [glob]) == found.split()


async def test_a_removal_that_failed_is_repeated(place: Place, tmp_path: Path) -> None:
    first, _ = await place.saved()
    (place.root / first.uuid).rename(tmp_path / "away")
    (place.root / first.uuid).write_text("not the folder that is to be removed")
    view = await place.removals.delete(ALICE, first.uuid)
    assert (view.state, await place.pending()) == ("DELETED", 1)
    (place.root / first.uuid).unlink()
    (tmp_path / "away").rename(place.root / first.uuid)
    await place.removals.finish()
    assert await place.pending() == 1, "not at once again"
    place.world.now += AGAIN_AFTER
    place.world.store.renew_lease()
    await place.removals.finish()
    assert await place.pending() == 0
    assert not (place.root / first.uuid).exists()


@pytest.mark.parametrize("after_commit", [False, True])
async def test_a_removal_survives_a_crash(place: Place, after_commit: bool) -> None:
    first, _ = await place.saved()
    world = place.world
    world.services.context.store._flaw = Flaw(world.writes[0] + 1, after_commit)
    with pytest.raises(CrashError):
        await place.removals.delete(ALICE, first.uuid)
    assert place.there(first.uuid) == set(NAMES)
    await world.reboot()
    found = await world.services[Checkpoints].get(ALICE, first.uuid)
    assert (found.state, bool(place.there(first.uuid))) == (("DELETED", False) if after_commit else ("COMPLETED", True))
    assert await place.pending() == 0


async def test_metadata_is_set_and_removed(place: Place) -> None:
    first, _ = await place.saved()
    edit = place.removals.edit
    assert (await edit(ALICE, first.uuid, EditCheckpoint(metadata={"a": 1, "b": {"c": [2]}}))).metadata == {
        "a": 1,
        "b": {"c": [2]},
    }
    view = await edit(ALICE, first.uuid, EditCheckpoint(metadata={"a": "<b>"}, remove_metadata=["b", "none"]))
    assert view.metadata == {"a": "<b>"}
    assert await edit(ALICE, first.uuid, EditCheckpoint(metadata={"a": "<b>"})) == view
    actions = [item.action for item in (await place.world.services[Audit].page(ROOT, action="checkpoint")).items]
    assert actions == ["checkpoint.edit"] * 2
    with pytest.raises(CheckpointError, match="at most"):
        await edit(ALICE, first.uuid, EditCheckpoint(metadata={"big": "x" * 2**20}))


async def test_i9_only_its_owner_deletes_a_checkpoint(place: Place) -> None:
    first, _ = await place.saved()
    with pytest.raises(NotFound):
        await place.removals.delete(BOB, first.uuid)
    grant = GrantRequest(kind="user", name="bob", write=True)
    await place.world.services[Grants].put(ALICE, place.experiment, grant)
    for action in (
        place.removals.delete(BOB, first.uuid),
        place.removals.remove_files(BOB, first.uuid, ["*"]),
    ):
        with pytest.raises(Forbidden):
            await action
    assert (await place.removals.edit(BOB, first.uuid, EditCheckpoint(metadata={"by": "bob"}))).metadata
    assert place.there(first.uuid) == set(NAMES)


async def test_a_checkpoint_is_named_by_how_its_uuid_begins_by_who_may_read_it(place: Place) -> None:
    service = place.world.services[Checkpoints]
    first, second = await place.saved()
    known = "abcdef00" + first.uuid[8:]

    def rename(s: Session, old: str, new: str) -> None:
        s.execute(update(CheckpointRow).where(CheckpointRow.uuid == old).values(uuid=new))

    place.world.store.write_sync(lambda s: rename(s, first.uuid, known))
    for begin in (known[:4], known[:12], known[:12].upper()):
        assert (await service.get(ALICE, begin)).uuid == known
    for hidden in (known[:12], "e" * 12, known[:3], "%", "____"):
        with pytest.raises(NotFound, match=f"there is no checkpoint {hidden}"):
            await service.get(BOB, hidden)
    for short in (known[:3], "____", "%%%%", "abc%"):
        with pytest.raises(NotFound):
            await service.get(ALICE, short)
    place.world.store.write_sync(lambda s: rename(s, second.uuid, "abcdef01" + second.uuid[8:]))
    with pytest.raises(Conflict, match="several checkpoints begin with abcdef0"):
        await service.get(ALICE, "abcdef0")


async def test_checkpoints_have_the_metric_that_is_asked_for(place: Place) -> None:
    found = await place.world.services[Experiments].checkpoints(ALICE, place.experiment, "accuracy")
    assert sorted(item.metrics["accuracy"] for item in found) == [0.6, 0.7]
    assert all(not item.metrics for item in await place.saved())
    (trial,) = await place.world.trials(place.experiment)
    assert [item.metrics for item in await place.world.services[Trials].checkpoints(ALICE, trial.id, "nothing")] == [
        {},
        {},
    ]


async def test_the_metrics_of_a_checkpoints_step_are_exact(place: Place) -> None:
    _, second = await place.saved()
    found = await place.world.services[Checkpoints].metrics(ALICE, second.uuid, "validation")
    assert [(one.name, one.steps) for one in found] == [("accuracy", [2]), ("f1", [2]), ("loss", [2])]
    assert (found[0].values, found[2].values) == ([0.7], [0.5])
    assert math.isnan(found[1].values[0])
    every = await place.world.services[Checkpoints].metrics(ALICE, second.uuid)
    assert (every[0].group, every[0].name) == ("training", "loss")
    assert len(every) == 4


async def test_an_experiment_with_an_unfinished_removal_is_deleted(place: Place, tmp_path: Path) -> None:
    first, _ = await place.saved()
    await place.end()
    place.root.rename(tmp_path / "away")
    await place.removals.delete(ALICE, first.uuid)
    await place.world.services[Experiments].delete(ALICE, place.experiment)
    assert await place.pending() == 2, "the storage is away: it waits, and nothing is forgotten"
    assert (await place.world.services[Checkpoints].get(ALICE, first.uuid)).state == "DELETED"
    (tmp_path / "away").rename(place.root)
    left = await place.world.services[Experiments].delete(ALICE, place.experiment)
    assert (left.checkpoints, left.event_files) == (0, True), "event files in a directory are a task's"
    await place.world.services[Experiments].forget_files(ROOT, place.experiment)
    assert await place.pending() == 0
    with pytest.raises(NotFound):
        await place.world.services[Checkpoints].get(ALICE, first.uuid)
