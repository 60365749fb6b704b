"""Functions that run on the cluster: `@det.remote`, and what it shares with the borrowed cells of notebooks.

A function travels as a cell does (`detlab.run.cell`): its source and its arguments in a bundle, its result as an output
of the task. Nothing here needs IPython; the magics use what is here.
"""

from detlab.remote_functions.calls import CallInterrupted, RemoteCall, RemoteCalls
from detlab.remote_functions.decorator import RemoteFunction, remote
from detlab.remote_functions.failures import FunctionNotShipped, RemoteError, ResultNotTrusted

__all__ = [
    "CallInterrupted",
    "FunctionNotShipped",
    "RemoteCall",
    "RemoteCalls",
    "RemoteError",
    "RemoteFunction",
    "ResultNotTrusted",
    "remote",
]
