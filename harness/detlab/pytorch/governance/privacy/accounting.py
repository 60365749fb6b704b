"""What a training with differential privacy has spent, and how much noise its steps need: by Opacus' RDP accountant."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from detlab.governance import GovernanceError
from detlab.schemas.expconf.blocks.governance import PrivacyConfig

MECHANISM = "rdp"
MISSING = "the level dp needs Opacus, which cannot be imported here ({}): pip install 'detlab[dp]' where tasks run"
_LEAST_NOISE, _MOST_NOISE = 0.01, 10_000.0
"""Bounds of the noise that is looked for, as a multiple of the norm of clipping."""
_PRECISE = 1e-4
"""Relative precision of the noise; it is rounded up."""
_NEARLY = 0.99
"""Of the target; who begins with more spent has as good as nothing left."""
_MOST_RUNS = 1000
"""Of one noise and rate in a history."""


class Accountant:
    """Adds up what steps spend.

    Each step draws each record with the same probability by itself, and adds noise to a sum to which no record gives
    more than the norm of clipping. The accountant is Opacus' own; its history is the state.

    Args:
        budget: Norm, target and delta.
        history: `(noise, rate, steps)` of what was spent before, from `state`.

    Raises:
        GovernanceError: ENV: Opacus cannot be imported. STATE: that is no history.
    """

    def __init__(self, budget: PrivacyConfig, history: Sequence[Sequence[float]] = ()) -> None:
        try:
            from opacus.accountants import RDPAccountant
        except ImportError as error:
            raise GovernanceError.of("ENV", MISSING.format(error)) from error
        self.budget = budget
        self._opacus: Any = RDPAccountant()
        self._opacus.history = _history_of(history)
        self._known: dict[tuple[float, float], Any] = {}

    @property
    def history(self) -> list[tuple[float, float, int]]:
        """Noise, rate and number of steps, in order."""
        return list(self._opacus.history)

    @property
    def steps(self) -> int:
        """All steps that were counted."""
        return sum(count for _, _, count in self._opacus.history)

    def epsilon(self) -> float:
        """Return what is spent, for the delta of the budget."""
        with _quiet():
            return float(self._opacus.get_epsilon(delta=self.budget.delta))

    def step(self, noise: float, rate: float) -> None:
        """Count one step."""
        self._opacus.step(noise_multiplier=noise, sample_rate=rate)

    def epsilon_after(self, noise: float, rate: float, steps: int) -> float:
        """Return what would be spent after so many further steps."""
        return self._converted(self._spent() + steps * self._of_one(noise, rate)) if steps else self.epsilon()

    def noise_for(self, steps: int, rate: float) -> float:
        """Return the least noise with which so many further steps stay within the target.

        Args:
            steps: How many; at least 1.
            rate: Probability of each record in each step.

        Raises:
            GovernanceError: LEVEL: no noise is enough, or only one in which nothing is learnt: nearly all is spent.
        """
        low, high, spent = _LEAST_NOISE, _MOST_NOISE, self._spent()

        def fits(noise: float) -> bool:
            return self._converted(spent + steps * self._of_one(noise, rate)) <= self.budget.target_epsilon

        nearly = self.history and self.epsilon() > _NEARLY * self.budget.target_epsilon
        if nearly or not fits(high):
            before = f"; {self.epsilon():.4g} of it was spent before" if self.history else ""
            message = f"no noise keeps {steps} steps within epsilon {self.budget.target_epsilon:g}"
            raise GovernanceError.of("LEVEL", f"{message} at delta {self.budget.delta:g}{before}")
        if fits(low):
            return low
        while high > low * (1 + _PRECISE):
            middle = (low * high) ** 0.5
            low, high = (low, middle) if fits(middle) else (middle, high)
        return high

    def steps_left(self, noise: float, rate: float, most: int) -> int:
        """Return how many further steps stay within the target, `most` at most."""
        spent, one = self._spent(), self._of_one(noise, rate)

        def fits(steps: int) -> bool:
            return self._converted(spent + steps * one) <= self.budget.target_epsilon

        low, high = 0, most + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    # --- Renyi divergences at all orders

    def _spent(self) -> Any:
        import numpy as np

        runs = [steps * self._of_one(noise, rate) for noise, rate, steps in self._opacus.history]
        return sum(runs, np.zeros(len(self._opacus.DEFAULT_ALPHAS)))

    def _of_one(self, noise: float, rate: float) -> Any:
        import numpy as np
        from opacus.accountants.analysis import rdp

        if (noise, rate) not in self._known:  # it takes many milliseconds
            orders = self._opacus.DEFAULT_ALPHAS
            found = rdp.compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=orders)
            self._known[noise, rate] = np.asarray(found)
        return self._known[noise, rate]

    def _converted(self, spent: Any) -> float:
        from opacus.accountants.analysis import rdp

        if not spent.any():
            return 0.0
        with _quiet():
            found, _ = rdp.get_privacy_spent(orders=self._opacus.DEFAULT_ALPHAS, rdp=spent, delta=self.budget.delta)
        return float(found)


def _history_of(given: Any) -> list[tuple[float, float, int]]:
    try:
        found = [(float(noise), float(rate), int(steps)) for noise, rate, steps in given]
    except (TypeError, ValueError) as error:
        raise GovernanceError.of("STATE", "the checkpoint has no readable state of the privacy accountant") from error
    if len(found) > _MOST_RUNS or any(not (noise > 0 and 0 < rate <= 1 and steps > 0) for noise, rate, steps in found):
        raise GovernanceError.of(
            "STATE", "the state of the privacy accountant in the checkpoint is no history of steps"
        )
    return found


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave out that the best order is the largest or smallest: then the bound is wider than it could be, and holds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield
