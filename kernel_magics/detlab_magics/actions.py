"""What the magics do: one function each, usable without IPython's parsing."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from detlab.client import Experiment
from detlab.schemas.wire import ExperimentState, ExperimentView, FailureView, ProblemView
from detlab_magics.errors import ExperimentFailed, MagicError, StoppedWatching
from detlab_magics.follow import Watch
from detlab_magics.kernel import KernelSession, cell_id, notebook_path
from detlab_magics.screen import headless, screen
from detlab_magics.submit import Prepared, prepare, read_config
from detlab_magics.tables import Listing, Status
from detlab_magics.view.text import plain

SECOND_INTERRUPT_SECONDS = 2.0


@dataclass(frozen=True)
class Request:
    """A cell's wish to run an experiment."""

    text: str
    where: str
    name: str | None = None
    slots: int | None = None
    context: pathlib.Path | None = None
    wait: bool | None = None
    """True: return at the end; False: show the live view and return; None: wait when headless."""
    new: bool = False
    dry_run: bool = False


def run(session: KernelSession, request: Request, namespace: Mapping[str, Any]) -> Experiment | None:
    """Submit a cell's experiment (or attach to the one it already is) and show it."""
    config = read_config(request.text, namespace, request.where)
    source = {"notebook": notebook_path(), "cell_id": cell_id(), "where": request.where}
    prepared = prepare(
        config, session.modules, name=request.name, slots=request.slots, context=request.context, source=source
    )
    if request.dry_run:
        _dry_run(session, prepared)
        return None
    nobody = headless()
    experiment = None if request.new or nobody else _existing(session, prepared)
    if experiment is None:
        experiment = _submit(session, prepared)
    session.latest = experiment.id
    show(session, experiment, wait=nobody if request.wait is None else request.wait)
    return experiment


def _existing(session: KernelSession, prepared: Prepared) -> Experiment | None:
    """Return the experiment that this very cell already is: from this session, or still running from an earlier."""
    client = session.client()
    known = session.submitted.get(prepared.key)
    if known is None:
        recent = client.list_experiments(limit=200)
        same = (e.id for e in recent if not e.state.terminal and e.view.source.get("key") == prepared.key)
        known = next(same, None)
    if known is None:
        return None
    experiment: Experiment = client.get_experiment(known)
    print(f"experiment {known} has this configuration and code already ({experiment.state.value}); --new submits again")
    session.submitted[prepared.key] = known
    return experiment


def _submit(session: KernelSession, prepared: Prepared) -> Experiment:
    source = {**prepared.source, "key": prepared.key}
    reply = session.client().submit(prepared.config, bundle=prepared.bundle, source=source)
    experiment: Experiment = reply.experiment
    session.submitted[prepared.key] = experiment.id
    print(f"experiment {experiment.id} submitted: {_shipped(prepared)}")
    _print_warnings(reply.warnings)
    return experiment


def _dry_run(session: KernelSession, prepared: Prepared) -> None:
    reply = session.client().submit(prepared.config, bundle=prepared.bundle, dry_run=True)
    print(f"would ship {_shipped(prepared)}")
    for file in prepared.bundle.files:
        print(f"  {file.size:>9,}  {plain(file.path)}")
    _print_warnings(reply.warnings)
    print("nothing was submitted (--dry-run)")


def _shipped(prepared: Prepared) -> str:
    names = [plain(f.path, 40) for f in prepared.bundle.files]
    listed = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    size = sum(f.size for f in prepared.bundle.files)
    return f"{len(names)} files, {size:,} bytes ({listed})" if names else "no files"


def _print_warnings(warnings: list[ProblemView]) -> None:
    for warning in warnings:
        hint = f" ({warning.hint})" if warning.hint else ""
        print(plain(f"warning: {warning.path}: {warning.message}{hint}", 400))


def watch(session: KernelSession, experiment_id: int, *, wait: bool | None = None) -> None:
    """Show an experiment's live view."""
    experiment = session.client().get_experiment(experiment_id)
    session.latest = experiment_id
    show(session, experiment, wait=headless() if wait is None else wait)


