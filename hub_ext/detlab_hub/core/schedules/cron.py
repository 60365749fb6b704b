"""Cron expressions of five fields, and the next time at which one fires in a time zone.

A day counts if day of the month and day of the week both match; where neither of the two begins with `*`, one of them
is enough: that is cron's own rule (crontab(5)). Clocks that are moved: what is due at a time that is left out fires
once, at the first time that there is; what is due at a time that comes twice fires at the first of the two.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

TEXT_CHARS, MOST_DIGITS = 200, 9
NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
GREGORIAN_CYCLE = 400
"""Years after which dates fall on the same days of the week again: what is not in them, never is."""
LAST_YEAR = 9998
_PART = re.compile(r"(?P<first>\*|\w+)(?:-(?P<last>\w+))?(?:/(?P<step>\w+))?", re.ASCII)


class CronError(ValueError):
    """An expression that is none, or that no calendar meets.

    Attributes:
        mistakes: All of them, for people.
    """

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = mistakes


@dataclass(frozen=True)
class _Field:
    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()

    def number(self, text: str) -> int:
        """Read a number or a name.

        Raises:
            ValueError: It is neither, or out of range.
        """
        word = text.lower()
        if word in self.names:
            return self.names.index(word) + self.least
        if not _is_number(word):
            known = f" or one of {', '.join(self.names)}" if self.names else ""
            raise ValueError(f"{self.name}: {text[:40]!r} is not a number{known}")
        number = int(word)
        if not self.least <= number <= self.most:
            raise ValueError(f"{self.name}: {number} is not between {self.least} and {self.most}")
        return number


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 7, _DAYS),
)
_SUNDAY = 7
"""Sunday is 0, and at the end of a range 7."""


@dataclass(frozen=True)
class Cron:
    """An expression.

    Attributes:
        text: As it was written.
        minutes: In ascending order, as all of these.
        hours: 0 to 23.
        days: Of the month.
        months: 1 to 12.
        weekdays: 0 is Sunday.
        either: Whether one of `days` and `weekdays` is enough.
    """

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: frozenset[int]
    either: bool

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Read an expression: five fields, or `@daily` and the like.

        Raises:
            CronError: With all mistakes; or no calendar has such a day.
        """
        words = NICKNAMES.get(text.strip().lower(), text).split()
        _check_form(text, words)
        values, mistakes = [], []
        for field, word in zip(_FIELDS, words, strict=True):
            try:
                values.append(_values(field, word))
            except ValueError as error:
                mistakes.append(str(error))
        if mistakes:
            raise CronError(mistakes)
        minutes, hours, days, months, weekdays = values
        either = not words[2].startswith("*") and not words[4].startswith("*")
        found = cls(
            text.strip(),
            tuple(sorted(minutes)),
            tuple(sorted(hours)),
            tuple(sorted(days)),
            tuple(sorted(months)),
            frozenset(day % _SUNDAY for day in weekdays),
            either,
        )
        # Of a day that a month has, all days of the week come round: within 28 years, of 29 February within 400.
        if not either and not any(day <= calendar.monthrange(2000, month)[1] for month in months for day in days):
            raise CronError([f"no calendar has such a day: {found.text!r}"])
        return found

    def dates(self, first: date) -> Iterator[date]:
        """Yield the days on which it fires, from a day on, for as long as dates do not repeat."""
        for year in range(first.year, min(first.year + GREGORIAN_CYCLE, LAST_YEAR) + 1):
            for month in self.months:
                if (year, month) < (first.year, first.month):
                    continue
                longest = calendar.monthrange(year, month)[1]
                for day in range(1, longest + 1) if self.either else self.days:
                    if day > longest:
                        break
                    found = date(year, month, day)
                    if found >= first and self._matches(found):
                        yield found

    def _matches(self, day: date) -> bool:
        of_month, of_week = day.day in self.days, day.isoweekday() % _SUNDAY in self.weekdays
        return of_month or of_week if self.either else of_month and of_week


def next_time(cron: Cron, after: float, zone: tzinfo) -> float:
    """Return the first time later than `after` at which an expression fires.

    Args:
        cron: The expression.
        after: Seconds since the epoch.
        zone: Where its fields are read.

    Returns:
        Seconds since the epoch; infinity if there is none in the years that dates have.
    """
    # From the day before: clocks that are moved back at midnight show the day before again.
    local = datetime.fromtimestamp(after, zone).replace(tzinfo=None)
    for day in cron.dates(local.date() - timedelta(days=1)):
        for hour in cron.hours:
            for minute in cron.minutes:
                at = instant(datetime(day.year, day.month, day.day, hour, minute), zone)
                if at > after:
                    return at
    return float("inf")


def instant(local: datetime, zone: tzinfo) -> float:
    """Return when clocks show a time first; one that is left out is the first time after it that there is.

    Args:
        local: Without a time zone.
        zone: Of the clocks.
    """
    before, after = (local.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta() for fold in (0, 1))
    naive = local.replace(tzinfo=UTC)
    if after <= before:  # it is there, once or twice
        return (naive - before).timestamp()
    # It is left out: clocks are moved between what it is by the offset after the move, and by that before.
    low, high = (naive - after).timestamp(), (naive - before).timestamp()
    while high - low > 1:
        middle = (low + high) // 2
        moved = datetime.fromtimestamp(middle, zone).utcoffset() == after
        low, high = (low, middle) if moved else (middle, high)
    return high


def _check_form(text: str, words: list[str]) -> None:
    if len(text) > TEXT_CHARS:
        raise CronError([f"is longer than {TEXT_CHARS} characters"])
    if text.strip().startswith("@") and len(words) == 1:
        raise CronError([f"{text.strip()!r} is unknown: {', '.join(NICKNAMES)}"])
    if len(words) != len(_FIELDS):
        names = ", ".join(field.name for field in _FIELDS)
        more = "; cron has no seconds" if len(words) == len(_FIELDS) + 1 else ""
        raise CronError([f"has {len(words)} fields, not five ({names}){more}"])


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= MOST_DIGITS


def _values(field: _Field, word: str) -> set[int]:
    found: set[int] = set()
    for part in word.split(","):
        found |= _part(field, part)
    return found


def _part(field: _Field, part: str) -> set[int]:
    match = _PART.fullmatch(part)
    if match is None or (match["first"] == "*" and match["last"]):
        raise ValueError(f"{field.name}: {part[:40]!r} is none of *, 5, 1-5, */10, 1-30/5 and lists of these")
    step = 1
    if match["step"] is not None:
        if not _is_number(match["step"]) or int(match["step"]) < 1:
            raise ValueError(f"{field.name}: the step {match['step'][:40]!r} is not a number from 1 on")
        step = int(match["step"])
    if match["first"] == "*":
        most = field.most - 1 if field.names == _DAYS else field.most
        return set(range(field.least, most + 1, step))
    first = field.number(match["first"])
    if match["last"] is None:
        if match["step"] is not None:
            raise ValueError(f"{field.name}: a step needs a range: write {first}-{field.most}/{step}")
        return {first}
    last = field.number(match["last"])
    if field.names == _DAYS and last == 0 < first:
        last = _SUNDAY
    if last < first:
        raise ValueError(f"{field.name}: {part} ends before it begins: write it as two ranges")
    return set(range(first, last + 1, step))
