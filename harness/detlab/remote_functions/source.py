"""From a function to the text of a cell: its own source and that of what it uses, each line where it was.

A function of a module is imported there by its name; the module's file travels. One of a script or a notebook is taken
out of its file: its lines, and those of the functions and classes of that script which it uses, stay at their numbers,
so that tracebacks say the right ones. Modules that it uses are imported in the first line; other values travel like
arguments.

Nothing is run here, and nothing is pickled: that is the packing's.
"""

from __future__ import annotations
import __future__ as futures

import ast
import builtins
import inspect
import linecache
import symtable
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from detlab.remote_functions.failures import FunctionNotShipped

_FUTURE = "from __future__ import annotations"
_MAIN = frozenset({"__main__", "__mp_main__"})
MARK = "is_detlab_remote"
"""Attribute of the decorator, and of the functions that it makes."""


def plain_function(value: Any) -> Any:
    """Return the function in a remote one, and anything else as it is."""
    return value.function if getattr(type(value), MARK, False) else value


@dataclass
class ShippedFunction:
    """A function as text.

    Attributes:
        text: Python that defines it; line n is line n of its file, if that is possible.
        name: What tracebacks call that file.
        called: The expression that is the function.
        values: What it uses beside modules, functions and classes, by the names it has for them.
    """

    text: str
    name: str
    called: str
    values: dict[str, Any] = field(default_factory=dict)


def ship_function(function: FunctionType) -> ShippedFunction:
    """Return the text that defines a function elsewhere.

    Raises:
        FunctionNotShipped: Its source cannot be read, or it uses what is not there; all of it is listed.
    """
    if _is_importable(function):
        imported = f"from {function.__module__} import {function.__name__} as the_function"
        plain = f'the_function = the_function.function if hasattr(the_function, "{MARK}") else the_function'
        return ShippedFunction(f"{imported}\n{plain}\n", f"{function.__name__}()", "the_function")
    return _Extraction(function).run()


def check_function(function: Any) -> None:
    """Check that something is a function that can travel.

    Raises:
        FunctionNotShipped: It is not; the message says what to do.
    """
    name = getattr(function, "__name__", repr(function))
    if not isinstance(inspect.unwrap(function) if callable(function) else function, FunctionType):
        raise FunctionNotShipped(f"det.remote needs a function made by def, not {function!r:.200}")
    if name == "<lambda>":
        raise FunctionNotShipped("det.remote needs a function with a name", hint="use def in place of lambda")
    if inspect.isgeneratorfunction(inspect.unwrap(function)) or inspect.isasyncgenfunction(inspect.unwrap(function)):
        raise FunctionNotShipped(f"{name}() is a generator: a result comes back at the end", hint="return a list")


def _is_importable(thing: Any) -> bool:
    """Whether a function or class can be imported by its name where its module is."""
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    name = getattr(thing, "__qualname__", "")
    if module is None or module.__name__ in _MAIN or "." in name:
        return False
    found = getattr(module, name, None)
    return found is thing or getattr(found, "__wrapped__", None) is thing


# --- taking it out of its file ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Definition:
    """A function or class in the file that it was written in."""

    thing: Any
    file: str
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    lines: dict[int, str]
    future: bool

    @property
    def text(self) -> str:
        return "\n".join(self.lines.values()) + "\n"


