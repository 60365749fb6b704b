"""The part of the asynchronous client that is about workspaces."""

from __future__ import annotations

from detlab.client.operations import projects, workspaces
from detlab.client.ordering import archived_filter
from detlab.client.projects.aworkspaces import AsyncProject, AsyncWorkspace
from detlab.client.transport.session import AsyncSession


class AsyncWorkspaceCalls:
    """Workspaces of a cluster."""

    session: AsyncSession

    async def create_workspace(self, name: str, description: str = "") -> AsyncWorkspace:
        """Make a workspace, of which you are the first admin.

        Raises:
            Conflict: You have made one of this name: names that differ only in case or in Unicode's form are the same.
        """
        made = workspaces.create_workspace(name, description)
        return AsyncWorkspace(self.session, await self.session.run(made))

    async def get_workspace(self, name: str | int) -> AsyncWorkspace:
        """Return a workspace by its name if you have made it, by `OWNER/NAME`, or by its id.

        Raises:
            NotFound: There is none.
        """
        return AsyncWorkspace(self.session, await self.session.run(workspaces.workspace(name)))

    async def list_workspaces(self, *, name: str | None = None, archived: bool | None = False) -> list[AsyncWorkspace]:
        """Return the workspaces in which you have a role, and your personal one.

        Args:
            name: Only those with this in their name.
            archived: False leaves archived ones out, True all others; None leaves out none.
        """
        found = await self.session.run(workspaces.workspaces(name=name, archived=archived_filter(archived)))
        return [AsyncWorkspace(self.session, view) for view in found]

    async def delete_workspace(self, name: str | int) -> None:
        """Delete a workspace in which nothing lies.

        Raises:
            Conflict: Something lies in it.
        """
        await self.session.run(workspaces.delete_workspace(name))

    async def get_project(self, workspace: str | int, name: str | int) -> AsyncProject:
        """Return a project of a workspace."""
        return AsyncProject(self.session, await self.session.run(projects.project(workspace, name)))
