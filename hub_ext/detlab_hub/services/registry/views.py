"""From rows to views of models and versions; lists take a few queries, whatever their length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from detlab.schemas.wire.registry import LabelMove, Lineage, ModelView, VersionView
from detlab_hub.services.base.access import may_read, model_rights, reference_to
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs.withdrawn import WithdrawnSources
from detlab_hub.services.views.pages import brief
from detlab_hub.store.queries import workspaces
from detlab_hub.store.queries.registry import models
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import CheckpointRow, LabelMoveRow, ModelRow, VersionLabelRow, VersionRow

_Saved: TypeAlias = Row[str, str, int, str]
_SAVED = select(CheckpointRow.uuid, CheckpointRow.state, CheckpointRow.size, CheckpointRow.manifest_digest)
"""Its lists of files are of no use here, and may be large."""


def model_views(s: Session, rows: Sequence[ModelRow], caller: Caller, *, full: bool = False) -> list[ModelView]:
    """Make the views of models; only full ones have the notes."""
    s.flush()
    ids = [row.id for row in rows]
    counts, labels, rights = models.counts(s, ids), models.labels_of(s, ids), model_rights(s, caller, rows)
    places = workspaces.references(s, {row.workspace_id for row in rows if row.workspace_id is not None})
    views = [
        ModelView(
            id=row.id,
            name=row.name,
            owner=row.owner,
            description=row.description,
            notes=row.notes if full else "",
            metadata=row.metadata_,
            labels=row.labels,
            archived=row.archived_at is not None,
            created_at=row.created_at,
            updated_at=row.updated_at,
            versions=counts.get(row.id, (0, 0))[0],
            latest=counts[row.id][1] if row.id in counts else None,
            moving={one.label: one.version for one in labels.get(row.id, [])},
            right=rights[row.id].wire,
            reference=reference_to(caller, row),
            workspace=places.get(row.workspace_id or 0, ""),
            workspace_id=row.workspace_id,
        )
        for row in rows
    ]
    return views if full else list(map(brief, views))


def model_view(s: Session, row: ModelRow, caller: Caller) -> ModelView:
    """Make the full view of one model."""
    return model_views(s, [row], caller, full=True)[0]


def version_views(s: Session, rows: Sequence[VersionRow], reader: Caller, *, full: bool = False) -> list[VersionView]:
    """Make the views of versions.

    Args:
        s: A session.
        rows: The versions.
        reader: Who gets the views.
        full: Not for lists, whose views have no notes, and a lineage without config and environment. A full one has the
            config of the experiment only if the reader may read that.
    """
    s.flush()
    of_models = _models(s, rows)
    saved: dict[str, _Saved] = {}
    labels: dict[int, list[str]] = {}
    for part in chunks([row.checkpoint_uuid for row in rows]):
        saved.update((row.uuid, row) for row in s.execute(_SAVED.where(CheckpointRow.uuid.in_(part))))
    for some in chunks([row.id for row in rows]):
        held = s.scalars(select(VersionLabelRow).where(VersionLabelRow.version_id.in_(some)))
        for one in held:
            labels.setdefault(one.version_id, []).append(one.label)
    views: list[VersionView] = []
    withdrawn = WithdrawnSources(s)
    for row in rows:
        model, checkpoint = of_models[row.model_id], saved.get(row.checkpoint_uuid)
        made = _view(row, model, reference_to(reader, model), checkpoint, sorted(labels.get(row.id, [])), full=full)
        if over := withdrawn.in_checkpoint(s, row.checkpoint_uuid, model.workspace_id):
            made = made.model_copy(update={"withdrawn": [one.message for one in over]})
        of = made.lineage.experiment_id
        if full and (of is None or not may_read(s, reader, of)):
            made = made.model_copy(update={"lineage": made.lineage.model_copy(update={"config": {}})})
        views.append(made if full else brief(made))
    return views


def version_view(s: Session, row: VersionRow, reader: Caller) -> VersionView:
    """Make the full view of one version."""
    return version_views(s, [row], reader, full=True)[0]


def _models(s: Session, rows: Sequence[VersionRow]) -> dict[int, ModelRow]:
    found: dict[int, ModelRow] = {}
    for part in chunks(sorted({row.model_id for row in rows})):
        found.update((row.id, row) for row in s.scalars(select(ModelRow).where(ModelRow.id.in_(part))))
    return found


def _view(
    row: VersionRow, model: ModelRow, reference: str, checkpoint: _Saved | None, labels: list[str], *, full: bool
) -> VersionView:
    lineage = Lineage.model_validate(row.lineage)
    if not full:
        lineage = lineage.model_copy(update={"config": {}, "environment": {}})
    return VersionView(
        model_id=row.model_id,
        model=model.name,
        model_reference=reference,
        version=row.version,
        semver=row.semver,
        labels=labels,
        name=row.name,
        comment=row.comment,
        notes=row.notes if full else "",
        metadata=row.metadata_,
        owner=row.owner,
        created_at=row.created_at,
        updated_at=row.updated_at,
        checkpoint=row.checkpoint_uuid,
        checkpoint_state="DELETED" if checkpoint is None else checkpoint.state,
        size=0 if checkpoint is None else checkpoint.size,
        manifest_digest="" if checkpoint is None else checkpoint.manifest_digest,
        format=row.format,
        lineage=lineage,
    )


def move_view(row: LabelMoveRow) -> LabelMove:
    """Make the view of a move of a label."""
    return LabelMove(
        id=row.id,
        label=row.label,
        from_version=row.from_version,
        to_version=row.to_version,
        by=row.by,
        at=row.at,
        reason=row.reason,
    )
