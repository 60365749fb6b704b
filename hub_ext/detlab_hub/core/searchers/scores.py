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


def comparable(score: Score) -> Score:
    """Return a score that equals itself wherever it is read again: with infinite losses for those that are lost."""
    return score if all(map(math.isfinite, score.losses)) else score._replace(losses=_clean(score))


def _clean(score: Score) -> tuple[float, ...]:
    return tuple(math.inf if is_lost(loss) else loss for loss in score.losses)
