"""What this version has that an import can use: read off the schema, so that nothing here needs to follow it."""

from __future__ import annotations

from typing import Any

from detlab.schemas.expconf.blocks import searchers
from detlab.schemas.expconf.blocks.experiment import ExperimentConfig
from detlab.schemas.expconf.blocks.hyperparameters import (
    CategoricalHyperparameter,
    DoubleHyperparameter,
    IntHyperparameter,
)
from detlab.schemas.expconf.blocks.searcher_base import SearcherBlock
from detlab.schemas.expconf.checks.search_plans import RESUMING

STOPPING = "stopping" in ExperimentConfig.model_fields
"""Whether a config can have stopping policies."""

STEP = "step" in DoubleHyperparameter.model_fields
"""Whether a range can have a `step`."""

LOG_INTEGERS = "log" in IntHyperparameter.model_fields
"""Whether integers can be drawn on a logarithmic scale."""

WEIGHTS = "weights" in CategoricalHyperparameter.model_fields
"""Whether choices can have weights."""

GOAL = "goal" in SearcherBlock.model_fields
"""Whether a search can end at a goal."""


def first_method(*wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the first searcher block whose method and keys this version has; the last one is taken as it is."""
    for block in wanted[:-1]:
        model = searchers.BUILT_IN.get(str(block["name"]))
        if model is not None and set(block) <= set(model.model_fields):
            return block
    return wanted[-1]


def has_key(method: str, key: str) -> bool:
    """Whether this version's block of a search method has a key."""
    model = searchers.BUILT_IN.get(method)
    return model is not None and key in model.model_fields


def checkpoints_needed(searcher: dict[str, Any]) -> str | None:
    """Return what is left to do for a method that cannot do without checkpoints; None for any other."""
    name = str(searcher.get("name"))
    why = None if searcher.get("variant") == "stopping" else RESUMING.get(name)
    if why is None:
        return None
    return (
        f"save checkpoints (core.checkpoint.store_path) and start from info.latest_checkpoint: {name} needs them, as"
        f" {why}"
    )
