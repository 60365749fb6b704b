"""Training recorded segments of a trial anew, off the cluster: a folder like a task's, and the entrypoint in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detlab.errors import CheckpointError, DetlabError
from detlab.launch.archives import UnsafeBundle, digest_like
from detlab.launch.entrypoint import with_hook
from detlab.launch.environment import base_environment, entrypoint_environment, source_path
from detlab.launch.layout import unpack
from detlab.launch.taskdir import TaskDir, write_json
from detlab.schemas.expconf.entrypoints import command_of
from detlab.schemas.expconf.raw.secret_keys import MASK
from detlab.schemas.wire import CheckpointView
from detlab.storage import Manifest
from detlab.storage.manifest import MANIFEST_NAME

OUTPUT = "output.log"
"""In the folder: what the code has printed."""
CHECKPOINTS = "checkpoints"
"""In the folder: the checkpoint that it begins with, and those that it makes."""
_KEPT = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
_STOP_SECONDS = 10.0
_TAIL = 20


@dataclass(frozen=True)
class ReplayedTraining:
    """What is trained anew.

    Attributes:
        cluster_id: Of the cluster that signed for it.
        master_url: Its address; nothing is asked of it.
        experiment_id: Whose code it is.
        trial_id: Whose segments these are.
        trial_index: Its place in the experiment.
        seed: Of the trial.
        hparams: Of the trial.
        config: Of the experiment.
        parent: The checkpoint that it begins with; None: new weights.
        stops: Batches of the trial at which checkpoints were saved, in order; the last is its end.
        processes: How many have trained it.
        gpus: Whether on GPUs, one for each process.
        threads: Of torch in each process; empty: not known.
        canaries: The secret of the trial's canaries, in hex, where the parent does not have it.
    """

    cluster_id: str
    master_url: str
    experiment_id: int
    trial_id: int
    trial_index: int
    seed: int
    hparams: Mapping[str, Any]
    config: Mapping[str, Any]
    parent: str | None
    stops: tuple[int, ...]
    processes: int = 1
    gpus: bool = False
    threads: str = ""
    canaries: str | None = None

    @property
    def entrypoint(self) -> str | list[str]:
        """The command: a line for `sh -c`, or words."""
        return command_of(self.config["entrypoint"], self.processes)

    def info(self, storage: Path) -> dict[str, Any]:
        """Return the content of `info.json`."""
        return {
            "master_url": self.master_url,
            "cluster_id": self.cluster_id,
            "agent_id": "replay",
            "slot_ids": list(range(self.processes)),
            "gpu_uuids": [str(number) for number in range(self.processes)] if self.gpus else [],
            "task_id": "replay",
            "allocation_id": f"replay-{self.trial_id}-{self.stops[-1]}",
            "task_type": "TRIAL",
            "run": 1,
            "latest_checkpoint": self.parent,
            "trial_id": self.trial_id,
            "trial_index": self.trial_index,
            "experiment_id": self.experiment_id,
            "trial_seed": self.seed,
            "hparams": dict(self.hparams),
            "config": dict(self.config),
            "replay": {"storage": str(storage), "stops": list(self.stops), "canaries": self.canaries},
        }


def lay_out_replay(folder: Path, training: ReplayedTraining, bundle: bytes, digest: str | None) -> None:
    """Make the folder, with the code in it; the parent's files are put below `CHECKPOINTS` by the caller.

    Args:
        folder: It exists, and has nothing of this in it.
        training: What is trained.
        bundle: The code, as tar.gz; empty: there is none.
        digest: Of the code; None: there is none.

    Raises:
        DetlabError: The code is not what the digest says, or may not be unpacked.
        OSError: The disk is full or failing.
    """
    task = TaskDir(folder)
    for directory in (task.work, task.tmp, task.spool, folder / CHECKPOINTS):
        directory.mkdir(mode=0o700)
    if digest is not None:
        archive = folder / "code.tar.gz"
        archive.write_bytes(bundle)
        try:
            if digest_like(digest, archive) != digest:
                raise DetlabError(f"the code of experiment {training.experiment_id} is not what its digest says")
            unpack(archive, task.work)
        except UnsafeBundle as error:
            raise DetlabError(f"the code of experiment {training.experiment_id} cannot be unpacked: {error}") from error
    write_json(task.info, training.info(folder.absolute() / CHECKPOINTS))


def manifest_of(view: CheckpointView) -> Manifest:
    """Return the manifest of a checkpoint as the master describes it; its digest is the signed one."""
    return Manifest.of(view.uuid, view.files, view.metadata)


def place(view: CheckpointView, folder: Path) -> None:
    """Make a downloaded folder of a checkpoint one that can be restored from: with its manifest."""
    (folder / MANIFEST_NAME).write_bytes(manifest_of(view).to_bytes())


def environment_of(folder: Path, training: ReplayedTraining) -> dict[str, str]:
    """Return the whole environment of the code: what the experiment says, and of the caller's only where things are.

    Of a variable that is secret, and so not known, the caller's own value is taken.

    Args:
        folder: Of the replay.
        training: What is trained.
    """
    task = TaskDir(folder.absolute())
    said = (training.config.get("environment") or {}).get("environment_variables") or []
    if isinstance(said, dict):
        said = said.get("cuda" if training.gpus else "cpu") or []
    variables = {name: value for name, _, value in (str(one).partition("=") for one in said) if name}
    variables = {name: os.environ.get(name, "") if value == MASK else value for name, value in variables.items()}
    # Nothing of it is to be logged a second time.
    variables |= {"MLFLOW_TRACKING_URI": (task.root / "mlruns").as_uri(), "WANDB_MODE": "offline"}
    base = base_environment(
        os.environ,
        bin_dir=Path(sys.executable).parent,
        home=Path.home(),
        user=os.environ.get("USER", "replay"),
        tmp=task.tmp,
    )
    base |= source_path(os.environ) | {name: os.environ[name] for name in _KEPT if name in os.environ}
    if training.threads.isdigit():
        base["OMP_NUM_THREADS"] = training.threads
    launch = {"info": training.info(task.root / CHECKPOINTS), "environment": variables, "runtime": "process"}
    return entrypoint_environment(base, launch, task.root)


def train(folder: Path, training: ReplayedTraining) -> list[Path]:
    """Run the code of the trial to its end; return the folders of the checkpoints that it has saved, one for each stop.

    Args:
        folder: From `lay_out_replay`.
        training: What is trained.

    Raises:
        CheckpointError: It has ended otherwise, or without a checkpoint at one of the stops.
    """
    folder = folder.absolute()
    task, output = TaskDir(folder), folder / OUTPUT
    env = environment_of(folder, training)
    words = with_hook(training.entrypoint, task.work, env)
    command = ["sh", "-c", words] if isinstance(words, str) else words
    with output.open("wb") as log:
        status = _run(command, task.work, env, log)
    made = saved_in(folder / CHECKPOINTS, besides=training.parent)
    missing = [stop for stop in training.stops if stop not in made]
    if status == 0 and not missing:
        return [made[stop] for stop in training.stops]
    ended = f"ended with the status {status}" if status else f"saved no checkpoint after {missing[0]} batches"
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL:]
    raise CheckpointError(
        "\n".join([f"the training {ended}; the last lines of {output}:", *(f"  {line}" for line in lines)]),
        hint="it needs what the trial had: its packages, its data at the same paths, Trainer.fit() of a PyTorchTrial",
    )


def _run(command: list[str], cwd: Path, env: Mapping[str, str], log: Any) -> int:
    child = subprocess.Popen(
        command,
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        process_group=0,
    )
    try:
        return child.wait()
    except BaseException:  # an interrupt is for all of it
        os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        raise


def saved_in(storage: Path, *, besides: str | None) -> dict[int, Path]:
    """Return the folders of checkpoints by their batches; all but the one to begin with."""
    found = {}
    for path in sorted(storage.glob(f"*/{MANIFEST_NAME}")):
        name = path.parent.name
        if name != besides:
            metadata = Manifest.from_bytes(path.read_bytes(), uuid=name).metadata
            found[int(metadata["steps_completed"])] = path.parent
    return found
