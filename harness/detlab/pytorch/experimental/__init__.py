"""Batch inference, with Determined's names: what its `determined.pytorch.experimental` has.

Training is not here: `detlab.pytorch` has the trainer.
"""

from detlab.pytorch.experimental.batch_process import torch_batch_process
from detlab.pytorch.experimental.processor import TorchBatchProcessor, TorchBatchProcessorContext

__all__ = ["TorchBatchProcessor", "TorchBatchProcessorContext", "torch_batch_process"]
