"""The repository as a graph: which file depends on which, and how."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import grimp

from affected.reading import Import, Source, Uses, read
from affected.repository import MAKES_CLIENT, PROJECT, EntryPoint, entry_points, made_modules

ROOTS = ("harness", "hub_ext", "kernel_magics", "server_ext", "tests")
"""Folders from which packages are imported."""
NO_PRODUCT = ("tests", "docs", "bench", "examples", "labextension", MAKES_CLIENT, "harness/build_hook.py")
"""Where files name other files, folders and entry points in strings, and import each other by their names alone."""
WITH_DATA = ("tests/", "examples/", "deploy/")
"""Where folders below the second level are named as a whole."""
FRONT_ENDS = "the front ends"
"""All of `labextension/`: what its own tests try, and every test with a browser."""
AMBIGUOUS = 3
"""A name that more files have counts only beside the name of the folder."""
DEFINED = re.compile(r"^(?:(?:async )?def |class |(?=\w+(?:: .*)? = ))([a-zA-Z]\w*)", re.MULTILINE)
LISTS_NAMES = re.compile(r"^def (\w+)\(.*\n(?:(?: .*)?\n)*?    .*\.names\(\)", re.MULTILINE)
PROCESSES = "processes"
"""What starts other programs."""
STARTS = "starts"
"""How a module depends on one whose name it puts on a command line: what starts no process is not reached this way."""
OWN_NAME = "detlab"
"""An entry point by the name of the project: too many strings say it."""
LOADS = ("import_module(", "Lazy(", "def __getattr__")
"""A module with one of these imports the modules that it names."""
NAMED_MODULE = re.compile(r"""(?<!getLogger\()["'](detlab\w*(?:\.\w+)+)(?::\w+)?["']""")
STARTED_PACKAGE = re.compile(r"""["']-m["'], ["'](detlab\w*)["']""")
STARTS_PROCESSES = re.compile(
    r"^\s*import (?:subprocess|multiprocessing)|create_subprocess_exec|os\.fork\(", re.MULTILINE
)
FILE_WITH_SUFFIX = re.compile(r"[\w.-]+\.(?:toml|ya?ml|json|sh|html|css|c?js|mjs|ipynb|txt|svg|sql|mako|tpl|js)\b")


Steps = dict[str, tuple[str, str]]
"""By node: the next one towards the change, and how it depends on that."""


class Graph:
    """Edges from what depends to what it depends on, each with a word for how.

    Nodes are paths, `conftest.py::fixture`, `package/__init__.py::lazy` and `FRONT_ENDS`.
    """

    def __init__(self) -> None:
        self.needs: dict[str, dict[str, str]] = defaultdict(dict)
        self.needed_by: dict[str, dict[str, str]] = defaultdict(dict)
        self.tests: dict[str, int] = {}
        """Functions of tests by file."""

    def add(self, node: str, needed: str, how: str) -> None:
        """Say that a node depends on another."""
        if node != needed and self.needs[node].get(needed, STARTS) == STARTS:
            self.needs[node][needed] = self.needed_by[needed][node] = how

    def reached(self, changed: dict[str, str]) -> Steps:
        """Return every node that depends on one of the changed, with the next node towards it and how.

        What is reached only through a command line is left out where nothing starts a process.

        Args:
            changed: Nodes, and what happened to each.
        """
        found = {node: ("", what) for node, what in changed.items()}
        self.follow(found, lambda how: how != STARTS)
        imported = set(found)
        self.follow(found)
        starting = {PROCESSES: ("", "")}
        self.follow(
            starting, lambda how: how != STARTS, lambda node: node.startswith(("tests/", "harness/detlab/testing/"))
        )
        direct = {
            node for node, needed in self.needs.items() if any(PROCESSES in self.needs.get(at, ()) for at in needed)
        }
        return {
            node: step
            for node, step in found.items()
            if node in imported or not node.startswith("tests/unit/") or node in starting or node in direct
        }

    def follow(
        self,
        found: Steps,
        how_counts: Callable[[str], bool] = lambda how: True,
        counts: Callable[[str], bool] = lambda node: True,
    ) -> None:
        """Add to what was found all that depends on it."""
        ahead = list(found)
        for node in ahead:  # grows
            for other, how in self.needed_by[node].items():
                if other not in found and how_counts(how) and counts(other):
                    found[other] = (node, how)
                    ahead.append(other)


def draw(root: Path, files: set[str]) -> Graph:
    """Return the graph of a repository.

    Args:
        root: Its folder.
        files: Paths in it; those that were deleted are found by who still names them.
    """
    return Drawing(root, files).graph


class Drawing:
    """Puts the edges into a graph."""

    def __init__(self, root: Path, files: set[str]) -> None:
        self.root = root
        self.files = files
        self.graph = Graph()
        self.modules = {module: path for path in files if (module := module_of(path))}
        self.by_name: dict[str, set[str]] = defaultdict(set)
        self.folders: dict[str, set[str]] = defaultdict(set)
        for path in files:
            pure = PurePosixPath(path)
            self.by_name[pure.name].add(path)
            if path.startswith(WITH_DATA) and not pure.name.startswith(("test_", "conftest.")):
                for parent in list(pure.parents)[:-3]:
                    self.folders[parent.name].add(path)
        project = root / PROJECT
        self.points = entry_points(tomllib.loads(project.read_text())) if project.is_file() else []
        self.sources: dict[str, Source] = {}
        self.registries: dict[str, list[str]] = defaultdict(list)
        """By group of entry points: the modules that look through it."""
        self.tables: dict[str, list[tuple[str, set[str]]]] = defaultdict(list)
        """By public name, the modules with `Plugins` that define it and their groups of entry points."""
        self.said: dict[str, list[tuple[Uses, Uses]]] = defaultdict(list)
        """What each node of tests and scripts says, each piece with the file that it is in."""
        self.draw()

    def draw(self) -> None:
        """Add all edges."""
        others = sorted(path for path in self.files if path.endswith(".py") and path.startswith(NO_PRODUCT))
        self.sources = {path: found for path in others if (found := self.source(path))}
        self.imports_of_packages()
        for module, path in self.modules.items():
            if not path.startswith(NO_PRODUCT):
                self.product(module, path, self.text(path))
        for path, source in self.sources.items():
            self.file(path, source)
        for made, origin in made_modules(self.root).items():
            self.graph.add(made, origin, "is made from")
            self.graph.add(made, MAKES_CLIENT, "is made by")
        self.front_ends()
        self.entry_points()

    def text(self, path: str) -> str:
        """Return what a file says; nothing, if it was deleted."""
        there = self.root / path
        return there.read_text() if there.is_file() else ""

    def source(self, path: str) -> Source | None:
        """Read a Python file, if it is one."""
        try:
            return read(self.text(path), fixtures=path.endswith("conftest.py"))
        except SyntaxError:
            return None

    def imports_of_packages(self) -> None:
        """Add what packages import, as import-linter sees it; a module needs the `__init__` of those above it."""
        packages = sorted({module.partition(".")[0] for module in self.modules})
        sys.path[:0] = [str(self.root / folder) for folder in ROOTS]
        try:
            seen = grimp.build_graph(*packages, exclude_type_checking_imports=True, cache_dir=None)
        finally:
            del sys.path[: len(ROOTS)]
        for module in seen.modules & self.modules.keys():
            path = self.modules[module]
            at_once = self.at_once(path)
            for needed in seen.find_modules_directly_imported_by(module) & self.modules.keys():
                late = at_once is not None and not any(f"{name}.".startswith(f"{needed}.") for name in at_once)
                self.module(f"{path}::lazy" if late else path, needed)
            if parent := self.modules.get(module.rpartition(".")[0]):
                self.graph.add(path, parent, "is in")

    def at_once(self, path: str) -> set[str] | None:
        """Return what a package imports when it is imported, if it imports more when somebody asks for a name."""
        text = self.text(path) if path.endswith("/__init__.py") else ""
        if "def __getattr__" not in text:
            return None
        top = (node for node in ast.parse(text).body if isinstance(node, ast.ImportFrom) and node.module)
        return {f"{node.module}.{alias.name}" for node in top for alias in node.names}

    def module(self, node: str, name: str, how: str = "imports") -> None:
        """Let a node depend on a module, and on what that loads when it is asked."""
        path = self.modules[name]
        self.graph.add(node, path, how)
        if path.endswith("/__init__.py"):
            self.graph.add(node, f"{path}::lazy", how)
        if main := self.modules.get(f"{name}.__main__"):
            self.graph.add(node, main, how)

    def product(self, module: str, path: str, text: str) -> None:
        """Add what a module of the product names in strings: modules that it loads late or starts, files beside it."""
        if "Plugins(" in text:
            self.registry(module, text)
        for point in self.points:
            if f'_class = "{point.name}"' in text:
                self.module(path, point.module, f"names {point.name} of {point.group}, which is")
        loads = any(sign in text for sign in LOADS)
        node = f"{path}::lazy" if path.endswith("/__init__.py") else path
        for name in {*NAMED_MODULE.findall(text), *STARTED_PACKAGE.findall(text)} & self.modules.keys() - {module}:
            if loads:
                self.module(node, name, "loads")
            elif not ("Plugins(" in text and any(name == point.module for point in self.points)):
                self.module(node, name, STARTS)
        if STARTS_PROCESSES.search(text):
            self.graph.add(path, PROCESSES, "starts")
        folder = PurePosixPath(path).parts[0]
        for name in set(FILE_WITH_SUFFIX.findall(text)):
            for other in self.by_name.get(name, ()):
                if other.startswith(folder) and not other.endswith((".py", ".md")):
                    self.graph.add(path, other, "names")

    def registry(self, module: str, text: str) -> None:
        """Remember which names a module gives that go through a group of entry points."""
        groups = {point.group for point in self.points if f'"{point.group}"' in text}
        for group in groups:
            self.registries[group].append(self.modules[module])
        for name in DEFINED.findall(text):
            self.tables[name].append((module, groups))
        for user in self.graph.needed_by[self.modules[module]]:
            for name in LISTS_NAMES.findall(self.text(user)) if user.endswith(".py") else ():
                self.tables[name].append((module_of(user), groups))

    def entry_points(self) -> None:
        """Add who names an entry point and comes to where its group is looked through, or runs it as a command."""
        for group in sorted({point.group for point in self.points}):
            points = [point for point in self.points if point.group == group and point.module in self.modules]
            asking: Steps = dict.fromkeys(self.registries[group], ("", ""))
            self.graph.follow(asking)
            for node, said in self.said.items():
                for point in points if node in asking or not self.registries[group] else ():
                    if any(names_point(point, found, file) for found, file in said):
                        self.module(node, point.module, f"names {point.name} of {group}, which is")

    def file(self, path: str, source: Source) -> None:
        """Add what a file of tests or a script uses, and its fixtures."""
        if PurePosixPath(path).name == "conftest.py":
            for name, fixture in source.fixtures.items():
                self.graph.add(f"{path}::{name}", path, "is in")
                self.uses(f"{path}::{name}", path, fixture)
                if ("subprocess", "") in fixture.imports:
                    self.graph.add(f"{path}::{name}", PROCESSES, "starts")
            return
        if PurePosixPath(path).name.startswith("test_"):
            self.graph.tests[path] = source.tests
        self.uses(path, path, source.whole)
        if source.external & {"subprocess", "multiprocessing", "playwright"}:
            self.graph.add(path, PROCESSES, "starts")
        if "playwright" in source.external:
            self.graph.add(path, FRONT_ENDS, "opens a browser on")
        for conftest in self.conftests(path):
            self.graph.add(path, conftest, "is under")
            self.uses(path, conftest, self.sources[conftest].automatic)

    def uses(self, node: str, path: str, found: Uses) -> None:
        """Add what a piece of a file uses."""
        for taken in found.imports:
            self.imported(node, path, taken)
        for conftest in self.conftests(path):
            for name in (found.parameters | found.strings) & self.sources[conftest].fixtures.keys():
                self.graph.add(node, f"{conftest}::{name}", f"asks for the fixture {name} of")
        for name in found.modules & self.modules.keys():
            if "." in name:
                self.module(node, name, "names")
        self.said[node].append((found, self.sources[path].whole))
        for other in self.named(path, found):
            self.graph.add(node, other, "names")

    def imported(self, node: str, path: str, taken: Import) -> None:
        """Add one import of a file: a module of a package, or a file beside it."""
        module, name = taken
        if f"{module}.{name}" in self.modules:
            self.module(node, f"{module}.{name}")
        elif module in self.modules and name:
            self.module(node, module)
        elif module in self.modules:
            self.graph.add(node, self.modules[module], "imports")
        else:
            beside = [other for other in self.by_name.get(f"{module}.py", ()) if other.startswith(NO_PRODUCT)]
            for other in nearest(path, beside):
                self.graph.add(node, other, "imports")
        for registry, groups in self.tables.get(name, ()):
            for point in self.points if f"{registry}.".startswith(f"{module}.") and "." in module else ():
                if point.group in groups and point.module in self.modules:
                    self.module(node, point.module, f"may go through all of {point.group}, such as")

    def named(self, path: str, found: Uses) -> Iterator[str]:
        """Find the files and folders that strings of a file mean."""
        here = folder_of(path)
        for word in found.words:
            name = word.rpartition("/")[2]
            if name not in self.by_name:
                continue
            files = [other for other in self.by_name[name] if f"/{other}".endswith(f"/{word}")]
            if len(files) > AMBIGUOUS or name.endswith(".py"):
                files = [
                    other for other in files if (at := folder_of(other)) == here or at in found.strings or other == word
                ]
            yield from files
        for text in found.strings & self.folders.keys():
            close = [other for other in self.folders[text] if other.split("/")[:2] == path.split("/")[:2]]
            yield from nearest(path, close) or (other for other in self.folders[text] if not other.startswith("tests/"))

    def conftests(self, path: str) -> list[str]:
        """Return the `conftest.py` files whose fixtures a file sees, from the nearest up."""
        parents = [f"{parent}/conftest.py" for parent in PurePosixPath(path).parents]
        return [conftest for conftest in parents if conftest in self.sources]

    def front_ends(self) -> None:
        """Add what the front ends are made of: their sources, and what those take from Python."""
        for path in self.files:
            if path.startswith("labextension/"):
                self.graph.add(FRONT_ENDS, path, "are made of")
                if path.endswith((".test.ts", ".test.tsx")):
                    for name in set(NAMED_MODULE.findall(self.text(path))) & self.modules.keys():
                        self.module(path, name, "names")


def module_of(path: str) -> str:
    """Return the dotted name of a module in a package, else nothing."""
    root, _, rest = path.partition("/")
    if root not in ROOTS or not rest.endswith(".py") or "/" not in rest:
        return ""
    name = rest.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    if root == "tests" and not name.startswith(("testbed", "simulation", "affected")):
        return ""
    return name if name.replace(".", "").isidentifier() else ""


def folder_of(path: str) -> str:
    """Return the name of the folder that a file is in."""
    return path.rpartition("/")[0].rpartition("/")[2]


def names_point(point: EntryPoint, found: Uses, file: Uses) -> bool:
    """Say whether strings name an entry point: as a whole, in a configuration, or on a command line."""
    if point.group == "detlab.commands":
        parts = point.name.split("-")
        line = f"det {' '.join(parts)}"
        runs = any("detlab.cli" in text for text in file.strings | {module for module, _ in file.imports})
        return (runs and set(parts) <= found.strings) or any(text.startswith(line) for text in found.strings)
    if point.name in found.strings:
        return point.name != OWN_NAME
    pattern = rf"name[\"']?\s*[:=]\s*[\"']?{re.escape(point.name)}\b"
    return any(point.name in text and re.search(pattern, text) is not None for text in found.strings)


def nearest(path: str, others: list[str]) -> list[str]:
    """Return those of several files that share the most folders with one."""
    shared = {other: common(PurePosixPath(path).parts, PurePosixPath(other).parts) for other in others}
    return [other for other in others if shared[other] == max(shared.values(), default=0)]


def common(some: tuple[str, ...], others: tuple[str, ...]) -> int:
    """Return how many parts two paths share at their beginning."""
    return next((at for at, (one, other) in enumerate(zip(some, others, strict=False)) if one != other), len(some))
