"""Routes of workspaces. One is named by its name, percent-encoded, by OWNER/NAME likewise, or by its id."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.wire import Archived, GrantTo, Wire
from detlab.schemas.wire.workspaces import (
    CreateWorkspace,
    EditWorkspace,
    MemberList,
    MemberRequest,
    WorkspaceList,
    WorkspaceView,
)
from detlab_hub.core.rights import Action
from detlab_hub.services.projects.members import MembersOfWorkspaces
from detlab_hub.services.projects.workspaces import Workspaces as WorkspacesService
from detlab_hub.web.base import Guarded, RowId
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class WorkspacesQuery(Wire):
    """Which workspaces."""

    limit: int = Field(100, ge=1, le=1000)
    after: RowId | None = None
    """`after` of the last page."""
    name: str | None = Field(None, max_length=1000)
    """A part of the name."""
    archived: Archived = "no"
    """`no` leaves archived workspaces out, `only` leaves out all others."""


@route("workspaces", relayed=True)
class Workspaces(Guarded):
    """All workspaces."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: WorkspacesQuery) -> WorkspaceList:
        """List the workspaces in which one has a role, and one's personal one; to administrators all shared ones."""
        return await self.services[WorkspacesService].list(
            self.person, limit=query.limit, after=query.after, name=query.name, archived=query.archived
        )

    @needs("write", cross_site="xsrf", action=Action.WORKSPACE_CREATE)
    async def post(self, body: CreateWorkspace) -> WorkspaceView:
        """Make a workspace, of which one is the first admin."""
        return await self.services[WorkspacesService].create(self.person, body)


@route("workspaces/{workspace}", relayed=True)
class Workspace(Guarded):
    """One workspace."""

    @needs("read", cross_site="xsrf")
    async def get(self, workspace: str) -> WorkspaceView:
        """Return a workspace, with one's own role in it."""
        return await self.services[WorkspacesService].get(self.person, workspace)

    @needs("write", cross_site="xsrf", action=Action.WORKSPACE_DELETE)
    async def delete(self, workspace: str) -> WorkspaceView:
        """Delete a workspace in which nothing lies."""
        return await self.services[WorkspacesService].delete(self.person, workspace)


@route("workspaces/{workspace}/edit", relayed=True)
class EditOne(Guarded):
    """What admins decide about a workspace."""

    @needs("write", cross_site="xsrf", action=Action.WORKSPACE_EDIT)
    async def post(self, workspace: str, body: EditWorkspace) -> WorkspaceView:
        """Change its name or its description, archive it or undo that; null leaves a field as it is."""
        return await self.services[WorkspacesService].edit(self.person, workspace, body)


@route("workspaces/{workspace}/members", relayed=True)
class Members(Guarded):
    """The members of a workspace."""

    @needs("read", cross_site="xsrf")
    async def get(self, workspace: str) -> MemberList:
        """List the users and Hub groups with a role in it."""
        return await self.services[MembersOfWorkspaces].list(self.person, workspace)

    @needs("write", cross_site="xsrf", action=Action.MEMBER_SET)
    async def put(self, workspace: str, body: MemberRequest) -> MemberList:
        """Give a user or a Hub group a role; one that they had is replaced."""
        return await self.services[MembersOfWorkspaces].put(self.person, workspace, body)

    @needs("write", cross_site="xsrf", action=Action.MEMBER_REMOVE)
    async def delete(self, workspace: str, query: GrantTo) -> MemberList:
        """Remove a member, or leave it oneself."""
        return await self.services[MembersOfWorkspaces].remove(self.person, workspace, query)
