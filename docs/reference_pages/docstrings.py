"""Sections about classes and functions, from signatures and docstrings."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from collections.abc import Callable
from typing import Any

from reference_pages.markdown import first_paragraph, first_sentence, table


def function_section(name: str, function: Callable[..., Any]) -> str:
    """A function: signature and docstring."""
    return f"## {name}\n\n    {name}{signature(function)}\n\n{doc_of(function)}"


def class_section(name: str, cls: type, *, inherited: bool = False) -> str:
    """A class: what it is, its own public methods (or inherited ones too), and its properties, inherited ones too."""
    methods, properties = [], []
    for base in reversed(cls.__mro__):
        for key, value in vars(base).items():
            if key.startswith("_"):
                continue
            if isinstance(value, property):
                properties.append((f"`{key}`", first_sentence(value.__doc__)))
                continue
            function = inspect.unwrap(value.__func__ if isinstance(value, classmethod | staticmethod) else value)
            if (inherited or base is cls) and inspect.isfunction(function):
                methods.append((f"`{key}{signature(function)}`", first_sentence(function.__doc__)))
    head = [f"## {name}", first_paragraph(cls.__doc__)]
    parts = [*head, table(("method", ""), methods), table(("property", ""), properties)]
    return "\n\n".join(part for part in parts if part)


def fields_section(name: str, cls: Any) -> str:
    """A dataclass: its public attributes, as its docstring says."""
    known = [field.name for field in dataclasses.fields(cls) if not field.name.startswith("_")]
    doc = inspect.getdoc(cls) or ""
    said = dict(re.findall(r"^    (\w+): (.+)$", doc, re.MULTILINE))
    rows = [(f"`{key}`", said.get(key, "")) for key in known]
    rows += [
        (f"`{key}`", first_sentence(value.__doc__)) for key, value in vars(cls).items() if isinstance(value, property)
    ]
    return f"## {name}\n\n{first_paragraph(doc)}\n\n{table(('attribute', ''), rows)}"


def attributes_of(cls: type) -> list[tuple[str, ...]]:
    """The entries of a docstring's `Attributes:`."""
    text = (inspect.getdoc(cls) or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", text, re.MULTILINE)
    return [(f"`{name}`", said.rstrip(".")) for name, said in entries]


def doc_of(thing: Any) -> str:
    """A docstring as markdown: its sections become lists."""
    lines = []
    for line in (inspect.getdoc(thing) or "").splitlines():
        heading = re.fullmatch(r"(Args|Raises|Returns|Yields):", line)
        entry = re.fullmatch(r"    (\*{0,2}\w+): (.+)", line)
        if heading:
            lines.append(f"{heading[1]}:\n" if heading[1] != "Args" else "Arguments:\n")
        elif entry:
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        else:
            lines.append(f"  {line.strip()}" if line.startswith("        ") else line)
    return "\n".join(lines)


def signature(function: Callable[..., Any]) -> str:
    """The parameters with their defaults, without annotations, `self` and `cls`."""
    parts, star = [], False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in {"self", "cls"}:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        prefix = {parameter.VAR_KEYWORD: "**", parameter.VAR_POSITIONAL: "*"}.get(parameter.kind, "")
        star |= parameter.kind is parameter.VAR_POSITIONAL
        default = "" if parameter.default is parameter.empty else f"={value_of(parameter.default)}"
        parts.append(f"{prefix}{parameter.name}{default}")
    return f"({', '.join(parts)})"


def value_of(default: Any) -> str:
    """A default as people write it."""
    if isinstance(default, enum.Enum):
        return f"{type(default).__name__}.{default.name}"
    return "…" if callable(default) else repr(default)
