"""Trials over several agents: all start or none, one lost part ends all, and what is left is taken up again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from services_scripted import ALICE, ROOT, Script, config, report
from sqlalchemy import select

from detlab.errors import Conflict, ResourcesError, StaleAttempt
from detlab.schemas.wire import (
    Arrival,
    CreateExperiment,
    ExperimentState,
    Launch,
    LogRecord,
    RankSign,
    RankSigns,
    RecordBatch,
    TaskExited,
    TrialState,
)
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.agents.drains import Drain
from detlab_hub.services.agents.nodes import Nodes
from detlab_hub.services.cluster.usage import Usage
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.ingest.rank_states import KEPT
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.services.ingest.tokens import Tokens
from detlab_hub.services.placement.active_rows import PLACED
from detlab_hub.store.queries import parts
from detlab_hub.store.tables import AllocationRow

TWO_NODES = {"slots_per_trial": 4}


class Ranks:
    """What the nodes of a gang do: the chief trains, the others are there until it is done."""

    def __init__(self, length: int = 30) -> None:
        self.length = length
        self.over: set[int] = set()
        self.fails: dict[int, int] = {}
        """Node -> the exit code of its first attempt."""

    def __call__(self, launch: Launch) -> Iterator[tuple]:
        return self.chief(launch) if launch.info.container_rank == 0 else self.worker(launch)

    def chief(self, launch: Launch) -> Iterator[tuple]:
        start = yield ("resume",)
        for step in range(start + 1, self.length + 1):
            yield ("log", 0, f"chief at {step}")
            yield report(step, loss=1.0 / step, batches=step)
            yield ("save", step)
            left = yield ("poll",)
            if left:
                break
        self.over.add(launch.run)
        yield ("exit", 0)

    def worker(self, launch: Launch) -> Iterator[tuple]:
        yield ("log", 2, "worker is here")
        for _ in range(4):
            yield ("wait",)
        if launch.run == 1 and launch.info.container_rank in self.fails:
            yield ("exit", self.fails[launch.info.container_rank])
        while launch.run not in self.over:
            yield ("wait",)
        yield ("exit", 0)


async def a_gang(make_world, script: Script | None = None, **more):
    world = await make_world(script or Ranks(), **more)
    agents = [await world.add_agent("left", 2), await world.add_agent("right", 2)]
    made = await world.submit(config(resources=TWO_NODES))
    return world, agents, made


async def views_of(world):
    return {view.id: view for view in await world.services[Agents].list(ROOT)}


async def test_gang_starts_on_both_agents_and_ends_once(make_world):
    world, (left, right), made = await a_gang(make_world)
    await world.steps(6)
    assert left.launches == right.launches
    chief, other = (next(iter(agent.tasks.values())).launch for agent in (left, right))
    assert (chief.slots, other.slots) == (["left-0", "left-1"], ["right-0", "right-1"])
    for rank, launch in enumerate((chief, other)):
        info = launch.info
        assert (info.container_rank, info.container_slot_counts, len(info.container_addrs)) == (rank, [2, 2], 2)
        assert info.slot_ids == [0, 1]
        assert info.agent_id == ("left", "right")[rank]
    shown = await views_of(world)
    assert all(slot.allocation_id for view in shown.values() for slot in view.slots)
    assert [view.running for view in shown.values()] == [1, 1]
    ended = await world.finish(made.id)
    assert ended.state is ExperimentState.COMPLETED
    (trial,) = await world.trials(made.id)
    assert (trial.run, trial.restarts, len(left.launches), len(right.launches)) == (1, 0, 1, 1)
    assert not any(slot.allocation_id for view in (await views_of(world)).values() for slot in view.slots)


async def test_gang_waits_for_all_its_slots_and_starts_nothing_before(make_world):
    world = await make_world(Ranks())
    left = await world.add_agent("left", 2)
    right = await world.add_agent("right", 2)
    small = await world.submit(config())
    await world.steps(2)
    made = await world.submit(config(resources=TWO_NODES))
    await world.steps(4)
    (trial,) = await world.trials(made.id)
    assert trial.allocation_state == "PENDING"
    assert "3 of 4 free" in (trial.pending_reason or "")
    assert len(left.launches) + len(right.launches) == 1
    await world.services[Experiments].kill(ALICE, small.id)
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED


async def test_gang_a_failed_part_ends_the_others_and_the_trial_resumes_counted(make_world):
    ranks = Ranks()
    ranks.fails[1] = 1
    world, (left, right), made = await a_gang(make_world, ranks)
    ended = await world.finish(made.id)
    assert ended.state is ExperimentState.COMPLETED
    (trial,) = await world.trials(made.id)
    assert (trial.run, trial.restarts, trial.state) == (2, 1, TrialState.COMPLETED)
    assert len(left.launches) == len(right.launches) == 2
    # The chief of the first attempt was killed in the middle; the second went on from its checkpoint.
    (loss,) = await world.services[Trials].metrics(ALICE, trial.id, group="validation", names=["loss"])
    assert loss.steps == list(range(1, 31))


async def test_gang_a_lost_agent_ends_the_attempt_everywhere_uncounted(make_world):
    world, (left, right), made = await a_gang(make_world, Ranks(200))
    await world.steps(8)
    right.drop()
    await world.steps(60)
    assert not left.tasks, "the part on the agent that lives was ended"
    (trial,) = await world.trials(made.id)
    assert (trial.run, trial.restarts, trial.allocation_state) == (2, 0, "PENDING")
    card = (await world.services[Trials].get(ALICE, trial.id)).card
    assert card is not None
    assert card.message == "attempt 1 was lost with agent right"
    right.online = True
    await world.steps(8)
    (trial,) = await world.trials(made.id)
    assert (trial.run, trial.restarts, trial.allocation_state) == (2, 0, "RUNNING")
    assert [run for _, run in left.launches] == [run for _, run in right.launches] == [1, 2]


async def test_gang_whose_node_dies_is_not_counted_though_the_others_fail_first(make_world):
    """The ranks that live fail for want of the lost one long before its agent is given up."""
    ranks = Ranks(200)
    world, (left, right), made = await a_gang(make_world, ranks)
    await world.steps(8)
    right.drop()
    for task in left.tasks.values():
        task._exit(1)
    await world.steps(60)
    (trial,) = await world.trials(made.id)
    assert (trial.run, trial.restarts) == (2, 0)


async def test_gang_holds_the_slots_of_a_part_that_ended_until_all_have(make_world):
    world, (left, right), made = await a_gang(make_world, Ranks(200))
    await world.steps(8)
    for task in left.tasks.values():
        task.heeds_kill = False
    for task in right.tasks.values():
        task._exit(1)
    await world.steps(3)
    other = await world.submit(config())
    await world.steps(3)
    (waiting,) = await world.trials(other.id)
    assert waiting.allocation_state == "PENDING"
    for task in left.tasks.values():
        task.heeds_kill = True
    await world.steps(6)
    (trial,) = await world.trials(made.id)
    assert (trial.run, trial.restarts) == (2, 1)


async def test_gang_survives_a_new_master_and_new_connections_of_both_agents(make_world):
    world, (left, right), made = await a_gang(make_world, Ranks(40))
    await world.steps(10)
    await world.reboot()
    await world.steps(4)
    right.drop()
    await world.steps(2)
    right.online = True
    ended = await world.finish(made.id)
    (trial,) = await world.trials(made.id)
    assert (ended.state, trial.run, trial.restarts) == (ExperimentState.COMPLETED, 1, 0)
    assert len(left.launches) == len(right.launches) == 1


async def test_gang_a_launch_that_one_agent_did_not_get_is_sent_to_it_alone(make_world):
    world, (left, right), made = await a_gang(make_world)
    await world.services.schedule()
    right.drop()
    right.online = True
    ended = await world.finish(made.id)
    assert ended.state is ExperimentState.COMPLETED
    assert len(left.launches) == len(right.launches) == 1


async def test_gang_an_agent_that_forgot_its_part_ends_the_attempt_uncounted(make_world):
    world, (_, right), made = await a_gang(make_world, Ranks(60))
    await world.steps(10)
    right.drop()
    right.tasks = {}
    right.online = True
    await world.steps(12)
    (trial,) = await world.trials(made.id)
    assert (trial.run, trial.restarts) == (2, 0)
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED


async def test_gang_is_paused_by_its_chief_and_goes_on(make_world):
    world, (left, right), made = await a_gang(make_world, Ranks(60))
    await world.steps(10)
    await world.services[Experiments].pause(ALICE, made.id)
    await world.steps(10)
    assert not left.tasks
    assert not right.tasks
    await world.services[Experiments].activate(ALICE, made.id)
    ended = await world.finish(made.id)
    (trial,) = await world.trials(made.id)
    assert (ended.state, trial.run, trial.restarts) == (ExperimentState.COMPLETED, 2, 0)


async def test_gang_counts_the_records_of_each_node(make_world):
    """Each launcher numbers its own lines from 1: none may be taken for one that was seen before."""
    world, _, made = await a_gang(make_world, Ranks(5))
    world.twice = True
    await world.finish(made.id)
    (trial,) = await world.trials(made.id)
    lines, _ = await world.services[Trials].logs(ALICE, trial.id)
    said = sorted(line.text for line in lines)
    assert said == sorted([*(f"chief at {step}" for step in range(1, 6)), "worker is here"])


async def test_gang_pays_for_the_slots_of_all_its_agents(make_world):
    world, _, made = await a_gang(make_world)
    began = world.now
    await world.finish(made.id)
    usage = await world.services[Usage].view(ROOT)
    (item,) = usage.items
    assert 0 < item.slot_hours <= 4 * (world.now - began) / 3600
    assert item.slot_hours > 2 * 30 / 3600


async def row_of(world, made) -> AllocationRow:
    """The newest attempt, as it is stored."""
    newest = select(AllocationRow).where(AllocationRow.experiment_id == made.id).order_by(AllocationRow.run.desc())
    return await world.services.context.read(lambda s: s.scalars(newest).first())


@pytest.mark.parametrize("which", [0, 1], ids=["chief", "other"])
async def test_gang_an_agent_is_lost_once_though_the_other_part_is_slow_to_end(make_world, caplog, which):
    """As long as the rest of the attempt took to end, its agent was lost again at each tick."""
    world, agents, _ = await a_gang(make_world, Ranks(200))
    await world.steps(8)
    gone, stays = agents[which], agents[1 - which]
    for task in stays.tasks.values():
        task.heeds_kill = False
    gone.drop()
    await world.steps(80)
    assert stays.tasks, "it is still ending"
    assert caplog.messages.count(f"agent {gone.name} is lost") == 1
    assert await world.services.context.read(lambda s: parts.agents_with(s, PLACED)) == {stays.name}


async def test_gang_an_agent_that_came_back_while_others_were_given_up_is_not_lost(make_world, monkeypatch):
    world, (left, right), made = await a_gang(make_world, Ranks(200))
    alone = await world.add_agent("alone", 1)
    await world.steps(8)
    for agent in (left, right, alone):
        agent.drop()
    world.now += 1000.0
    write = world.services.context.write

    async def write_while_they_return(fn):
        monkeypatch.setattr(world.services.context, "write", write)
        await write(fn)
        await left.connect()
        await right.connect()

    monkeypatch.setattr(world.services.context, "write", write_while_they_return)
    await world.services[Agents].lose_silent()
    states = {view.id: view.state for view in (await views_of(world)).values()}
    assert states == {"alone": "lost", "left": "connected", "right": "connected"}
    await world.steps(4)
    (trial,) = await world.trials(made.id)
    assert (trial.run, trial.allocation_state) == (1, "RUNNING")


async def test_gang_a_part_that_ends_says_no_exit_code_of_the_attempt_that_lives(make_world):
    world, (left, right), made = await a_gang(make_world, Ranks(200))
    await world.steps(8)
    for task in right.tasks.values():
        task._exit(0)
    await world.steps(4)
    row = await row_of(world, made)
    assert (row.state, row.exit_code) == ("RUNNING", None)
    for task in left.tasks.values():
        task._exit(0)
    await world.steps(4)
    ended = await row_of(world, made)
    assert (ended.state, ended.exit_code) == ("TERMINATED", 0)


@pytest.mark.parametrize("first", [0, 1], ids=["chief", "other"])
async def test_gang_runs_though_a_part_was_through_before_it_was_heard(make_world, first):
    """Its node had nothing to do: the attempt stayed assigned to its end, so that a pause killed it unsaved."""
    world, agents, made = await a_gang(make_world, Ranks(200))
    await world.services.schedule()
    quick, slow = agents[first], agents[1 - first]
    await slow.turn()
    await slow.turn()
    launch = next(message for message in quick.inbox if isinstance(message, Launch))
    await quick._say(TaskExited(allocation_id=launch.allocation_id, run=launch.run, exit_code=0))
    quick.inbox.clear()
    assert (await row_of(world, made)).state == "RUNNING"
    await slow.turn()
    assert (await row_of(world, made)).state == "RUNNING"


async def test_gang_records_of_a_node_that_it_has_not_are_refused(make_world):
    """They were counted as the chief's, whose own with the same numbers were then taken for repeated ones."""
    world, (left, _), _ = await a_gang(make_world, Ranks(200))
    await world.steps(8)
    (task,) = left.tasks.values()
    line = RecordBatch(stream="logs", records=[LogRecord(seq=1000, time=1.0, text="whose?")])
    with pytest.raises(Conflict, match="has 2 nodes, and no node 7"):
        await world.services[Tasks].records(task.caller, line, 7)
    said = await world.services[Tasks].records(task.caller, line.model_copy(update={"records": []}), 0)
    assert said.acked < 1000


