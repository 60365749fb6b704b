"""Where a task goes: scores, tie-breaks, several agents, what it must be like."""

from __future__ import annotations

import hashlib

import pytest
from pool_snapshots import placed, pool_of, reasons

from detlab_hub.core.scheduling import Agent, AgentState, Constraints, Fitting, SchedulerTask, TaskState, schedule
from detlab_hub.core.scheduling.limits import count_bytes

ONE = {"j": {}}


def first_by_hash(task: str, agents: list[str]) -> str:
    """As the definition says it, not as the code computes it."""

    def number(name: str) -> int:
        return int.from_bytes(hashlib.md5(name.encode()).digest()[:8], "little")

    return min(agents, key=lambda agent: ((number(task) - number(agent)) % 2**64, agent))


def test_best_fit_takes_the_fullest_agent_that_has_room() -> None:
    pool = pool_of({"a": 8, "b": 4, "c": 2}, ONE, {"t": ("j", 2)}, {"r": ("j", {"b": 1})})
    assert placed(schedule(pool)) == {"t": {"c": 2}}
    pool = pool_of({"a": 8, "b": 4}, ONE, {"t": ("j", 2)}, {"r": ("j", {"b": 1})})
    assert placed(schedule(pool)) == {"t": {"b": 2}}


def test_worst_fit_takes_the_agent_with_the_largest_free_share() -> None:
    pool = pool_of({"a": 8, "b": 4}, ONE, {"t": ("j", 2)}, {"r": ("j", {"a": 3})}, fitting=Fitting.WORST)
    assert placed(schedule(pool)) == {"t": {"b": 2}}
    pool = pool_of({"a": 8, "b": 4}, ONE, {"t": ("j", 2)}, {"r": ("j", {"b": 2})}, fitting=Fitting.WORST)
    assert placed(schedule(pool)) == {"t": {"a": 2}}


@pytest.mark.parametrize("fitting", list(Fitting))
@pytest.mark.parametrize("slots", [0, 1, 4])
def test_equal_agents_are_told_apart_by_the_md5_of_both_names(fitting: Fitting, slots: int) -> None:
    names = [f"agent-{n}" for n in range(20)]
    for number in range(40):
        task = f"7.{number}.1"
        pool = pool_of(dict.fromkeys(names, 4), ONE, {task: ("j", slots)}, fitting=fitting)
        assert placed(schedule(pool)) == {task: {first_by_hash(task, names): slots}}


def test_tasks_without_slots_fill_one_agent_up_to_its_number() -> None:
    agents = {"a": Agent("a", 2, max_zero_slot_tasks=2), "b": Agent("b", 2, max_zero_slot_tasks=1)}
    decision = schedule(pool_of(agents, ONE, {f"t{n}": ("j", 0) for n in range(4)}))
    assert sorted(agent for placement in placed(decision).values() for agent in placement) == ["a", "a", "b"]
    assert list(reasons(decision).values()) == ["no_free_slots"]


def test_a_large_task_gets_whole_idle_agents_of_one_size_the_largest_first() -> None:
    pool = pool_of({"a": 4, "b": 4, "c": 8, "d": 2}, ONE, {"t": ("j", 16)})
    assert placed(schedule(pool)) == {}
    pool = pool_of({"a": 4, "b": 4, "c": 2, "d": 2, "e": 2, "f": 2}, ONE, {"t": ("j", 8)})
    assert placed(schedule(pool)) == {"t": {"a": 4, "b": 4}}


def test_which_of_many_idle_agents_goes_by_the_hash() -> None:
    names = [f"n{n}" for n in range(6)]
    decision = schedule(pool_of(dict.fromkeys(names, 4), ONE, {"t": ("j", 8)}))
    first = first_by_hash("t", names)
    second = first_by_hash("t", [name for name in names if name != first])
    assert placed(decision) == {"t": {first: 4, second: 4}}


