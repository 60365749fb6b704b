"""No path by-passes a config policy: each one that makes or changes a config is walked, and a census finds new ones."""

from __future__ import annotations

import ast
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from services_scripted import ALICE, ROOT, World, config, training

import detlab_hub.services
from detlab.errors import ConfigError
from detlab.schemas.jobwire import JobUpdate
from detlab.schemas.logwire import KeepLogs
from detlab.schemas.taskwire import CreateTask, SpawnRequest, TaskKind
from detlab.schemas.wire import AskTrial, CreateExperiment, EditExperiment, ExperimentState, SteerSearch
from detlab.schemas.wire.batches import BatchRequest
from detlab.schemas.wire.configs.config_policies import SetPolicy
from detlab.schemas.wire.continuing import ContinueExperiment
from detlab.schemas.wire.notebooks.schedules import CreateSchedule
from detlab.schemas.wire.projects import MoveExperiment, MoveTask
from detlab.schemas.wire.storage import GcPolicy, GcRequest
from detlab_hub.core.scheduling import read_pools
from detlab_hub.services.admission.configs.config_policies import ConfigPolicies
from detlab_hub.services.base.callers import HubCaller
from detlab_hub.services.batches.batches import ManyExperiments
from detlab_hub.services.checkpoints.collecting import Collecting
from detlab_hub.services.experiments.by_hand import ByHand
from detlab_hub.services.experiments.continuing import Continuing
from detlab_hub.services.experiments.edits import Edits
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.steering import SearchSteering
from detlab_hub.services.logs.log_retention import LogRetention
from detlab_hub.services.projects.moves import Moves
from detlab_hub.services.queue.jobs import Jobs
from detlab_hub.services.schedules.schedules import Schedules
from detlab_hub.services.usertasks.servers import Servers
from detlab_hub.services.usertasks.spawns import Spawns
from detlab_hub.services.usertasks.task_moves import TaskMoves
from detlab_hub.services.usertasks.usertasks import UserTasks

RANDOM = {"name": "random", "metric": "loss", "max_trials": 3, "max_concurrent_trials": 2}
TOO_MANY = {"resources": {"slots_per_trial": 2}}
SPACE = {"lr": {"type": "log", "base": 10, "minval": -3, "maxval": -1}}
OTHER = {"lr": {"type": "log", "base": 10, "minval": -6, "maxval": -1}}
FIXED = {
    "hyperparameters": {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}},
    "searcher": {"max_trials": 3, "max_concurrent_trials": 2, "metric": "loss"},
    "checkpoint_storage": {"save_trial_best": 1},
    "retention_policy": {"log_retention_days": 30},
    "resources": {"weight": 1, "resource_pool": "default"},
    "name": "by rule",
    "description": "owned by IT",
}
LIMITS = {"resources": {"max_slots": 1}, "priority_limit": 40}