async def test_gang_each_launcher_that_is_cut_off_keeps_its_token(make_world):
    """Another node's renewal was taken for its own, and it was locked out while its task ran."""
    world, (left, right), _ = await a_gang(make_world, Ranks(2000), task_token_ttl=100.0, agent_reconnect_wait=1e9)
    await world.steps(6)
    (chief,), (other,) = left.tasks.values(), right.tasks.values()
    for _ in range(10):  # two hundred seconds in which the chief renews, and the other does not come through
        await world.steps(4, 5.0)
        await world.services[Tasks].renew_token(chief.caller)
        await world.services.tidy()
    assert await world.services[Tokens].resolve(other.launch.task_token) == other.caller


# --- agents of an older version


async def test_gang_no_part_goes_to_an_agent_that_is_not_upgraded_yet(make_world):
    """Its harness knows of no other nodes: it trained the whole by itself, and its records were the chief's."""
    world = await make_world(Ranks(4))
    old = await world.add_agent("left", 2, process="")
    right = await world.add_agent("right", 2)
    made = await world.submit(config(resources=TWO_NODES))
    one = await world.submit(config(resources={"slots_per_trial": 2}))
    assert (await world.finish(one.id)).state is ExperimentState.COMPLETED
    (trial,) = await world.trials(made.id)
    assert trial.allocation_state == "PENDING"
    old.drop()
    old.process, old.online = "two", True
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    assert len([run for run in old.launches if run in right.launches]) == 1


