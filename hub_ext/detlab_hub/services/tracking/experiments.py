"""What clients of MLflow take for experiments: projects with runs from elsewhere, and experiments with their trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import ColumnElement
from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, DetlabError, NotFound, Problem
from detlab.schemas.wire.logged_names import BadKey, check_key
from detlab.schemas.wire.workspaces import FolderName
from detlab_hub.core.filters.grammar import FilterError
from detlab_hub.core.rights import Action
from detlab_hub.core.tracking import keys
from detlab_hub.core.tracking.search import (
    EXPERIMENT_FIELDS,
    Clause,
    FieldOf,
    FieldType,
    RunOrder,
    parse_filter,
    parse_order,
)
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import person, workspace_for
from detlab_hub.services.base.callers import Caller, TaskCaller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.tracking.access import (
    TrackedPlace,
    Tracker,
    made_place,
    place_for,
    place_named,
    task_may_not,
)
from detlab_hub.services.tracking.facts import PlaceFacts, place_facts
from detlab_hub.store.queries import workspaces
from detlab_hub.store.queries.statements import first_that_fit
from detlab_hub.store.queries.tracking import places
from detlab_hub.store.queries.tracking.search import number_matches, text_matches
from detlab_hub.store.tables import ProjectRow, WorkspaceRow

MOST_TAGS, TAGS_CHARS = 200, 100_000
_NAME = TypeAdapter(FolderName)


class AlreadyExists(Conflict):
    """What is to be made is there; clients go on with it."""

    default_code = "tracking.exists"


class BadRequest(DetlabError):
    """A request that says something that cannot be."""

    default_code = "tracking.invalid"


@dataclass(frozen=True)
class PlacePage:
    """A page of places, and how many to skip for the next; None: it is the last."""

    items: Sequence[PlaceFacts]
    next: int | None = None


class TrackedExperiments(Service):
    """Use cases of projects and experiments, for clients of MLflow."""

    async def by_name(self, caller: Tracker, name: str) -> PlaceFacts:
        """Return the project of a name, archived ones included.

        Raises:
            NotFound: There is none for the caller.
        """

        def look(s: Session) -> PlaceFacts:
            place = place_named(s, caller, name)
            if place is None:
                raise NotFound(f"there is no experiment {name[:300]!r}", hint="det project list WORKSPACE")
            return place_facts(place, caller)

        return await self._context.read(look)

    async def get(self, caller: Tracker, number: str) -> PlaceFacts:
        """Return one by its id.

        Raises:
            NotFound: There is none for the caller.
        """
        return await self._context.read(lambda s: place_facts(place_for(s, caller, number), caller))

    async def create(self, caller: Tracker, name: str, tags: Mapping[str, str]) -> str:
        """Make a project; return its id. To a trial, each name is its experiment.

        Raises:
            AlreadyExists: There is one.
            ConfigError: It cannot be the name of a project.
            Forbidden: The caller is no editor of the workspace.
            NotFound: There is no such workspace for the caller.
        """
        checked = checked_tags(tags)

        def create(unit: UnitOfWork) -> str:
            if isinstance(caller, TaskCaller):
                return place_for(unit.session, caller, "").id
            if place_named(unit.session, caller, name) is not None:
                raise AlreadyExists(f"there is an experiment {name[:300]!r} already")
            return add_project(unit, caller, name, _bounded(checked)).id

        return await self._context.write(create)

    async def rename(self, caller: Tracker, number: str, name: str) -> None:
        """Give a project another name.

        Raises:
            AlreadyExists: Another one has it.
            Forbidden: The caller is no editor of its workspace.
            NotFound: There is none for the caller.
        """

        def rename(unit: UnitOfWork) -> None:
            row = _project_for(unit, caller, number, Action.PROJECT_EDIT)
            wanted = project_name(name.rpartition("/")[2])
            other = workspaces.project_named(unit.session, row.workspace_id, wanted)
            if other is not None and other.id != row.id:
                raise AlreadyExists(f"there is an experiment {name[:300]!r} already")
            row.name, row.key = wanted, workspaces.key_of(wanted)
            _note(unit, caller, "project.edit", row, "name")

        await self._context.write(rename)

    async def set_deleted(self, caller: Tracker, number: str, deleted: bool) -> None:
        """Archive a project, or restore it: it takes nothing new, and its runs count as deleted; nothing is removed.

        Raises:
            Forbidden: The caller is no admin of its workspace.
            NotFound: There is none for the caller.
        """

        def archive(unit: UnitOfWork) -> None:
            row = _project_for(unit, caller, number, Action.PROJECT_ARCHIVE)
            row.archived_at = unit.now if deleted else None
            _note(unit, caller, "project.edit", row, "archived" if deleted else "unarchived")

        await self._context.write(archive)

    async def set_tag(self, caller: Tracker, number: str, key: str, value: str | None) -> None:
        """Set a tag of a project; None removes it.

        Raises:
            BadRequest: It would have too many, or the key cannot be one.
            Forbidden: The caller is no editor of its workspace.
            NotFound: There is none for the caller, or no such tag.
        """

        def put(unit: UnitOfWork) -> None:
            row = _project_for(unit, caller, number, Action.PROJECT_EDIT)
            tags = dict(row.tags)
            if value is None and tags.pop(key, None) is None:
                raise NotFound(f"experiment {number[:40]} has no tag {key[:80]!r}")
            if value is not None:
                tags.update(checked_tags({key: value}))
            row.tags = _bounded(tags)

        await self._context.write(put)

    async def search(
        self,
        caller: Tracker,
        *,
        where: str,
        order: Sequence[str],
        deleted: bool | None,
        limit: int,
        skip: int,
    ) -> PlacePage:
        """Return a page of the projects that the caller may read, the newest first; to a trial, its experiment.

        Raises:
            ConfigError: The filter or the order cannot be read.
        """
        clauses, by = read_filter(where, order, EXPERIMENT_FIELDS)

        def look(s: Session) -> PlacePage:
            if isinstance(caller, TaskCaller):
                return PlacePage([place_facts(place_for(s, caller, ""), caller)])
            visible, conditions = workspaces.listed_to(person(caller)), [_clause(one) for one in clauses]
            columns = [_columns()[one.key].desc() if one.descending else _columns()[one.key] for one in by]
            ids = places.projects(s, visible, conditions, columns, archived=deleted, skip=skip, limit=limit)
            page = first_that_fit(s, ProjectRow, ids, limit)
            items = [
                place_facts(TrackedPlace(one, s.get_one(WorkspaceRow, one.workspace_id)), caller) for one in page.rows
            ]
            return PlacePage(items, skip + len(items) if page.more else None)

        if isinstance(caller, TaskCaller):
            return await self._context.read(look)
        return await self._context.look(caller.name, look)


def add_project(unit: UnitOfWork, caller: Caller, name: str, tags: Mapping[str, str]) -> TrackedPlace:
    """Make a project in the caller's own workspace, or by `WORKSPACE/NAME`, `OWNER/WORKSPACE/NAME` in that one.

    Raises:
        ConfigError: It cannot be the name of a project.
        Conflict: The workspace is archived.
        Forbidden: The caller is no editor of the workspace.
        NotFound: There is no such workspace for the caller.
    """
    s = unit.session
    where, slash, rest = name.rpartition("/")
    if slash:
        place = workspace_for(s, caller, where, Action.RUN_CREATE)
    else:
        place = s.get_one(WorkspaceRow, workspaces.personal(s, person(caller).name, unit.now))
    if place.archived_at is not None:
        raise Conflict(f"workspace {place.name!r} is archived: it takes nothing new")
    row = workspaces.add_project(s, place.id, project_name(rest), caller.name, unit.now)
    row.tags = dict(tags)
    audit.note(unit, caller, "project.create", f"project {row.id}", f"{row.name} of workspace {place.id}")
    s.flush()
    return TrackedPlace(row, place)


def _columns() -> dict[str, Any]:
    created = ProjectRow.created_at * 1000
    return {"name": ProjectRow.name, "creation_time": created, "last_update_time": created}


def _clause(one: Clause) -> ColumnElement[bool]:
    if one.of is FieldOf.TAG:
        raise BadRequest("experiments are not searched by their tags here", hint="Search by name.")
    column = _columns()[one.key]
    if EXPERIMENT_FIELDS[one.key] == "number":
        return number_matches(column, one.operator, float(one.values[0]))
    return text_matches(column, one.operator, one.values)


def read_filter(
    where: str, order: Sequence[str], fields: Mapping[str, FieldType]
) -> tuple[tuple[Clause, ...], list[RunOrder]]:
    """Return a filter and an order.

    Raises:
        ConfigError: One of them cannot be read; it says where.
    """
    try:
        return parse_filter(where, fields), [parse_order(one, fields) for one in order]
    except FilterError as error:
        problem = Problem("filter", f"column {error.column}: {error.message}")
        raise ConfigError([problem], f"the filter cannot be read at column {error.column}: {error.message}") from error


def project_name(name: str) -> str:
    """Return a name that a project may have.

    Raises:
        ConfigError: It may not.
    """
    try:
        return _NAME.validate_python(name)
    except ValidationError as error:
        said = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise ConfigError(
            [Problem("name", said)], f"{name[:80]!r} cannot be the name of an experiment: {said}"
        ) from error


def checked_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags as they are kept.

    Raises:
        BadRequest: A key cannot be one.
    """
    try:
        return {check_key(key, "tag"): keys.cut_value(key, value) for key, value in tags.items()}
    except BadKey as error:
        raise BadRequest(str(error)) from error


def _bounded(tags: dict[str, str]) -> dict[str, str]:
    if len(tags) > MOST_TAGS or sum(map(len, tags.values())) > TAGS_CHARS:
        raise BadRequest(f"an experiment has {MOST_TAGS} tags with {TAGS_CHARS:,} characters at most")
    return tags


def _project_for(unit: UnitOfWork, caller: Tracker, number: str, action: Action) -> ProjectRow:
    if isinstance(caller, TaskCaller):
        raise task_may_not("change an experiment")
    place = made_place(unit, caller, place_for(unit.session, caller, number, action))
    if place.project is None:
        raise NotFound(f"there is no experiment with the id {number[:40]!r}")
    return place.project


def _note(unit: UnitOfWork, caller: Tracker, action: str, row: ProjectRow, detail: str) -> None:
    if isinstance(caller, Caller):
        audit.note(unit, caller, action, f"project {row.id}", detail)
