"""`det cluster simulate` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from detlab_hub.cluster_simulation import cluster_simulate
from detlab_hub.core.scheduling import ReasonCode
from detlab_hub.scenario import read_scenario

FULL = """
pool: {scheduler: priority, preemption: true, fitting: best, heterogeneous: false}
agents: [{id: a1, slots: 4, labels: {}, max_zero_slot_tasks: 100, state: enabled, gpu: H100, memory: 80G}]
jobs:   [{id: j1, priority: 50, weight: 1, max_slots: null, submitted: 1, position: null},
         {id: j2, priority: 10}]
tasks:  [{id: t1, job: j1, slots: 2, state: pending, requested: 1},
         {id: t2, job: j1, slots: 4, state: running, on: {a1: 4}, preemptible: true, blocked_nodes: [],
          single_node: false},
         {id: t3, job: j2, slots: 4, user: ada, constraints: {gpu: h100, memory: 40GiB}, max_time: 60}]
quotas: [{user: ada, slots: 4}]
"""


def simulate(text: str, *options: str) -> tuple[int, str, str]:
    """Run the command on a scenario from standard input; return its status and what it said."""
    result = CliRunner().invoke(cluster_simulate, ["-", *options], input=text)
    return result.exit_code, result.stdout, result.stderr


def test_the_decision_as_json() -> None:
    status, out, _ = simulate(FULL, "--json")
    assert status == 0
    found = json.loads(out)
    assert found["allocate"] == {}
    assert found["release"] == ["t2"]
    assert found["waiting"] == {
        "t3": {"reason": "releasing", "detail": "waits for t2 to release their slots"},
        "t1": {"reason": "no_free_slots", "detail": "needs 2 slots: none of 4 free"},
    }


def test_the_decision_as_a_table() -> None:
    status, out, _ = simulate(FULL)
    assert status == 0
    assert "gives back" in out
    assert "releasing: waits for t2" in out
    head, rule, *_ = out.splitlines()
    assert head.split() == ["Task", "Job", "Slots", "What", "happens", "Why,", "where"]
    assert set(rule.strip()) == {"─"}, "as the tables of all other commands"


def test_the_table_has_no_colours_where_it_is_read_by_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel says in the environment of what it starts that colours are wanted."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in simulate(FULL)[1]


def test_names_in_a_scenario_do_not_control_the_terminal() -> None:
    status, out, _ = simulate(FULL.replace("t3", '"t\\e[31m3"'))
    assert status == 0
    assert "\x1b" not in out


def test_everything_but_ids_and_slots_has_a_default(tmp_path: Path) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text("agents: [{id: a, slots: 2}]\njobs: [{id: j}]\ntasks: [{id: t, job: j}]")
    result = CliRunner().invoke(cluster_simulate, [str(path), "--json"])
    assert json.loads(result.stdout) == {"allocate": {"t": {"a": 1}}, "release": [], "waiting": {}}
    status, out, said = simulate("{}")
    assert (status, out, said) == (0, "", "Nothing waits.\n")


def test_all_mistakes_are_told_at_once_with_their_places() -> None:
    text = """
