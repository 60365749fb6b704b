"""Defaults beside defaults: `tpe` of ours and of Optuna's on functions, by 1, 2, 4 and 8 workers. Needs no tables.

    python -m quality.defaults [SEEDS] [--first SEED] [--only FUNCTION …]         in the folder bench

Neither search is told how many workers there are: as in a pool, trials are created and wait, and each gets its point
when a worker takes it. The regret of a search is that of its best trial; shown is its mean beside that of random
search, 1 being no better, and then the mean beside Optuna's, with a standard error over the seeds. A search of ours is
*worse beyond noise* where Wilcoxon's signed-rank test over the seeds says so (one-sided, 5%), once Holm's correction
has been made for the number of comparisons.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from detlab.schemas.space import Space
from detlab_hub.core.searchers import RULES, CreateTrial, Event, Started, TrialExited, TrialPlaced, ValidationReported
from detlab_hub.core.searchers.randomness import SearchRandom
from quality.curves import network_task
from quality.tuners import Search

TRIALS = (20, 50)
WORKERS = (1, 2, 4, 8)
RANDOM = 200
"""Random searches that a mean is of."""
LEVEL = 0.05
Point = Mapping[str, Any]


@dataclass(frozen=True)
class Function:
    """What is searched.

    Attributes:
        space: Its `hyperparameters` block.
        loss: How far a point is above the minimum.
    """

    space: dict[str, Any]
    loss: Callable[[Point], float]


def branin(at: Point) -> float:
    """Branin's function above its minimum; the choice shifts it."""
    x, y = at["x"], at["y"]
    value = (y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6) ** 2
    return float(value + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.397887 + 5 * "abc".index(at["kind"]))


def bowl(at: Point) -> float:
    """A bowl of three numbers and a choice."""
    return float((at["x"] - 3) ** 2 + (at["y"] - 7) ** 2 + (at["z"] + 2) ** 2 + 10 * (at["kind"] != "b"))


def training(at: Point) -> float:
    """As trainings often are: too high a learning rate is worse than too low a one, and each optimizer has its best.

    It grows with the root of the batch size. 6 is the loss of a training that has diverged.
    """
    best, offset = {"sgd": (-2.0, 0.3), "adam": (-3.0, 0.0), "rms": (-1.5, 0.1)}[at["optimizer"]]
    off = math.log10(at["lr"]) - best - 0.15 * math.log2(at["batch"] / 64)
    decay = math.log10(at["decay"]) + 4
    value = (4 if off > 0 else 1) * off**2 + 0.1 * decay**2 + 0.03 * math.log2(at["batch"] / 32) ** 2 + offset
    return min(value, 6.0)


def _numbers() -> dict[str, Any]:
    axes = {"x": (-5.0, 10.0), "y": (0.0, 15.0), "z": (-5.0, 5.0)}
    space: dict[str, Any] = {key: {"type": "double", "minval": a, "maxval": b} for key, (a, b) in axes.items()}
    return space | {"kind": {"type": "categorical", "vals": ["a", "b", "c"]}}


def _training() -> dict[str, Any]:
    return {
        "lr": {"type": "log", "base": 10, "minval": -5, "maxval": 0},
        "decay": {"type": "log", "base": 10, "minval": -6, "maxval": -1},
        "batch": {"type": "int", "minval": 8, "maxval": 512, "log": True},
        "optimizer": {"type": "categorical", "vals": ["sgd", "adam", "rms"]},
    }


def _networks() -> Function:
    """Networks that were trained once (`make_curves.py`): four integers, and the least loss of all epochs."""
    task = network_task("digits")
    return Function(task.space, lambda at: task.regret(min(loss for _, loss in task.curve(at))))


FUNCTIONS: dict[str, Callable[[], Function]] = {
    "branin": lambda: Function(_numbers(), branin),
    "bowl": lambda: Function(_numbers(), bowl),
    "training": lambda: Function(_training(), training),
    "networks": _networks,
}


class Tuner(Protocol):
    """Asks and tells."""

    def ask(self) -> tuple[Any, Point] | None:
        """Return a handle and a point; None if the budget is spent."""

    def tell(self, handle: Any, loss: float) -> None:
        """Take a result."""


class Ours:
    """A method of detlab's with its defaults."""

    def __init__(self, name: str, space: dict[str, Any], trials: int, seed: int) -> None:
        self._search = Search({"name": name, "metric": "loss", "max_trials": trials}, space, seed)
        self._queue: list[str] = []
        self._step(Started(RULES))

    def _step(self, event: Event) -> None:
        self._queue += [one.request_id for one in self._search.step(event) if isinstance(one, CreateTrial)]

    def ask(self) -> tuple[Any, Point] | None:
        """Place the first trial of the queue."""
        if not self._queue:
            return None
        request_id = self._queue.pop(0)
        self._step(TrialPlaced(request_id))
        return request_id, self._search.points[request_id]

    def tell(self, handle: Any, loss: float) -> None:
        """Report a result and the end of its trial."""
        self._step(ValidationReported(handle, loss))
        self._step(TrialExited(handle))


class Optunas:
    """Optuna's study with its defaults."""

    def __init__(self, space: dict[str, Any], trials: int, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._left = trials
        self._space = {name: _distribution(spec) for name, spec in space.items()}
        self._study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))

    def ask(self) -> tuple[Any, Point] | None:
        """Ask the study."""
        if not self._left:
            return None
        self._left -= 1
        trial = self._study.ask(self._space)
        return trial, trial.params

    def tell(self, handle: Any, loss: float) -> None:
        """Tell the study."""
        self._study.tell(handle, loss)