async def test_gang_is_made_beside_an_agent_that_is_not_upgraded_yet(make_world):
    world = await make_world(Ranks(4))
    old = await world.add_agent("old", 2, process="")
    left, right = await world.add_agent("left", 2), await world.add_agent("right", 2)
    made = await world.submit(config(resources=TWO_NODES))
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    assert (len(old.launches), len(left.launches), len(right.launches)) == (0, 1, 1)


async def test_gang_stays_whole_where_an_agent_that_is_not_upgraded_yet_has_room_for_all(make_world):
    world = await make_world(Ranks(4))
    old = await world.add_agent("old", 4, process="")
    first = await world.submit(config(resources=TWO_NODES))
    await world.steps(4)
    left, right = await world.add_agent("left", 2), await world.add_agent("right", 2)
    second = await world.submit(config(resources=TWO_NODES))
    for made in (first, second):
        assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    assert (len(old.launches), len(left.launches), len(right.launches)) == (2, 0, 0)


# --- what is asked for


async def test_gang_that_no_set_of_nodes_could_give_is_refused_with_the_reason(make_world):
    world = await make_world(Ranks())
    await world.add_agent("left", 2)
    await world.add_agent("right", 2)
    for slots, why in ((3, "which cannot give as many on each"), (6, "the 2 suitable agents have 4")):
        with pytest.raises(ResourcesError, match=why):
            await world.submit(config(resources={"slots_per_trial": slots}))


