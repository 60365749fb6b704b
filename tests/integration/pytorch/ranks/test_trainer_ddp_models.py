"""Two processes over gloo: models that are evaluated, compiled, saved and gone on with.

Functions named `on_rank_…` run in both processes; tensors come back as lists.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from trainer_rank_network import (
    STEPS,
    TOLERANCE,
    assert_equal_to,
    count_buckets,
    count_buffers,
    counted,
    data,
    network,
    reference,
    sgd,
    total,
    train,
    weights,
)

from detlab.pytorch.parallel.unwrapping import model_state
from detlab.pytorch.weighted_step import weighted_gradients

# --- evaluation


def on_rank_evaluate(make_context: Any) -> list[Any]:
    context = make_context()
    rank = context.distributed.rank
    torch.manual_seed(2)
    model = context.wrap_model(torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4)).double())
    optimizer = context.wrap_optimizer(sgd(model))

    def train_batch(index: int) -> None:
        context.backward(model(data(index, rank)).square().mean())
        context.step_optimizer(optimizer)

    seen, buffers = [], count_buffers(model)
    for start in (0, 3):
        context._train()
        train(context, train_batch, start, start + 3)
        context._eval()
        buffers.clear()
        with counted() as calls, torch.no_grad():
            for index in range(4 * rank):
                model(data(index))
        assert calls == {"all_reduce": 0, "broadcast": 0}
        seen.append(model(data(0)).tolist())
        assert buffers == []
    context._train()
    with torch.no_grad():
        for _ in range(2 * rank):  # also in training mode nothing is sent without gradients
            model(data(0))
    assert buffers == []
    return seen


def test_ranks_evaluate_the_same_model_with_different_numbers_of_batches(ranks):
    one, two = ranks.run("on_rank_evaluate")
    assert one == two


# --- state, names, torch.compile


def on_rank_names(make_context: Any) -> list[Any]:
    context = make_context()
    model = context.wrap_model(network())
    assert model.trunk is model.module.trunk
    assert model.heads[1].out_features == 3
    try:
        model.nothing_of_this_name  # noqa: B018  (the look itself raises)
    except AttributeError as error:
        said = str(error)
    twin = context.wrap_model(torch.nn.Linear(1, 1))
    assert list(twin.state_dict()) == ["module.weight", "module.bias"]
    return [said, [list(model_state(one)) for one in context.models]]


def test_the_modules_attributes_are_reached_and_its_names_are_saved(ranks):
    for said, names in ranks.run("on_rank_names"):
        assert said == "'Network' object has no attribute 'nothing_of_this_name'"
        assert names == [list(network().state_dict()), ["weight", "bias"]]


def on_rank_compiled(make_context: Any, backend: str, when: str) -> list[Any]:
    torch._dynamo.reset()
    context = make_context(aggregation_frequency=2)
    rank = context.distributed.rank
    model: Any = network()
    if when == "before":
        model = torch.compile(model, backend=backend)
    model = context.wrap_model(model)
    optimizer = context.wrap_optimizer(sgd(model))
    buckets = count_buckets(model)
    if when == "after":
        model = torch.compile(model, backend=backend)
    context._check_ready()
    context._train()
    calls: dict[str, int] = {}

    def train_batch(index: int) -> None:
        nonlocal calls
        with counted() as calls:
            context.backward(total(model(data(index, rank))))
            context.step_optimizer(optimizer)
        assert calls["all_reduce"] == 0

    train(context, train_batch)
    context._eval()
    with torch.no_grad():
        for _ in range(1 + rank):
            model(data(0))
    return [len(buckets), list(model_state(context.models[0])), weights(model).tolist()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "when"), [("eager", "before"), ("eager", "after"), ("aot_eager", "before"), ("aot_eager", "after")]
)
def test_a_compiled_model_is_shared_as_a_plain_one(ranks, backend, when):
    found = ranks.run("on_rank_compiled", backend, when)
    assert_equal_to([values for *_, values in found], reference(2))
    for buckets, names, _ in found:
        assert buckets == STEPS // 2
        assert names == list(network().state_dict())


def on_rank_interrupted(make_context: Any, stop: int) -> list[float]:
    rank = 0

    def fresh() -> Any:
        nonlocal rank
        context = make_context(aggregation_frequency=4)
        rank = context.distributed.rank
        model = context.wrap_model(network())
        return context, model, context.wrap_optimizer(sgd(model))

    context, model, optimizer = fresh()

    def train_batch(index: int) -> None:
        context.backward(total(model(data(index, rank))))
        context.step_optimizer(optimizer)

    train(context, train_batch, last=stop)
    gradients = copy.deepcopy(context._pending_gradients())
    context, model, optimizer = fresh()
    if gradients is not None:
        context._restore_gradients(gradients)
    train(context, train_batch, stop, 4)
    return weights(model).tolist()


def test_gradients_of_an_unfinished_aggregation_go_on_to_the_bit(ranks):
    calm = ranks.run("on_rank_interrupted", 0)
    for stop in (1, 3):
        assert ranks.run("on_rank_interrupted", stop) == calm


# --- steps that not all ranks have samples for


def normed() -> torch.nn.Module:
    torch.manual_seed(5)
    layers = [torch.nn.Linear(5, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), torch.nn.Dropout(0.3)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(6, 1)).double()


def on_rank_weighted(make_context: Any, how: str) -> list[Any]:
    torch._dynamo.reset()
    context = make_context()
    rank = context.distributed.rank
    model: Any = context.wrap_model(normed())
    passes = 2 if how == "exchanged at the step" else 1
    optimizer = context.wrap_optimizer(sgd(model), backward_passes_per_step=passes)
    if how == "compiled":
        model = torch.compile(model, backend="aot_eager")
    context._train()
    found = []

    def train_batch(index: int) -> None:
        x = data(index, rank)
        torch.manual_seed(index + rank)
        if index == 0 and rank == 1:
            x = x * torch.nan
        loss = model(x).square().mean()
        if how == "plain":
            inner = torch.autograd.grad(loss, context.models[0].module[4].bias, retain_graph=True)
            found.append(inner[0].item())
        if how == "without the context":
            loss.backward()
        else:
            context.backward(loss)
        context.step_optimizer(optimizer)

    context._begin_batch(0, 0, False, True)
    with weighted_gradients(context._all_parameters(), 2.0 * (rank == 0)):
        train_batch(0)
    context._end_batch(0)
    after_one = weights(model).tolist()
    train(context, train_batch, 1, 2)
    return [after_one, weights(model).tolist(), found]


@pytest.mark.parametrize("how", ["plain", "compiled", "exchanged at the step", "without the context"])
def test_a_rank_of_weight_zero_leaves_the_step_to_the_other(ranks, how):
    (one, later, inner), (same, later_too, _) = ranks.run("on_rank_weighted", how)
    model = normed()
    optimizer = sgd(model)
    torch.manual_seed(0)
    loss = model(data(0, 0)).square().mean()
    loss.backward()
    if inner:  # what autograd.grad() gives is not weighted
        assert inner[0] == pytest.approx(model[4].bias.grad.item(), abs=TOLERANCE)
    optimizer.step()
    assert one == same
    assert one == pytest.approx(weights(model).tolist(), abs=TOLERANCE)
    assert later == later_too != one  # of both again, from weights that no NaN has reached


# --- bad input


def on_rank_ddp_given(make_context: Any) -> str:
    model = torch.nn.parallel.DistributedDataParallel(network())
    try:
        make_context().wrap_model(model)
    except Exception as error:
        return str(error)
    return "nothing was raised"


def test_a_model_in_ddp_is_refused(ranks):
    for said in ranks.run("on_rank_ddp_given"):
        assert "give the bare model, without DistributedDataParallel" in said
