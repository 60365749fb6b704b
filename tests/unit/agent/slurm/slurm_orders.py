"""Orders for tasks of the runtime `slurm`, as an agent makes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from detlab.schemas.wire import ContainerSpec
from detlab.testing.master import MasterDouble
from detlab_agent.runtimes.bundles import BundleCache
from detlab_agent.runtimes.preparation import Order, TaskMaker
from detlab_agent.runtimes.tenancy import Homes, Tenancy
from detlab_agent.slots import SlotView


def order_of(
    tmp_path: Path,
    slurm: dict[str, object],
    image: str = "",
    slots: int = 2,
    nodes: Sequence[int] = (),
    **more: Any,
) -> Order:
    """Return the order for a task; `more`: further fields of its Launch."""
    maker = TaskMaker(
        tmp_path / "tasks", [], Tenancy(None, "alice"), BundleCache.__new__(BundleCache), Homes(tmp_path / "homes")
    )
    names = [f"any{number}" for number in range(slots)]
    config = {"slurm": slurm, "resources": {"memory": 2 << 30}}
    launch = (
        MasterDouble()
        .allocate(
            "true",
            runtime="slurm",
            slots=names,
            config=config,
            container=ContainerSpec(image=image) if image else None,
            **{"allocation_id": "1.a.1", **more},
        )
        .launch
    )
    if nodes:
        launch.info.container_slot_counts = list(nodes)
    return maker.admit(launch, [SlotView(id=name) for name in names])