async def test_gang_is_not_made_of_a_trial_that_wants_one_node(make_world):
    world = await make_world(Ranks())
    await world.add_agent("left", 2)
    await world.add_agent("right", 2)
    with pytest.raises(ResourcesError, match="the largest agent has 2"):
        await world.submit(config(resources={**TWO_NODES, "is_single_node": True}))
    made = await world.submit(config(resources={"slots_per_trial": 2, "is_single_node": True}))
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED


async def test_gang_dry_run_names_all_agents(make_world):
    world = await make_world(Ranks())
    await world.add_agent("left", 2)
    await world.add_agent("right", 2)
    request = CreateExperiment(config=config(resources=TWO_NODES), dry_run=True)
    reply = await world.services[Experiments].create(ALICE, request)
    assert reply.forecast is not None
    assert reply.forecast.agent_id == "left, right"


# --- the rendezvous


async def test_gang_rendezvous_is_ready_when_all_nodes_are_there_and_forgets_its_secret(make_world):
    world, agents, made = await a_gang(make_world)
    await world.steps(6)
    chief, other = (next(iter(agent.tasks.values())) for agent in agents)
    meet = world.services[Tasks].rendezvous
    worker = Arrival(node=1, machine="m")
    early = await meet(other.caller, worker, 0)
    assert (early.ready, early.missing, early.key) == (False, ["left"], "")
    there = Arrival(node=0, port=4001, messages_port=4002, key="ab" * 32, machine="m")
    assert (await meet(chief.caller, there, 0)).ready
    await world.reboot()
    late = await world.services[Tasks].rendezvous(other.caller, worker, 0)
    assert (late.ready, late.port, late.messages_port, late.key) == (True, 4001, 4002, "ab" * 32)
    again = await world.services[Tasks].rendezvous(other.caller, Arrival(node=1, number=2), 0)
    assert (again.ready, again.missing) == (False, ["left"]), "the chief has not come to the second meeting"
    await world.finish(made.id)
    with pytest.raises(StaleAttempt):
        await world.services[Tasks].rendezvous(other.caller, worker, 0)


