"""`det experiment …`: commands for existing experiments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from detlab.cli.commands.download import check_metric, fetch_files, metric_options, where_it_is
from detlab.cli.commands.experiment_create import create
from detlab.cli.commands.experiment_edit import archive, label_group, unarchive
from detlab.cli.commands.experiment_move import move
from detlab.cli.commands.experiment_share import share
from detlab.cli.commands.experiment_steering import steering
from detlab.cli.commands.experiments.batches import IDS, act_on_many, chosen, many_options
from detlab.cli.commands.experiments.forking import continue_command, fork, retry
from detlab.cli.commands.finding.comparison import compare
from detlab.cli.commands.finding.finding import (
    USUAL,
    beside,
    column_option,
    filter_hints,
    filter_option,
    named_view,
    parquet_option,
    shown_values,
    sort_option,
    view_option,
)
from detlab.cli.commands.log_retention import kept_for, set_group
from detlab.cli.commands.projects.options import place_words, project_of, project_option, workspace_option
from detlab.cli.commands.shared.queue_settings import add_to
from detlab.cli.commands.storage.collection import gc
from detlab.cli.completion import experiment_ids
from detlab.cli.invocation import Invocation, confirmed, csv_option, json_option, pass_invocation, yes_option
from detlab.cli.loading import LazyGroup
from detlab.cli.output.experiment_progress import (
    budgets_left,
    connection_notes,
    ended,
    exit_status,
    progress_line,
    stopped_watching,
    tell_waiting,
)
from detlab.cli.output.failures import TIMED_OUT, OneByOne, experiment_card
from detlab.cli.output.logs import LogOptions, log_options, print_experiment_logs
from detlab.cli.output.printing import (
    Shown,
    clean,
    counted,
    duration,
    facts,
    hidden_note,
    moment,
    note,
    say,
    say_json,
    say_yaml,
    settings,
    show,
    size,
    table,
    wants_csv,
)
from detlab.cli.output.trial_metrics import MetricColumns, metric_columns, metric_option
from detlab.client.facts import TrialMetrics, diverged, no_checkpoint, without_result
from detlab.client.ordering import CheckpointState, ExperimentSortBy, OrderBy, TrialSortBy
from detlab.client.rendering import no_point
from detlab.client.resources import Checkpoint, Experiment, Trial
from detlab.client.tabular import (
    EXPERIMENT_COLUMNS,
    TRIAL_COLUMNS,
    csv_text,
    experiment_rows,
    trial_rows,
    write_parquet,
)
from detlab.schemas.wire import ExperimentState, ExperimentView, TrialView
from detlab.schemas.wire.searches import level_of

COMMANDS = {"experiment": "Experiments: create, list, describe, logs, wait, …"}

_DIRECTIONS = click.Choice([order.value for order in OrderBy], case_sensitive=False)

SHORT = {"ls": "list", "lt": "list-trials", "lc": "list-checkpoints", "unpause": "activate"}


@click.group(cls=LazyGroup, short=SHORT)
def experiment() -> None:
    """Experiments: submit, watch and control them, download their results.

    \b
    Examples:
      det experiment create search.yaml code/ -f
      det e list
      det e logs 7 --tail 50
    """


experiment.add_command(create)
experiment.add_command(share)
experiment.add_command(set_group)
add_to(set_group)
experiment.add_command(label_group)
experiment.add_command(archive)
experiment.add_command(gc)
experiment.add_command(compare)
experiment.add_command(move)
experiment.add_command(unarchive)
experiment.add_command(fork)
experiment.add_command(continue_command)
experiment.add_command(retry)


@experiment.command(name="list")
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number to list.")
@click.option("--state", type=click.Choice([state.value for state in ExperimentState], case_sensitive=False))
@click.option("--owner", metavar="USER", help="Only this user's (administrators see all users').")
@click.option("--name", metavar="TEXT", help="Only those with this text in their name.")
@click.option("--label", "labels", multiple=True, metavar="LABEL", help="Only those with this label (repeatable).")
@workspace_option("Only those that lie in this workspace.")
@project_option("Only those of this project of it, or of your personal one.")
@click.option("-a", "--all", "every", is_flag=True, help="All of them, archived ones, too.")
@click.option("--archived", is_flag=True, help="Only the archived ones.")
@filter_option
@column_option
@sort_option
@view_option
@parquet_option
@click.option("--sort-by", type=click.Choice([key.name for key in ExperimentSortBy], case_sensitive=False))
@click.option("--order-by", type=_DIRECTIONS, default="asc", help="With --sort-by: asc or desc.")
@csv_option
@json_option
@pass_invocation
def list_command(
    invocation: Invocation,
    limit: int,
    state: str | None,
    owner: str | None,
    name: str | None,
    labels: tuple[str, ...],
    workspace: str | None,
    project: str | None,
    project_id: int | None,
    every: bool,
    archived: bool,
    filter_: str,
    columns: tuple[str, ...],
    sort: tuple[str, ...],
    view_name: str | None,
    parquet: Path | None,
    sort_by: str | None,
    order_by: str,
) -> None:
    """List experiments, newest first, without archived ones.

    Metrics and hyperparameters in a filter are those of the best trial; det trial search --help says what it may be.

    \b
    Examples:
      det experiment list
      det e list --filter 'accuracy > 0.9 and created > -7d and label = paper' --sort -accuracy -c accuracy -c hp.lr
      det e list --state ACTIVE --label speech
      det e list -w ada/vision --project digits
      det e list --all --csv > experiments.csv
      det e list --json | jq '.[].id'
    """
    if view_name is not None:
        view = named_view(invocation, view_name, "experiments")
        filter_, columns = filter_ or view.filter, columns or tuple(view.columns)
        sort = sort or (() if sort_by else tuple(view.sort))
    asked: dict[str, Any] = {
        "sort_by": ExperimentSortBy[sort_by.upper()] if sort_by else None,
        "order_by": order_by.lower(),
        "labels": labels or None,
        "limit": None if every else limit,
        "state": state.upper() if state else None,
        "owner": owner,
        "name": name,
        "archived": True if archived else None if every else False,
        "filter": filter_,
        "sort": sort,
        "columns": columns,
        "workspace": workspace,
        "project": project_of(project, project_id),
    }
    found = invocation.client.list_experiments(**asked)
    if parquet is not None:
        write_parquet(parquet, experiment_rows((item.view for item in found), columns), (*EXPERIMENT_COLUMNS, *columns))
        note(f"{counted(len(found), 'experiment')} written to {clean(parquet)}")
        return
    if invocation.answered([item.view for item in found]):
        return
    if not found and not invocation.as_csv:
        for said in filter_hints(invocation, filter_):
            note(said)
        hidden = [] if archived or every else invocation.client.list_experiments(**{**asked, "archived": True})
        if said := hidden_note(len(hidden), "experiment", limit):
            say(said)
            return
        filtered = state or owner or name or labels or archived or filter_ or workspace or project or project_id
        say("No experiments match." if filtered else "No experiments yet. Try: det experiment create CONFIG DIR")
        return
    places = beside(columns, USUAL if view_name and not invocation.as_csv else ())
    titles = ("ID", "Name", "Owner", "State", "Progress", "Trials", "Best", "Started", "Took")
    table(
        (*titles, *(columns[at] for at in places)),
        [(*_row(item.view), *shown_values(columns, item.view.values, places)) for item in found],
        right=("ID", "Progress", "Best"),
    )


def _state(view: ExperimentView) -> str:
    """Return the state of an experiment for a list."""
    if view.state is ExperimentState.DELETING and view.deletion is not None and view.deletion.failure:
        return f"{view.state.value} (failed, det e describe {view.id})"
    how = " (no result)" if without_result(view) else " (diverged)" if diverged(view) else ""
    told = f"{view.state.value}{how}"
    return f"{told} (archived)" if view.archived_at else told


def _with_reason(view: ExperimentView) -> str:
    """Return the state of an experiment; of one that completed without a result, or diverged, with the reason."""
    if missed := without_result(view):
        return f"{view.state.value}, but without a result: {missed}"
    late = diverged(view)
    return f"{view.state.value}, but {late}" if late else view.state.value


def _row(view: ExperimentView) -> tuple[object, ...]:
    span = "" if view.took is None else duration(view.took)
    failed = " (trial failed)" if view.best and view.best.failed else ""
    best = Shown(f"{view.metric} {show(view.best.value)}{failed}", view.best.value) if view.best else ""
    return (
        view.id,
        view.name,
        view.owner,
        _state(view),
        Shown(f"{view.progress:.0%}", view.progress),
        progress_line(view).replace(" trials done", ""),
        best,
        moment(view.started_at),
        span,
    )


@experiment.command()
@click.argument("experiment_ids", metavar="ID...", type=IDS, nargs=-1, required=True, shell_complete=experiment_ids)
@json_option
@pass_invocation
def describe(invocation: Invocation, experiment_ids: tuple[Sequence[int], ...]) -> None:
    """Show the details of experiments: state, trials, best, failure, warnings.

    \b
    Examples:
      det experiment describe 7
      det e describe 7-9,12
      det e describe 7 --json | jq .best
    """
    found = [invocation.client.get_experiment(number) for spec in experiment_ids for number in spec]
    if invocation.as_json:
        told = [_told(item) for item in found]
        say_json(told[0] if len(told) == 1 else told)
        return
    for item in found:
        _describe(item)


def _told(item: Experiment) -> dict[str, object]:
    """Return an experiment, its trials and its Pareto front, if it has one, as JSON values."""
    front = [
        {"trial_id": one.trial_id, "steps_completed": one.steps_completed, "metrics": one.metrics}
        for one in _front(item)
    ]
    return {
        **item.view.model_dump(mode="json"),
        **({"pareto_front": front} if front else {}),
        "trial_list": [trial.view.model_dump(mode="json") for trial in item.list_trials()],
    }


def _front(item: Experiment) -> list[TrialMetrics]:
    """Return the Pareto front of a search by several metrics, nothing of other searches."""
    searcher = (item.config or {}).get("searcher") or {}
    return item.pareto_front() if len(searcher.get("metrics") or ()) > 1 else []


def _print_front(item: Experiment) -> None:
    front = _front(item)
    if not front:
        return
    names = list(front[0].metrics)
    say()
    say("Pareto front:")
    rows = [(one.trial_id, one.steps_completed, *(one.metrics.get(name) for name in names)) for one in front]
    more = f"det experiment describe {item.id} --json has all"
    table(("Trial", "Steps", *names), rows, right=("Trial", "Steps", *names), choose=more)


def _best_point(view: ExperimentView, trials: list[Trial]) -> str | None:
    """Return the best point of a search with `seeds`: mean and standard deviation over its trials; None: none yet."""
    from detlab.viz.seeds import best_point, points_of, seeds_of

    if seeds_of(view.config) < 2:
        return None
    best = best_point(points_of(trial.view for trial in trials), smaller_is_better=view.smaller_is_better)
    return f"{view.metric} {best.text}" if best else None


def _deletion(view: ExperimentView) -> list[tuple[str, str | None]]:
    """Return what to do about an experiment whose files could not be removed."""
    left = view.deletion
    if left is None or not left.failure:
        return []
    task = [("", f"what the last task said: det task logs {left.task}")] if left.task else []
    if view.state is not ExperimentState.DELETING:
        return [("files to remove", left.said), ("tried again", moment(left.retry_at)), *task]
    return [
        ("tried again", f"{moment(left.retry_at)}, or now: det experiment delete {view.id}"),
        *task,
        ("", f"if the storage is gone for good, an administrator may: det experiment delete {view.id} --forget-files"),
    ]


def _describe(item: Experiment) -> None:
    view = item.view
    trials = item.list_trials()
    best = view.best and f"{view.metric} {show(view.best.value)} ({view.best.told})"
    facts(
        [
            ("experiment", f"{view.id}: {view.name}"),
            ("description", view.description),
            ("labels", ", ".join(view.labels)),
            ("owner", view.owner),
            ("forked from", view.forked_from and f"experiment {view.forked_from}"),
            ("workspace", place_words(view.workspace, view.project)),
            ("state", _with_reason(view)),
            ("pending", view.pending_reason),
            *_deletion(view),
            ("searcher", f"{view.searcher} on {view.metric}" if view.metric else view.searcher),
            ("search task", view.search_task and f"{view.search_task}: det task logs {view.search_task}"),
            ("trials", "evaluated by hand: det search ask" if view.unmanaged else None),
            ("progress", f"{view.progress:.0%}, {progress_line(view)}"),
            ("budget", budgets_left(view.budgets)),
            ("cost so far", None if view.cost is None else f"{view.cost:.2f} {view.currency}".rstrip()),
            ("best", best),
            ("best point", _best_point(view, trials)),
            ("created", moment(view.created_at)),
            ("started", moment(view.started_at)),
            ("ended", moment(view.ended_at)),
            ("took", None if view.took is None else duration(view.took)),
            ("archived", moment(view.archived_at)),
            ("output", f"kept {kept}" if (kept := kept_for(view.log_retention_days)) else None),
            ("code", view.bundle),
            *(("" if at else "notes", line) for at, line in enumerate((view.notes or "").splitlines())),
        ]
    )
    for warning in view.warnings:
        say(f"{level_of(warning)}: {clean(warning)}")
    if lines := experiment_card(view):
        for line in ("", *lines):
            say(line)
    _print_front(item)
    if trials:
        say()
        print_trials(trials, item.config, metric_columns(item))
    say()
    if not view.state.terminal:
        say(f"→ follow it: det experiment wait {view.id}")
    say(f"→ its config: det experiment config {view.id}")


def trial_order(function: Callable[..., None]) -> Callable[..., None]:
    """Add `--sort-by` and `--order-by` to a list of trials."""
    keys = click.Choice([key.name for key in TrialSortBy], case_sensitive=False)
    by_key = click.option("--sort-by", type=keys, default="ID", help="Those without a value come last.")
    direction = click.option("--order-by", type=_DIRECTIONS, default="asc", help="asc or desc.")
    return by_key(direction(function))


def print_trials(trials: list[Trial], config: Mapping[str, Any] | None, metrics: MetricColumns | None = None) -> None:
    """Print a table of trials; why they were stopped has a column if one was, and the means of points with seeds."""
    values = metrics or MetricColumns()
    means = _means(trials, config)
    mean = ("Mean ± sd",) if means else ()
    reasons = {trial.id: _why(trial.view, config or {}) for trial in trials}
    stopped = any(reasons.values())
    why = ("Why",) if stopped else ()
    cloned = any(trial.view.parent for trial in trials)
    parent = ("Parent",) if cloned else ()
    columns = (
        "Trial",
        *parent,
        "State",
        "Ended",
        "Steps",
        "Best",
        *mean,
        "Latest",
        *values.titles,
        "Restarts",
        *why,
        "Hyperparameters",
    )
    rows = [
        (
            trial.id,
            *((trial.view.parent and trial.view.parent.parent_id,) if cloned else ()),
            trial.view.display_state or trial.view.state.value,
            trial.view.end_reason.value if trial.view.end_reason else "",
            trial.view.steps_completed,
            trial.view.best_validation,
            *((means[trial.id],) if means else ()),
            trial.view.latest_validation,
            *values.cells(trial),
            trial.view.restarts,
            *((reasons[trial.id],) if stopped else ()),
            no_point(over=trial.state.terminal) if trial.view.point_due else settings(trial.hparams),
        )
        for trial in trials
    ]
    table(
        columns,
        rows,
        right=("Trial", *parent, "Steps", "Best", "Mean ± sd", "Latest", *values.metric_titles, "Restarts"),
    )


def _why(view: TrialView, config: Mapping[str, Any]) -> str:
    """Return why a trial was stopped, and why one that reports the searcher's metric has no best value."""
    from detlab.viz.fronts import constraints

    bounds = ", ".join(one.name for one in constraints(config))
    latest = view.latest_validation
    broken = bounds and view.best_validation is None and latest is not None and math.isfinite(latest)
    told = f"no best: no report keeps the constraints on {bounds}" if broken else ""
    return "; ".join(part for part in (view.why_stopped, told) if part)


