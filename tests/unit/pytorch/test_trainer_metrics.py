"""Averages over batches and ranks: closed forms, no waiting for a device, small memory, every wrong value named."""

from __future__ import annotations

import fractions
import gc
import math
import time
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

from detlab.core import DummyDistributedContext
from detlab.pytorch.errors import TrainerError
from detlab.pytorch.metrics import series
from detlab.pytorch.metrics.aggregate import TrainingMetrics, ValidationMetrics, to_plain
from detlab.pytorch.metrics.reducer import Reducer
from testbed.rank_threads import RankThreads

pytestmark = pytest.mark.usefixtures("one_thread")
ALONE = DummyDistributedContext()
SIZES = (2, 3)


def averages(rows: list[Any], distributed: Any = ALONE) -> dict[str, Any]:
    metrics = TrainingMetrics()
    for row in rows:
        metrics.add(row)
    return metrics.reduce(distributed)[0]


def validated(rows: list[Any], reducer: Any = Reducer.AVG, distributed: Any = ALONE) -> dict[str, Any]:
    metrics = ValidationMetrics()
    for row in rows:
        metrics.add(row, 10)
    return metrics.reduce(distributed, reducer)


def problem(call: Any, *args: Any) -> str:
    with pytest.raises(TrainerError) as info:
        call(*args)
    return str(info.value)


# --- training: closed forms


def test_a_lone_tensor_is_the_loss() -> None:
    metrics = TrainingMetrics()
    for value in (1.0, 2.0, 6.0):
        metrics.add(torch.tensor(value))
    values, batch_metrics = metrics.reduce(ALONE)
    assert values == {"loss": 3.0}
    assert type(values["loss"]) is float
    assert batch_metrics() == [{"loss": 1.0}, {"loss": 2.0}, {"loss": 6.0}]
    assert metrics.reduce(ALONE)[0] == {}  # forgotten


