"""Who may do what with which object: loads the facts that the table of rights in `core.rights` asks for (I9).

Every service that gives or changes somebody's object asks here; lists are filtered by `store.queries.rights.visible`,
from the same table. A caller without the right to read cannot tell whether the object exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from sqlalchemy.orm import Session

from detlab.errors import Conflict, Forbidden, NotFound
from detlab.schemas.wire import ExperimentState
from detlab_hub.core.rights import (
    ACTIONS,
    Action,
    AgentIdentity,
    AttemptIdentity,
    ObjectKind,
    Person,
    Right,
    Role,
    Thing,
    Who,
    may,
    may_ask,
    right_of,
)
from detlab_hub.services.base.callers import AgentCaller, Caller, TaskCaller
from detlab_hub.store.queries import checkpoints, rights, workspaces
from detlab_hub.store.queries.notify import webhooks
from detlab_hub.store.queries.registry import models, naming
from detlab_hub.store.tables import (
    AlertRuleRow,
    CheckpointRow,
    ExperimentRow,
    HookRow,
    ModelRow,
    ScheduleRow,
    TaskRow,
    TrackedRunRow,
    TrialRow,
    WorkspaceRow,
    clean_text,
)

Key = TypeVar("Key", int, str)
SHORTEST_START = 4
"""Characters of a checkpoint's uuid that may stand for all of it."""
_ID_DIGITS = 18
_UUID_CHARS, _UUID_TEXT = 36, frozenset("0123456789abcdef-")


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
            return AttemptIdentity(caller.experiment_id, caller.trial_id, caller.task_id)
        case AgentCaller():
            return AgentIdentity(caller.agent_id)


def owns(caller: Caller, owner: str) -> bool:
    """Whether something that `owner` owns is the caller's own. Gives no right: an administrator has those of all."""
    return person(caller).name == clean_text(owner)


@lru_cache(maxsize=4096)
def knows(caller: Caller, kind: ObjectKind, owner: str) -> bool:
    """Whether the caller may read an object of this kind that `owner` owns and nobody shares.

    Remembered, as lists ask it for each row, of few owners; it depends on nothing but its arguments.
    """
    return right_of(person(caller), Thing(kind, clean_text(owner))) >= Right.READ


def administers(caller: Caller, kind: ObjectKind) -> bool:
    """Whether the caller may do anything with all objects of a kind."""
    return right_of(person(caller), Thing(kind)) >= Right.OWN


def check_administers(caller: Caller, kind: ObjectKind, what: str) -> None:
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


def check_may_ask(caller: object, action: Action) -> None:
    """Check that the caller's token may ask for an action at all; the right to the object is looked at later.

    Raises:
        Forbidden: It is the token of a notebook run, and the action is its owner's alone.
    """
    if isinstance(caller, Caller) and not may_ask(person(caller), action):
        raise Forbidden(f"a notebook run may not {ACTIONS[action].does}", hint="Do it where you are logged in")


# --- facts


def thing_of(row: ExperimentRow | TaskRow) -> Thing:
    """Return an experiment or a user task as the table of rights knows it, without grants."""
    if isinstance(row, TaskRow):
        return Thing(ObjectKind.TASK, row.owner, task_id=row.id)
    return Thing(ObjectKind.EXPERIMENT, row.owner, experiment_id=row.id)


def things(s: Session, caller: Caller, rows: Sequence[ExperimentRow]) -> dict[int, Thing]:
    """Load experiments as the table of rights knows them, by their ids, with the grants that apply to the caller.

    No query for the caller's own, to which no grant could add a right.
    """
    who = person(caller)
    found = {row.id: thing_of(row) for row in rows}
    others = {key for key, thing in found.items() if right_of(who, thing) < Right.OWN}
    for key, write in rights.grants_among(s, list(others), who).items():
        found[key] = replace(found[key], users={who.name: write})
    return _with_roles(s, who, found, {row.id: row.workspace_id for row in rows if row.id in others})


def task_states(s: Session, caller: Caller, rows: Sequence[TaskRow]) -> dict[str, Thing]:
    """Load the states of user tasks as the table of rights knows them, by the tasks' ids, with the caller's roles.

    Of the tasks themselves (`thing_of`) a role gives nothing.
    """
    who = person(caller)
    found = {row.id: Thing(ObjectKind.TASK_STATE, row.owner, task_id=row.id) for row in rows}
    others = {key for key, thing in found.items() if right_of(who, thing) < Right.OWN}
    return _with_roles(s, who, found, {row.id: row.workspace_id for row in rows if row.id in others})


