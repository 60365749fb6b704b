"""Artifacts, their versions, files and runs, by their keys."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, delete, func, insert, literal, or_, select
from sqlalchemy.orm import Session, aliased

from detlab.schemas.script_names import normal
from detlab.schemas.wire.artifacts.artifacts import USED
from detlab_hub.store.queries.registry import naming
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import (
    ArtifactAliasRow,
    ArtifactEntryRow,
    ArtifactFileRow,
    ArtifactLinkRow,
    ArtifactRow,
    ArtifactVersionRow,
    CheckpointRow,
    DeletedArtifactLinkRow,
    VersionRow,
    clean_text,
)


def page(s: Session, visible: ColumnElement[bool], *, kind: str | None = None, **wanted: Any) -> list[int]:
    """Return the ids of artifacts; `wanted` are arguments of `naming.page_of`."""
    query = naming.page_of(ArtifactRow, visible, **wanted)
    return list(s.scalars(query.where(ArtifactRow.kind == clean_text(kind)) if kind else query))


def counts(s: Session, ids: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return how many versions artifacts have, and the number of the newest, by artifact."""
    found: dict[int, tuple[int, int]] = {}
    row = ArtifactVersionRow
    for part in chunks(list(ids)):
        query = select(row.artifact_id, func.count(), func.max(row.version)).where(row.artifact_id.in_(part))
        found.update((key, (count, newest)) for key, count, newest in s.execute(query.group_by(row.artifact_id)))
    return found


def sizes(s: Session, ids: Sequence[int]) -> dict[int, int]:
    """Return the bytes that artifacts take."""
    found: dict[int, int] = {}
    row = ArtifactFileRow
    for part in chunks(list(ids)):
        query = select(row.artifact_id, func.sum(row.size)).where(row.artifact_id.in_(part))
        found.update((key, int(size)) for key, size in s.execute(query.group_by(row.artifact_id)))
    return found


def by_ids(s: Session, ids: Collection[int]) -> dict[int, ArtifactRow]:
    """Return some artifacts, by their ids."""
    found: dict[int, ArtifactRow] = {}
    for part in chunks(sorted(ids)):
        found.update((row.id, row) for row in s.scalars(select(ArtifactRow).where(ArtifactRow.id.in_(part))))
    return found


# --- versions


def version_ids(s: Session, artifact_id: int) -> list[int]:
    """Return the ids of all versions of an artifact."""
    return list(s.scalars(select(ArtifactVersionRow.id).where(ArtifactVersionRow.artifact_id == artifact_id)))


def versions(s: Session, artifact_id: int, *, limit: int, after: int | None = None) -> list[int]:
    """Return the ids of an artifact's versions, newest first, one more if there are; `after` is the last number."""
    row = ArtifactVersionRow
    query = select(row.id).where(row.artifact_id == artifact_id)
    if after is not None:
        query = query.where(row.version < after)
    return list(s.scalars(query.order_by(row.version.desc()).limit(limit + 1)))


def version(s: Session, artifact_id: int, number: int) -> ArtifactVersionRow | None:
    """Return a version by its number."""
    row = ArtifactVersionRow
    return s.scalars(select(row).where(row.artifact_id == artifact_id, row.version == number)).first()


def newest(s: Session, artifact_id: int) -> ArtifactVersionRow | None:
    """Return the newest version."""
    row = ArtifactVersionRow
    query = select(row).where(row.artifact_id == artifact_id)
    return s.scalars(query.order_by(row.version.desc()).limit(1)).first()


def with_alias(s: Session, artifact_id: int, alias: str) -> ArtifactVersionRow | None:
    """Return the version that has an alias."""
    row = s.get(ArtifactAliasRow, (artifact_id, normal(clean_text(alias))))
    return None if row is None else s.get(ArtifactVersionRow, row.version_id)


def aliases_of(s: Session, version_ids: Sequence[int]) -> dict[int, list[str]]:
    """Return the aliases of versions, in alphabetical order."""
    found: dict[int, list[str]] = {}
    row = ArtifactAliasRow
    for part in chunks(list(version_ids)):
        query = select(row.version_id, row.alias).where(row.version_id.in_(part)).order_by(row.alias)
        for key, alias in s.execute(query):
            found.setdefault(key, []).append(alias)
    return found


