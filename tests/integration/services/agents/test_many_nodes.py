"""An agent that speaks for many nodes: tasks are placed on each, and every message names the node."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, DIGEST, ROOT, training
from sqlalchemy import update

from detlab.errors import Conflict, Forbidden, ResourcesError
from detlab.schemas.taskwire import CreateTask, SpawnRequest, TaskKind
from detlab.schemas.wire import (
    ExitAck,
    Heartbeat,
    HeldTask,
    Hello,
    Kill,
    Launch,
    MoreNodes,
    NodeHello,
    RecordBatch,
    SlotView,
    TaskExited,
    TaskStarted,
    Welcome,
)
from detlab_hub.services import AgentCaller
from detlab_hub.services.admission import bundles
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.agents.nodes import Nodes
from detlab_hub.services.base.callers import HubCaller
from detlab_hub.services.cluster.cluster import Cluster
from detlab_hub.services.queue.pools import PoolViews
from detlab_hub.services.usertasks.spawns import Spawns
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.tables import TaskRow

CLUSTER = AgentCaller("cluster")
GPUS = [SlotView(id=f"cuda{n}", kind="cuda", name="H100", memory=80 << 30) for n in range(4)]
NODES = [NodeHello(name="small", slot_count=2), NodeHello(name="big", slots=GPUS, labels={"rack": "r2"}, cpus=8.0)]


class Speaker:
    """An agent whose messages a test writes."""

    def __init__(self, world):
        self.world = world
        self.told = []
        self.session = None

    async def connect(self, nodes=NODES, **more):
        hello = Hello(agent_id="cluster", process="p1", slots=[], nodes=nodes, max_zero_slot_tasks=0, uids={}, **more)
        self.told.clear()
        self.session = await self.world.services[Agents].connect(CLUSTER, hello, self.told.append)

    def launches(self):
        return {message.node: message for message in self.told if isinstance(message, Launch)}

    async def start(self, slots=1, **more):
        raw = {"entrypoint": "true", "resources": {"slots": slots, **more}}
        made = await self.world.services[UserTasks].create(ALICE, CreateTask(kind=TaskKind.COMMAND, config=raw))
        await self.world.services.schedule()
        return made.task.id

    async def view(self, task_id):
        return await self.world.services[UserTasks].get(ALICE, task_id)


@pytest.fixture
async def cluster(make_world):
    speaker = Speaker(await make_world(training(3)))
    await speaker.connect()
    return speaker


async def test_each_node_is_placed_on_and_named_in_its_launch(cluster):
    seen = {view.id: view for view in await cluster.world.services[Agents].list(ROOT)}
    assert {name: len(view.slots) for name, view in seen.items()} == {
        "cluster": 0,
        "cluster/big": 4,
        "cluster/small": 2,
    }
    assert {view.state for view in seen.values()} == {"connected"}
    assert [message.node for message in cluster.told if isinstance(message, Welcome)] == ["", "small", "big"]

    large = await cluster.start(4)
    labelled = await cluster.start(2)
    launches = cluster.launches()
    assert launches.keys() == {"big", "small"}
    assert sorted(launches["big"].slots) == ["cuda0", "cuda1", "cuda2", "cuda3"]
    assert launches["small"].slots == ["any0", "any1"]
    assert launches["small"].info.agent_id == "cluster/small"
    assert (await cluster.view(large)).agent_id == "cluster/big"
    waits = await cluster.start(1, constraints={"labels": {"rack": "r2"}})
    assert (await cluster.view(waits)).agent_id is None, "the other node has no such label"

    launch = launches["small"]
    named = {"allocation_id": launch.allocation_id, "run": launch.run, "node": "small"}
    await cluster.session.receive(TaskStarted(**{**named, "node": "big"}))
    assert (await cluster.view(labelled)).display_state != "RUNNING", "another node cannot speak of it"
    await cluster.session.receive(TaskStarted(**named))
    assert (await cluster.view(labelled)).display_state == "RUNNING"
    await cluster.session.receive(TaskExited(**named, exit_code=0))
    assert (await cluster.view(labelled)).state.value == "COMPLETED"
    assert [m.allocation_id for m in cluster.told if isinstance(m, ExitAck)] == [launch.allocation_id]
    await cluster.world.services.end_task(ALICE, large)
    assert [m.allocation_id for m in cluster.told if isinstance(m, Kill)] == [launches["big"].allocation_id]
    await cluster.session.receive(TaskExited(**{**named, "node": "new"}, exit_code=1))
    assert (await cluster.view(labelled)).state.value == "COMPLETED", "of a node that nobody knows nothing is changed"
    assert cluster.told[-1] == ExitAck(allocation_id=launch.allocation_id, run=launch.run, node="new")


@pytest.mark.parametrize("left", [NODES[1:], []], ids=["others are left", "none is left"])
async def test_the_end_of_a_task_on_a_node_that_has_gone_is_heard(cluster, left):
    """Its agent says it on each connection until it is acknowledged: one that was closed for it would never be kept."""
    task = await cluster.start(2)
    (launch,) = cluster.launches().values()
    named = {"allocation_id": launch.allocation_id, "run": launch.run, "node": "small"}
    await cluster.session.receive(TaskStarted(**named))
    cluster.session.closed()
    await cluster.connect(nodes=left, tasks=[HeldTask(**named, exited=True)])
    assert (await cluster.view(task)).display_state == "RUNNING"
    await cluster.session.receive(TaskExited(**named, exit_code=0))
    assert (await cluster.view(task)).state.value == "COMPLETED"
    assert cluster.told[-1] == ExitAck(allocation_id=launch.allocation_id, run=launch.run, node="small")
    await cluster.session.receive(Heartbeat())


async def test_a_hold_stayed_pending_where_nodes_run_pods_only(make_world):
    """The Hub's spawner asks before the first node is there; its hold ran as a process or not at all."""
    world = await make_world(training(1))
    cluster = Speaker(world)
    wanted = SpawnRequest(owner="alice", server_name="", key="k" * 16, hold=True, config={"resources": {"slots": 1}})
    view = await world.services[Spawns].post(HubCaller(), wanted)
    await world.services.schedule()
    assert (await world.services[Spawns].get(HubCaller(), view.task_id)).reason == "no agent is connected"
    world.services.context.scheduler_kick.clear()

    await cluster.connect(runtimes=["kubernetes"])
    assert world.services.context.scheduler_kick.is_set(), "a node that connects wakes what waits"
    await world.services.schedule()
    (launch,) = cluster.launches().values()
    assert (launch.runtime, launch.holds) == ("kubernetes", True)
    assert launch.container is not None
    assert (await world.services[Spawns].get(HubCaller(), view.task_id)).agent_id in {"cluster/big", "cluster/small"}


