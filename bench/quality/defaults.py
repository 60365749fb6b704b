"""Defaults beside defaults: `tpe` of ours and of Optuna's on functions, by 1, 2, 4 and 8 workers. Needs no tables.

    python -m quality.defaults [SEEDS]         in the folder bench

Neither search is told how many workers there are: as in a pool, trials are created and wait, and each gets its point
when a worker takes it. The regret of a search is that of its best trial; shown is its mean beside that of random
search, 1 being no better.
"""

from __future__ import annotations

import heapq
import math
import random
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from detlab_hub.core.searchers import (
    RULES,
    CreateTrial,
    Event,
    SetPoint,
    Started,
    Suggest,
    Suggested,
    TrialExited,
    TrialPlaced,
    ValidationReported,
    make_searcher,
)

TRIALS = (20, 50)
WORKERS = (1, 2, 4, 8)
AXES = {"x": (-5.0, 10.0), "y": (0.0, 15.0), "z": (-5.0, 5.0)}
KINDS = ("a", "b", "c")
Point = Mapping[str, Any]


def branin(at: Point) -> float:
    """Branin's function above its minimum; the choice shifts it."""
    x, y = at["x"], at["y"]
    value = (y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6) ** 2
    return float(value + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.397887 + 5 * KINDS.index(at["kind"]))


def bowl(at: Point) -> float:
    """A bowl of three numbers and a choice."""
    return float((at["x"] - 3) ** 2 + (at["y"] - 7) ** 2 + (at["z"] + 2) ** 2 + 10 * (at["kind"] != "b"))


FUNCTIONS: dict[str, Callable[[Point], float]] = {"branin": branin, "bowl": bowl}


class Tuner(Protocol):
    """Asks and tells."""

    def ask(self) -> tuple[Any, Point] | None:
        """Return a handle and a point; None if the budget is spent."""

    def tell(self, handle: Any, loss: float) -> None:
        """Take a result."""


class Ours:
    """A method of detlab's with its defaults."""

    def __init__(self, name: str, trials: int, seed: int) -> None:
        space: dict[str, Any] = {key: {"type": "double", "minval": a, "maxval": b} for key, (a, b) in AXES.items()}
        space["kind"] = {"type": "categorical", "vals": list(KINDS)}
        self._search = make_searcher({"name": name, "metric": "loss", "max_trials": trials}, space, seed)
        self._queue: list[str] = []
        self._points: dict[str, Point] = {}
        self._step(Started(RULES))

    def _step(self, event: Event) -> None:
        for decision in self._search.step(event):
            match decision:
                case CreateTrial(request_id, hparams=hparams):
                    self._queue.append(request_id)
                    self._points[request_id] = hparams
                case SetPoint(request_id, hparams):
                    self._points[request_id] = hparams
                case Suggest(ticket):
                    question = self._search.question(ticket)
                    self._step(Suggested(ticket, tuple(type(self._search.method).suggest(question))))

    def ask(self) -> tuple[Any, Point] | None:
        """Place the first trial of the queue."""
        if not self._queue:
            return None
        request_id = self._queue.pop(0)
        self._step(TrialPlaced(request_id))
        return request_id, self._points[request_id]

    def tell(self, handle: Any, loss: float) -> None:
        """Report a result and the end of its trial."""
        self._step(ValidationReported(handle, loss))
        self._step(TrialExited(handle))


class Optunas:
    """Optuna's study with its defaults."""

    def __init__(self, trials: int, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._left = trials
        self._study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))

    def ask(self) -> tuple[Any, Point] | None:
        """Ask the study."""
        if not self._left:
            return None
        self._left -= 1
        trial = self._study.ask()
        at = {key: trial.suggest_float(key, *bounds) for key, bounds in AXES.items()}
        return trial, {**at, "kind": trial.suggest_categorical("kind", KINDS)}

    def tell(self, handle: Any, loss: float) -> None:
        """Tell the study."""
        self._study.tell(handle, loss)


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


def main() -> None:
    """Print a table of mean regrets beside random search's, with standard errors."""
    warnings.filterwarnings("ignore")
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
    for name, loss in FUNCTIONS.items():
        for trials in TRIALS:
            base = [regret(Ours("random", trials, seed), loss, 4, seed) for seed in range(200)]
            mean = sum(base) / len(base)
            for workers in WORKERS:
                ours = [regret(Ours("tpe", trials, seed), loss, workers, seed) / mean for seed in seeds]
                theirs = [regret(Optunas(trials, seed), loss, workers, seed) / mean for seed in seeds]
                shown = "  ".join(f"{label} {_shown(values)}" for label, values in (("tpe", ours), ("optuna", theirs)))
                sys.stdout.write(f"{name}, {trials} trials, {workers} workers: {shown}\n")
                sys.stdout.flush()


def _shown(values: list[float]) -> str:
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((one - mean) ** 2 for one in values) / max(1, len(values) - 1) / len(values))
    return f"{mean:.3f} ± {spread:.3f}"


if __name__ == "__main__":
    main()
