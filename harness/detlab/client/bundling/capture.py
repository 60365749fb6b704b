"""Which local files a piece of Python needs: its imports of modules in a directory, followed recursively.

Pure reading: sources and a directory in, a list of paths out; nothing is imported or run. Packages are included whole,
since code reaches into its own package in ways that static imports do not show.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from detlab.client.bundling.ignore import IgnoreRules


@dataclass(frozen=True, slots=True)
class Captured:
    """What was found.

    Attributes:
        paths: Files below the directory, POSIX paths, sorted; give them to `build_bundle(root, only=paths)`.
        unparsed: Names of sources and files that are no valid Python, with the reason; their imports are unknown.
    """

    paths: tuple[str, ...]
    unparsed: tuple[str, ...] = ()


@dataclass
class _Capture:
    root: Path
    rules: IgnoreRules
    provided: frozenset[str]
    found: set[str] = field(default_factory=set)
    seen: set[Path] = field(default_factory=set)
    unparsed: list[str] = field(default_factory=list)

    def source(self, text: str, name: str, package: tuple[str, ...]) -> None:
        """Follow the imports of one source; `package` is where its relative imports begin."""
        try:
            tree = ast.parse(text, filename=name)
        except (SyntaxError, ValueError) as error:
            self.unparsed.append(f"{name}: {error}")
            return
        for module in _imports(tree, package):
            self.module(module)

    def module(self, dotted: tuple[str, ...]) -> None:
        """Take a module if it is local: a file, a whole package, or the wanted part of a namespace folder."""
        if not dotted or dotted[0] in sys.builtin_module_names or dotted[0] in self.provided:
            return
        folder = self.root
        for depth, part in enumerate(dotted):
            candidate = folder / part
            file = folder / f"{part}.py"
            if (candidate / "__init__.py").is_file():
                self.package(candidate)
                return
            if file.is_file():
                self.file(file, dotted[:depth])
                return
            if not candidate.is_dir():
                return
            folder = candidate

    def package(self, folder: Path) -> None:
        """Take all files of a package and follow what its modules import."""
        if folder in self.seen:
            return
        self.seen.add(folder)
        for path in self._files(folder):
            relative = path.relative_to(self.root)
            if path.suffix == ".py":
                self.file(path, relative.parts[:-1])
            else:
                self.found.add(relative.as_posix())

    def file(self, path: Path, package: tuple[str, ...]) -> None:
        """Take one module's file and follow what it imports."""
        if path in self.seen:
            return
        self.seen.add(path)
        name = path.relative_to(self.root).as_posix()
        self.found.add(name)
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            self.unparsed.append(f"{name}: {error}")
            return
        self.source(text, name, package)

    def _files(self, folder: Path) -> Iterator[Path]:
        for path in sorted(folder.iterdir()):
            relative = path.relative_to(self.root).as_posix()
            if self.rules.ignores(relative, directory=path.is_dir() and not path.is_symlink()):
                continue
            if path.is_dir() and path.resolve() not in {parent.resolve() for parent in path.parents}:
                yield from self._files(path)
            elif path.is_file():
                yield path


def _imports(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield tuple(alias.name.split("."))
            case ast.ImportFrom(module=module, names=names, level=level):
                if level > len(package) + 1:
                    continue
                base = package[: len(package) - level + 1] if level else ()
                whole = (*base, *(module.split(".") if module else ()))
                yield whole
                for alias in names:  # `from folder import module`, where folder is a namespace
                    yield (*whole, *alias.name.split("."))
            case ast.Call(args=[ast.Constant(value=str(name)), *_], func=function) if _imports_by_name(function):
                yield tuple(name.split("."))
            case _:
                pass


def _imports_by_name(function: ast.expr) -> bool:
    match function:
        case ast.Attribute(value=ast.Name(id="importlib"), attr="import_module"):
            return True
        case ast.Name(id="import_module" | "__import__"):
            return True
        case _:
            return False


def capture_imports(
    sources: Mapping[str, str] | Iterable[str],
    root: str | Path,
    *,
    provided: Iterable[str] = (),
) -> Captured:
    """Find the local modules that sources import, directly and through one another.

    Args:
        sources: Python texts, by name or not. They are taken to lie at the top of `root`.
        root: Directory in which modules are looked for, as if it came first on `sys.path`.
        provided: Top-level module names that come from elsewhere (captured cells) and hide files of that name.

    Returns:
        The files to ship. What the directory's `.detignore` leaves out of a package stays out.
    """
    base = Path(root)
    capture = _Capture(base, IgnoreRules.of(base), frozenset(provided))
    named = sources.items() if isinstance(sources, Mapping) else ((f"source {n}", t) for n, t in enumerate(sources, 1))
    for name, text in named:
        capture.source(text, name, ())
    return Captured(tuple(sorted(capture.found)), tuple(capture.unparsed))