def pointing(s: Session, artifact_ids: Sequence[int]) -> dict[int, dict[str, int]]:
    """Return the aliases of artifacts with the numbers of the versions that have them, by artifact."""
    found: dict[int, dict[str, int]] = {}
    row = ArtifactAliasRow
    for part in chunks(list(artifact_ids)):
        query = (
            select(row.artifact_id, row.alias, ArtifactVersionRow.version)
            .join(ArtifactVersionRow, ArtifactVersionRow.id == row.version_id)
            .where(row.artifact_id.in_(part))
            .order_by(row.alias)
        )
        for key, alias, number in s.execute(query):
            found.setdefault(key, {})[alias] = number
    return found


def put_alias(s: Session, artifact_id: int, alias: str, version_id: int) -> None:
    """Give an alias to a version, and take it from the one that had it."""
    s.merge(ArtifactAliasRow(artifact_id=artifact_id, alias=normal(clean_text(alias)), version_id=version_id))


def entries(s: Session, version_id: int, after: str, limit: int) -> list[ArtifactEntryRow]:
    """Return the files of a version beyond a path, in the order of their paths."""
    row = ArtifactEntryRow
    query = select(row).where(row.version_id == version_id, row.path > after)
    return list(s.scalars(query.order_by(row.path).limit(limit)))


def known_files(s: Session, artifact_id: int, digests: Collection[str]) -> dict[str, int]:
    """Return those of some digests whose bytes an artifact has, with their sizes."""
    found: dict[str, int] = {}
    row = ArtifactFileRow
    for part in chunks(sorted(digests)):
        query = select(row.digest, row.size).where(row.artifact_id == artifact_id, row.digest.in_(part))
        found.update((digest, size) for digest, size in s.execute(query))
    return found


# --- runs


def links_of(s: Session, version_ids: Sequence[int], most: int = 1000) -> list[ArtifactLinkRow]:
    """Return the runs that have made some versions, or use them, in order."""
    found: list[ArtifactLinkRow] = []
    row = ArtifactLinkRow
    for part in chunks(list(version_ids)):
        found += s.scalars(select(row).where(row.version_id.in_(part)).order_by(row.id).limit(most))
    return found


def links_of_run(s: Session, run_id: str, most: int, after: int = 0) -> list[ArtifactLinkRow]:
    """Return what a run has made and used, in order."""
    row = ArtifactLinkRow
    query = select(row).where(row.run_id == run_id, row.id > after)
    return list(s.scalars(query.order_by(row.id).limit(most)))


def link(s: Session, made: ArtifactLinkRow) -> bool:
    """Record what a run does with a version; return False if that is recorded already."""
    row = ArtifactLinkRow
    same = select(row.id).where(row.version_id == made.version_id, row.run_id == made.run_id, row.role == made.role)
    if s.scalar(same) is not None:
        return False
    s.add(made)
    s.flush()
    return True


def deleted_of_run(s: Session, run_id: str, most: int) -> list[DeletedArtifactLinkRow]:
    """Return what a run has made and used that is deleted, in order."""
    row = DeletedArtifactLinkRow
    return list(s.scalars(select(row).where(row.run_id == run_id).order_by(row.id).limit(most)))


def deleted_of(s: Session, artifact_id: int, version: int, most: int) -> list[DeletedArtifactLinkRow]:
    """Return the runs that have made or used a version that is deleted, in order."""
    row = DeletedArtifactLinkRow
    query = select(row).where(row.artifact_id == artifact_id, row.version == version)
    return list(s.scalars(query.order_by(row.id).limit(most)))


def model_versions_of(s: Session, run_id: str, trial_id: int | None, most: int) -> list[VersionRow]:
    """Return the versions of models whose checkpoints a run, or a trial, has made."""
    mine: ColumnElement[bool] = CheckpointRow.run_id == run_id
    if trial_id is not None:
        mine = or_(mine, CheckpointRow.trial_id == trial_id)
    query = select(VersionRow).join(CheckpointRow, CheckpointRow.uuid == VersionRow.checkpoint_uuid)
    return list(s.scalars(query.where(mine).order_by(VersionRow.id).limit(most)))


