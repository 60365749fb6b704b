"""Cron expressions: what they mean, and when they fire next, beside a model that looks at each minute."""

from __future__ import annotations

import calendar
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab_hub.core.schedules import Cron, CronError, next_time

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Asia/Kathmandu"]
"""With clocks that are moved by half an hour, and at midnight."""
LIMITS = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]


def at(text: str, zone: ZoneInfo = BERLIN, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).timestamp()


def times(cron: str, begin: str, count: int, zone: ZoneInfo = BERLIN) -> list[str]:
    found, now = [], at(begin, zone)
    for _ in range(count):
        now = next_time(Cron.parse(cron), now, zone)
        found.append(datetime.fromtimestamp(now, zone).isoformat(timespec="minutes"))
    return found


def test_working_days_at_six() -> None:
    assert times("0 6 * * 1-5", "2026-11-27 06:00", 2) == ["2026-11-30T06:00+01:00", "2026-12-01T06:00+01:00"]
    assert times("0 6 * * mon-FRI", "2026-11-27 06:00", 1) == ["2026-11-30T06:00+01:00"]
    assert times("*/20 0 1 jan *", "2026-11-27 06:00", 3)[1:] == ["2027-01-01T00:20+01:00", "2027-01-01T00:40+01:00"]
    assert times("@monthly", "2026-11-30 23:59", 1) == ["2026-12-01T00:00+01:00"]


def test_what_is_due_at_a_time_that_is_left_out_fires_once_at_the_next_that_there_is() -> None:
    assert times("*/10 2 * * *", "2026-03-28 02:50", 2) == ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"]
    assert times("30 * * * *", "2026-03-29 01:30", 2) == ["2026-03-29T03:00+02:00", "2026-03-29T03:30+02:00"]


def test_what_is_due_at_a_time_that_comes_twice_fires_at_the_first() -> None:
    assert times("30 2 * * *", "2026-10-24 12:00", 2) == ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]
    second = at("2026-10-25 02:10", fold=1)
    assert next_time(Cron.parse("30 2 * * *"), second, BERLIN) == at("2026-10-26 02:30")


def test_days_of_month_and_week_as_in_cron() -> None:
    """Both named: either is enough; one that begins with a star: both must match."""
    assert times("0 0 13 * fri", "2026-11-01 00:00", 3) == [
        "2026-11-06T00:00+01:00",
        "2026-11-13T00:00+01:00",
        "2026-11-20T00:00+01:00",
    ]
    assert times("0 0 */2 * 0", "2026-11-01 00:00", 2) == ["2026-11-15T00:00+01:00", "2026-11-29T00:00+01:00"]
    assert Cron.parse("0 0 * * 7").weekdays == Cron.parse("0 0 * * sun").weekdays == {0}
    assert Cron.parse("0 0 * * fri-sun").weekdays == {5, 6, 0}


def test_rare_days_are_found() -> None:
    assert times("0 0 29 2 *", "2097-01-01 00:00", 1) == ["2104-02-29T00:00+01:00"]
    assert times("0 0 29 2 */7", "2033-01-01 00:00", 1) == ["2060-02-29T00:00+01:00"]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("0 0 30 2 *", "no calendar"),
        ("0 0 31 2,4,6,9,11 *", "no calendar"),
        ("0 6 * *", "has 4 fields"),
        ("0 0 6 * * *", "no seconds"),
        ("", "has 0 fields"),
        ("61 24 0 13 8", "minute: 61"),
        ("a * * * *", "minute: 'a' is not a number"),
        ("٣ * * * *", "minute"),
        ("5-1 * * * *", "ends before it begins"),
        ("*/0 * * * *", "step"),
        ("5/10 * * * *", "write 5-59/10"),
        ("* * L * *", "day of the month: 'L'"),
        ("* * ? * *", "day of the month"),
        ("1,,2 * * * *", "minute"),
        ("@reboot", "'@reboot' is unknown"),
        ("* " * 200, "longer than"),
        ("99999999999999999999 * * * *", "minute"),
        ("00000000000000000001 * * * *", "minute"),
        ("*/00000000000000000001 * * * *", "step"),
    ],
)
def test_what_is_no_expression_is_refused_with_what_is_wrong(text: str, mistake: str) -> None:
    with pytest.raises(CronError, match=mistake.replace("*", r"\*").replace("?", r"\?")):
        Cron.parse(text)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(CronError) as caught:
        Cron.parse("61 24 0 13 8")
    assert len(caught.value.mistakes) == 5


