"""Metric reducers: scikit-learn's metrics over 1, 2 and 3 ranks, and what is said when one is wrong."""

from __future__ import annotations

import collections
import dataclasses
import threading
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

from detlab.core import DummyDistributedContext
from detlab.errors import InvalidHP
from detlab.pytorch.errors import TrainerError
from detlab.pytorch.metrics.reducer import MetricReducer, Reducer, _PyTorchReducerContext, to_cpu
from testbed.rank_threads import RankThreads

pytestmark = pytest.mark.usefixtures("one_thread")
SIZES = (1, 2, 3)
CLASSES = 4


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Labels (n,) and class probabilities (n, 4) of 41 batches of unequal length, fixed."""
    random = torch.Generator().manual_seed(3)
    labels = torch.randint(CLASSES, (635,), generator=random)
    logits = torch.randn((635, CLASSES), generator=random) + 1.5 * torch.nn.functional.one_hot(labels, CLASSES)
    return labels, logits.softmax(1)


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    labels, probabilities = data()
    lengths = [16, 15] * 20 + [15]
    return list(zip(labels.split(lengths), probabilities.split(lengths), strict=True))


def joined(values: list[Any]) -> tuple[Any, Any]:
    return torch.cat([labels for labels, _ in values]).numpy(), torch.cat([p for _, p in values]).numpy()


def all_scores(values: list[Any]) -> dict[str, Any]:
    labels, probabilities = joined(values)
    guesses = probabilities.argmax(1)
    return {
        "accuracy": sk.accuracy_score(labels, guesses),
        "f1": sk.f1_score(labels, guesses, average="macro"),
        "auc": sk.roc_auc_score(labels, probabilities, multi_class="ovr"),
        "confusion": sk.confusion_matrix(labels, guesses),
        "log_loss": sk.log_loss(labels, probabilities),
    }


class ConfusionMatrix(MetricReducer):
    """The advanced way: counts only, one small matrix per rank."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.counts = torch.zeros(CLASSES, CLASSES, dtype=torch.int64)

    def update(self, labels: torch.Tensor, guesses: torch.Tensor) -> None:
        self.counts += torch.bincount(labels * CLASSES + guesses, minlength=CLASSES**2).reshape(CLASSES, CLASSES)

    def per_slot_reduce(self) -> torch.Tensor:
        return self.counts

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> dict[str, Any]:
        counts = torch.stack(per_slot_metrics).sum(0)
        precision, recall = counts.diag() / counts.sum(0), counts.diag() / counts.sum(1)
        f1 = 2 * precision * recall / (precision + recall)
        return {"confusion": counts, "accuracy": counts.diag().sum() / counts.sum(), "f1": f1.mean()}


@pytest.mark.parametrize("size", SIZES)
def test_functions_give_what_scikit_learn_gives_on_all_data(groups: dict[int, RankThreads], size: int) -> None:
    def validate(distributed: Any) -> dict[str, Any]:
        context = _PyTorchReducerContext(distributed.allgather)
        scores = context.wrap_reducer(all_scores)
        order = context.wrap_reducer(lambda values: [int(labels[0]) for labels, _ in values], name="order")
        context.reset_reducers()
        for labels, probabilities in batches()[distributed.rank :: size]:
            scores.update((labels, probabilities))
            order.update((labels, probabilities))
        return context.reduce_metrics(for_training=False)

    expected = all_scores(batches())
    for result in groups[size].each(validate):
        assert list(result) == ["accuracy", "f1", "auc", "confusion", "log_loss", "order"]
        for name in ("accuracy", "f1", "auc", "log_loss"):
            assert result[name] == pytest.approx(expected[name], abs=1e-12)
        assert np.array_equal(result["confusion"], expected["confusion"])
        assert result["order"] == [int(labels[0]) for labels, _ in batches()]  # the order of the data


@pytest.mark.parametrize("size", SIZES)
def test_a_metric_reducer_sums_counts_over_ranks(groups: dict[int, RankThreads], size: int) -> None:
    def validate(distributed: Any) -> dict[str, Any]:
        context = _PyTorchReducerContext(distributed.allgather)
        matrix = context.wrap_reducer(ConfusionMatrix())
        for _ in range(2):  # reset() forgets the first pass
            context.reset_reducers()
            for labels, probabilities in batches()[distributed.rank :: size]:
                matrix.update(labels, probabilities.argmax(1))
        return context.reduce_metrics(for_training=True)

    expected = all_scores(batches())
    for result in groups[size].each(validate):
        assert np.array_equal(result["confusion"].numpy(), expected["confusion"])
        assert float(result["accuracy"]) == pytest.approx(expected["accuracy"], abs=1e-6)
        assert float(result["f1"]) == pytest.approx(expected["f1"], abs=1e-6)


