"""What the magics do: one function each, usable without IPython's parsing."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from detlab.client import Experiment
from detlab.client.facts import to_get_a_result, without_result
from detlab.errors import ConfigError, NotFound
from detlab.schemas.wire import ExperimentState, ExperimentView, FailureView, LogLine
from detlab_magics import forks
from detlab_magics.cells.outside import outside_warnings
from detlab_magics.cells.prepare import PreparedSubmission, prepare, read_config
from detlab_magics.errors import ExperimentFailed, MagicError, StoppedWatching
from detlab_magics.kernel import KernelSession, cell_id, cell_number, notebook_path
from detlab_magics.plaintext import in_notebook, name_cells, plain, print_given, print_warnings
from detlab_magics.tables import Listing, StatusTable
from detlab_magics.view.screen import headless, screen
from detlab_magics.view.show import Showing, show_ended
from detlab_magics.view.text import state_word

if TYPE_CHECKING:
    from detlab.client import Client, Submitted

SECOND_INTERRUPT_SECONDS = 2.0
UNSAVED = 8
"""Number of trials named whose work a pause may lose."""
RECENT = 100
"""Number of experiments searched for those that have not ended."""
RESUMABLE = (ExperimentState.ACTIVE, ExperimentState.PAUSED, ExperimentState.STOPPING_COMPLETED)
"""States of an experiment that the same cell shows instead of submitting it again."""


@dataclass(frozen=True)
class CellRequest:
    """A cell's wish to run an experiment."""

    text: str
    where: str
    """`cell 3`, or a file's name."""
    first_line: int = 2
    """The number of the text's first line, in errors: a cell's body begins in line 2."""
    name: str | None = None
    slots: int | None = None
    template: str | None = None
    """A template of the master that is laid under the configuration."""
    context: pathlib.Path | None = None
    metrics: tuple[str, ...] = ()
    """Validation metrics that the table of trials has columns of."""
    wait: bool | None = None
    """True: return at the end; False: show the live view and return; None: wait when headless."""
    new: bool = False
    dry_run: bool = False
    fork: int | None = None
    """The experiment that it is a fork of, and whose code it runs unless there is a context."""


def run(
    session: KernelSession,
    request: CellRequest,
    namespace: Mapping[str, Any],
    made: Callable[[Experiment], None] = lambda experiment: None,
) -> Experiment | None:
    """Submit a cell's experiment (or attach to the one it already is) and show it.

    Args:
        session: The kernel's session.
        request: The experiment to run.
        namespace: The notebook's variables.
        made: Called with the experiment before anything is shown or waited for.
    """
    config, places = read_config(request.text, namespace, request.where, request.first_line)
    source = {"notebook": notebook_path(), "cell_id": cell_id(), "where": request.where}
    prepared = prepare(
        config,
        session.modules,
        name=request.name,
        slots=request.slots,
        context=request.context,
        source=source,
        places=places,
        template=request.template,
    )
    if request.fork is not None:
        prepared = forks.of_experiment(session, request.fork, prepared, own_code=request.context is not None)
    if prepared.own_code:
        print_warnings(outside_warnings(prepared.bundle, request.context))
    if request.dry_run:
        _dry_run(session.client(), prepared)
        return None
    unattended = headless()
    experiment = None if request.new else _existing(session, prepared, ended=not unattended)
    if experiment is None:
        experiment = _submit(session, prepared)
    session.latest = experiment.id
    made(experiment)
    show(session, experiment, wait=unattended if request.wait is None else request.wait, metrics=request.metrics)
    return experiment


def _existing(session: KernelSession, prepared: PreparedSubmission, *, ended: bool) -> Experiment | None:
    """Return the experiment that this very cell already is: one of this session, or one that has not ended.

    Args:
        session: The kernel's session.
        prepared: What would be submitted.
        ended: Take one of this session that has ended, too: its result is shown again.
    """
    client = session.client()
    known = session.submitted.get((client.address.url, prepared.key))
    experiment = None if known is None else _still_there(client, known)
    if experiment is not None and experiment.state.terminal and not ended:
        experiment = None
    if experiment is None:
        experiment = _unfinished(client, prepared.key)
    if experiment is None:
        return None
    state = experiment.state.value.lower()
    print(f"experiment {experiment.id} already has this configuration and code ({state}); --new submits again")
    if experiment.state is ExperimentState.PAUSED:
        print(f"it is paused: %det_activate {experiment.id} resumes it")
    session.submitted[client.address.url, prepared.key] = experiment.id
    return experiment


