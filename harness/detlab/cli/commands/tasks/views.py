"""User tasks as text: tables, descriptions, progress of a start, and how they ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from detlab.cli.commands.projects.options import place_words
from detlab.cli.commands.tasks.lookup import group_of
from detlab.cli.output.failures import CANCELED, FAILED, failure_card
from detlab.cli.output.printing import clean, console, counted, duration, facts, moment, note, say, table
from detlab.client.task_facts import Tell, kind_title, kind_word
from detlab.client.tasks import Task
from detlab.schemas.taskwire import TaskEnd, TaskView
from detlab.schemas.wire import AllocationState, TrialState

MOST_SIGNAL = 64


def state_word(view: TaskView) -> str:
    """Return the state as people read it: `RUNNING`, `QUEUED`, or how it ended."""
    if view.state.terminal and view.end_reason is not None:
        code = f" ({view.exit_code})" if view.end_reason is TaskEnd.FAILED and view.exit_code is not None else ""
        return f"{view.end_reason.value}{code}"
    return view.display_state or view.state.value


def detail(view: TaskView) -> str:
    """Return why it waits, what is done for it, or when it will be ended; in one line."""
    if view.state.terminal:
        return ""
    if view.pending_reason or view.place is not None:
        place = f"position {view.place}" if view.place is not None else ""
        return ": ".join(part for part in (place, view.pending_reason or "") if part)
    if view.stage_message:
        return view.stage_message
    if view.cull_at is not None:
        return f"idle; ends in {duration(view.cull_at - time.time())}"
    if view.gpus_idle_since is not None:
        until = view.gpus_released_at
        ends = "" if until is None else f"; ends in {duration(max(0.0, until - time.time()))}"
        return f"{counted(view.slots_needed, 'slot')} at 0 % for {duration(time.time() - view.gpus_idle_since)}{ends}"
    return ""


def print_tasks(found: list[Task], *, kinds: bool) -> None:
    """Print a table of tasks, with their kinds if they may differ."""
    columns = ("ID", *(("Kind",) if kinds else ()), "Name", "Owner", "State", "Slots", "Agent", "Age", "About")
    rows = [
        (
            item.id,
            *((kind_word(item.kind),) if kinds else ()),
            item.name,
            item.view.owner,
            state_word(item.view),
            item.view.slots_needed,
            item.view.agent_id or "",
            duration(time.time() - item.view.created_at),
            detail(item.view),
        )
        for item in found
    ]
    table(columns, rows, right=("Slots",))


def describe(task: Task) -> None:
    """Print everything about a task."""
    view = task.view
    facts(
        [
            (kind_word(view.kind), f"{view.id}: {view.name}"),
            ("owner", view.owner),
            ("workspace", place_words(view.workspace, view.project)),
            ("state", state_word(view)),
            ("waits", detail(view) if view.pending_reason or view.place else None),
            ("doing", view.stage_message if not view.state.terminal else None),
            ("address", task.url),
            ("slots", f"{view.slots_needed} ({', '.join(view.slots)})" if view.slots else str(view.slots_needed)),
            ("agent", view.agent_id),
            ("pool", view.resource_pool),
            ("runtime", (view.image and f"{view.runtime}, {view.image}") or view.runtime),
            ("experiments", ", ".join(map(str, view.experiment_ids))),
            ("trials", ", ".join(map(str, view.trial_ids))),
            ("schedule", view.schedule_id),
            ("created", moment(view.created_at)),
            ("started", moment(view.started_at)),
            ("last used", moment(view.last_activity)),
            ("idle end", moment(view.cull_at)),
            ("GPUs at 0 %", f"since {moment(view.gpus_idle_since)}" if view.gpus_idle_since is not None else None),
            ("ended for it", moment(view.gpus_released_at)),
            ("ended", moment(view.ended_at)),
            ("exit code", view.exit_code),
        ]
    )
    if not view.opens:
        say(f"\nOnly {clean(view.owner)} opens it and reads its output: members of its workspace see its state.")
    if view.failure is not None:
        say()
        for line in card(view):
            say(line)


def card(view: TaskView, *, tail: bool = True) -> list[str]:
    """Return the failure card of a task that failed; without its last output if that was printed already."""
    if view.failure is None or (not tail and view.failure.kind == "unknown"):
        return []  # a plain exit code, after all output, is told by the last line
    failure = view.failure if tail else view.failure.model_copy(update={"log_tail": []})
    return failure_card(failure, command=f"{group_of(view.kind)} logs {clean(view.id)}" if tail else "")


def start_line(view: TaskView) -> str:
    """Return where a task stands on its way up, in one line."""
    said = detail(view)
    if view.state.terminal:
        return state_word(view)
    if view.allocation_state in {None, AllocationState.PENDING}:
        return f"in the queue{f', {said}' if said else ''}"
    where = f" on {view.agent_id}" if view.agent_id else ""
    word = (view.display_state or view.allocation_state or view.state.value).lower()
    if view.allocation_state is AllocationState.RUNNING and view.kind.served_by_hub and view.url is None:
        word = "starting its server"
    return f"{word}{where}{f': {view.stage_message}' if view.stage_message else ''}"


@contextmanager
def start_story(*, quiet: bool = False) -> Iterator[Tell | None]:
    """Yield a callback that shows a start on standard error: an updated line on a terminal, else a line per change."""
    target = console(err=True)
    told: list[str] = []

    def changed(view: TaskView) -> str | None:
        line = clean(f"{kind_title(view.kind)} {view.id}: {start_line(view)}")
        if told and told[-1] == line:
            return None
        told.append(line)
        return line

    def lines(view: TaskView) -> None:
        line = changed(view)
        if line is not None:
            note(line)

    if quiet:
        yield None
    elif not target.is_terminal:
        yield lines
    else:
        from rich.text import Text

        with target.status(Text("waiting for the master")) as status:

            def moving(view: TaskView) -> None:
                line = changed(view)
                if line is not None:
                    status.update(Text(line))

            yield moving


def exit_status(view: TaskView) -> int:
    """Return the exit status for a task that has ended: its own exit code where it has one."""
    if view.state is TrialState.COMPLETED:
        return view.exit_code or 0
    if view.exit_code:
        return view.exit_code if view.exit_code > 0 else 128 + min(-view.exit_code, MOST_SIGNAL)
    return CANCELED if view.state is TrialState.CANCELED else FAILED


def tell_end(view: TaskView, *, tail: bool) -> None:
    """Print on standard error how a task ended, unless it ended well."""
    for line in card(view, tail=tail):
        note(line)
    if view.state is TrialState.COMPLETED and not view.exit_code:
        return
    code = f", exit code {view.exit_code}" if view.exit_code is not None else ""
    note(clean(f"{kind_title(view.kind)} {view.id}: {state_word(view).split(' (')[0]}{code}."))
