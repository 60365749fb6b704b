"""The order of scores, best first: by loss, or by non-dominated rank where there are several objectives."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

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
    ranked: list[int] = []
    for front in fronts(scores):
        crowding = _crowding([_clean(scores[place]) for place in front])
        lonely = sorted(range(len(front)), key=lambda at: (-crowding[at], -front[at]))
        ranked += [front[at] for at in lonely]
    return ranked


def fronts(scores: Sequence[Score]) -> list[list[int]]:
    """Divide the places of scores into fronts, the best first: in a front none is better than another."""
    beaten_by = [sum(better(other, one) for other in scores) for one in scores]
    left = set(range(len(scores)))
    found: list[list[int]] = []
    while left:
        front = sorted(place for place in left if beaten_by[place] == 0)
        found.append(front)
        left.difference_update(front)
        for place in left:
            beaten_by[place] -= sum(better(scores[of], scores[place]) for of in front)
    return found


def insert(entries: list[tuple[Score, str]], score: Score, request_id: str) -> int:
    """Insert a score into a list that is sorted, best first, before its equals; return its place."""
    if len(score.losses) == 1:
        place = bisect.bisect_left(entries, key_of(score), key=lambda entry: key_of(entry[0]))
        entries.insert(place, (score, request_id))
        return place
    entries.append((score, request_id))
    entries[:] = [entries[place] for place in order([entry[0] for entry in entries])]
    return next(place for place, entry in enumerate(entries) if entry[1] == request_id)


def comparable(score: Score) -> Score:
    """Return a score that equals itself wherever it is read again: with infinite losses for those that are lost."""
    return score if all(map(math.isfinite, score.losses)) else score._replace(losses=_clean(score))


def _clean(score: Score) -> tuple[float, ...]:
    return tuple(math.inf if is_lost(loss) else loss for loss in score.losses)


def _crowding(front: Sequence[tuple[float, ...]]) -> list[float]:
    distance = [0.0] * len(front)
    for axis in range(len(front[0])):
        along = sorted(range(len(front)), key=lambda at: front[at][axis])
        low, high = front[along[0]][axis], front[along[-1]][axis]
        distance[along[0]] = distance[along[-1]] = math.inf
        if not 0 < high - low < math.inf:
            continue
        for before, at, after in zip(along, along[1:], along[2:], strict=False):
            distance[at] += (front[after][axis] - front[before][axis]) / (high - low)
    return distance
