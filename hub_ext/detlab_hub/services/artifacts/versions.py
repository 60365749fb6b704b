"""Versions of artifacts: made of uploaded files and of references, named by aliases, used by runs, deleted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy.orm import Session

from detlab.errors import CheckpointError, DetlabError, NotFound
from detlab.schemas.script_names import normal
from detlab.schemas.wire.artifacts.artifacts import (
    LOGGED,
    SCHEMES,
    USED,
    ArtifactFile,
    ArtifactFileList,
    ArtifactVersionList,
    ArtifactVersionView,
    EditArtifactVersion,
    LinkRole,
    LogVersion,
    RunArtifact,
    RunArtifactList,
    VersionLogged,
)
from detlab.schemas.wire.registry import model_name
from detlab_hub.core.rights import Action, Right
from detlab_hub.services.admission.destinations import destination
from detlab_hub.services.artifacts.access import artifact_for, artifact_rights, check_unused, version_for
from detlab_hub.services.artifacts.artifacts import check_name
from detlab_hub.services.artifacts.views import version_view, version_views
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import person
from detlab_hub.services.base.callers import Caller, TaskCaller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.checkpoints.manifests import check_path
from detlab_hub.services.checkpoints.named_files import remove_digests
from detlab_hub.services.tracking.access import TrackedRun, Tracker, run_for, run_id_of, speaker_of
from detlab_hub.services.tracking.run_views import found_run
from detlab_hub.services.views import pages
from detlab_hub.store.queries import workspaces
from detlab_hub.store.queries.registry import artifacts
from detlab_hub.store.tables import (
    ArtifactAliasRow,
    ArtifactEntryRow,
    ArtifactLinkRow,
    ArtifactRow,
    ArtifactVersionRow,
    WorkspaceRow,
)

METADATA_BYTES = 64 * 1024
PART_BYTES, MOST_PARTS = 255, 30
"""Bytes of a name in a path, and names."""
DATASET = "dataset"
"""The kind of an artifact that is made without one."""
MOST_LINKS = 500


class ArtifactRefused(DetlabError):
    """What is to be an artifact cannot be one."""

    default_code = "artifact.refused"


class ArtifactVersions(Service):
    """Use cases of versions. All raise NotFound for an artifact that the caller may not see."""

    async def log(self, caller: Tracker, name: str, wanted: LogVersion) -> VersionLogged:
        """Make a version, if all its files are there; else say which are missing.

        Args:
            caller: Who logs it; a trial for its owner.
            name: Of the artifact; one of the caller's own is made if it is not there.
            wanted: What it is.

        Raises:
            ArtifactRefused: It cannot be one: a path leads out of it, a reference is of a kind that is not taken.
            Forbidden: The caller may not change the artifact, or not log into the run.
            NotFound: There is no such artifact, or no such run, for the caller.
            StaleAttempt: The caller is a task whose attempt is over.
        """
        check_files(wanted.files)
        _check_metadata(wanted.metadata)
        who = speaker_of(caller)
        artifact_id = await self._context.write(lambda unit: _made(unit, caller, who, name, wanted))
        async with self._context.artifact_locks.of(artifact_id):
            return await self._context.write(lambda unit: _log(unit, caller, who, artifact_id, wanted))

    async def list(self, caller: Tracker, name: str, limit: int, after: int | None) -> ArtifactVersionList:
        """Return a page of the versions of an artifact, newest first."""
        who = speaker_of(caller)

        def look(s: Session) -> ArtifactVersionList:
            ids = artifacts.versions(s, artifact_for(s, who, name).id, limit=limit, after=after)
            items, last = pages.of_rows(s, ArtifactVersionRow, ids, limit, lambda rows: version_views(s, rows, who))
            return ArtifactVersionList(items=items, next=None if last is None else last.version)

        return await self._context.look(who.name, look)

    async def get(self, caller: Tracker, name: str, version: str) -> ArtifactVersionView:
        """Return a version by its number, `v3`, an alias or `latest`."""
        who = speaker_of(caller)
        return await self._context.read(
            lambda s: version_view(s, version_for(s, artifact_for(s, who, name), version), who)
        )

    async def files(self, caller: Tracker, name: str, version: str, limit: int, after: str) -> ArtifactFileList:
        """Return a page of the files of a version, by path."""
        who = speaker_of(caller)

        def look(s: Session) -> ArtifactFileList:
            row = version_for(s, artifact_for(s, who, name), version)
            rows = artifacts.entries(s, row.id, after, limit + 1)
            items = pages.within(
                ArtifactFile(path=one.path, size=one.size, digest=one.digest, uri=one.uri) for one in rows[:limit]
            )
            return ArtifactFileList(items=items, next=items[-1].path if len(items) < len(rows) else None)

        return await self._context.look(who.name, look)

    async def edit(self, caller: Caller, name: str, version: str, wanted: EditArtifactVersion) -> ArtifactVersionView:
        """Change the comment, metadata and aliases of a version; the same again changes nothing.

        Raises:
            ArtifactRefused: The metadata is too large.
            Forbidden: The caller may not change the artifact.
        """

        def edit(unit: UnitOfWork) -> ArtifactVersionView:
            s = unit.session
            artifact = artifact_for(s, caller, name, Action.ARTIFACT_EDIT)
            row = version_for(s, artifact, version)
            if wanted.comment is not None:
                row.comment = wanted.comment
            kept = {key: one for key, one in row.metadata_.items() if key not in wanted.remove_metadata}
            row.metadata_ = _check_metadata({**kept, **wanted.set_metadata})
            for alias in wanted.remove_aliases:
                held = s.get(ArtifactAliasRow, (artifact.id, normal(alias)))
                if held is not None and held.version_id == row.id:
                    s.delete(held)
            s.flush()
            for alias in wanted.add_aliases:
                artifacts.put_alias(s, artifact.id, alias, row.id)
            artifact.updated_at = unit.now
            audit.note(unit, caller, "artifact.edit", f"artifact {artifact.id}", f"version {row.version}")
            return version_view(s, row, caller)

        return await self._context.write(edit)

    async def delete(self, caller: Caller, name: str, version: str, *, force: bool = False) -> ArtifactVersionView:
        """Delete a version with the files that no other version has; its number is not given again.

        Raises:
            Conflict: Runs use it, or aliases point at it, and it is not forced.
            Forbidden: The artifact is another user's.
        """
        row = await self._context.read(lambda s: artifact_for(s, caller, name, Action.ARTIFACT_DELETE))

        def delete(unit: UnitOfWork) -> tuple[ArtifactVersionView, list[str]]:
            found = artifact_for(unit.session, caller, str(row.id), Action.ARTIFACT_DELETE)
            one = version_for(unit.session, found, version)
            said = f"version {one.version} of artifact {found.name!r}"
            check_unused(unit.session, [one.id], said, force=force)
            view = version_view(unit.session, one, caller)
            audit.note(unit, caller, "artifact.delete", f"artifact {found.id}", f"version {one.version}")
            return view, artifacts.delete_version(unit.session, one, unit.now)

        async with self._context.artifact_locks.of(row.id):
            view, gone = await self._context.write(delete)
            await self._context.workers.moves.run(caller.name, remove_digests, self._context.settings, row.id, gone)
        return view

    # --- runs

    async def use(self, caller: Tracker, name: str, version: str, run: str) -> ArtifactVersionView:
        """Record that a run uses a version, and return that.

        Raises:
            Forbidden: The caller may not log into the run.
            NotFound: There is no such version, or no such run, for the caller.
            StaleAttempt: The caller is a task whose attempt is over.
        """
        who = speaker_of(caller)

        def use(unit: UnitOfWork) -> ArtifactVersionView:
            row = version_for(unit.session, artifact_for(unit.session, who, name, Action.ARTIFACT_USE), version)
            _link(unit, _run_of(unit.session, caller, run), row, USED)
            return version_view(unit.session, row, who)

        return await self._context.write(use)

    async def of_run(self, caller: Caller, run: str, skip: int) -> RunArtifactList:
        """Return what a run has made and used, of what the caller may read.

        Raises:
            NotFound: There is no such run for the caller.
        """

        def look(s: Session) -> RunArtifactList:
            links = artifacts.links_of_run(s, found_run(s, caller, run).id, MOST_LINKS)
            found = []
            for link in links:
                row = s.get_one(ArtifactVersionRow, link.version_id)
                artifact = s.get_one(ArtifactRow, row.artifact_id)
                if artifact_rights(s, caller, [artifact])[artifact.id] >= Right.READ:
                    view = version_views(s, [row], caller)[0]
                    found.append(RunArtifact(role=LOGGED if link.role == LOGGED else USED, at=link.at, version=view))
            return pages.in_part(RunArtifactList(items=found), skip)

        return await self._context.look(caller.name, look)


# --- what can be a version


def check_files(files: Sequence[ArtifactFile]) -> None:
    """Check that the files of a version can be a folder on any machine.

    Raises:
        ArtifactRefused: They cannot; the message names the first mistake.
    """
    paths: set[str] = set()
    folders: set[str] = set()
    for one in files:
        _check_path(one.path)
        if one.path in paths:
            raise ArtifactRefused(f"{one.path[:80]!r} is named twice")
        paths.add(one.path)
        folders.update(str(above) for above in PurePosixPath(one.path).parents)
        if one.uri:
            _check_reference(one)
    if both := sorted(paths & folders):
        raise ArtifactRefused(f"{both[0][:80]!r} is both a file and a folder")


def _check_path(path: str) -> None:
    try:
        check_path(path)
    except CheckpointError as error:
        raise ArtifactRefused(
            f"{path[:80]!r} cannot be the path of a file: it is relative, within the artifact, without `..`"
        ) from error
    parts = PurePosixPath(path).parts
    if len(parts) > MOST_PARTS or any(len(one.encode(errors="replace")) > PART_BYTES for one in parts):
        raise ArtifactRefused(
            f"{path[:80]!r} cannot be the path of a file: at most {MOST_PARTS} names of {PART_BYTES} bytes"
        )
    if not path.isprintable():
        raise ArtifactRefused(f"{path[:80]!r} has characters that cannot be printed")


def _check_reference(one: ArtifactFile) -> None:
    if not one.uri.isprintable() or any(char.isspace() for char in one.uri):
        raise ArtifactRefused(f"the address of {one.path[:80]!r} has spaces, or characters that cannot be printed")
    try:
        found = urlsplit(one.uri)
        scheme, secret = found.scheme, found.password is not None or "@" in found.netloc
    except ValueError as error:
        raise ArtifactRefused(f"{one.uri[:80]!r} is no address: {error}") from error
    if scheme not in SCHEMES:
        raise ArtifactRefused(
            f"{one.uri[:80]!r} cannot be a reference: it begins with one of {', '.join(f'{it}:' for it in SCHEMES)}",
            hint="Add what lies on a disk as files: what `file:` means differs from machine to machine",
        )
    if secret:
        raise ArtifactRefused(
            f"the address of {one.path[:80]!r} has a user or a password in it, which every reader would see",
            hint="Leave it out: who downloads uses credentials of their own",
        )


def _check_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    size = len(json.dumps(metadata, separators=(",", ":")))
    if size > METADATA_BYTES:
        raise ArtifactRefused(
            f"the metadata has {size:,} bytes as JSON; {METADATA_BYTES:,} is the most",
            hint="Put large things into a file of the artifact",
        )
    return dict(metadata)


# --- making one


def _run_of(s: Session, caller: Tracker, run: str) -> TrackedRun | None:
    """Return the run that a request names; of a trial that names none, the trial.

    Raises:
        Forbidden: The caller may not log into it.
        NotFound: There is none for the caller.
    """
    if isinstance(caller, TaskCaller):
        return run_for(s, caller, run or run_id_of(caller.trial_id or 0), Action.RUN_LOG)
    return run_for(s, caller, found_run(s, caller, run).id, Action.RUN_LOG) if run else None


def _made(unit: UnitOfWork, caller: Tracker, who: Caller, name: str, wanted: LogVersion) -> int:
    """Return the id of the artifact that is logged into, which is made if it is the caller's own and not there."""
    s = unit.session
    run = _run_of(s, caller, wanted.run)
    try:
        return artifact_for(s, who, name, Action.ARTIFACT_LOG).id
    except NotFound:
        owner, slash, rest = name.rpartition("/")
        if name.isdigit() or (slash and owner != person(who).name):
            raise
    kept = _kept_name(rest if slash else name)
    row = ArtifactRow(
        name=kept,
        kind=wanted.kind or DATASET,
        owner=who.name,
        owner_groups=_groups(who, run),
        workspace_id=_place(unit, who, wanted.workspace, run),
        description=wanted.description or "",
        created_at=unit.now,
        updated_at=unit.now,
    )
    s.add(row)
    s.flush()
    audit.note(unit, who, "artifact.create", f"artifact {row.id}", row.name)
    return row.id


