"""Config policies: invariants are merged in and shown, limits refuse with the rule's own text, nothing is ended."""

from __future__ import annotations

from typing import Any

import pytest
from services_scripted import ALICE, BOB, ROOT, config

from detlab.errors import ConfigError, Conflict, Forbidden, NotFound
from detlab.schemas.expconf.raw.secret_keys import MASK
from detlab.schemas.jobwire import JobUpdate
from detlab.schemas.taskwire import CreateTask, CreateTaskReply, TaskKind
from detlab.schemas.wire import CreateExperiment, CreateExperimentReply, ExperimentState
from detlab.schemas.wire.configs.config_policies import PolicyQuery, PolicyView, SetPolicy
from detlab.schemas.wire.projects import MoveExperiment
from detlab.schemas.wire.searches import SteerSearch
from detlab_hub.core.scheduling import read_pools
from detlab_hub.services import Caller
from detlab_hub.services.admission.configs.config_policies import ConfigPolicies
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.steering import SearchSteering
from detlab_hub.services.projects.moves import Moves
from detlab_hub.services.queue.jobs import Jobs
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.tables import ExperimentRow

EVE = Caller("eve")
VIC = Caller("vic")


async def lab(make_world: Any, **more: Any) -> Any:
    world = await make_world(**more)
    await world.workspace("lab", bob="editor", vic="viewer")
    return world


async def policy(
    world: Any,
    invariant: dict[str, Any] | None = None,
    caller: Caller = ROOT,
    workspace: str = "",
    workload: Any = "experiment",
    **constraints: Any,
) -> PolicyView:
    wanted = {"invariant_config": invariant or {}, "constraints": constraints, "workspace": workspace}
    request = SetPolicy.model_validate({**wanted, "workload": workload})
    return await world.services[ConfigPolicies].set(caller, request)


async def submit(world: Any, caller: Caller = BOB, *, dry: bool = True, **more: Any) -> CreateExperimentReply:
    request = CreateExperiment(config=config(**{"workspace": "alice/lab", **more}), dry_run=dry)
    return await world.services[Experiments].create(caller, request)


async def start(world: Any, caller: Caller = BOB, **more: Any) -> CreateTaskReply:
    whole = {"entrypoint": ["sleep", "9"], "workspace": "alice/lab", **more}
    request = CreateTask(kind=TaskKind.COMMAND, config=whole, dry_run=True)
    return await world.services[UserTasks].create(caller, request)


def given(reply: Any) -> list[tuple[str, Any, str]]:
    return [(one.path, one.value, one.source) for one in reply.given if "policy" in one.source]


def problems(error: Any) -> dict[str, str]:
    return {one.path: one.message for one in error.value.problems if one.level == "error"}


async def test_invariants_are_merged_over_the_config_and_shown(make_world):
    world = await lab(make_world)
    proxy = {"environment": {"environment_variables": ["HTTPS_PROXY=http://proxy"]}, "max_restarts": 1}
    await policy(world, proxy)
    await policy(world, {"max_restarts": 2, "labels": ["lab"]}, ALICE, "alice/lab")
    environment = {"environment_variables": ["HTTPS_PROXY=http://mallory"]}
    reply = await submit(world, max_restarts=9, environment=environment, labels=["mine"])
    assert reply.config["max_restarts"] == 1  # the cluster's beats the workspace's, and both the user
    variables = reply.config["environment"]["environment_variables"]["cpu"]
    assert variables == ["HTTPS_PROXY=http://mallory", "HTTPS_PROXY=http://proxy"]  # the last one counts
    assert sorted(reply.config["labels"]) == ["lab", "mine"]
    assert given(reply) == [
        ("max_restarts", 1, "config policy of the cluster"),
        ("labels", ["lab"], "config policy of workspace alice/lab"),
        ("environment.environment_variables", ["HTTPS_PROXY=http://proxy"], "config policy of the cluster"),
    ]
    elsewhere = await submit(world, workspace="", max_restarts=9)
    assert (elsewhere.config["max_restarts"], elsewhere.config["labels"]) == (1, [])


async def test_merged_twice_an_invariant_stands_once(make_world):
    world = await lab(make_world)
    await policy(world, {"environment": {"environment_variables": ["A=1"], "add_capabilities": ["SYS_PTRACE"]}})
    first = await submit(world, environment={"environment_variables": ["A=1", "B=2"]})
    again = {key: value for key, value in first.config.items() if value is not None}
    second = await submit(world, **again)
    assert second.config["environment"] == first.config["environment"]
    assert first.config["environment"]["environment_variables"]["cpu"] == ["B=2", "A=1"]
    assert given(second) == []


