"""The information of a task about itself: `det.get_cluster_info()`.

The agent writes `$DET_TASK_DIR/info.json` (`schemas.wire.ClusterInfoWire`) before it starts a task. Only the
standard library is imported here, so that `import detlab` stays light.
"""

from __future__ import annotations

import functools
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detlab.errors import AuthError, NotInCluster
from detlab.token_text import one_word

TASK_DIR_VARIABLE = "DET_TASK_DIR"


@dataclass(frozen=True, slots=True)
class TrialInfo:
    """The trial that the current task runs.

    Attributes:
        trial_id: Id of the trial, unique in the cluster.
        experiment_id: Id of its experiment.
        trial_seed: Seed drawn for this trial; below 2**31.
        hparams: The hyperparameter values chosen for this trial.
    """

    trial_id: int
    experiment_id: int
    trial_seed: int
    hparams: dict[str, Any] = field(default_factory=dict)
    _config: dict[str, Any] = field(default_factory=dict, repr=False)
    _trial_run_id: int = 0
    _index: int = 0

    @property
    def max_time(self) -> int | None:
        """`searcher.max_time`, with what users had extended the search by when this attempt began; None: not given."""
        found = (self._config.get("searcher") or {}).get("max_time")
        return None if found is None else int(found)


@dataclass(frozen=True, slots=True)
class ReplayInfo:
    """What `det governance replay` tells the code of a trial, of which a segment is trained anew off the cluster.

    Attributes:
        storage: The folder with the checkpoint that it begins with, in which it saves its own.
        stops: Batches of the trial at which it saves a checkpoint, in order; at the last it ends.
        canaries: The secret of the trial's canaries, in hex; None where the checkpoint has it, or there are none.
    """

    storage: Path
    stops: tuple[int, ...]
    canaries: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The task as its cluster describes it (Determined's names).

    Depend on it for launching and logging; training code that depends on it cannot run off-cluster.

    Attributes:
        master_url: Base address of the service, with a trailing slash.
        cluster_id: Id of the cluster.
        agent_id: Id of the agent that runs this task.
        slot_ids: Slots of this task on this node, counted from 0.
        task_id: Id of the task, the same over all its attempts.
        allocation_id: Id of this attempt.
        task_type: `TRIAL`, or the kind of a user task: `NOTEBOOK`, `SHELL`, `COMMAND`, `TENSORBOARD`, `CELL`,
            `NOTEBOOK_RUN`.
        latest_checkpoint: Checkpoint to continue from, or None to start from scratch.
        user_data: The `data` block of the experiment config.
        container_addrs: One address per node of the task, ordered by rank.
        container_rank: Rank of this node.
        container_slot_counts: Slots per node, ordered by rank.
        gpu_uuids: GPUs of this task on this node.
        task_dir: The task's own directory (`$DET_TASK_DIR`).
        run: Number of this attempt, from 1.
        earlier_checkpoints: Checkpoints of this trial before `latest_checkpoint`, newest first.
        storage_instance: The installation of the cluster for which this task stores checkpoints; empty: not known.
        storage_epoch: Higher for each installation that has taken over.
    """

    master_url: str
    cluster_id: str
    agent_id: str
    slot_ids: list[int]
    task_id: str
    allocation_id: str
    task_type: str
    latest_checkpoint: str | None
    user_data: dict[str, Any]
    container_addrs: list[str]
    container_rank: int
    container_slot_counts: list[int]
    gpu_uuids: list[str]
    task_dir: Path
    run: int = 0
    earlier_checkpoints: tuple[str, ...] = ()
    storage_instance: str = ""
    storage_epoch: int = 0
    _trial: TrialInfo | None = None
    _replay: ReplayInfo | None = None

    @property
    def trial(self) -> TrialInfo:
        """The trial of this task.

        Raises:
            RuntimeError: The task is not a trial.
        """
        if self._trial is None:
            raise RuntimeError(f"a task of type {self.task_type} has no trial")
        return self._trial

    @property
    def session_token(self) -> str:
        """The current task token; the launcher renews it, so do not keep it.

        Raises:
            AuthError: The token file cannot be read.
        """
        return read_token(self.task_dir)

    @classmethod
    def from_task_dir(cls, task_dir: Path) -> ClusterInfo:
        """Read `info.json` of a task directory.

        Raises:
            NotInCluster: The file is missing or is not what an agent writes.
        """
        path = task_dir / "info.json"
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            return cls._from_wire(raw, task_dir)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NotInCluster(
                f"{TASK_DIR_VARIABLE} is set, but {path} cannot be used: {error!r}",
                hint=f"Unset {TASK_DIR_VARIABLE} to run off-cluster.",
            ) from error

    @classmethod
    def _from_wire(cls, raw: dict[str, Any], task_dir: Path) -> ClusterInfo:
        config = raw.get("config") or {}
        slot_ids = [int(slot) for slot in raw["slot_ids"]]
        task_type = raw.get("task_type", "TRIAL")
        return cls(
            master_url=raw["master_url"],
            cluster_id=raw["cluster_id"],
            agent_id=raw["agent_id"],
            slot_ids=slot_ids,
            task_id=raw["task_id"],
            allocation_id=raw["allocation_id"],
            task_type=task_type,
            latest_checkpoint=raw.get("latest_checkpoint"),
            user_data=config.get("data") or {},
            container_addrs=raw.get("container_addrs") or ["127.0.0.1"],
            container_rank=int(raw.get("container_rank", 0)),
            container_slot_counts=raw.get("container_slot_counts") or [len(slot_ids)],
            gpu_uuids=raw.get("gpu_uuids") or [],
            task_dir=task_dir,
            run=int(raw["run"]),
            earlier_checkpoints=tuple(map(str, raw.get("earlier_checkpoints") or ())),
            storage_instance=str(raw.get("storage_instance") or ""),
            storage_epoch=int(raw.get("storage_epoch") or 0),
            _trial=cls._trial_info(raw, config) if task_type == "TRIAL" else None,
            _replay=cls._replay_info(raw.get("replay")),
        )

    @staticmethod
    def _replay_info(raw: dict[str, Any] | None) -> ReplayInfo | None:
        if raw is None:
            return None
        return ReplayInfo(Path(raw["storage"]), tuple(map(int, raw["stops"])), raw.get("canaries"))

    @staticmethod
    def _trial_info(raw: dict[str, Any], config: dict[str, Any]) -> TrialInfo:
        return TrialInfo(
            trial_id=int(raw["trial_id"]),
            experiment_id=int(raw["experiment_id"]),
            trial_seed=int(raw["trial_seed"]),
            hparams=raw.get("hparams") or {},
            _config=config,
            _trial_run_id=int(raw["run"]),
            _index=int(raw.get("trial_index", 0)),
        )


def read_token(task_dir: Path) -> str:
    """Return the task token in a task directory; call this for each use, as the token is renewed.

    Raises:
        AuthError: The token file cannot be read or is empty.
    """
    path = task_dir / "token"
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AuthError(f"the task token {path} cannot be read: {error}") from error
    if not token:
        raise AuthError(f"the task token {path} is empty")
    return one_word(token, str(path))


@functools.lru_cache(maxsize=4)
def _load(task_dir: str) -> ClusterInfo:
    return ClusterInfo.from_task_dir(Path(task_dir))


def get_cluster_info() -> ClusterInfo | None:
    """Return what the cluster says about this task, or None off-cluster.

    Raises:
        NotInCluster: `DET_TASK_DIR` is set but holds no usable `info.json`.
    """
    task_dir = os.environ.get(TASK_DIR_VARIABLE)
    return _load(task_dir) if task_dir else None
