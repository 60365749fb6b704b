"""`backward` and `step_optimizer` against formulas, for a model of one weight."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from trainer_contexts import BATCHES, Line, make_context, train

from detlab.pytorch.errors import TrainerError
from detlab.pytorch.parallel.optimizer_step import drop_gradients

LR = 0.125


def linear(weight: float = 3.0, lr: float = LR, *, wrap: dict[str, Any] | None = None, **changes: Any) -> Any:
    context = make_context(**changes)
    model = context.wrap_model(Line(weight))
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=lr), **(wrap or {}))
    context._check_ready()
    return context, model, optimizer


def test_one_batch_again_and_again_follows_the_geometric_closed_form():
    context, model, optimizer = linear()
    batch = BATCHES[0]

    def train_batch(_: int) -> tuple[float, float]:
        loss = batch.tensor_loss(model)
        context.backward(loss)
        context.step_optimizer(optimizer)
        return loss.item(), model.w.item()

    seen = train(context, 12, train_batch)
    best, ratio = batch.b / batch.a, 1 - LR * batch.a
    for step, (loss, weight) in enumerate(seen):
        before = best + ratio**step * (3.0 - best)
        assert loss == pytest.approx(batch.loss(before), abs=1e-13)
        assert weight == pytest.approx(best + ratio ** (step + 1) * (3.0 - best), abs=1e-13)
    assert model.w.grad is None


@pytest.mark.parametrize("average", [True, False, None])
@pytest.mark.parametrize("aggregation", [1, 2, 3])
def test_an_aggregation_steps_once_with_the_mean_or_the_sum(aggregation, average):
    context, model, optimizer = linear(
        aggregation_frequency=aggregation, wrap={"average_aggregated_gradients": average}
    )

    def train_batch(index: int) -> tuple[float, float]:
        loss = BATCHES[index].tensor_loss(model)
        context.backward(loss)
        context.step_optimizer(optimizer)
        return loss.item(), model.w.item()

    seen = train(context, 6, train_batch)
    weight = 3.0
    for start in range(0, 6, aggregation):
        group = BATCHES[start : start + aggregation]
        for offset, batch in enumerate(group):
            assert seen[start + offset][0] == pytest.approx(batch.loss(weight), abs=1e-13)
            if offset < aggregation - 1:
                assert seen[start + offset][1] == pytest.approx(weight, abs=1e-13)
        divisor = 1 if average is False else aggregation
        weight -= LR * sum(batch.gradient(weight) for batch in group) / divisor
        assert seen[start + aggregation - 1][1] == pytest.approx(weight, abs=1e-13)


def test_clipping_sees_the_averaged_gradient_and_the_step_uses_what_it_left():
    context, model, optimizer = linear(aggregation_frequency=2)
    found: list[float] = []

    def clip(parameters: Any) -> None:
        found.extend(parameter.grad.item() for parameter in parameters)
        torch.nn.utils.clip_grad_norm_(parameters, 0.5)

    def train_batch(index: int) -> float:
        context.backward(BATCHES[index].tensor_loss(model))
        context.step_optimizer(optimizer, clip_grads=clip)
        return model.w.item()

    seen = train(context, 6, train_batch)
    weight, means = 3.0, []
    for start in range(0, 6, 2):
        mean = sum(batch.gradient(weight) for batch in BATCHES[start : start + 2]) / 2
        means.append(mean)
        # clip_grad_norm_ divides by norm + 1e-6, and only if the norm is over the limit
        weight -= LR * mean * min(1.0, 0.5 / (abs(mean) + 1e-6))
        assert seen[start + 1] == pytest.approx(weight, abs=1e-12)
    assert found == pytest.approx(means, abs=1e-13)
    assert max(map(abs, means)) > 0.5


def test_two_optimizers_of_two_models_step_apart():
    context = make_context(aggregation_frequency=2)
    models = [context.wrap_model(Line(weight)) for weight in (3.0, -1.0)]
    rates = (0.125, 0.25)
    optimizers = [
        context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=lr), average_aggregated_gradients=mean)
        for model, lr, mean in zip(models, rates, (True, False), strict=True)
    ]
    context._check_ready()

    def train_batch(index: int) -> None:
        for model, optimizer in zip(models, optimizers, strict=True):
            context.backward(BATCHES[index].tensor_loss(model))
            context.step_optimizer(optimizer)

    train(context, 4, train_batch)
    for model, lr, divisor, initial in zip(models, rates, (2, 1), (3.0, -1.0), strict=True):
        weight = initial
        for start in (0, 2):
            pair = BATCHES[start : start + 2]
            weight -= lr * sum(batch.gradient(weight) for batch in pair) / divisor
        assert model.w.item() == pytest.approx(weight, abs=1e-13)


@pytest.mark.parametrize("aggregation", [1, 2])
def test_several_backward_passes_of_a_batch_are_summed(aggregation):
    context, model, optimizer = linear(aggregation_frequency=aggregation, wrap={"backward_passes_per_step": 2})

    def train_batch(index: int) -> None:
        context.backward(BATCHES[index].tensor_loss(model))
        context.backward(BATCHES[index + 1].tensor_loss(model))
        context.step_optimizer(optimizer)

    train(context, 4, train_batch)
    weight = 3.0
    for start in range(0, 4, aggregation):
        pairs = [(BATCHES[i], BATCHES[i + 1]) for i in range(start, start + aggregation)]
        weight -= LR * sum(one.gradient(weight) + two.gradient(weight) for one, two in pairs) / aggregation
    assert model.w.item() == pytest.approx(weight, abs=1e-13)


def test_gradients_are_kept_when_asked_for():
    context, model, optimizer = linear()

    def train_batch(_: int) -> float:
        context.backward(BATCHES[0].tensor_loss(model))
        context.step_optimizer(optimizer, auto_zero_grads=False)
        return model.w.item()

    first, second = train(context, 2, train_batch)
    one = BATCHES[0].gradient(3.0)
    assert first == pytest.approx(3.0 - LR * one, abs=1e-13)
    assert second == pytest.approx(first - LR * (one + BATCHES[0].gradient(first)), abs=1e-13)


def test_a_given_gradient_and_graphs_that_stay_are_passed_on():
    context, model, optimizer = linear()

    def train_batch(_: int) -> None:
        output = model(torch.tensor([1.0, 2.0], dtype=torch.float64))
        context.backward(output, gradient=torch.tensor([0.5, 0.25], dtype=torch.float64), retain_graph=True)
        context.backward(output.sum())
        context.step_optimizer(optimizer)

    train(context, 1, train_batch)
    assert model.w.item() == pytest.approx(3.0 - LR * ((0.5 + 2 * 0.25) + (1.0 + 2.0)), abs=1e-13)


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
def test_create_graph_keeps_the_graph_and_makes_gradients_differentiable():
    context, model, _ = linear()
    context._begin_batch(0, 0, True, False)
    context.backward((model.w**3).sum(), create_graph=True)
    (second,) = torch.autograd.grad(model.w.grad.sum(), model.w)
    assert second.item() == pytest.approx(6 * 3.0)
    model.w.grad = None


def test_gradients_in_the_middle_of_an_aggregation_can_be_taken_away_and_put_back():
    def run(stop: int | None) -> float:
        context, model, optimizer = linear(aggregation_frequency=3)

        def train_batch(index: int) -> None:
            context.backward(BATCHES[index].tensor_loss(model))
            context.step_optimizer(optimizer)

        train(context, 6 if stop is None else stop, train_batch)
        if stop is None:
            return model.w.item()
        gradients = context._pending_gradients()
        saved = None if gradients is None else [None if g is None else g.clone() for g in gradients]
        assert (saved is None) == (stop % 3 == 0)
        weight = model.w.item()
        context, model, optimizer = linear(weight, aggregation_frequency=3)
        assert context._pending_gradients() is None
        if saved is not None:
            context._restore_gradients(saved)
        train(context, 6, train_batch, first=stop)
        return model.w.item()

    calm = run(None)
    assert [run(stop) for stop in range(1, 6)] == [calm] * 5


def test_an_optimizer_over_part_of_the_parameters_divides_no_gradient_that_is_not_there():
    context = make_context(aggregation_frequency=2)
    model = context.wrap_model(torch.nn.ModuleDict({"used": Line(3.0), "unused": Line(1.0)}))
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=LR))

    def train_batch(index: int) -> None:
        context.backward(BATCHES[index].tensor_loss(model["used"]))
        context.step_optimizer(optimizer)

    train(context, 2, train_batch)
    assert model["unused"].w.item() == 1.0
    expected = 3.0 - LR * (BATCHES[0].gradient(3.0) + BATCHES[1].gradient(3.0)) / 2
    assert model["used"].w.item() == pytest.approx(expected, abs=1e-13)


# --- bad input


def test_an_optimizer_that_was_not_wrapped_is_named():
    context, model, _ = linear()
    context._begin_batch(0, 0, True, False)
    with pytest.raises(TrainerError, match=r"this Adam was not given to wrap_optimizer\(\) \(wrapped: SGD\)"):
        context.step_optimizer(torch.optim.Adam(model.parameters()))


def test_gradients_cannot_be_kept_under_aggregation():
    context, _, optimizer = linear(aggregation_frequency=2)
    context._begin_batch(0, 0, True, False)
    with pytest.raises(TrainerError, match=r"auto_zero_grads=False.*aggregation_frequency 1, not 2"):
        context.step_optimizer(optimizer, auto_zero_grads=False)


def test_a_step_before_training_is_refused_under_aggregation():
    context, _, optimizer = linear(aggregation_frequency=2)
    with pytest.raises(TrainerError, match="training has not started"):
        context.step_optimizer(optimizer)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (1.5, "must be a tensor, not 1.5"),
        (torch.zeros(2, requires_grad=True), r"shape \(2,\), and a gradient was not given"),
        (torch.tensor(1.0), "depends on no parameter"),
    ],
)
def test_what_cannot_be_differentiated_is_said(loss, message):
    context, _, _ = linear()
    with pytest.raises(TrainerError, match=message):
        context.backward(loss)


def test_not_a_number_passes_through_as_torch_lets_it():
    context, model, optimizer = linear()

    def train_batch(_: int) -> None:
        context.backward(BATCHES[0].tensor_loss(model) * math.nan)
        context.step_optimizer(optimizer)

    train(context, 1, train_batch)
    assert math.isnan(model.w.item())


def test_gradients_of_other_parameters_are_not_restored():
    context, _, _ = linear(aggregation_frequency=2)
    with pytest.raises(TrainerError, match=r"2 gradient\(s\), this trial has 1"):
        context._restore_gradients([None, None])


def test_an_optimizer_with_a_zero_grad_of_its_own_keeps_it() -> None:
    called = []

    class Own(torch.optim.SGD):
        def zero_grad(self, set_to_none: bool = True) -> None:
            called.append("class")
            super().zero_grad(set_to_none)

    weight = torch.nn.Parameter(torch.ones(1))
    for optimizer in (Own([weight], lr=0.1), torch.optim.SGD([weight], lr=0.1)):
        weight.grad = torch.ones(1)
        drop_gradients(optimizer)
        assert weight.grad is None
    assert called == ["class"]
    patched = torch.optim.SGD([weight], lr=0.1)
    patched.zero_grad = lambda set_to_none=True: called.append("instance")
    drop_gradients(patched)
    assert called == ["class", "instance"]