def _means(trials: list[Trial], config: Mapping[str, Any] | None) -> dict[int, str]:
    """Return the mean and the standard deviation of each trial's point, if the search trains points with seeds."""
    from detlab.viz.seeds import points_of, seeds_of

    if seeds_of(config) < 2:
        return {}
    return {one.id: point.spread for point in points_of(trial.view for trial in trials) for one in point.trials}


def tell_trials(
    invocation: Invocation,
    item: Experiment,
    *,
    sort_by: str,
    order_by: str,
    metrics: Sequence[str] = (),
    filter: str = "",  # noqa: A002  (its name in requests)
) -> None:
    """Print trials as the command was asked to: a table, JSON, or CSV with a column for each hyperparameter."""
    trials = item.list_trials(TrialSortBy[sort_by.upper()], order_by.lower(), filter=filter)
    columns = metric_columns(item, metrics) if trials else MetricColumns()
    if invocation.as_csv:
        rows = trial_rows(trial.view for trial in trials)
        last = [columns.values.get(trial.id, {}) for trial in trials]
        with_metrics = [
            {**row, **{f"metrics.{name}": found.get(name) for name in columns.names}}
            for row, found in zip(rows, last, strict=True)
        ]
        say(csv_text(with_metrics, TRIAL_COLUMNS).removesuffix("\n"))
    elif invocation.as_json:
        say_json([columns.told(trial) for trial in trials])
    elif not trials:
        say("No trials match." if filter else "No trials yet.")
    else:
        print_trials(trials, item.config, columns)


