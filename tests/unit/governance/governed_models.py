"""Small models of all layers that are routed, policies for them, and gradients computed source by source."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from detlab.governance import Plan, Policy, compile_policy
from detlab.pytorch.governance import Governed, parameters_of_models

SOURCES = ("trusted", "web", "partner")


class Mixed(nn.Module):
    """An embedding, a convolution, both norms and linear layers; float64, tied where asked for."""

    def __init__(self, *, tied: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6, padding_idx=0)
        self.conv = nn.Conv1d(6, 8, 3, padding=1, groups=2)
        self.group = nn.GroupNorm(2, 8)
        self.mid = nn.Linear(8, 6)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 11, bias=not tied)
        if tied:
            self.head.weight = self.embed.weight
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.group(self.conv(self.embed(x).transpose(1, 2))).relu().transpose(1, 2)
        return self.head(self.norm(self.mid(hidden)).tanh())


def losses_of(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return one loss per sample."""
    logits = model(x)
    each = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none")
    return each.view(y.shape).mean(1)


def batch_of(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens and targets, [count, 5] each."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 11, (count, 5), generator=generator)
    return x, torch.randint(0, 11, (count, 5), generator=generator)


def plan_for(model: Any, *rules: Mapping[str, Any], sources: Sequence[str] = SOURCES, **more: Any) -> Plan:
    """Return the plan of a policy whose first rule opens all."""
    first = {"source": "*", "layers": ".*", "scale": 1.0}
    block = {"sources": [{"name": name} for name in sources], "rules": [first, *rules], **more}
    kinds = [type(module).__name__ for module in model.modules()]
    return compile_policy(Policy.of(block), parameters_of_models([model]), kinds=kinds)


def rule(source: str, layers: str, scale: float) -> dict[str, Any]:
    """Return a rule."""
    return {"source": source, "layers": layers, "scale": scale}


LAYERS = ("embed", "conv", "group", "mid", "norm", "head", r"mid\.bias", r"norm\.weight")
SCALES = (0.0, 0.25, 0.3, 1.0, 2.0)
CLOSED = (rule("web", "embed|conv|group|norm", 0.0), rule("partner", r"mid|head\.bias", 0.0))


def governed_gradients(
    model: Any, plan: Plan, batch: tuple[torch.Tensor, torch.Tensor], names: Sequence[str]
) -> tuple[dict[str, torch.Tensor], Governed]:
    """Return the gradients of one governed batch."""
    governed = Governed(plan, [model])
    with governed.batch(names):
        governed.backward(losses_of(model, *batch))
    return gradients_of(model), governed


def gradients_of(model: Any) -> dict[str, torch.Tensor]:
    """Return the gradients by name, zeros where there is none."""
    return {
        name: torch.zeros_like(one) if one.grad is None else one.grad.clone() for name, one in model.named_parameters()
    }


def source_by_source(
    model: Any,
    plan: Plan,
    batch: tuple[torch.Tensor, torch.Tensor],
    names: Sequence[str],
    losses: Callable[..., torch.Tensor] = losses_of,
) -> dict[str, torch.Tensor]:
    """Return what the policy defines: a backward pass of stock layers for each source, times its factors."""
    x, y = batch
    expected: dict[str, torch.Tensor] = {}
    for row, source in enumerate(plan.sources):
        mine = [at for at, name in enumerate(names) if name == source]
        if not mine:
            continue
        stock = copy.deepcopy(model)
        losses(stock, x[mine], y[mine]).sum().backward()
        for name, gradient in gradients_of(stock).items():
            column = next(at for at, one in enumerate(plan.parameters) if one.name == name)
            expected[name] = expected.get(name, 0) + plan.scales[row][column] * gradient / len(x)
    return expected
