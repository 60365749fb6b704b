"""When learning rate schedulers step, in each mode, with and without aggregation."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler
from trainer_contexts import BATCHES, Line, make_context, train

from detlab.pytorch.checkpoint import codec
from detlab.pytorch.context.lr_scheduler import LRScheduler
from detlab.pytorch.errors import TrainerError

Mode = LRScheduler.StepMode
BATCH_COUNT = 30


def scheduled(mode: Mode, frequency: int, aggregation: int, make: Any = None) -> Any:
    """Return context, optimizer and scheduler; each step of the scheduler halves the learning rate of 1."""
    context = make_context(aggregation_frequency=aggregation)
    model = context.wrap_model(Line(3.0))
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    scheduler = (make or (lambda one: lr_scheduler.StepLR(one, step_size=1, gamma=0.5)))(optimizer)
    assert context.wrap_lr_scheduler(scheduler, mode, frequency) is scheduler

    def train_batch(_: int) -> None:
        context.backward((model.w * 0).sum())
        context.step_optimizer(optimizer)

    return context, optimizer, scheduler, train_batch


def run(context: Any, scheduler: Any, train_batch: Any, epoch_length: int, first: int = 0, *, told: bool = True) -> Any:
    """Return how often the scheduler has stepped after each batch."""
    counts = []
    for batch_idx in range(first, BATCH_COUNT):
        epoch, place = divmod(batch_idx, epoch_length)
        context._begin_batch(batch_idx, epoch, place == 0, place == epoch_length - 1)
        train_batch(batch_idx)
        context._end_batch(epoch_length - 1 - place if told else None)
        counts.append(scheduler._step_count - 1)
    return counts


def last_steps(epoch_length: int, aggregation: int) -> list[tuple[int, int]]:
    """Return (epoch, batch of the optimizer step at which it counts), from the definition."""
    steps = [batch for batch in range(BATCH_COUNT) if (batch + 1) % aggregation == 0]
    found = []
    for epoch in range(BATCH_COUNT // epoch_length + 1):
        within = [batch for batch in steps if batch // epoch_length == epoch]
        later = [batch for batch in steps if batch // epoch_length > epoch]
        if within:
            last = max(within)
            if (last + aggregation) // epoch_length > epoch:  # the next step, even beyond these batches, is elsewhere
                found.append((epoch, last))
        elif later:
            found.append((epoch, min(later)))
    return found


GRID = list(itertools.product((1, 2, 3), (1, 2, 4), (1, 3, 5, 8)))


@pytest.mark.parametrize(("frequency", "aggregation", "epoch_length"), GRID)
def test_each_epoch(frequency, aggregation, epoch_length):
    context, optimizer, scheduler, train_batch = scheduled(Mode.STEP_EVERY_EPOCH, frequency, aggregation)
    counts = run(context, scheduler, train_batch, epoch_length)
    due = [batch for epoch, batch in last_steps(epoch_length, aggregation) if (epoch + 1) % frequency == 0]
    assert counts == [sum(at <= batch for at in due) for batch in range(BATCH_COUNT)]
    assert optimizer.param_groups[0]["lr"] == 0.5 ** counts[-1]


@pytest.mark.parametrize(("frequency", "aggregation"), list(itertools.product((1, 2, 3), (1, 2, 4))))
def test_each_batch(frequency, aggregation):
    context, _, scheduler, train_batch = scheduled(Mode.STEP_EVERY_BATCH, frequency, aggregation)
    counts = run(context, scheduler, train_batch, 7)
    assert counts == [(batch + 1) // aggregation * aggregation // frequency for batch in range(BATCH_COUNT)]


@pytest.mark.parametrize(("frequency", "aggregation"), list(itertools.product((1, 2, 3), (1, 2, 4))))
def test_each_optimizer_step_is_counted_as_one_also_under_aggregation(frequency, aggregation):
    context, _, scheduler, train_batch = scheduled(Mode.STEP_EVERY_OPTIMIZER_STEP, frequency, aggregation)
    counts = run(context, scheduler, train_batch, 7)
    assert counts == [(batch + 1) // aggregation // frequency for batch in range(BATCH_COUNT)]


def test_manual_never():
    context, _, scheduler, train_batch = scheduled(Mode.MANUAL_STEP, 1, 1)
    assert run(context, scheduler, train_batch, 7) == [0] * BATCH_COUNT


def test_of_two_optimizers_each_scheduler_counts_its_own():
    context = make_context()
    models = [context.wrap_model(Line(1.0)) for _ in range(2)]
    optimizers = [context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=1.0)) for model in models]
    schedulers = [lr_scheduler.StepLR(optimizer, 1) for optimizer in optimizers]
    for scheduler in schedulers:
        context.wrap_lr_scheduler(scheduler, Mode.STEP_EVERY_OPTIMIZER_STEP)

    def train_batch(index: int) -> None:
        for number, every in ((0, 1), (1, 3)):
            if index % every == 0:
                context.backward((models[number].w * 0).sum())
                context.step_optimizer(optimizers[number])

    train(context, 9, train_batch)
    assert [scheduler._step_count - 1 for scheduler in schedulers] == [9, 3]


def test_the_end_of_an_epoch_of_unknown_length_is_known_with_its_last_batch():
    context, _, scheduler, train_batch = scheduled(Mode.STEP_EVERY_EPOCH, 1, 1)
    assert run(context, scheduler, train_batch, 5, told=False) == [(batch + 1) // 5 for batch in range(BATCH_COUNT)]
    # Under aggregation the last optimizer step of the epoch cannot be foreseen: it counts at the next one.
    context, _, scheduler, train_batch = scheduled(Mode.STEP_EVERY_EPOCH, 1, 2)
    counts = run(context, scheduler, train_batch, 5, told=False)
    assert counts == [(batch + 1) // 2 * 2 // 5 for batch in range(BATCH_COUNT)]


@pytest.mark.parametrize(("frequency", "aggregation", "epoch_length"), [(1, 1, 5), (2, 4, 5), (3, 2, 7), (2, 4, 3)])
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("stop", [1, 7, 9, 14, 20])
def test_a_run_that_was_interrupted_steps_as_the_calm_one(mode, frequency, aggregation, epoch_length, stop):
    context, optimizer, scheduler, train_batch = scheduled(mode, frequency, aggregation)
    calm = run(context, scheduler, train_batch, epoch_length)
    context, optimizer, scheduler, train_batch = scheduled(mode, frequency, aggregation)
    train(context, stop, train_batch, epoch_length)
    states = codec.decode(*codec.encode({"s": context._schedulers_state(), "o": optimizer.state_dict()}))

    context, optimizer, scheduler, train_batch = scheduled(mode, frequency, aggregation)
    optimizer.load_state_dict(states["o"])
    context._load_schedulers_state(states["s"])
    assert run(context, scheduler, train_batch, epoch_length, first=stop) == calm[stop:]
    assert optimizer.param_groups[0]["lr"] == 0.5 ** calm[-1]


def test_counters_of_another_trial_are_not_taken_over():
    context, _, scheduler, train_batch = scheduled(Mode.STEP_EVERY_EPOCH, 1, 1)
    run(context, scheduler, train_batch, 3)
    states = context._schedulers_state()
    context, _, scheduler, train_batch = scheduled(Mode.STEP_EVERY_EPOCH, 1, 1)
    context._load_schedulers_state(states)
    already = scheduler._step_count - 1
    assert run(context, scheduler, train_batch, 3) == [already + (batch + 1) // 3 for batch in range(BATCH_COUNT)]


def test_the_state_that_determined_saves_is_loaded():
    context, _, scheduler, train_batch = scheduled(Mode.STEP_EVERY_EPOCH, 1, 1)
    context._load_schedulers_state([{**scheduler.state_dict(), "last_epoch": 4, "_step_count": 5}])
    assert scheduler.last_epoch == 4
    assert run(context, scheduler, train_batch, 10, first=9)[:2] == [5, 5]


def test_a_first_epoch_in_the_middle_of_training_is_not_made_up_for():
    context, _, scheduler, train_batch = scheduled(Mode.STEP_EVERY_EPOCH, 1, 1)
    assert run(context, scheduler, train_batch, 3, first=20)[:2] == [1, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [3, 5, 5, 11]),
        lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=2.0, total_steps=40),
        lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 4, 2),
        lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
        lambda optimizer: lr_scheduler.SequentialLR(
            optimizer,
            [lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 5), lr_scheduler.ExponentialLR(optimizer, 0.9)],
            milestones=[5],
        ),
    ],
    ids=["MultiStepLR", "OneCycleLR", "CosineAnnealingWarmRestarts", "LambdaLR", "SequentialLR"],
)
def test_schedulers_of_torch_go_on_to_the_bit(make):
    def rates(stop: int) -> list[float]:
        context, optimizer, _, train_batch = scheduled(Mode.STEP_EVERY_BATCH, 1, 1, make)

        def train_and_look(index: int) -> float:
            train_batch(index)
            return optimizer.param_groups[0]["lr"]

        seen = train(context, stop, train_and_look)
        states = codec.decode(*codec.encode({"s": context._schedulers_state(), "o": optimizer.state_dict()}))
        context, optimizer, _, train_batch = scheduled(Mode.STEP_EVERY_BATCH, 1, 1, make)
        optimizer.load_state_dict(states["o"])
        context._load_schedulers_state(states["s"])
        return seen + train(context, 20, train_and_look, first=stop)

    _, optimizer, scheduler, _ = scheduled(Mode.MANUAL_STEP, 1, 1, make)
    expected = []
    for _ in range(20):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates(7) == expected
    assert len(set(expected)) > 3


def test_plateau_is_stepped_by_hand_and_restored():
    context = make_context()
    model = context.wrap_model(Line(1.0))
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    wrapped = context.wrap_lr_scheduler(scheduler, step_mode=Mode.MANUAL_STEP)
    wrapped.step(1.0)
    wrapped.step(2.0)
    assert context.lr_schedulers[0].get_last_lr() == [0.5]
    states = context._schedulers_state()
    wrapped.step(3.0)
    context._load_schedulers_state(states)
    assert context.lr_schedulers[0].state_dict()["best"] == 1.0


class Homemade:
    """A scheduler of no torch class, without an optimizer of its own."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> None:
        self.steps += 1

    def state_dict(self) -> dict[str, int]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.steps = state["steps"]


