"""Operations on the retention of logs."""

from __future__ import annotations

from detlab.client.operations.experiments import one
from detlab.client.transport.calls import Call, Flow, model
from detlab.schemas.logwire import KeepLogs, KeepLogsReply, RemovedLogs


def removed(trial_id: int) -> Flow[RemovedLogs]:
    """Fetch how much of a trial's output retention has removed."""
    params = {"tail": 0, "limit": 1}
    return one(Call("GET", f"trials/{int(trial_id)}/logs", params=params, parse=model(RemovedLogs)))


def keep(wanted: KeepLogs) -> Flow[KeepLogsReply]:
    """Set how long output is kept; repeating the same request has no effect."""
    return one(Call("POST", "log-retention", json=wanted, parse=model(KeepLogsReply)))