def test_training_and_validation_have_their_own_reducers() -> None:
    context = _PyTorchReducerContext()
    both = context.wrap_reducer(sum, name="both")
    training = context.wrap_reducer(sum, name="mine", for_validation=False)
    validation = context.wrap_reducer(max, name="mine", for_training=False)  # the same name, never at the same time
    for reducer in (both, training, validation):
        reducer.update(1)
        reducer.update(2)
    assert context.reduce_metrics(for_training=True) == {"both": 3, "mine": 3}
    assert context.reduce_metrics(for_training=False) == {"both": 3, "mine": 2}
    context.reset_reducers()
    assert context.reduce_metrics(for_training=True) == {"both": 0, "mine": 0}


def test_the_reducers_members_are_determineds() -> None:
    assert {member.name: member.value for member in Reducer} == {"AVG": 1, "SUM": 2, "MAX": 3, "MIN": 4}


def test_update_keeps_no_graph() -> None:
    """Regression: predictions kept with their graph hold all activations of an epoch in memory."""
    reducer = _PyTorchReducerContext().wrap_reducer(len, name="n")
    weight = torch.ones(3, requires_grad=True)
    reducer.update((torch.zeros(3), {"scores": [weight * 2]}))
    assert not reducer.values[0][1]["scores"][0].requires_grad


class Pair(NamedTuple):
    labels: Any
    scores: Any


@dataclasses.dataclass
class Box:
    tensor: Any
    number: int = 1


def test_what_travels_is_on_the_cpu_without_graph_and_alone() -> None:
    weight = torch.ones(4, requires_grad=True)
    counter = collections.Counter("aab")
    sent = to_cpu({"pair": Pair(weight * 2, [weight]), "box": Box(weight), "counter": counter, "view": weight[:1]})
    assert isinstance(sent["pair"], Pair)
    assert sent["counter"] is counter  # nothing to change: Counter stays Counter
    for tensor in (sent["pair"].labels, sent["pair"].scores[0], sent["box"].tensor, sent["view"]):
        assert not tensor.requires_grad
    assert sent["view"].untyped_storage().nbytes() == 4  # not the whole tensor behind the view
    assert sent["box"].number == 1


class Broken(MetricReducer):
    def __init__(self, method: str, error: Exception | None = None) -> None:
        self.method = method
        self.error = error or ValueError("only one class present")

    def reset(self) -> None:
        self.maybe("reset")

    def per_slot_reduce(self) -> int:
        self.maybe("per_slot_reduce")
        return 1

    def cross_slot_reduce(self, per_slot_metrics: list[int]) -> int:
        self.maybe("cross_slot_reduce")
        return sum(per_slot_metrics)

    def maybe(self, method: str) -> None:
        if method == self.method:
            raise self.error


@pytest.mark.parametrize("method", ["reset", "per_slot_reduce", "cross_slot_reduce"])
def test_a_reducer_that_fails_is_named_with_its_method(method: str) -> None:
    context = _PyTorchReducerContext()
    context.wrap_reducer(Broken(method), name="auc")

    def use() -> None:
        context.reset_reducers()
        context.reduce_metrics(for_training=True)

    with pytest.raises(TrainerError, match=rf"Broken named 'auc' failed in {method}\(\): ValueError: only one") as info:
        use()
    assert isinstance(info.value.__cause__, ValueError)


def test_a_function_that_fails_is_named() -> None:
    context = _PyTorchReducerContext()
    context.wrap_reducer(max, name="top")  # of no values at all
    with pytest.raises(TrainerError, match=r"the reducer max\(\) named 'top' failed in its function: .*empty"):
        context.reduce_metrics(for_training=True)


def test_invalid_hyperparameters_may_be_raised_in_a_reducer() -> None:
    context = _PyTorchReducerContext()
    context.wrap_reducer(Broken("cross_slot_reduce", InvalidHP("diverged")), name="auc")
    with pytest.raises(InvalidHP, match="diverged"):
        context.reduce_metrics(for_training=True)


