"""A space with its conditions and relations: draw a point, or say what is wrong with one."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from detlab.schemas.space.relations import Relation, RelationError, parse_relation
from detlab.schemas.space.tree import Condition, Leaf, Route, cycle, in_order, is_condition, leaves_of
from detlab.schemas.space.values import Draws, draw, objection

MAX_TRIES = 10_000
"""Draws until a point must meet all relations."""
_MIN_TRIES = 100
_WORK = 2_000_000
"""Hyperparameters that are drawn at most until a point must meet all; a letter of a relation counts as one."""

Flat = dict[str, Any]
"""A point as dotted names and values."""


class FixedDraws:
    """Random numbers, always the same: by them a space is judged at submit."""

    def __init__(self) -> None:
        self._random = random.Random(0)  # noqa: S311 - not for secrets

    def below(self, n: int) -> int:
        """Draw an integer in [0, n)."""
        return self._random.randrange(n)

    def uniform(self, low: float, high: float) -> float:
        """Draw a float in [low, high)."""
        return self._random.uniform(low, high)


class SpaceError(ValueError):
    """A space of which no points can be drawn; it begins with the path of what is wrong."""


class Space:
    """A `hyperparameters` block with its relations.

    Args:
        block: The block, checked.
        require: The relations, as texts.

    Raises:
        SpaceError: Its conditions form a cycle or name nothing, or a relation is none.
    """

    def __init__(self, block: Mapping[str, Any], require: Sequence[str] = ()) -> None:
        self.block = block
        self.leaves = leaves_of(block)
        self.ordered = in_order(self.leaves)
        self.relations = tuple(self._relation(place, text) for place, text in enumerate(require))
        if len(self.ordered) < len(self.leaves):
            raise SpaceError(f"hyperparameters: conditions form a cycle: {' -> '.join(cycle(self.leaves))}")
        names = {leaf.name for leaf in self.leaves}
        for leaf in self.leaves:
            for condition in leaf.conditions:
                if condition.name not in names:
                    where = ".".join(("hyperparameters", *condition.home, "when"))
                    raise SpaceError(f"{where}: there is no hyperparameter {condition.name!r}")
        self.conditional = any(leaf.conditions for leaf in self.leaves)
        """Whether some hyperparameters exist only in some trials."""
        self._names = names
        cost = len(self.leaves) + sum(len(one.text) for one in self.relations)
        self.tries = max(_MIN_TRIES, min(MAX_TRIES, _WORK // max(cost, 1))) if self.relations else 1
        """Draws until a point must meet all relations: fewer where each of them takes long."""
        self.rare = False
        """Whether a known point was used because no draw met the relations; fewer are made from then on."""
        self.spent = 0
        """Random points of which the last one was chosen."""
        self._met: Flat | None = None
        self._groups: dict[Route, list[Condition]] = {
            leaf.route[:depth]: [one for one in leaf.conditions if len(one.home) <= depth]
            for leaf in self.leaves
            for depth in range(1, len(leaf.route))
        }

    def _relation(self, place: int, text: str) -> Relation:
        path = f"searcher.require[{place}]"
        try:
            relation = parse_relation(text)
        except RelationError as error:
            raise SpaceError(f"{path}: {text!r:.80} {error}") from error
        unknown = [name for name in relation.names if name not in {leaf.name for leaf in self.leaves}]
        if unknown:
            raise SpaceError(f"{path}: there is no hyperparameter {unknown[0]!r}")
        return relation

    @property
    def memory(self) -> tuple[Flat | None, bool]:
        """What earlier samples mean for the next ones: the last that met the relations, and whether they are rare."""
        return self._met, self.rare

    @memory.setter
    def memory(self, memory: tuple[Flat | None, bool]) -> None:
        self._met, self.rare = memory

    def sample(self, rng: Draws, fixed: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Draw a point, again until it meets the relations.

        Without conditions, relations and fixed values, each hyperparameter is drawn once, in sorted order.

        Args:
            rng: Random numbers.
            fixed: Values that are not drawn, in the shape of a point; what it lacks is drawn. It is ignored if nothing
                that could be drawn beside it meets the relations.

        Returns:
            The point. If none of `tries` meets the relations, it is the last one that did, again; if there is none
            yet, it is the one by which the space was accepted at submit (`FixedDraws`).

        Raises:
            SpaceError: No point meets the relations, so that the space was refused at submit.
        """
        tries = max(_MIN_TRIES, self.tries // 10) if self.rare else self.tries
        self.spent = 0
        if fixed and (found := self._try(rng, self.flat(fixed), tries)) is not None:
            return self.tree(found)
        if (found := self._try(rng, {}, tries)) is not None:
            self._met = found
        elif self._met is None and (accepted := self._try(FixedDraws(), {}, self.tries)) is not None:
            self._met, self.rare = accepted, True
        elif self._met is None:
            raise SpaceError(f"searcher.require: none of {self.tries:,} random points meets it")
        else:
            self.rare = True
        return copy.deepcopy(self.tree(self._met if found is None else found))

    def _try(self, rng: Draws, given: Flat, tries: int) -> Flat | None:
        for _ in range(tries):
            self.spent += 1
            values = self._draw(rng, given)
            if self.meets(values):
                return values
        return None

    def _draw(self, rng: Draws, given: Flat) -> Flat:
        values: Flat = {}
        for leaf in self.ordered:
            if leaf.active(values):
                values[leaf.name] = copy.deepcopy(given[leaf.name]) if leaf.name in given else draw(leaf.spec, rng)
        return values

    def lacking(self, point: Mapping[str, Any]) -> list[str]:
        """Return the dotted names of what a part of a point lacks."""
        given = self.flat(point)
        return [leaf.name for leaf in self.ordered if leaf.active(given) and leaf.name not in given]

    def with_constants(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return a part of a point as a tree, with the constants that it lacks."""
        values = self.flat(point)
        for leaf in self.ordered:
            if leaf.kind == "const" and leaf.name not in values and leaf.active(values):
                values[leaf.name] = copy.deepcopy(
                    leaf.spec["val"] if isinstance(leaf.spec, Mapping) and leaf.spec else leaf.spec
                )
        return self.tree(values)

    def draws(self, rng: Draws) -> Flat:
        """Draw a flat point without regard to relations."""
        return self._draw(rng, {})

    def meets(self, values: Flat) -> bool:
        """Return whether a flat point meets all relations."""
        return all(relation.holds(values) for relation in self.relations)

    def allows(self, point: Mapping[str, Any]) -> bool:
        """Return whether a point meets all relations."""
        return not self.relations or self.meets(self.flat(point))

    def tree(self, values: Flat) -> dict[str, Any]:
        """Return a flat point as a tree, in sorted order; a group that exists is there even if it is empty."""
        return self._branch(self.block, (), values)

    def _branch(self, level: Mapping[str, Any], route: tuple[str, ...], values: Flat) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name in sorted(level):
            spec, here = level[name], (*route, name)
            dotted = ".".join(here)
            if is_condition(name, spec, len(route)):
                continue
            if dotted in values:
                made[name] = values[dotted]
            elif here in self._groups and all(one.holds(values) for one in self._groups[here]):
                made[name] = self._branch(spec, here, values)
        return made

    def flat(self, point: Mapping[str, Any]) -> Flat:
        """Return a point, or a part of one, as dotted names and values; what the space lacks is left out."""
        return {name: value for name, value in self._flat(point, ()) if name in self._names}

    def _flat(self, level: Mapping[str, Any], route: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        for name, value in level.items():
            here = (*route, str(name))
            dotted = ".".join(here)
            if dotted in self._names or not isinstance(value, Mapping):
                yield dotted, value
            else:
                yield from self._flat(value, here)

    def problems(self, point: object, *, partial: bool = True) -> list[tuple[str, str]]:
        """Return what is wrong with a point: for each mistake a dotted name ("" for the point) and a few words.

        Args:
            point: Hyperparameters as trials have them.
            partial: Whether hyperparameters may be missing, because they will be drawn.
        """
        if not isinstance(point, Mapping):
            return [("", "is not a mapping of hyperparameters")]
        given = dict(self._flat(point, ()))
        specs = {leaf.name: leaf for leaf in self.leaves}
        found = [(name, "is no hyperparameter of this space") for name in given if not self._known(name, given)]
        for name, value in given.items():
            if name in specs and (wrong := objection(specs[name].spec, value)):
                found.append((name, wrong))
        if found:
            return found
        found += self._inactive(given, specs)
        if not partial:
            lacking = [leaf for leaf in self.ordered if leaf.active(given) and leaf.name not in given]
            found += [(leaf.name, "is missing") for leaf in lacking if leaf.spec != {}]
        if not found:
            for relation in self.relations:
                if fault := relation.fault(given):
                    found.append(("", f"breaks {relation.text!r}, which {fault}"))
        return found

    def _known(self, name: str, given: Flat) -> bool:
        """Return whether a name is a hyperparameter, or a group that the point has without its members."""
        return name in self._names or (given[name] == {} and any(one.startswith(f"{name}.") for one in self._names))

    def _inactive(self, given: Flat, specs: Mapping[str, Leaf]) -> list[tuple[str, str]]:
        found = []
        for name in given:
            for condition in specs[name].conditions if name in specs else ():
                if condition.name in given and not condition.holds(given):
                    wanted = " or ".join(repr(value) for value in condition.values)
                    found.append((name, f"does not exist where {condition.name} is not {wanted}"))
        return found
