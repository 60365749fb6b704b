"""Route the gradients of any layer whose samples are apart, by a second forward pass.

The first pass has the layer's parameters detached: through it gradients reach its inputs. The second has its inputs
detached: through it they reach its parameters. Rows that may train nothing are zeros in the inputs of the second pass,
and gradients are scaled row by row where they enter it. The output has the values of the first pass, to the bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils import checkpoint

from detlab.governance import GovernanceError
from detlab.pytorch.governance.fused import kept, scaled
from detlab.pytorch.governance.router import ParameterPlace, Router, wrong_rows


class _Enter(torch.autograd.Function):
    """Add nothing to a value; scale the gradient that enters the second pass, row by row."""

    @staticmethod
    def forward(ctx: Any, value: Any, second: Any, scale: Any, dim: int, watch: Any) -> Any:
        ctx.save_for_backward(scale)
        ctx.dim, ctx.watch = dim, watch
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (scale,) = ctx.saved_tensors
        rows = g.movedim(ctx.dim, 0)
        if ctx.watch is not None:
            watch, places = ctx.watch
            watch.entered(rows, places)
        return g, scaled(rows, scale).movedim(0, ctx.dim), None, None, None


class DualLayer:
    """Mixin of the classes that `run_twice` makes."""


def batch_dim(layer: Any) -> Callable[[Any, int], int]:
    """Return what tells the dimension of the samples in a tensor that a layer takes or returns.

    Raises:
        GovernanceError: ENGINE: the layer wants samples in another dimension than the first.
    """
    if isinstance(layer, nn.RNNBase):
        first = 0 if layer.batch_first else 1
        # the sequences are [batch, time, …] or [time, batch, …]; states are [layers, batch, …]
        return lambda tensor, place: first if place == 0 else 1
    if getattr(layer, "batch_first", True) is False:
        raise GovernanceError.of("ENGINE", f"{type(layer).__name__} needs batch_first=True to be routed")
    return lambda tensor, place: 0


def run_twice(layer: Any, router: Router, places: list[ParameterPlace]) -> None:
    """Have a layer run twice in training, so that gradients of its parameters are routed.

    Args:
        layer: The layer; it keeps its names, only its class becomes one made for it.
        router: The router.
        places: Of its parameters and those of its children, which all have the same factors.
    """
    draws = any(getattr(one, "p", 0) or getattr(one, "dropout", 0) for one in layer.modules() if _may_drop(one))
    object.__setattr__(layer, "_governance", (router, places, batch_dim(layer), draws))
    base: Any = type(layer)
    layer.__class__ = _dual_class(base)


def _may_drop(module: Any) -> bool:
    return isinstance(module, nn.modules.dropout._DropoutNd | nn.RNNBase | nn.MultiheadAttention)


@functools.cache
def _dual_class(base: Any) -> type:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        router, places, dim_of, draws = self._governance
        if not torch.is_grad_enabled() or not (router.open or self.training):
            return base.forward(self, *args, **kwargs)
        return _twice(self, base, router, places, dim_of, draws, args, kwargs)

    return type(base.__name__, (DualLayer, base), {"forward": forward, "__doc__": base.__doc__})


def _twice(
    layer: Any,
    base: Any,
    router: Router,
    places: list[ParameterPlace],
    dim_of: Any,
    draws: bool,
    args: Any,
    kwargs: Any,
) -> Any:
    leaves, structure = pytree.tree_flatten((args, kwargs))
    number = [place for place, one in enumerate(leaves) if isinstance(one, torch.Tensor)]
    if not number:
        raise GovernanceError.of("ENGINE", f"{type(layer).__name__} takes no tensor, so its rows are unknown")
    size = leaves[number[0]].shape[dim_of(leaves[number[0]], 0)]
    scale = router.scales(places[0].column, size)
    closed = list(leaves)
    watch = None if router.watch is None or torch.compiler.is_compiling() else (router.watch, places)
    for order, place in enumerate(number):
        closed[place] = _apart(leaves[place], dim_of(leaves[place], order), scale, watch)
    state = _random_state(leaves) if draws else None
    frozen = {name: one.detach() for name, one in layer.named_parameters()}
    outer = _call(layer, base, frozen, *pytree.tree_unflatten(leaves, structure))
    after = _random_state(leaves) if draws else None
    _draw_from(state)
    second_args = pytree.tree_unflatten(closed, structure)
    inner = _call(layer, base, dict(layer.named_parameters()), *second_args)
    _draw_from(after)
    return _joined(outer, inner, scale, dim_of, watch)


def _random_state(leaves: list[Any]) -> Any:
    return torch.get_rng_state(), checkpoint.get_device_states(*leaves)


def _draw_from(state: Any) -> None:
    """Draw the same random numbers as from this state on; None changes nothing."""
    if state is not None:
        torch.set_rng_state(state[0])
        checkpoint.set_device_states(*state[1])


def _call(layer: Any, base: Any, parameters: dict[str, Any], args: Any, kwargs: Any) -> Any:
    """Run a layer's own forward pass with other parameters."""
    own = type(layer)
    layer.__class__ = base
    try:
        return torch.func.functional_call(layer, parameters, args, kwargs, tie_weights=True)
    finally:
        layer.__class__ = own


def _apart(tensor: Any, dim: int, scale: Any, watch: Any) -> Any:
    """Return an input of the second pass: without a graph, and zeros in rows that may train nothing."""
    rows = tensor.detach().movedim(dim, 0)
    if rows.shape[0] != scale.shape[0]:
        raise wrong_rows(rows.shape[0], scale.shape[0])
    if not rows.is_floating_point():
        return tensor
    own = kept(rows, scale)
    if watch is not None and watch[0].inputs is not None:
        watch[0].inputs.append((own.requires_grad_(), watch[1]))
    return own.movedim(0, dim)


def _joined(outer: Any, inner: Any, scale: Any, dim_of: Any, watch: Any) -> Any:
    values, structure = pytree.tree_flatten(outer)
    seconds, _ = pytree.tree_flatten(inner)
    found, order = [], 0
    for value, second in zip(values, seconds, strict=True):
        if not isinstance(value, torch.Tensor) or not second.requires_grad:
            found.append(value)
            continue
        dim = dim_of(value, order)
        order += 1
        if value.shape[dim] != scale.shape[0]:
            raise wrong_rows(value.shape[dim], scale.shape[0])
        found.append(_Enter.apply(value, second, scale, dim, watch))
    return pytree.tree_unflatten(found, structure)
