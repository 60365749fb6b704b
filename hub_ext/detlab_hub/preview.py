"""`det preview-search`: run a search without training and show what it would do.

Everything is computed here by the same code that the master runs; no cluster is needed.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from detlab.errors import Problem
from detlab.schemas.wire import encode_floats
from detlab.viz import fronts
from detlab_hub.core.searchers import CreateTrial, Searcher, SearcherConfigError, make_searcher
from detlab_hub.core.searchers.simulation import (
    EndlessSearchError,
    Objective,
    SimulatedTrial,
    random_curve,
    simulate,
)
from detlab_hub.preview_objective import ObjectiveSpecError, guard, load_objective

_DEFAULT_SEED = 0
_MOST_TRIALS = 100_000
_APART = 7919
"""Between the seeds of a trial's curves of several metrics."""
_PLURAL = re.compile(r"(?<=ch)es$|(?<!s)s$")
"""Of batches, and of epochs, steps, samples."""
_BUDGETS = {"slot_hours": "slot hours", "wall_clock": "s from the start of the first trial"}
_NOT_NEEDED = {"searcher.metric"}
"""Fields that a submission needs and a preview does not."""


@dataclass(frozen=True)
class Preview:
    """A finished preview and what it was computed from."""

    searcher: Mapping[str, Any]
    seed: int
    report_every: int
    length: int
    trials: list[SimulatedTrial]
    notes: list[str] = field(default_factory=list)
    """What the method says of its choices."""
    stopping: bool = False
    """Whether policies watch the trials."""

    @property
    def rounds(self) -> bool:
        """Whether the method has rounds, not rungs."""
        return bool(_rounds(self.searcher))

    @property
    def parents(self) -> dict[int, int]:
        """By trial from whose checkpoint it began, of those that did so."""
        indices = {one.trial.request_id: one.trial.index for one in self.trials}
        cloned = [one.trial for one in self.trials if one.trial.parent is not None]
        return {one.index: indices[str(one.parent).rpartition("@")[0]] for one in cloned}

    @property
    def aims(self) -> list[fronts.Objective]:
        """The objectives, if there are several."""
        found = fronts.objectives({"searcher": self.searcher})
        return found if len(found) > 1 else []

    def values(self, trial: SimulatedTrial) -> dict[str, float | None]:
        """Return the last value of each objective of a trial; the searcher's metric is the first."""
        first, *others = (aim.name for aim in self.aims)
        return {first: trial.metric, **{name: trial.values.get(name) for name in others}}

    @property
    def front(self) -> list[int]:
        """The trials on the Pareto front of the made-up values; empty for one objective."""
        if not self.aims:
            return []
        values = {one.trial.index: [v for v in self.values(one).values() if v is not None] for one in self.trials}
        values = {index: found for index, found in values.items() if len(found) == len(self.aims)}
        return fronts.frontier(values, self.aims)

    @property
    def unit(self) -> str:
        """The name of a step."""
        return str(self.searcher.get("time_metric") or "steps")


# --- the search -----------------------------------------------------------------------------------------------


def read_config(path: Path) -> tuple[dict[str, Any], list[Problem]]:
    """Read an experiment config; return it resolved, with its problems (empty config if they are errors).

    Args:
        path: The file; `-` is standard input.
    """
    from detlab.schemas.expconf import check, load_yaml, resolve

    standard_input = str(path) == "-"
    name = "standard input" if standard_input else path.name
    try:
        text = (sys.stdin.buffer.read() if standard_input else path.read_bytes()).decode()
    except UnicodeDecodeError as error:
        return {}, [Problem(name, f"is not UTF-8 text: {error.reason} at byte {error.start}")]
    raw, problems = load_yaml(text, name)
    if raw is None and problems:
        return {}, [replace(problem, path=problem.path or name) for problem in problems]
    problems = list(dict.fromkeys([*problems, *check(raw)]))
    known = {problem.path for problem in problems if problem.level == "error"}
    needed = [
        problem
        for problem in check(raw, complete=True)
        if problem.level == "error"
        and problem.path.split(".")[0] == "searcher"
        and problem.path not in known | _NOT_NEEDED
    ]
    warnings = [p for p in problems if p.level == "warning" and p.path not in {n.path for n in needed}]
    errors = [p for p in problems if p.level == "error"] + needed
    return ({} if errors else resolve(raw)), errors + warnings