def test_a_scheduler_without_an_optimizer_counts_batches_that_stepped():
    context, optimizer, _, _ = scheduled(Mode.MANUAL_STEP, 1, 1)
    homemade = context.wrap_lr_scheduler(Homemade(), Mode.STEP_EVERY_OPTIMIZER_STEP)

    def train_batch(index: int) -> None:
        if index % 2:
            context.step_optimizer(optimizer)

    train(context, 8, train_batch)
    assert homemade.steps == 4


# --- bad input


def test_all_mistakes_of_a_call_are_listed():
    context, *_ = scheduled(Mode.MANUAL_STEP, 1, 1)
    with pytest.raises(TrainerError) as caught:
        context.wrap_lr_scheduler(BATCHES, "epoch", 0)
    message = str(caught.value)
    assert "has no step, state_dict, load_state_dict()" in message
    assert "STEP_EVERY_EPOCH" in message
    assert "not 'epoch'" in message
    assert "frequency must be an integer of 1 or more, not 0" in message


@pytest.mark.parametrize("frequency", [0, -1, 1.5, True, None])
def test_frequencies_below_one_are_refused(frequency):
    context, optimizer, *_ = scheduled(Mode.MANUAL_STEP, 1, 1)
    with pytest.raises(TrainerError, match="frequency must be an integer of 1 or more"):
        context.wrap_lr_scheduler(lr_scheduler.StepLR(optimizer, 1), Mode.STEP_EVERY_BATCH, frequency)


