"""Answers to the questions of searches (`Suggest` decisions), computed outside of the writer's transactions.

The question was journaled; the answer is an event like any other, journaled with the search's decisions on it. So a
master that restarts in between asks again, and a replay needs no new answer. For a method that fails, or exceeds its
time, the answer is empty: the search then draws at random, and the experiment reports so once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.errors import Unavailable
from detlab.schemas.wire import ExperimentState
from detlab_hub.core.searchers import Question, SearcherNotInstalled, Suggested, method_class, searcher_names
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.searches import SearchLostError
from detlab_hub.services.base.threads import FairPlaces
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.experiments.answer_process import PATIENCE, AnswerProcess
from detlab_hub.services.lifecycle.transitions import ask_open_questions, tell_search
from detlab_hub.store.tables import ExperimentRow

_log = logging.getLogger(__name__)
RETRY = 1.0
"""Seconds until an answer that the database could not take is written again."""
_TOLD_CHARS = 200
POINTS_AHEAD = 16
"""Points of a search that are drawn before it needs them."""

Answerer = Callable[[str, Question], Awaitable[list[dict[str, Any]]]]


class Suggestions(Service):
    """The loop that answers questions, one at a time, for the owners of the searches in turn.

    Args:
        context: The source of the questions.
        answer: Answers one question; by default in a process.
    """

    def __init__(self, context: ServiceContext, answer: Answerer | None = None) -> None:
        super().__init__(context)
        self._process = AnswerProcess()
        self._answer: Answerer = answer or self._process
        self._places = FairPlaces(1)
        self._asked: set[tuple[int, int]] = set()
        """(experiment, ticket) of the questions being answered."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def recover(self) -> None:
        """Repeat, after a start, the questions that the previous master did not answer."""
        names = [name for name in searcher_names() if _may_ask(name)]
        if not names:
            return

        def open_ones(s: Session) -> list[int]:
            active = ExperimentRow.state.in_((ExperimentState.ACTIVE.value, ExperimentState.PAUSED.value))
            return list(s.scalars(select(ExperimentRow.id).where(active, ExperimentRow.searcher_name.in_(names))))

        for experiment_id in await self._context.read(open_ones):
            await self._context.write(partial(_ask_again, experiment_id=experiment_id))

    async def run(self) -> None:
        """Answer questions until the master stops."""
        try:
            while not self._context.stopped:
                await self._context.question_kick.wait()
                self._context.question_kick.clear()
                self.take()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._process.close()

    def take(self) -> list[asyncio.Task[None]]:
        """Start to answer all pending questions; return a task for each."""
        begun = []
        while self._context.questions:
            experiment_id, searcher, question = self._context.questions.popleft()
            if (experiment_id, question.ticket) in self._asked:
                continue
            self._asked.add((experiment_id, question.ticket))
            task = asyncio.create_task(self._one(experiment_id, searcher, question))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            begun.append(task)
        return begun

    async def _one(self, experiment_id: int, searcher: str, question: Question) -> None:
        try:
            async with self._places.of(await self._asker(experiment_id)):
                event = await self._event(searcher, question)
            await self._told(experiment_id, event)
        except Exception:
            # A bug in one must not end the others; the question stays open in the journal, the next start asks again.
            _log.exception("experiment %d: the answer to question %d is lost", experiment_id, question.ticket)
        finally:
            self._asked.discard((experiment_id, question.ticket))

    async def _asker(self, experiment_id: int) -> str:
        """Return whose turn a question takes."""
        try:
            return await self._context.read(partial(_owner, experiment_id=experiment_id))
        except Unavailable:  # it is answered all the same, in the turn of all those that could not be read
            return ""

    async def _told(self, experiment_id: int, event: Suggested) -> None:
        while not self._context.stopped:
            try:
                await self._context.write(partial(_tell, experiment_id=experiment_id, event=event))
            except Unavailable:  # busy, or away for a while: the answer is kept
                await asyncio.sleep(RETRY)
            else:
                return

    async def _event(self, searcher: str, question: Question) -> Suggested:
        try:
            points = await self._answer(searcher, question)
            if len(points) < question.count:
                raise ValueError(f"it made {len(points)} of {question.count} points")
        except TimeoutError:
            return Suggested(question.ticket, (), f"{searcher} took more than {PATIENCE:g} s")
        except Exception as error:  # of the method, which may be third-party code: the search continues at random
            return Suggested(question.ticket, (), f"{searcher} failed: {type(error).__name__}: {error}"[:_TOLD_CHARS])
        return Suggested(question.ticket, tuple(points[: question.count]))


class Drawing(Service):
    """The loop that draws points of spaces with rare relations before their searches need them."""

    async def run(self) -> None:
        """Draw points until the master stops."""
        while not self._context.stopped:
            await self._context.ahead_kick.wait()
            self._context.ahead_kick.clear()
            await self.take()

    async def take(self) -> None:
        """Draw what is wanted now. What fails, or has no room, the search draws itself when it needs it."""
        while self._context.ahead:
            owner, ahead = self._context.ahead.popleft()
            try:
                await self._context.workers.submissions.run(owner, ahead.refill, POINTS_AHEAD)
            except Exception:  # the search draws its points itself, and tells what is wrong
                _log.exception("points of %s could not be drawn ahead", owner)


def _owner(s: Session, experiment_id: int) -> str:
    return s.scalar(select(ExperimentRow.owner).where(ExperimentRow.id == experiment_id)) or ""


def _may_ask(name: str) -> bool:
    try:
        return method_class(name).suggests
    except SearcherNotInstalled:
        return False


def _ask_again(unit: UnitOfWork, experiment_id: int) -> None:
    ask_open_questions(unit, unit.experiment(experiment_id))


def _tell(unit: UnitOfWork, experiment_id: int, event: Suggested) -> None:
    experiment = unit.experiment(experiment_id)
    if event.failure:
        _warn(unit, experiment, [f"suggestions: {event.failure}; points were drawn at random instead"])
    tell_search(unit, experiment, event)
    if ExperimentState(experiment.state).terminal:
        return
    try:
        notes = unit.searches.get(unit.session, experiment).notes()
    except SearchLostError:  # noticed, and reported, when the event was told
        return
    _warn(unit, experiment, notes)


def _warn(unit: UnitOfWork, experiment: ExperimentRow, texts: list[str]) -> None:
    new = [text for text in texts if text not in experiment.warnings]
    if new:
        experiment.warnings = [*experiment.warnings, *new]
        unit.changed_experiment(experiment.id)
