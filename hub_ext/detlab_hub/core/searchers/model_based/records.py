"""What a model-based search knows of its trials, for itself and for the samplers."""

import math
from typing import Literal, NamedTuple

from detlab_hub.core.searchers.model_based.axes import Coordinate
from detlab_hub.core.searchers.objectives import Score

GP_MOST = 300
"""Results beyond which a Gaussian process is not fitted any longer."""
Outcome = Literal["waiting", "running", "done", "failed", "invalid"]


class Record(NamedTuple):
    """The results of a trial so far; replaced by newer ones, never changed.

    Attributes:
        at: Its coordinates; None on an axis that it does not have; empty while it has no point.
        outcome: Whether it waits for its point, runs, and how it ended.
        loss: Its best metric, smaller is better; None without a finite one.
        ended: How many trials had ended when its point was drawn: which generation it belongs to.
        reports: How often `loss`, `others` or `violation` changed.
        others: Where there are several objectives, the losses of the further ones.
        violation: By how much it breaks the constraints; 0 if it keeps them all.
    """

    at: tuple[Coordinate | None, ...]
    outcome: Outcome
    loss: float | None
    ended: int
    reports: int = 0
    others: tuple[float, ...] = ()
    violation: float = 0.0

    @property
    def score(self) -> Score:
        """Its result, for a record that has one."""
        return Score(self.violation, (math.nan if self.loss is None else self.loss, *self.others))