def _kept_name(name: str) -> str:
    check_name(name)
    try:
        return model_name(name)
    except ValueError as error:
        raise ArtifactRefused(f"{name[:80]!r} cannot be the name of an artifact: {error}") from error


def _groups(who: Caller, run: TrackedRun | None) -> list[str]:
    """Return the groups whose quotas an artifact counts towards: a trial's token says none."""
    if who.run is not None and run is not None and run.experiment is not None:
        return run.experiment.owner_groups
    return sorted(who.groups)


def _place(unit: UnitOfWork, who: Caller, workspace: str, run: TrackedRun | None) -> int | None:
    """Return the workspace that an artifact is to lie in: the one that is named, else that of its run."""
    s = unit.session
    named = workspace
    if not named and run is not None:
        found = run.experiment.workspace_id if run.experiment is not None else None
        if run.row is not None and found is None:
            found = run.row.workspace_id
        if run.experiment is not None and who.run is not None:
            return _shared(s, found)
        named = "" if _shared(s, found) is None else str(found)
    place = destination(s, who, named, "", person(who).name)
    return place.workspace.id if place.reference and place.workspace is not None else None


def _shared(s: Session, workspace_id: int | None) -> int | None:
    """Return a workspace, if it is nobody's personal one."""
    row = None if workspace_id is None else s.get(WorkspaceRow, workspace_id)
    return None if row is None or row.kind == workspaces.PERSONAL else row.id


