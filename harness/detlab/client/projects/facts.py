"""What is known about workspaces and projects."""

from __future__ import annotations

from detlab.schemas.wire.projects import ProjectView
from detlab.schemas.wire.workspaces import WorkspaceView


class WorkspaceFacts:
    """What is known about a workspace."""

    def __init__(self, view: WorkspaceView) -> None:
        self.view = view

    @property
    def id(self) -> int:
        """Its number."""
        return self.view.id

    @property
    def name(self) -> str:
        """Its name."""
        return self.view.name

    @property
    def reference(self) -> str:
        """What everybody names it by: `OWNER/NAME`."""
        return f"{self.view.owner}/{self.view.name}"

    @property
    def username(self) -> str:
        """Who made it."""
        return self.view.owner

    @property
    def archived(self) -> bool:
        """Whether lists leave it out, and it takes nothing new."""
        return self.view.archived_at is not None

    @property
    def role(self) -> str | None:
        """The role of whoever asks; None: they have none."""
        return self.view.role

    @property
    def n_experiments(self) -> int:
        """How many experiments lie in it."""
        return self.view.experiments

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkspaceFacts) and type(other) is type(self) and other.id == self.id

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.id))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id}, name={self.reference!r})"


class ProjectFacts:
    """What is known about a project."""

    def __init__(self, view: ProjectView) -> None:
        self.view = view

    @property
    def id(self) -> int:
        """Its number."""
        return self.view.id

    @property
    def name(self) -> str:
        """Its name."""
        return self.view.name

    @property
    def description(self) -> str:
        """What it is about."""
        return self.view.description

    @property
    def notes(self) -> str:
        """Its notes, Markdown."""
        return self.view.notes

    @property
    def username(self) -> str:
        """Who made it."""
        return self.view.owner

    @property
    def workspace_id(self) -> int:
        """The workspace that it belongs to."""
        return self.view.workspace_id

    @property
    def archived(self) -> bool:
        """Whether lists leave it out, and it takes nothing new."""
        return self.view.archived_at is not None

    @property
    def n_experiments(self) -> int:
        """How many experiments lie in it."""
        return self.view.experiments

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProjectFacts) and type(other) is type(self) and other.id == self.id

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.id))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id}, name={f'{self.view.workspace}/{self.name}'!r})"