@experiment.command(name="list-trials")
@click.argument("experiment_id", metavar="ID", type=int, shell_complete=experiment_ids)
@trial_order
@metric_option
@csv_option
@json_option
@pass_invocation
def list_trials(
    invocation: Invocation, experiment_id: int, sort_by: str, order_by: str, metrics: tuple[str, ...]
) -> None:
    """List the trials of an experiment, in creation order unless told otherwise.

    --csv has a column for each hyperparameter.

    \b
    Examples:
      det experiment list-trials 7 --metric accuracy
      det e list-trials 7 --sort-by best_validation_metric --csv > trials.csv
    """
    item = invocation.client.get_experiment(experiment_id)
    tell_trials(invocation, item, sort_by=sort_by, order_by=order_by, metrics=metrics)


@experiment.command(name="list-checkpoints")
@click.argument("experiment_id", metavar="ID", type=int, shell_complete=experiment_ids)
@click.option("--best", "most", type=click.IntRange(1), metavar="N", help="Only the N best.")
@csv_option
@json_option
@pass_invocation
def list_checkpoints(invocation: Invocation, experiment_id: int, most: int | None) -> None:
    """List the checkpoints of an experiment, best first.

    \b
    Examples:
      det experiment list-checkpoints 7
      det e list-checkpoints 7 --best 1 --json | jq -r '.[0].uuid'
    """
    item = invocation.client.get_experiment(experiment_id)
    found = item.top_n_checkpoints(most) if most else item.list_checkpoints()
    if invocation.as_json:
        say_json([checkpoint.view for checkpoint in found])
    elif not found and most and not invocation.as_csv and item.list_checkpoints():
        say(f"No checkpoint has a value of the searcher metric. List all: det e list-checkpoints {item.id}")
    else:
        print_checkpoints(found, item)


