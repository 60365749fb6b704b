"""Trials for their owners: views of them, and killing one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from detlab.schemas.wire import CheckpointView, LogLine, SeriesView, TrialView
from detlab_hub.core.lifecycle import trial as lifecycle
from detlab_hub.core.rights import Action
from detlab_hub.services.kernel import audit
from detlab_hub.services.kernel.access import trial_for
from detlab_hub.services.kernel.callers import Caller
from detlab_hub.services.kernel.shell import Shell
from detlab_hub.services.kernel.turn import Turn
from detlab_hub.services.lifecycle.transitions import apply_trial, finish_turn
from detlab_hub.services.logs.log_search import LogSearch
from detlab_hub.services.views import experiment_views
from detlab_hub.store.queries import checkpoints
from detlab_hub.store.queries.logs import lines
from detlab_hub.store.queries.metrics import curves as metrics


class Trials:
    """Use cases of trials. All raise NotFound for a trial that the caller may not see."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._search = LogSearch(shell)

    async def get(self, caller: Caller, trial_id: int) -> TrialView:
        """Return a trial with the summaries of its metrics."""

        def get(s: Session) -> TrialView:
            return experiment_views.trial_view(s, trial_for(s, caller, trial_id), self._shell.pending_reasons)

        return await self._shell.read(get)

    async def kill(self, caller: Caller, trial_id: int) -> TrialView:
        """Kill a trial; the search continues without it. One that has ended is left unchanged."""

        def kill(turn: Turn) -> TrialView:
            row = trial_for(turn.session, caller, trial_id, Action.TRIAL_KILL)
            before = row.state
            apply_trial(turn, row, lifecycle.KillRequested())
            if row.state != before:
                audit.note(turn, caller, "trial.kill", f"trial {trial_id}", f"experiment {row.experiment_id}")
            finish_turn(turn)
            return experiment_views.trial_view(turn.session, row, self._shell.pending_reasons)

        return await self._shell.write(kill)

    async def metrics(self, caller: Caller, trial_id: int, **wanted: Any) -> list[SeriesView]:
        """Return the trial's curves; see `curves`."""
        return (await self.curves(caller, trial_id, **wanted))[0]

    async def curves(
        self,
        caller: Caller,
        trial_id: int,
        *,
        group: str | None = None,
        names: Sequence[str] | None = None,
        max_points: int = 1000,
    ) -> tuple[list[SeriesView], int]:
        """Return the trial's curves, down-sampled to `max_points` each, and the number left out beyond the limit."""

        def get(s: Session) -> tuple[list[SeriesView], int]:
            trial_for(s, caller, trial_id)
            found = metrics.series(s, [trial_id], group, names or None, max_points, limit=experiment_views.NAMES_SHOWN)
            full = len(found) >= experiment_views.NAMES_SHOWN
            return found, metrics.count_series(s, trial_id, group, names or None) - len(found) if full else 0

        return await self._shell.read(get)

    async def values(
        self,
        caller: Caller,
        trial_id: int,
        *,
        group: str | None = None,
        name: str | None = None,
        limit: int = 100,
    ) -> list[dict[str, Any]]:
        """Return the newest structured values of the trial, in step order."""

        def get(s: Session) -> list[dict[str, Any]]:
            trial_for(s, caller, trial_id)
            return metrics.values(s, trial_id, group, name, limit)

        return await self._shell.read(get)

    async def logs(
        self, caller: Caller, trial_id: int, *, regex: str | None = None, **wanted: Any
    ) -> tuple[list[LogLine], lines.Edges]:
        """Return lines of the trial's output (`wanted`: fields of `logs.Wanted`), and where to continue."""
        wanted_lines = lines.Wanted(**wanted)
        return await self._search.page(caller.name, lambda s: trial_for(s, caller, trial_id).id, wanted_lines, regex)

    async def checkpoints(self, caller: Caller, trial_id: int, metric: str | None = None) -> list[CheckpointView]:
        """Return the trial's checkpoints, most steps first, with this validation metric if one is named."""

        def get(s: Session) -> list[CheckpointView]:
            trial_for(s, caller, trial_id)
            return experiment_views.checkpoint_views(s, checkpoints.of_trial(s, trial_id), metric)

        return await self._shell.read(get)
