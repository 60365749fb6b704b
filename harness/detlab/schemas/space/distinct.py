"""Each point once: how many points a space has, and which of them are not tried yet."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from detlab.schemas.space.grid import all_points
from detlab.schemas.space.points import Space
from detlab.schemas.space.values import Draws, size_of

MOST_LISTED = 10_000
"""Points of a space that are listed to find those which are left; of a larger one they are found by drawing."""
_MOST_WORK = 2_000_000
"""Hyperparameters and characters of relations, times points, up to which they are listed: a search does it at once."""
_BYTES_AS_ONE = 64
"""Bytes of a block that cost as much as a hyperparameter."""
_DRAWS = 100
"""Draws for a point that is new, before the points are listed; fewer where each looks for one that meets relations."""
_DRAWS_OF_RELATIONS = 5


def number_of_points(space: Space) -> int | None:
    """Return how many points a space has; None if they are not counted.

    Not counted are those of continuous ranges, those of a space without any choice, and those of a space with
    conditions or relations that has more than are listed.
    """
    sizes = [size_of(leaf.spec) for leaf in space.leaves]
    if any(size is None for size in sizes):
        return None
    size = math.prod(size for size in sizes if size is not None)
    if size == 1:
        return None
    if not space.conditional and not space.relations:
        return size
    listed = all_points(space, _most_listed(space))
    return None if listed is None else len(listed)


def _most_listed(space: Space) -> int:
    """Return how many points are listed: fewer where each of them takes long."""
    each = len(space.leaves) + sum(len(one.text) for one in space.relations)
    return min(MOST_LISTED, _MOST_WORK // (1 + each + len(json.dumps(space.block, default=str)) // _BYTES_AS_ONE))


class Distinct:
    """The points that a search has tried, so that it tries none of them again.

    Args:
        space: The space.
    """

    def __init__(self, space: Space) -> None:
        self._tried: set[bytes] = set()
        self._left: dict[bytes, dict[str, Any]] | None = None
        """The points that are left, by their keys, once they were listed."""
        self.space = space

    @property
    def space(self) -> Space:
        """The space, as users have edited it."""
        return self._space

    @space.setter
    def space(self, space: Space) -> None:
        self._space = space
        self._left = None
        self._listed = False
        sizes = [size_of(leaf.spec) for leaf in space.leaves]
        self._finite = None not in sizes and any(size != 1 for size in sizes)

    def is_new(self, point: Mapping[str, Any]) -> bool:
        """Return whether a point was not tried; always true where ranges are continuous, or there is one point only."""
        return not self._finite or _key(point) not in self._tried

    def tried(self, point: Mapping[str, Any]) -> None:
        """Remember a point."""
        if self._finite:
            self._tried.add(key := _key(point))
            if self._left is not None:
                self._left.pop(key, None)

    def new(self, rng: Draws, draw: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], bool]:
        """Return a new point, and true; or one that was tried, and false if no point is left."""
        found = draw()
        for _ in range(_DRAWS_OF_RELATIONS if self._space.relations else _DRAWS):
            if self.is_new(found):
                return found, True
            found = draw()
        left = self.left()
        if left is None:
            return found, True  # in so large a space, by a prior or weights that make most draws alike
        if not left:
            return found, False
        place = rng.below(len(left))
        return left.pop(next(islice(left, place, None))), True

    def left(self) -> dict[bytes, dict[str, Any]] | None:
        """Return the points that were not tried, by their keys; None if there are too many to be listed.

        They are listed once: a search asks for each trial that it makes.
        """
        if self._finite and not self._listed:
            points, self._listed = all_points(self._space, _most_listed(self._space)), True
            if points is not None:
                self._left = {key: point for point in points if (key := _key(point)) not in self._tried}
        return self._left


def _key(point: Mapping[str, Any]) -> bytes:
    return hashlib.blake2b(json.dumps(point, sort_keys=True).encode(), digest_size=16).digest()
