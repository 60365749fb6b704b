"""An experiment of a function: its source and what it uses in the bundle, `detlab.run.function` as the entrypoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from detlab.client.bundling.search_path import own_folders
from detlab.client.resources import Experiment
from detlab.client.singleton import current_client
from detlab.client.submission import ConfigSource, config_mapping
from detlab.errors import ConfigError, Problem
from detlab.remote_functions.calls import print_line
from detlab.remote_functions.decorator import RemoteFunction, encoded
from detlab.remote_functions.packing import OWN, pack_cell
from detlab.remote_functions.source import check_function, ship_function

_PROGRAM = ("python3", "-m", "detlab.run.function")
_RANKS = ("python3", "-m", "detlab.launch.torch_distributed")


def create(
    config: ConfigSource,
    function: Callable[..., Any],
    *,
    context: str | Path | None = None,
    **options: Any,
) -> Experiment:
    """Submit an experiment whose trials call a function, each with its hyperparameters.

    The function gets the hyperparameters that it names, and `core_context` if it names that. What it returns is
    reported as validation: a number as the searcher's metric, or a dict of metrics. With several slots each slot has a
    process, which calls it.

    Args:
        config: As of `create_experiment`, without an entrypoint.
        function: Made by def, or by `det.remote`.
        context: Folder to upload whole, instead of what the function imports.
        options: Of `detlab.client.submit`, such as `activate` and `template`.

    Raises:
        ConfigError: The config has mistakes, or an entrypoint.
        FunctionNotShipped: The function, or something it uses, cannot travel.
    """
    function = function.function if isinstance(function, RemoteFunction) else function
    check_function(function)
    raw = config_mapping(config)
    if raw.get("entrypoint"):
        problem = Problem("entrypoint", f"is made of {function.__name__}(): leave it out")
        raise ConfigError([problem], "the config names a program, and the call a function")
    shipped = ship_function(function)  # type: ignore[arg-type]  # checked
    values = encoded(function.__name__, {name: (f"the global {name}", one) for name, one in shipped.values.items()})
    bundle = pack_cell(
        shipped.text,
        shipped.name,
        values,
        [],
        hidden=OWN,
        folders=own_folders(),
        context=None if context is None else Path(context).expanduser(),
        function=shipped.called,
    )
    several = ((raw.get("resources") or {}).get("slots_per_trial") or 1) > 1
    raw["entrypoint"] = [*(_RANKS if several else ()), *_PROGRAM]
    raw.setdefault("name", function.__name__)
    submitted = current_client().submit(raw, bundle=bundle, **options)
    for warning in submitted.warnings:
        print_line(f"warning: {warning.path}: {warning.message}")
    assert submitted.experiment is not None  # only a dry run has none
    return submitted.experiment
