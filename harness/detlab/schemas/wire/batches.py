"""One act on many experiments, chosen one by one or by a filter: what became of each, and what undoes it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from detlab.schemas.wire.base import PersonRequest, Wire
from detlab.schemas.wire.edits import Archived, Label
from detlab.schemas.wire.saved_views import FILTER_CHARS
from detlab.schemas.wire.workspaces import Reference

MOST_AT_ONCE = 500
"""Experiments of one request; the reply says where the next one goes on."""
BatchAct = Literal[
    "pause", "activate", "cancel", "kill", "archive", "unarchive", "delete", "move", "add_labels", "remove_labels"
]


class BatchRequest(PersonRequest):
    """POST experiments/batch: either `experiment_ids` or a `filter`."""

    act: BatchAct
    experiment_ids: list[Annotated[int, Field(ge=1, lt=2**63)]] = Field(default=[], max_length=MOST_AT_ONCE)
    filter: Annotated[str, Field(max_length=FILTER_CHARS)] = ""
    """Of the experiments that fulfil it, the newest 500 below `before`."""
    archived: Archived = "no"
    """Of a filter that does not speak of `archived`: whether archived ones are left out, alone, or among the others."""
    before: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    """Of a filter: only experiments of smaller ids; the `next` of the reply before."""
    labels: list[Label] = Field(default=[], max_length=20)
    """Of `add_labels` and `remove_labels`."""
    workspace: Reference = ""
    """Of `move`: where to; empty: the personal one of each experiment's owner."""
    project: Reference = ""
    """Of `move`; empty: the one for what names none."""
    keep_storage: bool = False
    """Of `move`: also if the workspace gives another storage for checkpoints."""
    dry_run: bool = False
    """Only say which experiments these are, and what the caller may not do."""


class BatchItem(Wire):
    """What became of one of them."""

    id: int
    result: Literal["done", "unchanged", "refused"]
    """In a dry run `done` is what would be tried."""
    name: str = ""
    state: str = ""
    reason: str = ""
    """Why it was refused, or what is left to do. Of one that the caller may not see: that there is none."""
    hint: str = ""


class BatchReply(Wire):
    """What became of each, in the order of the request."""

    items: list[BatchItem]
    left: list[int] = []
    """Those that were not reached in the time that a request has: ask again with them."""
    next: int | None = None
    """Of a filter: the `before` of the next request; null: there are no more."""
    undo: list[BatchRequest] = []
    """Requests that take back what was done: of `archive`, `unarchive`, `move` and labels."""
