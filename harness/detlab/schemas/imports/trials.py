"""What a converted search needs of its trials: hyperparameters in the command, and checkpoints to resume from."""

from __future__ import annotations

from typing import Any

from detlab.schemas.expconf.checks.search_plans import RESUMING

HPARAMS = ["python3", "-m", "detlab.launch.hparams", "--"]
"""The command that puts hyperparameters into the words of another one."""


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
