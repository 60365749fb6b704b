"""Groups whose sub-commands are imported only when they are called, with short names and plug-ins."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from detlab.errors import DetlabError
from detlab.plugins import PluginError, Plugins

PLUGINS: Plugins[Any] = Plugins("detlab.commands", "command")
_INSIDE = {"agent-run", "cluster-simulate"}
"""Entry points that are commands of a group, not of the root."""


@dataclass(frozen=True, slots=True)
class Lazy:
    """A sub-command that is not loaded yet.

    Attributes:
        help: One line, shown by the group's help.
        target: `module:attribute`; None for one that comes from the entry points `detlab.commands`.
        entry: Name of the entry point, if it differs from the command's.
        extra: The extra of the distribution that brings a missing plug-in.
    """

    help: str
    target: str | None = None
    entry: str | None = None
    extra: str | None = None


_DECLARED = re.compile(r"^COMMANDS = (\{.*?\})$", re.DOTALL | re.MULTILINE)


def declared(package: ModuleType) -> dict[str, Lazy]:
    """Return the commands that the modules of a package declare, without importing them: that would take half a second.

    A module says `COMMANDS = {"NAME": "One line of help."}`, in literals. The command is its attribute of that name,
    with a `_` behind it where Python has the word for itself.

    Raises:
        ValueError: Two modules declare the same command.
    """
    found: dict[str, Lazy] = {}
    for folder in package.__path__:
        for path in sorted(Path(folder).rglob("*.py")):
            said = _DECLARED.search(path.read_text(encoding="utf-8"))
            module = ".".join([package.__name__, *path.relative_to(folder).with_suffix("").parts])
            for name, line in ast.literal_eval(said[1]).items() if said else ():
                if name in found:
                    raise ValueError(f"det {name} is declared by {module} and by {found[name].target}")
                found[name] = Lazy(line, f"{module}:{attribute_of(name)}")
    return found


def attribute_of(name: str) -> str:
    """Return what the function of a command is called."""
    found = name.replace("-", "_")
    return f"{found}_" if iskeyword(found) else found


class LazyGroup(click.Group):
    """A group that knows its commands by name and loads one when it is needed.

    Args:
        lazy: Commands by name.
        short: Short names of commands.
        plugins: Whether entry points that are not listed become commands too.
    """

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, Lazy] | None = None,
        short: Mapping[str, str] | None = None,
        plugins: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy or {})
        self.short = dict(short or {})
        self.plugins = plugins

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, short ones left out."""
        names = {*super().list_commands(ctx), *self.lazy}
        if self.plugins:
            claimed = {lazy.entry for lazy in self.lazy.values()} | _INSIDE
            names |= set(PLUGINS.names()) - claimed
        return sorted(names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name or short name, loading it."""
        name = self.short.get(cmd_name, cmd_name)
        known = super().get_command(ctx, name)
        if known is not None:
            return known
        lazy = self.lazy.get(name)
        if lazy is not None and lazy.target is not None:
            return _load(lazy.target)
        entry = lazy.entry or name if lazy else name
        if (lazy or self.plugins) and entry in PLUGINS.names():
            return _from_plugin(name, entry, lazy)
        return _absent(name, lazy) if lazy is not None else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the arguments; suggest near names for an unknown one."""
        word = args[0]
        if not (ctx.resilient_parsing or word.startswith("-")) and self.get_command(ctx, word) is None:
            if (told := _instead(ctx, args)) is not None:
                ctx.fail(told)
            near = get_close_matches(word, [*self.list_commands(ctx), *self.short])
            tail = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
            ctx.fail(f"No such command {word!r}.{tail}")
        name, command, rest = super().resolve_command(ctx, args)
        return (command.name if command is not None else name), command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their short names, without loading any that has a line of help."""
        names: dict[str, str] = {}
        for short, command_name in self.short.items():
            names.setdefault(command_name, f"{command_name}, {short}")
        rows = []
        for name in self.list_commands(ctx):
            lazy = self.lazy.get(name)
            if lazy is not None:
                rows.append((names.get(name, name), lazy.help))
                continue
            command = super().get_command(ctx, name)
            text = command.get_short_help_str(90) if command is not None else "(of an installed plug-in)"
            rows.append((names.get(name, name), text))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _instead(ctx: click.Context, args: list[str]) -> str | None:
    """Return what to say of a command of Determined's that is not here; None of any other."""
    from detlab.cli.determined_options import instead_of_command

    words, context = list(args), ctx
    while context.parent is not None:
        words.insert(0, context.command.name or context.info_name or "")
        context = context.parent
    found = instead_of_command(words)
    return None if found is None else f"`det {found[0]}` of Determined is not here: {found[1]}"


def _load(target: str) -> click.Command:
    module, _, attribute = target.partition(":")
    command: click.Command = getattr(import_module(module), attribute)
    return command


def _from_plugin(name: str, entry: str, lazy: Lazy | None) -> click.Command:
    try:
        command = PLUGINS.load(entry)
    except PluginError as error:
        if lazy is None or not isinstance(error.__cause__, ImportError):
            raise
        return _absent(name, lazy, error.__cause__)
    if not isinstance(command, click.Command):
        raise DetlabError(f"the entry point {entry} = {PLUGINS.origin(entry)} is not a click command")
    command.name = name
    return command


def _absent(name: str, lazy: Lazy, error: ImportError | None = None) -> click.Command:
    """Return a command that says what to install."""

    def fail(ctx: click.Context, **_: Any) -> None:
        reason = f" ({error})" if error is not None else ""
        raise DetlabError(
            f"'{ctx.command_path}' is not installed here{reason}",
            hint=f"Install it: pip install 'detlab[{lazy.extra}]'" if lazy.extra else None,
        )

    return click.Command(
        name,
        callback=click.pass_context(fail),
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        help=lazy.help,
        context_settings={"ignore_unknown_options": True},
    )