def _with_roles(s: Session, who: Person, found: dict[Key, Thing], places: dict[Key, int | None]) -> dict[Key, Thing]:
    """Add the roles of a user in the workspaces where some objects lie."""
    wanted = {place for place in places.values() if place is not None}
    roles = rights.roles_among(s, wanted, who) if wanted else {}
    for key, place in places.items():
        if place in roles:
            found[key] = replace(found[key], members={who.name: roles[place]})
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


def experiment_for(s: Session, caller: Caller, experiment_id: int, action: Action | None = None) -> ExperimentRow:
    """Load an experiment that the caller may read, and with which they may do what `action` says.

    Raises:
        NotFound: It does not exist, or the caller may not read it: they cannot tell.
        Forbidden: They may read it, and not do that.
    """
    row = s.get(ExperimentRow, experiment_id)
    thing = None if row is None else things(s, caller, [row])[row.id]
    if row is None or thing is None or not _reads(caller, thing):
        raise no_such(f"there is no experiment {experiment_id}", exists=row is not None, hint="det experiment list")
    _check(caller, row, thing, action)
    return row


def trial_for(s: Session, caller: Caller, trial_id: int, action: Action | None = None) -> TrialRow:
    """Load a trial with whose experiment the caller may do what `action` says.

    Raises:
        NotFound: It does not exist, or the caller may not read it: they cannot tell.
        Forbidden: They may read it, and not do that.
    """
    row = s.get(TrialRow, trial_id)
    experiment = None if row is None else s.get(ExperimentRow, row.experiment_id)
    thing = None if experiment is None else things(s, caller, [experiment])[experiment.id]
    if row is None or experiment is None or thing is None or not _reads(caller, thing):
        exists = experiment is not None
        raise no_such(f"there is no trial {trial_id}", exists=exists, hint="det trial list EXPERIMENT")
    _check(caller, experiment, thing, action)
    return row


def tracked_thing(s: Session, caller: Caller, row: TrackedRunRow) -> Thing:
    """Load a run from elsewhere as the table of rights knows it; below a trial, its experiment's grants apply."""
    experiment = None if row.experiment_id is None else s.get(ExperimentRow, row.experiment_id)
    if experiment is not None:
        return replace(things(s, caller, [experiment])[experiment.id], kind=ObjectKind.TRACKED_RUN)
    who, place = person(caller), row.workspace_id
    roles = {} if place is None else rights.roles_among(s, [place], who)
    members = {who.name: roles[place]} if place is not None and place in roles else {}
    return Thing(ObjectKind.TRACKED_RUN, row.owner, members=members)


def checkpoint_owner(s: Session, row: CheckpointRow) -> str:
    """Return whose a checkpoint is: its experiment's owner, or that of the run which has logged it."""
    if row.run_id is not None:
        return s.get_one(TrackedRunRow, row.run_id).owner
    return s.get_one(ExperimentRow, row.experiment_id).owner


def _logged_thing(s: Session, caller: Caller, row: CheckpointRow) -> Thing:
    """Return the model of a run as the table of rights knows a checkpoint."""
    run = s.get_one(TrackedRunRow, row.run_id)
    thing = replace(tracked_thing(s, caller, run), kind=ObjectKind.CHECKPOINT)
    return thing if _reads(caller, thing) else replace(thing, used_by=models_using(s, caller, row.uuid))


_OF_LOGGED = frozenset({Action.CHECKPOINT_REGISTER, Action.CHECKPOINT_REGISTER_ELSEWHERE})
"""What is done with a model that a run has logged; all else is done with the run."""


def _logged_for(s: Session, caller: Caller, row: CheckpointRow, action: Action | None) -> CheckpointRow:
    thing = _logged_thing(s, caller, row)
    if not _reads(caller, thing):
        raise no_such(f"there is no checkpoint {row.uuid}", exists=True, hint="det checkpoint list EXPERIMENT")
    if action is not None and action not in _OF_LOGGED:
        raise Conflict(
            f"checkpoint {row.uuid} is a model that run {row.run_id} has logged, and stays as it is",
            hint="Delete its versions, or the run: det model --help, mlflow.delete_run",
        )
    if action is not None and not may(person(caller), action, thing):
        check_may_ask(caller, action)
        owner = checkpoint_owner(s, row)
        raise Forbidden(f"checkpoint {row.uuid} is {owner}'s, and you may not {ACTIONS[action].does}")
    return row


