"""Benchmark C: successive halving over policies, widths and learning rates, by loss alone or under a bound.

The rule is that of a search with `memorization_auc_lcb`, written out here on one process: what breaks the bound at a
rung is stopped, the next best that keeps it goes on in its place, and the winner is trained once more with canaries of
its own. That searches of the master keep it is what tests are for.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import torch
from torch.nn import functional

from governed.digits import CANARIES, Classifier, NoisyDigits, accuracy, noisy_digits, plain
from governed.memorisation import ARMS, SOURCES
from governed.training import Training, canaries_of, policy_of

POLICIES = ("ungoverned", "hidden layers only", "head only", "x 0.1 everywhere", "hidden layers and a head of its own")
WIDTHS = (64, 256)
RATES = (1e-3, 3e-3)
RUNGS = (4, 12, 36, 108)
LIMIT = 0.65
SEARCHES = {
    "by training loss": (False, False),
    "by validation loss": (True, False),
    "by training loss, under the bound": (False, True),
    "by validation loss, under the bound": (True, True),
}
"""Name -> whether the validation loss ranks, whether the bound holds."""


@dataclasses.dataclass(frozen=True, slots=True)
class Won:
    """A search's winner, trained once more with canaries of its own.

    Attributes:
        policy: That it is under; empty: no trial kept the bound.
        test: Accuracy on images that the search has not seen.
        auc: Area of its new canaries.
        epochs: That the search has trained.
    """

    policy: str
    test: float
    auc: float
    epochs: int


def _trial(point: tuple[str, int, float], digits: NoisyDigits, seed: int) -> Training:
    name, width, lr = point
    torch.manual_seed(seed)
    model = Classifier(width)
    policy = policy_of(SOURCES, ARMS[name].rules(model, seed), canaries=canaries_of("web", CANARIES))
    return Training(model, policy, digits.data, ARMS[name].losses, seed, lr)


def searched(seed: int, rungs: tuple[int, ...] = RUNGS) -> dict[str, Won]:
    """Run all searches on the same trials, each of which is trained as far as one of them asks for."""
    digits = noisy_digits(seed)
    points = list(itertools.product(POLICIES, WIDTHS, RATES))
    trials = {point: _trial(point, digits, seed * 1000 + number) for number, point in enumerate(points)}
    seen: dict[tuple[Any, int], tuple[float, float, float]] = {}

    def at(point: Any, rung: int) -> tuple[float, float, float]:
        """Return training loss, validation loss and the bound of the area of a trial at a rung."""
        if (point, rung) not in seen:
            trial = trials[point]
            trial.train(rung - trial.epochs)
            x, y = digits.halves[0]
            with torch.no_grad():
                loss = float(functional.cross_entropy(trial.model.head(trial.model.hidden(x)), y))
            bound = trial.memorised(plain)["gov/canary_auc_lcb"]
            seen[point, rung] = (trial.last_loss, loss, bound)
        return seen[point, rung]

    return {name: _search(points, at, digits, seed, rungs, *how) for name, how in SEARCHES.items()}


def _search(
    points: list[Any], at: Any, digits: NoisyDigits, seed: int, rungs: tuple[int, ...], by_validation: bool, bound: bool
) -> Won:
    kept: list[list[Any]] = [[] for _ in rungs]
    went_on: list[set[Any]] = [set() for _ in rungs]
    trained = dict.fromkeys(points, 0)

    def look(point: Any, number: int) -> None:
        trained[point] = rungs[number]
        if not bound or at(point, rungs[number])[2] <= LIMIT:
            kept[number].append(point)
            kept[number].sort(key=lambda one: at(one, rungs[number])[1 if by_validation else 0])

    def reach(number: int, count: int) -> bool:
        """Have so many trials that keep the bound at a rung, if there are: the next best of the rung below goes on."""
        while len(kept[number]) < count:
            waiting = [one for one in kept[number - 1] if one not in went_on[number - 1]] if number else []
            if waiting:
                went_on[number - 1].add(waiting[0])
                look(waiting[0], number)
            elif not number or not reach(number - 1, len(kept[number - 1]) + 1):
                return False
        return True

    for point in points:
        look(point, 0)
    for number in range(1, len(rungs)):
        reach(number, max(1, len(points) // 3**number))
    if not kept[-1]:
        return Won("", float("nan"), float("nan"), sum(trained.values()))
    winner = kept[-1][0]
    again = _trial(winner, digits, seed * 1000 + 999).train(rungs[-1])
    auc = again.memorised(plain)["gov/canary_auc"]
    assert isinstance(again.model, Classifier)
    return Won(winner[0], accuracy(again.model, digits.halves[1]), auc, sum(trained.values()))
