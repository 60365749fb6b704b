"""`det rbac` and `det user-group`: Determined's words for the members of workspaces and the groups of the Hub."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import click

from detlab.cli.commands.projects.options import not_looked_up, print_members
from detlab.cli.completion import workspace_names
from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import say, say_json, table
from detlab.client.operations import workspaces
from detlab.schemas.wire import GrantKind
from detlab.schemas.wire.workspaces import RoleName

COMMANDS = {
    "rbac": "Roles in workspaces: who has which, and what each may do.",
    "user-group": "Groups of the Hub that have a role somewhere: list, describe.",
}
ROLES: dict[RoleName, str] = {
    "viewer": "sees what lies in the workspace: experiments, trials, metrics, output, code, checkpoints, models",
    "editor": "that, and changes it: pauses, kills, edits; submits into it, makes projects",
    "admin": "that, and deletes, archives, shares and moves what lies in it; decides who is a member",
}
_workspace = click.option(
    "-w",
    "--workspace-name",
    "--workspace",
    "workspace",
    metavar="NAME",
    required=True,
    help="In which workspace.",
    shell_complete=workspace_names,
)
_user = click.option("-u", "--username-to-assign", "--user", "user", metavar="U", help="A user of the Hub.")
_group = click.option("-g", "--group-name-to-assign", "--group", "group", metavar="G", help="A group of the Hub.")


@click.group(cls=LazyGroup)
def rbac() -> None:
    """Roles of users and groups in workspaces, with Determined's commands. `det workspace add-member` does the same.

    \b
    Examples:
      det rbac assign-role editor -w vision -u bob
      det rbac my-permissions
    """


@rbac.command()
@csv_option
@json_option
@pass_invocation
def list_roles(invocation: Invocation) -> None:
    """List the roles that there are.

    \b
    Example:
      det rbac list-roles
    """
    if invocation.as_json:
        say_json([{"role": role, "may": may} for role, may in ROLES.items()])
    else:
        table(("Role", "What it may do"), list(ROLES.items()))


@rbac.command()
@click.argument("role", type=click.Choice([*ROLES]))
@json_option
@pass_invocation
def describe_role(invocation: Invocation, role: RoleName) -> None:
    """Say what a role may do.

    \b
    Example:
      det rbac describe-role editor
    """
    invocation.tell({"role": role, "may": ROLES[role]}, f"{role}: {ROLES[role]}")


@rbac.command()
@click.argument("role", type=click.Choice([*ROLES]))
@_workspace
@_user
@_group
@json_option
@pass_invocation
def assign_role(invocation: Invocation, role: RoleName, workspace: str, user: str | None, group: str | None) -> None:
    """Give a user or a group a role in a workspace; one that they had is replaced.

    \b
    Example:
      det rbac assign-role editor -w vision -g vision-team
    """
    kind, who = _whose(user, group)
    found = invocation.client.session.run(workspaces.set_member(workspace, kind, who, role))
    _show(invocation, workspace, found)
    not_looked_up(invocation, user)


@rbac.command()
@click.argument("role", type=click.Choice([*ROLES]))
@_workspace
@_user
@_group
@json_option
@pass_invocation
def unassign_role(invocation: Invocation, role: RoleName, workspace: str, user: str | None, group: str | None) -> None:
    """Take the role of a user or a group in a workspace away.

    \b
    Example:
      det rbac unassign-role editor -w vision -u bob
    """
    kind, who = _whose(user, group)
    session = invocation.client.session
    held = {(one.kind, one.name): one.role for one in session.run(workspaces.members(workspace))}
    if held.get((kind, who)) not in {None, role}:
        raise click.UsageError(f"{who} is {held[kind, who]} there, not {role}")
    _show(invocation, workspace, session.run(workspaces.remove_member(workspace, kind, who)))


@rbac.command()
@click.argument("user")
@csv_option
@json_option
@pass_invocation
def list_users_roles(invocation: Invocation, user: str) -> None:
    """List the roles of a user in the workspaces that you may see.

    \b
    Example:
      det rbac list-users-roles bob
    """
    _show_roles(invocation, "user", user)


@rbac.command()
@click.argument("group")
@csv_option
@json_option
@pass_invocation
def list_groups_roles(invocation: Invocation, group: str) -> None:
    """List the roles of a group in the workspaces that you may see.

    \b
    Example:
      det rbac list-groups-roles vision-team
    """
    _show_roles(invocation, "group", group)


@rbac.command()
@csv_option
@json_option
@pass_invocation
def my_permissions(invocation: Invocation) -> None:
    """List your roles, by user or by group, the best of each workspace.

    \b
    Example:
      det rbac my-permissions
    """
    found = [one.view for one in invocation.client.list_workspaces(archived=None)]
    if invocation.as_json:
        say_json([{"workspace": f"{one.owner}/{one.name}", "role": one.role, "may": one.may} for one in found])
        return
    rows = [
        (one.id, f"{one.owner}/{one.name}", one.role or ("" if not one.personal else "its owner"), one.may)
        for one in found
    ]
    table(("ID", "Workspace", "Role", "May"), rows, right=("ID",))


# --- groups


@click.group(cls=LazyGroup, name="user-group", short={"ls": "list"})
def user_group() -> None:
    """Look at groups of the Hub that have a role in a workspace that you may see; the Hub has their members.

    \b
    Example:
      det user-group list
    """


@user_group.command(name="list")
@csv_option
@json_option
@pass_invocation
def list_groups(invocation: Invocation) -> None:
    """List the groups with a role in a workspace that you may see, and in how many.

    \b
    Example:
      det user-group list
    """
    found = _roles(invocation, "group")
    if invocation.as_json:
        say_json([{"group": name, "roles": roles} for name, roles in sorted(found.items())])
    elif not found and not invocation.as_csv:
        say("No group has a role in a workspace that you may see.")
    else:
        table(("Group", "Workspaces"), [(name, len(roles)) for name, roles in sorted(found.items())])


@user_group.command()
@click.argument("group")
@csv_option
@json_option
@pass_invocation
def describe(invocation: Invocation, group: str) -> None:
    """List the roles of a group; who is in it, the Hub knows.

    \b
    Example:
      det user-group describe vision-team
    """
    _show_roles(invocation, "group", group)


def _roles(invocation: Invocation, kind: GrantKind) -> dict[str, list[dict[str, Any]]]:
    """Return the roles of all users or groups in the workspaces that the caller may see."""
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for place in invocation.client.list_workspaces():
        for one in () if place.view.personal else place.list_members():
            if one.kind == kind:
                found[one.name].append({"workspace": place.reference, "role": one.role})
    return dict(found)


def _show_roles(invocation: Invocation, kind: GrantKind, name: str) -> None:
    found = _roles(invocation, kind).get(name, [])
    if invocation.as_json:
        say_json(found)
    elif not found and not invocation.as_csv:
        say(f"The {kind} {name!r} has no role in a workspace that you may see.")
    else:
        table(("Workspace", "Role"), [(one["workspace"], one["role"]) for one in found])


def _show(invocation: Invocation, workspace: str, members: Any) -> None:
    if invocation.as_json:
        say_json(members)
    else:
        print_members(workspace, members)


def _whose(user: str | None, group: str | None) -> tuple[GrantKind, str]:
    if user is not None and group is None:
        return "user", user
    if group is not None and user is None:
        return "group", group
    raise click.UsageError("give --user or --group; run the command twice for both")