def test_one_rank_that_fails_fails_all(groups: dict[int, RankThreads]) -> None:
    """Regression: the other ranks waited for one whose per_slot_reduce had raised."""

    def reduce(distributed: Any) -> Any:
        context = _PyTorchReducerContext(distributed.allgather)
        context.wrap_reducer(Broken("per_slot_reduce" if distributed.rank == 1 else ""), name="auc")
        return context.reduce_metrics(for_training=True)

    said = [str(error) for error in groups[3].each(reduce)]
    assert said[1].startswith("the reducer Broken named 'auc' failed in per_slot_reduce()")
    assert said[0] == said[2] == f"on rank 1: {said[1]}"


def test_ranks_with_different_reducers_are_told(groups: dict[int, RankThreads]) -> None:
    def reduce(distributed: Any) -> Any:
        context = _PyTorchReducerContext(distributed.allgather)
        if distributed.rank == 0:  # a common slip: only the chief wraps it
            context.wrap_reducer(sum, name="total")
        return context.reduce_metrics(for_training=True)

    for error in groups[2].each(reduce):
        assert isinstance(error, TrainerError)
        assert "rank 0: the reducer sum() named 'total'\n  rank 1: none" in str(error)


def test_without_reducers_ranks_talk_once_only(groups: dict[int, RankThreads]) -> None:
    def reduce(distributed: Any) -> int:
        calls = 0

        def counted(value: Any) -> list[Any]:
            nonlocal calls
            calls += 1
            return list(distributed.allgather(value))

        context = _PyTorchReducerContext(counted)
        assert [context.reduce_metrics(for_training=True) for _ in range(5)] == [{}] * 5
        return calls

    assert groups[2].each(reduce) == [1, 1]


def test_a_value_that_cannot_travel_is_named(groups: dict[int, RankThreads]) -> None:
    class Locked(Broken):
        def per_slot_reduce(self) -> Any:
            return threading.Lock()

    def send(value: Any) -> list[Any]:
        import pickle

        return [pickle.loads(pickle.dumps(value))]

    context = _PyTorchReducerContext(send)
    context.wrap_reducer(Locked(""), name="auc")
    with pytest.raises(TrainerError, match=r"Locked named 'auc' returned from per_slot_reduce\(\) cannot be sent"):
        context.reduce_metrics(for_training=True)


def test_names_and_dicts_must_fit() -> None:
    context = _PyTorchReducerContext(DummyDistributedContext().allgather)
    context.wrap_reducer(lambda _: {"a": 1}, name="auc")
    with pytest.raises(TrainerError, match="named 'auc' returned a dict"):
        context.reduce_metrics(for_training=True)
    context = _PyTorchReducerContext()
    context.wrap_reducer(lambda _: 0.5)
    with pytest.raises(TrainerError, match="without a name returned a float, not a dict"):
        context.reduce_metrics(for_training=True)
    context = _PyTorchReducerContext()
    context.wrap_reducer(lambda _: {1: 0.5})
    with pytest.raises(TrainerError, match=r"names that are not strings: \[1\]"):
        context.reduce_metrics(for_training=True)
    context = _PyTorchReducerContext()
    context.wrap_reducer(lambda _: {"auc": 0.5})
    context.wrap_reducer(sum, name="auc")
    with pytest.raises(TrainerError, match="two reducers returned the metric 'auc'"):
        context.reduce_metrics(for_training=True)


def test_wrapping_wrongly_is_refused_with_all_reasons() -> None:
    context = _PyTorchReducerContext()
    twice = context.wrap_reducer(Broken(""), name="auc")
    with pytest.raises(TrainerError) as info:
        context.wrap_reducer(twice, name="auc")
    assert "already wrapped" in str(info.value)
    assert "the name 'auc' is already used by the reducer Broken named 'auc'" in str(info.value)
    context.wrap_reducer(sum, name="a")
    context.wrap_reducer(sum, name="b")  # one function may serve twice
    for wrong, message in ((3, "not 3"), (Broken, "a class: wrap an instance")):
        with pytest.raises(TrainerError, match=message):
            context.wrap_reducer(wrong, name="x")
    with pytest.raises(TrainerError, match="never be reported"):
        context.wrap_reducer(sum, name="x", for_training=False, for_validation=False)
    for name in ("", 7):
        with pytest.raises(TrainerError, match="must be a string"):
            context.wrap_reducer(sum, name=name)
