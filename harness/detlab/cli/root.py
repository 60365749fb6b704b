"""The root command `det`: its sub-commands, and the handling of their errors."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from detlab.cli import commands
from detlab.cli.invocation import Invocation
from detlab.cli.loading import Lazy, LazyGroup, declared

COMMANDS = {
    **declared(commands),
    "backup": Lazy("Write the cluster's state into an archive.", extra="hub"),
    "down": Lazy("Stop the cluster of a state folder; its data is kept.", extra="hub"),
    "preview-search": Lazy("Simulate a search without training.", extra="hub"),
    "restore": Lazy("Make a state folder of an archive.", extra="hub"),
    "status": Lazy("Show the parts of the cluster of a state folder.", extra="hub"),
    "up": Lazy("Start a cluster on this machine.", extra="hub"),
}
"""Those that the modules in `commands` declare, and those of extras: one that is missing says what to install."""
SHORT = {
    "a": "agent",
    "c": "checkpoint",
    "command": "cmd",
    "e": "experiment",
    "exp": "experiment",
    "j": "job",
    "m": "model",
    "nb": "notebook",
    "p": "project",
    "q": "queue",
    "s": "slot",
    "t": "trial",
    "tb": "tensorboard",
    "tpl": "template",
    "u": "user",
    "ug": "user-group",
    "w": "workspace",
}


class _ReaderGone(Exception):
    """Standard output is no longer read (click itself would end with status 0)."""


def _open_closed_output() -> None:
    """Have output that the caller closed (`>&-`) go nowhere; its descriptor must not become that of a connection."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))


def _is_full() -> bool:
    """Whether standard output holds what cannot be written: its disk is full, or it was closed."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        return True
    return False


def _discard_output() -> None:
    """Have what is left of the output go nowhere: the flush at exit must not complain."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
            continue
        with contextlib.suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _say_unwritten(error: OSError) -> None:
    with contextlib.suppress(OSError, ValueError):
        click.echo(f"Error: the output cannot be written: {error.strerror or error}", err=True)
    _discard_output()


class RootGroup(LazyGroup):
    """The root group; every error of every command ends here, as one block."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; tell a closed pipe from success."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise _ReaderGone from error
        return result

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and turn what went wrong into a message and an exit status."""
        _open_closed_output()
        invocation = Invocation()
        try:
            status = super().main(
                args=args,
                prog_name=prog_name or "det",
                complete_var=complete_var or "_DET_COMPLETE",
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                obj=invocation,
                **extra,
            )
        except click.ClickException as error:
            _show_usage(
                _named(error), as_json=invocation.as_json or "--json" in (sys.argv[1:] if args is None else args)
            )
            sys.exit(error.exit_code)
        except (KeyboardInterrupt, click.Abort):
            click.echo("Interrupted.", err=True)
            sys.exit(130)
        except (_ReaderGone, BrokenPipeError):
            # The reader (head, less) has enough; a later flush at exit must not complain.
            _discard_output()
            sys.exit(1)
        except Exception as error:  # a bug too is said in words, with where its traceback is
            if isinstance(error, OSError) and _is_full():
                _say_unwritten(error)
                sys.exit(1)
            from detlab.cli.output.failures import show

            try:
                status = show(error, as_json=invocation.as_json)
            except OSError as full:  # neither can the error be written
                _say_unwritten(full)
                status = 1
            sys.exit(status)
        finally:
            invocation.close()
        sys.exit(status if isinstance(status, int) else 0)


def _show_usage(error: click.ClickException, *, as_json: bool) -> None:
    """Say that a command was called wrongly; who asked for JSON gets it in the form of all other errors."""
    error.show()
    if as_json:
        from detlab.cli.output.failures import wrong_usage
        from detlab.cli.output.printing import say_json

        say_json(wrong_usage(error.format_message()))


def _named(error: click.ClickException) -> click.ClickException:
    """Return an error about an option of Determined's that is not here as one that says what to use instead."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error
    from detlab.cli.determined_options import instead_of

    words, context = [], error.ctx
    while context.parent is not None:
        words.append(context.command.name or context.info_name or "")
        context = context.parent
    hint = instead_of(" ".join(reversed(words)), error.option_name)
    if hint is None:
        return error
    return click.UsageError(f"{error.option_name} of Determined is not here: {hint}", error.ctx)


@click.command(
    cls=RootGroup,
    lazy=COMMANDS,
    short=SHORT,
    plugins=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=(
        "Exit status: 0 success; 1 failure; 2 wrong usage or config; 3 the awaited experiment was canceled,"
        " 4 it failed, 5 timeout; 130 interrupted.\n\n"
        "DET_DEBUG=1 shows full tracebacks. NO_COLOR=1 turns colours off.\n\n"
        'Shell completion: eval "$(_DET_COMPLETE=bash_source det)" in ~/.bashrc'
        " (zsh: zsh_source; fish: _DET_COMPLETE=fish_source det | source)."
    ),
)
@click.option(
    "-m",
    "--master",
    metavar="URL",
    help="Address of the cluster. Default: DET_URL, the folder .detlab here or above, the cluster started last"
    " (a guess: read, not changed), det login.",
)
@click.version_option(None, "--version", package_name="detlab", message="det %(version)s")
@click.pass_obj
def det(invocation: Invocation, master: str | None) -> None:
    """Deep-learning experiments on shared GPUs: submit them, watch them, fetch their results.

    \b
    First steps:
      det up                                     start a cluster on this machine
      det experiment create search.yaml code/    submit; -f follows it to its end
      det e list                                 short names: e, t, c, a, s, u
    """
    invocation.master = master
