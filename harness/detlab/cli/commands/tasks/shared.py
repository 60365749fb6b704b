"""The sub-commands that the groups of all kinds of user tasks share: list, describe, logs, kill, open."""

from __future__ import annotations

import click

from detlab.cli.commands.tasks.lookup import find, find_all, group_of, task_argument
from detlab.cli.commands.tasks.start import open_server
from detlab.cli.commands.tasks.views import describe, print_tasks, state_word
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.logs import LogOptions, log_options, print_trial_logs
from detlab.cli.output.printing import clean, note, say, say_json
from detlab.client.task_facts import kind_title, kind_word
from detlab.schemas.taskwire import TaskKind
from detlab.schemas.wire import TrialState

STATES = [state.value for state in TrialState if state is not TrialState.PAUSED]
_NEXT = {
    None: "det notebook start",
    TaskKind.COMMAND: "det cmd run -- python train.py",
    TaskKind.TENSORBOARD: "det tensorboard start EXPERIMENT",
}


def add_shared(group: click.Group, kind: TaskKind | None) -> None:
    """Add `list`, `describe`, `logs` and `kill` for tasks of a kind (None: of any) to its group."""
    _add_list(group, kind)
    _add_describe(group, kind)
    _add_logs(group, kind)
    _add_kill(group, kind)


def _words(kind: TaskKind | None) -> tuple[str, str]:
    return group_of(kind), kind_word(kind) if kind else "task"


def _add_list(group: click.Group, kind: TaskKind | None) -> None:
    prefix, word = _words(kind)

    @click.option(
        "-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number to list."
    )
    @click.option("--state", type=click.Choice(STATES, case_sensitive=False))
    @click.option("--owner", metavar="USER", help="Only this user's (administrators see all users').")
    @json_option
    @pass_invocation
    def command(
        invocation: Invocation, limit: int, state: str | None, owner: str | None, only: str | None = None
    ) -> None:
        wanted = kind or (TaskKind(only.lower()) if only else None)
        found = invocation.client.list_tasks(
            limit=limit, kind=wanted, state=state.upper() if state else None, owner=owner
        )
        if invocation.as_json:
            say_json([item.view for item in found])
        elif found:
            print_tasks(found, kinds=wanted is None)
        elif state or owner or only:
            say(f"No {word}s match.")
        else:
            say(f"No {word}s yet. Try: {_NEXT.get(kind, f'{prefix} start')}")

    if kind is None:
        kinds = click.Choice([each.value for each in TaskKind], case_sensitive=False)
        command = click.option("--kind", "only", type=kinds, help="Only tasks of this kind.")(command)
    text = f"List {word}s, newest first.\n\n\b\nExamples:\n  {prefix} list\n  {prefix} list --json | jq '.[].id'"
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


def _add_kill(group: click.Group, kind: TaskKind | None) -> None:
    prefix, word = _words(kind)
    text = (
        f"Kill {word}s immediately, or remove them from the queue.\n\nIf one id is unknown, nothing is killed.\n\n"
        f"\b\nExample:\n  {prefix} kill ID"
    )

    @group.command(name="kill", help=text)
    @task_argument(kind, several=True, live=True)
    @json_option
    @pass_invocation
    def command(invocation: Invocation, task_ids: tuple[str, ...]) -> None:
        found = find_all(invocation, task_ids, kind)
        for item in found:
            title = clean(f"{kind_title(item.kind)} {item.id}")
            if item.state.terminal:
                note(f"{title} has already ended: {state_word(item.view)}.")
                continue
            item.kill()
            if not invocation.as_json:
                say(f"{title}: {state_word(item.view)}")
        if invocation.as_json:
            say_json([item.view for item in found])


def add_open(group: click.Group, kind: TaskKind) -> None:
    """Add `open`, in the browser, for tasks of a kind that is a server of the Hub."""
    prefix, word = _words(kind)
    text = (
        f"Open a {word} in the browser; wait for it if it is not up yet.\n\n"
        f"\b\nExamples:\n  {prefix} open ID\n  {prefix} open ID --no-open"
    )

    @group.command(name="open", help=text)
    @task_argument(kind, live=True)
    @click.option("--no-open", is_flag=True, help="Only print the address.")
    @json_option
    @pass_invocation
    def command(invocation: Invocation, task_id: str, no_open: bool) -> int:
        return open_server(invocation, find(invocation, task_id, kind), browse=not no_open)
