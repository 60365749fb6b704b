"""Steer a search while it runs; read its journal; replay it.

Each act is an event of the search, journaled with its author and the decisions it caused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, NotFound, Problem
from detlab.schemas import expconf
from detlab.schemas.space import leaves_of
from detlab.schemas.wire import (
    MOST_TRIALS_MORE,
    ExperimentState,
    JournalEntry,
    ReplayedSearch,
    SteeredExperiment,
    SteerSearch,
    TrialState,
)
from detlab_hub.core.lifecycle.table import is_stopping
from detlab_hub.core.rights import Action
from detlab_hub.core.searchers import (
    ConcurrencySet,
    Extended,
    PointsAdded,
    PromotionRequested,
    SearcherInputError,
    SpaceEdited,
    Steering,
    SteeringRefused,
    StopRequested,
    TrialsRetried,
)
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import experiment_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs.rules import rules_of
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.searches import SearchLostError
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.experiments import continuing, mending
from detlab_hub.services.experiments.replaying import replayed
from detlab_hub.services.lifecycle.rows import TERMINAL_TRIALS, is_unmanaged
from detlab_hub.services.lifecycle.transitions import finish_turn, tell_search
from detlab_hub.services.views import experiment_views, pages
from detlab_hub.store.idempotency import known_experiment, note_experiment
from detlab_hub.store.queries.experiments import journal_page
from detlab_hub.store.queries.trials import next_index, prepared
from detlab_hub.store.tables import ExperimentRow, TrialRow


class SearchSteering(Service):
    """Use cases of searches that are active. All raise NotFound for an experiment that the caller may not see."""

    async def steer(self, caller: Caller, experiment_id: int, wanted: SteerSearch) -> SteeredExperiment:
        """Carry out an act, all of it or nothing.

        Raises:
            ConfigError: A field that the act needs is missing.
            Conflict: The search, or its method, does not allow it.
            Forbidden: The caller may read the experiment but not change it.
        """
        if wanted.act == "bounds":
            wanted = await self._with_checked_bounds(caller, experiment_id, wanted)

        def steer(unit: UnitOfWork) -> SteeredExperiment:
            # Code runs with the rights of the experiment's owner: nobody else may send it.
            needed = Action.SEARCH_CODE if wanted.act == "code" else Action.SEARCH_STEER
            row = experiment_for(unit.session, caller, experiment_id, needed)
            key = wanted.idempotency_key and f"search {experiment_id} {wanted.idempotency_key}"  # not that of a submit
            promoted_to = None
            if known_experiment(unit.session, caller.name, key) is None:
                promoted_to = self._act(unit, row, caller, wanted)
                note_experiment(unit.session, caller.name, key, row.id, unit.now)
            view = experiment_views.experiment_view(unit.session, row, caller, self._context.pending_reasons)
            return SteeredExperiment(**dict(view), promoted_to=promoted_to)

        return await self._context.write(steer)

    async def _with_checked_bounds(self, caller: Caller, experiment_id: int, wanted: SteerSearch) -> SteerSearch:
        """Check a `hyperparameters` block outside of the writer's transaction: a large one takes seconds."""
        _need(wanted.hyperparameters is not None, "hyperparameters", "is missing: give the whole block")

        def config(s: Session) -> dict[str, Any]:
            row = experiment_for(s, caller, experiment_id, Action.SEARCH_STEER)
            _refuse_ended(row)
            return dict(row.config)

        known = await self._context.read(config)
        run = self._context.workers.submissions.run
        block = await run(caller.name, _checked, known, wanted.hyperparameters or {})
        return wanted.model_copy(update={"hyperparameters": block})

    @staticmethod
    def _act(unit: UnitOfWork, row: ExperimentRow, caller: Caller, wanted: SteerSearch) -> int | None:
        """Carry out an act; return the rung to which it promoted a trial."""
        if wanted.act == "retry" and ExperimentState(row.state) in _RETRIED:
            continuing.check_ended(row)
            _failed(unit.session, row, wanted.trial_ids)
            continuing.reopen(unit, row, caller, ())
        _refuse_ended(row)
        _check_policies(unit.session, row, wanted)
        if wanted.act in ("code", "metric"):
            if wanted.act == "code":
                mending.replace_code(unit, row, caller, wanted.bundle)
            else:
                mending.correct_metric(unit, row, wanted.metric)
            audit.note(unit, caller, f"search.{wanted.act}", f"experiment {row.id}", row.name)
            finish_turn(unit)
            return None
        if (row.failure or {}).get("kind") == "searcher":
            hint = f"Activate it first: det experiment activate {row.id}"
            raise Conflict(f"the search of experiment {row.id} waits: {(row.failure or {}).get('message')}", hint=hint)
        event = _event(unit.session, row, caller.name, wanted)
        try:
            search = unit.searches.get(unit.session, row)
            if isinstance(event, PromotionRequested):
                event = replace(event, to=search.promotes_to(event.request_id))
            left = search.trials_total - search.trials_requested
            if event == ConcurrencySet(0, caller.name) and left > MOST_TRIALS_MORE:
                limit = f"at most {MOST_TRIALS_MORE:,} can run at a time"
                raise Conflict(f"experiment {row.id}: {left:,} trials are left; {limit}", hint="Say how many.")
            made_before = next_index(unit.session, row.id)
            tell_search(unit, row, event)
            if isinstance(event, PointsAdded) and is_unmanaged(row):
                _enqueue(unit, row, event, made_before)
        except (SearchLostError, SearcherInputError) as error:
            said = str(error)
            if wanted.act in ("stop", "promote"):
                said = said.replace("the trial", f"trial {wanted.trial_ids[0]}", 1)
            raise Conflict(f"experiment {row.id}: {said}") from error
        audit.note(unit, caller, f"search.{wanted.act}", f"experiment {row.id}", row.name)
        unit.changed_experiment(row.id)
        finish_turn(unit)
        return event.to if isinstance(event, PromotionRequested) else None

    async def journal(
        self, caller: Caller, experiment_id: int, after: int, limit: int, *, acts: bool = False
    ) -> tuple[list[JournalEntry], int | None]:
        """Return a page of the events after a number, in order, with their decisions, and the `after` of the next page.

        With `acts` only events of users.
        """

        def read(s: Session) -> tuple[list[JournalEntry], int | None]:
            experiment_for(s, caller, experiment_id)
            rows = journal_page(s, experiment_id, after, limit, acts=acts)
            made = (JournalEntry(seq=one.seq, at=one.at, event=one.event, decisions=one.decisions) for one in rows)
            items = pages.within(map(pages.brief, made))
            return items, items[-1].seq if len(items) < len(rows) or len(rows) == limit else None

        return await self._context.look(caller.name, read)

    async def replay(self, caller: Caller, experiment_id: int, at: int | None) -> ReplayedSearch:
        """Compute the state of a search at one of its events, by default the newest.

        Raises:
            Conflict: The journal is too long, or this version of detlab decides differently.
            NotFound: There is no such event.
        """
        now = self._context.clock()

        def read(s: Session) -> ReplayedSearch:
            return replayed(s, experiment_for(s, caller, experiment_id), at, now)

        return await self._context.look(caller.name, read)


