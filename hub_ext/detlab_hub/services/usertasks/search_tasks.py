"""Custom searches: the user task that runs the class, the events it receives, and its answers.

The master runs no user code. The class runs in a task of the owner, without slots, which has the experiment's code and
the token of its own attempt: it reads the events of this one search and answers them one by one. Each answer is an
event of the search, journaled with its decisions; a repeated answer is carried out once. A task that ends without an
answer pauses the experiment; one that is lost with its node is restarted and receives all events again.
"""

from __future__ import annotations

import logging
import secrets
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, NotFound, Problem
from detlab.schemas.taskwire import TaskEnd, TaskKind
from detlab.schemas.wire import (
    ExperimentState,
    FailureView,
    FeedEvent,
    SearchAnswer,
    SearchAnswerReply,
    SearchFeed,
    SearchSetup,
    TrialState,
)
from detlab_hub.core.lifecycle import usertask
from detlab_hub.core.searchers import Answered, OperationsRefused
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.fencing import current_holder
from detlab_hub.services.base.searches import SearchLostError
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.base.wakeups import wait_until
from detlab_hub.services.lifecycle import uids
from detlab_hub.services.lifecycle.task_transitions import apply_task
from detlab_hub.services.lifecycle.transitions import finish_turn, tell_search
from detlab_hub.store.tables import ExperimentRow, TaskNote, TaskRow

_log = logging.getLogger(__name__)
CUSTOM = "custom"
PROGRAM = ["python3", "-m", "detlab.run.search"]
MAX_WAIT = 300.0
PER_READ = 500
"""Events in one reply."""
AGAIN = 10.0
"""Seconds until a task that ended while no answer was due is restarted."""
_AGAIN_AFTER = frozenset({TaskEnd.LOST.value, TaskEnd.KILLED.value, TaskEnd.CANCELED.value, TaskEnd.MAX_TIME.value})
"""Ends of a task that are no fault of the class."""
_ASKED = frozenset({ExperimentState.ACTIVE.value, ExperimentState.PAUSED.value})
_OF_TASK = ("runtime", "environment", "bind_mounts")


class SearchTasks(Service):
    """The requests of a custom search's task."""

    async def feed(self, task: TaskCaller, after: int, timeout: float) -> SearchFeed:
        """Return the events after a number; wait up to `timeout` seconds for the first of them.

        Raises:
            NotFound: The task runs no search.
            StaleAttempt: The attempt is over.
        """
        with self._context.wakeups.listen(("allocation", task.allocation_id)) as event:
            found = await self._context.write(lambda unit: _feed(unit, task, after))
            if found.events or found.over or timeout <= 0:
                return found
            await wait_until(event, min(timeout, MAX_WAIT))
        return await self._context.write(lambda unit: _feed(unit, task, after))

    async def answer(self, task: TaskCaller, said: SearchAnswer) -> SearchAnswerReply:
        """Carry out an answer, all of it or nothing.

        Raises:
            ConfigError: Operations are impossible; each is named.
            NotFound: The task runs no search.
            StaleAttempt: The attempt is over.
        """
        return await self._context.write(lambda unit: _answer(unit, task, said))


def _experiment(unit: UnitOfWork, task: TaskCaller) -> ExperimentRow:
    """Load the experiment whose search a task runs: the experiment names its task, not the other way round."""
    _, holder = current_holder(unit.session, task)
    number = next(iter(holder.experiment_ids), None) if isinstance(holder, TaskRow) else None
    row = None if number is None else unit.session.get(ExperimentRow, number)
    if row is None or row.search_task != holder.id:
        raise NotFound("this task runs no search", hint="only searcher.name: custom starts such tasks")
    return row


def _over(unit: UnitOfWork, row: ExperimentRow) -> str:
    """Return why the search needs no more answers; empty if it does."""
    if row.state not in _ASKED:
        return f"experiment {row.id} is {row.state}"
    verdict = unit.searches.get(unit.session, row).method.verdict
    return "" if verdict is None else "the class has ended the search"


def _feed(unit: UnitOfWork, task: TaskCaller, after: int) -> SearchFeed:
    row = _experiment(unit, task)
    setup = _setup(row)
    try:
        why = _over(unit, row)
        told = [] if why else unit.searches.get(unit.session, row).method.feed(after, PER_READ)
    except SearchLostError as error:
        raise Conflict(f"experiment {row.id}: {error}") from error
    return SearchFeed(setup=setup, events=[FeedEvent.model_validate(one) for one in told], over=bool(why), why=why)


def _setup(row: ExperimentRow) -> SearchSetup:
    block = row.config["searcher"]
    return SearchSetup(
        experiment_id=row.id,
        entrypoint=block["entrypoint"],
        options=block.get("options") or {},
        answer_timeout=block["answer_timeout"],
        seed=row.seed,
        hyperparameters=row.config.get("hyperparameters") or {},
        metric=row.metric,
        smaller_is_better=row.smaller_is_better,
        time_metric=block.get("time_metric"),
        max_trials=block["max_trials"],
        max_concurrent_trials=block["max_concurrent_trials"],
        require=block.get("require") or [],
    )


