"""`det experiment compare` and `det run compare`: trials, experiments and runs from anywhere side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from detlab.cli.completion import experiment_ids
from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.output.printing import clean, counted, note, plain, say, say_json, show, table, wants_csv
from detlab.client.operations.runs import comparison
from detlab.schemas.wire.comparison import CodeComparison, ComparedRun, RunComparison, RunMetric
from detlab.schemas.wire.registry import Difference

MOST_METRICS = 30
"""Metrics that are printed unless some are named."""
_STATISTICS = ("best", "last", "min", "max")


def _shared(command: Any) -> Any:
    """Add the options that every comparison has."""
    options = (
        click.option("--metric", "metrics", metavar="NAME", multiple=True, help="Only this metric (repeatable)."),
        click.option("--all", "every", is_flag=True, help="Also settings that are the same in all, and all metrics."),
        click.option(
            "--show",
            "statistic",
            type=click.Choice(_STATISTICS),
            default="best",
            show_default=True,
            help="Which value of a metric: at the best validation, the last, the least, the greatest.",
        ),
        click.option("--no-code", is_flag=True, help="Do not compare the code."),
        csv_option,
        json_option,
        pass_invocation,
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.argument("ids", metavar="ID...", type=click.IntRange(0), nargs=-1, shell_complete=experiment_ids)
@click.option("--trials", is_flag=True, help="The ids are those of trials, not of experiments.")
@click.option("--run", "runs", metavar="RUN", multiple=True, help="A run that no cluster started beside (repeatable).")
@_shared
def compare(invocation: Invocation, ids: tuple[int, ...], trials: bool, runs: tuple[str, ...], **asked: Any) -> None:
    """Show experiments, or trials, side by side: settings that differ, metrics, config and code.

    For an experiment its best trial stands; where its search trains points with several seeds, the point with the best
    mean. What you may not read is named by its id alone.

    \b
    Examples:
      det experiment compare 12 15
      det e compare 12 15 --metric accuracy --show max
      det e compare --trials 101 102 103 --csv > runs.csv
      det e compare 12 --run my-laptop-run
    """
    if not ids and not runs:
        raise click.UsageError("name experiments, or trials with --trials: det experiment compare 12 15")
    experiments, chosen = ((), ids) if trials else (ids, ())
    _compare(invocation, experiments, chosen, runs, **asked)


@click.command("compare")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--trial", "trials", metavar="ID", type=click.IntRange(0), multiple=True, help="A trial beside.")
@click.option("--experiment", "experiments", metavar="ID", type=click.IntRange(0), multiple=True, help="One beside.")
@_shared
def compare_runs(
    invocation: Invocation,
    runs: tuple[str, ...],
    trials: tuple[int, ...],
    experiments: tuple[int, ...],
    **asked: Any,
) -> None:
    """Show runs that no cluster started side by side, and beside trials and experiments: settings and metrics.

    A run is named by its id, by the key of one of your own, or by how one of these begins.

    \b
    Examples:
      det run compare baseline wider
      det run compare 3f9a1b2c --trial 101 --metric accuracy
    """
    _compare(invocation, experiments, trials, runs, **asked)


def _compare(
    invocation: Invocation,
    experiments: Sequence[int],
    trials: Sequence[int],
    runs: Sequence[str],
    *,
    metrics: Sequence[str],
    every: bool,
    statistic: str,
    no_code: bool,
) -> None:
    session = invocation.client.session
    found = session.run(comparison.compare(experiments, trials, runs, metrics=metrics))
    no_code = no_code or not (experiments or trials)
    code = CodeComparison() if no_code else session.run(comparison.code(experiments, trials))
    if invocation.as_json:
        say_json({**plain(found), "code": plain(code)})
        return
    for said in _absent(found):
        note(said)
    if not found.runs:
        raise SystemExit(1)
    known = {name for row in found.metrics for name in (row.name, f"{row.group}.{row.name}")}
    for name in metrics:
        if name not in known:
            note(f"none of them has reported a metric {clean(name)}")
    _print(found, None if no_code else code, statistic, every=every or bool(metrics), same=every)


def _absent(found: RunComparison) -> list[str]:
    """Say what is not there, by its ids alone."""
    lists = ("trial", found.absent_trials), ("experiment", found.absent_experiments), ("run", found.absent_runs)
    return [f"{kind} {clean(', '.join(map(str, ids)))}: not there, or not yours to see" for kind, ids in lists if ids]


def _print(found: RunComparison, code: CodeComparison | None, statistic: str, *, every: bool, same: bool) -> None:
    names = [run.title for run in found.runs]
    shown = found.metrics if every else found.metrics[:MOST_METRICS]
    if wants_csv():
        rows = [*_facts(found.runs), *_settings(found.hyperparameters, same=True), *_values(shown, statistic)]
        table(("Name", *names), rows)
        return
    table(("Run", *names), _facts(found.runs), right=names)
    _part("Hyperparameter", names, _settings(found.hyperparameters, same=same))
    _part(f"Metric ({statistic})", names, _values(shown, statistic))
    left = len(found.metrics) - len(shown) + found.metrics_left_out
    if left:
        note(f"{counted(left, 'metric')} left out: name them by --metric, or --all")
    _part("Config", names, _settings(_beside(found), same=same))
    if code is not None:
        _print_code(code)


def _beside(found: RunComparison) -> list[Difference]:
    """Return the rows of the config but for the hyperparameters, which have a table of their own."""
    return [row for row in found.config if not row.name.startswith("hyperparameters.")]


def _facts(runs: Sequence[ComparedRun]) -> list[tuple[object, ...]]:
    return [
        ("name", *(run.name for run in runs)),
        ("owner", *(run.owner for run in runs)),
        ("state", *(run.state for run in runs)),
        ("trial ids", *(", ".join(map(str, run.trial_ids)) for run in runs)),
        ("steps", *(run.steps_completed for run in runs)),
    ]


def _settings(rows: Sequence[Difference], *, same: bool) -> list[tuple[object, ...]]:
    kept = [row for row in rows if same or not row.same]
    return [(row.name, *("" if one is None else _shown(one) for one in row.values)) for row in kept]


def _shown(value: Any) -> str:
    """Return a setting as a config has it: lists and truth as YAML's, not as Python's."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool | list | dict) else show(value)


def _values(rows: Sequence[RunMetric], statistic: str) -> list[tuple[object, ...]]:
    return [(f"{row.group}.{row.name}", *(_value(one, statistic) for one in row.values)) for row in rows]


def _value(summary: Any, statistic: str) -> object:
    value = None if summary is None else getattr(summary, statistic)
    if value is None:
        return ""
    if statistic == "best" and summary.deviation is not None:
        return f"{value:.6g} ± {summary.deviation:.2g}"
    return value


def _part(title: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    if rows:
        say()
        table((title, *names), rows, right=names)


def _print_code(code: CodeComparison) -> None:
    if code.note and len(code.experiments) > 1:
        say()
        say(f"Code: {clean(code.note)}.")
    if code.items:
        say()
        names = [f"experiment {one}" for one in code.experiments]
        table(("Code", *names), [(one.path, *map(_digest, one.digests)) for one in code.items])
    for one in code.items:
        if one.diff:
            say()
            say(clean(one.diff, lines=True).rstrip())


def _digest(digest: str | None) -> str:
    return "" if digest is None else digest.partition(":")[2][:12]
