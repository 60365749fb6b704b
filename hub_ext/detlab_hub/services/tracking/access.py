"""Whose a tracked run is and where it lies, and who may do what with it; the ids that clients of MLflow know them by.

To those clients a project is an experiment, and so is an experiment, whose runs are its trials. A trial's own token
sees its experiment, and writes its trial and what it has made below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from detlab.errors import Conflict, Forbidden, NotFound
from detlab.schemas.wire import ExperimentState
from detlab_hub.core.rights import (
    ACTIONS,
    Action,
    AttemptIdentity,
    ObjectKind,
    Right,
    Thing,
    may,
    right_of,
)
from detlab_hub.services.base.access import (
    check_may_ask,
    experiment_for,
    may_read,
    no_such,
    person,
    tracked_thing,
    trial_for,
    workspace_for,
    workspace_things,
)
from detlab_hub.services.base.callers import READ, WRITE, Caller, TaskCaller
from detlab_hub.services.base.fencing import current_attempt
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.queries import workspaces
from detlab_hub.store.tables import ExperimentRow, ProjectRow, TrackedRunRow, TrialRow, WorkspaceRow

Tracker = Caller | TaskCaller
"""Who may log and read runs: a user, or a trial's own task."""
FIRST_PROJECT = 10**12
"""Ids of experiments are below it, those of projects above, with this much added."""
DEFAULT = "0"
"""MLflow's id of the experiment for what names none: the project `Uncategorized` of the caller's own workspace."""
DEFAULT_NAME = "Default"
_ID_DIGITS, _RUN_DIGITS = 18, 32
_OF_TRIALS = "0" * 16
"""What the ids of runs that are trials begin with; those of all others are drawn."""


@dataclass(frozen=True)
class TrackedRun:
    """A run with what it belongs to.

    Attributes:
        id: 32 hex digits.
        row: What clients have logged; None: nothing, into this trial.
        trial: The trial that it is.
        experiment: Of the trial that it is, or whose child it is.
        project: Where it lies, if it is from elsewhere.
    """

    id: str
    row: TrackedRunRow | None
    trial: TrialRow | None = None
    experiment: ExperimentRow | None = None
    project: ProjectRow | None = None

    @property
    def owner(self) -> str:
        """Whose it is."""
        if self.experiment is not None:
            return self.experiment.owner
        assert self.row is not None
        return self.row.owner


@dataclass(frozen=True)
class TrackedPlace:
    """What clients of MLflow take for an experiment: a project with its workspace, or an experiment."""

    project: ProjectRow | None = None
    workspace: WorkspaceRow | None = None
    experiment: ExperimentRow | None = None

    @property
    def id(self) -> str:
        """As clients know it."""
        if self.experiment is not None:
            return str(self.experiment.id)
        return DEFAULT if self.project is None else project_id(self.project.id)


def project_id(project: int) -> str:
    """Return the id of a project as clients know it."""
    return str(FIRST_PROJECT + project)


def run_id_of(trial: int) -> str:
    """Return the id of the run that is a trial."""
    return f"{trial:032x}"


def trial_of(run_id: str) -> int | None:
    """Return the trial that a run is; None: it is none."""
    if len(run_id) != _RUN_DIGITS or not run_id.startswith(_OF_TRIALS):
        return None
    try:
        number = int(run_id, 16)
    except ValueError:
        return None
    return number if number < 2**63 and run_id_of(number) == run_id else None  # int() takes more ways to write it


def task_may_not(what: str) -> Forbidden:
    """Return the refusal of what a trial's token does not reach: the same whether or not it exists."""
    return Forbidden(
        f"the token of a trial may not {what}: it writes its own trial and the runs below it, and reads its experiment",
        hint="Use a token of your own outside of trials: MLFLOW_TRACKING_TOKEN",
    )


def speaker_of(caller: Tracker) -> Caller:
    """Return for whom a trial speaks: its owner, with no more rights than a notebook run of theirs has.

    Raises:
        Forbidden: It is the task of something else.
    """
    if isinstance(caller, Caller):
        return caller
    if not caller.trial_id:
        raise task_may_not("register models or log artifacts, if it is not a trial's")
    return Caller(caller.owner, frozenset({READ, WRITE}), run=caller.allocation_id)


# --- runs