def _log(unit: UnitOfWork, caller: Tracker, who: Caller, artifact_id: int, wanted: LogVersion) -> VersionLogged:
    s = unit.session
    artifact = artifact_for(s, who, str(artifact_id), Action.ARTIFACT_LOG)
    run = _run_of(s, caller, wanted.run)
    if wanted.kind is not None and artifact.kind != wanted.kind:
        raise ArtifactRefused(
            f"artifact {artifact.name!r} is of the kind {artifact.kind!r}, not {wanted.kind!r}",
            hint="Log it with that kind, or under another name",
        )
    files = [one for one in wanted.files if not one.uri]
    known = artifacts.known_files(s, artifact.id, {one.digest for one in files})
    missing = sorted({one.digest for one in files} - known.keys())
    if missing:
        return VersionLogged(artifact_id=artifact.id, missing=missing)
    for one in files:
        if known[one.digest] != one.size:
            raise ArtifactRefused(f"{one.path[:80]!r} has {known[one.digest]:,} bytes, not {one.size:,} as was said")
    newest = artifacts.newest(s, artifact.id)
    digest = digest_of_files(wanted.files)
    created = newest is None or newest.digest != digest
    row = _add(unit, who, artifact, wanted, digest) if created or newest is None else newest
    if not created:
        row.metadata_ = _check_metadata({**row.metadata_, **wanted.metadata})
        row.comment = wanted.comment or row.comment
    if wanted.description is not None:
        artifact.description = wanted.description
    for alias in wanted.aliases:
        artifacts.put_alias(s, artifact.id, alias, row.id)
    artifact.updated_at = unit.now
    _link(unit, run, row, LOGGED)
    return VersionLogged(artifact_id=artifact.id, version=version_view(s, row, who), created=created)


