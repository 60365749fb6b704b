"""Starting a user task: submit it, show its progress, open it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from detlab.cli.commands.projects.options import one_line
from detlab.cli.commands.tasks.lookup import group_of
from detlab.cli.commands.tasks.options import TaskOptions
from detlab.cli.commands.tasks.views import exit_status, start_story, tell_end
from detlab.cli.invocation import Invocation
from detlab.cli.output.experiment_progress import connection_notes
from detlab.cli.output.failures import problem_line
from detlab.cli.output.printing import clean, note, say, say_json
from detlab.cli.output.progress import bar
from detlab.cli.terminal.hub_server import answers, await_answer
from detlab.client.bundling.bundle import Bundle
from detlab.client.task_facts import Tell, kind_title, kind_word
from detlab.client.tasks import Task
from detlab.errors import DetlabError
from detlab.schemas.taskwire import TaskKind
from detlab.schemas.wire import GivenView

INTERRUPTED = 130
LOOK_AGAIN_SECONDS = 5.0


def submit(
    invocation: Invocation,
    kind: TaskKind,
    options: TaskOptions,
    *,
    bundle: Bundle | None = None,
    experiment_ids: tuple[int, ...] = (),
    trial_ids: tuple[int, ...] = (),
    **config: Any,
) -> Task:
    """Judge the config, send the code with a bar, ask for the task; the master's warnings go to standard error."""
    raw = options.config(kind, **config)
    with bar("Uploading code", quiet=invocation.as_json) as progress:
        submitted = invocation.client.submit_task(
            kind,
            raw,
            bundle=bundle,
            name=options.name,
            experiment_ids=experiment_ids,
            trial_ids=trial_ids,
            template=options.template,
            source={"client": group_of(kind)},
            progress=progress,
        )
    for warning in submitted.warnings:
        note(problem_line(warning))
    tell_given(submitted.given)
    assert submitted.task is not None  # only a dry run has none
    return submitted.task


def tell_given(given: Iterable[GivenView]) -> None:
    """Print on standard error which values template, workspace, pool, cluster and policies give."""
    for one in given:
        note(clean(f"{one.path}: {one_line(one.value)} (from {one.source})"))


def bring_up(invocation: Invocation, task: Task, *, quiet: bool = False) -> int:
    """Wait until a task can be used, telling the way; return 0, or the exit status if it ended or was left.

    Args:
        invocation: Of `det`.
        task: The task.
        quiet: Do not tell the way.
    """
    try:
        with start_story(quiet=quiet or invocation.as_json) as tell:
            up = task.await_up(tell=tell, notice=connection_notes(what=f"{kind_word(task.kind)} {clean(task.id)}"))
            if up and task.kind.served_by_hub:
                up = _await_server(task, tell)
    except KeyboardInterrupt:
        left(task)
        return INTERRUPTED
    if up:
        return 0
    if not invocation.answered(task.view):
        tell_end(task.view, tail=True)
    return exit_status(task.view) or 1


def _await_server(task: Task, tell: Tell | None) -> bool:
    """Wait until the server of a task that runs answers too; return whether the task still runs."""
    if tell is not None and not answers(task.address, task.server_url):
        tell(task.view.model_copy(update={"url": None}))
    while not await_answer(task.address, task.server_url, LOOK_AGAIN_SECONDS):
        if not task.reload().up:
            return False
    return True


def left(task: Task) -> None:
    """Print that the interrupt only stopped waiting, and how to go back or kill the task."""
    group, what = group_of(task.kind), kind_word(task.kind)
    note("")
    note(f"Stopped watching. The {what} {clean(task.id)} continues.")
    if task.kind.served_by_hub:
        note(f"  → open it: {group} open {clean(task.id)}")
    note(f"  → end it:  {group} kill {clean(task.id)}")


def announce(task: Task) -> None:
    """Print which task was requested, for a caller that does not wait for it."""
    group = group_of(task.kind)
    say(clean(f"{kind_title(task.kind)} {task.id} was submitted."))
    say(f"  → its state:     {group} list")
    if task.kind.served_by_hub:
        say(f"  → open it:       {group} open {clean(task.id)}")
    say(f"  → its output:    {group} logs {clean(task.id)} -f")


def start_server(
    invocation: Invocation,
    kind: TaskKind,
    options: TaskOptions,
    *,
    detach: bool,
    browse: bool,
    **more: Any,
) -> int:
    """Start a task that is a server of the Hub; wait until it is up unless `detach`, then say where and open it."""
    task = submit(invocation, kind, options, **more)
    if detach:
        if not invocation.answered(task.view):
            announce(task)
        return 0
    return bring_up(invocation, task) or show_address(invocation, task, browse=browse)


def open_server(invocation: Invocation, task: Task, *, browse: bool) -> int:
    """Open a task that is a server of the Hub, waiting for it if it is not up yet."""
    if task.state.terminal:
        raise over(task)
    return bring_up(invocation, task) or show_address(invocation, task, browse=browse)


def over(task: Task) -> DetlabError:
    """Return the error for using a task that has ended."""
    group, what = group_of(task.kind), kind_word(task.kind)
    reason = task.view.end_reason.value if task.view.end_reason else task.state.value
    return DetlabError(
        f"the {what} {clean(task.id)} has ended ({reason})",
        hint=f"Start another: {group} start\nWhy it ended: {group} logs {clean(task.id)}",
    )


def show_address(invocation: Invocation, task: Task, *, browse: bool) -> int:
    """Print where a task is, and open it in the browser if there is one."""
    if invocation.as_json:
        say_json({**task.view.model_dump(mode="json"), "address": task.url})
        return 0
    assert task.url is not None
    say(f"{kind_title(task.kind)} {clean(task.id)}: {clean(task.url)}")
    if browse and _has_browser():
        import webbrowser

        if not webbrowser.open(task.url):
            note("No browser could be opened here: open the address yourself.")
    return 0


def _has_browser() -> bool:
    """Tell whether a browser with windows can be expected; a text browser would take over the terminal."""
    if not sys.stdout.isatty():
        return False
    if sys.platform in {"darwin", "win32"} or os.environ.get("BROWSER"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
