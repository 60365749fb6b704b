"""What pins checkpoints: reasons for which none of them is collected or deleted, each with a sentence for people.

One list for all who remove files (I6). Whoever starts to need a checkpoint does so in the writer's transaction in
which it is found COMPLETED, and whoever marks one as deleted asks for its pins in the same transaction: one of the
two sees the other. All is asked by indexes: what others have stored, and how much of it, costs a delete nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from typing import Protocol

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.wire import ExperimentState, TrialState
from detlab.schemas.wire.storage import Pin
from detlab_hub.core.lifecycle.trial import Hold
from detlab_hub.services.base.references import reference_pins
from detlab_hub.store.queries.registry import models
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import BookmarkRow, ExperimentRow, TrialRow

_LIVING = [state.value for state in TrialState if not state.terminal]
_NOT_ENDED = [state.value for state in ExperimentState if not state.terminal and state is not ExperimentState.DELETING]
_PARENTS = frozenset({"pbt", "pb2"})
"""Searches whose trials start from checkpoints of better ones."""

Pins = dict[str, list[Pin]]


class CheckpointColumns(Protocol):
    """What is asked about: a row of checkpoints, or some of its columns."""

    @property
    def uuid(self) -> str:
        """Its id."""

    @property
    def trial_id(self) -> int:
        """The trial that saved it."""

    @property
    def experiment_id(self) -> int:
        """The experiment of that trial."""


class NeedsCheckpoints(Protocol):
    """Says what searches need: `Searches`, or what they have said."""

    def needed_checkpoints(self, s: Session, row: ExperimentRow) -> Set[str] | None:
        """Return the checkpoints from which trials of a search may still start; None: perhaps all."""


def pins_of(s: Session, rows: Sequence[CheckpointColumns], searches: NeedsCheckpoints | None) -> Pins:
    """Return what pins each of some checkpoints; those that nothing pins are not in it.

    Args:
        s: A session.
        rows: The checkpoints.
        searches: Those of the writer's transaction, or what they have said; None: the searches are not asked.
    """
    found: defaultdict[str, list[Pin]] = defaultdict(list)
    uuids = {row.uuid for row in rows}
    if not uuids:
        return {}
    experiments = sorted({row.experiment_id for row in rows})
    sources = (
        _trials(s, rows, uuids, experiments),
        reference_pins(s, sorted(uuids)),
        _searches(s, rows, experiments, searches),
        version_pins(s, uuids),
        _bookmarks(s, sorted(uuids)),
    )
    for source in sources:
        for uuid, pin in source:
            found[uuid].append(pin)
    return dict(found)


def version_pins(s: Session, uuids: Set[str]) -> list[tuple[str, Pin]]:
    """Return the pins of model versions in the registry, without their names: not everybody may know of a model."""
    reason = "it is a version of a model in the registry"
    return [(uuid, Pin(kind="version", reason=reason)) for uuid in models.pinned(s, sorted(uuids))]


def _trials(
    s: Session, rows: Sequence[CheckpointColumns], uuids: Set[str], experiments: Sequence[int]
) -> Iterator[tuple[str, Pin]]:
    """Yield what trials that have not ended resume or start from."""
    columns = select(TrialRow.id, TrialRow.latest_checkpoint, TrialRow.parent_checkpoint, TrialRow.hold)
    living = TrialRow.state.in_(_LIVING)
    own: dict[str, tuple[int, str]] = {}
    for part in chunks(experiments):
        for trial in s.execute(columns.where(living, TrialRow.experiment_id.in_(part))):
            if trial.latest_checkpoint is not None:
                own[trial.latest_checkpoint] = trial.id, trial.hold
    for row in rows:
        if row.uuid in own:
            number, hold = own[row.uuid]
            if hold == Hold.NONE:
                yield row.uuid, Pin(kind="resume", reason=f"trial {number}, which has not ended, resumes from it")
            else:
                reason = f"trial {number}, which waits at a rung of its search, resumes from it when it is promoted"
                yield row.uuid, Pin(kind="rung", reason=reason)
    for some in chunks(sorted(uuids)):
        for trial in s.execute(columns.where(living, TrialRow.parent_checkpoint.in_(some))):
            reason = f"trial {trial.id}, which has not ended, starts from it"
            yield trial.parent_checkpoint, Pin(kind="parent", reason=reason)


def _searches(
    s: Session, rows: Sequence[CheckpointColumns], experiments: Sequence[int], searches: NeedsCheckpoints | None
) -> Iterator[tuple[str, Pin]]:
    """Yield what searches may still start further trials from."""
    if searches is None:
        return
    for number in experiments:
        experiment = s.get_one(ExperimentRow, number)
        if experiment.state not in _NOT_ENDED:
            continue
        needed = searches.needed_checkpoints(s, experiment)
        for row in rows:
            if row.experiment_id != number or (needed is not None and row.uuid not in needed):
                continue
            if needed is None:
                reason = f"the search of experiment {number} cannot be replayed now and may need it"
                yield row.uuid, Pin(kind="search", reason=reason)
            else:
                reason = f"the search of experiment {number} may start further trials from it"
                kind = "parent" if experiment.searcher_name in _PARENTS else "search"
                yield row.uuid, Pin.model_validate({"kind": kind, "reason": reason})


def _bookmarks(s: Session, uuids: Sequence[str]) -> Iterator[tuple[str, Pin]]:
    for part in chunks(uuids):
        query = select(BookmarkRow).where(BookmarkRow.uuid.in_(part)).order_by(BookmarkRow.uuid, BookmarkRow.name)
        for row in s.scalars(query):
            note = f": {row.note}" if row.note else ""
            yield row.uuid, Pin(kind="bookmark", reason=f"{row.name} has bookmarked it{note}")
