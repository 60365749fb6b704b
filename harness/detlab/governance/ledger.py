"""The ledger of a trial: a hash chain of what was trained from which source, with an entry for each checkpoint.

The master appends; anyone who has the entries can check them. Nothing here reads a clock or a database.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from detlab.governance.policy import digest
from detlab.governance.refusals import Refusal

NOTHING = "sha256:" + "0" * 64
"""What the first entry of a chain follows."""
SEGMENT, FORK, TRANSITION, REFUSED = "segment", "fork", "transition", "refused"
UNDECLARED = ""
"""In counts and taint: samples without a declared source."""


@dataclasses.dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One entry.

    Attributes:
        trial_id: Whose chain it is.
        index: Its place, from 0.
        kind: `segment`: a checkpoint, and what was trained since the one before; `fork`: training goes on from an
            earlier checkpoint; `transition`: it begins with another trial's; `refused`: why it did not go on.
        checkpoint: The checkpoint that it is about.
        body: What is recorded; see `docs/explanation/governance.md`.
        previous: Hash of the entry before.
        at: Seconds since the epoch.
        hash: Of all of the above.
    """

    trial_id: int
    index: int
    kind: str
    checkpoint: str
    body: Mapping[str, Any]
    previous: str
    at: float
    hash: str

    @classmethod
    def after(
        cls, before: LedgerEntry | None, trial_id: int, kind: str, checkpoint: str, body: Mapping[str, Any], at: float
    ) -> LedgerEntry:
        """Return the entry that follows another, or the first of a trial."""
        index, previous = (0, NOTHING) if before is None else (before.index + 1, before.hash)
        made = hash_of(trial_id, index, kind, checkpoint, body, previous, at)
        return cls(trial_id, index, kind, checkpoint, body, previous, at, made)

    @property
    def true_hash(self) -> str:
        """What the hash of its content is, whatever it says."""
        return hash_of(self.trial_id, self.index, self.kind, self.checkpoint, self.body, self.previous, self.at)


def hash_of(
    trial_id: int, index: int, kind: str, checkpoint: str, body: Mapping[str, Any], previous: str, at: float
) -> str:
    """Return the hash of an entry's content."""
    return digest([trial_id, index, kind, checkpoint, dict(body), previous, at])


def chain_problems(entries: Sequence[LedgerEntry]) -> list[Refusal]:
    """Return what is wrong with a trial's chain, which is given whole and in order: nothing, or the first break."""
    previous = NOTHING
    for place, entry in enumerate(entries):
        if entry.index != place:
            return [Refusal("CHAIN", f"entry {place} of the ledger is missing: entry {entry.index} follows")]
        if entry.previous != previous or entry.true_hash != entry.hash:
            return [Refusal("CHAIN", f"entry {place} of the ledger was changed, or what is before it")]
        previous = entry.hash
    return []


def newest_state(entries: Iterable[LedgerEntry]) -> str | None:
    """Return the checkpoint from which training goes on: of the newest segment, or where a fork leads."""
    found = None
    for entry in entries:
        if entry.kind in (SEGMENT, FORK, TRANSITION):
            found = entry.checkpoint
    return found


def segment_of(entries: Iterable[LedgerEntry], checkpoint: str) -> LedgerEntry | None:
    """Return the entry of a checkpoint; None: it has none."""
    return next((one for one in entries if one.kind == SEGMENT and one.checkpoint == checkpoint), None)


def lineage(entries: Sequence[LedgerEntry], checkpoint: str) -> list[LedgerEntry]:
    """Return the segments that led to a checkpoint, oldest first, as far as they are in `entries`."""
    by_name = {one.checkpoint: one for one in entries if one.kind == SEGMENT}
    found: list[LedgerEntry] = []
    name: str | None = checkpoint
    while name is not None and (one := by_name.pop(name, None)) is not None:
        found.append(one)
        name = one.body.get("parent")
    return found[::-1]


Taint = Mapping[str, Sequence[str]]
"""Source -> the matrices (`s_hash`) under which it was trained on. It only grows."""


def grown(taint: Taint, counts: Mapping[str, int], s_hash: str) -> dict[str, list[str]]:
    """Return a taint with what a segment adds to it."""
    found = {name: list(hashes) for name, hashes in taint.items()}
    for name, count in counts.items():
        if count > 0 and s_hash not in found.setdefault(name, []):
            found[name].append(s_hash)
    return {name: sorted(hashes) for name, hashes in sorted(found.items()) if hashes}


