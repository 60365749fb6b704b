"""Which rank processes which batches, where a resumed attempt begins, and which parts of the output are stored anew.

Pure arithmetic: no files, no messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """The batches of one rank in one attempt.

    Batches are numbered over the whole dataset: batch `b` has the samples from `b * batch_size` on. They are dealt to
    the ranks in turn from the first one that is not done, so that after each step of all ranks everything before some
    batch is done. That is why an attempt may have another number of ranks than the one before.

    Attributes:
        samples: Of the dataset.
        batch_size: Samples of a batch; the last one may have fewer.
        batches: To process in all, over all attempts.
        done: Batches that earlier attempts have processed, the first ones.
        rank: This rank.
        size: Ranks.
    """

    samples: int
    batch_size: int
    batches: int
    done: int = 0
    rank: int = 0
    size: int = 1

    @property
    def steps(self) -> int:
        """Steps that are left, the same for all ranks; in the last one some may have no batch."""
        return -(-(self.batches - self.done) // self.size)

    def batch_at(self, step: int) -> int | None:
        """Return the batch that this rank processes in a step, from 0; None if it has none."""
        batch = self.done + step * self.size + self.rank
        return batch if batch < self.batches else None

    def samples_of(self, batch: int) -> range:
        """Return the indices of a batch's samples in the dataset."""
        first = batch * self.batch_size
        return range(first, min(first + self.batch_size, self.samples))

    def done_after(self, steps: int) -> int:
        """Return how many batches are done once all ranks have made this many steps."""
        return min(self.batches, self.done + steps * self.size)


def count_batches(samples: int, batch_size: int, max_batches: int | None, size: int) -> int:
    """Return how many batches there are to process.

    Args:
        samples: Of the dataset.
        batch_size: Samples of a batch.
        max_batches: The most that each rank processes; None for all.
        size: Ranks.
    """
    whole = -(-samples // batch_size)
    return whole if max_batches is None else min(whole, max_batches * size)


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A checkpoint with a part of the output.

    Attributes:
        uuid: The checkpoint.
        weight: How many checkpoints' worth of output it holds.
    """

    uuid: str
    weight: int


def fold(parts: Sequence[StoredPart]) -> tuple[list[StoredPart], list[StoredPart], int]:
    """Decide which parts the next one replaces, as in a binary counter.

    Each is stored again only when it has been joined by as much as it holds: of `n` checkpoints about log2(n) remain,
    and each byte is stored about log2(n) times.

    Args:
        parts: Those that are stored, oldest first.

    Returns:
        The parts that stay, those whose content the next one holds too, and the weight of the next one.
    """
    kept, weight = list(parts), 1
    replaced: list[StoredPart] = []
    while kept and kept[-1].weight <= weight:
        part = kept.pop()
        weight += part.weight
        replaced.insert(0, part)
    return kept, replaced, weight
