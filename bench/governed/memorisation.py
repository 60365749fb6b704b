"""Benchmark B: what policies for a noisy source do to accuracy and memorisation, beside placebos and DP-SGD."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from governed.digits import (
    CANARIES,
    Classifier,
    accuracy,
    adapted,
    noisy_digits,
    plain,
    random_blocks,
    two_heads,
)
from governed.training import Losses, Rule, Training, canaries_of, policy_of, rule

SOURCES = ("trusted", "web")
BLOCKS = 16
CLOSED = rule("web", ".*", 0.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What one training came to.

    Attributes:
        test: Accuracy on images that nobody has trained on.
        auc: Area of the canaries, by the model that is served.
        noise: Share of the wrong labels that the model gives.
        own_auc: Area with the source's own modules open; None if it has none.
    """

    test: float
    auc: float
    noise: float
    own_auc: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Arm:
    """A policy for `web`.

    Attributes:
        rules: Behind the one that opens all; given the model and the seed.
        losses: Of a batch.
        shuffled: Whether sources are given to samples at random, as many as before: a placebo.
    """

    rules: Callable[[Classifier, int], Sequence[Rule]]
    losses: Losses = plain
    shuffled: bool = False


def _side(model: Classifier, seed: int) -> list[Rule]:
    return [rule("web", "head", 0.0), rule("trusted", "side", 0.0)]


ARMS: dict[str, Arm] = {
    "ungoverned": Arm(lambda model, seed: []),
    "hidden layers only": Arm(lambda model, seed: [rule("web", "head", 0.0)]),
    "head only": Arm(lambda model, seed: [CLOSED, rule("web", "head", 1.0)]),
    "head only, placebo: random blocks of that size": Arm(
        lambda model, seed: [
            CLOSED,
            *(rule("web", one.replace(".", r"\."), 1.0) for one in random_blocks(model, "head", seed)),
        ]
    ),
    "x 0.1 everywhere": Arm(lambda model, seed: [rule("web", ".*", 0.1)]),
    "dropped": Arm(lambda model, seed: [CLOSED]),
    "hidden layers and a head of its own": Arm(_side, two_heads),
    "the same, placebo: sources at random": Arm(_side, two_heads, shuffled=True),
    "isolated adapter": Arm(
        lambda model, seed: [
            rule("*", "adapter", 0.0),
            CLOSED,
            rule("web", "adapter", 1.0, level="isolated"),
        ],
        adapted,
    ),
}


def outcome(name: str, seed: int, epochs: int) -> Outcome:
    """Train one arm, and measure it."""
    arm, digits = ARMS[name], noisy_digits(seed)
    torch.manual_seed(seed)
    model = Classifier(blocks=BLOCKS)
    policy = policy_of(SOURCES, arm.rules(model, seed), canaries=canaries_of("web", CANARIES))
    training = Training(model, policy, digits.data, arm.losses, seed)
    if arm.shuffled:  # canaries are planted by the true sources, and rules hold for others
        random.Random(seed).shuffle(training._names)
    training.train(epochs)
    found = training.memorised(plain)
    own = None
    if arm.losses is adapted:
        own = training.memorised(adapted, serve=True)["gov/canary_auc"]
    return Outcome(accuracy(model, digits.test), found["gov/canary_auc"], accuracy(model, digits.wrong), own)


# --- DP-SGD, for the same data and network: the whole training, by per-sample gradients that are clipped and noised


def private_outcome(
    seed: int, epochs: int, *, epsilon: float, delta: float, norm: float = 1.0
) -> tuple[Outcome, float]:
    """Train with DP-SGD; return what it came to, and the epsilon that the accountant says.

    Batches are drawn sample by sample (Poisson), as the accountant wants. Abadi and others, 2016.
    """
    digits = noisy_digits(seed)
    torch.manual_seed(seed)
    training = Training(
        Classifier(), policy_of(SOURCES, [], canaries=canaries_of("web", CANARIES)), digits.data, plain, seed
    )
    samples = training._planted
    rate, count = 256 / len(samples), math.ceil(epochs * len(samples) / 256)
    noise = noise_for(epsilon, delta, rate, count)
    model = _smooth()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
    generator = torch.Generator().manual_seed(seed)
    x = torch.stack([samples[index][0] for index in range(len(samples))])
    y = torch.tensor([samples[index][1] for index in range(len(samples))])
    for _ in range(count):
        chosen = torch.rand(len(samples), generator=generator) < rate
        _private_step(model, optimizer, x[chosen], y[chosen], noise, norm, rate * len(samples), generator)
    assert training.canaries is not None

    def read(given: Sequence[Any]) -> list[float]:
        with torch.no_grad():
            logits = model(torch.stack([one[0] for one in given]))
            labels = torch.tensor([int(one[1]) for one in given])
            found: list[float] = functional.cross_entropy(logits, labels, reduction="none").tolist()
        return found

    auc = training.canaries.measure(read, batch_size=1024)["gov/canary_auc"]
    with torch.no_grad():
        test = float((model(digits.test[0]).argmax(1) == digits.test[1]).float().mean())
        wrong = float((model(digits.wrong[0]).argmax(1) == digits.wrong[1]).float().mean())
    return Outcome(test, auc, wrong), spent(noise, delta, rate, count)


def _smooth() -> nn.Module:
    """Return a small tanh network, which suits DP-SGD better than a wide one of ReLUs; the arms have another."""
    return nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))


def _private_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    x: torch.Tensor,
    y: torch.Tensor,
    noise: float,
    norm: float,
    expected: float,
    generator: torch.Generator,
) -> None:
    parameters = dict(model.named_parameters())

    def loss(values: dict[str, torch.Tensor], one: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        logits = torch.func.functional_call(model, values, (one[None],))
        return functional.cross_entropy(logits, target[None])

    detached = {name: one.detach() for name, one in parameters.items()}
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(detached, x, y)
    norms = torch.stack([one.flatten(1).norm(dim=1) for one in each.values()]).norm(dim=0)
    factor = (norm / norms.clamp(min=1e-12)).clamp(max=1.0)
    for name, parameter in parameters.items():
        summed = torch.einsum("b,b...->...", factor, each[name])
        drawn = torch.randn(summed.shape, generator=generator) * noise * norm
        parameter.grad = (summed + drawn) / expected
    optimizer.step()


def spent(noise: float, delta: float, rate: float, steps: int) -> float:
    """Return epsilon of the subsampled Gaussian mechanism: integer Renyi orders (Mironov and others, 2019)."""
    found = math.inf
    for order in range(2, 129):
        terms = [
            math.lgamma(order + 1)
            - math.lgamma(k + 1)
            - math.lgamma(order - k + 1)
            + (order - k) * math.log1p(-rate)
            + k * math.log(rate)
            + (k * k - k) / (2 * noise * noise)
            for k in range(order + 1)
        ]
        top = max(terms)
        renyi = steps * (top + math.log(sum(math.exp(one - top) for one in terms))) / (order - 1)
        # From Renyi to (epsilon, delta): Canonne and others, 2020.
        change = math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        found = min(found, renyi + change)
    return max(0.0, found)


def noise_for(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """Return the least noise, to a thousandth, with which no more than epsilon is spent."""
    low, high = 0.3, 50.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle, delta, rate, steps) > epsilon else (low, middle)
    return high
