"""Where a version comes from: recorded when it is registered, drawn as a graph later."""

from __future__ import annotations

import math
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.wire.registry import Lineage, LineageGraph
from detlab_hub.services.artifacts.lineage import draw_used
from detlab_hub.services.base.access import may_read, reference_to
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.masking import masked_lineage
from detlab_hub.services.checkpoints.manifests import is_uuid
from detlab_hub.services.governance.reading import summary_of
from detlab_hub.services.tracking.access import run_id_of
from detlab_hub.services.tracking.facts import loaded, run_facts
from detlab_hub.services.views import experiment_views
from detlab_hub.services.views.graphs import LineageDrawing
from detlab_hub.store.queries import parts as allocation_parts
from detlab_hub.store.queries.metrics import curves
from detlab_hub.store.tables import (
    AgentRow,
    AllocationRow,
    CheckpointRow,
    EnvironmentRow,
    ExperimentRow,
    ModelRow,
    TrackedRunRow,
    TrialRow,
    VersionRow,
)

_VALIDATION = "validation"
_DIGESTS = "data_digests"
_USES = "uses_checkpoints"
"""Metadata of `report_task_using_checkpoint`."""
MOST_ANCESTORS = 20
"""Checkpoints before a version's own that its graph shows."""


def capture(s: Session, checkpoint: CheckpointRow) -> Lineage:
    """Return the lineage of a checkpoint as it is known now."""
    if checkpoint.run_id is not None:
        return _of_run(s, checkpoint)
    experiment = s.get_one(ExperimentRow, checkpoint.experiment_id)
    trial = s.get_one(TrialRow, checkpoint.trial_id)
    attempt = s.scalars(
        select(AllocationRow).where(AllocationRow.trial_id == trial.id, AllocationRow.run == checkpoint.run)
    ).first()
    return Lineage(
        experiment_id=experiment.id,
        experiment_name=experiment.name,
        trial_id=trial.id,
        run=checkpoint.run,
        steps_completed=checkpoint.steps_completed,
        hyperparameters=trial.hparams,
        metrics=_metrics(s, checkpoint),
        metric=experiment.metric,
        smaller_is_better=experiment.smaller_is_better,
        config=masked_lineage(experiment.config),
        bundle_digest=experiment.bundle or "",
        environment=_environment(s, checkpoint),
        data=_data(experiment.config, checkpoint.metadata_),
        governed=summary_of(s, checkpoint.uuid),
        parents=_parents(experiment, trial, checkpoint),
        slots=0 if attempt is None else len(attempt.slots),
        device="" if attempt is None else _device(s, attempt),
        submitter=experiment.owner,
        started_at=trial.started_at,
        ended_at=trial.ended_at,
    )


def _of_run(s: Session, checkpoint: CheckpointRow) -> Lineage:
    """Return the lineage of a model that a run has logged: its trial's, if it has one, with what was logged."""
    run = s.get_one(TrackedRunRow, checkpoint.run_id)
    facts = run_facts(s, loaded(s, [run.id]))[0]
    experiment = None if run.experiment_id is None else s.get(ExperimentRow, run.experiment_id)
    return Lineage(
        experiment_id=run.experiment_id,
        experiment_name="" if experiment is None else experiment.name,
        trial_id=run.trial_id,
        tracked_run=run.id,
        hyperparameters=dict(facts.params),
        metrics={point.key: point.value for point in facts.metrics},
        metric="" if experiment is None else experiment.metric,
        smaller_is_better=True if experiment is None else experiment.smaller_is_better,
        config={} if experiment is None else masked_lineage(experiment.config),
        bundle_digest="" if experiment is None else experiment.bundle or "",
        submitter=run.owner,
        started_at=facts.started_ms / 1000,
        ended_at=None if facts.ended_ms is None else facts.ended_ms / 1000,
    )


def _metrics(s: Session, checkpoint: CheckpointRow) -> dict[str, float]:
    found: dict[str, float] = {}
    reported = curves.at_step(s, checkpoint.trial_id, checkpoint.steps_completed, None, experiment_views.NAMES_SHOWN)
    for series in reported:
        (value,) = series.values
        found[f"{series.group}.{series.name}"] = value
        if series.group == _VALIDATION:
            found.setdefault(series.name, value)
    return found


def finite(metrics: dict[str, float]) -> dict[str, float]:
    """Return the metrics that queries can order."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _environment(s: Session, checkpoint: CheckpointRow) -> dict[str, str]:
    row = None if checkpoint.environment is None else s.get(EnvironmentRow, checkpoint.environment)
    return {} if row is None else row.packages


def _data(config: dict[str, Any], metadata: dict[str, Any]) -> dict[str, str]:
    """Return the declared data sets: those of the config, then those that the checkpoint's own metadata names."""
    block = config.get("data")
    declared = block.get("digests") if isinstance(block, dict) else None
    found: dict[str, str] = {}
    for digests in (declared, metadata.get(_DIGESTS)):
        if isinstance(digests, dict):
            found.update((str(name), str(digest)) for name, digest in digests.items())
    return found


