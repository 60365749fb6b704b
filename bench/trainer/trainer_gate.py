"""What the trainer's bench measures with: a gate inside the model, and the processes it makes take turns.

Each row (a loop or a framework) is a process of its own that trains once, from beginning to end. The gate sits in the
model's forward pass, so every row pays the same for it (0.1 us); every so many steps it stops until the bench says
"go". So the rows take turns, a block of steps each: set-up, validation and the end of training lie outside the blocks,
reports and the change of epochs inside.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

NEEDS = {
    "hand-written": "torch",
    "hand-written again": "torch",
    "detlab": "detlab.pytorch",
    "Lightning": "lightning",
    "Fabric": "lightning",
    "Accelerate": "accelerate",
    "HF Trainer": "transformers",
}
"""Row -> the module that it needs."""
BATCH = 64
"""Samples of a batch."""
RETURN = 50
"""Steps of a block that are not timed: caches are cold after a pause."""
PATIENCE = 180.0
"""Seconds until a row that says nothing is given up."""
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Memory that was freed is kept. Else each step of a CNN gives pages back and faults them in again, or does not, as
    # the heap happens to lie: processes of one and the same loop then differ by more than what is to be measured.
    "MALLOC_TRIM_THRESHOLD_": str(2**31),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),  # the most that glibc takes
}
"""Of every row's processes, beside the bench's own."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """What a row trains: which case, and how many blocks of how many steps, each after `rest` that do not count."""

    case: str
    steps: int
    blocks: int
    rest: int = RETURN

    @property
    def length(self) -> int:
        """Batches in all; the first block starts after as many unmeasured steps, one more follows the last."""
        return self.steps + self.blocks * (self.steps + self.rest) + 1


@dataclass
class Gate:
    """Times blocks of steps; `tick` is called once per step, at the beginning of the forward pass."""

    connection: Connection
    course: Course
    seen: int = 0
    begun: tuple[float, float] = (0.0, 0.0)
    _next: int = field(init=False)
    _then: Callable[[], None] = field(init=False)

    def __post_init__(self) -> None:
        self._next, self._then = self.course.steps, self._wait

    def tick(self) -> None:
        self.seen += 1
        if self.seen == self._next:
            self._then()

    def _wait(self) -> None:
        """A block has ended, or the warm-up: say how long it took, and wait for the next turn."""
        wall, cpu = self.begun
        self.connection.send((time.perf_counter() - wall, time.process_time() - cpu))
        if self.connection.recv() == "go":
            self._next, self._then = self.seen + self.course.rest, self._start

    def _start(self) -> None:
        self._next, self._then = self.seen + self.course.steps, self._wait
        self.begun = time.perf_counter(), time.process_time()


class RowFailedError(Exception):
    """A row's process ended before its time.

    Args:
        message: What happened, with the last line that it wrote.
        words: All that it wrote.
    """

    def __init__(self, message: str, words: str) -> None:
        super().__init__(message)
        self.words = words


class Row:
    """One row's process, or one process per rank, as the bench sees it."""

    def __init__(self, name: str, folder: Path, *, ranks: int = 1) -> None:
        self.name = name
        self._folder = folder / name.replace(" ", "-")
        self._folder.mkdir()
        self._log = self._folder / "log"
        address = str(self._folder / "socket")
        self._server = socket.create_server(address, family=socket.AF_UNIX)
        self._server.settimeout(1.0)
        self._ranks: list[Connection] = []
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, *_launcher(ranks), str(Path(__file__).with_name("trainer_rows.py")), name, address],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={**os.environ, **ENVIRONMENT},
            )
        self._expected = ranks

    def meet(self) -> None:
        """Wait until all its ranks have started.

        Raises:
            RowFailedError: They have not.
        """
        deadline = time.monotonic() + PATIENCE
        while len(self._ranks) < self._expected:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise self._failed("it did not start")
            with contextlib.suppress(TimeoutError):
                accepted, _ = self._server.accept()
                accepted.setblocking(True)
                self._ranks.append(Connection(accepted.detach()))

    def ask(self, word: Any) -> None:
        for rank in self._ranks:
            rank.send(word)

    def answer(self) -> Any:
        """Wait for what all ranks say, and return the greatest."""
        try:
            return max(rank.recv() for rank in self._ranks if rank.poll(PATIENCE) or self._silent())
        except (EOFError, ConnectionError) as error:
            raise self._failed("it ended") from error

    def _silent(self) -> bool:
        raise self._failed(f"nothing came for {PATIENCE:.0f} s")

    def _failed(self, what: str) -> RowFailedError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)  # its last words may be on their way
        words = self._log.read_text(encoding="utf-8", errors="replace").strip()
        errors = re.findall(r"^[\w.]+(?:Error|Exception|Warning)\b.*", words, re.MULTILINE)
        said = errors[0] if errors else words.rpartition("\n")[2] or "it said nothing"
        return RowFailedError(f"{what}: {said}", words)

    def close(self) -> None:
        self._server.close()
        for rank in self._ranks:
            rank.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _launcher(ranks: int) -> list[str]:
    return [] if ranks == 1 else ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]


@dataclass(kw_only=True)
class Taken:
    """What one row took.

    Attributes:
        wall: Microseconds per step of each block, by the clock.
        cpu: The same of processor time, all its threads together (with ranks: the rank that took most).
        loss: The trained model's mean loss over the data.
    """

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    loss: float = math.nan

    def join(self, other: Taken) -> None:
        """Take in what the row took in another round."""
        self.wall += other.wall
        self.cpu += other.cpu
        self.loss = other.loss


class Turned(Protocol):
    """A row that stands at its gate: told "go" or "end", it answers when it has trained that far."""

    name: str

    def ask(self, word: Any) -> None: ...

    def answer(self) -> Any: ...


def warm_up(row: Row, course: Course) -> None:
    """Let a row train up to its first block, alone: all at once would take as long and be no warmer."""
    row.ask(course)
    row.answer()


def take_turns(rows: Sequence[Turned], course: Course) -> dict[str, Taken]:
    """Train all rows, a block each in turn; they are at their first block already (`warm_up`)."""
    found = {row.name: Taken() for row in rows}
    for block in range(course.blocks):
        shift = block % len(rows)
        for row in rows[shift:] + rows[:shift]:  # nobody is always the first
            row.ask("go")
            wall, cpu = row.answer()
            found[row.name].wall.append(wall / course.steps * 1e6)
            found[row.name].cpu.append(cpu / course.steps * 1e6)
    for row in rows:
        row.ask("end")
        found[row.name].loss = row.answer()
    return found


def serve(address: str, train: Callable[[Course, Gate], float]) -> None:
    """In a row's process: train each course that the bench sends, until it hangs up."""
    meeting = socket.socket(socket.AF_UNIX)
    meeting.connect(address)
    with Connection(meeting.detach()) as connection:
        while True:
            try:
                course = connection.recv()
            except EOFError:
                return
            connection.send(train(course, Gate(connection, course)))
