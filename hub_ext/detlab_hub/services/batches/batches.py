"""Acts on many experiments: one after the other, each in its own transaction and with its own rights."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, DetlabError, Problem, Unavailable
from detlab.schemas.wire import EditExperiment, ExperimentState, ExperimentView
from detlab.schemas.wire.batches import MOST_AT_ONCE, BatchItem, BatchReply, BatchRequest
from detlab.schemas.wire.projects import MoveExperiment
from detlab_hub.core.filters.fields import FilterTable
from detlab_hub.core.filters.meaning import Asker, is_about_archived
from detlab_hub.core.rights import Action
from detlab_hub.services.base.access import check_may_ask, experiment_for, person
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.experiments.edits import Edits
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.finding.reading import SECONDS, TOO_SLOW, read_request
from detlab_hub.services.projects.moves import Moves
from detlab_hub.store.bounded import bounded
from detlab_hub.store.queries import experiments
from detlab_hub.store.queries.finding import search
from detlab_hub.store.tables import ExperimentRow

BATCH_SECONDS = 20.0
"""After which a request answers with what it has done; browsers and proxies wait for a minute."""
ACTIONS: Mapping[str, Action] = {
    "pause": Action.EXPERIMENT_PAUSE,
    "activate": Action.EXPERIMENT_ACTIVATE,
    "cancel": Action.EXPERIMENT_CANCEL,
    "kill": Action.EXPERIMENT_KILL,
    "archive": Action.EXPERIMENT_ARCHIVE,
    "unarchive": Action.EXPERIMENT_ARCHIVE,
    "delete": Action.EXPERIMENT_DELETE,
    "move": Action.EXPERIMENT_MOVE,
    "add_labels": Action.EXPERIMENT_EDIT,
    "remove_labels": Action.EXPERIMENT_EDIT,
}


class ManyExperiments(Service):
    """Use cases of acts on many experiments.

    Args:
        context: The master's.
        single: What is done to one of them.
        edits: What people write about them.
        moves: Their moves.
    """

    def __init__(self, context: ServiceContext, single: Experiments, edits: Edits, moves: Moves) -> None:
        super().__init__(context)
        self._single, self._edits, self._moves = single, edits, moves

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Self:
        """Make the one of a master."""
        return cls(services.context, services[Experiments], services[Edits], services[Moves])

    async def run(self, caller: Caller, wanted: BatchRequest) -> BatchReply:
        """Do it to each of them; what one refuses is no reason to stop.

        Raises:
            ConfigError: What the act needs is missing, or the filter cannot be read.
            Forbidden: A notebook run asks for what its owner alone may do.
            QueryTooSlow: The filter took too long.
        """
        _check(wanted)
        check_may_ask(caller, ACTIONS[wanted.act])
        ids, following = list(dict.fromkeys(wanted.experiment_ids)), None
        if wanted.filter:
            ids, following = await self._found(caller, wanted)
        if wanted.dry_run:
            items = await self._context.look(caller.name, lambda s: [_looked_at(s, caller, wanted, one) for one in ids])
            return BatchReply(items=items, next=following)
        until, done = self._context.clock() + BATCH_SECONDS, _Done(wanted)
        for place, experiment_id in enumerate(ids):
            try:
                if self._context.clock() <= until:
                    await self._one(caller, wanted, experiment_id, done)
                    continue
            except Unavailable:
                if not done.items:
                    raise
            return done.reply(ids[place:], following)
        return done.reply([], following)

    async def _found(self, caller: Caller, wanted: BatchRequest) -> tuple[list[int], int | None]:
        """Return the newest experiments that fulfil the filter and that the caller may see."""
        now = self._context.clock()
        asked = read_request(FilterTable.EXPERIMENTS, wanted.filter, (), (), Asker(person(caller).name, now))
        more = list(experiments.narrowed(archived="any" if is_about_archived(asked.meaning) else wanted.archived))
        if wanted.before is not None:
            more.append(ExperimentRow.id < wanted.before)
        rows = search.WantedRows(FilterTable.EXPERIMENTS, asked.meaning, (), more)

        def look(s: Session) -> list[int]:
            with bounded(s, SECONDS, "the filter", TOO_SLOW):
                return search.page(s, person(caller), rows, MOST_AT_ONCE + 1, None, now)

        found = await self._context.look(caller.name, look)
        ids = found[:MOST_AT_ONCE]
        return ids, ids[-1] if len(found) > len(ids) else None

    async def _one(self, caller: Caller, wanted: BatchRequest, experiment_id: int, done: _Done) -> None:
        """Do it to one, by the service that does it to one alone, and with its rights.

        Raises:
            Unavailable: The database is busy or broken.
        """
        before = None
        try:
            before = await self._context.read(lambda s: BatchFacts.of_row(experiment_for(s, caller, experiment_id)))
            if wanted.act == "delete":
                left = await self._single.delete(caller, experiment_id)
                done.note(before, None, "DELETED" if left is None else "DELETING", "" if left is None else left.said)
            else:
                view = await self._act(caller, wanted, experiment_id)
                done.note(before, BatchFacts.of_view(view), view.state.value)
        except Unavailable:
            raise
        except DetlabError as error:
            done.items.append(_refused(experiment_id, before, error))

    async def _act(self, caller: Caller, wanted: BatchRequest, experiment_id: int) -> ExperimentView:
        match wanted.act:
            case "pause" | "activate" | "cancel" | "kill":
                steer: Callable[[Caller, int], Awaitable[ExperimentView]] = getattr(self._single, wanted.act)
                return await steer(caller, experiment_id)
            case "archive" | "unarchive":
                edit = EditExperiment(archived=wanted.act == "archive")
            case "add_labels":
                edit = EditExperiment(add_labels=wanted.labels)
            case "remove_labels":
                edit = EditExperiment(remove_labels=wanted.labels)
            case "move":
                to = MoveExperiment(
                    workspace=wanted.workspace, project=wanted.project, keep_storage=wanted.keep_storage
                )
                return await self._moves.experiment(caller, experiment_id, to)
            case "delete":
                raise AssertionError("a deleted experiment has no view")
        return await self._edits.edit(caller, experiment_id, edit)


@dataclass(frozen=True)
class BatchFacts:
    """What acts change of an experiment, and what a list says of it."""

    id: int
    name: str
    state: str
    archived: bool
    labels: tuple[str, ...]
    place: tuple[int | None, int | None]

    @classmethod
    def of_row(cls, row: ExperimentRow) -> BatchFacts:
        """Return those of a row."""
        place = row.workspace_id, row.project_id
        return cls(row.id, row.name, row.state, row.archived_at is not None, tuple(row.labels), place)

    @classmethod
    def of_view(cls, view: ExperimentView) -> BatchFacts:
        """Return those of a view."""
        place = view.workspace_id, view.project_id
        return cls(view.id, view.name, view.state.value, view.archived_at is not None, tuple(view.labels), place)


@dataclass
class _Done:
    """What was done so far, and what takes it back."""

    wanted: BatchRequest
    items: list[BatchItem] = field(default_factory=list)
    changed: list[BatchFacts] = field(default_factory=list)
    """Those that were changed, as they were before."""

    def note(self, before: BatchFacts, after: BatchFacts | None, state: str, said: str = "") -> None:
        """Note what became of one."""
        same = before == after
        self.items.append(
            BatchItem(id=before.id, result="unchanged" if same else "done", name=before.name, state=state, reason=said)
        )
        if not same:
            self.changed.append(before)

    def reply(self, left: Sequence[int], following: int | None) -> BatchReply:
        """Return the answer."""
        return BatchReply(items=self.items, left=list(left), next=following, undo=list(self._undo()))

    def _undo(self) -> Iterator[BatchRequest]:
        ids, labels = [one.id for one in self.changed], self.wanted.labels
        match self.wanted.act:
            case "archive" | "unarchive" if ids:
                yield BatchRequest(act="unarchive" if self.wanted.act == "archive" else "archive", experiment_ids=ids)
            case "add_labels":
                for label in labels:
                    if new := [one.id for one in self.changed if label not in one.labels]:
                        yield BatchRequest(act="remove_labels", experiment_ids=new, labels=[label])
            case "remove_labels":
                for label in labels:
                    if had := [one.id for one in self.changed if label in one.labels]:
                        yield BatchRequest(act="add_labels", experiment_ids=had, labels=[label])
            case "move":
                for workspace, project in dict.fromkeys(one.place for one in self.changed):
                    yield BatchRequest(
                        act="move",
                        experiment_ids=[one.id for one in self.changed if one.place == (workspace, project)],
                        workspace="" if workspace is None else str(workspace),
                        project="" if project is None else str(project),
                        keep_storage=self.wanted.keep_storage,
                    )


def _refused(experiment_id: int, before: BatchFacts | None, error: DetlabError) -> BatchItem:
    reason, hint = error.message, error.hint
    if isinstance(error, ConfigError) and error.problems:
        reason, hint = "; ".join(one.message for one in error.problems), error.problems[0].hint
    found = {} if before is None else {"name": before.name, "state": before.state}
    return BatchItem(id=experiment_id, result="refused", reason=reason, hint=hint or "", **found)


def _looked_at(s: Session, caller: Caller, wanted: BatchRequest, experiment_id: int) -> BatchItem:
    """Return what a dry run says of one: whether the caller may do it, and whether it has ended if it must have."""
    before = None
    try:
        before = BatchFacts.of_row(experiment_for(s, caller, experiment_id))
        experiment_for(s, caller, experiment_id, ACTIONS[wanted.act])
        if wanted.act in ("archive", "delete") and not _is_over(before.state):
            raise Conflict(f"experiment {experiment_id} is {before.state}", hint=f"det experiment kill {experiment_id}")
    except DetlabError as error:
        return _refused(experiment_id, before, error)
    return BatchItem(id=experiment_id, result="done", name=before.name, state=before.state)


def _is_over(state: str) -> bool:
    return ExperimentState(state).terminal or state == ExperimentState.DELETING


def _check(wanted: BatchRequest) -> None:
    """Check that a request says what to do with what.

    Raises:
        ConfigError: It does not; all that is wrong is named.
    """
    problems = []
    if bool(wanted.experiment_ids) == bool(wanted.filter.strip()):
        problems.append(Problem("experiment_ids", "give either ids of experiments or a filter"))
    by_labels = wanted.act in ("add_labels", "remove_labels")
    if by_labels and not wanted.labels:
        problems.append(Problem("labels", f"{wanted.act} needs at least one"))
    if wanted.labels and not by_labels:
        problems.append(Problem("labels", f"{wanted.act} takes none"))
    if (wanted.workspace or wanted.project or wanted.keep_storage) and wanted.act != "move":
        problems.append(Problem("workspace", f"{wanted.act} takes no place to move to"))
    if problems:
        raise ConfigError(problems)
