"""`det experiment fork | continue | retry`: what begins from an earlier experiment, or goes on with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from detlab.cli.commands.experiment_create import follow
from detlab.cli.commands.projects.options import one_line, project_of, project_option, workspace_option
from detlab.cli.completion import experiment_ids
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.failures import problem_line
from detlab.cli.output.printing import clean, note, say
from detlab.client.operations import experiments as operations
from detlab.client.resources import Experiment
from detlab.client.submission import added_keys, config_mapping, fork_of, merged, pack, parsed, put

_CONFIG = click.option(
    "--config", "overrides", multiple=True, metavar="K=V", help="Change a key: searcher.max_trials=4 (repeatable)."
)


@click.command()
@click.argument("experiment_id", metavar="ID", type=int, shell_complete=experiment_ids)
@click.option("-e", "--edit", is_flag=True, help="Open the config in your editor first.")
@_CONFIG
@click.option("--config-file", metavar="FILE", help="A config whose keys take precedence over the earlier ones.")
@click.option(
    "--code", "directory", metavar="DIR", type=click.Path(path_type=Path), help="Run this code instead of the same."
)
@click.option(
    "-i", "--include", "includes", multiple=True, metavar="PATH", type=click.Path(path_type=Path),
    help="With --code: a further file or directory, placed at the top of the code (repeatable).",
)  # fmt: skip
@click.option("--name", metavar="TEXT", help="Another name.")
@workspace_option("The workspace that it is to lie in; default: beside the earlier one, if you may change that.")
@project_option("The project of it, or of your personal one.")
@click.option("--warm-start", is_flag=True, help="Start from the results of its trials; for methods that have a model.")
@click.option("--paused", is_flag=True, help="Do not start it.")
@click.option("--dry-run", is_flag=True, help="Let the master validate it; no experiment is created.")
@click.option("-f", "--follow", "following", is_flag=True, help="Follow it until it ends; exit 0 only on COMPLETED.")
@json_option
@pass_invocation
def fork(
    invocation: Invocation,
    *,
    experiment_id: int,
    edit: bool,
    overrides: tuple[str, ...],
    config_file: str | None,
    directory: Path | None,
    includes: tuple[Path, ...],
    name: str | None,
    workspace: str | None,
    project: str | None,
    project_id: int | None,
    warm_start: bool,
    paused: bool,
    dry_run: bool,
    following: bool,
) -> int:
    """Begin another experiment with the config and the code of an earlier one, but for what you change.

    Secrets of the config go along if the earlier experiment is yours; those of others are not given away.

    \b
    Examples:
      det experiment fork 7 --config hyperparameters.lr=0.01 --name slower
      det e fork 7 -e
      det e fork 7 --code code/ -f
      det e fork 7 -w ada/vision --config searcher.max_trials=50 --warm-start
    """
    earlier = invocation.client.get_experiment(experiment_id)
    wanted: dict[str, Any] = {
        "bundle": pack(directory, includes),
        "name": name,
        "workspace": workspace,
        "project": project_of(project, project_id),
        "warm_start": warm_start,
        "activate": not paused,
        "dry_run": dry_run,
        "source": {"client": "det experiment fork"},
    }
    changes = dict(parsed(one) for one in overrides)
    made = fork_of(earlier.view, {} if config_file else changes, **wanted)
    if config_file or edit:
        config = dict(made.config) if isinstance(made.config, dict) else {}
        if config_file:
            config = merged(Path(config_file), config)
            given = {key: wanted[key] for key in ("name", "workspace", "project") if wanted[key] is not None}
            for path, value in {**given, **changes}.items():
                put(config, path, value)
        again = {**wanted, "name": None, "workspace": None, "project": None, "warm_start": False}
        made = fork_of(earlier.view, {}, config=_edited(config) if edit else config, **again)
    reply = invocation.client.session.run(operations.submit(made))
    for said in added_keys(earlier.config or {}, made.config if isinstance(made.config, dict) else {}):
        note(clean(said))
    for warning in reply.warnings:
        note(problem_line(warning))
    for one in reply.given:
        note(clean(f"{one.path}: {one_line(one.value)} (from {one.source})"))
    if invocation.as_json:
        invocation.answered(reply)
    elif reply.experiment is None:
        say("The master accepts it.")
    else:
        number = reply.experiment.id
        say(f"Created experiment {number}, a fork of experiment {experiment_id}")
        if paused:
            say(f"  → start it:    det experiment activate {number}")
        if not following:
            say(f"  → follow it:   det experiment wait {number}")
            say(f"  → look at it:  det experiment describe {number}")
    if following and reply.experiment is not None:
        return follow(Experiment(invocation.client.session, reply.experiment))
    return 0


def _edited(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config as it was written in the editor.

    Raises:
        click.Abort: The editor was left without saving.
        ConfigError: What was written is no YAML.
    """
    from detlab.schemas.expconf.raw.dumping import dump_yaml  # its library is not for most commands

    text = click.edit(dump_yaml(config), extension=".yaml")
    if text is None:
        note("Nothing was saved, so that nothing is submitted.")
        raise click.Abort
    return config_mapping(f"{text}\n", "the edited config")


