"""`core.init()`: the contexts of one process of a trial, on a cluster or off it."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from platformdirs import user_data_dir

from detlab import storage
from detlab.core.artifacts import ArtifactContext
from detlab.core.checkpoint.context import CheckpointContext, DummyCheckpointContext
from detlab.core.distributed.context import DistributedContext, DummyDistributedContext
from detlab.core.distributed.heartbeat import LoopState, Pulse
from detlab.core.metrics.media import MediaSpool
from detlab.core.metrics.profiler import DummyProfilerContext, ProfilerContext
from detlab.core.metrics.spool import Spool
from detlab.core.metrics.tensorboard import TensorboardManager, TensorboardMode
from detlab.core.metrics.train import DummyTrainContext, TrainContext
from detlab.core.preemption.context import DummyPreemptContext, PreemptContext, PreemptMode
from detlab.core.preemption.watch import PreemptionWatcher
from detlab.core.searcher import DummySearcherContext, SearcherContext, parse_length, parse_units
from detlab.core.session import TaskSession
from detlab.core.storage_check import check_kept, check_storage
from detlab.core.task_storage import for_task, held, open_storage
from detlab.core.uncaught import show_own_errors_short
from detlab.errors import InvalidHP
from detlab.info import ClusterInfo, get_cluster_info

logger = logging.getLogger("detlab.core")


class ExperimentalCoreContext:
    """Calls that Determined marks as experimental: what a trial uses, for the lineage of what it makes.

    Args:
        checkpoints: Stores the trial's checkpoints; each that is stored later holds the links.
    """

    def __init__(self, checkpoints: CheckpointContext | None = None) -> None:
        self._checkpoints = checkpoints

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        """Record that what this trial stores from now on was made with `checkpoint`, in its versions' lineage.

        Args:
            checkpoint: Its uuid, or a `Checkpoint` of `detlab.client`.

        Raises:
            ValueError: It is neither.
        """
        uuid = checkpoint if isinstance(checkpoint, str) else getattr(checkpoint, "uuid", None)
        if not isinstance(uuid, str) or not uuid:
            raise ValueError(f"name a checkpoint by its uuid, or give a Checkpoint, not {checkpoint!r:.200}")
        if self._checkpoints is not None:
            self._checkpoints.note_use(uuid)

    def report_task_using_model_version(self, model_version: Any) -> None:
        """Record likewise that it was made with the checkpoint of a `ModelVersion` of `detlab.client`.

        Raises:
            ValueError: It is none.
        """
        uuid = getattr(model_version, "checkpoint_uuid", None)
        if uuid is None:
            raise ValueError(f"give a ModelVersion, not {model_version!r:.200}")
        self.report_task_using_checkpoint(uuid)


ALERT_CHARS = 4000
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class Context:
    """What `core.init()` gives: one member per part of the Core API.

    Attributes:
        checkpoint: Store and restore checkpoints.
        distributed: Messages between ranks.
        preempt: Whether this trial should stop now.
        train: Report metrics, progress, status, metadata.
        searcher: For code written before Determined 0.38.
        profiler: System metrics.
        experimental: Calls that Determined marks as experimental.
        artifacts: Named folders in versions that this trial uses and makes.
        info: The task, None off-cluster.
    """

    def __init__(
        self,
        checkpoint: CheckpointContext,
        distributed: DistributedContext,
        preempt: PreemptContext,
        train: TrainContext,
        searcher: SearcherContext,
        *,
        info: ClusterInfo | None = None,
        profiler: ProfilerContext | None = None,
        experimental: ExperimentalCoreContext | None = None,
        tensorboard: TensorboardManager | None = None,
        session: TaskSession | None = None,
        spool: Spool | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.distributed = distributed
        self.preempt = preempt
        self.train = train
        self.searcher = searcher
        self.info = info
        self.profiler = profiler or DummyProfilerContext()
        self.experimental = experimental or ExperimentalCoreContext(checkpoint)
        self.artifacts = ArtifactContext(info)
        self._tensorboard = tensorboard
        self._session = session
        self._spool = spool
        self._pulse: Pulse | None = None

    def alert(
        self,
        title: str | None = None,
        description: str | None = None,
        level: str | None = "info",
    ) -> None:
        """Tell the owner of the experiment something, and everybody who has a rule for its alerts.

        It is in their list of alerts and at their webhooks, and in the log of the trial. It returns at once and is
        delivered by the launcher, through outages of the master too. Ten in a minute are kept of a trial; the last one
        counts the others. Each rank that calls tells: in code that all ranks run, call it on the chief alone.
        Off-cluster it is only logged.

        Args:
            title: A short summary; 200 characters are kept.
            description: Details; 4,000 characters are kept.
            level: How bad it is: `debug`, `info`, `warn`, `warning` or `error`, also in capitals.

        Raises:
            SpoolError: It could not be written to the task's disk.
            ValueError: The level is unknown.
        """
        known = str(level or "info").lower()
        if known not in _LEVELS:
            raise ValueError(f"level must be one of {', '.join(_LEVELS)}, not {level!r}")
        text = ": ".join(part for part in (title, description) if part)
        logger.log(_LEVELS[known], "alert: %s", text.encode(errors="replace").decode())
        if self._spool is not None:
            said = {"title": title, "text": description, "level": known}
            cut = {
                name: str(value or "")[:ALERT_CHARS].encode(errors="replace").decode() for name, value in said.items()
            }
            self._spool.append("alert", cut)

    def start(self) -> None:
        """Begin to watch for preemption; `with` does so."""
        self.preempt.start()
        if self._pulse is not None:
            self._pulse.start()

    def close(self) -> None:
        """Stop threads and close connections; `with` does so."""
        with contextlib.ExitStack() as stack:  # each one closes even if another fails
            if self._session is not None:
                stack.callback(self._session.close)
            if self._tensorboard is not None:
                stack.callback(self._tensorboard.close)
            stack.callback(self.artifacts.close)
            stack.callback(self.distributed.close)
            stack.callback(self.preempt.close)
            stack.callback(self.profiler.off)
            stack.callback(self._leave_watch)

    def _leave_watch(self) -> None:
        """Have the launcher's watch over ranks that hang leave this one alone."""
        if self._pulse is not None:
            self._pulse.close()

    @contextlib.contextmanager
    def _watch_loop(self, loop: LoopState, limit: float) -> Iterator[None]:
        """Have the launcher watch a training loop of the calling thread, until the block ends.

        Off-cluster there is no launcher, so nothing is watched.

        Args:
            loop: Kept up to date by the loop.
            limit: Seconds that all ranks may spend without progress.
        """
        self._leave_watch()
        if self.info is None or self.distributed.size < 2:
            yield
            return
        pulse = Pulse(self.info.task_dir, self.distributed.rank, self.distributed.size, limit, loop)
        pulse.start()
        try:
            yield
        finally:
            pulse.close()

    def __enter__(self) -> Context:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if isinstance(exc_value, InvalidHP):
                self.train._report_invalid_hp()
        finally:
            self.close()
        if isinstance(exc_value, InvalidHP):
            logger.info("invalid hyperparameters, the trial ends: %s", exc_value)
            sys.exit(0)