async def test_slots_whose_devices_others_use_get_no_task_but_count_for_what_could_ever_run(make_world):
    cluster = Speaker(await make_world(training(1)))

    def node(*taken):
        slots = [slot.model_copy(update={"enabled": slot.id not in taken}) for slot in GPUS]
        return [NodeHello(name="big", slots=slots)]

    await cluster.connect(nodes=node("cuda2", "cuda3"))
    all_of_it = await cluster.start(4)
    assert (await cluster.view(all_of_it)).agent_id is None
    await cluster.connect(nodes=node("cuda3"))
    await cluster.world.services.end_task(ALICE, all_of_it)
    three = await cluster.start(3)
    (launch,) = cluster.launches().values()
    assert sorted(launch.slots) == ["cuda0", "cuda1", "cuda2"]
    waits = await cluster.start(1)
    assert (await cluster.view(waits)).agent_id is None
    running = HeldTask(allocation_id=launch.allocation_id, run=launch.run, node="big")
    await cluster.connect(nodes=node(), tasks=[running])
    await cluster.world.services.schedule()
    assert [message.slots for message in cluster.launches().values()] == [["cuda3"]]
    assert (await cluster.view(three)).agent_id == "cluster/big"


async def test_people_are_told_what_a_nodes_cluster_says_of_it_and_of_each_slot(make_world):
    """A GPU that others used looked as if an administrator had closed it, and a cordoned node was lost."""
    cluster = Speaker(await make_world(training(1)))
    others, cordoned = "used by others on the cluster", "cordoned, so it takes no new pods"
    shut = [slot.model_copy(update={"enabled": False, "note": cordoned}) for slot in GPUS]
    mixed = [GPUS[0], GPUS[1].model_copy(update={"enabled": False, "note": others})]
    nodes = [
        NodeHello(name="mixed", slots=mixed),
        NodeHello(name="shut", slots=shut, note=cordoned, max_zero_slot_tasks=0),
    ]
    await cluster.connect(nodes=[*nodes, NodeHello(name="dark", slots=GPUS)])

    async def seen():
        return {view.id.rpartition("/")[2]: view for view in await cluster.world.services[Agents].list(ROOT)}

    views = await seen()
    assert [(slot.enabled, slot.note) for slot in views["mixed"].slots] == [(True, ""), (False, others)]
    assert (views["shut"].note, views["shut"].state, views["shut"].enabled) == (cordoned, "connected", True)
    assert views["dark"].note == ""
    task = await cluster.start(2)
    assert (await cluster.view(task)).agent_id == "cluster/dark"
    view = await cluster.world.services[Cluster].view(ROOT)
    (pool,) = (await cluster.world.services[PoolViews].list()).items
    assert (view.slots_total, view.slots_used) == (pool.slots_total, pool.slots_used) == (5, 2), "no slot of others"

    running = [
        HeldTask(allocation_id=one.allocation_id, run=one.run, node="dark") for one in cluster.launches().values()
    ]
    cluster.session.closed()
    dark = NodeHello(name="dark", away=True, note="not ready: Kubelet stopped posting node status.")
    await cluster.connect(nodes=[*nodes, dark], tasks=running)
    views = await seen()
    assert (views["dark"].state, views["dark"].note) == ("suspect", dark.note)
    for _ in range(10):
        await cluster.world.steps(8, 1.0)
        await cluster.session.receive(Heartbeat())
    views = await seen()
    assert (views["dark"].state, views["dark"].note) == ("lost", dark.note)
    assert views["shut"].state == "connected"


