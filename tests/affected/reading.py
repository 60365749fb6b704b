"""What one Python file depends on, as its text says: imports, strings, fixtures, entry points."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MODULE = re.compile(r"\bdetlab\w*(?:\.\w+)*")
FILE_NAME = re.compile(r"[\w@.+-]+(?:/[\w@.+-]+)*")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Import = tuple[str, str]
"""A module and the name taken from it; no name where the module itself is imported."""


@dataclass
class Uses:
    """What a piece of code uses."""

    imports: set[Import] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)
    parameters: set[str] = field(default_factory=set)
    """Names of parameters: pytest's fixtures are asked for by them."""

    def add(self, other: Uses) -> None:
        """Take over what another piece uses."""
        self.imports |= other.imports
        self.strings |= other.strings
        self.parameters |= other.parameters

    @property
    def words(self) -> set[str]:
        """All names of files, folders and entry points that its strings may mean."""
        return {word for text in self.strings for word in FILE_NAME.findall(text)}

    @property
    def modules(self) -> set[str]:
        """All dotted names of modules in its strings."""
        return {name for text in self.strings if "detlab" in text for name in MODULE.findall(text)}


@dataclass
class Source:
    """One Python file."""

    whole: Uses
    fixtures: dict[str, Uses]
    """Of a `conftest.py`: what each fixture uses, with the helpers of the same file that it calls."""
    automatic: Uses
    """Of a `conftest.py`: what fixtures with `autouse` and pytest's hooks use."""
    tests: int
    external: set[str]
    """First names of the packages that it imports."""


def read(text: str, *, fixtures: bool = False) -> Source:
    """Read one file.

    Args:
        text: What it says.
        fixtures: Whether it is a `conftest.py`, whose fixtures are wanted one by one.

    Raises:
        SyntaxError: It is no Python.
    """
    tree = ast.parse(text)
    inner = list(walk(tree))
    modules = {
        alias.asname or alias.name: alias.name for node in inner if isinstance(node, ast.Import) for alias in node.names
    }
    whole = uses(inner, modules)
    tests = sum(isinstance(node, FUNCTIONS) and node.name.startswith("test_") for node in inner)
    found = Source(whole, {}, Uses(), tests, {module.partition(".")[0] for module, _ in whole.imports})
    if fixtures:
        find_fixtures(tree, modules, found)
    return found


def find_fixtures(tree: ast.Module, modules: dict[str, str], source: Source) -> None:
    """Add the fixtures of a `conftest.py`: its own, and those that it imports."""
    pieces = {name: uses(list(walk(node)), modules) for node in tree.body for name in bound(node)}
    mentioned = {name: names_in(node) for node in tree.body for name in bound(node)}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            source.fixtures |= {name: pieces[name] for name in bound(node)}
        if isinstance(node, FUNCTIONS) and (node.name.startswith("pytest_") or is_fixture(node)):
            found = source.fixtures[node.name] = Uses()
            for name in closure(node.name, mentioned):
                found.add(pieces[name])
            if node.name.startswith("pytest_") or is_automatic(node):
                source.automatic.add(found)


def uses(nodes: list[ast.AST], modules: dict[str, str]) -> Uses:
    """Return what the parts of a tree use, given the modules by the names that the file has for them."""
    found = Uses()
    for node in nodes:
        match node:
            case ast.Import(names=names):
                found.imports |= {(alias.name, "") for alias in names}
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found.imports |= {(module, alias.name) for alias in names}
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in modules:
                found.imports.add((modules[name], attribute))
            case ast.Constant(value=str(text)):
                found.strings.add(text)
            case ast.arg(arg=name):
                found.parameters.add(name)
            case _:
                pass
    return found


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Go through a tree without docstrings and without what stands under `if TYPE_CHECKING`."""
    ahead = [node]
    while ahead:
        at = ahead.pop()
        if isinstance(at, ast.Expr) and isinstance(at.value, ast.Constant):
            continue
        if isinstance(at, ast.If) and isinstance(at.test, ast.Name) and at.test.id == "TYPE_CHECKING":
            continue
        yield at
        ahead.extend(ast.iter_child_nodes(at))


def bound(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module gives it."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [alias.asname or alias.name.partition(".")[0] for alias in names]
        case _:
            return [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and is_stored(inner)]


def is_stored(node: ast.Name) -> bool:
    """Say whether a name is given a value."""
    return isinstance(node.ctx, ast.Store)


def names_in(node: ast.stmt) -> set[str]:
    """Return all plain names in a statement."""
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def closure(start: str, mentioned: dict[str, set[str]]) -> set[str]:
    """Return the names of a module that one of them needs."""
    found: set[str] = set()
    ahead = {start}
    while ahead:
        name = ahead.pop()
        found.add(name)
        ahead |= (mentioned[name] & mentioned.keys()) - found
    return found


def is_fixture(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Say whether a function is one of pytest's fixtures."""
    return any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list)


def is_automatic(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Say whether a fixture is used by every test beneath it."""
    return any("autouse=True" in ast.unparse(decorator) for decorator in node.decorator_list)
