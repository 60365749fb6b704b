"""The magics of the kernel as a whole: `%det` and errors in full; and the list of all magics.

Magics parse, call once and show. Everything they do is plain Python in `detlab.client` too.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable
from typing import Any

from IPython.core.magic import Magics, line_magic, magics_class
from IPython.display import display

from detlab_magics.errors import MagicError
from detlab_magics.experimentmagics import ExperimentMagics
from detlab_magics.governancemagics import GovernanceMagics
from detlab_magics.kernel import KernelSession
from detlab_magics.magic_lines import line_variables, short_errors
from detlab_magics.taskmagics import TaskMagics

_CELL_MAGICS = frozenset({"det_module", "det_experiment", "det_run"})
_HIDDEN = frozenset({"det_misplaced"})
_OURS = re.compile(r"%%(det_\w+)")


@magics_class
class DetMagics(Magics):
    """The cluster, the last error, and what is installed into the kernel."""

    shell: Any

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.session = KernelSession()

    def install(self) -> None:
        """Make captured cells importable, explain misplaced magics, complete their arguments."""
        from detlab_magics.completion import Completion

        self.session.modules.install()
        self._transformer = explain_misplaced(self._is_complete)
        self.shell.input_transformers_cleanup.append(self._transformer)
        self._matcher = Completion(self.session, magic_options(), self._variables).matcher()
        self.shell.Completer.custom_matchers.append(self._matcher)

    def uninstall(self) -> None:
        """Undo `install`."""
        self.session.modules.uninstall()
        self.shell.input_transformers_cleanup.remove(self._transformer)
        self.shell.Completer.custom_matchers.remove(self._matcher)

    @line_magic
    @line_variables
    @short_errors
    def det(self, line: str) -> None:
        """Show the cluster, and the list of magics.

        Example::

            %det
        """
        from detlab_magics import actions

        del line
        display(actions.status(self.session, magic_table()))

    @line_magic
    def det_debug(self, line: str) -> None:
        """Show the full traceback of the last short error."""
        del line
        error = self.session.last_error
        if error is None:
            print("no error yet")
            return
        tb = self.shell.InteractiveTB
        lines = tb.structured_traceback(type(error), error, error.__traceback__)
        print(tb.stb2text(lines))

    @line_magic
    def det_misplaced(self, line: str) -> None:
        """Report that a cell magic is in the wrong line (its cell is replaced by this)."""
        magic, _, above = line.partition(" ")
        what = "a comment" if above == "comment" else "other code"
        raise MagicError(
            f"%%{magic} must be the first line of its cell; here {what} is above it",
            hint="move it to the top"
            if above == "comment"
            else "put it in a cell of its own (or the other code in the cell before)",
        )

    def _variables(self) -> list[str]:
        hidden = getattr(self.shell, "user_ns_hidden", {})
        return [name for name in self.shell.user_ns if name not in hidden]

    def _is_complete(self, text: str) -> bool:
        """Whether some lines of a cell are whole statements (magics and shell lines count as such)."""
        lines = ["pass" if line.startswith(("%", "!")) else line for line in text.splitlines()]
        try:
            ast.parse("\n".join(lines))
        except (SyntaxError, ValueError):
            return False
        return True


def explain_misplaced(is_complete: Callable[[str], bool]) -> Callable[[list[str]], list[str]]:
    """Return an IPython input transformer.

    Args:
        is_complete: Tells whether a text is whole statements; where it is not, what follows may be inside of a string.
    """

    def transform(lines: list[str]) -> list[str]:
        first = next((line for line in lines if line.strip()), "")
        if first.startswith("%%"):
            return lines
        for index, line in enumerate(lines):
            found = _OURS.match(line)
            if found and _only_comments(lines[:index]):
                return [f"get_ipython().run_line_magic('det_misplaced', '{found.group(1)} comment')\n"]
            if found and is_complete("".join(lines[:index])):
                return [f"get_ipython().run_line_magic('det_misplaced', '{found.group(1)} code')\n"]
        return lines

    return transform


def _only_comments(lines: list[str]) -> bool:
    return bool(lines) and all(not line.strip() or line.lstrip().startswith("#") for line in lines)


def magic_functions() -> dict[str, Any]:
    """Return the magics by name."""
    found = {**vars(DetMagics), **vars(ExperimentMagics), **vars(GovernanceMagics), **vars(TaskMagics)}
    return {name: found[name] for name in sorted(found) if name.startswith("det") and name not in _HIDDEN}


def magic_table() -> list[tuple[str, str]]:
    """Return (magic, what it does in one line) for all magics."""
    found = []
    for name, magic in magic_functions().items():
        doc = textwrap.dedent(magic.__doc__ or "").strip()
        # The usage comes first, in one paragraph of several lines.
        paragraphs = [text.strip() for text in doc.split("\n\n") if text.strip() not in {"", "::"}]
        first = next((text.splitlines()[0] for text in paragraphs if not text.startswith(("::", "%"))), "")
        found.append((("%%" if name in _CELL_MAGICS else "%") + name, first))
    return found


def magic_options() -> dict[str, list[str]]:
    """Return magic -> its options (`--name`)."""
    parsers = {name: getattr(magic, "parser", None) for name, magic in magic_functions().items()}
    return {
        name: [option for option in parser._option_string_actions if option.startswith("--")]
        for name, parser in parsers.items()
        if parser is not None
    }
