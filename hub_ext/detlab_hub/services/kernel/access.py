"""Who may do what with which object: loads the facts that the table of rights in `core.rights` asks for (I9).

Every service that gives or changes somebody's object asks here; lists are filtered by `store.queries.rights.visible`,
from the same table. A caller without the right to read cannot tell whether the object exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from sqlalchemy.orm import Session

from detlab.errors import Conflict, Forbidden, NotFound
from detlab.schemas.wire import ExperimentState
from detlab_hub.core.rights import Agent, Attempt, Kind, Person, Right, Thing, Who, right_of
from detlab_hub.services.kernel.callers import AgentCaller, Caller, TaskCaller
from detlab_hub.store.queries import rights
from detlab_hub.store.queries.registry import models
from detlab_hub.store.tables import CheckpointRow, ExperimentRow, ModelRow, TaskRow, TrialRow, clean_text


class Hidden(NotFound):
    """The object exists, but not for the caller, who gets a plain 404; administrators see the attempt."""


def no_such(message: str, *, exists: bool, hint: str = "") -> NotFound:
    """Make the error for an object that is not there, or not for this caller: they cannot tell."""
    return (Hidden if exists else NotFound)(message, hint=hint)


# --- callers


@lru_cache(maxsize=1024)
def person(caller: Caller) -> Person:
    """Return a user as the table of rights knows them: names as the database holds them."""
    groups = frozenset(map(clean_text, caller.groups))
    return Person(clean_text(caller.name), groups, caller.admin, run=caller.run is not None)


def who_is(caller: Caller | TaskCaller | AgentCaller) -> Who:
    """Return a caller as the table of rights knows them."""
    match caller:
        case Caller():
            return person(caller)
        case TaskCaller():
            return Attempt(caller.experiment_id, caller.trial_id, caller.task_id)
        case AgentCaller():
            return Agent(caller.agent_id)


def owns(caller: Caller, owner: str) -> bool:
    """Whether something that `owner` owns is the caller's own. Gives no right: an administrator has those of all."""
    return person(caller).name == clean_text(owner)


@lru_cache(maxsize=4096)
def knows(caller: Caller, kind: Kind, owner: str) -> bool:
    """Whether the caller may read an object of this kind that `owner` owns and nobody shares.

    Remembered, as lists ask it for each row, of few owners; it depends on nothing but its arguments.
    """
    return right_of(person(caller), Thing(kind, clean_text(owner))) >= Right.READ


def administers(caller: Caller, kind: Kind) -> bool:
    """Whether the caller may do anything with all objects of a kind."""
    return right_of(person(caller), Thing(kind)) >= Right.OWN


def check_administers(caller: Caller, kind: Kind, what: str) -> None:
    """Check that the caller may do anything with all objects of a kind.

    Args:
        caller: Who asks.
        kind: Of what.
        what: What they want to do, as in "only administrators may …".

    Raises:
        Forbidden: They may not.
    """
    if not administers(caller, kind):
        raise Forbidden(f"only administrators may {what}")


# --- facts


def thing_of(row: ExperimentRow | TaskRow) -> Thing:
    """Return an experiment or a user task as the table of rights knows it, without grants."""
    if isinstance(row, TaskRow):
        return Thing(Kind.TASK, row.owner, task_id=row.id)
    return Thing(Kind.EXPERIMENT, row.owner, experiment_id=row.id)


def things(s: Session, caller: Caller, rows: Sequence[ExperimentRow]) -> dict[int, Thing]:
    """Load experiments as the table of rights knows them, by their ids, with the grants that apply to the caller.

    No query for the caller's own, to which no grant could add a right.
    """
    who = person(caller)
    found = {row.id: thing_of(row) for row in rows}
    others = [key for key, thing in found.items() if right_of(who, thing) < Right.OWN]
    for key, write in rights.grants_among(s, others, who).items():
        found[key] = replace(found[key], users={who.name: write})
    return found


def rights_to(s: Session, caller: Caller, rows: Sequence[ExperimentRow]) -> dict[int, Right]:
    """Return the caller's rights to some experiments, by their ids."""
    return {key: right_of(person(caller), thing) for key, thing in things(s, caller, rows).items()}


def right_to(s: Session, caller: Caller, row: ExperimentRow) -> Right:
    """Return the right of the caller to an experiment."""
    return rights_to(s, caller, [row])[row.id]


def may_read(s: Session, caller: Caller, experiment_id: int) -> bool:
    """Whether the caller may read an experiment; False if it does not exist."""
    row = s.get(ExperimentRow, experiment_id)
    return row is not None and right_to(s, caller, row) >= Right.READ


def is_deleting(s: Session, experiment_id: int) -> bool:
    """Whether an experiment is being deleted, and its checkpoints with it: nothing new may begin to need one."""
    row = s.get(ExperimentRow, experiment_id)
    return row is None or row.state == ExperimentState.DELETING


# --- objects


def experiment_for(s: Session, caller: Caller, experiment_id: int, right: Right = Right.READ) -> ExperimentRow:
    """Load an experiment with which the caller may do what `right` says.

    Raises:
        NotFound: It does not exist, or the caller may not read it: they cannot tell.
        Forbidden: They may read it, and no more.
    """
    row = s.get(ExperimentRow, experiment_id)
    held = Right.NONE if row is None else right_to(s, caller, row)
    if row is None or held is Right.NONE:
        raise no_such(f"there is no experiment {experiment_id}", exists=row is not None, hint="det experiment list")
    _check(caller, row, held, right)
    return row