class _Extraction:
    def __init__(self, function: FunctionType) -> None:
        self._function = function
        self._pieces: list[_Definition] = []
        self._imports: dict[str, None] = {}
        self._values: dict[str, Any] = {}
        self._aliases: dict[str, str] = {}
        self._problems: list[str] = []

    def run(self) -> ShippedFunction:
        inner = inspect.unwrap(self._function)
        main = _definition(inner)
        self._take(main)
        if self._problems:
            raise FunctionNotShipped.of(
                f"{inner.__name__}() cannot be sent:",
                self._problems,
                hint="What a function uses by name travels with it: define it first, or pass it as an argument",
            )
        return ShippedFunction(self._text(main), shown_name(main.file), inner.__name__, self._values)

    def _take(self, piece: _Definition) -> None:
        """Take a definition, and what it needs."""
        self._pieces.append(piece)
        names = used_names(piece.text, future=piece.future)
        known = _known_by(piece.thing)
        for name in sorted(names):
            if name in known:
                self._need(name, known[name], piece)
            elif not (hasattr(builtins, name) or _is_dunder(name)):
                self._problems.append(f"it uses {name!r}, which is not defined here")

    def _need(self, name: str, value: Any, piece: _Definition) -> None:
        if _is_dunder(name) or getattr(builtins, name, self) is value:
            return
        value = plain_function(value)
        if isinstance(value, ModuleType):
            self._need_module(name, value, piece)
        elif isinstance(value, type | FunctionType) or (callable(value) and hasattr(value, "__wrapped__")):
            self._need_definition(name, value)
        elif inspect.isbuiltin(value) or inspect.isroutine(value):
            self._need_routine(name, value)
        else:
            self._need_value(name, value)

    def _need_module(self, name: str, module: ModuleType, piece: _Definition) -> None:
        if module.__name__ in _MAIN:
            self._problems.append(f"it uses {name!r}, which is this very script")
            return
        self._imports[_import(module.__name__, name)] = None
        for dotted in submodules(piece.node, name, module.__name__):
            self._imports[f"import {dotted}"] = None

    def _need_definition(self, name: str, thing: Any) -> None:
        if _is_importable(thing):
            self._import(name, thing.__module__, thing.__qualname__)
            return
        inner = inspect.unwrap(thing)
        found = next((piece for piece in self._pieces if piece.thing is inner), None)
        try:
            made = found or _definition(inner)
        except FunctionNotShipped as problem:
            self._problems.append(f"it uses {name!r}: {problem.message}")
            return
        if made.node.name != name:
            self._aliases[name] = made.node.name
        if found is None:
            self._take(made)

    def _need_routine(self, name: str, thing: Any) -> None:
        """Import what is written in C, if it has a name by which that can be done."""
        module, attribute = getattr(thing, "__module__", None), getattr(thing, "__name__", "")
        if module and module not in _MAIN and getattr(sys.modules.get(module), attribute, None) is thing:
            self._import(name, module, attribute)
        else:
            self._need_value(name, thing)

    def _need_value(self, name: str, value: Any) -> None:
        if self._values.setdefault(name, value) is not value:
            self._problems.append(f"it and what it uses have two different values by the name {name!r}")

    def _import(self, name: str, module: str, attribute: str) -> None:
        self._imports[f"from {module} import {attribute}" + ("" if attribute == name else f" as {name}")] = None

    def _text(self, main: _Definition) -> str:
        """Put the pieces together: those of the function's own file at their lines, the others after them.

        The imports take the first line, which is free where a decorator was above; else all lines move down by one.
        """
        lines: dict[int, str] = {}
        for piece in self._pieces:
            if piece.file == main.file:
                lines |= piece.lines
        head = [_FUTURE] if any(piece.future for piece in self._pieces) else []
        prelude = "; ".join([*head, *self._imports])
        text = [lines.get(number, "") for number in range(1, max(lines) + 1)]
        if prelude:
            text = [prelude, *text[0 if text[0] else 1 :]]
        others = [piece.text for piece in self._pieces if piece.file != main.file]
        aliases = [f"{name} = {known}" for name, known in self._aliases.items()]
        return "\n".join([*text, *others, *aliases]) + "\n"


def _definition(thing: Any) -> _Definition:
    """Find the source of a function or class.

    Raises:
        FunctionNotShipped: It cannot be read.
    """
    for file in _files_of(thing):
        lines = linecache.getlines(file, getattr(thing, "__globals__", None))
        tree = _parsed("".join(lines))
        node = _node_of(thing, tree)
        if node is not None:
            flags = thing.__code__.co_flags if isinstance(thing, FunctionType) else 0
            future = bool(flags & futures.annotations.compiler_flag) or _has_future(tree)
            return _Definition(thing, file, node, _lines_of(node, lines, _known_by(thing)), future)
    raise FunctionNotShipped(
        f"the source of {thing.__name__} cannot be read (it was made from {next(iter(_files_of(thing)), 'no file')})",
        hint="Write it in a file or a notebook's cell",
    )


