"""References: the checkpoints that an experiment or a user task needs until it ends, by keys that may refer.

Two keys do: the warm start of a search (`searcher.source_checkpoint_uuid`, `searcher.source_trial_id`), and a word of
the entrypoint that is the id of a checkpoint, alone or after `=`, as of an evaluation. They are resolved once, at
submit, with the rights of who submits, into a table. What a description, a label, a hyperparameter, a variable or
anything else mentions is text, and pins nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from sqlalchemy import delete, or_, select
from sqlalchemy.orm import Session

from detlab.errors import Problem
from detlab.schemas.wire import ExperimentState
from detlab.schemas.wire.storage import Pin
from detlab_hub.services.base.access import person
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.warm_start import source_of
from detlab_hub.store.queries.rights import visible_experiments, visible_models
from detlab_hub.store.queries.statements import chunks, insert_or_ignore
from detlab_hub.store.tables import CheckpointRow, ExperimentRow, ModelRow, ReferenceRow, VersionRow

MOST_NAMED = 100
"""Checkpoints that one entrypoint may name."""
_WORD = re.compile(r"(?:[^=]*=)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
_STORED = ("COMPLETED", "PARTIALLY_DELETED")
Referrer = Literal["experiment", "task"]
_REASONS = {"warm_start": "starts from it", "evaluation": "names it in its entrypoint"}


def entrypoint_words(entrypoint: Any) -> list[str]:
    """Return the words of an entrypoint; an empty list if its quoting cannot be parsed."""
    if isinstance(entrypoint, list):
        return [str(word) for word in entrypoint]
    try:
        return shlex.split(str(entrypoint or ""))
    except ValueError:
        return []


def named_in(entrypoint: Any) -> list[str]:
    """Return the words of an entrypoint that may be ids of checkpoints, each once."""
    found = [match[1] for word in entrypoint_words(entrypoint) if (match := _WORD.fullmatch(word))]
    return list(dict.fromkeys(found))


def too_many(config: dict[str, Any]) -> list[Problem]:
    """Check how many checkpoints an entrypoint may mean."""
    count = len(named_in(config.get("entrypoint")))
    if count <= MOST_NAMED:
        return []
    message = f"names {count:,} ids such as checkpoints have; at most {MOST_NAMED} can be named"
    return [Problem("entrypoint", message, "put them into a file that goes with the code")]


def record(s: Session, caller: Caller, referrer: Referrer, key: int | str, config: dict[str, Any]) -> None:
    """Note what a new experiment or task refers to; its warm start was checked.

    Args:
        s: Of the writer's transaction in which it is made.
        caller: Who submits it. An id that they may not read is a word like any other.
        referrer: What it is.
        key: Its id.
        config: As it is stored.
    """
    source = source_of(s, config)
    found = [] if source is None else [(source.uuid, "warm_start")]
    found += [(uuid, "evaluation") for uuid in _readable(s, caller, named_in(config.get("entrypoint")))]
    rows = [{"uuid": uuid, "referrer": referrer, "referrer_id": str(key), "purpose": why} for uuid, why in found]
    if rows:
        s.execute(insert_or_ignore(s, ReferenceRow.__table__), rows)


def drop(s: Session, referrer: Referrer, key: int | str) -> None:
    """Forget the references of what has ended."""
    s.execute(delete(ReferenceRow).where(ReferenceRow.referrer == referrer, ReferenceRow.referrer_id == str(key)))


def reference_pins(s: Session, uuids: Sequence[str]) -> Iterator[tuple[str, Pin]]:
    """Yield what refers to some checkpoints and has not ended."""
    order = (ReferenceRow.referrer, ReferenceRow.referrer_id, ReferenceRow.purpose)
    for part in chunks(uuids):
        for row in s.scalars(select(ReferenceRow).where(ReferenceRow.uuid.in_(part)).order_by(*order)):
            reason = f"{row.referrer} {row.referrer_id}, which has not ended, {_REASONS[row.purpose]}"
            yield row.uuid, Pin.model_validate({"kind": row.purpose, "reason": reason})


def _readable(s: Session, caller: Caller, uuids: Sequence[str]) -> list[str]:
    """Return those that are stored and that the caller may read: by their experiment, or a model's version."""
    if not uuids:
        return []
    who = person(caller)
    models = select(VersionRow.checkpoint_uuid).join(ModelRow, ModelRow.id == VersionRow.model_id)
    models = models.where(visible_models(who))
    # As `access.models_using`: a version that somebody else has made in a model of theirs shares nothing.
    shown = models.where(or_(ModelRow.owner == ExperimentRow.owner, VersionRow.owner == ExperimentRow.owner))
    query = (
        select(CheckpointRow.uuid)
        .join(ExperimentRow, ExperimentRow.id == CheckpointRow.experiment_id)
        .where(CheckpointRow.uuid.in_(uuids), CheckpointRow.state.in_(_STORED))
        .where(ExperimentRow.state != ExperimentState.DELETING.value)
        .where(
            or_(
                visible_experiments(who),
                shown.where(VersionRow.checkpoint_uuid == CheckpointRow.uuid).exists(),
            )
        )
    )
    return list(s.scalars(query.order_by(CheckpointRow.uuid)))
