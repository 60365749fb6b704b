"""Who could start on the idle agents that are there is judged without all others: never otherwise than with them."""

from __future__ import annotations

import random

import pytest
from services_scripted import training

from detlab.errors import ConfigError, ResourcesError
from detlab.schemas.wire import SlotView
from detlab_hub.core.scheduling import read_pools
from detlab_hub.services.admission.feasibility import Requirements, _against_all_agents, _starts_on, check
from detlab_hub.services.experiments.experiments import Experiments

GPUS = (("", 0), ("A100", 80 << 30), ("L4", 24 << 30))
PROVIDER = {"type": "local", "slots": 2, "max_instances": 3, "slot_type": "cpu", "cpus": 4, "memory": "8G"}
POOLS = {
    "mixed": {"heterogeneous": True},
    "alike": {"heterogeneous": False},
    "elastic": {"provider": PROVIDER},
}


def offer(draw, pool):
    """What an agent says of itself."""
    gpu, memory = draw.choice(GPUS)
    count = draw.choice((0, 1, 2, 4))
    return {
        "slots": [SlotView(id=f"s{n}", kind="cuda" if gpu else "cpu", name=gpu, memory=memory) for n in range(count)],
        "runtimes": draw.choice((["process"], ["process", "docker"])),
        "pool": pool,
        "labels": draw.choice(({}, {"zone": "a"}, {"zone": "b", "spot": "yes"})),
        "max_zero_slot_tasks": draw.choice((0, 10)),
        "cpus": draw.choice((None, 4.0)),
        "memory": draw.choice((None, 2**30)),
        "serves_user": draw.choice((None, None, None, "alice")),
    }


async def join(world, name, said):
    """An agent comes that says so of itself."""
    agent = await world.add_agent(name)
    agent.drop()
    plain = agent.hello
    agent.hello = lambda: plain().model_copy(update=said)
    await agent.connect()
    return agent


def rule(draw):
    label = draw.choice(("zone", "spot"))
    return draw.choice(
        (
            {"label": label, "one_of": ["a", "yes"]},
            {"label": label, "none_of": ["a"]},
            {"label": label, "exists": False},
        )
    )


def wish_of(draw, pool):
    resources, constraints = {"resource_pool": pool}, {}
    if draw.random() < 0.3:
        resources["cpus"] = draw.choice((2, 8))
    if draw.random() < 0.3:
        resources["memory"] = draw.choice((2**29, 2**31))
    if draw.random() < 0.2:
        resources["max_slots"] = draw.choice((1, 8))
    if draw.random() < 0.2:
        constraints["labels"] = {"zone": draw.choice("abc")}
    if draw.random() < 0.2:
        constraints["slot_type"] = draw.choice(("cpu", "cuda"))
    if draw.random() < 0.1:
        constraints["gpu"] = draw.choice(("A100", "H100"))
    if draw.random() < 0.3:
        constraints["affinity"] = {
            "required": [rule(draw) for _ in range(draw.choice((0, 1, 2)))],
            "preferred": [{**rule(draw), "weight": 50} for _ in range(draw.choice((0, 1)))],
        }
    if constraints:
        resources["constraints"] = constraints
    image = draw.choice(("a:1", {"cuda": "a:1"}, {"rocm": "a:1"}))
    return Requirements(
        "bob",
        draw.choice((0, 0, 1, 1, 2, 3, 4, 6, 8, 16)),
        draw.choice(("process", "process", "docker")),
        image=image,
        resources=resources,
        single_node=draw.random() < 0.5,
    )


async def said_by(candidates):
    try:
        return [str(problem) for problem in await candidates]
    except (ConfigError, ResourcesError) as error:
        return str(error)


@pytest.mark.parametrize("pool", POOLS)
async def test_who_could_start_here_hears_the_same_as_if_all_were_asked(make_world, pool):
    pools, _ = read_pools({"default": {}, **POOLS})
    world = await make_world(training(3), pools=pools)
    context, here, draw, names = world.services[Experiments]._context, [], random.Random(pool), 0
    short = warned = refused = 0
    for _ in range(12):
        for _ in range(draw.choice((1, 2))):
            names += 1
            here.append(await join(world, f"n{names}", offer(draw, pool)))
        if len(here) > 3:  # it is away, and expected back
            gone = here.pop(draw.randrange(len(here)))
            gone.drop()
            gone.online = False
            await world.steps(80, 1.0)
        for _ in range(50):
            required, now = wish_of(draw, pool), context.clock()
            config = pools.of(pool)
            there = context.present.of(pool, (node for node in context.backend.nodes(now) if node.pool == pool))
            full = await said_by(_against_all_agents(context, required, config, there, now))
            if _starts_on(there, required, config):
                assert full == [], required
                assert await check(context, required) == []
                short += 1
            warned, refused = warned + (isinstance(full, list) and full != []), refused + isinstance(full, str)
    assert short > 50
    assert refused > 50
    assert pool == "elastic" or warned > 10