class Place:
    """A cluster with what was there before its policies."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.live = self.paused = self.ended = 0
        self.task = ""
        self.schedule = 0

    async def fill(self) -> None:
        self.live = (await self.world.submit(config(RANDOM, retention_policy={"log_retention_days": 30}))).id
        whole = config(RANDOM, resources={"slots_per_trial": 1, "priority": 10})
        self.ended = (await self.world.submit(whole)).id
        await self.world.services[Experiments].kill(ALICE, self.ended)
        await self.world.steps(4)
        request = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": ["sleep", "9"]})
        self.task = (await self.world.services[UserTasks].create(ALICE, request)).task.id
        self.schedule = (await self.plan()).schedule.id

    async def plan(self) -> Any:
        wanted = CreateSchedule(cron="@daily", config={"resources": {"slots": 2}})
        return await self.world.services[Schedules].create(ALICE, wanted)

    async def rule(self, workspace: str = "") -> None:
        for workload in ("experiment", "tasks"):
            wanted = {"workload": workload, "constraints": LIMITS, "workspace": workspace}
            fixed = FIXED if workload == "experiment" else {"environment": {"environment_variables": ["A=1"]}}
            request = SetPolicy.model_validate({**wanted, "invariant_config": fixed})
            await self.world.services[ConfigPolicies].set(ROOT, request)

    async def submit(self, **more: Any) -> Any:
        request = CreateExperiment(config=config(RANDOM, **more))
        return await self.world.services[Experiments].create(ALICE, request)

    async def steer(self, act: str, **fields: Any) -> Any:
        return await self.world.services[SearchSteering].steer(ALICE, self.live, SteerSearch(act=act, **fields))

    async def fork(self) -> Any:
        view = await self.world.services[Experiments].get(ALICE, self.ended)
        whole = {key: value for key, value in view.config.items() if value is not None}
        request = CreateExperiment(config=whole, forked_from=self.ended)
        return await self.world.services[Experiments].create(ALICE, request)

    async def spawn(self, kind: TaskKind) -> Any:
        request = SpawnRequest(
            owner="alice", key="k" * 12, kind=kind, config={"resources": {"slots": 2}}, base_url="/x"
        )
        return await self.world.services[Spawns].post(HubCaller(), request)

    async def start(self, kind: TaskKind, **more: Any) -> Any:
        whole = {"resources": {"slots": 2}, **more}
        request = CreateTask(kind=kind, config=whole, dry_run=kind.served_by_hub)
        service = Servers if kind.served_by_hub else UserTasks
        call = self.world.services[service]
        return await (call.start if kind.served_by_hub else call.create)(ALICE, request)

    async def job(self, job: int | str, **change: Any) -> Any:
        return await self.world.services[Jobs].update(ALICE, str(job), JobUpdate(**change))

    async def edit(self, **fields: Any) -> Any:
        return await self.world.services[Edits].edit(ALICE, self.live, EditExperiment(**fields))

    async def move(self, workspace: str = "") -> Any:
        wanted = MoveExperiment(workspace=workspace)
        return await self.world.services[Moves].experiment(ALICE, self.live, wanted)

    async def batch(self) -> None:
        request = BatchRequest(act="move", experiment_ids=[self.live], workspace="strict")
        (item,) = (await self.world.services[ManyExperiments].run(ALICE, request)).items
        raise ConfigError([], item.reason)


@pytest.fixture
async def place(make_world: Any) -> Place:
    pools, _ = read_pools({"default": {}, "other": {}})
    world = await make_world(training(50), pools=pools)
    await world.add_agent(slots=2)
    made = Place(world)
    await made.fill()
    return made


def evaluable(whole: dict[str, Any], evaluated: str) -> dict[str, Any]:
    """Return a config whose trials the cluster runs, or people do."""
    if evaluated == "by hand":
        del whole["entrypoint"]
        whole["unmanaged"] = True
    return whole


Act = Callable[[Place], Awaitable[Any]]
PATHS: dict[str, Act] = {
    "submit": lambda place: place.submit(**TOO_MANY),
    "submit with a better priority": lambda place: place.submit(resources={"slots_per_trial": 1, "priority": 1}),
    "fork": lambda place: place.fork(),
    "continue": lambda place: place.world.services[Continuing].go_on(ALICE, place.ended, ContinueExperiment()),
    "job update of an experiment": lambda place: place.job(place.live, priority=39),
    "job update of a task": lambda place: place.job(place.task, priority=39),
    "job update of a weight": lambda place: place.job(place.live, weight=5),
    "job update of a pool": lambda place: place.job(place.live, pool="other"),
    "search extend": lambda place: place.steer("extend", trials=2),
    "search add": lambda place: place.steer("add", points=[{"lr": 0.01}]),
    "search bounds": lambda place: place.steer("bounds", hyperparameters=SPACE),
    "search concurrency": lambda place: place.steer("concurrency", limit=7),
    "search metric": lambda place: place.steer("metric", metric="other"),
    "gc policy": lambda place: place.world.services[Collecting].apply(
        ALICE, place.live, GcRequest(policy=GcPolicy(save_trial_best=9))
    ),
    "log retention": lambda place: place.world.services[LogRetention].keep(
        ALICE, KeepLogs(experiments=[place.live], days=1)
    ),
    "log retention of all": lambda place: place.world.services[LogRetention].keep(ALICE, KeepLogs(all=True, days=1)),
    "name": lambda place: place.edit(name="mine now"),
    "description": lambda place: place.edit(description="mine now"),
    "schedule": lambda place: place.plan(),
    "run of a schedule": lambda place: place.world.services[Schedules].run(ALICE, place.schedule),
    **{
        f"start of a {kind}": (lambda place, kind=kind: place.start(kind, entrypoint=["true"]))
        for kind in (TaskKind.COMMAND, TaskKind.CELL, TaskKind.NOTEBOOK_RUN)
    },
    **{
        f"start of a {kind} through the Hub": (lambda place, kind=kind: place.start(kind))
        for kind in (TaskKind.NOTEBOOK, TaskKind.SHELL)
    },
    **{
        f"spawn of a {kind}": (lambda place, kind=kind: place.spawn(kind))
        for kind in (TaskKind.NOTEBOOK, TaskKind.SHELL, TaskKind.TENSORBOARD)
    },
}
MOVES: dict[str, Act] = {
    "move of an experiment": lambda place: place.world.services[Moves].experiment(
        ALICE, place.live, MoveExperiment(workspace="strict")
    ),
    "move of a task": lambda place: place.world.services[TaskMoves].move(
        ALICE, place.task, MoveTask(workspace="strict")
    ),
    "move of many": lambda place: place.batch(),
}


@pytest.mark.parametrize("path", PATHS)
async def test_it_goes_without_a_policy_and_is_refused_by_its_text(place: Place, path: str) -> None:
    await place.rule()
    with pytest.raises(ConfigError, match="config policy of the cluster says"):
        await PATHS[path](place)


@pytest.mark.parametrize("path", MOVES)
async def test_no_move_leads_around_the_policy_of_a_workspace(place: Place, path: str) -> None:
    await place.world.workspace("strict")
    await place.rule("alice/strict")
    with pytest.raises(ConfigError, match="config policy of workspace alice/strict says"):
        await MOVES[path](place)


OUTSIDE: dict[str, tuple[dict[str, Any], Act]] = {
    "search extend": ({"searcher": {"max_trials": 3}}, lambda place: place.steer("extend", trials=2)),
    "search add": ({"searcher": {"max_trials": 3}}, lambda place: place.steer("add", points=[{"lr": 0.01}])),
    "search bounds": ({"hyperparameters": SPACE}, lambda place: place.steer("bounds", hyperparameters=OTHER)),
    "search concurrency": (
        {"searcher": {"max_concurrent_trials": 2}},
        lambda place: place.steer("concurrency", limit=1),
    ),
    "search metric": ({"searcher": {"metric": "loss"}}, lambda place: place.steer("metric", metric="other")),
    "job update of a weight": ({"resources": {"weight": 1}}, lambda place: place.job(place.live, weight=5)),
    "job update of a pool": ({"resources": {"resource_pool": "default"}}, PATHS["job update of a pool"]),
    "job update of a priority": ({"resources": {"priority": 42}}, lambda place: place.job(place.live, priority=39)),
    "gc policy": ({"checkpoint_storage": {"save_trial_best": 1}}, PATHS["gc policy"]),
    "log retention": ({"retention_policy": {"log_retention_days": 30}}, PATHS["log retention"]),
    "name": ({"name": "search"}, PATHS["name"]),
    "description": ({"description": "owned by IT"}, PATHS["description"]),
    "label": ({"labels": ["audited"]}, lambda place: place.edit(remove_labels=["audited"])),
}


@pytest.mark.parametrize("evaluated", ["by the cluster", "by hand"])
@pytest.mark.parametrize("path", OUTSIDE)
async def test_what_was_changed_outside_of_a_workspace_does_not_come_back_in(
    place: Place, path: str, evaluated: str
) -> None:
    """Left for a place without the policy, changed there, and moved back: its config still says what it did."""
    fixed, act = OUTSIDE[path]
    await place.world.workspace("strict")
    request = SetPolicy(workload="experiment", workspace="alice/strict", invariant_config=fixed)
    await place.world.services[ConfigPolicies].set(ROOT, request)
    whole = config({**RANDOM, "max_trials": 3}, hyperparameters=SPACE, name="search", workspace="strict")
    place.live = (await place.world.submit(evaluable(whole, evaluated))).id
    await place.world.steps(2)
    with pytest.raises(ConfigError, match="config policy of workspace alice/strict says"):
        await act(place)
    await place.move()
    await place.move("strict")
    await place.move()
    await act(place)
    with pytest.raises(ConfigError, match="config policy of workspace alice/strict says"):
        await place.move("strict")


STRICT: dict[str, dict[str, Any]] = {
    "labels": {"labels": ["audited"]},
    "searcher": {"searcher": {"max_trials": 2}},
    "hyperparameters": {"hyperparameters": {"lr": {"type": "log", "base": 10, "minval": -5, "maxval": -1}}},
    "storage": {"checkpoint_storage": {"save_trial_best": 4}},
    "retention": {"retention_policy": {"log_retention_days": 30}},
    "variables": {"environment": {"environment_variables": ["A=1"]}},
    "weight": {"resources": {"weight": 3}},
}


@pytest.mark.parametrize("evaluated", ["by the cluster", "by hand"])
@pytest.mark.parametrize("door", ["move", "activate", "fork"])
@pytest.mark.parametrize("fixed", STRICT)
async def test_every_later_door_holds_what_a_submit_sets(place: Place, door: str, fixed: str, evaluated: str) -> None:
    """A policy that is set, or met, after the submit: none leads around it, whoever evaluates the trials."""
    await place.world.workspace("strict")
    there = {} if door == "move" else {"workspace": "strict"}
    whole = evaluable(config(RANDOM, **there), evaluated)
    made = await place.world.services[Experiments].create(ALICE, CreateExperiment(config=whole, activate=False))
    place.live = place.ended = made.experiment.id
    request = SetPolicy(workload="experiment", workspace="alice/strict", invariant_config=STRICT[fixed])
    await place.world.services[ConfigPolicies].set(ROOT, request)
    if door == "fork":
        forked = (await place.fork()).experiment
        place.live = forked.id
        await place.world.services[Experiments].pause(ALICE, forked.id)
        await place.world.services[Experiments].activate(ALICE, forked.id)
        return
    activate = place.world.services[Experiments].activate
    with pytest.raises(ConfigError, match="config policy of workspace alice/strict says") as refused:
        await (place.move("strict") if door == "move" else activate(ALICE, place.live))
    assert door == "move" or f"det experiment fork {place.live}" in str(refused.value)
    assert (await place.world.view(place.live)).state == ExperimentState.PAUSED


@pytest.mark.parametrize("evaluated", ["by the cluster", "by hand"])
async def test_limits_of_slots_are_for_what_has_slots(place: Place, evaluated: str) -> None:
    await place.world.workspace("strict")
    whole = evaluable(config(RANDOM, resources={"slots_per_trial": 2, "priority": 10}), evaluated)
    place.live = (await place.world.submit(whole)).id
    request = SetPolicy.model_validate({"workload": "experiment", "workspace": "alice/strict", "constraints": LIMITS})
    await place.world.services[ConfigPolicies].set(ROOT, request)
    if evaluated == "by hand":
        await place.move("strict")
        await place.submit(workspace="strict", **evaluable({"entrypoint": ""}, evaluated), **TOO_MANY)
        return
    with pytest.raises(ConfigError, match="config policy of workspace alice/strict says"):
        await place.move("strict")


async def test_asking_makes_no_more_trials_at_a_time_than_a_policy_sets(place: Place) -> None:
    request = SetPolicy(workload="experiment", invariant_config={"searcher": {"max_concurrent_trials": 2}})
    await place.world.services[ConfigPolicies].set(ROOT, request)
    whole = evaluable(config({**RANDOM, "max_trials": 5}), "by hand")
    place.live = (await place.world.submit(whole)).id
    await place.steer("add", points=[{"lr": 0.01}, {"lr": 0.02}, {"lr": 0.03}])
    asked = [await place.world.services[ByHand].ask(ALICE, place.live, AskTrial()) for _ in range(4)]
    assert [one.trial is not None for one in asked] == [True, True, False, False]
    assert "waits" not in asked[-1].why or asked[-1].waits_for


async def test_labels_that_no_policy_sets_come_and_go(place: Place) -> None:
    request = SetPolicy(workload="experiment", invariant_config={"labels": ["audited"]})
    await place.world.services[ConfigPolicies].set(ROOT, request)
    assert (await place.edit(add_labels=["mine"])).labels == ["mine"], "it is older than the policy"
    await place.submit()
    place.live = (await place.submit(labels=["other"])).experiment.id
    assert set((await place.edit(add_labels=["mine"], remove_labels=["other"])).labels) == {"audited", "mine"}
    with pytest.raises(ConfigError, match="config policy of the cluster says"):
        await place.edit(labels=["mine"])


@pytest.mark.parametrize("path", ["job update of a weight", "search concurrency", "gc policy", "log retention"])
async def test_without_a_policy_the_same_is_done(place: Place, path: str) -> None:
    await PATHS[path](place)


async def test_a_policy_that_is_set_between_check_and_commit_holds(place: Place, monkeypatch: Any) -> None:
    """The config was checked against the policies of before; what is stored is checked again."""
    context = place.world.services[Experiments]._context
    write, told = context.write, []

    async def late(fn: Any) -> Any:
        if not told:
            told.append(True)
            await place.rule()
        return await write(fn)

    monkeypatch.setattr(context, "write", late)
    with pytest.raises(ConfigError, match="config policy of the cluster says"):
        await place.submit(**TOO_MANY)


# --- the census

SERVICES = Path(detlab_hub.services.__file__).parent
COLUMNS = {"config", "priority", "weight", "max_slots", "resource_pool", "gc_policy", "workspace_id"}
WALKED = {
    ("experiments/experiments.py", "_experiment_row"): "submit",
    ("experiments/continuing.py", "_go_on"): "continue",
    ("experiments/mending.py", "correct_metric"): "search metric",
    ("checkpoints/collecting.py", "apply"): "gc policy",
    ("projects/moves.py", "move"): "move of an experiment",
    ("usertasks/task_moves.py", "move"): "move of a task",
    ("queue/jobs.py", "_set"): "job update of an experiment",
    ("usertasks/usertasks.py", "create_row"): "start of a command",
}
NO_CONFIG_OF_USERS = {
    ("admission/configs/templates.py", "put"): "a template's own",
    ("admission/configs/layers.py", "_lay"): "of what is submitted",
    ("admission/preparing.py", "_laid"): "of what is submitted",
    ("base/configs/rules.py", "limit_open"): "the seam itself",
    ("artifacts/artifacts.py", "_move"): "an artifact runs nothing",
    ("registry/models.py", "move"): "a model runs nothing",
    ("tracking/runs.py", "add_run"): "a run from elsewhere runs nothing here",
    ("usertasks/collection_tasks.py", "_begin"): "the master's own program, without slots",
    ("usertasks/search_tasks.py", "_begin"): "the class of a search that was submitted, without slots",
}


def changes_of(path: Path) -> set[str]:
    """Return the functions of a module that make a row of an experiment or a task, or change such a column."""
    found = set()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for function in [one for one in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(one, functions)]:
        own = [one for one in ast.iter_child_nodes(function) if not isinstance(one, functions)]
        for node in [inner for one in own for inner in ast.walk(one)]:
            made = isinstance(node, ast.Call) and ast.unparse(node.func) in {"ExperimentRow", "TaskRow"}
            targets = node.targets if isinstance(node, ast.Assign) else []
            names = [one for target in targets for one in ast.walk(target) if isinstance(one, ast.Attribute)]
            if made or any(one.attr in COLUMNS for one in names):
                found.add(function.name)
    return found


def test_every_function_that_makes_or_changes_a_config_is_walked_or_says_why_not() -> None:
    there = {
        (path.relative_to(SERVICES).as_posix(), name)
        for path in sorted(SERVICES.rglob("*.py"))
        for name in changes_of(path)
    }
    assert there == WALKED.keys() | NO_CONFIG_OF_USERS.keys()
    assert set(WALKED.values()) <= PATHS.keys() | MOVES.keys()


def test_every_route_that_steers_a_search_is_judged() -> None:
    """An act that is added is a case of `_check_policies`; mypy holds that, this the walk."""
    from typing import get_args

    from detlab.schemas.wire.searches import SearchAct

    assert {f"search {act}" for act in get_args(SearchAct)} - PATHS.keys() == {
        "search code",
        "search retry",
        "search stop",
        "search promote",
    }
