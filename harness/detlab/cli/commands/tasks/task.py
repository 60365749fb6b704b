"""`det task …`: user tasks of all kinds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from detlab.cli.commands.tasks.command import Follower
from detlab.cli.commands.tasks.lookup import find, task_argument
from detlab.cli.commands.tasks.options import TaskOptions, task_options
from detlab.cli.commands.tasks.shared import add_shared
from detlab.cli.commands.tasks.start import INTERRUPTED, announce, left, submit
from detlab.cli.commands.tasks.views import exit_status, state_word, tell_end
from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.experiment_progress import connection_notes
from detlab.cli.output.failures import TIMED_OUT
from detlab.cli.output.printing import clean, moment, note, say, say_json, size, table
from detlab.cli.output.progress import bar
from detlab.client.task_facts import chosen_outputs, kind_title, output_target, write_output
from detlab.client.tasks import Task
from detlab.schemas.taskwire import OutputView, TaskKind

COMMANDS = {"task": "Tasks of all kinds: list, describe, logs, wait, kill, outputs; create one over several nodes."}


@click.group(cls=LazyGroup, short={"ls": "list"})
def task() -> None:
    """Tasks of all kinds: notebooks, shells, commands, TensorBoards, cells, notebook runs.

    \b
    Examples:
      det task list
      det task logs ID -f
      det task outputs ID -o results/
    """


add_shared(task, None)


@task.command()
@click.argument("config", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("model_dir", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--entrypoint", metavar="TEXT", help="The command, run by the shell on each node.")
@task_options(code=True)
@click.option("-f", "--follow", is_flag=True, help="Show its output until it has ended; its exit code is this one's.")
@json_option
@pass_invocation
def create(
    invocation: Invocation,
    config: Path | None,
    model_dir: Path | None,
    entrypoint: str | None,
    options: TaskOptions,
    follow: bool,
) -> int:
    """Create a task that is no experiment: a command whose slots may be on several nodes.

    The command is started once on each of its nodes, as that of a trial is: detlab.launch.torch_distributed makes a
    process for each slot of it. CONFIG is YAML (entrypoint, resources.slots, environment …), MODEL_DIR the folder that
    becomes its working folder. A node that fails ends the others.

    \b
    Examples:
      det task create task.yaml code/
      det task create --slots 4 --context code/ \\
        --entrypoint 'python3 -m detlab.launch.torch_distributed convert.py' -f
      det task create task.yaml -c resources.is_single_node=true
    """
    if config is not None and options.config_file is not None:
        raise click.UsageError("CONFIG and --config-file name the same thing: give one of them")
    if model_dir is not None and options.context is not None:
        raise click.UsageError("MODEL_DIR and --context name the same thing: give one of them")
    chosen = replace(
        options,
        config_file=options.config_file if config is None else str(config),
        context=options.context if model_dir is None else model_dir,
        spread=True,
    )
    item = submit(invocation, TaskKind.COMMAND, chosen, bundle=chosen.bundle(), entrypoint=entrypoint)
    if follow:
        status = Follower(item, quiet=invocation.as_json).to_the_end()
        if invocation.as_json:
            say_json(item.view)
        return status
    if not invocation.answered(item.view):
        announce(item)
    return 0


@task.command()
@task_argument()
@click.option("--timeout", type=float, metavar="SECONDS", help="Seconds until it gives up waiting (exit status 5).")
@json_option
@pass_invocation
def wait(invocation: Invocation, task_id: str, timeout: float | None) -> int:
    """Wait for a task to end.

    The exit status is the task's, or 3 if it was killed, 4 if it failed without one, 5 after the timeout. Ctrl-C stops
    waiting, not the task.

    \b
    Example:
      det task wait ID && det task outputs ID -o results/
    """
    item = find(invocation, task_id)
    try:
        item.wait(timeout, notice=connection_notes(what=f"task {clean(item.id)}"))
    except KeyboardInterrupt:
        left(item)
        return INTERRUPTED
    except TimeoutError as error:
        if invocation.as_json:
            say_json(item.view)
        note(f"{clean(error)}; it continues")
        return TIMED_OUT
    if not invocation.answered(item.view):
        tell_end(item.view, tail=True)
        if exit_status(item.view) == 0:
            say(clean(f"{kind_title(item.kind)} {item.id}: {state_word(item.view)}."))
    return exit_status(item.view)


@task.command()
@task_argument()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "-o",
    "--output-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Download them into DIR; by default they are only listed.",
)
@csv_option
@json_option
@pass_invocation
def outputs(invocation: Invocation, task_id: str, names: tuple[str, ...], output_dir: Path | None) -> None:
    """List or download the output files of a task.

    For example an executed notebook, or the result of a cell. Every file is verified by its digest.

    \b
    Examples:
      det task outputs ID
      det task outputs ID -o results/
      det task outputs ID report.ipynb -o .
    """
    item = find(invocation, task_id)
    chosen = chosen_outputs(item.id, item.outputs(), names)
    if output_dir is not None:
        _download(invocation, item, chosen, output_dir)
    elif invocation.as_json:
        say_json(chosen)
    elif not chosen and not invocation.as_csv:
        say("No outputs yet." if not item.state.terminal else "No outputs.")
    else:
        rows = [(output.name, size(output.size), moment(output.updated_at), output.digest[:19]) for output in chosen]
        table(("Name", "Size", "Written", "Digest"), rows, right=("Size",))


def _download(invocation: Invocation, item: Task, chosen: list[OutputView], folder: Path) -> None:
    targets = [output_target(folder, output) for output in chosen]
    done = 0
    with bar("Outputs", quiet=invocation.as_json) as progress:
        for target, output in zip(targets, chosen, strict=True):
            write_output(target, output, item.read_output(output))
            done += output.size
            if progress is not None:
                progress(done, sum(each.size for each in chosen))
    if invocation.as_json:
        say_json([{"name": output.name, "path": str(target)} for target, output in zip(targets, chosen, strict=True)])
        return
    for target in targets:
        say(clean(target))
    if not targets:
        say("No outputs.")
