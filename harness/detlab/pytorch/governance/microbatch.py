"""The engine `microbatch`: a forward and backward pass for each source of a batch.

All that such a pass gives to a parameter is of one source, so it is scaled where it arrives there, before it is added
up, averaged over ranks or compressed. Layers and losses may mix the samples of a part as they like, batch norm too.
What a part leaves in buffers that its source may not change, such as running statistics, is put back.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from detlab.governance import GovernanceError, Plan, Refusal
from detlab.governance.sources import BatchPart, parts_of
from detlab.pytorch.governance.buffers import ClosedBuffers
from detlab.pytorch.governance.guard import GradientGuard
from detlab.pytorch.governance.meter import Meter
from detlab.pytorch.governance.preflight import PreflightResult
from detlab.pytorch.governance.router import ParameterPlace, Router
from detlab.pytorch.parallel.unwrapping import replica_in


def given_by(gradient: Any, factor: float) -> Any:
    """Return what a source gives of its gradient: exact zeros if its factor is zero, whatever the gradient holds."""
    if factor == 0:
        return torch.zeros_like(gradient)
    return gradient if factor == 1 else gradient * factor


class SourceScaling:
    """Scales what arrives at each parameter by the factor of the source whose samples run.

    Args:
        router: The factors.
        parameters: All that are trained, by name.

    Attributes:
        row: Of the part of a batch that runs; None between parts, where nothing is scaled.
        meter: Is told the norm of what was given, in batches that are looked at; None in others.
    """

    def __init__(self, router: Router, parameters: Mapping[str, Any]) -> None:
        self._router = router
        self._parameters = dict(parameters)
        self.row: int | None = None
        self.meter: Any = None
        # The nodes are kept: a node that nobody refers to is made anew, without its hooks.
        self._nodes: dict[str, Any] = {}
        self._hooks: dict[str, Callable[[tuple[Any, ...]], Any]] = {}
        for name, parameter in self._parameters.items():
            place = router.place(parameter)
            assert place is not None
            self._nodes[name] = torch.autograd.graph.get_gradient_edge(parameter).node
            self._hooks[name] = functools.partial(self._arrived, place)
            self._nodes[name].register_prehook(self._hooks[name])

    def factor(self, place: ParameterPlace, row: int) -> float:
        """Return the factor of a row for a parameter."""
        return 0.0 if row == self._router.nobody else self._router.distinct[place.column][row]

    def _arrived(self, place: ParameterPlace, gradients: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if self.row is None or gradients[0] is None:
            return None
        factor = self.factor(place, self.row)
        given = given_by(gradients[0], factor)
        if self.meter is not None and factor != 0:
            self.meter.add(self.row, place.index, torch.linalg.vector_norm(given.detach().float()))
        return None if given is gradients[0] else (given, *gradients[1:])

    def tried(self) -> PreflightResult:
        """Try the scaling of each parameter for each source, on made-up gradients; nothing of the training changes."""
        found = PreflightResult()
        for name, parameter in self._parameters.items():
            place = self._router.place(parameter)
            assert place is not None
            if self._router.is_open(place):
                continue
            found.tried += 1
            if torch.autograd.graph.get_gradient_edge(parameter).node is not self._nodes[name]:
                found.refusals.append(Refusal("ENV", f"pre-flight: nothing scales the gradients of {name}"))
                continue
            wrong = [row for row in range(self._router.nobody + 1) if not self._is_right(name, place, row)]
            found.refusals += [
                Refusal("ENV", f"pre-flight: the gradient of {name} is not what the policy gives it") for _ in wrong[:1]
            ]
        return found

    def _is_right(self, name: str, place: ParameterPlace, row: int) -> bool:
        factor = 0.0 if row == self._router.nobody else self._router.distinct[place.column][row]
        values = [torch.nan, torch.inf] if factor == 0 else [1.0, -2.0]
        made_up = torch.tensor(values, dtype=torch.float64)
        self.row = row
        try:
            told = self._hooks[name]((made_up,))
        finally:
            self.row = None
        given = made_up if told is None else told[0]
        expected = torch.zeros_like(made_up) if factor == 0 else factor * made_up
        return torch.equal(given, expected)


class SourceParts:
    """Runs the parts of batches for `Governed`, one source at a time.

    Args:
        plan: What each source may train.
        router: Its factors.
        parameters: All that are trained, by name.
        models: Models, wrapped or not; and `bare`, what is in them.

    Raises:
        GovernanceError: ENGINE: a layer has sparse gradients.
    """

    def __init__(
        self, plan: Plan, router: Router, parameters: Mapping[str, Any], models: Sequence[Any], bare: Sequence[Any]
    ) -> None:
        every = (one for model in bare for one in model.modules())
        if any(one.sparse for one in every if isinstance(one, nn.Embedding | nn.EmbeddingBag)):
            raise GovernanceError.of("ENGINE", "an embedding has sparse gradients, which are not scaled: sparse=False")
        self.scaling = SourceScaling(router, parameters)
        columns = {id(one): place.index for one in parameters.values() if (place := router.place(one)) is not None}
        self._buffers = ClosedBuffers(plan, bare, columns)
        self._parameters = dict(parameters)
        self._replicas = [found for model in models if (found := replica_in(model)) is not None]
        self._grown: list[tuple[str, Any, int]] = []
        self.of_batch: list[BatchPart] = []
        for module in self._buffers.modules:
            module.register_forward_pre_hook(self._running)

    def __deepcopy__(self, memo: dict[int, Any]) -> SourceParts:
        return self  # a copy of a model, as for an average of its weights, has no batches of its own

    def _running(self, module: Any, _: Any) -> None:
        """Refuse a forward pass in training mode that would change buffers by samples of unknown sources."""
        if not torch.compiler.is_compiling() and module.training and self.scaling.row is None:
            what = f"{type(module).__name__} ran in training mode outside of a batch, by samples of unknown sources"
            raise GovernanceError.of("SAMPLES", f"{what}, which may change its buffers: call model.eval() before")

    def begin(self, parts: list[BatchPart]) -> None:
        """Begin a batch."""
        self.of_batch = parts
        self._grown = []

    def enter(self, row: int, meter: Any) -> None:
        """Begin a part; `meter` is None in batches that are not looked at."""
        self.scaling.row, self.scaling.meter = row, meter
        self._buffers.keep(row)

    def leave(self) -> None:
        """End a part."""
        self.scaling.row = self.scaling.meter = None
        self._buffers.restore()

    def end(self) -> None:
        """End a batch."""
        self.leave()
        self.of_batch, self._grown = [], []

    def before_backward(self, *, stepped: bool) -> list[Refusal]:
        """Return ENGINE for what would make the sum over parts another than that over the batch."""
        found = []
        if self.scaling.row is None:
            message = "this batch runs source by source: go through `for rows in governed.parts(sources)`"
            found.append(Refusal("ENGINE", message))
        if stepped:
            message = "a backward pass after a step of the same batch would see other weights than those before"
            found.append(Refusal("ENGINE", message))
        grads = {name: parameter.grad for name, parameter in self._parameters.items()}
        odd = [name for name, one, version in self._grown if grads[name] is not one or one._version != version]
        if odd:
            message = f"gradients of another part of this batch were dropped or changed, first that of {odd[0]}"
            hint = "leave out zero_grad() and clipping in between; context.step_optimizer(…, clip_grads=) does both"
            found.append(Refusal("ENGINE", f"{message}: {hint}"))
        return found

    def after_backward(self) -> None:
        """Take note of the gradients."""
        grads = {name: parameter.grad for name, parameter in self._parameters.items()}
        self._grown = [(name, one, one._version) for name, one in grads.items() if one is not None]

    @contextlib.contextmanager
    def exchanging(self, *, last: bool) -> Iterator[None]:
        """Have models in DDP exchange gradients in the last part alone, which every rank has once.

        Raises:
            GovernanceError: ENGINE: DDP would exchange what the last part has used alone.
        """
        if any(replica.find_unused_parameters or replica.static_graph for replica in self._replicas):
            message = "DDP with find_unused_parameters or static_graph does not add up the parts of a batch"
            raise GovernanceError.of("ENGINE", f"{message}: leave them out, or average gradients over ranks yourself")
        with contextlib.ExitStack() as stack:
            for replica in () if last else self._replicas:
                stack.enter_context(replica.no_sync())
            yield


class SourceBatches:
    """The part of `Governed` that goes through batches, all at once or source by source."""

    _parts: SourceParts | None
    """None but with the engine `microbatch`."""
    _router: Router
    """All else is of `Governed`."""
    _guard: GradientGuard
    _rows: list[int] | None
    _lent: bool
    _counted: bool
    _batches: int
    meter: Meter

    def begin(self, sources: Any, *, lent: bool = False) -> None:
        """Begin a batch; see `Governed`."""
        raise NotImplementedError

    def _weight(self, rows: Sequence[int]) -> float:
        raise NotImplementedError

    @contextlib.contextmanager
    def batch(self, sources: Any) -> Iterator[None]:
        """Surround the forward and backward pass of one batch.

        Args:
            sources: The source of each sample, in order: names, or numbers of declared sources.

        Raises:
            GovernanceError: ENGINE: the samples are of several sources, and the engine is `microbatch`: see `parts`.
        """
        self.begin(sources)
        try:
            if len(self.batch_parts) > 1:
                message = "has samples of several sources: `for rows in governed.parts(sources)` goes through them"
                raise GovernanceError.of("ENGINE", f"a batch {message}")
            if self.batch_parts:
                self._enter(self.batch_parts[0])
            yield
        finally:
            self._end_batch()

    def parts(self, sources: Any) -> Iterator[list[int]]:
        """Go through one batch, with a forward and backward pass for each part of it: a loop for any engine.

            for rows in governed.parts(sources):
                governed.backward(losses_of(model, x[rows], y[rows]))

        The engine `microbatch` has a part for each source, the others have one of all samples.

        Args:
            sources: As for `batch`; not None.

        Yields:
            Where the samples of the part stand in the batch.
        """
        if sources is None:
            raise GovernanceError.of("SAMPLES", "the parts of a batch follow from its sources, which are not given")
        self.begin(sources)
        try:
            if self._parts is None:
                yield list(range(len(self._rows or ())))
            for part in self.batch_parts:
                assert self._parts is not None
                with self._parts.exchanging(last=part is self.batch_parts[-1]), self.part(part):
                    yield list(part.places)
        finally:
            self._end_batch()

    @property
    def batch_parts(self) -> list[BatchPart]:
        """Those of the batch that has begun, if the engine is `microbatch`; else none."""
        return [] if self._parts is None else self._parts.of_batch

    @contextlib.contextmanager
    def part(self, part: BatchPart) -> Iterator[None]:
        """Surround the forward and backward pass of one of `batch_parts`."""
        self._enter(part)
        try:
            yield
        finally:
            self._leave()

    def end(self) -> None:
        """End a batch."""
        self._end_batch()

    def _end_batch(self) -> None:
        self._leave()
        if self._parts is not None:
            self._parts.end()

    def _begin_parts(self, parts: SourceParts) -> None:
        """Divide a batch, and exchange its counts: once, however many parts each rank has."""
        if not self._rows and not self._lent:
            message = "`engine: microbatch` needs the source of each sample, one or more, before the forward pass"
            raise GovernanceError.of("SAMPLES", message)
        rows = [] if self._lent else self._rows or []
        self._weight(rows)
        self._counted = True
        parts.begin(parts_of(rows) or [BatchPart(self._router.nobody, ())])

    def _enter(self, part: BatchPart) -> None:
        assert self._parts is not None
        if not self._lent:
            self._rows = [part.row] * len(part.places)
        self._router.begin(None if self._lent else self._rows, nobody=self._lent)
        self._parts.enter(part.row, self.meter if self._guard.due(self._batches - 1) else None)

    def _leave(self) -> None:
        self._router.end()
        if self._parts is not None:
            self._parts.leave()
