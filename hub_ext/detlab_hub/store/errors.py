"""Errors of the master's database, as exceptions with a next command.

DetlabError
 ├─ StoreError              store.failed     the database cannot be opened
 │   ├─ StoreDamaged        store.damaged    the file is not a sound database of detlab's
 │   ├─ StoreTooNew         store.too_new    written by a newer detlab
 │   ├─ LeaseHeld           store.lease_held another live master has it
 │   └─ CannotCopy          store.cannot_copy  no copy of it can be made or restored (in `copies`)
 ├─ BadReport               report.refused   a record that can never be taken
 └─ Unavailable (503)
     ├─ StoreBusy           store.busy       rolled back, may be tried again
     └─ StoreBroken         store.broken     a write failed; nothing more is written until a restart
         └─ LeaseLost       store.lease_lost another master took over
"""

from __future__ import annotations

from detlab.errors import DetlabError, Unavailable


class StoreError(DetlabError):
    """The database cannot be opened."""

    default_code = "store.failed"


class StoreDamaged(StoreError):
    """The file at the address is not a database of detlab's, or is damaged. It is left unchanged."""

    default_code = "store.damaged"


class StoreTooNew(StoreError):
    """The database was written by a newer version."""

    default_code = "store.too_new"


class LeaseHeld(StoreError):
    """Another live master has the database.

    Attributes:
        holder: The name that it gave.
        expires_at: When its lease ends if it is not renewed (seconds since the epoch).
    """

    default_code = "store.lease_held"

    def __init__(self, holder: str, expires_at: float, now: float) -> None:
        self.holder = holder
        self.expires_at = expires_at
        super().__init__(
            f"the database is held by the master {holder!r}; its lease runs out in "
            f"{max(expires_at - now, 0.0):.0f} s unless it is renewed",
            hint="`det status` shows it, `det down` stops it; a second master may wait and try again",
        )


class BadReport(DetlabError):
    """A report that will never be accepted, however often it is sent (bad group name, too large …)."""

    default_code = "report.refused"


class StoreBusy(Unavailable):
    """Locked by another process for too long, or ended by the database while idle: nothing was written, try again."""

    default_code = "store.busy"


class StoreBroken(Unavailable):
    """A write or its fsync failed: the state on disk is unknown, so nothing more is written."""

    default_code = "store.broken"


class LeaseLost(StoreBroken):
    """Another master has taken the lease; this one must stop."""

    default_code = "store.lease_lost"