def show(session: KernelSession, experiment: Experiment, *, wait: bool) -> None:
    """Show the live view; return at once, or with `wait` at the experiment's end.

    Raises:
        ExperimentFailed: `wait`, and it did not end COMPLETED.
        StoppedWatching: The cell was interrupted; the experiment runs on.
    """
    old = session.watches.pop(experiment.id, None)
    if old is not None:
        old.stop()
    view: ExperimentView = experiment.view
    place = screen(live=not headless())
    following = Watch(experiment, view.metric, place.paint)
    session.watches[experiment.id] = following
    following.start()
    if not wait:
        following.paint_in_background(lambda watch: _finished(watch, place))
        return
    try:
        state = following.paint_until_end()
    except KeyboardInterrupt:
        following.stop()
        if following.state is not None:
            place.freeze(following.state)
        raise _interrupted(session, experiment.id) from None
    place.freeze(state)
    if state.experiment.state is not ExperimentState.COMPLETED:
        raise _failed(state.experiment)


def _finished(watch: Watch, place: Any) -> None:
    state = watch.state
    if state is not None and (state.ended or watch.error is not None):
        place.freeze(state)


def _interrupted(session: KernelSession, experiment_id: int) -> StoppedWatching:
    now, before = time.monotonic(), session.interrupted_at
    session.interrupted_at = now
    if now - before < SECOND_INTERRUPT_SECONDS:
        hint = f"it still runs. To end it: %det_kill {experiment_id}"
    else:
        hint = f"%det_watch {experiment_id} shows it again; %det_kill {experiment_id} ends it"
    return StoppedWatching(f"stopped watching; experiment {experiment_id} runs on", hint=hint)


def _failed(view: ExperimentView) -> ExperimentFailed:
    failure: FailureView | None = view.failure
    message = f"experiment {view.id} ended {view.state.value}"
    if failure is not None:
        where = f" at {plain(failure.where)}" if failure.where else ""
        message += f": {plain(failure.message, 300)}{where}"
    hint = failure.hint if failure is not None and failure.hint else f"det experiment describe {view.id}"
    return ExperimentFailed(message, hint=hint)


def act(session: KernelSession, experiment_id: int, action: Literal["pause", "activate", "kill"]) -> str:
    """Pause, activate or kill an experiment; return what became of it in a line."""
    experiment = session.client().get_experiment(experiment_id)
    getattr(experiment, action)()
    return f"experiment {experiment.id}: {experiment.state.value}"


def logs(session: KernelSession, trial_id: int, *, tail: int, follow: bool) -> None:
    """Print a trial's output, with cells named where their lines appear in tracebacks."""
    trial = session.client().get_trial(trial_id)
    cells = trial.get_experiment().view.source.get("cells", {})
    for line in trial.iter_logs(follow=follow, tail=tail or None):
        rank = "" if line.rank is None else f"[rank={line.rank}] "
        print(rank + plain(name_cells(line.text, cells), 4000))


def name_cells(text: str, cells: Mapping[str, Any]) -> str:
    """Return a traceback line with the file of a captured cell named by its cell: `File "cell 14 (train.py)"`."""
    for filename, cell in cells.items():
        start = text.find(f'/{filename}", line ')
        begin = text.rfind('"', 0, start) if start >= 0 else -1
        if begin >= 0:
            end = text.index('"', start)
            text = f"{text[: begin + 1]}cell {cell['cell']} ({filename}){text[end:]}"
    return text


def status(session: KernelSession) -> Status:
    """Return the cluster's state and the magics, to be displayed. A cluster out of reach is shown, not raised."""
    from detlab_magics.magics import magic_table

    return Status.collect(session, magic_table())


def listing(session: KernelSession, *, active: bool, limit: int) -> Listing:
    """Return experiments, newest first, to be displayed."""
    if limit < 1:
        raise MagicError("--limit must be 1 or more")
    found = [e.view for e in session.client().list_experiments(limit=limit)]
    return Listing([e for e in found if not (active and e.state.terminal)], active)
