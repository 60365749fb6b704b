"""T4: two processes under a policy are one: groups of different sizes or none, accumulation, compile, a lent batch.

Functions named `on_rank_…` run in both processes; tensors come back as lists.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from detlab.governance import GovernanceError
from detlab.pytorch.governance import ModelProbe

STEPS = 4
POLICY: dict[str, Any] = {
    "sources": [{"name": "trusted"}, {"name": "web"}, {"name": "partner"}],
    "rules": [
        {"source": "*", "layers": ".*", "scale": 1.0},
        {"source": "web", "layers": "0|1", "scale": 0.0},
        {"source": "partner", "layers": "3", "scale": 0.5},
    ],
}
NAMES = ("trusted", "web", "partner")
SKEWED = (["trusted", "web", "web", "trusted", "partner"], ["web", "web", "partner"])
APART = (["web"] * 4, ["trusted"] * 4)
"""The first rank has nothing for the first two layers."""


def network() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 3)).double()


def samples(names: list[str], seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(len(names), 5, dtype=torch.float64, generator=generator)
    return x, torch.randint(0, 3, (len(names),), generator=generator)


def losses_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(x), y, reduction="none")


def part(index: int, rank: int, groups: Any) -> tuple[list[str], torch.Tensor, torch.Tensor]:
    names = groups[rank]
    return (names, *samples(names, 10 * index + rank))


def by_hand(groups: Any, *, aggregation: int = 1, per_layer: bool = False) -> list[float]:
    """Return the weights after training in one process with gradients of each source alone."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    parameters = list(model.parameters())
    scales = {"trusted": [1.0] * 6, "web": [0.0] * 4 + [1.0] * 2, "partner": [1.0] * 4 + [0.5] * 2}
    for start in range(0, STEPS, aggregation):
        total, factors, count = [torch.zeros_like(one) for one in parameters], [0.0] * 6, 0
        for index in range(start, start + aggregation):
            for rank in range(2):
                names, x, y = part(index, rank, groups)
                for at, name in enumerate(names):
                    loss = losses_of(model, x[at : at + 1], y[at : at + 1]).sum()
                    for place, gradient in enumerate(torch.autograd.grad(loss, parameters)):
                        total[place] += scales[name][place] * gradient
                        factors[place] += scales[name][place]
                    count += 1
        for place, parameter in enumerate(parameters):
            parameter.grad = total[place] / ((factors[place] or 1.0) if per_layer else count)
        optimizer.step()
    return flat(model)


def flat(model: nn.Module) -> list[float]:
    return torch.cat([one.detach().reshape(-1) for one in model.parameters()]).tolist()


def on_rank_train(
    make_context: Any,
    groups: Any,
    aggregation: int = 1,
    policy: Any = None,
    compiled: bool = False,
    passes: int = 1,
    lent: bool = False,
) -> Any:
    context = make_context(exp_conf={"governance": {**POLICY, **(policy or {})}}, aggregation_frequency=aggregation)
    rank = context.distributed.rank
    model = context.wrap_model(network())
    optimizer = context.wrap_optimizer(
        torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9), backward_passes_per_step=passes
    )
    context._check_ready()
    run = torch.compile(model, backend="aot_eager", dynamic=False) if compiled else model
    for index in range(STEPS):
        names, x, y = part(index, rank, groups)
        context._source_of = names.__getitem__
        ids = list(range(len(names)))
        if lent and rank == 1:
            ids, (_, x, y) = [], part(index, 0, groups)
        context._begin_batch(index, 0, index == 0, False, ids)
        context.backward(losses_of(run, x, y))
        context.step_optimizer(optimizer)
        context._end_batch(None)
    return flat(model), context._governance_metrics()


def nearly(found: Any, expected: list[float]) -> float:
    (first, _), (second, _) = found
    assert first == second
    return max(abs(a - b) for a, b in zip(first, expected, strict=True))


@pytest.mark.parametrize("groups", [SKEWED, APART], ids=["of different sizes", "apart"])
@pytest.mark.parametrize("aggregation", [1, 2])
def test_t4_two_ranks_are_one_process(ranks, groups, aggregation):
    found = ranks.run("on_rank_train", groups, aggregation)
    assert nearly(found, by_hand(groups, aggregation=aggregation)) <= 1e-12


def test_t4_the_mean_of_the_ranks_means_is_not_it(ranks):
    # what stock DDP would do: each rank's mean, and their mean
    found = ranks.run("on_rank_train_naively", SKEWED)
    assert nearly(found, by_hand(SKEWED)) > 1e-3


def on_rank_train_naively(make_context: Any, groups: Any) -> Any:
    from detlab.pytorch.governance.governed import Governed

    weight = Governed._weight
    Governed._weight = lambda self, rows: weight(self, rows) * 0 + 1.0 / len(rows)
    try:
        return on_rank_train(make_context, groups)
    finally:
        Governed._weight = weight


def test_t4_each_parameter_may_be_divided_by_the_factors_of_its_samples(ranks):
    found = ranks.run("on_rank_train", SKEWED, 1, {"normalize": "per_layer"})
    assert nearly(found, by_hand(SKEWED, per_layer=True)) <= 1e-12


def test_t4_gradients_that_are_exchanged_at_the_step_weigh_alike(ranks):
    found = ranks.run("on_rank_train", SKEWED, 1, None, False, 2)
    assert nearly(found, by_hand(SKEWED)) <= 1e-12


def test_t4_compiled_ranks_are_one_process(ranks):
    found = ranks.run("on_rank_train", SKEWED, 1, None, True)
    assert nearly(found, by_hand(SKEWED)) <= 1e-12