async def test_what_is_wrong_with_what_an_invariant_sets_is_told_as_its_own(make_world):
    world = await lab(make_world)
    await policy(world, {"entrypoint": "echo audited"})
    reply = await submit(world, unmanaged=True)
    (problem,) = [one for one in reply.warnings if one.path == "entrypoint"]
    assert "it comes from config policy of the cluster" in problem.hint


RANDOM = {"name": "random", "metric": "loss", "max_trials": 9}
DIRECTORY = {"type": "directory", "container_path": "/elsewhere"}


async def test_an_invariant_of_a_key_holds_for_the_search_methods_that_have_it(make_world):
    """`searcher.max_trials` made every search by `single` and `grid` impossible, without a warning."""
    world = await lab(make_world)
    (warning,) = (await policy(world, {"searcher": {"max_trials": 4, "metric": "error"}})).warnings
    assert warning.path == "invariant_config.searcher.max_trials"
    assert "single" in warning.message
    assert "random" not in warning.message
    assert "searcher.name" in warning.hint
    single = await submit(world)
    assert ("max_trials" in single.config["searcher"], single.config["searcher"]["metric"]) == (False, "error")
    assert (await submit(world, searcher=RANDOM)).config["searcher"]["max_trials"] == 4


async def test_who_sets_the_kind_leaves_no_other_to_escape_to(make_world):
    world = await lab(make_world)
    store = {"type": "shared_fs", "host_path": "/audited"}
    view = await policy(world, {"checkpoint_storage": store, "searcher": {"name": "random"}})
    assert not view.warnings
    await policy(world, {"searcher": {"max_trials": 4}}, workspace="alice/lab")
    few = {"lr": {"type": "double", "minval": 0.1, "maxval": 1, "count": 3}}
    grid = {"searcher": {"name": "grid", "metric": "loss"}, "hyperparameters": few}
    for more in ({}, {"searcher": RANDOM}, grid):
        made = (await submit(world, checkpoint_storage=DIRECTORY, **more)).config
        assert (made["searcher"]["name"], made["searcher"]["max_trials"]) == ("random", 4), more
        assert made["checkpoint_storage"]["host_path"] == "/audited"
        assert "container_path" not in made["checkpoint_storage"]


async def test_a_key_of_another_kind_of_storage_is_passed_over_and_warned_of(make_world):
    world = await lab(make_world)
    view = await policy(world, {"checkpoint_storage": {"host_path": "/audited"}})
    assert ["checkpoint_storage.type" in one.hint for one in view.warnings] == [True]
    made = (await submit(world, checkpoint_storage=DIRECTORY)).config["checkpoint_storage"]
    assert made["container_path"] == "/elsewhere"
    shared = {"type": "shared_fs", "host_path": "/mine"}
    assert (await submit(world, checkpoint_storage=shared)).config["checkpoint_storage"]["host_path"] == "/audited"


async def test_what_a_policy_does_not_hold_for_moves_in_and_what_it_does_is_refused(make_world):
    world = await lab(make_world)
    await policy(world, {"searcher": {"max_trials": 4}}, workspace="alice/lab")
    single = (await submit(world, dry=False, workspace="")).experiment
    random = (await submit(world, dry=False, workspace="", searcher=RANDOM)).experiment
    into = MoveExperiment(workspace="alice/lab")
    await world.services[Moves].experiment(BOB, single.id, into)
    with pytest.raises(ConfigError, match="max_trials: 4"):
        await world.services[Moves].experiment(BOB, random.id, into)


