"""Printing the output of trials and user tasks."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import wraps
from itertools import islice
from typing import Any, TypeVar

import click

from detlab.cli.output.experiment_progress import connection_notes
from detlab.cli.output.log_context import FIRST_ERROR, MOST_CONTEXT, around
from detlab.cli.output.log_filters import LEVELS, SOURCES, STREAMS, Picking, picking
from detlab.cli.output.printing import clean, json_text, moment, note, say
from detlab.client.resources import Experiment, Trial
from detlab.client.task_facts import kind_title
from detlab.client.tasks import Task
from detlab.schemas.logwire import RemovedLogs
from detlab.schemas.wire import LogLine

T = TypeVar("T")
TIMES = ("local", "utc")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options of a `logs` command."""

    follow: bool
    tail: int | None = None
    head: int | None = None
    rank: int | None = None
    search: str | None = None
    node: str | None = None
    picking: Picking = field(default_factory=Picking)
    context: int = 0
    first_error: bool = False
    times: str | None = None


def log_options(function: Callable[..., T]) -> Callable[..., T]:
    """Add the options of a `logs` command, given to the function as `options`."""

    @click.option("-f", "--follow", is_flag=True, help="Follow until it has ended.")
    @click.option("--tail", type=click.IntRange(0, 10_000), metavar="N", help="Only the last N lines.")
    @click.option("--head", type=click.IntRange(1, 10_000), metavar="N", help="Only the first N lines.")
    @click.option("--rank", "--rank-id", "rank", type=int, help="Only this rank's lines.")
    @click.option("--node", "--agent-id", "node", metavar="AGENT", help="Only lines that were written on this agent.")
    @click.option("--search", metavar="TEXT", help="Only lines that contain this text.")
    @click.option("--regex", metavar="PATTERN", help="Only lines that match this regular expression.")
    @click.option(
        "--level", type=click.Choice(LEVELS, case_sensitive=False), help="Only lines of this level or more severe."
    )
    @click.option("--stream", "--stdtype", "stream", type=click.Choice(STREAMS), help="Only lines of this stream.")
    @click.option(
        "--source", type=click.Choice(SOURCES), help="Only lines of the task's program, or of the launcher around it."
    )
    @click.option(
        "--since",
        "--timestamp-after",
        "since",
        metavar="TIME",
        help="Only lines from this time on: 10m, 2h, 3d ago, or 2026-03-01T12:30.",
    )
    @click.option("--until", "--timestamp-before", "until", metavar="TIME", help="Only lines before this time.")
    @click.option(
        "-C",
        "--context",
        type=click.IntRange(1, MOST_CONTEXT),
        metavar="N",
        help="Also N lines before and after each line that fits; -- stands where lines are left out.",
    )
    @click.option(
        "--first-error",
        is_flag=True,
        help="Begin at the first line that tells of an error, by its level or its text; with -C, N lines earlier.",
    )
    @click.option("--times", type=click.Choice(TIMES), help="Begin each line with its time, local or in UTC.")
    @wraps(function)
    def wrapped(
        *args: Any,
        follow: bool,
        tail: int | None,
        head: int | None,
        rank: int | None,
        node: str | None,
        search: str | None,
        regex: str | None,
        level: str | None,
        stream: str | None,
        source: str | None,
        since: str | None,
        until: str | None,
        context: int | None,
        first_error: bool,
        times: str | None,
        **more: Any,
    ) -> T:
        if head is not None and (follow or tail is not None):
            raise click.UsageError("--head shows the first lines: leave out --tail and -f")
        wanted = picking(level, stream, since, until, regex, time.time(), source)
        options = LogOptions(follow, tail, head, rank, search, node, wanted, context or 0, first_error, times)
        _check(options)
        return function(*args, options=options, **more)

    return wrapped


def _check(options: LogOptions) -> None:
    """Refuse options that do not go together.

    Raises:
        click.UsageError: Some do not.
    """
    picked = options.search is not None or options.picking.picky
    if options.first_error and (picked or options.tail is not None or options.follow):
        raise click.UsageError("--first-error shows all lines from there on: of the others, it takes --rank, --node,"
                               " --head and -C")  # fmt: skip
    if options.context and not options.first_error:
        if options.follow or options.tail is not None or options.head is not None:
            raise click.UsageError("-C shows what was written around lines: leave out -f, --tail and --head")
        if not picked:
            raise click.UsageError("-C needs lines to look for: --search, --regex, --level, --stream or --source")


def line_text(line: LogLine, *, trial: bool, node: bool = False, times: str | None = None) -> str:
    """Return a line as it is printed: its time if it is wanted, trial, node and rank where there are several."""
    written = datetime.fromtimestamp(line.time, UTC if times == "utc" else None) if times else None
    moment_ = f"{written.isoformat(' ', 'milliseconds').replace('+00:00', 'Z')} " if written else ""
    prefix = f"[trial {line.trial_id}] " if trial else ""
    where = [clean(line.node)] if node and line.node else []
    if line.rank is not None:
        where.append(f"rank {line.rank}")
    rank = f"[{' '.join(where)}] " if where else ""
    text = line.text.rstrip("\r").rsplit("\r", 1)[-1]  # what a terminal would show of a progress bar
    return f"{moment_}{prefix}{rank}{clean(text)}"


def _title(source: Trial | Task) -> str:
    if isinstance(source, Task):
        return clean(f"{kind_title(source.kind)} {source.id}")
    return f"Trial {source.id}"


