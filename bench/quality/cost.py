"""What a suggestion costs when a search has had many trials, and how long the writer is held for it."""

from __future__ import annotations

import gc
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from measure import Figure

from detlab_hub.core.searchers import (
    CreateTrial,
    Event,
    PauseTrial,
    Question,
    ResumeTrial,
    Searcher,
    Started,
    StopTrial,
    Suggest,
    Suggested,
    TrialCreated,
    TrialExited,
    TrialPaused,
    TrialPlaced,
    ValidationReported,
    make_searcher,
)
from detlab_hub.core.searchers.halving.rungs import Rung
from detlab_hub.core.searchers.objectives import Score
from detlab_hub.core.searchers.suggesting import to_json
from quality.rungs import ENTRIES, installed

SPACE = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
    "layers": {"type": "int", "minval": 1, "maxval": 8},
    "dropout": {"type": "double", "minval": 0.0, "maxval": 0.5},
    "act": {"type": "categorical", "vals": ["relu", "gelu"]},
}
MODELS = ("tpe", "gp", "cmaes", "nsga2")
WRITER_GOAL = 5.0
"""Milliseconds for which a search may hold the writer."""
TIMES = (1.0, 3.0, 9.0, 27.0)
MEASURED = 5
PAUSE = 1.0
"""Seconds between two questions: trials do not end faster, and the process tidies up meanwhile."""
GP_SIZE = 300
"""Trials beyond which no Gaussian process is fitted."""
PLACES = 16
OBJECTIVE_REPORTS = 100
"""Reports at a rung with several objectives that are measured."""


def block(name: str, trials: int) -> dict[str, object]:
    """Return a `searcher` block for a search that is to have so many trials and some more."""
    made: dict[str, object] = {
        "name": name,
        "metric": "loss",
        "max_trials": 2 * trials,
        "max_concurrent_trials": PLACES,
    }
    if name in ENTRIES and ENTRIES[name].rungs:
        made |= {"divisor": 3, "time_metric": "time", "max_time": 27, **ENTRIES[name].block}
    return made


class Grown:
    """A search that has had many trials; suggestions were drawn at random.

    Attributes:
        held: Milliseconds of CPU of each event since it was cleared, with what is read for a `Suggest`.
        questions: That were asked while it was measured.
        open: Trials that have a worker.
        created: How many trials there were.
    """

    def __init__(self, name: str, trials: int) -> None:
        self.search: Searcher = make_searcher(block(name, trials), SPACE, 1)
        self.held: list[float] = []
        self.questions: list[Question] = []
        self.open: list[str] = []
        self.created = 0
        self._at: dict[str, int] = {}
        self._left: dict[str, str] = {}
        self._rng = random.Random(0)
        self._measured = False
        self._step(Started())
        while self.created < trials + len(self.open) and self.open:  # paused ones of a promoting method stay so
            self.end_one()

    def end_one(self) -> None:
        """Let the oldest trial report at its rungs until it is stopped, paused or done."""
        request_id = self.open.pop(0)
        while (at := self._at.get(request_id, 0)) < len(TIMES):
            self._at[request_id] = at + 1
            self._step(ValidationReported(request_id, self._rng.random(), TIMES[at]))
            if request_id in self._left:
                break
        if self._left.pop(request_id, "stopped") == "stopped":
            self._step(TrialExited(request_id))
        else:
            self._step(TrialPaused(request_id))

    def measure(self) -> None:
        """Let some trials end, and keep the questions."""
        self.held.clear()
        self._measured = True
        for _ in range(MEASURED):
            self.end_one()

    def _step(self, event: Event) -> None:
        began = time.thread_time()
        decisions = self.search.step(event)
        asked = [self.search.question(one.ticket) for one in decisions if isinstance(one, Suggest)]
        self.held.append((time.thread_time() - began) * 1000)
        for decision in decisions:
            match decision:
                case CreateTrial(request_id):
                    self.open.append(request_id)
                    self.created += 1
                    self._step(TrialCreated(request_id))
                    self._step(TrialPlaced(request_id))
                case ResumeTrial(request_id):
                    self.open.append(request_id)
                case StopTrial(request_id):
                    self._left[request_id] = "stopped"
                case PauseTrial(request_id):
                    self._left[request_id] = "paused"
        if self._measured:
            self.questions += asked
        for question in asked:
            self._step(Suggested(question.ticket, ()))


