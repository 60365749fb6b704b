# Made from projects/acalls.py by harness/make_sync.py: edit that one, not this.
"""The part of the blocking client that is about workspaces."""

from __future__ import annotations

from detlab.client.operations import projects, workspaces
from detlab.client.ordering import archived_filter
from detlab.client.projects.workspaces import Project, Workspace
from detlab.client.transport.session import Session


class WorkspaceCalls:
    """Workspaces of a cluster."""

    session: Session

    def create_workspace(self, name: str, description: str = "") -> Workspace:
        """Make a workspace, of which you are the first admin.

        Raises:
            Conflict: You have made one of this name: names that differ only in case or in Unicode's form are the same.
        """
        made = workspaces.create_workspace(name, description)
        return Workspace(self.session, self.session.run(made))

    def get_workspace(self, name: str | int) -> Workspace:
        """Return a workspace by its name if you have made it, by `OWNER/NAME`, or by its id.

        Raises:
            NotFound: There is none.
        """
        return Workspace(self.session, self.session.run(workspaces.workspace(name)))

    def list_workspaces(self, *, name: str | None = None, archived: bool | None = False) -> list[Workspace]:
        """Return the workspaces in which you have a role, and your personal one.

        Args:
            name: Only those with this in their name.
            archived: False leaves archived ones out, True all others; None leaves out none.
        """
        found = self.session.run(workspaces.workspaces(name=name, archived=archived_filter(archived)))
        return [Workspace(self.session, view) for view in found]

    def delete_workspace(self, name: str | int) -> None:
        """Delete a workspace in which nothing lies.

        Raises:
            Conflict: Something lies in it.
        """
        self.session.run(workspaces.delete_workspace(name))

    def get_project(self, workspace: str | int, name: str | int) -> Project:
        """Return a project of a workspace."""
        return Project(self.session, self.session.run(projects.project(workspace, name)))
