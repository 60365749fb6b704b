"""What the magics of user tasks do: one function each, usable without IPython's parsing."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from detlab.client import Task, TaskKind
from detlab.client.rendering import NO_MATH
from detlab.schemas.taskwire import TaskView
from detlab_magics.borrowed.running import Following, status_of
from detlab_magics.borrowed.shipping import ENTRYPOINT, Shipment, check_text, ship
from detlab_magics.cells.outside import outside_warnings
from detlab_magics.errors import MagicError
from detlab_magics.kernel import KernelSession, cell_id, notebook_path
from detlab_magics.plaintext import in_notebook, plain, print_given, print_warnings
from detlab_magics.tables import html_table, text_table
from detlab_magics.view.screen import ScreenOutput, headless

if TYPE_CHECKING:
    from detlab.client import Client


@dataclass(frozen=True)
class Borrow:
    """A cell's wish to run on borrowed slots."""

    text: str
    """The cell's body."""
    cell: int
    slots: int = 1
    ins: Sequence[str] = ()
    outs: Sequence[str] = ()
    image: str | None = None
    runtime: str | None = None
    pool: str | None = None
    priority: int | None = None
    template: str | None = None
    workspace: str | None = None
    project: str | None = None
    name: str | None = None
    context: pathlib.Path | None = None
    detach: bool = False


@dataclass(frozen=True)
class TaskPlace:
    """Where a task is to lie, whose members see its state; None: one's personal workspace."""

    workspace: str | None = None
    project: str | None = None


def borrow(session: KernelSession, wish: Borrow, variables: MutableMapping[str, Any]) -> Task:
    """Run a cell on borrowed slots; results are in `variables` when this returns, unless it was detached.

    Raises:
        MagicError: The cell or its variables cannot be used; no task was requested.
        CellFailed: The cell raised, or was ended.
        StoppedWatching: The user interrupted the cell.
    """
    name = f"cell {wish.cell}"
    text = f"# %%det_run\n{wish.text}"
    check_text(text, name)
    shipment = ship(text, name, variables, session.modules, ins=wish.ins, outs=wish.outs, context=wish.context)
    print_warnings(outside_warnings(shipment.bundle, wish.context))
    for variable, kind in shipment.pickled.items():
        print(f"note: {plain(variable)} goes in as a pickle ({plain(kind)})")
    submitted = session.client().submit_task(
        TaskKind.CELL,
        _config(wish),
        bundle=shipment.bundle,
        name=wish.name or _name(wish),
        source={"notebook": notebook_path(), "cell_id": cell_id(), "where": name, "cells": _cells(session, shipment)},
        workspace=wish.workspace,
        project=wish.project,
        template=wish.template,
    )
    print_warnings(submitted.warnings)
    print_given(submitted.given)
    task = submitted.task
    assert task is not None  # only a dry run has none
    if wish.detach:
        print(f"{task.id} runs in the background: %det_run {task.id} shows it and returns its variables")
    else:
        Following(task, session.modules, variables).until_end()
    return task


def attach(session: KernelSession, task_id: str, variables: MutableMapping[str, Any]) -> Task:
    """Follow a borrowed cell that was started before, and bring its variables.

    Raises:
        MagicError: The task is not a borrowed cell.
        CellFailed: The cell raised, or was ended.
    """
    client = session.client()
    task = client.get_task(task_id)
    if task.kind is not TaskKind.CELL:
        raise MagicError(
            f"{plain(task.id)} is a {task.kind.value.replace('_', ' ')}, not a borrowed cell",
            hint=f"det task logs {task.id}",
        )
    own = task.view.owner == client.whoami().name
    Following(task, session.modules, variables, own=own).until_end()
    return task


def _config(wish: Borrow) -> dict[str, Any]:
    resources: dict[str, Any] = {"slots": wish.slots}
    if wish.pool is not None:
        resources["resource_pool"] = wish.pool
    if wish.priority is not None:
        resources["priority"] = wish.priority
    config: dict[str, Any] = {"entrypoint": ENTRYPOINT, "resources": resources}
    if wish.image is not None:
        config["environment"] = {"image": wish.image}
    runtime = wish.runtime or ("docker" if wish.image is not None else None)
    if runtime is not None:
        config["runtime"] = runtime
    return config


def _name(wish: Borrow) -> str:
    notebook = notebook_path()
    where = f" of {pathlib.PurePath(notebook).name}" if notebook else ""
    return f"cell {wish.cell}{where}"


def _cells(session: KernelSession, shipment: Shipment) -> dict[str, Any]:
    known: Mapping[str, Any] = session.modules.provenance()
    return {file: cell for file, cell in known.items() if file.removesuffix(".py") in shipment.modules}


