"""Stopping policies: when a trial is not worth going on with, beside whatever search method there is. Pure.

A policy judges one trial by its own reports and those of the others; which trials there are is the method's to say.
"""

from detlab_hub.core.stopping.policy import Report, StopPolicy

__all__ = ["Report", "StopPolicy"]
