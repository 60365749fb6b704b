"""`det config-policies …`: what a cluster or a workspace holds every config to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args

import click

from detlab.cli.commands.projects.options import workspace_option
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.loading import LazyGroup
from detlab.cli.output.failures import problem_line
from detlab.cli.output.printing import clean, moment, note, say, say_yaml
from detlab.client.operations.configs import config_policies as policies
from detlab.client.submission import config_mapping
from detlab.schemas.wire.configs.config_policies import PolicyView, Workload

COMMANDS = {"config-policies": "Config policies: what a cluster or a workspace holds every config to."}
_WORKLOADS: tuple[Workload, ...] = get_args(Workload)
_WORKLOAD = click.argument("workload", type=click.Choice(_WORKLOADS))


@click.group(name="config-policies", cls=LazyGroup)
def config_policies() -> None:
    """Hold every config to values that are merged over it, and to limits beyond which it is refused.

    Those of experiments and of tasks (notebooks, shells, commands, TensorBoards) are set apart. The cluster's come
    before a workspace's, both before the user.

    \b
    Examples:
      det config-policies set experiment policy.yaml
      det config-policies set tasks limits.yaml --workspace ada/vision
      det config-policies describe experiment
    """


@config_policies.command()
@_WORKLOAD
@workspace_option("That of this workspace; default: of the cluster.")
@json_option
@pass_invocation
def describe(invocation: Invocation, workload: Workload, workspace: str | None) -> None:
    """Show a config policy; credentials are masked.

    \b
    Examples:
      det config-policies describe experiment
      det config-policies describe tasks --workspace ada/vision
    """
    found = invocation.client.session.run(policies.config_policy(workload, workspace or ""))
    if invocation.answered(found):
        return
    if found.set_at is None:
        say(f"There is no config policy {_of(found)}.")
        return
    shown = {
        "invariant_config": found.invariant_config,
        "constraints": found.constraints.model_dump(exclude_none=True),
    }
    say(f"# {_of(found)}, set by {clean(found.set_by)} {moment(found.set_at)}")
    say_yaml({key: value for key, value in shown.items() if value})


@config_policies.command(name="set")
@_WORKLOAD
@click.argument("file", metavar="FILE")
@workspace_option("That of this workspace (its admins); default: of the cluster (administrators).")
@json_option
@pass_invocation
def set_command(invocation: Invocation, workload: Workload, file: str, workspace: str | None) -> None:
    """Set a config policy from a YAML file, which replaces the one before.

    FILE (`-` for standard input) has `invariant_config`, a part of a config that is merged over each one, and
    `constraints`: `resources.max_slots`, and `priority_limit`, the best priority. Nothing that runs is ended or
    changed; what runs beyond it is named.

    \b
    Examples:
      det config-policies set experiment policy.yaml
      echo 'constraints: {resources: {max_slots: 8}, priority_limit: 40}' | det config-policies set experiment -
    """
    policy = config_mapping(f"{sys.stdin.read()}\n", "standard input") if file == "-" else config_mapping(Path(file))
    made = invocation.client.session.run(policies.set_config_policy(workload, policy, workspace or ""))
    for warning in made.warnings:
        note(problem_line(warning))
    invocation.tell(made, f"Set the config policy {_of(made)}.")


@config_policies.command()
@_WORKLOAD
@workspace_option("That of this workspace; default: of the cluster.")
@json_option
@pass_invocation
def delete(invocation: Invocation, workload: Workload, workspace: str | None) -> None:
    """Delete a config policy.

    \b
    Example:
      det config-policies delete experiment --workspace ada/vision
    """
    gone = invocation.client.session.run(policies.remove_config_policy(workload, workspace or ""))
    there = "There was no" if gone.set_at is None else "Deleted the"
    invocation.tell(gone, f"{there} config policy {_of(gone)}.")


def _of(policy: PolicyView) -> str:
    place = f"workspace {policy.workspace}" if policy.workspace else "the cluster"
    return clean(f"for {'experiments' if policy.workload == 'experiment' else 'tasks'} of {place}")
