"""Mixed precision on the CPU: bf16 autocast and a gradient scaler, to the bit against hand-written loops."""

from __future__ import annotations

import collections
import copy
import itertools
from typing import Any

import pytest
import torch
from trainer_contexts import make_context, train

from detlab.pytorch.context.lr_scheduler import LRScheduler
from detlab.pytorch.errors import TrainerError
from detlab.pytorch.parallel.amp import to_float32

STEPS = 24
OVERFLOWS = {3, 4, 11, 17}
"""Batches whose loss is so large that its scaled gradients are infinite."""


def network() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


def data(index: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(index)
    return torch.randn(6, 5, generator=generator), torch.randint(0, 3, (6,), generator=generator)


def factor(index: int) -> float:
    return 1e36 if index in OVERFLOWS else 1.0


def clip(parameters: Any) -> None:
    torch.nn.utils.clip_grad_norm_(parameters, 0.3)


def scaler_of(**changes: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", **{"init_scale": 1024.0, "growth_interval": 2, **changes})


def by_hand(aggregation: int, *, clipped: bool) -> tuple[list[float], list[torch.Tensor]]:
    """Return the scale after each batch, and the weights at the end, of a loop as torch's documentation has it."""
    torch.set_num_threads(1)
    model, scaler = network(), scaler_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scales = []
    for index in range(STEPS):
        x, y = data(index)
        with torch.autocast("cpu"):
            output = model(x)
        loss = torch.nn.functional.cross_entropy(output.float(), y) * factor(index)
        scaler.scale(loss).backward()
        if (index + 1) % aggregation == 0:
            for parameter in model.parameters():
                parameter.grad.div_(float(aggregation))
            if clipped:
                scaler.unscale_(optimizer)
                clip(model.parameters())
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        scales.append(scaler.get_scale())
    return scales, [parameter.detach() for parameter in model.parameters()]


def automatic(aggregation: int, *, clipped: bool) -> tuple[list[float], list[torch.Tensor]]:
    context = make_context(aggregation_frequency=aggregation)
    context.experimental.use_amp()
    context._scaler.load_state_dict({**context._scaler.state_dict(), "scale": 1024.0})
    context._scaler.set_growth_interval(2)
    model = context.wrap_model(network())
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    context._check_ready()

    def train_batch(index: int) -> None:
        x, y = data(index)
        context.backward(torch.nn.functional.cross_entropy(model(x), y) * factor(index))
        context.step_optimizer(optimizer, clip_grads=clip if clipped else None)

    scales = []
    for index in range(STEPS):
        train(context, index + 1, train_batch, first=index)
        scales.append(context._scaler.get_scale())
    return scales, [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize("clipped", [False, True])
@pytest.mark.parametrize("aggregation", [1, 2])
def test_use_amp_does_what_the_loop_by_hand_does(aggregation, clipped):
    scales, weights = by_hand(aggregation, clipped=clipped)
    found_scales, found_weights = automatic(aggregation, clipped=clipped)
    assert found_scales == scales
    assert all(map(torch.equal, found_weights, weights))
    assert {after / before for before, after in itertools.pairwise(scales)} == {0.5, 1.0, 2.0}


@pytest.mark.parametrize("unscale", ["never", "before"])
@pytest.mark.parametrize("clipped", [False, True])
def test_a_wrapped_scaler_does_what_the_loop_by_hand_does(clipped, unscale):
    scales, weights = by_hand(1, clipped=clipped)
    context = make_context()
    scaler = context.wrap_scaler(scaler_of())
    model = context.autocast_forward_pass(context.wrap_model(network()))
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))

    def train_batch(index: int) -> float:
        x, y = data(index)
        context.backward(scaler.scale(torch.nn.functional.cross_entropy(model(x), y) * factor(index)))
        if unscale == "before":
            scaler.unscale_(optimizer)
        context.step_optimizer(optimizer, clip_grads=clip if clipped else None, scaler=scaler)
        scaler.update()
        return scaler.get_scale()

    assert train(context, STEPS, train_batch) == scales
    assert all(map(torch.equal, model.parameters(), weights))


def test_a_batch_that_steps_nothing_leaves_the_scale():
    context = make_context()
    context.experimental.use_amp()
    model = context.wrap_model(network())
    context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    train(context, 3, lambda _: None)
    assert context._scaler.get_scale() == 65536.0


def test_one_optimizer_of_two_may_rest():
    context = make_context()
    context.experimental.use_amp()
    models = [context.wrap_model(network()) for _ in range(2)]
    optimizers = [context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1)) for model in models]

    def train_batch(index: int) -> None:
        x, y = data(index)
        for model, optimizer in list(zip(models, optimizers, strict=True))[: 1 + index % 2]:
            context.backward(torch.nn.functional.cross_entropy(model(x), y))
            context.step_optimizer(optimizer)

    train(context, 4, train_batch)
    assert context._scaler.state_dict()["_growth_tracker"] == 4


