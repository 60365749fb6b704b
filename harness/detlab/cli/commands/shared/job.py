"""`det job` and `det queue`: jobs, their position in the queue, and why they are pending."""

from __future__ import annotations

import time
from typing import Any

import click

from detlab.cli.invocation import Invocation, csv_option, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.printing import Shown, clean, counted, duration, facts, moment, say, table
from detlab.client.operations import jobs as job_operations
from detlab.client.task_facts import kind_word
from detlab.client.transport.calls import valid_request
from detlab.schemas.jobwire import EXPERIMENT, TRIAL_PREFIX, JobUpdate, JobView, JobWhy, WaitView
from detlab.schemas.taskwire import QueueItem, TaskKind

COMMANDS = {
    "job": "Jobs in the queue: list, update, why.",
    "queue": "The queue: pending tasks with position and reason.",
}

UNKNOWN = "unknown"
COLUMNS = (
    "Pool", "Order", "Job", "Name", "Owner", "State", "Priority", "Weight", "Held", "Wanted", "Submitted", "Starts",
    "Why",
)  # fmt: skip
_BATCH = ("priority", "weight", "pool", "ahead_of", "behind_of")


@click.group(cls=LazyGroup, short={"ls": "list"})
def job() -> None:
    """Jobs of the queue: an experiment or a user task, named by its id.

    \b
    Examples:
      det job list
      det job why 7
      det job update 7 --priority 10
    """


@job.command(name="list")
@click.option("--pool", metavar="P", help="Only those of this resource pool.")
@click.option("--mine", is_flag=True, help="Only your jobs; positions still count all users' jobs.")
@csv_option
@json_option
@pass_invocation
def list_jobs(invocation: Invocation, pool: str | None, mine: bool) -> None:
    """List running and pending jobs, in scheduling order.

    A start is known only if the running jobs have maximum times, and is the latest possible one. Weights are shown if
    any is not 1, starts if any is known.

    \b
    Examples:
      det job list
      det job list --mine --json | jq '.[].reason'
    """
    found = invocation.client.session.run(job_operations.jobs(pool=pool, mine=mine))
    if invocation.answered(found, "No running or pending jobs."):
        return
    rows = [_row(item) for item in found]
    # What says nothing new of any job is left out: the reasons are long, and terminals are not.
    idle = {
        "Weight": all(item.weight == 1 for item in found),
        "Starts": all(row["Starts"] in ("", UNKNOWN) for row in rows),
    }
    columns = [name for name in COLUMNS if invocation.as_csv or not idle.get(name)]
    right = ("Order", "Priority", "Weight", "Held", "Wanted")
    spare = ("Submitted", "Priority", "Held", "Owner", "Order", "Pool")
    table(columns, [[row[name] for name in columns] for row in rows], right=right, spare=spare)


def _row(item: JobView) -> dict[str, object]:
    values = (
        item.pool,
        f"{item.order} (moved)" if item.moved else item.order,
        _named(item),
        item.name,
        item.owner,
        item.state,
        item.priority,
        item.weight,
        item.slots_held,
        item.slots_wanted,
        moment(item.submitted_at),
        start_of(item.estimated_start) if item.tasks_waiting and not item.slots_held else "",
        item.reason,
    )
    return dict(zip(COLUMNS, values, strict=True))


def _named(item: JobView) -> str:
    if item.kind == EXPERIMENT:
        return f"experiment {item.id}"
    known = item.kind in set(TaskKind)
    return f"{kind_word(TaskKind(item.kind)) if known else item.kind} {item.id}"


def start_of(seconds: float | None) -> str:
    """Return when something starts, as text for people; in CSV, the time."""
    if seconds is None:
        return Shown(UNKNOWN, None)
    away = seconds - time.time()
    return Shown("now" if away < 1 else f"in {duration(away)}", seconds)


@job.command()
@click.argument("job_id", metavar="ID")
@click.option("--priority", type=click.IntRange(1, 99), metavar="N", help="1 to 99; lower goes first.")
@click.option("--weight", type=float, metavar="W", help="Its share among jobs: 2 counts twice as much as 1.")
@click.option("--pool", metavar="P", help="Resource pool to wait in. Running tasks stay where they are.")
@click.option("--ahead-of", metavar="ID", help="Directly ahead of this job.")
@click.option("--behind-of", metavar="ID", help="Directly behind this job.")
@json_option
@pass_invocation
def update(invocation: Invocation, /, job_id: str, **change: Any) -> None:
    """Change the position of a job in the queue, effective immediately.

    You can change your own jobs; administrators can change all. A job moves within its pool and, in a pool with
    priorities, within its priority. Only administrators can move a job ahead of another user's; you can reorder your
    own jobs. A new priority or pool puts a job where its submission would.

    \b
    Examples:
      det job update 7 --priority 10
      det job update 7 --ahead-of 5
      det job update command-3f9a1c20b7d4 --pool small --weight 2
    """
    _say_changed(invocation, [_changed(invocation, job_id, change)])


@job.command(name="update-batch")
@click.argument("changes", metavar="ID.KEY=VALUE...", nargs=-1, required=True)
@json_option
@pass_invocation
def update_batch(invocation: Invocation, changes: tuple[str, ...]) -> None:
    """Change several jobs, one after the other; stop at the first refused change.

    KEY is priority, weight, pool, ahead-of or behind-of.

    \b
    Example:
      det job update-batch 7.priority=10 8.weight=2 8.ahead-of=7
    """
    wanted: dict[str, dict[str, Any]] = {}
    for text in changes:
        subject, _, value = text.partition("=")
        job_id, _, key = subject.rpartition(".")
        key = key.replace("-", "_")
        if not (job_id and value) or key not in _BATCH:
            raise click.UsageError(f"{clean(text)}: write ID.KEY=VALUE, KEY one of priority, weight, pool, ahead-of,"
                                   " behind-of")  # fmt: skip
        wanted.setdefault(job_id, {})[key] = value
    checked = {job_id: _change(change) for job_id, change in wanted.items()}
    done = [invocation.client.session.run(job_operations.update_job(name, change)) for name, change in checked.items()]
    _say_changed(invocation, done)


