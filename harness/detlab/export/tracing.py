"""From a checkpoint to a graph that runs without its author's code: traced by running that code once, if one agrees.

A checkpoint may hold such a graph already, as torch.export or TorchScript wrote it. The checkpoint of a `PyTorchTrial`
holds weights and code: the class makes the model, an example goes through it, and what it computed is written down.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from detlab.errors import DetlabError
from detlab.export import exported_model
from detlab.export.contents import Contents
from detlab.storage.formats import Format, pickled_names, why_refused

MODEL_FILES = {Format.TORCH_EXPORT: "model.pt2", Format.TORCHSCRIPT: "model.torchscript.pt"}
STATE_FILE = "trainer.json"
LOAD_DATA_FILE = "load_data.json"
_NOT_WEIGHTS = "code/"


class CannotTrace(DetlabError):
    """The model cannot be written without its author's code; the message says why."""

    default_code = "export.cannot_trace"


@dataclasses.dataclass(frozen=True)
class Traced:
    """A model that was written.

    Attributes:
        file: Its name.
        format: `torch_export` or `torchscript`.
        inputs: Name, dtype and shape of each, -1 for any length; empty if that is not known.
        outputs: Dtype and shape of each; empty if that is not known.
        torch: Version of torch that wrote or checked it.
    """

    file: str
    format: Format
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    torch: str


def trace(
    contents: Contents, target: Path, *, run_code: bool = False, example: Path | None = None, model: int | None = None
) -> Traced:
    """Write the model of a checkpoint into a folder, as a graph.

    Args:
        contents: Of the checkpoint.
        target: An existing folder.
        run_code: Whether the checkpoint's own Python code may run here.
        example: A file with an input: `.npy`, `.npz` or `.json`; None takes the first batch of the training data.
        model: Which of the trial's models, counted from 0.

    Raises:
        CannotTrace: It cannot be done, or not without running code; the message says what to do.
    """
    ready = [(name, kind) for name, kind in contents.formats.items() if kind in MODEL_FILES]
    ready = [(name, kind) for name, kind in ready if not name.startswith(_NOT_WEIGHTS)]
    if len(ready) > 1:
        raise CannotTrace(f"{contents.folder} holds {len(ready)} traced models: {', '.join(name for name, _ in ready)}")
    if ready:
        return _copied(contents, *ready[0], target, run_code=run_code)
    if STATE_FILE not in contents.files or LOAD_DATA_FILE not in contents.files:
        raise _no_graph(contents)
    if not run_code:
        raise CannotTrace(
            "the model cannot be traced without running its code: the checkpoint holds weights and the class of a"
            " PyTorchTrial, and only that class can make the model",
            hint="If you trust the code in it, add --run-code; det cmd run does it in a task, apart from your files.",
        )
    return _trace_trial(contents, target, example, model)


def _no_graph(contents: Contents) -> CannotTrace:
    refused = [why_refused(contents.folder / name, name) for name, kind in contents.formats.items() if kind.pickled]
    hint = (
        "In the code that saves the checkpoint, add the model as a graph:"
        ' torch.export.save(torch.export.export(model, (example,)), path / "model.pt2").'
    )
    if refused:
        return CannotTrace(
            f"the model cannot be traced: {refused[0]}, and a pickle is not opened for an export", hint=hint
        )
    if any(kind is Format.SAFETENSORS for kind in contents.formats.values()):
        why = "the checkpoint holds tensors, but nothing that says how they are computed with"
    else:
        kinds = sorted({kind.value for kind in contents.formats.values()})
        why = (
            f"the checkpoint holds neither a traced model nor that of a PyTorchTrial, only files of: {', '.join(kinds)}"
        )
    return CannotTrace(f"the model cannot be traced: {why}", hint=hint)


def _copied(contents: Contents, name: str, kind: Format, target: Path, *, run_code: bool) -> Traced:
    """Take a graph that is there, once it has been seen that this torch can read it, without a pickle in it."""
    torch = _torch()
    source, file = contents.folder / name, MODEL_FILES[kind]
    try:
        with warnings.catch_warnings(), contextlib.nullcontext() if run_code else exported_model.without_pickles():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch advises against new TorchScript; this is old
            if kind is Format.TORCH_EXPORT:
                program = torch.export.load(source)
                inputs, outputs = _inputs_of(program), _outputs_of(program)
            else:
                torch.jit.load(str(source), map_location="cpu")
                inputs, outputs = [], []
    except Exception as error:  # torch raises whatever comes to it about a file that it cannot read
        raise _unreadable(source, name, error, torch.__version__) from error
    shutil.copyfile(source, target / file)
    return Traced(file, kind, inputs, outputs, str(torch.__version__))


def _unreadable(source: Path, name: str, error: Exception, version: str) -> CannotTrace:
    if pickled_names(source).alarming:
        return CannotTrace(
            f"{why_refused(source, name)}, and a pickle is not opened for an export",
            hint="If you trust its author, add --run-code.",
        )
    return CannotTrace(f"{name} cannot be read by torch {version}: {_first_line(error)}")