@pytest.mark.parametrize(
    "value",
    [
        2,
        2.0,
        True + 1,
        fractions.Fraction(2),
        np.float32(2),
        np.float16(2),
        np.int64(2),
        np.array(2.0),
        np.array([2]),
        torch.tensor(2),
        torch.tensor([2.0]),
        torch.tensor([[2.0]], dtype=torch.float64),
        torch.tensor(2.0, dtype=torch.bfloat16),
        torch.tensor(2.0, dtype=torch.float16),
        torch.tensor(2.0, dtype=torch.float8_e4m3fn),
        torch.tensor(2.0, requires_grad=True) * 1,
        torch.nn.Parameter(torch.tensor(2.0)),
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', '')}{list(getattr(value, 'shape', []))}",
)
def test_every_kind_of_number(value: Any) -> None:
    assert averages([{"x": value}, {"x": 4.0}]) == {"x": 3.0}
    assert averages([{"x": value}, {"x": value}]) == {"x": 2.0}
    assert validated([{"x": value}, {"x": value}], Reducer.SUM) == {"x": 4.0}


def test_booleans_average_to_a_share() -> None:
    assert averages(
        [{"a": flag, "b": torch.tensor(flag), "c": np.bool_(flag)} for flag in (True, True, False, False)]
    ) == {
        "a": 0.5,
        "b": 0.5,
        "c": 0.5,
    }


def test_averages_are_in_double_precision() -> None:
    """16777217 is no float32; a mean in float32 would lose it."""
    assert averages([{"x": torch.tensor(16777216.0)}, {"x": torch.tensor(16777216.0)}, {"x": torch.tensor(3.0)}]) == {
        "x": (2 * 16777216 + 3) / 3
    }


def test_arrays_average_to_one_number_as_in_determined() -> None:
    metrics = TrainingMetrics()
    for k in (1.0, 3.0):
        metrics.add({"v": torch.tensor([k, 10 * k]), "w": np.array([[k], [2 * k]])})
    values, batch_metrics = metrics.reduce(ALONE)
    assert values == {"v": 11.0, "w": 3.0}
    assert {type(value) for value in values.values()} == {float}
    assert to_plain(batch_metrics()) == [{"v": [1, 10], "w": [[1], [2]]}, {"v": [3, 30], "w": [[3], [6]]}]


def test_a_metric_of_some_batches_averages_over_those() -> None:
    rows = [{"d": 1.0, "g": 5.0}, {"d": 2.0}, {"d": 3.0, "g": 7.0, "late": 1.0}]
    metrics = TrainingMetrics()
    for row in rows:
        metrics.add(row)
    values, batch_metrics = metrics.reduce(ALONE)
    assert values == {"d": 2.0, "g": 6.0, "late": 1.0}
    assert batch_metrics() == rows


def test_what_the_user_changes_later_changes_nothing() -> None:
    """Regression: a running total returned per batch, and changed in place, gave its last value for all batches."""
    total, buffer, row = torch.zeros(()), np.zeros(2), {"x": 1.0}
    metrics = TrainingMetrics()
    for _ in range(3):
        total += 1
        buffer += 1
        row |= {"total": total, "buffer": buffer}
        metrics.add(row)
    row.clear()
    values, batch_metrics = metrics.reduce(ALONE)
    assert [batch["total"] for batch in batch_metrics()] == [1.0, 2.0, 3.0]
    assert to_plain(values) == {"x": 1.0, "total": 2.0, "buffer": 2.0}


# --- training: cost


class NoReading(TorchFunctionMode):
    """Fails on whatever would wait for a device."""

    reads = ("item", "cpu", "tolist", "numpy", "to", "__bool__", "__float__", "__int__", "__index__", "__array__")

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name in self.reads:
            raise AssertionError(f"Tensor.{name} was called before reduce()")
        return function(*args, **(kwargs or {}))


def test_nothing_is_read_before_reduce() -> None:
    training, validation = TrainingMetrics(), ValidationMetrics()
    weight = torch.ones(3, requires_grad=True)
    with NoReading():
        for index in range(series.FOLD_BATCHES + 3):
            loss = (weight * index).sum()
            training.add(loss)
            training.add({"loss": loss, "shape": weight * index, "n": index, "mixed": loss if index % 2 else 1.0})
            validation.add({"loss": loss, "shape": weight * index}, 3)
        with pytest.raises(AssertionError, match=r"Tensor.cpu was called before reduce"):
            training.reduce(ALONE)
        with pytest.raises(AssertionError, match=r"Tensor.cpu was called before reduce"):
            validation.reduce(ALONE, Reducer.AVG)


def test_tensors_without_data_are_collected_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device there is nothing to read: whatever reads a value raises, in any spelling."""
    monkeypatch.setattr(series, "FOLD_BATCHES", 8)
    metrics = TrainingMetrics()
    for _ in range(20):
        metrics.add({"loss": torch.ones((), device="meta"), "v": torch.ones(2, device="meta")})
    said = problem(metrics.reduce, ALONE)
    assert "metric 'loss', returned by train_batch: it is a Tensor of torch.float32" in said
    assert "metric 'v'" in said


def test_memory_stays_small_over_many_batches() -> None:
    metrics = TrainingMetrics()
    big = torch.ones(100_000, requires_grad=True)

    def alive() -> int:
        gc.collect()
        return sum(issubclass(type(item), torch.Tensor) for item in gc.get_objects())

    before = alive()
    for index in range(3 * series.FOLD_BATCHES):
        metrics.add({"loss": big[0] * index, "view": big[:1]})  # a view must not keep the tensor behind it
    assert alive() - before <= 12  # stacks, not 6144 losses
    pieces = [values for of_name in metrics._collected._pieces.values() for _, values in of_name]
    assert sum(values.untyped_storage().nbytes() for values in pieces) <= 2 * 3 * series.FOLD_BATCHES * 4
    values, batch_metrics = metrics.reduce(ALONE)
    assert values == {"loss": (3 * series.FOLD_BATCHES - 1) / 2, "view": 1.0}
    assert [batch["loss"] for batch in batch_metrics()] == list(range(3 * series.FOLD_BATCHES))


def test_print_the_cost_of_a_batch() -> None:
    """Printed, not asserted: machines differ. The aim is 3 microseconds for a loss on the CPU."""
    weight = torch.ones(1, requires_grad=True)
    best = math.inf
    for _ in range(50):
        metrics = TrainingMetrics()
        losses = [(weight * 2).sum() for _ in range(100)]
        start = time.perf_counter()
        for loss in losses:
            metrics.add(loss)
        best = min(best, (time.perf_counter() - start) / len(losses))
        start = time.perf_counter()
        values, _ = metrics.reduce(ALONE)
        reduced = time.perf_counter() - start
    print(f"add: {best * 1e6:.2f} us per batch; reduce of 100 batches: {reduced * 1e6:.0f} us")
    assert values == {"loss": 2.0}


# --- training: ranks


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_any_split_of_the_batches_gives_the_same_average(groups: dict[int, RankThreads], data: st.DataObject) -> None:
    values = st.floats(-1e6, 1e6, width=32)
    rows = data.draw(
        st.lists(
            st.dictionaries(
                st.sampled_from(["loss", "acc", "g"]), st.one_of(values, values.map(torch.tensor)), min_size=1
            ),
            min_size=1,
            max_size=30,
        )
    )
    size = data.draw(st.sampled_from(SIZES))
    owners = data.draw(st.lists(st.integers(0, size - 1), min_size=len(rows), max_size=len(rows)))
    of_rank = [[row for row, owner in zip(rows, owners, strict=True) if owner == rank] for rank in range(size)]
    expected = averages(rows)
    results = groups[size].each(lambda distributed: averages(of_rank[distributed.rank], distributed))
    assert all(result == results[0] and list(result) == list(results[0]) for result in results)
    assert results[0] == pytest.approx(expected, rel=1e-12, abs=1e-9)
    complete = [{"x": float(next(iter(row.values())))} for row in rows]
    for name, reducer in (("mean", Reducer.AVG), ("sum", Reducer.SUM), ("max", Reducer.MAX), ("min", Reducer.MIN)):
        mine = [[row for row, owner in zip(complete, owners, strict=True) if owner == rank] for rank in range(size)]
        results = groups[size].each(lambda ranks, mine=mine, how=reducer: validated(mine[ranks.rank], how, ranks))
        direct = float(getattr(np, name)([row["x"] for row in complete]))
        assert results == [pytest.approx({"x": direct}, rel=1e-12, abs=1e-9)] * size


def test_ranks_weigh_by_batches_and_may_have_other_names(groups: dict[int, RankThreads]) -> None:
    of_rank = [[{"a": 1.0}, {"a": 2.0}, {"a": 3.0, "z": 1.0}], [{"b": 4.0, "a": 10.0}]]

    def reduce(distributed: Any) -> Any:
        metrics = TrainingMetrics()
        for row in of_rank[distributed.rank]:
            metrics.add(row)
        values, batch_metrics = metrics.reduce(distributed)
        if distributed.rank == 0:
            return values, batch_metrics()
        with pytest.raises(RuntimeError, match="only the chief"):
            batch_metrics()
        return values, None

    chief, other = groups[2].each(reduce)
    assert chief[0] == other[0] == {"a": 4.0, "z": 1.0, "b": 4.0}
    assert list(chief[0]) == list(other[0]) == ["a", "z", "b"]
    assert chief[1] == [{"a": 5.5, "b": 4.0}, {"a": 2.0}, {"a": 3.0, "z": 1.0}]


def test_the_first_value_that_is_not_finite_is_told_to_all(groups: dict[int, RankThreads]) -> None:
    bad = {0: (7, math.inf), 1: (1500, math.nan), 2: (3, -math.inf)}

    def reduce(distributed: Any) -> Any:
        metrics = TrainingMetrics()
        at, value = bad[distributed.rank]
        for index in range(1600):
            name = "loss" if distributed.rank < 2 else "other"
            metrics.add({name: torch.tensor(value if index >= at else 1.0), "fine": 1.0})
        values, _ = metrics.reduce(distributed)
        return metrics.not_finite, values["fine"], math.isnan(values["loss"])

    assert groups[3].each(reduce) == [({"loss": 7, "other": 3}, 1.0, True)] * 3


def test_a_metric_of_few_batches_names_the_true_batch() -> None:
    metrics = TrainingMetrics()
    for index in range(20):
        metrics.add({"d": 1.0} | ({"g": math.nan if index == 15 else 1.0} if index % 5 == 0 else {}))
    metrics.reduce(ALONE)
    assert metrics.not_finite == {"g": 15}
    metrics.add({"g": torch.tensor([1.0, math.inf])})
    metrics.reduce(ALONE)
    assert metrics.not_finite == {"g": 0}
    metrics.add(torch.tensor(1.0))
    metrics.reduce(ALONE)
    assert metrics.not_finite == {}


# --- what cannot be averaged


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        (None, "train_batch must return a dict of metrics or a loss tensor, but for batch 1 it returned None"),
        (0.5, "returned a float"),
        ([0.5], "returned a list"),
        ((torch.tensor(1.0), {}), "returned a tuple"),
        ({1: 0.5}, "the name 1, a int, for batch 1"),
        ({None: torch.tensor(1.0)}, "the name None, a NoneType"),
    ],
    ids=str,
)
def test_training_metrics_that_are_no_metrics(metrics: Any, said: str) -> None:
    collected = TrainingMetrics()
    collected.add({"loss": 1.0})
    assert said in problem(collected.add, metrics)


NO_NUMBERS = [
    ("good", "a str"),
    ({"a": 1}, "a dict"),
    ([1, 2], "a list"),
    ((), "a tuple"),
    (b"raw", "a bytes"),
    (1j, "a complex"),
    (np.array(["a"]), "a ndarray of <U1"),
    (np.array([None]), "a ndarray of object"),
    (np.datetime64("2024-01-01"), "a datetime64"),
]


@pytest.mark.parametrize(("value", "kind"), NO_NUMBERS, ids=str)
def test_values_that_are_no_numbers_are_kept_out_of_means(
    value: Any, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: Determined's trials that return such values failed."""
    metrics = TrainingMetrics()
    for row in ({"loss": 1.0}, {"loss": 3.0, "m": value}, {"loss": 5.0, "m": value}):
        metrics.add(row)
    values, batch_metrics = metrics.reduce(ALONE)
    assert values == {"loss": 3.0}
    rows = batch_metrics()
    assert [set(row) for row in rows] == [{"loss"}, {"loss", "m"}, {"loss", "m"}]
    assert np.array_equal(rows[1]["m"], value)
    assert caplog.text.count("kept out of means") == 1
    assert f"train_batch returned {kind} as metric 'm' for batch 1" in caplog.text
    metrics.add({"m": value})
    assert metrics.reduce(ALONE)[1]() == [{"m": value}]  # and nothing of before
    caplog.clear()
    warned: set[str] = set()
    for _ in range(2):
        validation = ValidationMetrics(warned)
        for loss in (1.0, 3.0):
            validation.add({"loss": loss, "m": value}, 1)
        each = {"loss": Reducer.SUM, "m": Reducer.AVG}
        assert validation.reduce(ALONE, each) == {"loss": 4.0}
    assert validated([{"loss": 1.0, "m": value}], {"loss": Reducer.AVG}) == {"loss": 1.0}
    assert caplog.text.count("evaluate_batch returned") == 2  # once for each trial


def test_none_says_that_a_batch_has_no_value(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"g": None if index % 2 else float(index), "never": None} for index in range(series.FOLD_BATCHES + 3)]
    even = float(np.mean([row["g"] for row in rows if row["g"] is not None]))
    assert averages(rows) == {"g": even}
    assert validated(rows) == {"g": even}
    assert caplog.text == ""