def test_a_scheduler_steps_without_warning_when_the_first_step_is_skipped():
    context = make_context()
    context.experimental.use_amp()
    model = context.wrap_model(network())
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    context.wrap_lr_scheduler(
        torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5), LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP
    )
    before = [parameter.detach().clone() for parameter in model.parameters()]

    def train_batch(index: int) -> None:
        x, _ = data(index)
        context.backward(model(x).sum() * 1e38)
        context.step_optimizer(optimizer)

    train(context, 2, train_batch)  # a warning would be an error here
    assert all(map(torch.equal, model.parameters(), before))
    assert optimizer.param_groups[0]["lr"] == 0.25


@pytest.mark.parametrize("stop", [1, 5, 12, 18])
def test_the_scale_goes_on_where_it_was(stop):
    def run(first: int, last: int, saved: dict[str, Any] | None) -> tuple[list[float], dict[str, Any]]:
        context = make_context()
        context.wrap_scaler(scaler_of())
        model = context.wrap_model(network())
        optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        if saved is not None:
            context._load_scaler_state(saved)

        def train_batch(index: int) -> float:
            x, y = data(index)
            context.backward(context._scaler.scale(torch.nn.functional.cross_entropy(model(x), y) * factor(index)))
            context.step_optimizer(optimizer, scaler=context._scaler)
            context._scaler.update()
            return context._scaler.get_scale()

        scales = train(context, last, train_batch, first=first)
        state = context._scaler_state()
        assert state is not None
        return scales, state

    calm, _ = run(0, STEPS, None)
    before, state = run(0, stop, None)
    after, _ = run(stop, STEPS, state)
    assert before + after == calm


def test_a_scale_that_does_not_fit_is_left_with_a_warning(caplog):
    context = make_context()
    context._load_scaler_state(None)
    assert context._scaler_state() is None
    assert not caplog.records
    context._load_scaler_state({"scale": 1.0})
    assert "differ in whether they scale gradients" in caplog.text
    caplog.clear()
    context.wrap_scaler(scaler_of())
    context._load_scaler_state(None)
    assert "differ in whether they scale gradients" in caplog.text
    caplog.clear()
    context = make_context()
    context.wrap_scaler(torch.amp.GradScaler("cpu", enabled=False))
    context._load_scaler_state(context._scaler_state())
    assert not caplog.records


# --- autocast


class Outputs(torch.nn.Module):
    """Gives its output in every container that is searched."""

    Pair = collections.namedtuple("Pair", "x y")

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.fc(x)
        assert y.dtype is torch.bfloat16
        return {"list": [y, 3], "pair": self.Pair(y, "text"), "tuple": (y,), "ordered": collections.OrderedDict(y=y)}


def test_outputs_come_back_in_float32_in_containers_of_the_same_kind():
    context = make_context()
    model = Outputs()
    assert context.autocast_forward_pass(model) is model
    output = model(torch.ones(3, 4))
    tensors = [output["list"][0], output["pair"].x, output["tuple"][0], output["ordered"]["y"]]
    assert {tensor.dtype for tensor in tensors} == {torch.float32}
    assert output["list"][1] == 3
    assert output["pair"].y == "text"
    assert type(output["ordered"]) is collections.OrderedDict
    assert torch.get_autocast_dtype("cpu") is torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")