# --- a naive model


def matches(field: str, value: int, least: int, most: int) -> bool:
    for part in field.split(","):
        body, _, step = part.partition("/")
        first, _, last = (f"{least}-{most}" if body == "*" else body).partition("-")
        if value in range(int(first), int(last or first) + 1, int(step or 1)):
            return True
    return False


def due(cron: str, shown: datetime) -> bool:
    minute, hour, day, month, weekday = cron.split()
    rest = ((minute, shown.minute, 0, 59), (hour, shown.hour, 0, 23), (month, shown.month, 1, 12))
    if not all(matches(*one) for one in rest):
        return False
    week = shown.isoweekday() % 7
    days = matches(day, shown.day, 1, 31)
    weeks = matches(weekday, week, 0, 6) or (week == 0 and "*" not in weekday and matches(weekday, 7, 0, 6))
    return days and weeks if day.startswith("*") or weekday.startswith("*") else days or weeks


def model(cron: str, after: float, zone: ZoneInfo, horizon: int) -> float | None:
    """Look at each minute: what clocks show for the first time, and what they have left out since the minute before."""
    start = datetime.fromtimestamp(after // 60 * 60, UTC)
    shown_before = start.astimezone(zone).replace(tzinfo=None)
    latest = shown_before
    for past in range(1, 181):  # the latest that was ever shown: after clocks were moved back, that is ahead
        latest = max(latest, (start - timedelta(minutes=past)).astimezone(zone).replace(tzinfo=None))
    for minutes in range(1, horizon):
        now = start + timedelta(minutes=minutes)
        shown = now.astimezone(zone).replace(tzinfo=None)
        while latest < shown:  # nothing where clocks show again what they have shown
            latest += timedelta(minutes=1)
            if due(cron, latest):
                return now.timestamp()
    return None


@st.composite
def fields(draw: st.DrawFn, least: int, most: int) -> str:
    first = draw(st.integers(least, most))
    last = draw(st.integers(first, most))
    step = draw(st.integers(1, 9))
    forms = ["*", "*", str(first), f"{first}-{last}", f"{first}-{last}/{step}", f"*/{step}", f"{first},{last}"]
    return draw(st.sampled_from(forms))


@settings(max_examples=60, deadline=None)
@given(
    cron=st.tuples(*(fields(*limits) for limits in LIMITS)).map(" ".join),
    zone=st.sampled_from(ZONES),
    moved=st.sampled_from([(3, 8), (3, 29), (4, 5), (10, 4), (10, 25), (11, 1), (7, 15)]),
    minutes=st.integers(-1500, 1500),
    seconds=st.integers(0, 59),
)
def test_the_next_time_is_that_of_a_model_that_looks_at_each_minute(
    cron: str, zone: str, moved: tuple[int, int], minutes: int, seconds: int
) -> None:
    _, _, day, month, weekday = cron.split()
    wanted = [number for number in range(1, 13) if matches(month, number, 1, 12)]
    longest = max(calendar.monthrange(2028, number)[1] for number in wanted)
    there = any(matches(day, one, 1, 31) for one in range(1, longest + 1))
    if not there and (weekday.startswith("*") or day.startswith("*")):
        with pytest.raises(CronError, match="no calendar"):
            Cron.parse(cron)
        return
    parsed = Cron.parse(cron)
    where, horizon = ZoneInfo(zone), 36 * 60
    after = datetime(2026, *moved, tzinfo=UTC).timestamp() + minutes * 60 + seconds
    found, expected = next_time(parsed, after, where), model(cron, after, where, horizon)
    if expected is None:
        assert found > after + (horizon - 1) * 60 - 60
    else:
        assert found == expected
