"""What all classes of magics share: parsing a line, and errors as a cell shows them."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from typing import Any, TypeVar

from IPython.core.error import UsageError
from IPython.core.magic import no_var_expand

from detlab.errors import AuthError, ClusterNotFound, ClusterUnreachable, DetlabError
from detlab_magics.cells.expand import Expansion
from detlab_magics.errors import MagicError, as_cell_error, as_magic_error

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


def line_variables(method: Callable[..., T]) -> Callable[..., T]:
    """Have a line magic take variables as IPython writes them, `$name` and `{name}`, and as cells do: `${name}`."""

    @no_var_expand
    @functools.wraps(method)
    def wrapped(self: Any, line: str) -> T:
        return method(self, self.shell.var_expand(line.replace("${", "{")))

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
