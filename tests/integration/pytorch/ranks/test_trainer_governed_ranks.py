"""T4: two processes under a policy are one: groups of different sizes or none, accumulation, compile, a lent batch.

Functions named `on_rank_…` run in both processes; tensors come back as lists.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
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


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.9)


def by_hand(
    groups: Any, *, aggregation: int = 1, per_layer: bool = False, most: float | None = None, kind: Any = sgd
) -> list[float]:
    """Return the weights after training in one process with gradients of each source alone.

    Args:
        groups: Sources by rank.
        aggregation: Batches of a step.
        per_layer: Whether the factors are what is divided by.
        most: The norm to which gradients of parameters with the same factors are clipped together.
        kind: Makes the optimizer.
    """
    model = network()
    optimizer = kind(model.parameters())
    parameters = list(model.parameters())
    scales = {"trusted": [1.0] * 6, "web": [0.0] * 4 + [1.0] * 2, "partner": [1.0] * 4 + [0.5] * 2}
    for start in range(0, STEPS, aggregation):
        total, factors, count = [torch.zeros_like(one) for one in parameters], [0.0] * 6, 0
        for index in range(start, start + aggregation):
            for rank in range(len(groups)):
                names, x, y = part(index, rank, groups)
                for at, name in enumerate(names):
                    loss = losses_of(model, x[at : at + 1], y[at : at + 1]).sum()
                    for place, gradient in enumerate(torch.autograd.grad(loss, parameters)):
                        total[place] += scales[name][place] * gradient
                        factors[place] += scales[name][place]
                    count += 1
        for place, parameter in enumerate(parameters):
            parameter.grad = total[place] / ((factors[place] or 1.0) if per_layer else count)
        for same in (parameters[:4], parameters[4:]) if most else ():
            nn.utils.clip_grad_norm_(same, most)
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


@contextlib.contextmanager
def means_of_ranks() -> Iterator[None]:
    """Weigh each rank's samples by their own number alone."""
    from detlab.pytorch.governance.governed import Governed

    weight = Governed._weight
    Governed._weight = lambda self, rows: weight(self, rows) * 0 + 1.0 / len(rows)
    try:
        yield
    finally:
        Governed._weight = weight


def on_rank_train_naively(make_context: Any, groups: Any) -> Any:
    with means_of_ranks():
        return on_rank_train(make_context, groups)


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


# --- the engine `microbatch`


class Normed(nn.Module):
    """The network with batch norm, for the engine `microbatch`."""

    def __init__(self) -> None:
        super().__init__()
        inner = network()
        self.body, self.norm, self.head = inner[0], nn.BatchNorm1d(6).double(), inner[3]
        self.for_web = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last()(self.norm(self.body(x)).tanh())

    def last(self) -> nn.Module:
        return self.head


class TwoHeads(Normed):
    """With a head of its own for `web`."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Linear(6, 3).double()

    def last(self) -> nn.Module:
        return self.own if self.for_web else self.head


KINDS = {kind.__name__: kind for kind in (Normed, TwoHeads)}
PARTED = {
    "engine": "microbatch",
    "rules": [
        {"source": "*", "layers": ".*", "scale": 1.0},
        {"source": "web", "layers": "body|norm", "scale": 0.0},
        {"source": "partner", "layers": "head", "scale": 0.5},
    ],
}
WIDE = (["trusted", "web", "web", "trusted", "partner", "partner"], ["web"] * 3)
"""The first rank has three sources, the second one."""
TWO = (["web", "trusted"] * 2, ["partner"] * 2 + ["trusted"] * 3)


def on_rank_parts(
    make_context: Any,
    groups: Any,
    aggregation: int = 1,
    policy: Any = None,
    passes: int = 1,
    lent: bool = False,
    kind: str = "Normed",
) -> Any:
    from detlab.governance.sources import parts_of
    from detlab.pytorch.source_step import SourceStep

    block = {**POLICY, **PARTED, **(policy or {})}
    context = make_context(exp_conf={"governance": block}, aggregation_frequency=aggregation)
    rank = context.distributed.rank
    if kind == "TwoHeads":
        context.experimental.find_unused_parameters()
    model = context.wrap_model(KINDS[kind]())
    optimizer = context.wrap_optimizer(
        torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9), backward_passes_per_step=passes
    )
    context._check_ready()

    class Trial:
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            getattr(model, "module", model).for_web = context.current_sources()[:1] == ["web"]
            losses = losses_of(model, *batch)
            context.backward(losses)
            context.step_optimizer(optimizer)
            return {"loss": losses.mean()}

    step = SourceStep(Trial(), context)
    for index in range(STEPS):
        lends = lent and rank == 1
        names, x, y = part(index, 0 if lends else rank, groups)
        context._source_of = names.__getitem__
        parts = [list(one.places) for one in parts_of([NAMES.index(name) for name in names])]
        context._begin_batch(index, 0, index == 0, False, [] if lends else list(range(len(names))))
        step.train_batch([(x[places], y[places]) for places in parts], 0, index)
        context._end_batch(None)
    metrics = context._governance_metrics()
    context._eval()
    bare = getattr(model, "module", model)
    return flat(bare), metrics, [one.tolist() for one in bare.buffers()]


def parts_by_hand(
    groups: Any, aggregation: int = 1, per_layer: bool = False, kind: str = "Normed"
) -> tuple[list[float], list[Any]]:
    """Return weights and the first rank's buffers, after training in one process."""
    models = [KINDS[kind](), KINDS[kind]()]
    model = models[0]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    parameters = list(model.parameters())
    names_of = [name for name, _ in model.named_parameters()]
    scales = {
        "trusted": [1.0] * len(names_of),
        "web": [0.0 if name.startswith(("body", "norm")) else 1.0 for name in names_of],
        "partner": [0.5 if name.startswith("head") else 1.0 for name in names_of],
    }
    for start in range(0, STEPS, aggregation):
        total, factors, count = [torch.zeros_like(one) for one in parameters], [0.0] * len(parameters), 0
        for index in range(start, start + aggregation):
            for rank in range(2):
                models[1].load_state_dict(model.state_dict())
                names, x, y = part(index, rank, groups)
                for name in NAMES:
                    mine = [at for at, one in enumerate(names) if one == name]
                    if not mine:
                        continue
                    own = model if rank == 0 and name != "web" else models[1]  # else statistics stay as they are
                    own.for_web = name == "web"
                    loss = losses_of(own, x[mine], y[mine]).sum()
                    for place, one in enumerate(torch.autograd.grad(loss, list(own.parameters()), allow_unused=True)):
                        total[place] += 0.0 if one is None else scales[name][place] * one
                        factors[place] += scales[name][place] * len(mine)
                    count += len(mine)
        for place, parameter in enumerate(parameters):
            parameter.grad = total[place] / ((factors[place] or 1.0) if per_layer else count)
        optimizer.step()
    return flat(model), [one.tolist() for one in model.buffers()]


