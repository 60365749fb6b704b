"""detlab: deep-learning experiments on shared GPUs, from Jupyter.

Training code imports this package and asks for `core`::

    import detlab as det

    with det.core.init() as core_context:
        core_context.train.report_training_metrics(steps_completed=1, metrics={"loss": 0.5})

Nothing heavy is imported here: `core`, `client` and the rest load when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detlab import client as client
    from detlab import core as core
    from detlab import errors as errors
    from detlab import experimental as experimental
    from detlab import media as media
    from detlab import pytorch as pytorch
    from detlab import track as track
    from detlab import util as util
    from detlab import viz as viz
    from detlab.client.artifacts.draft import Artifact as Artifact
    from detlab.client.singleton import load_model as load_model
    from detlab.errors import InvalidHP as InvalidHP
    from detlab.info import ClusterInfo as ClusterInfo
    from detlab.info import TrialInfo as TrialInfo
    from detlab.info import get_cluster_info as get_cluster_info
    from detlab.isolated_import import import_from_path as import_from_path
    from detlab.media import Audio as Audio
    from detlab.media import ConfusionMatrix as ConfusionMatrix
    from detlab.media import Histogram as Histogram
    from detlab.media import Html as Html
    from detlab.media import Image as Image
    from detlab.media import Plot as Plot
    from detlab.media import Points3D as Points3D
    from detlab.media import PRCurve as PRCurve
    from detlab.media import ROCCurve as ROCCurve
    from detlab.media import Table as Table
    from detlab.media import Text as Text
    from detlab.media import Video as Video
    from detlab.track import alert as alert
    from detlab.track import finish as finish
    from detlab.track import init as init
    from detlab.track import log as log

    __version__: str

LOG_FORMAT = "%(levelname)s: [%(process)s] %(name)s: %(message)s"
"""Format for `logging.basicConfig` from which the launcher reads each line's level (Determined's format)."""

_SUBMODULES = frozenset(
    {"client", "core", "errors", "experiment", "experimental", "media", "pytorch", "track", "util", "viz"}
)
_NAMES = {
    "InvalidHP": "detlab.errors",
    "ClusterInfo": "detlab.info",
    "alert": "detlab.track",
    "finish": "detlab.track",
    "init": "detlab.track",
    "log": "detlab.track",
    "TrialInfo": "detlab.info",
    "get_cluster_info": "detlab.info",
    "import_from_path": "detlab.isolated_import",
    "load_model": "detlab.client",
    "Audio": "detlab.media",
    "ConfusionMatrix": "detlab.media",
    "Histogram": "detlab.media",
    "Html": "detlab.media",
    "Image": "detlab.media",
    "PRCurve": "detlab.media",
    "Plot": "detlab.media",
    "Points3D": "detlab.media",
    "ROCCurve": "detlab.media",
    "Table": "detlab.media",
    "Text": "detlab.media",
    "Video": "detlab.media",
    "Artifact": "detlab.client",
    "remote": "detlab.remote_functions",
}

__all__ = [
    "LOG_FORMAT",
    "Artifact",
    "Audio",
    "ClusterInfo",
    "ConfusionMatrix",
    "Histogram",
    "Html",
    "Image",
    "InvalidHP",
    "PRCurve",
    "Plot",
    "Points3D",
    "ROCCurve",
    "Table",
    "Text",
    "TrialInfo",
    "Video",
    "__version__",
    "alert",
    "client",
    "core",
    "errors",
    "experiment",
    "experimental",
    "finish",
    "get_cluster_info",
    "import_from_path",
    "init",
    "load_model",
    "log",
    "media",
    "pytorch",
    "remote",
    "track",
    "util",
    "viz",
]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"detlab.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("detlab")
    raise AttributeError(f"module 'detlab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
