"""A task's directory as the agent makes it, for programs that run in one without an agent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from detlab.schemas import wire
from detlab.testing.trial_api import TOKEN


def make_task_dir(root: Path, url: str, *, storage: dict[str, Any], slots: Sequence[int] = (0,), **info: Any) -> Path:
    """Make a task directory as an agent does.

    Args:
        root: Made; must not exist.
        url: Address of the service.
        storage: The `checkpoint_storage` block.
        slots: Slot numbers.
        info: Other fields of `ClusterInfoWire`.

    Returns:
        `root`.
    """
    for name in ("work", "spool", "tmp"):
        (root / name).mkdir(mode=0o700, parents=True)
    config = {
        "data": {"who": "me"},
        "searcher": {"name": "single", "metric": "x", "max_length": 20},
        "checkpoint_storage": storage,
    }
    fields: dict[str, Any] = {
        "master_url": url,
        "cluster_id": "c1",
        "agent_id": "a1",
        "slot_ids": list(slots),
        "task_id": "3.abc",
        "allocation_id": "3.abc.1",
        "run": 1,
        "trial_id": 7,
        "experiment_id": 3,
        "trial_seed": 42,
        "hparams": {"increment_by": 2},
        "config": config,
        "container_slot_counts": [len(slots)],
    }
    document = wire.ClusterInfoWire(**{**fields, **info})
    (root / "info.json").write_text(document.model_dump_json(), encoding="utf-8")
    (root / "token").write_text(TOKEN, encoding="ascii")
    (root / "token").chmod(0o600)
    return root
