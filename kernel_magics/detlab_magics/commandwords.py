"""A command of `det`, or a group of them, in a magic: the same words, with the connection of the kernel."""

from __future__ import annotations

import contextlib
import io
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from detlab.cli.invocation import Invocation
from detlab_magics.errors import MagicError
from detlab_magics.plaintext import in_notebook

if TYPE_CHECKING:
    from detlab_magics.kernel import KernelSession


def words_of(line: str) -> list[str]:
    """Return the words of a line as a shell would.

    Raises:
        MagicError: A quote is not closed.
    """
    try:
        return shlex.split(line)
    except ValueError as problem:
        raise MagicError(f"the line cannot be split into words: {str(problem).lower()}: {line.strip()}") from None


def carry_out(command: click.Command, magic: str, session: KernelSession, words: Sequence[str]) -> str:
    """Carry out a command, or one of a group; return what it says.

    Args:
        command: Of `det`.
        magic: The name of the magic, for hints.
        session: Has the connection.
        words: Of the line.

    Raises:
        MagicError: The line has a mistake, or the command ends with a status that is not 0: what it said.
    """
    said, noted = io.StringIO(), io.StringIO()
    group = command if isinstance(command, click.Group) else None
    helps = "--help" in words or (group is not None and not words)
    invocation = Invocation(_client=None if helps else session.client())
    status: object = 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(noted):
        try:
            command.main(list(words), magic, standalone_mode=False, obj=invocation)
        except click.exceptions.NoArgsIsHelpError as problem:
            said.write(problem.format_message())
        except click.ClickException as problem:
            known = group is not None and bool(words) and group.get_command(click.Context(group), words[0]) is not None
            raise MagicError(
                problem.format_message(), hint=f"{magic} {words[0]} --help" if known else f"{magic} --help"
            ) from None
        except SystemExit as end:
            status = end.code
    text = in_notebook(f"{noted.getvalue()}{said.getvalue()}".rstrip("\n"))
    if status:
        raise MagicError(text or f"it ended with the status {status}", kind="Error")
    return text
