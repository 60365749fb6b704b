"""`det governance ablate`: a copy of a checkpoint without an isolated source."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from detlab.cli.commands.download import fetch_files
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.printing import say, say_json
from detlab.client.operations.governance import evidence as operations
from detlab.errors import DetlabError
from detlab.visible import visible

if TYPE_CHECKING:
    from detlab.schemas.wire.governance.evidence import EvidenceView


@click.command(short_help="Copy a checkpoint without what a source has trained.")
@click.argument("source", metavar="SOURCE")
@click.argument("checkpoint", metavar="CHECKPOINT")
@click.option(
    "-o", "--output-dir", type=click.Path(path_type=Path), help="Folder to create. Default: ablated/CHECKPOINT."
)
@json_option
@pass_invocation
def ablate(invocation: Invocation, source: str, checkpoint: str, output_dir: Path | None) -> None:
    """Download a checkpoint, and take SOURCE out of the copy: what it alone has trained becomes zeros.

    That is exact where the source was isolated in the whole history of the checkpoint, and refused otherwise. The
    checkpoint on the cluster stays as it is, and the copy has no signed evidence; ablation.json says what was done.

    \b
    Examples:
      det governance ablate partner 3f2a… -o without-partner/
    """
    from detlab.governance.ablation import RECORD, ablate

    run = invocation.client.session.run
    seen = run(operations.evidence(checkpoint))
    own, trained = left_by(source, seen, run(operations.learnt_from(checkpoint)))
    folder = output_dir or Path("ablated") / seen.checkpoint
    if folder.exists():
        raise DetlabError(f"{visible(str(folder))} is there already", hint="name another with --output-dir")
    fetch_files(invocation.client.get_checkpoint(checkpoint), folder, quiet=invocation.as_json)
    done = ablate(folder, source, own, trained)
    if invocation.as_json:
        say_json({**dataclasses.asdict(done), "path": str(folder), "checkpoint": seen.checkpoint})
        return
    say(f"{len(done.zeroed)} tensors of {visible(source)} are zeros now, in {visible(str(folder))}; see {RECORD}")
    if done.kept:
        names = ", ".join(map(visible, done.kept[:5])) + (" …" if len(done.kept) > 5 else "")
        say(f"Left as they were, as no policy governs them: {names}")
    say("What callbacks and your own code have kept is not looked at: docs/explanation/governance.md")


def left_by(source: str, seen: EvidenceView, found: operations.LearntFrom) -> tuple[list[str], set[str]]:
    """Return what a source alone has trained of a checkpoint, and all that was trained, by the ledger.

    Raises:
        DetlabError: The evidence is not in order or not all there, or the source has given nothing.
        GovernanceError: LEVEL: it was not isolated.
    """
    from detlab.governance.isolation import own_parameters

    if seen.problems:
        listed = "\n".join(f"  {visible(one.code)}: {visible(one.message)}" for one in seen.problems)
        raise DetlabError(f"the evidence of checkpoint {visible(seen.checkpoint)} is not in order:\n{listed}")
    if found.unknown is not None:
        message = f"it began with a checkpoint of trial {found.unknown}, whose ledger you cannot read"
        raise DetlabError(message, hint="ask its owner to share it: what the source has trained there is not known")
    counted = {name for one in found.segments for name, count in one.body.get("counts", {}).items() if count > 0}
    if source not in counted:
        known = ", ".join(sorted(visible(name) for name in counted if name)) or "nothing"
        raise DetlabError(f"{visible(source)} has given no sample to this checkpoint", hint=f"learnt from: {known}")
    trained = {name for matrix in found.matrices.values() for name, _ in matrix.parameters}
    return own_parameters(source, found.matrices.values()), trained
