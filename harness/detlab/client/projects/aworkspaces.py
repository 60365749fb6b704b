"""Workspaces and their projects, asynchronous."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from detlab.client.operations import projects, workspaces
from detlab.client.ordering import archived_filter
from detlab.client.projects.facts import ProjectFacts, WorkspaceFacts
from detlab.client.transport.session import AsyncSession
from detlab.errors import ConfigError, Problem
from detlab.schemas.wire import GrantKind
from detlab.schemas.wire.projects import ProjectView
from detlab.schemas.wire.workspaces import MemberView, RoleName, WorkspaceView


class AsyncProject(ProjectFacts):
    """A project of a workspace, asynchronous: a folder for experiments."""

    def __init__(self, session: AsyncSession, view: ProjectView) -> None:
        super().__init__(view)
        self._session = session

    async def reload(self) -> AsyncProject:
        """Fetch the current state from the master; return itself."""
        self.view = await self._session.run(projects.project(self.workspace_id, self.id))
        return self

    async def set_name(self, name: str) -> None:
        """Give it another name."""
        await self._edit(name=name)

    async def set_description(self, description: str) -> None:
        """Describe it; an empty text removes the description."""
        await self._edit(description=description)

    async def set_notes(self, notes: str) -> None:
        """Replace its notes, Markdown of up to 100,000 characters."""
        await self._edit(notes=notes)

    async def set(self, key: str, value: str) -> None:
        """Set `name`, `description` or `notes`, as Determined's does.

        Raises:
            ValueError: It has no such key that can be set.
        """
        if key not in {"name", "description", "notes"}:
            raise ValueError(f"{key!r} of a project cannot be set: name, description and notes can")
        await self._edit(**{key: value})

    async def archive(self) -> None:
        """Have lists leave it out; it takes nothing new then."""
        await self._edit(archived=True)

    async def unarchive(self) -> None:
        """Have lists show it again."""
        await self._edit(archived=False)

    async def delete(self) -> None:
        """Delete it.

        Raises:
            Conflict: Experiments lie in it.
        """
        await self._session.run(projects.delete_project(self.workspace_id, self.id))

    async def _edit(self, **changes: Any) -> None:
        self.view = await self._session.run(projects.edit_project(self.workspace_id, self.id, **changes))


class AsyncWorkspace(WorkspaceFacts):
    """A workspace, asynchronous: what lies in it is seen by its members and by nobody else."""

    def __init__(self, session: AsyncSession, view: WorkspaceView) -> None:
        super().__init__(view)
        self._session = session

    async def reload(self) -> AsyncWorkspace:
        """Fetch the current state from the master; return itself."""
        self.view = await self._session.run(workspaces.workspace(self.id))
        return self

    async def set_name(self, name: str) -> None:
        """Give it another name."""
        await self._edit(name=name)

    async def set_description(self, description: str) -> None:
        """Describe it; an empty text removes the description."""
        await self._edit(description=description)

    async def set_defaults(
        self,
        *,
        resource_pool: str = "",
        checkpoint_storage: Mapping[str, Any] | None = None,
        environment: Mapping[str, Any] | None = None,
        task_container_defaults: Mapping[str, Any] | None = None,
        template: str = "",
    ) -> None:
        """Set what it gives to what is submitted into it, all of it: what is not named is given no more.

        Args:
            resource_pool: The pool of configs that name none.
            checkpoint_storage: As in a config, without credentials.
            environment: As in a config; for administrators of the cluster.
            task_container_defaults: Such as `shm_size` and `bind_mounts`; for administrators of the cluster. A mask of
                a credential stands for the one that was there.
            template: One of its templates, which is under each experiment that names none.

        Raises:
            ConfigError: A value could not stand in a config.
            Forbidden: Only administrators of the cluster may set one of them.
        """
        defaults = {
            "resource_pool": resource_pool,
            "checkpoint_storage": dict(checkpoint_storage or {}),
            "environment": dict(environment or {}),
            "task_container_defaults": dict(task_container_defaults or {}),
            "template": template,
        }
        await self._edit(defaults=defaults)

    async def archive(self) -> None:
        """Have lists leave it out; it takes nothing new then."""
        await self._edit(archived=True)

    async def unarchive(self) -> None:
        """Have lists show it again."""
        await self._edit(archived=False)

    async def delete(self) -> None:
        """Delete it with its projects.

        Raises:
            Conflict: Something lies in it.
        """
        await self._session.run(workspaces.delete_workspace(self.id))

    # --- projects

    async def create_project(self, name: str, description: str = "", notes: str = "") -> AsyncProject:
        """Make a project in it.

        Raises:
            Conflict: There is one of this name.
        """
        made = projects.create_project(self.id, name, description, notes)
        return AsyncProject(self._session, await self._session.run(made))

    async def get_project(self, name: str | int) -> AsyncProject:
        """Return one of its projects, by its name or id."""
        return AsyncProject(self._session, await self._session.run(projects.project(self.id, name)))

    async def list_projects(self, *, archived: bool | None = False) -> list[AsyncProject]:
        """Return its projects, the oldest first.

        Args:
            archived: False leaves archived ones out, True all others; None leaves out none.
        """
        found = await self._session.run(projects.projects(self.id, archived=archived_filter(archived)))
        return [AsyncProject(self._session, view) for view in found]

    async def delete_project(self, name: str | int) -> None:
        """Delete one of its projects, in which nothing lies."""
        await self._session.run(projects.delete_project(self.id, name))

    # --- members

    async def list_members(self) -> Sequence[MemberView]:
        """Return its members, users first."""
        return await self._session.run(workspaces.members(self.id))

    async def add_member(
        self, *, user: str | None = None, group: str | None = None, role: RoleName = "viewer"
    ) -> Sequence[MemberView]:
        """Give a user or a group of the Hub a role; return all members.

        Args:
            user: A user of the Hub.
            group: Or a group of the Hub: all its members.
            role: `viewer`, `editor` or `admin`.

        Raises:
            Conflict: It would be left without an admin.
        """
        kind, who = member_of(user, group)
        return await self._session.run(workspaces.set_member(self.id, kind, who, role))

    async def remove_member(self, *, user: str | None = None, group: str | None = None) -> Sequence[MemberView]:
        """Remove a member; return the others.

        Raises:
            Conflict: It would be left without an admin.
        """
        kind, who = member_of(user, group)
        return await self._session.run(workspaces.remove_member(self.id, kind, who))

    async def _edit(self, **changes: Any) -> None:
        self.view = await self._session.run(workspaces.edit_workspace(self.id, **changes))


def member_of(user: str | None, group: str | None) -> tuple[GrantKind, str]:
    """Return the kind and the name of a member.

    Raises:
        ConfigError: Neither a user nor a group is named, or both are.
    """
    if user is not None and group is None:
        return "user", user
    if group is not None and user is None:
        return "group", group
    raise ConfigError([Problem("user", "name a user or a group, not both")])
