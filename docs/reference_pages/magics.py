"""The page of the magics, from their parsers and docstrings."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable
from typing import Any

from reference_pages.markdown import anchor, page, rest_to_markdown, table


def magics() -> str:
    """The page of the magics, from their parsers and docstrings."""
    from detlab_magics.magics import magic_functions, magic_table

    intro = (
        "In a notebook server of the cluster the magics are loaded already; elsewhere `%load_ext detlab_magics`.\n"
        "`%%det_experiment?` shows the help of one. All that they do is plain Python in [detlab.client](client.md) too."
    )
    names = [name for name, _ in magic_table()]
    overview = [(f"[`{name}`](#{anchor(name)})", text) for name, text in magic_table()]
    functions = magic_functions()
    parts = [magic_section(name, functions[name.lstrip("%")]) for name in names]
    return page("Magics", intro, table(("magic", ""), overview), *parts)


def magic_section(name: str, method: Callable[..., Any]) -> str:
    """One magic: usage, docstring, arguments."""
    parser = getattr(method, "parser", None)
    actions = [] if parser is None else [a for a in parser._actions if "--help" not in a.option_strings]
    usage = " ".join(
        [name, *(f"[{usage_of(a)}]" if a.option_strings or a.nargs == "?" else a.dest.upper() for a in actions)]
    )
    arguments = [
        (f"`{', '.join(a.option_strings) or a.dest.upper()}`", (a.help or "").replace("%%", "%")) for a in actions
    ]
    doc = inspect.cleandoc(method.__doc__ or "")
    # magic_arguments puts its own usage before the docstring and its list of arguments behind it
    doc = re.sub(r"\A::\n\n(?:  .*\n)+", "", doc)
    doc = re.split(r"\n+(?:positional arguments|options|optional arguments):\n", doc)[0].strip()
    return "\n\n".join(
        part
        for part in (f"## {name}", f"    {usage}", rest_to_markdown(doc), table(("argument", ""), arguments))
        if part
    )


def usage_of(action: argparse.Action) -> str:
    """How an argument is written in a usage line."""
    if not action.option_strings:
        return action.dest.upper()
    takes = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    return f"{action.option_strings[0]}{takes}"
