"""Pictures of what is kept, as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import numpy as np

from quality.curves import CurveTask
from quality.kept import Kept
from quality.noise import band
from quality.rungs import ENTRIES, regret_at
from quality.samplers import METHODS

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#8a6d00", "#7f3fbf", "#404040", "#b22222")
"""Told apart by people who are colour-blind (Okabe and Ito), the first five."""
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 64, 226, 34, 46
SHOWN = ("random", "tpe", "gp", "cmaes", "nsga2", "syne-tune tpe")
SHARES = np.geomspace(0.005, 1.0, 60)


@dataclass
class Chart:
    """Curves with bands over two logarithmic axes."""

    title: str
    across: str
    up: str
    low: tuple[float, float]
    high: tuple[float, float]
    parts: list[str] = field(default_factory=list)
    count: int = 0

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point is drawn."""
        spans = [math.log(high / low) for low, high in zip(self.low, self.high, strict=True)]
        right = math.log(max(x, self.low[0]) / self.low[0]) / spans[0]
        above = math.log(max(y, self.low[1]) / self.low[1]) / spans[1]
        return (
            round(LEFT + right * (WIDTH - LEFT - RIGHT), 1),
            round(HEIGHT - BOTTOM - min(above, 1.0) * (HEIGHT - TOP - BOTTOM), 1),
        )

    def curve(self, label: str, xs: Sequence[float], curves: np.ndarray) -> None:
        """Draw the mean of curves with its band, and name it."""
        mean, low, high = band(curves)
        colour = COLOURS[self.count % len(COLOURS)]
        dash = ' stroke-dasharray="6 3"' if " " in label else ""
        around = [self.place(*point) for point in [*zip(xs, high, strict=True), *zip(xs[::-1], low[::-1], strict=True)]]
        self.parts.append(f'<polygon points="{_text(around)}" fill="{colour}" opacity="0.13"/>')
        line = [self.place(*point) for point in zip(xs, mean, strict=True)]
        self.parts.append(f'<polyline points="{_text(line)}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        y = TOP + 14 + self.count * 19
        x = WIDTH - RIGHT + 14
        self.parts.append(f'<line x1="{x}" y1="{y}" x2="{x + 22}" y2="{y}" stroke="{colour}" stroke-width="2"{dash}/>')
        self.parts.append(f'<text x="{x + 28}" y="{y + 4}">{escape(label)}</text>')
        self.count += 1

    def write(self, file: Path) -> None:
        """Write the picture."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
            f'font-size="12" fill="#222"><rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
            f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(self.title)}</text>'
        )
        file.write_text("\n".join([head, *self._axes(), *self.parts, "</svg>"]) + "\n", encoding="utf-8")

    def _axes(self) -> list[str]:
        made = []
        for mark in _marks(self.low[0], self.high[0]):
            x, y = self.place(mark, self.low[1])
            made.append(f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{y}" stroke="#ddd"/>')
            made.append(f'<text x="{x}" y="{y + 16}" text-anchor="middle">{mark:g}</text>')
        for mark in _marks(self.low[1], self.high[1]):
            x, y = self.place(self.low[0], mark)
            made.append(f'<line x1="{x}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#ddd"/>')
            made.append(f'<text x="{x - 6}" y="{y + 4}" text-anchor="end">{mark:g}</text>')
        middle = (LEFT + WIDTH - RIGHT) / 2
        made.append(f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">{escape(self.across)}</text>')
        made.append(
            f'<text transform="translate(16 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(self.up)}</text>'
        )
        return made


def _text(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def _marks(low: float, high: float) -> list[float]:
    """Return round numbers between the ends of an axis."""
    tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high / low < 150 else (1,)
    return [mark for ten in tens for factor in factors if low * 0.999 <= (mark := factor * 10.0**ten) <= high * 1.001]


def of_samplers(kept: Kept, tasks: Sequence[str], folder: Path) -> None:
    """Draw the regret against trials and against the clock, mean over the tasks of each family and of all."""
    shown = [name for name in SHOWN if name in METHODS and all(kept.of(task, name) for task in tasks)]
    chart = Chart(f"Samplers, mean of {len(tasks)} tasks", "trials", "regret", (5, 0.02), (100, 1.0))
    clock = Chart(
        "The same, on the clock", "time, 1 = as long as random search takes", "regret", (0.05, 0.02), (1.0, 1.0)
    )
    for name in shown:
        rows = {task: kept.of(task, name) for task in tasks}
        seeds = sorted(set.intersection(*(set(found) for found in rows.values())))
        least = min(len(rows[task][seed]["regret"]) for task in tasks for seed in seeds)
        curves = np.array([[rows[task][seed]["regret"][:least] for task in tasks] for seed in seeds]).mean(1)
        xs = list(range(5, least + 1))
        chart.curve(name, xs, curves[:, 4:])
        if least >= 100:
            clock.curve(name, list(CLOCK), np.array([_by_clock(kept, tasks, name, seed) for seed in seeds]))
    chart.write(folder / "samplers-trials.svg")
    clock.write(folder / "samplers-clock.svg")


CLOCK = np.geomspace(0.05, 1.0, 40)


def _by_clock(kept: Kept, tasks: Sequence[str], name: str, seed: int) -> np.ndarray:
    """Return a seed's regret at parts of the time that random search takes, mean over the tasks."""
    found = np.zeros(len(CLOCK))
    for task in tasks:
        whole = np.median([row["clock"][-1] for row in kept.of(task, "random").values()])
        row = kept.of(task, name)[seed]
        places = np.searchsorted(np.asarray(row["clock"]) / whole, CLOCK, side="right") - 1
        found += [1.0 if place < 0 else min(1.0, row["regret"][place]) for place in places]
    return found / len(tasks)


def of_curves(kept: Kept, networks: Sequence[CurveTask], many: Sequence[CurveTask], folder: Path) -> None:
    """Draw the regret against the share of the budget, for the networks and for LCDB."""
    groups: Mapping[str, tuple[str, Sequence[CurveTask]]] = {
        "rungs-networks.svg": ("1,200 networks on each of three data sets", networks),
        "rungs-lcdb.svg": (f"Learners on {len(many)} tasks of LCDB", many),
    }
    for file, (title, tasks) in groups.items():
        names = [task.name for task in tasks]
        across = "budget, 1 = all of random search's trials to their ends"
        chart = Chart(title, across, "regret", (0.005, 0.001 if file == "rungs-networks.svg" else 0.01), (1.0, 1.0))
        for label in ENTRIES:
            if label.startswith(("random +", "tpe +")) or not all(kept.of(name, label) for name in names):
                continue
            chart.curve(label, list(SHARES), _regrets(kept, names, label))
        if chart.count:
            chart.write(folder / file)


def _regrets(kept: Kept, tasks: Sequence[str], label: str) -> np.ndarray:
    """Return curves whose spread is that of the seeds: a row for each seed, mean over the tasks."""
    rows = {task: kept.of(task, label) for task in tasks}
    seeds = sorted(set.intersection(*(set(found) for found in rows.values())))
    return np.array(
        [[np.mean([regret_at(rows[task][seed], share) for task in tasks]) for share in SHARES] for seed in seeds]
    )
