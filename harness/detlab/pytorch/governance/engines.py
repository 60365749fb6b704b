"""Choose how the gradients of each parameter are routed, and have the layers do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from detlab.governance import GovernanceError, Refusal
from detlab.pytorch.governance.fused import RoutedLayer, is_routable, route_layer
from detlab.pytorch.governance.router import Router


def route(models: Sequence[Any], router: Router, parameters: Mapping[str, Any], engine: str) -> set[str]:
    """Have all layers route that can; return the names of the parameters that they hold.

    Args:
        models: Bare models.
        router: The router.
        parameters: What is trained, by name.
        engine: That of the policy.

    Raises:
        GovernanceError: ENGINE: parameters whose factors differ are in layers that cannot be routed; all are listed.
    """
    names = {id(parameter): name for name, parameter in parameters.items()}
    routed: set[str] = set()
    elsewhere: set[str] = set()
    around: dict[str, list[str]] = {}
    for model in models:
        for module in model.modules():
            own = {name: one for name, one in module.named_parameters(recurse=False) if id(one) in names}
            if not own or isinstance(module, RoutedLayer):
                continue
            if is_routable(module):
                route_layer(module, router)
                routed |= {names[id(one)] for one in own.values()}
                continue
            elsewhere |= {names[id(one)] for one in own.values()}
            if closed := [one for one in own.values() if not router.is_open(_place(router, one))]:
                around.setdefault(type(module).__name__, []).extend(names[id(one)] for one in closed)
    if around:
        raise GovernanceError(
            Refusal("ENGINE", f"the gradients of {kind} cannot be routed: {', '.join(own[:3])}")
            for kind, own in around.items()
        )
    return routed - elsewhere


def _place(router: Router, parameter: Any) -> Any:
    place = router.place(parameter)
    assert place is not None
    return place