def run_preview(
    config: Mapping[str, Any],
    function: Objective | None,
    report_every: int | None,
    length: int | None,
    seed: int,
) -> Preview:
    """Run the search of a resolved config.

    Args:
        config: Resolved experiment config.
        function: The guarded objective; None for a made-up random curve.
        report_every: Steps between reports; None for the first rung's units, else 1.
        length: Steps after which a trial ends by itself; None for `max_time`, else one report.
        seed: Seed of the search.

    Raises:
        SearcherConfigError: If no search can be made from the config.
        EndlessSearchError: If nearly all hyperparameters are invalid, or the search waits for ever.
    """
    settings: Mapping[str, Any] = config["searcher"]
    if settings.get("name") == "custom":
        raise SearcherConfigError(
            "searcher.name: a custom search is decided by your class, which runs on the cluster: submit it with a small"
            " max_trials and a fast entrypoint instead"
        )
    once = {key: value for key, value in settings.items() if key != "seeds"}  # of each point one trial is shown
    stopping = config.get("stopping") or ()
    searcher: Searcher = make_searcher(once, config.get("hyperparameters") or {}, seed, stopping=stopping)
    if searcher.trials_total > _MOST_TRIALS:
        raise SearcherConfigError(
            f"searcher: the search has {searcher.trials_total:,} trials; at most {_MOST_TRIALS:,} can be previewed"
        )
    every = report_every or searcher.method.first_units or 1
    until = length or settings.get("max_time") or _rounds(settings) or every
    smaller = settings.get("smaller_is_better") is not False

    def curve(trial: CreateTrial, step: int) -> float:
        return random_curve(trial, step, until, smaller)

    def further(place: int, smaller: bool) -> Objective:
        def value(trial: CreateTrial, step: int) -> float:
            own = replace(trial, trial_seed=(trial.trial_seed + place * _APART) % 2**32)
            return random_curve(own, step, until, smaller)

        return value

    aims = fronts.objectives(config)
    others = {aim.name: further(place, aim.smaller_is_better) for place, aim in enumerate(aims) if place}
    trials = simulate(searcher, function or curve, every, until, others)
    return Preview(settings, seed, every, until, trials, searcher.notes(), bool(stopping))


def _rounds(settings: Mapping[str, Any]) -> int:
    """Return the units of all rounds of a population, 0 if there is none."""
    return int(settings.get("num_rounds") or 0) * int(settings.get("length_per_round") or 0)


# --- output ---------------------------------------------------------------------------------------------------


def why(trial: SimulatedTrial, unit: str, *, rounds: bool = False) -> str:
    """Why a trial ended, for people.

    Args:
        trial: The trial.
        unit: Of the time metric.
        rounds: Whether the method has rounds after which trials are replaced, not rungs.
    """
    match trial.ended:
        case "completed":
            return "completed its length"
        case "error":
            return "invalid hyperparameters" if trial.invalid else "error"
        case "stopped" if trial.evidence:
            return f"stopped {trial.evidence}"
        case "stopped":
            number, count = (trial.rung or 0) + 1, len(trial.rungs)
            if not count:
                return "stopped"
            at = counted(trial.rungs[number - 1], unit)
            if rounds:
                return (
                    f"trained all rounds ({at})"
                    if number == count
                    else f"replaced after round {number} of {count} ({at})"
                )
            return (
                f"stopped at the top rung ({at})" if number == count else f"stopped at rung {number} of {count} ({at})"
            )


def counted(number: int, unit: str) -> str:
    """Return `9 epochs` or `1 epoch`, whatever the unit is called."""
    return f"{number} {_PLURAL.sub('', unit) if number == 1 else unit}"


