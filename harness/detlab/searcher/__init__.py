"""Base classes for your own search method, which `searcher.entrypoint` names: `SearchMethod` and the shorter `AskTell`.

The class runs in a task of the cluster and decides which trials an experiment has. The names are those of Determined's
former custom searcher. Nothing here talks to a master.
"""

from detlab.searcher.asking import AskTell
from detlab.searcher.method import (
    Close,
    Create,
    ExitedReason,
    Operation,
    Progress,
    RequestId,
    SearcherState,
    SearchMethod,
    Shutdown,
    ValidateAfter,
)

__all__ = [
    "AskTell",
    "Close",
    "Create",
    "ExitedReason",
    "Operation",
    "Progress",
    "RequestId",
    "SearchMethod",
    "SearcherState",
    "Shutdown",
    "ValidateAfter",
]