def test_unequal_agents_only_where_the_pool_says_so() -> None:
    agents, pending = {"a": 8, "b": 4}, {"t": ("j", 12)}
    decision = schedule(pool_of(agents, ONE, pending))
    assert reasons(decision) == {"t": "too_large"}
    assert placed(schedule(pool_of(agents, ONE, pending, heterogeneous=True))) == {"t": {"a": 8, "b": 4}}


def test_partly_used_agents_make_up_a_large_task_too() -> None:
    pool = pool_of({"a": 4, "b": 4}, ONE, {"t": ("j", 6)}, {"r": ("j", {"a": 1})})
    assert placed(schedule(pool)) == {"t": {"a": 3, "b": 3}}
    pool = pool_of({"a": 4, "b": 4}, ONE, {"t": ("j", 6)}, {"r": ("j", {"a": 2})})
    assert reasons(schedule(pool)) == {"t": "fragmented"}
    pool = pool_of({"a": 4, "b": 4}, ONE, {"t": ("j", 6)}, {"r": ("j", {"a": 2})}, heterogeneous=True)
    assert placed(schedule(pool)) == {"t": {"b": 4, "a": 2}}


def test_a_task_for_one_node_is_not_divided() -> None:
    task = SchedulerTask("t", "j", 8, single_node=True)
    decision = schedule(pool_of({"a": 4, "b": 4}, ONE, {"t": task}))
    assert reasons(decision) == {"t": "too_large"}
    assert "the largest agent has" in decision.waiting["t"].detail


def test_blocked_nodes_and_agents_that_take_nothing_new_are_left_out() -> None:
    task = SchedulerTask("t", "j", 2, blocked_nodes=frozenset({"a"}))
    assert placed(schedule(pool_of({"a": 2, "b": 8}, ONE, {"t": task}))) == {"t": {"b": 2}}
    decision = schedule(pool_of({"a": 2}, ONE, {"t": task}))
    assert reasons(decision) == {"t": "no_suitable_agent"}
    for state in (AgentState.DISABLED, AgentState.DRAINING, AgentState.SUSPECT):
        decision = schedule(pool_of({"a": Agent("a", 4, state=state)}, ONE, {"t": ("j", 2)}))
        assert reasons(decision) == {"t": "agents_unavailable"}


@pytest.mark.parametrize(
    ("wanted", "where"),
    [
        (Constraints(gpu="h100"), "b"),
        (Constraints(memory=60 * 2**30), "b"),
        (Constraints(labels=frozenset({("rack", "7")})), "c"),
        (Constraints(slot_type="cpu"), "c"),
        (Constraints(gpu="A100", memory=40 * 2**30), "a"),
    ],
)
def test_constraints_choose_the_agent(wanted: Constraints, where: str) -> None:
    agents: dict[str, int | Agent] = {
        "a": Agent("a", 8, slot_type="cuda", gpu="NVIDIA A100-SXM4-40GB", memory=40 * 2**30),
        "b": Agent("b", 8, slot_type="cuda", gpu="NVIDIA H100 80GB HBM3", memory=80 * 2**30),
        "c": Agent("c", 8, slot_type="cpu", labels={"rack": "7"}),
    }
    assert placed(schedule(pool_of(agents, ONE, {"t": SchedulerTask("t", "j", 1, constraints=wanted)}))) == {
        "t": {where: 1}
    }


def test_a_constraint_that_nothing_meets_is_named() -> None:
    agents: dict[str, int | Agent] = {"a": Agent("a", 8, gpu="T4", labels={"rack": "7"})}
    wanted = Constraints(gpu="T4", labels=frozenset({("rack", "8")}))
    decision = schedule(pool_of(agents, ONE, {"t": SchedulerTask("t", "j", 1, constraints=wanted)}))
    assert decision.waiting["t"].code == "no_suitable_agent"
    assert decision.waiting["t"].detail == "no agent has the labels rack=8"
    decision = schedule(pool_of({}, ONE, {"t": ("j", 1)}))
    assert reasons(decision) == {"t": "no_agent"}


