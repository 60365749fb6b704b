"""Importing a trial's class from a checkpoint's code, beside modules of the same names that are in use already."""

from __future__ import annotations

import ast
import contextlib
import contextvars
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from detlab.errors import CheckpointError
from detlab.isolated_import import isolated

importing: contextvars.ContextVar[Path | None] = contextvars.ContextVar("detlab_importing", default=None)
"""The code that is being imported to load a checkpoint: it must not train."""

_WAY_OUT = "Pass trial_class=YourTrial."


@contextlib.contextmanager
def trial_class(code: Path, spec: str, config: dict[str, Any]) -> Iterator[Any]:
    """Yield the class that `spec` (`module:Class`) names; while the block lasts, the code's modules can be imported.

    Afterwards `sys.path` is as before, and so is `sys.modules` but for installed packages that were imported.

    Args:
        code: Directory with the checkpoint's source files.
        spec: Module and class. The module `__main__` means the script that defines the class.
        config: The experiment config; its entrypoint may name that script.

    Raises:
        CheckpointError: The class cannot be found, or its module cannot be imported.
    """
    module_name, _, class_name = spec.partition(":")
    if "<locals>" in class_name:
        raise CheckpointError(f"the trial's class {class_name} was made inside a function", hint=_WAY_OUT)
    folders, module_name = _locate(code, module_name, class_name, config)
    with isolated(folders, {module_name.split(".", maxsplit=1)[0]}):
        before = importing.set(code)
        try:
            module = _imported(module_name, code)
        finally:
            importing.reset(before)
        yield _class(module, class_name, spec)


def _locate(code: Path, module: str, class_name: str, config: dict[str, Any]) -> tuple[list[Path], str]:
    """Return what to put on the path, and the module to import.

    A script in a subfolder is known by its stem alone and sees its own folder first, as when it is run.
    """
    parts = module.split(".")
    plain = code.joinpath(*parts)
    if module != "__main__" and (plain.with_name(plain.name + ".py").is_file() or plain.is_dir()):
        return [code], module
    pattern = "*.py" if module == "__main__" else f"{module}.py"
    scripts = [path for path in sorted(code.rglob(pattern)) if _defines(path, class_name.split(".", maxsplit=1)[0])]
    entrypoint = config.get("entrypoint")
    words = entrypoint.split() if isinstance(entrypoint, str) else [str(word) for word in entrypoint or []]
    started = [path for path in scripts if path.relative_to(code).as_posix() in words]
    chosen = started or scripts
    if len(chosen) == 1:
        return [chosen[0].parent, code], chosen[0].stem
    if len(chosen) > 1:
        names = ", ".join(path.relative_to(code).as_posix() for path in chosen)
        raise CheckpointError(f"several files of the checkpoint's code define {class_name}: {names}", hint=_WAY_OUT)
    if module == "__main__":
        raise CheckpointError(
            f"the trial's class {class_name} was defined in a notebook or a script that is not in the checkpoint",
            hint=_WAY_OUT,
        )
    return ([code] if code.is_dir() else []), module


def _defines(path: Path, class_name: str) -> bool:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    return any(isinstance(node, ast.ClassDef) and node.name == class_name for node in ast.walk(tree))


def _imported(name: str, code: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever the code of a checkpoint raises
        raise CheckpointError(
            f"the module {name} of the checkpoint's code ({code}) cannot be imported: {type(error).__name__}: {error}",
            hint=f"Install what it needs, or make the class importable yourself. {_WAY_OUT}",
        ) from error


def _class(module: ModuleType, class_name: str, spec: str) -> Any:
    found: Any = module
    for part in class_name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise CheckpointError(f"{module.__file__} of the checkpoint's code has no class for {spec!r}", hint=_WAY_OUT)
    return found