async def test_a_limit_is_what_says_nothing_and_refuses_what_is_beyond_it(make_world):
    pools, _ = read_pools({"default": {"priority": 30}})
    world = await lab(make_world, pools=pools)
    await policy(world, resources={"max_slots": 4}, priority_limit=40)
    reply = await submit(world)
    assert (reply.config["resources"]["max_slots"], reply.config["resources"]["priority"]) == (4, 40)
    assert given(reply) == [
        ("resources.max_slots", 4, "config policy of the cluster"),
        ("resources.priority", 40, "config policy of the cluster"),
    ]
    made = await submit(world, dry=False)
    row = world.store.read_sync(lambda s: s.get_one(ExperimentRow, made.experiment.id))
    assert (row.priority, row.max_slots, row.config["resources"]["max_slots"]) == (40, 4, 4)
    with pytest.raises(ConfigError, match="a config policy does not allow this") as refused:
        await submit(world, resources={"slots_per_trial": 8, "max_slots": 9, "priority": 39})
    assert problems(refused) == {
        "resources.slots_per_trial": (
            "is 8, and the config policy of the cluster says constraints.resources.max_slots: 4"
        ),
        "resources.max_slots": "is 9, and the config policy of the cluster says constraints.resources.max_slots: 4",
        "resources.priority": (
            "is 39, and the config policy of the cluster says constraints.priority_limit: 40 (smaller comes first)"
        ),
    }
    await submit(world, resources={"slots_per_trial": 4, "max_slots": 4, "priority": 41})
    assert given(await start(world)) == []  # that of tasks is another one
    await policy(world, workload="tasks", resources={"max_slots": 1}, priority_limit=50)
    assert (await start(world)).config["resources"]["priority"] == 50
    with pytest.raises(ConfigError) as refused:
        await start(world, resources={"slots": 2})
    assert "resources.slots" in problems(refused)


async def test_nothing_is_missing_in_a_part_of_a_config(make_world):
    world = await lab(make_world)
    made = await policy(world, {"searcher": {"name": "random", "max_trials": 2}}, ALICE, "alice/lab")
    assert made.warnings == []


async def test_of_two_limits_the_stricter_one_counts(make_world):
    world = await lab(make_world)
    await policy(world, resources={"max_slots": 8})
    made = await policy(world, None, ALICE, "alice/lab", resources={"max_slots": 16})
    assert ["the smaller one counts" in one.message for one in made.warnings] == [True]
    with pytest.raises(ConfigError, match="of the cluster says"):
        await submit(world, resources={"max_slots": 9})
    await policy(world, None, ALICE, "alice/lab", resources={"max_slots": 2})
    with pytest.raises(ConfigError, match="of workspace alice/lab says"):
        await submit(world, resources={"max_slots": 3})


@pytest.mark.parametrize(
    ("invariant", "constraints", "path"),
    [
        ({"resources": {"max_slots": 8}}, {"resources": {"max_slots": 4}}, "invariant_config.resources.max_slots"),
        (
            {"resources": {"slots_per_trial": 8}},
            {"resources": {"max_slots": 4}},
            "invariant_config.resources.slots_per_trial",
        ),
        ({"resources": {"priority": 10}}, {"priority_limit": 30}, "invariant_config.resources.priority"),
        ({"max_restart": 3}, {}, "invariant_config.max_restart"),
        ({"workspace": "alice/lab"}, {}, "invariant_config.workspace"),
        ({"resources": {"resource_pool": "nowhere"}}, {}, "invariant_config.resources.resource_pool"),
        ({"environment": {"registry_auth": {"password": MASK}}}, {}, "environment.registry_auth.password"),
    ],
)
async def test_a_policy_that_contradicts_itself_or_could_stand_in_no_config_is_refused(
    make_world, invariant, constraints, path
):
    world = await lab(make_world)
    with pytest.raises(ConfigError) as refused:
        await policy(world, invariant, **constraints)
    assert path in problems(refused)
    assert (await world.services[ConfigPolicies].get(BOB, PolicyQuery(workload="experiment"))).set_at is None


async def test_a_workspace_cannot_contradict_the_cluster_and_is_told_what_counts(make_world):
    world = await lab(make_world)
    await policy(world, {"max_restarts": 1}, resources={"max_slots": 4})
    with pytest.raises(ConfigError, match="no config could keep to both"):
        await policy(world, {"resources": {"slots_per_trial": 8}}, ALICE, "alice/lab")
    made = await policy(world, {"max_restarts": 2}, ALICE, "alice/lab")
    assert [one.path for one in made.warnings] == ["invariant_config.max_restarts"]
    await policy(world, {"resources": {"max_slots": 4}}, ALICE, "alice/lab")
    told = await policy(world, resources={"max_slots": 2})  # the cluster may, over what is there, and is told of it
    assert any("workspace alice/lab" in one.message for one in told.warnings)
    with pytest.raises(ConfigError):
        await submit(world)


