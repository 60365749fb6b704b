"""Labels that move between the versions of a model: `production`, `staging`; each move says who, when and why."""

from __future__ import annotations

import unicodedata
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, NotFound, Problem
from detlab.schemas.script_names import normal
from detlab.schemas.wire.registry import LabelMove, LabelMoves, MoveLabel, RemoveLabel, version_label
from detlab_hub.core.registry.semver import is_semver
from detlab_hub.core.rights import Action
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import model_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.notify.outbox import enqueue
from detlab_hub.services.registry.announcing import announce
from detlab_hub.services.registry.views import move_view
from detlab_hub.services.registry.withdrawals import check_promotion
from detlab_hub.store.idempotency import known_experiment, note_experiment
from detlab_hub.store.queries.registry import models
from detlab_hub.store.tables import CheckpointRow, LabelMoveRow, ModelRow, VersionLabelRow, VersionRow

LATEST = "latest"
"""Means the newest version, and is never given."""
MOST_LABELS = 100
"""Labels of one model's versions."""
_LOOKED_BACK = 100
"""Moves of a label among which that of a repeated request is."""
_NAMED = 20
"""Versions and labels that a hint names."""


class Labels(Service):
    """Use cases of labels. All raise NotFound for a model that the caller may not see."""

    async def history(self, caller: Caller, model: str, limit: int = 200, label: str | None = None) -> LabelMoves:
        """Return the moves of a model's labels, newest first."""

        def look(s: Session) -> LabelMoves:
            row = model_for(s, caller, model)
            return LabelMoves(items=[move_view(move) for move in models.moves(s, row.id, limit=limit, label=label)])

        return await self._context.look(caller.name, look)

    async def move(self, caller: Caller, model: str, label: str, wanted: MoveLabel) -> LabelMove:
        """Give a label to a version, and take it from the one that had it; where it is already, nothing changes.

        The same request again (by its `idempotency_key`) changes nothing either, wherever the label is by then.

        Raises:
            ConfigError: It cannot be a label.
            Conflict: Another version has it than `expected`; or the model is archived.
            Forbidden: The caller may read the model, not change it.
            NotFound: There is no such model for the caller, or no such version.
        """

        def move(unit: UnitOfWork) -> LabelMove:
            row = model_for(unit.session, caller, model, Action.LABEL_MOVE)
            check_open(row)
            request = f"label {row.id} {label} {wanted.idempotency_key}" if wanted.idempotency_key else None
            if known_experiment(unit.session, caller.name, request) is not None:
                made = models.moves(unit.session, row.id, limit=_LOOKED_BACK, label=label)
                if not made:
                    raise Conflict("this idempotency_key was used for something else", hint="Use another key.")
                mine = (one for one in made if one.by == caller.name and one.to_version is not None)
                return move_view(next(mine, made[0]))
            version = version_of(unit.session, row, wanted.version)
            _check_expected(unit.session, row, label, wanted.expected)
            moved = put_label(unit, caller, row, version, label, wanted.reason)
            checkpoint = unit.session.get_one(CheckpointRow, version.checkpoint_uuid)
            note_experiment(unit.session, caller.name, request, checkpoint.experiment_id, unit.now)
            return move_view(moved)

        return await self._context.write(move)

    async def remove(self, caller: Caller, model: str, label: str, wanted: RemoveLabel) -> LabelMove:
        """Take a label away.

        Raises:
            Conflict: Another version has it than `expected`.
            Forbidden: The caller may read the model, not change it.
            NotFound: There is no such model for the caller, or no version has the label.
        """

        def remove(unit: UnitOfWork) -> LabelMove:
            row = model_for(unit.session, caller, model, Action.LABEL_REMOVE)
            _check_expected(unit.session, row, label, wanted.expected)
            held = models.with_label(unit.session, row.id, label)
            if held is None:
                raise NotFound(f"no version of model {row.name!r} has the label {label[:80]!r}")
            return move_view(_take(unit, caller, row, held, wanted.reason))

        return await self._context.write(remove)


def check_open(model: ModelRow) -> None:
    """Check that a model is not archived.

    Raises:
        Conflict: It is.
    """
    if model.archived_at is not None:
        raise Conflict(f"model {model.name!r} is archived", hint=f"det model unarchive {model.id}")


def check_label(label: str) -> str:
    """Return a label that may be given to a version.

    Raises:
        ConfigError: It may not.
    """
    if unicodedata.normalize("NFKC", label).casefold() == LATEST:
        problem = "`latest` always is the newest version; it cannot be moved"
    else:
        try:
            return version_label(label)
        except ValueError as error:
            problem = str(error)
    raise ConfigError([Problem("label", problem)], f"{label[:80]!r} cannot be a label of a version: {problem}")


