"""`det experiment create`, and following the new experiment until it ends."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from detlab.cli.commands.projects.options import one_line, project_of, project_option, workspace_option
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.experiment_progress import (
    Story,
    connection_notes,
    ended,
    exit_status,
    stopped_watching,
    tell_waiting,
)
from detlab.cli.output.failures import problem_line
from detlab.cli.output.logs import LogOptions, follow_lines
from detlab.cli.output.printing import clean, counted, note, say, say_json, size
from detlab.cli.output.progress import bar
from detlab.client.bundling.bundle import Bundle
from detlab.client.client import Submitted
from detlab.client.facts import NO_GROUP, settled
from detlab.client.resources import Experiment
from detlab.client.submission import ConfigSource, config_mapping, config_text, merged, pack, set_key, template_name
from detlab.errors import ConfigError, DetlabError
from detlab.pasted import word
from detlab.schemas.wire import CostView, ForecastView

SHOWN_FILES = 10


@click.command()
@click.argument("config", metavar="CONFIG")
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option(
    "-f",
    "--follow",
    "--follow-first-trial",
    "following",
    is_flag=True,
    help="Follow the experiment until it ends; exit 0 only on COMPLETED.",
)
@click.option("--paused", is_flag=True, help="Create the experiment without starting it.")
@click.option(
    "-i",
    "--include",
    "includes",
    multiple=True,
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="A further file or directory, placed at the top of the code (repeatable).",
)
@click.option(
    "--config", "overrides", multiple=True, metavar="K=V", help="Set a key: searcher.max_trials=4 (repeatable)."
)
@click.option("--name", metavar="TEXT", help="Set the experiment's name.")
@workspace_option("The workspace that it is to lie in, whose members see it.")
@project_option("The project of it, or of your personal one.")
@click.option(
    "--template",
    metavar="NAME",
    help="A template of the master (det template list), or a file, under CONFIG, which takes precedence; '' for none.",
)
@click.option("--dry-run", is_flag=True, help="Let the master validate it; no experiment is created.")
@json_option
@pass_invocation
def create(
    invocation: Invocation,
    *,
    config: str,
    directory: Path | None,
    following: bool,
    paused: bool,
    includes: tuple[Path, ...],
    overrides: tuple[str, ...],
    name: str | None,
    workspace: str | None,
    project: str | None,
    project_id: int | None,
    template: str | None,
    dry_run: bool,
) -> int:
    """Submit the experiment that CONFIG describes, with the code in DIR.

    CONFIG is a YAML file (`-` for standard input). The content of DIR becomes the working directory of the
    trials; `.detignore` in it (gitignore syntax) lists what is left out. Nothing is submitted if the config has errors:
    each is printed as `path: message`, and the exit status is 2.

    \b
    Examples:
      det experiment create search.yaml code/
      det e create search.yaml code/ -f
      det e create search.yaml code/ --config searcher.max_trials=4 --name small
      det e create search.yaml code/ -w ada/vision --project digits
      det e create search.yaml code/ --template cluster:a100
      det e create search.yaml code/ --dry-run
    """
    keys = {"name": name, "workspace": workspace, "project": project_of(project, project_id)}
    named = template_name(template)
    raw = _config(
        config,
        template if named is None else None,
        overrides,
        {key: text for key, text in keys.items() if text is not None},
    )
    _check(raw, config)
    bundle = pack(directory, includes)
    quiet = invocation.as_json
    if bundle is not None and not quiet:
        _list_files(bundle)
    with bar("Uploading code", quiet=quiet) as progress:
        submitted = invocation.client.submit(
            raw,
            bundle=bundle,
            template=named,
            activate=not paused,
            dry_run=dry_run,
            source={"client": "det experiment create", "config_file": clean(config)},
            progress=progress,
        )
    for warning in submitted.warnings:
        note(problem_line(warning))
    for one in submitted.given:
        note(clean(f"{one.path}: {one_line(one.value)} (from {one.source})"))
    if invocation.as_json:
        say_json(_as_json(submitted))
    elif submitted.experiment is None:
        say(f"The master accepts it. {_forecast(submitted.forecast)}".rstrip())
        _say_cost(submitted.cost)
    else:
        _announce(submitted, paused=paused, following=following)
    if following and submitted.experiment is not None:
        return _follow(submitted, quiet=quiet)
    return 0


def _forecast(told: ForecastView | None) -> str:
    """Describe when and where the first trial would start, according to a dry run; return "" if unknown."""
    if told is None:
        return ""
    if told.agent_id is not None:
        return f"Its first trial would start now on agent {clean(told.agent_id)} of pool {clean(told.pool)}."
    return f"Its first trial would wait in pool {clean(told.pool)}: {clean(told.detail)}"


def _say_cost(cost: CostView | None) -> None:
    if cost is None:
        return
    money = f" {clean(cost.currency)}" if cost.currency else ""
    hourly = "" if cost.per_hour is None else f"up to {cost.per_hour:.2f}{money} an hour, "
    most = "no limit in all" if cost.at_most is None else f"at most {cost.at_most:.2f}{money} in all"
    say(f"Cost: {hourly}{most} ({cost.price:g}{money} for a slot-hour in pool {clean(cost.pool)}).")


def _follow(submitted: Submitted, *, quiet: bool) -> int:
    assert submitted.experiment is not None
    if not quiet:
        return follow(submitted.experiment)
    try:
        submitted.experiment.wait(notice=connection_notes())
        return exit_status(submitted.experiment)
    except KeyboardInterrupt:
        stopped_watching(submitted.experiment.id)
        return 130


def _config(config: str, template: str | None, overrides: tuple[str, ...], keys: dict[str, str]) -> ConfigSource:
    """Return the raw config; a file that nothing changes is sent as its own text, for the master to quote."""
    # With a line break it is no name of a file, also where it is JSON on one line.
    source: ConfigSource = f"{sys.stdin.read() if config == '-' else config_text(Path(config))}\n"
    if not (template or overrides or keys):
        return source
    raw = merged(source, Path(template)) if template else config_mapping(source, _shown(config))
    for override in overrides:
        set_key(raw, override)
    raw.update(keys)
    return raw


def _check(raw: ConfigSource, config: str) -> None:
    """Refuse an invalid config before any code is packed and sent."""
    from detlab.schemas.expconf import check, errors_of, load_yaml

    mapping = config_mapping(raw, _shown(config))
    empty = not mapping and isinstance(raw, str) and load_yaml(raw, _shown(config))[0] is None
    problems = check(None if empty else mapping)
    count = len(errors_of(problems))
    if count:
        headline = f"{_shown(config)} has {counted(count, 'error')}"
        raise ConfigError(problems, headline, hint=f"Check it without submitting: det config check {word(config)}")


def _shown(config: str) -> str:
    return "standard input" if config == "-" else config


def _list_files(bundle: Bundle) -> None:
    count = len(bundle.files)
    say(f"Code: {count} file{'' if count == 1 else 's'}, {size(bundle.size)} ({bundle.digest[:19]}…)")
    largest = sorted(bundle.files, key=lambda file: (-file.size, file.path))
    shown = sorted(largest[:SHOWN_FILES], key=lambda file: file.path)
    for file in shown:
        say(f"  {clean(file.path)}  {size(file.size)}")
    if count > SHOWN_FILES:
        say(f"  … and {counted(count - SHOWN_FILES, 'smaller one')}")
    for path in bundle.replaced:
        note(f"warning: {clean(path)} of the directory was replaced by an include of that name")


def _announce(submitted: Submitted, *, paused: bool, following: bool) -> None:
    experiment = submitted.experiment
    assert experiment is not None
    number = experiment.id
    say(f"Created experiment {number}" if submitted.created else f"Experiment {number} exists already")
    _say_cost(submitted.cost)
    if following:
        return
    if paused:
        say(f"  → start it:    det experiment activate {number}")
    say(f"  → follow it:   det experiment wait {number}")
    say(f"  → look at it:  det experiment describe {number}")


def _as_json(submitted: Submitted) -> dict[str, Any]:
    bundle = submitted.bundle
    return {
        "experiment": submitted.experiment.view if submitted.experiment else None,
        "created": submitted.created,
        "warnings": submitted.warnings,
        "config": submitted.config,
        "forecast": submitted.forecast,
        "given": list(submitted.given),
        "cost": submitted.cost,
        "bundle": (
            {"digest": bundle.digest, "files": [{"path": file.path, "size": file.size} for file in bundle.files]}
            if bundle
            else None
        ),
    }


def follow(experiment: Experiment) -> int:
    """Follow an experiment until it has ended, or is paused because of a failure; return the exit status.

    An interrupt stops following only.
    """
    try:
        if experiment.view.trials_total == 1 and experiment.view.searcher != "custom":  # whose class may fail
            _output(experiment)
        else:
            _story(experiment)
        experiment.wait(notice=connection_notes())
    except KeyboardInterrupt:
        stopped_watching(experiment.id)
        return 130
    return ended(experiment)


def _output(experiment: Experiment) -> None:
    try:
        trial = experiment.await_first_trial()
    except DetlabError:
        if settled(experiment.reload().view):  # it ended without a trial, which the summary tells
            return
        raise
    tell_waiting(experiment, (1.0, 2.0))
    follow_lines(trial, LogOptions(follow=True), as_json=False, prefixed=False, after=None)


def _story(experiment: Experiment) -> None:
    story = Story()
    # Without curves and metrics: their number has no bound, that of the lines printed here has.
    for item in experiment.watch(group=NO_GROUP, max_trials=10_000, notice=connection_notes()):
        for line in story.of(item):
            say(line)
        if settled(experiment.view):
            break
