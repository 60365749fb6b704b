"""Runs that no cluster started: `det.init(…)`, `det.log({…})`, `det.finish()` in any script or notebook.

What is logged goes to a folder on disk first, and from there to the master by a process of its own, or later by
`det sync`. Nothing here ends the code that logs, or has it wait for the master. `import detlab.track as wandb` serves
most scripts of Weights & Biases as they are.

No module here is called `run`, `config` or `summary`: these names are the run's of this process.

Not here: code that a cluster runs (`detlab.core`), and MLflow's protocol, by which its clients log such runs, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detlab.track.current import (
    alert,
    define_metric,
    finish,
    init,
    log,
    log_artifact,
    login,
    save,
    use_artifact,
    watch,
)
from detlab.track.errors import NoRun, RunFolderError
from detlab.track.this_run import Run

if TYPE_CHECKING:
    from detlab.client.artifacts.draft import Artifact as Artifact

__all__ = [
    "Artifact",
    "NoRun",
    "Run",
    "RunFolderError",
    "alert",
    "config",
    "define_metric",
    "finish",
    "init",
    "log",
    "log_artifact",
    "login",
    "run",
    "save",
    "summary",
    "use_artifact",
    "watch",
]


def __getattr__(name: str) -> Any:
    """Return `run`, `config` and `summary` of the run that this process has begun; and kinds of media."""
    if name in {"run", "config", "summary"}:
        from detlab.track import current

        return getattr(current, f"current_{name}")()
    if name == "Artifact":
        from detlab.client.artifacts.draft import Artifact

        return Artifact
    if name in {"Audio", "Histogram", "Html", "Image", "Table", "Video"}:
        from detlab import media

        return getattr(media, name)
    raise AttributeError(f"module 'detlab.track' has no attribute {name!r}")
