"""`%det_model`: the words of `det model`, with the connection of the kernel; `show` gives an object to look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from click.shell_completion import ShellComplete

from detlab.cli.commands.registry.model import model
from detlab.client.operations.registry import names_version
from detlab_magics.commandwords import carry_out, words_of
from detlab_magics.errors import MagicError

if TYPE_CHECKING:
    from detlab.client.registry.models import Model, ModelVersion
    from detlab_magics.kernel import KernelSession


def run(session: KernelSession, line: str) -> str | Model | ModelVersion:
    """Carry out a line; return its output, or of `show MODEL[@VERSION]` the model or the version.

    Raises:
        MagicError: The line has a mistake.
    """
    words = words_of(line)
    if words[:1] == ["show"] and len(words) == 2 and not words[1].startswith("-"):
        client = session.client()
        return client.get_model_version(words[1]) if names_version(words[1]) else client.get_model(words[1])
    if words[:1] == ["show"]:
        raise MagicError("name a model, or a version of one", hint="%det_model show digits@production")
    return carry_out(model, "%det_model", session, words)


def offers(before: Sequence[str], word: str) -> list[str]:
    """Return what a word could become: acts, options, models."""
    if not before:
        words = ["show"] if "show".startswith(word) else []
    elif before[0] == "show":
        before, words = ["describe", *before[1:]], []
    else:
        words = []
    found = ShellComplete(model, {}, "det_model", "").get_completions(list(before), word)
    return [*words, *(item.value for item in found if item.type == "plain")]
