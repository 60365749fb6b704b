"""What could never run is refused at submit, with the reason; what only has to wait is not."""

from __future__ import annotations

import itertools

import pytest
from services_scripted import ALICE, BOB, ROOT, config, training

from detlab.errors import ConfigError, ResourcesError
from detlab.schemas.taskwire import CreateTask, SpawnRequest, TaskKind
from detlab.schemas.wire import CreateExperiment
from detlab_hub.core.scheduling import read_pools
from detlab_hub.services.admission.feasibility import AWAY_SECONDS
from detlab_hub.services.agents.nodes import Nodes
from detlab_hub.services.base.callers import HubCaller
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.usertasks.spawns import Spawns
from detlab_hub.services.usertasks.usertasks import UserTasks

DOCKER = {"runtime": "docker", "environment": {"image": "a:1"}}


def ask(kind=TaskKind.COMMAND, slots=1, key=None, **more):
    raw = {"resources": {"slots": slots}, **({"entrypoint": "true"} if kind is TaskKind.COMMAND else {}), **more}
    return CreateTask(kind=kind, config=raw, idempotency_key=key)


async def say_hello(agent, kind="cpu", runtimes=("process",)):
    """Let an agent be of another sort."""
    agent.drop()
    plain = agent.hello

    def hello():
        said = plain()
        slots = [slot.model_copy(update={"kind": kind}) for slot in said.slots]
        return said.model_copy(update={"slots": slots, "runtimes": list(runtimes)})

    agent.hello = hello
    await agent.connect()


async def away(world, *agents):
    """These are gone for so long that they are lost."""
    for agent in agents:
        agent.drop()
        agent.online = False
    await world.steps(80, 1.0)


async def test_impossible_slots_of_every_kind_are_refused_with_the_largest(make_world):
    world = await make_world(training(3))
    await world.add_agent("one", slots=2)
    await world.add_agent("two", slots=4)
    for kind, dry in itertools.product(TaskKind, (True, False)):
        with pytest.raises(ResourcesError) as caught:
            await world.services.start_task(ALICE, ask(kind, 64).model_copy(update={"dry_run": dry}))
        assert "needs 64 slots; the largest agent has 4" in caught.value.message
        assert "det agent list" in caught.value.hint
    assert (await world.services[UserTasks].list(ALICE)).items == []


async def test_impossible_slots_of_a_spawn_are_refused_and_a_repeated_one_never(make_world):
    world = await make_world(training(3))
    await world.add_agent("one", slots=2)
    wanted = SpawnRequest(
        owner="alice", server_name="nb", key="k" * 16, base_url="/user/alice/nb/", config={"resources": {"slots": 2}}
    )
    made = await world.services[Spawns].post(HubCaller(), wanted)
    await world.services[Nodes].remove(ROOT, "one")
    await world.add_agent("small", slots=1)
    assert (await world.services[Spawns].post(HubCaller(), wanted)).task_id == made.task_id
    with pytest.raises(ResourcesError, match="largest agent has 1"):
        await world.services[Spawns].post(HubCaller(), wanted.model_copy(update={"key": "l" * 16}))


async def test_impossible_is_judged_by_who_asks_and_a_known_key_is_not_judged_again(make_world):
    world = await make_world(training(3))
    await world.add_agent("bobs", slots=4, serves_user="bob")
    first = await world.services[UserTasks].create(BOB, ask(slots=4, key="k"))
    with pytest.raises(ResourcesError, match="the only agent serves another user") as refused:
        await world.services[UserTasks].create(ALICE, ask(slots=0))
    assert "bob" not in str(refused.value), "whom an agent serves is nobody else's business (I9)"
    await world.services[Nodes].remove(ROOT, "bobs")
    await world.add_agent("small", slots=1)
    assert (await world.services[UserTasks].create(BOB, ask(slots=4, key="k"))).task.id == first.task.id


