"""Two processes over gloo: gradients against a float64 reference of one process, and what is sent when.

Functions named `on_rank_…` run in both processes; tensors come back as lists.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from trainer_rank_network import (
    STEPS,
    TOLERANCE,
    Network,
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

# --- gradients


def on_rank_train(make_context: Any, aggregation: int, average: bool) -> list[float]:
    context = make_context(aggregation_frequency=aggregation)
    rank = context.distributed.rank
    model = context.wrap_model(network())
    optimizer = context.wrap_optimizer(sgd(model), average_aggregated_gradients=average)
    context._check_ready()

    def train_batch(index: int) -> None:
        context.backward(total(model(data(index, rank))))
        context.step_optimizer(optimizer)

    train(context, train_batch)
    return weights(model).tolist()


@pytest.mark.parametrize(("aggregation", "average"), [(1, True), (2, True), (3, False)])
def test_two_ranks_train_as_one_process_on_whole_batches(ranks, aggregation, average):
    assert_equal_to(ranks.run("on_rank_train", aggregation, average), reference(aggregation, average=average))


def on_rank_different_models(make_context: Any) -> list[float]:
    context = make_context()
    torch.manual_seed(context.distributed.rank)
    model = context.wrap_model(Network())
    torch.manual_seed(50 + context.distributed.rank)
    frozen = torch.nn.BatchNorm1d(3)
    frozen.weight.data.normal_()
    frozen.running_mean.normal_()
    frozen = context.wrap_model(frozen.requires_grad_(False))
    assert type(frozen) is torch.nn.BatchNorm1d
    return [*weights(model).tolist(), *weights(frozen).tolist(), *frozen.running_mean.tolist()]


def test_all_ranks_start_from_the_chiefs_values_also_in_models_that_are_not_trained(ranks):
    one, two = ranks.run("on_rank_different_models")
    assert one == two


def on_rank_count(make_context: Any) -> list[Any]:
    context = make_context(aggregation_frequency=3)
    rank = context.distributed.rank
    model = context.wrap_model(torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4)).double())
    optimizer = context.wrap_optimizer(sgd(model))
    buckets, buffers = count_buckets(model), count_buffers(model)
    log = []

    def train_batch(index: int) -> None:
        buckets.clear()
        buffers.clear()
        with counted() as calls:
            context.backward(model(data(index, rank)).square().mean())
            context.step_optimizer(optimizer)
        log.append((len(buckets), len(buffers), *calls.values()))

    train(context, train_batch)
    return log


def test_inner_steps_of_an_aggregation_send_nothing(ranks):
    for log in ranks.run("on_rank_count"):
        nothing, once = (0, 0, 0, 0), (1, 1, 0, 0)
        assert log == [nothing, nothing, once, nothing, nothing, once]


def on_rank_compressed(make_context: Any, passes: int) -> list[Any]:
    context = make_context()
    rank = context.distributed.rank
    model = context.wrap_model(network().float())
    optimizer = context.wrap_optimizer(sgd(model), passes, fp16_compression=True)
    other = context.wrap_optimizer(torch.optim.SGD(model.heads.parameters(), lr=0.0), fp16_compression=True)
    context._check_ready()

    def train_batch(index: int) -> None:
        context.backward(total(model(data(index, rank).float())))
        context.step_optimizer(other, auto_zero_grads=False)
        context.step_optimizer(optimizer)

    train(context, train_batch)
    return weights(model).tolist()


@pytest.mark.parametrize("passes", [1, 2])
def test_compressed_gradients_are_close_and_no_more(ranks, passes):
    found = ranks.run("on_rank_compressed", passes)
    assert_equal_to(found, reference(), tolerance=2e-3)
    # float32 alone would be a thousand times closer: fp16 has a relative step of 2**-11
    assert (torch.tensor(found[0], dtype=torch.float64) - reference()).abs().max() > 2e-5


# --- gradients that DDP does not exchange


def on_rank_two_passes(make_context: Any, how: str, aggregation: int) -> list[Any]:
    context = make_context(aggregation_frequency=aggregation)
    rank = context.distributed.rank
    model = context.wrap_model(network())
    optimizer = context.wrap_optimizer(sgd(model), 2 if how == "declared" else 1)
    buckets = count_buckets(model)
    sent = []

    def train_batch(index: int) -> None:
        buckets.clear()
        with counted() as calls:
            if how == "method":
                context.backward(model.loss_of(data(index, rank)))
            elif how == "declared":
                first, second = model(data(index, rank))
                context.backward(first.square().mean(), retain_graph=True)
                context.backward(second.sin().mean())
            else:
                loss = total(model(data(index, rank)))
                context.backward(loss / 4, retain_graph=True)
                context.backward(loss * 0.75)
            context.step_optimizer(optimizer)
        sent.append((len(buckets), calls["all_reduce"]))

    train(context, train_batch)
    return [sent, weights(model).tolist()]


@pytest.mark.parametrize("aggregation", [1, 2])
@pytest.mark.parametrize("how", ["declared", "undeclared", "method"])
def test_ranks_do_not_drift_apart_whatever_way_gradients_take(ranks, how, aggregation):
    """DDP alone exchanges nothing when a method of the module is called, and only the first of two passes."""
    found = ranks.run("on_rank_two_passes", how, aggregation)
    assert_equal_to([values for _, values in found], reference(aggregation))
    expected = (1, 1) if how == "undeclared" else (0, 1)
    for sent, _ in found:
        assert sent == [expected if (index + 1) % aggregation == 0 else (0, 0) for index in range(STEPS)]


def on_rank_half_a_pass(make_context: Any) -> str:
    context = make_context()
    model = context.wrap_model(network())
    context.wrap_optimizer(sgd(model))
    context._begin_batch(0, 0, True, False)
    first, second = model(data(0))
    context.backward(first.sum(), retain_graph=True)
    try:
        context.backward(second.sum())
    except Exception as error:
        return str(error)
    return "nothing was raised"


def test_two_passes_that_ddp_cannot_tell_apart_are_to_be_declared(ranks):
    for said in ranks.run("on_rank_half_a_pass"):
        assert "wrap_optimizer(optimizer, backward_passes_per_step=2)" in said


def on_rank_unfrozen(make_context: Any) -> list[float]:
    context = make_context()
    rank = context.distributed.rank
    model = network()
    model.trunk.requires_grad_(False)
    model = context.wrap_model(model)
    model.trunk.requires_grad_(True)
    optimizer = context.wrap_optimizer(sgd(model))

    def train_batch(index: int) -> None:
        context.backward(total(model(data(index, rank))))
        context.step_optimizer(optimizer)

    train(context, train_batch)
    return weights(model).tolist()


def test_parameters_that_were_frozen_when_the_model_was_wrapped_are_shared_once_they_train(ranks):
    assert_equal_to(ranks.run("on_rank_unfrozen"), reference())


def on_rank_some_without_gradient(make_context: Any) -> list[Any]:
    context = make_context()
    rank = context.distributed.rank
    model = context.wrap_model(network())
    optimizer = context.wrap_optimizer(sgd(model), backward_passes_per_step=2)
    context._begin_batch(0, 0, True, False)
    x = data(0, rank)
    outputs = model(x)
    if rank == 0:
        context.backward(outputs[0].sum())
    seen: list[Any] = []
    context.step_optimizer(
        optimizer, clip_grads=lambda ps: seen.extend(None if p.grad is None else p.grad.clone() for p in ps)
    )
    expected = network()
    expected(data(0, 0))[0].sum().backward()
    for found, parameter in zip(seen, expected.parameters(), strict=True):
        assert (found is None) == (parameter.grad is None)
        if found is not None:
            torch.testing.assert_close(found, parameter.grad / 2, rtol=0, atol=TOLERANCE)
    return [value is None for value in seen]


def test_a_gradient_that_one_rank_lacks_counts_as_zero_and_one_that_all_lack_stays_away(ranks):
    assert ranks.run("on_rank_some_without_gradient") == [[False] * 4 + [True] * 2] * 2


def on_rank_unused(make_context: Any) -> list[float]:
    context = make_context()
    rank = context.distributed.rank
    context.experimental.find_unused_parameters()
    model = context.wrap_model(network())
    optimizer = context.wrap_optimizer(sgd(model))

    def train_batch(index: int) -> None:
        context.backward(model(data(index, rank))[index % 2].square().mean())
        context.step_optimizer(optimizer)

    train(context, train_batch)
    return weights(model).tolist()


def test_heads_may_take_turns_with_find_unused_parameters(ranks):
    model = network()
    optimizer = sgd(model)
    for index in range(STEPS):
        model(data(index))[index % 2].square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert_equal_to(ranks.run("on_rank_unused"), weights(model))


def on_rank_sparse(make_context: Any) -> str:
    context = make_context()
    model = context.wrap_model(torch.nn.Embedding(4, 2, sparse=True))
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1), backward_passes_per_step=2)
    context._begin_batch(0, 0, True, False)
    context.backward(model(torch.tensor([1])).sum())
    try:
        context.step_optimizer(optimizer)
    except Exception as error:
        return str(error)
    return "nothing was raised"


def test_sparse_gradients_at_the_step_are_refused(ranks):
    for said in ranks.run("on_rank_sparse"):
        assert "sparse gradients are exchanged by the model's backward pass only" in said


def on_rank_adversaries(make_context: Any) -> list[Any]:
    """Train two models with a detached pass between them, as a GAN does."""
    context = make_context()
    rank = context.distributed.rank
    torch.manual_seed(5)
    maker = context.wrap_model(torch.nn.Linear(5, 5).double())
    judge = context.wrap_model(torch.nn.Linear(5, 1).double())
    optimizers = [context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1)) for model in (maker, judge)]
    sent = [count_buckets(maker), count_buckets(judge)]
    calls: dict[str, int] = {}

    def train_batch(index: int) -> None:
        nonlocal calls
        with counted() as calls:
            made = maker(data(index, rank))
            context.backward(judge(made).tanh().mean())
            context.step_optimizer(optimizers[0])
            optimizers[1].zero_grad()
            fakes, reals = judge(made.detach()), judge(data(index + 50, rank))
            context.backward(reals.tanh().mean() - fakes.tanh().mean())
            context.step_optimizer(optimizers[1])
        assert calls == {"all_reduce": 0, "broadcast": 0}

    train(context, train_batch)
    return [[len(buckets) for buckets in sent], weights(maker).tolist() + weights(judge).tolist()]


def test_two_models_that_train_against_each_other(ranks):
    torch.manual_seed(5)
    maker, judge = torch.nn.Linear(5, 5).double(), torch.nn.Linear(5, 1).double()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (maker, judge)]
    for index in range(STEPS):
        made = maker(data(index))
        judge(made).tanh().mean().backward()
        optimizers[0].step()
        for optimizer in optimizers:
            optimizer.zero_grad()
        (judge(data(index + 50)).tanh().mean() - judge(made.detach()).tanh().mean()).backward()
        optimizers[1].step()
        optimizers[1].zero_grad()
    found = ranks.run("on_rank_adversaries")
    assert [sent for sent, _ in found] == [[STEPS, 2 * STEPS]] * 2
    assert_equal_to([values for _, values in found], torch.cat([weights(maker), weights(judge)]))


# --- mixed precision


def on_rank_overflow(make_context: Any, passes: int) -> list[Any]:
    context = make_context()
    rank = context.distributed.rank
    context.experimental.use_amp()
    model = context.wrap_model(network().float())
    optimizer = context.wrap_optimizer(sgd(model), passes)
    before = weights(model).tolist()
    scales = []

    def train_batch(index: int) -> None:
        factor = 1e38 if index == rank else 1.0  # overflows on one rank, then on the other
        context.backward(total(model(data(index, rank).float())) * factor)
        context.step_optimizer(optimizer)

    for index in range(3):
        train(context, train_batch, index, index + 1)
        scales.append(context._scaler.get_scale())
        if index < 2:
            assert weights(model).tolist() == before
    return [scales, weights(model).tolist()]


@pytest.mark.parametrize("passes", [1, 2])
def test_a_step_that_overflows_on_one_rank_is_skipped_on_all(ranks, passes):
    one, two = ranks.run("on_rank_overflow", passes)
    assert one == two
    assert one[0] == [32768.0, 16384.0, 16384.0]