_RETRIED = (ExperimentState.COMPLETED, ExperimentState.ERROR)
"""Ends after which failed trials can be tried again: the search goes on for them."""


def _refuse_ended(row: ExperimentRow) -> None:
    state = ExperimentState(row.state)
    if state.terminal or is_stopping(state) or state is ExperimentState.DELETING:
        hint = f"Go on with it: det experiment continue {row.id}, or begin another one: det experiment fork {row.id}"
        if is_unmanaged(row):
            hint = continuing.another(row).capitalize()
        raise Conflict(f"the search of experiment {row.id} is over: it is {state}", hint=hint)


def _enqueue(unit: UnitOfWork, row: ExperimentRow, event: PointsAdded, made_before: int) -> None:
    """Hand out the trials at the added points next, in their order."""
    here = TrialRow.experiment_id == row.id
    unit.session.flush()
    lacking = len(event.points) - (next_index(unit.session, row.id) - made_before)
    if lacking > 0 and not rules_of(unit.session, row).fixes("searcher.max_concurrent_trials"):
        living = select(func.count()).where(here, TrialRow.state.not_in(TERMINAL_TRIALS))
        places = (unit.session.scalar(living) or 0) + lacking
        with suppress(SteeringRefused):  # a method with a fixed number makes them when places are free
            tell_search(unit, row, ConcurrencySet(places, event.author))
    unit.session.flush()
    made = unit.session.scalars(select(TrialRow).where(here, TrialRow.idx >= made_before).order_by(TrialRow.idx))
    for trial in made.all()[: len(event.points) * int((row.config.get("searcher") or {}).get("seeds") or 1)]:
        trial.enqueued_by = event.author


def _event(s: Session, row: ExperimentRow, author: str, wanted: SteerSearch) -> Steering:
    match wanted.act:
        case "extend":
            _need(bool(wanted.trials or wanted.units), "trials", "must be above 0, or `units` must be")
            return Extended(wanted.trials, wanted.units, author)
        case "add":
            _need(bool(wanted.points), "points", "there must be at least one")
            _check_twice(wanted.points)
            return PointsAdded(tuple(wanted.points), author)
        case "retry":
            return TrialsRetried(tuple(_failed(s, row, wanted.trial_ids)), author)
        case "bounds":
            return SpaceEdited(wanted.hyperparameters or {}, author, prepared(s, row.id) if is_unmanaged(row) else ())
        case "concurrency":
            _need(wanted.limit is not None, "limit", "is missing: trials at a time, 0 for no limit")
            return ConcurrencySet(wanted.limit or 0, author)
        case "stop":
            return StopRequested(_one(s, row, wanted.trial_ids).request_id, author)
        case "promote":
            return PromotionRequested(_one(s, row, wanted.trial_ids).request_id, author)
        case "code" | "metric":
            raise AssertionError(f"{wanted.act} is no event of the search")


