"""`det governance withdraw` and `sources`: sources that may not be trained on any more."""

from __future__ import annotations

import click

from detlab.cli.commands.projects.options import workspace_option
from detlab.cli.commands.registry.keying import manifest_of
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.printing import clean, moment, note, say, table
from detlab.client.operations.governance import evidence as operations
from detlab.schemas.wire.governance.evidence import WithdrawnSourceView


@click.command(short_help="Withdraw a source: nothing may train on it any more.")
@click.argument("source", metavar="SOURCE")
@click.option("--reason", required=True, help="Why; shown to everybody whom it stops, and kept in the audit log.")
@click.option(
    "--manifest", default="", metavar="SHA256", help="Only data with this manifest (sha256:…), also under other names."
)
@workspace_option("In this workspace alone (its admins); default: in the whole cluster (administrators).")
@click.option("--undo", is_flag=True, help="Take the withdrawal back.")
@json_option
@pass_invocation
def withdraw(
    invocation: Invocation, source: str, reason: str, manifest: str, workspace: str | None, undo: bool
) -> None:
    """Withdraw a source of samples by the name that policies call it, or take that back.

    Experiments that declare it, or that began with a checkpoint that it has trained, are paused at their next
    checkpoint. From then on submits, forks, continues, activations, warm starts, recoveries, and registering or
    labelling a version are refused (REVOKED) where the source is declared or has trained the weights. Nothing is
    deleted.

    \b
    Examples:
      det governance withdraw partner --reason "contract 17 has ended"
      det governance withdraw web --manifest sha256:77… --reason "a takedown request"
      det governance withdraw partner --undo --reason "the contract was renewed"
    """
    run = invocation.client.session.run
    act = operations.restore_source if undo else operations.withdraw_source
    named = manifest_of(manifest, run(operations.withdrawn_sources()).items if undo and manifest else ())
    found = run(act(source, reason, named, workspace or ""))
    if invocation.answered(found):
        return
    if undo:
        say(f"{_what(found)} is no longer withdrawn {_where(found)}")
        note("What was paused goes on when its owners say so: det experiment activate ID")
        return
    say(f"{_what(found)} is withdrawn {_where(found)}")
    if found.paused:
        what = "experiment" if len(found.paused) == 1 else "experiments"
        say(f"  paused: {what} {', '.join(map(str, found.paused))}")
    if found.versions:
        say(f"  has trained: {_versions(found)}")
    if not (found.paused or found.versions):
        note("No running experiment declares it, and it has trained no version that you may read: is the name right?")
    note("Who is refused is told why; det governance sources lists what was withdrawn")


@click.command(short_help="List the sources that are withdrawn.")
@json_option
@pass_invocation
def sources(invocation: Invocation) -> None:
    """List the sources that are withdrawn in the cluster and in your workspaces, and which versions of models that you
    may read they have trained.

    \b
    Example:
      det governance sources
    """
    found = invocation.client.session.run(operations.withdrawn_sources())
    if invocation.answered(found.items, "No source is withdrawn."):
        return
    rows = [
        (
            clean(one.source),
            one.manifest[:19] or "any",
            clean(one.workspace) or "the cluster",
            moment(one.at),
            clean(one.by),
            clean(one.reason),
            _versions(one) or "none",
        )
        for one in found.items
    ]
    table(("Source", "Manifest", "Withdrawn in", "At", "By", "Reason", "Versions"), rows)


def _what(one: WithdrawnSourceView) -> str:
    return f"the source {clean(one.source)}" + (f" with the manifest {one.manifest}" if one.manifest else "")


def _where(one: WithdrawnSourceView) -> str:
    return f"in workspace {clean(one.workspace)}" if one.workspace else "in the whole cluster"


def _versions(one: WithdrawnSourceView) -> str:
    return ", ".join(map(clean, one.versions)) + (", perhaps more" if one.more_versions else "")
