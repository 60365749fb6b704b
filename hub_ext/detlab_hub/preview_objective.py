"""The objective of `det preview-search`: a user's function that stands for training."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from detlab_hub.core.searchers import CreateTrial
from detlab_hub.core.searchers.simulation import Objective, ObjectiveError

UserFunction: TypeAlias = Callable[[int, dict[str, Any], int], Any]
"""`f(trial_index, hparams, step) -> metric`."""

_MODULE_NAME = "detlab_preview_objective"


class ObjectiveSpecError(Exception):
    """`--objective` names nothing that can be called."""


def load_objective(spec: str) -> UserFunction:
    """Load `FILE.py:function`.

    Raises:
        ObjectiveSpecError: If the file is missing, fails to import, or has no such function of three arguments.
    """
    file, colon, name = spec.rpartition(":")
    if not colon or not file or not name:
        raise ObjectiveSpecError(f"{spec!r} is not of the form FILE.py:function")
    path = Path(file)
    if not path.is_file():
        raise ObjectiveSpecError(f"there is no file {file}")
    module = _import_file(path)
    function = getattr(module, name, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        found = f"; it defines {', '.join(known)}" if known else "; it defines no function"
        raise ObjectiveSpecError(f"{file} has no function {name!r}{found}")
    try:
        inspect.signature(function).bind(0, {}, 1)
    except TypeError as error:
        raise ObjectiveSpecError(
            f"{spec} must take (trial_index, hparams, step), but takes {inspect.signature(function)}: {error}"
        ) from None
    return function


def _import_file(path: Path) -> Any:
    module_spec = importlib.util.spec_from_file_location(_MODULE_NAME, path)
    if module_spec is None or module_spec.loader is None:
        raise ObjectiveSpecError(f"{path} is not a Python file (its name must end in .py)")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[_MODULE_NAME] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever a user's file may raise
        raise ObjectiveSpecError(f"{path} cannot be imported: {_describe(error, path)}") from None
    return module


def _describe(error: BaseException, path: Path) -> str:
    """`ValueError: no (file.py, line 3)`, the line being the last one of the user's file."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"{type(error).__name__}: {error.msg} ({Path(error.filename or path).name}, line {error.lineno})"
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.realpath(frame.filename) == os.path.realpath(path)
    ]
    where = f" ({path.name}, line {lines[-1]})" if lines else ""
    text = f": {error}" if str(error) else ""
    return f"{type(error).__name__}{text}{where}"


def guard(function: UserFunction, path: Path) -> Objective:
    """Wrap a user's function: an exception or a wrong return value ends the trial, its output goes to stderr."""

    def objective(trial: CreateTrial, step: int) -> float:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                value = function(trial.index, copy.deepcopy(trial.hparams), step)
        except (Exception, SystemExit) as error:  # whatever a user's function may raise
            invalid = any(cls.__name__ == "InvalidHP" for cls in type(error).__mro__)
            raise ObjectiveError(_describe(error, path), invalid=invalid) from error
        try:
            if isinstance(value, str | bytes):
                raise TypeError
            return float(value)
        except (TypeError, ValueError):
            raise ObjectiveError(f"returned {value!r}, which is not a number") from None

    return objective
