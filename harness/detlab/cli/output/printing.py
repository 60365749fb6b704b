"""Printing tables, facts, JSON and notes. Texts of users are never markup and never control the terminal."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click
from pydantic import BaseModel

from detlab.schemas.wire import encode_floats
from detlab.schemas.wire.storage import size_text
from detlab.visible import no_formula, visible

if TYPE_CHECKING:
    from rich.console import Console

# CSI, OSC (to BEL or ST) and the other escape sequences, seven- and eight-bit.
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c]*(?:\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
PIPE_WIDTH = 200
WHOLE = 32
"""Characters of the longest word of a column that is not divided while there is room: the id of a run."""
NARROWEST = 6
"""Characters of a column that takes room from others no more."""
ELSEWHERE = "--csv, --json or a wider terminal has them"
READABLE = 16
"""Characters of a column at least, where its values have as many: a number, a name."""
SEPARATION = 3
"""Characters between two columns."""
NAMED = 5
"""How many columns that are left out are named."""
STYLES = {
    "COMPLETED": "green",
    "ERROR": "red",
    "CANCELED": "yellow",
    "RUNNING": "cyan",
    "ACTIVE": "cyan",
    "PAUSED": "magenta",
    "connected": "green",
    "suspect": "yellow",
    "lost": "red",
}
"""Colours of the states, on a terminal."""


class Shown(str):
    """A value as a person reads it, which knows what a program reads in its place: in CSV, that is written.

    Attributes:
        value: Seconds for a span, seconds since the epoch for a time, bytes for a size, a plain number for the rest.
    """

    value: float | int | None

    def __new__(cls, text: str, value: float | int | None) -> Shown:
        """Make one of its text and value."""
        made = super().__new__(cls, text)
        made.value = value
        return made


def clean(text: object, *, lines: bool = False) -> str:
    """Return a user's text without anything that a terminal would obey.

    Args:
        text: Anything with a text form.
        lines: Keep line ends; else they become spaces.
    """
    found = visible(_SEQUENCES.sub("", str(text)), write=lambda _: "")
    return found if lines else " ".join(found.split("\n"))


def console(*, err: bool = False) -> Console:
    """Return a console that reads no markup; colours only on a terminal and without NO_COLOR."""
    from rich.console import Console

    stream = sys.stderr if err else sys.stdout
    terminal = stream.isatty()
    return Console(
        file=stream,
        markup=False,
        highlight=False,
        emoji=False,
        force_terminal=None if terminal else False,
        # In a kernel, too, a command's text goes where it is told to, not to a cell by itself.
        force_jupyter=False,
        # Wide enough that no cell of a piped table is cut.
        width=None if terminal else PIPE_WIDTH,
    )


def say(text: str = "") -> None:
    """Print one line of ours to standard output; user text in it must be clean."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Print one line to standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def plain(value: Any) -> Any:
    """Return models, at any depth, as plain data."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def say_json(value: Any) -> None:
    """Print strict JSON: non-finite numbers are the texts "NaN", "Infinity" and "-Infinity"."""
    say(json_text(json.dumps(encode_floats(plain(value)), indent=2, allow_nan=False, ensure_ascii=False)))


def say_yaml(value: Any) -> None:
    """Print plain data as YAML, which a config is read back from as it was."""
    from detlab.schemas.expconf.raw.dumping import dump_yaml

    say(clean(dump_yaml(value), lines=True).rstrip())


def json_text(text: str) -> str:
    """Return JSON of the same meaning without what a terminal would obey: JSON itself escapes only some of it."""
    return visible(text, write=lambda found: json.dumps(found)[1:-1])


def hidden_note(count: int, noun: str, limit: int | None = None) -> str:
    """Say of an empty list that archived ones are hidden, and how to see them; empty if there are none.

    Args:
        count: Of those that are hidden.
        noun: What they are.
        limit: At most so many were asked for.
    """
    if not count:
        return ""
    most = "At least " if limit is not None and count >= limit else ""
    return f"{most}{counted(count, f'archived {noun}')} {'is' if count == 1 else 'are'} hidden: --all shows them."


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    right: Iterable[str] = (),
    choose: str | None = None,
    spare: Sequence[str] = (),
) -> None:
    """Print a table, as CSV if the command was asked for that; all texts are cleaned.

    CSV is for programs: what is `Shown` is written as its value there, and other numbers in full.

    Args:
        columns: Their names; the important ones come first.
        rows: The values.
        right: Columns whose values are aligned to the right.
        choose: For columns that users make, of any number: those for which there is no room are left out, and a line
            to standard error says so, and how to see them.
        spare: Columns that a narrow terminal leaves out, this one first, until the words of the others fit.
    """
    if wants_csv():
        _say_csv([columns, *rows])
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    aligned = set(right)
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    out = console()
    found = list(rows)
    number = len(columns) if choose is None else _fitting(columns, found, out.width)
    texts = [[clean(show(value)) for value in row] for row in found]
    kept, widths = _widths(columns[:number], texts, out.width, spare)
    for index, width in zip(kept, widths, strict=True):
        justify: Literal["left", "right"] = "right" if columns[index] in aligned else "left"
        grid.add_column(Text(clean(columns[index])), justify=justify, overflow="fold", width=width)
    for row, said in zip(found, texts, strict=True):
        grid.add_row(*(Text(said[index], style=STYLES.get(str(row[index]), "")) for index in kept))
    out.print(grid)
    left = [clean(column) for index, column in enumerate(columns) if index not in kept]
    if left:
        names = ", ".join(left[:NAMED]) + (", …" if len(left) > NAMED else "")
        note(f"{counted(len(left), 'column')} left out ({names[:200]}): {choose or ELSEWHERE}")


def _widths(
    columns: Sequence[str], rows: Sequence[Sequence[str]], room: int, spare: Sequence[str]
) -> tuple[list[int], list[int | None]]:
    """Return which columns are shown and how wide, so that words are divided only where there is no other way.

    Args:
        columns: Their names.
        rows: The texts.
        room: Characters of a line.
        spare: Columns that may be left out, this one first.
    """
    from rich.cells import cell_len

    cells = [[clean(column), *(row[index] for row in rows)] for index, column in enumerate(columns)]
    full = [max(map(cell_len, each)) for each in cells]
    words = [min(WHOLE, max((cell_len(word) for text in each for word in text.split()), default=1)) for each in cells]
    kept = list(range(len(columns)))

    def over(widths: Sequence[int]) -> int:
        return sum(widths[index] for index in kept) + SEPARATION * (len(kept) - 1) - room

    if over(full) <= 0:
        return kept, [None] * len(kept)
    for name in spare:
        if over(words) > 0 and name in columns and len(kept) > 1:
            kept.remove(columns.index(name))
    widths = [full[index] for index in kept]
    for floors in ([words[index] for index in kept], [min(NARROWEST, words[index]) for index in kept]):
        while sum(widths) + SEPARATION * (len(kept) - 1) > room:
            widest = max(range(len(kept)), key=lambda index: widths[index] if widths[index] > floors[index] else 0)
            if widths[widest] <= floors[widest]:
                break
            widths[widest] -= 1
    return kept, list(widths)


def _fitting(columns: Sequence[str], rows: Sequence[Sequence[Any]], width: int) -> int:
    """Return how many of the columns a line of `width` holds if each gets what it needs, `READABLE` at most."""
    room = width
    for index, column in enumerate(columns):
        needed = max(len(column), *(len(show(row[index])) for row in rows)) if rows else len(column)
        room -= min(needed, READABLE) + (SEPARATION if index else 0)
        if room < 0 and index:
            return index
    return len(columns)


def wants_csv() -> bool:
    """Return whether the command that runs was asked for CSV."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get("detlab.csv"))


