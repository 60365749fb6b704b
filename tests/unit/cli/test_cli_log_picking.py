"""Lines of output by level, stream, time and regular expression, alone and together with `--tail` and `--head`."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from detlab.cli.output.log_filters import moment_of
from detlab.schemas.wire import TrialState


@pytest.fixture
def lines(master):
    """Six lines, of which the first two are an hour old."""
    master.add_experiment()
    master.add_trial(1, state=TrialState.COMPLETED)
    for text, level, stdtype in (
        ("old start", None, "stdout"),
        ("old warning", "WARNING", "stderr"),
        ("loss=0.5", "INFO", "stdout"),
        ("loss=nan", "ERROR", "stdout"),
        ("loss=inf", None, "stderr"),
        ("end", "INFO", "stdout"),
    ):
        master.log(1, text, level=level, stdtype=stdtype)
    now = time.time()
    master.logs[:] = [
        line.model_copy(update={"time": now - (3600 if number < 2 else 1)}) for number, line in enumerate(master.logs)
    ]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--level", "warning"), ["old warning", "loss=nan"]),
        (("--level", "INFO"), ["old warning", "loss=0.5", "loss=nan", "end"]),
        (("--stream", "stderr"), ["old warning", "loss=inf"]),
        (("--since", "10m"), ["loss=0.5", "loss=nan", "loss=inf", "end"]),
        (("--until", "10m"), ["old start", "old warning"]),
        (("--regex", "loss=(nan|inf)"), ["loss=nan", "loss=inf"]),
        (("--regex", "^loss", "--tail", 2), ["loss=nan", "loss=inf"]),
        (("--regex", "^loss", "--head", 1), ["loss=0.5"]),
        (("--regex", "^loss", "--level", "ERROR", "--search", "loss"), ["loss=nan"]),
        (("--regex", "^loss", "-f"), ["loss=0.5", "loss=nan", "loss=inf"]),
        (("--regex", "^loss", "-f", "--tail", 1), ["loss=inf"]),
        (("--regex", "^loss", "-f", "--tail", 0), []),
    ],
)
def test_lines_are_picked(lines, det, options, told) -> None:
    result = det("t", "logs", 1, *options)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == told


def test_a_choice_that_fits_nothing_says_so(lines, det) -> None:
    assert "has no output like that" in det("t", "logs", 1, "--regex", "nothing").stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--regex", "("), "is not a regular expression"),
        (("--since", "yesterday"), "is no time"),
        (("--until", "1e400"), "is no time"),
        (("--level", "LOUD"), "LOUD"),
    ],
)
def test_a_wrong_choice_is_named(lines, det, options, said) -> None:
    result = det("t", "logs", 1, *options)
    assert result.exit_code == 2
    assert said in result.stderr


def test_times_are_ago_or_dates() -> None:
    assert [moment_of(text, 1e6) for text in ("90s", "10m", "1.5h", "2d")] == [999910.0, 999400.0, 994600.0, 827200.0]
    assert moment_of("2026-03-01T12:30+00:00", 0.0) == datetime(2026, 3, 1, 12, 30, tzinfo=UTC).timestamp()
    assert moment_of("2026-03-01T12:30", 0.0) == datetime(2026, 3, 1, 12, 30).astimezone().timestamp()
