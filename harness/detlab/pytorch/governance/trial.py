"""The policy of a trial: from its experiment config, for its models and its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from detlab.governance import Policy, compile_policy, source_lookup
from detlab.pytorch.governance.governed import Governed, parameters_of_models
from detlab.pytorch.parallel.unwrapping import bare


def governed_by(config: Mapping[str, Any] | None, models: Sequence[Any]) -> Governed | None:
    """Return what holds models to the policy of an experiment config; None if it has none.

    Raises:
        GovernanceError: The policy does not fit the models, or cannot be enforced.
    """
    block = (config or {}).get("governance")
    if block is None:
        return None
    kinds = [type(module).__name__ for model in models for module in bare(model).modules()]
    plan = compile_policy(Policy.of(block), parameters_of_models(models), kinds=kinds)
    return Governed(plan, models)


class GovernedTrial:
    """The part of `PyTorchTrialContext` that a policy governs."""

    _sample_ids: Any
    """Of `TrainingPosition`, the part beside this one."""

    def __init__(self) -> None:
        self._governed: Governed | None = None
        self._source_of: Any = None

    def current_sources(self) -> list[str | None] | None:
        """Return the source of each sample in this rank's batch; None if the data set does not say it.

        It says so if it was made by `detlab.governance.label` or `combine`. Not a method of Determined.
        """
        if self._source_of is None or self._sample_ids is None:
            return None
        return [self._source_of(index) for index in self._sample_ids]

    def _use_data(self, loader: Any) -> None:
        """Take note of the training data."""
        self._source_of = source_lookup(getattr(loader, "dataset", None))

    def _begin_governed(self) -> None:
        if self._governed is not None:
            self._governed.begin(self.current_sources(), lent=self._sample_ids == [])

    def _end_governed(self) -> None:
        if self._governed is not None:
            self._governed.end()

    def _governance_metrics(self) -> dict[str, Any]:
        """Return the `gov/` metrics, none without a policy; all ranks call it."""
        return {} if self._governed is None else self._governed.metrics()
