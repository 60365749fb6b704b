"""Try each routed layer of the real model on made-up inputs, before its first step: closed rows must leave no trace.

Each declared source has one row. The gradients of a layer's parameters must be the same bits if the rows that are
closed to it are NaN, and must be those of the stock layer with each row times its factor. No parameter, gradient, hook
or random number of the training is touched.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from detlab.governance import Refusal
from detlab.pytorch.governance.dual import DualLayer
from detlab.pytorch.governance.fused import RoutedLayer
from detlab.pytorch.governance.router import ParameterPlace, Router

_STEPS = 2
"""Length of made-up sequences and images."""
_TOLERANCE, _TINY = 1e-2, 1e-6
"""Of gradients against those of the stock layer: relative, for kernels of lower precision, and absolute."""


@dataclasses.dataclass
class PreflightResult:
    """What was found.

    Attributes:
        tried: Layers that were tried.
        untried: Layers that are routed, and that no made-up input is known for.
        refusals: Layers that leaked, or that closed what is open.
    """

    tried: int = 0
    untried: int = 0
    refusals: list[Refusal] = dataclasses.field(default_factory=list)


def try_layers(models: Sequence[Any], router: Router, parameters: Mapping[str, Any]) -> PreflightResult:
    """Try all layers whose gradients are routed, and look whether there are others that should be.

    Args:
        models: Bare models, with their layers routed; no batch has begun.
        router: Theirs.
        parameters: What is trained, by name.
    """
    found = PreflightResult()
    every = (layer for model in models for layer in model.modules())
    layers: list[Any] = [layer for layer in every if isinstance(layer, RoutedLayer | DualLayer)]
    routed = {id(one) for layer in layers for one in layer.parameters()}
    for name, one in parameters.items():
        place = router.place(one)
        if place is not None and not router.is_open(place) and id(one) not in routed:
            found.refusals.append(Refusal("ENV", f"pre-flight: nothing routes the gradients of {name}"))
    generator = torch.Generator().manual_seed(0)
    router.begin(list(range(router.nobody)))
    try:
        for model in models:
            for name, layer in model.named_modules():
                if isinstance(layer, RoutedLayer | DualLayer):
                    _try_layer(name, layer, router, generator, found)
    finally:
        router.end()
    return found


def _try_layer(name: str, layer: Any, router: Router, generator: Any, found: PreflightResult) -> None:
    places = {path: place for path, one in layer.named_parameters() if (place := router.place(one)) is not None}
    if all(router.is_open(place) for place in places.values()):
        return
    inputs = _inputs(layer, router.nobody, generator)
    if inputs is None:
        found.untried += 1
        return
    found.tried += 1
    try:
        problems = _problems(layer, places, router, inputs, generator)
    except RuntimeError as error:  # of a kernel, which the first step would meet, too
        problems = [f"it cannot be differentiated: {error}"[:200]]
    found.refusals += [Refusal("ENV", f"pre-flight: {name or type(layer).__name__}: {one}") for one in problems]


def _problems(
    layer: Any, places: dict[str, ParameterPlace], router: Router, inputs: list[Any], generator: Any
) -> list[str]:
    rows_of = _rows_dim(layer)
    out = _run(layer, inputs)
    seed = torch.randn(out.shape, generator=generator).to(out)
    routed = _gradients(layer, places, out, seed)
    problems = []
    for path, place in places.items():
        scales = torch.tensor(router.distinct[place.column]).to(seed)
        other, spoilt = [one.clone() for one in inputs], seed.clone()
        for one in (*other, spoilt):
            rows = one.movedim(rows_of, 0)
            rows[scales == 0] = float("nan") if one.is_floating_point() else 0
        if not torch.equal(routed[path], _gradients(layer, places, _run(layer, other), spoilt)[path]):
            problems.append(f"samples that are closed to {path} change its gradient")
        wanted = (seed.movedim(rows_of, 0) * scales.view(-1, *[1] * (seed.dim() - 1))).movedim(0, rows_of)
        expected = _gradients(layer, places, _run(layer, inputs, stock=True), wanted)[path]
        if (routed[path] - expected).norm() > _TOLERANCE * expected.norm() + _TINY:
            problems.append(f"the gradient of {path} is not what the policy gives it")
    return problems


def _run(layer: Any, inputs: list[Any], *, stock: bool = False) -> Any:
    """Run a layer without the hooks of users and without chance; return its first output.

    Args:
        layer: The layer.
        inputs: What it takes.
        stock: As if nothing governed it.
    """
    given = inputs * 3 if isinstance(layer, nn.MultiheadAttention) else inputs
    own = type(layer)
    with _settled(layer), torch.enable_grad():
        layer.__class__ = own.__mro__[2] if stock else own  # its own class, the mixin, the stock class
        try:
            out = layer.forward(*given)
        finally:
            layer.__class__ = own
    return out[0] if isinstance(out, tuple) else out


@contextlib.contextmanager
def _settled(layer: Any) -> Iterator[None]:
    """Have a layer drop nothing out; and cuDNN differentiate a recurrent one, as it does in training mode alone."""
    training, dropout = layer.training, getattr(layer, "dropout", None)
    layer.training = training or isinstance(layer, nn.RNNBase)
    if isinstance(dropout, float):
        layer.dropout = 0.0
    try:
        yield
    finally:
        layer.training = training
        if isinstance(dropout, float):
            layer.dropout = dropout


def _gradients(layer: Any, places: dict[str, ParameterPlace], out: Any, seed: Any) -> dict[str, Any]:
    named = {path: one for path, one in layer.named_parameters() if path in places}
    found = torch.autograd.grad(out, list(named.values()), seed, allow_unused=True)
    return {
        path: torch.zeros_like(one) if gradient is None else gradient
        for (path, one), gradient in zip(named.items(), found, strict=True)
    }


def _rows_dim(layer: Any) -> int:
    return 1 if isinstance(layer, nn.RNNBase) and not layer.batch_first else 0


def _inputs(layer: Any, rows: int, generator: Any) -> list[Any] | None:
    """Return an input with so many rows for a layer; None if none is known for its kind."""
    weight = next(layer.parameters())
    if isinstance(layer, nn.Embedding):
        return [torch.randint(layer.num_embeddings, (rows, _STEPS), generator=generator).to(weight.device)]
    shape = _shape(layer, rows)
    return None if shape is None else [torch.randn(shape, generator=generator).to(weight)]


def _shape(layer: Any, rows: int) -> list[int] | None:
    if isinstance(layer, nn.Linear):
        return [rows, layer.in_features]
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        padding = [0] * len(layer.kernel_size) if isinstance(layer.padding, str) else layer.padding
        size = zip(layer.kernel_size, layer.dilation, padding, strict=True)
        return [rows, layer.in_channels, *(dilation * (kernel - 1) + 1 + pad for kernel, dilation, pad in size)]
    if isinstance(layer, nn.LayerNorm):
        return [rows, *layer.normalized_shape]
    if isinstance(layer, nn.GroupNorm):
        return [rows, layer.num_channels, _STEPS]
    if isinstance(layer, nn.RNNBase):
        return [rows, _STEPS, layer.input_size] if layer.batch_first else [_STEPS, rows, layer.input_size]
    if isinstance(layer, nn.MultiheadAttention) and layer.kdim == layer.vdim == layer.embed_dim:
        return [rows, _STEPS, layer.embed_dim]
    return None