def _changed(invocation: Invocation, job_id: str, change: dict[str, Any]) -> JobView:
    return invocation.client.session.run(job_operations.update_job(job_id, _change(change)))


def _change(change: dict[str, Any]) -> JobUpdate:
    with valid_request("this job cannot be changed so"):
        return JobUpdate.model_validate({key: value for key, value in change.items() if value is not None})


def _say_changed(invocation: Invocation, done: list[JobView]) -> None:
    if invocation.answered(done[0] if len(done) == 1 else done):
        return
    for item in done:
        say(clean(f"Job {item.id}: position {item.order} in the pool {item.pool}, priority {item.priority}, weight"
                  f" {item.weight:g}"))  # fmt: skip


@job.command()
@click.argument("job_id", metavar="ID")
@click.option("-t", "--trial", is_flag=True, help="ID is the id of a trial.")
@json_option
@pass_invocation
def why(invocation: Invocation, job_id: str, trial: bool) -> None:
    """Show why a job is pending: the reason, its evidence, and what would let it start now.

    The answer comes from the scheduler, by the same code as `det cluster simulate`.

    \b
    Examples:
      det job why 7
      det job why --trial 31
      det job why notebook-3f9a1c20b7d4
    """
    asked = f"{TRIAL_PREFIX}{job_id}" if trial and not job_id.startswith(TRIAL_PREFIX) else job_id
    found = invocation.client.session.run(job_operations.why(asked))
    if invocation.answered(found):
        return
    for one in found.idle:
        trial_of = f"Trial {one.trial_id} of " if one.trial_id is not None else ""
        what = f"{trial_of}{_named(found.job)}"
        idle = f"holds {counted(one.slots, 'slot')}, 0 % for {duration(time.time() - one.since)}"
        say(clean(f"{what[0].upper()}{what[1:]} {idle}."))
    if not found.items:
        slots = found.job.slots_held
        held = f"it holds {counted(slots, 'slot')}" if slots else "it requests no slots now"
        paused = " It is paused, and starts nothing until it is activated." if found.job.state == "PAUSED" else ""
        say(clean(f"No task of {_named(found.job)} waits: {held}.{paused}"))
        return
    for place, alike in enumerate(_alike(found.items)):
        if place:
            say()
        _explain(found, alike)
    more = found.waiting - len(found.items)
    if more > 0:
        say(f"\n{more} more of its tasks wait behind these.")


def _alike(items: list[WaitView]) -> list[list[WaitView]]:
    """Return the tasks in their order, together those that wait for the same."""
    groups: dict[tuple[object, ...], list[WaitView]] = {}
    for one in items:
        hints = tuple(hint.text for hint in one.hints)
        same = (one.reason, one.detail, one.pool, one.slots, one.estimated_start, hints)
        groups.setdefault(same, []).append(one)
    return list(groups.values())


def _explain(found: JobWhy, alike: list[WaitView]) -> None:
    item = alike[0]
    numbers = [str(one.trial_id) for one in alike if one.trial_id is not None]
    of_trial = f"trial{'' if len(numbers) == 1 else 's'} {', '.join(numbers)} of " if numbers else ""
    what = of_trial + _named(found.job)
    say(clean(f"{what[0].upper()}{what[1:]}: {item.detail}"))
    ahead = f", {item.ahead} of other jobs before it" if item.ahead else ""
    places = ", ".join(str(one.place) for one in alike)
    facts(
        [
            ("reason", item.reason),
            ("pool", item.pool),
            ("slots", item.slots),
            ("position", f"{places} of the pool's queue{ahead}" if item.place else "in the cluster's own queue"),
            ("waits for", duration(time.time() - item.waiting_since) if item.waiting_since else ""),
            ("starts", start_of(item.estimated_start) if item.place else ""),
        ]
    )
    for hint in item.hints:
        say(clean(f"  → {hint.text}"))


@click.command()
@click.argument("what", metavar="[list]", type=click.Choice(["list", "ls"]), required=False, expose_value=False)
@click.option("--mine", is_flag=True, help="Only your jobs; positions still count all users' jobs.")
@csv_option
@json_option
@pass_invocation
def queue(invocation: Invocation, mine: bool) -> None:
    """Show the queue: pending tasks with position, priority and reason.

    \b
    Examples:
      det queue
      det queue --mine --json | jq '.[].reason'
    """
    found = [item for item in invocation.client.get_queue() if item.mine or not mine]
    if invocation.answered(found, "None of your tasks is pending." if mine else "Queue is empty."):
        return
    columns = ("Position", "What", "Name", "Owner", "Pool", "Slots", "Priority", "Waits for", "Why")
    table(columns, [_queue_row(item) for item in found], right=("Position", "Slots", "Priority"))


def _queue_row(item: QueueItem) -> tuple[object, ...]:
    what = item.kind
    if item.trial_id is not None:
        what = f"trial {item.trial_id}"
    elif item.task_id is not None:
        known = item.kind in set(TaskKind)
        what = f"{kind_word(TaskKind(item.kind)) if known else item.kind} {item.task_id}"
    waits = duration(time.time() - item.requested_at) if item.requested_at else ""
    return item.place, what, item.name, item.owner, item.pool, item.slots, item.priority, waits, item.reason
