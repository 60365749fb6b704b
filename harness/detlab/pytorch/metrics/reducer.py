"""Metrics that cannot be averaged over batches: reducers that see the values of all batches and all ranks.

The semantics are those of Determined's `determined.pytorch.MetricReducer` and `context.wrap_reducer`.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import enum
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, overload

import torch

from detlab.errors import DetlabError, InvalidHP
from detlab.pytorch.errors import TrainerError

AllgatherFn = Callable[[Any], list[Any]]
_R = TypeVar("_R", bound="MetricReducer")


class Reducer(enum.Enum):
    """How the values that `evaluate_batch` returned become one: over all batches of all ranks.

    AVG is the plain mean: every batch weighs the same, a shorter last one too.
    """

    AVG = 1
    SUM = 2
    MAX = 3
    MIN = 4


class MetricReducer(abc.ABC):
    """A metric of many values, reduced on each rank first and then over the ranks.

    Add a method of your own that takes values, call it in `train_batch` or `evaluate_batch`, and hand the object to
    `context.wrap_reducer`. Nothing is reported by the reducer itself: its result is merged into the metrics.
    """

    @abc.abstractmethod
    def reset(self) -> None:
        """Forget all values; called before each stretch of training batches and before each validation."""

    @abc.abstractmethod
    def per_slot_reduce(self) -> Any:
        """Return what `cross_slot_reduce` needs from this rank: something small that can be pickled.

        Tensors in it (also within dicts, lists, tuples and dataclasses) are moved to the CPU for the way.
        """

    @abc.abstractmethod
    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        """Return the metric, or a dict of metrics if the reducer was wrapped without a name.

        Args:
            per_slot_metrics: What `per_slot_reduce` returned on each rank, by rank; one item if there is one rank.
        """


class _SimpleReducer(MetricReducer):
    """A reducer made of a function: `update(value)` per batch, then `fn` over the values of all ranks."""

    def __init__(self, fn: Callable[[list[Any]], Any]) -> None:
        self.fn = fn
        self.values: list[Any] = []

    def update(self, value: Any) -> None:
        """Add a value, usually a tuple of one batch's labels and predictions; tensors lose their graph."""
        self.values.append(_map_tensors(value, lambda tensor: tensor.detach()))

    def reset(self) -> None:
        self.values = []

    def per_slot_reduce(self) -> list[Any]:
        return self.values

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        return self.fn(list(_deal_back(per_slot_metrics)))


def _deal_back(hands: list[list[Any]]) -> Iterator[Any]:
    """Yield values in the order of the data: batch k was dealt to rank k mod N, one value per batch."""
    for index in range(max(map(len, hands), default=0)):
        for hand in hands:
            if index < len(hand):
                yield hand[index]


