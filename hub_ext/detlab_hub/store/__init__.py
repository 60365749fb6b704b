"""The master's database: tables, the `Store` that runs transactions, and queries per resource."""

from detlab_hub.store.copies import CannotCopy, CopyPolicy
from detlab_hub.store.errors import (
    BadReport,
    LeaseHeld,
    LeaseLost,
    StoreBroken,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreTooNew,
)
from detlab_hub.store.lease import ProcessIdentity
from detlab_hub.store.store import Clock, Store
from detlab_hub.store.writer import InlineExecutor
