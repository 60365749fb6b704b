"""`det search show | plot | clone`: an overview of a search, its figures, and a copy of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from detlab.cli.completion import experiment_ids
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.experiment_progress import budget_left, progress_line
from detlab.cli.output.failures import experiment_card
from detlab.cli.output.printing import clean, counted, facts, in_full, moment, note, say, say_json, settings, table
from detlab.cli.output.printing import show as shown
from detlab.client.submission import parsed
from detlab.errors import Conflict, DetlabError
from detlab.schemas.wire import ExperimentView, JournalEntry, StandingView

if TYPE_CHECKING:
    from detlab.client.resources import Experiment
    from detlab.viz.fronts import Objective

MOST_ACTS = 10
_ABOUT_METRIC = frozenset({"name", "metric", "metrics", "smaller_is_better", "time_metric", "budget", "results"})


ID = click.argument("experiment_id", metavar="ID", type=int, shell_complete=experiment_ids)


@click.command()
@ID
@json_option
@pass_invocation
def show(invocation: Invocation, experiment_id: int) -> None:
    """Show a search: its method, progress, best trial, remaining budget, and what users did to it.

    \b
    Examples:
      det search show 7
      det search show 7 --json | jq .experiment.budgets
    """
    item = invocation.client.get_experiment(experiment_id)
    acts = item.search_journal(acts=True)
    try:
        standing = item.search_standing()
    except Conflict as problem:  # of a long journal, or one of another version
        standing, unknown = [], problem.message
    else:
        unknown = ""
    if invocation.answered({"experiment": item.view, "standing": standing, "acts": acts}):
        return
    facts([*_facts(item.view, [one.event for one in acts]), *_front(item)])
    if lines := experiment_card(item.view):
        for line in ("", *lines):
            say(line)
    _say_standing(standing, unknown)
    if acts:
        say()
        trials = trial_numbers(item, acts)
        rows = [(one.seq, moment(one.at), one.event.get("author"), act_text(one.event, trials)) for one in acts]
        table(("Event", "When", "Who", "What"), rows[-MOST_ACTS:], right=("Event",))
    say()
    say(f"→ every decision: det search journal {experiment_id}")
    say(f"→ why trials were stopped: det search replay {experiment_id}")


def _say_standing(standing: list[StandingView], unknown: str) -> None:
    if unknown:
        say(f"Trials by rung or round are not known: {clean(unknown)}")
    if standing:
        say()
        names = list(dict.fromkeys(name for one in standing for name in one.counts))
        rows = [(one.where, *(one.counts.get(name, "") for name in names)) for one in standing]
        table(("Where", *(name.capitalize() for name in names)), rows, right=[name.capitalize() for name in names])


def _facts(view: ExperimentView, acts: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    searcher = _now((view.config or {}).get("searcher") or {}, acts)
    planned = ((view.config or {}).get("searcher") or {}).get("max_time")
    options = {key: value for key, value in searcher.items() if key not in _ABOUT_METRIC and value is not None}
    made = sum(count for state, count in view.trials.items() if state != "RUNNING")
    left = [] if view.trials_total is None else [counted(max(0, view.trials_total - made), "trial")]
    best = view.best and f"{shown(view.best.value)} ({view.best.told}, step {view.best.steps_completed})"
    aim = " and the ".join(f"{'least' if one.smaller_is_better else 'greatest'} {one.name}" for one in _aims(view))
    return [
        ("search", f"{view.id}: {view.name}"),
        ("state", view.state.value),
        ("method", f"{view.searcher}, for the {aim}" if view.metric else view.searcher),
        ("options", settings(options, 400)),
        *((("rungs", ", ".join(found)),) if (found := _rungs(searcher, planned)) else ()),
        ("progress", f"{view.progress:.0%}, {progress_line(view)}"),
        *((("failed", counted(failed, "trial")),) if (failed := view.trials.get("ERROR", 0)) else ()),
        (f"best {view.metric} so far" if len(_aims(view)) > 1 else "best so far", best or "no result yet"),
        ("left", ", ".join([*left, *map(budget_left, view.budgets)])),
    ]


def _now(searcher: Mapping[str, Any], acts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the `searcher` block as users have steered it."""
    now = dict(searcher)
    units = sum(act.get("units") or 0 for act in acts)
    more = {
        "max_trials": sum((act.get("trials") or 0) + len(act.get("points") or ()) + _retried(act) for act in acts),
        "max_time": units,
        "num_rounds": sum(math.ceil((act.get("units") or 0) / (now.get("length_per_round") or 1)) for act in acts),
    }
    now |= {key: now[key] + by for key, by in more.items() if now.get(key) is not None}
    for act in acts:
        if act.get("type") == "concurrency_set":
            now["max_concurrent_trials"] = act.get("limit") or None
    return now


