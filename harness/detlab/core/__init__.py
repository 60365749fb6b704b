"""The Core API, by which training code talks to its cluster, with the names and signatures of Determined 0.38.

`init()` gives a `Context`; each of its members is one part of the API and a class of this package.
"""

from detlab.core.artifacts import ArtifactContext
from detlab.core.checkpoint.context import CheckpointContext, DownloadMode, DummyCheckpointContext
from detlab.core.checkpoint.shards import ShardConflict
from detlab.core.context import Context, ExperimentalCoreContext, init
from detlab.core.distributed.channel import AuthenticationFailed, DistributedError
from detlab.core.distributed.context import DistributedContext, DummyDistributedContext
from detlab.core.metrics.profiler import DummyProfilerContext, ProfilerContext
from detlab.core.metrics.spool import RecordsRefused, SpoolError
from detlab.core.metrics.tensorboard import TensorboardMode
from detlab.core.metrics.train import DummyTrainContext, EarlyExitReason, TrainContext
from detlab.core.preemption.context import DummyPreemptContext, PreemptContext, PreemptMode
from detlab.core.searcher import (
    DummySearcherContext,
    SearcherContext,
    SearcherMode,
    SearcherOperation,
    Unit,
)

__all__ = [
    "ArtifactContext",
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
