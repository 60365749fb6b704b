"""Loads an exported model and predicts with it. This file is copied into exports: it needs torch and numpy, not detlab.

MLflow imports it from the export's `code/` and calls `_load_pyfunc(data)`; `load(data)` does the same for you.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

SPECIFICATION = "model.json"


def load(folder: str) -> ExportedModel:
    """Return the model in the folder `data` of an export."""
    return ExportedModel(folder)


def _load_pyfunc(path: str) -> ExportedModel:
    """Return the model; MLflow's flavor `python_function` calls this of its loader module."""
    return load(path)


@contextlib.contextmanager
def without_pickles() -> Iterator[None]:
    """While this lasts, `torch.export.load` reads tensors, and refuses what would run code when it is loaded.

    By itself it unpickles what a file says is a pickle, and loads compiled libraries that are in it.
    """
    import torch.export.pt2_archive._package as reader

    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # read by torch.load at each call
    before = os.environ.get(name)
    found = {
        attribute: getattr(reader, attribute) for attribute in ("pickle", "_load_aoti") if hasattr(reader, attribute)
    }
    os.environ[name] = "1"
    for attribute, stand_in in (("pickle", _NoPickle), ("_load_aoti", _NoPickle.loads)):
        setattr(reader, attribute, stand_in)
    try:
        yield
    finally:
        for attribute, value in found.items():
            setattr(reader, attribute, value)
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


class _NoPickle:
    """Stands in for the module `pickle`."""

    @staticmethod
    def loads(*_: Any, **__: Any) -> Any:
        raise ValueError("the file holds a pickle or a compiled library, which could run any code: it is not loaded")


class ExportedModel:
    """A traced model.

    Args:
        folder: With `model.json`, which names the file, its format, and the inputs.
    """

    def __init__(self, folder: str) -> None:
        import torch

        with open(os.path.join(folder, SPECIFICATION), encoding="utf-8") as stream:  # noqa: PTH118, PTH123  # plain code
            self.specification = json.load(stream)
        path = os.path.join(folder, os.path.basename(self.specification["file"]))  # noqa: PTH118, PTH119  # plain code
        if self.specification["format"] == "torch_export":
            with without_pickles():
                self.module = torch.export.load(path).module()
        else:
            self.module = torch.jit.load(path, map_location="cpu").eval()

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """Return what the model gives for a batch, as NumPy arrays.

        Args:
            model_input: An array, a table, a list, or, where the model has several inputs, a dict of them by name.
            params: Not used; MLflow passes it.
        """
        import torch

        with torch.no_grad():
            return _arrays(self.module(*self._tensors(model_input)))

    def _tensors(self, given: Any) -> list[Any]:
        wanted = self.specification["inputs"]
        if hasattr(given, "to_numpy"):  # a table of pandas
            given = given.to_numpy()
        if isinstance(given, dict):
            missing = [spec["name"] for spec in wanted if spec["name"] not in given]
            if missing or len(given) != len(wanted):
                names = ", ".join(spec["name"] for spec in wanted)
                raise ValueError(f"the model wants the inputs {names}; given were {', '.join(map(str, given))}")
            return [_tensor(given[spec["name"]], spec) for spec in wanted]
        if len(wanted) > 1:
            names = ", ".join(spec["name"] for spec in wanted)
            raise ValueError(f"the model has {len(wanted)} inputs: give a dict with {names}")
        return [_tensor(given, wanted[0] if wanted else {"dtype": "float32"})]


def _tensor(value: Any, spec: dict[str, Any]) -> Any:
    import numpy
    import torch

    array = numpy.asarray(value)
    if array.dtype == object:
        array = numpy.array(array.tolist())
    tensor = torch.from_numpy(numpy.ascontiguousarray(array)).to(getattr(torch, spec["dtype"]))
    shape = spec.get("shape")
    if shape is not None and (
        len(shape) != tensor.dim() or any(n not in (-1, m) for n, m in zip(shape, tensor.shape, strict=True))
    ):
        raise ValueError(f"the model wants an input of shape {shape} (-1: any); given was {list(tensor.shape)}")
    return tensor


def _arrays(value: Any) -> Any:
    if hasattr(value, "detach"):
        return value.detach().cpu().numpy()
    if isinstance(value, dict):
        return {name: _arrays(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_arrays(item) for item in value]
    return value
