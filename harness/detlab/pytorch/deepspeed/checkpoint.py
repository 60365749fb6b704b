"""Checkpoints of a `DeepSpeedTrial`: what its engines write, and the place of training beside it."""

from __future__ import annotations

import dataclasses
import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deepspeed
import torch

from detlab.errors import CheckpointError
from detlab.frameworks import random_states
from detlab.pytorch.callback import CallbackSet
from detlab.pytorch.checkpoint.manager import TRUST, TrialProgress, identity

if TYPE_CHECKING:
    from detlab.pytorch.deepspeed.context import DeepSpeedTrialContext
    from detlab.pytorch.deepspeed.trial import DeepSpeedTrial

FORMAT = "deepspeed"
STATE_FILE = "trial_state.json"
CALLBACKS_FILE = "callbacks.pt"
RANK_FILE = "rank-{}.json"


@dataclasses.dataclass
class Restored:
    """What a checkpoint said beside the engines; nothing, for a trial that starts.

    Attributes:
        progress: How far the trial was; a new one if the checkpoint is another trial's.
        stream: Place in the data, if it continues its own trial.
        random_numbers: States of this rank's generators, likewise.
    """

    progress: TrialProgress = dataclasses.field(default_factory=TrialProgress)
    stream: dict[str, Any] | None = None
    random_numbers: dict[str, Any] | None = None

    def restore_random_numbers(self) -> None:
        """Put this rank's generators where they were."""
        if self.random_numbers is not None:
            random_states.restore(self.random_numbers)


def save(
    trial: DeepSpeedTrial,
    context: DeepSpeedTrialContext,
    callbacks: CallbackSet,
    progress: TrialProgress,
    stream: dict[str, Any] | None,
) -> str:
    """Store a checkpoint and return its uuid; all ranks call in step."""
    distributed = context.distributed
    streams = [one for one in distributed.allgather(stream) if one is not None]
    metadata = {
        "steps_completed": progress.steps_completed,
        "epochs_completed": progress.epochs_completed,
        "framework": f"deepspeed-{deepspeed.__version__}",
        "format": FORMAT,
        "detlab_version": version("detlab"),
        "world_size": distributed.size,
        "trial": identity(context._core.info),
    }
    with context._core.checkpoint.store_path(metadata, shard=True) as (path, uuid):
        trial.save(context, path)
        states = random_states.capture()
        (path / RANK_FILE.format(distributed.rank)).write_text(json.dumps(states), encoding="utf-8")
        if distributed.rank == 0:
            told = {"progress": dataclasses.asdict(progress), "stream": streams[0] if streams else None}
            (path / STATE_FILE).write_text(json.dumps(told), encoding="utf-8")
            torch.save(callbacks.state(), path / CALLBACKS_FILE)
            callbacks.call("on_checkpoint_write_end", str(path))
            callbacks.call("on_checkpoint_end", str(path))
    return uuid


def restore(uuid: str, trial: DeepSpeedTrial, context: DeepSpeedTrialContext, callbacks: CallbackSet) -> Restored:
    """Load a checkpoint into the engines, and return the place of training; all ranks call in step.

    Raises:
        CheckpointError: It is of another format or number of ranks, or of another trial and nobody trusts it.
    """
    core_context, rank = context._core, context.distributed.rank
    metadata = core_context.checkpoint.get_metadata(uuid)
    own = metadata.get("trial") == identity(core_context.info)
    _check(uuid, metadata, context.distributed.size, own=own)
    with core_context.checkpoint.restore_path(uuid) as path:
        trial.load(context, path)
        if not own:
            return Restored()
        found = _read(path / STATE_FILE)
        states = torch.load(path / CALLBACKS_FILE, weights_only=True)
        random_numbers = _read(path / RANK_FILE.format(rank))
    list(callbacks.load_state(states))
    known = {field.name for field in dataclasses.fields(TrialProgress)}
    progress = TrialProgress(**{name: value for name, value in found["progress"].items() if name in known})
    progress.remember(uuid)
    return Restored(progress, found["stream"], random_numbers)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _check(uuid: str, metadata: dict[str, Any], ranks: int, *, own: bool) -> None:
    if metadata.get("format") != FORMAT:
        raise CheckpointError(f"checkpoint {uuid} is of {metadata.get('framework')}, and no DeepSpeedTrial wrote it")
    if metadata.get("world_size") != ranks:
        raise CheckpointError(
            f"checkpoint {uuid} was written by {metadata.get('world_size')} ranks, and this trial has {ranks}:"
            " DeepSpeed reads the optimizer's parts on as many ranks as have written them",
            hint="keep resources.slots_per_trial, or make weights of it with its zero_to_fp32.py and start from these",
        )
    if not own and os.environ.get(TRUST) != "1":
        raise CheckpointError(
            f"checkpoint {uuid} is of another trial, and DeepSpeed unpickles it, which runs code that is in it",
            hint=f"if you trust who wrote it: {TRUST}=1 in environment.environment_variables",
        )
