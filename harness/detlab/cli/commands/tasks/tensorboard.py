"""`det tensorboard …`."""

from __future__ import annotations

import click

from detlab.cli.commands.tasks.options import TaskOptions, task_options
from detlab.cli.commands.tasks.shared import add_open, add_shared
from detlab.cli.commands.tasks.start import start_server
from detlab.cli.completion import experiment_ids
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.schemas.taskwire import TaskKind

COMMANDS = {"tensorboard": "TensorBoards of experiments: start, open, list, kill."}


@click.group(cls=LazyGroup, short={"ls": "list"})
def tensorboard() -> None:
    """TensorBoards of experiments and trials, under the Hub's login.

    \b
    Examples:
      det tensorboard start 7
      det tb list
    """


@tensorboard.command()
@click.argument("experiment_ids", metavar="[EXPERIMENT]...", type=int, nargs=-1, shell_complete=experiment_ids)
@click.option("-t", "--trial", "trial_ids", type=int, multiple=True, metavar="ID", help="A single trial (repeatable).")
@task_options(idle=True)
@click.option(
    "--wait/--detach", " /-d", default=True, help="Wait until it is running (the default), or only submit it."
)
@click.option(
    "--no-open", "--no-browser", "no_open", is_flag=True, help="Do not open the browser; only print the address."
)
@json_option
@pass_invocation
def start(
    invocation: Invocation,
    options: TaskOptions,
    experiment_ids: tuple[int, ...],
    trial_ids: tuple[int, ...],
    wait: bool,
    no_open: bool,
) -> int:
    """Show the metrics of experiments and trials in TensorBoard, during training and after.

    \b
    Examples:
      det tensorboard start 7
      det tensorboard start 7 8 --no-open
      det tensorboard start --trial 31 --trial 32
    """
    if not experiment_ids and not trial_ids:
        raise click.UsageError("name an experiment or a trial: det tensorboard start 7, or --trial 31")
    for number in experiment_ids:  # asked for by hand so that an unknown one is told before anything starts
        invocation.client.get_experiment(number)
    for number in trial_ids:
        invocation.client.get_trial(number)
    return start_server(
        invocation,
        TaskKind.TENSORBOARD,
        options,
        detach=not wait,
        browse=not no_open,
        experiment_ids=experiment_ids,
        trial_ids=trial_ids,
    )


add_shared(tensorboard, TaskKind.TENSORBOARD)
add_open(tensorboard, TaskKind.TENSORBOARD)
