"""The full config that a file stands for: merged, defaulted, and spelt out as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detlab.errors import ConfigError
from detlab.schemas.expconf.blocks.experiment import ExperimentConfig
from detlab.schemas.expconf.blocks.stopping import ThresholdStopping
from detlab.schemas.expconf.checks.check import parse
from detlab.schemas.expconf.checks.governance import RANKED
from detlab.schemas.expconf.checks.objectives import NO_WINNER
from detlab.schemas.expconf.raw import structure
from detlab.schemas.expconf.raw.merging import merge


def to_dict(config: ExperimentConfig) -> dict[str, Any]:
    """Return a config as plain JSON values, with all defaults; `parse` of it gives the same config."""
    return config.model_dump(mode="json")


def resolve(
    raw: Mapping[str, Any],
    template: Mapping[str, Any] | None = None,
    cluster_defaults: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the full config: the user's over the template over the cluster's, then defaults.

    What the master draws stays null: `name`, `reproducibility.experiment_seed`. Resolving twice changes
    nothing.

    Raises:
        ConfigError: With every mistake of the merged config.
    """
    for given in (raw, template, cluster_defaults):
        problems, safe = structure.inspect(given)
        if not safe:
            raise ConfigError(problems)
    merged: dict[str, Any] = dict(raw)
    for below in (template, cluster_defaults):
        if below:
            merged = merge(merged, below)
    return _governed(to_dict(parse(merged)))


def without_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what has to be said of a full config for it to be the same: without what equals defaults.

    Hyperparameters stay as they are; so does a config that this version does not take.
    """
    made = dict(config)
    try:
        whole = resolve(config)
    except ConfigError:
        return made

    def same() -> bool:
        try:
            return resolve(made) == whole
        except ConfigError:
            return False

    def prune(block: dict[str, Any]) -> None:
        for key, value in list(block.items()):
            del block[key]
            if same():
                continue
            block[key] = value
        for key in [key for key, value in block.items() if isinstance(value, Mapping) and key != "hyperparameters"]:
            block[key] = dict(block[key])
            prune(block[key])

    prune(made)
    return {key: made[key] for key in config if key in made}


def _governed(config: dict[str, Any]) -> dict[str, Any]:
    """Say the bounds of a policy to the search, which keeps constraints and stops trials by its own means."""
    block, searcher = config.get("governance") or {}, config.get("searcher")
    canaries = block.get("canaries")
    if not searcher:
        return config
    for name, (by, metric, side) in RANKED.items():
        bound = (block["constraints"].get(name) or {}).get(side) if block.get(by) else None
        if bound is None:
            continue
        searcher["constraints"] = {**(searcher.get("constraints") or {}), metric: {side: bound}}
        policy = _threshold(metric, side, bound)
        stopping = config.get("stopping") or []
        if not any(one.get("metric") == metric and one.get("name") == policy["name"] for one in stopping):
            config["stopping"] = [*stopping, policy]
    several = len(searcher.get("metrics") or ()) > 1
    if canaries and canaries.get("confirm") and searcher.get("confirm") is None and not several:
        searcher |= {} if searcher.get("name") in NO_WINNER else {"confirm": True}
    return config


def _threshold(metric: str, side: str, bound: float) -> dict[str, Any]:
    limit = {"upper" if side == "max" else "lower": bound}
    return ThresholdStopping(metric=metric, **limit).model_dump(mode="json")
