"""The order of scores, best first: by loss, or by non-dominated rank where there are several objectives."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

from detlab_hub.core.searchers.fronts import Fronts
from detlab_hub.core.searchers.objectives import Score

Key = tuple[float, bool, float]


def is_lost(loss: float) -> bool:
    """Whether a loss is that of a training that has diverged: NaN, or -inf, which no training reaches."""
    return math.isnan(loss) or loss == -math.inf


def key_of(score: Score) -> Key:
    """Return the sort key of a score with one loss."""
    lost = is_lost(score.losses[0])
    return (score.violation, lost, 0.0 if lost else score.losses[0])


def better(one: Score, other: Score) -> bool:
    """Whether one score is strictly better: nearer to feasible, or it dominates the other."""
    if one.violation != other.violation:
        return one.violation < other.violation
    mine, theirs = _clean(one), _clean(other)
    return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


def order(scores: Sequence[Score]) -> list[int]:
    """Return the places of scores, best first; of equals the later one comes first.

    With several losses: feasible ones by non-dominated rank, and within a rank by crowding distance, the loneliest
    first (Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", 2002, section III).
    """
    newest_first = range(len(scores) - 1, -1, -1)
    if not scores or len(scores[0].losses) == 1:
        return sorted(newest_first, key=lambda place: key_of(scores[place]))
    return fronts_of(scores, len(scores[0].losses)).order()


def fronts_of(scores: Sequence[Score], axes: int) -> Fronts:
    """Divide scores of so many losses each into fronts: in a front none is better than another."""
    return Fronts([score.violation for score in scores], [_clean(score) for score in scores], axes)


def insert(entries: list[tuple[Score, str]], score: Score, request_id: str, fronts: Fronts | None = None) -> int:
    """Insert a score into a list that is sorted, best first, before its equals; return its place.

    Args:
        entries: The list.
        score: The score.
        request_id: Whose it is.
        fronts: Those of the list, if there are several losses and they are known; they are kept up to date.
    """
    if len(score.losses) == 1:
        place = bisect.bisect_left(entries, key_of(score), key=lambda entry: key_of(entry[0]))
        entries.insert(place, (score, request_id))
        return place
    if fronts is None:
        fronts = fronts_of([entry[0] for entry in entries], len(score.losses))
    entries.append((score, request_id))
    fronts.add(score.violation, _clean(score))
    order = fronts.order()
    fronts.arrange(order)
    entries[:] = [entries[place] for place in order]
    return order.index(len(order) - 1)


class Confirmation:
    """Which trial of a search with one objective has won, and the one that trains its point once more.

    Args:
        wanted: Whether there is to be one.

    Attributes:
        request_id: That trial; None as long as it is not made.
        units: Of the time metric, at which it ends; None: its code ends it.
        notes: What became of it, for people.
    """

    def __init__(self, *, wanted: bool) -> None:
        self.wanted = wanted
        self.request_id: str | None = None
        self.units: int | None = None
        self.notes: list[str] = []
        self._best: dict[str, Score] = {}
        self._void: set[str] = set()
        self._confirmed: Score | None = None

    def reported(self, request_id: str, score: Score) -> None:
        """Take a result of a trial, or of the point that it stands for."""
        if not self.wanted or score.violation or len(score.losses) > 1 or is_lost(score.losses[0]):
            return
        known = self._best.get(request_id)
        if known is None or key_of(score) < key_of(known):
            self._best[request_id] = score

    def disqualified(self, request_id: str) -> None:
        """Let a trial that has come to break a constraint win nothing."""
        self._void.add(request_id)

    @property
    def winner(self) -> str | None:
        """The best feasible trial whose constraints held to its end; of equals the first."""
        left = {name: score for name, score in self._best.items() if name not in self._void}
        return min(left, key=lambda name: key_of(left[name])) if left else None

    def told(self, score: Score) -> None:
        """Take a report of the trial that confirms."""
        if self._confirmed is None or not self._confirmed.violation:
            self._confirmed = score

    def ended(self, sign: float, winner: str | None) -> None:
        """Note what became of it.

        Args:
            sign: 1 if a smaller metric is better, else -1.
            winner: Whose point it has trained.
        """
        known, found = self._best.get(winner or ""), self._confirmed
        if known is None or found is None:
            self.notes.append("the best trial was trained once more, and that trial ended without a result")
            return
        was, now = sign * known.losses[0], sign * found.losses[0]
        kept = "it breaks a constraint" if found.violation else "it keeps the constraints"
        self.notes.append(f"the best trial was trained once more: {now:.6g}, where it had {was:.6g}; {kept}")

    def state(self) -> list[object]:
        """Return the whole state as JSON values, for fingerprints."""
        best = {name: repr(score) for name, score in self._best.items()}
        return [self.wanted, self.request_id, self.units, best, sorted(self._void), repr(self._confirmed)]


def comparable(score: Score) -> Score:
    """Return a score that equals itself wherever it is read again: with infinite losses for those that are lost."""
    return score if all(map(math.isfinite, score.losses)) else score._replace(losses=_clean(score))


def _clean(score: Score) -> tuple[float, ...]:
    return tuple(math.inf if is_lost(loss) else loss for loss in score.losses)