async def test_gang_of_pods_meets_at_the_addresses_that_they_know_themselves(make_world):
    """The agent of a cluster knows no address of its pods before they run."""
    world = await make_world(Ranks(200))
    agents = [await world.add_agent(name, 2, address="") for name in ("left", "right")]
    await world.submit(config(resources={"slots_per_trial": 4}))
    await world.steps(4)
    callers = {task.launch.info.container_rank: task.caller for agent in agents for task in agent.tasks.values()}
    meet = world.services[Tasks].rendezvous
    chief = Arrival(node=0, port=4001, messages_port=4002, key="ab" * 32, machine="one", address="10.1.0.7")
    assert not (await meet(callers[0], chief, 0)).ready
    with pytest.raises(Conflict, match=r"reached at 127\.0\.0\.1"):
        await meet(callers[1], Arrival(node=1, machine="two"), 0)
    met = await meet(callers[1], Arrival(node=1, machine="two", address="10.2.0.9"), 0)
    assert (met.ready, met.addresses) == (True, ["10.1.0.7", "10.2.0.9"])


async def test_gang_over_machines_that_say_loopback_is_told_what_to_do(make_world):
    world, agents, _ = await a_gang(make_world)
    await world.steps(6)
    chief, other = (next(iter(agent.tasks.values())) for agent in agents)
    await world.services[Tasks].rendezvous(chief.caller, Arrival(node=0, port=1, machine="one"), 0)
    with pytest.raises(Conflict, match=r"agent left says that it is reached at 127\.0\.0\.1"):
        await world.services[Tasks].rendezvous(other.caller, Arrival(node=1, machine="two"), 0)
    with pytest.raises(Conflict, match="no node 7"):
        await world.services[Tasks].rendezvous(other.caller, Arrival(node=7), 0)


