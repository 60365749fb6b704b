"""Versions of models: registered from checkpoints with their lineage, edited, deleted, searched."""

from __future__ import annotations

import math

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, Forbidden, Problem
from detlab.schemas.wire.registry import (
    CreateVersion,
    EditVersion,
    LineageGraph,
    VersionList,
    VersionView,
)
from detlab_hub.core.filters.grammar import FilterError, parse, pointed
from detlab_hub.core.registry.formats import format_of
from detlab_hub.core.registry.semver import SemanticVersion
from detlab_hub.core.rights import Action
from detlab_hub.services.admission.notes import check_notes
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import (
    checkpoint_for,
    checkpoint_named,
    checkpoint_owner,
    experiment_for,
    is_deleting,
    model_for,
)
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.checkpoints.artifact_files import remove_snapshots
from detlab_hub.services.registry.announcing import announce
from detlab_hub.services.registry.facts import Fact, version_facts
from detlab_hub.services.registry.labels import check_label, check_open, put_label, take_all, version_of
from detlab_hub.services.registry.lineage import capture, finite, graph_of
from detlab_hub.services.registry.models import check_metadata, edited_metadata, visible
from detlab_hub.services.registry.views import version_view, version_views
from detlab_hub.services.registry.withdrawals import check_promotion
from detlab_hub.services.views import experiment_views, pages
from detlab_hub.store.idempotency import known_experiment, note_experiment
from detlab_hub.store.queries.registry import models, search
from detlab_hub.store.tables import CheckpointRow, ModelRow, VersionMetric, VersionRow, clean_text

_COMPLETED = "COMPLETED"
_REFUSED = {
    "DELETED": "its files are deleted",
    "PARTIALLY_DELETED": "some of its files are deleted",
}


