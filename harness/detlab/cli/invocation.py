"""The state of one invocation of `det`: its cluster, and whether it prints JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from detlab.client.client import Client

_CSV = "detlab.csv"
CSV_HELP = "Print the table as CSV, for programs: sizes in bytes, spans in seconds, times in seconds since the epoch."
"""Key of the context: whether tables are printed as CSV."""
F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Invocation:
    """One run of the command line.

    Attributes:
        master: Address given by `--master`.
        as_json: Whether the command was asked for JSON; errors are then JSON too.
        as_csv: Whether it was asked for its table as CSV.
    """

    master: str | None = None
    as_json: bool = False
    as_csv: bool = False
    _client: Client | None = field(default=None, repr=False)

    @property
    def client(self) -> Client:
        """The client of the cluster, found on first use."""
        if self._client is None:
            from detlab.cli.output.printing import clean, note
            from detlab.client.client import Client

            self._client = Client(self.master)
            address = self._client.address
            if address.guess is not None:
                note(f"Cluster: {clean(address.url)} (a guess: {clean(address.guess)})")
        return self._client

    def tell(self, value: Any, text: str) -> None:
        """Print what a command did: a value, if it was asked for JSON, else a line."""
        from detlab.cli.output.printing import say, say_json

        if self.as_json:
            say_json(value)
        else:
            say(text)

    def answered(self, value: Any, nothing: str = "") -> bool:
        """Print a value, if the command was asked for JSON, or else what to say of one that is empty.

        Returns:
            Whether that was all: there is nothing more to print.
        """
        from detlab.cli.output.printing import say, say_json

        if self.as_json:
            say_json(value)
        elif nothing and not value and not self.as_csv:
            say(nothing)
        else:
            return False
        return True

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)


def _set_json(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
    ctx.ensure_object(Invocation).as_json = value
    return value


def json_option(function: F) -> F:
    """Add `--json`: one JSON value on standard output, and nothing else there."""
    option: Callable[[F], F] = click.option(
        "--json", is_flag=True, expose_value=False, is_eager=True, callback=_set_json, help="Print strict JSON."
    )
    return option(function)


yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


def confirmed(question: str, *, yes: bool, deed: str = "deleting", show: Callable[[], None] | None = None) -> None:
    """Ask before a deed, unless the command was given `--yes`.

    Args:
        question: What is asked, with what cannot be undone.
        yes: Whether not to ask.
        deed: What needs the answer, where nobody can be asked.
        show: Prints what the question is about.

    Raises:
        click.UsageError: There is no terminal to ask at.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{deed} needs a confirmation, and standard input is not a terminal: add --yes")
    if show is not None:
        show()
    click.confirm(question, abort=True, err=True)


def _set_csv(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
    ctx.ensure_object(Invocation).as_csv = value
    ctx.meta[_CSV] = value
    return value


def csv_option(function: F) -> F:
    """Add `--csv`: the command's table as CSV, with its header even if there are no rows."""
    option: Callable[[F], F] = click.option(
        "--csv", is_flag=True, expose_value=False, is_eager=True, callback=_set_csv, help=CSV_HELP
    )
    return option(function)
