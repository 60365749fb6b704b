"""Bytes of checkpoints, trash, code and task outputs, summed up by user, group, project or experiment.

The sums over checkpoints are answered by the index of experiment, state and size alone: rows of checkpoints are wide.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, case, func, select, type_coerce, union
from sqlalchemy.orm import Session

from detlab.schemas.wire.storage import StorageBy
from detlab_hub.core.rights import ObjectKind, Person, Right, Thing, right_of
from detlab_hub.store.queries.rights import visible, visible_experiments
from detlab_hub.store.tables import (
    ArtifactFileRow,
    ArtifactRow,
    BundleRow,
    BundleUpload,
    CheckpointRow,
    ExperimentRow,
    FreedRow,
    MediaRow,
    OutputRow,
    RemovalRow,
    TaskRow,
    TrackedFileRow,
    TrackedRunRow,
    clean_text,
)
from detlab_hub.store.tables.base import decode_json

GONE = "DELETED"
_IN_TRASH = case((RemovalRow.bytes > 0, RemovalRow.bytes), else_=CheckpointRow.size)
"""Bytes that a removal of a whole checkpoint is for; earlier versions did not write them down."""
Key = str | int | None
"""A user's or a group's name, or the id of a project or an experiment; None: no project."""


@dataclass
class Use:
    """Bytes of one user, group, project or experiment."""

    checkpoints: int = 0
    checkpoint_bytes: int = 0
    trash_bytes: int = 0
    bundles: dict[str, int] = field(default_factory=dict)
    """Digest -> bytes: code that several experiments run counts once."""
    output_bytes: int = 0
    freed_bytes: int = 0

    @property
    def other_bytes(self) -> int:
        """Bytes of code, task outputs and files of runs."""
        return self.output_bytes + sum(self.bundles.values())

    @property
    def used(self) -> int:
        """What counts towards a quota."""
        return self.checkpoint_bytes + self.other_bytes

    def add(self, other: Use) -> None:
        """Add the bytes of another one."""
        self.checkpoints += other.checkpoints
        self.checkpoint_bytes += other.checkpoint_bytes
        self.trash_bytes += other.trash_bytes
        self.bundles |= other.bundles
        self.output_bytes += other.output_bytes
        self.freed_bytes += other.freed_bytes


def usage(s: Session, by: StorageBy, viewer: Person) -> tuple[dict[Key, Use], Use]:
    """Sum up what is stored.

    Args:
        s: A session.
        by: What the sums are of. A group has what its members stored while they were in it.
        viewer: Only of what this user may see: their own use and that of their groups, and the projects and experiments
            that they may read; of a project, no more than its experiments that they may read.

    Returns:
        The sums, and the sum of all: bytes of several groups count once in it.
    """
    match by:
        case "user":
            found = _sums(s, ExperimentRow.owner, visible(ObjectKind.USER, viewer, owner=ExperimentRow.owner))
            for name, digest, size in s.execute(
                _uploads().where(visible(ObjectKind.USER, viewer, owner=BundleUpload.name))
            ):
                found.setdefault(name, Use()).bundles[digest] = size
            outputs = _outputs(TaskRow.owner).where(visible(ObjectKind.USER, viewer, owner=TaskRow.owner))
            for name, size in s.execute(outputs):
                found.setdefault(name, Use()).output_bytes += int(size)
            mine = visible(ObjectKind.USER, viewer, owner=TrackedRunRow.owner)
            for query in _files(TrackedRunRow.owner):
                for name, size in s.execute(query.where(mine)):
                    found.setdefault(name, Use()).output_bytes += int(size)
            _add_media(s, found, ExperimentRow.owner, visible(ObjectKind.USER, viewer, owner=ExperimentRow.owner))
            named = _artifacts(ArtifactRow.owner).where(visible(ObjectKind.USER, viewer, owner=ArtifactRow.owner))
            for name, size in s.execute(named):
                found.setdefault(name, Use()).output_bytes += int(size)
            # Of experiments that are deleted, too: what they freed is their owner's.
            freed = select(FreedRow.owner, func.sum(FreedRow.bytes)).group_by(FreedRow.owner)
            for name, size in s.execute(freed.where(visible(ObjectKind.USER, viewer, owner=FreedRow.owner))):
                found.setdefault(name, Use()).freed_bytes = int(size)
            return found, _total(found.values())
        case "group":
            return _by_group(s, viewer)
        case "project" | "experiment":
            column = ExperimentRow.project_id if by == "project" else ExperimentRow.id
            shown = visible_experiments(viewer)
            found = _sums(s, column, shown)
            _add_freed(s, found, column, shown)
            _add_media(s, found, column, shown)
            for key, digest, size in s.execute(_code(column, shown)):
                found.setdefault(key, Use()).bundles[digest] = size
            return found, _total(found.values())


def of_user(s: Session, user: str) -> Use:
    """Sum up what a user stores."""
    name = clean_text(user)
    found = _sums(s, ExperimentRow.owner, ExperimentRow.owner == name).get(name, Use())
    found.bundles = {digest: size for _, digest, size in s.execute(_uploads().where(BundleUpload.name == name))}
    outputs = s.execute(_outputs(TaskRow.owner).where(TaskRow.owner == name)).first()
    found.output_bytes = 0 if outputs is None else int(outputs[1])
    for query in _files(TrackedRunRow.owner):
        files = s.execute(query.where(TrackedRunRow.owner == name)).first()
        found.output_bytes += 0 if files is None else int(files[1])
    others = (
        _media(ExperimentRow.owner).where(ExperimentRow.owner == name),
        _artifacts(ArtifactRow.owner).where(ArtifactRow.owner == name),
    )
    for query in others:
        stored = s.execute(query).first()
        found.output_bytes += 0 if stored is None else int(stored[1])
    return found


def of_groups(s: Session, names: Collection[str]) -> dict[str, Use]:
    """Sum up what the members of some groups store, by group."""
    if not names:
        return {}
    found, _ = _by_group(s, Person("", frozenset(map(clean_text, names))))
    return {name: found.get(name, Use()) for name in map(clean_text, names)}


def largest(s: Session, owner: str, count: int) -> list[tuple[int, str, int]]:
    """Return (id, name, bytes of checkpoints) of a user's experiments that store most."""
    size = func.sum(CheckpointRow.size)
    query = (
        select(ExperimentRow.id, ExperimentRow.name, size)
        .join(CheckpointRow, CheckpointRow.experiment_id == ExperimentRow.id)
        .where(ExperimentRow.owner == clean_text(owner), CheckpointRow.state != GONE)
        .group_by(ExperimentRow.id, ExperimentRow.name)
        .having(size > 0)
        .order_by(size.desc(), ExperimentRow.id)
        .limit(count)
    )
    return [(key, name, int(stored)) for key, name, stored in s.execute(query)]