async def test_more_gpus_than_any_node_has_are_refused_at_submission_with_the_largest(make_world):
    """A node that is closed now counts: it comes back."""
    cluster = Speaker(await make_world(training(1)))
    shut = [slot.model_copy(update={"enabled": False, "note": "cordoned"}) for slot in GPUS]
    await cluster.connect(
        nodes=[NodeHello(name="small", slot_count=2), NodeHello(name="shut", slots=shut, note="cordoned")]
    )
    with pytest.raises(ResourcesError, match="needs 8 slots; the largest agent has 4") as caught:
        await cluster.start(8)
    assert "det agent list" in caught.value.hint
    waits = await cluster.view(await cluster.start(4))
    assert waits.agent_id is None


async def test_a_note_that_is_too_long_is_refused(make_world):
    speaker = Speaker(await make_world(training(1)))
    with pytest.raises(Conflict, match="note: 'xxx"):
        await speaker.connect([NodeHello(name="n", away=True, note="x" * 500)])


async def test_tasks_are_kept_by_the_node_that_has_them_and_lost_with_their_agent(cluster):
    task = await cluster.start(2)
    (launch,) = cluster.launches().values()
    running = HeldTask(allocation_id=launch.allocation_id, run=launch.run, node=launch.node)
    cluster.session.closed()
    assert {view.state for view in await cluster.world.services[Agents].list(ROOT)} == {"suspect"}
    await cluster.connect(tasks=[running])
    welcomes = {message.node: message.keep for message in cluster.told if isinstance(message, Welcome)}
    assert welcomes == {"": [], "big": [], "small": []} | {launch.node: [launch.allocation_id]}
    assert (await cluster.view(task)).display_state == "RUNNING"

    cluster.told.clear()
    cluster.world.services[Agents].heartbeat()
    assert [message.type for message in cluster.told] == ["heartbeat"], "one is enough for all nodes"
    for _ in range(10):  # one message shows that all nodes are reached
        await cluster.world.steps(8, 1.0)
        await cluster.session.receive(Heartbeat())
    assert {view.state for view in await cluster.world.services[Agents].list(ROOT)} == {"connected"}
    cluster.session.closed()
    await cluster.world.steps(80, 1.0)
    assert {view.state for view in await cluster.world.services[Agents].list(ROOT)} == {"lost"}
    assert (await cluster.view(task)).state.value == "ERROR"


