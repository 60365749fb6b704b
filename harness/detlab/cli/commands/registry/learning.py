"""`det governance show`: what each source may train in a trial, and what it gave to each layer so far."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.printing import say, say_json
from detlab.client.operations.governance import evidence as operations
from detlab.errors import DetlabError
from detlab.visible import visible

if TYPE_CHECKING:
    from detlab.schemas.wire.governance.evidence import LearningView


@click.command(short_help="Show what each source may train in a trial, and what it gave.")
@click.argument("trial", metavar="TRIAL", type=int)
@click.option("--svg", "picture", metavar="FILE", help="Also write both matrices as a picture.")
@json_option
@pass_invocation
def show(invocation: Invocation, trial: int, picture: str | None) -> None:
    """Show two matrices of a trial: what each source may train, and what it gave to each layer so far.

    The first is the policy, compiled against the trial's own model. The second is measured by the trial in steps that
    are looked at, and reported with its validations: of all that a source gave, the share of each layer.

    \b
    Examples:
      det governance show 12
      det governance show 12 --svg learning.svg
      det governance show 12 --json
    """
    found = invocation.client.session.run(operations.learning(trial))
    if picture is not None:
        try:
            Path(picture).write_text(drawn(found), encoding="utf-8")
        except OSError as error:
            raise DetlabError(f"{visible(picture)} cannot be written: {error.strerror}") from error
    if invocation.as_json:
        say_json(found.model_dump(mode="json"))
        return
    say(said(found))


def said(found: LearningView) -> str:
    """Return both matrices as tables."""
    from detlab.governance.picture import Group, matrix_lines

    lines = [f"{visible(one.code)}: {visible(one.message)}" for one in found.refusals]
    if not found.s_hash:
        return "\n".join([*lines, f"Trial {found.trial_id} has not looked at its model yet: no matrix is recorded."])
    shown = [Group(one.label, one.count, tuple(one.scales), tuple(one.levels)) for one in found.groups]
    lines += [
        "What each source may train",
        *matrix_lines(found.sources, shown, found.left_out),
        f"S  {found.s_hash}",
        "",
    ]
    later = ["What each source gave to each layer comes with validations: none reported it yet."]
    return "\n".join([*lines, *(depth_said(found) or later)])


def depth_said(found: LearningView) -> list[str]:
    """Return the lines of what each source gave to each layer; none if that was not reported."""
    from detlab.governance.picture import depth_lines

    if (depth := found.depth) is None:
        return []
    lines = [f"What each source gave to each layer, until step {depth.steps_completed}"]
    lines += depth_lines(found.sources, depth.layers, depth.shares, depth.left_out)
    if found.share:
        listed = ", ".join(f"{visible(name)} {100 * found.share.get(name, 0):.1f} %" for name in found.sources)
        lines += [f"Samples: {listed}"]
    return lines


def drawn(found: LearningView) -> str:
    """Return both matrices as one SVG picture: no scripts, user's texts escaped."""
    from detlab.governance.picture import Group, depth_picture, matrix_picture, svg_of

    shown = [Group(one.label, one.count, tuple(one.scales), tuple(one.levels)) for one in found.groups]
    about = f"trial {found.trial_id}, S {found.s_hash[7:19]}" if found.s_hash else "no matrix is recorded yet"
    pictures = [matrix_picture(found.sources, shown, found.left_out, about)]
    if (depth := found.depth) is not None:
        until = f"trial {found.trial_id}, until step {depth.steps_completed}"
        pictures.append(depth_picture(found.sources, depth.layers, depth.shares, depth.left_out, until))
    return svg_of(*pictures)