async def test_an_agent_that_is_away_costs_no_refusal_only_a_warning(make_world):
    world = await make_world(training(3))
    large = await world.add_agent("large", slots=8)
    await world.add_agent("small", slots=1)
    large.drop()  # for a moment: nothing to say
    assert (await world.services[UserTasks].create(ALICE, ask(slots=8))).warnings == []
    await away(world, large)
    (said,) = (await world.services[UserTasks].create(ALICE, ask(slots=8))).warnings
    assert said.path == "resources.slots"
    assert "the largest agent has 1; large could run it and is away" in said.message
    reply = await world.services[Experiments].create(
        ALICE, CreateExperiment(config=config(resources={"slots_per_trial": 8}))
    )
    assert [warning.path for warning in reply.warnings] == ["resources.slots_per_trial"]
    assert (await world.services[UserTasks].create(ALICE, ask(slots=1))).warnings == []
    with pytest.raises(ResourcesError, match="the largest agent has 8"):
        await world.services[UserTasks].create(ALICE, ask(slots=9))
    world.now += AWAY_SECONDS + 100
    with pytest.raises(ResourcesError, match="the largest agent has 1"):
        await world.services[UserTasks].create(ALICE, ask(slots=8))


async def test_an_agent_that_was_there_for_days_is_expected_back_from_its_last_word(make_world):
    world = await make_world(training(3))
    large = await world.add_agent("large", slots=8)
    for _ in range(12):  # three days
        world.now += AWAY_SECONDS / 4
        world.services._ticked = world.now  # the master ran all the time
        await large.turn()
    await away(world, large)
    await world.add_agent("small", slots=1)
    assert len((await world.services[UserTasks].create(ALICE, ask(slots=8))).warnings) == 1


async def test_without_any_agent_nothing_is_refused(make_world):
    world = await make_world(training(3))
    assert (await world.services[UserTasks].create(ALICE, ask(slots=64))).warnings == []


async def test_a_runtime_that_no_agent_has_now_is_a_warning_for_tasks_and_experiments(make_world):
    world = await make_world(training(3))
    await world.add_agent("one", slots=2)
    (said,) = (await world.services[UserTasks].create(ALICE, ask(**DOCKER))).warnings
    assert (said.path, said.level) == ("runtime", "warning")
    assert "no agent can run containers" in said.message
    reply = await world.services[Experiments].create(ALICE, CreateExperiment(config=config(**DOCKER)))
    assert [warning.path for warning in reply.warnings] == ["runtime"]
    with pytest.raises(ResourcesError, match="the largest agent has 2"):
        await world.services[UserTasks].create(ALICE, ask(slots=3, **DOCKER))


async def test_an_agent_of_containers_only_runs_experiments_of_containers(make_world):
    world = await make_world(training(3))
    await say_hello(await world.add_agent("one"), runtimes=("docker",))
    reply = await world.services[Experiments].create(ALICE, CreateExperiment(config=config(**DOCKER)))
    assert reply.warnings == []


async def test_a_default_image_for_slots_that_no_agent_has_is_refused(make_world):
    world = await make_world(training(3), default_runtime="docker", default_image={"cuda": "a:cuda"})
    agent = await world.add_agent("one")
    await say_hello(agent, runtimes=("process", "docker"))
    with pytest.raises(ConfigError, match="image for slots of kind cuda; every agent that could run it has cpu"):
        await world.services[UserTasks].create(ALICE, ask())
    await say_hello(await world.add_agent("two"), kind="cuda", runtimes=("docker",))
    assert (await world.services[UserTasks].create(ALICE, ask())).warnings == []


async def test_an_image_for_slots_that_no_agent_has_is_refused_for_an_experiment(make_world):
    """Determined's own images, which stand for the kinds that a config leaves out, are no images of this cluster."""
    world = await make_world(training(3), default_runtime="docker", default_image={"cuda": "a:cuda"})
    agent = await world.add_agent("one")
    await say_hello(agent, runtimes=("process", "docker"))
    for image in ({}, {"image": {"cuda": "b:cuda"}}, {"image": {"gpu": "b:cuda"}}):
        with pytest.raises(ConfigError, match="image for slots of kind cuda; every agent that could run it has cpu"):
            await world.submit(config(environment=image))
        with pytest.raises(ConfigError, match="image for slots of kind cuda; every agent that could run it has cpu"):
            await world.services[UserTasks].create(ALICE, ask(environment=image))
    shown = await world.submit(config(environment={"image": {"cpu": "b:cpu", "gpu": "b:cuda"}}))
    assert shown.config["environment"]["image"] == {"cpu": "b:cpu", "cuda": "b:cuda"}
    assert (await world.submit(shown.config)).config["environment"] == shown.config["environment"]


async def test_an_unknown_pool_is_refused_by_name(make_world):
    world = await make_world(training(3))
    await world.add_agent("one")
    raw = {"entrypoint": "true", "resources": {"resource_pool": "gpus"}}
    with pytest.raises(ConfigError, match="there is no pool 'gpus'") as caught:
        await world.services[UserTasks].create(ALICE, CreateTask(kind=TaskKind.COMMAND, config=raw))
    assert [(one.path, one.hint) for one in caught.value.problems] == [
        ("resources.resource_pool", "there are: default")
    ]


