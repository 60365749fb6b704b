"""Ask and tell: the short form of a search method, for optimisers that suggest one point at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from detlab.searcher.method import Create, Operation, RequestId, SearcherState, SearchMethod, Shutdown


class AskTell(SearchMethod):
    """Keep `max_concurrent_trials` trials running: `ask` is called for each new one, `tell` when one has ended.

    The search ends when `ask` returns None and no trial is left, or after `max_trials` trials.
    """

    @abstractmethod
    def ask(self, state: SearcherState) -> Mapping[str, Any] | None:
        """Return the next point; None if there is none for now."""

    @abstractmethod
    def tell(
        self, state: SearcherState, request_id: RequestId, hyperparameters: Mapping[str, Any], metric: float | None
    ) -> None:
        """Record the result of a point: the best metric of its trial; None if it failed without one."""

    def initial_operations(self, searcher_state: SearcherState) -> Sequence[Operation]:
        """Ask for the first trials."""
        self._open: set[RequestId] = set()
        self._made = 0
        return self._fill(searcher_state)

    def on_trial_closed(self, searcher_state: SearcherState, request_id: RequestId) -> Sequence[Operation]:
        """Tell the result, and ask for the next trials."""
        self._open.discard(request_id)
        point = searcher_state.hparams[request_id]
        self.tell(searcher_state, request_id, point, searcher_state.best(request_id))
        return self._fill(searcher_state)

    def _fill(self, state: SearcherState) -> list[Operation]:
        made: list[Operation] = []
        most = state.max_concurrent_trials or state.max_trials
        while len(self._open) < most and self._made < state.max_trials:
            point = self.ask(state)
            if point is None:
                break
            one = Create(point)
            self._open.add(one.request_id)
            self._made += 1
            made.append(one)
        return made if made or self._open else [Shutdown()]
