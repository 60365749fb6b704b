"""The lease: one active master per database, fenced by an epoch.

The row names its holder, its expiry, and the holder's process. A lease is free when it has expired, was released,
or its process is seen to be dead (same boot, same pid namespace, no such pid or another start time): a
master that was killed starts again without a wait. Taking a lease raises the epoch; every write transaction
compares it, so a master that slept through its successor's start can write nothing.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from sqlalchemy import Table, bindparam, select, update
from sqlalchemy.orm import Session

from detlab.launch.host.procfs import read_process
from detlab_hub.store.errors import LeaseHeld, LeaseLost
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.tables import Lease

LEASE_ID = 1
_LEASE: Table = Lease.__table__
_CURRENT = PreparedStatement(
    select(_LEASE.c.epoch, _LEASE.c.holder, _LEASE.c.expires_at)
    .where(_LEASE.c.id == LEASE_ID)
    .with_for_update(read=True)
)
_EXTEND = PreparedStatement(
    update(_LEASE)
    .where(_LEASE.c.id == LEASE_ID, _LEASE.c.epoch == bindparam("ours"))
    .values(expires_at=bindparam("until"))
)


@dataclass(frozen=True)
class ProcessIdentity:
    """The identity of a process, by which a later one can see whether it still lives.

    Attributes:
        boot: The kernel's boot id; empty if the system has none (a lease then ends only by time).
        namespace: The pid namespace, since pids mean nothing outside it.
        pid: Process id.
        start: Start time in clock ticks since boot, since pids are used again.
    """

    boot: str
    namespace: str
    pid: int
    start: int

    @classmethod
    def current(cls) -> Self:
        """Return the identity of this process."""
        pid = os.getpid()
        return cls(_boot_id(), _pid_namespace(), pid, _start_time(pid) or 0)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the identity that `dump` wrote, or None if this is not one."""
        try:
            value = json.loads(text)
            return cls(str(value["boot"]), str(value["namespace"]), int(value["pid"]), int(value["start"]))
        except (ValueError, TypeError, KeyError):
            return None

    def dump(self) -> str:
        """Return it as text."""
        return json.dumps(asdict(self), sort_keys=True)

    def seen_dead(self, *, this_machine: bool = False) -> bool:
        """Whether the process has certainly ended; False also if that cannot be determined from here.

        Args:
            this_machine: Whether it can only have run on this machine, so that one of an earlier boot has ended.
        """
        boot = _boot_id()
        if self.boot and boot and self.boot != boot:
            return this_machine
        here = self.boot and self.namespace == _pid_namespace()
        return bool(here) and _start_time(self.pid) != self.start


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks; None for no such process or a zombie, which can write nothing."""
    process = read_process(pid)
    return process.start_time if process and process.alive else None


def check_free(session: Session, now: float) -> None:
    """Check that no live master has the lease; wait for a write of that master's that is under way.

    Raises:
        LeaseHeld: A live master has it.
    """
    query = select(Lease.holder, Lease.process, Lease.expires_at).where(Lease.id == LEASE_ID)
    row = session.execute(query.with_for_update()).one_or_none()
    if row is None or row.expires_at <= now:
        return
    process = ProcessIdentity.parse(row.process)
    # a lease of before a restart, after which the clock was put back, would else last until the clock is where it was
    one_machine = session.get_bind().dialect.name == "sqlite"
    if process is not None and process.seen_dead(this_machine=one_machine):
        return
    raise LeaseHeld(row.holder, row.expires_at, now)


def take(session: Session, *, holder: str, process: ProcessIdentity, now: float, ttl: float) -> int:
    """Take the lease, after `check_free` in the same transaction.

    Returns:
        The new epoch.
    """
    row = session.get(Lease, LEASE_ID)
    if row is None:
        row = Lease(id=LEASE_ID, epoch=0, holder="", process="", expires_at=0.0)
        session.add(row)
    row.epoch += 1
    row.holder = holder
    row.process = process.dump()
    row.expires_at = now + ttl
    session.flush()
    return row.epoch


def check(session: Session, epoch: int) -> float:
    """Check that `epoch` is current; on PostgreSQL no other master can take the lease until we commit.

    Raises:
        LeaseLost: The epoch is no longer current.

    Returns:
        When the lease runs out.
    """
    row = _CURRENT.first(session, {})
    if row is None or row.epoch != epoch:
        holder = "nobody" if row is None else repr(row.holder)
        raise LeaseLost(
            f"this master (epoch {epoch}) lost its lease; the database is now held by {holder}",
            hint="this process must stop; `det status` shows which master serves",
        )
    return float(row.expires_at)


def extend(session: Session, epoch: int, expires_at: float) -> None:
    """Set when our lease expires; a time in the past releases it."""
    _EXTEND.run(session, {"ours": epoch, "until": expires_at})