def print_checkpoints(found: list[Checkpoint], of: Experiment | Trial) -> None:
    """Print a table of checkpoints, or that there are none (`of`: whose they are)."""
    if not found and not wants_csv():
        what = f"{'Experiment' if isinstance(of, Experiment) else 'Trial'} {of.id} has ended ({of.state.value})"
        say(f"{what} without a checkpoint." if of.state.terminal else "No checkpoints yet.")
        return
    rows = [
        (item.uuid, item.trial_id, item.steps_completed, item.validation, size(item.view.size),
         _files_of(item), moment(item.view.created_at))
        for item in found
    ]  # fmt: skip
    columns = ("Checkpoint", "Trial", "Steps", "Validation", "Size", "Files", "Written")
    table(columns, rows, right=("Trial", "Steps", "Validation", "Size", "Files"))


def _files_of(item: Checkpoint) -> object:
    if item.deleted:
        until = item.view.trash_until
        return "deleted" if until is None else f"in the trash until {moment(until)}"
    return len(item.files) if item.state is CheckpointState.COMPLETED else f"{len(item.files)} (others deleted)"


@experiment.command()
@click.argument("experiment_id", metavar="ID", type=int, shell_complete=experiment_ids)
@click.option("--trial", "trial_id", type=int, metavar="ID", help="Only this trial's output.")
@log_options
@json_option
@pass_invocation
def logs(invocation: Invocation, experiment_id: int, trial_id: int | None, options: LogOptions) -> int:
    """Show the output of an experiment's trials.

    With several trials, each line begins with the trial's id. -f follows one trial: choose it with --trial if there are
    several. Ctrl-C stops following, not the trial. With --json each line is an object.

    \b
    Examples:
      det experiment logs 7 --tail 50
      det e logs 7 --trial 31 -f
    """
    item = invocation.client.get_experiment(experiment_id)
    return print_experiment_logs(item, trial_id, options, invocation.as_json)