def _say_csv(rows: Iterable[Sequence[Any]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)
    say(text.getvalue().removesuffix("\n"))


def _cell(value: Any) -> Any:
    if isinstance(value, Shown):
        value = value.value
    if value is None or isinstance(value, int | float):
        return value
    return no_formula(clean(value))


def facts(rows: Iterable[tuple[str, Any]]) -> None:
    """Print `name  value` lines for the values that are set."""
    kept = [(name, show(value)) for name, value in rows if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in kept), default=0)
    for name, value in kept:
        say(f"{name:<{width}}  {clean(value)}")


def show(value: Any) -> str:
    """Return a value as a person reads it."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 instance`, `2 instances`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size(count: float) -> Shown:
    """Return a number of bytes as text."""
    return Shown(size_text(count), count)


def moment(seconds: float | None) -> Shown:
    """Return a time as local date and time."""
    text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else ""
    return Shown(text, seconds or None)


def duration(seconds: float | None) -> Shown:
    """Return a span as `1h 02m`, `3m 04s` or `5s`."""
    if seconds is None or not math.isfinite(seconds):
        return Shown("", None)
    return Shown(_span(seconds), round(seconds, 3))


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"


def settings(values: dict[str, Any], most: int = 120) -> str:
    """Return hyperparameters as one line."""
    line = ", ".join(f"{key}={show(value)}" for key, value in values.items())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def in_full(values: Mapping[str, Any]) -> str:
    """Return hyperparameters or their space as one line in the style of YAML: `lr: {type: log, minval: -4}`."""
    import yaml

    line = yaml.safe_dump(
        dict(values), default_flow_style=True, sort_keys=False, width=float("inf"), allow_unicode=True
    )
    return line.strip().removeprefix("{").removesuffix("}")
