"""`det storage check`: what a storage holds and the master does not know, and the other way round."""

from __future__ import annotations

import sys
from typing import Any

import click

from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.printing import clean, say, size
from detlab.client.operations.storage_check import start_check
from detlab.client.tasks import Task
from detlab.client.transport.interrupts import Interrupted
from detlab.errors import StorageError
from detlab.schemas.taskwire import STORAGE_REPORT, StorageFound, StorageReport

_SHOWN = 20


@click.command()
@click.argument("experiment", type=click.IntRange(1), required=False)
@click.option("--repair", is_flag=True, help="Remove what never came to be a checkpoint of yours, and nothing else.")
@json_option
@pass_invocation
def check(invocation: Invocation, experiment: int | None, repair: bool) -> None:
    """Compare your checkpoint storages with what the master knows; of one experiment, or of all.

    A task of yours without slots looks, with your rights and the keys of your configs. It finds checkpoints that were
    begun, or even published, and never committed; parts of uploads that never ended; deleted ones that are still there;
    and committed ones that are missing. What belongs to others, or to nobody that can be told, is never removed.

    Ends with 1 if something is wrong and was not repaired.

    \b
    Examples:
      det storage check
      det storage check 7 --repair
    """
    session = invocation.client.session
    task = Task(session, session.run(start_check(experiment, repair=repair)))
    report = _report(task)
    if not invocation.answered(report):
        for found in report.storages:
            _show(found, repair=repair)
    sys.exit(1 if any(_wrong(found, repair=repair) for found in report.storages) else 0)


def _report(task: Any) -> StorageReport:
    """Wait for a task, and return what it has found."""
    try:
        task.wait()
    except BaseException as error:
        task.kill()
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(f"task {task.id}, which compared storages, was ended") from None
        raise
    found = [item for item in task.outputs() if item.name == STORAGE_REPORT]
    if not found:
        raise StorageError(f"task {task.id}, which was to compare storages, has ended ({task.view.state}) without a"
                           " report", hint=f"det task logs {task.id}")  # fmt: skip
    return StorageReport.model_validate_json(task.read_output(found[0]))


def _wrong(found: StorageFound, *, repair: bool) -> bool:
    left = (found.never_count or found.uploads) and (not repair or found.not_repaired or found.uploads_note)
    return bool(found.failure or left or found.missing_count or found.damaged_count)


def _show(found: StorageFound, *, repair: bool) -> None:
    say(clean(found.where))
    if found.failure:
        say(f"  could not be looked at: {clean(found.failure)}")
        return
    for line in (*_sums(found), *_end(found, repair=repair)):
        say(f"  {line}")


def _sums(found: StorageFound) -> list[str]:
    lines = [f"committed         {found.kept} checkpoints, {size(found.kept_bytes)} with their manifests"]
    if found.others:
        lines.append(
            f"left alone        {found.others}, {size(found.others_bytes)}: others', in the trash, or begun now"
        )
    if found.never_count:
        lines.append(f"never committed   {found.never_count}, {size(found.never_bytes)}")
        lines += [
            f"  {clean(item.uuid)}  {size(item.bytes)}  {'published' if item.published else 'begun'}"
            for item in found.never[:_SHOWN]
        ]
    if found.uploads:
        lines.append(f"unfinished        {found.uploads} uploads, {size(found.uploads_bytes)}")
    if found.missing_count:
        lines.append(f"missing           {found.missing_count} committed checkpoints are not there")
        lines += [f"  {clean(uuid)}" for uuid in found.missing[:_SHOWN]]
    if found.damaged_count:
        lines.append(f"damaged           {found.damaged_count} committed checkpoints are not there whole")
        lines += [f"  {clean(uuid)}: det checkpoint verify {clean(uuid)}" for uuid in found.damaged[:_SHOWN]]
    if found.events:
        what = f"{found.events} folders, {size(found.events_bytes)}: left alone"
        lines.append(f"event files       {what}; `det experiment delete-tb-files` removes those of yours")
    if found.uploads_own:
        lines.append(f"the cluster's own  {found.uploads_own} uploads of event files that never ended: left alone")
    if found.unknown_count or found.uploads_unknown:
        also = f" and {found.uploads_unknown} uploads" if found.uploads_unknown else ""
        what = f"{found.unknown_count}, {size(found.unknown_bytes)}{also}"
        lines.append(f"unknown           {what}: nothing says whose they are, and they are left alone")
        lines += [f"  {clean(item.uuid)}  {size(item.bytes)}" for item in found.unknown[:_SHOWN]]
    return lines


def _end(found: StorageFound, *, repair: bool) -> list[str]:
    lines = [f"unfinished uploads were not looked for: {clean(found.uploads_note)}"] if found.uploads_note else []
    if repair:
        lines.append(f"removed           {found.repaired}, {size(found.repaired_bytes)}")
        if found.not_repaired:
            lines.append(f"not all of it: {clean(found.not_repaired)}")
    elif found.never_count or found.uploads:
        lines.append("Next: det storage check --repair")
    if not _wrong(found, repair=repair):
        lines.append("in order")
    return lines
