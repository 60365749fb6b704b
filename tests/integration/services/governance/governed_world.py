"""A master with one governed trial, whose checkpoints are said and not trained."""

from __future__ import annotations

from typing import Any

from services_scripted import DIGEST, config

from detlab.governance import Plan, Policy, TrainedParameter, compile_policy
from detlab.schemas.checkpoint_ids import checkpoint_id
from detlab.schemas.wire import CheckpointFile, CommitCheckpoint
from detlab.schemas.wire.governance.attestation import PreflightReport
from detlab.schemas.wire.governance.capabilities import ENFORCED, LEVELS
from detlab.schemas.wire.governance.evidence import METADATA_KEY, RecordMatrix, VerifyCheckpoint
from detlab_hub.core.scheduling import Pools, read_pools
from detlab_hub.services.governance.evidence import SignedEvidence
from detlab_hub.services.governance.preflights import Preflights
from detlab_hub.services.ingest.tasks import Tasks

POLICY: dict[str, Any] = {
    "version": 1,
    "sources": [{"name": "trusted", "license": "CC-BY-4.0"}, {"name": "web", "expires": "2030-01-01"}],
    "rules": [{"source": "*", "layers": ".*", "scale": 1.0}, {"source": "web", "layers": "body", "scale": 0.0}],
}
ROSTER = "sha256:" + "5" * 64
CODE = "sha256:" + "c" * 64


def declared(**said: Any) -> Pools:
    """The default pool, which enforces what its operator says, without an attestation."""
    pools, errors = read_pools({"default": {"governance": said or {"levels": ["direct"], "attestation": False}}})
    assert not errors
    return pools


def idle(launch):
    while True:
        yield ("wait",)


def plan_of(block: dict[str, Any] = POLICY) -> Plan:
    names = ("body.weight", "body.bias", "head.weight")
    return compile_policy(Policy.of(block), [TrainedParameter(name, (2, 2)) for name in names])


class GovernedTrialDouble:
    """Says what a governed trial would."""

    def __init__(self, world: Any, task: Any, block: dict[str, Any]) -> None:
        self.world, self.task, self.plan = world, task, plan_of(block)
        self.made = 0

    @property
    def trial_id(self) -> int:
        return self.task.caller.trial_id

    async def record(self) -> None:
        await self.world.services[SignedEvidence].record_matrix(
            self.task.caller, RecordMatrix(matrix=self.plan.matrix.body())
        )

    async def preflight(self, **more: Any) -> list[tuple[str, str]]:
        """Report what was found before the first step; return codes and messages."""
        enforces = sorted(ENFORCED | {LEVELS["dp"]})
        report = PreflightReport(**{"version": "1", "code": [CODE], "enforces": enforces, "layers": 2, **more})
        reply = await self.world.services[Preflights].report(self.task.caller, report)
        return [(one.code, one.message) for one in reply.refusals]

    def segment(self, parent: str | None, first: int, **more: Any) -> dict[str, Any]:
        return {
            "policy_hash": self.plan.policy_hash,
            "s_hash": self.plan.s_hash,
            "parent": parent,
            "first_step": first,
            "counts": {"trusted": 30, "web": 10},
            "roster": ROSTER,
            "order": [{"epoch": 0, "digest": "sha256:" + "7" * 64}],
            **more,
        }

    async def save(self, step: int, parent: str | None = None, first: int = 0, **more: Any) -> str:
        self.made += 1
        uuid = checkpoint_id((self.trial_id * 1000 + self.made) << 80, self.trial_id)
        await self.commit(uuid, step, self.segment(parent, first, **more))
        return uuid

    async def commit(self, uuid: str, step: int, segment: dict[str, Any] | None) -> None:
        commit = CommitCheckpoint(
            uuid=uuid,
            steps_completed=step,
            files={"a": CheckpointFile(size=3, digest=DIGEST)},
            manifest_digest=DIGEST,
            metadata={} if segment is None else {METADATA_KEY: segment},
        )
        await self.world.services[Tasks].commit_checkpoint(self.task.caller, commit)

    async def ask(self, uuid: str, **more: Any) -> list[tuple[str, str]]:
        """Ask whether it may go on; return codes and messages."""
        fields = {"manifest_digest": DIGEST, "s_hash": self.plan.s_hash, "roster": ROSTER, **more}
        reply = await self.world.services[Tasks].verify_checkpoint(self.task.caller, uuid, VerifyCheckpoint(**fields))
        return [(one.code, one.message) for one in reply.refusals]

    async def codes(self, uuid: str, **more: Any) -> list[str]:
        return [code for code, _ in await self.ask(uuid, **more)]


async def governed_trial(
    make_world, block: dict[str, Any] = POLICY, max_restarts: int | None = None, **settings: Any
) -> GovernedTrialDouble:
    """Start a master with one governed trial that runs, and has recorded its matrix."""
    settings.setdefault("pools", declared())
    world = await make_world(idle, **settings)
    await world.add_agent(slots=4)
    return await another_trial(world, block, **({} if max_restarts is None else {"max_restarts": max_restarts}))


async def another_trial(world: Any, block: dict[str, Any], **more: Any) -> GovernedTrialDouble:
    agent = next(iter(world.agents.values()))
    before = set(agent.tasks)
    await world.submit(config(governance=block, **more))
    await world.steps(2)
    (new,) = set(agent.tasks) - before
    double = GovernedTrialDouble(world, agent.tasks[new], block)
    await double.record()
    await double.preflight()
    return double
