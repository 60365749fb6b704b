"""Modules of an isolated source: zeros for all other samples, in both directions.

Inputs of other samples become zeros where they enter, and so do outputs where they leave. So nothing of the module gets
into other samples' losses, and their gradients neither enter it nor come out of it: a `where` passes exact zeros back,
even past what is not a number.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from detlab.governance import GovernanceError, Refusal
from detlab.governance.isolation import isolated_modules
from detlab.pytorch.governance.dual import batch_dim
from detlab.pytorch.governance.fused import kept
from detlab.pytorch.governance.router import Router
from detlab.pytorch.parallel.unwrapping import bare, plain_name

_NO_FORWARD = nn.Module.forward
ELEMENTWISE = frozenset(
    {
        *(torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adamax, torch.optim.NAdam),
        *(torch.optim.RAdam, torch.optim.Adagrad, torch.optim.Adadelta, torch.optim.RMSprop, torch.optim.Rprop),
        torch.optim.ASGD,
    }
)
"""Optimizers that move each parameter by its own gradient alone, by their exact class."""


class ClipNorm:
    """Clips gradients by their norm; under a policy apart for each set of parameters, which keeps sources apart.

        context.step_optimizer(optimizer, clip_grads=ClipNorm(1.0))

    Args:
        most: The largest norm of the gradients of one set of parameters.
    """

    def __init__(self, most: float) -> None:
        self.most = most

    def __call__(self, parameters: Any) -> Any:
        """Clip the gradients of these parameters; return their norm before."""
        return nn.utils.clip_grad_norm_(parameters, self.most)


class GatedModule:
    """Mixin of the classes that `close` makes."""


def close(models: Sequence[Any], router: Router) -> set[str]:
    """Have the modules of isolated sources give zeros for other samples; return the names of these sources.

    All modules within such a module that hold a parameter are closed, too: one may be called by itself.
    """
    gated = isolated_modules(router.plan.matrix, router.plan.names)
    for index, model in enumerate(models) if gated else ():
        start = f"model_{index}" if len(models) > 1 else ""
        for name, module in bare(model).named_modules():
            parts = [one for one in (start, plain_name(name)) if one]
            source = _source_of(".".join(parts), gated)
            if source is not None and not isinstance(module, GatedModule) and _runs(module):
                _close(module, router, source)
    return set(gated.values())


def _source_of(name: str, gated: Mapping[str, str]) -> str | None:
    parts = name.split(".") if name else []
    heads = (".".join(parts[:count]) for count in range(len(parts) + 1))
    return next((gated[head] for head in heads if head in gated), None)


def _runs(module: Any) -> bool:
    return type(module).forward is not _NO_FORWARD and next(module.parameters(), None) is not None


def _close(module: Any, router: Router, source: str) -> None:
    number = router.plan.sources.index(source)
    column = next(place for place, factors in enumerate(router.distinct) if factors[number] > 0 and _own(factors))
    object.__setattr__(module, "_gate", (router, source, column, batch_dim(module)))
    base: Any = type(module)
    module.__class__ = _gated_class(base)


def _own(factors: Sequence[float]) -> bool:
    return sum(factor > 0 for factor in factors) == 1


@functools.cache
def _gated_class(base: Any) -> type:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        router, source, column, dim_of = self._gate
        if not router.open and not self.training:
            found = base.forward(self, *args, **kwargs)
            return found if router.serving == source else _mapped(found, lambda value, place: torch.zeros_like(value))
        if router.open and router.rows is None and not router.lent:
            message = f"a module of {source!r} alone needs the sources of a batch before its forward pass"
            raise GovernanceError.of("SAMPLES", message)

        def own(value: Any, place: int) -> Any:
            rows = value.movedim(dim_of(value, place), 0)
            found = kept(rows, router.scales(column, rows.shape[0])).to(value.dtype)
            return found.movedim(0, dim_of(value, place))

        closed_args, closed_kwargs = _mapped((args, kwargs), own)
        return _mapped(base.forward(self, *closed_args, **closed_kwargs), own)

    return type(base.__name__, (GatedModule, base), {"forward": forward, "__doc__": base.__doc__})


def couplings(isolated: Collection[str], optimizer: Any, scaler: Any) -> list[Refusal]:
    """Return LEVEL for a step that would couple isolated sources with others; nothing if none is isolated.

    Args:
        isolated: Their names.
        optimizer: Which steps.
        scaler: A gradient scaler; None if there is none.
    """
    if not isolated:
        return []
    found, named = [], ", ".join(map(repr, sorted(isolated)))
    if type(optimizer) not in ELEMENTWISE:
        what = f"{type(optimizer).__name__} is not known to move each parameter by its own gradient alone"
        found.append(Refusal("LEVEL", f"{named} cannot be isolated: {what}"))
    if scaler is not None:
        what = "a gradient scaler skips a step for all sources when one overflows; bf16 needs none"
        found.append(Refusal("LEVEL", f"{named} cannot be isolated: {what}"))
    return found


def _mapped(tree: Any, change: Callable[[Any, int], Any]) -> Any:
    """Return a tree with each tensor changed, which is given with its place among the tensors."""
    leaves, structure = pytree.tree_flatten(tree)
    places = iter(range(len(leaves)))
    changed = [change(one, next(places)) if isinstance(one, torch.Tensor) else one for one in leaves]
    return pytree.tree_unflatten(changed, structure)
