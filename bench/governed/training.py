"""Train a small model under a policy, and measure its canaries: what all parts share."""

from __future__ import annotations

import dataclasses
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from detlab.governance import Policy, compile_policy
from detlab.governance.sources import SourcedDataset, source_lookup
from detlab.pytorch.governance import Canaries, Governed, parameters_of_models

Rule = dict[str, Any]
Losses = Callable[[Any, Any, Sequence[str]], torch.Tensor]
"""Returns the loss of each sample of a batch: `losses(model, batch, sources)`."""


def rule(source: str, layers: str, scale: float, **more: Any) -> Rule:
    """Return a rule of a policy."""
    return {"source": source, "layers": layers, "scale": scale, **more}


def policy_of(sources: Sequence[str], rules: Sequence[Rule], **more: Any) -> Policy:
    """Return a policy whose first rule opens all."""
    block = {"sources": [{"name": one} for one in sources], "rules": [rule("*", ".*", 1.0), *rules], **more}
    return Policy.of(block)


def canaries_of(source: str, count: int) -> dict[str, Any]:
    """Return a block of canaries; a single look, so that bounds are those of this look."""
    return {"sources": source, "count": count, "budget": 0.5, "looks": 1}


@dataclasses.dataclass(slots=True)
class Training:
    """One training under a policy, which goes on where it was left.

    Attributes:
        model: In evaluation mode between two calls of `train`.
        policy: What it is held to.
        data: Samples with sources; canaries are planted in a copy.
        losses: Of a batch.
        seed: Of the order of samples. Canaries follow from it too: a bench is to be repeated, and hides nothing.
        lr: Of Adam.
        batch: Samples.
    """

    model: nn.Module
    policy: Policy
    data: SourcedDataset
    losses: Losses
    seed: int
    lr: float = 1e-3
    batch: int = 64
    canaries: Canaries | None = None
    epochs: int = 0
    last_loss: float = float("nan")
    _governed: Any = None
    _optimizer: Any = None
    _planted: Any = None

    def __post_init__(self) -> None:
        plan = compile_policy(self.policy, parameters_of_models([self.model]))
        self._governed = Governed(plan, [self.model])
        self._optimizer = torch.optim.Adam(self.model.parameters(), lr=self.lr)
        self._planted = self.data
        if self.policy.canaries is not None:
            secret = random.Random(self.seed).randbytes(32)
            self.canaries = Canaries(self.policy, secret)
            self._planted = self.canaries.plant(self.data)
        lookup = source_lookup(self.data)
        assert lookup is not None
        self._names = [str(lookup(index)) for index in range(len(self.data))]

    _names: list[str] = dataclasses.field(default_factory=list)

    def train(self, epochs: int) -> Training:
        """Train so many more epochs."""
        self.model.train()
        for _ in range(epochs):
            order = torch.randperm(len(self._names), generator=torch.Generator().manual_seed(self.seed + self.epochs))
            each = [self._step(part.tolist()) for part in order.split(self.batch)]
            self.epochs += 1
            self.last_loss = statistics.fmean(each)
        self.model.eval()
        return self

    def _step(self, indices: list[int]) -> float:
        names = [self._names[index] for index in indices]
        batch = stacked(self._planted.__getitems__(indices))
        with self._governed.batch(names):
            losses = self.losses(self.model, batch, names)
            self._governed.backward(losses)
        self._governed.step(self._optimizer)
        return float(losses.detach().mean())

    def serving(self, source: str) -> Any:
        """Open an isolated source's modules."""
        return self._governed.serving(source)

    def memorised(self, losses: Callable[[Any, Any], torch.Tensor], *, serve: bool = False) -> Mapping[str, Any]:
        """Return the metrics of the canaries, by the model that all are served with, or by that of their own source.

        Args:
            losses: Of a batch of canaries, by the model.
            serve: Whether the modules of an isolated source are open.
        """
        assert self.canaries is not None
        canaries = self.canaries

        def read(samples: Sequence[Any]) -> list[float]:
            with torch.no_grad(), self._governed.serving(canaries.measuring if serve else None):
                found: list[float] = losses(self.model, stacked(samples)).double().tolist()
            return found

        return canaries.measure(read, batch_size=1024)


def stacked(samples: Sequence[Any]) -> Any:
    """Return samples as a batch: tensors, or pairs of a tensor and a label."""
    if isinstance(samples[0], torch.Tensor):
        return torch.stack(list(samples))
    return torch.stack([one[0] for one in samples]), torch.as_tensor([int(one[1]) for one in samples])


def spread_of(values: Sequence[float]) -> str:
    """Return mean and standard deviation as text."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.3f} ± {deviation:.3f}"