def _by_group(s: Session, viewer: Person) -> tuple[dict[Key, Use], Use]:
    column = type_coerce(ExperimentRow.owner_groups, Text)
    anywhere = ExperimentRow.id.is_not(None)
    by_text = _sums(s, column, anywhere)
    _add_freed(s, by_text, column, anywhere)
    _add_media(s, by_text, column, anywhere)
    for text, digest, size in s.execute(_code(column, anywhere)):
        by_text.setdefault(text, Use()).bundles[digest] = size
    of_tasks = type_coerce(TaskRow.owner_groups, Text)
    for text, size in s.execute(_outputs(of_tasks)):
        by_text.setdefault(text, Use()).output_bytes += int(size)
    for query in _files(type_coerce(TrackedRunRow.owner_groups, Text)):
        for text, size in s.execute(query):
            by_text.setdefault(text, Use()).output_bytes += int(size)
    for text, size in s.execute(_artifacts(type_coerce(ArtifactRow.owner_groups, Text))):
        by_text.setdefault(text, Use()).output_bytes += int(size)
    code = select(of_tasks, BundleRow.digest, BundleRow.size).join(BundleRow, BundleRow.digest == TaskRow.bundle)
    for text, digest, size in s.execute(code.distinct()):
        by_text.setdefault(text, Use()).bundles[digest] = size
    found: dict[Key, Use] = {}
    total = Use()
    for text, use in by_text.items():
        shown = [name for name in _names(str(text)) if _sees_group(viewer, name)]
        for name in shown:
            found.setdefault(name, Use()).add(use)
        if shown:
            total.add(use)
    return found, total


@lru_cache(maxsize=4096)
def _names(text: str) -> frozenset[str]:
    return frozenset(clean_text(name) for name in decode_json(text) or ())