class Versions(Service):
    """Use cases of versions. All raise NotFound for a model that the caller may not see."""

    async def list(self, caller: Caller, model: str, limit: int = 100, after: int | None = None) -> VersionList:
        """Return one page of a model's versions, newest first."""

        def look(s: Session) -> VersionList:
            row = model_for(s, caller, model)
            ids = models.page_of_versions(s, row.id, limit=limit, after=after)
            items, last = pages.of_rows(s, VersionRow, ids, limit, lambda rows: version_views(s, rows, caller))
            return VersionList(items=items, after=None if last is None else last.version)

        return await self._context.look(caller.name, look)

    async def get(self, caller: Caller, model: str, version: str) -> VersionView:
        """Return a version by its number, semantic version, label or `latest`."""

        def look(s: Session) -> VersionView:
            return version_view(s, version_of(s, model_for(s, caller, model), version), caller)

        return await self._context.read(look)

    async def register(self, caller: Caller, model: str, wanted: CreateVersion) -> VersionView:
        """Make a checkpoint a version of a model; one that is a version of it already gives that version.

        Raises:
            ConfigError: It names no checkpoint or two, or a label or the metadata cannot be used; or the semantic
                version is none, or not above those before it.
            Conflict: The checkpoint is not whole, the experiment has none, the version has another semantic version, or
                the model is archived; or a source that has trained the checkpoint is withdrawn.
            Forbidden: The caller may read the model, not change it; or not register this checkpoint there: see
                `_check_may_register`.
            NotFound: There is no such model, checkpoint or experiment for the caller.
        """
        _check(wanted)

        def register(unit: UnitOfWork) -> VersionView:
            row = model_for(unit.session, caller, model, Action.VERSION_REGISTER)
            check_open(row)
            checkpoint = _checkpoint(unit.session, caller, wanted)
            version = models.of_checkpoint(unit.session, row.id, checkpoint.uuid)
            if version is None:
                _check_may_register(unit.session, caller, row, checkpoint)
                check_promotion(unit.session, row, checkpoint.uuid)
                version = _register(unit, caller, row, checkpoint, wanted)
            elif wanted.semver is not None and wanted.semver != version.semver:
                raise Conflict(
                    f"checkpoint {checkpoint.uuid} is version {version.version} of model {row.name!r} already,"
                    f" with {'the semantic version ' + version.semver if version.semver else 'no semantic version'}",
                    hint=f"det model edit-version {row.id}@{version.version} --semver {wanted.semver}",
                )
            request = f"register {row.id} {wanted.idempotency_key}" if wanted.idempotency_key else None
            if known_experiment(unit.session, caller.name, request) is None:
                for label in dict.fromkeys(wanted.labels):
                    put_label(unit, caller, row, version, label, wanted.reason)
                note_experiment(unit.session, caller.name, request, checkpoint.experiment_id, unit.now)
            return version_view(unit.session, version, caller)

        return await self._context.write(register)

    async def edit(self, caller: Caller, model: str, version: str, wanted: EditVersion) -> VersionView:
        """Carry out an edit, all of it or nothing; the same again changes nothing.

        Raises:
            ConfigError: The metadata is too large; or the semantic version is none, or not between its neighbours'.
            Forbidden: The caller may read the model, not change it.
        """
        if wanted.semver is not None:
            parse_semver(wanted.semver)

        def edit(unit: UnitOfWork) -> VersionView:
            parent = model_for(unit.session, caller, model, Action.VERSION_EDIT)
            row = version_of(unit.session, parent, version)
            check_notes(f"version {version} of model {parent.name!r}", row.notes, wanted.notes, wanted.notes_before)
            changed = _write(row, wanted)
            if wanted.semver is not None and wanted.semver != row.semver:
                check_semver(unit.session, parent, wanted.semver, row.version)
                row.semver = wanted.semver
                _raise_semver(parent, wanted.semver)
                changed.append("semver")
            if changed:
                row.updated_at = parent.updated_at = unit.now
                models.replace_facts(unit.session, parent.id, row.id, _facts(row))
                detail = f"version {row.version}: {', '.join(changed)}"
                audit.note(unit, caller, "model.edit_version", f"model {parent.id}", detail)
                announce(unit, parent, "edited", version=row.version)
            return version_view(unit.session, row, caller)

        return await self._context.write(edit)

    async def delete(self, caller: Caller, model: str, version: str, *, force: bool = False) -> VersionView:
        """Delete a version. Its checkpoint stays, and is pinned no longer; its number is never given again.

        The snapshot of a model that a run has logged goes with its last version.

        Args:
            caller: Who asks.
            model: Its model.
            version: Its number, semantic version or label.
            force: Also if labels point at it, which are then on no version.

        Raises:
            Conflict: Labels point at it.
            Forbidden: The model is another user's.
        """

        gone: list[str] = []

        def delete(unit: UnitOfWork) -> VersionView:
            parent = model_for(unit.session, caller, model, Action.VERSION_DELETE)
            row = version_of(unit.session, parent, version)
            view = version_view(unit.session, row, caller)
            if view.labels and not force:
                raise Conflict(
                    f"version {row.version} of model {parent.name!r} has the labels {', '.join(view.labels)}",
                    hint="Move them to another version first, or add --force",
                )
            take_all(unit, caller, parent, row, f"version {row.version} was deleted")
            parent.updated_at = unit.now
            audit.note(unit, caller, "model.delete_version", f"model {parent.id}", f"version {row.version}")
            announce(unit, parent, "version", version=row.version, deleted=True)
            models.delete_version(unit.session, row)
            gone[:] = models.drop_snapshots(unit.session, [view.checkpoint])
            return view

        view = await self._context.write(delete)
        await remove_snapshots(self._context, gone)
        return view

    async def lineage(self, caller: Caller, model: str, version: str) -> LineageGraph:
        """Return the lineage of a version as a graph."""

        def look(s: Session) -> LineageGraph:
            row = model_for(s, caller, model)
            return graph_of(s, caller, row, version_of(s, row, version))

        return await self._context.look(caller.name, look)

    async def search(
        self,
        caller: Caller,
        *,
        best: str | None = None,
        smaller_is_better: bool = False,
        where: str = "",
        limit: int = 100,
        after: int | None = None,
    ) -> VersionList:
        """Return versions of all models that the caller may see, best first, or newest first without a metric.

        Args:
            caller: Who asks.
            best: The metric that orders them; those without it are left out.
            smaller_is_better: Its order.
            where: A condition; see `core.filters.grammar`.
            limit: Most versions.
            after: Of the last page: its `after`.

        Raises:
            ConfigError: The condition cannot be read; it says at which column.
        """
        try:
            condition = parse(where)
            search.condition_of(condition)
        except FilterError as error:
            raise _unreadable(where, error) from error

        def look(s: Session) -> VersionList:
            ids = search.best(
                s,
                visible(caller),
                condition,
                best,
                smaller_is_better=smaller_is_better,
                limit=limit,
                after=after,
            )
            items, last = pages.of_rows(s, VersionRow, ids, limit, lambda rows: version_views(s, rows, caller))
            following = None
            if last is not None:
                following = last.id if best is None else (after or 0) + len(items)
            return VersionList(items=items, after=following)

        return await self._context.look(caller.name, look)


