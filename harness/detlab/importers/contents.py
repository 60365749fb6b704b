"""What is logged of a run, in the names and sizes that the master takes; what it does not is counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from detlab.importers.destination import FROM_TAG, SOURCE_TAG, Entry, metric_entry
from detlab.importers.foreign import NAME_TAG, PARENT_TAG, ForeignPoint, ForeignRun, ImportSource, origin_of
from detlab.importers.left_out import LeftOut
from detlab.importers.names import VALUE_CHARS, key_of
from detlab.schemas.wire.logged_names import KEY_CHARS

MOST_VALUES, VALUES_CHARS = 4900, 2_000_000
"""Parameters and tags of a run, and their characters: what the master takes, but for some of our own."""
MOST_METRICS = 10_000
MOST_STEP = 2**53
LONG_TAGS = frozenset(
    {"mlflow.note.content", "mlflow.loggedArtifacts", "mlflow.loggedImages", "mlflow.log-model.history"}
)
"""In which clients keep lists."""
NOTE_CHARS = 64_000
MODEL_HISTORY = "mlflow.log-model.history"
OURS = "detlab.import."


@dataclass
class RunContents:
    """The values of one run.

    Attributes:
        source: What is read.
        run: The run.
        key: By which its copy is found again.
        left_out: Counts what does not fit.
    """

    source: ImportSource
    run: ForeignRun
    key: str
    left_out: LeftOut
    tags: dict[str, str] = field(init=False)
    params: dict[str, str] = field(init=False)
    _count: int = 0
    _chars: int = 0

    def __post_init__(self) -> None:
        theirs = {
            key: value
            for key, value in self.run.tags.items()
            if key not in {PARENT_TAG, NAME_TAG} and not key.startswith(OURS)
        }
        kept = self._fitting(theirs, "tags")
        self.tags = {SOURCE_TAG: self.key, FROM_TAG: origin_of(self.source), **kept}
        self.params = self._fitting(self.run.params, "parameters")

    def _fitting(self, values: Mapping[str, str], what: str) -> dict[str, str]:
        kept: dict[str, str] = {}
        for key, value in values.items():
            name, most = key_of(key), NOTE_CHARS if key in LONG_TAGS else VALUE_CHARS
            if name is None or name in kept:
                self.left_out.add(f"{what} whose name cannot be one here", key)
                continue
            self._count += 1
            self._chars += len(name) + min(len(value), most)
            if self._count > MOST_VALUES or self._chars > VALUES_CHARS:
                self.left_out.add(f"{what} over the number or the size that a run may have", key)
                continue
            if len(value) > most:
                self.left_out.add(f"ends of {what} of over {most:,} characters", key)
            kept[name] = value[:most]
        return kept

    def tags_for(self, run_id: str) -> dict[str, str]:
        """Return the tags of the copy: where a tag of ours names the run, it names the copy there."""
        return {
            key: value.replace(self.run.id, run_id) if key == MODEL_HISTORY else value
            for key, value in self.tags.items()
        }

    def entries(self, tags: Mapping[str, str]) -> Iterator[Entry]:
        """Yield all that is logged by batches: parameters, tags, values of metrics."""
        for key, value in self.params.items():
            yield "params", {"key": key, "value": value}
        for key, value in tags.items():
            yield "tags", {"key": key, "value": value}
        names: dict[str, str | None] = {}
        taken: set[str] = set()
        for point in self.source.points(self.run):
            if point.key not in names:
                names[point.key] = self._name(point.key, taken)
            name = names[point.key]
            if name is None:
                continue
            if abs(point.step) > MOST_STEP or not 0 <= point.time_ms <= MOST_STEP:
                self.left_out.add("values whose step or time cannot be one", f"{self.run.id}: {point.key}")
                continue
            yield "metrics", metric_entry(point if name == point.key else ForeignPoint(name, *point[1:]))

    def _name(self, key: str, taken: set[str]) -> str | None:
        found = key_of(key)
        if found is None:
            self.left_out.add("metrics whose name cannot be one here", key)
            return None
        if len(taken) >= MOST_METRICS:
            self.left_out.add(f"metrics over {MOST_METRICS:,} of a run", key)
            return None
        name, number = found, 2
        while name in taken:
            name, number = f"{found[: KEY_CHARS - 8]}_{number}", number + 1
        if name != key:
            self.left_out.add("characters of names of metrics that are `_` here", key)
        taken.add(name)
        return name
