"""T4 under FSDP2, in a loop of one's own: two processes with a split model are one, and the guard sees what it gathers.

Functions named `on_rank_…` run in both processes; tensors come back as lists.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from test_trainer_governed_ranks import APART, POLICY, SKEWED, STEPS, by_hand, losses_of, nearly, network, part
from torch import nn
from torch.distributed.fsdp import fully_shard

from detlab.governance import GovernanceError, Policy, compile_policy
from detlab.pytorch.governance import Governed, parameters_of_models

CLOSED = {"rules": [POLICY["rules"][0], {"source": "web", "layers": "0|1", "scale": 0.0}]}


def split(model: Any, *, each: bool = False) -> Any:
    """Return a model split over both processes: as a whole, or also each of its layers by itself."""
    for layer in model if each else ():
        if next(layer.parameters(), None) is not None:
            fully_shard(layer)
    return fully_shard(model)


def governed(model: Any, policy: Any = None) -> Governed:
    plan = compile_policy(Policy.of({**POLICY, **(policy or {})}), parameters_of_models([model]))
    return Governed(plan, [model])


def whole(model: Any) -> list[float]:
    return torch.cat([one.full_tensor().detach().reshape(-1) for one in model.parameters()]).tolist()


def on_rank_train(
    contexts: Any, groups: Any, aggregation: int = 1, policy: Any = None, each: bool = False, content: Any = None
) -> Any:
    rank = torch.distributed.get_rank()
    model = split(network(), each=each)
    with torch.no_grad():
        model(torch.zeros(2, 5, dtype=torch.float64))  # leaves what was gathered in place
    own = governed(model, policy)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    gradients: list[float] = []
    for index in range(STEPS if content is None else 1):
        names, x, y = part(index, rank, groups)
        if content is not None:
            x[[place for place, name in enumerate(names) if name == "web"]] = content
        with own.batch(names):
            own.backward(losses_of(model, x, y))
        gradients = torch.cat([one.grad.full_tensor().reshape(-1) for one in model.parameters()]).tolist()
        if index % aggregation == aggregation - 1:
            own.step(optimizer, batches=aggregation)
    return (whole(model) if content is None else gradients), own.metrics()


@pytest.mark.parametrize("each", [False, True], ids=["as a whole", "by layer"])
@pytest.mark.parametrize("groups", [SKEWED, APART], ids=["of different sizes", "apart"])
@pytest.mark.parametrize("aggregation", [1, 2])
def test_t4_two_ranks_with_a_split_model_are_one_process(ranks, groups, aggregation, each):
    found = ranks.run("on_rank_train", groups, aggregation, None, each)
    assert nearly(found, by_hand(groups, aggregation=aggregation)) <= 1e-12


def test_t4_each_parameter_may_be_divided_by_the_factors_of_its_samples(ranks):
    found = ranks.run("on_rank_train", SKEWED, 1, {"normalize": "per_layer"})
    assert nearly(found, by_hand(SKEWED, per_layer=True)) <= 1e-12


def test_t3_what_a_closed_source_holds_leaves_no_bit_in_closed_layers(ranks):
    closed = sum(one.numel() for one in network()[:2].parameters())
    first, other = (ranks.run("on_rank_train", SKEWED, 1, CLOSED, False, one)[0][0] for one in (0.5, math.nan))
    assert first[:closed] == other[:closed]
    assert any(first[:closed])
    assert first[closed:] != other[closed:]


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.linear(x, self.inner[0].weight, self.inner[0].bias)
        return self.inner[3](self.inner[2](self.inner[1](hidden)))


def on_rank_refused(contexts: Any, how: str) -> str:
    rank = torch.distributed.get_rank()
    around = how.startswith("around")
    model = split(Around() if around else network())
    own = governed(
        model,
        {"rules": [POLICY["rules"][0], {"source": "web", "layers": r"inner\.0" if around else "0", "scale": 0.0}]},
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    names, x, y = part(0, rank, (["web"] * 5, ["web"] * 3) if how == "around, closed to all" else SKEWED)
    try:
        with own.batch(names):
            losses = losses_of(model, x, y)
            own.backward(losses - losses.mean() if how == "coupled" else losses)
        own.step(optimizer)
        if how == "written":
            next(model.parameters()).to_local().detach().mul_(2.0)
            own.begin(names)
    except GovernanceError as error:
        return error.code
    return "nothing"


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("as it should be", "nothing"),
        ("around, closed to some", "governance.leak"),
        ("around, closed to all", "governance.leak"),
        ("coupled", "governance.coupling"),
        ("written", "governance.optimizer"),
    ],
)
def test_the_guard_looks_at_what_was_gathered(ranks, how, code):
    assert ranks.run("on_rank_refused", how) == [code, code]
