"""Changes of what people wrote about an experiment or a checkpoint."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from detlab.schemas.script_names import normal
from detlab.schemas.text_limits import DESCRIPTION_CHARS, LABEL_CHARS, MOST_LABELS, NOTES_CHARS, TITLE_CHARS
from detlab.schemas.wire.base import PersonRequest

MOST_GLOBS = 1000

Label = Annotated[str, Field(min_length=1, max_length=LABEL_CHARS), AfterValidator(normal)]
"""In the one form in which Unicode writes it: two that look alike are one."""
Labels = Annotated[list[Label], Field(max_length=MOST_LABELS)]
Archived = Literal["no", "only", "any"]
"""Which experiments a list has: those that are not archived, the archived ones, or both."""


class EditExperiment(PersonRequest):
    """POST experiments/{id}/edit. What is null stays as it is; the same edit again changes nothing."""

    name: str | None = Field(None, min_length=1, max_length=TITLE_CHARS)
    description: str | None = Field(None, max_length=DESCRIPTION_CHARS)
    notes: str | None = Field(None, max_length=NOTES_CHARS)
    """Free text of any length up to 100,000 characters; empty removes it."""
    notes_before: str | None = Field(None, max_length=NOTES_CHARS)
    """What the notes were when they were opened for editing: if somebody has changed them since, nothing is done."""
    labels: Labels | None = None
    """All labels, in this order."""
    add_labels: Labels = []
    remove_labels: Labels = []
    archived: bool | None = None
    """Only an experiment that has ended can be archived; lists then leave it out."""


class EditCheckpoint(PersonRequest):
    """POST checkpoints/{uuid}/edit: keys of its metadata to set, then keys to remove."""

    metadata: dict[str, Any] = {}
    remove_metadata: list[str] = Field(default=[], max_length=10_000)


class RemoveFiles(PersonRequest):
    """POST checkpoints/{uuid}/remove-files: files whose path matches one of these patterns go."""

    globs: list[Annotated[str, Field(min_length=1, max_length=1000)]] = Field(min_length=1, max_length=MOST_GLOBS)
    """`*` and `?` match within a folder, `**` matches folders, too; a pattern without them is a path."""
