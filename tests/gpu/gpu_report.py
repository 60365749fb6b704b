"""What a check is given and what it leaves: figures, and a verdict. Standard library only."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


class SkippedError(Exception):
    """This machine cannot run the check; the message says why."""


@dataclass(frozen=True)
class Figure:
    """One row of the table at the end.

    Attributes:
        label: What was measured or read.
        value: The figure with its unit.
        note: What stands beside it.
    """

    label: str
    value: str
    note: str = ""


@dataclass
class Run:
    """How a check runs.

    Attributes:
        cpu: A rehearsal without a GPU.
        quick: As little of everything as shows that it works.
        folder: The check's own, empty.
        figures: What it has found so far.
    """

    cpu: bool
    quick: bool
    folder: Path
    figures: list[Figure] = field(default_factory=list)

    @property
    def device(self) -> str:
        """The type of device that trials train on."""
        return "cpu" if self.cpu else "cuda"

    def figure(self, label: str, value: str, note: str = "") -> None:
        """Keep a row, and print it for who watches."""
        self.figures.append(Figure(label, value, note))
        print(f"  {label}: {value}{f' ({note})' if note else ''}", flush=True)


@dataclass(frozen=True)
class Verdict:
    """How a check ended: `PASS`, `FAIL` or `SKIP`, with the reason of the latter two."""

    name: str
    outcome: str
    reason: str = ""
    seconds: float = 0.0
    figures: tuple[Figure, ...] = ()

    def write(self, path: Path) -> None:
        """Leave it for `read`."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Verdict:
        """Read what `write` left.

        Raises:
            OSError: The check died before it wrote anything.
            ValueError: What it wrote is not whole.
        """
        found = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**found, "figures": tuple(Figure(**figure) for figure in found["figures"])})


def table(verdicts: list[Verdict]) -> str:
    """Return all verdicts and figures in Markdown, as docs/reference/benchmarks.md takes them."""
    lines = ["| check | result | seconds | |", "|---|---|---|---|"]
    lines += [f"| {v.name} | {v.outcome} | {v.seconds:.0f} | {_cell(v.reason)} |" for v in verdicts]
    lines += ["", "| measured | figure | beside |", "|---|---|---|"]
    lines += [
        f"| {v.name}: {_cell(figure.label)} | {_cell(figure.value)} | {_cell(figure.note)} |"
        for v in verdicts
        for figure in v.figures
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())[:300]
