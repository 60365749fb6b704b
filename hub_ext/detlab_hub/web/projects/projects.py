"""Routes of projects, each below its workspace, and of moves. A project is named by its name or by its id."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.wire import Archived, ExperimentView, Wire
from detlab.schemas.wire.projects import CreateProject, EditProject, MoveExperiment, MoveModel, ProjectList, ProjectView
from detlab.schemas.wire.registry import ModelView
from detlab_hub.core.rights import Action
from detlab_hub.services.projects.moves import Moves
from detlab_hub.services.projects.projects import Projects as ProjectsService
from detlab_hub.services.registry.models import Models
from detlab_hub.web.base import Guarded, RowId
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class ProjectsQuery(Wire):
    """Which projects."""

    limit: int = Field(100, ge=1, le=1000)
    after: RowId | None = None
    """`after` of the last page."""
    archived: Archived = "no"
    """`no` leaves archived projects out, `only` leaves out all others."""


@route("workspaces/{workspace}/projects", relayed=True)
class Projects(Guarded):
    """The projects of a workspace."""

    @needs("read", cross_site="xsrf")
    async def get(self, workspace: str, query: ProjectsQuery) -> ProjectList:
        """List its projects, the oldest first."""
        return await self.services[ProjectsService].list(
            self.person, workspace, limit=query.limit, after=query.after, archived=query.archived
        )

    @needs("write", cross_site="xsrf", action=Action.PROJECT_CREATE)
    async def post(self, workspace: str, body: CreateProject) -> ProjectView:
        """Make a project in it."""
        return await self.services[ProjectsService].create(self.person, workspace, body)


@route("workspaces/{workspace}/projects/{project}", relayed=True)
class Project(Guarded):
    """One project."""

    @needs("read", cross_site="xsrf")
    async def get(self, workspace: str, project: str) -> ProjectView:
        """Return a project with its notes."""
        return await self.services[ProjectsService].get(self.person, workspace, project)

    @needs("write", cross_site="xsrf", action=Action.PROJECT_DELETE)
    async def delete(self, workspace: str, project: str) -> ProjectView:
        """Delete a project in which nothing lies."""
        return await self.services[ProjectsService].delete(self.person, workspace, project)


@route("workspaces/{workspace}/projects/{project}/edit", relayed=True)
class EditOne(Guarded):
    """What people write about a project."""

    @needs("write", cross_site="xsrf", action=Action.PROJECT_EDIT)
    async def post(self, workspace: str, project: str, body: EditProject) -> ProjectView:
        """Change its name, description or notes, archive it or undo that; null leaves a field as it is."""
        return await self.services[ProjectsService].edit(self.person, workspace, project, body)


@route("experiments/{experiment_id}/move", relayed=True)
class MoveOne(Guarded):
    """Where an experiment lies."""

    @needs("write", cross_site="xsrf", action=Action.EXPERIMENT_MOVE)
    async def post(self, experiment_id: int, body: MoveExperiment) -> ExperimentView:
        """Move an experiment to another project, whose workspace's members see it from then on."""
        return await self.services[Moves].experiment(self.person, experiment_id, body)


@route("models/{model}/move", relayed=True)
class MoveOneModel(Guarded):
    """Where a model lies."""

    @needs("write", cross_site="xsrf", action=Action.MODEL_MOVE)
    async def post(self, model: str, body: MoveModel) -> ModelView:
        """Move a model to another workspace, whose members see it and the checkpoints of its versions."""
        return await self.services[Models].move(self.person, model, body)
