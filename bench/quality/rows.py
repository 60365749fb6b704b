"""The rows of the table: what the kept searches say, beside goals and peers."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from measure import Figure

from quality.curves import CurveTask
from quality.kept import Kept
from quality.noise import mean_interval, worse
from quality.rungs import regret_at
from quality.samplers import CHECKED, METHODS, PEERS, length

GRID = [share / 400 for share in range(1, 401)]
RUNG_PEERS = {
    "async_halving": ("syne-tune asha", "optuna random, halving"),
    "hyperband": ("optuna random, hyperband",),
    "bohb": ("syne-tune bohb", "optuna tpe, hyperband"),
}
CHECKED_SHARE = 1 / 5
"""Of the budget, at which regrets are compared with those of peers."""
RUNG_GOALS = {"adaptive_asha": 1 / 5, "bohb": 1 / 8}


def seeds_of(kept: Kept, tasks: Sequence[str], methods: Sequence[str]) -> list[list[int]]:
    """Return for each task the seeds that all the methods have been run with."""
    return [sorted(set.intersection(*(set(kept.of(task, method)) for method in methods))) for task in tasks]


def regrets(kept: Kept, tasks: Sequence[str], method: str, seeds: Sequence[list[int]], after: int) -> list[list[float]]:
    """Return the regrets after so many trials: a row of seeds for each task."""
    return [
        [kept.of(task, method)[seed]["regret"][after - 1] for seed in chosen]
        for task, chosen in zip(tasks, seeds, strict=True)
    ]


def sampler_rows(kept: Kept, tasks: Sequence[str]) -> list[Figure]:
    """Say what each sampler reaches, mean over the tasks."""
    figures = []
    for after in CHECKED:
        for method in METHODS:
            seeds = seeds_of(kept, tasks, [method])
            if length(method) < after or not all(seeds):
                continue
            mean, low, high = mean_interval(regrets(kept, tasks, method, seeds, after))
            count = min(map(len, seeds))
            note = f"95%: {low:.4f} … {high:.4f}; {len(tasks)} tasks, {count} seeds"
            figures.append(Figure(f"{method}: regret after {after} trials", mean, note=note))
    return [*figures, *peer_rows(kept, tasks), *choice_rows(kept, tasks)]


def peer_rows(kept: Kept, tasks: Sequence[str]) -> list[Figure]:
    """Say on how many tasks ours is worse than its peer beyond noise, and on how many better."""
    figures = []
    for ours, peers in PEERS.items():
        for peer in peers:
            seeds = seeds_of(kept, tasks, [ours, peer])
            if not all(len(chosen) >= 3 for chosen in seeds):
                continue
            after = length(ours)
            one, other = (regrets(kept, tasks, method, seeds, after) for method in (ours, peer))
            behind, ahead = worse(one, other), worse(other, one)
            means = f"regret {mean_interval(one)[0]:.4f} and {mean_interval(other)[0]:.4f} after {after} trials"
            named = ", ".join(tasks[number] for number in behind)
            note = (
                f"better on {len(ahead)} of {len(tasks)}; {means}, {min(map(len, seeds))} seeds{named and '; ' + named}"
            )
            goal = 0.0 if peer == f"optuna {ours}" else None
            figures.append(Figure(f"{ours}: worse than {peer}", float(len(behind)), "tasks", at_most=goal, note=note))
    return figures


def choice_rows(kept: Kept, tasks: Sequence[str]) -> list[Figure]:
    """Compare `bayesian` with the best single method, on the same seeds and as many trials."""
    singles = ("tpe", "gp", "cmaes", "nsga2")
    seeds = seeds_of(kept, tasks, ["bayesian", *singles])
    if not all(seeds):
        return []
    after = length("bayesian")
    means = {name: mean_interval(regrets(kept, tasks, name, seeds, after))[0] for name in ("bayesian", *singles)}
    best = min(singles, key=lambda name: means[name])
    gaps = [
        [mine - theirs for mine, theirs in zip(*pair, strict=True)]
        for pair in zip(*(regrets(kept, tasks, name, seeds, after) for name in ("bayesian", best)), strict=True)
    ]
    gap, low, high = mean_interval(gaps)
    note = f"{means['bayesian']:.4f} and {means[best]:.4f} after {after} trials; 95%: {low:.4f} … {high:.4f}"
    return [Figure(f"bayesian: regret beyond the best single one, {best}", gap, at_most=max(0.0, gap - low), note=note)]


def curve_rows(kept: Kept, title: str, tasks: Sequence[CurveTask], methods: Sequence[str]) -> list[Figure]:
    """Say with which part of the budget each method reaches the final regret of random search, mean over the tasks."""
    names = [task.name for task in tasks]
    base = {name: rows for name in names if (rows := kept.of(name, "random"))}
    if not base:
        return []
    target = statistics.mean(mean_at(rows.values(), 1.0) for rows in base.values())
    figures = []
    for method in methods:
        found = {name: kept.of(name, method) for name in base}
        if not all(found.values()):
            continue
        curve = [statistics.mean(mean_at(rows.values(), share) for rows in found.values()) for share in GRID]
        share = next((share for share, regret in zip(GRID, curve, strict=True) if regret <= target), None)
        losses = _losses(base, found)
        note = (
            f"regret {curve[-1]:.4f} at the end, random {target:.4f}; {losses}; "
            f"{min(map(len, found.values()))} seeds" + ("" if share else "; never reached")
        )
        figures.append(Figure(f"{title}, {method}: budget", share, "of random's", RUNG_GOALS.get(method), note=note))
    return figures


def rung_peer_rows(kept: Kept, tasks: Sequence[CurveTask]) -> list[Figure]:
    """Compare methods with rungs with their peers at a fifth of the budget, on the same tasks and seeds."""
    names = [task.name for task in tasks]
    figures = []
    for ours, peers in RUNG_PEERS.items():
        for peer in peers:
            seeds = seeds_of(kept, names, [ours, peer])
            if not all(len(chosen) >= 6 for chosen in seeds):  # fewer cannot differ beyond noise
                continue
            one, other = (
                [
                    [regret_at(kept.of(name, method)[seed], CHECKED_SHARE) for seed in chosen]
                    for name, chosen in zip(names, seeds, strict=True)
                ]
                for method in (ours, peer)
            )
            behind, ahead = worse(one, other), worse(other, one)
            means = "; ".join(
                f"{name} {statistics.mean(mine):.4f} and {statistics.mean(theirs):.4f}"
                for name, mine, theirs in zip(names, one, other, strict=True)
            )
            note = f"better on {len(ahead)} of {len(names)}; regret at a fifth of the budget: {means}; "
            note += f"{min(map(len, seeds))} seeds"
            figures.append(Figure(f"{ours}: worse than {peer}", float(len(behind)), "tasks", note=note))
    return figures


def mean_at(rows: Iterable[Any], share: float) -> float:
    """Return the mean regret of searches at a share of the budget."""
    return statistics.mean(regret_at(row, share) for row in rows)


def _losses(base: dict[str, dict[int, dict[str, object]]], found: dict[str, dict[int, dict[str, object]]]) -> str:
    """Say on how many tasks a method ends worse than random search by more than a hundredth."""
    behind = [
        name for name, rows in found.items() if mean_at(rows.values(), 1.0) > mean_at(base[name].values(), 1.0) + 0.01
    ]
    return f"ends worse on {len(behind)} of {len(base)} tasks"
