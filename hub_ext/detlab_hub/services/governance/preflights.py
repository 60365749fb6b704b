"""Whether a trial may train where it was placed: what it has loaded, against what its nodes attest."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import Unavailable
from detlab.governance.attestation import contradictions
from detlab.schemas.wire.governance.attestation import PreflightReply, PreflightReport
from detlab.schemas.wire.governance.capabilities import required_by
from detlab.schemas.wire.governance.evidence import RefusalView
from detlab_hub.backends.base import Node
from detlab_hub.core.rights import Action
from detlab_hub.services.base import audit
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.fencing import current_attempt
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.queries import parts
from detlab_hub.store.tables import AllocationRow, ExperimentRow, PreflightRow

MOST_REFUSALS = 20
_CHARS = 1000


class Preflights(Service):
    """Judges pre-flights, and keeps what was found."""

    async def report(self, task: TaskCaller, report: PreflightReport) -> PreflightReply:
        """Say whether the trial may begin; a refusal stays for this attempt, whatever is reported after it.

        Raises:
            Unavailable: One of its nodes is out of contact, or has just connected, so that nothing is known of it.
            StaleAttempt: The attempt is over.
        """
        backend, now = self._context.backend, self._context.clock()
        nodes = {node.id: node for node in backend.nodes(now)}

        def judge(unit: UnitOfWork) -> PreflightReply:
            row, trial = current_attempt(unit.session, task)
            known = unit.session.get(PreflightRow, trial.id)
            before = known.body if known is not None and _of_attempt(known, row) else {}
            if before.get("refusals"):
                return PreflightReply.model_validate({"refusals": before["refusals"]})
            experiment = unit.experiment(trial.experiment_id)
            requires = required_by(experiment.config)
            there = [(part.agent_id, nodes.get(part.agent_id)) for part in parts.of_allocation(unit.session, row)]
            if requires and (name := next((one for one, _ in there if backend.attesting(one, now)), None)):
                raise Unavailable(f"agent {name} has just connected, and has not attested yet what it enforces")
            found = [*report.refusals, *_refused(report, requires, there)][:MOST_REFUSALS]
            body = {
                "s_hash": before.get("s_hash", ""),
                "report": report.model_dump(mode="json", exclude={"refusals"}),
                "nodes": {name: _said(node) for name, node in there},
                "refusals": [one.model_dump(mode="json") for one in found],
            }
            unit.session.merge(
                PreflightRow(
                    trial_id=trial.id, allocation_id=row.id, run=row.run, passed=not found, body=body, at=unit.now
                )
            )
            if found:
                told = "; ".join(f"{one.code}: {one.message}" for one in found)
                audit.note(unit, experiment.owner, Action.ATTEMPT_GOVERN, f"pre-flight of trial {trial.id}", told)
            return PreflightReply(refusals=found)

        return await self._context.write(judge)


def begun(unit: UnitOfWork, allocation: AllocationRow, trial_id: int, s_hash: str) -> None:
    """Note the matrix under which an attempt of a trial is about to train."""
    known = unit.session.get(PreflightRow, trial_id)
    if known is not None and _of_attempt(known, allocation):
        known.body = {**known.body, "s_hash": s_hash}
        return
    unit.session.merge(
        PreflightRow(
            trial_id=trial_id,
            allocation_id=allocation.id,
            run=allocation.run,
            passed=False,
            body={"s_hash": s_hash},
            at=unit.now,
        )
    )


def _of_attempt(row: PreflightRow, allocation: AllocationRow) -> bool:
    return (row.allocation_id, row.run) == (allocation.id, allocation.run)


def _refused(
    report: PreflightReport, requires: frozenset[str], there: list[tuple[str, Node | None]]
) -> list[RefusalView]:
    """Return ENV for what the nodes do not prove; nothing if the config needs nothing of them."""
    if not requires:
        return []
    found, attested = [], set[str]()
    for name, node in there:
        if node is None or node.suspect:
            raise Unavailable(f"agent {name} is out of contact, so what it enforces is not known")
        missing = sorted(requires - node.enforces)
        if missing:
            found.append(f"agent {name} does not prove now that it enforces {', '.join(missing)}")
        attested |= node.code or set()
    exempt = bool(found) or all(node is not None and node.code is None for _, node in there)
    found += contradictions(report, requires=requires, code=None if exempt else attested)
    return [RefusalView(code="ENV", message=one[:_CHARS]) for one in found]


def _said(node: Node | None) -> dict[str, Any]:
    if node is None:
        return {}
    return {"enforces": sorted(node.enforces), "code": None if node.code is None else sorted(node.code)}


def passed(s: Session, task: TaskCaller, trial_id: int) -> dict[str, Any] | None:
    """Return what the pre-flight of this attempt says for its evidence; None if it needs one and has not passed it."""
    row = s.get(PreflightRow, trial_id)
    if row is not None and "report" in row.body and (row.allocation_id, row.run) == (task.allocation_id, task.run):
        return {**row.body, "at": row.at} if row.passed or not _requires(s, task) else None
    return None if _requires(s, task) else {}


def _requires(s: Session, task: TaskCaller) -> frozenset[str]:
    experiment = s.get(ExperimentRow, task.experiment_id)
    return frozenset() if experiment is None else required_by(experiment.config)
