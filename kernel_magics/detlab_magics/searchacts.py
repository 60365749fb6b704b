"""`%det_search`: the words of `det search`, with the connection of the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from click.shell_completion import ShellComplete

from detlab.cli.commands.search import search
from detlab_magics.commandwords import carry_out, words_of
from detlab_magics.errors import MagicError

if TYPE_CHECKING:
    from detlab_magics.kernel import KernelSession

_OF_TRIALS = frozenset({"retry", "stop", "promote"})
_SECOND_NUMBER = {"stop": "trial", "promote": "trial", "tell": "trial", "retry": "trial", "concurrency": "limit"}
"""What a number after the experiment's id is; after one number alone it is unclear which of the two is meant."""


def run(session: KernelSession, line: str) -> str:
    """Carry out a line and return its output; without an id it is about the last submitted experiment.

    Raises:
        MagicError: The line has a mistake, has one number that may be an experiment or a trial, or names no experiment
            and none was submitted here.
    """
    return carry_out(search, "%det_search", session, _with_id(session, words_of(line)))


def _with_id(session: KernelSession, words: Sequence[str]) -> list[str]:
    """Add the last submitted experiment after the act if a line has no number; the first number is the experiment."""
    if not words or "--help" in words or words[0] not in search.commands:
        return list(words)
    latest = session.experiment_id(None)
    numbers = [*takewhile(str.isdigit, words[1:])]
    if numbers:
        if len(numbers) == 1 and words[0] in _SECOND_NUMBER:
            _refuse_unclear(words[0], int(numbers[0]), latest)
        return list(words)
    if latest is None:
        raise MagicError("which experiment? None was submitted from this kernel", hint="%det_list, then the id")
    return [words[0], str(latest), *words[1:]]


def _refuse_unclear(act: str, number: int, latest: int | None) -> None:
    """Refuse a line with one number that may be meant as the second one."""
    if act == "retry" and latest in (None, number):
        return
    second = _SECOND_NUMBER[act]
    first = "ID" if latest is None or latest == number else str(latest)
    hint = f"give both: %det_search {act} {first} {number}"
    if act == "retry":
        hint += f"; all failed trials of experiment {number}: client.get_experiment({number}).retry_failed()"
    raise MagicError(f"{act} {number}: is {number} an experiment or a {second}?", hint=hint)


def offers(before: Sequence[str], word: str, ids: Iterable[str], trials: Iterable[str]) -> list[str]:
    """Return what a word could become: acts, options, experiments, then figures or trials.

    Args:
        before: The words before it, without the magic.
        word: What was typed of it.
        ids: Experiments.
        trials: Trials of the last submitted one.
    """
    if len(before) == 1 and not word.startswith("-"):
        return list(ids)
    if len(before) > 1 and before[0] in _OF_TRIALS and not word.startswith("-"):
        return list(trials)
    found = ShellComplete(search, {}, "det_search", "").get_completions(list(before), word)
    return [item.value for item in found if item.type == "plain"]