def _retried(act: Mapping[str, Any]) -> int:
    return len(act.get("request_ids") or ()) if act.get("type") == "trials_retried" else 0


def _aims(view: ExperimentView) -> list[Objective]:
    """Return the objectives of a search, the searcher's own metric first."""
    from detlab.viz.fronts import Objective, objectives

    named = objectives(view.config or {})
    return named if len(named) > 1 else [Objective(view.metric, view.smaller_is_better)]


def _front(item: Experiment) -> list[tuple[str, Any]]:
    """Return the size of the Pareto front, of a search with several objectives."""
    if len(_aims(item.view)) < 2:
        return []
    front = item.pareto_front()
    more = f": det experiment describe {item.id}" if front else ""
    return [("Pareto front", f"{counted(len(front), 'trial')}{more}")]


def _rungs(searcher: Mapping[str, Any], planned: int | None) -> list[str]:
    """Return the units of the time metric at which trials are compared, if the config gives them.

    Args:
        searcher: The block as it is now: an extension moves the top rung alone.
        planned: `max_time` of the config, from which the lower rungs come.
    """
    count, divisor, longest = (searcher.get(key) for key in ("num_rungs", "divisor", "max_time"))
    if not (count and divisor and longest and planned):
        return []
    return [*(str(max(1, int(planned / divisor**rung))) for rung in range(int(count) - 1, 0, -1)), str(longest)]


def trial_numbers(item: Experiment, entries: list[JournalEntry]) -> dict[str, int]:
    """Return the ids of trials by their request ids in a journal; fetch nothing if no entry has one."""
    if not any(_named(said) for one in entries for said in (one.event, *one.decisions)):
        return {}
    return {trial.view.request_id: trial.id for trial in item.list_trials()}


def _named(event: Mapping[str, Any]) -> list[str]:
    return [*event.get("request_ids", ()), *([event["request_id"]] if "request_id" in event else [])]


def act_text(event: Mapping[str, Any], trials: Mapping[str, int]) -> str:
    """Describe what a user did to a search, from the event in its journal."""
    who = ", ".join(str(trials.get(name, name[:8])) for name in _named(event))
    match event.get("type"):
        case "extended":
            trials_more, units = event.get("trials"), event.get("units")
            parts = [counted(trials_more, "further trial")] if trials_more else []
            parts += [f"{counted(units, 'further unit')} for the longest"] if units else []
            return f"extended: {', '.join(parts)}"
        case "points_added":
            return f"points added: {'; '.join(in_full(point) for point in event.get('points') or ())}"
        case "trials_retried":
            return f"failed trials retried: {who}"
        case "reopened":
            return f"continued after its end: {who}" if who else "went on after its end"
        case "space_edited":
            return f"bounds edited: {in_full(event.get('space') or {})}"
        case "concurrency_set":
            limit = event.get("limit") or 0
            return f"concurrency: {counted(limit, 'trial')} at a time" if limit else "concurrency: no limit"
        case "stop_requested":
            return f"trial {who} stopped"
        case "promotion_requested":
            return f"trial {who} promoted{f' to {to}' if (to := event.get('to')) is not None else ''}"
    return str(event.get("type", "")).replace("_", " ")


