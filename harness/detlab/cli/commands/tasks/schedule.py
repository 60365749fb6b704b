"""`det schedule …`: notebook runs that start by the clock, or after something has completed."""

from __future__ import annotations

import json
from datetime import datetime
from zoneinfo import ZoneInfo

import click

from detlab.cli.commands.projects.options import place_words
from detlab.cli.commands.tasks.start import announce
from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import Shown, clean, facts, moment, say, say_json, table
from detlab.schemas.wire.notebooks.schedules import ScheduleState, ScheduleView

COMMANDS = {"schedule": "Schedules of notebook runs: list, describe, pause, resume, run now, remove."}


@click.group(cls=LazyGroup, short={"ls": "list", "rm": "remove"})
def schedule() -> None:
    """Schedules: notebooks that run by the clock, or once after something has completed.

    `det notebook run` makes them. Each run has your rights, quotas and the policies of its time, and none starts while
    the one before goes on.

    \b
    Examples:
      det notebook run nightly.ipynb --cron '0 6 * * 1-5' --timezone Europe/Berlin
      det notebook run compare.ipynb --after 12
      det schedule list
      det schedule pause 3
    """


schedule_argument = click.argument("schedule_id", metavar="SCHEDULE", type=click.IntRange(0))


@schedule.command(name="list")
@click.option("--owner", metavar="USER", help="Only those of this user (administrators see those of everybody).")
@click.option("--limit", type=click.IntRange(1), default=200, show_default=True, help="List at most this many.")
@csv_option
@json_option
@pass_invocation
def list_command(invocation: Invocation, owner: str | None, limit: int) -> None:
    """List your schedules, the oldest first.

    \b
    Example:
      det schedule list
    """
    found = invocation.client.list_schedules(limit=limit, owner=owner)
    if invocation.as_json:
        say_json(found)
        return
    if not found and not invocation.as_csv:
        say("No schedules yet. Try: det notebook run NOTEBOOK.ipynb --cron '0 6 * * 1-5'")
        return
    rows = [
        (
            *(one.id, one.name, one.state.value, when_text(one), due_text(one.next_at, one) if _waits(one) else ""),
            *(one.last_task or "", one.last_task_state.value if one.last_task_state else "", one.runs, one.owner),
            one.reason or one.note,
        )
        for one in found
    ]
    table(
        ("ID", "Name", "State", "When", "Next", "Last run", "Its state", "Runs", "Owner", "Note"),
        rows,
        spare=("Owner", "Runs", "Its state"),
    )


@schedule.command()
@schedule_argument
@json_option
@pass_invocation
def describe(invocation: Invocation, schedule_id: int) -> None:
    """Show a schedule: when it runs next, its last run, and why one was not started.

    \b
    Example:
      det schedule describe 3
    """
    one = invocation.client.get_schedule(schedule_id)
    if not invocation.answered(one):
        tell_schedule(one)


@schedule.command()
@schedule_argument
@json_option
@pass_invocation
def pause(invocation: Invocation, schedule_id: int) -> None:
    """Have a schedule start nothing until you resume it. A run that goes on is left alone.

    \b
    Example:
      det schedule pause 3
    """
    one = invocation.client.pause_schedule(schedule_id)
    invocation.tell(one, f"Schedule {one.id} is paused. Let it go on: det schedule resume {one.id}")


@schedule.command()
@schedule_argument
@json_option
@pass_invocation
def resume(invocation: Invocation, schedule_id: int) -> None:
    """Let a schedule go on that you have paused, or that the master has disabled.

    What was due meanwhile is made up for by one run.

    \b
    Example:
      det schedule resume 3
    """
    one = invocation.client.resume_schedule(schedule_id)
    following = due_text(one.next_at, one)
    invocation.tell(one, f"Schedule {one.id} goes on." + (f" Due next: {following}" if following else ""))


@schedule.command(name="run-now")
@schedule_argument
@json_option
@pass_invocation
def run_now(invocation: Invocation, schedule_id: int) -> None:
    """Start a run of a schedule now, without waiting for its end. When it is due next stays.

    \b
    Example:
      det schedule run-now 3
    """
    task = invocation.client.run_schedule(schedule_id)
    if not invocation.answered(task.view):
        announce(task)


@schedule.command()
@schedule_argument
@json_option
@pass_invocation
def remove(invocation: Invocation, schedule_id: int) -> None:
    """Remove a schedule. A run that goes on is left alone.

    \b
    Example:
      det schedule remove 3
    """
    gone = invocation.client.remove_schedule(schedule_id)
    invocation.tell(gone, f"Removed schedule {gone.id} ({clean(gone.name)}).")


# --- printing


def _waits(one: ScheduleView) -> bool:
    return one.state is ScheduleState.ACTIVE


def when_text(one: ScheduleView) -> str:
    """Return when a schedule runs, as its owner has said it."""
    if one.cron:
        return f"{one.cron} ({one.time_zone})"
    return f"after {one.after_task or f'experiment {one.after_experiment}'}"


def due_text(at: float | None, one: ScheduleView) -> Shown:
    """Return a time in the time zone of a schedule, or that of this computer, which may not know the other."""
    if at is None:
        return Shown("", None)
    try:
        local = datetime.fromtimestamp(at, ZoneInfo(one.time_zone))
    except (LookupError, OSError, ValueError, OverflowError):
        return moment(at)
    return Shown(local.strftime("%a %Y-%m-%d %H:%M %Z"), at)


def announce_schedule(one: ScheduleView) -> None:
    """Print what was made, when it runs, and how to change that."""
    say(f"Schedule {one.id} ({clean(one.name)}) was made: {clean(when_text(one))}.")
    for at in one.next_times:
        say(f"  {due_text(at, one)}")
    say(f"  → how it goes:  det schedule describe {one.id}")
    say(f"  → try it now:   det schedule run-now {one.id}")
    say(f"  → stop it:      det schedule pause {one.id}; det schedule remove {one.id}")


def tell_schedule(one: ScheduleView) -> None:
    """Print all facts of a schedule."""
    state = one.last_task_state.value if one.last_task_state else "it is there no more"
    noted = f"{moment(one.noted_at)}: {one.note}" if one.note else ""
    facts(
        [
            ("schedule", one.id),
            ("name", one.name),
            ("owner", one.owner),
            ("state", f"{one.state.value}{f': {one.reason}' if one.reason else ''}"),
            ("lies in", place_words(one.workspace, one.project)),
            ("runs", when_text(one)),
            ("next", "; ".join(due_text(at, one) for at in one.next_times)),
            ("notebook", one.notebook),
            ("parameters", json.dumps(one.parameters, ensure_ascii=False) if one.parameters else ""),
            ("last run", f"{one.last_task} ({state})" if one.last_task else ""),
            ("was due", due_text(one.last_due_at, one)),
            ("started", moment(one.last_started_at)),
            ("runs so far", one.runs),
            ("skipped", one.skipped or ""),
            ("not started", noted),
            ("made", moment(one.created_at)),
        ]
    )
