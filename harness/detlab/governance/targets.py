"""How near what sources gave to layers comes to what a policy's `targets` ask for.

A target divides what a source gives among groups of layers. What it gave is the depth matrix D; the conformance is one
minus the total variation distance of the two: 1 if they agree, 0 if all went where nothing should.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from detlab.governance.policy import LayerTarget, Policy, matching
from detlab.governance.refusals import Refusal


def target_groups(targets: Sequence[LayerTarget], columns: Sequence[Sequence[str]]) -> list[list[int]]:
    """Return the columns of each target, and at the end of those that none names, which should get nothing.

    Args:
        targets: Of one source.
        columns: All names of each parameter.
    """
    found: list[list[int]] = [[] for _ in range(len(targets) + 1)]
    for index, one in enumerate(columns):
        found[_targets_of(targets, one)[0]].append(index)
    return found


def _targets_of(targets: Sequence[LayerTarget], names: Sequence[str]) -> list[int]:
    """Return which targets name a parameter: by its first name, or else by the first alias that one names."""
    for name in names:
        if found := [at for at, one in enumerate(targets) if matching(one.patterns, name)]:
            return found
    return [len(targets)]


def conformance(
    given: Sequence[float], targets: Sequence[LayerTarget], groups: Sequence[Sequence[int]]
) -> float | None:
    """Return one minus the total variation distance of what a source gave and its target; None if it gave nothing yet.

    Args:
        given: Of one source, to each parameter: a row of D, normalised or not.
        targets: Of that source.
        groups: From `target_groups`.
    """
    mass = [math.fsum(given[index] for index in group) for group in groups]
    total = math.fsum(mass)
    if not (total > 0 and math.isfinite(total)):
        return None
    wanted = [*(one.share for one in targets), 0.0]
    return 1.0 - math.fsum(abs(got / total - share) for got, share in zip(mass, wanted, strict=True)) / 2


def target_problems(
    policy: Policy, columns: Sequence[Sequence[str]], scales: Sequence[Sequence[float]]
) -> Iterator[Refusal]:
    """Yield TARGET for targets that no training of this model could meet, and what is odd about others.

    Args:
        policy: The policy.
        columns: All names of each parameter.
        scales: S, by source and parameter.
    """
    rows = policy.index()
    for source, targets in policy.targets.items():
        row, several = scales[rows[source]], False
        for one in columns:
            if len(found := _targets_of(targets, one)) > 1:
                named = " and ".join(repr(targets[at].layers) for at in found[:2])
                yield Refusal("TARGET", f"{one[0]} is in two targets of {source!r}: {named}")
                several = True
        if several:
            continue
        *groups, rest = target_groups(targets, columns)
        for target, group in zip(targets, groups, strict=True):
            asked = f"governance.targets.{source} gives {target.share:g} to {target.layers}"
            if not group:
                message = f"{asked}, which matches no parameter of this model"
                yield Refusal("TARGET", message, "error" if target.share > 0 else "warning")
            elif target.share > 0 and all(row[index] == 0 for index in group):
                yield Refusal("TARGET", f"{asked}, and the rules close all of it to {source!r}")
        if unnamed := [columns[index][0] for index in rest if row[index] > 0]:
            more = f" and {len(unnamed) - 1} more" if len(unnamed) > 1 else ""
            message = f"{source!r} may train {unnamed[0]}{more}, which no target of it names: that counts as 0"
            yield Refusal("TARGET", message, "warning")


def unmeasured(
    policy: Policy, columns: Sequence[Sequence[str]], scales: Sequence[Sequence[float]], seen: Collection[str]
) -> list[Refusal]:
    """Return TARGET for sources that train parameters of which nobody sees what each source gives.

    Args:
        policy: The policy.
        columns: All names of each parameter.
        scales: S, by source and parameter.
        seen: Names of the parameters of which that is known.
    """
    found = []
    for source in policy.targets:
        pairs = zip(columns, scales[policy.index()[source]], strict=True)
        hidden = [names[0] for names, scale in pairs if scale > 0 and names[0] not in seen]
        if hidden:
            more = f" and {len(hidden) - 1} more" if len(hidden) > 1 else ""
            what = f"what {source!r} gives to {hidden[0]}{more} is not seen, as that layer runs twice or is not routed"
            found.append(Refusal("TARGET", f"{what}: with `engine: microbatch` all layers are"))
    return found


def told(policy: Policy) -> list[str]:
    """Return a line for each target, for people."""
    return [
        f"target of {source}: " + ", ".join(f"{one.share:g} to {one.layers}" for one in targets)
        for source, targets in policy.targets.items()
    ]