def test_what_is_kept_out_does_not_change_with_the_users_lists() -> None:
    tensor = torch.zeros(1)
    history: dict[str, list[Any]] = {"seen": [tensor]}
    metrics = TrainingMetrics()
    metrics.add({"history": history})
    tensor += 1
    history["seen"].append(2)
    assert metrics.reduce(ALONE)[1]() == [{"history": {"seen": [torch.zeros(1)]}}]


def test_ranks_may_keep_out_a_metric_that_others_have_numbers_of(groups: dict[int, RankThreads]) -> None:
    def reduce(distributed: Any) -> Any:
        row = {"m": [1.0, "no", None][distributed.rank], "loss": 1.0}
        metrics = TrainingMetrics()
        metrics.add(row)
        return metrics.reduce(distributed)[0], validated([row], {"m": Reducer.SUM, "loss": Reducer.AVG}, distributed)

    assert groups[3].each(reduce) == [({"m": 1.0, "loss": 1.0}, {"m": 1.0, "loss": 1.0})] * 3


def test_all_values_that_turn_out_wrong_are_listed(groups: dict[int, RankThreads]) -> None:
    def reduce(distributed: Any) -> str:
        metrics = TrainingMetrics()
        for index in range(4):
            metrics.add(
                {
                    "fine": 1.0,
                    "empty": torch.ones(0),
                    "complex": torch.tensor(1j),
                    "sparse": torch.eye(2).to_sparse(),
                    "ragged": torch.ones(2 if index < 3 else 3),
                    "other": torch.ones(2 + distributed.rank),
                }
            )
        return problem(metrics.reduce, distributed)

    said = groups[2].each(reduce)
    assert said[0] == said[1]
    for part in (
        "rank 0: metric 'empty', returned by train_batch: it has no elements (shape (0,))",
        "rank 1: metric 'complex', returned by train_batch: it is a Tensor of torch.complex64",
        "rank 0: metric 'sparse', returned by train_batch: it is a Tensor of torch.float32, torch.sparse_coo",
        "rank 1: metric 'ragged', returned by train_batch: its shape is (2,) for batch 0 and (3,) for batch 3",
        "metric 'other' has the shape (2,) on rank 0 and (3,) on rank 1",
    ):
        assert part in said[0]
    assert "fine" not in said[0]


