"""A submission is judged by a few agents of each kind: never otherwise than by all of them."""

from __future__ import annotations

import random

from detlab.schemas.wire import SlotView
from detlab_hub.backends.base import node_of
from detlab_hub.core.scheduling import Pool, PoolConfig
from detlab_hub.services.admission.feasibility import Candidates, Requirements, _alone_on, _impossible
from detlab_hub.services.base.agent_kinds import PoolAgents

KINDS = ((8, "A100", 80), (4, "A100", 40), (2, "", 0), (0, "", 0), (3, "L4", 24))


def nodes_of(draw, count):
    def node(number):
        slots, gpu, memory = draw.choice(KINDS)
        views = [SlotView(id=f"s{i}", kind="cuda" if gpu else "cpu", name=gpu, memory=memory) for i in range(slots)]
        return node_of(
            f"n{number}",
            views,
            serves_user=draw.choice((None, None, "alice")),
            suspect=draw.random() < 0.2,
            runtimes=draw.choice((("process",), ("process", "docker"))),
            pool="default",
            labels=draw.choice(({}, {"zone": "a"})),
            max_zero_slot_tasks=draw.choice((0, 10)),
            millicpus=draw.choice((None, 4000)),
            host_memory=draw.choice((None, 2**30)),
        )

    return [node(number) for number in range(count)]


def wish_of(draw):
    resources = {}
    if draw.random() < 0.4:
        resources["cpus"] = draw.choice((2, 8))
    if draw.random() < 0.3:
        resources["memory"] = 2**29
    if draw.random() < 0.2:
        resources["max_slots"] = draw.choice((1, 8))
    slots = draw.choice((0, 1, 2, 3, 6, 8, 12, 16, 24, 40))
    return Requirements(
        "bob", slots, draw.choice(("process", "docker")), resources=resources, single_node=draw.random() < 0.5
    )


def test_few_agents_say_what_all_say():
    possible = 0
    for seed in range(600):
        draw = random.Random(seed)
        pool = PoolConfig("default", Pool(heterogeneous=draw.random() < 0.5))
        there = PoolAgents().of("default", nodes_of(draw, draw.choice((0, 1, 5, 40))))
        required = wish_of(draw)
        by_all = _alone_on(there.agents, required, pool)
        assert _impossible(Candidates(there.agents, there.few(required.slots)), required, pool) == by_all, seed
        possible += by_all is None and len(there.few(required.slots)) < len(there.agents)
    assert possible > 50


def test_what_was_made_of_nodes_is_kept_until_they_change():
    remembered, nodes = PoolAgents(), nodes_of(random.Random(1), 20)
    first = remembered.of("default", nodes)
    assert remembered.of("default", list(nodes)) is first
    assert remembered.of("other", nodes) is not first
    assert [agent.id for agent in remembered.of("default", nodes[1:]).agents] == [node.id for node in nodes[1:]]


def test_a_thousand_alike_are_judged_by_a_handful():
    draw = random.Random(2)
    there = PoolAgents().of("default", nodes_of(draw, 1_250))
    assert len(there.agents) == 1_250
    assert len(there.few(1)) == len(there.kinds) <= 5 * 2**6
