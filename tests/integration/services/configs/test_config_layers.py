"""What lies under a config: template, workspace, pool, cluster, in this order; each runtime takes what it knows."""

from __future__ import annotations

from typing import Any

from services_scripted import ALICE, BOB, ROOT, config

from detlab.schemas.expconf import container_defaults
from detlab.schemas.expconf.raw.secret_keys import MASK
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import CreateExperiment
from detlab.schemas.wire.workspaces import EditWorkspace, WorkspaceDefaults
from detlab_hub.core.scheduling import read_pools
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.projects.workspaces import Workspaces
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.tables import ExperimentRow

AUTH = {"username": "site", "password": "hunter22", "serveraddress": "registry.lab"}


def part(**defaults: Any) -> dict[str, Any]:
    found, problems = container_defaults.read(defaults)
    assert problems == []
    return found


async def cluster(make_world: Any, **more: Any) -> Any:
    pools, problems = read_pools({"default": {}, "a100": {"task_container_defaults": {"shm_size": "16G"}}})
    assert problems == []
    world = await make_world(pools=pools, **more)
    await world.workspace("lab", bob="editor")
    return world


async def submit(world: Any, **more: Any) -> Any:
    request = CreateExperiment(config=config(workspace="alice/lab", **more), dry_run=True)
    return await world.services[Experiments].create(BOB, request)


async def test_each_layer_gives_what_those_above_do_not_say(make_world):
    world = await cluster(
        make_world,
        default_runtime="docker",
        default_image={"cpu": "site/torch"},
        task_container_defaults=part(
            shm_size="8G",
            environment_variables=["SITE=1"],
            bind_mounts=[{"host_path": "/data", "container_path": "/data"}],
            log_policies=[{"name": "nan", "pattern": "nan", "action": "cancel_retries"}],
            startup_hook="echo hello",
            preemption_timeout=60,
        ),
    )
    defaults = {"shm_size": "12G", "bind_mounts": [{"host_path": "/lab", "container_path": "/data"}]}
    edit = EditWorkspace(defaults=WorkspaceDefaults(task_container_defaults=defaults))
    await world.services[Workspaces].edit(ROOT, "alice/lab", edit)
    reply = await submit(world)
    assert reply.config["resources"]["shm_size"] == 12 * 1024**3
    assert [one["host_path"] for one in reply.config["bind_mounts"]] == ["/lab"]
    assert reply.config["environment"]["environment_variables"]["cpu"] == ["SITE=1", "DET_STARTUP_HOOK=echo hello"]
    assert reply.config["preemption_timeout"] == 60
    assert "nan" in [one["name"] for one in reply.config["log_policies"]]
    assert {one.source for one in reply.given} == {"workspace alice/lab", "the cluster"}
    own = await submit(world, resources={"slots_per_trial": 1, "shm_size": "1G"}, preemption_timeout=5)
    assert (own.config["resources"]["shm_size"], own.config["preemption_timeout"]) == (1024**3, 5)
    request = CreateExperiment(config=config(resources={"slots_per_trial": 1, "resource_pool": "a100"}), dry_run=True)
    pooled = await world.services[Experiments].create(BOB, request)
    assert pooled.config["resources"]["shm_size"] == 16 * 1024**3
    assert ("resources.shm_size", "pool a100") in [(one.path, one.source) for one in pooled.given]
    task = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": ["true"]}, dry_run=True)
    command = await world.services[UserTasks].create(BOB, task)
    assert command.config["resources"]["shm_size"] == 8 * 1024**3
    assert "preemption_timeout" not in command.config
    process = await submit(world, runtime="process")
    assert (process.config["bind_mounts"], process.config["resources"]["shm_size"]) == ([], None)
    assert process.config["environment"]["environment_variables"]["cpu"][0] == "SITE=1"
    assert [one for one in process.warnings if "bind_mounts" in one.path] == []


async def test_the_operators_credentials_are_shown_to_nobody_and_given_to_forks(make_world):
    world = await cluster(
        make_world,
        default_runtime="docker",
        default_image={"cpu": "site/torch"},
        task_container_defaults=part(registry_auth=AUTH),
    )
    await world.add_agent()
    request = CreateExperiment(config=config(workspace="alice/lab"))
    reply = await world.services[Experiments].create(BOB, request)
    assert "hunter22" not in reply.model_dump_json()
    row = world.store.read_sync(lambda s: s.get_one(ExperimentRow, reply.experiment.id))
    assert row.config["environment"]["registry_auth"]["password"] == "hunter22"
    seen = await world.services[Experiments].get(ALICE, reply.experiment.id)
    assert seen.config["environment"]["registry_auth"]["password"] == MASK
    again = {key: value for key, value in seen.config.items() if value is not None}
    fork = CreateExperiment(config=again, forked_from=reply.experiment.id)
    forked = await world.services[Experiments].create(ALICE, fork)  # alice has only read it
    row = world.store.read_sync(lambda s: s.get_one(ExperimentRow, forked.experiment.id))
    assert row.config["environment"]["registry_auth"]["password"] == "hunter22"


async def test_those_of_a_workspace_are_masked_and_not_lost_when_others_are_changed(make_world):
    world = await cluster(make_world)
    given = {"registry_auth": AUTH, "startup_hook": "true"}
    services = world.services[Workspaces]
    made = await services.edit(
        ROOT, "alice/lab", EditWorkspace(defaults=WorkspaceDefaults(task_container_defaults=given))
    )
    assert "hunter22" not in made.model_dump_json()
    changed = WorkspaceDefaults(**{**made.defaults.model_dump(), "resource_pool": "a100"})
    await services.edit(ALICE, "alice/lab", EditWorkspace(defaults=changed))  # whose right it is to change the pool
    reply = await world.services[Experiments].create(
        BOB,
        CreateExperiment(config=config(workspace="alice/lab", runtime="docker", environment={"image": {"cpu": "x"}})),
    )
    row = world.store.read_sync(lambda s: s.get_one(ExperimentRow, reply.experiment.id))
    assert row.config["environment"]["registry_auth"]["password"] == "hunter22"
    assert row.resource_pool == "a100"