pool: {scheduler: lottery, speed: 3}
agents: [{id: a, slots: -1}, {id: b, slots: two}]
jobs: [{id: j, priority: 100, weight: 0}]
tasks: [{id: t, job: j, state: asleep, max_time: .nan}]
extra: 1
"""
    status, out, said = simulate(text)
    assert (status, out) == (2, "")
    for place in (
        "pool.scheduler", "pool.speed: is not a field", "agents[0].slots", "agents[1].slots", "jobs[0].priority",
        "jobs[0].weight", "tasks[0].state", "tasks[0].max_time", "extra: is not a field",
    ):  # fmt: skip
        assert place in said


@pytest.mark.parametrize(
    ("tasks", "mistake"),
    [
        ("{id: t, job: k}", "tasks[0].job: there is no job 'k'"),
        ("{id: t, job: j}, {id: t, job: j}", "tasks: 't' is there 2 times"),
        ("{id: t, job: j, on: {a: 1}}", "tasks[0].on: a pending task is on no agent"),
        ("{id: t, job: j, state: running}", "tasks[0].on: a running task says how many slots"),
        ("{id: t, job: j, state: running, on: {x: 1}}", "tasks[0].on: there is no agent 'x'"),
        ("{id: t, job: j, slots: 2, state: running, on: {a: 1}}", "tasks[0].on: gives 1 slots, the task has 2"),
        (
            "{id: t, job: j, constraints: {affinity: {required: [{label: z}]}}}",
            "affinity.required[0]: needs one of one_of, none_of and exists; it has none of them",
        ),
        (
            "{id: t, job: j, constraints: {affinity: {preferred: [{label: z, one_of: a, exists: true}]}}}",
            "affinity.preferred[0]: needs one of one_of, none_of and exists; it has one_of and exists",
        ),
        ("{id: t, job: j, slots: 3, state: running, on: {a: 3}}", "hold 3 slots of agent 'a', which has 2"),
    ],
)
def test_contradictions_are_told(tasks: str, mistake: str) -> None:
    status, _, said = simulate(f"agents: [{{id: a, slots: 2}}]\njobs: [{{id: j}}]\ntasks: [{tasks}]")
    assert status == 2
    assert mistake in said


RULES = """
agents: [{id: a, slots: 2, labels: {zone: a, disk: nvme}}, {id: b, slots: 1, labels: {zone: b}}]
jobs: [{id: j}]
tasks: [{id: t, job: j, constraints: {affinity: {preferred: [{label: disk, one_of: nvme, weight: 50}]}}},
        {id: u, job: j, requested: 1, constraints: {affinity: {required: [{label: zone, none_of: [a, 7]}]}}},
        {id: v, job: j, requested: 2, constraints: {affinity: {required: [{label: zone, one_of: [c, d]},
                                                                          {label: disk, exists: true}]}}}]
"""


def test_rules_for_labels_count_in_a_scenario() -> None:
    found = json.loads(simulate(RULES, "--json")[1])
    assert found["allocate"] == {"t": {"a": 1}, "u": {"b": 1}}
    why = {
        "reason": "no_suitable_agent",
        "detail": "no agent has label zone in {c, d} among those that meet its other demands; a has zone=a",
    }
    assert found["waiting"] == {"v": why}
    wrong = (
        "tasks: [{id: t, job: j, constraints: {affinity: {wanted: [], preferred: [{label: x, in: [y], weight: 200}]}}}]"
    )
    said = simulate(f"jobs: [{{id: j}}]\n{wrong}")[2]
    for place in ("wanted: is not a field", "preferred[0].in: is not a field", "preferred[0].weight"):
        assert f"tasks[0].constraints.affinity.{place}" in said


def test_a_rule_that_a_scenario_says_twice_counts_twice() -> None:
    like = "{label: disk, one_of: nvme, weight: 30}"
    said = f"""
agents: [{{id: a, slots: 1, labels: {{zone: a}}}}, {{id: b, slots: 1, labels: {{disk: nvme}}}}]
jobs: [{{id: j}}]
tasks: [{{id: t, job: j, constraints: {{affinity: {{
  preferred: [{like}, {{label: zone, exists: true, weight: 50}}, {like}]}}}}}}]
"""
    assert json.loads(simulate(said, "--json")[1])["allocate"] == {"t": {"b": 1}}


SHARED = """
pool: {slots_per_device: 4}
agents: [{id: a, slots: 2, gpu: H100, memory: 80G}]
jobs: [{id: j}]
tasks: [{id: held, job: j, slots: 5, state: running, on: {a: 5}},
        {id: small, job: j, slots: 2, requested: 1, constraints: {memory: 20G}},
        {id: large, job: j, slots: 1, requested: 2, constraints: {memory: 40G}},
        {id: whole, job: j, slots: 4, requested: 3}]