def _unfinished(client: Client, key: str) -> Experiment | None:
    """Return the newest of the user's experiments that was submitted with a key and has not ended."""
    owner = client.whoami().name
    found = [
        experiment
        for state in RESUMABLE
        for experiment in client.list_experiments(owner=owner, state=state.value)
        if experiment.view.source.get("key") == key
    ]
    return max(found, key=lambda experiment: experiment.id, default=None)


def _still_there(client: Client, experiment_id: int) -> Experiment | None:
    try:
        return client.get_experiment(experiment_id)
    except NotFound:  # deleted meanwhile
        return None


def _submit(session: KernelSession, prepared: PreparedSubmission) -> Experiment:
    client = session.client()
    source = {**prepared.source, "key": prepared.key}
    reply = _send(client, prepared, source=source)
    assert reply.experiment is not None  # only a dry run has none
    session.submitted[client.address.url, prepared.key] = reply.experiment.id
    print(f"experiment {reply.experiment.id} submitted with {_shipped(prepared)}")
    print_warnings(reply.warnings)
    print_given(reply.given)
    return reply.experiment


def _send(client: Client, prepared: PreparedSubmission, **options: Any) -> Submitted:
    """Submit; a configuration that the master refuses is explained by the lines of the cell."""
    try:
        bundle = prepared.bundle if prepared.own_code else None
        return client.submit(
            prepared.config,
            bundle=bundle,
            forked_from=prepared.forked_from,
            code=prepared.code,
            template=prepared.template,
            **options,
        )
    except ConfigError as problem:
        raise problem if prepared.places is None else prepared.places.explain(problem) from None


def _dry_run(client: Client, prepared: PreparedSubmission) -> None:
    reply = _send(client, prepared, dry_run=True)
    print(f"would {'upload' if prepared.own_code else 'run'} {_shipped(prepared)}")
    for file in prepared.bundle.files if prepared.own_code else ():
        print(f"  {file.size:>9,}  {plain(file.path)}")
    print_warnings(reply.warnings)
    print_given(reply.given)
    print("nothing was submitted (--dry-run)")


def _shipped(prepared: PreparedSubmission) -> str:
    if not prepared.own_code:
        return f"the code of experiment {prepared.forked_from}" if prepared.code else "no files"
    names = [plain(f.path, 40) for f in prepared.bundle.files]
    if not names:
        return "no files"
    listed = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return f"{len(names)} file{'s' if len(names) > 1 else ''}, {prepared.bundle.size:,} bytes: {listed}"


def watch(session: KernelSession, experiment_id: int, *, wait: bool | None = None, metrics: Sequence[str] = ()) -> None:
    """Show an experiment's live view."""
    experiment = session.client().get_experiment(experiment_id)
    session.latest = experiment_id
    show(session, experiment, wait=headless() if wait is None else wait, metrics=metrics)


def show(session: KernelSession, experiment: Experiment, *, wait: bool, metrics: Sequence[str] = ()) -> None:
    """Show the live view; return at once, or with `wait` at the experiment's end.

    An experiment has one live view in a kernel: an earlier one becomes a still picture.

    Raises:
        ExperimentFailed: With `wait`: the experiment did not end COMPLETED.
        StoppedWatching: The cell was interrupted; the experiment continues.
    """
    earlier = session.shown.pop(experiment.id, None)
    if earlier is not None:
        earlier.leave(f"the live view moved to cell {cell_number()}")
    place = screen(live=not headless())
    if experiment.state.terminal:
        _raise_unless_completed(show_ended(experiment, place, metrics).experiment, wait)
        return
    showing = Showing(experiment, place, metrics)
    session.shown[experiment.id] = showing
    if not wait:
        showing.in_background(lambda done: _forget(session, done))
        return
    try:
        state = showing.until_end()
    except KeyboardInterrupt:
        raise interrupted(session, experiment.id) from None
    finally:
        _forget(session, showing)
    _raise_unless_completed(state.experiment, wait)


def _forget(session: KernelSession, showing: Showing) -> None:
    if session.shown.get(showing.experiment_id) is showing:
        del session.shown[showing.experiment_id]


def interrupted(session: KernelSession, experiment_id: int) -> StoppedWatching:
    """Return the error of an interrupted cell; after two interrupts in a row it says how to end the experiment."""
    now, before = time.monotonic(), session.interrupted_at
    session.interrupted_at = now
    if now - before < SECOND_INTERRUPT_SECONDS:
        hint = f"it is still active. To kill it: %det_kill {experiment_id}"
    else:
        hint = f"to watch it again: %det_watch {experiment_id}; to kill it: %det_kill {experiment_id}"
    return StoppedWatching(f"stopped watching; experiment {experiment_id} continues", hint=hint)