def _kinds(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from detlab.viz.kinds import KINDS

    return [CompletionItem(name, help=kind.shows) for name, kind in KINDS.items() if name.startswith(incomplete)]


def _known(_context: click.Context, _option: click.Parameter, value: str) -> str:
    from detlab.viz.kinds import KINDS

    if value not in KINDS:
        raise click.BadParameter(f"no figure {value!r}: choose one of {', '.join(KINDS)}")
    return value


def _values(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    return dict(parsed(text) for text in given)


@click.command()
@ID
@click.argument("kind", default="best_so_far", callback=_known, shell_complete=_kinds)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="File to write: .html, .svg, .png or .json; default: search-ID-KIND.html here.",
)  # fmt: skip
@click.option(
    "--set", "options", multiple=True, metavar="K=V", callback=_values, help="An option of the figure (repeatable)."
)
@json_option
@pass_invocation
def plot(invocation: Invocation, experiment_id: int, kind: str, output: Path | None, options: dict[str, Any]) -> None:
    """Draw a figure of a search into a file; --json prints plotly's JSON instead.

    KIND is best_so_far (default), learning_curves, importance, parallel_coordinates, metric_by_hyperparameter, slice,
    contour, pareto_front, timeline or lineage. An HTML file needs no server and no network.

    \b
    Examples:
      det search plot 7
      det search plot 7 importance -o importance.svg
      det search plot 7 contour --set 'params=[lr, layers]' -o contour.html
    """
    from detlab.viz.files import write
    from detlab.viz.kinds import KINDS

    odd = [name for name in options if name not in KINDS[kind].options]
    if odd:
        raise click.UsageError(f"{kind} has no option {', '.join(odd)}; it has {', '.join(KINDS[kind].options)}")
    item = invocation.client.get_experiment(experiment_id)
    try:
        figure = item.plot(kind, **options)
        if invocation.as_json and output is None:
            say_json(figure.to_plotly_json())
            return
        path = output or Path(f"search-{experiment_id}-{kind}.html")
        write(figure, path)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        raise DetlabError(f"{path} cannot be written: {error.strerror}") from error
    invocation.tell({"path": str(path)}, f"{kind} of experiment {experiment_id}: {clean(path)}")


@click.command()
@ID
@click.option(
    "--set", "changes", multiple=True, metavar="K=V", callback=_values,
    help="Change a key of the config: searcher.max_trials=50 (repeatable).",
)  # fmt: skip
@click.option("--warm-start", is_flag=True, help="Start from the results of its trials; for methods that have a model.")
@click.option("--name", metavar="TEXT", help="Another name.")
@click.option("--paused", is_flag=True, help="Do not start it.")
@json_option
@pass_invocation
def clone(
    invocation: Invocation,
    experiment_id: int,
    changes: dict[str, Any],
    warm_start: bool,
    name: str | None,
    paused: bool,
) -> None:
    """Start another search with the same config and code.

    \b
    Examples:
      det search clone 7
      det search clone 7 --set searcher.max_trials=50 --name longer
      det search clone 7 --set searcher.name=tpe --warm-start
    """
    item = invocation.client.get_experiment(experiment_id)
    made = item.clone(changes, warm_start=warm_start, name=name, activate=not paused)
    if invocation.answered(made.view):
        return
    for warning in made.view.warnings:
        note(f"warning: {clean(warning)}")
    say(f"Created experiment {made.id}, like experiment {experiment_id}")
    if paused:
        say(f"  → start it:    det experiment activate {made.id}")
    say(f"  → follow it:   det experiment wait {made.id}")
    say(f"  → look at it:  det search show {made.id}")