def as_json(preview: Preview) -> dict[str, Any]:
    """Return the machine-readable form."""
    return {
        "searcher": preview.searcher["name"],
        "experiment_seed": preview.seed,
        "report_every": preview.report_every,
        "length": preview.length,
        "unit": preview.unit,
        "total_steps": sum(trial.steps for trial in preview.trials),
        **({"pareto_front": preview.front} if preview.aims else {}),
        "trials": [
            {
                "index": trial.trial.index,
                "hparams": encode_floats(trial.trial.hparams),
                "steps": trial.steps,
                "ended": trial.ended,
                "why": why(trial, preview.unit, rounds=preview.rounds),
                **({"parent": preview.parents[trial.trial.index]} if trial.trial.index in preview.parents else {}),
                "metric": encode_floats(trial.metric),
                **({"metrics": encode_floats(preview.values(trial))} if preview.aims else {}),
                "error": trial.error,
            }
            for trial in preview.trials
        ],
    }


def _flat(hparams: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in hparams.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _ended(trial: SimulatedTrial, preview: Preview) -> str:
    parent = preview.parents.get(trial.trial.index)
    told = why(trial, preview.unit, rounds=preview.rounds)
    return told if parent is None else f"{told}; began as a clone of trial {parent}"


def as_table(preview: Preview) -> Table:
    """One row per trial."""
    table = Table(title=None, show_edge=False, pad_edge=False)
    table.add_column("trial", justify="right")
    table.add_column("hyperparameters")
    table.add_column("steps", justify="right")
    for name in [f"last {aim.name}" for aim in preview.aims] or ["last metric"]:
        table.add_column(Text(name), justify="right")
    table.add_column("ended")
    for trial in preview.trials:
        hparams = "  ".join(f"{name}={_short(value)}" for name, value in _flat(trial.trial.hparams))
        shown = list(preview.values(trial).values()) if preview.aims else [trial.metric]
        metrics = ["" if value is None else _short(value) for value in shown]
        reason = Text(_ended(trial, preview), style="red" if trial.ended == "error" else "")
        table.add_row(str(trial.trial.index), Text(hparams), str(trial.steps), *metrics, reason)
    return table


def summary(preview: Preview) -> str:
    """Summarize the trials, the steps against training every trial to its full length, and how many stopped where."""
    trials = preview.trials
    seeds = preview.searcher.get("seeds") or 1
    steps, full = sum(trial.steps for trial in trials), len(trials) * preview.length
    noun = "trial" if len(trials) == 1 else "trials"
    share = f"{100 * steps / full:.0f} % of" if full else "of"
    parts = [f"{len(trials)} {noun}, {counted(steps, preview.unit)} in all: {share} the {full} of full training"]
    stopped = Counter(
        (trial.rungs[trial.rung], trial.rung == len(trial.rungs) - 1) for trial in trials if trial.rung is not None
    )
    if stopped:
        places = [f"{n} at {units}{' (top)' if top else ''}" for (units, top), n in sorted(stopped.items())]
        parts.append(f"{'left after rounds:' if preview.rounds else 'stopped'} {', '.join(places)}")
    if policies := sum(1 for trial in trials if trial.evidence):
        parts.append(f"stopped by a policy {policies}")
    counts = Counter(trial.ended for trial in trials)
    if counts["completed"]:
        parts.append(f"completed {counts['completed']}")
    if counts["error"]:
        parts.append(f"failed {counts['error']}")
    if preview.aims:
        names = " and ".join(aim.name for aim in preview.aims)
        parts.append(f"{len(preview.front)} on the Pareto front of {names}")
    if seeds > 1:
        parts.append(f"each of them is trained {seeds} times, with different seeds")
    return "; ".join(parts) + "."


# --- the command ----------------------------------------------------------------------------------------------


def _say(text: str) -> None:
    click.echo(text, err=True)


def _seed_of(config: Mapping[str, Any], given: int | None) -> int:
    if given is not None:
        return given
    configured = (config.get("reproducibility") or {}).get("experiment_seed")
    if configured is None:
        _say(f"reproducibility.experiment_seed is not set: previewing with seed {_DEFAULT_SEED}")
        return _DEFAULT_SEED
    return int(configured)


def _refuse(lines: list[str]) -> None:
    for line in lines:
        _say(line)
    raise SystemExit(2)


def _left_out(preview: Preview) -> Iterator[str]:
    """Say what the preview cannot show: budgets, and policies that get a single report of a trial."""
    budget = preview.searcher.get("budget") or {}
    limits = [f"{budget[key]:g} {what}" for key, what in _BUDGETS.items() if budget.get(key) is not None]
    if limits:
        yield f"searcher.budget ends the search after {' or '.join(limits)}; no time passes here, so it is not shown"
    if preview.stopping and preview.length < 2 * preview.report_every:
        yield (
            f"each trial reports once, at {counted(preview.report_every, preview.unit)}, so policies have little"
            " to judge: give --length and --report-every, such as --report-every 1 --length 20"
        )


def _print(preview: Preview, as_text: bool) -> None:
    for trial in preview.trials:
        if trial.error is not None:
            _say(f"trial {trial.trial.index}: {trial.error}")
    for note in preview.notes:
        _say(note)
    for note in _left_out(preview):
        _say(note)
    if not as_text:
        click.echo(json.dumps(as_json(preview), indent=2, allow_nan=False))
        return
    console = Console(width=None if sys.stdout.isatty() else 120, force_jupyter=False)
    console.print(as_table(preview))
    console.print(Text(summary(preview)))


@click.command("preview-search")
@click.argument("config", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option(
    "--objective",
    "objective_spec",
    metavar="FILE.py:FUNCTION",
    help="f(trial_index, hparams, step) -> metric stands for training; without it, a seeded random curve.",
)
@click.option(
    "--report-every",
    type=click.IntRange(min=1),
    metavar="N",
    help="Report at N, 2N, ... units of time_metric, and at the end. Default: the first rung, else 1.",
)
@click.option(
    "--length",
    type=click.IntRange(min=1),
    metavar="L",
    help="Where a trial ends that no searcher stops. Default: max_time, else one report.",
)
@click.option("--json", "as_json_flag", is_flag=True, help="Print JSON.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    metavar="SEED",
    help="Search with this seed. Default: reproducibility.experiment_seed, else 0.",
)
def preview_search(
    *,
    config: Path,
    objective_spec: str | None,
    report_every: int | None,
    length: int | None,
    as_json_flag: bool,
    seed: int | None,
) -> None:
    """Run the search of CONFIG (`-` for standard input) without training.

    The same code that searches on the cluster runs here against an objective function, one trial after another
    in creation order, and shows each trial's hyperparameters, how long it would train and why it would end.
    Needs no cluster.

    \b
    Example:
      det preview-search adaptive.yaml
      det preview-search adaptive.yaml --objective toy.py:loss --report-every 4
    where toy.py has
      def loss(trial_index, hparams, step):
          return (hparams["lr"] - 0.01) ** 2 + 1 / step

    Exit status: 0, 2 if CONFIG or --objective is wrong, 1 if the search cannot end.
    """
    resolved, problems = read_config(config)
    wrong = [str(problem) for problem in problems if problem.level == "error"]
    objective: Objective | None = None
    if objective_spec is not None:
        try:
            function = load_objective(objective_spec)
            objective = guard(function, Path(objective_spec.rpartition(":")[0]))
        except ObjectiveSpecError as error:
            wrong.append(f"--objective: {error}")
    if wrong:
        _refuse(wrong)
    for problem in problems:
        _say(str(problem))
    try:
        preview = run_preview(resolved, objective, report_every, length, _seed_of(resolved, seed))
    except SearcherConfigError as error:
        _refuse([str(error)])
        return
    except EndlessSearchError as error:
        raise click.ClickException(str(error)) from None
    _print(preview, not as_json_flag)
