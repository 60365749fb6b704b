"""Submitting: everything that can be wrong with it, and what is made of it when it is right."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import tarfile
from pathlib import Path

import pytest
from services_scripted import ALICE, BOB, ROOT, asha, config, seen_storage, training
from sqlalchemy import event, func, select

from detlab.client.bundling.bundle import Bundle, build_bundle
from detlab.errors import BundleError, BundleTooLarge, ConfigError, Conflict, NotFound, ResourcesError
from detlab.launch.archives import tree_digest
from detlab.schemas.wire import CreateExperiment, ExperimentState
from detlab_hub.services import AgentCaller, TaskCaller
from detlab_hub.services.admission.bundles import Bundles
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.store.tables import CheckpointRow, ExperimentRow


def pack(folder: Path, **files: str) -> tuple[str, Path]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name.replace("__", "/") + ".py")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    data = gzip.compress(buffer.getvalue(), mtime=0)
    path = folder / "upload"
    path.write_bytes(data)
    return "sha256:" + hashlib.sha256(data).hexdigest(), path


async def test_submit_names_every_mistake_at_once(make_world):
    world = await make_world()
    wrong = {"entrypont": "x", "searcher": {"name": "random", "metric": "loss", "max_trials": 0}, "max_restarts": -1}
    with pytest.raises(ConfigError) as caught:
        await world.submit(wrong)
    paths = {problem.path for problem in caught.value.problems if problem.level == "error"}
    assert {"entrypont", "searcher.max_trials", "max_restarts"} <= paths
    assert (await world.services[Experiments].list(ALICE)) == ([], None)


async def test_submit_of_malformed_yaml_names_the_line(make_world):
    world = await make_world()
    with pytest.raises(ConfigError, match="line 2"):
        await world.services[Experiments].create(ALICE, CreateExperiment(config_yaml="name: x\n  bad: [\n"))
    with pytest.raises(ConfigError):
        await world.services[Experiments].create(ALICE, CreateExperiment())


async def test_submit_refuses_a_space_that_no_search_can_use(make_world):
    world = await make_world()
    searcher = {"name": "grid", "metric": "loss"}
    with pytest.raises(ConfigError, match="count"):
        await world.submit(config(searcher, hyperparameters={"lr": {"type": "double", "minval": 0, "maxval": 1}}))


@pytest.mark.parametrize(
    "hparams",
    [
        {"a": math.nan},
        {"a": [1, {"b": math.inf}]},
        {"a": "x\0"},
        {"a\0": 1},
        {"a": "\ud800"},
        {"\ud800": 1},
        {"a": 10**400},
        {"a": {"type": "categorical", "vals": [1, math.nan]}},
        {"a": {"type": "const", "val": -math.inf}},
        {"a": {"type": "log", "base": 10, "minval": 0, "maxval": 400}},
        {"a": {"type": "double", "minval": -1.7e308, "maxval": 1.7e308}},
    ],
)
async def test_no_hyperparameter_is_stored_that_a_database_cannot_read(make_world, hparams):
    """Trials are found by conditions that the database reads in their JSON: one such value ends all such queries."""
    world = await make_world()
    searcher = {"name": "random", "metric": "loss", "max_trials": 2}
    with pytest.raises(ConfigError, match="hyperparameters"):
        await world.submit(config(searcher, hyperparameters=hparams))
    assert (await world.services[Experiments].list(ALICE)) == ([], None)


async def test_submit_refuses_impossible_resources_with_the_reason(make_world):
    world = await make_world()
    await world.add_agent(slots=2)
    with pytest.raises(ResourcesError, match="3"):
        await world.submit(config(resources={"slots_per_trial": 3}))
    with pytest.raises(ResourcesError, match="max_slots"):
        await world.submit(config(resources={"slots_per_trial": 2, "max_slots": 1}))


async def test_submit_draws_a_name_and_a_seed_and_keeps_them(make_world):
    world = await make_world()
    raw = config()
    del raw["name"], raw["reproducibility"]
    first, second = await world.submit(raw), await world.submit(raw)
    assert first.name.startswith("Experiment (")
    assert first.name.count("-") == 2
    seeds = [view.config["reproducibility"]["experiment_seed"] for view in (first, second)]
    assert seeds[0] != seeds[1]
    assert all(0 <= seed < 2**31 for seed in seeds)


async def test_submit_dry_run_writes_nothing(make_world):
    world = await make_world()
    count = world.writes[0]
    reply = await world.services[Experiments].create(
        ALICE, CreateExperiment(config=config(), dry_run=True, idempotency_key="k")
    )
    assert reply.experiment is None
    assert reply.config["searcher"]["name"] == "single"
    assert world.writes[0] == count


async def test_submit_names_keys_that_cannot_be_honoured(make_world):
    world = await make_world()
    reply = await world.services[Experiments].create(
        ALICE, CreateExperiment(config=config(bind_mounts=[{"host_path": "/a", "container_path": "/b"}]))
    )
    assert "bind_mounts" in [warning.path for warning in reply.warnings]
    with pytest.raises(ConfigError, match="horovod"):
        await world.submit(config(entrypoint="python3 -m determined.launch.horovod python3 x.py"))


@pytest.mark.parametrize("slots", [1, 2])
async def test_submit_a_trial_class_becomes_the_command_that_trains_it(make_world, tmp_path, slots):
    world = await make_world(training(1))
    agent = await world.add_agent(slots=2)
    digest, upload = pack(tmp_path, model_def="class MyTrial: ...")
    await world.services[Bundles].put(ALICE, digest, upload)
    made = config(entrypoint="model_def:MyTrial", resources={"slots_per_trial": slots}, checkpoint_policy="all")
    reply = await world.services[Experiments].create(ALICE, CreateExperiment(config=made, bundle=digest))
    assert [warning.message for warning in reply.warnings] == ["the form module:Class is deprecated"]
    assert reply.config["entrypoint"] == "model_def:MyTrial"
    await world.step()
    (task,) = agent.tasks.values()
    starts = ["detlab.pytorch"] if slots == 1 else ["detlab.launch.torch_distributed", "--trial"]
    assert task.launch.entrypoint == ["python3", "-m", *starts, "model_def:MyTrial"]


async def test_submit_a_trial_class_that_was_not_sent_is_warned_of(make_world):
    world = await make_world()
    made = CreateExperiment(config=config(entrypoint="model.defs:MyTrial"))
    reply = await world.services[Experiments].create(ALICE, made)
    assert "names the module 'model.defs', which is not in the code" in [warning.message for warning in reply.warnings]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"train": "import os\nimport determined as det\n"}, "train.py, line 2"),
        ({"train": "from determined.pytorch import Trainer"}, "train.py, line 1"),
        (
            {"a__b": "def f():\n    from determined import core\n", "train": "import determined"},
            "a/b.py, line 2; train.py, line 1",
        ),
        ({"train": "import determined_helpers\n# import determined\nx = 'import determined'"}, ""),
        ({"determined__compat": "x = 1", "train": "import determined"}, ""),
        ({"train": "import detlab as det"}, ""),
    ],
)
async def test_code_that_imports_determined_is_warned_of_by_a_dry_run_too(make_world, tmp_path, files, said):
    world = await make_world()
    digest, upload = pack(tmp_path, **files)
    await world.services[Bundles].put(ALICE, digest, upload)
    for dry_run in (True, False):
        asked = CreateExperiment(config=config(), bundle=digest, dry_run=dry_run)
        reply = await world.services[Experiments].create(ALICE, asked)
        found = [warning for warning in reply.warnings if "Determined" in warning.message]
        assert [one.message for one in found] == ([f"the code imports Determined: {said}"] if said else [])
        assert all("import detlab as det" in (one.hint or "") for one in found)


async def test_a_submit_without_a_workspace_lies_in_the_personal_one_of_its_owner(make_world):
    world = await make_world()
    mine, theirs = await world.submit(config()), await world.submit(config(), BOB)
    assert (mine.workspace, mine.project) == (theirs.workspace, theirs.project) == ("Uncategorized", "Uncategorized")
    assert mine.workspace_id != theirs.workspace_id
    assert (await world.submit(config())).project_id == mine.project_id


async def test_submit_masks_secrets_in_what_people_see(make_world):
    world = await make_world(training(1))
    agent = await world.add_agent()
    made = await world.submit(config(data={"secrets": {"key": "hunter2"}, "path": "x"}))
    assert made.config["data"] == {"secrets": {"key": "********"}, "path": "x"}
    await world.step()
    (task,) = agent.tasks.values()
    assert task.launch.info.config["data"]["secrets"]["key"] == "hunter2"


# --- code


async def test_submit_bundles_are_kept_under_their_digest(make_world, tmp_path):
    world = await make_world(training(1))
    agent = await world.add_agent()
    digest, upload = pack(tmp_path, train="print(1)", lib__model="x = 1")
    bundles = world.services[Bundles]
    with pytest.raises(NotFound):
        await bundles.path_for(ALICE, digest)
    assert await bundles.put(ALICE, digest, upload) is True
    assert not upload.exists()
    _, upload = pack(tmp_path, train="print(1)", lib__model="x = 1")
    assert await bundles.put(ALICE, digest, upload) is False
    made = await world.submit(config(entrypoint="python3 train.py"), bundle=digest)
    path = await world.services[Experiments].bundle_path(ALICE, made.id)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest.removeprefix("sha256:")
    await world.step()
    (task,) = agent.tasks.values()
    assert task.launch.bundle == digest
    assert await bundles.path_for(task.caller, digest) == path
    assert await bundles.path_for(AgentCaller("node"), digest) == path
    with pytest.raises(NotFound):
        await bundles.path_for(AgentCaller("stranger"), digest)
    with pytest.raises(NotFound):
        await bundles.path_for(TaskCaller("x", 1, 999, 1), digest)


async def test_submit_bundles_with_other_bytes_or_too_many_are_refused(make_world, tmp_path):
    world = await make_world(bundle_limit=200)
    digest, upload = pack(tmp_path, train="print(1)")
    with pytest.raises(BundleError, match="digest"):
        await world.services[Bundles].put(ALICE, "sha256:" + "0" * 64, upload)
    assert not upload.exists()
    with pytest.raises(BundleError, match="form"):
        await world.services[Bundles].put(ALICE, "../../etc/passwd", tmp_path / "none")
    digest, upload = pack(tmp_path, **{f"f{n}": "x" * n for n in range(200)})
    with pytest.raises(BundleTooLarge):
        await world.services[Bundles].put(ALICE, digest, upload)


def repacked(bundle: Bundle, folder: Path, *more: tuple[str, bytes]) -> Path:
    """The same files in another order and another packing; and entries of (name, type)."""
    path = folder / "upload"
    with tarfile.open(fileobj=io.BytesIO(bundle.data)) as old, tarfile.open(path, "w:gz", compresslevel=1) as new:
        for member in reversed(old.getmembers()):
            member.mtime, member.mode = 7, member.mode | 0o066
            new.addfile(member, old.extractfile(member))
        for name, kind in more:
            info = tarfile.TarInfo(name)
            info.type = kind
            new.addfile(info)
    return path


async def test_a_bundle_is_known_by_its_files_however_they_are_packed(make_world, tmp_path):
    world = await make_world(training(1))
    bundle = build_bundle(files={"train.py": "print(1)", "lib/model.py": "x = 1"})
    upload = tmp_path / "first"
    upload.write_bytes(bundle.data)
    assert await world.services[Bundles].put(ALICE, bundle.digest, upload) is True
    again = repacked(bundle, tmp_path)
    assert again.read_bytes() != bundle.data
    assert await world.services[Bundles].put(ALICE, bundle.digest, again) is False
    made = await world.submit(config(entrypoint="python3 train.py"), bundle=bundle.digest)
    assert tree_digest(await world.services[Experiments].bundle_path(ALICE, made.id)) == bundle.digest


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("other.py", tarfile.REGTYPE), "has digest tree:"),
        (("train.py", tarfile.REGTYPE), "twice"),
        (("empty", tarfile.DIRTYPE), "is a directory"),
        (("link", tarfile.SYMTYPE), "neither a regular file"),
    ],
)
async def test_a_bundle_with_more_than_its_digest_says_is_refused(make_world, tmp_path, more, why):
    world = await make_world()
    bundle = build_bundle(files={"train.py": "print(1)"})
    upload = repacked(bundle, tmp_path, more)
    with pytest.raises(BundleError, match=why):
        await world.services[Bundles].put(ALICE, bundle.digest, upload)
    assert not upload.exists()
    with pytest.raises(NotFound):
        await world.services[Bundles].path_for(ALICE, bundle.digest)


async def test_bytes_whose_own_digest_is_that_of_a_tree_do_not_take_its_place(make_world, tmp_path):
    """Clients of before name a bundle by its bytes, which need not be an archive."""
    world = await make_world()
    bundle = build_bundle(files={"train.py": "print(1)"})
    text = f"detlab bundle 1\n644 {hashlib.sha256(b'print(1)').hexdigest()} train.py\0".encode()
    number = hashlib.sha256(text).hexdigest()
    assert bundle.digest == f"tree:{number}"
    for digest, data in ((bundle.digest, bundle.data), (f"sha256:{number}", text)):
        upload = tmp_path / "upload"
        upload.write_bytes(data)
        await world.services[Bundles].put(ALICE, digest, upload)
    assert (await world.services[Bundles].path_for(ALICE, bundle.digest)).read_bytes() == bundle.data


async def test_submit_refuses_code_that_is_not_there(make_world, tmp_path):
    world = await make_world()
    digest, upload = pack(tmp_path, train="print(1)")
    with pytest.raises(BundleError, match="not here"):
        await world.submit(config(), bundle=digest)
    await world.services[Bundles].put(ALICE, digest, upload)
    with pytest.raises(ConfigError, match=r"entrypoint.*trian\.py.*train\.py"):
        await world.submit(config(entrypoint="python3 trian.py --fast"), bundle=digest)
    with pytest.raises(ConfigError, match="no Python file was sent"):
        await world.submit(config(entrypoint=["python", "train.py"]))
    for fine in ("python3 ./train.py", ["python3", "train.py"], "python3 -m train", "/bin/sh -c 'true'"):
        await world.submit(config(entrypoint=fine), bundle=digest)
    reply = await world.services[Experiments].create(
        ALICE, CreateExperiment(config=config(entrypoint="time python3 other.py"), bundle=digest)
    )
    assert [warning.path for warning in reply.warnings] == ["entrypoint"]


# --- warm start


async def test_submit_warm_start_uses_ones_own_checkpoints_only(make_world):
    world = await make_world(training(4))
    agent = await world.add_agent()
    made = await world.submit(config())
    await world.finish(made.id)
    (trial,) = await world.trials(made.id)
    for source in ({"source_trial_id": trial.id}, {"source_checkpoint_uuid": trial.latest_checkpoint}):
        searcher = {"name": "single", "metric": "loss", **source}
        with pytest.raises(ConfigError, match="there is no"):
            await world.submit(config(searcher), caller=BOB)
        again = await world.submit(config(searcher))
        await world.steps(2)
        (task,) = agent.tasks.values()
        assert task.launch.info.latest_checkpoint == trial.latest_checkpoint
        await world.finish(again.id)
    with pytest.raises(ConfigError, match="there is no trial 999"):
        await world.submit(config({"name": "single", "metric": "loss", "source_trial_id": 999}))


async def test_a_warm_start_is_from_the_checkpoint_that_the_source_trial_had_at_the_submit(make_world):
    """Also for an attempt that starts when the source has a later one; what people see is what they asked for."""
    world = await make_world(training(50))
    agent = await world.add_agent()
    source = await world.submit(config())
    (trial,) = await world.trials(source.id)
    while trial.latest_checkpoint is None:
        await world.step()
        (trial,) = await world.trials(source.id)
    then = trial.latest_checkpoint
    warm = await world.submit(config({"name": "single", "metric": "loss", "source_trial_id": trial.id}))
    for shown in (warm, await world.services[Experiments].get(ALICE, warm.id)):
        searcher = shown.config["searcher"]
        assert (searcher["source_trial_id"], searcher["source_checkpoint_uuid"]) == (trial.id, None)
    again = await world.submit(warm.config)
    await world.steps(6)
    (trial,) = await world.trials(source.id)
    assert trial.latest_checkpoint != then, "the source went on"
    await world.services[Experiments].kill(ALICE, source.id)
    await world.services[Experiments].kill(ALICE, again.id)
    while (
        running := [task.launch for task in agent.tasks.values() if task.launch.info.experiment_id == warm.id]
    ) == []:
        await world.step()
    assert running[0].info.latest_checkpoint == then
    assert running[0].info.config["searcher"]["source_checkpoint_uuid"] is None


async def paused_warm_start(make_world):
    """A world, its agent, a trial that has ended, and an experiment that will start from its checkpoint."""
    world = await make_world(training(4))
    agent = await world.add_agent()
    source = await world.submit(config())
    await world.finish(source.id)
    (trial,) = await world.trials(source.id)
    wish = config({"name": "single", "metric": "loss", "source_trial_id": trial.id})
    warm = await world.services[Experiments].create(ALICE, CreateExperiment(config=wish, activate=False))
    return world, agent, trial, warm


async def test_a_warm_start_whose_checkpoint_was_deleted_says_that_it_is_none(make_world):
    world, agent, trial, warm = await paused_warm_start(make_world)

    def delete(unit):
        unit.session.get(CheckpointRow, trial.latest_checkpoint).state = "DELETED"

    await world.services.context.write(delete)
    await world.services[Experiments].activate(ALICE, warm.experiment.id)
    await world.steps(2)
    (task,) = agent.tasks.values()
    assert task.launch.info.latest_checkpoint is None
    (started,) = await world.trials(warm.experiment.id)
    (said,) = started.warnings
    assert (
        said
        == f"checkpoint {trial.latest_checkpoint}, which it was to start from, was deleted: it started from nothing"
    )
    await world.finish(warm.experiment.id)


async def test_a_warm_start_that_an_earlier_master_took_is_from_the_source_trials_latest_checkpoint(make_world):
    world, agent, trial, warm = await paused_warm_start(make_world)

    def as_it_was(unit):
        row = unit.session.get(ExperimentRow, warm.experiment.id)
        assert row.config["searcher"]["source_checkpoint_uuid"] == trial.latest_checkpoint
        row.config = {**row.config, "searcher": {**row.config["searcher"], "source_checkpoint_uuid": None}}

    await world.services.context.write(as_it_was)
    await world.services[Experiments].activate(ALICE, warm.experiment.id)
    await world.steps(2)
    (task,) = agent.tasks.values()
    assert task.launch.info.latest_checkpoint == trial.latest_checkpoint
    await world.finish(warm.experiment.id)


# --- lists


async def test_submit_lists_are_paged_and_take_few_queries(make_world):
    world = await make_world(training(1))
    await world.add_agent(slots=4)
    made = [await world.submit(config(name=f"run {number}")) for number in range(12)]
    for view in made[:6]:
        await world.finish(view.id)
    seen, before = [], None
    while True:
        items, before = await world.services[Experiments].list(ALICE, limit=5, before=before)
        seen += [item.id for item in items]
        if before is None:
            break
    assert seen == [view.id for view in reversed(made)]
    named, _ = await world.services[Experiments].list(ALICE, name="run 1")
    assert len(named) == 3

    def queries(limit: int) -> int:
        count = [0]
        engine = world.store._read_engine

        def note(*args):
            count[0] += 1

        event.listen(engine, "before_cursor_execute", note)
        return count, engine, note, limit

    counts = []
    for limit in (2, 12):
        count, engine, note, _ = queries(limit)
        await world.services[Experiments].list(ALICE, limit=limit)
        event.remove(engine, "before_cursor_execute", note)
        counts.append(count[0])
    assert counts[1] <= counts[0] + 1, counts


async def test_submit_trials_are_paged_in_creation_order(make_world):
    world = await make_world()
    made = await world.submit(config(asha(trials=7, concurrent=7)))
    seen, after = [], None
    while True:
        items, after = await world.services[Experiments].trials(ALICE, made.id, limit=3, after=after)
        seen += [item.index for item in items]
        if after is None:
            break
    assert seen == list(range(7))


# --- delete


async def test_submit_delete_takes_rows_and_files(make_world, tmp_path):
    world = await make_world(training(4), **seen_storage(tmp_path))
    await world.add_agent()
    made = await world.submit(config())
    with pytest.raises(Conflict, match="ended"):
        await world.services[Experiments].delete(ALICE, made.id)
    await world.finish(made.id)
    (trial,) = await world.trials(made.id)
    folder = tmp_path / "checkpoints" / trial.latest_checkpoint
    folder.mkdir(parents=True)
    (folder / "model.pt").write_bytes(b"x")
    outside = tmp_path / "precious"
    outside.mkdir()
    (outside / "file").write_text("keep")
    (folder / "link").symlink_to(outside)
    (tmp_path / "checkpoints" / "unrelated").mkdir()
    events = tmp_path / "checkpoints" / f"tensorboard-{world.settings.cluster_id}-{made.id}-{trial.id}.1" / "rank0"
    events.mkdir(parents=True)
    (events / "events.out.tfevents.1").write_bytes(b"123")
    others = events.parents[1] / f"tensorboard-{world.settings.cluster_id}-{made.id}-{trial.id}9"
    others.mkdir()
    await world.services[Experiments].delete(ALICE, made.id)
    assert not folder.exists()
    assert not events.parent.exists()
    assert others.is_dir()
    assert (outside / "file").read_text() == "keep"
    assert (tmp_path / "checkpoints" / "unrelated").is_dir()
    with pytest.raises(NotFound):
        await world.services[Experiments].get(ROOT, made.id)
    assert world.store.read_sync(lambda s: s.scalar(select(func.count()).select_from(ExperimentRow))) == 0


async def test_submit_a_delete_that_was_interrupted_is_finished_at_the_next_start(make_world, tmp_path):
    world = await make_world(training(2), **seen_storage(tmp_path))
    await world.add_agent()
    made = await world.submit(config())
    await world.finish(made.id)

    def half(s):
        s.get(ExperimentRow, made.id).state = ExperimentState.DELETING.value

    world.store.write_sync(half)
    await world.reboot()
    with pytest.raises(NotFound):
        await world.services[Experiments].get(ROOT, made.id)
