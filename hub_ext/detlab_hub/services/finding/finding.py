"""Trials and experiments found by a filter, and what may come next in one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from detlab.schemas.wire import Archived, EndReason, ExperimentView, TrialState, encode_floats
from detlab.schemas.wire.finding import Candidate, CandidateKind, Completions, ExperimentPage, FoundTrial, FoundTrials
from detlab_hub.core.filters import completion
from detlab_hub.core.filters.completion import AtCursor, Place
from detlab_hub.core.filters.fields import COLUMNS, ColumnField, Field, FilterTable, MetricField
from detlab_hub.core.filters.grammar import FilterError, pointed
from detlab_hub.core.filters.meaning import Asker, TextIn, fields, is_about_archived, leaves, read
from detlab_hub.core.rights import Person
from detlab_hub.services.admission.destinations import searched
from detlab_hub.services.base.access import person
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.finding.reading import SECONDS, TOO_SLOW, ReadRequest, read_request
from detlab_hub.services.views import experiment_views, pages
from detlab_hub.store.bounded import bounded
from detlab_hub.store.queries import experiments
from detlab_hub.store.queries.finding import names, search
from detlab_hub.store.tables import ExperimentRow, TrialRow

V = TypeVar("V", FoundTrial, ExperimentView)
CANDIDATES, CANDIDATE_CHARS = 50, 600
FEW = {"workspace", "project", "label", "owner", "searcher", "pool"}
"""Fields with few values, of which one that nothing has may be a mistake."""
LEAVES = 8
"""Comparisons of which that is asked."""
LOOKED_AT = 2_000
"""Names of metrics among which one that is misspelt is looked for."""


class RunFinder(Service):
    """Use cases of finding. Callers find what they may read."""

    async def trials(
        self,
        caller: Caller,
        *,
        filter: str = "",  # noqa: A002  (its name in requests)
        sort: Sequence[str] = (),
        column: Sequence[str] = (),
        archived: Archived = "no",
        limit: int = 100,
        after: int | None = None,
    ) -> FoundTrials:
        """Return one page of the trials of all experiments, the newest first or in an order.

        Args:
            caller: Who asks.
            filter: Which trials; empty: all.
            sort: Fields in order of importance, with `-` before them for descending; those without a value come last.
            column: Fields whose values come with each trial.
            archived: Whether those of archived experiments are left out (`no`), alone (`only`), or among the others;
                a filter that speaks of `archived` decides by itself.
            limit: Most trials.
            after: Id of the last trial of the page before.

        Raises:
            ConfigError: Filter, sort or columns cannot be read; it says where.
            QueryTooSlow: The filter took too long.
        """
        asked = read_request(FilterTable.TRIALS, filter, sort, column, self._asker(caller))
        more = experiments.narrowed(archived="any" if is_about_archived(asked.meaning) else archived)
        wanted = search.WantedRows(FilterTable.TRIALS, asked.meaning, asked.sort, more)

        def look(s: Session) -> FoundTrials:
            with bounded(s, SECONDS, "the filter", TOO_SLOW):
                ids = search.page(s, person(caller), wanted, limit + 1, after, self._context.clock())
                items, last = pages.of_rows(
                    s, TrialRow, ids, limit, lambda rows: self._valued(s, asked, _found_trials(s, rows))
                )
                notes = (
                    []
                    if after is not None
                    else notes_of(s, person(caller), asked, self._context.clock(), found=bool(ids))
                )
            following = None if last is None else last.id
            return FoundTrials(items=items, columns=asked.columns, notes=notes, next=following)

        return await self._context.look(caller.name, look)

    def _asker(self, caller: Caller) -> Asker:
        return Asker(person(caller).name, self._context.clock())

    def _notes(self, s: Session, caller: Caller, asked: ReadRequest, *, found: bool) -> list[str]:
        return notes_of(s, person(caller), asked, self._context.clock(), found=found)

    def _valued(self, s: Session, asked: ReadRequest, views: Sequence[V]) -> list[V]:
        """Return views with the values of the columns that were asked for."""
        if not asked.fields:
            return list(views)
        ids = [view.id for view in views]
        found = search.columns_of(s, asked.table, ids, asked.fields, self._context.clock())
        valued = [view.model_copy(update={"values": encode_floats(found[view.id])}) for view in views]
        return list(map(pages.brief, valued))

    async def experiments(
        self,
        caller: Caller,
        *,
        filter: str = "",  # noqa: A002  (its name in requests)
        sort: Sequence[str] = (),
        column: Sequence[str] = (),
        archived: Archived = "no",
        limit: int = 50,
        before: int | None = None,
        workspace: str | None = None,
        project: str | None = None,
        **narrowed: str | None,
    ) -> ExperimentPage:
        """Return one page of experiments, as `trials` does; their metrics and hyperparameters are of the best trial.

        Args:
            caller: Who asks.
            filter: Which experiments; empty: all.
            sort: Fields in order of importance.
            column: Fields whose values come with each experiment.
            archived: Which archived ones.
            limit: Most experiments.
            before: Id of the last experiment of the page before.
            workspace: Only those that lie in it: a name, OWNER/NAME or an id.
            project: Only those of this project of it.
            narrowed: `state`, `owner` and `name`, as lists without a filter take them.

        Raises:
            NotFound: There is no such workspace for the caller, or no such project in it.
            ConfigError: Filter, sort or columns cannot be read; it says where.
            QueryTooSlow: The filter took too long.
        """
        asked = read_request(FilterTable.EXPERIMENTS, filter, sort, column, self._asker(caller))
        kept = "any" if is_about_archived(asked.meaning) else archived
        reasons = self._context.pending_reasons

        def look(s: Session) -> ExperimentPage:
            place, folder = searched(s, caller, workspace, project)
            where = experiments.narrowed(**narrowed, archived=kept, workspace_id=place, project_id=folder)
            wanted = search.WantedRows(FilterTable.EXPERIMENTS, asked.meaning, asked.sort, where)

            def views(rows: Sequence[ExperimentRow]) -> list[ExperimentView]:
                return self._valued(s, asked, experiment_views.experiment_views(s, rows, caller, reasons))

            with bounded(s, SECONDS, "the filter", TOO_SLOW):
                ids = search.page(s, person(caller), wanted, limit + 1, before, self._context.clock())
                items, last = pages.of_rows(s, ExperimentRow, ids, limit, views)
                notes = (
                    []
                    if before is not None
                    else notes_of(s, person(caller), asked, self._context.clock(), found=bool(ids))
                )
            following = None if last is None else last.id
            return ExperimentPage(items=items, columns=asked.columns, notes=notes, next=following)

        return await self._context.look(caller.name, look)

    async def complete(
        self,
        caller: Caller,
        table: FilterTable,
        text: str,
        cursor: int | None = None,
        kind: CandidateKind | None = None,
    ) -> Completions:
        """Return what may come next in a filter at a cursor, by default at its end, and what is wrong with it as it is.

        Names are those of the newest experiments that the caller may read.

        Args:
            caller: Who asks.
            table: Of what it is a filter.
            text: The filter as it is.
            cursor: Where it is being written.
            kind: Only candidates of this kind.
        """
        place = completion.at(text, len(text) if cursor is None else cursor)
        problem, column = "", None
        try:
            read(text, table, self._asker(caller))
        except FilterError as error:
            problem, column = f"{error.message}\n{pointed(text, error.column)}", error.column

        def look(s: Session) -> Completions:
            with bounded(s, SECONDS, "the completion", ""):
                items = _candidates(s, person(caller), table, place, kind)
            return Completions(begin=place.begin, items=items, problem=problem, column=column)

        return await self._context.look(caller.name, look)


def _found_trials(s: Session, rows: Sequence[TrialRow]) -> list[FoundTrial]:
    parents = search.parents_of(s, {row.experiment_id for row in rows})
    return [pages.brief(_found_trial(row, parents[row.experiment_id])) for row in rows]


def _found_trial(row: TrialRow, parent: search.TrialParent) -> FoundTrial:
    return FoundTrial(
        id=row.id,
        experiment_id=row.experiment_id,
        index=row.idx,
        name=parent.name,
        owner=parent.owner,
        labels=parent.labels,
        state=TrialState(row.state),
        end_reason=None if row.end_reason is None else EndReason(row.end_reason),
        hparams=row.hparams,
        steps_completed=row.steps_completed,
        restarts=row.restarts,
        progress=row.progress,
        best_validation=row.best_validation,
        metric=parent.metric,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


# --- notes


def notes_of(s: Session, viewer: Person, asked: ReadRequest, now: float, *, found: bool) -> list[str]:
    """Say which names nothing has that the viewer may see: those of a filter only if nothing was found by it."""
    named: list[Field] = [*asked.fields, *(key.field for key in asked.sort)]
    named += [] if found else fields(asked.meaning)
    metrics = list(dict.fromkeys(field for field in named if isinstance(field, MetricField)))
    unknown = names.unknown_metrics(s, viewer, metrics)
    said = [] if found else _of_nothing(s, viewer, asked, now)
    if not unknown:
        return said
    known = {name for _, name in names.metrics(s, viewer, "", LOOKED_AT)}
    return [*(_note(asked.table, field, known) for field in unknown), *said]


def _of_nothing(s: Session, viewer: Person, asked: ReadRequest, now: float) -> list[str]:
    """Say which workspaces, labels and so on of a filter nothing has that the viewer may see, archived or not."""
    more = experiments.narrowed(archived="any")
    said = []
    for leaf in islice(leaves(asked.meaning), LEAVES):
        if not isinstance(leaf, TextIn) or not isinstance(leaf.field, ColumnField) or leaf.field.name not in FEW:
            continue
        if not search.page(s, viewer, search.WantedRows(asked.table, leaf, (), more), 1, None, now):
            known = names.labels(s, viewer) if leaf.field.name == "label" else names.texts(s, viewer, leaf.field.name)
            alike = get_close_matches(leaf.texts[0], known, n=1, cutoff=0.75)
            meant = f"; did you mean {alike[0]}?" if alike else ""
            said.append(f"nothing that you may see has the {leaf.field.name} {leaf.texts[0][:200]!r}{meant}")
    return said


def _note(table: FilterTable, field: MetricField, known: set[str]) -> str:
    group, name = field.readings[0]
    words = [*known, *COLUMNS[table]]
    alike = get_close_matches(name, words, n=1, cutoff=0.75)
    meant = f"; did you mean {alike[0]}?" if alike and alike[0] != name else ""
    return f"nothing that you may see has a metric {name[:200]!r} in the group {group[:200]!r}{meant}"


# --- completion


def _candidates(
    s: Session, viewer: Person, table: FilterTable, place: AtCursor, kind: CandidateKind | None
) -> list[Candidate]:
    match place.place:
        case Place.FIELD:
            named = _fields(s, viewer, table, place.prefix)
            return _first((one for one in named if kind in {None, one.kind}), place.prefix)
        case Place.OPERATOR:
            found = completion.operators_of(completion.field_at(table, place.field))
            return _first((Candidate(text=one, kind="operator") for one in found), place.prefix)
        case Place.VALUE:
            return _first(_values(s, viewer, table, place), place.prefix)
        case Place.LIST:
            return [Candidate(text="(", kind="word")]
        case Place.NULL:
            return _first((Candidate(text=one, kind="word") for one in ("null", "not null")), place.prefix)
        case Place.CONNECTIVE:
            return _first((Candidate(text=one, kind="word") for one in ("and", "or")), place.prefix)


def _first(found: Iterator[Candidate], prefix: str) -> list[Candidate]:
    """Return the first candidates that hold what is written already: those that begin with it first."""
    wanted = prefix.lower().replace('"', "")
    short = (one for one in found if len(one.text) <= CANDIDATE_CHARS)
    fitting = [one for one in short if wanted in one.text.lower().replace('"', "")]
    fitting.sort(key=lambda one: not one.text.lower().replace('"', "").startswith(wanted))
    return fitting[:CANDIDATES]


def _fields(s: Session, viewer: Person, table: FilterTable, prefix: str) -> Iterator[Candidate]:
    for column in COLUMNS[table].values():
        yield Candidate(text=column.name, kind="column", about=column.about)
    asked = prefix.replace('"', "")
    for path in names.hyperparameters(s, viewer):
        yield Candidate(text=completion.written_path(path.split("\0")), kind="hyperparameter")
    for group, name in names.metrics(s, viewer, asked.removeprefix("validation."), CANDIDATES):
        yield Candidate(text=completion.written_metric(group, name), kind="metric", about=f"of {group}")


def _values(s: Session, viewer: Person, table: FilterTable, place: AtCursor) -> Iterator[Candidate]:
    field = completion.field_at(table, place.field)
    known: list[Any] = completion.values_of(table, field)
    yield from (Candidate(text=one, kind="value") for one in known)
    if isinstance(field, ColumnField):
        texts = names.labels(s, viewer) if field.name == "label" else names.texts(s, viewer, field.name)
        yield from (Candidate(text=completion.written(one), kind="value") for one in texts)
