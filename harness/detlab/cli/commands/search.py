"""`det search`: steer a search while it runs, and see its decisions and their reasons."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import click

from detlab.cli.commands import search_views
from detlab.cli.commands.search_views import ID
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.experiment_progress import budgets_left
from detlab.cli.output.printing import (
    clean,
    counted,
    in_full,
    moment,
    say,
    say_json,
    settings,
    show,
    table,
)
from detlab.client.rendering import no_point
from detlab.client.resources import Experiment
from detlab.errors import ConfigError
from detlab.schemas.expconf import errors_of, load_yaml
from detlab.schemas.wire import Asked, JournalEntry, Outcome, ReplayedSearch, ReplayedTrial

COMMANDS = {"search": "Searches: extend, add points, retry, replay."}
SEEN = ("Best seen", "Reports seen")
"""Columns of `replay`: of what a search was told of a trial; one with rungs sees one report at each."""

_LONG = ("type", "author", "request_id", "points", "operations")


@click.group(cls=LazyGroup)
def search() -> None:
    """Steer searches while they run, and replay what they decided.

    \b
    Examples:
      det search show 7
      det search extend 7 --trials 20
      det search add 7 '{"lr": 0.01, "layers": 3}'
      det search replay 7 --at 40
    """


search.add_command(search_views.show)
search.add_command(search_views.plot)
search.add_command(search_views.clone)


def _steer(invocation: Invocation, experiment_id: int, done: str, act: Callable[[Experiment], None]) -> None:
    item = invocation.client.get_experiment(experiment_id)
    act(item)
    _said(invocation, item, done)


def _said(invocation: Invocation, item: Experiment, done: str) -> None:
    invocation.tell(item.view, f"Experiment {item.id}: {clean(done)}")


@search.command()
@ID
@click.option("--trials", type=click.IntRange(min=0), default=0, help="Further trials.")
@click.option(
    "--units",
    type=click.IntRange(min=0),
    default=0,
    help="Further units of the time metric for the longest trials.",
)
@json_option
@pass_invocation
def extend(invocation: Invocation, experiment_id: int, trials: int, units: int) -> None:
    """Make more trials, or train the longest ones further.

    \b
    Examples:
      det search extend 7 --trials 20
      det search extend 7 --units 10
    """
    if not trials and not units:
        raise click.UsageError("give --trials or --units")
    parts = [counted(trials, "trial") if trials else "", f"{units} units" if units else ""]
    done = f"extended by {' and '.join(part for part in parts if part)}"
    _steer(invocation, experiment_id, done, lambda item: item.extend_search(trials, units))


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _point(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> list[dict[str, Any]]:
    found = []
    for text in values:
        try:
            point = json.loads(text, parse_constant=_no_number)
        except ValueError as error:
            raise click.BadParameter(f"{text[:80]!r} is not JSON: {error}") from error
        if not isinstance(point, dict):
            raise click.BadParameter(f"{text[:80]!r} is not a mapping of hyperparameters")
        found.append(point)
    return found


@search.command()
@ID
@click.argument("points", metavar="POINT...", nargs=-1, required=True, callback=_point)
@json_option
@pass_invocation
def add(invocation: Invocation, experiment_id: int, points: list[dict[str, Any]]) -> None:
    """Add points: each becomes one of the next trials, in addition to max_trials.

    \b
    Examples:
      det search add 7 '{"lr": 0.01, "layers": 3}'
      det search add 7 '{"lr": 0.1, "layers": 1}' '{"lr": 0.001, "layers": 2}'
    """
    _steer(invocation, experiment_id, f"{counted(len(points), 'point')} added", lambda item: item.add_points(points))


@search.command()
@ID
@click.argument("folder", metavar="FOLDER", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-i", "--include", "includes", multiple=True, help="A further file or folder, put at the top.")
@json_option
@pass_invocation
def code(invocation: Invocation, experiment_id: int, folder: Path, includes: tuple[str, ...]) -> None:
    """Replace the code of a paused search, such as after a bug fix.

    For a custom search it is the code of its class: the class is restarted with it and receives all events again; its
    earlier answers stand, and trials keep their code. For every other search it is the code of the trials: each uses it
    from its next attempt on.

    \b
    Examples:
      det search code 7 . && det experiment activate 7
    """
    _steer(invocation, experiment_id, "it has new code", lambda item: item.replace_search_code(folder, includes))


@search.command()
@ID
@click.argument("name", metavar="NAME")
@json_option
@pass_invocation
def metric(invocation: Invocation, experiment_id: int, name: str) -> None:
    """Correct the name of the searcher's metric, as long as no trial has reported it.

    \b
    Example:
      det search metric 7 val_loss && det experiment activate 7
    """
    _steer(invocation, experiment_id, f"its metric is {name!r}", lambda item: item.correct_metric(name))


@search.command()
@ID
@click.argument("trial_ids", metavar="[TRIAL...]", type=int, nargs=-1)
@json_option
@pass_invocation
def retry(invocation: Invocation, experiment_id: int, trial_ids: tuple[int, ...]) -> None:
    """Make new trials at the points of failed trials, by default of all.

    \b
    Examples:
      det search retry 7
      det search retry 7 31 32
    """
    _steer(invocation, experiment_id, "failed trials are retried", lambda item: item.retry_failed(trial_ids))


@search.command()
@ID
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
@pass_invocation
def bounds(invocation: Invocation, experiment_id: int, file: Path) -> None:
    """Draw further trials from another `hyperparameters` block.

    FILE is an experiment config that has the block, or the block alone.

    \b
    Example:
      det search bounds 7 narrower.yaml
    """
    try:
        given, problems = load_yaml(file.read_text(encoding="utf-8"), file.name)
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{file} cannot be read: {error}") from error
    if mistakes := errors_of(problems):
        raise ConfigError(mistakes)
    block = given.get("hyperparameters", given) if isinstance(given, dict) else None
    if not isinstance(block, dict):
        raise click.BadParameter(f"{file} has no hyperparameters")
    _steer(
        invocation,
        experiment_id,
        "further trials have the new bounds; those that wait for slots or have begun keep theirs",
        lambda item: item.edit_bounds(block),
    )


@search.command()
@ID
@click.argument("limit", type=click.IntRange(min=0))
@json_option
@pass_invocation
def concurrency(invocation: Invocation, experiment_id: int, limit: int) -> None:
    """Change how many trials run at a time, 0 for no limit; running trials continue.

    \b
    Example:
      det search concurrency 7 8
    """
    done = f"{counted(limit, 'trial')} at a time" if limit else "any number of trials at a time"
    _steer(invocation, experiment_id, done, lambda item: item.set_concurrency(limit))


@search.command()
@ID
@click.argument("trial_id", metavar="TRIAL", type=int)
@json_option
@pass_invocation
def stop(invocation: Invocation, experiment_id: int, trial_id: int) -> None:
    """Stop a trial; what it has reported counts.

    \b
    Example:
      det search stop 7 31
    """
    _steer(invocation, experiment_id, f"trial {trial_id} is stopped", lambda item: item.stop_trial(trial_id))


@search.command()
@ID
@click.argument("trial_id", metavar="TRIAL", type=int)
@json_option
@pass_invocation
def promote(invocation: Invocation, experiment_id: int, trial_id: int) -> None:
    """Let a trial continue to the next rung although the search would stop it.

    \b
    Example:
      det search promote 7 31
    """
    item = invocation.client.get_experiment(experiment_id)
    units = item.promote_trial(trial_id)
    to = f" to {units} {item.view.time_metric or 'units'}" if units is not None else ""
    _said(invocation, item, f"trial {trial_id} is promoted{to}")


@search.command()
@ID
@click.option("--wait", type=click.FloatRange(min=0), default=60.0, metavar="SECONDS", help="Default 60.")
@click.option("--again", is_flag=True, help="Take over a trial that is being evaluated already.")
@json_option
@pass_invocation
def ask(invocation: Invocation, experiment_id: int, wait: float, again: bool) -> None:
    """Get the next trial of an unmanaged experiment, to evaluate it yourself.

    \b
    Examples:
      det search ask 7
      det search ask 7 --json | jq .trial.hyperparameters
    """
    item = invocation.client.get_search(experiment_id)
    trial = item.ask(wait, again=again)
    if invocation.as_json:
        say_json(Asked(trial=trial, over=trial is None, why="" if trial else f"it is {item.state}"))
    elif trial is None:
        say(f"Experiment {experiment_id} is {item.state}: there is nothing more to evaluate")
    else:
        where = f" (continue after step {trial.steps_completed})" if trial.steps_completed else ""
        say(f"Trial {trial.id}: {settings(trial.hyperparameters)}{where}")


def _metrics(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
    found = {}
    for text in values:
        name, equals, value = text.rpartition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text[:80]!r} is not NAME=VALUE")
        try:
            found[name] = float(value)
        except ValueError as error:
            raise click.BadParameter(f"{value[:80]!r} is not a number") from error
    return found


@search.command()
@ID
@click.argument("trial_id", metavar="TRIAL", type=int)
@click.argument("metrics", metavar="[NAME=VALUE...]", nargs=-1, callback=_metrics)
@click.option("--step", type=click.IntRange(min=0), help="How far it has trained; the trial continues.")
@click.option("--state", type=click.Choice(get_args(Outcome)), help="How it ended; default completed, without --step.")
@click.option("--message", default="", help="Why it failed.")
@json_option
@pass_invocation
def tell(
    invocation: Invocation,
    experiment_id: int,
    trial_id: int,
    metrics: dict[str, float],
    step: int | None,
    state: Outcome | None,
    message: str,
) -> None:
    """Report the result of a trial of an unmanaged experiment.

    \b
    Examples:
      det search tell 7 31 validation_loss=0.31
      det search tell 7 31 validation_loss=0.4 --step 3
      det search tell 7 32 --state failed --message "out of memory"
    """
    item = invocation.client.get_search(experiment_id)
    told = item.tell(trial_id, metrics, step=step, state=state, message=message)
    if invocation.as_json:
        say_json(told)
    elif not told.stop:
        say(f"Trial {trial_id} continues")
    else:
        how = "ended" if told.state.terminal else "stops here"
        say(f"Trial {trial_id} {how} ({told.state}){f': {clean(told.why)}' if told.why else ''}")


@search.command()
@ID
@click.option("--acts", is_flag=True, help="Only what users did to the search.")
@json_option
@pass_invocation
def journal(invocation: Invocation, experiment_id: int, acts: bool) -> None:
    """List the events of a search and the decisions each of them caused.

    \b
    Examples:
      det search journal 7
      det search journal 7 --acts
      det search journal 7 --json | jq '.[].event'
    """
    item = invocation.client.get_experiment(experiment_id)
    entries = item.search_journal(acts=acts)
    if invocation.as_json:
        say_json(entries)
    elif not entries:
        say("No events yet.")
    else:
        known = search_views.trial_numbers(item, entries)
        rows = [(one.seq, moment(one.at), _event(one, known), _author(one), _decisions(one, known)) for one in entries]
        table(("Event", "When", "What", "By", "Decided"), rows, right=("Event",))


def _event(entry: JournalEntry, known: Mapping[str, int]) -> str:
    event = entry.event
    if event.get("author"):
        return search_views.act_text(event, known)
    told = {name: value for name, value in event.items() if name not in _LONG and value not in (None, {}, "")}
    kind = str(event.get("type", "")).replace("_", " ")
    if "request_id" in event:
        who = f"trial {_trial_name(event['request_id'], known)}"
        kind = f"{who} {kind.removeprefix('trial ')}" if kind.startswith("trial ") else f"{kind} of {who}"
    return f"{kind}{': ' + in_full(told) if told else ''}"


def _trial_name(request_id: object, known: Mapping[str, int]) -> str:
    return str(known.get(str(request_id), str(request_id)[:8]))


def _author(entry: JournalEntry) -> str:
    return str(entry.event.get("author") or "")


def _decisions(entry: JournalEntry, known: Mapping[str, int]) -> str:
    """Describe decisions: those of one kind together, with the numbers of their trials."""
    by_kind: dict[str, list[str]] = {}
    for one in entry.decisions:
        kind = str(one.get("type", "")).replace("_", " ")
        trial = _trial_name(one["request_id"], known) if "request_id" in one else ""
        about = one.get("evidence") or one.get("reason") or ""
        by_kind.setdefault(kind, []).append(f"{trial}{f' ({about})' if about else ''}".strip())
    return "; ".join(_together(kind, [name for name in names if name]) for kind, names in by_kind.items())


def _together(kind: str, names: list[str]) -> str:
    plural = kind.endswith(" trial") and len(names) > 1
    return " ".join(part for part in (f"{kind}{'s' if plural else ''}", ", ".join(names)) if part)


@search.command()
@ID
@click.option("--at", type=click.IntRange(min=0), metavar="EVENT", help="Number of the event; default the newest.")
@json_option
@pass_invocation
def replay(invocation: Invocation, experiment_id: int, at: int | None) -> None:
    """Compute the state of a search at one of its events, and show why trials were stopped.

    It also shows the best trial and the remaining budgets at that event. "Best seen" is the best of the reports that
    the search has seen: one with rungs sees one at each, so a trial's own best may be better (det e list-trials). The
    master replays the search's journal; nothing is changed.

    \b
    Examples:
      det search replay 7
      det search replay 7 --at 40
    """
    item = invocation.client.get_experiment(experiment_id)
    found = item.replay_search(at)
    if invocation.answered(found):
        return
    say(_summary(found))
    if found.best:
        best = f"{item.view.metric} {show(found.best.value)}"
        say(clean(f"Best so far: {best} ({found.best.told}, step {found.best.steps_completed})"))
    if found.budgets:
        say(f"Budget: {budgets_left(found.budgets)}")
    if found.trials:
        cloned = any(one.parent for one in found.trials)
        columns = ("Trial", *(("Parent",) if cloned else ()), "State", *SEEN, "Why", "Hyperparameters")
        rows = [_trial(one, cloned=cloned) for one in found.trials]
        table(columns, rows, right=("Trial", "Parent", *SEEN))


def _summary(found: ReplayedSearch) -> str:
    when = f" ({moment(found.time)})" if found.time else ""
    made = f"{len(found.trials)} of {counted(found.trials_total, 'trial')} made, {found.progress:.0%} done"
    return f"After event {found.at} of {found.events}{when}: {made}{'; the search is over' if found.over else ''}"


def _trial(one: ReplayedTrial, *, cloned: bool) -> tuple[object, ...]:
    parent = (one.parent and one.parent.parent_id,) if cloned else ()
    return (
        one.id or f"#{one.index}",
        *parent,
        one.state,
        one.best,
        one.reports,
        one.why,
        no_point(over=one.state == "ended") if one.point_due else settings(one.hparams),
    )
