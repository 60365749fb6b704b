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


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--regex", "nan", "-C", 1), ["loss=0.5", "loss=nan", "loss=inf"]),
        (("--search", "OLD START", "--level", "INFO", "-C", 1), []),
        (("--regex", "start|end", "-C", 1), ["old start", "old warning", "--", "loss=inf", "end"]),
        (("--level", "warning", "-C", 2), ["old start", "old warning", "loss=0.5", "loss=nan", "loss=inf", "end"]),
        (("--regex", "nan", "--since", "10m", "-C", 2), ["loss=0.5", "loss=nan", "loss=inf", "end"]),
        (("--first-error",), ["loss=nan", "loss=inf", "end"]),
        (("--first-error", "-C", 1, "--head", 2), ["loss=0.5", "loss=nan"]),
    ],
)
def test_lines_come_with_what_stands_around_them(lines, det, options, told) -> None:
    result = det("t", "logs", 1, *options)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == told


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("Traceback (most recent call last):", True),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory", True),
        ("RuntimeError: x", True),
        ("KeyboardInterruptException", True),
        ("Segmentation fault (core dumped)", True),
        ("0 errors, validation_error=0.3", False),
        ("ErrorRate: 0.1", False),
        ("mean Error: 3", False),
    ],
)
def test_the_first_error_is_found_by_what_it_says(master, det, text: str, is_one: bool) -> None:
    master.add_experiment()
    master.add_trial(1, state=TrialState.COMPLETED)
    for line in ("begin", text, "after"):
        master.log(1, line, level=None, stdtype="stderr")
    result = det("t", "logs", 1, "--first-error")
    assert result.stdout.splitlines() == ([text, "after"] if is_one else [])
    assert ("has told of no error" in result.stderr) is not is_one


def test_lines_have_their_time_in_utc_or_here(master, det) -> None:
    master.add_experiment()
    master.add_trial(1, state=TrialState.COMPLETED)
    master.log(1, "hello")
    master.logs[:] = [line.model_copy(update={"time": 1_900_000_000.25}) for line in master.logs]
    assert det("t", "logs", 1, "--times", "utc").stdout == "2030-03-17 17:46:40.250Z hello\n"
    here = datetime.fromtimestamp(1_900_000_000.25).isoformat(" ", "milliseconds")
    assert det("t", "logs", 1, "--times", "local").stdout == f"{here} hello\n"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("-C", 2), "-C needs lines to look for"),
        (("-C", 2, "--regex", "x", "-f"), "leave out -f"),
        (("-C", 21, "--regex", "x"), "21 is not in the range"),
        (("--first-error", "--level", "ERROR"), "--first-error shows all lines from there on"),
        (("--first-error", "-f"), "--first-error shows all lines from there on"),
    ],
)
def test_options_that_do_not_go_together_are_refused(lines, det, options, says) -> None:
    result = det("t", "logs", 1, *options)
    assert result.exit_code == 2
    assert says in result.stderr


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
