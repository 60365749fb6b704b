"""T4 under FSDP2, in a loop of one's own: two processes with a split model are one, and the guard sees what it gathers.

Functions named `on_rank_…` run in both processes; tensors come back as lists.
"""

from __future__ import annotations

import math
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from test_trainer_governed_ranks import (
    APART,
    POLICY,
    SKEWED,
    STEPS,
    by_hand,
    losses_of,
    means_of_ranks,
    nearly,
    network,
    part,
    sgd,
)
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.utils.checkpoint import checkpoint
from trainer_forked import context

from detlab.governance import GovernanceError, Policy, compile_policy
from detlab.pytorch.governance import ClipNorm, Governed, parameters_of_models
from detlab.pytorch.governance.guard import FIRST_BATCHES
from detlab.testing.ranks import Ranks

CLOSED = {"rules": [POLICY["rules"][0], {"source": "web", "layers": "0|1", "scale": 0.0}]}


def split(model: Any, *, each: bool = False, **how: Any) -> Any:
    """Return a model split over all processes: as a whole, or also each of its layers by itself."""
    for layer in model if each else ():
        if next(layer.parameters(), None) is not None:
            fully_shard(layer, **how)
    return fully_shard(model, **how)


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
@pytest.mark.parametrize(
    "groups",
    [SKEWED, APART, (SKEWED[0], ["partner"]), ([], SKEWED[1])],
    ids=["of different sizes", "apart", "one sample", "no sample"],
)
@pytest.mark.parametrize("aggregation", [1, 2])
def test_t4_two_ranks_with_a_split_model_are_one_process(ranks, groups, aggregation, each):
    """Once a rank with one sample or none waited for ever: it left out a pass in which all ranks exchange."""
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
        if how.startswith("written"):
            for _ in range(FIRST_BATCHES if "late" in how else 0):
                with own.batch(names):
                    own.backward(losses_of(model, x, y))
                own.step(optimizer)
            first = next(model.parameters())
            with torch.no_grad():
                (first.data if how == "written, data" else first.to_local()).mul_(2.0)
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
        ("written, late", "governance.optimizer"),
        ("written, data", "governance.optimizer"),
    ],
)
def test_the_guard_looks_at_what_was_gathered(ranks, how, code):
    assert ranks.run("on_rank_refused", how) == [code, code]


# --- as people split models: other optimizers, clipped, compiled, checkpointed, in bfloat16


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.05, weight_decay=0.1)


def on_rank_mode(contexts: Any, how: str) -> Any:
    rank = torch.distributed.get_rank()
    more: dict[str, Any] = {"reshard_after_forward": False} if how == "kept whole" else {}
    if how == "bfloat16":
        more["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = split(network().float() if how == "bfloat16" else network(), each=how != "bfloat16", **more)
    own = governed(model)
    optimizer = (adam if how == "decay" else sgd)(model.parameters())
    run = torch.compile(model, backend="aot_eager", dynamic=False) if how == "compiled" else model
    for index in range(STEPS):
        names, x, y = part(index, rank, SKEWED)
        x = x.to(next(model.parameters()).dtype)
        apart = how == "exchanged at the step"
        model.set_requires_gradient_sync(not apart or index % 2 == 1)
        with own.batch(names):
            if how == "checkpointed":
                logits = checkpoint(run, x, use_reentrant=False)
                own.backward(nn.functional.cross_entropy(logits, y, reduction="none"))
            else:
                own.backward(losses_of(run, x, y))
        if how == "clipped":
            own.before_step(optimizer)
            own.reduce(model.parameters())
            own.apart(ClipNorm(0.05))(model.parameters())
            optimizer.step()
            optimizer.zero_grad()
            own.after_step([optimizer])
        elif not apart:
            own.step(optimizer)
        elif index % 2 == 1:
            own.step(optimizer, batches=2)
    return whole(model), own.metrics()


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("decay", {"kind": adam}),
        ("clipped", {"most": 0.05}),
        ("kept whole", {}),
        ("exchanged at the step", {"aggregation": 2}),
        ("checkpointed", {}),
        pytest.param("compiled", {}, marks=pytest.mark.soak),
    ],
)
def test_t4_a_split_model_is_trained_as_one_process_would(ranks, how, expected):
    found = ranks.run("on_rank_mode", how)
    assert nearly(found, by_hand(SKEWED, **expected)) <= 1e-12
    assert found[0][1]["gov/leak_mass"] == 0.0


