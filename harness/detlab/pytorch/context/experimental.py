"""`context.experimental`: Determined's switches for non-default behaviour."""

from __future__ import annotations

import logging
from typing import Any, Protocol

import torch

logger = logging.getLogger("detlab.pytorch")


class _Parent(Protocol):
    device: torch.device

    def wrap_scaler(self, scaler: Any) -> Any: ...

    def _use_auto_amp(self) -> None: ...


class PyTorchExperimentalContext:
    """Switches of a trial; set them in its `__init__`.

    Args:
        parent: The context that they belong to.
    """

    def __init__(self, parent: _Parent) -> None:
        self._parent = parent
        self._auto_amp = False
        self._data_repro_checks_disabled = False
        self._auto_to_device = True
        self._find_unused_parameters = False

    def use_amp(self) -> None:
        """Train in mixed precision without further calls.

        Wrapped models run in autocast (fp16 on GPUs, bf16 on CPUs) and give float32; losses are scaled before
        `backward`, gradients unscaled before they are clipped, and the scale is updated after the batch.

        Raises:
            TrainerError: There is a scaler already.
        """
        self._parent.wrap_scaler(torch.amp.GradScaler(self._parent.device.type))
        self._auto_amp = True
        self._parent._use_auto_amp()

    def disable_dataset_reproducibility_checks(self) -> None:
        """Allow data loaders other than `detlab.pytorch.DataLoader`; sharding and resuming are then the trial's."""
        self._data_repro_checks_disabled = True
        logger.info("dataset reproducibility checks are off")

    def disable_auto_to_device(self) -> None:
        """Leave batches where the data loader put them; call `context.to_device` yourself."""
        self._auto_to_device = False
        logger.info("batches are not moved to the device")

    def find_unused_parameters(self) -> None:
        """Allow parameters without a gradient in a batch, in models that are wrapped from now on.

        This matters only with several processes.

        Not a method of Determined. It costs a walk of the graph per batch.
        """
        self._find_unused_parameters = True
