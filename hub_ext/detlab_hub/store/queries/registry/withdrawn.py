"""Withdrawn sources, which are small facts of the database, and what they may be about."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab_hub.core.rights import Person
from detlab_hub.store.queries import rights, workspaces
from detlab_hub.store.tables import CLUSTER, EvidenceRow, ExperimentRow, Meta, ModelRow, VersionRow, WorkspaceRow

PREFIX = "withdrawn_source "
"""Begins the keys; the workspace follows, or `CLUSTER`, and what tells one from another."""


def kept(s: Session) -> Iterator[tuple[int, str]]:
    """Yield the workspace of each withdrawal, or `CLUSTER`, and what is kept of it."""
    for key, value in s.execute(select(Meta.key, Meta.value).where(Meta.key.startswith(PREFIX, autoescape=True))):
        yield int(key.removeprefix(PREFIX).partition(" ")[0]), value


def readable_places(s: Session, viewer: Person) -> set[int]:
    """Return the workspaces that a user may read, and `CLUSTER`."""
    return {CLUSTER, *s.scalars(select(WorkspaceRow.id).where(workspaces.visible_to(viewer)))}


def active(s: Session, place: int, state: str) -> list[int]:
    """Return the experiments in a state, of a workspace or of all (`CLUSTER`)."""
    query = select(ExperimentRow.id).where(ExperimentRow.state == state)
    if place != CLUSTER:
        query = query.where(ExperimentRow.workspace_id == place)
    return list(s.scalars(query.order_by(ExperimentRow.id)))


def versions_with_evidence(s: Session, viewer: Person, most: int) -> Iterator[tuple[str, int, ModelRow]]:
    """Yield checkpoint, number and model of the newest versions with evidence that a user may read."""
    query = (
        select(VersionRow.checkpoint_uuid, VersionRow.version, ModelRow)
        .join(ModelRow, ModelRow.id == VersionRow.model_id)
        .join(EvidenceRow, EvidenceRow.checkpoint_uuid == VersionRow.checkpoint_uuid)
        .where(rights.visible_models(viewer))
        .order_by(VersionRow.id.desc())
        .limit(most)
    )
    yield from s.execute(query)
