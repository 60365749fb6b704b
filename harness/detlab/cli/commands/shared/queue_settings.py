"""`det experiment set priority` and `weight`: Determined's names for what `det job update` does."""

from __future__ import annotations

from typing import Any

import click

from detlab.cli.completion import experiment_ids
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.client.operations import jobs
from detlab.client.transport.calls import valid_request
from detlab.schemas.jobwire import JobUpdate

_FIELDS: dict[str, tuple[Any, str, str]] = {
    "priority": (click.IntRange(1, 99), "Set the priority of an experiment, 1 to 99; lower goes first.", "10"),
    "weight": (click.FloatRange(0, min_open=True), "Set the share of an experiment: 2 counts twice as much as 1.", "2"),
}


def add_to(group: click.Group) -> None:
    """Add the commands to `det experiment set`."""
    for field, (kind, help_text, example) in _FIELDS.items():
        _add(group, field, kind, help_text, example)


def _add(group: click.Group, field: str, kind: Any, help_text: str, example: str) -> None:
    @group.command(name=field, help=f"{help_text}\n\n\b\nExample:\n  det experiment set {field} 7 {example}")
    @click.argument("experiment_id", metavar="ID", type=int, shell_complete=experiment_ids)
    @click.argument("value", metavar=field.upper(), type=kind)
    @json_option
    @pass_invocation
    def command(invocation: Invocation, experiment_id: int, value: float) -> None:
        with valid_request("this job cannot be changed so"):
            change = JobUpdate.model_validate({field: value})
        done = invocation.client.session.run(jobs.update_job(str(experiment_id), change))
        invocation.tell(done, f"Experiment {experiment_id}: {field} {value:g}, position {done.order} in its pool")
