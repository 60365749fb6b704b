"""Route weight gradients inside the backward pass of known layers; gradients of activations stay as they are.

For a linear layer the weight's gradient is `sum over samples of g_b x_b^T`; routed, it is `sum of s_b g_b x_b^T`. Rows
with factor zero are replaced by zeros in both operands: a factor alone would let `0 * NaN` through.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from detlab.governance.matrix import stock_class
from detlab.pytorch.governance.router import Router

aten = torch.ops.aten
Part = Callable[[Any], Any]
"""Picks rows of a tensor: all, or those of one source."""


def kept(tensor: Any, scale: Any, *, dense: bool = False) -> Any:
    """Return a tensor with zeros in the rows whose factor is zero; `dense` says that there is none."""
    return tensor if dense else torch.where(_beside(scale, tensor) != 0, tensor, 0)


def scaled(tensor: Any, scale: Any, *, dense: bool = False) -> Any:
    """Return a tensor with each row times its factor, and zeros where that is zero; `dense` says that none is."""
    factor = _beside(scale, tensor)
    if dense:
        return tensor * factor.to(tensor.dtype)
    return torch.where(factor != 0, tensor * factor.to(tensor.dtype), 0)


def _all(tensor: Any) -> Any:
    return tensor


def _beside(scale: Any, tensor: Any) -> Any:
    return scale.view(-1, *[1] * (tensor.dim() - 1))


class LayerRoute:
    """One call of a layer: the factors of its parameters, and who looks on.

    Args:
        router: The router.
        names: Name of the parameter in the layer -> its place.
        batch: Number of samples.
    """

    def __init__(self, router: Router, names: dict[str, Any], batch: int) -> None:
        self.weight = router.scales(names["weight"].column, batch) if "weight" in names else None
        self.bias = router.scales(names["bias"].column, batch) if "bias" in names else None
        # A compiled graph calls nobody: it is looked at where its gradients arrive (`GradientGuard`), and nowhere else.
        compiling = torch.compiler.is_compiling()
        self.watch = None if compiling or router.watch is None else (router.watch, names)
        # A compiled graph is one for all batches, so it always masks.
        self.dense: tuple[str, ...] = ()
        if not compiling:
            self.dense = tuple(name for name, place in names.items() if router.without_zeros(place.column))
        self.plain = tuple(name for name in self.dense if router.without_factors(names[name].column))
        """Parameters for which all samples of the batch have the factor 1: their gradients are those of a stock layer,
        bit by bit."""
        self.together = len({place.column for place in names.values()}) == 1
        """Whether all parameters of the layer have the same factors."""


def _finish(ctx: Any, g: Any, found: dict[str, Any], again: Callable[[str, Any, Part], Any]) -> None:
    """Tell who looks on what a layer's parameters get, and how to compute it for other factors."""
    if ctx.watch is not None:
        watch, places = ctx.watch
        watch.routed(g, {name: (places[name], found[name]) for name in found if found[name] is not None}, again)


class _Linear(torch.autograd.Function):
    """`torch.nn.functional.linear`; x is [batch, ..., in]."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, s_weight: Any, s_bias: Any, how: Any, watch: Any) -> Any:
        ctx.save_for_backward(x, weight, s_weight, s_bias)
        ctx.how, ctx.watch = how, watch
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, weight, s_weight, s_bias = ctx.saved_tensors
        needs, (dense_names, plain_names, together) = ctx.needs_input_grad, ctx.how
        whole: dict[str, Any] = {}  # what weight and bias may share

        def gradient(name: str, scale: Any, part: Part = _all) -> Any:
            dense, key = part is _all and name in dense_names, "both" if together else name
            if dense:  # no row is closed: the narrower operand is scaled, and no other is copied
                return _dense_gradient(name, g, x, None if name in plain_names else scale)
            routed = whole.get(key) if part is _all else None
            if routed is None:
                routed = scaled(part(g), scale, dense=dense).reshape(-1, g.shape[-1])
            if part is _all:
                whole[key] = routed
            if name == "bias":
                return routed.sum(0)
            return routed.t() @ kept(part(x), scale, dense=dense).reshape(-1, x.shape[-1])

        found = {
            "weight": gradient("weight", s_weight) if needs[1] else None,
            "bias": gradient("bias", s_bias) if needs[2] else None,
        }
        _finish(ctx, g, found, gradient)
        return g @ weight if needs[0] else None, found["weight"], found["bias"], None, None, None, None


def _dense_gradient(name: str, g: Any, x: Any, scale: Any) -> Any:
    """Return a linear layer's gradient where no factor is zero; g is [batch, ..., out], x is [batch, ..., in].

    Without `scale` all factors are 1.
    """
    rows, inputs = g.reshape(-1, g.shape[-1]), x.reshape(-1, x.shape[-1])
    if name == "bias":
        if scale is None:
            return rows.sum(0)
        return _beside(scale, g).to(g.dtype).expand(*g.shape[:-1], 1).reshape(-1) @ rows
    if scale is None:
        return rows.t() @ inputs
    if x.shape[-1] < g.shape[-1]:
        return rows.t() @ scaled(x, scale, dense=True).reshape(inputs.shape)
    return scaled(g, scale, dense=True).reshape(rows.shape).t() @ inputs


class _Conv(torch.autograd.Function):
    """`torch.nn.functional.conv1d` to `conv3d` with numbers for the padding; x is [batch, channels, ...]."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, s_weight: Any, s_bias: Any, how: Any, watch: Any) -> Any:
        ctx.save_for_backward(x, weight, s_weight, s_bias)
        ctx.how, ctx.watch = how, watch
        stride, padding, dilation, groups = how
        return aten.convolution(x, weight, bias, stride, padding, dilation, False, [0] * len(stride), groups)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, weight, s_weight, s_bias = ctx.saved_tensors
        needs = ctx.needs_input_grad

        def back(of: Any, over: Any, want: list[bool]) -> Any:
            stride, padding, dilation, groups = ctx.how
            sizes, zeros = [weight.shape[0]], [0] * len(stride)
            return aten.convolution_backward(
                of, over, weight, sizes, stride, padding, dilation, False, zeros, groups, want
            )

        def gradient(name: str, scale: Any, part: Part = _all) -> Any:
            want = [False, name == "weight", name == "bias"]
            return back(scaled(part(g), scale), kept(part(x), scale), want)[1 if name == "weight" else 2]

        found = {
            "weight": gradient("weight", s_weight) if needs[1] else None,
            "bias": gradient("bias", s_bias) if needs[2] else None,
        }
        _finish(ctx, g, found, gradient)
        gx = back(g, x, [True, False, False])[0] if needs[0] else None
        return gx, found["weight"], found["bias"], None, None, None, None


