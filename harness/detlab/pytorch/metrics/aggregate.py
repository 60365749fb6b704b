"""Aggregate metrics over batches and ranks.

Collecting never waits for the device: `detlab.pytorch.metrics.series` copies values on their device. `reduce` copies
them to the host, gathers them at the chief, and broadcasts the result to all ranks.
"""

from __future__ import annotations

import dataclasses
import functools
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from detlab.core import DistributedContext
from detlab.pytorch.errors import TrainerError
from detlab.pytorch.metrics.reducer import Reducer
from detlab.pytorch.metrics.series import CollectedMetrics, RankSeries, is_real, kind_of


class TrainingMetrics:
    """Collects what `train_batch` returned on this rank between two reports.

    Values are copied, so that a buffer may be reused or changed in place, and so that the loss of a CUDA graph survives
    the next replay.

    Attributes:
        not_finite: After `reduce`: metrics with a NaN or infinite value on any rank, and the index of the first such
            batch since the last report.
        without_average: After `reduce`: metrics that no batch of any rank had a number for.
    """

    def __init__(self) -> None:
        self._collected = CollectedMetrics("train_batch", lone="loss")
        self.not_finite: dict[str, int] = {}
        self.without_average: list[str] = []

    def add(self, metrics: Any) -> None:
        """Take the metrics of one batch: a loss tensor, or a dict of name to number, array or tensor.

        Other values, such as None and text, are only in the metrics of the single batches.

        Raises:
            TrainerError: Something else; its type and the batch are named.
        """
        self._collected.add(metrics)

    def reduce(self, distributed: DistributedContext) -> tuple[dict[str, Any], Callable[[], list[dict[str, Any]]]]:
        """Return averages and the metrics of each batch, and forget them; all ranks call this together.

        Args:
            distributed: Small messages between the ranks.

        Returns:
            The average of each metric over the batches of all ranks that returned it, and over all elements of arrays
            as in Determined: a float, the same on all ranks. And a function that gives, on the chief alone, one dict
            per batch, averaged over the ranks that returned the metric in that batch: a float, or an array for metrics
            of more than one element. Values that are no numbers are there as the chief returned them.

        Raises:
            TrainerError: Some values, on any rank, cannot be averaged; all of them are listed.
        """
        parts = distributed.gather(self._collected.take())
        others = self._collected.take_others()
        outcome = distributed.broadcast(None if parts is None else _average(parts))
        _raise_problems("the training metrics cannot be averaged:", outcome.problems)
        self.not_finite, self.without_average = outcome.not_finite, outcome.without_average
        return outcome.values, functools.partial(_per_batch, parts, others)


class ValidationMetrics:
    """Collects what `evaluate_batch` returned on this rank in one validation.

    Args:
        warned: Names of metrics already warned of, shared by all validations of a trial.

    Attributes:
        batches: After `reduce`: batches of all ranks together.
        samples: After `reduce`: samples of all ranks together, as `get_batch_length` counts them.
    """

    def __init__(self, warned: set[str] | None = None) -> None:
        self._collected = CollectedMetrics("evaluate_batch", warned=warned)
        self._names: list[str] | None = None
        self.batches = 0
        self.samples = 0

    def add(self, metrics: Any, batch_length: int) -> None:
        """Take the metrics of one batch: a dict, with the same names in every batch.

        Args:
            metrics: Name to number, array or tensor; other values, such as None and text, are kept out of means.
            batch_length: Samples in the batch; only counted, since every batch weighs the same in an average.

        Raises:
            TrainerError: Something else; the metric, its type and the batch are named.
        """
        row = self._collected.add(metrics)
        if self._names is None:
            self._names = list(row)
        elif row.keys() != set(self._names):
            raise TrainerError(
                f"evaluate_batch returned other metrics for batch {self._collected.batches - 1} than for those before: "
                f"{_difference(row, self._names)}",
                hint="Return the same names for every batch; a metric of some batches needs context.wrap_reducer().",
            )
        self.samples += batch_length

    def reduce(self, distributed: DistributedContext, evaluation_reducer: Any) -> dict[str, Any]:
        """Return the reduced metrics, the same on all ranks, and forget them; all ranks call this together.

        Args:
            distributed: Small messages between the ranks.
            evaluation_reducer: A `Reducer`, or a dict with one for each metric.

        Returns:
            A float per metric, reduced over batches and over all elements of arrays, as in Determined; without metrics
            that had no number, and empty if no rank has a batch.

        Raises:
            TrainerError: Values cannot be reduced, reducers do not fit the metrics, or ranks have different metrics.
        """
        part = self._collected.take()
        parts = distributed.gather((part, self.samples))
        outcome = distributed.broadcast(None if parts is None else _reduce(parts, evaluation_reducer))
        self._names = None
        _raise_problems("the validation metrics cannot be reduced:", outcome.problems)
        self.batches, self.samples = outcome.batches, outcome.samples
        return outcome.values