def parse_semver(text: str) -> SemanticVersion:
    """Return a semantic version.

    Raises:
        ConfigError: The text is none.
    """
    try:
        return SemanticVersion(text)
    except ValueError as error:
        raise ConfigError([Problem("semver", str(error))], str(error)) from error


def check_semver(s: Session, model: ModelRow, text: str, number: int) -> None:
    """Check that a semantic version is above those of the versions before its own, and below those after it.

    Raises:
        ConfigError: It is not; the message names the other one.
    """
    wanted, known = parse_semver(text), models.semvers(s, model.id)
    before = [semver for other, semver in known if other < number]
    if model.last_semver is not None and number > model.last_version:
        before.append(model.last_semver)  # also of a version that is deleted
    after = [semver for other, semver in known if other > number]
    highest = max(before, key=SemanticVersion, default=None)
    lowest = min(after, key=SemanticVersion, default=None)
    problem = ""
    if highest is not None and wanted <= SemanticVersion(highest):
        problem = f"{text} is not above {highest}, the last one of model {model.name!r}"
    elif lowest is not None and wanted >= SemanticVersion(lowest):
        problem = f"{text} is not below {lowest}, which a later version of model {model.name!r} has"
    if problem:
        raise ConfigError([Problem("semver", problem)], problem, hint="Semantic versions only go up.")


def _check(wanted: CreateVersion) -> None:
    if (wanted.checkpoint is None) == (wanted.experiment_id is None):
        problem = "name a checkpoint, or an experiment whose best one is meant"
        raise ConfigError([Problem("checkpoint", problem)], problem)
    check_metadata(wanted.metadata)
    for label in wanted.labels:
        check_label(label)
    if wanted.semver is not None:
        parse_semver(wanted.semver)


def _checkpoint(s: Session, caller: Caller, wanted: CreateVersion) -> CheckpointRow:
    """Return the checkpoint that is to be registered, in the caller's rights."""
    uuid = wanted.checkpoint
    if uuid is None:
        assert wanted.experiment_id is not None  # checked before
        experiment = experiment_for(s, caller, wanted.experiment_id)
        best = experiment_views.best_of(s, experiment)
        measured = best is not None and math.isfinite(best.value)
        if best is None or best.checkpoint is None or not measured:
            none = f"no trial has reported a finite value of {experiment.metric!r}"
            why = "its best trial has no checkpoint" if measured else none
            raise Conflict(
                f"experiment {experiment.id} has no best checkpoint: {why}",
                hint=f"det checkpoint list {experiment.id}",
            )
        uuid = best.checkpoint
    row = checkpoint_named(s, caller, uuid)
    if row.run_id is None and is_deleting(s, row.experiment_id):
        raise Conflict(
            f"checkpoint {row.uuid} cannot be registered: experiment {row.experiment_id} is being deleted with it"
        )
    if row.state != _COMPLETED or not row.files:
        why = _REFUSED.get(row.state, "it has no files" if row.state == _COMPLETED else f"it is {row.state}")
        raise Conflict(
            f"checkpoint {row.uuid} cannot be registered: {why}", hint=f"det checkpoint list {row.experiment_id}"
        )
    return row


