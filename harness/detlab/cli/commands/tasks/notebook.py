"""`det notebook …`."""

from __future__ import annotations

from importlib.util import find_spec

import click

from detlab.cli.commands.tasks.options import TaskOptions, task_options
from detlab.cli.commands.tasks.shared import add_open, add_shared
from detlab.cli.commands.tasks.start import start_server
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.loading import Lazy, LazyGroup
from detlab.schemas.taskwire import TaskKind

COMMANDS = {"notebook": "Notebooks: start, run, open, list, logs, kill."}

_RUN = {
    "run": Lazy(
        "Run a whole notebook as a task and store the executed one.", "detlab.cli.commands.tasks.notebook_run:run"
    )
}


@click.group(
    cls=LazyGroup,
    short={"ls": "list"},
    lazy=_RUN if find_spec("detlab.cli.commands.tasks.notebook_run") is not None else None,
)
def notebook() -> None:
    """Notebooks: Jupyter servers on the cluster, as named servers of the Hub.

    \b
    Examples:
      det notebook start
      det notebook list
      det nb open ID
    """


@notebook.command()
@task_options(idle=True, code=True)
@click.option(
    "--wait/--detach", " /-d", default=True, help="Wait until it is running (the default), or only submit it."
)
@click.option(
    "--no-open", "--no-browser", "no_open", is_flag=True, help="Do not open the browser; only print the address."
)
@json_option
@pass_invocation
def start(invocation: Invocation, options: TaskOptions, wait: bool, no_open: bool) -> int:
    """Start a notebook, show its progress, then print its address and open it.

    By default it holds no slots: cells borrow them (%%det_run, %%det_experiment), so an idle notebook does not block a
    GPU. Ctrl-C stops waiting, not the notebook. Files in its home are kept.

    \b
    Examples:
      det notebook start
      det notebook start --slots 1 --image registry.example/torch:2.10
      det notebook start --name analysis -c idle_timeout=2h --no-open
      det notebook start --context code/ -i data/labels.csv
      det notebook start --image registry.example/torch:2.10 -v /data:/data:ro
      det notebook start -w ada/vision --project digits
      det notebook start --config-file notebook.yaml --detach
    """
    return start_server(
        invocation,
        TaskKind.NOTEBOOK,
        options,
        detach=not wait,
        browse=not no_open,
        bundle=options.bundle(),
    )


add_shared(notebook, TaskKind.NOTEBOOK)
add_open(notebook, TaskKind.NOTEBOOK)
