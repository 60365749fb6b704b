"""Agents that are slow, come back late, with other slots, or twice; with scripted agents and tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from services_scripted import ALICE, ROOT, config, deaf, training

from detlab.errors import Conflict
from detlab.schemas.taskwire import CreateTask, TaskEnd, TaskKind
from detlab.schemas.wire import ExperimentState, Heartbeat, SlotView, TrialState
from detlab_hub.backends.instances import InstanceOrder
from detlab_hub.backends.instances.configuration import ElasticPool
from detlab_hub.core.lifecycle.allocation import Graces, LeaveRequested, PreemptReason
from detlab_hub.core.provisioning import Instance, PoolLimits
from detlab_hub.core.scheduling import Agent
from detlab_hub.services import AgentCaller
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.elastic.provisioning import Provisioning
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.services.lifecycle.allocation_transitions import apply_allocation
from detlab_hub.services.queue.jobs import Jobs
from detlab_hub.services.queue.queue import Queue
from detlab_hub.services.usertasks.usertasks import UserTasks


def offers(agent, *slots, process="") -> None:
    """From its next Hello on an agent has these slots."""
    plain = type(agent).hello

    def hello():
        change = {"slots": [SlotView(id=slot) for slot in slots], "process": process}
        return plain(agent).model_copy(update=change)

    agent.hello = hello


async def comes_back(agent) -> None:
    """The agent was started anew; its tasks ran on."""
    agent.drop()
    await agent.connect()


async def states(world):
    return {view.id: view.state for view in await world.services[Agents].list(ROOT)}


# --- two thresholds


async def test_an_agent_that_stalls_below_the_lost_threshold_gets_nothing_new_and_is_not_shot(make_world):
    world = await make_world(training(80))
    slow = await world.add_agent("slow", slots=2)
    made = await world.submit(config())
    await world.steps(4)
    slow.online = False  # its connection stands; it says nothing, as under SIGSTOP or a full disk
    stall = world.settings.agent_suspect_after + 2.0
    await world.steps(int(stall * 2))
    assert await states(world) == {"slow": "suspect"}
    later = await world.submit(config())
    await world.steps(2)
    assert len(slow.launches) == 1
    (item,) = (await world.services[Queue].view(ALICE)).items
    assert item.reason == "agent slow is out of contact"
    slow.online = True
    await world.steps(4)
    assert await states(world) == {"slow": "connected"}
    assert len(slow.launches) == 2, "new work comes again"
    for each in (made, later):
        assert (await world.finish(each.id)).state is ExperimentState.COMPLETED
        (trial,) = await world.trials(each.id)
        assert (trial.run, trial.restarts) == (1, 0), "nothing was shot or doubled"


async def test_an_agent_that_is_late_is_adopted_again_with_what_it_runs(make_world):
    world = await make_world(training(120))
    agent = await world.add_agent("late")
    made = await world.submit(config())
    await world.steps(4)
    agent.drop()
    await world.steps(int(world.settings.agent_reconnect_wait * 2) - 6)
    assert await states(world) == {"late": "suspect"}
    agent.online = True
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    (trial,) = await world.trials(made.id)
    assert (trial.run, trial.restarts, len(agent.launches)) == (1, 0, 1)


async def test_master_and_agent_are_restarted_at_once_and_the_running_tasks_are_reattached(make_world):
    world = await make_world(training(60))
    one, two = await world.add_agent("one"), await world.add_agent("two")
    made = [await world.submit(config()) for _ in range(2)]
    await world.steps(4)
    running = {agent.name: dict(agent.tasks) for agent in (one, two)}
    assert all(running.values())
    for agent in (one, two):
        agent.drop()
    await world.reboot()
    await world.steps(10)
    assert await states(world) == {"one": "suspect", "two": "suspect"}
    for agent in (one, two):
        agent.online = True
    await world.steps(2)
    assert {agent.name: dict(agent.tasks) for agent in (one, two)} == running, "the same tasks"
    for each in made:
        assert (await world.finish(each.id)).state is ExperimentState.COMPLETED
        (trial,) = await world.trials(each.id)
        assert (trial.run, trial.restarts) == (1, 0)
    assert [len(agent.launches) for agent in (one, two)] == [1, 1]


# --- other slots


async def test_a_trial_whose_slot_is_gone_is_killed_told_and_restarted_uncounted(make_world):
    world = await make_world(training(60, save_every=1))
    one = await world.add_agent("one", slots=2)
    made = await world.submit(config(resources={"slots_per_trial": 2}))
    await world.steps(6)
    (trial,) = await world.trials(made.id)
    assert trial.slots == ["one-0", "one-1"]
    offers(one, "one-0")
    await comes_back(one)
    killed = next(iter(one.tasks.values()))
    other = await world.submit(config())
    await world.services.schedule()
    assert len(one.launches) == 1, "its other slot is nobody's before it is out"
    await world.steps(4)
    assert killed.killed is not None
    (trial,) = await world.trials(made.id)
    assert (trial.run, trial.restarts) == (2, 0)
    card = (await world.services[Trials].get(ALICE, trial.id)).card
    assert card.kind == "lost"
    assert "agent one came back without all the slots that it had (one-0, one-1)" in card.message
    assert "does not count as a restart" in card.hint
    assert (await world.finish(other.id)).state is ExperimentState.COMPLETED, "the slot that is left is used"
    two = await world.add_agent("two", slots=2)
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    assert two.launches


@pytest.mark.parametrize("reason", list(PreemptReason))
async def test_a_trial_that_asks_hears_that_it_should_leave_whatever_the_reason(make_world, reason):
    """One whose slot was gone had an error as its answer: harnesses know the reasons of the first version only."""
    world = await make_world(deaf(60))
    agent = await world.add_agent("one")
    await world.submit(config())
    await world.steps(4)
    (task,) = agent.tasks.values()
    held = task.launch.allocation_id

    def ask(turn) -> None:
        apply_allocation(turn, turn.allocation(held), LeaveRequested(reason, turn.now, Graces()))

    await world.services.context.write(ask)
    reply = await world.services[Tasks].preempt(task.caller, 0)
    assert reply.preempt
    assert reply.reason == {PreemptReason.DEVICE: "drain", PreemptReason.TIME_LIMIT: "drain"}.get(reason, reason.value)


async def test_a_user_task_whose_slot_is_gone_ends_with_a_card(make_world):
    world = await make_world(deaf(0))
    one = await world.add_agent("one", slots=2)
    wanted = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "x", "resources": {"slots": 1}})
    task = (await world.services.start_task(ALICE, wanted)).task
    await world.steps(4)
    (held,) = (await world.services[UserTasks].get(ALICE, task.id)).slots
    offers(one, *({"one-0", "one-1"} - {held}))
    await comes_back(one)
    await world.steps(4)
    over = await world.services[UserTasks].get(ALICE, task.id)
    assert (over.end_reason, over.failure.kind) == (TaskEnd.KILLED, "lost")
    assert over.failure.message == f"agent one came back without slot {held}"


async def test_what_runs_on_other_slots_than_the_gone_one_is_left_alone(make_world):
    world = await make_world(training(40))
    one = await world.add_agent("one", slots=3)
    made = await world.submit(config())
    await world.steps(4)
    (held,) = (await world.trials(made.id))[0].slots
    offers(one, held)
    await comes_back(one)
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    (trial,) = await world.trials(made.id)
    assert (trial.run, len(one.launches)) == (1, 1)


async def test_slots_that_an_agent_has_more_are_taken_up(make_world):
    world = await make_world(training(30))
    one = await world.add_agent("one")
    first, second = await world.submit(config()), await world.submit(config())
    await world.steps(4)
    assert len(one.launches) == 1
    offers(one, "one-0", "one-new")
    await comes_back(one)
    await world.steps(4)
    assert [(await world.trials(each.id))[0].slots for each in (first, second)] == [["one-0"], ["one-new"]]
    assert (await world.trials(first.id))[0].run == 1


# --- two processes of one name


async def test_a_second_living_process_of_an_agent_is_refused_and_the_first_serves_on(make_world):
    world = await make_world(training(10))
    one = await world.add_agent("one")
    offers(one, "one-0", process="a")
    await comes_back(one)
    said = []
    twin = one.hello().model_copy(update={"process": "b", "slots": []})
    with pytest.raises(Conflict, match=r"another process, at 127\.0\.0\.1, is connected as") as refused:
        await world.services[Agents].connect(AgentCaller("one"), twin, said.append)
    assert len(refused.value.message) < 120, "it fits into the reason of a WebSocket's end"
    assert said == []
    await one.session.receive(Heartbeat())
    made = await world.submit(config())
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED


async def test_a_second_process_takes_over_from_one_that_is_silent(make_world):
    world = await make_world(training(10))
    one = await world.add_agent("one")
    offers(one, "one-0", process="a")
    await comes_back(one)
    frozen = one.session
    one.online = False
    await world.steps(int(world.settings.agent_suspect_after * 2) + 2)
    offers(one, "one-0", process="b")
    await one.connect()
    with pytest.raises(Conflict, match="another connection"):
        await frozen.receive(Heartbeat())
    made = await world.submit(config())
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED


async def test_the_same_process_that_dials_again_takes_over_at_once(make_world):
    world = await make_world(training(10))
    one = await world.add_agent("one")
    offers(one, "one-0", process="a")
    await comes_back(one)
    broken = one.session
    await one.connect()
    with pytest.raises(Conflict, match="another connection"):
        await broken.receive(Heartbeat())
    assert await states(world) == {"one": "connected"}


# --- an agent that does not return


@dataclass
class SpotMarket:
    """A provider whose instances are taken back without a word; the test plays their agents."""

    made: list[Instance] = field(default_factory=list)

    def launch(self, order: InstanceOrder) -> Instance:
        self.made.append(Instance(f"i-{order.agent_id}", order.agent_id, launched_at=order.now, spot=True))
        return self.made[-1]

    def list(self) -> tuple[Instance, ...]:
        return tuple(self.made)

    def terminate(self, ids) -> None:
        self.made = [instance for instance in self.made if instance.id not in ids]


async def test_a_spot_instance_that_is_taken_back_costs_its_trial_no_restart_and_another_comes(make_world):
    world = await make_world(training(200, save_every=1))
    market = SpotMarket()
    pool = ElasticPool("default", market, PoolLimits(max_instances=1), Agent("template", 1))
    provisioning = Provisioning(world.services.context, [pool])
    made = await world.submit(config())
    await world.step()
    await provisioning.poll()
    (first,) = market.made
    one = await world.add_agent(first.agent_id)
    await world.steps(6)
    (trial,) = await world.trials(made.id)
    assert (trial.run, trial.agent_id) == (1, first.agent_id)
    await provisioning.poll()
    market.made.clear()
    one.drop()
    await world.steps(int(world.settings.agent_reconnect_wait * 2) + 6)
    (trial,) = await world.trials(made.id)
    assert (trial.run, trial.restarts, trial.state) == (2, 0, TrialState.ACTIVE)
    await provisioning.poll()
    assert market.made == [], "two minutes long the list may be one from before it was launched"
    world.now += 120.0
    await provisioning.poll()
    (second,) = market.made
    assert second.agent_id != first.agent_id
    await world.add_agent(second.agent_id)
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    (trial,) = await world.trials(made.id)
    assert (trial.run, trial.restarts, trial.agent_id) == (2, 0, second.agent_id)


@pytest.mark.parametrize("rebooted", [False, True], ids=["one-master", "two-masters"])
async def test_an_instance_that_vanishes_while_it_runs_something_leaves_the_list_and_its_trial_is_lost_not_failed(
    make_world, rebooted
):
    world = await make_world(training(200, save_every=1))
    market = SpotMarket()
    pool = ElasticPool("default", market, PoolLimits(max_instances=1), Agent("template", 1))

    def looking():
        return Provisioning(world.services.context, [pool])

    provisioning = looking()
    made = await world.submit(config())
    await world.step()
    await provisioning.poll()
    (first,) = market.made
    one = await world.add_agent(first.agent_id)
    await world.steps(6)
    await provisioning.poll()
    market.made.clear()
    await provisioning.poll()
    assert await states(world) == {first.agent_id: "connected"}, "it speaks: the provider's list is wrong"
    one.drop()
    if rebooted:
        await world.reboot()
        provisioning = looking()
    for _ in range(int(world.settings.agent_reconnect_wait * 2) + 6):
        await world.step()
        await provisioning.poll()
    assert await states(world) == {first.agent_id: "lost"}, "two minutes long the list may be an old one"
    world.now += 120.0
    await provisioning.poll()
    assert first.agent_id not in await states(world), "it was listed as lost for ever"
    (trial,) = await world.trials(made.id)
    assert (trial.run, trial.restarts, trial.state) == (2, 0, TrialState.ACTIVE)
    card = (await world.services[Trials].get(ALICE, trial.id)).card
    assert card.kind == "lost"


async def test_why_a_gang_waits_says_for_how_many_instances_and_since_when(make_world):
    world = await make_world(training(20))
    market = SpotMarket()
    pool = ElasticPool("default", market, PoolLimits(max_instances=3), Agent("template", 1))
    provisioning = Provisioning(world.services.context, [pool])
    world.services[Jobs]._awaited = provisioning.awaited
    made = await world.submit(config(resources={"slots_per_trial": 2}))
    await world.step()

    async def why():
        (item,) = (await world.services[Jobs].why(ALICE, str(made.id))).items
        return item.detail

    assert "instance" not in await why(), "nobody looked yet"
    await provisioning.poll()
    assert len(market.made) == 2
    await provisioning.poll()
    world.now += 40.0
    assert (await why()).endswith("; waiting for 2 instances, asked 40 s ago")
    assert market.made[0].agent_id not in await why(), "it names no instance"
    market.made.pop()
    await provisioning.poll()
    assert len(market.made) == 1, "two minutes long the list may be one from before it was launched"
    world.now += 80.0
    await provisioning.poll()
    assert len(market.made) == 2, "the one that vanished while it started is replaced"
    for instance in market.made:
        await world.add_agent(instance.agent_id)
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    assert len(market.made) == 2