def _trace_trial(contents: Contents, target: Path, example: Path | None, which: int | None) -> Traced:
    torch = _torch()
    from detlab.pytorch.checkpoint.load import load_trial_from_checkpoint_path

    given = _example(example) if example is not None else None
    trial: Any = load_trial_from_checkpoint_path(contents.folder)
    models = trial.context.models if hasattr(trial, "context") else []
    if not models or (which is None and len(models) > 1) or (which is not None and not 0 <= which < len(models)):
        raise CannotTrace(f"the trial wraps {len(models)} models", hint="Say which one: --model 0 is the first.")
    network = models[which or 0].eval()
    inputs = tuple(_at_least_two(value) for value in (_first_batch(trial) if given is None else given))
    program, expected = _exported(torch, network, inputs)
    file = MODEL_FILES[Format.TORCH_EXPORT]
    torch.export.save(program, target / file)
    _check(torch, target / file, inputs, expected)
    return Traced(file, Format.TORCH_EXPORT, _inputs_of(program), _outputs_of(program), str(torch.__version__))


def _exported(torch: Any, network: Any, inputs: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return the graph, for batches of any size if the model allows that, and what the model gave for the example."""
    any_batch = [{0: torch.export.Dim.AUTO} if value.dim() else {} for value in inputs]
    try:
        with torch.no_grad():
            expected = network(*inputs)
            return torch.export.export(network, inputs, dynamic_shapes=_by_argument(network, any_batch)), expected
    except Exception as error:  # the user's model, and what torch's tracer says of it
        shapes = ", ".join(f"{value.dtype} {list(value.shape)}" for value in inputs)
        raise CannotTrace(
            f"the model cannot be traced with the example ({shapes}): {type(error).__name__}: {_first_line(error)}",
            hint="Is the example what the model's forward() takes? Branches on the values of tensors, and calls out of"
            " torch within forward(), cannot be traced: https://docs.pytorch.org/docs/stable/export.html",
        ) from error


def _by_argument(network: Any, shapes: list[Any]) -> Any:
    """Return shapes as `torch.export` wants them: those of `*args` as one tuple."""
    import inspect

    parameters = list(inspect.signature(network.forward).parameters.values())
    if parameters and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL:
        return (tuple(shapes),)
    return tuple(shapes)


def _check(torch: Any, path: Path, inputs: tuple[Any, ...], expected: Any) -> None:
    """Read what was written and compare what it computes with what the model computed."""
    with torch.no_grad():
        found = torch.export.load(path).module()(*inputs)
    try:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
    except AssertionError as error:
        raise CannotTrace(
            f"the traced model does not compute what the model does: {_first_line(error)}",
            hint="Does its forward() draw random numbers, or depend on something but its inputs?",
        ) from error


def _at_least_two(value: Any) -> Any:
    """Return a batch of two for a batch of one, from which torch would conclude that a batch always has one."""
    return value.repeat(2, *[1] * (value.dim() - 1)) if value.dim() and value.shape[0] == 1 else value


def _example(path: Path) -> tuple[Any, ...]:
    """Read example inputs; arrays of objects, which are pickles, are refused."""
    import numpy as np

    torch = _torch()
    try:
        if path.suffix == ".json":
            values = [np.asarray(json.loads(path.read_bytes()))]
        else:
            loaded = np.load(path, allow_pickle=False)
            values = [loaded[name] for name in loaded.files] if hasattr(loaded, "files") else [loaded]
        values = [value.astype(np.float32) if value.dtype == np.float64 else value for value in values]
        return tuple(torch.from_numpy(np.ascontiguousarray(value)) for value in values)
    except (OSError, ValueError, TypeError) as error:
        raise CannotTrace(
            f"the example {path} cannot be read: {_first_line(error)}",
            hint="An example is an array in .npy, several in .npz, or nested lists of numbers in .json.",
        ) from error


def _first_batch(trial: Any) -> tuple[Any, ...]:
    torch = _torch()
    hint = "Give an example of what forward() takes: --example input.npy"
    try:
        batch = next(iter(trial.build_training_data_loader()))
    except Exception as error:  # the trial's own code
        raise CannotTrace(
            f"there is no example, and the trial's training data cannot be read: {_first_line(error)}", hint=hint
        ) from error
    first = batch[0] if isinstance(batch, (list, tuple)) and batch else batch
    if not isinstance(first, torch.Tensor):
        raise CannotTrace(
            f"the first batch of the training data does not begin with a tensor: {type(first)}", hint=hint
        )
    return (first,)


def _inputs_of(program: Any) -> list[dict[str, Any]]:
    signature = program.graph_signature
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    return [{"name": name, **_shape(values.get(name))} for name in signature.user_inputs]


def _outputs_of(program: Any) -> list[dict[str, Any]]:
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    return [_shape(values.get(name)) for name in program.graph_signature.user_outputs if values.get(name) is not None]


def _shape(value: Any) -> dict[str, Any]:
    lengths = [size if type(size) is int else -1 for size in getattr(value, "shape", ())]
    return {"dtype": str(getattr(value, "dtype", "torch.float32")).removeprefix("torch."), "shape": lengths}


def _torch() -> Any:
    try:
        import torch
        import torch.export
    except ImportError as error:
        raise CannotTrace(
            f"an export for MLflow needs torch, which is not installed here ({error})",
            hint="Install it: pip install 'detlab[torch]'",
        ) from error
    return torch


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def specification(traced: Traced) -> Mapping[str, Any]:
    """Return what `model.json` says of a traced model, for `exported_model`."""
    return {"file": traced.file, "format": traced.format.value, "inputs": traced.inputs, "outputs": traced.outputs}
