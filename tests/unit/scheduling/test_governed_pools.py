"""T12: what a policy needs is enforced wherever a task starts, in every order, also with preemption and backfill."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from pool_snapshots import after, meanwhile, random_snapshot, reasons, some_leaving

from detlab.schemas.wire.governance.capabilities import ENFORCED
from detlab_hub.backends.instances.configuration import largest_growth
from detlab_hub.core.scheduling import (
    ANYWHERE,
    Agent,
    Job,
    Pool,
    SchedulerTask,
    Snapshot,
    TaskState,
    hand_over,
    read_governance,
    read_pools,
    schedule,
)
from detlab_hub.core.scheduling.governing import GovernedMounts, read_governed_mounts

DIRECT, LEDGER, ISOLATED = "gov.direct@1", "gov.ledger@1", "gov.isolated@1"
NAMES = (DIRECT, LEDGER, ISOLATED)


def governed(snapshot: Snapshot, seed: int) -> Snapshot:
    """The same, where some agents enforce something, and some tasks need it."""
    draw = random.Random(seed)

    def some(share: float) -> frozenset[str]:
        return frozenset(name for name in NAMES if draw.random() < share)

    agents = tuple(replace(agent, enforces=some(0.7)) for agent in snapshot.agents)
    tasks = tuple(replace(task, constraints=task.constraints._replace(requires=some(0.3))) for task in snapshot.tasks)
    return replace(snapshot, agents=agents, tasks=tasks)


def test_t12_no_governed_task_ever_starts_on_an_agent_that_does_not_enforce_it() -> None:
    started = 0
    for seed in range(1200):
        snapshot = governed(random_snapshot(seed), seed)
        snapshot = some_leaving(snapshot, seed) if seed % 3 == 0 else snapshot
        enforces = {agent.id: agent.enforces for agent in snapshot.agents}
        for later in (after, meanwhile, after):
            decision = schedule(snapshot)
            tasks = {task.id: task for task in snapshot.tasks}
            for name, placement in decision.allocate.items():
                needs = tasks[name].constraints.requires
                assert all(needs <= enforces[agent] for agent in placement), (seed, name)
                started += bool(needs)
            for name in decision.gathered:  # the slots that it is to get must be of some use to it
                assert any(tasks[name].constraints.requires <= held for held in enforces.values())
            snapshot = later(snapshot, decision)
    assert started > 200, "enough of them do start"


def test_t12_a_queue_gets_only_what_it_enforces() -> None:
    for seed in range(200):
        snapshot = governed(random_snapshot(seed), seed)
        mine = frozenset(random.Random(seed).sample(NAMES, seed % 4))
        taker = Agent("slurm", 0, enforces=mine)
        snapshot = replace(snapshot, agents=(*snapshot.agents, taker, Agent("slurm", 0)))
        tasks = {task.id: task for task in snapshot.tasks}
        decision = hand_over(snapshot, "slurm")
        assert all(tasks[name].constraints.requires <= mine for name in decision.allocate)
    needs = ANYWHERE._replace(requires=frozenset({DIRECT, LEDGER}))
    away = Snapshot(Pool(), (), {"j": Job("j")}, (SchedulerTask("t", "j", constraints=needs),))
    reason = hand_over(away, "slurm").waiting["t"].detail
    assert reason.startswith("governance: slurm does not enforce gov.direct@1, gov.ledger@1;")


@pytest.mark.parametrize(
    ("enforces", "missing"),
    [
        ([frozenset()], DIRECT),
        ([frozenset({DIRECT})], LEDGER),
        ([frozenset({DIRECT}), frozenset({LEDGER})], LEDGER),
    ],
)
def test_the_reason_names_the_missing_capability(enforces: list[frozenset[str]], missing: str) -> None:
    needs = ANYWHERE._replace(requires=frozenset({DIRECT, LEDGER}))
    agents = tuple(Agent(f"a{n}", 4, enforces=one) for n, one in enumerate(enforces))
    snapshot = Snapshot(Pool(), agents, {"j": Job("j")}, (SchedulerTask("t", "j", constraints=needs),))
    decision = schedule(snapshot)
    assert reasons(decision) == {"t": "no_suitable_agent"}
    assert f"governance: no agent enforces {missing}" in decision.waiting["t"].detail


def test_nobody_is_preempted_on_an_agent_that_would_be_of_no_use() -> None:
    needs = ANYWHERE._replace(requires=frozenset({DIRECT}))
    urgent = SchedulerTask("urgent", "first", constraints=needs)
    runs = [SchedulerTask(f"r{n}", "last", 1, TaskState.RUNNING, on={f"a{n}": 1}) for n in (0, 1)]
    agents = (Agent("a0", 1), Agent("a1", 1, enforces=frozenset({DIRECT})))
    jobs = {"first": Job("first", priority=1), "last": Job("last", priority=90)}
    decision = schedule(Snapshot(Pool(preemption=True), agents, jobs, (urgent, *runs)))
    assert decision.release == ("r1",)


# --- what operators declare


def test_a_pool_enforces_what_it_declares_and_its_agents_attest() -> None:
    anything = read_governance({})
    assert anything.enforced(ENFORCED, {}) == ENFORCED
    assert anything.enforced((), {}) == frozenset()
    assert anything.lacks([ISOLATED]) == []
    direct = read_governance({"levels": ["direct"], "ttl": 60})
    assert direct.ttl == 60.0
    assert direct.enforced(ENFORCED, {}) == {DIRECT, LEDGER}
    assert direct.enforced((), {}) == frozenset()
    assert direct.lacks([ISOLATED, DIRECT]) == [ISOLATED]
    assert read_governance({"levels": ["direct"], "signing": False}).enforced(ENFORCED, {}) == {DIRECT}
    assert read_governance({"engines": ["dual"], "attestation": False}).enforced((), {}) == {"gov.dual@1", LEDGER}
    nothing = read_governance(None)
    assert nothing.enforced(ENFORCED, {}) == frozenset()
    assert nothing.lacks([DIRECT]) == [DIRECT]


def test_a_node_counts_only_with_the_label_that_it_cannot_set_itself() -> None:
    label = "node-restriction.kubernetes.io/governed=yes"
    pool = read_governance({"node_label": label})
    name, _, value = label.partition("=")
    assert pool.enforced(ENFORCED, {name: value}) == ENFORCED
    assert pool.enforced(ENFORCED, {name: "no"}) == pool.enforced(ENFORCED, {}) == frozenset()


def test_instances_of_an_elastic_pool_are_launched_for_what_they_will_enforce_and_for_nothing_else() -> None:
    provider = {"type": "local", "slots": 1, "max_instances": 2}
    said = {
        "any": {"provider": provider},
        "direct": {"provider": provider, "governance": {"levels": ["direct", "dp"]}},
        "none": {"provider": provider, "governance": None},
    }
    pools, errors = read_pools(said)
    assert errors == []
    grown = {name: largest_growth(pools.by_name[name])[0].enforces for name in said}
    # whether an instance will have Opacus only the operator knows, who names the level
    assert grown == {"any": ENFORCED, "direct": {DIRECT, "gov.dp@1", LEDGER}, "none": frozenset()}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("yes", "must be a mapping"),
        ({"level": ["direct"]}, "keys of attestation, engines, levels"),
        ({"levels": ["direkt"]}, "direct, isolated, dp"),
        ({"levels": "direct"}, "list of names"),
        ({"engines": [["fused"]]}, "list of names"),
        ({"ttl": 5}, "30 to 86400"),
        ({"ttl": float("nan")}, "30 to 86400"),
        ({"ttl": True}, "30 to 86400"),
        ({"signing": "no"}, "True or False"),
        ({"attestation": False}, "nothing else says"),
        ({"node_label": "governed=yes"}, "node-restriction.kubernetes.io/NAME=VALUE"),
        ({"node_label": "node-restriction.kubernetes.io/a=b,c=d"}, "node-restriction"),
        ({"slurm_features": ["a|b"]}, "letters, digits"),
        ({"slurm_features": ["a&b"]}, "letters, digits"),
    ],
)
def test_mistakes_of_a_declaration_are_named(said: object, why: str) -> None:
    _, errors = read_pools({"gpu": {"governance": said}})
    (error,) = errors
    assert error.startswith("pools['gpu']['governance']:")
    assert why in error


def test_a_pool_that_does_not_exist_enforces_nothing() -> None:
    pools, errors = read_pools({"gpu": {"governance": {"levels": ["direct"]}}})
    assert errors == []
    assert pools.governance_in("gpu").enforces == {DIRECT, LEDGER}
    assert pools.governance_in("nowhere").enforced(ENFORCED, {}) == frozenset()


@pytest.mark.parametrize(
    "config",
    [
        {"bind_mounts": [{"host_path": "/srv/patients", "container_path": "/data"}]},
        {"bind_mounts": [{"host_path": "/srv/patients/2024/", "container_path": "/data"}]},
        {"bind_mounts": [{"host_path": "/srv", "container_path": "/data"}]},
        {"bind_mounts": [{"host_path": "/", "container_path": "/data"}]},
        {"bind_mounts": [{"host_path": "/tmp/../srv/./patients", "container_path": "/data"}]},
        {"bind_mounts": [{"host_path": "//srv//patients", "container_path": "/data"}]},
        {"resources": {"devices": [{"host_path": "/srv/patients/disk"}]}},
        {"checkpoint_storage": {"type": "shared_fs", "host_path": "/srv/patients"}},
        {"environment": {"pod_spec": {"spec": {"volumes": [{"hostPath": {"path": "/srv/patients"}}]}}}},
    ],
)
def test_what_mounts_governed_data_needs_what_its_place_needs(config):
    mounts, errors = read_governed_mounts({"/srv/patients/": ["gov.ledger@1"], "pvc:genomes": ["gov.direct@1"]})
    assert not errors
    assert mounts.required_by(config) == {"gov.ledger@1"}
    assert mounts.mounted_by(config) == ["/srv/patients"]
    assert GovernedMounts().required_by(config) == frozenset()


def test_agents_are_told_of_the_directories_that_a_task_is_not_placed_for():
    mounts, _ = read_governed_mounts(
        {"/srv/b": ["gov.ledger@1"], "/srv/a": ["gov.direct@1"], "pvc:c": ["gov.direct@1"]}
    )
    assert mounts.closed_to([]) == ["/srv/a", "/srv/b"]
    assert mounts.closed_to(["gov.ledger@1", "gov.dual@1"]) == ["/srv/a"]
    assert mounts.closed_to(["gov.ledger@1", "gov.direct@1"]) == []


def test_claims_of_volumes_are_told_by_name_and_what_is_beside_needs_nothing():
    mounts, _ = read_governed_mounts({"/srv/patients": ["gov.ledger@1"], "pvc:genomes": ["gov.direct@1"]})

    def pod(*volumes: object) -> dict[str, object]:
        return {"environment": {"pod_spec": {"spec": {"volumes": [*volumes]}}}}

    claim = {"persistentVolumeClaim": {"claimName": "genomes"}}
    assert mounts.required_by(pod({"name": "a", "emptyDir": {}}, claim)) == {"gov.direct@1"}
    both = pod(claim, {"hostPath": {"path": "/srv"}}) | {"resources": {"requires": ["gov.dual@1"]}}
    assert mounts.required_by(both) == {"gov.direct@1", "gov.ledger@1", "gov.dual@1"}
    beside = [{"host_path": one} for one in ("/srv/patients2", "/srv/patient", "/srv/other", "/srvpatients", "genomes")]
    assert (
        mounts.required_by({"bind_mounts": beside} | pod({"persistentVolumeClaim": {"claimName": "genomes2"}})) == set()
    )
    odd = {
        "bind_mounts": "/srv/patients",
        "resources": [],
        "checkpoint_storage": "x",
        **pod("/srv", {"hostPath": "/srv"}),
    }
    assert mounts.required_by({**odd, "resources": {"devices": 3}}) == frozenset(), "that is refused elsewhere"
    for empty in ({}, {"environment": None, "resources": None, "checkpoint_storage": None, "bind_mounts": None}):
        assert mounts.required_by(empty) == frozenset()


def test_all_mistakes_of_governed_mounts_are_said_at_once():
    said = {
        "srv": ["gov.ledger@1"],
        "/srv/../etc": ["gov.ledger@1"],
        "pvc:A B": ["gov.ledger@1"],
        "/a": [],
        "/b": "gov.ledger@1",
        "/c": ["x"],
    }
    found, errors = read_governed_mounts(said)
    assert (found.by_place, len(errors)) == ({}, 6)
    assert "neither an absolute path nor pvc:NAME" in errors[0]
    assert "'/c' needs a list of what pools must enforce: gov.direct@1" in errors[-1]
