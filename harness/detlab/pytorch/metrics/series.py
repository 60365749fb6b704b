"""Values of many batches, kept on their device until they are needed on the host, in one transfer per metric."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import numbers
from typing import Any

import numpy as np
import torch

from detlab.pytorch.errors import TrainerError

logger = logging.getLogger("detlab.pytorch")

FOLD_BATCHES = 1024
"""After so many batches their values are stacked into one tensor per metric, so that memory stays small."""

_KEPT_OUT = object()
"""In a row: a value that is no number."""

_Piece = tuple[Any, Any]
"""Batch indices (array of int64) and their values, stacked: a tensor on any device, or an array."""


@dataclasses.dataclass
class RankSeries:
    """What one rank has collected, on the host.

    Attributes:
        batches: How many batches there were.
        values: By metric: indices of the batches that have it (None: all of them), and their float64 values, of shape
            (batches,) for numbers and (batches, …) for arrays.
        problems: What cannot be used.
        kept_out: Metrics that had a value which is no number, in some batch or in all.
    """

    batches: int
    values: dict[str, tuple[Any, Any]]
    problems: list[str]
    kept_out: frozenset[str] = frozenset()

    @property
    def names(self) -> set[str]:
        """All metrics that were returned, numbers or not."""
        return {*self.values, *self.kept_out}


class CollectedMetrics:
    """Metrics of the batches of one rank.

    Args:
        method: The user's method that returns them, for errors.
        lone: What a tensor is called that comes without a dict; None to refuse it.
        warned: Names of metrics that were already warned of; shared by those that collect for one trial.
    """

    def __init__(self, method: str, lone: str | None = None, warned: set[str] | None = None) -> None:
        self._method = method
        self._lone = lone
        self._warned: set[str] = set() if warned is None else warned
        self._others: dict[str, dict[int, Any]] = {}
        self._rows: list[dict[str, Any]] = []
        self._folded = 0
        self._pieces: dict[str, list[_Piece]] = {}

    @property
    def batches(self) -> int:
        """How many were added."""
        return self._folded + len(self._rows)

    def add(self, metrics: Any) -> dict[str, Any]:
        """Take copies of the metrics of one batch and return them, by name. Never waits for a device.

        Values that are no numbers, such as None or text, are kept out of all means; `take_others` has them.

        Raises:
            TrainerError: It is not a dict of names to values.
        """
        row: dict[str, Any]
        if self._lone is not None and isinstance(metrics, torch.Tensor):
            row = {self._lone: metrics.detach().clone()}
        else:
            row = self._row(metrics)
        self._rows.append(row)
        if len(self._rows) >= FOLD_BATCHES:
            self._fold()
        return row

    def _row(self, metrics: Any) -> dict[str, Any]:
        if not isinstance(metrics, dict):
            raise self._no_dict(metrics)
        row = {}
        for name, value in metrics.items():
            kind = type(value)
            if kind is torch.Tensor:
                row[name] = value.detach().clone()
            elif kind is float or kind is int:
                row[name] = value
            else:
                row[name] = self._copied(name, value)
            if type(name) is not str:
                self._check_name(name)
        return row

    def _no_dict(self, metrics: Any) -> TrainerError:
        either = " or a loss tensor" if self._lone else ""
        got = "None" if metrics is None else f"a {type(metrics).__name__}"
        return TrainerError(
            f"{self._method} must return a dict of metrics{either}, but for batch {self.batches} it returned {got}",
            hint='Return, for example, {"loss": loss}.',
        )

    def _check_name(self, name: Any) -> None:
        if not isinstance(name, str):
            raise TrainerError(
                f"{self._method} returned a dict with the name {name!r}, a {type(name).__name__}, for batch "
                f"{self.batches}: names of metrics are strings"
            )

    def _copied(self, name: Any, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().clone()
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
            return np.array(value, dtype=np.float64)
        if isinstance(value, numbers.Real):
            return float(value)
        self._others.setdefault(name, {})[self.batches] = _copy(value)
        if value is not None and name not in self._warned:
            self._warned.add(name)
            logger.warning(
                "%s returned a %s as metric %r for batch %d, which is kept out of means: only real numbers, and "
                "tensors and arrays of them, can be reduced over batches (others by context.wrap_reducer)",
                self._method,
                kind_of(value),
                name,
                self.batches,
            )
        return _KEPT_OUT

    def _fold(self) -> None:
        """Stack the values of each metric where they lie."""
        rows, start = self._rows, self._folded
        if not rows:
            return
        self._rows, self._folded = [], start + len(rows)
        everywhere = np.arange(start, self._folded)
        for name in dict.fromkeys(itertools.chain.from_iterable(rows)):
            values = [row[name] for row in rows if name in row]
            where = everywhere if len(values) == len(rows) else everywhere[[name in row for row in rows]]
            if name in self._others:
                where = where[[value is not _KEPT_OUT for value in values]]
                values = [value for value in values if value is not _KEPT_OUT]
            if values:
                self._pieces.setdefault(name, []).extend(_stacked(where, values))

    def take_others(self) -> dict[str, dict[int, Any]]:
        """Return the values that are no numbers, by metric and index of the batch, and forget them; after `take`."""
        others, self._others = self._others, {}
        return others

    def take(self) -> RankSeries:
        """Return all numbers on the host, and forget them; waits for the device."""
        self._fold()
        batches, pieces = self._folded, self._pieces
        self._folded, self._pieces = 0, {}
        series = RankSeries(batches, {}, [], frozenset(self._others))
        for name, of_name in pieces.items():
            try:
                series.values[name] = _on_host(of_name, batches)
            except TrainerError as error:
                series.problems.append(f"metric {name!r}, returned by {self._method}: {error.message}")
        return series


def _copy(value: Any) -> Any:
    """Return a value that stays as it is if the user changes the original's lists and dicts later."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    return type(value)(map(_copy, value)) if type(value) in {list, tuple} else value


