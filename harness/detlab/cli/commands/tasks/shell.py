"""`det shell …`."""

from __future__ import annotations

import sys

import click

from detlab.cli.commands.tasks.lookup import find, task_argument
from detlab.cli.commands.tasks.options import TaskOptions, task_options
from detlab.cli.commands.tasks.shared import add_shared
from detlab.cli.commands.tasks.start import announce, bring_up, over, show_address, submit
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import clean, note, say
from detlab.client.tasks import Task
from detlab.schemas.taskwire import TaskKind

COMMANDS = {"shell": "Shells: start, open in this terminal, list, logs, kill."}

_SSH = click.option("--show-ssh-command", "show_ssh", is_flag=True, help="Print how ssh opens it, instead.")


@click.group(cls=LazyGroup, short={"ls": "list", "show_ssh_command": "show-ssh-command"})
def shell() -> None:
    """Shells: terminals on the cluster, in your terminal or in the browser.

    \b
    Examples:
      det shell start --slots 1
      det shell open ID
      det shell ssh-config ID >> ~/.ssh/config
      det shell list
    """


@shell.command()
@task_options(idle=True, code=True)
@click.option(
    "--wait/--detach", " /-d", default=True, help="Wait until it is running (the default), or only submit it."
)
@click.option("--no-open", is_flag=True, help="Do not open it; only print its address for a browser.")
@_SSH
@json_option
@pass_invocation
def start(invocation: Invocation, options: TaskOptions, wait: bool, no_open: bool, show_ssh: bool) -> int:
    """Start a shell, show its progress, then open a terminal of it here.

    Ctrl-D ends the terminal; the shell and its programs stay until the shell is killed or idle for too long.

    \b
    Examples:
      det shell start
      det shell start --slots 1 --image registry.example/torch:2.10
      det shell start --context code/ --detach
    """
    task = submit(invocation, TaskKind.SHELL, options, bundle=options.bundle())
    if not wait:
        if invocation.as_json:
            return show_address(invocation, task, browse=False)
        announce(task)
        return 0
    status = bring_up(invocation, task)
    if status:
        return status
    if show_ssh:
        return _say_ssh(invocation, task)
    if no_open or invocation.as_json or not sys.stdin.isatty():
        return show_address(invocation, task, browse=False)
    return _attach(invocation, task, None)


@shell.command(name="open")
@task_argument(TaskKind.SHELL, live=True)
@click.option("--terminal", metavar="NAME", help="Reconnect to this terminal of the shell; default: a new one.")
@click.option("--browser", is_flag=True, help="Open it in the browser instead.")
@_SSH
@json_option
@pass_invocation
def open_command(invocation: Invocation, task_id: str, terminal: str | None, browser: bool, show_ssh: bool) -> int:
    """Open a terminal of a shell here. Ctrl-D ends it.

    After Enter, `~.` detaches from a terminal that hangs; its programs continue, and its name is printed. A broken
    connection is made again. Standard input that is not a terminal is sent as if typed, and the terminal ends after it.

    \b
    Examples:
      det shell open ID
      det shell open ID --terminal 2
      echo nvidia-smi | det shell open ID
    """
    task = _running(invocation, task_id)
    if isinstance(task, int):
        return task
    if show_ssh:
        return _say_ssh(invocation, task)
    if browser or invocation.as_json:
        return show_address(invocation, task, browse=browser)
    return _attach(invocation, task, terminal)


def _running(invocation: Invocation, task_id: str) -> Task | int:
    """Return a shell that runs, waiting for it; or the exit status, if it has ended or was left."""
    task = find(invocation, task_id, TaskKind.SHELL)
    if task.state.terminal:
        raise over(task)
    return bring_up(invocation, task, quiet=not sys.stderr.isatty()) or task


@shell.command(name="show-ssh-command")
@task_argument(TaskKind.SHELL, live=True)
@click.argument("ssh_options", metavar="[-- SSH_OPTIONS]...", nargs=-1, type=click.UNPROCESSED)
@json_option
@pass_invocation
def show_ssh_command(invocation: Invocation, task_id: str, ssh_options: tuple[str, ...]) -> int:
    """Print the command by which ssh opens a shell, for an editor's remote mode (VS Code, PyCharm).

    The shell's machine or image needs OpenSSH's server (sshd). The connection goes through the Hub: no port is opened.

    \b
    Examples:
      det shell show-ssh-command ID
      eval "$(det shell show-ssh-command ID)"
      det shell show-ssh-command ID -- -L 6006:localhost:6006
    """
    task = _running(invocation, task_id)
    return task if isinstance(task, int) else _say_ssh(invocation, task, ssh_options)


def _say_ssh(invocation: Invocation, task: Task, ssh_options: tuple[str, ...] = ()) -> int:
    from detlab.cli.terminal.ssh import host_of

    host = host_of(invocation.client.address, task.server_url, task.id)
    invocation.tell({"id": task.id, "command": host.command(ssh_options), **host.options()}, host.command(ssh_options))
    return 0


@shell.command(name="ssh-config")
@task_argument(TaskKind.SHELL, live=True)
@pass_invocation
def ssh_config(invocation: Invocation, task_id: str) -> int:
    """Print a block for ~/.ssh/config: then `ssh ID` opens the shell, and an editor offers it as a host.

    \b
    Examples:
      det shell ssh-config ID >> ~/.ssh/config
      ssh ID nvidia-smi
      code --remote ssh-remote+ID /home/ada/project
    """
    from detlab.cli.terminal.ssh import host_of

    task = _running(invocation, task_id)
    if isinstance(task, int):
        return task
    say(host_of(invocation.client.address, task.server_url, task.id).block())
    return 0


@shell.command()
@task_argument(TaskKind.SHELL, live=True)
@pass_invocation
def proxy(invocation: Invocation, task_id: str) -> int:
    """Carry one SSH connection to a shell on standard input and output: the ProxyCommand of ssh.

    \b
    Example:
      ssh -o "ProxyCommand=det shell proxy ID" ID
    """
    from detlab.cli.terminal.ssh import carry

    task = find(invocation, task_id, TaskKind.SHELL)
    if task.state.terminal:
        raise over(task)
    carry(invocation.client.address, task.server_url)
    return 0


def _attach(invocation: Invocation, task: Task, name: str | None) -> int:
    from detlab.cli.terminal.local import TerminalEnd, attach

    end, name = attach(invocation.client.address, task.server_url, name)
    identity = clean(task.id)
    if end is TerminalEnd.LEFT:
        note(f"Detached from terminal {clean(name)} of {identity}; it continues.")
        note(f"  → reconnect: det shell open {identity} --terminal {clean(name)}")
    elif sys.stdin.isatty():
        note(f"Terminal {clean(name)} ended. The shell {identity} stays until it is killed or idle for too long.")
        note(f"  → another terminal: det shell open {identity}")
        note(f"  → end the shell:    det shell kill {identity}")
    return 0


add_shared(shell, TaskKind.SHELL)
