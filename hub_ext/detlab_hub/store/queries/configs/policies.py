"""Config policies: those that hold at a place, those of a kind of work, and the places of what a change is about."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import CLUSTER, ConfigPolicyRow, ExperimentRow


def holding(s: Session, workspace_id: int | None, workload: str) -> list[ConfigPolicyRow]:
    """Return the policies that hold in a workspace, the cluster's first; None: in a personal one."""
    places = [CLUSTER] if workspace_id is None else [CLUSTER, workspace_id]
    here = ConfigPolicyRow.workspace_id.in_(places)
    query = select(ConfigPolicyRow).where(here, ConfigPolicyRow.workload == workload)
    return list(s.scalars(query.order_by(ConfigPolicyRow.workspace_id)))


def of_workload(s: Session, workload: str) -> Sequence[ConfigPolicyRow]:
    """Return all policies for a kind of work."""
    return s.scalars(select(ConfigPolicyRow).where(ConfigPolicyRow.workload == workload)).all()


def places_of(s: Session, experiment_ids: Collection[int]) -> set[int | None]:
    """Return the ids of the workspaces in which experiments lie."""
    found: set[int | None] = set()
    for part in chunks(sorted(experiment_ids)):
        found.update(s.scalars(select(ExperimentRow.workspace_id).where(ExperimentRow.id.in_(part)).distinct()))
    return found
