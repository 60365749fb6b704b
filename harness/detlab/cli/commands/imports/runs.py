"""`det import …`: runs, files and models of MLflow and W&B."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import reduce
from typing import Any, TypeVar

import click

from detlab.cli.commands.projects.options import project_of, project_option, workspace_option
from detlab.cli.invocation import Invocation, json_option, pass_invocation

COMMANDS = {"import": "Copy runs, files and models from MLflow or W&B."}
F = TypeVar("F", bound=Callable[..., Any])


@click.group(name="import")
def import_() -> None:
    """Copy runs, their files and models from another tracking system into yours.

    What is there already is not copied twice: an import that was stopped goes on when it is run again, and runs that
    have gone on since get what is new.

    \b
    Examples:
      det import mlflow https://mlflow.example.org --dry-run
      det import mlflow mlruns/ -w vision
      det import wandb wandb/ --project digits
    """


def _options(function: F) -> F:
    options: list[Callable[[Any], Any]] = [
        workspace_option("The workspace that they are to lie in, whose members see them. Default: your personal one."),
        project_option("The project for all of them. Default: one of the name of each experiment."),
        click.option("--no-files", is_flag=True, help="Leave out files and models."),
        click.option("--dry-run", is_flag=True, help="Only list what would be copied."),
        click.option("--workers", type=click.IntRange(1, 16), default=6, show_default=True, help="Runs at a time."),
        json_option,
        pass_invocation,
    ]
    return reduce(lambda made, option: option(made), reversed(options), function)


_EXPERIMENTS = "Only this experiment, by its name or id; repeat it."
_PROJECTS = "Only this project of W&B; repeat it."


@import_.command()
@click.argument("source")
@click.option("--experiment", "experiments", multiple=True, metavar="NAME", help=_EXPERIMENTS)
@_options
def mlflow(invocation: Invocation, source: str, **given: Any) -> None:
    """Copy what MLflow has: SOURCE is the address of a tracking server, or a folder mlruns/.

    Experiments become projects; runs keep their parameters, metrics with steps and times, tags, data sets, files and
    logged models; registered models keep their versions, and their aliases and stages as labels. MLflow need not be
    installed. A user and password, or a token, for the server are taken from the variables that MLflow itself has:
    MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN; if MLFLOW_TRACKING_URI is set,
    only for the server that it names.

    \b
    Examples:
      det import mlflow https://mlflow.example.org --dry-run
      det import mlflow http://127.0.0.1:5000 -w vision --experiment cifar --experiment digits
      det import mlflow mlruns/
    """
    from detlab.importers.importing import mlflow_source

    def opened(left_out: Any, options: Any) -> Any:
        token = invocation.client.address.token
        return mlflow_source(source, left_out, file_bytes=options.file_bytes, others_token=token)

    _import(invocation, opened, **given)


@import_.command()
@click.argument("folder", type=click.Path())
@click.option(
    "--from-project", "experiments", multiple=True, metavar="NAME", help="Only this project of W&B; repeat it."
)
@_options
def wandb(invocation: Invocation, folder: str, **given: Any) -> None:
    """Copy runs that W&B's client has written: FOLDER is wandb/, where offline-run-… and run-… lie.

    Projects stay projects; the config becomes parameters, rows become metrics with their steps and times, with system
    metrics and what only the summary has; files of a run are copied. Media and artifacts of W&B are left out and
    counted. W&B need not be installed, and no account is asked.

    \b
    Examples:
      WANDB_MODE=offline python train.py
      det import wandb wandb/ --dry-run
      det import wandb wandb/offline-run-20270114_101500-k2x9ab4c -w vision --project digits
    """
    from detlab.importers.importing import wandb_source

    _import(invocation, lambda left_out, _: wandb_source(folder, left_out), **given)


def _import(
    invocation: Invocation,
    opened: Callable[[Any, Any], Any],
    *,
    experiments: tuple[str, ...],
    workspace: str | None,
    project: str | None,
    project_id: int | None,
    no_files: bool,
    dry_run: bool,
    workers: int,
) -> None:
    from detlab.cli.commands.imports.printing import print_report
    from detlab.cli.output.progress import counting_bar
    from detlab.client.transport.interrupts import short_interrupts
    from detlab.importers.copying import CopyOptions
    from detlab.importers.importing import run_import
    from detlab.importers.left_out import LeftOut

    options = CopyOptions(files=not no_files, dry=dry_run, only=experiments, workers=workers)
    named, left_out = project_of(project, project_id), LeftOut()
    client = invocation.client
    if project_id is not None:
        named = client.get_project(workspace or "Uncategorized", project_id).name
    source = opened(left_out, options)
    stopped = "stopped; the same command goes on from here"
    try:
        with (
            short_interrupts(stopped),
            counting_bar("Looking" if dry_run else "Copying", quiet=invocation.as_json) as bar,
        ):
            report = run_import(
                client, source, left_out, options, workspace=workspace or "", project=named or "", progress=bar
            )
    finally:
        source.close()
    if not invocation.answered(report.to_dict()):
        print_report(report)
    if report.failures:
        sys.exit(1)
