"""Trials for their owners: views of them, and killing one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from detlab.schemas.wire import CheckpointView, LogLine, SeriesView, TrialView
from detlab_hub.core.lifecycle import trial as lifecycle
from detlab_hub.core.rights import Action
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import trial_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle.transitions import apply_trial, finish_turn
from detlab_hub.services.logs.log_search import LogSearch
from detlab_hub.services.views import experiment_views, pages
from detlab_hub.store.queries import checkpoints
from detlab_hub.store.queries.logs import lines
from detlab_hub.store.queries.metrics import curves as metrics
from detlab_hub.store.tables import CheckpointRow

VALUES_AT_ONCE = 20
"""Structured values that are read at a time: each may have hundreds of kilobytes."""


class Trials(Service):
    """Use cases of trials. All raise NotFound for a trial that the caller may not see."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._search = LogSearch(context)

    async def get(self, caller: Caller, trial_id: int) -> TrialView:
        """Return a trial with the summaries of its metrics."""

        def get(s: Session) -> TrialView:
            return experiment_views.trial_view(s, trial_for(s, caller, trial_id), self._context.pending_reasons)

        return await self._context.read(get)

    async def kill(self, caller: Caller, trial_id: int) -> TrialView:
        """Kill a trial; the search continues without it. One that has ended is left unchanged."""

        def kill(unit: UnitOfWork) -> TrialView:
            row = trial_for(unit.session, caller, trial_id, Action.TRIAL_KILL)
            before = row.state
            apply_trial(unit, row, lifecycle.TrialKillRequested())
            if row.state != before:
                audit.note(unit, caller, "trial.kill", f"trial {trial_id}", f"experiment {row.experiment_id}")
            finish_turn(unit)
            return experiment_views.trial_view(unit.session, row, self._context.pending_reasons)

        return await self._context.write(kill)

    async def metrics(self, caller: Caller, trial_id: int, **wanted: Any) -> list[SeriesView]:
        """Return the first part of the trial's curves; see `curves`."""
        return (await self.curves(caller, trial_id, **wanted))[0]

    async def curves(
        self,
        caller: Caller,
        trial_id: int,
        *,
        group: str | None = None,
        names: Sequence[str] | None = None,
        max_points: int = 1000,
        skip: int = 0,
    ) -> tuple[list[SeriesView], int, int | None]:
        """Return a part of the trial's curves, down-sampled to `max_points` each.

        Returns:
            The curves; how many are in no part, because they are too many; and the `skip` of the next part.
        """

        def get(s: Session) -> tuple[list[SeriesView], int, int | None]:
            trial_for(s, caller, trial_id)
            found, following = metrics.series_part(
                s, [trial_id], group, names or None, max_points, skip=skip, most_bytes=pages.PAGE_BYTES
            )
            left_out = max(0, metrics.count_series(s, trial_id, group, names or None) - experiment_views.NAMES_SHOWN)
            end = following is None or following >= experiment_views.NAMES_SHOWN
            return found[: max(0, experiment_views.NAMES_SHOWN - skip)], left_out, None if end else following

        return await self._context.look(caller.name, get)

    async def values(
        self,
        caller: Caller,
        trial_id: int,
        *,
        group: str | None = None,
        name: str | None = None,
        limit: int = 100,
        before: tuple[int, int] | None = None,
    ) -> tuple[list[dict[str, Any]], tuple[int, int] | None]:
        """Return a page of the newest structured values of the trial, in step order, and the `before` of the next page.

        A place is (step, id).
        """

        def get(s: Session) -> tuple[list[dict[str, Any]], tuple[int, int] | None]:
            trial_for(s, caller, trial_id)
            newest: list[dict[str, Any]] = []
            left, place = pages.PAGE_BYTES, before
            while len(newest) < limit:
                count = min(VALUES_AT_ONCE, limit - len(newest))
                part = metrics.values(s, trial_id, group, name, count, place)[::-1]
                for one in part:
                    left -= pages.size_of(one)
                    if left < 0 and newest:
                        return newest[::-1], place
                    newest.append(one)
                    place = one["steps_completed"], one["id"]
                if len(part) < count:
                    return newest[::-1], None
            return newest[::-1], place

        return await self._context.look(caller.name, get)

    async def logs(
        self, caller: Caller, trial_id: int, *, regex: str | None = None, context: int = 0, **wanted: Any
    ) -> tuple[list[LogLine], lines.Edges]:
        """Return lines of the trial's output (`wanted`: fields of `logs.Wanted`), and where to continue."""
        wanted_lines = lines.Wanted(**wanted)
        return await self._search.page(
            caller.name, lambda s: trial_for(s, caller, trial_id).id, wanted_lines, regex, context
        )

    async def checkpoints(
        self, caller: Caller, trial_id: int, metric: str | None = None, **page: Any
    ) -> Sequence[CheckpointView]:
        """Return the items of `checkpoint_page`."""
        return (await self.checkpoint_page(caller, trial_id, metric, **page))[0]

    async def checkpoint_page(
        self,
        caller: Caller,
        trial_id: int,
        metric: str | None = None,
        *,
        limit: int = 1000,
        after: str | None = None,
    ) -> tuple[Sequence[CheckpointView], str | None]:
        """Return a page of the trial's checkpoints, most steps first, and the `after` of the next page."""

        def get(s: Session) -> tuple[Sequence[CheckpointView], str | None]:
            trial_for(s, caller, trial_id)
            uuids = checkpoints.of_trial(s, trial_id, limit + 1, after)
            views = partial(experiment_views.checkpoint_views, s, metric=metric)
            items, last = pages.of_rows(s, CheckpointRow, uuids, limit, views)
            return items, None if last is None else last.uuid

        return await self._context.look(caller.name, get)