def _distribution(spec: Mapping[str, Any]) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    match spec["type"]:
        case "categorical":
            return CategoricalDistribution(spec["vals"])
        case "int":
            return IntDistribution(spec["minval"], spec["maxval"], log=spec.get("log", False))
        case "log":
            return FloatDistribution(spec["base"] ** spec["minval"], spec["base"] ** spec["maxval"], log=True)
        case _:
            return FloatDistribution(spec["minval"], spec["maxval"])


def regret(tuner: Tuner, loss: Callable[[Point], float], workers: int, seed: int) -> float:
    """Run a search by so many workers, whose trials take different times; return the loss of its best trial."""
    clock = random.Random(seed)
    busy: list[tuple[float, int, Any, float]] = []
    now, number, best = 0.0, 0, math.inf
    while True:
        while len(busy) < workers and (asked := tuner.ask()) is not None:
            heapq.heappush(busy, (now + clock.uniform(0.5, 1.5), number, asked[0], loss(asked[1])))
            number += 1
        if not busy:
            return best
        now, _, handle, value = heapq.heappop(busy)
        best = min(best, value)
        tuner.tell(handle, value)


@dataclass(frozen=True)
class Compared:
    """The searches of both with a number of workers, seed by seed; regrets beside the mean of random search."""

    function: str
    trials: int
    workers: str
    ours: np.ndarray
    theirs: np.ndarray

    @property
    def ratio(self) -> tuple[float, float]:
        """Our mean beside theirs, and its standard error: how it changes as each seed is left out."""
        count = len(self.ours)
        left = (self.ours.sum() - self.ours) / (self.theirs.sum() - self.theirs)
        error = math.sqrt((count - 1) / count * float(((left - left.mean()) ** 2).sum()))
        return float(self.ours.mean() / self.theirs.mean()), error

    @property
    def chance(self) -> float:
        """How likely it is that ours is this much worse, or more, if both are equally good."""
        from scipy.stats import wilcoxon

        if not (self.ours - self.theirs).any():
            return 1.0
        return float(wilcoxon(self.ours, self.theirs, alternative="greater").pvalue)

    def shown(self) -> str:
        """Return a line."""
        ratio, error = self.ratio
        return (
            f"{self.function}, {self.trials} trials, {self.workers} workers: tpe {_shown(self.ours)}"
            f"  optuna {_shown(self.theirs)}  beside optuna {ratio:.2f} ± {error:.2f}  p(worse) {self.chance:.2f}"
        )


def _shown(values: np.ndarray) -> str:
    return f"{values.mean():.3f} ± {values.std(ddof=1) / math.sqrt(len(values)):.3f}"


def compare(name: str, seeds: Sequence[int]) -> Iterator[Compared]:
    """Run all searches of a function."""
    function = FUNCTIONS[name]()
    space, loss = function.space, function.loss
    for trials in TRIALS:
        base = _random(function, trials)
        for workers in WORKERS:
            ours = [regret(Ours("tpe", space, trials, seed), loss, workers, seed) / base for seed in seeds]
            theirs = [regret(Optunas(space, trials, seed), loss, workers, seed) / base for seed in seeds]
            yield Compared(name, trials, str(workers), np.array(ours), np.array(theirs))


def _random(function: Function, trials: int) -> float:
    """Return the mean regret of random search."""
    space, rng = Space(function.space), SearchRandom(0)
    return sum(min(function.loss(space.sample(rng)) for _ in range(trials)) for _ in range(RANDOM)) / RANDOM


def worse(compared: Sequence[Compared]) -> list[Compared]:
    """Return the comparisons in which ours is worse beyond noise: Holm, Scand. J. Statist. 6, 1979."""
    found = []
    for place, one in enumerate(sorted(compared, key=lambda one: one.chance)):
        if one.chance > LEVEL / (len(compared) - place):
            break
        found.append(one)
    return found


def pooled(compared: Sequence[Compared]) -> tuple[float, float]:
    """Return the mean, over comparisons, of our regret beside their mean, and its standard error over the seeds."""
    each = 1 + sum((one.ours - one.theirs) / one.theirs.mean() for one in compared) / len(compared)
    return float(each.mean()), float(each.std(ddof=1) / math.sqrt(len(each)))


def main() -> None:
    """Print a table, and what is beyond noise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", type=int, nargs="?", default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", nargs="+", choices=list(FUNCTIONS), default=list(FUNCTIONS))
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    compared: list[Compared] = []
    for name in given.only:
        for one in compare(name, range(given.first, given.first + given.seeds)):
            compared.append(one)
            _say(one.shown())
    for name in given.only:
        for trials in TRIALS:
            some = [one for one in compared if (one.function, one.trials) == (name, trials)]
            _say("{}, {} trials, all workers: beside optuna {:.2f} ± {:.2f}".format(name, trials, *pooled(some)))
    _say("all: beside optuna {:.3f} ± {:.3f}".format(*pooled(compared)))
    found = [f"{one.function}, {one.trials} trials, {one.workers} workers" for one in worse(compared)]
    _say(f"worse beyond noise in {len(found)} of {len(compared)} comparisons" + "".join(f"\n  {one}" for one in found))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
