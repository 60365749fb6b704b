"""`det trial …`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from detlab.cli.commands.download import check_metric, fetch, metric_options
from detlab.cli.commands.experiment import tell_trials, trial_order
from detlab.cli.commands.experiments.media import media
from detlab.cli.commands.finding.finding import filter_option, search
from detlab.cli.commands.master.support import trial_bundle
from detlab.cli.commands.registry.learning import depth_said
from detlab.cli.completion import experiment_ids
from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.failures import OneByOne, failure_card
from detlab.cli.output.logs import LogOptions, log_options, print_trial_logs
from detlab.cli.output.printing import clean, facts, moment, say, say_json, show, table
from detlab.cli.output.trial_metrics import metric_option
from detlab.client.facts import TrialMetrics
from detlab.client.operations.governance.evidence import learning
from detlab.client.rendering import no_point
from detlab.client.resources import Trial
from detlab.client.tabular import METRIC_COLUMNS, csv_text
from detlab.schemas.wire import AttemptView

if TYPE_CHECKING:
    from detlab.schemas.wire.governance.evidence import LearningView

GOVERNED = "gov/coverage"
"""A metric that every governed validation reports."""
COMMANDS = {"trial": "Trials: list, search, describe, logs, metrics, kill, download."}


@click.group(cls=LazyGroup, short={"ls": "list"})
def trial() -> None:
    """Trials: training runs, each with one set of hyperparameters.

    \b
    Examples:
      det trial list 7
      det t logs 31 -f
      det t download 31 --best -o best/
    """


trial.add_command(search)
trial.add_command(trial_bundle)
trial.add_command(media)


@trial.command(name="list")
@click.argument("experiment_id", metavar="EXPERIMENT", type=int, shell_complete=experiment_ids)
@filter_option
@trial_order
@metric_option
@csv_option
@json_option
@pass_invocation
def list_command(
    invocation: Invocation, experiment_id: int, filter_: str, sort_by: str, order_by: str, metrics: tuple[str, ...]
) -> None:
    """List the trials of an experiment, in creation order unless told otherwise.

    --csv has a column for each hyperparameter. det trial search --help says what a filter may be.

    \b
    Examples:
      det trial list 7
      det trial list 7 --metric accuracy --metric train_loss
      det trial list 7 --filter 'accuracy > 0.9 and hparams.lr < 1e-3'
    """
    item = invocation.client.get_experiment(experiment_id)
    tell_trials(invocation, item, sort_by=sort_by, order_by=order_by, metrics=metrics, filter=filter_)


@trial.command()
@click.argument("trial_ids", metavar="ID...", type=int, nargs=-1, required=True)
@click.option("--metrics", "with_metrics", is_flag=True, help="Also all reported metrics, as det trial metrics does.")
@click.option("--metrics-summary", is_flag=True, help="Not needed: the summary is always there.")
@json_option
@pass_invocation
def describe(invocation: Invocation, trial_ids: tuple[int, ...], with_metrics: bool, metrics_summary: bool) -> None:
    """Show the details of trials: hyperparameters, state, summary of metrics, failure.

    \b
    Examples:
      det trial describe 31
      det t describe 31 --metrics
      det t describe 31 --json | jq .summary.validation
    """
    found = [invocation.client.get_trial(number) for number in trial_ids]
    if invocation.as_json:
        told = [_told(invocation, item, with_metrics=with_metrics) for item in found]
        say_json(told[0] if len(told) == 1 else told)
        return
    for item in found:
        _describe(item, _learning(invocation, item))
        if with_metrics:
            say()
            _print_metrics(item.id, list(item.iter_metrics()))


def _told(invocation: Invocation, item: Trial, *, with_metrics: bool) -> dict[str, object]:
    reports = {"metrics": [_report(report) for report in item.iter_metrics()]} if with_metrics else {}
    found = _learning(invocation, item)
    governed = {} if found is None else {"governance": found.model_dump(mode="json")}
    return {**item.view.model_dump(mode="json"), **governed, **reports}


def _learning(invocation: Invocation, item: Trial) -> LearningView | None:
    """Return what each source may train in a governed trial, and what it gave; None of another trial."""
    if GOVERNED not in item.view.summary.get("validation", {}):
        return None
    return invocation.client.session.run(learning(item.id))


def _attempt(one: AttemptView) -> tuple[object, ...]:
    return one.run, one.resume_step or 0, one.agent_id, moment(one.started_at), moment(one.ended_at), one.reason


def _say_depth(governed: LearningView | None) -> None:
    if governed is not None and (lines := depth_said(governed)):
        say()
        say("\n".join(lines))


def _describe(item: Trial, governed: LearningView | None) -> None:
    view = item.view
    facts(
        [
            ("trial", str(view.id)),
            ("experiment", str(view.experiment_id)),
            ("state", view.display_state or view.state.value),
            ("ended", view.end_reason.value if view.end_reason else None),
            ("says", view.status),
            ("pending", view.pending_reason),
            ("cloned from", view.parent and f"trial {view.parent.parent_id}, step {view.parent.steps_completed}"),
            ("steps", str(view.steps_completed)),
            ("progress", f"{view.progress:.0%}" if view.progress else None),
            ("best validation", view.best_validation),
            ("latest validation", view.latest_validation),
            ("latest checkpoint", view.latest_checkpoint),
            ("restarts", view.restarts or None),
            ("evaluated by", view.asked_by or None),
            ("agent", " ".join([view.agent_id or "", *view.slots]).strip()),
            ("started", moment(view.started_at)),
            ("ended at", moment(view.ended_at)),
            ("seed", str(view.seed)),
        ]
    )
    if view.point_due:
        say(f"  hyperparameters: {no_point(over=view.state.terminal)}")
    for name, value in sorted(view.hparams.items()):
        say(f"  {clean(name)} = {clean(show(value))}")
    for name, value in view.metadata.items():
        say(f"metadata {clean(name)}: {clean(json.dumps(value, ensure_ascii=False))}")
    for match in view.policy_matches:
        done = {"exclude_node": f"not on {match.agent_id} again", "cancel_retries": "no more restarts"}
        told = f" ({done[match.action]})" if match.action in done else ""
        say(f"matched by a log policy: {clean(match.name or match.pattern)}{clean(told)}: {clean(match.line)}")
    if view.stop_evidence:
        say(f"stopped {clean(view.stop_evidence)}")
    for evidence in view.would_stop:
        say(f"would have been stopped {clean(evidence)}")
    for warning in view.warnings:
        say(f"warning: {clean(warning)}")
    if len(view.attempts) > 1:
        say()
        titles = ("Attempt", "From step", "On", "Started", "Ended", "Reason")
        table(titles, [_attempt(one) for one in view.attempts], right=titles[:2])
    rows = [
        (group, name, summary.count, summary.last, summary.min, summary.max, summary.mean, summary.nan_count or "")
        for group, names in sorted(view.summary.items())
        for name, summary in sorted(names.items())
    ]
    if rows:
        say()
        columns = ("Group", "Metric", "Count", "Last", "Min", "Max", "Mean", "NaN")
        table(columns, rows, right=columns[2:])
    _say_depth(governed)
    card = view.card or view.failure
    if card is not None:
        say()
        for line in failure_card(card):
            say(line)


@trial.command()
@click.argument("trial_id", metavar="ID", type=int)
@log_options
@json_option
@pass_invocation
def logs(invocation: Invocation, trial_id: int, options: LogOptions) -> int:
    """Show the output of a trial. Ctrl-C stops following, not the trial. With --json each line is an object.

    \b
    Examples:
      det trial logs 31 --tail 20
      det t logs 31 -f --rank 0
    """
    return print_trial_logs(invocation.client.get_trial(trial_id), options, invocation.as_json)


@trial.command()
@click.argument("trial_ids", metavar="ID...", type=int, nargs=-1, required=True)
@json_option
@pass_invocation
def kill(invocation: Invocation, trial_ids: tuple[int, ...]) -> int:
    """Kill trials immediately; their experiments continue.

    \b
    Example:
      det trial kill 31
    """
    views, each = [], OneByOne("Trial", trial_ids)
    for number in trial_ids:
        with each.of(number):
            item = invocation.client.get_trial(number)
            item.kill()
            views.append(item.view)
            if not invocation.as_json:
                say(f"Trial {number}: {item.view.display_state or item.state.value}")
    if invocation.as_json:
        say_json(views)
    return each.status


@trial.command()
@click.argument("trial_id", metavar="ID", type=int)
@click.option("--group", metavar="NAME", help="Only this group: training, validation or a custom one.")
@click.option("--name", "names", metavar="NAME", multiple=True, help="Only this metric; may be given several times.")
@click.option("--max-points", type=click.IntRange(2), default=1000, show_default=True, help="Maximum points per curve.")
@csv_option
@json_option
@pass_invocation
def metrics(invocation: Invocation, trial_id: int, group: str | None, names: tuple[str, ...], max_points: int) -> None:
    """Show the reported metrics of a trial, one line per group and step.

    Long curves are thinned to --max-points; extremes and the last point stay exact. Metrics for which there is no room
    are left out of the table, and said to be; --name chooses. --csv has a line for each value.

    \b
    Examples:
      det trial metrics 31 --group validation
      det trial metrics 31 --name loss --name accuracy
      det t metrics 31 --json | jq '.[-1].metrics'
      det t metrics 31 --csv > metrics.csv
    """
    item = invocation.client.get_trial(trial_id)
    if invocation.as_csv:
        rows = item.metric_rows(group, names=names or None, max_points=max_points)
        say(csv_text(rows, METRIC_COLUMNS).removesuffix("\n"))
        return
    found = list(item.iter_metrics(group, names=names or None, max_points=max_points))
    if invocation.answered([_report(report) for report in found]):
        return
    _print_metrics(trial_id, found, names)


def _report(report: TrialMetrics) -> dict[str, object]:
    return {
        "group": report.group,
        "steps_completed": report.steps_completed,
        "time": report.report_time,
        "metrics": report.metrics,
    }


def _print_metrics(trial_id: int, found: list[TrialMetrics], names: tuple[str, ...] = ()) -> None:
    if not found:
        say(f"No metrics named {' or '.join(map(clean, names))}." if names else "No metrics yet.")
        return
    shown = sorted({name for report in found for name in report.metrics})
    rows = ((report.steps_completed, report.group, *map(report.metrics.get, shown)) for report in found)
    choose = f"det trial metrics {trial_id} --name NAME shows some, --json all"
    table(("Step", "Group", *shown), rows, right=("Step", *shown), choose=choose)


@trial.command()
@click.argument("trial_id", metavar="ID", type=int)
@click.option("--best", is_flag=True, help="The one with the best searcher metric (the default).")
@click.option("--latest", is_flag=True, help="The latest one.")
@click.option("--uuid", metavar="UUID", help="The one with this id.")
@metric_options
@click.option(
    "-o", "--output-dir", type=click.Path(path_type=Path), help="Folder to create. Default: checkpoints/UUID."
)
@click.option("-q", "--quiet", is_flag=True, help="Print the folder alone.")
@json_option
@pass_invocation
def download(
    invocation: Invocation,
    trial_id: int,
    best: bool,
    latest: bool,
    uuid: str | None,
    sort_by: str | None,
    smaller_is_better: bool | None,
    output_dir: Path | None,
    quiet: bool,
) -> None:
    """Download a checkpoint of a trial; every file is verified.

    \b
    Examples:
      det trial download 31 -o best/
      det t download 31 --latest
    """
    if best + latest + (uuid is not None) > 1:
        raise click.UsageError("choose one of --best, --latest and --uuid")
    check_metric(sort_by, smaller_is_better)
    if sort_by is not None and (latest or uuid is not None):
        raise click.UsageError("--sort-by says what is best: leave out --latest and --uuid")
    trial_of = invocation.client.get_trial(trial_id)
    found = trial_of.select_checkpoint(latest=latest, best=not latest and uuid is None, uuid=uuid,
                                     sort_by=sort_by, smaller_is_better=smaller_is_better)  # fmt: skip
    if found.trial_id != trial_id:
        raise click.UsageError(f"checkpoint {found.uuid} is of trial {found.trial_id}, not of trial {trial_id}")
    fetch(invocation, found, output_dir, "auto", quiet=quiet)
