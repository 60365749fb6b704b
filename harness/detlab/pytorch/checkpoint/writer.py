"""Writing checkpoints beside the training: the loop waits for a copy of the state, a thread does the rest."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import errno
import gc
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from detlab.core import CheckpointContext
from detlab.core.full_disk import await_room, passes
from detlab.core.metrics.values import check_steps
from detlab.errors import ApiError, ClusterUnreachable, DetlabError
from detlab.pytorch.checkpoint import source_code
from detlab.pytorch.checkpoint.files import EncodedState, encode_state, write_encoded
from detlab.pytorch.checkpoint.host_memory import HostMemory

logger = logging.getLogger("detlab.pytorch")

_WORTH_TELLING = 0.1  # seconds of waiting for the previous checkpoint
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}


class CheckpointWriteFailed(DetlabError):
    """A checkpoint could not be written, uploaded or committed; nothing of it is visible."""

    default_code = "checkpoint.write_failed"


@dataclasses.dataclass(frozen=True)
class Finished:
    """A committed checkpoint.

    Attributes:
        uuid: Of the checkpoint.
        steps_completed: Of its metadata.
        metadata: As it was given.
    """

    uuid: str
    steps_completed: int
    metadata: dict[str, Any]


class _State(enum.Enum):
    IDLE = "idle"
    WRITING = "writing"
    PAUSED = "paused"
    COMMITTING = "committing"


class _Abandoned(Exception):
    """The writer was closed before it was told to commit."""


class CheckpointWriter:
    """Writes one checkpoint at a time, for the chief's training loop.

    Each write has a thread of its own, which the interpreter waits for at its exit. All methods are for one thread.

    Args:
        checkpoint: Where checkpoints go.
        pause_after_write: Whether to stop between writing the files and committing them, until `resume`.
        alive: Called each second in which somebody waits for a checkpoint that waits for the master or for room.

    Attributes:
        stall_s: Seconds that `submit` took so far, all calls together.
    """

    def __init__(
        self,
        checkpoint: CheckpointContext,
        *,
        pause_after_write: bool = False,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._checkpoint = checkpoint
        self._alive = alive
        self._waits_for_room = False
        self._pauses = pause_after_write
        self._memory = HostMemory()
        self._changed = threading.Condition()
        self._state = _State.IDLE
        self._written: Path | None = None
        self._abandoned = False
        self._finished: list[Finished] = []
        self._failure: CheckpointWriteFailed | None = None
        self._failure_told = False
        self._thread: threading.Thread | None = None
        self._preparing: threading.Thread | None = None
        self._code: dict[Path, dict[str, bytes]] = {}
        self._told_of_waiting = False
        self._closed = False
        self.stall_s = 0.0

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is under way, be it paused."""
        with self._changed:
            return self._state is not _State.IDLE

    @property
    def written(self) -> Path | None:
        """Where the files of a checkpoint lie that waits for `resume`, else None."""
        with self._changed:
            return self._written

    def prepare(self, tree: Mapping[str, Any]) -> None:
        """Allocate, in a thread, the memory that a checkpoint of this state will need.

        Call it again when the state has grown, such as after the optimizer's first step.
        """
        self._join_preparation()
        if self.busy:
            return
        tensors = list({id(tensor): tensor for tensor in encode_state(tree).tensors.values()}.values())
        self._preparing = threading.Thread(
            target=self._memory.prepare, args=(tensors,), name="detlab-checkpoint-memory"
        )
        self._preparing.start()

    def submit(
        self,
        tree: Mapping[str, Any],
        metadata: Mapping[str, Any],
        *,
        load_data: dict[str, Any] | None = None,
        code: Path | None = None,
    ) -> None:
        """Copy the state and have it written; returns as soon as the state may change again.

        Waits for the previous checkpoint if that is still being written.

        Args:
            tree: The state, as `write_state` takes it.
            metadata: Of the checkpoint, with `steps_completed`.
            load_data: Content of `load_data.json`.
            code: Directory whose source files go along, read once for all checkpoints.

        Raises:
            CheckpointWriteFailed: The previous checkpoint could not be written.
            CheckpointError: A value of the state cannot be stored.
            RuntimeError: The writer is closed, or the previous checkpoint waits for `resume`.
        """
        started = time.perf_counter()
        if self._closed:
            raise RuntimeError("the checkpoint writer is closed")
        steps = check_steps(metadata["steps_completed"])
        self._await_previous(steps)
        self._join_preparation()
        with _no_collection():
            encoded = encode_state(tree)
            kept = EncodedState(encoded.structure, self._memory.copy(encoded.tensors), encoded.models)
        arguments = (kept, copy.deepcopy(dict(metadata)), copy.deepcopy(load_data), code)
        with self._changed:
            self._state = _State.WRITING
        self._thread = threading.Thread(target=self._run, args=arguments, name=f"detlab-checkpoint-{steps}")
        self._thread.start()
        stall = time.perf_counter() - started
        self.stall_s += stall
        logger.debug("the checkpoint at step %d delayed training by %.3f s", steps, stall)

    def resume(self) -> None:
        """Commit the checkpoint whose files have been written.

        Raises:
            RuntimeError: No checkpoint waits for this.
        """
        with self._changed:
            if self._state is not _State.PAUSED:
                raise RuntimeError("no checkpoint is pending")
            self._state, self._written = _State.COMMITTING, None
            self._changed.notify_all()

    def poll(self) -> list[Finished]:
        """Return the checkpoints that were committed since the last call, without waiting.

        Raises:
            CheckpointWriteFailed: One could not be written.
        """
        with self._changed:
            self._raise_failure()
            finished, self._finished = self._finished, []
        return finished

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is under way, or a checkpoint waits for `resume`.

        Args:
            timeout: In seconds; None waits without a limit.

        Returns:
            Whether nothing is under way.

        Raises:
            CheckpointWriteFailed: A checkpoint could not be written.
        """
        give_up = math.inf if timeout is None else time.monotonic() + timeout
        with self._changed:
            while self._state not in {_State.IDLE, _State.PAUSED} and (left := give_up - time.monotonic()) > 0:
                self._changed.wait(min(left, 1.0))
                if self._waits_for_room or self._checkpoint._held_up:
                    self._alive()
            self._raise_failure()
            return self._state is _State.IDLE

    def close(self) -> None:
        """Finish what is under way and free the memory; a checkpoint that waits for `resume` is dropped."""
        self._closed = True
        with self._changed:
            self._abandoned = True
            self._changed.notify_all()
        self._join_preparation()
        if self._thread is not None:
            self._thread.join()
        self._memory = HostMemory()
        if self._failure is not None and not self._failure_told:
            self._failure_told = True
            logger.error("%s", self._failure)

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            self._failure_told = True
            raise self._failure

    def _join_preparation(self) -> None:
        if self._preparing is not None:
            self._preparing.join()
            self._preparing = None

    def _await_previous(self, steps: int) -> None:
        started = time.perf_counter()
        if not self.wait():
            raise RuntimeError("the previous checkpoint is written and pending: call resume()")
        waited = time.perf_counter() - started
        if waited > _WORTH_TELLING and not self._told_of_waiting:
            self._told_of_waiting = True
            logger.warning(
                "the checkpoint at step %d waited %.1f s for the previous one to be stored: checkpoints are due faster "
                "than the storage takes them (this is said once)",
                steps,
                waited,
            )

    def _run(
        self, kept: EncodedState, metadata: dict[str, Any], load_data: dict[str, Any] | None, code: Path | None
    ) -> None:
        finished, failure = None, None
        try:
            sources = self._source_files(code)

            def store() -> str:
                with self._checkpoint.store_path(metadata) as (path, uuid):
                    write_encoded(path, kept, load_data=load_data, code=sources)
                    if self._pauses:
                        self._pause(path)
                return uuid

            what = f"the checkpoint at step {metadata['steps_completed']}"
            uuid = await_room(store, what, sleep=self._wait_for_room, may_repeat=passes)
            finished = Finished(uuid, check_steps(metadata["steps_completed"]), metadata)
        except _Abandoned:
            logger.warning("the checkpoint at step %d was dropped before it was committed", metadata["steps_completed"])
        except BaseException as error:  # the loop's thread raises it
            failure = _failed(metadata["steps_completed"], error)
        with self._changed:
            self._state, self._written, self._failure = _State.IDLE, None, failure
            if finished is not None:
                self._finished.append(finished)
            self._changed.notify_all()

    def _wait_for_room(self, seconds: float) -> None:
        with self._changed:
            self._waits_for_room = True
            dropped = self._changed.wait_for(lambda: self._abandoned, seconds)
            self._waits_for_room = False
        if dropped:
            raise _Abandoned

    def _source_files(self, root: Path | None) -> dict[str, bytes] | None:
        """Return the trial's code as it was at the first checkpoint: later edits do not affect what runs."""
        if root is None:
            return None
        if root not in self._code:
            self._code[root] = source_code.collect(root)
        return self._code[root]

    def _pause(self, path: Path) -> None:
        with self._changed:
            self._state, self._written = _State.PAUSED, path
            self._changed.notify_all()
            # Without a main thread nobody will call `resume`, and the interpreter waits for this thread.
            while self._state is _State.PAUSED and not self._abandoned and threading.main_thread().is_alive():
                self._changed.wait(1.0)
            if self._state is _State.PAUSED:
                raise _Abandoned


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector away: taking a state of thousands of tensors apart would start it, for 0.2 s."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _failed(steps: int, error: BaseException) -> CheckpointWriteFailed:
    reason = error.message if isinstance(error, DetlabError) else f"{type(error).__name__}: {error}"
    failure = CheckpointWriteFailed(
        f"the checkpoint at step {steps} could not be stored: {reason}", hint=_next_step(error)
    )
    failure.__cause__ = error
    return failure


def _next_step(error: BaseException) -> str:
    number = _errno(error)
    if number in _NO_ROOM:
        return (
            "Make room in the checkpoint storage (or raise its quota), checkpoint less often (checkpoint_period), or "
            "keep fewer checkpoints. The trial continues from the last checkpoint that was committed."
        )
    if number in _NOT_ALLOWED:
        return "Let the user that runs the trial write to the checkpoint storage (see checkpoint_storage)."
    if isinstance(error, ClusterUnreachable | ApiError):
        return "The files were written, but the master did not commit them: see whether it runs (`det status`)."
    return "Earlier checkpoints are not touched. The trial continues from the last one that was committed."


def _errno(error: BaseException | None) -> int | None:
    """Return the number of the system's error behind an error."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return error.errno if isinstance(error, OSError) else None
