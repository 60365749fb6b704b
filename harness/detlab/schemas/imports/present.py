"""What this version has that an import can use: read off the schema, so that nothing here needs to follow it."""

from __future__ import annotations

from typing import Any

from detlab.schemas.expconf.blocks import searchers
from detlab.schemas.expconf.blocks.experiment import ExperimentConfig
from detlab.schemas.expconf.blocks.hyperparameters import DoubleHyperparameter

STOPPING = "stopping" in ExperimentConfig.model_fields
"""Whether a config can have stopping policies."""

STEP = "step" in DoubleHyperparameter.model_fields
"""Whether a range can have a `step`."""


def first_method(*wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the first searcher block whose method and keys this version has; the last one is taken as it is."""
    for block in wanted[:-1]:
        model = searchers.BUILT_IN.get(str(block["name"]))
        if model is not None and set(block) <= set(model.model_fields):
            return block
    return wanted[-1]