class _Embedding(torch.autograd.Function):
    """`torch.nn.functional.embedding`, dense; indices are [batch, ...]."""

    @staticmethod
    def forward(ctx: Any, indices: Any, weight: Any, s_weight: Any, padding: int, dense: bool, watch: Any) -> Any:
        ctx.save_for_backward(indices, s_weight)
        ctx.rows, ctx.padding, ctx.dense, ctx.watch = weight.shape[0], padding, dense, watch
        return functional.embedding(indices, weight)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        indices, s_weight = ctx.saved_tensors

        def gradient(name: str, scale: Any, part: Part = _all) -> Any:
            routed = scaled(part(g), scale, dense=part is _all and ctx.dense)
            return aten.embedding_dense_backward(routed, part(indices), ctx.rows, ctx.padding, False)

        found = {"weight": gradient("weight", s_weight)}
        _finish(ctx, g, found, gradient)
        return None, found["weight"], None, None, None, None


class _LayerNorm(torch.autograd.Function):
    """`torch.nn.functional.layer_norm` with a weight; x is [batch, ...]."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, s_weight: Any, s_bias: Any, how: Any, watch: Any) -> Any:
        shape, eps, *rest = how
        y, mean, rstd = aten.native_layer_norm(x, shape, weight, bias, eps)
        ctx.save_for_backward(x, weight, bias, mean, rstd, s_weight, s_bias)
        ctx.shape, ctx.how, ctx.watch = shape, rest, watch
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, weight, bias, mean, rstd, s_weight, s_bias = ctx.saved_tensors
        needs, back, (dense_names, together) = ctx.needs_input_grad, aten.native_layer_norm_backward, ctx.how
        whole: list[Any] = []  # what one pass gives for weight and bias

        def gradient(name: str, scale: Any, part: Part = _all) -> Any:
            place, both = (1 if name == "weight" else 2), part is _all and together and needs[1] and needs[2]
            if not (both and whole):
                dense = part is _all and name in dense_names
                x_mean_rstd = [kept(part(one), scale, dense=dense) for one in (x, mean, rstd)]
                routed = scaled(part(g), scale, dense=dense)
                want = [False, both or name == "weight", both or name == "bias"]
                found = back(routed, x_mean_rstd[0], ctx.shape, *x_mean_rstd[1:], weight, bias, want)
                if not both:
                    return found[place]
                whole.extend(found)
            return whole[place]

        found = {
            "weight": gradient("weight", s_weight) if needs[1] else None,
            "bias": gradient("bias", s_bias) if needs[2] else None,
        }
        _finish(ctx, g, found, gradient)
        gx = back(g, x, ctx.shape, mean, rstd, weight, bias, [True, False, False])[0] if needs[0] else None
        return gx, found["weight"], found["bias"], None, None, None, None


class _GroupNorm(torch.autograd.Function):
    """`torch.nn.functional.group_norm` with a weight; x is [batch, channels, ...]."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, s_weight: Any, s_bias: Any, how: Any, watch: Any) -> Any:
        groups, eps = how
        x = x.contiguous()
        ctx.sizes = (x.shape[0], x.shape[1], x.numel() // (x.shape[0] * x.shape[1]), groups)
        y, mean, rstd = aten.native_group_norm(x, weight, bias, *ctx.sizes, eps)
        ctx.save_for_backward(x, weight, mean, rstd, s_weight, s_bias)
        ctx.watch = watch
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, weight, mean, rstd, s_weight, s_bias = ctx.saved_tensors
        needs, back, whole = ctx.needs_input_grad, aten.native_group_norm_backward, g.contiguous()

        def gradient(name: str, scale: Any, part: Part = _all) -> Any:
            x_mean_rstd = [kept(part(one), scale) for one in (x, mean, rstd)]
            parts = scaled(part(whole), scale), *x_mean_rstd, weight, len(scale), *ctx.sizes[1:]
            return back(*parts, [False, name == "weight", name == "bias"])[1 if name == "weight" else 2]

        found = {
            "weight": gradient("weight", s_weight) if needs[1] else None,
            "bias": gradient("bias", s_bias) if needs[2] else None,
        }
        _finish(ctx, whole, found, gradient)
        gx = back(whole, x, mean, rstd, weight, *ctx.sizes, [True, False, False])[0] if needs[0] else None
        return gx, found["weight"], found["bias"], None, None, None, None


def _in_autocast(x: Any, *parameters: Any) -> list[Any]:
    """Return the operands as autocast would lower them: by casts outside of the function, which autograd knows."""
    kind = x.device.type
    if not torch.is_autocast_enabled(kind):
        return [x, *parameters]
    dtype = torch.get_autocast_dtype(kind)
    return [None if one is None else one.to(dtype) for one in (x, *parameters)]


def _linear(layer: Any, x: Any, route: LayerRoute) -> Any:
    x, weight, bias = _in_autocast(x, layer.weight, layer.bias)
    how = (route.dense, route.plain, route.together)
    return _Linear.apply(x, weight, bias, route.weight, route.bias, how, route.watch)


def _conv(layer: Any, x: Any, route: LayerRoute) -> Any:
    padding = layer.padding
    if layer.padding_mode != "zeros" or isinstance(padding, str):
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        x = functional.pad(x, layer._reversed_padding_repeated_twice, mode=mode)
        padding = (0,) * len(layer.stride)
    x, weight, bias = _in_autocast(x, layer.weight, layer.bias)
    how = (list(layer.stride), list(padding), list(layer.dilation), layer.groups)
    return _Conv.apply(x, weight, bias, route.weight, route.bias, how, route.watch)


def _embedding(layer: Any, x: Any, route: LayerRoute) -> Any:
    padding = -1 if layer.padding_idx is None else layer.padding_idx
    return _Embedding.apply(x, layer.weight, route.weight, padding, bool(route.dense), route.watch)


def _layer_norm(layer: Any, x: Any, route: LayerRoute) -> Any:
    how = (list(layer.normalized_shape), layer.eps, route.dense, route.together)
    x = x.to(layer.weight.dtype)
    return _LayerNorm.apply(x, layer.weight, layer.bias, route.weight, route.bias, how, route.watch)


def _group_norm(layer: Any, x: Any, route: LayerRoute) -> Any:
    how = (layer.num_groups, layer.eps)
    x = x.to(layer.weight.dtype)
    return _GroupNorm.apply(x, layer.weight, layer.bias, route.weight, route.bias, how, route.watch)


ROUTED: dict[type, Callable[[Any, Any, LayerRoute], Any]] = {
    nn.Linear: _linear,
    nn.Conv1d: _conv,
    nn.Conv2d: _conv,
    nn.Conv3d: _conv,
    nn.Embedding: _embedding,
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
}
"""Layers by their exact class: one derived from it may do anything in its forward pass."""


class RoutedLayer:
    """Mixin of the classes that `route_layer` makes."""


def is_routable(layer: Any) -> bool:
    """Return whether this engine can route a layer, whose weight is not made of something else before each pass."""
    if not {name for name, _ in layer.named_parameters(recurse=False)} <= {"weight", "bias"}:
        return False
    kind = stock_class(type(layer))
    if kind is nn.Embedding:
        return layer.max_norm is None and not layer.sparse and not layer.scale_grad_by_freq
    return kind in ROUTED


def route_layer(layer: Any, router: Router) -> None:
    """Have a layer route the gradients of its parameters; it stays the same object and keeps its names.

    As with `detlab.pytorch.parallel.amp.autocast_forward`, only its class becomes one made for it.
    """
    places = {name: router.place(parameter) for name, parameter in layer.named_parameters(recurse=False)}
    known = {name: place for name, place in places.items() if place is not None}
    is_open = all(router.is_open(place) for place in known.values())
    object.__setattr__(layer, "_governance", (router, known, is_open))
    base: Any = type(layer)
    layer.__class__ = _routed_class(base)


@functools.cache
def _routed_class(base: Any) -> type:
    apply = ROUTED[stock_class(base)]

    def forward(self: Any, x: Any) -> Any:
        router, places, is_open = self._governance
        compiling = torch.compiler.is_compiling()
        if compiling:
            router.compiled = True
        if not torch.is_grad_enabled() or not (router.open or self.training):
            return base.forward(self, x)
        if is_open and not router.lent and (compiling or router.watch is None):
            return base.forward(self, x)
        return apply(self, x, LayerRoute(router, places, x.shape[0]))

    return type(base.__name__, (RoutedLayer, base), {"forward": forward, "__doc__": base.__doc__})
