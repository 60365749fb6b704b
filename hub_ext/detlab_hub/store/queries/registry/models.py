"""Models, versions and labels, by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, delete, func, or_, select
from sqlalchemy.orm import Session

from detlab.schemas.script_names import normal
from detlab_hub.store.queries.registry import naming
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import (
    CheckpointRow,
    ExperimentRow,
    LabelMoveRow,
    ModelFact,
    ModelGrantRow,
    ModelRow,
    ReferenceRow,
    TrackedRunRow,
    VersionLabelRow,
    VersionMetric,
    VersionRow,
    clean_text,
)


def sharing(s: Session, uuid: str) -> list[ModelRow]:
    """Return the models in which the owner of a checkpoint has put it: theirs, and those where they registered it."""
    query = (
        select(VersionRow.model_id)
        .join(ModelRow, ModelRow.id == VersionRow.model_id)
        .join(CheckpointRow, CheckpointRow.uuid == VersionRow.checkpoint_uuid)
        .join(ExperimentRow, ExperimentRow.id == CheckpointRow.experiment_id)
        .where(VersionRow.checkpoint_uuid == uuid)
        .where(or_(ModelRow.owner == ExperimentRow.owner, VersionRow.owner == ExperimentRow.owner))
    )
    logged = (
        select(VersionRow.model_id)
        .join(ModelRow, ModelRow.id == VersionRow.model_id)
        .join(CheckpointRow, CheckpointRow.uuid == VersionRow.checkpoint_uuid)
        .join(TrackedRunRow, TrackedRunRow.id == CheckpointRow.run_id)
        .where(VersionRow.checkpoint_uuid == uuid)
        .where(or_(ModelRow.owner == TrackedRunRow.owner, VersionRow.owner == TrackedRunRow.owner))
    )
    either = or_(ModelRow.id.in_(query), ModelRow.id.in_(logged))
    return list(s.scalars(select(ModelRow).where(either).order_by(ModelRow.id)))


def page(
    s: Session,
    visible: ColumnElement[bool],
    *,
    labels: Sequence[str] = (),
    archived: bool | None = False,
    **wanted: Any,
) -> list[int]:
    """Return the ids of models; `wanted` are arguments of `naming.page_of`."""
    query = naming.page_of(ModelRow, visible, **wanted)
    for label in labels:
        facts = select(ModelFact.model_id).where(ModelFact.name == "label", ModelFact.text == clean_text(label))
        query = query.where(ModelRow.id.in_(facts.where(ModelFact.version_id.is_(None))))
    if archived is not None:
        query = query.where(ModelRow.archived_at.is_not(None) if archived else ModelRow.archived_at.is_(None))
    return list(s.scalars(query))


def counts(s: Session, model_ids: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return how many versions models have, and the number of the newest, by model."""
    found: dict[int, tuple[int, int]] = {}
    for part in chunks(list(model_ids)):
        query = select(VersionRow.model_id, func.count(), func.max(VersionRow.version))
        rows = s.execute(query.where(VersionRow.model_id.in_(part)).group_by(VersionRow.model_id))
        found.update((model_id, (count, newest)) for model_id, count, newest in rows)
    return found


def labels_of(s: Session, model_ids: Sequence[int]) -> dict[int, list[VersionLabelRow]]:
    """Return the labels of models' versions, by model and in alphabetical order."""
    found: dict[int, list[VersionLabelRow]] = {}
    for part in chunks(list(model_ids)):
        query = select(VersionLabelRow).where(VersionLabelRow.model_id.in_(part)).order_by(VersionLabelRow.label)
        for row in s.scalars(query):
            found.setdefault(row.model_id, []).append(row)
    return found


def words(s: Session, visible: ColumnElement[bool]) -> list[str]:
    """Return the labels of all models, the most frequent first."""
    mine = select(ModelRow.id).where(visible)
    query = select(ModelFact.text).where(ModelFact.name == "label", ModelFact.version_id.is_(None))
    query = query.where(ModelFact.model_id.in_(mine)).group_by(ModelFact.text)
    return list(s.scalars(query.order_by(func.count().desc(), ModelFact.text).limit(1000)))


# --- versions


def versions(s: Session, model_id: int, *, limit: int, after: int | None = None) -> list[VersionRow]:
    """Return versions of a model, newest first; `after` is the number of the last one seen."""
    query = select(VersionRow).where(VersionRow.model_id == model_id)
    if after is not None:
        query = query.where(VersionRow.version < after)
    return list(s.scalars(query.order_by(VersionRow.version.desc()).limit(limit)))


def page_of_versions(s: Session, model_id: int, *, limit: int, after: int | None = None) -> list[int]:
    """Return the ids of a model's versions, newest first, one more if there are; `after` is the last number seen."""
    query = select(VersionRow.id).where(VersionRow.model_id == model_id)
    if after is not None:
        query = query.where(VersionRow.version < after)
    return list(s.scalars(query.order_by(VersionRow.version.desc()).limit(limit + 1)))


def version(s: Session, model_id: int, number: int) -> VersionRow | None:
    """Return a version by its number."""
    return s.scalars(select(VersionRow).where(VersionRow.model_id == model_id, VersionRow.version == number)).first()


def newest(s: Session, model_id: int) -> VersionRow | None:
    """Return the newest version."""
    return next(iter(versions(s, model_id, limit=1)), None)


def with_label(s: Session, model_id: int, label: str) -> VersionLabelRow | None:
    """Return which version has a label."""
    return s.get(VersionLabelRow, (model_id, normal(label)))


