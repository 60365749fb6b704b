"""The rendezvous of a trial's ranks: torch's process group, and detlab's messages between ranks."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from detlab.core import DistributedContext
from detlab.core.distributed.channel import DistributedError
from detlab.errors import InvalidHP
from detlab.info import TASK_DIR_VARIABLE, ClusterInfo
from detlab.pytorch.errors import TrainerError, WorldSizeError

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
_MEETING = ("MASTER_ADDR", "MASTER_PORT")
_START = "start it with `python3 -m detlab.launch.torch_distributed python3 train.py`: one process per slot"
_ONE_NODE = "resources.is_single_node: true keeps it on one"

MARGIN = 60.0
"""Seconds by which every other limit is above that of the launcher's watch, which says more about a hang than they."""
_LOST = ("gloo", "nccl", "closed by peer", "reset by peer")
"""Words of the errors that the ranks get whose connection to another one breaks."""

_OPERATION_TIMEOUT = 7200.0
_LONGEST = 30 * 86400.0
"""Seconds; `hang_timeout=math.inf` is a way to say never, and torch takes no infinite number."""

_made: str | None = None
"""The backend of the process group that `connect` made."""


@dataclass(frozen=True)
class _Launched:
    """What the launcher says about this process."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int

    @classmethod
    def read(cls) -> _Launched | None:
        """Return what torchrun's variables say; None for a process that no launcher started.

        Raises:
            WorldSizeError: Some are missing or not numbers.
        """
        env = os.environ
        if "RANK" not in env or "LOCAL_WORLD_SIZE" not in env:
            return None
        problems = [f"{name} is not set" for name in (*_VARIABLES, *_MEETING) if name not in env]
        problems += [f"{name} is {env[name]!r}" for name in _VARIABLES if name in env and not env[name].isdecimal()]
        if problems:
            raise WorldSizeError.of("the launcher's environment variables cannot be used:", problems, hint=_START)
        return cls(*(int(env[name]) for name in _VARIABLES))

    def messages(self, timeout: float) -> DistributedContext:
        """Connect the ranks for messages."""
        one_node = self.local_size == self.size
        return DistributedContext(
            rank=self.rank,
            size=self.size,
            local_rank=self.local_rank,
            local_size=self.local_size,
            cross_rank=self.cross_rank,
            cross_size=self.cross_size,
            chief_ip=os.environ.get("DET_CHIEF_IP") or (None if one_node else os.environ["MASTER_ADDR"]),
            operation_timeout=max(_OPERATION_TIMEOUT, timeout + MARGIN),
        )


def connect(info: ClusterInfo | None, given: DistributedContext | None, timeout: float) -> DistributedContext | None:
    """Join the other processes of this trial.

    Args:
        info: The task, None off-cluster.
        given: Ranks that the caller has made already.
        timeout: Seconds that a rank may hang before the launcher ends the attempt.

    Returns:
        The ranks, or None for a process that is alone.

    Raises:
        WorldSizeError: The processes are not those of the slots, or two sources disagree on them; with all numbers.
        DistributedError: A rank did not appear.
    """
    if not timeout > 0:
        raise TrainerError(f"hang_timeout must be a positive number of seconds, not {timeout!r}")
    timeout = min(timeout, _LONGEST)
    launched = _Launched.read()
    _check_sizes(info, given, launched)
    if launched is None and given is None and not _is_initialized():
        return None
    if launched is not None:
        _join(info, launched, timeout)
    elif given is not None and given.size > 1 and not _is_initialized():
        raise WorldSizeError(
            f"pytorch.init(distributed=…) has {given.size} ranks, but torch.distributed is not set up", hint=_START
        )
    if given is not None:
        return given
    return launched.messages(timeout) if launched is not None else DistributedContext.from_torch_distributed()


@contextlib.contextmanager
def joined(
    info: ClusterInfo | None, given: DistributedContext | None, timeout: float
) -> Iterator[DistributedContext | None]:
    """Yield what `connect` returns, and `disconnect` when the block ends."""
    failed: BaseException | None = None
    try:
        yield connect(info, given, timeout)
    except BaseException as error:
        failed = error
        raise
    finally:
        disconnect(failed)


def disconnect(error: BaseException | None = None) -> None:
    """Leave the process group if `connect` made it; harmless when repeated.

    Args:
        error: What this rank ends with. That is noted first: the others will fail for want of it.
    """
    global _made  # the process group is global too
    if is_own_failure(error) and _is_initialized() and dist.get_world_size() > 1:
        note_failing_rank(dist.get_rank(), 1)
    if _made is None:
        return
    backend, _made = _made, None
    # NCCL waits for ranks that may never come; the process ends anyway.
    if _is_initialized() and not (error is not None and "nccl" in backend):
        dist.destroy_process_group()


def _check_sizes(info: ClusterInfo | None, given: DistributedContext | None, launched: _Launched | None) -> None:
    slots = 0 if info is None else max(len(info.slot_ids), sum(info.container_slot_counts))
    found: dict[str, int] = {}
    if launched is not None:
        found["the launcher started {} process(es) (WORLD_SIZE)"] = launched.size
    if given is not None:
        found["pytorch.init(distributed=…) has {} rank(s)"] = given.size
    if _is_initialized():
        found["torch.distributed is initialised with {} process(es)"] = dist.get_world_size()
    if slots > 1 and not found:
        raise WorldSizeError(
            f"this task has {slots} slots, and only one process was started",
            hint=f"{_START}; or ask for resources.slots_per_trial: 1",
        )
    if slots:
        found = {"this task has {} slot(s)": slots, **found}
    if len(set(found.values())) > 1:
        hint = _START
        if slots:
            hint += f", without --nproc_per_node, or set resources.slots_per_trial to another number than {slots}"
        if info is not None and len(info.container_addrs) > 1:
            hint += f"; this trial has slots on {len(info.container_addrs)} nodes: {_ONE_NODE}"
        raise WorldSizeError.of(
            "wrong world size: the number of processes is not clear:",
            [text.format(number) for text, number in found.items()],
            hint=hint,
        )


def _join(info: ClusterInfo | None, launched: _Launched, timeout: float) -> None:
    """Make the process group, unless the script has done so."""
    global _made  # noqa: PLW0603  (there is one group in a process)
    gpus = torch.cuda.device_count() if info is None or info.gpu_uuids else 0
    device, backend = device_and_backend(gpus, launched.local_rank)
    if device is not None:
        torch.cuda.set_device(device)
    if not _is_initialized():
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout + MARGIN))
        _made = backend


def device_and_backend(gpus: int, local_rank: int) -> tuple[int | None, str]:
    """Return the GPU of a rank and the backend of its process group.

    Args:
        gpus: How many GPUs the task has on this node.
        local_rank: Of this process among those of the node.

    Returns:
        The GPU's index, None if there is none for this rank (the context says so then); with GPUs NCCL carries their
        tensors and gloo those of the CPU, without them gloo carries all.
    """
    return local_rank if local_rank < gpus else None, "cpu:gloo,cuda:nccl" if gpus else "gloo"


def is_own_failure(error: BaseException | None) -> bool:
    """Return whether a rank ends with this exception as a failure, and not for want of another one that died."""
    if isinstance(error, SystemExit):
        return error.code not in {None, 0}
    if error is None or isinstance(error, InvalidHP | GeneratorExit):
        return False
    while error is not None:
        text = str(error).lower()
        if isinstance(error, DistributedError) or any(word in text for word in _LOST):
            return False
        error = error.__cause__ or error.__context__
    return True


def note_failing_rank(rank: int, status: int) -> None:
    """Tell the launcher which rank failed: of those noted in the task's directory the first counts.

    Args:
        rank: The rank that failed.
        status: Its exit status.
    """
    directory = os.environ.get(TASK_DIR_VARIABLE)
    if not directory:
        return
    line = json.dumps({"rank": rank, "exit_code": status, "time": time.time()}) + "\n"
    with contextlib.suppress(OSError), (Path(directory) / "spool" / "ranks.jsonl").open("a", encoding="utf-8") as file:
        file.write(line)


def _is_initialized() -> bool:
    return bool(dist.is_available() and dist.is_initialized())
