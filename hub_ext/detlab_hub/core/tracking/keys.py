"""Names of metrics, parameters and tags as MLflow's clients send them, and where a trial keeps such a metric.

A trial has its metrics in groups. `key_of` is the inverse of `place_of` for any metric, so that what was logged by a
name is read by it, and what a trainer has reported has a name, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from detlab.schemas.wire.logged_names import place_of

VALUE_CHARS = 8000
"""Of a parameter or a tag; what is longer is cut, as MLflow does."""
NOTE_CHARS = 64_000
"""Of the tags that clients keep lists in, which would be broken if they were cut."""
LONG_TAGS = frozenset(
    {"mlflow.note.content", "mlflow.loggedArtifacts", "mlflow.loggedImages", "mlflow.log-model.history"}
)


def cut_value(key: str, value: str) -> str:
    """Return the value of a parameter or a tag as it is kept."""
    return value[: NOTE_CHARS if key in LONG_TAGS else VALUE_CHARS]


def key_of(group: str, name: str, searched: str) -> str:
    """Return the name by which clients find a metric of a trial."""
    return name if place_of(name, searched) == (group, name) else f"{group}/{name}"


def places(key: str, searched: str) -> list[tuple[str, str]]:
    """Return all groups and names that a name may mean: a group may have been made by the trial itself."""
    group, slash, rest = key.partition("/")
    return list(dict.fromkeys([place_of(key, searched), *([(group, rest)] if slash and rest else [])]))


Seen = tuple[int, str]
"""Milliseconds and value, as a text, of a point: what a repeated request has the same."""


def free_steps(wanted: Iterable[tuple[int, Seen]], taken: dict[int, Seen], newest: int | None) -> Sequence[int | None]:
    """Return the step at which each point of one metric is kept, as a trial has one value at a step.

    A client that names no step says 0 each time, so a step that is taken counts on from the newest. A point that is
    there already, as after a repeated request, has none.

    Args:
        wanted: Step of each point, and what it is, in the order in which they came.
        taken: Step -> what the points are that are there; the new ones are added.
        newest: The greatest of all steps that are there.
    """
    found: list[int | None] = []
    for said, point in wanted:
        step = max(said, 0)
        if step in taken:
            if taken[step] == point:
                found.append(None)
                continue
            step = max(newest if newest is not None else step, step) + 1
        taken[step] = point
        newest = step if newest is None else max(newest, step)
        found.append(step)
    return found