@pytest.mark.parametrize(
    ("resources", "hint"),
    [
        ({"slots_per_trial": 8}, "lower resources.slots_per_trial, or see `det agent list`"),
        ({"memory": "900T"}, "lower resources.slots_per_trial or resources.memory, or see `det agent list`"),
        ({"constraints": {"labels": {"rack": "r9"}}}, "see `det agent list`"),
    ],
    ids=["slots", "memory", "label"],
)
async def test_what_is_refused_is_told_what_would_help(make_world, resources, hint):
    world = await make_world(training(3))
    agent = await world.add_agent("one")
    agent.drop()
    plain = agent.hello
    agent.hello = lambda: plain().model_copy(update={"memory": 8 << 30})
    await agent.connect()
    with pytest.raises(ResourcesError, match="no agent could ever run") as caught:
        await world.submit(config(resources={"slots_per_trial": 1, **resources}))
    assert caught.value.hint == hint


async def test_an_elastic_pool_refuses_what_all_its_instances_could_not_run_and_takes_the_rest(make_world):
    provider = {"type": "local", "slots": 2, "max_instances": 3, "slot_type": "cpu", "cpus": 4, "memory": "8G"}
    pools, _ = read_pools({"elastic": {"provider": provider}})
    world = await make_world(training(3), pools=pools)

    def wants(slots, **more):
        return config(resources={"slots_per_trial": slots, "resource_pool": "elastic", **more})

    for slots, more, said in (
        (8, {}, "needs 8 slots; the 3 suitable agents have 6.*the pool starts 3 instances at most, of 2 slots"),
        (1, {"constraints": {"gpu": "H100"}}, "no agent has a GPU of model 'H100'"),
        (1, {"cpus": 5}, "5"),
        (1, {"memory": "9G"}, "9 GiB"),
    ):
        with pytest.raises(ResourcesError, match=said):
            await world.submit(wants(slots, **more))
    made = await world.submit(wants(6, cpus=4, memory="8G"))
    assert made.warnings == []
    await world.add_agent("fixed", slots=2)  # of another pool: it changes nothing
    with pytest.raises(ResourcesError, match="the pool starts 3 instances"):
        await world.submit(wants(8))


async def test_a_runtime_that_no_agent_offers_is_refused_with_those_that_agents_offer(make_world):
    world = await make_world(training(3))
    none = "pool default has no agent yet, and 'podman' is not one of process, docker, kubernetes, slurm"
    with pytest.raises(ConfigError, match=none):
        await world.services[UserTasks].create(ALICE, ask(runtime="podman"))
    await world.add_agent("one", slots=2)
    for dry in (True, False):
        wanted = ask(runtime="slrum").model_copy(update={"dry_run": dry})
        with pytest.raises(ConfigError) as caught:
            await world.services.start_task(ALICE, wanted)
        (problem,) = caught.value.problems
        assert problem.path == "runtime"
        assert problem.message == "no agent of pool default has the runtime 'slrum'; they offer process"
        asked = CreateExperiment(config=config(runtime="slrum"), dry_run=dry)
        with pytest.raises(ConfigError, match="no agent of pool default has the runtime 'slrum'; they offer process"):
            await world.services[Experiments].create(ALICE, asked)
    assert (await world.services[UserTasks].list(ALICE)).items == []


async def test_a_runtime_that_only_an_agent_knows_gets_its_name_and_what_the_config_says_of_a_container(make_world):
    world = await make_world(training(3))
    agent = await world.add_agent("one", slots=4)
    await say_hello(agent, runtimes=("process", "podman"))
    plain = await world.services[UserTasks].create(ALICE, ask(runtime="podman"))
    imaged = await world.services[UserTasks].create(ALICE, ask(runtime="podman", environment={"image": "a:1"}))
    await world.submit(config(runtime="podman"))
    await world.steps(3)
    launched = {task.launch.info.task_id: task.launch for task in agent.tasks.values()}
    assert {launch.runtime for launch in launched.values()} == {"podman"}
    assert launched[plain.task.id].container.image == ""
    assert launched[imaged.task.id].container.image == "a:1"
    view = await world.services[UserTasks].get(ALICE, imaged.task.id)
    assert (view.runtime, view.image) == ("podman", "a:1")
