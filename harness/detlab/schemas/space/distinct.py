"""Each point once: how many points a space has, and which of them are not tried yet."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from detlab.schemas.space.grid import all_points
from detlab.schemas.space.points import Space
from detlab.schemas.space.values import Draws, size_of

MOST_LISTED = 10_000
"""Points of a space that are listed to find those which are left; of a larger one they are found by drawing."""
_DRAWS = 100
"""Draws for a point that is new, before the points are listed; fewer where each looks for one that meets relations."""
_DRAWS_OF_RELATIONS = 5


def number_of_points(space: Space) -> int | None:
    """Return how many points a space has; None if they are not counted.

    Not counted are those of continuous ranges, those of a space without any choice, and more than `MOST_LISTED` of a
    space with conditions or relations.
    """
    sizes = [size_of(leaf.spec) for leaf in space.leaves]
    if any(size is None for size in sizes):
        return None
    size = math.prod(size for size in sizes if size is not None)
    if size == 1:
        return None
    if not space.conditional and not space.relations:
        return size
    listed = all_points(space, MOST_LISTED)
    return None if listed is None else len(listed)


class Distinct:
    """The points that a search has tried, so that it tries none of them again.

    Args:
        space: The space.
    """

    def __init__(self, space: Space) -> None:
        self._tried: set[str] = set()
        self._left: list[dict[str, Any]] | None = None
        self.space = space

    @property
    def space(self) -> Space:
        """The space, as users have edited it."""
        return self._space

    @space.setter
    def space(self, space: Space) -> None:
        self._space = space
        self._left = None
        sizes = [size_of(leaf.spec) for leaf in space.leaves]
        self._finite = None not in sizes and any(size != 1 for size in sizes)

    def is_new(self, point: Mapping[str, Any]) -> bool:
        """Return whether a point was not tried; always true where ranges are continuous, or there is one point only."""
        return not self._finite or _key(point) not in self._tried

    def tried(self, point: Mapping[str, Any]) -> None:
        """Remember a point."""
        if self._finite:
            self._tried.add(_key(point))

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
        return (left.pop(rng.below(len(left))), True) if left else (found, False)

    def left(self) -> list[dict[str, Any]] | None:
        """Return the points that were not tried; None if there are too many to be listed."""
        if not self._finite:
            return None
        if self._left is None:
            self._left = all_points(self._space, MOST_LISTED)
        if self._left is not None:
            self._left = [point for point in self._left if self.is_new(point)]
        return self._left


def _key(point: Mapping[str, Any]) -> str:
    return json.dumps(point, sort_keys=True)
