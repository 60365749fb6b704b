"""The fields of a `searcher` block as a method reads them: plain values from any version, checked again.

A stored config was checked when it was submitted, perhaps by an earlier version; the master checks what it uses.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from detlab_hub.core.searchers.errors import SearcherConfigError
from detlab_hub.core.searchers.events import EXACT_RUNGS, RULES
from detlab_hub.core.searchers.objectives import Objectives

DEFAULT_MAX_CONCURRENT_TRIALS = 16
DEFAULT_DIVISOR = 4
_LARGEST_LOG = math.log(sys.float_info.max) - 1


class Fields:
    """A `searcher` block.

    Args:
        block: Its plain values; missing ones get their defaults.
        rules: The rules by which its search decides.
    """

    def __init__(self, block: Mapping[str, Any], rules: int = RULES) -> None:
        self._block = block
        self.rules = rules

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or the default if it is not set.

        Raises:
            SearcherConfigError: There is neither a value nor a default.
        """
        value = self._block.get(key)
        if value is None:
            value = default
        if value is None:
            raise SearcherConfigError(f"searcher.{key}: {self._block['name']} needs it")
        return value

    def count(self, key: str, default: int | None = None) -> int:
        """Return an integer of at least 1.

        Raises:
            SearcherConfigError: It is missing or less than 1.
        """
        value = int(self.get(key, default))
        if value < 1:
            raise SearcherConfigError(f"searcher.{key}: must be at least 1, is {value}")
        return value

    def text(self, key: str) -> str | None:
        """Return a text, or None if it is not set."""
        value = self._block.get(key)
        return None if value is None else str(value)

    def optional_count(self, key: str) -> int | None:
        """Return an integer of at least 1, or None if it is not set.

        Raises:
            SearcherConfigError: It is less than 1.
        """
        return None if self._block.get(key) is None else self.count(key)

    @property
    def max_concurrent(self) -> int:
        """Trials at a time, 0 for the method's own choice.

        Raises:
            SearcherConfigError: It is negative.
        """
        value = int(self.get("max_concurrent_trials", DEFAULT_MAX_CONCURRENT_TRIALS))
        if value < 0:
            raise SearcherConfigError(f"searcher.max_concurrent_trials: must not be negative, is {value}")
        return value

    @property
    def repeats(self) -> bool:
        """Whether a point may be tried again; so it is where the block does not say, as those of earlier versions."""
        return bool(self.get("repeat_points", True))

    @property
    def divisor(self) -> float:
        """One in this many trials continues beyond a rung.

        Raises:
            SearcherConfigError: It is not above 1.
        """
        return self.divisor_or(DEFAULT_DIVISOR)

    def divisor_or(self, default: float) -> float:
        """One in this many trials continues beyond a rung, with a default of the method's own.

        Raises:
            SearcherConfigError: It is not above 1.
        """
        value = float(self.get("divisor", default))
        if not value > 1:
            raise SearcherConfigError(f"searcher.divisor: must be above 1, is {value}")
        return value

    @property
    def exact_rungs(self) -> bool:
        """Whether rungs are computed exactly; by older rules with floats."""
        return self.rules >= EXACT_RUNGS

    @property
    def objectives(self) -> Objectives:
        """What the search is about."""
        return Objectives.from_config(self._block, self.rules)

    def one_of(self, key: str, choices: Sequence[str], default: str) -> str:
        """One of several words.

        Raises:
            SearcherConfigError: It is not one of them.
        """
        value = self.get(key, default)
        if value not in choices:
            raise SearcherConfigError(f"searcher.{key}: {value!r} is not one of {', '.join(choices)}")
        return str(value)

    @property
    def require(self) -> list[str]:
        """The relations that each point must meet."""
        return [str(text) for text in self._block.get("require") or ()]

    @property
    def starting_points(self) -> list[dict[str, Any]]:
        """Points that are tried first; what one lacks is drawn."""
        return [dict(point) for point in self._block.get("starting_points") or ()]

    @property
    def results(self) -> list[tuple[dict[str, Any], float]]:
        """What is known before the search begins: points, and their losses, which are finite."""
        sign = Objectives.from_config(self._block).sign
        found = self._block.get("results") or ()
        return [(one["hparams"], sign * one["metric"]) for one in found if math.isfinite(one["metric"])]

    def counts(self, key: str) -> list[int]:
        """Return a list of integers, empty by default."""
        return [int(number) for number in self._block.get(key) or ()]


def check_rungs(path: str, num_rungs: int, divisor: float) -> None:
    """Refuse more rungs than a float can count units for.

    Raises:
        SearcherConfigError: There are too many.
    """
    if (num_rungs - 1) * math.log(divisor) > _LARGEST_LOG:
        raise SearcherConfigError(f"{path}: {num_rungs} rungs are too many for divisor {divisor:g}")
