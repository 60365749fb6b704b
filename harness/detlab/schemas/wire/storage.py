"""Wire models of storage: what keeps a checkpoint from collection, what was collected, and who uses how many bytes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from detlab.schemas.wire.base import Wire

PinKind = Literal[
    "resume",
    "search",
    "rung",
    "parent",
    "warm_start",
    "version",
    "evaluation",
    "bookmark",
]


class Pin(Wire):
    """Why a checkpoint is not collected, whatever the policy says."""

    kind: PinKind
    reason: str
    """A sentence for people: `version 3 of model digits`."""


class GcPolicy(Wire):
    """What an experiment keeps when it has ended (Determined's three numbers)."""

    save_experiment_best: int = Field(0, ge=0)
    save_trial_best: int = Field(1, ge=0)
    save_trial_latest: int = Field(1, ge=0)


class GcItem(Wire):
    """What collection decides about one checkpoint."""

    uuid: str
    trial_id: int
    steps_completed: int
    metric: float | None = None
    size: int = 0
    keep: bool
    why: list[str] = []
    """Rules that keep it (`best of the experiment`), or that it matches none."""
    pins: list[Pin] = []


class GcPreview(Wire):
    """What a policy would do to an experiment now; nothing is changed by asking."""

    experiment_id: int
    policy: GcPolicy
    items: list[GcItem]
    freed: int = 0
    """Bytes that would go."""
    kept: int = 0


class StorageUse(Wire):
    """Bytes of one user, group, project or experiment."""

    name: str
    checkpoints: int = 0
    checkpoint_bytes: int = 0
    trash_bytes: int = 0
    """Of deleted checkpoints whose files can still be restored."""
    other_bytes: int = 0
    """Code bundles and task outputs that the master keeps."""
    freed_bytes: int = 0
    """Removed so far, and seen to be gone."""
    limit: int | None = None
    """The quota, if there is one."""


class StorageUsage(Wire):
    """GET storage/usage?by=user|group|project|experiment."""

    by: str
    items: list[StorageUse]
    total: StorageUse
