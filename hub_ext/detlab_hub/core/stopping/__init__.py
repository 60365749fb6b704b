"""Stopping policies: when a trial is not worth continuing, in addition to any search method. Pure.

A policy evaluates a trial by its own reports and those of the others; the method decides which trials there are.
"""

from detlab_hub.core.stopping.policy import Report, StopPolicy

__all__ = ["Report", "StopPolicy"]