def test_what_waits_is_told_with_what_it_could_start() -> None:
    pool = pool_of({"a": 8, "b": 8}, ONE, {"t": ("j", 8)}, {"r": ("j", {"a": 4}), "s": ("j", {"b": 7})})
    decision = schedule(pool)
    assert decision.waiting["t"].code == "no_free_slots"
    assert decision.waiting["t"].detail == "needs 8 slots: 5 of 16 free; would start now with 4 slots"


def test_a_gpus_model_is_a_word_of_its_name() -> None:
    agents: dict[str, int | Agent] = {"a": Agent("a", 8, gpu="NVIDIA A100-SXM4-40GB")}
    task = SchedulerTask("t", "j", 1, constraints=Constraints(gpu="A10"))
    assert reasons(schedule(pool_of(agents, ONE, {"t": task}))) == {"t": "no_suitable_agent"}


def test_parts_of_agents_of_equal_score_go_by_the_hash_whatever_their_size() -> None:
    agents = {"a0": 4, "a1": 8, "a2": 2, "a4": 2}
    running = {"r": ("j", {"a0": 2}), "s": ("j", {"a1": 6})}
    left = list(agents)
    expected = []
    for _ in range(3):
        expected.append(first_by_hash("t", left))
        left.remove(expected[-1])
    decision = schedule(pool_of(agents, ONE, {"t": ("j", 3)}, running))
    assert placed(decision) == {"t": dict.fromkeys(expected, 1)}


def test_slots_kept_for_others_are_not_told_to_be_missing() -> None:
    jobs = {"h": {"priority": 1}, "m": {"priority": 5}, "l": {"priority": 9}}
    pending = {"big": ("h", 4), "kept": SchedulerTask("kept", "m", 2, preemptible=False), "t": ("l", 2)}
    fixed = SchedulerTask("r", "h", 2, TaskState.RUNNING, on={"a": 2}, preemptible=False)
    decision = schedule(pool_of({"a": 4}, jobs, pending, {"r": fixed}, preemption=True))
    assert reasons(decision) == {"big": "no_free_slots", "kept": "behind", "t": "behind"}
    assert "reserved for tasks ahead of it" in decision.waiting["t"].detail


def test_an_agent_that_came_back_with_less_memory_than_is_held_takes_only_what_asks_for_none() -> None:
    agents: dict[str, int | Agent] = {"a": Agent("a", 4, millicpus=4000, host_memory=8 << 30)}
    running = {"r": SchedulerTask("r", "j", 1, TaskState.RUNNING, on={"a": 1}, memory=12 << 30)}
    pending = {
        "some": SchedulerTask("some", "j", 1, memory=1 << 30),
        "cpus": SchedulerTask("cpus", "j", 1, millicpus=4000),
        "none": SchedulerTask("none", "j", 1),
    }
    decision = schedule(pool_of(agents, {"j": {}}, pending, running))
    assert placed(decision) == {"cpus": {"a": 1}, "none": {"a": 1}}
    assert reasons(decision) == {"some": "no_free_resources"}


def test_one_victim_with_the_memory_goes_and_not_several_with_the_slots() -> None:
    agents: dict[str, int | Agent] = {"a": Agent("a", 4, host_memory=32 << 30)}
    running = {
        "large": SchedulerTask("large", "low", 1, TaskState.RUNNING, on={"a": 1}, memory=24 << 30),
        **{
            f"r{n}": SchedulerTask(f"r{n}", "low", 1, TaskState.RUNNING, on={"a": 1}, requested=n + 1.0)
            for n in range(3)
        },
    }
    pending = {"p": SchedulerTask("p", "high", 1, memory=16 << 30)}
    jobs = {"high": {"priority": 10}, "low": {"priority": 50}}
    assert schedule(pool_of(agents, jobs, pending, running, preemption=True)).release == ("large",)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 GiB"),
        (1, "1 byte"),
        (1000, "1000 bytes"),
        (1 << 20, "1 MiB"),
        ((8 << 30) + 5, "8 GiB"),
        (3 << 29, "1536 MiB"),
    ],
)
def test_memory_of_less_than_a_mebibyte_is_not_told_as_none(size: int, words: str) -> None:
    assert count_bytes(size) == words
