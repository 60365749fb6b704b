"""What a workspace gives to what is submitted into it: it runs as its members, so who sets which value matters (I9)."""

from __future__ import annotations

from typing import Any

import pytest
from services_scripted import ALICE, BOB, ROOT, config

from detlab.errors import ConfigError, Conflict, Forbidden
from detlab.schemas.wire import CreateExperiment, CreateExperimentReply
from detlab.schemas.wire.projects import MoveExperiment
from detlab.schemas.wire.workspaces import EditWorkspace, WorkspaceDefaults
from detlab_hub.core.scheduling import read_pools
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.projects.moves import Moves
from detlab_hub.services.projects.workspaces import Workspaces

S3 = {"type": "s3", "bucket": "lab-checkpoints"}


async def world_with_pools(make_world: Any) -> Any:
    pools, problems = read_pools({"default": {}, "a100": {}})
    assert not problems
    world = await make_world(pools=pools, default_checkpoint_storage=None)
    await world.workspace("lab", bob="editor")
    return world


async def give(world: Any, caller: Any = ALICE, **defaults: Any) -> None:
    edit = EditWorkspace(defaults=WorkspaceDefaults(**defaults))
    await world.services[Workspaces].edit(caller, "alice/lab", edit)


async def submit(world: Any, **more: Any) -> CreateExperimentReply:
    request = CreateExperiment(config={**config(workspace="alice/lab"), **more})
    return await world.services[Experiments].create(BOB, request)


async def test_what_it_gives_is_shown_at_submit_with_where_it_comes_from(make_world):
    world = await world_with_pools(make_world)
    await give(world, resource_pool="a100", checkpoint_storage=S3)
    reply = await submit(world)
    assert [(one.path, one.value, one.source) for one in reply.given] == [
        ("resources.resource_pool", "a100", "workspace alice/lab"),
        ("checkpoint_storage.type", "s3", "workspace alice/lab"),
        ("checkpoint_storage.bucket", "lab-checkpoints", "workspace alice/lab"),
    ]
    assert reply.config["resources"]["resource_pool"] == "a100"
    assert reply.config["checkpoint_storage"]["bucket"] == "lab-checkpoints"
    dry = await world.services[Experiments].create(
        BOB, CreateExperiment(config=config(workspace="alice/lab"), dry_run=True)
    )
    assert dry.given == reply.given


async def test_what_the_config_says_comes_first(make_world):
    world = await world_with_pools(make_world)
    await give(world, resource_pool="a100", checkpoint_storage=S3)
    own = {"type": "gcs", "bucket": "mine"}
    reply = await submit(world, resources={"resource_pool": "default"}, checkpoint_storage=own)
    assert reply.config["resources"]["resource_pool"] == "default"
    assert (reply.config["checkpoint_storage"]["type"], reply.config["checkpoint_storage"]["bucket"]) == ("gcs", "mine")
    assert "lab-checkpoints" not in str(reply.config)
    request = CreateExperiment(config={**config(), "checkpoint_storage": own})
    elsewhere = await world.services[Experiments].create(BOB, request)
    assert elsewhere.given == []


@pytest.mark.parametrize(
    "environment",
    [
        {"environment_variables": ["LD_PRELOAD=/tmp/x.so"]},
        {"environment_variables": ["PYTHONPATH=/tmp"]},
        {"environment_variables": ["PIP_INDEX_URL=http://mallory"]},
        {"environment_variables": ["HTTPS_PROXY=http://mallory"]},
        {"image": "mallory/image"},
        {"registry_auth": {"username": "u"}},
        {"pod_spec": {"spec": {"nodeSelector": {"zone": "b"}}}},
    ],
)
async def test_what_decides_which_code_runs_as_members_is_cluster_administrators_alone(make_world, environment):
    world = await world_with_pools(make_world)
    with pytest.raises(Forbidden, match="only administrators of the cluster"):
        await give(world, environment=environment)
    assert (await submit(world, checkpoint_storage=S3)).given == []


