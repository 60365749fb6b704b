"""What is measured of governed training: which sources were used how much, and what they gave to which layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from detlab.governance import GovernanceError, Plan
from detlab.governance.targets import conformance, target_groups, unmeasured

MOST_NUMBERS = 20_000
"""Of the depth matrix in a report; of a larger one its size is said."""


class Meter:
    """Adds up over all batches of this process.

    Args:
        plan: The plan.
        device: Where gradients are.
        seen: Names of the parameters of which it is known what each source gives.

    Raises:
        GovernanceError: TARGET: a source with a target trains others, too.

    Attributes:
        counts: Samples of all ranks by row of S, at the end those without a declared source.
        violations: How many there were, under `enforce: audit`.
        present: Rows of the current batch.
    """

    def __init__(self, plan: Plan, device: Any, seen: Iterable[str]) -> None:
        self._plan = plan
        self._seen = set(seen)
        if hidden := unmeasured(plan.policy, plan.names, plan.scales, self._seen):
            raise GovernanceError(hidden, "the targets of this policy cannot be measured:")
        self._targets = {
            plan.policy.index()[source]: (source, targets, target_groups(targets, plan.names))
            for source, targets in plan.policy.targets.items()
        }
        self.counts = [0] * (len(plan.sources) + 1)
        self.violations = 0
        self.present: frozenset[int] = frozenset()
        self._depth = torch.zeros((len(plan.sources) + 1, len(plan.parameters)), dtype=torch.float64, device=device)
        self.rates: Mapping[int, float] = {}
        """Learning rate by index of parameter."""

    def add(self, row: int, index: int, norm: Any) -> None:
        """Add the norm of what a source gave to a parameter, weighted by the learning rate."""
        if row < self._depth.shape[0]:
            self._depth[row, index] += norm.double() * self.rates.get(index, 1.0)

    def depth(self) -> Any:
        """Return D of this rank, not normalised: by source and parameter."""
        return self._depth

    def coverage(self) -> float:
        """Return the share of samples whose source is declared; 1 if there was none yet."""
        total = sum(self.counts)
        return 1.0 if total == 0 else 1.0 - self.counts[len(self._plan.sources)] / total

    def report(self, depth: Any, leak: float) -> dict[str, Any]:
        """Return the metrics.

        Args:
            depth: D of all ranks, not normalised.
            leak: Sum of the norms of what arrived and should not have, of all ranks.
        """
        total = max(1, sum(self.counts))
        names = self._plan.sources
        return {
            "gov/coverage": self.coverage(),
            "gov/leak_mass": leak,
            "gov/violations": self.violations,
            "gov/share": {name: self.counts[row] / total for row, name in enumerate(names)},
            "gov/depth": self._layers(depth),
            **self._conformance(depth),
        }

    def _conformance(self, depth: Any) -> dict[str, float]:
        """Return how near each source that gave something is to its target, and of all the least."""
        if not self._targets:
            return {}
        found = {}
        for row, (source, targets, groups) in self._targets.items():
            if (value := conformance(depth[row].tolist(), targets, groups)) is not None:
                found[f"gov/conformance/{source}"] = round(value, 9)
        return {"gov/conformance": min(found.values(), default=1.0), **found}

    def _layers(self, depth: Any) -> dict[str, Any]:
        """Return D by source and layer, each source's numbers with the sum 1, or 0 if it gave nothing yet.

        Layers that run twice, and those that are left as they are because their kind is not known, are not in it.
        """
        layers: dict[str, list[int]] = {}
        for index, one in enumerate(self._plan.parameters):
            if one.name not in self._seen:
                continue
            layers.setdefault(one.name.rpartition(".")[0] or one.name, []).append(index)
        sources = list(self._plan.sources)
        if len(layers) * len(sources) > MOST_NUMBERS:
            return {"sources": sources, "omitted": f"{len(layers)} layers"}
        rows = depth[: len(sources)].tolist()
        mass = [[sum(row[index] for index in of) for of in layers.values()] for row in rows]
        shares = [[round(one / (sum(row) or 1.0), 9) for one in row] for row in mass]
        return {"sources": sources, "layers": list(layers), "mass": shares}
