"""Benchmark A: an autoencoder whose code has two halves, each trained by half of the digits."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from detlab.governance import label
from governed.digits import images
from governed.training import Losses, Rule, Training, policy_of, rule

HALF = 16
PENALTY = 0.02
LOW = 5
"""Digits below it are of the source `low`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Localised:
    """Mean absolute errors on test images of the digits 0 to 4.

    Attributes:
        decoder: By the decoder, which sees the whole code.
        certificate: By a decoder that was trained anew, on the half of the code that these digits may not train.
        constant: By the mean image of all.
    """

    decoder: float
    certificate: float
    constant: float

    @property
    def index(self) -> float:
        """1: the half tells nothing of these digits beyond the mean; 0: all that the whole code tells."""
        return (self.certificate - self.decoder) / (self.constant - self.decoder)


class Split(nn.Module):
    """Two encoders beside each other, and a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = (self._encoder() for _ in range(2))
        self.decoder = _decoder(2 * HALF)

    @staticmethod
    def _encoder() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, HALF))

    def codes(self, x: torch.Tensor) -> torch.Tensor:
        """Return the code, [batch, 32]."""
        return torch.cat([self.low(x), self.high(x)], dim=1)


def _decoder(size: int) -> nn.Module:
    return nn.Sequential(nn.Linear(size, 128), nn.ReLU(), nn.Linear(128, 64))


ROUTED: list[Rule] = [rule("low", "high", 0.0), rule("high", "low", 0.0)]
ARMS: dict[str, tuple[list[Rule], float, bool]] = {
    "routed": (ROUTED, PENALTY, False),
    "not routed, same penalty": ([], PENALTY, False),
    "routed, no penalty": (ROUTED, 0.0, False),
    "placebo: routed, halves of the samples at random": (ROUTED, PENALTY, True),
}
"""Rules, weight of the penalty on the size of the code, and whether sources are given to samples at random."""


def _losses(penalty: float) -> Losses:
    """Return losses of a batch of which each image is there twice: for its reconstruction, and for the penalty.

    The penalty is a source of its own, `all`: it trains both encoders, whatever the digit.
    """

    def losses(model: Any, batch: Any, sources: Sequence[str]) -> torch.Tensor:
        x = batch[0]
        codes = model.codes(x)
        again = (model.decoder(codes) - x).abs().mean(1)
        size = penalty * codes.abs().mean(1)
        return torch.where(torch.tensor([one == "all" for one in sources]), size, again)

    return losses


def localised(name: str, seed: int, epochs: int) -> Localised:
    """Train one arm, and a certificate on the half of the code that digits 0 to 4 may not train."""
    rules, penalty, shuffled = ARMS[name]
    x, y = images()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    x, y = x[order], y[order]
    train, test = x[400:], x[:400][y[:400] < LOW]
    names = ["low" if one < LOW else "high" for one in y[400:].tolist()]
    if shuffled:
        random.Random(seed).shuffle(names)
    torch.manual_seed(seed)
    model = Split()
    data = label([(one, 0) for one in [*train, *train]], [*names, *["all"] * len(train)])
    policy = policy_of(("low", "high", "all"), rules)
    Training(model, policy, data, _losses(penalty), seed, batch=128).train(epochs)
    with torch.no_grad():
        decoder = float((model.decoder(model.codes(test)) - test).abs().mean())
        halves, own = model.high(train), model.high(test)
    certificate = _certificate(halves, train, epochs, seed)
    with torch.no_grad():
        found = float((certificate(own) - test).abs().mean())
    return Localised(decoder, found, float((train.median(0).values - test).abs().mean()))


def _certificate(codes: torch.Tensor, x: torch.Tensor, epochs: int, seed: int) -> nn.Module:
    """Train a decoder on a half of the code that is left as it is."""
    decoder = _decoder(HALF)
    optimizer = torch.optim.Adam(decoder.parameters(), lr=1e-3)
    for epoch in range(epochs):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed + epoch))
        for part in order.split(128):
            optimizer.zero_grad()
            (decoder(codes[part]) - x[part]).abs().mean().backward()
            optimizer.step()
    return decoder
