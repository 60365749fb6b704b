"""Which sources a governed trial has used how much, and what they gave to which layer, as a small table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detlab.cli.output.printing import clean, say, table
from detlab.client.operations.governance.measured import DEPTH, SHARE

MOST_LAYERS = 40


def depth_table(measured: Mapping[str, Any]) -> None:
    """Print a line for each source, and one for each layer of what it gave: the newest values.

    Args:
        measured: From `operations.governance.measured`. What is not of the form that detlab reports is left out.
    """
    share, depth = ((measured.get(name) or {}).get("value") for name in (SHARE, DEPTH))
    share, depth = ({} if not isinstance(one, dict) else one for one in (share, depth))
    sources = [str(one) for one in _listed(depth, "sources")] or [str(one) for one in share]
    layers, mass = _listed(depth, "layers"), _listed(depth, "mass")
    rows = [("samples", *(_percent(share.get(name)) for name in sources))]
    for at, name in enumerate(layers[:MOST_LAYERS]):
        rows.append((f"to {name}", *(_percent(_at(_at(mass, row), at)) for row in range(len(sources)))))
    if not sources:
        return
    step = max(one["steps_completed"] for one in measured.values())
    say()
    say(f"What each source is of all samples, and gave to each layer, at step {step}:")
    table(("", *sources), rows, right=sources)
    if len(layers) > MOST_LAYERS:
        say(f"and {len(layers) - MOST_LAYERS} more layers: --json has all")
    elif omitted := depth.get("omitted"):
        say(f"layers are left out: {clean(str(omitted))}")


def _listed(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    return found if isinstance(found, list) else []


def _at(value: object, index: int) -> Any:
    return value[index] if isinstance(value, list) and index < len(value) else None


def _percent(value: object) -> str:
    return f"{value:.1%}" if isinstance(value, int | float) and not isinstance(value, bool) else ""
