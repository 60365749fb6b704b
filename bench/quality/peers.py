"""What is measured beside detlab's methods: syne-tune in a process of its environment, Optuna's pruners on curves."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quality import reporting
from quality.curves import CurveTask
from quality.kept import Kept

PROGRAM = Path(__file__).parents[1] / "peers" / "quality_syne.py"
OPTUNAS = ("random, halving", "random, hyperband", "tpe, hyperband")
"""A sampler and a pruner."""
SYNES = ("asha", "bohb")
ON_CURVES = (*(f"optuna {name}" for name in OPTUNAS), *(f"syne-tune {name}" for name in SYNES))


@contextmanager
def asking(python: Path | None, *arguments: str) -> Iterator[subprocess.Popen[str] | None]:
    """Start the program that asks syne-tune; None if it is not installed."""
    if python is None:
        yield None
        return
    command = [str(python), str(PROGRAM), *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as syne:
        try:
            yield syne
        finally:
            syne.terminate()


def ask(syne: subprocess.Popen[str], question: str) -> dict[str, Any]:
    """Let it run a search."""
    assert syne.stdin is not None
    assert syne.stdout is not None
    print(question, file=syne.stdin, flush=True)
    answer = syne.stdout.readline()
    if not answer:
        raise SystemExit(f"syne-tune gave no answer to {question!r}: try bench/peers/quality_syne.py by hand")
    found: dict[str, Any] = json.loads(answer)
    return found


def fill(
    kept: Kept, tasks: Sequence[CurveTask], labels: Sequence[str], python: Path | None, seeds: range, until: float
) -> None:
    """Run all searches of peers on curves that are not kept, seed by seed; none begins after `until`."""
    wanted = any(label.startswith("syne-tune") for label in labels)
    with asking(python if wanted else None) as syne:
        for seed in seeds:
            for task in tasks:
                for label in labels:
                    if time.monotonic() > until:
                        return
                    name = label.split(maxsplit=1)[1]
                    if (task.name, label, seed) in kept:
                        continue
                    if label.startswith("optuna"):
                        kept.add((task.name, label, seed), reporting.run(OptunaRungs(name, task, seed), task))
                    elif syne is not None:
                        kept.add((task.name, label, seed), ask(syne, f"{name} {seed} {task.name}"))


class OptunaRungs:
    """A study of Optuna's with a pruner, as its users run it: in memory.

    Args:
        name: "tpe, hyperband", "random, hyperband" or "random, halving": a sampler and a pruner.
        task: Of the search.
        seed: Of the search.
    """

    def __init__(self, name: str, task: CurveTask, seed: int) -> None:
        import optuna
        from optuna import pruners, samplers

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna = optuna
        sampler, pruner = name.split(", ")
        self._study = optuna.create_study(
            sampler=samplers.RandomSampler(seed=seed)
            if sampler == "random"
            else samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True),
            pruner=pruners.HyperbandPruner(min_resource=1, max_resource=task.max_time, reduction_factor=3)
            if pruner == "hyperband"
            else pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3),
            study_name=f"{task.name} {seed}",  # the pruner draws a trial's bracket by it
        )
        self._space = distributions(task.space)

    def ask(self) -> tuple[Any, dict[str, Any]]:
        """Ask the study."""
        trial = self._study.ask(self._space)
        return trial, trial.params

    def report(self, handle: Any, units: int, loss: float) -> bool:
        """Report, and ask the pruner."""
        handle.report(loss, units)
        return bool(handle.should_prune())

    def end(self, handle: Any, loss: float, *, stopped: bool) -> None:
        """Tell the study."""
        states = self._optuna.trial.TrialState
        if stopped:
            self._study.tell(handle, state=states.PRUNED)
        else:
            self._study.tell(handle, loss)


def distributions(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return a space of ints and choices as Optuna's distributions."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return {
        name: IntDistribution(spec["minval"], spec["maxval"])
        if spec["type"] == "int"
        else CategoricalDistribution(spec["vals"])
        for name, spec in space.items()
    }