def with_semver(s: Session, model_id: int, semver: str) -> VersionRow | None:
    """Return a version by its semantic version."""
    query = select(VersionRow).where(VersionRow.model_id == model_id, VersionRow.semver == semver)
    return s.scalars(query.order_by(VersionRow.version.desc()).limit(1)).first()


def of_checkpoint(s: Session, model_id: int, uuid: str) -> VersionRow | None:
    """Return the version of a model that has a checkpoint."""
    query = select(VersionRow).where(VersionRow.model_id == model_id, VersionRow.checkpoint_uuid == uuid)
    return s.scalars(query).first()


def semvers(s: Session, model_id: int) -> list[tuple[int, str]]:
    """Return (number, semantic version) of the versions that have one."""
    query = select(VersionRow.version, VersionRow.semver).where(VersionRow.model_id == model_id)
    rows = s.execute(query.where(VersionRow.semver.is_not(None)).order_by(VersionRow.version))
    return [(number, semver) for number, semver in rows if semver]


def pinned(s: Session, uuids: Sequence[str]) -> dict[str, list[str]]:
    """Return which of some checkpoints have versions, and of which models: `digits@3`. They must not be collected."""
    found: dict[str, list[str]] = {}
    for part in chunks(list(uuids)):
        query = select(VersionRow.checkpoint_uuid, ModelRow.name, VersionRow.version)
        query = query.join(ModelRow, ModelRow.id == VersionRow.model_id)
        for uuid, name, number in s.execute(query.where(VersionRow.checkpoint_uuid.in_(part)).order_by(VersionRow.id)):
            found.setdefault(uuid, []).append(f"{name}@{number}")
    return found


def pinned_of_experiment(s: Session, experiment_id: int) -> int:
    """Return how many checkpoints of an experiment have versions."""
    query = select(func.count(VersionRow.checkpoint_uuid.distinct()))
    query = query.join(CheckpointRow, CheckpointRow.uuid == VersionRow.checkpoint_uuid)
    logged = select(TrackedRunRow.id).where(TrackedRunRow.experiment_id == experiment_id)
    mine = or_(CheckpointRow.experiment_id == experiment_id, CheckpointRow.run_id.in_(logged))
    return int(s.scalar(query.where(mine)) or 0)


def pinned_of_run(s: Session, run_id: str) -> bool:
    """Return whether a version is of files of a run."""
    query = select(VersionRow.id).join(CheckpointRow, CheckpointRow.uuid == VersionRow.checkpoint_uuid)
    return s.scalar(query.where(CheckpointRow.run_id == run_id).limit(1)) is not None


def moves(s: Session, model_id: int, *, limit: int, label: str | None = None) -> list[LabelMoveRow]:
    """Return the moves of a model's labels, newest first."""
    query = select(LabelMoveRow).where(LabelMoveRow.model_id == model_id)
    if label is not None:
        query = query.where(LabelMoveRow.label == normal(label))
    return list(s.scalars(query.order_by(LabelMoveRow.id.desc()).limit(limit)))


# --- facts


def replace_facts(
    s: Session, model_id: int, version_id: int | None, facts: Sequence[tuple[str, str, float | None]]
) -> None:
    """Write what queries ask for about a model (`version_id` None) or a version, instead of what was there."""
    mine = ModelFact.version_id.is_(None) if version_id is None else ModelFact.version_id == version_id
    s.execute(delete(ModelFact).where(ModelFact.model_id == model_id, mine))
    s.add_all(
        ModelFact(model_id=model_id, version_id=version_id, name=name, text=text, number=number)
        for name, text, number in facts
    )


def delete_version(s: Session, row: VersionRow) -> None:
    """Delete a version with all that belongs to it; the history of labels stays."""
    s.flush()
    for table in (VersionMetric, ModelFact, VersionLabelRow):
        s.execute(delete(table).where(table.version_id == row.id))
    s.delete(row)
    s.flush()


def snapshots_of(s: Session, model_id: int) -> list[str]:
    """Return the checkpoints of a model's versions that are models which runs have logged."""
    query = select(VersionRow.checkpoint_uuid).join(CheckpointRow, CheckpointRow.uuid == VersionRow.checkpoint_uuid)
    return list(s.scalars(query.where(VersionRow.model_id == model_id, CheckpointRow.run_id.is_not(None))))


def drop_snapshots(s: Session, uuids: Sequence[str]) -> list[str]:
    """Remove those of some checkpoints that are models which runs have logged, and that nothing names any more.

    Returns:
        Which went; their files are to go next.
    """
    gone = []
    for part in chunks(list(uuids)):
        query = select(CheckpointRow).where(CheckpointRow.uuid.in_(part), CheckpointRow.run_id.is_not(None))
        for column in (VersionRow.checkpoint_uuid, ReferenceRow.uuid):
            query = query.where(CheckpointRow.uuid.not_in(select(column).where(column.in_(part))))
        for row in s.scalars(query).all():
            gone.append(row.uuid)
            s.delete(row)
    s.flush()
    return gone


def delete_model(s: Session, row: ModelRow) -> None:
    """Delete a model with all that belongs to it."""
    s.flush()
    mine = select(VersionRow.id).where(VersionRow.model_id == row.id)
    s.execute(delete(VersionMetric).where(VersionMetric.version_id.in_(mine)))
    for table in (ModelFact, VersionLabelRow, LabelMoveRow, ModelGrantRow, VersionRow):
        s.execute(delete(table).where(table.model_id == row.id))
    s.delete(row)
    s.flush()