@pytest.mark.parametrize(
    ("names", "why"),
    [(["a", "a"], "node 'a' is there twice"), (["a/b"], "'a/b' cannot name a node"), ([""], "'' cannot name a node")],
)
async def test_nodes_that_cannot_be_told_apart_are_refused_as_a_whole(make_world, names, why):
    speaker = Speaker(await make_world(training(3)))
    with pytest.raises(Conflict, match=why):
        await speaker.connect([NodeHello(name=name, slot_count=1) for name in names])
    assert await speaker.world.services[Agents].list(ROOT) == []


async def test_a_node_that_is_refused_lets_no_other_connect(make_world):
    speaker = Speaker(await make_world(training(3), agent_slots_limit=3))
    with pytest.raises(Conflict, match="slots: 4 are more than the limit of 3"):
        await speaker.connect()
    assert "connected" not in {view.state for view in await speaker.world.services[Agents].list(ROOT)}


def thousand(first, count=1000, **more):
    return [NodeHello(name=f"n{number}", slot_count=1, **more) for number in range(first, first + count)]


async def test_over_a_thousand_nodes_connect_in_parts(make_world):
    """An agent of 1,001 nodes was cut off altogether, and an autoscaler could bring that about."""
    cluster = Speaker(await make_world(training(1)))
    await cluster.connect(nodes=thousand(0, 600), node_count=1600)
    assert cluster.told[0].takes_more
    await cluster.session.receive(MoreNodes(nodes=thousand(600)))
    views = await cluster.world.services[Agents].list(ROOT)
    assert (len(views), {view.state for view in views}) == (1601, {"connected"})
    for one in ("n599", "n600"):
        await cluster.world.services[Nodes].disable(ROOT, f"cluster/{one}")
    tasks = [await cluster.start(1) for _ in range(3)]
    for launch in cluster.launches().values():
        started = TaskStarted(allocation_id=launch.allocation_id, run=launch.run, node=launch.node)
        await cluster.session.receive(started)
    assert {(await cluster.view(task)).display_state for task in tasks} == {"RUNNING"}
    hung_up = []
    cluster.session.on_hang_up(lambda: hung_up.append(True))
    with pytest.raises(Conflict, match="'n1599' is there twice"):
        await cluster.session.receive(MoreNodes(nodes=thousand(1599, 1)))
    cluster.session.closed()
    assert {view.state for view in await cluster.world.services[Agents].list(ROOT)} == {"suspect"}


async def test_a_task_is_kept_by_a_node_that_is_named_later(make_world):
    cluster = Speaker(await make_world(training(1)))
    await cluster.connect(nodes=NODES)
    task = await cluster.start(4)
    launch = cluster.launches()["big"]
    running = HeldTask(allocation_id=launch.allocation_id, run=launch.run, node="big")
    cluster.session.closed()
    await cluster.connect(nodes=NODES[:1], node_count=2)
    assert (await cluster.view(task)).state.value == "ACTIVE"
    await cluster.session.receive(MoreNodes(nodes=NODES[1:], tasks=[running]))
    welcomes = {message.node: message.keep for message in cluster.told if isinstance(message, Welcome)}
    assert welcomes["big"] == [launch.allocation_id]
    assert (await cluster.view(task)).display_state == "RUNNING"
    await cluster.session.receive(
        TaskExited(**running.model_dump(include={"allocation_id", "run", "node"}), exit_code=0)
    )
    assert (await cluster.view(task)).state.value == "COMPLETED"


