"""What a master knows of an elastic pool's instances: those that no list has yet, and what they turn out to have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from services_scripted import ALICE, World, config, training

from detlab.errors import Forbidden
from detlab.schemas.wire import CreateExperiment, EnrolRequest, ExperimentState
from detlab_hub.backends.instances import InstanceOrder, ProviderError, Trouble
from detlab_hub.backends.instances.configuration import ElasticPool, like_of
from detlab_hub.core.provisioning import Instance, PoolLimits
from detlab_hub.core.scheduling import Agent, read_pools
from detlab_hub.services.admission import instance_records
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.base.callers import EnrolCaller
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.elastic.provisioning import Provisioning
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.ingest.tokens import Tokens
from detlab_hub.services.queue.jobs import Jobs
from detlab_hub.store.tables import Meta

AWS = {"type": "aws", "slots": 1, "region": "r", "instance_type": "small", "image_id": "i", "max_instances": 3}
LIMITS = PoolLimits(max_instances=3)


@dataclass
class Market:
    """A provider whose list may lag behind its launches; the test plays its agents."""

    made: list[Instance] = field(default_factory=list)
    orders: list[InstanceOrder] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    lagging: bool = False
    silent: bool = False
    """It does what it is asked to, and its answer is lost."""
    refuses: Trouble | None = None
    """It does nothing that it is asked to, and says so."""

    def launch(self, order: InstanceOrder) -> Instance:
        self.orders.append(order)
        if self.refuses is not None:
            raise ProviderError(self.refuses, "no")
        made = Instance(f"i-{order.agent_id}", order.agent_id, launched_at=order.now)
        if made.agent_id not in {one.agent_id for one in self.made}:
            self.made.append(made)
        if self.silent:
            raise ProviderError(Trouble.UNREACHABLE, "no answer")
        return made

    def list(self) -> tuple[Instance, ...]:
        return () if self.lagging else tuple(self.made)

    def terminate(self, ids: Any) -> None:
        self.ended += ids
        self.made = [instance for instance in self.made if instance.id not in ids]


def looking(world: World, market: Market, provider: dict[str, Any] = AWS, limits: PoolLimits = LIMITS) -> Provisioning:
    pool = ElasticPool("default", market, limits, Agent("template", 1), like_of(provider))
    return Provisioning(world.services.context, [pool])


async def test_an_instance_that_no_list_has_yet_is_waited_for_by_the_next_master_too(make_world):
    """It was struck off, its agent could not enrol any more, and a second one was launched."""
    world = await make_world(training(3))
    market = Market(lagging=True)
    made = await world.submit(config())
    await world.step()
    await looking(world, market).poll()
    (order,) = market.orders
    await world.reboot()
    provisioning = looking(world, market)
    for _ in range(3):
        world.now += 20.0
        await provisioning.poll()
    assert len(market.orders) == 1, "the one that is asked for is enough"
    assert await world.services[Tokens].resolve(order.enrolment_token) is not None, "its agent may still enrol"
    await world.add_agent(order.agent_id)
    await provisioning.poll()
    market.lagging = False
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    await provisioning.poll()
    assert (len(market.orders), market.ended) == (1, [])
    world.now += 120.0
    await provisioning.poll()
    notes = await world.services.context.read(lambda s: instance_records.of_pool(s, "default"))
    assert [note.asked_at for note in notes.values()] == [None], "it was listed: from now on the list counts"


async def test_a_launch_whose_answer_is_lost_is_asked_for_again_and_makes_no_second_instance(make_world):
    """It was taken for a failure: its agent could never enrol, and another one came above the most there may be."""
    world = await make_world(training(3))
    market = Market(lagging=True, silent=True)
    await world.submit(config())
    await world.step()
    provisioning = looking(world, market, limits=PoolLimits(max_instances=1))
    for _ in range(6):
        await provisioning.poll()
        world.now += 15.0
    names = {order.agent_id for order in market.orders}
    assert (len(names), len(market.made)) == (1, 1)
    assert len(market.orders) > 1, "it may not have been launched: it is asked for again"
    assert await world.services[Tokens].resolve(market.orders[0].enrolment_token) is not None
    world.now += 30.0  # from the first order on two minutes
    await provisioning.poll()
    assert len({order.agent_id for order in market.orders}) == 1, "what was given up may be listed yet"
    await world.reboot()
    market.silent = False
    provisioning = looking(world, market, limits=PoolLimits(max_instances=1))
    await provisioning.poll()
    assert len({order.agent_id for order in market.orders}) == 1, "nor does a later master forget it"
    world.now += 120.0
    await provisioning.poll()
    await provisioning.poll()
    assert len({order.agent_id for order in market.orders}) == 2, "no list has it: it was never launched"


@pytest.mark.parametrize("refusal", [Trouble.CAPACITY, Trouble.QUOTA, Trouble.CREDENTIALS, Trouble.CONFIGURATION])
async def test_a_refusal_of_the_second_ask_says_nothing_of_the_first_whose_answer_was_lost(make_world, refusal):
    """It was taken for proof that there is no instance: its agent could not enrol, and another came above the most."""
    world = await make_world(training(3))
    market = Market(lagging=True, silent=True)
    await world.submit(config())
    await world.step()
    provisioning = looking(world, market, limits=PoolLimits(max_instances=1))
    await provisioning.poll()
    first = market.orders[0]
    market.silent = False
    for wait, market.refuses in ((10.0, refusal), (20.0, refusal), (40.0, None)):
        world.now += wait
        await provisioning.poll()
    assert {order.agent_id for order in market.orders} == {first.agent_id}
    assert (len(market.orders), len(market.made)) == (4, 1)
    assert await world.services[Tokens].resolve(first.enrolment_token) is not None, "its agent may enrol"


async def test_what_is_refused_after_a_lost_answer_is_given_up_at_last(make_world):
    world = await make_world(training(3))
    market = Market(lagging=True, silent=True)
    await world.submit(config())
    await world.step()
    provisioning = looking(world, market, limits=PoolLimits(max_instances=1))
    await provisioning.poll()
    market.made.clear()
    market.refuses = Trouble.CAPACITY
    for _ in range(60):
        world.now += 5.0
        await provisioning.poll()
    market.refuses, market.silent, market.lagging = None, False, False
    world.now += 600.0
    await provisioning.poll()
    await provisioning.poll()
    assert len(market.made) == 1
    assert market.made[0].agent_id != market.orders[0].agent_id
    assert await world.services[Tokens].resolve(market.orders[0].enrolment_token) is None


async def test_a_token_lives_as_long_as_the_agent_of_the_last_ask_is_waited_for(make_world):
    """It ended a period after the first ask: the agent of a launch that only a later one brought came in vain."""
    world = await make_world(training(3))
    market = Market(lagging=True, refuses=Trouble.UNREACHABLE)
    await world.submit(config())
    await world.step()
    provisioning = looking(world, market, limits=PoolLimits(max_instances=1, max_agent_starting_period=60.0))
    await provisioning.poll()
    world.now += 100.0
    market.refuses = None
    await provisioning.poll()
    assert len({order.agent_id for order in market.orders}) == len(market.made) == 1
    world.now += 55.0
    await provisioning.poll()
    assert await world.services[Tokens].resolve(market.orders[0].enrolment_token) is not None


async def test_an_older_list_forgets_no_instance_that_a_newer_one_had(make_world):
    """It was struck off, its agent could not enrol any more, and another one came above the most there may be."""
    world = await make_world(training(3))
    market = Market()
    await world.submit(config())
    await world.step()
    provisioning = looking(world, market, limits=PoolLimits(max_instances=1))
    for lagging in (False, False, True, False, True):
        market.lagging = lagging
        await provisioning.poll()
        world.now += 10.0
    (order,) = market.orders
    assert await world.services[Tokens].resolve(order.enrolment_token) is not None
    market.made.clear()
    world.now += 120.0
    await provisioning.poll()
    await provisioning.poll()
    assert len(market.orders) == 2, "what no list has for so long is gone"


@pytest.mark.parametrize("silent_for", [15.0, 60.0], ids=["suspect", "lost"])
async def test_an_older_list_forgets_no_instance_whose_agent_was_there_and_is_silent(make_world, silent_for):
    """It was listed once while its agent spoke, and so taken for gone: another one came above the most there may be."""
    world = await make_world(training(200))
    market = Market()
    await world.submit(config())
    await world.step()
    provisioning = looking(world, market, limits=PoolLimits(max_instances=1))
    await provisioning.poll()
    (order,) = market.orders
    agent = await world.add_agent(order.agent_id)
    await world.steps(3)
    await provisioning.poll()
    await world.submit(config())
    agent.drop()
    market.lagging = True
    await world.steps(int(silent_for), 1.0)
    state = world.services.connections.state_of(order.agent_id, world.now)
    assert state == ("suspect" if silent_for < world.settings.agent_reconnect_wait else "lost")
    await provisioning.poll()
    await agent.connect()
    await world.steps(3)
    await provisioning.poll()
    assert world.services.connections.state_of(order.agent_id, world.now) == "connected", "its key is good"
    assert (len(market.orders), market.ended) == (1, [])
    market.made.clear()
    agent.drop()
    await world.steps(120, 1.0)
    await provisioning.poll()
    await provisioning.poll()
    assert len(market.orders) == 2, "what no list has for so long is gone"


async def test_an_instance_that_no_list_ever_has_is_given_up_after_a_while_and_another_comes(make_world):
    world = await make_world(training(3))
    market = Market(lagging=True)
    await world.submit(config())
    await world.step()
    await looking(world, market).poll()
    market.made.clear()  # the master died before it was launched, or the provider lost it
    await world.reboot()
    provisioning = looking(world, market)
    world.now += 130.0
    await provisioning.poll()
    await provisioning.poll()
    assert len(market.orders) == 2
    assert await world.services[Tokens].resolve(market.orders[0].enrolment_token) is None
    assert market.ended == [], "nobody knows what to end"


async def test_a_clock_that_is_put_back_keeps_no_lost_instance_for_longer(make_world):
    """It was waited for until the clock had come to when it was asked for, and nothing was launched in its place."""
    world = await make_world(training(3))
    market = Market(lagging=True)
    await world.submit(config())
    await world.step()
    await looking(world, market).poll()
    market.made.clear()
    await world.reboot()
    provisioning = looking(world, market)
    world.now -= 3600.0
    await provisioning.poll()
    world.now += 110.0
    await provisioning.poll()
    assert len(market.orders) == 1, "a list may still lag behind"
    world.now += 20.0
    await provisioning.poll()
    await provisioning.poll()
    assert len(market.orders) == 2


async def test_a_clock_that_is_put_back_gives_up_an_unanswered_launch_no_later(make_world):
    """Its order was placed again, and its agent was listed, until the clock had come to when it was asked for."""
    world = await make_world(training(3))
    market = Market(lagging=True, silent=True)
    await world.submit(config())
    await world.step()
    provisioning = looking(world, market)
    await provisioning.poll()
    market.refuses = Trouble.CAPACITY
    world.now -= 3600.0
    await provisioning.poll()
    world.now += 60.0
    await provisioning.poll()
    assert len({order.agent_id for order in market.orders}) == 1, "it may have been launched"
    world.now += 70.0
    await provisioning.poll()
    world.now += 70.0
    await provisioning.poll()
    assert len({order.agent_id for order in market.orders}) == 2


async def test_one_that_no_list_has_yet_and_whose_agent_went_again_counts_until_it_is_listed(make_world):
    """A master that was started in between could not end it, counted it as ended, and launched one above the most."""
    world = await make_world(training(3))
    market = Market(lagging=True)
    limits = PoolLimits(min_instances=1, max_instances=1, max_agent_starting_period=30.0, max_disconnected_period=20.0)
    await looking(world, market, limits=limits).poll()
    (order,) = market.orders
    await world.reboot()
    provisioning = looking(world, market, limits=limits)
    agent = await world.add_agent(order.agent_id)
    await provisioning.poll()
    agent.drop()
    agent.online = False
    for _ in range(8):
        await world.steps(10, 1.0)
        await provisioning.poll()
    assert world.now < market.made[0].launched_at + 120.0
    assert (len(market.orders), market.ended) == (1, [])
    market.lagging = False
    for _ in range(8):
        await world.steps(10, 1.0)
        await provisioning.poll()
    assert (len(market.orders), market.ended) == (2, [f"i-{order.agent_id}"])


async def test_notes_of_earlier_versions_are_read(make_world):
    world = await make_world(training(3))

    def note(unit: UnitOfWork) -> None:
        unit.session.add(Meta(key="instance/a", value="default"))
        unit.session.add(Meta(key="instance/b", value="other"))

    await world.services.context.write(note)
    notes = await world.services.context.read(lambda s: instance_records.of_pool(s, "default"))
    assert notes == {"a": instance_records.InstanceNote("default")}


def has(agent: Any, cpus: float, memory: int) -> None:
    """Its machine has so much."""
    plain = type(agent).hello
    agent.hello = lambda: plain(agent).model_copy(update={"cpus": cpus, "memory": memory})


async def warnings(world: World, **asked: Any) -> list[Any]:
    """What a submit that asks for so much is told of how long it has to wait."""
    wanted = CreateExperiment(config=config(resources={"slots_per_trial": 1, **asked}), dry_run=True)
    said = (await world.services[Experiments].create(ALICE, wanted)).warnings
    return [one for one in said if "waits until" in one.message]


async def test_what_was_learned_of_a_broken_instance_is_not_believed_for_ever(make_world):
    """Its agent counted one CPU: what asks for two was refused for ever, and no instance could show better."""
    pools, _ = read_pools({"default": {"provider": AWS}})
    world = await make_world(training(3), pools=pools)
    market = Market()
    provisioning = looking(world, market)
    await world.submit(config(resources={"slots_per_trial": 1, "cpus": 2}))
    await world.step()
    await provisioning.poll()
    broken = await world.add_agent(market.orders[0].agent_id)
    has(broken, 1.0, 2**30)
    broken.drop()
    await broken.connect()
    await provisioning.poll()
    broken.drop()
    broken.online = False
    market.made.clear()
    await world.steps(80, 1.0)
    await provisioning.poll()
    assert len(market.orders) == 1, "for a while it is believed"
    (said,) = await warnings(world, cpus=2)
    assert "at most 1 CPU, as far as instances of pool default were seen" in said.message
    world.now += instance_records.BELIEVED_SECONDS
    await provisioning.poll()
    assert await warnings(world, cpus=2) == []
    assert len(market.orders) == 2, "another one may show better"


async def test_one_broken_instance_among_good_ones_says_nothing_of_new_ones(make_world):
    """The smallest was what each was taken to have."""
    pools, _ = read_pools({"default": {"provider": AWS}})
    world = await make_world(training(3), pools=pools)
    market = Market()
    limits = PoolLimits(min_instances=2, max_instances=3)
    provisioning = looking(world, market, limits=limits)
    await provisioning.poll()
    for order, cpus in zip(market.orders, (4.0, 1.0), strict=True):
        agent = await world.add_agent(order.agent_id)
        has(agent, cpus, 16 * 2**30)
        agent.drop()
        await agent.connect()
    await provisioning.poll()
    for _ in range(2):
        await world.submit(config(resources={"slots_per_trial": 1, "cpus": 4}))
    await world.step()
    await provisioning.poll()
    assert len(market.orders) == 3
    assert await warnings(world, cpus=4) == []


@pytest.mark.parametrize("rebooted", [False, True], ids=["one-master", "two-masters"])
async def test_a_pool_grows_no_further_for_what_its_instances_turn_out_not_to_have(make_world, rebooted):
    """Without cpus in the provider's settings it grew to max_instances, again and again."""
    pools, mistakes = read_pools({"default": {"provider": AWS}})
    assert not mistakes
    world = await make_world(training(3), pools=pools)
    market = Market()
    provisioning = looking(world, market)
    made = await world.submit(config(resources={"slots_per_trial": 1, "cpus": 64}))
    await world.step()
    await provisioning.poll()
    (order,) = market.orders
    agent = await world.add_agent(order.agent_id)
    has(agent, 4.0, 16 * 2**30)
    agent.drop()
    await agent.connect()
    for _ in range(5):
        world.now += 5.0
        await world.step()
        await provisioning.poll()
    assert len(market.orders) == 1, "one shows what they have"
    agent.drop()
    if rebooted:
        await world.reboot()
        provisioning = looking(world, market)
    market.made.clear()
    for _ in range(100):
        await world.step()
    world.now += 300.0
    for _ in range(3):
        await provisioning.poll()
    assert len(market.orders) == 1, "what was learned is remembered when it is gone"
    world.services[Jobs]._awaited = provisioning.awaited
    (item,) = (await world.services[Jobs].why(ALICE, str(made.id))).items
    assert "each has 1 slot, 4 CPUs and 16 GiB of memory" in item.detail
    (said,) = await warnings(world, cpus=64)
    assert said.path == "resources.cpus"
    assert (
        "64 CPUs on one agent; an agent has at most 4 CPUs, as far as instances of pool default were seen"
        in said.message
    )
    await world.submit(config(resources={"slots_per_trial": 1, "cpus": 3}))
    await world.step()
    await provisioning.poll()
    assert len(market.orders) == 2
    larger = looking(world, market, {**AWS, "instance_type": "large"})
    await larger.poll()
    assert len(market.orders) == 3, "of another type nothing is known"


async def test_the_token_of_an_instance_enrols_its_agent_only_and_once(make_world):
    """Whoever read it in the startup script enrolled an agent of any name, also after the instance's own had come."""
    world = await make_world(training(3))
    market = Market()
    await world.submit(config())
    await world.step()
    await looking(world, market).poll()
    (order,) = market.orders
    caller = await world.services[Tokens].resolve(order.enrolment_token)
    assert isinstance(caller, EnrolCaller)
    agents = world.services[Agents]
    for name in ("default-000000000000", f"{order.agent_id}x", "node-1"):
        with pytest.raises(Forbidden, match="is that of an elastic pool's instance"):
            await agents.enrol(caller, EnrolRequest(agent_id=name))
    await agents.enrol(caller, EnrolRequest(agent_id=order.agent_id))
    await agents.enrol(caller, EnrolRequest(agent_id=order.agent_id))  # the first answer may have been lost
    assert await world.services[Tokens].resolve(order.enrolment_token) is not None
    await world.add_agent(order.agent_id)
    assert await world.services[Tokens].resolve(order.enrolment_token) is None, "void once its agent has connected"
