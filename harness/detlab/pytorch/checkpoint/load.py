"""Loading a trial from a checkpoint's files, without a cluster."""

from __future__ import annotations

import json
import logging
import tempfile
from pathlib import Path
from typing import Any

import torch

from detlab import core
from detlab.errors import CheckpointError
from detlab.pytorch.checkpoint import isolated_import
from detlab.pytorch.checkpoint.files import LOAD_DATA_FILE, MODELS, load_models, read_state
from detlab.pytorch.context.trial_context import PyTorchTrialContext
from detlab.pytorch.trial import PyTorchTrial, make
from detlab.storage import DirectoryStorage

logger = logging.getLogger("detlab.pytorch")


class CheckpointLoadContext(PyTorchTrialContext):
    """A context to build a trial with, outside of training: what it wraps stays as and where it is.

    Args:
        hparams: Hyperparameters of the trial.
        exp_conf: The experiment config.
        trial_seed: Seed of the trial.
    """

    def __init__(
        self, hparams: dict[str, Any] | None = None, exp_conf: dict[str, Any] | None = None, *, trial_seed: int = 0
    ) -> None:
        slots = ((exp_conf or {}).get("resources") or {}).get("slots_per_trial")
        super().__init__(
            core_context=_core_context(),
            trial_seed=trial_seed,
            hparams=hparams or {},
            slots_per_trial=slots if isinstance(slots, int) else 1,
            num_gpus=0,
            exp_conf=exp_conf,
            managed_training=False,
            enable_tensorboard_logging=False,
        )


def _core_context() -> core.Context:
    """Return a Core API of its own: loading reports nothing, even within a task."""
    alone = core.DummyDistributedContext()
    nowhere = DirectoryStorage(Path(tempfile.gettempdir()) / "detlab-load")  # made only if something is written
    return core.Context(
        checkpoint=core.DummyCheckpointContext(alone, nowhere),
        distributed=alone,
        preempt=core.DummyPreemptContext(alone, core.PreemptMode.WorkersAskChief),
        train=core.DummyTrainContext(alone),
        searcher=core.DummySearcherContext(alone),
    )


def load_trial_from_checkpoint_path(
    path: str | Path,
    trial_class: type[PyTorchTrial] | None = None,
    trial_kwargs: dict[str, Any] | None = None,
    torch_load_kwargs: dict[str, Any] | None = None,
    **kwargs: Any,
) -> PyTorchTrial:
    """Return a trial with the weights of a checkpoint; its models are on the CPU unless asked otherwise.

    Without `trial_class`, the class is imported from the checkpoint's own `code/`: trust the checkpoint, or pass the
    class. The imported modules are not left in `sys.modules`; what the trial imports later, within its methods, is
    looked up as usual.

    Args:
        path: Directory of the checkpoint, such as `Checkpoint.download()` returns. Determined's checkpoints work too.
        trial_class: The class of the trial.
        trial_kwargs: Further arguments of its `__init__`. An argument `hparams` gets the checkpoint's by default.
        torch_load_kwargs: `map_location` names the device to put the models on; the rest is passed to `torch.load` for
            checkpoints that Determined wrote.
        **kwargs: Alternative to `torch_load_kwargs`, as in older code.

    Returns:
        The trial; for one from before Determined 0.14, which has a `build_model`, the bare model, as in Determined.

    Raises:
        CheckpointError: Files are missing or damaged, or the class cannot be found or imported.
        StateMismatch: The weights do not fit this trial's models.
        TrainerError: The trial cannot be created with these arguments.
    """
    directory = Path(path)
    options = {**kwargs, **(torch_load_kwargs or {})}
    device = options.pop("map_location", None)
    facts = _load_data(directory, required=trial_class is None)
    tree = read_state(directory, allow_pickle=False, only={MODELS}, torch_load_kwargs=options)
    hparams, config = facts.get("hparams") or {}, facts.get("experiment_config") or {}
    context = CheckpointLoadContext(hparams=hparams, exp_conf=config)
    arguments = dict(trial_kwargs or {})
    if trial_class is not None:
        trial = _make(trial_class, context, hparams, arguments)
    else:
        with isolated_import.trial_class(directory / "code", _spec(directory, facts), config) as found:
            trial = _make(found, context, hparams, arguments)
    built: Any = _build_model(trial, context)
    load_models(context.models, tree.get(MODELS) or [], checkpoint=f"the checkpoint in {directory}")
    if isinstance(device, str | int | torch.device):
        for model in context.models:
            model.to(device)
    result: PyTorchTrial = trial if built is None else built
    return result


def _build_model(trial: Any, context: CheckpointLoadContext) -> torch.nn.Module | None:
    """Return the model of a trial from before Determined 0.14, whose method `build_model` makes it, or None."""
    build = getattr(trial, "build_model", None)
    if context.models or not callable(build):
        return None
    try:
        return context.wrap_model(build())
    except TypeError as error:
        name = type(trial).__name__
        raise CheckpointError(
            f"{name} is a trial from before Determined 0.14, and its build_model() cannot be called: {error}",
            hint="Move it into __init__: self.model = context.wrap_model(...); pass that class as trial_class.",
        ) from error


def _load_data(directory: Path, *, required: bool) -> dict[str, Any]:
    """Read `load_data.json`; Determined's oldest checkpoints had the same in `metadata.json`."""
    for name in (LOAD_DATA_FILE, "metadata.json"):
        try:
            facts = json.loads((directory / name).read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{directory / name} cannot be read: it is cut off or damaged ({error})") from error
        if isinstance(facts, dict) and (name == LOAD_DATA_FILE or "hparams" in facts):
            kind = facts.get("trial_type", "PyTorchTrial")
            if kind != "PyTorchTrial":
                logger.warning("%s says that the checkpoint is of a %s; trying nevertheless", directory / name, kind)
            return facts
    if not required:
        return {}
    raise CheckpointError(
        f"{directory} has no {LOAD_DATA_FILE}, which names the trial's class and hyperparameters",
        hint="Is this the top directory of a PyTorchTrial's checkpoint? If so, pass trial_class=YourTrial.",
    )


def _spec(directory: Path, facts: dict[str, Any]) -> str:
    spec = facts.get("trial_class_spec") or facts.get("trial_cls_spec")
    if spec is None:
        spec = (facts.get("experiment_config") or {}).get("entrypoint")
    if not isinstance(spec, str) or ":" not in spec:
        raise CheckpointError(
            f"{directory / LOAD_DATA_FILE} does not name the trial's class as 'module:Class' but as {spec!r}",
            hint="Pass trial_class=YourTrial.",
        )
    return spec


def _make(cls: Any, context: CheckpointLoadContext, hparams: dict[str, Any], arguments: dict[str, Any]) -> Any:
    hint = "Pass what is missing in trial_kwargs={...}."
    return make(cls, context, hparams, arguments, source="the checkpoint", hint=hint)