def init(
    *,
    distributed: DistributedContext | None = None,
    checkpoint_storage: str | Mapping[str, Any] | None = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
) -> Context:
    """Return the context of this process; use it as `with det.core.init() as core_context:`.

    Off-cluster, reports are logged, checkpoints go to a local directory, and nothing is ever preempted.
    `kill -USR1` prints the stacks of all threads. `det.InvalidHP` leaving the block ends the trial with exit code 0.

    Args:
        distributed: Required for a task of several slots.
        checkpoint_storage: A directory, or a `checkpoint_storage` block; that of the experiment config if None.
        preempt_mode: Which ranks ask for preemption, and how.
        tensorboard_mode: Who copies TensorBoard files to storage.

    Raises:
        ValueError: A task of several slots without a DistributedContext, or one of several nodes whose ranks do not
            span them.
        StorageError: No checkpoint storage of the type asked for is installed, or, on a cluster, checkpoints cannot
            be stored in it: this is found out before the first step.
        NotInCluster: `DET_TASK_DIR` is set but names no task.
    """
    info = get_cluster_info()
    _print_stacks_on_sigusr1()
    show_own_errors_short()
    if info is None:
        return _init_off_cluster(distributed, _storage(checkpoint_storage), preempt_mode)
    if info._replay is not None:
        context = _init_off_cluster(distributed, storage.DirectoryStorage(info._replay.storage), preempt_mode)
        context.info = info  # of the trial that was; nothing is reported to its cluster
        return context
    _check_nodes(info, distributed)
    if distributed is None and len(info.slot_ids) > 1:
        raise ValueError(
            f"this task has {sum(info.container_slot_counts)} slots on {len(info.container_addrs)} node(s), and your"
            " script runs once. For a process on each slot: entrypoint `python3 -m detlab.launch.torch_distributed"
            " SCRIPT`, and core.init(distributed=DistributedContext.from_torch_distributed()). Otherwise pass a"
            " DistributedContext of your own, or ask for resources.slots_per_trial: 1"
        )
    return _init_on_cluster(
        info, distributed or DummyDistributedContext(), checkpoint_storage, preempt_mode, tensorboard_mode
    )


