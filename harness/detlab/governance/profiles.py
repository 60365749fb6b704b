"""Profiles of weights: what a model makes of a frozen probe, compared with what was signed.

Digests of files change with each conversion, cast or other layout; what a model makes of the same inputs hardly does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from detlab.governance.refusals import Refusal
from detlab.schemas.wire.governance.evidence import ModelProfile

_NAMED = 3
"""Layers that a refusal names."""


def differences(recorded: ModelProfile, measured: ModelProfile, rtol: float) -> list[Refusal]:
    """Return PROFILE for each way in which a profile is out of tolerance.

    Layers that either does not have are left out, as converted models often have none that can be looked at.

    Args:
        recorded: As it was signed.
        measured: Of the model that is asked about.
        rtol: How far outputs, and what is measured of each layer, may be off, relative to what was recorded.
    """
    if measured.probe != recorded.probe or measured.samples != recorded.samples:
        what = f"the profile is of another probe ({measured.probe[:23]}…), not of {recorded.probe[:23]}…"
        return [Refusal("PROFILE", what)]
    found = list(_outputs(recorded.output, measured.output, rtol))
    off = [(name, one) for name, one in _layers(recorded.layers, measured.layers) if not one <= rtol]
    if off:
        said = ", ".join(f"{name} by {one:.2g}" for name, one in off[:_NAMED])
        more = f" and {len(off) - _NAMED} more" if len(off) > _NAMED else ""
        what = f"layers are off relative to what was recorded: {said}{more}; {rtol:g} is allowed"
        found.append(Refusal("PROFILE", what))
    return found


def _outputs(recorded: Sequence[float], measured: Sequence[float], rtol: float) -> Iterator[Refusal]:
    if len(recorded) != len(measured):
        yield Refusal("PROFILE", "the model gives outputs of another shape for the probe")
        return
    off = distance(recorded, measured)
    if not off <= rtol:
        what = f"outputs for the probe are off by {off:.2g}, relative to what was recorded; {rtol:g} is allowed"
        yield Refusal("PROFILE", what)


def distance(recorded: Sequence[float], measured: Sequence[float]) -> float:
    """Return the norm of the difference, relative to the norm of what was recorded."""
    size = math.sqrt(math.fsum(one * one for one in recorded))
    off = math.sqrt(math.fsum((one - other) ** 2 for one, other in zip(recorded, measured, strict=True)))
    return off / size if size > 0 else (0.0 if off == 0 else math.inf)


def _layers(
    recorded: Mapping[str, Sequence[float]], measured: Mapping[str, Sequence[float]]
) -> Iterator[tuple[str, float]]:
    """Yield how far each layer that both have is off."""
    for name, values in recorded.items():
        if name in measured:
            pairs = zip(values, measured[name], strict=True)
            yield name, max(distance([one], [other]) for one, other in pairs)
