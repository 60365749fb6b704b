"""Printing the output of trials and user tasks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from itertools import islice
from typing import Any, TypeVar

import click

from detlab.cli.log_keeping import note_removed
from detlab.cli.log_picking import LEVELS, STREAMS, Picking, picking
from detlab.cli.printing import clean, json_text, note, say
from detlab.cli.watching import connection_notes
from detlab.client.resources import Experiment, Trial
from detlab.client.task_facts import kind_title
from detlab.client.tasks import Task
from detlab.schemas.wire import LogLine

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What the options of a `logs` command said."""

    follow: bool
    tail: int | None = None
    head: int | None = None
    rank: int | None = None
    search: str | None = None
    picking: Picking = field(default_factory=Picking)


def log_options(function: Callable[..., T]) -> Callable[..., T]:
    """Add the options of a `logs` command, given to the function as `options`."""

    @click.option("-f", "--follow", is_flag=True, help="Go on until it has ended.")
    @click.option("--tail", type=click.IntRange(0, 10_000), metavar="N", help="Only the last N lines.")
    @click.option("--head", type=click.IntRange(1, 10_000), metavar="N", help="Only the first N lines.")
    @click.option("--rank", type=int, help="Only this rank's lines.")
    @click.option("--search", metavar="TEXT", help="Only lines with this text.")
    @click.option("--regex", metavar="PATTERN", help="Only lines in which this regular expression is found.")
    @click.option("--level", type=click.Choice(LEVELS, case_sensitive=False), help="Only lines at least as severe.")
    @click.option("--stream", type=click.Choice(STREAMS), help="Only lines that were written there.")
    @click.option("--since", metavar="TIME", help="Only lines from then on: 10m, 2h, 3d ago, or 2026-03-01T12:30.")
    @click.option("--until", metavar="TIME", help="Only lines before then.")
    @wraps(function)
    def wrapped(
        *args: Any,
        follow: bool,
        tail: int | None,
        head: int | None,
        rank: int | None,
        search: str | None,
        regex: str | None,
        level: str | None,
        stream: str | None,
        since: str | None,
        until: str | None,
        **more: Any,
    ) -> T:
        if head is not None and (follow or tail is not None):
            raise click.UsageError("--head shows the first lines: leave out --tail and -f")
        wanted = picking(level, stream, since, until, regex, time.time())
        return function(*args, options=LogOptions(follow, tail, head, rank, search, wanted), **more)

    return wrapped


def line_text(line: LogLine, *, trial: bool) -> str:
    """Return a line as it is printed: trial and rank where there are several."""
    prefix = f"[trial {line.trial_id}] " if trial else ""
    rank = f"[rank {line.rank}] " if line.rank is not None else ""
    text = line.text.rstrip("\r").rsplit("\r", 1)[-1]  # what a terminal would show of a progress bar
    return f"{prefix}{rank}{clean(text)}"


def _title(source: Trial | Task) -> str:
    if isinstance(source, Task):
        return clean(f"{kind_title(source.kind)} {source.id}")
    return f"Trial {source.id}"


def print_trial_logs(trial: Trial | Task, options: LogOptions, as_json: bool, *, prefixed: bool = False) -> int:
    """Print the output of a trial or a user task; return the exit status."""
    known: int | None = None
    if options.tail is not None or not options.follow:
        lines = _lines(trial, options)
        if isinstance(trial, Trial) and not as_json and not (lines and lines[0].id == 1):
            note_removed(trial)
        for line in lines[-options.tail :] if options.tail else lines if options.tail is None else []:
            _print(line, as_json, prefixed)
        known = lines[-1].id if lines else None
        if not (lines or options.follow or as_json or prefixed):
            note(f"{_title(trial)} has no output{' like that' if options.search or options.picking.picky else ' yet'}.")
    if not options.follow:
        return 0
    try:
        follow_lines(trial, options, as_json=as_json, prefixed=prefixed, after=known)
    except KeyboardInterrupt:
        note(f"\nStopped following. {_title(trial)} runs on.")
        return 130
    return 0


def _lines(source: Trial | Task, options: LogOptions) -> list[LogLine]:
    """Return what is written so far and was asked for."""
    if options.head is not None or (options.picking.picky and options.tail != 0):
        asked = source.search_logs(options.search, rank=options.rank, **options.picking.asked())
        every = options.picking.of(asked)
        return list(deque(every, options.tail) if options.head is None else islice(every, options.head))
    # With `--tail 0 -f` the last line is fetched for its id alone.
    fetch = options.tail if options.tail is None or not options.follow else max(1, options.tail)
    return source.logs(fetch, rank=options.rank, search=options.search)


def follow_lines(trial: Trial | Task, options: LogOptions, *, as_json: bool, prefixed: bool, after: int | None) -> None:
    """Print the output of a trial or a user task after a line until it has ended."""
    notes = connection_notes(what=_title(trial)) if isinstance(trial, Task) else connection_notes()
    lines = trial.iter_logs(follow=True, after=after, rank=options.rank, search=options.search, notice=notes)
    for line in options.picking.of(lines):
        _print(line, as_json, prefixed)


def _print(line: LogLine, as_json: bool, prefixed: bool) -> None:
    if as_json:
        say(json_text(line.model_dump_json()))
    else:
        say(line_text(line, trial=prefixed))


def print_experiment_logs(experiment: Experiment, trial_id: int | None, options: LogOptions, as_json: bool) -> int:
    """Print the output of one or of all trials of an experiment."""
    if options.follow and trial_id is None and not experiment.state.terminal:
        experiment.await_first_trial()
    trials = experiment.list_trials()
    chosen = [trial for trial in trials if trial_id is None or trial.id == trial_id]
    if trial_id is not None and not chosen:
        known = ", ".join(str(trial.id) for trial in trials[:20])
        raise click.UsageError(f"experiment {experiment.id} has no trial {trial_id}; it has: {known or 'none yet'}")
    if options.follow and len(chosen) > 1:
        known = ", ".join(str(trial.id) for trial in chosen[:20])
        raise click.UsageError(f"experiment {experiment.id} has {len(chosen)} trials; follow one by --trial: {known}")
    if not chosen and not as_json:
        note(f"Experiment {experiment.id} has no trials yet.")
    status = 0
    for trial in chosen:
        status = max(status, print_trial_logs(trial, options, as_json, prefixed=len(chosen) > 1))
    return status
