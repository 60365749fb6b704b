"""Options by which lists and submissions name a workspace and a project, and tables of both."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from detlab.cli.completion import workspace_names
from detlab.cli.invocation import Invocation
from detlab.cli.output.printing import clean, facts, moment, note, say, table
from detlab.schemas.wire.projects import ProjectView
from detlab.schemas.wire.workspaces import MemberView, WorkspaceView

Function = TypeVar("Function", bound=Callable[..., Any])
View = TypeVar("View", WorkspaceView, ProjectView)
NOWHERE = "Uncategorized"
"""The name of everybody's personal workspace, and of the project for what names none."""
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
_ALL = click.option("-a", "--all", "everything", is_flag=True, help="Archived ones, too.")


def place_words(workspace: str, project: str) -> str:
    """Return workspace and project; nothing where it names none: who works alone never meets them."""
    named = [part for part in (workspace, project) if part]
    return "" if set(named) <= {NOWHERE} else " / ".join(named)


def all_option(function: Function) -> Function:
    """Add --all."""
    return _ALL(function)


def sort_options(function: Function) -> Function:
    """Add --sort-by and --order-by."""
    by = click.option(
        "--sort-by", type=click.Choice(["id", "name"]), default="id", show_default=True, help="The order."
    )
    direction = click.option("--order-by", type=click.Choice(["asc", "desc"]), default="asc", help="Its direction.")
    return by(direction(function))


def in_order(found: Sequence[View], sort_by: str, order_by: str) -> Sequence[View]:
    """Return workspaces or projects in the order that was asked for."""
    return sorted(
        found,
        key=lambda one: (one.name.casefold(), one.id) if sort_by == "name" else ("", one.id),
        reverse=order_by == "desc",
    )


def workspace_option(what: str) -> Callable[[Function], Function]:
    """Add -w/--workspace.

    Args:
        what: The help.
    """
    return click.option(
        "-w", "--workspace", "--workspace-name", "workspace", metavar="NAME", help=what, shell_complete=workspace_names
    )


def project_option(what: str) -> Callable[[Function], Function]:
    """Add --project, and --project-id, as Determined has it.

    Args:
        what: The help.
    """

    def add(function: Function) -> Function:
        by_id = click.option("--project-id", "--project_id", type=int, metavar="ID", help="The same, by its id.")
        return click.option("--project", metavar="NAME", help=what)(by_id(function))

    return add


def project_of(project: str | None, project_id: int | None) -> str | None:
    """Return the project that was named.

    Raises:
        click.UsageError: It was named twice.
    """
    if project is not None and project_id is not None:
        raise click.UsageError("give --project or --project-id, not both")
    return project if project_id is None else str(project_id)


def print_workspaces(found: Sequence[WorkspaceView]) -> None:
    """Print a table."""
    rows = [
        (
            one.id,
            one.name,
            one.owner,
            "personal" if one.personal else one.role or "",
            one.projects,
            one.experiments,
            one.runs,
            one.models,
            "archived" if one.archived_at else "",
        )
        for one in found
    ]
    columns = ("ID", "Name", "Made by", "Your role", "Projects", "Experiments", "Runs", "Models", "State")
    table(columns, rows, right=("ID", "Projects", "Experiments", "Runs", "Models"))


def print_workspace(one: WorkspaceView) -> None:
    """Print the facts of one."""
    given = one.defaults.model_dump(exclude_defaults=True)
    facts(
        [
            ("id", one.id),
            ("name", one.name),
            ("named by others", f"{one.owner}/{one.name}"),
            ("description", one.description),
            ("your role", "its owner" if one.personal else one.role or "administrator of the cluster"),
            ("projects", one.projects),
            ("experiments", one.experiments),
            ("runs from elsewhere", one.runs),
            ("models", one.models),
            ("tasks", one.tasks),
            ("quota", None if one.quota is None else f"{one.quota} slots"),
            ("created", moment(one.created_at)),
            ("archived", moment(one.archived_at)),
            *((f"gives {key}", one_line(value)) for key, value in given.items()),
        ]
    )


def one_line(value: Any) -> str:
    """Return a value as one line of JSON, a text as it is."""
    return value if isinstance(value, str) else json.dumps(value)


def not_looked_up(invocation: Invocation, user: str | None) -> None:
    """Note that a name that was given a role or a right was not looked up: a mistyped one is nobody's, or another's."""
    if user is not None and not invocation.as_json:
        note(f"names are not looked up: whoever signs in to the Hub as {clean(user)} has it")


def print_members(one: str, found: Sequence[MemberView]) -> None:
    """Print a table of members."""
    if not found:
        say(f"Workspace {clean(one)} has no members that you may see.")
        return
    rows = [(member.kind, member.name, member.role, member.added_by, moment(member.created_at)) for member in found]
    table(("Member", "Name", "Role", "Added by", "Since"), rows)


def print_projects(found: Sequence[ProjectView]) -> None:
    """Print a table."""
    rows = [
        (one.id, one.name, one.description, one.owner, one.experiments, one.runs, "archived" if one.archived_at else "")
        for one in found
    ]
    columns = ("ID", "Name", "Description", "Made by", "Experiments", "Runs", "State")
    table(columns, rows, right=("ID", "Experiments", "Runs"))


def print_project(one: ProjectView) -> None:
    """Print the facts of one."""
    facts(
        [
            ("id", one.id),
            ("name", one.name),
            ("workspace", one.workspace),
            ("description", one.description),
            ("made by", one.owner),
            ("experiments", one.experiments),
            ("runs from elsewhere", one.runs),
            ("created", moment(one.created_at)),
            ("archived", moment(one.archived_at)),
        ]
    )
    if one.notes:
        say(f"\n{clean(one.notes)}")
