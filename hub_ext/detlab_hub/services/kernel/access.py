"""The right of a caller to read, change or own an experiment: its owner, administrators, and users with a grant (I9).

Everything that belongs to an experiment (trials, metrics, output, checkpoints, code, events) follows its rule. A caller
without the right to read cannot tell whether the experiment exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Literal

from sqlalchemy.orm import Session

from detlab.errors import Forbidden, NotFound
from detlab_hub.services.kernel.callers import Caller
from detlab_hub.store.queries import grants
from detlab_hub.store.tables import ExperimentRow, TrialRow


class Hidden(NotFound):
    """The object exists, but not for the caller, who gets a plain 404; administrators see the attempt."""


class Right(IntEnum):
    """The right of a caller to an experiment; each includes those before it."""

    NONE = 0
    READ = 1
    """Read it, download from it, start from its checkpoints."""
    WRITE = 2
    """Pause, activate, cancel and kill it and its trials."""
    OWN = 3
    """Share and delete it."""

    @property
    def wire(self) -> Literal["read", "write", "own"]:
        """The name in views for the holder of the right. A caller without one gets no view: READ is the least."""
        match self:
            case Right.OWN:
                return "own"
            case Right.WRITE:
                return "write"
            case _:
                return "read"


def right_to(s: Session, caller: Caller, row: ExperimentRow) -> Right:
    """Return the right of the caller to an experiment."""
    return rights_to(s, caller, [row])[row.id]


def rights_to(s: Session, caller: Caller, rows: Sequence[ExperimentRow]) -> dict[int, Right]:
    """Return the caller's rights to some experiments, by their ids; no query for the caller's own."""
    rights = {row.id: Right.OWN if caller.sees(row.owner) else Right.NONE for row in rows}
    others = [key for key, right in rights.items() if right is Right.NONE]
    for key, write in grants.among(s, others, caller.name, caller.groups).items():
        rights[key] = Right.WRITE if write else Right.READ
    return rights


def experiment_for(s: Session, caller: Caller, experiment_id: int, right: Right = Right.READ) -> ExperimentRow:
    """An experiment with which the caller may do what `right` says.

    Raises:
        NotFound: It does not exist, or the caller may not read it: they cannot tell.
        Forbidden: They may read it, and no more.
    """
    row = s.get(ExperimentRow, experiment_id)
    held = Right.NONE if row is None else right_to(s, caller, row)
    if row is None or held is Right.NONE:
        missing = NotFound if row is None else Hidden
        raise missing(f"there is no experiment {experiment_id}", hint="det experiment list")
    _check(row, held, right)
    return row


def trial_for(s: Session, caller: Caller, trial_id: int, right: Right = Right.READ) -> TrialRow:
    """A trial with whose experiment the caller may do what `right` says.

    Raises:
        NotFound: It does not exist, or the caller may not read it: they cannot tell.
        Forbidden: They may read it, and no more.
    """
    row = s.get(TrialRow, trial_id)
    experiment = None if row is None else s.get(ExperimentRow, row.experiment_id)
    held = Right.NONE if experiment is None else right_to(s, caller, experiment)
    if row is None or experiment is None or held is Right.NONE:
        missing = NotFound if experiment is None else Hidden
        raise missing(f"there is no trial {trial_id}", hint="det trial list EXPERIMENT")
    _check(experiment, held, right)
    return row


def may_read(s: Session, caller: Caller, experiment_id: int) -> bool:
    """Whether the caller may read an experiment; False if it does not exist."""
    row = s.get(ExperimentRow, experiment_id)
    return row is not None and right_to(s, caller, row) >= Right.READ


def _check(row: ExperimentRow, held: Right, right: Right) -> None:
    if held >= right:
        return
    if right is Right.OWN:
        raise Forbidden(f"experiment {row.id} is {row.owner}'s: only they and administrators may do that")
    raise Forbidden(
        f"experiment {row.id} is {row.owner}'s, who lets you read it, not change it",
        hint=f"They may allow it: det experiment share {row.id} --user … --write",
    )