def _answer(unit: UnitOfWork, task: TaskCaller, said: SearchAnswer) -> SearchAnswerReply:
    row = _experiment(unit, task)
    try:
        if why := _over(unit, row):
            return SearchAnswerReply(accepted=False, over=True, why=why)
        asked = unit.searches.get(unit.session, row).waits_for
        if asked != said.number:  # answered before, perhaps by this attempt, whose reply was lost
            return SearchAnswerReply(accepted=False)
        mine = unit.task(task.task_id or "")
        if said.failure:
            mine.source = {**mine.source, TaskNote.TOLD.value: True}
            mine.failure = FailureView(kind="exception", message=said.failure.partition("\n")[0]).model_dump()
        tell_search(unit, row, Answered(said.number, tuple(said.operations), said.failure))
        if said.failure:
            mine.failure = row.failure or mine.failure
    except OperationsRefused as error:
        raise ConfigError([Problem("operations", wrong) for wrong in error.mistakes]) from error
    except SearchLostError as error:
        raise Conflict(f"experiment {row.id}: {error}") from error
    if said.failure:
        _log.info("experiment %d: the class of its search failed at event %d", row.id, said.number)
    why = "" if row.state == ExperimentState.ACTIVE else f"experiment {row.id} is {row.state}"
    finish_turn(unit)
    return SearchAnswerReply(accepted=True, over=bool(why), why=why)


# --- the task itself


def due(s: Session) -> list[int]:
    """Return the active experiments with a custom search whose task is missing or has ended."""
    query = (
        select(ExperimentRow.id, TaskRow.state)
        .outerjoin(TaskRow, TaskRow.id == ExperimentRow.search_task)
        .where(ExperimentRow.state == ExperimentState.ACTIVE.value, ExperimentRow.searcher_name == CUSTOM)
    )
    return [number for number, state in s.execute(query) if state is None or TrialState(state).terminal]


def act(unit: UnitOfWork, experiment_id: int) -> None:
    """Start the task of a custom search; pause the experiment if the last one ended without an answer."""
    row = unit.experiment(experiment_id)
    if row.state != ExperimentState.ACTIVE or row.searcher_name != CUSTOM:
        return
    try:
        search = unit.searches.get(unit.session, row)
    except SearchLostError:  # reported when the search is next needed
        return
    if search.shutdown is not None or search.method.verdict is not None:
        return
    last = None if row.search_task is None else unit.session.get(TaskRow, row.search_task)
    if last is not None and not TrialState(last.state).terminal:
        return
    if last is not None and last.end_reason not in _AGAIN_AFTER and not _stale(row, last):
        if search.waits_for is not None:
            tell_search(unit, row, Answered(search.waits_for, (), _ended_without_answer(last)))
            finish_turn(unit)
            return
        if unit.now < (last.ended_at or 0.0) + AGAIN:
            return
    _begin(unit, row)
    finish_turn(unit)


def _stale(row: ExperimentRow, last: TaskRow) -> bool:
    """Whether the experiment was already paused for this task's end, and activated since."""
    return last.source.get(TaskNote.TOLD) is True


def _ended_without_answer(last: TaskRow) -> str:
    last.source = {**last.source, TaskNote.TOLD.value: True}
    code = "" if last.exit_code is None else f" with exit code {last.exit_code}"
    told = f"the task of the search, {last.id}, ended{code} without an answer: its output shows why"
    return f"{told}\ndet task logs {last.id}"


def replace_code(unit: UnitOfWork, row: ExperimentRow, bundle: str) -> None:
    """Replace the code of a custom search's class and restart its task; the trials keep their code."""
    row.search_bundle = bundle
    task = None if row.search_task is None else unit.session.get(TaskRow, row.search_task)
    if task is not None and not TrialState(task.state).terminal:
        apply_task(unit, task, usertask.EndRequested(TaskEnd.CANCELED))
    unit.changed_experiment(row.id)


def _begin(unit: UnitOfWork, row: ExperimentRow) -> None:
    uids.assign(unit, row.owner)
    task = TaskRow(
        id=f"{TaskKind.COMMAND.value}-{secrets.token_hex(6)}",
        kind=TaskKind.COMMAND.value,
        name=f"search of experiment {row.id}",
        owner=row.owner,
        state=TrialState.ACTIVE.value,
        config=_config(row),
        bundle=row.search_bundle or row.bundle,
        source={TaskNote.SEARCH.value: row.id},
        priority=row.priority,
        resource_pool=row.resource_pool,
        weight=row.weight,
        owner_groups=row.owner_groups,
        run=0,
        experiment_ids=[row.id],
        trial_ids=[],
        created_at=unit.now,
    )
    unit.session.add(task)
    unit.session.flush()
    row.search_task = task.id
    apply_task(unit, task, usertask.UserTaskCreated())
    unit.changed_experiment(row.id)
    unit.changed_task(task)
    _log.info("experiment %d: task %s runs its search", row.id, task.id)


def _config(row: ExperimentRow) -> dict[str, Any]:
    """Return the config of the task: where and how trials run, without their slots and requirements."""
    kept = {key: row.config[key] for key in _OF_TASK if row.config.get(key) is not None}
    resources = row.config.get("resources") or {}
    where = {key: resources[key] for key in ("resource_pool", "constraints", "devices") if resources.get(key)}
    return {
        **kept,
        "entrypoint": PROGRAM,
        "description": f"search of experiment {row.id}",
        "resources": {**where, "slots": 0},
    }