@pytest.mark.parametrize(
    "storage",
    [
        {"type": "shared_fs", "host_path": "/home/bob"},
        {"type": "directory", "container_path": "/home/bob/.ssh"},
        {"type": "fsspec", "url": "sftp://mallory/x"},
        {**S3, "endpoint_url": "https://mallory.example"},
        {**S3, "ca_file": "/tmp/ca.pem"},
        {"type": "gcs", "bucket": "b", "endpoint_url": "https://mallory.example"},
        {"type": "azure", "container": "c", "account_url": "https://mallory.example"},
        {"bucket": "b"},
    ],
)
async def test_an_admin_of_a_workspace_names_a_bucket_and_nothing_to_which_members_would_send_credentials(
    make_world, storage
):
    world = await world_with_pools(make_world)
    with pytest.raises(Forbidden, match="only administrators of the cluster"):
        await give(world, checkpoint_storage=storage)


@pytest.mark.parametrize(
    ("defaults", "path"),
    [
        ({"resource_pool": "nowhere"}, "defaults.resource_pool"),
        ({"checkpoint_storage": {**S3, "secret_key": "hunter2hunter2"}}, "defaults.checkpoint_storage"),
        ({"checkpoint_storage": {"type": "s4"}}, "defaults.checkpoint_storage.type"),
        ({"checkpoint_storage": {**S3, "bucket": "a b/c"}}, "defaults.checkpoint_storage.bucket"),
        ({"environment": {"environment_variables": ["=x"]}}, "defaults.environment.environment_variables"),
        ({"environment": {"environment_variables": ["API_TOKEN=hunter2hunter2"]}}, "defaults.environment"),
        ({"environment": {"registry_auth": {"username": "u", "password": "hunter2"}}}, "defaults.environment"),
        ({"environment": {"nothing": 1}}, "defaults.environment.nothing"),
    ],
)
async def test_what_no_config_could_have_no_workspace_gives(make_world, defaults, path):
    world = await world_with_pools(make_world)
    with pytest.raises(ConfigError) as found:
        await give(world, ROOT, **defaults)
    assert path in {one.path for one in found.value.problems}
    assert "hunter2" not in str(found.value)


async def test_an_administrator_of_the_cluster_gives_an_environment_which_admins_leave_as_it_is(make_world):
    world = await world_with_pools(make_world)
    environment = {"environment_variables": ["LAB=vision"]}
    await give(world, ROOT, environment=environment, checkpoint_storage=S3)
    await give(world, resource_pool="a100", environment=environment, checkpoint_storage=S3)
    reply = await submit(world, environment={"environment_variables": ["MINE=1"]})
    assert "LAB=vision" in str(reply.config["environment"])
    assert "MINE=1" in str(reply.config["environment"])
    with pytest.raises(Forbidden):
        await give(world, resource_pool="a100")  # it would take the environment away
    with pytest.raises(Forbidden, match="the role admin"):
        await give(world, BOB, resource_pool="a100")


async def test_each_value_passes_the_submitters_own_checks(make_world):
    """A pool that has gone since is refused in the submitter's words, with its path."""
    world = await world_with_pools(make_world)
    await give(world, resource_pool="a100", checkpoint_storage=S3)
    world.services.context.settings.pools.by_name.pop("a100")
    with pytest.raises(ConfigError) as found:
        await submit(world)
    assert "resources.resource_pool" in {one.path for one in found.value.problems}


async def test_a_move_between_workspaces_with_other_storage_is_refused_unless_it_is_to_stay(make_world):
    world = await world_with_pools(make_world)
    await give(world, checkpoint_storage=S3)
    await world.workspace("two")
    number = (await submit(world)).experiment.id
    moves = world.services[Moves]
    for workspace in ("two", ""):
        wanted = MoveExperiment(workspace=workspace)
        with pytest.raises(Conflict, match="would stay where they are") as found:
            await moves.experiment(ALICE, number, wanted)
        assert "--keep-storage" in found.value.hint
        assert "lab-checkpoints" in str(found.value)
    await moves.experiment(ALICE, number, MoveExperiment(workspace="two", keep_storage=True))
    await moves.experiment(ALICE, number, MoveExperiment(workspace=""))