def near_parts(found: Any, expected: tuple[list[float], list[Any]]) -> float:
    (first, _, own), (second, _, other) = found
    assert first == second
    assert own == other, "in an evaluation all ranks have the statistics of the first"
    assert own[2] == expected[1][2]
    numbers = [*first, *own[0], *own[1]]
    return max(abs(a - b) for a, b in zip(numbers, [*expected[0], *expected[1][0], *expected[1][1]], strict=True))


@pytest.mark.parametrize("groups", [WIDE, TWO], ids=["three sources and one", "two and two"])
@pytest.mark.parametrize("aggregation", [1, 2])
def test_t4_ranks_with_other_sources_and_other_numbers_of_parts_are_one_process(ranks, groups, aggregation):
    found = ranks.run("on_rank_parts", groups, aggregation)
    assert near_parts(found, parts_by_hand(groups, aggregation)) <= 1e-12


def test_t4_parts_may_be_divided_by_the_factors_of_their_samples(ranks):
    found = ranks.run("on_rank_parts", WIDE, 1, {"normalize": "per_layer"})
    assert near_parts(found, parts_by_hand(WIDE, per_layer=True)) <= 1e-12


def test_t4_parts_whose_gradients_are_exchanged_at_the_step_weigh_alike(ranks):
    found = ranks.run("on_rank_parts", WIDE, 1, None, 2)
    assert near_parts(found, parts_by_hand(WIDE)) <= 1e-12


def test_a_rank_that_lends_its_hands_runs_one_part_and_gives_nothing(ranks):
    found = ranks.run("on_rank_parts", WIDE, 1, None, 1, True)
    assert near_parts(found, parts_by_hand((WIDE[0], []))) <= 1e-12
    assert found[0][1]["gov/share"] == {"trusted": 2 / 6, "web": 2 / 6, "partner": 2 / 6}


def test_t4_what_one_source_alone_uses_does_not_drift_apart(ranks):
    groups = (["web"] * 2 + ["partner"] * 2, ["web"] * 3 + ["partner"] * 2)  # the last part has another head
    found = ranks.run("on_rank_parts", groups, 1, None, 1, False, "TwoHeads")
    assert near_parts(found, parts_by_hand(groups, kind="TwoHeads")) <= 1e-12


def on_rank_own_loop(make_context: Any, groups: Any) -> Any:
    from detlab.governance import Policy, compile_policy
    from detlab.pytorch.governance import Governed, parameters_of_models

    rank = torch.distributed.get_rank()
    model = nn.parallel.DistributedDataParallel(Normed())
    plan = compile_policy(Policy.of({**POLICY, **PARTED}), parameters_of_models([model]))
    governed = Governed(plan, [model])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for index in range(STEPS):
        names, x, y = part(index, rank, groups)
        for rows in governed.parts(names):
            governed.backward(losses_of(model, x[rows], y[rows]))
        governed.step(optimizer)
    return flat(model)


def test_t4_a_loop_of_ones_own_with_ddp_exchanges_gradients_once_for_each_batch(ranks):
    first, second = ranks.run("on_rank_own_loop", WIDE)
    assert first == second
    assert max(abs(a - b) for a, b in zip(first, parts_by_hand(WIDE)[0], strict=True)) <= 1e-12
