"""TPE whose density of good points is narrower than Optuna's. Imported only in the process that answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.samplers import TPESampler
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator, _ParzenEstimatorParameters
from optuna.samplers._tpe.probability_distributions import _BatchedCategoricalDistributions, _BatchedDistributions
from optuna.trial import FrozenTrial

NARROWEST = 0.3
"""How narrow a kernel may be, beside Optuna's, whose width is at least the range by their number and one.

Of 50 trials five are good, so that each of Optuna's kernels is at least a seventh of the range wide. The least width is
among what decides how good TPE is, finds Watanabe, arXiv:2304.11127, too.
"""


class NarrowTPE(TPESampler):
    """Optuna's TPE, but for the kernels of good points on continuous axes.

    The density of the other points keeps its wide kernels, so that what lies between them is not taken for unknown. So
    do integers: kernels narrower than a step suggest the same points again.
    """

    def _build_parzen_estimator(
        self, study: Study, search_space: dict[str, BaseDistribution], trials: Sequence[FrozenTrial], handle_below: bool
    ) -> _ParzenEstimator:
        self._parzen_estimator_cls = NarrowKernels if handle_below else _ParzenEstimator
        return super()._build_parzen_estimator(study, search_space, list(trials), handle_below)


class NarrowKernels(_ParzenEstimator):
    """A density whose kernels on continuous axes may be as narrow as `NARROWEST` says."""

    def _calculate_numerical_distributions(
        self,
        observations: np.ndarray,
        search_space: FloatDistribution | IntDistribution,
        parameters: _ParzenEstimatorParameters,
    ) -> _BatchedDistributions:
        narrow = isinstance(search_space, FloatDistribution)
        chosen = parameters._replace(consider_magic_clip=not narrow)
        made = super()._calculate_numerical_distributions(observations, search_space, chosen)
        if not narrow or isinstance(made, _BatchedCategoricalDistributions):
            return made
        width = made.sigma[-1]  # of the prior, which is the last kernel: the range
        return made._replace(sigma=np.maximum(made.sigma, NARROWEST * width / min(100, len(made.sigma) + 1)))