def checkpoint_for(s: Session, caller: Caller, uuid: str, action: Action | None = None) -> CheckpointRow:
    """Load a checkpoint that the caller may read, and with which they may do what `action` says.

    Those who may read a model may also read the checkpoints of its versions that their owner has put there: see
    `models_using`.

    Raises:
        NotFound: It does not exist, or the caller may not read it: they cannot tell.
        Forbidden: They may read it, and not do that.
    """
    row = s.get(CheckpointRow, uuid)
    if row is not None and row.run_id is not None:
        return _logged_for(s, caller, row, action)
    experiment = None if row is None else s.get(ExperimentRow, row.experiment_id)
    thing = None
    if row is not None and experiment is not None:
        thing = replace(things(s, caller, [experiment])[experiment.id], kind=ObjectKind.CHECKPOINT)
        if not _reads(caller, thing):
            thing = replace(thing, used_by=models_using(s, caller, uuid))
    if row is None or experiment is None or thing is None or not _reads(caller, thing):
        hint = "det checkpoint list EXPERIMENT"
        raise no_such(f"there is no checkpoint {uuid[:80]}", exists=experiment is not None, hint=hint)
    _check(caller, experiment, thing, action)
    return row


def checkpoint_named(s: Session, caller: Caller, named: str) -> CheckpointRow:
    """Load a checkpoint by its uuid, or by how it begins: that of one of the experiments that the caller may read.

    Raises:
        Conflict: Several of these begin so.
        NotFound: There is none for the caller: hidden ones count as little as those that there are not.
    """
    try:
        return checkpoint_for(s, caller, named)
    except NotFound:
        begin = named.lower()
        long_enough = SHORTEST_START <= len(begin) < _UUID_CHARS and set(begin) <= _UUID_TEXT
        found = checkpoints.beginning(s, person(caller), begin, 2) if long_enough else []
        if not found:
            raise
    if len(found) > 1:
        raise Conflict(f"several checkpoints begin with {named}", hint="give more of it, or all: det checkpoint list")
    return checkpoint_for(s, caller, found[0])


def model_things(s: Session, caller: Caller, rows: Sequence[ModelRow]) -> dict[int, Thing]:
    """Load models as the table of rights knows them, by their ids, with the grants that apply to the caller."""
    who = person(caller)
    found = {row.id: Thing(ObjectKind.MODEL, row.owner) for row in rows}
    others = {key for key, thing in found.items() if right_of(who, thing) < Right.OWN}
    for key, write in rights.model_grants_among(s, list(others), who).items():
        found[key] = replace(found[key], users={who.name: write})
    return _with_roles(s, who, found, {row.id: row.workspace_id for row in rows if row.id in others})


def model_rights(s: Session, caller: Caller, rows: Sequence[ModelRow]) -> dict[int, Right]:
    """Return the caller's rights to some models, by their ids."""
    return {key: right_of(person(caller), thing) for key, thing in model_things(s, caller, rows).items()}


def models_using(s: Session, caller: Caller, uuid: str) -> list[Thing]:
    """Return the models through which a checkpoint is shared: those in which its owner has put it.

    That is a model of its owner, or one in which they have registered it themselves. A version that somebody else has
    made in a model of theirs shares nothing: only the grants of the experiment count, at each read.
    """
    return list(model_things(s, caller, models.sharing(s, uuid)).values())