# --- validation


def test_reducers_one_for_all_or_one_each() -> None:
    rows = [{"a": torch.tensor(k), "b": float(k), "v": np.array([k, -k])} for k in (1.0, 2.0, 6.0)]
    assert validated(rows) == {"a": 3.0, "b": 3.0, "v": 0.0}
    assert validated(rows, Reducer.MAX) == {"a": 6.0, "b": 6.0, "v": 6.0}
    each = {"a": Reducer.SUM, "b": Reducer.MIN, "v": Reducer.AVG}
    assert validated(rows, each) == {"a": 9.0, "b": 1.0, "v": 0.0}


def test_the_mean_is_over_batches_of_all_ranks_and_counts_are_kept(groups: dict[int, RankThreads]) -> None:
    """As in Determined, a short last batch weighs as much as the others, and a rank with one batch one third here."""
    of_rank = [[(1.0, 8), (2.0, 8)], [(6.0, 3)], []]

    def reduce(distributed: Any) -> Any:
        metrics = ValidationMetrics()
        for value, length in of_rank[distributed.rank]:
            metrics.add({"loss": value}, length)
        return metrics.reduce(distributed, Reducer.AVG), metrics.batches, metrics.samples

    assert groups[3].each(reduce) == [({"loss": 3.0}, 3, 19)] * 3


