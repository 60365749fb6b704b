"""A function as a trial: `python -m detlab.run.function` calls the one that was shipped in `.det_cell/`.

    .det_cell/cell.json         {"name": "train.py", "in": {name: file}, "function": expression}
    .det_cell/cell.py           the text that defines it
    .det_cell/<n>.value         what it uses (detlab.run.values)

It gets the hyperparameters that it names, and `core_context` if it names that. What it returns is reported as
validation: a number as the searcher's metric, or a dict of metrics. One that reports by itself returns nothing.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from detlab import core
from detlab.errors import ConfigError, Problem
from detlab.info import get_cluster_info
from detlab.run.cell import FOLDER, run_cell
from detlab.run.values import decode

CONTEXT = "core_context"


def load(folder: Path) -> Callable[..., Any]:
    """Return the shipped function; it is defined in `__main__`."""
    request = json.loads((folder / FOLDER / "cell.json").read_text(encoding="utf-8"))
    main_module = types.ModuleType("__main__")
    main_module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main_module
    sys.path.insert(0, str(folder))
    for name, file in request["in"].items():
        main_module.__dict__[name] = decode((folder / FOLDER / file).read_bytes(), name)
    run_cell((folder / FOLDER / "cell.py").read_text(encoding="utf-8"), str(request["name"]), main_module.__dict__)
    function: Callable[..., Any] = eval(str(request["function"]), main_module.__dict__)  # noqa: S307  (the user's own)
    return function


def arguments_for(function: Callable[..., Any], hparams: Mapping[str, Any]) -> dict[str, Any]:
    """Return those hyperparameters that a function names; all if it takes any.

    Raises:
        ConfigError: It needs some that there are not; all of them are named.
    """
    parameters = inspect.signature(function).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return {name: value for name, value in hparams.items() if name != CONTEXT}
    named = {name: one for name, one in parameters.items() if name != CONTEXT}
    missing = [
        name
        for name, one in named.items()
        if name not in hparams and one.default is inspect.Parameter.empty and one.kind is not one.VAR_POSITIONAL
    ]
    if missing:
        name = getattr(function, "__name__", "the function")
        problems = [Problem(f"hyperparameters.{one}", f"is missing: {name}() takes it") for one in missing]
        raise ConfigError(problems, f"{name}() takes hyperparameters that the config does not have")
    return {name: hparams[name] for name in named if name in hparams}


def metrics_of(returned: Any, metric: str) -> dict[str, Any]:
    """Return what a function has returned as metrics.

    Raises:
        TypeError: It is neither a number nor a dict.
    """
    if isinstance(returned, Mapping):
        return dict(returned)
    try:
        return {metric: float(returned)}
    except (TypeError, ValueError):
        kind = type(returned).__name__
        raise TypeError(f"it returned a {kind}; return a number ({metric}), a dict of metrics, or nothing") from None


def main() -> None:
    """Call the shipped function with the trial's hyperparameters."""
    function = load(Path.cwd())
    info = get_cluster_info()
    trial = None if info is None else info.trial
    keywords = arguments_for(function, {} if trial is None else trial.hparams)
    distributed = core.DistributedContext.from_torch_distributed() if "RANK" in os.environ else None
    with core.init(distributed=distributed) as core_context:
        if CONTEXT in inspect.signature(function).parameters:
            keywords[CONTEXT] = core_context
        returned = function(**keywords)
        if returned is not None and core_context.distributed.rank == 0:
            searcher = {} if trial is None else trial._config.get("searcher") or {}
            step = (core_context.train._steps_completed or 0) + 1
            metrics = metrics_of(returned, str(searcher.get("metric") or "value"))
            time_metric = searcher.get("time_metric")
            if time_metric and time_metric not in metrics:
                metrics[str(time_metric)] = step
            core_context.train.report_validation_metrics(step, metrics)


if __name__ == "__main__":
    main()