@experiment.command()
@click.argument("experiment_id", metavar="ID", type=int, shell_complete=experiment_ids)
@click.option("--timeout", type=float, metavar="SECONDS", help="Seconds until it gives up waiting (exit status 5).")
@click.option(
    "--polling-interval", type=float, hidden=True, expose_value=False, help="Accepted for old scripts; unused."
)
@json_option
@pass_invocation
def wait(invocation: Invocation, experiment_id: int, timeout: float | None) -> int:
    """Wait for an experiment to end.

    The exit status is 0 only if it ended COMPLETED; 3 if it was canceled, 4 if it failed, was paused because of a
    failure, or its trials reported no finite value of the searcher's metric, or only others; 5 after the timeout.
    Ctrl-C stops waiting, not the experiment.

    \b
    Examples:
      det experiment wait 7 && det checkpoint list 7
      det e wait 7 --timeout 3600
    """
    item = invocation.client.get_experiment(experiment_id)
    tell_waiting(item)
    try:
        item.wait(timeout, notice=connection_notes())
    except KeyboardInterrupt:
        stopped_watching(experiment_id)
        return 130
    except TimeoutError as error:
        if invocation.as_json:
            say_json(item.view)
        note(f"{error}; it continues")
        return TIMED_OUT
    if invocation.as_json:
        say_json(item.view)
        return exit_status(item)
    return ended(item)