def rows(folder: Path, sizes: Sequence[int]) -> list[Figure]:
    """Measure all methods, and Optuna's samplers on a database."""
    figures = []
    for size in sizes:
        for name in (*MODELS, *(entry.block["name"] for entry in installed().values() if entry.rungs)):
            if not any(figure.label.startswith(f"{name}, {size:,}") for figure in figures):
                figures += _ours(name, size)
        for name in MODELS:
            figures.append(_optuna(folder, name, size))
        figures += [_several_objectives(relation, size) for relation in ("unrelated", "together", "against")]
    return figures


def _several_objectives(relation: str, size: int) -> Figure:
    """Measure a report at a rung where two objectives are unrelated, grow together, or each at the other's cost."""
    draw = random.Random(0)

    def score() -> Score:
        one, other = draw.random(), draw.random()
        losses = {"unrelated": (one, other), "together": (one, one + other / 1000), "against": (one, 1 - one + other)}
        return Score(0.0, losses[relation])

    rung = Rung(1, [(score(), str(number)) for number in range(size)])
    rung.insert("first", score())  # finds the fronts of all
    taken = []
    for number in range(OBJECTIVE_REPORTS):
        began = time.thread_time()
        rung.insert(f"late {number}", score())
        taken.append((time.thread_time() - began) * 1000)
    label = f"two objectives, {relation}: a report at a rung of {size:,} trials"
    note = f"median; at most {max(taken):.1f}"
    return Figure(label, statistics.median(taken), "ms", at_most=WRITER_GOAL, note=note)


def _ours(name: str, size: int) -> list[Figure]:
    grown = Grown(name, size)
    gc.collect()
    grown.measure()
    label = f"{name}, {size:,} trials"
    most = max(grown.held)
    note = f"median {statistics.median(grown.held):.2f}"
    figures = [Figure(f"{label}: the writer is held by an event, at most", most, "ms", at_most=WRITER_GOAL, note=note)]
    if grown.questions:
        times = _answered(name, grown.questions[:MEASURED])
        note = f"CPU; the first one, with the start of the process: {times[0]:.0f}"
        figures.append(Figure(f"{label}: a suggestion", statistics.median(times), "ms", note=note))
    return figures


def _answered(name: str, questions: Sequence[Question]) -> list[float]:
    """Let the answer process answer them; return the milliseconds of CPU of each, here and there."""
    times = []
    command = [sys.executable, "-m", "detlab_hub.core.searchers.suggesting"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for question in questions:
            began = time.process_time() * 1000 + _cpu(process.pid)
            process.stdin.write(to_json(name, question) + b"\n")
            process.stdin.flush()
            process.stdout.readline()
            times.append(time.process_time() * 1000 + _cpu(process.pid) - began)
            time.sleep(PAUSE)
        process.stdin.close()
    return times


def _cpu(pid: int) -> float:
    """Return the milliseconds of CPU that a process has had, by Linux's scheduler: `times` counts in tens of them."""
    spent = 0
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # a thread that ends meanwhile
            spent += int(file.read_text().split()[0])
    return spent / 1e6


def _optuna(folder: Path, name: str, size: int) -> Figure:
    """An `ask` of Optuna's, its study in SQLite, in a process that has asked before."""
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    from quality.tuners import optuna_sampler

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = {
        "lr": FloatDistribution(1e-4, 1e-1, log=True),
        "layers": IntDistribution(1, 8),
        "dropout": FloatDistribution(0.0, 0.5),
        "act": CategoricalDistribution(["relu", "gelu"]),
    }
    label = f"optuna {name} on SQLite, {size:,} trials: an ask"
    if name == "gp" and size > GP_SIZE:
        return Figure(label, None, note="its Gaussian process is cubic in the trials")
    rng = random.Random(0)
    study = optuna.create_study(  # the same trials for all samplers: a database takes minutes to fill
        storage=f"sqlite:///{folder}/{size}.sqlite",
        sampler=optuna_sampler(name)(1),
        study_name="one",
        load_if_exists=True,
    )
    for _ in range(size - len(study.trials)):
        params = {
            "lr": 10 ** rng.uniform(-4, -1),
            "layers": rng.randint(1, 8),
            "dropout": rng.uniform(0, 0.5),
            "act": "relu",
        }
        study.add_trial(optuna.trial.create_trial(params=params, distributions=space, value=rng.random()))
    times = []
    for _ in range(MEASURED):
        began = time.process_time()
        trial = study.ask(space)
        times.append((time.process_time() - began) * 1000)
        study.tell(trial, rng.random())
    return Figure(label, statistics.median(times), "ms", note=f"CPU; the first one: {times[0]:.0f}")
