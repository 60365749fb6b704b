"""`core_context.distributed`: small messages between the ranks of a trial.

Not a replacement for the collectives of a training framework: values are pickled and pass through the chief.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from detlab.core.distributed import rendezvous
from detlab.core.distributed.channel import RankLink, accept_all, connect_to, derive_key, gather_from, listen
from detlab.info import TASK_DIR_VARIABLE

DEFAULT_PUB_PORT = 12360
DEFAULT_PULL_PORT = 12376
_LOCALHOST = "127.0.0.1"


class RankGroup:
    """Ranks that talk through one of them, the server (rank 0 of the group).

    Args:
        rank: This process's rank in the group.
        size: Ranks in the group.
        links: To the server; for the server, to all others by rank.
        timeout: Seconds that one operation may take; None for no limit.
    """

    def __init__(self, rank: int, size: int, links: dict[int, RankLink], timeout: float | None) -> None:
        self.rank = rank
        self.size = size
        self._links = links
        self._timeout = timeout
        self._lock = threading.Lock()
        for link in links.values():
            link.sock.settimeout(timeout)

    def gather(self, value: Any, operation: str) -> list[Any] | None:
        """Return all values, by rank, on the server, and None on the others; all ranks wait for each other."""
        with self._lock:
            values = self._collect(value, operation)
            self._spread(None, operation)
            return values

    def allgather(self, value: Any, operation: str) -> list[Any]:
        """Return all values, by rank, on every rank."""
        with self._lock:
            values: list[Any] = self._spread(self._collect(value, operation), operation)
            return values

    def broadcast(self, value: Any, operation: str) -> Any:
        """Return the server's value on every rank."""
        with self._lock:
            return self._spread(value, operation)

    def close(self) -> None:
        """Leave the group."""
        for link in self._links.values():
            link.close()

    def _collect(self, value: Any, operation: str) -> list[Any] | None:
        if self.rank == 0:
            others = gather_from(self._links, operation, self._timeout)
            return [value, *(others[rank] for rank in sorted(others))]
        self._links[0].send(operation, value)
        return None

    def _spread(self, value: Any, operation: str) -> Any:
        if self.rank == 0:
            for rank in sorted(self._links):
                self._links[rank].send(operation, value)
            return value
        return self._links[0].receive(operation)


