"""What a step of `Trainer.fit` costs over a loop written by hand, to a few microseconds: both in one process.

python bench/trainer/trainer_paired.py STEPS TURNS CASE...      started by bench/trainer/trainer.py

Two processes of one and the same loop differ by up to 100 us per step, as their memory happens to lie. Here the rows
are threads of one process, one of which trains at a time: they share the heap, and take short turns, so that even a
slow drift of the machine hits all alike. Each row has its own model, optimizer, data and loader.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import threading
from multiprocessing import Pipe
from pathlib import Path

import torch
from trainer_gate import BATCH, PATIENCE, Course, Gate, Taken, take_turns
from trainer_rows import LOOPS, Task

ROWS = ("hand-written", "hand-written again", "detlab")
GOAL = 30.0
"""Microseconds per step over the loop written by hand."""
REST = 5
"""Steps of a turn that are not timed: in one process the code is warm already, only the row's own data is cold."""


class Thread:
    """A row that trains in a thread of this process; speaks as `trainer_gate.Row` does."""

    def __init__(self, name: str, course: Course) -> None:
        self.name = name
        self._here, there = Pipe()
        self._thread = threading.Thread(target=self._train, args=(course, Gate(there, course)), name=name, daemon=True)
        self._thread.start()
        self.answer()  # it stands before its first turn

    def _train(self, course: Course, gate: Gate) -> None:
        torch.set_num_threads(1)  # of this thread's parallel regions
        with gate.connection:  # closed when a row fails: whoever waits for it hears of it
            task = Task(course, gate)
            LOOPS[self.name](task)
            gate.connection.send(task.reached())

    def ask(self, word: str) -> None:
        self._here.send(word)

    def answer(self) -> object:
        """Wait for what it says.

        Raises:
            EOFError: It has failed; the thread has printed why.
            TimeoutError: Nothing came.
        """
        if not self._here.poll(PATIENCE):
            raise TimeoutError(f"{self.name}: nothing came for {PATIENCE:.0f} s")
        return self._here.recv()


def table(title: str, found: dict[str, Taken]) -> str:
    """One line per row: the median difference in the same turn, its standard error and its quartiles."""
    lines = [
        f"\n{title}",
        f"  {'row':20}{'us/step':>9}{'over':>9}{'+-':>6}{'quartiles':>20}{'CPU over':>10}{'loss':>9}",
    ]
    base = found["hand-written"]
    for name, taken in found.items():
        over = [mine - hand for mine, hand in zip(taken.wall, base.wall, strict=True)]
        over_cpu = statistics.median(mine - hand for mine, hand in zip(taken.cpu, base.cpu, strict=True))
        low, middle, high = statistics.quantiles(over, n=4)
        # A median's standard error is 1.25 times a mean's; the quartiles of a normal lie 1.35 deviations apart.
        error = 1.25 * (high - low) / 1.35 / len(over) ** 0.5
        rest = "" if taken is base else f"{middle:+9.1f}{error:6.1f}{f'{low:+.0f} … {high:+.0f}':>20}{over_cpu:+10.1f}"
        lines.append(f"  {name:20}{statistics.median(taken.wall):9.1f}{rest:45}{taken.loss:9.4f}")
    return "\n".join(lines)


def main() -> None:
    steps, turns = map(int, sys.argv[1:3])
    torch.set_num_threads(1)
    for case in sys.argv[3:]:
        course = Course(case=case, steps=steps, blocks=turns, rest=REST)
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):  # what the loops report
            found = take_turns([Thread(name, course) for name in ROWS], course)
        title = f"Step in one process: {case}, one thread, batch size {BATCH}; {turns} turns of {steps} steps"
        print(table(title, found), flush=True)
    print(f"  goal: detlab at most {GOAL:.0f} us over hand-written")


if __name__ == "__main__":
    main()