def to_plain(value: Any, name: str = "") -> Any:
    """Return a metric as plain Python numbers, strings, lists and dicts, as `core_context.train` reports them.

    Args:
        value: A number, string, tensor or array (one element gives a number), or dicts and lists of them. Bytes stay.
        name: Of the metric, for errors.

    Raises:
        TrainerError: The value is of another type; the message names the metric and its type.
    """
    if isinstance(value, bool | str | bytes | bytearray) or type(value) in {int, float}:
        return value
    if isinstance(value, torch.Tensor):
        if not is_real(value):
            raise _not_reportable(name, kind_of(value))
        return value.item() if value.numel() == 1 else value.detach().tolist()
    if isinstance(value, np.ndarray):
        return to_plain(value.item() if value.size == 1 else value.tolist(), name)
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): to_plain(item, f"{name}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item, f"{name}[{index}]") for index, item in enumerate(value)]
    raise _not_reportable(name, type(value).__name__)


def _not_reportable(name: str, kind: str) -> TrainerError:
    which = f"the metric {name!r}" if name else "a metric"
    return TrainerError(
        f"{which} is a {kind}, which cannot be reported",
        hint="Report a real number, a string, a tensor or array of real numbers, or dicts and lists of them.",
    )


def _difference(names: Iterable[str], expected: Iterable[str]) -> str:
    missing = [name for name in expected if name not in set(names)]
    extra = [name for name in names if name not in set(expected)]
    said = [f"{what} {', '.join(map(repr, which))}" for what, which in (("without", missing), ("with", extra)) if which]
    return " and ".join(said)


def _raise_problems(headline: str, problems: list[str]) -> None:
    if problems:
        raise TrainerError.of(headline, problems)


@dataclasses.dataclass
class _Outcome:
    """What the chief tells all ranks."""

    values: dict[str, Any]
    problems: list[str]
    not_finite: dict[str, int] = dataclasses.field(default_factory=dict)
    without_average: list[str] = dataclasses.field(default_factory=list)
    batches: int = 0
    samples: int = 0


def _series(parts: list[RankSeries], problems: list[str]) -> dict[str, list[Any]]:
    """Return the values of each metric, one array per rank that has it, in a stable order; note unequal shapes."""
    series: dict[str, list[Any]] = {}
    shapes: dict[str, tuple[int, tuple[int, ...]]] = {}
    for rank, part in enumerate(parts):
        for name, (_, values) in part.values.items():
            first, shape = shapes.setdefault(name, (rank, values.shape[1:]))
            if values.shape[1:] == shape:
                series.setdefault(name, []).append(values)
            else:
                problems.append(
                    f"metric {name!r} has the shape {shape} on rank {first} and {values.shape[1:]} on rank {rank}"
                )
    return series


def _all_problems(parts: list[RankSeries]) -> list[str]:
    if len(parts) == 1:
        return list(parts[0].problems)
    return [f"rank {rank}: {problem}" for rank, part in enumerate(parts) for problem in part.problems]


def _average(parts: list[RankSeries]) -> _Outcome:
    outcome = _Outcome({}, _all_problems(parts))
    for name, arrays in _series(parts, outcome.problems).items():
        with np.errstate(all="ignore"):  # NaN and infinity are told by name
            total = sum(array.sum() for array in arrays)
            outcome.values[name] = float(total / sum(array.size for array in arrays))
    outcome.without_average = sorted({name for part in parts for name in part.kept_out} - outcome.values.keys())
    for part in parts:
        for name, (where, values) in part.values.items():
            bad = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
            if bad.size:
                index = int(bad[0] if where is None else where[bad[0]])
                outcome.not_finite[name] = min(index, outcome.not_finite.get(name, index))
    return outcome


def _per_batch(parts: list[RankSeries] | None, others: dict[str, dict[int, Any]]) -> list[dict[str, Any]]:
    """Return one dict per batch, averaged over ranks; values that are no numbers are the chief's."""
    if parts is None:
        raise RuntimeError("only the chief (rank 0) has the metrics of each batch; it broadcasts them to the others")
    rows: list[dict[str, Any]] = [{} for _ in range(max(part.batches for part in parts))]
    for name in dict.fromkeys(name for part in parts for name in part.values):
        held = [part.values[name] for part in parts if name in part.values]
        total = np.zeros((len(rows), *held[0][1].shape[1:]))
        count = np.zeros(len(rows), np.int64)
        with np.errstate(all="ignore"):
            for where, values in held:
                present = slice(len(values)) if where is None else where
                total[present] += values
                count[present] += 1
            present = np.flatnonzero(count)
            means = total[present] / count[present].reshape(-1, *[1] * (total.ndim - 1))
        for index, mean in zip(present.tolist(), means.tolist() if means.ndim == 1 else means, strict=True):
            rows[index][name] = mean
    for name, by_index in others.items():
        for index, value in by_index.items():
            rows[index].setdefault(name, value)
    return rows


_REDUCTIONS: dict[Reducer, Callable[[Any], Any]] = {
    Reducer.AVG: np.mean,
    Reducer.SUM: np.sum,
    Reducer.MAX: np.max,
    Reducer.MIN: np.min,
}


def _reduce(parts: list[tuple[RankSeries, int]], evaluation_reducer: Any) -> _Outcome:
    held = [part for part, _ in parts]
    outcome = _Outcome({}, _all_problems(held))
    outcome.batches, outcome.samples = sum(part.batches for part in held), sum(samples for _, samples in parts)
    with_batches = [(rank, part) for rank, part in enumerate(held) if part.batches and not part.problems]
    for rank, part in with_batches[1:]:
        first, expected = with_batches[0]
        if part.names != expected.names:
            difference = _difference(sorted(part.names), sorted(expected.names))
            outcome.problems.append(
                f"evaluate_batch returned other metrics on rank {rank} than on rank {first}: {difference}"
            )
    series = _series(held, outcome.problems)
    known = bool(outcome.batches) and not outcome.problems
    kept_out = {name for part in held for name in part.kept_out} - series.keys()
    reducers, wrong = _reducers(evaluation_reducer, list(series) if known else None, kept_out)
    outcome.problems.extend(wrong)
    if not outcome.problems:
        with np.errstate(all="ignore"):
            for name, arrays in series.items():
                outcome.values[name] = float(_REDUCTIONS[reducers[name]](np.concatenate(arrays)))
    return outcome


def _reducers(given: Any, names: list[str] | None, kept_out: set[str]) -> tuple[dict[str, Reducer], list[str]]:
    """Return the reducer of each metric, and what is wrong with those given.

    Args:
        given: What the trial's method returned.
        names: Of the metrics to reduce; None if they are not known.
        kept_out: Of metrics without a number: they may have a reducer, which has nothing to do.
    """
    if isinstance(given, Reducer):
        return dict.fromkeys(names or [], given), []
    if not isinstance(given, dict):
        return {}, [f"evaluation_reducer() must return a pytorch.Reducer or a dict of them, not {given!r}"]
    problems = [
        f"evaluation_reducer() gives {value!r} for {name!r}: use AVG, SUM, MAX or MIN of pytorch.Reducer"
        for name, value in given.items()
        if not isinstance(value, Reducer)
    ]
    needed = [str(name) for name in given if name not in kept_out]
    if names is not None and set(needed) != set(names):
        problems.append(
            f"evaluation_reducer() returned a dict {_difference(needed, names)}: it needs one reducer "
            "for each metric that evaluate_batch returns, and no other (a wrapped reducer reduces its metric itself)"
        )
    return given, problems