def digest_of_files(files: Sequence[ArtifactFile]) -> str:
    """Return the digest of a list of files, whatever its order."""
    listed = sorted([one.path, one.digest, one.size, one.uri] for one in files)
    return f"sha256:{hashlib.sha256(json.dumps(listed, separators=(',', ':')).encode()).hexdigest()}"


def _add(unit: UnitOfWork, who: Caller, artifact: ArtifactRow, wanted: LogVersion, digest: str) -> ArtifactVersionRow:
    s = unit.session
    artifact.last_version += 1
    row = ArtifactVersionRow(
        artifact_id=artifact.id,
        version=artifact.last_version,
        digest=digest,
        files=len(wanted.files),
        references_count=sum(bool(one.uri) for one in wanted.files),
        size=sum(one.size for one in wanted.files if not one.uri),
        comment=wanted.comment,
        metadata_=wanted.metadata,
        owner=who.name,
        created_at=unit.now,
    )
    s.add(row)
    s.flush()
    s.add_all(
        ArtifactEntryRow(
            version_id=row.id,
            path=one.path,
            artifact_id=artifact.id,
            size=one.size,
            digest=one.digest,
            uri=one.uri,
        )
        for one in wanted.files
    )
    s.flush()
    return row


def _link(unit: UnitOfWork, run: TrackedRun | None, row: ArtifactVersionRow, role: LinkRole) -> None:
    if run is None:
        return
    made = ArtifactLinkRow(
        version_id=row.id,
        run_id=run.id,
        role=role,
        experiment_id=None if run.experiment is None else run.experiment.id,
        at=unit.now,
    )
    artifacts.link(unit.session, made)
