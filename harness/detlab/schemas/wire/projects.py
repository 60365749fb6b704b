"""Wire models of the projects of a workspace, and of moves between them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from detlab.schemas.text_limits import DESCRIPTION_CHARS, NOTES_CHARS
from detlab.schemas.wire.base import PersonRequest, Wire
from detlab.schemas.wire.workspaces import FolderName, Reference


class CreateProject(PersonRequest):
    """POST workspaces/{workspace}/projects."""

    name: FolderName
    description: str = Field("", max_length=DESCRIPTION_CHARS)
    notes: str = Field("", max_length=NOTES_CHARS)
    """Markdown; shown as text-safe HTML."""


class EditProject(PersonRequest):
    """POST workspaces/{workspace}/projects/{project}/edit. What is null stays as it is."""

    name: FolderName | None = None
    description: str | None = Field(None, max_length=DESCRIPTION_CHARS)
    notes: str | None = Field(None, max_length=NOTES_CHARS)
    notes_before: str | None = Field(None, max_length=NOTES_CHARS)
    """What the notes were when they were opened for editing: if somebody has changed them since, nothing is done."""
    archived: bool | None = None
    """An archived one takes nothing new, and lists leave it out."""


class ProjectView(Wire):
    """A project of a workspace."""

    id: int
    name: str
    workspace_id: int
    workspace: str
    """`OWNER/NAME`."""
    owner: str = ""
    """Who made it."""
    description: str = ""
    notes: str = ""
    created_at: float = 0.0
    archived_at: float | None = None
    experiments: int = 0
    runs: int = 0
    """Runs from elsewhere, without those that are marked as deleted."""
    tasks: int = 0
    """User tasks that have not ended."""
    may: Literal["read", "write", "own"] = "read"
    shortened: list[str] = []
    """Fields of which a list has only a part."""


class ProjectList(Wire):
    """One page of projects, the oldest first."""

    items: list[ProjectView]
    after: int | None = None
    """`after` of the next page; null: this is the last one."""


class MoveExperiment(PersonRequest):
    """POST experiments/{experiment_id}/move: where it is to lie, and so who sees it."""

    workspace: Reference = ""
    """Empty: its owner's personal one."""
    project: Reference = ""
    """Empty: the one for what names none."""
    keep_storage: bool = False
    """Also if the workspace gives another storage for checkpoints: those that there are stay where they are."""


class MoveTask(PersonRequest):
    """POST tasks/{task_id}/move: where it is to lie, and so who sees its state."""

    workspace: Reference = ""
    """Empty: its owner's personal one."""
    project: Reference = ""
    """Empty: the one for what names none."""


class MoveModel(PersonRequest):
    """POST models/{model}/move: where it is to lie, and so who sees it."""

    workspace: Reference = ""
    """Empty: its owner's personal one."""