def test_an_optimizer_that_is_not_wrapped_is_refused():
    context, *_ = scheduled(Mode.MANUAL_STEP, 1, 1)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    with pytest.raises(TrainerError, match=r"optimizer of this StepLR was not given to wrap_optimizer"):
        context.wrap_lr_scheduler(lr_scheduler.StepLR(optimizer, 1), Mode.STEP_EVERY_BATCH)


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.MANUAL_STEP])
def test_plateau_in_another_mode_is_refused(mode):
    context, optimizer, *_ = scheduled(Mode.MANUAL_STEP, 1, 1)
    with pytest.raises(TrainerError, match=r"ReduceLROnPlateau.*MANUAL_STEP"):
        context.wrap_lr_scheduler(lr_scheduler.ReduceLROnPlateau(optimizer), mode)


def test_a_scheduler_is_not_wrapped_twice():
    context, _, scheduler, _ = scheduled(Mode.STEP_EVERY_BATCH, 1, 1)
    with pytest.raises(TrainerError, match="already wrapped: it would step twice"):
        context.wrap_lr_scheduler(scheduler, Mode.STEP_EVERY_BATCH)


def test_schedulers_of_another_trial_are_named_and_none_is_loaded():
    context, _, scheduler, _ = scheduled(Mode.STEP_EVERY_BATCH, 1, 1)
    states = context._schedulers_state()
    with pytest.raises(TrainerError, match=r"has 0 learning rate scheduler\(s\), this trial has 1"):
        context._load_schedulers_state([])
    with pytest.raises(TrainerError, match="0: the checkpoint has a CosineLR, the trial a StepLR"):
        context._load_schedulers_state([{**states[0], "class": "CosineLR"}])
    assert scheduler.last_epoch == 0
