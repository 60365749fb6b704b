"""`det shell …`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from detlab.cli.commands.tasks.lookup import find, task_argument
from detlab.cli.commands.tasks.options import TaskOptions, task_options
from detlab.cli.commands.tasks.shared import add_shared
from detlab.cli.commands.tasks.start import announce, bring_up, over, show_address, submit
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import clean, note
from detlab.client.submission import pack
from detlab.client.tasks import Task
from detlab.schemas.taskwire import TaskKind


@click.group(cls=LazyGroup, short={"ls": "list"})
def shell() -> None:
    """Shells: terminals on the cluster, in your terminal or in the browser.

    \b
    Examples:
      det shell start --slots 1
      det shell open ID
      det shell list
    """


@shell.command()
@task_options(idle=True)
@click.option(
    "--context", type=click.Path(path_type=Path), metavar="DIR", help="The content of DIR becomes its working folder."
)
@click.option("--wait/--detach", default=True, help="Wait until it is running (the default), or only submit it.")
@click.option("--no-open", is_flag=True, help="Do not open it; only print its address for a browser.")
@json_option
@pass_invocation
def start(invocation: Invocation, options: TaskOptions, context: Path | None, wait: bool, no_open: bool) -> int:
    """Start a shell, show its progress, then open a terminal of it here.

    Ctrl-D ends the terminal; the shell and its programs stay until the shell is killed or idle for too long.

    \b
    Examples:
      det shell start
      det shell start --slots 1 --image registry.example/torch:2.10
      det shell start --context code/ --detach
    """
    bundle = pack(context, ()) if context is not None else None
    task = submit(invocation, TaskKind.SHELL, options, bundle=bundle)
    if not wait:
        if invocation.as_json:
            return show_address(invocation, task, browse=False)
        announce(task)
        return 0
    status = bring_up(invocation, task)
    if status:
        return status
    if no_open or invocation.as_json or not sys.stdin.isatty():
        return show_address(invocation, task, browse=False)
    return _attach(invocation, task, None)


@shell.command(name="open")
@task_argument(TaskKind.SHELL, live=True)
@click.option("--terminal", metavar="NAME", help="Reconnect to this terminal of the shell; default: a new one.")
@click.option("--browser", is_flag=True, help="Open it in the browser instead.")
@json_option
@pass_invocation
def open_command(invocation: Invocation, task_id: str, terminal: str | None, browser: bool) -> int:
    """Open a terminal of a shell here. Ctrl-D ends it.

    After Enter, `~.` detaches from a terminal that hangs; its programs continue, and its name is printed. A broken
    connection is made again. Standard input that is not a terminal is sent as if typed, and the terminal ends after it.

    \b
    Examples:
      det shell open ID
      det shell open ID --terminal 2
      echo nvidia-smi | det shell open ID
    """
    task = find(invocation, task_id, TaskKind.SHELL)
    if task.state.terminal:
        raise over(task)
    status = bring_up(invocation, task)
    if status:
        return status
    if browser or invocation.as_json:
        return show_address(invocation, task, browse=browser)
    return _attach(invocation, task, terminal)


def _attach(invocation: Invocation, task: Task, name: str | None) -> int:
    from detlab.cli.terminal.local import Ended, attach

    end, name = attach(invocation.client.address, task.server_url, name)
    identity = clean(task.id)
    if end is Ended.LEFT:
        note(f"Detached from terminal {clean(name)} of {identity}; it continues.")
        note(f"  → reconnect: det shell open {identity} --terminal {clean(name)}")
    elif sys.stdin.isatty():
        note(f"Terminal {clean(name)} ended. The shell {identity} stays until it is killed or idle for too long.")
        note(f"  → another terminal: det shell open {identity}")
        note(f"  → end the shell:    det shell kill {identity}")
    return 0


add_shared(shell, TaskKind.SHELL)