def print_trial_logs(trial: Trial | Task, options: LogOptions, as_json: bool, *, prefixed: bool = False) -> int:
    """Print the output of a trial or a user task; return the exit status."""
    if options.first_error:
        return _print_from_error(trial, options, as_json, prefixed=prefixed)
    if options.context:
        return _print_around(trial, options, as_json, prefixed=prefixed)
    known: int | None = None
    pruned = False
    if options.tail is not None or not options.follow:
        lines = _lines(trial, options)
        if isinstance(trial, Trial) and not as_json and not (lines and lines[0].id == 1):
            pruned = note_removed(trial)
        for line in lines[-options.tail :] if options.tail else lines if options.tail is None else []:
            _print(line, as_json, prefixed, _several(trial), options.times)
        known = lines[-1].id if lines else None
        if not (lines or options.follow or options.tail == 0 or as_json or prefixed):
            picked = options.search or options.node or options.picking.picky
            which = " like that" if picked else " left" if pruned else " yet"
            note(f"{_title(trial)} has no output{which}.")
    if not options.follow:
        return 0
    try:
        follow_lines(trial, options, as_json=as_json, prefixed=prefixed, after=known)
    except KeyboardInterrupt:
        note(f"\nStopped following. {_title(trial)} continues.")
        return 130
    return 0


def _lines(source: Trial | Task, options: LogOptions) -> list[LogLine]:
    """Return the requested lines that are written so far."""
    if options.head is not None or (options.picking.picky and options.tail != 0):
        asked = source.search_logs(options.search, rank=options.rank, node=options.node, **options.picking.asked())
        every = options.picking.of(asked)
        return list(deque(every, options.tail) if options.head is None else islice(every, options.head))
    # With `--tail 0 -f` the last line is fetched for its id alone.
    fetch = options.tail if options.tail is None or not options.follow else max(1, options.tail)
    return source.logs(fetch, rank=options.rank, search=options.search, node=options.node)


def follow_lines(trial: Trial | Task, options: LogOptions, *, as_json: bool, prefixed: bool, after: int | None) -> None:
    """Print the output of a trial or a user task after a line until it has ended."""
    notes = connection_notes(what=_title(trial)) if isinstance(trial, Task) else connection_notes()
    lines = trial.iter_logs(
        follow=True, after=after, rank=options.rank, search=options.search, node=options.node, notice=notes
    )
    several: bool | None = None
    for line in options.picking.of(lines):
        if several is None:  # it may have had no place yet when it was asked about
            several = _several(trial.reload() if isinstance(trial, Trial) and not trial.nodes else trial)
        _print(line, as_json, prefixed, several, options.times)


def _print_around(source: Trial | Task, options: LogOptions, as_json: bool, *, prefixed: bool) -> int:
    """Print the lines that fit with what stands around them."""
    several, text = _several(source), options.search and options.search.casefold()
    when = Picking(since=options.picking.since, until=options.picking.until)
    every = when.of(source.search_logs(rank=options.rank, node=options.node, since=when.since, until=when.until))

    def wanted(line: LogLine) -> bool:
        return options.picking.wants(line) and (not text or text in line.text.casefold())

    found = False
    for line in around(every, wanted, options.context):
        if line is not None:
            _print(line, as_json, prefixed, several, options.times)
        elif not as_json:
            say("--")
        found = True
    if not (found or as_json or prefixed):
        note(f"{_title(source)} has no output like that.")
    return 0


def _print_from_error(source: Trial | Task, options: LogOptions, as_json: bool, *, prefixed: bool) -> int:
    """Print the output from its first error on."""
    like: dict[str, Any] = {"rank": options.rank, "node": options.node}
    by_level, by_text = Picking(level="ERROR"), Picking(regex=re.compile(FIRST_ERROR))
    firsts = [
        next(by_level.of(source.search_logs(level="ERROR", **like)), None),
        next(by_text.of(source.search_logs(regex=FIRST_ERROR, **like)), None),
    ]
    known = [line.id for line in firsts if line is not None]
    if not known:
        if not (as_json or prefixed):
            note(f"{_title(source)} has told of no error.")
        return 0
    after = max(0, min(known) - 1 - options.context)
    several = _several(source)
    lines = source.iter_logs(after=after, rank=options.rank, node=options.node)
    for line in islice(lines, options.head):
        _print(line, as_json, prefixed, several, options.times)
    return 0


def _several(source: Trial | Task) -> bool:
    """Whether it runs, or ran, on several agents: the name of a single one would be noise on each line."""
    return isinstance(source, Trial) and len(source.nodes) > 1


def _print(line: LogLine, as_json: bool, prefixed: bool, several: bool, times: str | None) -> None:
    if as_json:
        say(json_text(line.model_dump_json()))
    else:
        say(line_text(line, trial=prefixed, node=several, times=times))


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


def removed_text(logs: RemovedLogs) -> str:
    """Return the notice about removed lines; empty if none were removed."""
    if not logs.removed:
        return ""
    lines = "1 line" if logs.removed == 1 else f"{logs.removed:,} lines"
    return (
        f"{lines} from before {moment(logs.removed_at)} {'was' if logs.removed == 1 else 'were'} removed by retention"
    )


def note_removed(trial: Trial) -> bool:
    """Print a notice if output of a trial was removed; return whether it was."""
    text = removed_text(trial.removed_logs())
    if text:
        note(f"Trial {trial.id}: {text}.")
    return bool(text)
