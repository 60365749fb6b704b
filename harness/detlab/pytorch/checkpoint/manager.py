"""A trial's checkpoints: collecting the state, restoring it, falling back to an earlier one."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from detlab import core
from detlab.errors import CheckpointError, CheckpointMissing, DetlabError
from detlab.info import ClusterInfo
from detlab.pytorch.callback import CallbackSet
from detlab.pytorch.checkpoint import rng
from detlab.pytorch.checkpoint.codec import PickleRefused
from detlab.pytorch.checkpoint.files import STRUCTURE_FILE, read_state
from detlab.pytorch.checkpoint.matching import as_named, check_state
from detlab.pytorch.checkpoint.writer import CheckpointWriter
from detlab.pytorch.metrics.reducer import to_cpu
from detlab.schemas.wire.governance.evidence import METADATA_KEY

if TYPE_CHECKING:
    from detlab.pytorch.context.trial_context import PyTorchTrialContext
    from detlab.pytorch.data.resumable import TrainingStream
    from detlab.pytorch.parallel.strategy import Shard
    from detlab.pytorch.trial import PyTorchTrial

logger = logging.getLogger("detlab.pytorch")

TRUST = "DETLAB_UNPICKLE_CHECKPOINTS"
"""Set to 1 in a trial's environment: what is pickled in other trials' checkpoints is read too."""

KEPT_NAMES = 5
"""How many earlier checkpoints the metadata of one names."""


@dataclasses.dataclass
class TrialProgress:
    """How far a trial is: the same on all ranks, and part of each checkpoint.

    Attributes:
        steps_completed: Batches trained.
        epochs_completed: Epochs trained to their end.
        validated_at: Steps at which the model was last validated; -1 for never.
        saved_at: Steps at which a checkpoint was last taken; -1 for never.
        best_validation: Best value of the searcher's metric that this trial has seen.
        checkpoints: Committed checkpoints of this trial, newest first, at most `KEPT_NAMES`.
    """

    steps_completed: int = 0
    epochs_completed: int = 0
    validated_at: int = -1
    saved_at: int = -1
    best_validation: float | None = None
    checkpoints: list[str] = dataclasses.field(default_factory=list)

    def remember(self, uuid: str) -> None:
        """Note a committed checkpoint."""
        self.checkpoints = [uuid, *self.checkpoints][:KEPT_NAMES]


@dataclasses.dataclass
class RestoredCheckpoint:
    """The content of a checkpoint, read on this rank.

    Attributes:
        uuid: Of the checkpoint that was read.
        tree: Its state.
        progress: How far the trial was; a new one if the checkpoint is another trial's.
        stream: Position in the data; None if the checkpoint is another trial's.
        damaged: Newer ones of the same trial that could not be read.
    """

    uuid: str
    tree: dict[str, Any]
    progress: TrialProgress
    stream: dict[str, Any] | None
    damaged: tuple[str, ...] = ()

    @property
    def fell_back(self) -> bool:
        """Whether it is an earlier one than was asked for."""
        return bool(self.damaged)

    @property
    def same_trial(self) -> bool:
        """Whether this continues the trial that wrote it, rather than starts from its weights."""
        return self.stream is not None

    @property
    def canaries(self) -> str | None:
        """The secret of the trial's canaries, in hex; None if it has none, or the checkpoint is another trial's."""
        secret = (self.tree.get("trial_state") or {}).get("canaries") if self.same_trial else None
        return secret if isinstance(secret, str) else None

    def knows(self, rank: int) -> bool:
        """Return whether it continues this rank, which it does not if the trial had fewer ranks."""
        return self.same_trial and rank < len(self.tree.get("ranks") or [])


def identity(info: ClusterInfo | None) -> str:
    """Return what tells this trial from others; all local training counts as one trial."""
    return f"{info.cluster_id}/{info.trial.trial_id}" if info is not None and info.task_type == "TRIAL" else "local"


def fetch(core_context: core.Context, latest: str, trial: str) -> RestoredCheckpoint:
    """Read a checkpoint, or the newest earlier one of the same trial whose files verify; all ranks call in step.

    Raises:
        CheckpointError: None of them can be read; each is named with what is wrong. Or another rank failed.
    """
    distributed = core_context.distributed
    candidates = [latest]
    failures: dict[str, str] = {}
    missing = True
    while candidates:
        uuid = candidates.pop(0)
        tree, problems, absent = _read_together(core_context, uuid, trial)
        if tree is not None and not problems:
            return _restored(uuid, tree, trial, damaged=tuple(failures))
        if not failures:
            candidates = distributed.broadcast(_previous(core_context, uuid) if distributed.rank == 0 else None)
        failures[uuid] = problems[0]
        missing = missing and absent
        logger.warning("checkpoint %s cannot be used (%s)", uuid, problems[0])
    raise (CheckpointMissing if missing else CheckpointError)(
        "\n".join(["no checkpoint of this trial can be read:", *(f"  {one}: {why}" for one, why in failures.items())]),
        hint="restore its files, or start anew with latest_checkpoint=False",
    )


def _read_together(core_context: core.Context, uuid: str, trial: str) -> tuple[dict[str, Any] | None, list[str], bool]:
    """Read a checkpoint on all ranks; return the state and, the same on all, what is wrong with the files.

    The last value says whether that is only that they are not there.

    Raises:
        CheckpointError: Another rank failed for another reason than the files.
    """
    tree, problem, failure, absent = None, None, None, False
    try:
        tree, problem, absent = _read(core_context, uuid, trial)
    except Exception as error:  # told to the other ranks, which would wait, then raised again
        failure = error
    told = None if failure is None else f"{type(failure).__name__}: {failure}"
    found = core_context.distributed.allgather((problem, told, absent))
    if failure is not None:
        raise failure
    for rank, (_, reason, _) in enumerate(found):
        if reason is not None:
            raise CheckpointError(f"rank {rank} failed while it read checkpoint {uuid}: {reason}")
    problems = [f"rank {rank}: {text}" for rank, (text, _, _) in enumerate(found) if text]
    return tree, problems, all(absent for text, _, absent in found if text)


def _read(core_context: core.Context, uuid: str, trial: str) -> tuple[dict[str, Any] | None, str | None, bool]:
    try:
        with core_context.checkpoint.restore_path(uuid) as path:
            return _read_trusted(path, trial), None, False
    except CheckpointError as error:
        return None, error.message, isinstance(error, CheckpointMissing)


def _read_trusted(path: Path, trial: str) -> dict[str, Any]:
    """Read a checkpoint; what is pickled in it only if this trial wrote it.

    Unpickling runs code, and another trial's checkpoint may be another person's. Weights, optimizers, schedulers and
    callbacks of plain values are never pickled: what is refused is state of a user's own class.
    """
    saved: Any = None
    with contextlib.suppress(PickleRefused):
        saved = read_state(path, allow_pickle=False, only=("trial_state",)).get("trial_state")
    own = isinstance(saved, dict) and saved.get("trial") == trial
    try:
        return read_state(path, allow_pickle=own or os.environ.get(TRUST) == "1")
    except PickleRefused as error:
        raise CheckpointError(
            f"{path / STRUCTURE_FILE} is of another trial, and starting from it would run code: {error.message}. "
            f"If you trust it, set {TRUST}=1 (environment.environment_variables of the experiment); or keep that state "
            "in plain values, or load the models yourself from its model_<i>.safetensors before Trainer.fit()"
        ) from error


def _previous(core_context: core.Context, uuid: str) -> list[str]:
    try:
        metadata = core_context.checkpoint.get_metadata(uuid)
    except CheckpointError:
        return []
    return [str(name) for name in metadata.get("previous") or []]


def _restored(uuid: str, tree: dict[str, Any], trial: str, *, damaged: tuple[str, ...]) -> RestoredCheckpoint:
    saved = tree.get("trial_state") or {}
    if saved.get("trial") != trial:
        logger.info("checkpoint %s is of another trial: this trial starts with its weights and optimizer", uuid)
        return RestoredCheckpoint(uuid, tree, TrialProgress(), None)
    known = {field.name for field in dataclasses.fields(TrialProgress)}
    progress = TrialProgress(**{name: value for name, value in saved["progress"].items() if name in known})
    progress.saved_at = progress.steps_completed
    progress.checkpoints = [uuid, *(name for name in progress.checkpoints if name != uuid)][:KEPT_NAMES]
    return RestoredCheckpoint(uuid, tree, progress, saved["stream"], damaged)


def apply(restored: RestoredCheckpoint, context: PyTorchTrialContext, callbacks: CallbackSet) -> None:
    """Load a checkpoint's content into models, optimizers, schedulers, scaler, callbacks and this rank's RNGs.

    Raises:
        StateMismatch: The checkpoint is of another model; every difference is named and nothing was loaded.
    """
    tree = restored.tree
    callbacks.call("on_checkpoint_load_start", tree)
    models, optimizers = tree["models_state_dict"], tree.get("optimizers_state_dict") or []
    strategy = context._strategy
    modules = [strategy.unwrap(model) for model in context.models]
    check_state(modules, models, context.optimizers, optimizers, checkpoint=f"checkpoint {restored.uuid}")
    named = [as_named(module, state) for module, state in zip(modules, models, strict=True)]
    strategy.load(context.models, context.optimizers, named, optimizers)
    context._load_schedulers_state(tree.get("lr_schedulers_state_dict") or [])
    context._load_scaler_state(tree.get("scaler_state_dict"))
    for name in callbacks.load_state(tree.get("callbacks") or {}):
        logger.warning("the checkpoint holds state of a callback %r that this trial does not have", name)
    rank = context.distributed.rank
    if restored.knows(rank):
        rng.restore(tree["ranks"][rank]["rng"])
    if restored.same_trial and tree["trial_state"].get("aggregation") == context._aggregation_frequency:
        _apply_gradients(tree.get("ranks") or [], context)


def _apply_gradients(ranks: list[dict[str, Any]], context: PyTorchTrialContext) -> None:
    """Put back the gradients of an unfinished aggregation."""
    gradients = [part["gradients"] for part in ranks if part.get("gradients") is not None]
    if len(gradients) != len(ranks) or not gradients:
        return
    if len(ranks) == context.distributed.size:
        context._restore_gradients(gradients[context.distributed.rank])
        return
    # Another number of ranks: each takes the mean, so that their mean is that of the ranks before.
    context._restore_gradients([_mean(parts, len(ranks)) for parts in zip(*gradients, strict=True)])


def _mean(parts: tuple[Any, ...], count: int) -> Any:
    there = [part for part in parts if part is not None]
    return torch.stack(there).sum(0) / count if there else None


class Checkpointing:
    """Takes checkpoints of a running trial.

    Args:
        core_context: Where they go.
        context: Of the trial.
        trial: Its class and hyperparameters are noted for `load_trial_from_checkpoint_path`.
        callbacks: Their hooks are called.
        progress: Of the trial; updated.
        name: Identity of the trial.
        alive: Called while a checkpoint waits for the master or for room on a disk: that is no hang.
    """

    def __init__(
        self,
        core_context: core.Context,
        context: PyTorchTrialContext,
        trial: PyTorchTrial,
        callbacks: CallbackSet,
        progress: TrialProgress,
        name: str,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._core = core_context
        self._context = context
        self._trial = trial
        self._callbacks = callbacks
        self._progress = progress
        self._name = name
        self._written_hooks = callbacks.wants("on_checkpoint_write_end", "on_checkpoint_end")
        self._writer = (
            CheckpointWriter(core_context.checkpoint, pause_after_write=self._written_hooks, alive=alive)
            if core_context.distributed.rank == 0
            else None
        )

    def prepare(self, stream: TrainingStream) -> None:
        """Allocate the kept buffers, so that the first checkpoint does not wait for memory; all ranks call in step."""
        shard = self._context._shard()
        if self._writer is not None:
            self._writer.prepare(self._tree(stream, shard, []))

    def save(self, stream: TrainingStream) -> None:
        """Take a checkpoint; all ranks call in step. Returns when the state is copied, before it is written."""
        self.drain()  # the writer takes one at a time
        mine = {"rng": rng.capture(), "gradients": self._context._pending_gradients()}
        if self._core.distributed.rank > 0:
            mine = to_cpu(mine)  # the chief would put another rank's tensors on that rank's GPU
        ranks = self._core.distributed.gather(mine)
        steps, committed = self._progress.steps_completed, self._progress.checkpoints
        segment = self._context._governed_segment(self._core.distributed, steps, committed)
        shard = self._context._shard()
        self._progress.saved_at = steps
        if self._writer is None:
            return
        assert ranks is not None
        tree = self._tree(stream, shard, ranks)
        self._callbacks.call("on_checkpoint_save_start", tree)
        governed = {} if segment is None else {METADATA_KEY: segment}
        self._writer.submit(tree, {**self._metadata(), **governed}, load_data=self._load_data(), code=Path.cwd())

    def poll(self) -> list[str]:
        """Return checkpoints that were committed since the last call; chief alone.

        Raises:
            CheckpointWriteFailed: One could not be written.
        """
        assert self._writer is not None
        self._run_written_hooks()
        return [finished.uuid for finished in self._writer.poll()]

    def committed(self, uuids: list[str]) -> None:
        """Note committed checkpoints and call the hook; on all ranks."""
        for uuid in uuids:
            self._progress.remember(uuid)
            self._callbacks.call("on_checkpoint_upload_end", uuid)

    def drain(self) -> None:
        """Wait until everything is committed; all ranks call in step."""
        uuids: list[str] = []
        if self._writer is not None:
            # A disk that was full when the files were forced to it has them written anew: hooks add to those, too.
            while not self._writer.wait():
                self._run_written_hooks()
            uuids = self.poll()
        self.committed(self._core.distributed.broadcast(uuids))

    def close(self) -> None:
        """End the writer; what it has begun is finished first."""
        if self._writer is not None:
            self._writer.close()

    def _run_written_hooks(self) -> None:
        if self._writer is not None and self._writer.written is not None:
            folder = str(self._writer.written)
            self._callbacks.call("on_checkpoint_write_end", folder)
            self._callbacks.call("on_checkpoint_end", folder)
            self._writer.resume()

    def _tree(self, stream: TrainingStream, shard: Shard, ranks: list[Any]) -> dict[str, Any]:
        context = self._context
        return {
            "models_state_dict": shard.models,
            "optimizers_state_dict": shard.optimizers,
            **context._optimizer_names(),
            **context._probe_state(),
            "lr_schedulers_state_dict": context._schedulers_state(),
            "scaler_state_dict": context._scaler_state(),
            "callbacks": self._callbacks.state(),
            "ranks": ranks,
            "trial_state": {
                "trial": self._name,
                "world_size": context.distributed.size,
                "aggregation": context._aggregation_frequency,
                "progress": dataclasses.asdict(self._progress),
                "stream": stream.state_dict(),
                "canaries": context._canary_secret(),
                "privacy": context._privacy_state(),
            },
        }

    def _metadata(self) -> dict[str, Any]:
        return {
            "steps_completed": self._progress.steps_completed,
            "epochs_completed": self._progress.epochs_completed,
            "framework": f"torch-{torch.__version__}",
            "format": "safetensors",
            "detlab_version": version("detlab"),
            "world_size": self._context.distributed.size,
            "previous": list(self._progress.checkpoints),
        }

    def _load_data(self) -> dict[str, Any]:
        cls = type(self._trial)
        return {
            "trial_type": "PyTorchTrial",
            "trial_class_spec": f"{_module_of(cls)}:{cls.__qualname__}",
            "hparams": self._context.get_hparams(),
            "experiment_config": self._context.get_experiment_config(),
            "is_trainer": True,
        }


def _module_of(cls: type) -> str:
    """Return the module to import a class from; for one of the running script, the script's own name."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(script).stem if cls.__module__ == "__main__" and script else cls.__module__


def best_so_far(ask: Callable[[], float | None], own: float | None, *, smaller_is_better: bool) -> float | None:
    """Return the better of the experiment's best validation and this trial's own; the master may be away."""
    try:
        known = ask()
    except DetlabError as error:
        logger.warning("the experiment's best validation is unknown, this trial's best is used: %s", error.message)
        known = None
    values = [value for value in (known, own) if value is not None]
    if not values:
        return None
    return min(values) if smaller_is_better else max(values)