# --- removal


def delete_version(s: Session, row: ArtifactVersionRow, now: float) -> list[str]:
    """Delete a version; return the digests of files that no version of its artifact names any more."""
    s.flush()
    _remember_links(s, ArtifactVersionRow.id == row.id, now)
    mine = select(ArtifactEntryRow.digest).where(ArtifactEntryRow.version_id == row.id, ArtifactEntryRow.uri == "")
    digests = sorted(set(s.scalars(mine)))
    for table in (ArtifactEntryRow, ArtifactAliasRow, ArtifactLinkRow):
        s.execute(delete(table).where(table.version_id == row.id))
    s.delete(row)
    s.flush()
    return forget_unnamed(s, row.artifact_id, digests)


def forget_unnamed(s: Session, artifact_id: int, digests: Sequence[str]) -> list[str]:
    """Remove the rows of those of some files that no version names; return their digests, whose files go next."""
    gone: list[str] = []
    entry, file = ArtifactEntryRow, ArtifactFileRow
    for part in chunks(list(digests)):
        used: Any = select(entry.digest).where(
            entry.artifact_id == artifact_id, entry.digest.in_(part), entry.uri == ""
        )
        unused = sorted(set(part) - set(s.scalars(used)))
        s.execute(delete(file).where(file.artifact_id == artifact_id, file.digest.in_(unused)))
        gone += unused
    return gone


def _remember_links(s: Session, which: ColumnElement[bool], now: float) -> None:
    """Keep for lineage who has made and used the versions that are deleted next, of those that anybody has used."""
    link, version, artifact, gone = ArtifactLinkRow, ArtifactVersionRow, ArtifactRow, DeletedArtifactLinkRow
    used = aliased(ArtifactLinkRow)
    kept = {
        gone.artifact_id: artifact.id,
        gone.name: artifact.name,
        gone.kind: artifact.kind,
        gone.owner: artifact.owner,
        gone.workspace_id: artifact.workspace_id,
        gone.version: version.version,
        gone.digest: version.digest,
        gone.run_id: link.run_id,
        gone.role: link.role,
        gone.experiment_id: link.experiment_id,
        gone.at: link.at,
        gone.deleted_at: literal(now),
    }
    of_used = select(used.id).where(used.version_id == version.id, used.role == USED).exists()
    found = (
        select(*kept.values())
        .select_from(link)
        .join(version, version.id == link.version_id)
        .join(artifact, artifact.id == version.artifact_id)
        .where(which, of_used)
        .order_by(link.id)
    )
    s.execute(insert(gone).from_select([column.key for column in kept], found))


def delete_artifact(s: Session, row: ArtifactRow, now: float) -> None:
    """Delete an artifact with all that belongs to it."""
    s.flush()
    _remember_links(s, ArtifactVersionRow.artifact_id == row.id, now)
    mine = select(ArtifactVersionRow.id).where(ArtifactVersionRow.artifact_id == row.id)
    s.execute(delete(ArtifactLinkRow).where(ArtifactLinkRow.version_id.in_(mine)))
    for table in (ArtifactEntryRow, ArtifactAliasRow, ArtifactFileRow, ArtifactVersionRow):
        s.execute(delete(table).where(table.artifact_id == row.id))
    s.delete(row)
    s.flush()


def unfinished(s: Session, before: float, most: int) -> list[tuple[int, str]]:
    """Return files, as (artifact, digest), that were uploaded before a time for a version which was never made."""
    file, entry = ArtifactFileRow, ArtifactEntryRow
    named_now = select(entry.digest).where(
        entry.artifact_id == file.artifact_id, entry.digest == file.digest, entry.uri == ""
    )
    query = select(file.artifact_id, file.digest).where(file.created_at < before, ~named_now.exists())
    return [(artifact_id, digest) for artifact_id, digest in s.execute(query.limit(most))]


def count_of_workspace(s: Session, workspace_id: int) -> int:
    """Return how many artifacts lie in a workspace."""
    query = select(func.count()).select_from(ArtifactRow).where(ArtifactRow.workspace_id == workspace_id)
    return s.scalar(query) or 0