def _raise_unless_completed(view: ExperimentView, wait: bool) -> None:
    missed = without_result(view)
    if wait and missed is not None:
        hint = plain(to_get_a_result(view), 200)
        raise ExperimentFailed(f"experiment {view.id} has no result: {plain(missed, 300)}", hint=hint)
    if not wait or view.state is ExperimentState.COMPLETED:
        return
    failure: FailureView | None = view.card or view.failure
    message = f"experiment {view.id} {'ended' if view.state.terminal else 'is'} {view.state.value}"
    if failure is not None:
        where = f" at {plain(failure.where)}" if failure.where else ""
        message += f": {plain(failure.message, 300)}{where}"
    hint = failure.hint if failure is not None and failure.hint else f"%det_watch {view.id}"
    raise ExperimentFailed(message, hint=in_notebook(hint))


def act(session: KernelSession, experiment_id: int, action: Literal["pause", "activate", "kill"]) -> str:
    """Pause, activate or kill an experiment; return one line about the result."""
    experiment = session.client().get_experiment(experiment_id)
    unsaved = [str(trial.id) for trial in experiment.unsaved_trials()] if action == "pause" else []
    if unsaved:
        named = ", ".join(unsaved[:UNSAVED]) + (" …" if len(unsaved) > UNSAVED else "")
        print(f"warning: no checkpoint yet of trial {named}: code that saves none when asked to leave begins anew")
    {"pause": experiment.pause, "activate": experiment.activate, "kill": experiment.kill}[action]()
    return f"experiment {experiment.id}: {state_word(experiment.view)}"


def logs(
    session: KernelSession,
    trial_id: int,
    *,
    tail: int | None,
    follow: bool,
    rank: int | None = None,
    node: str | None = None,
) -> None:
    """Print a trial's output, with cells named where their lines appear in tracebacks.

    Args:
        session: The kernel's session.
        trial_id: The trial.
        tail: Number of last lines to print; None: all.
        follow: Continue until the trial has ended.
        rank: Only this rank's lines.
        node: Only lines that were written on this agent.

    Raises:
        MagicError: `tail` is negative.
    """
    if tail is not None and tail < 0:
        raise MagicError("--tail must be 0 or more; --all prints every line")
    trial = session.client().get_trial(trial_id)
    cells = trial.get_experiment().view.source.get("cells", {})
    pruned = trial.removed_logs()
    if pruned.removed:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(pruned.removed_at))
        print(f"[{pruned.removed:,} lines from before {day} were removed by retention]")
    several, last = len(trial.nodes) > 1, None
    # With 0 the last line is fetched for its id alone.
    for line in trial.logs(tail=1 if tail == 0 else tail, rank=rank, node=node):
        last = line.id
        if tail != 0:
            _print_line(line, cells, several=several)
    if not follow:
        return
    for line in trial.iter_logs(follow=True, after=last, rank=rank, node=node):
        _print_line(line, cells, several=several)


def _print_line(line: LogLine, cells: Mapping[str, Any], *, several: bool) -> None:
    """Print a line, with its node where there are several and with its rank where it has one."""
    shown = plain(name_cells(line.text.expandtabs(), cells), 4000)
    where = [plain(line.node, 200)] if several and line.node else []
    if line.rank is not None:
        where.append(f"rank={line.rank}")
    print(f"[{' '.join(where)}] {shown}" if where else shown)


def status(session: KernelSession, magics: list[tuple[str, str]]) -> StatusTable:
    """Return the cluster's state and the magics, to be displayed. A cluster out of reach is shown, not raised.

    Args:
        session: The kernel's session.
        magics: Each magic, with what it does in one line.
    """
    return StatusTable.collect(session, magics)


def listing(session: KernelSession, *, active: bool, limit: int) -> Listing:
    """Return experiments, newest first, to be displayed.

    Args:
        session: The kernel's session.
        active: Only experiments that have not ended.
        limit: List at most this many.

    Raises:
        MagicError: `limit` is less than 1.
    """
    if limit < 1:
        raise MagicError("--limit must be 1 or more")
    client = session.client()
    found = [e.view for e in client.list_experiments(limit=max(limit, RECENT) if active else limit)]
    if not found and not active:
        return Listing([], active, hidden=len(client.list_experiments(limit=limit, archived=True)))
    return Listing([e for e in found if not (active and e.state.terminal)][:limit], active)
