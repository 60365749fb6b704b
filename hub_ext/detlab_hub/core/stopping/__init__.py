"""Stopping policies: when a trial is not worth continuing, in addition to any search method. Pure.

A policy evaluates a trial by its own reports and those of the others; the method decides which trials there are.
"""

from detlab_hub.core.stopping.errors import StoppingConfigError
from detlab_hub.core.stopping.policy import Report, StopPolicy
from detlab_hub.core.stopping.registry import make_policy, policy_class, wants_elapsed
from detlab_hub.core.stopping.searches import SearchEnd

__all__ = [
    "Report",
    "SearchEnd",
    "StopPolicy",
    "StoppingConfigError",
    "make_policy",
    "policy_class",
    "wants_elapsed",
]