def run_for(s: Session, caller: Tracker, run_id: str, action: Action | None = None) -> TrackedRun:
    """Load a run that the caller may read, and with which they may do what `action` says.

    Raises:
        NotFound: It does not exist, or the caller may not read it: they cannot tell.
        Forbidden: They may read it, and not do that; or it is a task, and the run is not its own.
        StaleAttempt: The task's attempt is over.
        Conflict: The experiment is being deleted.
    """
    found = _run_for(s, caller, run_id, action)
    if action is not None and found.experiment is not None and found.experiment.state == ExperimentState.DELETING:
        raise Conflict(f"experiment {found.experiment.id} is being deleted, with all that was logged into it")
    return found


def readable_runs(s: Session, caller: Tracker, run_ids: Sequence[str]) -> set[str]:
    """Return those of some runs that the caller may read."""
    found = set()
    for run_id in dict.fromkeys(run_ids):
        try:
            _run_for(s, caller, run_id, None)
        except (NotFound, Forbidden):
            continue
        found.add(run_id)
    return found


def _run_for(s: Session, caller: Tracker, run_id: str, action: Action | None) -> TrackedRun:
    found = _load(s, run_id)
    if isinstance(caller, TaskCaller):
        return _for_task(s, caller, found, action)
    if found is not None and found.trial is not None:
        try:
            trial_for(s, caller, found.trial.id, action)
        except NotFound as error:  # its number is in the id: the words are those of any other run
            raise no_such(f"there is no run {run_id[:80]}", exists=True) from error
        return found
    thing = None if found is None else thing_of_run(s, caller, found)
    if found is None or thing is None or right_of(person(caller), thing) < Right.READ:
        raise no_such(f"there is no run {run_id[:80]}", exists=found is not None)
    if action is not None and not may(person(caller), action, thing):
        check_may_ask(caller, action)
        raise Forbidden(f"run {run_id} is {found.owner}'s, and you may not {ACTIONS[action].does}")
    return found


def _load(s: Session, run_id: str) -> TrackedRun | None:
    number = trial_of(run_id)
    row = s.get(TrackedRunRow, run_id)
    if number is not None:
        trial = s.get(TrialRow, number)
        experiment = None if trial is None else s.get(ExperimentRow, trial.experiment_id)
        return None if trial is None or experiment is None else TrackedRun(run_id, row, trial, experiment)
    if row is None:
        return None
    experiment = None if row.experiment_id is None else s.get(ExperimentRow, row.experiment_id)
    project = None if row.project_id is None else s.get(ProjectRow, row.project_id)
    return TrackedRun(run_id, row, None, experiment, project)


def _for_task(s: Session, task: TaskCaller, found: TrackedRun | None, action: Action | None) -> TrackedRun:
    who = AttemptIdentity(task.experiment_id, task.trial_id, task.task_id)
    trial = None if found is None else found.trial.id if found.trial is not None else _trial_of(found)
    experiment = None if found is None or found.experiment is None else found.experiment.id
    thing = Thing(ObjectKind.TRACKED_RUN, experiment_id=experiment, trial_id=trial)
    if found is None or right_of(who, thing) < Right.READ:
        raise task_may_not("use this run")
    if action is not None:
        if not may(who, action, thing):
            raise task_may_not(f"do that with run {found.id}")
        current_attempt(s, task)
    return found


def _trial_of(found: TrackedRun) -> int | None:
    return None if found.row is None else found.row.trial_id


def thing_of_run(s: Session, caller: Caller, found: TrackedRun) -> Thing:
    """Return a run that is no trial as the table of rights knows it: below a trial, its experiment's grants apply."""
    assert found.row is not None
    return tracked_thing(s, caller, found.row)


# --- places