for one in steering():
    experiment.add_command(one)


@experiment.command()
@click.argument("ids", metavar="[IDS...]", type=IDS, nargs=-1, shell_complete=experiment_ids)
@many_options
@click.option(
    "--forget-files",
    is_flag=True,
    help="Give up on files that could not be removed. For administrators, when the storage is gone for good.",
)
@json_option
@pass_invocation
def delete(
    invocation: Invocation,
    ids: tuple[Sequence[int], ...],
    filter_: str,
    yes: bool,
    dry_run: bool,
    forget_files: bool,
) -> int:
    """Delete ended experiments with their metrics, logs, checkpoints and event files. This cannot be undone.

    Files go first: until all are seen to be gone an experiment is DELETING, and `det experiment describe` says what is
    left and why. To delete it again tries again at once.

    \b
    Examples:
      det experiment delete 7 --yes
      det experiment delete 1-5,7
      det experiment delete --filter 'state = ERROR and created < -30d' --dry-run
    """
    many = chosen(ids, filter_, yes=yes, dry_run=dry_run)
    if not many.plain:
        if forget_files:
            raise click.UsageError("--forget-files takes single ids")
        return act_on_many(invocation, "delete", many, ask=True)
    experiment_ids = many.ids
    numbers = ", ".join(str(number) for number in experiment_ids)
    confirmed(f"Delete {numbers} with all checkpoints? This cannot be undone.", yes=yes)
    gone, found, each = [], {}, OneByOne("Experiment", experiment_ids)
    for number in experiment_ids:
        with each.of(number):
            left = invocation.client.get_experiment(number).delete(forget_files=forget_files)
            if left is None:
                gone.append(number)
            else:
                found[number] = left.model_dump(mode="json")
            if not invocation.as_json:
                done = f"Deleted experiment {number}"
                say(done if left is None else f"Deleting experiment {number}: {clean(left.said)}")
    if invocation.as_json:
        say_json({"deleted": gone, **({"left": found} if found else {})})
    return each.status