def _map_tensors(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Return `value` with its tensors changed, also within the containers that people put them in.

    What holds no tensor is returned as it is, so that a `Counter` stays one.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        changes = _changed(((key, value[key]) for key in keys), change)
        if not changes:
            return value
        mapped = copy.copy(value)
        for key, item in changes.items():
            mapped[key] = item
        return mapped
    if isinstance(value, tuple):
        changes = _changed(enumerate(value), change)
        items = [changes.get(index, item) for index, item in enumerate(value)]
        if not changes:
            return value
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        changes = _changed(((name, getattr(value, name)) for name in fields), change)
        return dataclasses.replace(value, **changes) if changes else value
    return value


def _changed(items: Iterable[tuple[Any, Any]], change: Callable[[torch.Tensor], Any]) -> dict[Any, Any]:
    changes = {}
    for key, old in items:
        new = _map_tensors(old, change)
        if new is not old:
            changes[key] = new
    return changes


def to_cpu(value: Any) -> Any:
    """Return `value` with all tensors detached and on the CPU, so that another rank can unpickle it."""
    return _map_tensors(value, _travelling)


def _travelling(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().cpu()
    whole = tensor.layout is torch.strided and tensor.untyped_storage().nbytes() <= tensor.nbytes
    return tensor if whole else tensor.clone()  # a view would take all of its storage along


def default_allgather_fn(metrics: Any) -> list[Any]:
    """Gather from the one rank there is."""
    return [metrics]


@dataclasses.dataclass(frozen=True)
class _Wrapped:
    reducer: MetricReducer
    name: str | None
    for_training: bool
    for_validation: bool

    def serves(self, *, training: bool) -> bool:
        return self.for_training if training else self.for_validation

    def __str__(self) -> str:
        if isinstance(self.reducer, _SimpleReducer):
            kind = getattr(self.reducer.fn, "__qualname__", type(self.reducer.fn).__name__) + "()"
        else:
            kind = type(self.reducer).__qualname__
        return f"the reducer {kind} " + (f"named {self.name!r}" if self.name is not None else "without a name")

    def call(self, method: str, *args: Any) -> Any:
        """Call a method of the reducer; say which reducer it was if that fails."""
        try:
            return getattr(self.reducer, method)(*args)
        except InvalidHP:
            raise
        except Exception as error:  # whatever a user's reducer raises
            where = "its function" if isinstance(self.reducer, _SimpleReducer) else f"{method}()"
            raise TrainerError(f"{self} failed in {where}: {type(error).__name__}: {error}") from error

    def named(self, reduced: Any) -> dict[str, Any]:
        """Return the reduced value as metrics.

        Raises:
            TrainerError: A reducer with a name returned a dict, one without a name did not, or a key is not a string.
        """
        if self.name is not None:
            if isinstance(reduced, dict):
                raise TrainerError(
                    f"{self} returned a dict",
                    hint="Return one value, or call wrap_reducer() without a name to report each item of the dict.",
                )
            return {self.name: reduced}
        if not isinstance(reduced, dict):
            raise TrainerError(
                f"{self} returned a {type(reduced).__name__}, not a dict of metrics",
                hint='Give the metric a name, as in wrap_reducer(…, name="f1"), or return a dict of name to value.',
            )
        wrong = [name for name in reduced if not isinstance(name, str)]
        if wrong:
            raise TrainerError(f"{self} returned a dict with names that are not strings: {wrong}")
        return reduced


class _PyTorchReducerContext:
    """The reducers of a trial.

    Args:
        allgather_fn: Gives everybody's value, by rank, to everybody.
    """

    def __init__(self, allgather_fn: AllgatherFn = default_allgather_fn) -> None:
        self._wrapped_reducers: list[_Wrapped] = []
        self._allgather_fn = allgather_fn
        self._agreed_on_no_reducers: set[bool] = set()

    @overload
    def wrap_reducer(
        self, reducer: _R, name: str | None = None, for_training: bool = True, for_validation: bool = True
    ) -> _R: ...

    @overload
    def wrap_reducer(
        self,
        reducer: Callable[[list[Any]], Any],
        name: str | None = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> _SimpleReducer: ...

    def wrap_reducer(
        self, reducer: Any, name: str | None = None, for_training: bool = True, for_validation: bool = True
    ) -> Any:
        """Register a metric that is computed over the values of all batches and all ranks.

        Args:
            reducer: A function of the flat list of all values, or a `MetricReducer`. The values of several ranks come
                in the order of the data if there was one per batch.
            name: Of the metric; None if the reducer returns a dict of metrics.
            for_training: Whether it is reduced and reported with training metrics.
            for_validation: Whether it is reduced and reported with validation metrics.

        Returns:
            The reducer; for a function an object whose `update(value)` is to be called per batch.

        Raises:
            TrainerError: It is not a reducer, was wrapped already, or its name is taken.
        """
        wrapped_by = reducer if isinstance(reducer, MetricReducer) else None
        if wrapped_by is None and (not callable(reducer) or isinstance(reducer, type)):
            hint = " (a class: wrap an instance of it)" if isinstance(reducer, type) else ""
            raise TrainerError(f"wrap_reducer() takes a function or a MetricReducer, not {reducer!r}{hint}")
        wrapped = _Wrapped(wrapped_by or _SimpleReducer(reducer), name, bool(for_training), bool(for_validation))
        self._check_reducer(wrapped)
        self._wrapped_reducers.append(wrapped)
        return wrapped.reducer

    def _check_reducer(self, new: _Wrapped) -> None:
        problems = []
        if new.name is not None and (not isinstance(new.name, str) or not new.name):
            problems.append(f"name must be a string that is not empty, or None, not {new.name!r}")
        if not new.for_training and not new.for_validation:
            problems.append("for_training and for_validation are both False: it would never be reported")
        for old in self._wrapped_reducers:
            if old.reducer is new.reducer:
                problems.append(f"this object is already wrapped, as {old}: wrap each reducer once")
            both = (old.for_training and new.for_training) or (old.for_validation and new.for_validation)
            if new.name is not None and old.name == new.name and both:
                problems.append(f"the name {new.name!r} is already used by {old}")
        if problems:
            raise TrainerError.of(f"wrap_reducer() cannot take {new}:", problems)

    def reset_reducers(self) -> None:
        """Make all reducers forget their values.

        Raises:
            TrainerError: One of them failed.
        """
        for wrapped in self._wrapped_reducers:
            wrapped.call("reset")

    def reduce_metrics(self, for_training: bool) -> dict[str, Any]:
        """Return the metrics of all reducers for training, or for validation; all ranks call this together.

        Raises:
            TrainerError: A reducer failed (on any rank), returned what does not fit its name, two returned the same
                name, or the ranks have different reducers.
        """
        active = [wrapped for wrapped in self._wrapped_reducers if wrapped.serves(training=for_training)]
        if not active and for_training in self._agreed_on_no_reducers:
            return {}
        by_rank = self._gather_slots(active)
        if not active:
            self._agreed_on_no_reducers.add(for_training)
        metrics: dict[str, Any] = {}
        source: dict[str, _Wrapped] = {}
        for index, wrapped in enumerate(active):
            reduced = wrapped.call("cross_slot_reduce", [values[index] for values in by_rank])
            for name, value in wrapped.named(reduced).items():
                if name in source:
                    raise TrainerError(f"two reducers returned the metric {name!r}: {source[name]} and {wrapped}")
                metrics[name], source[name] = value, wrapped
        return metrics

    def _gather_slots(self, active: list[_Wrapped]) -> list[list[Any]]:
        """Return the per-slot values of each rank; a failure on one rank is raised on all."""
        failure: Exception | None = None
        values: list[Any] = []
        try:
            values = [to_cpu(wrapped.call("per_slot_reduce")) for wrapped in active]
        except Exception as error:  # told to the others first: they wait for this rank
            failure = error
        labels = [str(wrapped) for wrapped in active]
        said = self._exchange_slots({"labels": labels, "values": values, "failure": failure and str(failure)}, active)
        if failure is not None:
            raise failure
        for rank, theirs in enumerate(said):
            if theirs["failure"] is not None:
                raise TrainerError(f"on rank {rank}: {theirs['failure']}")
        if any(theirs["labels"] != labels for theirs in said):
            listed = [f"rank {rank}: {', '.join(theirs['labels']) or 'none'}" for rank, theirs in enumerate(said)]
            raise TrainerError.of("the ranks have different reducers; wrap the same ones on all ranks:", listed)
        return [theirs["values"] for theirs in said]

    def _exchange_slots(self, mine: dict[str, Any], active: Iterable[_Wrapped]) -> list[dict[str, Any]]:
        try:
            return self._allgather_fn(mine)
        except DetlabError:
            raise
        except Exception as error:  # pickling runs the values' own code
            for wrapped, value in zip(active, mine["values"], strict=False):
                if not _pickles(value):
                    raise TrainerError(
                        f"the value that {wrapped} returned from per_slot_reduce() cannot be sent to other ranks: "
                        f"{type(error).__name__}: {error}",
                        hint="Return numbers, arrays, tensors, strings, or dicts and lists of them.",
                    ) from error
            raise


def _pickles(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:  # whatever its own code raises; the caller says which value it was
        return False
    return True