def version_of(s: Session, model: ModelRow, wanted: int | str) -> VersionRow:
    """Return a version by its number, its semantic version, a label, or `latest`.

    Raises:
        NotFound: There is none.
    """
    text = normal(str(wanted))
    found: VersionRow | None = None
    if text in {LATEST, "-1"}:
        found = models.newest(s, model.id)
    elif text.isascii() and text.isdigit():
        found = models.version(s, model.id, int(text)) if len(text) < 10 else None
    elif is_semver(text):
        found = models.with_semver(s, model.id, text)
    elif (held := models.with_label(s, model.id, text)) is not None:
        found = s.get_one(VersionRow, held.version_id)
    if found is None:
        what = "versions" if text == LATEST else f"version {text[:80]!r}"
        raise NotFound(f"model {model.name!r} has no {what}", hint=_what_there_is(s, model))
    return found


def _what_there_is(s: Session, model: ModelRow) -> str:
    """Return the newest versions of a model and its labels, as a hint for who has named another."""
    there = models.versions(s, model.id, limit=_NAMED + 1)
    if not there:
        return f"It has none yet: det model register-version {model.id} --help"
    named = [f"{one.version} ({one.semver})" if one.semver else str(one.version) for one in there[:_NAMED]]
    hint = f"Its versions: {', '.join(named)}{', …' if len(there) > _NAMED else ''}"
    labels = ", ".join(one.label for one in models.labels_of(s, [model.id]).get(model.id, [])[:_NAMED])
    return f"{hint}; its labels: {labels}" if labels else hint


def put_label(
    unit: UnitOfWork, caller: Caller, model: ModelRow, version: VersionRow, label: str, reason: str
) -> LabelMoveRow:
    """Move a label to a version, in this transaction; return the move, or the last one if it is there already.

    Raises:
        ConfigError: It cannot be a label.
        Conflict: The model has too many, or a source that has trained the version is withdrawn.
    """
    label = check_label(label)
    held = models.with_label(unit.session, model.id, label)
    if held is not None and held.version_id == version.id:
        return models.moves(unit.session, model.id, limit=1, label=label)[0]
    check_promotion(unit.session, model, version.checkpoint_uuid)
    before = None if held is None else held.version
    if held is None:
        if len(models.labels_of(unit.session, [model.id]).get(model.id, [])) >= MOST_LABELS:
            raise Conflict(f"the versions of model {model.name!r} have {MOST_LABELS} labels, the most there can be")
        unit.session.add(
            VersionLabelRow(model_id=model.id, label=label, version_id=version.id, version=version.version)
        )
    else:
        held.version_id, held.version = version.id, version.version
    more = {"semver": version.semver, "checkpoint": version.checkpoint_uuid}
    return _note(unit, caller, model, label, before, version.version, reason, more)


def _take(unit: UnitOfWork, caller: Caller, model: ModelRow, held: VersionLabelRow, reason: str) -> LabelMoveRow:
    unit.session.delete(held)
    return _note(unit, caller, model, held.label, held.version, None, reason, {})


def take_all(unit: UnitOfWork, caller: Caller, model: ModelRow, version: VersionRow, reason: str) -> None:
    """Take all labels from a version."""
    for held in models.labels_of(unit.session, [model.id]).get(model.id, []):
        if held.version_id == version.id:
            _take(unit, caller, model, held, reason)


def _note(
    unit: UnitOfWork,
    caller: Caller,
    model: ModelRow,
    label: str,
    before: int | None,
    after: int | None,
    reason: str,
    more: dict[str, Any],
) -> LabelMoveRow:
    """Write down a move: the history, the audit log, the event and the webhooks, all in one transaction."""
    move = LabelMoveRow(
        model_id=model.id,
        label=label,
        from_version=before,
        to_version=after,
        by=caller.name,
        at=unit.now,
        reason=reason,
    )
    unit.session.add(move)
    model.updated_at = unit.now
    unit.session.flush()
    audit.note(unit, caller, "model.label", f"model {model.id}", f"{label}: {before or 'none'} -> {after or 'none'}")
    announce(unit, model, "label", label=label, from_version=before, to_version=after, by=caller.name)
    told = move_view(move).model_dump(mode="json")
    enqueue(unit, "model.label", {"model": {"id": model.id, "name": model.name, "owner": model.owner}, **told, **more})
    return move


def _check_expected(s: Session, model: ModelRow, label: str, expected: int | None) -> None:
    """Check that a label is where its mover saw it.

    Raises:
        Conflict: Somebody has moved it meanwhile.
    """
    if expected is None:
        return
    held = models.with_label(s, model.id, label)
    now = 0 if held is None else held.version
    if now == expected:
        return
    last = next(iter(models.moves(s, model.id, limit=1, label=label)), None)
    where = f"is on version {now}" if now else "is on no version"
    who = f": {last.by} moved it{f' ({last.reason[:200]})' if last.reason else ''}" if last else ""
    raise Conflict(
        f"the label {label[:80]!r} of model {model.name!r} {where}, not {expected or 'none'}{who}",
        hint=f"det model history {model.id}",
    )
