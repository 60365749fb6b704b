"""Choose how the gradients of each parameter are routed, and have the layers do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from detlab.governance import GovernanceError, Refusal
from detlab.pytorch.governance.dual import DualLayer, run_twice
from detlab.pytorch.governance.fused import RoutedLayer, is_routable, route_layer
from detlab.pytorch.governance.router import Router


def route(models: Sequence[Any], router: Router, parameters: Mapping[str, Any], engine: str) -> set[str]:
    """Have all layers route that can; return the names of the parameters whose routed gradients are seen.

    Args:
        models: Bare models.
        router: The router.
        parameters: What is trained, by name.
        engine: That of the policy: `auto` and `dual` have layers that cannot be routed otherwise run twice.

    Raises:
        GovernanceError: ENGINE: parameters whose factors differ are in layers that cannot be routed; all are listed.
    """
    names = {id(parameter): name for name, parameter in parameters.items()}
    routed: set[str] = set()
    elsewhere: set[str] = set()
    problems: list[Refusal] = []
    for model in models:
        inside: set[int] = set()
        for module in model.modules():
            own = [one for one in module.parameters(recurse=False) if id(one) in names]
            held = {names[id(one)] for one in own}
            if id(module) in inside or isinstance(module, RoutedLayer | DualLayer):
                continue
            if own and engine != "dual" and is_routable(module):
                route_layer(module, router)
                routed |= held
                continue
            elsewhere |= held
            if not _wants_two(module, own, router):
                continue
            inside |= {id(child) for child in module.modules()}
            elsewhere |= {names[id(one)] for one in module.parameters() if id(one) in names}
            problems += _second_pass(module, router, engine)
    if problems:
        raise GovernanceError(problems)
    return routed - elsewhere


def _wants_two(module: Any, own: Sequence[Any], router: Router) -> bool:
    """Return whether a layer has parameters of its own whose gradients it cannot route in its backward pass."""
    if isinstance(module, nn.MultiheadAttention):  # it never calls its projection, but uses the weight
        own = [one for one in module.parameters() if router.place(one) is not None]
    return any(not router.is_open(place) for one in own if (place := router.place(one)) is not None)


def _second_pass(module: Any, router: Router, engine: str) -> list[Refusal]:
    """Have a layer run twice; return why it cannot."""
    places = [place for one in module.parameters() if (place := router.place(one)) is not None]
    kind, first = type(module).__name__, places[0].name
    if engine == "fused":
        return [Refusal("ENGINE", f"the gradients of {kind} cannot be routed: {first}")]
    if any(hasattr(one, "to_local") for one in module.parameters()):
        return [Refusal("ENGINE", f"{kind} at {first} would run twice, which a model split by fully_shard cannot")]
    if len({place.column for place in places}) > 1:
        message = f"{kind} at {first} would run twice, and its parameters or those within it have different factors"
        return [Refusal("ENGINE", message)]
    try:
        run_twice(module, router, places)
    except GovernanceError as error:
        return error.refusals
    return []
