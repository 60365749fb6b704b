"""Which tasks hold GPUs that do nothing: as their agents measure, and for trials elsewhere as their profiler does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy.orm import Session

from detlab.schemas.taskwire import IdleGpuView
from detlab_hub.core.scheduling.configuration import PoolConfig
from detlab_hub.core.scheduling.gpu_activity import GpuActivity
from detlab_hub.services.base.settings import Settings
from detlab_hub.store.queries import parts
from detlab_hub.store.queries.metrics.idle import Holding, holding, idle_trials

SHOWN_AFTER = 1800.0
"""Seconds at 0 % after which GPUs count as held and not used, where their pool does not say."""
MOST_START = 600.0
"""Most seconds after its start in which a task is never idle, whatever its GPUs do: it may load its data."""


class IdleGpus(NamedTuple):
    """A running trial or user task all of whose GPUs were at 0 % for the time of its pool.

    Attributes:
        allocation_id: What holds them.
        owner: Whose it is.
        pool: Where it runs.
        run: Its attempt.
        slots: How many it holds.
        since: Since when, as far as it is known.
        measured: Whether its agents have measured it; else it is what the trial itself reports.
        experiment_id: Of a trial; None: it is a user task.
        trial_id: Likewise.
        task_id: Of a user task.
    """

    allocation_id: str
    owner: str
    pool: str
    run: int
    slots: int
    since: float
    measured: bool
    experiment_id: int | None
    trial_id: int | None
    task_id: str | None

    @property
    def subject(self) -> str:
        """What people call it."""
        return self.task_id or f"trial {self.trial_id}"

    @property
    def view(self) -> IdleGpuView:
        """What people get."""
        return IdleGpuView(
            user=self.owner,
            experiment_id=self.experiment_id,
            trial_id=self.trial_id,
            task_id=self.task_id,
            slots=self.slots,
            since=self.since,
        )


def idle_after(pools: Mapping[str, PoolConfig], pool: str) -> float:
    """Return the seconds at 0 % after which GPUs of a pool count as held and not used."""
    known = pools.get(pool)
    return (known.idle_gpu_warning if known is not None else 0.0) or SHOWN_AFTER


def idle_now(
    s: Session, now: float, settings: Settings, activity: GpuActivity, holder: int | str | None = None
) -> list[IdleGpus]:
    """Return who holds GPUs that do nothing, in the order of what holds them.

    Args:
        s: A session.
        now: The time, in seconds since the epoch.
        settings: Those of the master.
        activity: What agents have measured.
        holder: Only those of this experiment or user task; None: all.
    """
    running = holding(s, holder)
    places: dict[str, list[tuple[str, list[str]]]] = {}
    for allocation, agent, slots in parts.places(s, [one.id for one in running]):
        places.setdefault(allocation, []).append((agent, slots))
    found, elsewhere = [], set()
    for one in running:
        use = activity.use_of(places.get(one.id, []), now)
        if not use.known:
            elsewhere.add(one.id)
            continue
        after = idle_after(settings.pools.by_name, one.pool)
        if use.idle_since is None or one.started_at is None:
            continue
        since = max(use.idle_since, one.started_at + min(after, MOST_START))
        if now - since >= after:
            found.append(_idle(one, since, measured=True))
    return found + _reported(s, now, settings, {one.id: one for one in running if one.id in elsewhere})


def _reported(s: Session, now: float, settings: Settings, wanted: Mapping[str, Holding]) -> list[IdleGpus]:
    """Return those that no agent measures and that say it of themselves, by their profiler."""
    trials = {one.trial_id: one for one in wanted.values() if one.trial_id}
    found: dict[str, IdleGpus] = {}
    pools = settings.pools.by_name
    for seconds in {idle_after(pools, one.pool) for one in trials.values()}:
        of_time = [key for key, one in trials.items() if idle_after(pools, one.pool) == seconds]
        for trial in idle_trials(s, now, seconds, of_time):
            one = trials[trial.trial_id]
            found[one.id] = _idle(one, trial.since, measured=False)
    return [found[key] for key in sorted(found)]


def _idle(one: Holding, since: float, *, measured: bool) -> IdleGpus:
    return IdleGpus(
        one.id,
        one.owner,
        one.pool,
        one.run,
        one.slots,
        since,
        measured,
        one.experiment_id,
        one.trial_id,
        one.task_id,
    )
