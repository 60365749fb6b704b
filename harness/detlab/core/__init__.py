"""The Core API: what training code says to its cluster, with the names and signatures of Determined 0.38.

`init()` gives a `Context`; each of its members is one part of the API and a class of this package.
"""

from detlab.core._channel import AuthenticationFailed, DistributedError
from detlab.core._checkpoint import CheckpointContext, DownloadMode, DummyCheckpointContext
from detlab.core._context import Context, init
from detlab.core._distributed import DistributedContext, DummyDistributedContext
from detlab.core._experimental import ExperimentalCoreContext
from detlab.core._preempt import DummyPreemptContext, PreemptContext, PreemptMode
from detlab.core._profiler import DummyProfilerContext, ProfilerContext
from detlab.core._searcher import (
    DummySearcherContext,
    SearcherContext,
    SearcherMode,
    SearcherOperation,
    Unit,
)
from detlab.core._shards import ShardConflict
from detlab.core._spool import RecordsRefused, SpoolError
from detlab.core._tensorboard import TensorboardMode
from detlab.core._train import DummyTrainContext, EarlyExitReason, TrainContext

__all__ = [
    "AuthenticationFailed",
    "CheckpointContext",
    "Context",
    "DistributedContext",
    "DistributedError",
    "DownloadMode",
    "DummyCheckpointContext",
    "DummyDistributedContext",
    "DummyPreemptContext",
    "DummyProfilerContext",
    "DummySearcherContext",
    "DummyTrainContext",
    "EarlyExitReason",
    "ExperimentalCoreContext",
    "PreemptContext",
    "PreemptMode",
    "ProfilerContext",
    "RecordsRefused",
    "SearcherContext",
    "SearcherMode",
    "SearcherOperation",
    "ShardConflict",
    "SpoolError",
    "TensorboardMode",
    "TrainContext",
    "Unit",
    "init",
]