def test_only_half_precision_is_changed():
    value = torch.ones(2, dtype=torch.float64)
    assert to_float32(value) is value
    assert to_float32("text") == "text"
    assert to_float32(torch.ones(2, dtype=torch.float16)).dtype is torch.float32


def test_an_autocast_model_stays_what_it_was():
    context = make_context()
    names = list(Outputs().state_dict())
    model = context.autocast_forward_pass(context.wrap_model(Outputs()))
    assert isinstance(model, Outputs)
    assert type(model).__name__ == "Outputs"
    assert list(model.state_dict()) == names
    assert context.autocast_forward_pass(model) is model
    assert len([cls for cls in type(model).__mro__ if cls.__name__ == "Outputs"]) == 2
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.fc.weight.zero_()
        twin.fc.bias.zero_()
    assert twin(torch.ones(3, 4))["tuple"][0].abs().sum() == 0
    assert model(torch.ones(3, 4))["tuple"][0].abs().sum() > 0


@pytest.mark.slow
def test_a_model_may_be_compiled_before_and_after_autocast():
    context = make_context()
    x = torch.ones(3, 5)
    plain = context.autocast_forward_pass(network())(x)
    before = context.autocast_forward_pass(torch.compile(network(), backend="eager"))
    after = torch.compile(context.autocast_forward_pass(network()), backend="eager")
    for model in (before, after):
        output = model(x)
        assert output.dtype is torch.float32
        assert torch.equal(output, plain)


def test_use_amp_also_reaches_models_that_were_wrapped_before():
    context = make_context()
    model = context.wrap_model(Outputs())
    context.experimental.use_amp()
    assert model(torch.ones(3, 4))["tuple"][0].dtype is torch.float32  # Outputs checks that it runs in bfloat16


# --- bad input


def test_a_second_scaler_is_refused():
    context = make_context()
    context.wrap_scaler(scaler_of())
    with pytest.raises(TrainerError, match="a scaler is already set"):
        context.wrap_scaler(scaler_of())
    with pytest.raises(TrainerError, match="a scaler is already set"):
        context.experimental.use_amp()
    assert context._auto_scaler is None


def test_what_is_no_scaler_is_refused():
    with pytest.raises(TrainerError, match="a gradient scaler needs scale, unscale_, step, update"):
        make_context().wrap_scaler(1024)


def test_unscaling_in_clip_grads_is_explained():
    context = make_context()
    scaler = context.wrap_scaler(scaler_of())
    model = context.wrap_model(network())
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    context.backward(scaler.scale(model(torch.ones(3, 5)).sum()))
    with pytest.raises(TrainerError, match=r"clip_grads calls scaler.unscale_\(\)"):
        context.step_optimizer(optimizer, clip_grads=lambda _: scaler.unscale_(optimizer), scaler=scaler)


def test_an_error_in_clip_grads_is_the_trials_own():
    context = make_context()
    model = context.wrap_model(network())
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    def clip_grads(_: Any) -> None:
        raise RuntimeError("mine")

    context.backward(model(torch.ones(3, 5)).sum())
    with pytest.raises(RuntimeError, match="mine"):
        context.step_optimizer(optimizer, clip_grads=clip_grads)


def test_apex_is_refused_with_a_way_out():
    with pytest.raises(TrainerError, match=r"apex is not supported(.|\n)*use_amp\(\)"):
        make_context().configure_apex_amp([], [], opt_level="O1")


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.torch.jit.script:FutureWarning")
def test_a_script_module_cannot_be_put_in_autocast():
    with pytest.raises(TrainerError, match="forward pass of a RecursiveScriptModule cannot be put in autocast"):
        make_context().autocast_forward_pass(torch.jit.script(torch.nn.Linear(1, 1)))


def test_autocast_of_something_else_is_refused():
    with pytest.raises(TrainerError, match=r"must be a torch.nn.Module, not 'model'"):
        make_context().autocast_forward_pass("model")
