"""How many directions the activations of each layer take for a fixed set of samples: a fingerprint, no judgement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from detlab.pytorch.parallel.unwrapping import bare, plain_name

MOST_LAYERS = 200
MOST_SAMPLES = 1024


class LayerSpread:
    """Collects the outputs of layers while it is entered.

    Args:
        models: Their layers with parameters of their own are looked at; not those of compiled models.
    """

    def __init__(self, models: Sequence[Any]) -> None:
        self._layers = dict(list(_layers(models))[:MOST_LAYERS])
        self._seen: dict[str, list[Any]] = {}
        self._handles: list[Any] = []

    def __enter__(self) -> LayerSpread:
        for name, module in self._layers.items():
            self._handles.append(module.register_forward_hook(self._hook(name)))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _hook(self, name: str) -> Callable[[Any, Any, Any], None]:
        def take(module: Any, _: Any, output: Any) -> None:
            if isinstance(output, (tuple, list)) and output:  # of recurrent layers: the outputs, then the state
                output = output[0]
            if isinstance(output, torch.Tensor) and output.dim() >= 2 and output.is_floating_point():
                self._seen.setdefault(name, []).append(_by_sample(output.detach().float(), module))

        return take

    def figures(self) -> dict[str, tuple[float, float]]:
        """Return the root mean square and the effective dimension of each layer that gave a row for each sample."""
        rows = {name: torch.cat(parts).double() for name, parts in self._seen.items()}
        return {name: (float(one.square().mean().sqrt()), effective_dimension(one)) for name, one in rows.items()}

    def report(self) -> dict[str, Any]:
        """Return the effective dimension of each layer that gave a row for each sample."""
        found = {name: effective_dimension(torch.cat(parts)) for name, parts in self._seen.items()}
        return {"layers": list(found), "dimension": [round(one, 6) for one in found.values()]}


def _layers(models: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    for index, model in enumerate(models):
        if getattr(model, "_orig_mod", None) is not None or getattr(model, "_compiled_call_impl", None) is not None:
            continue
        prefix = f"model_{index}." if len(models) > 1 else ""
        for name, module in bare(model).named_modules():
            if any(True for _ in module.parameters(recurse=False)):
                yield prefix + plain_name(name), module


def _by_sample(output: Any, module: Any) -> Any:
    """Return one row of features for each sample: the mean over places or positions."""
    if output.dim() == 2:
        return output
    channels_first = "Conv" in type(module).__name__ or "GroupNorm" in type(module).__name__
    return output.flatten(2).mean(2) if channels_first else output.flatten(1, -2).mean(1)


def effective_dimension(rows: Any) -> float:
    """Return (tr C)^2 / |C|_F^2 of the covariance C of rows [samples, features]; 0 if they are all the same.

    The participation ratio: 1 if all variance is in one direction, the number of directions if they share it evenly. It
    needs no eigenvalues.
    """
    centred = rows.double() - rows.double().mean(0)
    products = centred @ centred.T if centred.shape[0] < centred.shape[1] else centred.T @ centred
    square = float((products * products).sum())
    return float(products.trace()) ** 2 / square if square > 0 else 0.0
