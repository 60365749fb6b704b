"""The names of metrics of each trial: names beyond the limit are left out of its reports, and the rest is kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping

from sqlalchemy.orm import Session

from detlab_hub.store.queries import limits
from detlab_hub.store.tables import TrialRow

MOST_REMEMBERED = 300_000
"""Most cached names of all trials together; the least recently used trial is evicted, and read again when needed."""


class MetricNames:
    """A cache of the names that trials have reported; shared by the threads that write."""

    def __init__(self, most_remembered: int = MOST_REMEMBERED) -> None:
        self._most_remembered = most_remembered
        self._known: OrderedDict[int, dict[str, set[str]]] = OrderedDict()
        self._total = 0
        self._lock = threading.Lock()

    def beyond(
        self, s: Session, trial: TrialRow, group: str, metrics: Mapping[str, object], most: int, always: Collection[str]
    ) -> set[str]:
        """Return the names of a report that are too many for its trial; the others count from now on.

        Args:
            s: The session of the write.
            trial: Whose report.
            group: Its group.
            metrics: Its metrics by name.
            most: Names that a trial may have.
            always: Names that are never too many: what the search is by.
        """
        with self._lock:
            known = self._known.get(trial.id)
            if known is None:
                known = self._remember(trial.id, {} if trial.metrics_run == 0 else limits.metric_names(s, trial.id))
            of_group = known.setdefault(group, set())
            if metrics.keys() <= of_group:
                return set()
            self._known.move_to_end(trial.id)
            fresh = [name for name in metrics if name not in of_group]
            room = max(0, most - sum(map(len, known.values())))
            wanted = [name for name in fresh if name in always]
            wanted += [name for name in fresh if name not in always][: max(0, room - len(wanted))]
            of_group.update(wanted)
            self._total += len(wanted)
            self._forget_oldest()
            return set(fresh).difference(wanted)

    def _remember(self, trial_id: int, names: dict[str, set[str]]) -> dict[str, set[str]]:
        self._known[trial_id] = names
        self._total += sum(map(len, names.values()))
        return names

    def _forget_oldest(self) -> None:
        while self._total > self._most_remembered and len(self._known) > 1:
            _, names = self._known.popitem(last=False)
            self._total -= sum(map(len, names.values()))