def trial_for(s: Session, caller: Caller, trial_id: int, right: Right = Right.READ) -> TrialRow:
    """Load a trial with whose experiment the caller may do what `right` says.

    Raises:
        NotFound: It does not exist, or the caller may not read it: they cannot tell.
        Forbidden: They may read it, and no more.
    """
    row = s.get(TrialRow, trial_id)
    experiment = None if row is None else s.get(ExperimentRow, row.experiment_id)
    held = Right.NONE if experiment is None else right_to(s, caller, experiment)
    if row is None or experiment is None or held is Right.NONE:
        exists = experiment is not None
        raise no_such(f"there is no trial {trial_id}", exists=exists, hint="det trial list EXPERIMENT")
    _check(caller, experiment, held, right)
    return row


def checkpoint_for(s: Session, caller: Caller, uuid: str, right: Right = Right.READ) -> CheckpointRow:
    """Load a checkpoint with whose experiment the caller may do what `right` says.

    Those who may read a model may also read the checkpoints of its versions.

    Raises:
        NotFound: It does not exist, or the caller may not read it: they cannot tell.
        Forbidden: They may read it, and no more.
    """
    row = s.get(CheckpointRow, uuid)
    experiment = None if row is None else s.get(ExperimentRow, row.experiment_id)
    held = Right.NONE if experiment is None else right_to(s, caller, experiment)
    if row is not None and held is Right.NONE:
        held = right_of(person(caller), Thing(Kind.CHECKPOINT, used_by=models_using(s, caller, uuid)))
    if row is None or experiment is None or held is Right.NONE:
        hint = "det checkpoint list EXPERIMENT"
        raise no_such(f"there is no checkpoint {uuid[:80]}", exists=experiment is not None, hint=hint)
    _check(caller, experiment, held, right)
    return row


def model_things(s: Session, caller: Caller, rows: Sequence[ModelRow]) -> dict[int, Thing]:
    """Load models as the table of rights knows them, by their ids, with the grants that apply to the caller."""
    who = person(caller)
    found = {row.id: Thing(Kind.MODEL, row.owner) for row in rows}
    others = [key for key, thing in found.items() if right_of(who, thing) < Right.OWN]
    for key, write in rights.model_grants_among(s, others, who).items():
        found[key] = replace(found[key], users={who.name: write})
    return found


def model_rights(s: Session, caller: Caller, rows: Sequence[ModelRow]) -> dict[int, Right]:
    """Return the caller's rights to some models, by their ids."""
    return {key: right_of(person(caller), thing) for key, thing in model_things(s, caller, rows).items()}


def models_using(s: Session, caller: Caller, uuid: str) -> list[Thing]:
    """Return the models that have a version of a checkpoint."""
    return list(model_things(s, caller, models.using(s, uuid)).values())


def model_for(s: Session, caller: Caller, name: str, right: Right = Right.READ) -> ModelRow:
    """Load a model with which the caller may do what `right` says.

    Args:
        s: A session.
        caller: Who asks.
        name: Its name, `OWNER/NAME` or its id. Of several models with a name the caller's own is meant.
        right: What they want to do.

    Raises:
        NotFound: It does not exist, or the caller may not read it: they cannot tell.
        Forbidden: They may read it, and no more.
        Conflict: Several people share one of this name with the caller.
    """
    rows = models.named(s, name)
    held = model_rights(s, caller, rows)
    seen = [row for row in rows if held[row.id] is not Right.NONE]
    row = next((row for row in seen if owns(caller, row.owner)), seen[0] if len(seen) == 1 else None)
    if row is None and seen:
        owners = ", ".join(f"{row.owner}/{row.name} (id {row.id})" for row in seen[:5])
        raise Conflict(f"there are {len(seen)} models of this name: {owners}", hint="Name one by its owner or id.")
    if row is None:
        raise no_such(f"there is no model {name[:300]!r}", exists=bool(rows), hint="det model list")
    if held[row.id] < right:
        may = "share or delete it" if right is Right.OWN else "change it"
        raise Forbidden(
            f"model {row.name!r} is {row.owner}'s, and you may not {may}",
            hint=f"They may allow changes: det model share {row.id} --user … --write",
        )
    return row


def may_open_task(caller: Caller, row: TaskRow, right: Right = Right.READ) -> bool:
    """Whether the caller may do with a user task what `right` says."""
    return right_of(person(caller), thing_of(row)) >= right


def _check(caller: Caller, row: ExperimentRow, held: Right, right: Right) -> None:
    if held >= right:
        return
    if right is Right.OWN and caller.run is not None and owns(caller, row.owner):
        raise Forbidden(
            f"experiment {row.id} is yours, but a notebook run may neither share nor delete it",
            hint="Do it where you are logged in",
        )
    if right is Right.OWN:
        raise Forbidden(f"experiment {row.id} is {row.owner}'s: only they and administrators may do that")
    raise Forbidden(
        f"experiment {row.id} is {row.owner}'s, who lets you read it, not change it",
        hint=f"They may allow it: det experiment share {row.id} --user … --write",
    )