def kind_of(value: Any) -> str:
    """Return what a value is, in words for an error message."""
    if isinstance(value, torch.Tensor):
        return f"{type(value).__name__} of {value.dtype}, {value.layout}, on {value.device}"
    if isinstance(value, np.ndarray):
        return f"ndarray of {value.dtype}"
    return type(value).__name__


def is_real(tensor: torch.Tensor) -> bool:
    """Return whether the elements of a tensor can be read as real numbers."""
    return not (tensor.is_complex() or tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta)


def _stacked(where: Any, values: list[Any]) -> list[_Piece]:
    """Return one stack if the values allow it, else one per kind; either way without waiting for a device."""
    if set(map(type, values)) <= {float, int}:
        return [(where, np.asarray(values, np.float64))]
    if isinstance(values[0], torch.Tensor):
        try:
            return [(where, torch.stack(values))]
        except (RuntimeError, TypeError):  # numbers among them, or several shapes or devices
            pass
    groups: dict[Any, tuple[list[int], list[Any]]] = {}
    for index, value in zip(where, values, strict=True):
        is_tensor = isinstance(value, torch.Tensor)
        key = (value.device, value.dtype, value.layout, value.shape) if is_tensor else np.shape(value)
        of_kind = groups.setdefault(key, ([], []))
        of_kind[0].append(index)
        of_kind[1].append(value)
    return [
        (np.array(indices), torch.stack(items) if isinstance(items[0], torch.Tensor) else np.asarray(items, np.float64))
        for indices, items in groups.values()
    ]


def _on_host(pieces: list[_Piece], batches: int) -> tuple[Any, Any]:
    """Return batch indices (None: all batches) and float64 values, in their order."""
    arrays = [(where, _to_float64(values)) for where, values in _joined(pieces)]
    shape = arrays[0][1].shape[1:]
    for where, array in arrays:
        if array.shape[1:] != shape:
            raise TrainerError(
                f"its shape is {_shape(shape)} for batch {arrays[0][0][0]} and {_shape(array.shape[1:])} for batch "
                f"{where[0]}: reduce it to one number, or to the same shape for every batch"
            )
    where = np.concatenate([indices for indices, _ in arrays])
    values = np.concatenate([array for _, array in arrays])
    if len(arrays) > 1:
        order = np.argsort(where, kind="stable")
        where, values = where[order], values[order]
    return (None if len(where) == batches else where), values


def _shape(shape: tuple[int, ...]) -> str:
    return str(shape) if shape else "that of a number"


def _joined(pieces: list[_Piece]) -> list[_Piece]:
    """Return the pieces, in one if they are tensors of one kind, so that there is one transfer."""
    tensors = [values for _, values in pieces if isinstance(values, torch.Tensor)]
    kinds = {(values.device, values.dtype, values.layout, values.shape[1:]) for values in tensors}
    if len(pieces) == len(tensors) > 1 and len(kinds) == 1:
        return [(np.concatenate([where for where, _ in pieces]), torch.cat(tensors))]
    return pieces


def _to_float64(values: Any) -> Any:
    """Return stacked values as an array; values of one element each become numbers."""
    if isinstance(values, torch.Tensor):
        if not is_real(values):
            raise TrainerError(f"it is a {kind_of(values)}: only real numbers can be averaged")
        values = values.cpu().to(torch.float64).numpy()
    each = values[0].size
    if each == 0:
        raise TrainerError(f"it has no elements (shape {values.shape[1:]}): there is nothing to average")
    return values.reshape(len(values)) if each == 1 else values