@dataclasses.dataclass(frozen=True, slots=True)
class MatrixRecord:
    """The matrix S as it was recorded, without the policy.

    Attributes:
        sources: Names of the rows.
        parameters: Name and shape of each column.
        scales: By source and parameter.
        levels: Likewise.
        default: The row of samples without a declared source; None: they were refused.
        normalize: `global` or `per_layer`.
    """

    sources: tuple[str, ...]
    parameters: tuple[tuple[str, tuple[int, ...]], ...]
    scales: tuple[tuple[float, ...], ...]
    levels: tuple[tuple[str, ...], ...]
    default: tuple[float, ...] | None
    normalize: str

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> MatrixRecord:
        """Return the matrix of plain values.

        Raises:
            ValueError: They are none.
        """
        try:
            made = cls(
                tuple(str(one) for one in body["sources"]),
                tuple((str(name), tuple(int(size) for size in shape)) for name, shape in body["parameters"]),
                tuple(tuple(float(one) for one in row) for row in body["scales"]),
                tuple(tuple(str(one) for one in row) for row in body["levels"]),
                None if body["default"] is None else tuple(float(one) for one in body["default"]),
                str(body["normalize"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError("this is no matrix of a policy") from error
        rows = [*made.scales, *made.levels, *([] if made.default is None else [made.default])]
        if len(made.scales) != len(made.sources) or len(made.levels) != len(made.sources):
            raise ValueError("the matrix has not one row for each source")
        if any(len(row) != len(made.parameters) for row in rows):
            raise ValueError("the matrix has not one column for each parameter")
        return made

    def body(self) -> dict[str, Any]:
        """Return it as plain values; their digest is `s_hash`."""
        return {
            "sources": list(self.sources),
            "parameters": [[name, list(shape)] for name, shape in self.parameters],
            "scales": [list(row) for row in self.scales],
            "levels": [list(row) for row in self.levels],
            "default": None if self.default is None else list(self.default),
            "normalize": self.normalize,
        }

    @property
    def s_hash(self) -> str:
        """The hash of it."""
        return digest(self.body())

    def row(self, source: str) -> Mapping[str, float]:
        """Return the scale of each parameter for a source, or for samples without a declared one; empty: refused."""
        if source in self.sources:
            scales: Sequence[float] | None = self.scales[self.sources.index(source)]
        else:
            scales = self.default
        return {} if scales is None else {name: scale for (name, _), scale in zip(self.parameters, scales, strict=True)}

    def reached(self, source: str) -> list[str]:
        """Return the parameters that a source may train."""
        return [name for name, scale in self.row(source).items() if scale > 0]

    def level(self, source: str) -> str:
        """Return the level of a source under this matrix, the least of what it may train; empty: that is nothing."""
        reached = set(self.reached(source))
        if not reached:
            return ""
        rows = [self.levels[self.sources.index(source)]] if source in self.sources else self.levels
        found = {one for row in rows for (name, _), one in zip(self.parameters, row, strict=True) if name in reached}
        return found.pop() if len(found) == 1 and (source in self.sources or found == {"dp"}) else "direct"


def sources_that_reached(taint: Taint, matrices: Mapping[str, MatrixRecord]) -> list[str]:
    """Return the sources of a taint that could change a parameter: those whose samples were seen, but are closed to all
    layers, are left out. A matrix that is not known counts as one that is open."""
    return [
        name
        for name, hashes in sorted(taint.items())
        if any(one not in matrices or matrices[one].reached(name) for one in hashes)
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class Touch:
    """What a source gave to a model in one segment.

    Attributes:
        source: Its name; empty: samples without a declared source.
        first: Batches trained before it.
        last: Batches trained at its end.
        samples: How many of its samples were trained on.
        layers: Modules of which it reached a parameter.
        level: What was promised of it in this segment: `direct`, `isolated` or `dp`; empty: it reached nothing, or the
            matrix is not known.
    """

    source: str
    first: int
    last: int
    samples: int
    layers: tuple[str, ...]
    level: str = ""


def who(
    segments: Iterable[LedgerEntry],
    matrices: Mapping[str, MatrixRecord],
    *,
    source: str | None = None,
    layer: str | None = None,
) -> list[Touch]:
    """Return which source was allowed to train which layers, and did give samples, segment by segment.

    Args:
        segments: Of a checkpoint, from `lineage`.
        matrices: By hash.
        source: Only this one.
        layer: Only this parameter, or what is in this module.
    """
    found = []
    for one in segments:
        matrix = matrices.get(str(one.body.get("s_hash")))
        for name, count in one.body.get("counts", {}).items():
            if count <= 0 or (source is not None and name != source):
                continue
            reached = [] if matrix is None else matrix.reached(name)
            layers = tuple(dict.fromkeys(path.rpartition(".")[0] or path for path in reached if _within(path, layer)))
            if layer is None or layers:
                first, last = int(one.body["first_step"]), int(one.body["step"])
                level = "" if matrix is None else matrix.level(name)
                found.append(Touch(name, first, last, int(count), layers, level))
    return found


def joined(touches: Iterable[Touch]) -> list[Touch]:
    """Return touches in the same order, those of a source that follow each other in the same layers as one."""
    found: list[Touch] = []
    last: dict[str, int] = {}
    for one in touches:
        at = last.get(one.source)
        before = None if at is None else found[at]
        if before is not None and before.last == one.first and (before.layers, before.level) == (one.layers, one.level):
            found[last[one.source]] = dataclasses.replace(before, last=one.last, samples=before.samples + one.samples)
        else:
            last[one.source] = len(found)
            found.append(one)
    return found


def _within(name: str, layer: str | None) -> bool:
    return layer is None or name == layer or name.startswith(f"{layer}.")
