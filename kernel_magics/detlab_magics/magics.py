"""The magics: parse, one call, show. Everything they do is plain Python in `detlab.client` too."""

from __future__ import annotations

import functools
import pathlib
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, needs_local_scope, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from detlab.errors import DetlabError
from detlab_magics import actions
from detlab_magics.errors import MagicError, as_magic_error
from detlab_magics.kernel import KernelSession, cell_id, cell_number

F = TypeVar("F", bound=Callable[..., Any])


def short_errors(method: F) -> F:
    """Turn detlab's errors into the short ones that a cell shows; keep the long one for %det_debug."""

    @functools.wraps(method)
    def wrapped(self: DetMagics, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except MagicError as problem:
            self.session.last_error = problem.__cause__ or problem
            raise
        except DetlabError as problem:
            self.session.last_error = problem
            raise as_magic_error(problem) from None

    return wrapped  # type: ignore[return-value]


def _id_argument(f: F) -> F:
    return argument("id", nargs="?", type=int, help="experiment id; default: the one submitted last")(f)


@magics_class
class DetMagics(Magics):
    """Experiments from notebook cells."""

    shell: Any

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.session = KernelSession()
        self.session.modules.install()

    @line_magic
    @short_errors
    def det(self, line: str) -> None:
        """Show the cluster, and the list of magics."""
        del line
        display(actions.status(self.session))

    @magic_arguments()
    @argument("name", help="the module's name: `train` becomes train.py in the bundle")
    @no_var_expand
    @cell_magic
    @short_errors
    def det_module(self, line: str, cell: str) -> None:
        """Make the cell a module: importable here, shipped with experiments; tracebacks name cell and line.

        The code runs when it is imported, not now.
        """
        args = parse_argstring(self.det_module, line)
        module = self.session.modules.capture(args.name, cell, cell_number(), cell_id())
        print(f"module {module.name}: {len(cell.splitlines())} lines from cell {module.cell}")

    @magic_arguments()
    @argument("file", nargs="?", help="a YAML file (line magic only)")
    @argument("--name", "-n", help="display name")
    @argument("--slots", "-s", type=int, help="resources.slots_per_trial")
    @argument(
        "--watch", "-w", action="store_true", help="show the live view and return (default when somebody watches)"
    )
    @argument("--wait", action="store_true", help="return when it has ended (default headless, as under papermill)")
    @argument("--context", "-c", help="folder whose files are shipped; default: the cells and what they import")
    @argument("--new", action="store_true", help="submit anew although the same experiment exists")
    @argument("--out", "-o", metavar="VAR", help="variable that receives the Experiment")
    @argument("--dry-run", action="store_true", help="judge and list what would be shipped; submit nothing")
    @needs_local_scope
    @no_var_expand
    @line_magic
    @cell_magic
    @short_errors
    def det_experiment(self, line: str, cell: str | None = None, local_ns: dict[str, Any] | None = None) -> Any:
        """Submit an experiment: the body is a Determined experiment configuration.

        `${name}` takes a variable of the notebook (so papermill's parameters reach it). Example::

            %%det_experiment --name first --out exp
            entrypoint: python3 train.py
            searcher: {name: single, metric: loss}
            hyperparameters: {lr: 0.1, epochs: ${epochs}}
        """
        args = parse_argstring(self.det_experiment, line)
        if args.watch and args.wait:
            raise MagicError("--watch returns at once and --wait does not: give one of them")
        if (cell is None) == (args.file is None):
            raise MagicError(
                "give either a YAML body (%%det_experiment in the cell's first line) or a file (%det_experiment FILE)",
                hint="%%det_experiment? shows an example",
            )
        namespace = {**self.shell.user_ns, **(local_ns or {})}
        text = cell if cell is not None else _read(args.file)
        where = f"cell {cell_number()}" if cell is not None else args.file
        request = actions.Request(
            text=text,
            where=where,
            name=args.name,
            slots=args.slots,
            context=pathlib.Path(args.context) if args.context else None,
            wait=True if args.wait else False if args.watch else None,
            new=args.new,
            dry_run=args.dry_run,
        )
        experiment = actions.run(self.session, request, namespace)
        if args.out and experiment is not None:
            self.shell.user_ns[args.out] = experiment
        return None if args.out else experiment

    @magic_arguments()
    @_id_argument
    @argument("--wait", action="store_true", help="return when it has ended")
    @line_magic
    @short_errors
    def det_watch(self, line: str) -> None:
        """Show the live view of an experiment: the same from any notebook, kernel or browser."""
        args = parse_argstring(self.det_watch, line)
        actions.watch(self.session, self._id(args.id), wait=args.wait or None)

    @magic_arguments()
    @argument("--active", "-a", action="store_true", help="only those that have not ended")
    @argument("--limit", type=int, default=20, help="rows")
    @line_magic
    @short_errors
    def det_list(self, line: str) -> None:
        """List experiments, newest first."""
        args = parse_argstring(self.det_list, line)
        display(actions.listing(self.session, active=args.active, limit=args.limit))

    @magic_arguments()
    @argument("trial", type=int, help="trial id")
    @argument("--tail", "-n", type=int, default=50, help="last lines only (0: all)")
    @argument("--follow", "-f", action="store_true", help="go on until the trial ends")
    @line_magic
    @short_errors
    def det_logs(self, line: str) -> None:
        """Print a trial's output; lines of captured cells are named by cell."""
        args = parse_argstring(self.det_logs, line)
        actions.logs(self.session, args.trial, tail=args.tail, follow=args.follow)

    @magic_arguments()
    @_id_argument
    @line_magic
    @short_errors
    def det_pause(self, line: str) -> None:
        """Checkpoint an experiment and free its slots; %det_activate goes on."""
        print(actions.act(self.session, self._id(parse_argstring(self.det_pause, line).id), "pause"))

    @magic_arguments()
    @_id_argument
    @line_magic
    @short_errors
    def det_activate(self, line: str) -> None:
        """Let a paused experiment go on."""
        print(actions.act(self.session, self._id(parse_argstring(self.det_activate, line).id), "activate"))

    @magic_arguments()
    @_id_argument
    @line_magic
    @short_errors
    def det_kill(self, line: str) -> None:
        """End an experiment now."""
        print(actions.act(self.session, self._id(parse_argstring(self.det_kill, line).id), "kill"))

    @line_magic
    def det_debug(self, line: str) -> None:
        """Show the full traceback of the last short error."""
        del line
        if self.session.last_error is None:
            print("no error yet")
            return
        error = self.session.last_error
        self.shell.showtraceback((type(error), error, error.__traceback__))

    def _id(self, given: int | None) -> int:
        found = self.session.experiment_id(given)
        if found is None:
            raise MagicError("which experiment? None was submitted from this kernel", hint="%det_list, then the id")
        return found


def _read(path: str) -> str:
    try:
        return pathlib.Path(path).expanduser().read_text()
    except OSError as problem:
        raise MagicError(f"cannot read {path}: {problem.strerror}", hint="%det_experiment FILE.yaml") from problem


def magic_table() -> list[tuple[str, str]]:
    """Return (magic, what it does in one line) for all magics."""
    kinds = {"det_module": "%%", "det_experiment": "%%"}
    found = []
    for name in sorted(n for n in vars(DetMagics) if n.startswith("det")):
        doc = textwrap.dedent(vars(DetMagics)[name].__doc__ or "").strip()
        lines = [text.strip() for text in doc.splitlines() if text.strip() and not text.strip().startswith("::")]
        first = next((text for text in lines if not text.startswith("%")), "")
        found.append((kinds.get(name, "%") + name, first))
    return found