"""


def test_devices_that_are_shared_count_by_their_shares() -> None:
    """The scheduler counts shares as slots; an agent says its devices, and the memory of one."""
    found = json.loads(simulate(SHARED, "--json")[1])
    assert found["allocate"] == {"small": {"a": 2}}
    assert {name: why["reason"] for name, why in found["waiting"].items()} == {
        "large": "no_suitable_agent", "whole": "no_free_slots"
    }  # fmt: skip
    assert "hold 9 slots of agent 'a', which has 8" in simulate(SHARED.replace("5", "9"))[2]
    for wrong in ("0", "65", "x"):
        assert "pool.slots_per_device" in simulate(f"pool: {{slots_per_device: {wrong}}}")[2]


def test_a_quota_is_of_a_user_or_of_a_group() -> None:
    assert "quotas[0]: needs either user or group" in simulate("quotas: [{slots: 1}]")[2]
    assert "quotas[0]: needs either user or group" in simulate("quotas: [{slots: 1, user: a, group: b}]")[2]


@pytest.mark.parametrize("text", ["pool: [", "- 1", "pool: {scheduler: priority, scheduler: priority}"])
def test_what_is_no_scenario_at_all_is_told(text: str) -> None:
    snapshot, problems = read_scenario(text, "pool.yaml")
    assert snapshot is None
    assert problems
    assert simulate(text)[0] == 2


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    path = tmp_path / "pool.yaml"
    path.write_bytes(b"pool: \xff")
    result = CliRunner().invoke(cluster_simulate, [str(path)])
    assert result.exit_code == 2
    assert "pool.yaml: is not UTF-8 text" in result.stderr


def test_the_reference_names_every_reason() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/scheduling.md").read_text(encoding="utf-8")
    told = [line.split("`")[1] for line in page.partition("## Reasons")[2].splitlines() if line.startswith("| `")]
    assert told == [code.value for code in ReasonCode]


def test_nulls_numbers_for_names_and_short_quotas_are_read() -> None:
    text = """
pool:
agents: [{id: 1, slots: 2, labels: {rack: 7, ssd: true}, gpu: null, memory: null, state: null}]
jobs: [{id: 2, priority: null, weight: null}]
tasks:
  - {id: 3, job: 2, slots: null, on: null, groups: vision, constraints: {labels: {rack: 7, ssd: true}}, max_time: 0}
  - {id: 4, job: 2, user: ada, slots: 2.0}
quotas: {users: {ada: 1}, groups: {vision: 1}}
"""
    found = json.loads(simulate(text, "--json")[1])
    assert found["allocate"] == {"3": {"1": 1}}
    assert found["waiting"]["4"]["reason"] == "over_quota"
    assert simulate("tasks:\nquotas:\nagents:\njobs:")[0] == 0


@pytest.mark.parametrize(
    "text",
    [
        "jobs: [{id: j, weight: 1.0e+308}]",
        f"agents: [{{id: a, slots: 1, memory: '{'9' * 400}.5T'}}]",
        "quotas: {users: [ada]}",
        "quotas: {ada: {slots: x}}",
        "tasks: [[]]",
        "agents: 3",
    ],
)
def test_odd_input_is_told_not_raised(text: str) -> None:
    status, _, said = simulate(text)
    assert status == 2
    assert said


DEMANDS = """
agents: [{id: a, slots: 8, cpus: 16, host_memory: 64GiB, memory: 80G, gpu: H100}, {id: b, slots: 8}]
jobs:   [{id: j}]
tasks:  [{id: t1, job: j, slots: 2, state: running, on: {a: 2}, cpus: 4, memory: 48GiB},
         {id: t2, job: j, slots: 2, blocked_nodes: b, memory: 32GiB, single_node: true},
         {id: t3, job: j, slots: 0, blocked_nodes: b, cpus: 12.5},
         {id: t4, job: j, slots: 1, blocked_nodes: b, memory: 65GiB},
         {id: t5, job: j, slots: 1, cpus: 500, memory: 2T}]
"""


def test_cpus_and_memory_count() -> None:
    status, out, _ = simulate(DEMANDS, "--json")
    found = json.loads(out)
    assert status == 0
    assert found["allocate"] == {"t5": {"b": 1}}, "an agent that says nothing has any amount"
    assert found["waiting"] == {
        "t2": {
            "reason": "no_free_resources",
            "detail": "waits for 32 GiB of memory on one agent: an agent with room for its slots has at most 16 GiB"
            " free; would start now with memory 16 GiB",
        },
        "t3": {
            "reason": "no_free_resources",
            "detail": "waits for 12.5 CPUs on one agent: an agent has at most 12 CPUs free; would start now with"
            " cpus 12",
        },
        "t4": {
            "reason": "too_large",
            "detail": "needs 1 slot with 65 GiB of memory on one agent; an agent that suits it has at most 64 GiB",
        },
    }


def test_what_runs_holds_no_more_cpus_and_memory_than_there_are() -> None:
    status, _, said = simulate(DEMANDS.replace("cpus: 4, memory: 48GiB", "cpus: 17, memory: 65GiB"))
    assert status != 0
    assert "hold 17 CPUs of agent 'a', which has 16" in said
    assert "bytes of memory of agent 'a'" in said