def model_for(s: Session, caller: Caller, name: str, action: Action | None = None) -> ModelRow:
    """Load a model that the caller may read, and with which they may do what `action` says.

    Args:
        s: A session.
        caller: Who asks.
        name: The name of a model of the caller's own, anybody's `OWNER/NAME`, or an id. A name alone never means a
            model of somebody else: its owner could rename it, and the name would then mean another model.
        action: What they want to do.

    Raises:
        NotFound: It does not exist, or the caller may not read it: they cannot tell.
        Forbidden: They may read it, and not do that.
    """
    row = naming.named(s, ModelRow, name, person(caller).name)
    thing = None if row is None else model_things(s, caller, [row])[row.id]
    if row is None or thing is None or not _reads(caller, thing):
        others = [] if row is not None else shared_of_name(s, caller, name)
        what = f"you have no model {name[:300]!r}" if others else f"there is no model {name[:300]!r}"
        ways = "make it first: det model create NAME" if action is Action.VERSION_REGISTER else "det model list"
        hint = f"Others' are named with their owner: {', '.join(others)}" if others else ways
        raise no_such(what, exists=row is not None, hint=hint)
    if action is not None and not may(person(caller), action, thing):
        if caller.run is not None:
            check_may_ask(caller, action)
        may_not = "share or delete it" if ACTIONS[action].least is Right.OWN else "change it"
        if action in {Action.VERSION_DELETE, Action.MODEL_ARCHIVE, Action.MODEL_RENAME}:
            may_not = ACTIONS[action].does
        said = f"model {row.name!r} is {row.owner}'s, and you may not {may_not}"
        if ACTIONS[action].least is Right.OWN:
            raise Forbidden(f"{said}: only they, admins of its workspace and administrators of the cluster may")
        raise Forbidden(said, hint=f"They may allow changes: det model share {row.id} --user … --write")
    return row


# --- workspaces


def workspace_things(s: Session, caller: Caller, rows: Sequence[WorkspaceRow]) -> dict[int, Thing]:
    """Load workspaces as the table of rights knows them, by their ids, with the caller's roles.

    A personal one is its owner's. To others rights come by roles alone: who made one may have left it.
    """
    who = person(caller)
    mine = {row.id: row.owner if row.kind == workspaces.PERSONAL else None for row in rows}
    found = {key: Thing(ObjectKind.WORKSPACE, owner) for key, owner in mine.items()}
    return _with_roles(s, who, found, {row.id: row.id for row in rows})


def workspace_for(s: Session, caller: Caller, name: str, action: Action | None = None) -> WorkspaceRow:
    """Load a workspace that the caller may read, and with which they may do what `action` says.

    Args:
        s: A session.
        caller: Who asks.
        name: The name of one that the caller has made, anybody's `OWNER/NAME`, or an id. A name alone never means a
            workspace of somebody else, who could rename it, and so come to see what is submitted into another.
        action: What they want to do.

    Raises:
        NotFound: It does not exist, or the caller may not read it: they cannot tell.
        Forbidden: They may read it, and not do that.
    """
    row = workspaces.named(s, name, person(caller).name)
    thing = None if row is None else workspace_things(s, caller, [row])[row.id]
    if row is None or thing is None or not _reads(caller, thing):
        others = [] if row is not None else workspaces_of_name(s, caller, name)
        what = f"you have no workspace {name[:300]!r}" if others else f"there is no workspace {name[:300]!r}"
        hint = f"Others' are named with their owner: {', '.join(others)}" if others else MAKE_WORKSPACE
        raise no_such(what, exists=row is not None, hint=hint)
    if action is not None and not may(person(caller), action, thing):
        if caller.run is not None:
            check_may_ask(caller, action)
        needed = Role.ADMIN if ACTIONS[action].least is Right.OWN else Role.EDITOR
        raise Forbidden(
            f"in workspace {reference_to(caller, row)!r} you may not {ACTIONS[action].does}: that takes the role "
            f"{needed.wire}",
            hint=f"Its admins give roles: det workspace list-members {row.id}",
        )
    return row


MAKE_WORKSPACE = "det workspace list; make one: det workspace create NAME"


def workspaces_of_name(s: Session, caller: Caller, name: str) -> list[str]:
    """Return the others' workspaces of a name that the caller may read, as `OWNER/NAME`: a hint, and nothing else."""
    found = workspaces.of_name(s, name, workspaces.visible_to(person(caller)), _MOST_NAMED)
    return [f"{row.owner}/{row.name}" for row in found if row.kind != workspaces.PERSONAL]


def reference_to(caller: Caller, model: ModelRow | WorkspaceRow) -> str:
    """Return what the caller names a model or a workspace by: its name, or `OWNER/NAME` where it is somebody else's."""
    return model.name if owns(caller, model.owner) else f"{model.owner}/{model.name}"


_MOST_NAMED = 5
"""Models of others that a hint names."""


def shared_of_name(s: Session, caller: Caller, name: str) -> list[str]:
    """Return the others' models of a name that the caller may read, as `OWNER/NAME`: a hint, and nothing else."""
    condition = rights.visible_models(person(caller))
    return [f"{row.owner}/{row.name}" for row in naming.of_name(s, ModelRow, name, condition, _MOST_NAMED)]