class DistributedContext:
    """Ranks of this trial and messages between them.

    Args:
        rank: Of this process in the whole trial.
        size: Processes in the whole trial.
        local_rank: Of this process on its node.
        local_size: Processes on its node.
        cross_rank: Of this node.
        cross_size: Nodes.
        chief_ip: Address of the node of rank 0; required if there are several nodes.
        pub_port: Port of the chief where no task directory tells it (off-cluster and across nodes).
        pull_port: Accepted for compatibility; one port is enough.
        port_offset: Added to `pub_port`; tells groups of one task apart.
        force_tcp: Accepted for compatibility; TCP is used always.
        timeout: Seconds to wait for all ranks to appear.
        operation_timeout: Seconds that one operation may take before the missing ranks are named in an error;
            None waits forever. A rank that dies is noticed at once.

    Raises:
        ValueError: Ranks and sizes do not fit together.
        DistributedError: Not all ranks appeared in time.
    """

    def __init__(
        self,
        *,
        rank: int | None,
        size: int | None,
        local_rank: int | None,
        local_size: int | None,
        cross_rank: int | None,
        cross_size: int | None,
        chief_ip: str | None = None,
        pub_port: int = DEFAULT_PUB_PORT,
        pull_port: int = DEFAULT_PULL_PORT,
        port_offset: int = 0,
        force_tcp: bool = False,
        timeout: float = 600.0,
        operation_timeout: float | None = 7200.0,
    ) -> None:
        given = (rank, size, local_rank, local_size, cross_rank, cross_size)
        if any(value is None for value in given) and any(value is not None for value in given):
            raise ValueError("give all of rank, size, local_rank, local_size, cross_rank and cross_size, or none")
        self.rank, self.size = rank or 0, 1 if size is None else size
        self.local_rank, self.local_size = local_rank or 0, 1 if local_size is None else local_size
        self.cross_rank, self.cross_size = cross_rank or 0, 1 if cross_size is None else cross_size
        self._check(chief_ip)
        self._timeout = timeout
        self._operation_timeout = operation_timeout
        self._groups: list[RankGroup] = []
        self._world: RankGroup | None = None
        self._local: RankGroup | None = None
        if self.size > 1:
            agreed = rendezvous.agreed_port() if self.local_size != self.size and pub_port == DEFAULT_PUB_PORT else None
            self._join(chief_ip, (agreed or pub_port) + port_offset)

    def _check(self, chief_ip: str | None) -> None:
        for name, rank, size in (
            ("rank", self.rank, self.size),
            ("local_rank", self.local_rank, self.local_size),
            ("cross_rank", self.cross_rank, self.cross_size),
        ):
            if not 0 <= rank < size:
                raise ValueError(f"{name} {rank} is not below its size {size}")
        if self.local_size > self.size:
            raise ValueError(f"local_size {self.local_size} is more than size {self.size}")
        if self.local_size != self.size and chief_ip is None:
            raise ValueError("chief_ip is required when the ranks are on several nodes (local_size != size)")

    def _join(self, chief_ip: str | None, port: int) -> None:
        task_dir = os.environ.get(TASK_DIR_VARIABLE)
        one_node = self.local_size == self.size
        place = rendezvous.RendezvousAddress.choose(
            Path(task_dir) if task_dir else None, port, chief_ip, one_node=one_node
        )
        key = derive_key(rendezvous.shared_secret(Path(task_dir) if task_dir else None, one_node=one_node))
        self._world = self._open(place, key, self.rank, self.size)
        if one_node:
            self._local = self._world
        else:
            self._join_local(key)

    def _join_local(self, key: bytes) -> None:
        """Make a group per node; each local chief listens on its node and tells where through the world group."""
        assert self._world is not None
        listener = None
        if self.local_rank == 0 and self.local_size > 1:
            listener = listen(_LOCALHOST, 0, self.local_size)
        mine = (self.cross_rank, listener.getsockname()[1]) if listener else None
        ports = dict(entry for entry in self._world.allgather(mine, "join") if entry is not None)
        if self.local_size < 2:
            return
        place = rendezvous.RendezvousAddress.fixed(_LOCALHOST, ports[self.cross_rank], listener)
        self._local = self._open(place, key, self.local_rank, self.local_size)

    def _open(self, place: rendezvous.RendezvousAddress, key: bytes, rank: int, size: int) -> RankGroup:
        if rank == 0:
            with place.serve(size) as listener:
                links = accept_all(listener, key, size, self._timeout)
        else:
            links = {0: connect_to(place.address, key, rank, size, self._timeout)}
        group = RankGroup(rank, size, links, self._operation_timeout)
        self._groups.append(group)
        return group

    @classmethod
    def from_torch_distributed(cls, chief_ip: str | None = None) -> DistributedContext:
        """Take ranks from torchrun's environment variables, or from an initialised process group of one node.

        Args:
            chief_ip: Address of the node of rank 0; `DET_CHIEF_IP` if None.

        Raises:
            RuntimeError: Neither is available.
        """
        chief_ip = chief_ip or os.environ.get("DET_CHIEF_IP")
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
        if "RANK" in os.environ and "LOCAL_WORLD_SIZE" in os.environ:
            return cls._from_environment(names, chief_ip)
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_initialized()):
            raise RuntimeError(
                "torch.distributed is not set up: start with `python3 -m detlab.launch.torch_distributed` or "
                "torchrun, or call torch.distributed.init_process_group() first"
            )
        rank, size = dist.get_rank(), dist.get_world_size()
        return cls(rank=rank, size=size, local_rank=rank, local_size=size, cross_rank=0, cross_size=1)

    @classmethod
    def from_deepspeed(cls, chief_ip: str | None = None) -> DistributedContext:
        """Take ranks from the environment variables of DeepSpeed's launcher, or of `detlab.launch.deepspeed`.

        Raises:
            RuntimeError: They are not set.
        """
        if "LOCAL_SIZE" not in os.environ and "LOCAL_WORLD_SIZE" in os.environ:
            return cls.from_torch_distributed(chief_ip)
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
        return cls._from_environment(names, chief_ip or os.environ.get("DET_CHIEF_IP"))

    @classmethod
    def from_horovod(cls, hvd: Any, chief_ip: str | None = None) -> DistributedContext:
        """Take ranks from an initialised `horovod` module, such as `horovod.torch`.

        Raises:
            RuntimeError: `hvd` is not such a module.
        """
        try:
            ranks = [
                int(getattr(hvd, name)())
                for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
            ]
        except AttributeError as error:
            raise RuntimeError(f"from_horovod() needs a horovod module, not {hvd!r}") from error
        rank, size, local_rank, local_size, cross_rank, cross_size = ranks
        return cls(
            rank=rank,
            size=size,
            local_rank=local_rank,
            local_size=local_size,
            cross_rank=cross_rank,
            cross_size=cross_size,
            chief_ip=chief_ip or os.environ.get("DET_CHIEF_IP"),
        )

    @classmethod
    def from_tf_config(cls, tf_config: dict[str, Any] | None = None, chief_ip: str | None = None) -> DistributedContext:
        """Take ranks from TensorFlow's `TF_CONFIG`: one process per worker address.

        Args:
            tf_config: Its content; the environment variable `TF_CONFIG` if None.
            chief_ip: Address of the node of rank 0; the first worker's host if None.

        Raises:
            RuntimeError: There is no usable `TF_CONFIG`.
        """
        try:
            config = json.loads(os.environ["TF_CONFIG"]) if tf_config is None else tf_config
            workers = [str(address) for address in config["cluster"]["worker"]]
            rank = int(config["task"]["index"])
            hosts = [address.rpartition(":")[0] for address in workers]
            host = hosts[rank]
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise RuntimeError(f"TF_CONFIG is missing or has no cluster.worker and task.index: {error!r}") from error
        nodes = list(dict.fromkeys(hosts))
        return cls(
            rank=rank,
            size=len(workers),
            local_rank=hosts[:rank].count(host),
            local_size=hosts.count(host),
            cross_rank=nodes.index(host),
            cross_size=len(nodes),
            chief_ip=chief_ip or os.environ.get("DET_CHIEF_IP") or (hosts[0] if len(nodes) > 1 else None),
        )

    @classmethod
    def _from_environment(cls, names: tuple[str, ...], chief_ip: str | None) -> DistributedContext:
        missing = [name for name in names if name not in os.environ]
        if missing:
            raise RuntimeError(f"not started by a distributed launcher: {', '.join(missing)} not set")
        rank, size, local_rank, local_size, cross_rank, cross_size = (int(os.environ[name]) for name in names)
        return cls(
            rank=rank,
            size=size,
            local_rank=local_rank,
            local_size=local_size,
            cross_rank=cross_rank,
            cross_size=cross_size,
            chief_ip=chief_ip,
        )

    def get_rank(self) -> int:
        """Return the rank of this process in the trial."""
        return self.rank

    def get_local_rank(self) -> int:
        """Return the rank of this process on its node."""
        return self.local_rank

    def get_size(self) -> int:
        """Return how many processes the trial has."""
        return self.size

    def get_num_agents(self) -> int:
        """Return how many nodes the trial has."""
        return self.cross_size

    def gather(self, stuff: Any) -> list[Any] | None:
        """Return every rank's `stuff`, by rank, on the chief, and None on the others; wait for all ranks.

        Raises:
            DistributedError: A rank has died, is missing, or is in another operation.
        """
        return self._world.gather(stuff, "gather") if self._world else [stuff]

    def gather_local(self, stuff: Any) -> list[Any] | None:
        """Do as `gather`, among the ranks of this node."""
        return self._local.gather(stuff, "gather_local") if self._local else [stuff]

    def allgather(self, stuff: Any) -> list[Any]:
        """Return every rank's `stuff`, by rank, on every rank. Raises as `gather` does."""
        return self._world.allgather(stuff, "allgather") if self._world else [stuff]

    def allgather_local(self, stuff: Any) -> list[Any]:
        """Do as `allgather`, among the ranks of this node."""
        return self._local.allgather(stuff, "allgather_local") if self._local else [stuff]

    def broadcast(self, stuff: Any) -> Any:
        """Return the chief's `stuff` on every rank. Raises as `gather` does."""
        return self._world.broadcast(stuff, "broadcast") if self._world else stuff

    def broadcast_local(self, stuff: Any = None) -> Any:
        """Do as `broadcast`, from the local chief to the ranks of this node."""
        return self._local.broadcast(stuff, "broadcast_local") if self._local else stuff

    def close(self) -> None:
        """Leave the group; ranks that still wait for this one get an error. Harmless when repeated."""
        while self._groups:
            self._groups.pop().close()


class DummyDistributedContext(DistributedContext):
    """A group of one."""

    def __init__(self) -> None:
        super().__init__(rank=None, size=None, local_rank=None, local_size=None, cross_rank=None, cross_size=None)
