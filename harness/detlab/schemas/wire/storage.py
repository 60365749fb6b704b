"""Wire models of storage: what keeps a checkpoint from collection, what was collected, and who uses how many bytes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from detlab.schemas.wire.base import PersonRequest, Wire

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
    """What a policy would do to an experiment now, or what it has done; nothing is changed by asking."""

    experiment_id: int
    policy: GcPolicy
    items: list[GcItem]
    """Those that go, then those that stay; no more than 5,000."""
    left_out: int = 0
    """Checkpoints that are not among the items."""
    going: int = 0
    """Checkpoints that would go."""
    staying: int = 0
    freed: int = 0
    """Bytes that would go."""
    kept: int = 0
    """Bytes that stay."""
    applied: bool = False
    """Whether what goes is in the trash now. False after a change of policy: it is applied when the search ends."""
    trash_until: float | None = None
    """Until when what goes can be restored, if it goes now; null: it cannot."""


class GcRequest(PersonRequest):
    """POST experiments/{id}/gc: change what is kept, and collect."""

    policy: GcPolicy | None = None
    """Replaces the experiment's policy; null: it stays as it is."""
    now: bool = False
    """Collect although the experiment has not ended: what its search or a trial may still need stays."""
    purge: bool = False
    """Without time in the trash: the files go at once."""
    retry: bool = False
    """Only try again, now, to remove the files that could not be removed; nothing is collected."""


class TrashItem(Wire):
    """Deleted checkpoints of one experiment that can still be restored."""

    experiment_id: int
    name: str = ""
    checkpoints: int = 0
    bytes: int = 0


class TrashView(Wire):
    """GET and POST storage/trash: what is in the trash, or was until now."""

    items: list[TrashItem] = []
    """Those with most bytes first; no more than 1,000."""
    checkpoints: int = 0
    bytes: int = 0
    at: float = 0.0
    """As of when: only what was in it then is removed by an `EmptyTrash` that says so."""
    emptied: bool = False
    """Whether its files are being removed now."""


class EmptyTrash(PersonRequest):
    """POST storage/trash: remove what is in the trash now, for good."""

    experiment_id: int | None = Field(None, ge=1, lt=2**63)
    """Of one experiment; null: of all that the caller owns."""
    until: float | None = None
    """Only what was put into it before; null: all."""


class PinList(Wire):
    """GET checkpoints/{uuid}/pins."""

    items: list[Pin]
    next: int | None = None
    """`skip` of the next part, or null on the last one."""


class Bookmark(PersonRequest):
    """PUT checkpoints/{uuid}/bookmark."""

    note: str = Field("", max_length=1000)
    """Why it is to stay, for people."""


class CollectItem(Wire):
    """A checkpoint whose files a task is to remove."""

    uuid: str
    paths: list[str] | None = None
    """Paths in the checkpoint; null: all of it."""
    files: dict[str, int] = {}
    """Committed size of each file that goes."""
    storage: dict[str, Any] = {}
    """Its `checkpoint_storage` block, with credentials: it is for the owner's own task."""


class CollectFolders(Wire):
    """Folders of event files that a task is to remove when all checkpoints of the list are done."""

    names: list[str]
    """First parts of the paths under which they were stored, of each trial that ran."""
    storage: dict[str, Any] = {}
    """As of a `CollectItem`."""


class CollectList(Wire):
    """GET task/collection: what is still to be removed; empty when all is done."""

    experiment_id: int
    items: list[CollectItem]
    event_files: CollectFolders | None = None
    """Handed out once, when no checkpoint is left to remove."""


class Collected(Wire):
    """What became of one checkpoint's files."""

    uuid: str
    paths: list[str] | None = None
    """As the list had it: what is to go may have become more meanwhile."""
    failure: str = Field("", max_length=2000)
    """Why some of them may still be there; empty: they were listed, removed, and listed again."""


class CollectedFolders(Wire):
    """What became of the event files."""

    failure: str = Field("", max_length=2000)
    """As of `Collected`."""
    freed: int = Field(0, ge=0, le=2**53)
    """Bytes that were there, and are gone."""


class CollectReport(Wire):
    """POST task/collection; the same report twice counts once."""

    items: Annotated[list[Collected], Field(max_length=1000)] = []
    event_files: CollectedFolders | None = None


class DeletionView(Wire):
    """What is left of an experiment that is being deleted, or of the event files of one: files come before rows."""

    checkpoints: int = 0
    """Whose files are still stored."""
    bytes: int = 0
    """Of those checkpoints."""
    event_files: bool = False
    """Whether TensorBoard event files may still be stored."""
    failure: str = ""
    """Why the last attempt left some of them; empty: they are being removed."""
    retry_at: float | None = None
    """When it is tried again after a failure; null: now."""
    task: str | None = None
    """The task that removes them, or did last."""

    @property
    def said(self) -> str:
        """A sentence for people."""
        what = ["event files"] if self.event_files else []
        if self.checkpoints:
            noun = "checkpoint" if self.checkpoints == 1 else "checkpoints"
            what.insert(0, f"{self.checkpoints} {noun} ({size_text(self.bytes)})")
        stored = " and ".join(what) or "files"
        if self.failure:
            return f"{stored} still stored, and tried again later: {self.failure}"
        return f"{stored} still stored: to be removed by {f'task {self.task}' if self.task else 'a task'}"


class DeletionReply(Wire):
    """DELETE experiments/{id} and DELETE experiments/{id}/tensorboard-files."""

    deleted: int = 0
    """The experiment."""
    left: DeletionView | None = None
    """Files that a task has still to remove; null: they are gone."""


StorageBy = Literal["user", "group", "project", "experiment"]


class StorageUse(Wire):
    """Bytes of one user, group, project or experiment."""

    name: str
    """Of the user, the group or the experiment; of a project `WORKSPACE/PROJECT`, and `OWNER/…` if another made it."""
    experiment_id: int | None = None
    """Of an experiment."""
    owner: str = ""
    """Of an experiment."""
    checkpoints: int = 0
    checkpoint_bytes: int = 0
    trash_bytes: int = 0
    """Of deleted checkpoints whose files can still be restored."""
    other_bytes: int = 0
    """Code bundles and task outputs that the master keeps."""
    freed_bytes: int = 0
    """Removed so far, and seen to be gone."""
    used: int = 0
    """What counts towards the quota: checkpoints and other bytes; what is in the trash does not."""
    limit: int | None = None
    """The quota, if there is one."""


class StorageUsage(Wire):
    """GET storage/usage?by=user|group|project|experiment."""

    by: StorageBy
    items: list[StorageUse]
    """Those with most bytes first."""
    total: StorageUse
    """Of everything that the caller may see, also of what is not listed; bytes of several groups count once."""
    more: int = 0
    """How many are not listed, because `limit` was smaller."""
    warnings: list[str] = []
    """Quotas that apply to the caller and are nearly or fully used, a sentence each."""


def size_text(count: float) -> str:
    """Return a number of bytes as text: `1.5 GiB`."""
    left = count
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(left) < 1024:
            return f"{left:.0f} {unit}" if unit == "B" else f"{left:.1f} {unit}"
        left /= 1024
    return f"{left:,.1f} TiB"
