"""The sub-commands that the groups of all kinds of user tasks share: list, describe, config, logs, set, kill, open."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from detlab.cli.commands.projects.options import place_words, project_of, project_option, workspace_option
from detlab.cli.commands.tasks.lookup import find, find_all, group_of, task_argument
from detlab.cli.commands.tasks.start import open_server
from detlab.cli.commands.tasks.views import describe, print_tasks, state_word
from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.output.failures import OneByOne
from detlab.cli.output.logs import LogOptions, log_options, print_trial_logs
from detlab.cli.output.printing import clean, note, say, say_json, say_yaml
from detlab.client.operations.jobs import update_job
from detlab.client.task_facts import kind_title, kind_word
from detlab.errors import DetlabError
from detlab.schemas.jobwire import JobUpdate
from detlab.schemas.taskwire import TaskKind
from detlab.schemas.wire import TrialState

if TYPE_CHECKING:
    from detlab.client.tasks import Task

STATES = [state.value for state in TrialState if state is not TrialState.PAUSED]
ORDERS: dict[str, Callable[[Task], Any]] = {
    "id": lambda item: item.id,
    "name": lambda item: item.name,
    "owner": lambda item: item.view.owner,
    "state": lambda item: item.view.state.value,
    "created": lambda item: item.view.created_at,
}
"""What `list --sort-by` takes."""
_NEXT = {
    None: "det notebook start",
    TaskKind.COMMAND: "det cmd run -- python train.py",
    TaskKind.TENSORBOARD: "det tensorboard start EXPERIMENT",
}


def add_shared(group: click.Group, kind: TaskKind | None) -> None:
    """Add what tasks of a kind (None: of any) have in common to its group."""
    _add_list(group, kind)
    _add_describe(group, kind)
    _add_config(group, kind)
    _add_set(group, kind)
    _add_logs(group, kind)
    _add_kill(group, kind)
    _add_move(group, kind)


def _words(kind: TaskKind | None) -> tuple[str, str]:
    return group_of(kind), kind_word(kind) if kind else "task"


def _add_list(group: click.Group, kind: TaskKind | None) -> None:
    prefix, word = _words(kind)

    @click.option(
        "-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number to list."
    )
    @click.option("--state", type=click.Choice(STATES, case_sensitive=False))
    @click.option(
        "--owner",
        metavar="USER",
        help="Only this user's; administrators see all users', members those of a workspace.",
    )
    @workspace_option("Those of all members of this workspace; of other users' tasks you see the state alone.")
    @project_option("Only those of this project of it.")
    @click.option("-a", "--all", "every", is_flag=True, help="All of them, however many there are.")
    @click.option("-q", "--quiet", is_flag=True, help="Print the ids only.")
    @click.option("--sort-by", type=click.Choice(list(ORDERS), case_sensitive=False), help="Default: newest first.")
    @click.option("--order-by", type=click.Choice(["asc", "desc"]), default="asc", help="With --sort-by: asc or desc.")
    @csv_option
    @json_option
    @pass_invocation
    def command(
        invocation: Invocation,
        limit: int,
        state: str | None,
        owner: str | None,
        every: bool,
        quiet: bool,
        sort_by: str | None,
        order_by: str,
        workspace: str | None,
        project: str | None,
        project_id: int | None,
        only: str | None = None,
    ) -> None:
        wanted = kind or (TaskKind(only.lower()) if only else None)
        found = invocation.client.list_tasks(
            limit=None if every or sort_by else limit,
            kind=wanted,
            state=state.upper() if state else None,
            owner=owner,
            workspace=workspace,
            project=project_of(project, project_id),
        )
        if sort_by is not None:
            found.sort(key=ORDERS[sort_by.lower()], reverse=order_by == "desc")
            found = found if every else found[:limit]
        if invocation.as_json:
            say_json([item.view for item in found])
        elif quiet:
            for item in found:
                say(clean(item.id))
        elif found or invocation.as_csv:
            print_tasks(found, kinds=wanted is None)
        elif state or owner or only or workspace or project or project_id:
            say(f"No {word}s match.")
        else:
            say(f"No {word}s yet. Try: {_NEXT.get(kind, f'{prefix} start')}")

    if kind is None:
        kinds = click.Choice([each.value for each in TaskKind], case_sensitive=False)
        command = click.option("--kind", "only", type=kinds, help="Only tasks of this kind.")(command)
    text = (
        f"List {word}s, newest first.\n\n\b\nExamples:\n  {prefix} list\n  {prefix} list -w ada/vision\n"
        f"  {prefix} list --json | jq '.[].id'"
    )
    group.command(name="list", help=text)(command)


def _add_describe(group: click.Group, kind: TaskKind | None) -> None:
    prefix, word = _words(kind)
    text = (
        f"Show the details of a {word}.\n\nState, place in the queue, slots, failure; with --json its config.\n\n"
        f"\b\nExamples:\n  {prefix} describe ID\n  {prefix} describe ID --json | jq .config"
    )

    @group.command(name="describe", help=text)
    @task_argument(kind, several=True)
    @json_option
    @pass_invocation
    def command(invocation: Invocation, task_ids: tuple[str, ...]) -> None:
        found = find_all(invocation, task_ids, kind)
        if invocation.as_json:
            views = [item.view for item in found]
            say_json(views[0] if len(views) == 1 else views)
            return
        for at, item in enumerate(found):
            if at:
                say()
            describe(item)


def _add_config(group: click.Group, kind: TaskKind | None) -> None:
    prefix, word = _words(kind)
    text = (
        f"Show the resolved config of a {word}; secrets are masked.\n\n"
        f"\b\nExamples:\n  {prefix} config ID > again.yaml\n  {prefix} config ID --json"
    )

    @group.command(name="config", help=text)
    @task_argument(kind)
    @json_option
    @pass_invocation
    def command(invocation: Invocation, task_id: str) -> None:
        found = find(invocation, task_id, kind).view.config or {}
        if not invocation.answered(found):
            say_yaml(found)


def _add_set(group: click.Group, kind: TaskKind | None) -> None:
    prefix, word = _words(kind)

    @group.group(name="set", help=f"Change a {word}.\n\n\b\nExample:\n  {prefix} set priority ID 10")
    def change() -> None: ...

    text = (
        f"Set the priority of a {word}: 1 to 99, lower goes first. `det job update` changes more.\n\n"
        f"\b\nExample:\n  {prefix} set priority ID 10"
    )

    @change.command(name="priority", help=text)
    @task_argument(kind, live=True)
    @click.argument("priority", type=click.IntRange(1, 99))
    @json_option
    @pass_invocation
    def command(invocation: Invocation, task_id: str, priority: int) -> None:
        item = find(invocation, task_id, kind)
        changed = invocation.client.session.run(update_job(item.id, JobUpdate(priority=priority)))
        invocation.tell(changed, clean(f"{kind_title(item.kind)} {item.id}: priority {changed.priority}"))


def _add_logs(group: click.Group, kind: TaskKind | None) -> None:
    prefix, word = _words(kind)
    text = (
        f"Show the output of a {word}.\n\nCtrl-C stops following, not the {word}. With --json each line is an"
        f" object.\n\n\b\nExamples:\n  {prefix} logs ID --tail 50\n  {prefix} logs ID -f"
    )

    @group.command(name="logs", help=text)
    @task_argument(kind)
    @log_options
    @json_option
    @pass_invocation
    def command(invocation: Invocation, task_id: str, options: LogOptions) -> int:
        return print_trial_logs(find(invocation, task_id, kind), options, invocation.as_json)


def _add_move(group: click.Group, kind: TaskKind | None) -> None:
    prefix, word = _words(kind)
    text = (
        f"Move a {word} to another project: the members of its workspace see its state from then on.\n\n"
        "Without WORKSPACE, to your personal one, where nobody sees it. What it runs with stays the same, and"
        " only you can open it.\n\n"
        f"\b\nExamples:\n  {prefix} move ID ada/vision digits\n  {prefix} move ID"
    )

    @group.command(name="move", help=text)
    @task_argument(kind)
    @click.argument("workspace", default="")
    @click.argument("project", default="")
    @json_option
    @pass_invocation
    def command(invocation: Invocation, task_id: str, workspace: str, project: str) -> None:
        item = find(invocation, task_id, kind)
        item.move(workspace, project)
        to = place_words(item.view.workspace, item.view.project) or "your personal workspace"
        invocation.tell(item.view, clean(f"Moved {kind_word(item.kind)} {item.id} to {to}"))


def _add_kill(group: click.Group, kind: TaskKind | None) -> None:
    prefix, word = _words(kind)
    text = (
        f"Kill {word}s immediately, or remove them from the queue.\n\nIf one id is unknown, nothing is killed without"
        " --force.\n\n"
        f"\b\nExample:\n  {prefix} kill ID"
    )

    @group.command(name="kill", help=text)
    @task_argument(kind, several=True, live=True)
    @click.option("-f", "--force", is_flag=True, help="Name ids that are unknown, and kill the others.")
    @json_option
    @pass_invocation
    def command(invocation: Invocation, task_ids: tuple[str, ...], force: bool) -> int:
        found = find_all(invocation, task_ids, kind, missing=_skip if force else None)
        each = OneByOne(kind_title(kind) if kind else "Task", found)
        for item in found:
            title = clean(f"{kind_title(item.kind)} {item.id}")
            if item.state.terminal:
                note(f"{title} has already ended: {state_word(item.view)}.")
                continue
            with each.of(item.id):
                item.kill()
                if not invocation.as_json:
                    say(f"{title}: {state_word(item.view)}")
        if invocation.as_json:
            say_json([item.view for item in found])
        return each.status


def _skip(error: DetlabError) -> None:
    note(f"skipped: {clean(error.message)}")


def add_open(group: click.Group, kind: TaskKind) -> None:
    """Add `open`, in the browser, for tasks of a kind that is a server of the Hub."""
    prefix, word = _words(kind)
    text = (
        f"Open a {word} in the browser; wait for it if it is not up yet.\n\n"
        f"\b\nExamples:\n  {prefix} open ID\n  {prefix} open ID --no-open"
    )

    @group.command(name="open", help=text)
    @task_argument(kind, live=True)
    @click.option("--no-open", "--no-browser", "no_open", is_flag=True, help="Only print the address.")
    @json_option
    @pass_invocation
    def command(invocation: Invocation, task_id: str, no_open: bool) -> int:
        return open_server(invocation, find(invocation, task_id, kind), browse=not no_open)
