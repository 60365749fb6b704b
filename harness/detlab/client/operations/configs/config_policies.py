"""Operations on config policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detlab.client.operations.experiments import one
from detlab.client.transport.calls import Call, Flow, model, valid_request
from detlab.schemas.wire.configs.config_policies import PolicyView, SetPolicy, Workload

_policy = model(PolicyView)


def config_policy(workload: Workload, workspace: str | int = "") -> Flow[PolicyView]:
    """Fetch the config policy of the cluster, or of a workspace."""
    return one(Call("GET", "config-policies", params=_which(workload, workspace), parse=_policy))


def set_config_policy(workload: Workload, policy: Mapping[str, Any], workspace: str | int = "") -> Flow[PolicyView]:
    """Set a config policy, which replaces the one before; `policy` has `invariant_config` and `constraints`."""
    with valid_request():
        body = SetPolicy.model_validate({**policy, **_which(workload, workspace)})
    return one(Call("PUT", "config-policies", json=body, parse=_policy))


def remove_config_policy(workload: Workload, workspace: str | int = "") -> Flow[PolicyView]:
    """Delete a config policy; return it as it was."""
    return one(Call("DELETE", "config-policies", params=_which(workload, workspace), parse=_policy, again=False))


def _which(workload: Workload, workspace: str | int) -> dict[str, Any]:
    return {"workload": workload, "workspace": str(workspace)}