def may_open_task(caller: Caller, row: TaskRow, action: Action | None = None) -> bool:
    """Whether the caller may read all of a user task, its output too, and do with it what `action` says."""
    thing = thing_of(row)
    return _reads(caller, thing) and (action is None or may(person(caller), action, thing))


def may_see_task(s: Session, caller: Caller, row: TaskRow, action: Action | None = None) -> bool:
    """Whether the caller may see the state of a user task, perhaps by a role alone, and do what `action` says."""
    thing = task_states(s, caller, [row])[row.id]
    return _reads(caller, thing) and (action is None or may(person(caller), action, thing))


def _reads(caller: Caller, thing: Thing) -> bool:
    return right_of(person(caller), thing) >= Right.READ


def _check(caller: Caller, row: ExperimentRow, thing: Thing, action: Action | None) -> None:
    if action is None or may(person(caller), action, thing):
        return
    rule = ACTIONS[action]
    if caller.run is not None and owns(caller, row.owner):
        raise Forbidden(
            f"experiment {row.id} is yours, but a notebook run may not {rule.does}",
            hint="Do it where you are logged in",
        )
    if rule.least is Right.OWN:
        raise Forbidden(
            f"experiment {row.id} is {row.owner}'s: only they, admins of its workspace and administrators of the"
            " cluster may do that"
        )
    raise Forbidden(
        f"experiment {row.id} is {row.owner}'s, who lets you read it, not change it",
        hint=f"They may allow it: det experiment share {row.id} --user … --write",
    )


def has_secrets_of(caller: Caller, owner: str) -> bool:
    """Whether what the caller submits may have the secrets of what `owner` has submitted.

    A notebook run submits as its owner, and reads no secrets of theirs: not by its own code either.
    """
    return owns(caller, owner) and caller.run is None


# --- what users are told


def webhook_for(s: Session, caller: Caller, name: str, action: Action | None = None) -> HookRow:
    """Load a webhook by its id, or by the name of one of the caller's own.

    Raises:
        NotFound: It does not exist, or not for the caller: they cannot tell.
        Forbidden: The caller's token may not ask for that.
    """
    number = int(name) if name.isascii() and name.isdigit() and len(name) <= _ID_DIGITS else None
    row = webhooks.named(s, person(caller).name, name) if number is None else s.get(HookRow, number)
    thing = None if row is None else Thing(ObjectKind.WEBHOOK, clean_text(row.owner))
    if row is None or thing is None or not _reads(caller, thing):
        raise no_such(f"there is no webhook {name[:300]!r}", exists=row is not None, hint="det webhook list")
    if action is not None and not may(person(caller), action, thing):
        raise Forbidden(f"a notebook run may not {ACTIONS[action].does}", hint="Do it where you are logged in")
    return row


def alert_rule_for(s: Session, caller: Caller, rule_id: int, action: Action) -> AlertRuleRow:
    """Load a rule for alerts, with which the caller may do what `action` says.

    Raises:
        NotFound: It does not exist, or not for the caller: they cannot tell.
        Forbidden: The caller's token may not ask for that.
    """
    row = s.get(AlertRuleRow, rule_id)
    thing = None if row is None else Thing(ObjectKind.ALERT_RULE, clean_text(row.owner))
    if row is None or thing is None or not _reads(caller, thing):
        raise no_such(f"there is no alert rule {rule_id}", exists=row is not None, hint="det alert rules")
    if not may(person(caller), action, thing):
        raise Forbidden(f"a notebook run may not {ACTIONS[action].does}", hint="Do it where you are logged in")
    return row


# --- what runs later


def schedule_for(s: Session, caller: Caller, schedule_id: int, action: Action | None = None) -> ScheduleRow:
    """Load a schedule that the caller may read, and with which they may do what `action` says.

    Raises:
        NotFound: It does not exist, or not for the caller: they cannot tell.
        Forbidden: The caller's token may not ask for that.
    """
    row = s.get(ScheduleRow, schedule_id)
    thing = None if row is None else Thing(ObjectKind.SCHEDULE, clean_text(row.owner))
    if row is None or thing is None or not _reads(caller, thing):
        raise no_such(f"there is no schedule {schedule_id}", exists=row is not None, hint="det schedule list")
    if action is not None and not may(person(caller), action, thing):
        raise Forbidden(f"a notebook run may not {ACTIONS[action].does}", hint="Do it where you are logged in")
    return row