def _check_may_register(s: Session, caller: Caller, model: ModelRow, checkpoint: CheckpointRow) -> None:
    """Check that the caller may make a checkpoint a version of a model.

    A version pins the checkpoint, and shares it with those who may read the model. In a model of its owner that is for
    those who may change both; in one of somebody else it is sharing, and for its owner alone.

    Raises:
        Forbidden: They may not.
    """
    owner = checkpoint_owner(s, checkpoint)
    if owner == model.owner:
        checkpoint_for(s, caller, checkpoint.uuid, Action.CHECKPOINT_REGISTER)
        return
    try:
        checkpoint_for(s, caller, checkpoint.uuid, Action.CHECKPOINT_REGISTER_ELSEWHERE)
    except Forbidden as error:
        raise Forbidden(
            f"checkpoint {checkpoint.uuid} is {owner}'s and model {model.name!r} is {model.owner}'s:"
            f" that would share it, which only {owner} may",
            hint=f"{owner} may register it, or register it in a model that is {owner}'s",
        ) from error


def _register(
    unit: UnitOfWork, caller: Caller, model: ModelRow, checkpoint: CheckpointRow, wanted: CreateVersion
) -> VersionRow:
    s = unit.session
    number = model.last_version + 1
    if wanted.semver is not None:
        check_semver(s, model, wanted.semver, number)
        _raise_semver(model, wanted.semver)
    lineage = capture(s, checkpoint)
    row = VersionRow(
        model_id=model.id,
        version=number,
        semver=wanted.semver,
        checkpoint_uuid=checkpoint.uuid,
        name=wanted.name,
        comment=wanted.comment,
        notes=wanted.notes,
        metadata_=wanted.metadata,
        owner=caller.name,
        format=format_of(checkpoint.files),
        lineage=lineage.model_dump(mode="json"),
        created_at=unit.now,
        updated_at=unit.now,
    )
    model.last_version, model.updated_at = number, unit.now
    s.add(row)
    s.flush()
    s.add_all(
        VersionMetric(version_id=row.id, name=clean_text(name), value=value)
        for name, value in finite(lineage.metrics).items()
    )
    models.replace_facts(s, model.id, row.id, _facts(row))
    audit.note(unit, caller, "model.register", f"model {model.id}", f"version {number}: checkpoint {checkpoint.uuid}")
    announce(unit, model, "version", version=number)
    return row


def _facts(row: VersionRow) -> list[Fact]:
    lineage = row.lineage
    number = lineage.get("experiment_id")
    experiment = [] if number is None else [("experiment", str(number), number)]
    return [*experiment, *version_facts(row.metadata_, lineage.get("hyperparameters") or {})]


def _raise_semver(model: ModelRow, semver: str) -> None:
    if model.last_semver is None or SemanticVersion(semver) > SemanticVersion(model.last_semver):
        model.last_semver = semver


def _write(row: VersionRow, wanted: EditVersion) -> list[str]:
    """Set what is given; return the names of what changed."""
    changed = []
    for field in ("name", "comment", "notes"):
        text = getattr(wanted, field)
        if text is not None and clean_text(text) != getattr(row, field):
            setattr(row, field, clean_text(text))
            changed.append(field)
    metadata = edited_metadata(row.metadata_, wanted.metadata, wanted.set_metadata, wanted.remove_metadata)
    if metadata != row.metadata_:
        row.metadata_ = metadata
        changed.append("metadata")
    return changed


def _unreadable(where: str, error: FilterError) -> ConfigError:
    """Return the error of a condition that cannot be read, with a mark below the column."""
    message = f"the condition cannot be read at column {error.column}: {error.message}"
    problem = Problem("where", f"column {error.column}: {error.message}")
    return ConfigError([problem], f"{message}\n{pointed(where, error.column)}")