@click.command(name="continue")
@click.argument("experiment_id", metavar="ID", type=int, shell_complete=experiment_ids)
@click.option("--max-length", metavar="LENGTH", help="The new searcher.max_length: 40, or '{epochs: 40}'.")
@_CONFIG
@click.option("--config-file", metavar="FILE", help="The changed keys in a file.")
@click.option("--trial", "trial_ids", multiple=True, type=int, metavar="ID", help="Only this trial (repeatable).")
@click.option("--from-earlier", is_flag=True, help="Where a trial's newest checkpoint is gone, from an earlier one.")
@click.option(
    "-f",
    "--follow",
    "--follow-first-trial",
    "following",
    is_flag=True,
    help="Follow it until it ends; exit 0 only on COMPLETED.",
)
@json_option
@pass_invocation
def continue_command(
    invocation: Invocation,
    experiment_id: int,
    max_length: str | None,
    overrides: tuple[str, ...],
    config_file: str | None,
    trial_ids: tuple[int, ...],
    from_earlier: bool,
    following: bool,
) -> int:
    """Let the trials of an experiment that has ended go on from their checkpoints.

    They keep their ids, curves and hyperparameters. With a greater length all that have trained to their end go on, and
    without one those that failed, were canceled or ran out of time. What else would change is another experiment: fork
    it.

    \b
    Examples:
      det experiment continue 7 --max-length 40
      det e continue 7 --config searcher.max_time=100 -f
      det e continue 7 --config max_restarts=3
    """
    config = config_mapping(Path(config_file)) if config_file else {}
    for path, value in [parsed(one) for one in overrides]:
        put(config, path, value)
    if max_length is not None:
        put(config, "searcher.max_length", parsed(f"max_length={max_length}")[1])
    item = invocation.client.get_experiment(experiment_id)
    item.continue_(config=config, trial_ids=trial_ids, from_earlier=from_earlier)
    invocation.tell(item.view, f"Experiment {experiment_id} goes on: {item.state.value}")
    if following and not invocation.as_json:
        return follow(item)
    return 0


@click.command()
@click.argument("experiment_id", metavar="ID", type=int, shell_complete=experiment_ids)
@click.argument("trial_ids", metavar="[TRIAL...]", type=int, nargs=-1)
@json_option
@pass_invocation
def retry(invocation: Invocation, experiment_id: int, trial_ids: tuple[int, ...]) -> None:
    """Make new trials at the points of failed trials, by default of all; also after the experiment has ended.

    To let a failed trial go on from its checkpoint instead: det experiment continue.

    \b
    Examples:
      det experiment retry 7
      det e retry 7 31 32
    """
    item = invocation.client.get_experiment(experiment_id)
    item.retry_failed(trial_ids)
    invocation.tell(item.view, f"Experiment {experiment_id}: failed trials are tried again")
