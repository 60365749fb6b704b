"""What was trained since the last checkpoint: counts by source, and which samples in which order."""

from __future__ import annotations

import hashlib
import platform
from array import array
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import torch

from detlab.governance import Plan
from detlab.governance.ledger import UNDECLARED
from detlab.schemas.wire.governance.evidence import EpochOrder, GovernedSegment

MOST_EPOCHS = 1000
"""Whose order one segment has; of more, none is recorded."""
ROSTER_SAMPLES = 1_000_000
"""Of a larger data set so many samples are looked at, evenly spread."""


class SegmentRecorder:
    """Records on each rank; the chief makes the segment.

    Args:
        plan: What is trained under.

    Attributes:
        parent: The checkpoint that is gone on from, None for new weights.
        first_step: Batches trained before.
        roster: Of the training data.
        canaries: Commitment to which of them are trained on; empty if there are none.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.parent: str | None = None
        self.first_step = 0
        self.roster = ""
        self.canaries = ""
        self._counted: list[int] = []
        self._orders: dict[int, Any] = {}
        self._unknown = False

    def resume(self, parent: str | None, step: int) -> None:
        """Begin after a checkpoint that was restored."""
        self.parent, self.first_step = parent, step

    def batch(self, epoch: int, ids: Sequence[int] | None) -> None:
        """Note the samples of this rank's batch.

        Args:
            epoch: Which.
            ids: Their indices in the data set; None if they are not known.
        """
        if ids is None:
            self._unknown = True
            return
        if (order := self._orders.get(epoch)) is None:
            order = self._orders[epoch] = hashlib.sha256()
        order.update(len(ids).to_bytes(8, "little"))
        order.update(array("q", [int(one) for one in ids]).tobytes())

    def take_orders(self) -> dict[int, str] | None:
        """Return the digest of this rank's samples by epoch, and begin anew; None if they are not known."""
        found = None if self._unknown else {epoch: order.hexdigest() for epoch, order in self._orders.items()}
        self._orders, self._unknown = {}, False
        return found

    def segment(
        self,
        step: int,
        counts: Sequence[int],
        orders: Sequence[dict[int, str] | None],
        saved: Sequence[str],
        device: Any = "cpu",
    ) -> dict[str, Any]:
        """Return the segment that ends here, for the metadata of a checkpoint.

        Args:
            step: Batches trained.
            counts: Samples of all ranks by row, since this process started.
            orders: `take_orders` of all ranks.
            saved: Committed checkpoints of this trial, newest first.
            device: Of this rank.
        """
        before = self._counted or [0] * len(counts)
        new = [now - had for now, had in zip(counts, before, strict=True)]
        named = {name: count for name, count in zip((*self._plan.sources, UNDECLARED), new, strict=True) if count}
        made = GovernedSegment(
            policy_hash=self._plan.policy_hash,
            s_hash=self._plan.s_hash,
            parent=saved[0] if saved else self.parent,
            first_step=self.first_step,
            counts=named,
            order=_joined(orders),
            roster=self.roster,
            world_size=len(orders),
            level=self._plan.policy.level,
            canaries=self.canaries,
            versions={"torch": str(torch.__version__), "detlab": version("detlab"), **computed_on(device)},
        )
        return made.model_dump(mode="json")

    def taken(self, step: int, counts: Sequence[int]) -> None:
        """Begin the next segment; all ranks call it."""
        self.first_step, self._counted = step, list(counts)


def computed_on(device: Any) -> dict[str, str]:
    """Return what decides how numbers are rounded: threads, the processor, and a GPU if there is one."""
    found = {
        "threads": str(torch.get_num_threads()),
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
    }
    if torch.device(device).type == "cuda":
        found["gpu"] = f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda or torch.version.hip}"
    return found


def _joined(orders: Sequence[dict[int, str] | None]) -> list[EpochOrder]:
    known = [one for one in orders if one is not None]
    epochs = sorted({epoch for one in known for epoch in one})
    if len(known) < len(orders) or len(epochs) > MOST_EPOCHS:
        return []
    found = []
    for epoch in epochs:
        text = "\n".join(one.get(epoch, "") for one in known)
        found.append(EpochOrder(epoch=epoch, digest=f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"))
    return found


def roster_of(source_of: Callable[[int], str | None] | None, size: int | None) -> str:
    """Return a digest of which sample is from which source; empty if that is not known."""
    if source_of is None or size is None:
        return ""
    digest = hashlib.sha256(f"{size}\n".encode())
    for index in range(0, size, max(1, -(-size // ROSTER_SAMPLES))):
        name = source_of(index)
        digest.update(b"\0" if name is None else name.encode() + b"\n")
    return f"sha256:{digest.hexdigest()}"
