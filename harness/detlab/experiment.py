"""`det.experiment.create(config, function)`: an experiment whose trials call a function."""

from __future__ import annotations

from detlab.remote_functions.experiments import create

__all__ = ["create"]