# --- servers of the Hub -----------------------------------------------------------------------------------


def tensorboard(
    session: KernelSession,
    experiments: Sequence[int],
    trials: Sequence[int],
    *,
    new: bool = False,
    place: TaskPlace = TaskPlace(),
) -> Task:
    """Start a TensorBoard of experiments and trials (or find the one that shows them), and show its link.

    Raises:
        MagicError: The TensorBoard did not start.
    """
    client = session.client()
    task = None if new else _showing(client, experiments, trials, place)
    if task is None:
        task = client.create_task(
            TaskKind.TENSORBOARD,
            experiment_ids=list(experiments),
            trial_ids=list(trials),
            name=_title(experiments, trials),
            workspace=place.workspace,
            project=place.project,
        )
    line = ScreenOutput()
    line.put({"text/plain": status_of(task.view)})

    def tell(view: TaskView) -> None:
        line.put({"text/plain": status_of(view)})

    try:
        up = task.await_up(tell=tell)
    except KeyboardInterrupt:
        raise MagicError(
            f"stopped waiting; {task.id} is still starting", hint=f"det tensorboard open {task.id}", kind="Interrupted"
        ) from None
    if not up or task.url is None:
        failure = task.view.failure
        why = f": {plain(failure.message, 300)}" if failure is not None else ""
        hint = failure.hint if failure is not None and failure.hint else f"det task logs {task.id}"
        raise MagicError(f"the TensorBoard {task.id} did not come up{why}", hint=in_notebook(hint))
    if not headless():
        # Shown for a moment only: a saved notebook must not open windows when somebody reads it.
        opening = {"application/javascript": f"window.open({json.dumps(task.url)}, '_blank')", "text/plain": task.url}
        line.put(opening)
    line.put(link_to(task))
    return task


def _showing(client: Client, experiments: Sequence[int], trials: Sequence[int], place: TaskPlace) -> Task | None:
    mine = client.list_tasks(
        kind=TaskKind.TENSORBOARD,
        owner=client.whoami().name,
        limit=50,
        workspace=place.workspace,
        project=place.project,
    )
    wanted = (sorted(experiments), sorted(trials))
    live = (t for t in mine if not t.state.terminal)
    return next((t for t in live if (sorted(t.view.experiment_ids), sorted(t.view.trial_ids)) == wanted), None)


def _title(experiments: Sequence[int], trials: Sequence[int]) -> str:
    parts = [f"experiment {number}" for number in experiments] + [f"trial {number}" for number in trials]
    return ", ".join(parts)[:120]


def link_to(task: Task) -> dict[str, str]:
    """Return a link to a server of the Hub, as a mimebundle."""
    url = task.url or ""
    name = plain(task.name or task.id)
    href = escape(url, quote=True)
    return {
        "text/html": (
            f'<span {NO_MATH}><a href="{href}" target="_blank" rel="noopener">{escape(name)}</a>'
            f" ({escape(task.id)})</span>"
        ),
        "text/plain": f"{name}: {url}",
    }


@dataclass(frozen=True)
class TaskListing:
    """User tasks as a table with links."""

    tasks: list[Task]
    what: str

    HEADER = ("id", "name", "state", "slots", "where", "link")

    def rows(self) -> list[list[str]]:
        """Return the table's rows."""
        found = []
        for task in self.tasks:
            view = task.view
            state = view.display_state or view.state.value
            where = plain(view.agent_id or (f"position {view.place}" if view.place else "–"), 40)
            found.append([view.id, plain(view.name, 60), state.lower(), str(view.slots_needed), where, task.url or "–"])
        return found

    def __repr__(self) -> str:
        """Return the text form."""
        return text_table(list(self.HEADER), self.rows()) if self.tasks else f"No active {self.what}s."

    def _repr_html_(self) -> str:
        if not self.tasks:
            return f"<div>{escape(repr(self))}</div>"
        table = html_table(list(self.HEADER), self.rows())
        for task in self.tasks:
            if task.url:
                href = escape(task.url, quote=True)
                table = table.replace(
                    f">{escape(task.url)}</td>", f'><a href="{href}" target="_blank" rel="noopener">open</a></td>'
                )
        return table


def notebooks(session: KernelSession, *, everything: bool = False) -> TaskListing:
    """Return the caller's notebook servers that are up or coming up; all with `everything`."""
    client = session.client()
    found = client.list_tasks(kind=TaskKind.NOTEBOOK, owner=client.whoami().name, limit=100)
    return TaskListing([task for task in found if everything or not task.state.terminal], "notebook")
