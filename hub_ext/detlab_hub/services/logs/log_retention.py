"""Retention of trials' output: its configuration, and the removal of older output.

The days count from the end of a trial; one that has not ended keeps all its lines. Removal is by chunk, oldest first,
in short transactions that note with each what was removed: after a crash anywhere the next sweep continues, and the
note counts every removed line. It takes place once a day, and after a start of the master, with a limited number of
steps a minute, so that other writes are not delayed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.orm import Session

from detlab.schemas.logwire import KeepLogs, KeepLogsReply
from detlab_hub.core.rights import Action
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import check_may_ask, experiment_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs.parts import EXPERIMENT
from detlab_hub.services.base.configs.rules import rules_for
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.queries.configs import policies
from detlab_hub.store.queries.logs import cuts

_log = logging.getLogger(__name__)
STEPS_PER_SWEEP = 200
CHUNKS_PER_STEP = 50
"""Some 300 kB of text, 3,000 lines of usual length."""
TRIALS_PER_READ = 1000
READS_PER_SWEEP = 100


class LogRetention(Service):
    """Removes output that is older than the retention period of its trial."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._after: int | None = None
        """The cleaning under way has looked at trials up to here; None: there is none."""
        self._begins = 0.0
        """Time of the next sweep; the first one is immediate."""
        self._removed = 0

    async def keep(self, caller: Caller, wanted: KeepLogs) -> KeepLogsReply:
        """Set for how long output is kept; it takes effect at the next cleaning, also for old lines.

        Raises:
            ConfigError: A config policy says for how long.
            Forbidden: One of the experiments is another user's, who shares it; or a notebook run asks.
            NotFound: There is no such experiment for the caller.
        """

        def change(unit: UnitOfWork) -> KeepLogsReply:
            check_may_ask(caller, Action.EXPERIMENT_KEEP_LOGS)
            for experiment_id in wanted.experiments:
                experiment_for(unit.session, caller, experiment_id, Action.EXPERIMENT_KEEP_LOGS)
            chosen = None if wanted.all else wanted.experiments
            ids = cuts.keep(unit.session, wanted.days, chosen, caller.name)
            if ids:
                _check_policies(unit.session, ids, wanted.days)
                subject = f"experiment {ids[0]}" if len(ids) == 1 else f"{len(ids)} experiments"
                audit.note(unit, caller, "experiment.log_retention", subject, f"days: {wanted.days}")
            return KeepLogsReply(changed=ids)

        return await self._context.write(change)

    async def sweep(self) -> int:
        """Remove some of the output that is due, when it is time; return how many chunks were removed."""
        now = self._context.clock()
        if self._after is None:
            if now < self._begins:
                return 0
            self._after, self._removed = 0, 0
            self._begins = next_cleaning(now, self._context.settings.log_cleaning_hour)
        before = self._removed
        await self._clean(now)
        return self._removed - before

    async def _clean(self, now: float) -> None:
        days, steps = self._context.settings.log_retention_days, STEPS_PER_SWEEP
        for _ in range(READS_PER_SWEEP):
            read = partial(cuts.window, after=self._after or 0, length=TRIALS_PER_READ, now=now, days=days)
            due, end = await self._context.read(read)
            for trial_id in due:
                self._after = trial_id - 1
                gone = CHUNKS_PER_STEP
                while gone == CHUNKS_PER_STEP:
                    if not steps:
                        return
                    steps -= 1
                    gone = await self._context.write(partial(_cut, trial_id=trial_id, days=days))
                    self._removed += gone
                    await asyncio.sleep(0)
            self._after = end
            if end is None:
                if self._removed:
                    _log.info("%d chunks of old output were removed", self._removed)
                return


def _check_policies(s: Session, ids: Sequence[int], days: int | None) -> None:
    """Check that no config policy says for how long output of these is kept.

    Raises:
        ConfigError: One does.
    """
    for place in policies.places_of(s, ids):
        rules_for(s, place, EXPERIMENT).check_change({}, {"retention_policy.log_retention_days": days})


def next_cleaning(now: float, hour: int) -> float:
    """Return the next time, in seconds since the epoch, at which it is `hour` o'clock in the master's time zone."""
    today = datetime.fromtimestamp(now).replace(hour=hour, minute=0, second=0, microsecond=0)
    moment = today if today.timestamp() > now else today + timedelta(days=1)
    return moment.timestamp()


def _cut(unit: UnitOfWork, trial_id: int, days: int) -> int:
    return cuts.cut(unit.session, trial_id, CHUNKS_PER_STEP, unit.now, days)
