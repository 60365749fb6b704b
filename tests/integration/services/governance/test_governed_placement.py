"""A governed trial starts only where a fresh attestation says that its policy is enforced, and a pre-flight agrees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from governed_world import CODE, POLICY, GovernedTrialDouble, declared, idle
from services_scripted import ALICE, ROOT, Op, ScriptedAgent, World, config

from detlab.errors import Conflict, Unavailable
from detlab.governance.attestation import attest, key_of, mac_of
from detlab.schemas.taskwire import CreateTask, SpawnRequest, TaskKind
from detlab.schemas.wire import (
    CreateExperiment,
    Heartbeat,
    Launch,
    MasterMessage,
    NodeHello,
    Welcome,
)
from detlab.schemas.wire.configs.templates import SetTemplate
from detlab.schemas.wire.governance.attestation import Attestation
from detlab_hub.core.scheduling import read_pools
from detlab_hub.core.scheduling.governing import read_governed_mounts
from detlab_hub.services.admission.configs.templates import Templates
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.base.callers import AgentCaller, HubCaller
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.governance.reading import EvidenceReading
from detlab_hub.services.usertasks.spawns import Spawns
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.queries import tokens

TTL = 60.0


@dataclass
class AttestingAgent(ScriptedAgent):
    """An agent with a key of its own, which answers challenges as it is told."""

    token: str = ""
    answers: bool = True
    code: list[str] = field(default_factory=lambda: [CODE])
    enforces: list[str] | None = None
    signs_with: str | None = None
    nonces: list[str] = field(default_factory=list)

    async def connect(self) -> None:
        self.inbox.clear()
        caller = AgentCaller(self.name, tokens.digest(self.token))
        self.session = await self.world.services[Agents].connect(caller, self.hello(), self.inbox.append)
        self.online = True

    async def _hear(self, message: MasterMessage) -> None:
        nonce = message.nonce if isinstance(message, Welcome | Heartbeat) else ""
        if nonce:
            self.nonces.append(nonce)
            if self.answers:
                await self._say(Heartbeat(time=self.world.now, attestation=self.attestation(nonce)))
        await super()._hear(message)

    def attestation(self, nonce: str) -> Attestation:
        said = attest(nonce, cluster_id=self.world.settings.cluster_id, agent_id=self.name, token=self.token)
        told: dict[str, Any] = {"code": self.code}
        if self.enforces is not None:
            told["enforces"] = self.enforces
        said = said.model_copy(update=told)
        mac = mac_of(said, key_of(self.token if self.signs_with is None else self.signs_with))
        return said.model_copy(update={"mac": "" if self.signs_with == "" else mac})


async def attesting(world: World, name: str = "node", slots: int = 1, **more: Any) -> AttestingAgent:
    token = await world.services.context.write(lambda unit: tokens.issue(unit.session, "agent", name, None, unit.now))
    agent = AttestingAgent(world, name, slots, token=token, **more)
    world.agents[name] = agent
    await agent.connect()
    return agent


async def made(make_world, said: dict[str, Any] | None = None) -> World:
    pools, errors = read_pools({"default": {"governance": {"ttl": TTL} if said is None else said}})
    assert not errors
    return await make_world(idle, pools=pools)


async def waiting(world: World) -> str:
    await world.steps(2)
    (reason,) = world.services.context.pending_reasons.values()
    return reason


async def steps_with_heartbeats(world: World, count: int) -> None:
    for _ in range(count):
        world.services[Agents].heartbeat()
        await world.step(TTL / 8)


async def running(world: World, agent: ScriptedAgent, block: dict[str, Any] = POLICY) -> GovernedTrialDouble:
    await world.steps(3)
    (task,) = agent.tasks.values()
    double = GovernedTrialDouble(world, task, block)
    await double.record()
    return double


async def test_it_starts_where_the_agent_attests_and_its_evidence_says_that(make_world):
    world = await made(make_world)
    agent = await attesting(world)
    await world.submit(config(governance=POLICY))
    trial = await running(world, agent)
    assert await trial.preflight() == []
    uuid = await trial.save(5)
    said = (await world.services[EvidenceReading].of_checkpoint(ALICE, uuid)).predicate["preflight"]
    assert said["nodes"]["node"]["code"] == said["report"]["code"] == [CODE]
    (view,) = await world.services[Agents].list(ALICE)
    assert (view.attestation, "gov.direct@1" in view.enforces) == ("fresh", True)


@pytest.mark.parametrize(
    ("how", "attestation"),
    [
        ({"answers": False}, "missing"),
        ({"signs_with": ""}, "not signed"),
        ({"signs_with": "dtagent_stolen"}, "not that of the agent's key"),
        ({"code": []}, "names no code"),
        ({"enforces": ["gov.direct@1"]}, "fresh"),
    ],
)
async def test_an_attestation_that_is_missing_unsigned_or_too_little_starts_nothing(make_world, how, attestation):
    world = await made(make_world)
    agent = await attesting(world, **how)
    await world.submit(config(governance=POLICY))
    free = await world.submit(config())
    missing = "gov.ledger@1" if "enforces" in how else "gov.direct@1"
    assert f"governance: no agent enforces {missing}" in await waiting(world)
    assert [key[0].partition(".")[0] for key in agent.tasks] == [str(free.id)], "what needs nothing runs there"
    (view,) = await world.services[Agents].list(ALICE)
    assert attestation in view.attestation
    agent.answers, agent.signs_with, agent.code, agent.enforces = True, None, [CODE], None
    agent.tasks.popitem()[1].exited = True
    agent.session = None
    await world.steps(4)
    assert len(agent.launches) == 2, "as soon as it attests, it starts"


async def test_an_answer_to_an_earlier_challenge_is_a_replay(make_world):
    world = await made(make_world)
    agent = await attesting(world)
    await world.steps(2)
    old = agent.attestation(agent.nonces[0])
    agent.answers, agent.session = False, None
    await world.steps(2)
    assert len(set(agent.nonces)) == 2
    await agent.session.receive(Heartbeat(attestation=old))
    await world.submit(config(governance=POLICY))
    assert "no agent enforces gov.direct@1" in await waiting(world)
    (view,) = await world.services[Agents].list(ALICE)
    assert "answers another challenge" in view.attestation


async def test_a_stale_one_starts_nothing_new_and_is_renewed_in_time(make_world):
    world = await made(make_world)
    agent = await attesting(world)
    await steps_with_heartbeats(world, 20)
    assert len(agent.nonces) > 3, "it was challenged again and again"
    agent.answers = False
    await steps_with_heartbeats(world, 12)
    (view,) = await world.services[Agents].list(ALICE)
    assert (view.attestation, view.enforces) == ("stale", [])
    await world.submit(config(governance=POLICY))
    assert "no agent enforces gov.direct@1" in await waiting(world)
    agent.answers = True
    await steps_with_heartbeats(world, 6)
    assert len(agent.launches) == 1


async def test_a_master_that_restarts_believes_nothing_from_before(make_world):
    world = await made(make_world)
    agent = await attesting(world)
    await world.steps(2)
    agent.answers = False
    await world.reboot()
    await world.submit(config(governance=POLICY))
    assert "no agent enforces gov.direct@1" in await waiting(world)


async def test_a_pool_without_governance_never_gets_it_and_submit_says_so(make_world):
    pools, errors = read_pools({"default": {"governance": None}, "strict": {"governance": {"levels": ["isolated"]}}})
    assert not errors
    world = await make_world(idle, pools=pools)
    agent = await attesting(world)
    asked = await world.services[Experiments].create(ALICE, CreateExperiment(config=config(governance=POLICY)))
    (warning,) = [one for one in asked.warnings if "does not enforce" in one.message]
    assert "pool default does not enforce gov.direct@1, gov.ledger@1" in warning.message
    assert "no agent enforces gov.direct@1" in await waiting(world)
    assert not agent.launches


async def test_a_trial_that_has_loaded_other_code_is_refused_and_cannot_commit(make_world):
    world = await made(make_world)
    agent = await attesting(world)
    await world.submit(config(governance=POLICY))
    trial = await running(world, agent)
    ((code, message),) = await trial.preflight(code=["sha256:" + "d" * 64])
    assert (code, message.partition("…")[0]) == ("ENV", "the trial has loaded the code sha256:dddddddddddddddd")
    assert await trial.preflight() == [(code, message)], "a better report changes nothing for this attempt"
    with pytest.raises(Conflict, match="ENV") as refused:
        await trial.save(5)
    assert refused.value.code == "governance.env"
    entries = await world.services[Audit].page(ROOT, action="attempt.govern")
    assert [one.subject for one in entries.items] == [f"pre-flight of trial {trial.trial_id}"]


async def test_so_is_one_without_a_preflight_with_an_old_trainer_or_with_a_layer_that_leaks(make_world):
    world = await made(make_world)
    agent = await attesting(world)
    await world.submit(config(governance=POLICY))
    trial = await running(world, agent)
    with pytest.raises(Conflict, match="has not shown in a pre-flight"):
        await trial.save(5)
    leaks = [{"code": "ENV", "message": "pre-flight: body: samples that are closed to weight change its gradient"}]
    found = await trial.preflight(enforces=["gov.direct@1"], refusals=leaks)
    assert [message.partition(":")[0] for _, message in found] == [
        "pre-flight",
        "the trial's detlab 1 does not enforce gov.ledger@1",
    ]


async def test_a_node_that_lost_its_attestation_or_its_contact_is_told_apart(make_world):
    world = await made(make_world)
    agent = await attesting(world)
    await world.submit(config(governance=POLICY))
    trial = await running(world, agent)
    agent.drop()
    with pytest.raises(Unavailable, match="out of contact"):
        await trial.preflight()
    agent.answers = False
    await agent.connect()
    with pytest.raises(Unavailable, match="just connected"):
        await trial.preflight()
    await steps_with_heartbeats(world, 5)
    ((code, message),) = await trial.preflight()
    assert (code, "does not prove now that it enforces gov.direct@1" in message) == ("ENV", True)


async def test_of_an_agents_nodes_only_those_with_the_label_that_nodes_cannot_set_get_it(make_world):
    name = "node-restriction.kubernetes.io/governed"
    world = await made(make_world, {"node_label": f"{name}=yes", "ttl": TTL})
    agent = await attesting(world, "pods")
    nodes = [NodeHello(name=one, slot_count=1) for one in ("bad", "forged")]
    nodes.append(NodeHello(name="good", slot_count=1, labels={name: "yes"}))
    nodes[1].labels = {name: "no", "governed": "yes"}
    hello = agent.hello().model_copy(update={"slots": [], "nodes": nodes, "max_zero_slot_tasks": 0})
    agent.hello = lambda: hello
    agent.session = None
    for _ in range(2):
        await world.submit(config(governance=POLICY))
    await world.steps(5)
    assert [task.launch.node for task in agent.tasks.values()] == ["good"]
    views = {view.id: view.enforces for view in await world.services[Agents].list(ALICE)}
    assert "gov.direct@1" in views["pods/good"]
    assert views["pods/bad"] == views["pods/forged"] == []


async def test_the_launch_names_the_features_that_a_governed_jobs_nodes_must_have(make_world):
    world = await make_world(idle, pools=declared(levels=["direct"], attestation=False, slurm_features=["governed"]))
    agent = await world.add_agent(slots=2)
    await world.submit(config(governance=POLICY))
    await world.submit(config())
    await world.steps(3)
    assert sorted(task.launch.slurm_features for task in agent.tasks.values()) == [[], ["governed"]]


async def test_an_audited_policy_needs_nothing_of_its_pool(make_world):
    pools, _ = read_pools({"default": {"governance": None}})
    world = await make_world(idle, pools=pools)
    agent = await world.add_agent()
    block = {**POLICY, "enforce": "audit"}
    await world.submit(config(governance=block))
    trial = await running(world, agent, block)
    assert await trial.save(5)


async def test_a_task_may_ask_for_the_same_as_a_trial(make_world):
    def nothing(launch: Launch) -> Iterator[Op]:
        yield ("exit", 0)

    world = await make_world(nothing, pools=declared(levels=["isolated"]))
    await world.add_agent()
    await world.submit(config(resources={"slots_per_trial": 1, "requires": ["gov.ledger@1", "gov.direct@1"]}))
    assert "no agent enforces gov.direct@1" in await waiting(world)


MOUNT = {"bind_mounts": [{"host_path": "/srv/patients/2024", "container_path": "/data"}]}


async def test_whatever_mounts_governed_data_waits_for_a_pool_that_enforces_what_it_needs(make_world):
    mounts, _ = read_governed_mounts({"/srv/patients": ["gov.ledger@1"]})
    world = await make_world(idle, pools=declared(levels=["isolated"], signing=False), governed_mounts=mounts)
    agent = await world.add_agent()
    reply = await world.services[Experiments].create(ALICE, CreateExperiment(config=config(**MOUNT)))
    (warning,) = [one for one in reply.warnings if "does not enforce" in one.message]
    assert (
        "does not enforce gov.ledger@1: a trial of this experiment waits there; /srv/patients, which" in warning.message
    )
    command = CreateTask(kind=TaskKind.COMMAND, config={**MOUNT, "entrypoint": ["true"], "resources": {"slots": 0}})
    made = await world.services[UserTasks].create(ALICE, command)
    assert any("gov.ledger@1" in one.message for one in made.warnings)
    for kind in (TaskKind.NOTEBOOK, TaskKind.SHELL):
        spawn = SpawnRequest(owner="alice", server_name=kind.value, key=kind.value * 8, kind=kind, config=MOUNT)
        await world.services[Spawns].post(HubCaller(), spawn)
    await world.steps(3)
    assert agent.tasks == {}
    reasons = world.services.context.pending_reasons.values()
    assert [one for one in reasons if "no agent enforces gov.ledger@1" not in one] == []
    assert len(list(reasons)) == 4
    await world.submit(config(bind_mounts=[{"host_path": "/srv/public", "container_path": "/data"}]))
    await world.steps(3)
    assert len(agent.tasks) == 1


class DockerAgent(ScriptedAgent):
    """An agent that runs containers."""

    def hello(self) -> Any:
        return super().hello().model_copy(update={"runtimes": ["docker"]})


@pytest.mark.parametrize("by", ["the pool", "the cluster", "a template"])
async def test_a_mount_that_something_else_gave_counts_as_ones_own(make_world, by):
    places, _ = read_governed_mounts({"/srv/patients": ["gov.ledger@1"]})
    given = {"bind_mounts": [{"host_path": "/srv/public/../patients", "container_path": "/data"}]}
    said = {"governance": {"levels": ["isolated"], "signing": False, "attestation": False}}
    pools, errors = read_pools(
        {"default": {**said, **({"task_container_defaults": given} if by == "the pool" else {})}}
    )
    assert not errors
    more = {"task_container_defaults": given} if by == "the cluster" else {}
    world = await make_world(idle, pools=pools, governed_mounts=places, **more)
    agent = world.agents["node"] = DockerAgent(world, "node", 4)
    await agent.connect()
    named = {}
    if by == "a template":
        await world.services[Templates].set(ALICE, SetTemplate(name="data", config=given))
        named = {"template": "data"}
    runs = {"runtime": "docker", "environment": {"image": "i"}}
    command = {"entrypoint": ["true"], "resources": {"slots": 0}, **runs}
    made = await world.services[UserTasks].create(ALICE, CreateTask(kind=TaskKind.COMMAND, config=command, **named))
    assert any("/srv/patients, which" in one.message for one in made.warnings)
    await world.services[Experiments].create(ALICE, CreateExperiment(config=config(**runs), **named))
    await world.steps(3)
    assert agent.tasks == {}


async def test_agents_are_told_what_a_task_may_not_reach_by_links(make_world):
    said = {"/srv/patients": ["gov.ledger@1"], "/srv/free": ["gov.isolated@1"]}
    places, _ = read_governed_mounts(said)
    world = await make_world(idle, pools=declared(levels=[], attestation=False), governed_mounts=places)
    agent = world.agents["node"] = DockerAgent(world, "node", 4)
    await agent.connect()
    mounts = {"bind_mounts": [{"host_path": "/srv/patients", "container_path": "/data"}]}
    for more in ({}, mounts):
        await world.submit(config(runtime="docker", environment={"image": "i"}, **more))
    await world.steps(4)
    told = [one.launch.container.closed for one in agent.tasks.values()]
    assert sorted(told) == [["/srv/free"], ["/srv/free", "/srv/patients"]]
