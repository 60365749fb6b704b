"""Which factor each sample of the current batch has for each parameter."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from detlab.governance import GovernanceError, Plan, Refusal
from detlab.governance.matrix import is_split
from detlab.pytorch.parallel.unwrapping import bare, plain_name


@dataclasses.dataclass(frozen=True, slots=True)
class ParameterPlace:
    """Where a parameter stands in S.

    Attributes:
        index: Its column.
        name: Its name.
        column: Number of its distinct column: parameters with the same factors share one.
    """

    index: int
    name: str
    column: int


class Router:
    """The factors of the current batch; one object for all models of a process.

    Rows are the declared sources in order, then samples without one if the policy allows them, then nobody, whose
    factors are all zero. They are kept here and not in a context variable: backward passes run in other threads.

    Args:
        plan: What each source may train.
        parameters: The parameters by name.
        device: Where they are.

    Attributes:
        nobody: The row of samples that train nothing.
        lent: Whether the batch is another rank's, and trains nothing.
        compiled: Whether a compiled graph has run a governed layer: then nobody can look on.
        watch: Receives the routed gradients of a batch that is looked at; None in others.
        rows: Row of each sample of the batch, on the device; None if not known yet.
        serving: The isolated source whose modules are open in evaluation mode; None: no source's are.
    """

    def __init__(self, plan: Plan, parameters: Mapping[str, Any], device: Any) -> None:
        self.plan = plan
        self.device = device
        columns: dict[tuple[float, ...], int] = {}
        self._places: dict[int, ParameterPlace] = {}
        for index, one in enumerate(plan.parameters):
            number = columns.setdefault(plan.column(index), len(columns))
            self._places[id(parameters[one.name])] = ParameterPlace(index, one.name, number)
        self.distinct = [*columns]
        self.nobody = len(self.distinct[0])
        wide = any(parameters[one.name].dtype == torch.float64 for one in plan.parameters)
        self._dtype = torch.float64 if wide else torch.float32
        table = [[*column, 0.0] for column in self.distinct]
        self._table = torch.tensor(table, dtype=self._dtype, device=device)
        self.open = False
        self.lent = False
        self.compiled = False
        self.rows: Any = None
        self.watch: Any = None
        self.serving: str | None = None
        self._without_zeros: list[bool] = []
        self._all_ones: list[bool] = []
        self._scales: Any = None
        self._unknown = float("nan")

    def __deepcopy__(self, memo: dict[int, Any]) -> Router:
        return self  # a copy of a model, as for an average of its weights, has no batches of its own

    def place(self, parameter: Any) -> ParameterPlace | None:
        """Return where a parameter stands; None if it is not trained."""
        return self._places.get(id(parameter))

    def also(self, parameter: Any, place: ParameterPlace) -> None:
        """Take a tensor for the parameter that stands at a place, as what FSDP has gathered of it."""
        self._places[id(parameter)] = place

    def is_open(self, place: ParameterPlace) -> bool:
        """Return whether all sources may train a parameter, fully: nothing is to be routed."""
        return all(scale == 1 for scale in self.distinct[place.column])

    def begin(self, rows: Sequence[int] | None, *, nobody: bool = False) -> None:
        """Begin a batch.

        Args:
            rows: Row of each sample; None if they are not known yet, and `fill` says them before the backward pass.
            nobody: Without rows: whether the batch is lent from another rank, and trains nothing.
        """
        self.open = True
        self.lent = nobody
        self.rows = None
        self._scales = None
        self._without_zeros = self._all_ones = []
        self._unknown = 0.0 if nobody else float("nan")
        if rows is not None:
            self._set(rows)

    def fill(self, rows: Sequence[int]) -> None:
        """Say the rows of a batch whose forward pass has run without them."""
        known = self._scales
        self._set(rows)
        if known is None:
            return
        if known.shape != self._scales.shape:
            raise wrong_rows(known.shape[1], len(rows))
        # Through .data: what the graph has saved is this tensor, and autograd must not call it changed.
        known.data.copy_(self._scales)
        self._scales = known

    def end(self) -> None:
        """End a batch: a forward pass in training mode is an error until the next one begins."""
        self.open = False
        self.rows = self.watch = self._scales = None
        self._without_zeros = self._all_ones = []

    def _set(self, rows: Sequence[int]) -> None:
        self.rows = torch.tensor(rows, dtype=torch.long, device=self.device)
        self._scales = self._table[:, self.rows]
        present = set(rows)
        self._without_zeros = [
            self.nobody not in present and all(column[row] != 0 for row in present) for column in self.distinct
        ]
        self._all_ones = [
            self.nobody not in present and all(column[row] == 1 for row in present) for column in self.distinct
        ]

    def without_zeros(self, column: int) -> bool:
        """Return whether it is known that no sample of the batch has the factor zero: then no row has to be masked."""
        return bool(self._without_zeros) and self._without_zeros[column]

    def without_factors(self, column: int) -> bool:
        """Return whether it is known that all samples of the batch have the factor one."""
        return bool(self._all_ones) and self._all_ones[column]

    def scales(self, column: int, batch: int) -> Any:
        """Return the factors of the batch's samples for a distinct column, of shape [batch].

        Raises:
            GovernanceError: SAMPLES: no batch has begun. ROWS: the layer gets another number of rows than samples.
        """
        if not self.open:
            message = "a governed layer ran in training mode outside of a batch, so the sources of its rows are unknown"
            raise GovernanceError.of("SAMPLES", message)
        if self._scales is None:
            self._scales = torch.full((len(self.distinct), batch), self._unknown, dtype=self._dtype, device=self.device)
        if self._scales.shape[1] != batch:
            raise wrong_rows(batch, self._scales.shape[1])
        return self._scales[column]


def wrong_rows(seen: int, samples: int) -> GovernanceError:
    """Return the error of a layer whose rows are not the samples."""
    return GovernanceError.of("ROWS", f"a governed layer gets {seen} rows, and the batch has {samples} samples")


def trained_tensors(models: Sequence[Any]) -> dict[str, Any]:
    """Return the parameters that are trained by name; those of several models begin with `model_0.`, `model_1.`."""
    found = {}
    for index, model in enumerate(models):
        prefix = f"model_{index}." if len(models) > 1 else ""
        for name, parameter in bare(model).named_parameters():
            if parameter.requires_grad:
                found[prefix + plain_name(name)] = parameter
    return found


def splitters(models: Sequence[Any]) -> list[Any]:
    """Return the modules that `fully_shard` (FSDP2) has made: each gathers its parameters before its forward pass."""
    return [module for model in models for module in bare(model).modules() if is_split(type(module))]


def unenforced(plan: Plan, models: Sequence[Any], parameters: Mapping[str, Any]) -> list[Refusal]:
    """Return ENGINE or LEVEL for what is not enforced where parameters are split over processes."""
    split = {name: one for name, one in parameters.items() if hasattr(one, "to_local")}
    if not split:
        return []
    found, policy = [], plan.policy
    meshes = {one.device_mesh for one in split.values()}
    if not splitters(models) or any(mesh.ndim != 1 or mesh.size() != dist.get_world_size() for mesh in meshes):
        message = f"{next(iter(split))} is split over processes in another way than by fully_shard over all of them"
        found.append(Refusal("ENGINE", message))
    if policy.engine not in ("auto", "fused"):
        found.append(Refusal("ENGINE", f"`engine: {policy.engine}` is not there for models that fully_shard has split"))
    if any(level == "isolated" for row in plan.levels for level in row):
        found.append(Refusal("LEVEL", "`isolated` is not there for models that fully_shard has split"))
    return found


def replaced(models: Sequence[Any], router: Router) -> list[Refusal]:
    """Return ENGINE if a model has another parameter by now than one that is watched, as after `fully_shard`."""
    known = {one.name for one in router.plan.parameters}
    anew = [name for name, one in trained_tensors(models).items() if name in known and router.place(one) is None]
    if not anew:
        return []
    message = f"{anew[0]} was replaced after the policy was applied, and nothing watches the new parameter"
    message += ": call fully_shard and the like before Governed is made"
    return [Refusal("ENGINE", message)]


def misfits(plan: Plan, parameters: Mapping[str, Any]) -> list[Refusal]:
    """Return POLICY if a plan is of another model than that with these parameters."""
    expected = {one.name: one.shape for one in plan.parameters}
    found = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
    if expected == found:
        return []
    odd = next(name for name in (*expected, *found) if expected.get(name) != found.get(name))
    return [
        Refusal("POLICY", f"the plan is of another model: {odd} is {expected.get(odd)} there, {found.get(odd)} here")
    ]