def _check_nodes(info: ClusterInfo, distributed: DistributedContext | None) -> None:
    """Refuse to train the same thing on each node by itself, which several chiefs would report as one trial.

    Raises:
        ValueError: The ranks of this process do not span the nodes of the trial.
    """
    nodes = len(info.container_addrs)
    if nodes < 2 or (distributed is not None and distributed.cross_size == nodes):
        return
    found = "no DistributedContext" if distributed is None else f"ranks on {distributed.cross_size} node(s)"
    raise ValueError(
        f"this trial has slots on {nodes} nodes, and core.init() got {found}: start the script with "
        "`python3 -m detlab.launch.torch_distributed`, by which the nodes meet (plain torchrun, accelerate and "
        "deepspeed leave each on its own), or keep the trial on one node with resources.is_single_node: true"
    )


def _init_on_cluster(
    info: ClusterInfo,
    distributed: DistributedContext,
    checkpoint_storage: str | Mapping[str, Any] | None,
    preempt_mode: PreemptMode,
    tensorboard_mode: TensorboardMode,
) -> Context:
    config = info.trial._config
    block = config.get("checkpoint_storage") or {}
    given = _storage(checkpoint_storage)
    session = TaskSession.from_info(info)
    store = open_storage(block, session, info) if given is None else for_task(held(given, info))
    spool = Spool(info.task_dir / "spool")
    if distributed.local_rank == 0:
        named = block if given is None else {}
        check_kept(store, named, os.environ.get("DET_RUNTIME", ""))
        check_storage(store, named, say=partial(_say, spool, distributed))
    tensorboard = TensorboardManager.for_task(info, tensorboard_mode, distributed.rank, store)
    train = TrainContext(spool, session, distributed, tensorboard, MediaSpool(info.task_dir / "spool" / "media"))
    searcher = config.get("searcher") or {}
    context = Context(
        checkpoint=CheckpointContext(distributed, store, session, spool, info),
        distributed=distributed,
        preempt=PreemptContext(session, distributed, preempt_mode, lambda: PreemptionWatcher(info)),
        train=train,
        searcher=SearcherContext(distributed, parse_length(searcher), train.report_progress, parse_units(searcher)),
        info=info,
        # One rank samples for all of its node; of a trial over several nodes that is the chief's.
        profiler=ProfilerContext(
            train._report_system if distributed.rank == 0 else None, lambda: train._steps_completed
        ),
        tensorboard=tensorboard,
        session=session,
        spool=spool,
    )
    context._pulse = Pulse.for_rank(info.task_dir, distributed)
    return context


def _say(spool: Spool, distributed: DistributedContext, status: str) -> None:
    """Set the trial's status, before there is a context by which its code could."""
    if distributed.rank == 0:
        spool.append("status", {"status": status})


def _init_off_cluster(
    distributed: DistributedContext | None, store: storage.StorageManager | None, preempt_mode: PreemptMode
) -> Context:
    distributed = distributed or DummyDistributedContext()
    if store is None:
        root = Path(user_data_dir("detlab")) / "checkpoints"
        logger.info("off-cluster: checkpoints go to %s", root)
        store = storage.DirectoryStorage(root)
    return Context(
        checkpoint=DummyCheckpointContext(distributed, store),
        distributed=distributed,
        preempt=DummyPreemptContext(distributed, preempt_mode),
        train=DummyTrainContext(distributed),
        searcher=DummySearcherContext(distributed),
        profiler=DummyProfilerContext(),
    )


def _storage(where: str | Mapping[str, Any] | None) -> storage.StorageManager | None:
    if where is None:
        return None
    if isinstance(where, str):
        return storage.from_string(where)
    return storage.from_config(where)


def _print_stacks_on_sigusr1() -> None:
    """Have SIGUSR1 print all stacks, also while the main thread is stuck in C code; other handlers still run."""
    try:
        sys.stderr.fileno()
    except (AttributeError, io.UnsupportedOperation, ValueError):
        return  # no real stderr to print to, as in a notebook kernel
    faulthandler.register(signal.SIGUSR1, all_threads=True, chain=callable(signal.getsignal(signal.SIGUSR1)))