def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _files_of(thing: Any) -> list[str]:
    """Return the files in which a function or class may have been written, the likely ones first."""
    if isinstance(thing, FunctionType):
        return [thing.__code__.co_filename]
    codes = [one.__code__ for one in map(inspect.unwrap, vars(thing).values()) if isinstance(one, FunctionType)]
    module = str(getattr(sys.modules.get(thing.__module__), "__file__", "") or "")
    cells = [name for name in reversed(list(linecache.cache)) if "ipykernel_" in name or name.startswith("<ipython-")]
    return [name for name in dict.fromkeys([*(code.co_filename for code in codes), module, *cells]) if name]


def _node_of(thing: Any, tree: ast.Module) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | None:
    kinds = (ast.ClassDef,) if isinstance(thing, type) else (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in ast.walk(tree) if isinstance(node, kinds) and node.name == thing.__name__]
    if isinstance(thing, FunctionType):
        first = thing.__code__.co_firstlineno
        found = [node for node in found if first in {node.lineno, *(one.lineno for one in node.decorator_list)}]
    return found[-1] if found else None


def _lines_of(node: Any, lines: list[str], known: Mapping[str, Any]) -> dict[int, str]:
    """Return the lines of a definition by number, moved to the margin, without decorators of ours."""
    ours = {
        number
        for one in _our_decorators(node, known)
        for number in range(one.lineno, (one.end_lineno or one.lineno) + 1)
    }
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    numbers = range(first, node.end_lineno + 1)
    block = "".join(lines[number - 1] for number in numbers)
    moved = (textwrap.dedent(block) if node.col_offset else block).split("\n")
    return {number: "" if number in ours else line for number, line in zip(numbers, moved, strict=False)}


def _our_decorators(node: Any, known: Mapping[str, Any]) -> list[ast.expr]:
    """Return those decorators that are `det.remote`, by whatever name."""
    return [one for one in node.decorator_list if getattr(_meant(one, known), MARK, False)]


def _meant(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """Return what a decorator is, from the names known where it stands; None if that cannot be said."""
    match node:
        case ast.Call(func=function):
            return _meant(function, known)
        case ast.Name(id=name):
            return known.get(name)
        case ast.Attribute(value=value, attr=name):
            return getattr(_meant(value, known), name, None)
        case _:
            return None


def _has_future(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
        for node in tree.body
    )


# --- what it uses -------------------------------------------------------------------------------------------


def used_names(text: str, *, future: bool = False) -> set[str]:
    """Return the names that a definition takes from around it: globals, and variables of functions it lay in.

    Args:
        text: The definition, at the margin.
        future: Whether annotations are not evaluated.
    """
    table = symtable.symtable(f"{_FUTURE}\n{text}" if future else text, "function", "exec")
    defined = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned()}
    found = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced()}
    return (found | set(_globals_of(table))) - defined - {"annotations"}


def _globals_of(table: symtable.SymbolTable) -> Iterator[str]:
    for child in table.get_children():
        for symbol in child.get_symbols():
            if symbol.is_global() and symbol.is_referenced():
                yield symbol.get_name()
        yield from _globals_of(child)


def submodules(node: ast.AST, name: str, module: str) -> list[str]:
    """Return the modules below one that a definition reaches by attributes: `xml.etree.ElementTree` of `xml`."""
    found: set[str] = set()
    for attribute in ast.walk(node):
        dotted = ast.unparse(attribute) if isinstance(attribute, ast.Attribute) else ""
        head, _, rest = dotted.partition(".")
        if head == name and rest and f"{module}.{rest}" in sys.modules:
            found.add(f"{module}.{rest}")
    return sorted(found)


def _known_by(thing: Any) -> Mapping[str, Any]:
    """Return what names mean where a function or class was written."""
    if not isinstance(thing, FunctionType):
        return vars(sys.modules.get(thing.__module__, builtins))
    known = dict(thing.__globals__)
    for name, cell in zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True):
        try:
            known[name] = cell.cell_contents
        except ValueError:  # not set yet
            continue
    return known


def _import(module: str, name: str) -> str:
    return f"import {module}" if module == name else f"import {module} as {name}"


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def shown_name(file: str) -> str:
    """Return what tracebacks call a file: a notebook's cell by its number, a file by its name."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    label = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(file)
    if label is not None:
        return " ".join(label).lower().replace("in[", "").rstrip("]")
    return Path(file).name