def _sees_group(viewer: Person, name: str) -> bool:
    """Whether a user may see what a group uses: whoever may read its quota, which says so, too."""
    return right_of(viewer, Thing(ObjectKind.QUOTA, groups={name: False})) >= Right.READ


def _sums(s: Session, column: Any, shown: ColumnElement[bool]) -> dict[Key, Use]:
    """Sum up checkpoints and trash of the shown experiments by one of their columns."""
    existing = (
        select(column, func.count(), func.coalesce(func.sum(CheckpointRow.size), 0))
        .select_from(ExperimentRow)
        .join(CheckpointRow, CheckpointRow.experiment_id == ExperimentRow.id)
        .where(CheckpointRow.state != GONE, shown)
        .group_by(column)
    )
    found: dict[Key, Use] = {key: Use(count, int(size)) for key, count, size in s.execute(existing)}
    trash = (
        select(column, func.coalesce(func.sum(_IN_TRASH), 0))
        .select_from(RemovalRow)
        .join(CheckpointRow, CheckpointRow.uuid == RemovalRow.uuid)
        .join(ExperimentRow, ExperimentRow.id == CheckpointRow.experiment_id)
        .where(RemovalRow.paths.is_(None), CheckpointRow.state == GONE, shown)
        .group_by(column)
    )
    for key, size in s.execute(trash):
        found.setdefault(key, Use()).trash_bytes = int(size)
    return found


def _add_freed(s: Session, found: dict[Key, Use], column: Any, shown: ColumnElement[bool]) -> None:
    """Add the bytes that the shown experiments have freed."""
    freed = (
        select(column, func.sum(FreedRow.bytes))
        .select_from(FreedRow)
        .join(ExperimentRow, ExperimentRow.id == FreedRow.experiment_id)
        .where(shown)
        .group_by(column)
    )
    for key, size in s.execute(freed):
        found.setdefault(key, Use()).freed_bytes = int(size)


def _code(column: Any, shown: ColumnElement[bool]) -> Select[Any]:
    """Return the statement of the code of the shown experiments and of their searches: key, digest, bytes."""
    parts = [
        select(column.label("key"), used.label("digest")).where(used.is_not(None), shown)
        for used in (ExperimentRow.bundle, ExperimentRow.search_bundle)
    ]
    run = union(*parts).subquery()
    return select(run.c.key, BundleRow.digest, BundleRow.size).join(BundleRow, BundleRow.digest == run.c.digest)


def _uploads() -> Select[str, str, int]:
    return select(BundleUpload.name, BundleRow.digest, BundleRow.size).join(
        BundleRow, BundleRow.digest == BundleUpload.digest
    )


def _outputs(column: Any) -> Select[Any]:
    size = func.coalesce(func.sum(OutputRow.size), 0)
    return select(column, size).join(OutputRow, OutputRow.task_id == TaskRow.id).group_by(column)


def _files(column: Any) -> list[Select[Any]]:
    """Return the statements of the files of runs by one of their columns: uploaded, registered, media."""
    return [
        select(column, func.coalesce(func.sum(table.size), 0))
        .select_from(TrackedRunRow)
        .join(table, table.run_id == TrackedRunRow.id)
        .group_by(column)
        for table in (TrackedFileRow, CheckpointRow, MediaRow)
    ]


def _media(column: Any) -> Select[Any]:
    """Return the statement of the media of trials by a column of their experiments."""
    return (
        select(column, func.coalesce(func.sum(MediaRow.size), 0))
        .select_from(ExperimentRow)
        .join(MediaRow, MediaRow.experiment_id == ExperimentRow.id)
        .group_by(column)
    )


def _artifacts(column: Any) -> Select[Any]:
    """Return the statement of the files of artifacts by a column of these."""
    return (
        select(column, func.coalesce(func.sum(ArtifactFileRow.size), 0))
        .select_from(ArtifactRow)
        .join(ArtifactFileRow, ArtifactFileRow.artifact_id == ArtifactRow.id)
        .group_by(column)
    )


def _add_media(s: Session, found: dict[Key, Use], column: Any, shown: ColumnElement[bool]) -> None:
    for key, size in s.execute(_media(column).where(shown)):
        found.setdefault(key, Use()).output_bytes += int(size)


def _total(uses: Iterable[Use]) -> Use:
    total = Use()
    for use in uses:
        total.add(use)
    return total