def test_a_rank_that_lends_its_hands_gives_nothing(ranks):
    found = ranks.run("on_rank_train", SKEWED, 1, None, False, 1, True)
    assert nearly(found, by_hand((SKEWED[0], []))) <= 1e-12


def test_metrics_are_of_all_ranks(ranks):
    (_, first), (_, second) = ranks.run("on_rank_train", SKEWED)
    assert first == second
    assert first["gov/share"] == {"trusted": 2 / 8, "web": 4 / 8, "partner": 2 / 8}
    assert first["gov/depth"]["mass"][1][:2] == [0.0, 0.0]


def on_rank_leak(make_context: Any) -> str:
    context = make_context(exp_conf={"governance": POLICY})

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = nn.functional.linear(x, self.inner[0].weight, self.inner[0].bias)
            return self.inner[3](self.inner[2](self.inner[1](hidden)))

    policy = {**POLICY, "rules": [POLICY["rules"][0], {"source": "web", "layers": r"inner\.0", "scale": 0.0}]}
    context._exp_conf = {"governance": policy}
    model = context.wrap_model(Around().double())
    context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.2))
    context._check_ready()
    names, x, y = part(0, context.distributed.rank, SKEWED)
    context._source_of = names.__getitem__
    context._begin_batch(0, 0, True, False, list(range(len(names))))
    try:
        context.backward(losses_of(model, x, y))
    except GovernanceError as error:
        return error.code
    return "nothing"


def test_the_guard_stands_before_gradients_are_averaged(ranks):
    assert ranks.run("on_rank_leak") == ["governance.leak", "governance.leak"]


def on_rank_canaries(make_context: Any) -> Any:
    from detlab import pytorch
    from detlab.governance import label

    canaries = {"sources": "web", "count": 8, "budget": 0.5}
    context = make_context(exp_conf={"governance": {**POLICY, "canaries": canaries}})
    model = context.wrap_model(network())
    context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.2))
    context._check_ready()
    x, y = samples(["web"] * 30, 3)
    loader = pytorch.DataLoader(label(list(zip(x, y.tolist(), strict=True)), ["web"] * 30), batch_size=5)
    planted = context._plant(loader, None, context.distributed)

    class Trial:
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> None:
            context.backward(losses_of(model, *batch))

    context._eval()
    told = context._memorisation(Trial(), context.distributed, moves=True)
    labels = [planted.dataset[index][1] for index in range(30)]
    assert sum(one != other for one, other in zip(labels, y.tolist(), strict=True)) >= 4
    return labels, told


def test_ranks_have_the_same_canaries_and_report_the_same(ranks):
    first, second = ranks.run("on_rank_canaries")
    assert first == second
    assert first[1]["gov/canaries"]["commitment"].startswith("sha256:")


ISOLATED = {
    "rules": [
        {"source": "*", "layers": ".*", "scale": 1.0},
        {"source": "*", "layers": "adapter", "scale": 0.0},
        {"source": "partner", "layers": ".*", "scale": 0.0},
        {"source": "partner", "layers": "adapter", "scale": 1.0, "level": "isolated"},
    ]
}


class Beside(nn.Module):
    """The network with an adapter beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()
        self.adapter = nn.Linear(5, 3).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + self.adapter(x)


def on_rank_isolated(make_context: Any, groups: Any, content: float) -> Any:
    context = make_context(exp_conf={"governance": {**POLICY, **ISOLATED}})
    rank = context.distributed.rank
    model = context.wrap_model(Beside())
    optimizer = context.wrap_optimizer(torch.optim.AdamW(model.parameters(), lr=0.05))
    context._check_ready()
    for index in range(STEPS):
        names, x, y = part(index, rank, groups)
        for place, name in enumerate(names):
            if name == "partner":
                x[place] = content
        context._source_of = names.__getitem__
        context._begin_batch(index, 0, index == 0, False, list(range(len(names))))
        context.backward(losses_of(model, x, y))
        context.step_optimizer(optimizer)
        context._end_batch(None)
    bare = getattr(model, "module", model)
    return flat(bare.inner), flat(bare.adapter)


@pytest.mark.parametrize("groups", [SKEWED, (["partner"] * 3, ["trusted"] * 4)], ids=["mixed", "on one rank alone"])
def test_t5_ranks_train_the_same_whatever_an_isolated_source_holds(ranks, groups):
    first, other = (ranks.run("on_rank_isolated", groups, content) for content in (1.0, 1e6))
    assert first[0] == first[1]
    assert first[0][0] == other[0][0]
    assert first[0][1] != other[0][1]


def on_rank_profile(make_context: Any, compiled: bool) -> Any:
    context = make_context(exp_conf={"governance": {**POLICY, "profile": {"samples": 3}}})
    model = context.wrap_model(network())
    context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.2))
    context._check_ready()
    run = torch.compile(model, backend="aot_eager") if compiled else model
    x, _ = samples(["trusted"] * 4, context.distributed.rank)
    context._eval()
    with torch.no_grad(), context._probing():
        run(x)
    segment = context._governed_segment(context.distributed, 1, [])
    return None if segment is None else segment["profile"]["models"]


@pytest.mark.parametrize("compiled", [False, True])
def test_the_first_rank_records_the_profile_that_one_process_would(ranks, compiled):
    (first,), second = ranks.run("on_rank_profile", compiled)
    x, _ = samples(["trusted"] * 4, 0)
    probe = ModelProbe.taken((x,), {}, 3)
    assert probe is not None
    assert first == probe.profile(network()).model_dump(mode="json")
    assert second is None
