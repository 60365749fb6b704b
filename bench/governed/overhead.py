"""Benchmark D: what a governed step costs, for a transformer with 5.8 million parameters on one thread of this CPU.

Seconds are those of the processor, not of the clock: what else the machine does disturbs them less.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import torch

from detlab.governance import compile_policy
from detlab.pytorch.governance import Governed, parameters_of_models
from governed.text import Transformer, text_losses
from governed.training import Rule, policy_of, rule

VOCABULARY, WIDTH, LAYERS, LENGTH, BATCH = 4224, 228, 6, 128, 16
FOUR = ("a", "b", "c", "d")
POLICIES: dict[str, list[Rule]] = {
    "closes nothing": [],
    "one source of four masked in half of the layers": [rule("d", r"blocks\.[0-2]", 0.0)],
    "a factor for each of four sources everywhere": [
        rule(name, ".*", scale) for name, scale in zip(FOUR, (0.25, 0.5, 0.75, 1.5), strict=True)
    ],
}
ALONE = "each of four sources by itself (engine: microbatch), one masked in half of the layers"
WARM = 12
"""Steps before any is timed: the first ten batches are looked at."""


def sized() -> tuple[Any, int]:
    """Return the model and the number of its parameters."""
    torch.manual_seed(0)
    model = Transformer(VOCABULARY, WIDTH, LAYERS, LENGTH)
    return model, sum(one.numel() for one in model.parameters())


def step_times(rounds: int, batch: int = BATCH) -> dict[str, list[float]]:
    """Return the processor's seconds for a step by policy, `stock` for none; rounds are interleaved."""
    torch.set_num_threads(1)
    tokens = torch.randint(0, VOCABULARY, (batch, LENGTH + 1), generator=torch.Generator().manual_seed(1))
    base, _ = sized()
    steps: dict[str, Callable[[], None]] = {"stock": _stock(copy.deepcopy(base), tokens)}
    for name, rules in POLICIES.items():
        steps[name] = _governed(copy.deepcopy(base), tokens, rules)
    masked = POLICIES["one source of four masked in half of the layers"]
    steps[ALONE] = _governed(copy.deepcopy(base), tokens, masked, engine="microbatch")
    for step in steps.values():
        for _ in range(WARM):
            step()
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            begun = time.process_time()
            step()
            found[name].append(time.process_time() - begun)
    return found


def _stock(model: Any, tokens: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        text_losses(model, tokens).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _governed(model: Any, tokens: torch.Tensor, rules: list[Rule], engine: str = "auto") -> Callable[[], None]:
    policy = policy_of(FOUR, rules, engine=engine)
    governed = Governed(compile_policy(policy, parameters_of_models([model])), [model])
    optimizer = torch.optim.AdamW(model.parameters())
    names = [FOUR[place % len(FOUR)] for place in range(len(tokens))]

    def step() -> None:
        for rows in governed.parts(names):
            governed.backward(text_losses(model, tokens[rows] if engine == "microbatch" else tokens))
        governed.step(optimizer)

    return step
