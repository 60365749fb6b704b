"""The page of the command line, from click's own objects."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator

import click

from reference_pages.markdown import anchor, first_sentence, page, table


def cli() -> str:
    """The page of the command line, from click's own objects."""
    from detlab.cli.root import SHORT, det

    context = click.Context(det, info_name="det")
    commands = list(walk(det, context))
    short = ", ".join(f"`{key}` {name}" for key, name in SHORT.items())
    overview = [
        (f"[`{context.command_path}`](#{anchor(context.command_path)})", first_sentence(command.help))
        for command, context in commands
        if not isinstance(command, click.Group)
    ]
    intro = f"`det COMMAND --help` says the same. Short names: {short}.\n\n{help_text(det.help)}"
    end = help_text(det.epilog)
    options = option_table(det, context)
    parts = [section(command, context) for command, context in commands]
    return page("Command line", intro, options, end, table(("command", ""), overview), *parts)


def walk(group: click.Group, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield every command below a group, with the context that knows its full name."""
    seen: set[int] = set()
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden or id(command) in seen:
            continue
        seen.add(id(command))
        below = click.Context(command, info_name=name, parent=context)
        yield command, below
        if isinstance(command, click.Group):
            yield from walk(command, below)


def section(command: click.Command, context: click.Context) -> str:
    """One command: usage, help, options."""
    if isinstance(command, click.Group):
        return f"## {context.command_path}\n\n{help_text(command.help)}"
    level = "##" if context.parent is not None and context.parent.parent is None else "###"
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [f"{level} {context.command_path}", f"    {usage}", help_text(command.help), option_table(command, context)]
    return "\n\n".join(part for part in parts if part)


def option_table(command: click.Command, context: click.Context) -> str:
    """The options of a command but --help."""
    records = [
        record
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option) and "--help" not in parameter.opts
        if (record := parameter.get_help_record(context)) is not None
    ]
    return table(("option", "meaning"), [(f"`{names}`", text.replace("<", "&lt;")) for names, text in records])


def help_text(text: str | None) -> str:
    r"""Return click's help as markdown: in paragraphs that begin with `\b` the indented lines are code."""
    parts = []
    for paragraph in inspect.cleandoc(text or "").split("\n\n"):
        if not paragraph.startswith("\b"):
            parts.append(" ".join(paragraph.split()))
            continue
        runs: list[tuple[bool, list[str]]] = []
        for line in paragraph.splitlines()[1:]:
            code = line.startswith(" ")
            if not runs or runs[-1][0] is not code:
                runs.append((code, []))
            runs[-1][1].append(line)
        parts += [
            textwrap.indent(textwrap.dedent("\n".join(lines)), "    ") if code else " ".join(lines)
            for code, lines in runs
        ]
    return "\n\n".join(parts)