def place_for(s: Session, caller: Tracker, number: str, action: Action | None = None) -> TrackedPlace:
    """Return the experiment, as clients see it, of an id; with `action`, that of one to which the caller may do it.

    Raises:
        NotFound: There is none for the caller.
        Forbidden: They may not do that.
        Conflict: It is an experiment, whose runs are its trials.
    """
    if isinstance(caller, TaskCaller):
        return _place_of_task(s, caller)
    if number == DEFAULT:
        return _default(s, caller)
    known = int(number) if number.isascii() and number.isdigit() and len(number) <= _ID_DIGITS else -1
    if 0 < known < FIRST_PROJECT:
        row = experiment_for(s, caller, known)
        if action is not None:
            raise Conflict(
                f"experiment {known} gets its runs by its own trials, and is changed by `det experiment edit`",
                hint="mlflow.set_experiment(NAME) makes a project of your own",
            )
        return TrackedPlace(experiment=row)
    project = s.get(ProjectRow, known - FIRST_PROJECT) if known > FIRST_PROJECT else None
    place = None if project is None else s.get(WorkspaceRow, project.workspace_id)
    thing = None if place is None else workspace_things(s, caller, [place])[place.id]
    if project is None or place is None or thing is None or right_of(person(caller), thing) < Right.READ:
        raise no_such(f"there is no experiment with the id {number[:40]!r}", exists=project is not None)
    if action is not None:
        workspace_for(s, caller, str(place.id), action)
    return TrackedPlace(project, place)


def place_named(s: Session, caller: Tracker, name: str) -> TrackedPlace | None:
    """Return the project of a name, in the caller's own workspace or as `WORKSPACE/NAME`, `OWNER/WORKSPACE/NAME`."""
    if isinstance(caller, TaskCaller):
        return _place_of_task(s, caller)
    if workspaces.key_of(name) == workspaces.key_of(DEFAULT_NAME):
        return _default(s, caller)
    where, slash, rest = name.rpartition("/")
    mine = workspaces.of_owner(s, person(caller).name, workspaces.NOWHERE)
    place = mine if not slash else _readable(s, caller, where)
    if place is None:
        return None
    row = workspaces.project_named(s, place.id, rest) if not rest.isdigit() else None
    return None if row is None else TrackedPlace(row, place)


def _readable(s: Session, caller: Caller, name: str) -> WorkspaceRow | None:
    row = workspaces.named(s, name, person(caller).name)
    if row is None or right_of(person(caller), workspace_things(s, caller, [row])[row.id]) < Right.READ:
        return None
    return row


def _default(s: Session, caller: Caller) -> TrackedPlace:
    place = workspaces.of_owner(s, person(caller).name, workspaces.NOWHERE)
    project = None if place is None else workspaces.project_named(s, place.id, workspaces.NOWHERE)
    return TrackedPlace(project, place)


def made_place(unit: UnitOfWork, caller: Caller, place: TrackedPlace) -> TrackedPlace:
    """Return a place whose project exists: the one that everybody has is made when it is needed first."""
    if place.project is not None or place.experiment is not None:
        return place
    s, owner = unit.session, person(caller).name
    workspace = workspaces.personal(s, owner, unit.now)
    project = workspaces.uncategorized(s, workspace, owner, unit.now)
    return TrackedPlace(s.get_one(ProjectRow, project), s.get_one(WorkspaceRow, workspace))


def _place_of_task(s: Session, task: TaskCaller) -> TrackedPlace:
    experiment = s.get(ExperimentRow, task.experiment_id) if task.trial_id else None
    if experiment is None:
        raise task_may_not("log runs, if it is not a trial's")
    return TrackedPlace(experiment=experiment)


def readable_places(s: Session, caller: Tracker, numbers: Sequence[str]) -> list[TrackedPlace]:
    """Return those of some experiments, as clients see them, that the caller may read: a search skips the others."""
    if isinstance(caller, TaskCaller):
        home = _place_of_task(s, caller)
        return [home] if not numbers or {home.id, DEFAULT} & set(numbers) else []
    found = []
    for number in dict.fromkeys(numbers):
        known = int(number) if number.isascii() and number.isdigit() and len(number) <= _ID_DIGITS else -1
        if number == DEFAULT:
            place = _default(s, caller)
            found += [place] if place.project is not None else []
        elif 0 < known < FIRST_PROJECT:
            found += [TrackedPlace(experiment=s.get_one(ExperimentRow, known))] if may_read(s, caller, known) else []
        elif known > FIRST_PROJECT and (project := s.get(ProjectRow, known - FIRST_PROJECT)) is not None:
            row = s.get_one(WorkspaceRow, project.workspace_id)
            thing = workspace_things(s, caller, [row])[row.id]
            found += [TrackedPlace(project, row)] if right_of(person(caller), thing) >= Right.READ else []
    return found
