"""How long a search lets a trial train, beside how long the code says. Pure."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from detlab.core.searcher import Unit, parse_length, parse_units
from detlab.frameworks.errors import FrameworkError

logger = logging.getLogger("detlab.frameworks")

_UNITS: dict[str, Literal["batches", "epochs"]] = {
    "": "batches",
    "batches": "batches",
    "steps": "batches",
    "epochs": "epochs",
    "epoch": "epochs",
}


@dataclass(frozen=True, slots=True)
class SearchLength:
    """A length of training.

    Attributes:
        value: How many.
        unit: Of what; a batch is one step of the optimizer.
    """

    value: int
    unit: Literal["batches", "epochs"]

    def __str__(self) -> str:
        return f"{self.value} {self.unit}"

    @classmethod
    def of(cls, searcher: Mapping[str, Any]) -> SearchLength | None:
        """Return the length that a `searcher` block names; None if it names none, or counts something else."""
        value = parse_length(searcher)
        if value < 1:
            return None
        named = parse_units(searcher)
        name = named.value if isinstance(named, Unit) else str(searcher.get("time_metric") or "")
        unit = _UNITS.get(name.lower())
        return None if unit is None else cls(value, unit)

    def check(self, *, batches: float | None, epochs: float | None, setting: str, resumed: bool) -> None:
        """Compare with what the code trains for.

        Args:
            batches: Steps of the optimizer that the code limits training to; None for no limit.
            epochs: Likewise.
            setting: What sets it in the code.
            resumed: Whether this attempt continues an earlier one: a search that was extended since then is no mistake
                of the code, so that it is only logged.

        Raises:
            FrameworkError: They differ.
        """
        mine, other = (batches, epochs) if self.unit == "batches" else (epochs, batches)
        if mine == self.value and other is None:
            return
        said = " and ".join(f"{count:g} {name}" for count, name in ((batches, "batches"), (epochs, "epochs")) if count)
        message = f"the search trains for {self}, and the code for {said or 'no limit'}"
        if resumed:
            logger.warning("%s: the code's counts", message)
            return
        raise FrameworkError(
            f"{message}: trials would not reach the points where they are compared, or train past the search's end",
            hint=f"Set {setting} to {self}, or change searcher.max_time and searcher.time_metric in the config.",
        )
