"""What all classes of magics share: parsing a line, and errors as a cell shows them."""

from __future__ import annotations

import contextlib
import functools
import io
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from IPython.core.error import UsageError

from detlab.errors import AuthError, ClusterNotFound, ClusterUnreachable, DetlabError
from detlab_magics.cells.expand import Expansion
from detlab_magics.errors import MagicError, as_cell_error, as_magic_error

if TYPE_CHECKING:
    import click

    from detlab_magics.kernel import KernelSession

T = TypeVar("T")


def short_errors(method: Callable[..., T]) -> Callable[..., T]:
    """Turn detlab's errors into the short ones that a cell shows; keep the long one for %det_debug."""

    @functools.wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> T:
        try:
            return method(self, *args, **kwargs)
        except MagicError as problem:
            self.session.last_error = problem.__cause__ or problem
            raise
        except SyntaxError as problem:
            if not (problem.filename or "").startswith("cell "):
                raise
            self.session.last_error = problem
            raise as_cell_error(problem) from None
        except DetlabError as problem:
            self.session.last_error = problem
            if isinstance(problem, ClusterUnreachable | ClusterNotFound | AuthError):
                self.session.forget_client()
            raise as_magic_error(problem) from None

    return wrapped


def parse_line(magic: Any, line: str) -> Any:
    """Parse a magic's line as a shell would: quotes hold words together and are not part of them.

    Raises:
        MagicError: A quote is not closed, or the arguments are not those of the magic.
    """
    try:
        return magic.parser.parse_args(shlex.split(line))
    except ValueError as problem:
        raise MagicError(f"the line cannot be split into words: {str(problem).lower()}: {line.strip()}") from None
    except UsageError as problem:
        raise MagicError(str(problem), hint=f"%{magic.__name__}? shows its options") from None


def expanded(name: str | None, namespace: dict[str, Any]) -> str | None:
    """Return a word of the line with `${variable}`s replaced."""
    if name is None:
        return None
    expansion = Expansion(namespace, first_line=1)
    return str(expansion.unmask(expansion.mask(name)))


def words_of(line: str) -> list[str]:
    """Return the words of a line as a shell would.

    Raises:
        MagicError: A quote is not closed.
    """
    try:
        return shlex.split(line)
    except ValueError as problem:
        raise MagicError(f"the line cannot be split into words: {str(problem).lower()}: {line.strip()}") from None


def carry_out(
    session: KernelSession, command: click.Command, name: str, words: Sequence[str], hint: str | None = None
) -> str:
    """Carry out a command of `det` with the connection of the kernel; return what it prints.

    Args:
        session: Has the connection; help asks for none.
        command: The command or the group.
        name: What it is called here, such as `%det_search`.
        words: Its arguments.
        hint: Of an error; default how to see the help.

    Raises:
        MagicError: The words have a mistake.
    """
    import click

    from detlab.cli.invocation import Invocation
    from detlab_magics.plaintext import in_notebook

    said, noted = io.StringIO(), io.StringIO()
    helps = "--help" in words or (not words and isinstance(command, click.Group))
    invocation = Invocation(_client=None if helps else session.client())
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(noted):
        try:
            command.main(list(words), name, standalone_mode=False, obj=invocation)
        except click.exceptions.NoArgsIsHelpError as problem:
            said.write(problem.format_message())
        except click.ClickException as problem:
            raise MagicError(problem.format_message(), hint=hint or f"{name} --help") from None
    return in_notebook(f"{noted.getvalue()}{said.getvalue()}".rstrip("\n"))