def test_gathered_in_bfloat16_a_split_model_is_near_and_nothing_leaks(ranks):
    found = ranks.run("on_rank_mode", "bfloat16")
    assert nearly(found, by_hand(SKEWED)) <= 5e-3
    assert found[0][1]["gov/leak_mass"] == 0.0
    assert found[0][1]["gov/depth"]["mass"][1][:2] == [0.0, 0.0]


def on_rank_train_naively(contexts: Any, groups: Any) -> Any:
    with means_of_ranks():
        return on_rank_train(contexts, groups)


def test_t4_the_mean_of_the_ranks_means_is_not_it_for_a_split_model(ranks):
    assert nearly(ranks.run("on_rank_train_naively", SKEWED), by_hand(SKEWED)) > 1e-3


class Beside(nn.Module):
    """A model that is called by a method of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def on_rank_other(contexts: Any, how: str) -> list[str]:
    try:
        if how == "mesh":
            governed(split(network(), mesh=init_device_mesh("cpu", (1, 2), mesh_dim_names=("replicate", "shard"))))
            return ["nothing"]
        model = split(Beside())
        register_fsdp_forward_method(model, "logits")
        names, x, y = part(0, torch.distributed.get_rank(), SKEWED)
        own = governed(model, {"rules": POLICY["rules"][:1]})
        with own.batch(names):
            own.backward(nn.functional.cross_entropy(model.logits(x), y, reduction="none"))
    except GovernanceError as error:
        return [str(one) for one in error.refusals]
    return ["nothing"]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("mesh", "0.weight is split over processes in another way than by fully_shard over all of them"),
        ("method", "inner.0.weight was gathered where no policy looks: call the model that fully_shard has split"),
    ],
)
def test_what_nobody_could_look_at_is_refused(ranks, how, said):
    """Once a model that is called by another method trained on, and the guard saw none of its gradients."""
    assert [said in str(one) for one in ranks.run("on_rank_other", how)] == [True, True]


def on_rank_plan(contexts: Any) -> list[str]:
    plans = [compile_policy(Policy.of(POLICY), parameters_of_models([one])) for one in (network(), split(network()))]
    return [plan.s_hash for plan in plans]


def test_a_split_model_has_the_matrix_of_the_whole_one(ranks):
    assert len({one for found in ranks.run("on_rank_plan") for one in found}) == 1


def on_rank_page(contexts: Any, text: str) -> Any:
    rank = torch.distributed.get_rank()
    found: dict[str, Any] = {}
    exec(text, found)
    model, reported = network(), []
    core = types.SimpleNamespace(
        distributed=types.SimpleNamespace(rank=rank),
        train=types.SimpleNamespace(report_training_metrics=lambda **one: reported.append(one)),
    )
    batches = (part(index, rank, SKEWED) for index in range(STEPS))
    found["train"](core, model, ((x, y, names) for names, x, y in batches), POLICY)
    return whole(model), [one["steps_completed"] for one in reported]


def test_the_loop_that_the_page_prints_for_fsdp2_trains_under_a_policy(ranks):
    page = Path(__file__).parents[4] / "docs" / "how-to" / "use-your-framework.md"
    (text,) = [one.split("```")[0] for one in page.read_text().split("```python") if "fully_shard(model)" in one]
    (first, told), (second, _) = ranks.run("on_rank_page", text)
    plain = by_hand(SKEWED, kind=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    assert nearly([(first, told), (second, told)], plain) <= 1e-12
    assert told == list(range(1, STEPS + 1))


# --- four ranks

FOUR = (*SKEWED, ["partner"], ["web", "trusted", "web"])


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    found = Ranks(__name__, tmp_path_factory.mktemp("four"), size=4, processes=context())
    yield found
    found.close()


def on_rank_ddp(contexts: Any, groups: Any) -> Any:
    model = nn.parallel.DistributedDataParallel(network())
    own, optimizer = governed(model), sgd(model.parameters())
    for index in range(STEPS):
        names, x, y = part(index, torch.distributed.get_rank(), groups)
        with own.batch(names):
            own.backward(losses_of(model, x, y))
        own.step(optimizer)
    return torch.cat([one.detach().reshape(-1) for one in model.parameters()]).tolist(), own.metrics()


@pytest.mark.parametrize("function", ["on_rank_ddp", pytest.param("on_rank_train", marks=pytest.mark.soak)])
def test_t4_four_ranks_are_one_process(four, function):
    found = four.run(function, FOUR)
    assert all(nearly([found[0], one], by_hand(FOUR)) <= 1e-12 for one in found[1:])
    assert found[0][1]["gov/share"] == {"trusted": 3 / 12, "web": 6 / 12, "partner": 3 / 12}