def _parents(experiment: ExperimentRow, trial: TrialRow, checkpoint: CheckpointRow) -> list[str]:
    """Return what a checkpoint's trial started from, then what it has reported as used."""
    source = (experiment.config.get("searcher") or {}).get("source_checkpoint_uuid")
    told = checkpoint.metadata_.get(_USES)
    used = [one for one in told if isinstance(one, str) and is_uuid(one)] if isinstance(told, list) else []
    known = (trial.parent_checkpoint, source, *used[:MOST_ANCESTORS])
    return [uuid for uuid in dict.fromkeys(known) if uuid and uuid != checkpoint.uuid]


def _device(s: Session, attempt: AllocationRow) -> str:
    """Return the name of the device of an attempt's first slot, as its agent reported it."""
    agents = {part.agent_id for part in allocation_parts.of_allocation(s, attempt)}
    agents |= {attempt.agent_id} if attempt.agent_id else set()
    wanted = set(attempt.slots)
    for agent_id in sorted(agents):
        agent = s.get(AgentRow, agent_id)
        for slot in [] if agent is None else agent.slots:
            if isinstance(slot, dict) and {slot.get("id"), f"{agent_id}/{slot.get('id')}"} & wanted:
                return str(slot.get("name") or slot.get("kind") or "")
    return ""


# --- the graph


def graph_of(s: Session, caller: Caller, model: ModelRow, version: VersionRow) -> LineageGraph:
    """Draw a version's lineage: its checkpoint, trial, experiment, code and data, and the checkpoints before it.

    What is behind a checkpoint of an experiment that the caller may not read is left out.
    """
    lineage = Lineage.model_validate(version.lineage)
    drawn = LineageDrawing()
    head = drawn.node("version", f"{reference_to(caller, model)}@{version.version}", version.semver or "")
    step = "" if lineage.steps_completed is None else f"step {lineage.steps_completed}"
    saved = drawn.node("checkpoint", version.checkpoint_uuid, step)
    drawn.edge(head, saved, "is")
    if lineage.tracked_run:
        run = drawn.node("run", lineage.tracked_run)
        drawn.edge(saved, run, "logged by")
        draw_used(s, caller, drawn, run, lineage.tracked_run)
        if not lineage.trial_id:
            return LineageGraph(nodes=list(drawn.nodes.values()), edges=drawn.edges)
        saved = run
    trial = drawn.node("trial", str(lineage.trial_id), "" if lineage.run is None else f"run {lineage.run}")
    drawn.edge(saved, trial, "of" if lineage.tracked_run else "saved by")
    if lineage.trial_id:
        draw_used(s, caller, drawn, trial, run_id_of(lineage.trial_id))
    experiment = drawn.node("experiment", str(lineage.experiment_id), lineage.experiment_name)
    drawn.edge(trial, experiment, "of")
    if lineage.bundle_digest:
        drawn.edge(experiment, drawn.node("code", lineage.bundle_digest), "runs")
    for name, digest in lineage.data.items():
        drawn.edge(trial, drawn.node("data", name, digest), "reads")
    waiting = [(trial, uuid) for uuid in lineage.parents]
    for child, uuid in waiting:  # grows while it is read
        if len(waiting) > MOST_ANCESTORS:
            break
        waiting += _draw_ancestor(s, caller, drawn, child, uuid)
    return LineageGraph(nodes=list(drawn.nodes.values()), edges=drawn.edges)


def _draw_ancestor(s: Session, caller: Caller, drawn: LineageDrawing, child: str, uuid: str) -> list[tuple[str, str]]:
    """Draw a checkpoint that a trial started from, and its trial; return what that one started from."""
    known = f"checkpoint:{uuid}" in drawn.nodes
    row = s.get(CheckpointRow, uuid)
    saved = drawn.node("checkpoint", uuid)
    drawn.edge(child, saved, "starts from")
    if row is None or known or row.run_id is not None or not may_read(s, caller, row.experiment_id):
        return []
    trial, experiment = s.get_one(TrialRow, row.trial_id), s.get_one(ExperimentRow, row.experiment_id)
    made_by = drawn.node("trial", str(row.trial_id), f"run {row.run}")
    drawn.edge(saved, made_by, "saved by")
    drawn.edge(made_by, drawn.node("experiment", str(row.experiment_id)), "of")
    return [(made_by, parent) for parent in _parents(experiment, trial, row)]