@experiment.command(name="delete-tb-files")
@click.argument("experiment_ids", metavar="ID...", type=int, nargs=-1, required=True, shell_complete=experiment_ids)
@yes_option
@json_option
@pass_invocation
def delete_tb_files(invocation: Invocation, experiment_ids: tuple[int, ...], yes: bool) -> int:
    """Delete the TensorBoard event files of ended experiments; metrics, checkpoints and all else stay.

    \b
    Example:
      det experiment delete-tb-files 7 --yes
    """
    numbers = ", ".join(str(number) for number in experiment_ids)
    confirmed(f"Delete the event files of {numbers}? This cannot be undone.", yes=yes)
    found, each = {}, OneByOne("Experiment", experiment_ids)
    for number in experiment_ids:
        with each.of(number):
            left = invocation.client.get_experiment(number).delete_tensorboard_files()
            found[number] = None if left is None else left.model_dump(mode="json")
            if not invocation.as_json:
                what = f"Event files of experiment {number}"
                say(f"{what}: gone" if left is None else f"{what}: {clean(left.said)}")
    if invocation.as_json:
        say_json(found)
    return each.status


@experiment.command()
@click.argument("experiment_id", metavar="ID", type=int, shell_complete=experiment_ids)
@click.option(
    "-o",
    "--output-dir",
    type=click.Path(path_type=Path),
    default=Path("checkpoints"),
    show_default=True,
    help="Folder to write to; each checkpoint goes into a folder of its UUID in it.",
)
@click.option("--top-n", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="The N best.")
@metric_options
@click.option("-q", "--quiet", is_flag=True, help="Print only the paths.")
@json_option
@pass_invocation
def download(
    invocation: Invocation,
    experiment_id: int,
    output_dir: Path,
    top_n: int,
    sort_by: str | None,
    smaller_is_better: bool | None,
    quiet: bool,
) -> None:
    """Download the best checkpoints of an experiment; every file is verified.

    (Its code: det experiment download-model-def.)

    \b
    Examples:
      det experiment download 7
      det e download 7 --top-n 3 -o best/ --json
      det e download 7 --sort-by accuracy --smaller-is-better false
    """
    check_metric(sort_by, smaller_is_better)
    found = invocation.client.get_experiment(experiment_id).top_n_checkpoints(top_n, sort_by, smaller_is_better)
    if not found:
        raise no_checkpoint(experiment_id)
    done = [(item, fetch_files(item, output_dir / item.uuid, quiet=invocation.as_json or quiet)) for item in found]
    if invocation.answered([{"uuid": item.uuid, "path": str(path)} for item, path in done]):
        return
    for item, path in done:
        say(clean(path) if quiet else where_it_is(item, path))


@experiment.command(name="download-model-def")
@click.argument("experiment_id", metavar="ID", type=int, shell_complete=experiment_ids)
@click.option("-o", "--output-dir", type=click.Path(path_type=Path), default=Path(), help="Folder to write to.")
@json_option
@pass_invocation
def download_model_def(invocation: Invocation, experiment_id: int, output_dir: Path) -> None:
    """Download the code that an experiment runs, as a tar.gz.

    \b
    Example:
      det experiment download-model-def 7 -o code/
    """
    path = invocation.client.get_experiment(experiment_id).download_code(output_dir)
    invocation.tell({"path": str(path)}, f"Code of experiment {experiment_id}: {clean(path)}")


@experiment.command()
@click.argument("experiment_id", metavar="ID", type=int, shell_complete=experiment_ids)
@json_option
@pass_invocation
def config(invocation: Invocation, experiment_id: int) -> None:
    """Show the resolved config of an experiment; secrets are masked.

    \b
    Examples:
      det experiment config 7 > again.yaml
      det e config 7 --json | jq .searcher
    """
    found = invocation.client.get_experiment(experiment_id).config or {}
    if invocation.answered(found):
        return
    say_yaml(found)