@pytest.mark.parametrize("parts", [1, 2])
async def test_nodes_beyond_the_limit_are_left_out_and_the_agent_says_so(make_world, parts):
    speaker = Speaker(await make_world(training(1), agent_nodes_limit=3))
    nodes = thousand(0, 5)
    first = nodes if parts == 1 else nodes[:2]
    busy = [HeldTask(allocation_id="x", run=1, node="n4", exited=True)] if parts == 1 else []
    await speaker.connect(nodes=first, node_count=5, tasks=busy)
    if parts == 2:
        await speaker.session.receive(MoreNodes(nodes=nodes[2:]))
    views = {view.id: view for view in await speaker.world.services[Agents].list(ROOT)}
    assert len(views) == 4
    assert ("cluster/n4" in views) is (parts == 1), "those with tasks are the last to be left out"
    assert views["cluster"].note == "2 of its 5 nodes are left out: c.DetHub.agent_nodes_limit is 3"


async def test_an_agent_without_nodes_has_no_more_of_them(make_world):
    speaker = Speaker(await make_world(training(1)))
    await speaker.connect(nodes=[])
    with pytest.raises(Conflict, match="names no nodes"):
        await speaker.session.receive(MoreNodes(nodes=NODES))


@pytest.mark.parametrize(
    ("machine", "shown"), [("", "big"), ("gke-pool-7", "gke-pool-7")], ids=["there before", "made by an autoscaler"]
)
async def test_a_card_names_the_node_itself(cluster, machine, shown):
    """It named nothing, and of a node to come only the agent's word for it was known."""
    task = await cluster.start(4)
    launch = cluster.launches()["big"]
    named = {"allocation_id": launch.allocation_id, "run": launch.run, "node": "big"}
    await cluster.session.receive(TaskStarted(**named, machine=machine))
    assert (await cluster.view(task)).stage_message == (f"on node {machine}" if machine else "")
    await cluster.session.receive(TaskExited(**named, exit_code=3))
    view = await cluster.view(task)
    assert (view.failure.node, view.failure.exit_code) == (shown, 3)


async def test_a_node_is_disabled_by_its_name_and_goes_with_its_agent(cluster):
    nodes = cluster.world.services[Nodes]
    await nodes.disable(ROOT, "cluster/big")
    task = await cluster.start(3)
    assert "cluster/big is disabled" in ((await cluster.view(task)).pending_reason or "")
    with pytest.raises(Conflict, match="is a node of agent cluster"):
        await nodes.remove(ROOT, "cluster/small")
    hung_up = []
    cluster.session.on_hang_up(lambda: hung_up.append(True))
    await nodes.remove(ROOT, "cluster")
    assert hung_up
    cluster.session.closed()
    await cluster.world.steps(80, 1.0)
    assert (await nodes.remove(ROOT, "cluster/small")).state == "lost"


async def test_the_agent_gets_code_and_delivers_records_of_its_nodes_only(cluster):
    services = cluster.world.services
    task = await cluster.start(4)
    launch = cluster.launches()["big"]
    await services.context.write(
        lambda unit: unit.session.execute(update(TaskRow).where(TaskRow.id == task).values(bundle=DIGEST))
    )
    for name, may in (("cluster", True), ("clust", False), ("cluster/small", False), ("cluster/big", True)):
        assert await services.context.read(lambda s, name=name: bundles.may_use(s, AgentCaller(name), DIGEST)) is may
    batch = RecordBatch(stream="metrics", records=[])
    assert (await services[Agents].records(CLUSTER, launch.allocation_id, batch, "big")).acked == 0
    for node in ("", "small"):
        with pytest.raises(Forbidden):
            await services[Agents].records(CLUSTER, launch.allocation_id, batch, node)
