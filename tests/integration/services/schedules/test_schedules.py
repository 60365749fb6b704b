"""Schedules in a world: when they fire, with whose rights, and what keeps them from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from services_scripted import ALICE, BOB, DIGEST, ROOT, Flaw, World, config, training

from detlab.errors import ConfigError, Conflict, Forbidden, NotFound, Unavailable
from detlab.schemas.taskwire import TaskKind, TaskView
from detlab.schemas.wire import ExperimentState, GrantRequest, GrantTo
from detlab.schemas.wire.configs.config_policies import SetPolicy
from detlab.schemas.wire.notebooks.schedules import CreateSchedule, ScheduleState, ScheduleView
from detlab.schemas.wire.workspaces import MemberRequest
from detlab_hub.services.admission.configs.config_policies import ConfigPolicies
from detlab_hub.services.alerts.alerts import Alerts
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.limits.model import PerUserLimits
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.projects.members import MembersOfWorkspaces
from detlab_hub.services.schedules.firing import AGAIN, HUB_PAUSE, ScheduleFiring
from detlab_hub.services.schedules.schedules import Schedules
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.queries import bundles
from detlab_hub.store.tables import ScheduleRow

DAY = 86400.0


class Users:
    """Who is a user of the Hub, and in which groups."""

    def __init__(self, **groups: set[str]) -> None:
        self.groups: dict[str, set[str]] = groups
        self.away = False
        self.silent: set[str] = set()

    async def groups_of(self, user: str) -> frozenset[str] | None:
        if self.away or user in self.silent:
            raise Unavailable("the Hub does not answer")
        return frozenset(self.groups[user]) if user in self.groups else None


class Plan:
    """A world with schedules, and a Hub that knows its users."""

    def __init__(self, world: World) -> None:
        self.world, self.users = world, Users(alice=set(), bob=set())

    @property
    def service(self) -> Schedules:
        services = self.world.services
        hub: Any = self.users
        services.keep(ScheduleFiring(services.context, services[UserTasks], hub))
        return Schedules(services.context, services[ScheduleFiring])

    async def make(self, caller: Caller = ALICE, **said: Any) -> ScheduleView:
        if not said.keys() & {"cron", "after_experiment", "after_task"}:
            said["cron"] = "0 6 * * *"
        return (await self.service.create(caller, CreateSchedule(**said))).schedule

    async def fire(self, *, at: float | None = None) -> None:
        self.world.now = self.world.now if at is None else at
        assert self.service
        await self.world.services[ScheduleFiring].fire_schedules()

    async def runs(self, owner: str = "alice") -> list[TaskView]:
        page = await self.world.services[UserTasks].list(ROOT, owner=owner, kinds=[TaskKind.NOTEBOOK_RUN.value])
        return page.items

    async def seen(self, schedule: ScheduleView, caller: Caller = ALICE) -> ScheduleView:
        return await self.service.get(caller, schedule.id)

    async def told(self, caller: Caller = ALICE) -> list[str]:
        return [one.title for one in (await self.world.services[Alerts].list(caller)).items]

    async def end(self, task: TaskView) -> None:
        await self.world.services[UserTasks].end(ALICE, task.id)
        await self.world.steps(3)


def at(day: int, hour: int = 6, minute: int = 0) -> float:
    return datetime(1970, 1, day, hour, minute, tzinfo=UTC).timestamp()


def forever(launch: Any) -> Any:
    while True:
        yield ("wait",)


def failing(launch: Any) -> Any:
    yield ("exit", 3)


@pytest.fixture
async def plan(make_world: Any) -> Plan:
    world = await make_world(forever)
    await world.add_agent(slots=4)
    return Plan(world)


# --- when


async def test_it_fires_once_for_each_time(plan: Plan) -> None:
    made = await plan.make(name="nightly", config={"resources": {"slots": 1}}, parameters={"lr": 0.1})
    assert (made.state, made.next_at, made.next_times) == (ScheduleState.ACTIVE, at(13), [at(13), at(14), at(15)])
    await plan.fire(at=at(13) - 1)
    assert await plan.runs() == []
    await plan.fire(at=at(13))
    await plan.fire()
    (run,) = await plan.runs()
    assert (run.name, run.slots_needed, run.schedule_id) == ("nightly", 1, made.id)
    seen = await plan.seen(made)
    assert (seen.next_at, seen.last_due_at, seen.last_task, seen.runs) == (at(14), at(13), run.id, 1)
    await plan.end(run)
    await plan.fire(at=at(14) + 5)
    assert len(await plan.runs()) == 2


@pytest.mark.parametrize("after_commit", [False, True])
@pytest.mark.parametrize("number", [1, 2])
async def test_a_crash_at_any_write_starts_one_run(make_world: Any, number: int, after_commit: bool) -> None:
    world = await make_world(forever)
    plan = Plan(world)
    await plan.make(config={"resources": {"slots": 0}})
    world.store.close(release=False)
    world.flaw = Flaw(number, after_commit)
    world.writes[0] = -10  # those of the start do not count
    await world.boot()
    world.writes[0], world.now = 0, at(13)
    for _ in range(3):
        try:
            await plan.fire()
        except BaseException as error:
            if type(error).__name__ != "CrashError":
                raise
            await world.reboot()
    assert len(await plan.runs()) == 1


async def test_none_starts_while_the_one_before_goes_on(plan: Plan) -> None:
    made = await plan.make()
    await plan.fire(at=at(13))
    await plan.fire(at=at(14))
    (run,) = await plan.runs()
    seen = await plan.seen(made)
    assert (seen.skipped, seen.next_at, seen.note) == (1, at(15), f"the run before, {run.id}, had not ended")
    with pytest.raises(Conflict, match="has not ended"):
        await plan.service.run(ALICE, made.id)
    await plan.end(run)
    await plan.fire(at=at(15))
    assert len(await plan.runs()) == 2
    assert (await plan.seen(made)).note == ""


async def test_what_was_missed_is_made_up_for_by_one_run(plan: Plan) -> None:
    made = await plan.make(cron="*/10 * * * *")
    await plan.fire(at=at(20, 12, 34))
    (run,) = await plan.runs()
    seen = await plan.seen(made)
    assert seen.next_at == at(20, 12, 40)
    assert seen.last_due_at is not None
    assert seen.last_due_at < at(13)
    await plan.service.pause(ALICE, made.id)
    await plan.end(run)
    await plan.fire(at=at(25))
    assert len(await plan.runs()) == 1
    await plan.service.resume(ALICE, made.id)
    await plan.fire()
    await plan.fire()
    assert len(await plan.runs()) == 2


async def test_a_run_by_hand_changes_nothing_of_when_it_is_due(plan: Plan) -> None:
    made = await plan.make()
    await plan.service.pause(ALICE, made.id)
    reply = await plan.service.run(ALICE, made.id)
    assert reply.task is not None
    seen = await plan.seen(made)
    assert (seen.state, seen.last_task, seen.last_due_at, seen.next_at) == (
        ScheduleState.PAUSED,
        reply.task.id,
        None,
        at(13),
    )


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"cron": "0 0 30 2 *"}, "cron"),
    ({"cron": "0 0 * *"}, "cron"),
    ({"cron": "@daily", "time_zone": "Mars/Olympus"}, "time_zone"),
    ({"cron": "@daily", "time_zone": "../../etc/passwd"}, "time_zone"),
    ({"cron": "@daily", "config": {"resources": {"slots": -1}}}, "resources.slots"),
    ({"cron": "@daily", "config": {"workspace": "nowhere"}}, "workspace"),
    ({"cron": "@daily", "bundle": DIGEST}, "bundle"),
    ({"cron": "@daily", "idempotency_key": "k" * 301}, "idempotency_key"),
]


async def test_a_mistake_is_told_when_it_is_made(plan: Plan) -> None:
    for said, path in MISTAKES:
        with pytest.raises(ConfigError) as caught:
            await plan.make(**said)
        assert path in [one.path for one in caught.value.problems], said


async def test_the_same_key_makes_one(plan: Plan) -> None:
    one, same = await plan.make(idempotency_key="a"), await plan.make(idempotency_key="a")
    assert one.id == same.id
    assert (await plan.make(BOB, idempotency_key="a")).id != one.id


# --- after something


async def test_after_an_experiment_that_has_completed(make_world: Any) -> None:
    plan = Plan(await make_world(training(1)))
    experiment = await plan.world.submit(config())
    made = await plan.make(after_experiment=experiment.id)
    await plan.fire()
    assert await plan.runs() == []
    await plan.world.add_agent()
    assert (await plan.world.finish(experiment.id)).state is ExperimentState.COMPLETED
    await plan.fire()
    await plan.fire()
    (run,) = await plan.runs()
    seen = await plan.seen(made)
    assert (seen.state, seen.reason, seen.last_task) == (ScheduleState.DONE, "", run.id)
    with pytest.raises(Conflict, match="done"):
        await plan.service.resume(ALICE, made.id)
    chained = await plan.make(after_task=run.id)
    await plan.fire()
    assert (await plan.seen(chained)).state is ScheduleState.ACTIVE
    await plan.world.steps(6)
    await plan.fire()
    assert len(await plan.runs()) == 2


async def test_after_an_experiment_that_does_not_complete_nothing_starts_and_the_owner_is_told(plan: Plan) -> None:
    experiment = await plan.world.submit(config())
    made = await plan.make(name="compare", after_experiment=experiment.id)
    await plan.world.services[Experiments].kill(ALICE, experiment.id)
    await plan.world.steps(3)
    await plan.fire()
    seen = await plan.seen(made)
    assert seen.state is ScheduleState.DONE
    assert "ended without completing (CANCELED)" in seen.reason
    assert await plan.runs() == []
    assert await plan.told() == [f"schedule {made.id} (compare) has started nothing"]
    with pytest.raises(Conflict, match="nothing would run"):
        await plan.make(after_experiment=experiment.id)


async def test_after_what_one_may_not_read_is_as_after_what_is_not_there(plan: Plan) -> None:
    experiment = await plan.world.submit(config())
    for number in (experiment.id, 999):
        with pytest.raises(NotFound, match=f"there is no experiment {number}"):
            await plan.make(BOB, after_experiment=number)
    grants = plan.world.services[Grants]
    await grants.put(ALICE, experiment.id, GrantRequest(kind="user", name="bob"))
    made = await plan.make(BOB, after_experiment=experiment.id)
    await grants.remove(ALICE, experiment.id, GrantTo(kind="user", name="bob"))
    await plan.world.services[Experiments].kill(ALICE, experiment.id)
    await plan.world.steps(3)
    await plan.fire()
    seen = await plan.seen(made, BOB)
    assert seen.reason.endswith(f"experiment {experiment.id} is not there any more")


# --- whose rights


async def test_of_an_owner_who_is_no_user_any_more_it_is_disabled(plan: Plan) -> None:
    made = await plan.make(name="nightly")
    del plan.users.groups["alice"]
    await plan.fire(at=at(13))
    seen = await plan.seen(made)
    assert (seen.state, seen.reason) == (ScheduleState.DISABLED, "alice is no user of the Hub any more")
    assert await plan.told() == [f"schedule {made.id} (nightly) was disabled"]
    with pytest.raises(Conflict, match="no user"):
        await plan.service.run(ROOT, made.id)
    await plan.fire(at=at(14))
    assert await plan.runs() == []
    plan.users.groups["alice"] = set()
    await plan.service.resume(ALICE, made.id)
    await plan.fire()
    assert len(await plan.runs()) == 1


async def test_while_the_hub_is_away_it_waits(plan: Plan) -> None:
    made = await plan.make()
    plan.users.away = True
    firing = plan.service._firing
    plan.world.now = at(13)
    await firing.fire_schedules()
    assert (await plan.seen(made)).next_at == at(13)
    assert await plan.runs() == []
    plan.users.away = False
    plan.world.now += HUB_PAUSE
    await firing.fire_schedules()
    assert len(await plan.runs()) == 1


async def test_one_whom_the_hub_does_not_answer_for_keeps_nobody_else_waiting(plan: Plan) -> None:
    await plan.make(BOB)
    await plan.make()
    plan.users.silent = {"bob"}
    await plan.fire(at=at(13))
    assert (len(await plan.runs("bob")), len(await plan.runs())) == (0, 1)


async def test_what_is_wrong_with_one_keeps_the_others_from_nothing(plan: Plan) -> None:
    broken, whole = await plan.make(), await plan.make(BOB)

    def spoil(s: Any) -> None:
        s.get_one(ScheduleRow, broken.id).parameters = ["no", "mapping"]

    plan.world.store.write_sync(spoil)
    await plan.fire(at=at(13))
    assert (await plan.service.get(BOB, whole.id)).runs == 1


async def test_who_may_not_submit_to_its_workspace_any_more_has_it_disabled(plan: Plan) -> None:
    lab = await plan.world.workspace("lab", "digits", bob="editor")
    made = await plan.make(BOB, config={"workspace": "alice/lab", "project": "digits"})
    assert (made.workspace, made.project) == ("alice/lab", "digits")
    await plan.fire(at=at(13))
    (run,) = await plan.runs("bob")
    assert (run.workspace_id, run.project) == (lab.id, "digits")
    await plan.world.services[UserTasks].end(BOB, run.id)
    await plan.world.steps(3)
    members = plan.world.services[MembersOfWorkspaces]
    await members.put(ALICE, str(lab.id), MemberRequest(kind="user", name="bob", role="viewer"))
    await plan.fire(at=at(14))
    seen = await plan.seen(made, BOB)
    assert seen.state is ScheduleState.DISABLED
    assert "may not put anything into its workspace" in seen.reason
    assert len(await plan.runs("bob")) == 1


async def test_groups_are_those_of_the_moment(plan: Plan) -> None:
    await plan.world.workspace("lab", at_vision="editor")
    made = await plan.make(replace(BOB, groups=frozenset({"vision"})), config={"workspace": "alice/lab"})
    await plan.fire(at=at(13))
    assert (await plan.seen(made, BOB)).state is ScheduleState.DISABLED
    plan.users.groups["bob"] = {"vision"}
    await plan.service.resume(BOB, made.id)
    await plan.fire()
    assert len(await plan.runs("bob")) == 1


async def test_an_administrators_schedule_has_no_administrators_rights(plan: Plan) -> None:
    await plan.world.workspace("lab")
    with pytest.raises(ConfigError, match="workspace"):
        await plan.make(ROOT, config={"workspace": "alice/lab"})


async def test_a_policy_of_the_moment_refuses_a_run_and_the_owner_is_told_once(plan: Plan) -> None:
    lab = await plan.world.workspace("lab")
    made = await plan.make(config={"workspace": "lab", "resources": {"slots": 2}})
    policies = plan.world.services[ConfigPolicies]
    limits = {"resources": {"max_slots": 1}}
    wanted = {"workload": "tasks", "workspace": str(lab.id), "invariant_config": {}, "constraints": limits}
    await policies.set(ROOT, SetPolicy.model_validate(wanted))
    await plan.fire(at=at(13))
    await plan.fire(at=at(14))
    seen = await plan.seen(made)
    assert (seen.state, seen.next_at, seen.runs) == (ScheduleState.ACTIVE, at(15), 0)
    assert seen.note
    assert len(await plan.told()) == 1


async def test_limits_hold_as_for_a_submission(make_world: Any) -> None:
    world = await make_world(forever, limits=PerUserLimits(min_priority=1, queued_jobs=1, schedules=2))
    plan = Plan(world)
    await world.add_agent(slots=4)
    await world.submit(config())
    await plan.make()
    made = await plan.make()
    with pytest.raises(Conflict, match="alice has 2 schedules; one may have 2"):
        await plan.make()
    await plan.make(BOB)
    await plan.fire(at=at(13))
    assert "have not ended" in (await plan.seen(made)).note
    assert await plan.runs() == []
    assert len(await plan.runs("bob")) == 1


async def test_what_waited_for_something_and_is_refused_is_tried_again(make_world: Any) -> None:
    world = await make_world(training(1), limits=PerUserLimits(min_priority=1, queued_jobs=1))
    plan = Plan(world)
    await world.add_agent()
    experiment = await world.submit(config())
    await world.finish(experiment.id)
    made = await plan.make(after_experiment=experiment.id)
    world.script = forever
    blocker = await world.submit(config())
    await plan.fire()
    assert (await plan.seen(made)).next_at == world.now + AGAIN
    await world.services[Experiments].kill(ALICE, blocker.id)
    await world.finish(blocker.id)
    await plan.fire()
    assert await plan.runs() == []
    await plan.fire(at=world.now + AGAIN)
    assert len(await plan.runs()) == 1


async def test_i9_a_schedule_is_nobody_elses(plan: Plan) -> None:
    made = await plan.make(config={"environment": {"environment_variables": ["API_KEY=hunter2"]}})
    service = plan.service
    for act in (service.get, service.pause, service.resume, service.run, service.remove):
        with pytest.raises(NotFound, match=f"there is no schedule {made.id}"):
            await act(BOB, made.id)
        with pytest.raises(NotFound, match="there is no schedule 999"):
            await act(BOB, 999)
    assert (await service.list(BOB)).items == []
    assert [one.id for one in (await service.list(ROOT)).items] == [made.id]
    run = replace(ALICE, run="1.a.0")
    assert (await service.get(run, made.id)).id == made.id
    with pytest.raises(Forbidden, match="notebook run"):
        await service.remove(run, made.id)
    with pytest.raises(Forbidden, match="notebook run"):
        await plan.make(run)
    assert (await service.remove(ALICE, made.id)).id == made.id
    assert (await service.list(ALICE)).items == []


# --- around it


async def test_the_owner_is_told_of_a_run_that_failed(make_world: Any) -> None:
    plan = Plan(await make_world(failing))
    await plan.world.add_agent()
    made = await plan.make(name="nightly")
    await plan.fire(at=at(13))
    await plan.world.steps(6)
    await plan.fire()
    await plan.fire()
    assert await plan.told() == [f"schedule {made.id} (nightly) has started a run that failed"]


async def test_what_is_done_is_removed_after_a_while(make_world: Any) -> None:
    plan = Plan(await make_world(training(1), tasks_keep=10 * DAY))
    await plan.world.add_agent()
    experiment = await plan.world.submit(config())
    await plan.world.finish(experiment.id)
    once = await plan.make(after_experiment=experiment.id)
    nightly = await plan.make()
    await plan.fire()
    began = plan.world.now
    for days, there in ((9, [once.id, nightly.id]), (11, [nightly.id])):
        plan.world.now = began + days * DAY
        await plan.world.services[ScheduleFiring].sweep()
        assert [one.id for one in (await plan.service.list(ALICE)).items] == there


async def test_its_code_is_kept_for_as_long_as_it_is_there(plan: Plan) -> None:
    world = plan.world
    world.store.write_sync(lambda s: bundles.note_upload(s, DIGEST, 10, "alice", world.now))
    made = await plan.make(bundle=DIGEST)
    assert world.store.write_sync(bundles.unused) == ([], [])
    with pytest.raises(ConfigError):
        await plan.make(BOB, bundle=DIGEST)
    await plan.service.remove(ALICE, made.id)
    assert world.store.write_sync(bundles.unused) == ([DIGEST], [])