@pytest.mark.parametrize("loopback", [0, 1, 2])
async def test_gang_over_machines_no_node_may_say_loopback(make_world, loopback):
    """Only the chief's address was looked at: with another's, the attempt hung in torch's rendezvous."""
    world = await make_world(Ranks(200))
    agents = [
        await world.add_agent(f"n{rank}", 2, address="127.0.0.1" if rank == loopback else f"10.0.0.{rank}")
        for rank in range(3)
    ]
    await world.submit(config(resources={"slots_per_trial": 6}))
    await world.steps(4)
    callers = {
        task.launch.info.container_rank: (task.caller, agent.name) for agent in agents for task in agent.tasks.values()
    }
    meet = world.services[Tasks].rendezvous
    await meet(callers[0][0], Arrival(node=0, port=1, machine="one"), 0)
    assert not (await meet(callers[1][0], Arrival(node=1, machine="one"), 0)).ready
    with pytest.raises(Conflict, match=rf"agent n{loopback} says that it is reached at 127\.0\.0\.1"):
        await meet(callers[2][0], Arrival(node=2, machine="two"), 0)


async def test_gang_leaves_an_agent_that_is_drained_and_comes_again_when_there_is_room(make_world):
    world, (left, right), made = await a_gang(make_world, Ranks(60))
    await world.steps(6)
    view = await world.services[Nodes].drain(ROOT, "right", Drain.LEAVE)
    assert view.mode == "draining", "a part of it is there"
    await world.steps(8)
    assert not left.tasks
    assert not right.tasks
    assert (await views_of(world))["right"].mode == "drained"
    (trial,) = await world.trials(made.id)
    assert (trial.run, trial.restarts, trial.allocation_state) == (2, 0, "PENDING")
    await world.services[Nodes].enable(ROOT, "right")
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED


# --- how ranks stand


async def test_gang_nodes_hear_how_the_others_ranks_stand_and_only_of_their_own_attempt(make_world):
    world, agents, made = await a_gang(make_world)
    await world.steps(6)
    chief, other = (next(iter(agent.tasks.values())) for agent in agents)
    tell = world.services[Tasks].ranks
    here = RankSigns(node=0, signs=[RankSign(rank=0, state="inside", since=9.0, operation="all_reduce", node="left")])
    there = RankSigns(node=1, signs=[RankSign(rank=2, state="user", since=8.0, still=8.0, node="right", pid=7)])
    assert (await tell(chief.caller, here)).signs == [], "nobody has said anything yet"
    assert [(sign.rank, sign.node, sign.age) for sign in (await tell(other.caller, there)).signs] == [(0, "left", 0.0)]
    world.now += 3.0
    (heard,) = (await tell(chief.caller, here)).signs
    assert (heard.rank, heard.state, heard.still, heard.pid, heard.age) == (2, "user", 8.0, 7, 3.0)
    world.now += KEPT + 1
    assert (await tell(other.caller, there)).signs == [], "what is old is forgotten"
    with pytest.raises(Conflict, match="no node 7"):
        await tell(other.caller, RankSigns(node=7))
    await world.finish(made.id)
    with pytest.raises(StaleAttempt):
        await tell(chief.caller, here)