def test_no_batches_and_no_metrics_are_no_error(groups: dict[int, RankThreads]) -> None:
    assert groups[2].each(lambda distributed: validated([], Reducer.AVG, distributed)) == [{}, {}]
    assert validated([], {"loss": Reducer.AVG}) == {}
    assert validated([{}, {}]) == {}  # everything comes from wrapped reducers


def test_validation_metrics_that_do_not_fit() -> None:
    metrics = ValidationMetrics()
    assert "evaluate_batch must return a dict of metrics, but for batch 0 it returned a Tensor" in problem(
        metrics.add, torch.tensor(1.0), 5
    )
    metrics = ValidationMetrics()
    metrics.add({"loss": 1.0, "acc": 0.5}, 5)
    metrics.add({"acc": 0.5, "loss": 1.0}, 5)  # the order is no matter
    assert "for batch 2 than for those before: without 'acc' and with 'auc'" in problem(
        metrics.add, {"loss": 1.0, "auc": 0.5}, 5
    )


def test_ranks_that_return_other_metrics_are_told(groups: dict[int, RankThreads]) -> None:
    def reduce(distributed: Any) -> str:
        return problem(
            validated, [{"loss": 1.0} | ({"acc": 0.5} if distributed.rank else {})], Reducer.AVG, distributed
        )

    said = groups[3].each(reduce)
    assert said == [said[0]] * 3
    assert "other metrics on rank 1 than on rank 0: with 'acc'" in said[0]
    assert "other metrics on rank 2 than on rank 0: with 'acc'" in said[0]


@pytest.mark.parametrize(
    ("reducer", "said"),
    [
        ({"loss": Reducer.AVG, "lss": Reducer.AVG}, "a dict without 'acc' and with 'lss'"),
        ({"loss": Reducer.AVG}, "a dict without 'acc'"),
        ({"loss": "avg", "acc": Reducer.MAX}, "gives 'avg' for 'loss'"),
        ("avg", "must return a pytorch.Reducer or a dict of them, not 'avg'"),
        (None, "not None"),
    ],
    ids=str,
)
def test_evaluation_reducers_that_do_not_fit(reducer: Any, said: str) -> None:
    assert said in problem(validated, [{"loss": 1.0, "acc": 0.5}], reducer)


def test_ragged_values_of_a_validation_are_told_with_the_batch() -> None:
    rows = [{"loss": torch.ones(8)}, {"loss": torch.ones(8)}, {"loss": torch.ones(3)}]
    assert "metric 'loss', returned by evaluate_batch: its shape is (8,) for batch 0 and (3,) for batch 2" in problem(
        validated, rows
    )
    assert "its shape is that of a number for batch 0 and (2,) for batch 1" in problem(
        validated, [{"loss": 1.0}, {"loss": np.ones(2)}]
    )
