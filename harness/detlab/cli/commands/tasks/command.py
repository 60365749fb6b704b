"""`det cmd …`."""

from __future__ import annotations

import sys

import click

from detlab.cli.commands.tasks.options import TaskOptions, task_options
from detlab.cli.commands.tasks.shared import add_shared
from detlab.cli.commands.tasks.start import INTERRUPTED, announce, left, submit
from detlab.cli.commands.tasks.views import exit_status, start_story, tell_end
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.experiment_progress import connection_notes
from detlab.cli.output.logs import line_text
from detlab.cli.output.printing import clean, note, say, say_json
from detlab.client.task_facts import kind_word
from detlab.client.tasks import Task
from detlab.schemas.taskwire import TaskKind

COMMANDS = {"cmd": "Commands: run a program once on the cluster; list, logs, kill."}


@click.group(cls=LazyGroup, short={"ls": "list"})
def cmd() -> None:
    """Commands: run a program once on the cluster, with its output and exit code here.

    \b
    Examples:
      det cmd run -- nvidia-smi
      det cmd run --slots 1 --context code/ -- python train.py --epochs 3
      det cmd list
    """


@cmd.command(context_settings={"allow_interspersed_args": False})
@click.argument("words", metavar="[--] COMMAND [ARGS]...", nargs=-1, type=click.UNPROCESSED)
@task_options(code=True)
@click.option("-d", "--detach", is_flag=True, help="Submit it without waiting.")
@json_option
@pass_invocation
def run(
    invocation: Invocation,
    words: tuple[str, ...],
    options: TaskOptions,
    detach: bool,
) -> int:
    """Run a program on the cluster; its output appears here, and its exit code is this command's.

    By default it holds one slot. A single word with spaces is run by the shell. Ctrl-C asks whether to leave it
    running, kill it, or continue watching.

    \b
    Examples:
      det cmd run -- nvidia-smi
      det cmd run --slots 0 --context code/ -- python tools/clean.py --all
      det cmd run --image registry.example/torch:2.10 "python train.py && python test.py"
      det cmd run --config-file job.yaml --detach
    """
    entrypoint = None if not words else words[0] if len(words) == 1 and " " in words[0] else list(words)
    task = submit(invocation, TaskKind.COMMAND, options, bundle=options.bundle(), entrypoint=entrypoint)
    if detach:
        if not invocation.answered(task.view):
            announce(task)
        return 0
    follower = Follower(task, quiet=invocation.as_json)
    status = follower.to_the_end()
    if invocation.as_json:
        say_json(task.view)
    return status


class Follower:
    """Follows one command (or notebook run) to its end; asks what to do when interrupted."""

    def __init__(self, task: Task, *, quiet: bool) -> None:
        self.task = task
        self.quiet = quiet
        self.last: int | None = None
        self.notices = connection_notes(what=f"{kind_word(task.kind)} {clean(task.id)}")

    def to_the_end(self) -> int:
        """Return the exit status."""
        while True:
            try:
                self._follow()
                break
            except KeyboardInterrupt:
                if not self._continues():
                    return INTERRUPTED
        view = self.task.view
        if not self.quiet:
            tell_end(view, tail=self.last is None)
        return exit_status(view)

    def _follow(self) -> None:
        task = self.task
        if self.last is None:
            with start_story(quiet=self.quiet) as tell:
                task.await_up(tell=tell, notice=self.notices)
        for line in task.iter_logs(follow=True, after=self.last, notice=self.notices):
            self.last = line.id
            if not self.quiet:
                (say if line.stdtype == "stdout" else note)(line_text(line, trial=False))
        task.wait(notice=self.notices)

    def _continues(self) -> bool:
        """Ask what an interrupt means; return whether to continue watching."""
        if not sys.stdin.isatty():
            left(self.task)
            return False
        try:
            note("")
            answer = click.prompt(
                f"{clean(self.task.id)} runs. (l)eave it running, (k)ill it, (c)ontinue watching",
                type=click.Choice(["l", "k", "c"]),
                default="l",
                show_choices=False,
                err=True,
            )
        except (click.Abort, KeyboardInterrupt):
            answer = "l"
        if answer == "k":
            self.task.kill()
            return True
        if answer == "c":
            return True
        left(self.task)
        return False


add_shared(cmd, TaskKind.COMMAND)