async def test_what_runs_against_a_new_policy_goes_on_and_its_next_change_is_held_to_it(make_world):
    world = await lab(make_world)
    made = (await submit(world, dry=False, resources={"slots_per_trial": 1, "priority": 10})).experiment
    told = await policy(world, {"max_restarts": 1}, resources={"max_slots": 1}, priority_limit=20)
    assert [f"1 experiments that run or wait are beyond it ({made.id})" in one.message for one in told.warnings] == [
        True
    ]
    row = world.store.read_sync(lambda s: s.get_one(ExperimentRow, made.id))
    assert (row.state, row.priority, row.config["max_restarts"]) == (ExperimentState.ACTIVE, 10, 5)
    jobs = world.services[Jobs]
    with pytest.raises(ConfigError, match=r"constraints\.priority_limit: 20"):
        await jobs.update(BOB, str(made.id), JobUpdate(priority=11))
    assert (await jobs.update(BOB, str(made.id), JobUpdate(weight=2))).weight == 2
    assert (await jobs.update(BOB, str(made.id), JobUpdate(priority=25))).priority == 25


@pytest.mark.parametrize("act", ["concurrency", "extend", "pause and activate"])
async def test_a_search_without_a_number_of_slots_is_held_to_a_new_limit_by_its_next_change(make_world, act):
    """It held more than the limit for good: `set` did not name it, and its search was extended beyond it."""
    world = await lab(make_world)
    await world.add_agent(slots=4)
    search = {"name": "random", "metric": "loss", "max_trials": 4}
    made = (await submit(world, dry=False, searcher=search)).experiment
    await world.steps(4, 0.5)
    told = await policy(world, resources={"max_slots": 1})
    assert any(f"are beyond it ({made.id})" in one.message for one in told.warnings)
    steering, experiments = world.services[SearchSteering], world.services[Experiments]
    match act:
        case "concurrency":
            await steering.steer(BOB, made.id, SteerSearch(act="concurrency", limit=4))
        case "extend":
            await steering.steer(BOB, made.id, SteerSearch(act="extend", trials=2))
        case _:
            await experiments.pause(BOB, made.id)
            await experiments.activate(BOB, made.id)
    assert world.store.read_sync(lambda s: s.get_one(ExperimentRow, made.id)).max_slots == 1


async def test_who_may_set_and_see_them(make_world):
    world = await lab(make_world)
    with pytest.raises(Forbidden, match="only administrators"):
        await policy(world, {"max_restarts": 1}, ALICE)
    with pytest.raises(Forbidden, match="takes the role admin"):
        await policy(world, {"max_restarts": 1}, BOB, "alice/lab")
    for beyond in ({"entrypoint": "x"}, {"environment": {"image": "mallory/x"}}, {"bind_mounts": []}):
        with pytest.raises(Forbidden, match="only administrators of the cluster"):
            await policy(world, beyond, ALICE, "alice/lab")
    secret = {"environment": {"registry_auth": {"username": "u", "password": "hunter22"}}}
    await policy(world, secret, ROOT, "alice/lab")
    query = PolicyQuery(workload="experiment", workspace="alice/lab")
    seen = await world.services[ConfigPolicies].get(VIC, query)
    assert "hunter22" not in seen.model_dump_json()
    await policy(world, {**seen.invariant_config, "max_restarts": 1}, ROOT, "alice/lab")
    reply = await submit(world, dry=False)
    assert "hunter22" not in reply.model_dump_json()
    row = world.store.read_sync(lambda s: s.get_one(ExperimentRow, reply.experiment.id))
    assert row.config["environment"]["registry_auth"]["password"] == "hunter22"
    with pytest.raises(NotFound):
        await world.services[ConfigPolicies].get(EVE, query)
    with pytest.raises(NotFound):
        await world.services[ConfigPolicies].remove(EVE, query)
    with pytest.raises(Forbidden):
        await world.services[ConfigPolicies].remove(VIC, query)
    assert (await world.services[ConfigPolicies].remove(ALICE, query)).set_by == "root"
    assert (await world.services[ConfigPolicies].remove(ALICE, query)).set_at is None
    actions = [item.action for item in (await world.services[Audit].page(ROOT)).items]
    assert actions.count("config_policy.set") == 2
    assert actions.count("config_policy.remove") == 1
    await submit(world, ALICE, dry=False, workspace="")  # which makes her personal workspace
    with pytest.raises(Conflict, match="personal"):
        await policy(world, {}, ALICE, "Uncategorized")
