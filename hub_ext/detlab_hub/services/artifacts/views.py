"""From rows to views of artifacts and versions; lists take a few queries, whatever their length."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from detlab.schemas.wire.artifacts.artifacts import LATEST, LOGGED, USED, ArtifactVersionView, ArtifactView
from detlab_hub.services.artifacts.access import artifact_rights, reference_of
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.tracking.access import readable_runs
from detlab_hub.services.views.pages import brief
from detlab_hub.store.queries import workspaces
from detlab_hub.store.queries.registry import artifacts
from detlab_hub.store.tables import ArtifactRow, ArtifactVersionRow

MOST_RUNS = 100
"""Runs that a view names."""


def artifact_views(s: Session, rows: Sequence[ArtifactRow], caller: Caller) -> list[ArtifactView]:
    """Make the views of artifacts."""
    s.flush()
    ids = [row.id for row in rows]
    counts, sizes, rights = artifacts.counts(s, ids), artifacts.sizes(s, ids), artifact_rights(s, caller, rows)
    pointing = artifacts.pointing(s, ids)
    places = workspaces.references(s, {row.workspace_id for row in rows if row.workspace_id is not None})
    return [
        brief(
            ArtifactView(
                id=row.id,
                name=row.name,
                kind=row.kind,
                owner=row.owner,
                description=row.description,
                created_at=row.created_at,
                updated_at=row.updated_at,
                versions=counts.get(row.id, (0, 0))[0],
                latest=counts[row.id][1] if row.id in counts else None,
                size=sizes.get(row.id, 0),
                aliases=pointing.get(row.id, {}),
                right=rights[row.id].wire,
                reference=reference_of(caller, row),
                workspace=places.get(row.workspace_id or 0, ""),
            )
        )
        for row in rows
    ]


def version_views(
    s: Session, rows: Sequence[ArtifactVersionRow], reader: Caller, *, full: bool = False
) -> list[ArtifactVersionView]:
    """Make the views of versions; only full ones name the runs that have made them and use them."""
    s.flush()
    ids = [row.id for row in rows]
    named = artifacts.by_ids(s, {row.artifact_id for row in rows})
    newest = {key: number for key, (_, number) in artifacts.counts(s, list(named)).items()}
    aliases = artifacts.aliases_of(s, ids)
    links = artifacts.links_of(s, ids, MOST_RUNS) if full else []
    readable = readable_runs(s, reader, [one.run_id for one in links])
    views = []
    for row in rows:
        artifact = named[row.artifact_id]
        held = aliases.get(row.id, []) + ([LATEST] if newest.get(row.artifact_id) == row.version else [])
        runs = [one for one in links if one.version_id == row.id and one.run_id in readable]
        made = ArtifactVersionView(
            artifact_id=artifact.id,
            artifact=artifact.name,
            kind=artifact.kind,
            artifact_reference=reference_of(reader, artifact),
            version=row.version,
            aliases=held,
            comment=row.comment,
            metadata=row.metadata_,
            digest=row.digest,
            files=row.files,
            references=row.references_count,
            size=row.size,
            owner=row.owner,
            created_at=row.created_at,
            logged_by=[one.run_id for one in runs if one.role == LOGGED],
            used_by=[one.run_id for one in runs if one.role == USED],
        )
        views.append(made if full else brief(made))
    return views


def version_view(s: Session, row: ArtifactVersionRow, reader: Caller) -> ArtifactVersionView:
    """Make the full view of one version."""
    return version_views(s, [row], reader, full=True)[0]
