"""The full config that a file stands for: merged, defaulted, and spelt out as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detlab.errors import ConfigError
from detlab.schemas.expconf.blocks.experiment import ExperimentConfig
from detlab.schemas.expconf.checks.check import parse
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
    return to_dict(parse(merged))