def _check_policies(s: Session, row: ExperimentRow, wanted: SteerSearch) -> None:
    """Check that no config policy sets what an act changes to something else.

    Raises:
        ConfigError: One does.
    """
    rules = rules_of(s, row)
    if wanted.act in {"extend", "add", "concurrency", "retry", "promote"}:
        rules.hold_slots(row)
    match wanted.act:
        case "extend":
            lengths = ["searcher.max_time", "searcher.max_length"] if wanted.units else []
            rules.check_fixed([*(["searcher.max_trials"] if wanted.trials else []), *lengths])
        case "add":
            named = {f"hyperparameters.{name}" for point in wanted.points for name in point}
            rules.check_fixed(["searcher.max_trials", *sorted(named)])
        case "bounds":
            rules.check_change(row.config, {"hyperparameters": wanted.hyperparameters or {}})
        case "concurrency":
            rules.check_change(row.config, {"searcher.max_concurrent_trials": wanted.limit or 0})
        case "metric":
            rules.check_change(row.config, {"searcher.metric": wanted.metric})
        case "code" | "retry" | "stop" | "promote":
            pass


def _checked(config: dict[str, Any], block: dict[str, Any]) -> dict[str, Any]:
    """Check and complete a `hyperparameters` block as part of a config; the core takes checked blocks only."""
    raw = {"entrypoint": ["true"], "searcher": config["searcher"], "hyperparameters": block}
    places = ("hyperparameters", "searcher.require")
    if wrong := [one for one in expconf.errors_of(expconf.check(raw)) if one.path.startswith(places)]:
        raise ConfigError(wrong)
    made: dict[str, Any] = expconf.resolve(raw)["hyperparameters"]
    if wrong := list(_renamed(config.get("hyperparameters") or {}, made)):
        raise ConfigError(wrong)
    return made


def _renamed(before: dict[str, Any], after: dict[str, Any]) -> Iterator[Problem]:
    """Yield the hyperparameters that are gone or new: the code of the experiment has the names that it began with."""
    old, new = ({leaf.name for leaf in leaves_of(space)} for space in (before, after))
    hint = "give the whole block, each hyperparameter by its name; `det search clone` begins a search of other ones"
    for name in sorted(old - new):
        yield Problem(f"hyperparameters.{name}", "is not in the new block, and the code reads it", hint)
    for name in sorted(new - old):
        yield Problem(f"hyperparameters.{name}", "is new: the experiment has no such hyperparameter", hint)


def _check_twice(points: list[dict[str, Any]]) -> None:
    """Refuse points that are given twice in one act; a point that was tried before may be added again."""
    first: dict[str, int] = {}
    wrong = []
    for place, point in enumerate(points):
        earlier = first.setdefault(json.dumps(point, sort_keys=True), place)
        if earlier != place:
            hint = "to train it once more, with another seed, add it in a further command"
            wrong.append(Problem(f"points[{place}]", f"is the same point as number {earlier}", hint))
    if wrong:
        raise ConfigError(wrong)


def _need(there: bool, field: str, message: str) -> None:
    if not there:
        raise ConfigError([Problem(field, message)])


def _one(s: Session, row: ExperimentRow, trial_ids: list[int]) -> TrialRow:
    _need(len(trial_ids) == 1, "trial_ids", "exactly one trial is needed")
    return _of(s, row, trial_ids)[0]


def _of(s: Session, row: ExperimentRow, trial_ids: list[int]) -> list[TrialRow]:
    found = s.scalars(select(TrialRow).where(TrialRow.experiment_id == row.id, TrialRow.id.in_(trial_ids))).all()
    missing = sorted(set(trial_ids) - {trial.id for trial in found})
    if missing:
        raise NotFound(f"experiment {row.id} has no trial {missing[0]}")
    return sorted(found, key=lambda trial: trial.idx)


def _failed(s: Session, row: ExperimentRow, trial_ids: list[int]) -> list[str]:
    """Return the failed trials to retry, by default all."""
    if trial_ids:
        chosen = _of(s, row, trial_ids)
    else:
        query = select(TrialRow).where(TrialRow.experiment_id == row.id, TrialRow.state == TrialState.ERROR.value)
        chosen = list(s.scalars(query.order_by(TrialRow.idx)))
    others = [trial.id for trial in chosen if trial.state != TrialState.ERROR]
    if others:
        raise Conflict(f"trial {others[0]} has not failed; only failed trials can be retried")
    if not chosen:
        raise Conflict(f"experiment {row.id} has no failed trial")
    return [trial.request_id for trial in chosen]
