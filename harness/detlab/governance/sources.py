"""Which source each sample of a data set is from, beside the data set: collate functions never see it.

    train = governance.combine({"trusted": first, "web": second})      # one data set of several
    train = governance.label(data, names)                               # or one name per sample

The trainer knows the indices of the samples in each batch, and asks the data set of the `DataLoader` for their sources.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from detlab.governance.refusals import GovernanceError

SourceNames = Sequence[str] | Callable[[int], str | None]


class SourcedDataset:
    """A data set whose samples have sources.

    Args:
        dataset: Has `__getitem__` and `__len__`; many samples at once go to its `__getitems__` if it has one.
        source_of: Returns the name of the source of the sample with an index, None if it has none.
    """

    def __init__(self, dataset: Any, source_of: Callable[[int], str | None]) -> None:
        self.dataset = dataset
        self.source_of = source_of

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[index]

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        """Return the samples of these indices."""
        many = getattr(self.dataset, "__getitems__", None)
        return list(many(indices)) if many else [self.dataset[index] for index in indices]


class _Joined:
    """Data sets one after another."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = list(parts)
        self.ends = list(itertools.accumulate(len(part) for part in self.parts))

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def part_of(self, index: int) -> int:
        """Return the number of the part that has this sample."""
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        return bisect.bisect_right(self.ends, index)

    def __getitem__(self, index: int) -> Any:
        index = index + len(self) if index < 0 else index
        part = self.part_of(index)
        return self.parts[part][index - (self.ends[part - 1] if part else 0)]


class _OfPart:
    """The source of a sample of joined data sets; a class, so that workers may be spawned."""

    def __init__(self, joined: _Joined, names: Sequence[str]) -> None:
        self._joined = joined
        self._names = list(names)

    def __call__(self, index: int) -> str:
        return self._names[self._joined.part_of(index)]


def combine(parts: Mapping[str, Any]) -> SourcedDataset:
    """Return one data set of several, each under the name of its source, in this order."""
    joined = _Joined(list(parts.values()))
    return SourcedDataset(joined, _OfPart(joined, list(parts)))


def label(dataset: Any, names: SourceNames) -> SourcedDataset:
    """Return a data set whose samples have sources.

    Args:
        dataset: The data set.
        names: The name of each sample's source, or a function of the index.

    Raises:
        GovernanceError: SAMPLES: there are not as many names as samples.
    """
    if callable(names):
        return SourcedDataset(dataset, names)
    if len(names) != len(dataset):
        raise GovernanceError.of("SAMPLES", f"{len(names)} names of sources were given for {len(dataset)} samples")
    return SourcedDataset(dataset, list(names).__getitem__)


def source_lookup(dataset: Any) -> Callable[[int], str | None] | None:
    """Return what tells the source of a sample of a data set, looking through `torch.utils.data.Subset`; else None."""
    own = getattr(dataset, "source_of", None)
    if callable(own):
        return own
    indices, inner = getattr(dataset, "indices", None), getattr(dataset, "dataset", None)
    if indices is None or inner is None:
        return None
    below = source_lookup(inner)
    return None if below is None else lambda index: below(int(indices[index]))


def rows_of(names: Iterable[str | None], index: Mapping[str, int], *, without: int | None) -> list[int]:
    """Return the row in S of each sample.

    Args:
        names: The name of each sample's source; None for one without.
        index: Row of each declared source.
        without: Row of samples without a declared source; None refuses them.

    Raises:
        GovernanceError: SOURCE: one is not declared, and there is no such row.
    """
    found = []
    for name in names:
        row = without if name is None else index.get(name, without)
        if row is None:
            what = "a sample has no source" if name is None else f"the source {name!r} of a sample is not declared"
            raise GovernanceError.of("SOURCE", f"{what}; declared: {', '.join(index)}")
        found.append(row)
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class BatchPart:
    """The samples of one source in a batch.

    Attributes:
        row: Their row in S.
        places: Where they stand in the batch, in order.
    """

    row: int
    places: tuple[int, ...]


def parts_of(rows: Iterable[int]) -> list[BatchPart]:
    """Return the parts of a batch, in the order of their rows.

    Args:
        rows: Row of each sample.
    """
    places: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row, []).append(place)
    return [BatchPart(row, tuple(places[row])) for row in sorted(places)]


class SamplesBySource:
    """A data set that gives the samples of a batch in several lists: one for each source, in the order of `parts_of`.

    Args:
        dataset: Tells the source of each sample; all else is its own.
        index: Row of each declared source. Samples of no declared source are a list of their own, the last.
    """

    def __init__(self, dataset: Any, index: Mapping[str, int]) -> None:
        self.dataset = dataset
        self._index = dict(index)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[index]

    def __getitems__(self, indices: list[Any]) -> list[list[Any]]:
        """Return the samples of these indices, in lists."""
        many = getattr(self.dataset, "__getitems__", None)
        found = list(many(indices)) if many else [self.dataset[index] for index in indices]
        lookup = source_lookup(self.dataset) or (lambda index: None)
        rows = rows_of((lookup(one) for one in indices), self._index, without=len(self._index))
        return [[found[place] for place in part.places] for part in parts_of(rows)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)
