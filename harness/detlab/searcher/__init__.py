"""Write a search method of your own: a `SearchMethod`, or an `AskTell`, which `searcher.entrypoint` names.

The class runs in a task of the cluster and decides which trials an experiment has. The names are those of Determined's
former custom searcher. Nothing that talks to a master lives here.
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
