"""The master's log quotes its callers."""

import json
import logging
import sys

import pytest

from detlab_hub.services.cluster.log_lines import JsonLines, OneLine, RecentLines


def test_a_caller_cannot_forge_a_line_or_move_the_operators_cursor():
    said = "there is no checkpoint \x1b[2J\x9b1m\r\n2026-01-01 ERROR detlab: forged\x00 für Ünal 🙂"
    record = logging.LogRecord("detlab.web", logging.INFO, __file__, 1, "GET x: %s", (said,), None)
    line = OneLine("%(levelname)s %(message)s").format(record)
    assert line.isprintable()
    assert line == (
        "INFO GET x: there is no checkpoint \\x1b[2J\\x9b1m\\r\\n2026-01-01 ERROR detlab: forged\\x00 für Ünal 🙂"
    )


def _record(text: str, *args: object, level: int = logging.INFO, **more: object) -> logging.LogRecord:
    return logging.LogRecord("detlab.web", level, __file__, 1, text, args, more.get("exc_info"))  # type: ignore[arg-type]


def test_lines_for_programs_are_an_object_each() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = _record("said %s", "a\nb \ud800", level=logging.ERROR, exc_info=sys.exc_info())
    line = JsonLines().format(record)
    assert "\n" not in line
    said = json.loads(line)
    assert (said["level"], said["logger"], said["message"]) == ("error", "detlab.web", "said a\nb \ud800")
    assert "ValueError: two\nlines" in said["exception"]


def test_the_newest_lines_are_kept_and_paged() -> None:
    recent = RecentLines(most=5)
    for number in range(8):
        recent.handle(_record("line %d", number, level=logging.WARNING if number % 2 else logging.INFO))
    newest = recent.page(limit=2)
    assert ([one.text for one in newest.items], newest.last, newest.dropped) == (["line 6", "line 7"], 8, 3)
    assert [one.text for one in recent.page(limit=9, least=logging.WARNING).items] == ["line 3", "line 5", "line 7"]
    first = recent.page(after=0, limit=3)
    assert ([one.id for one in first.items], first.last) == ([4, 5, 6], 6)
    second = recent.page(after=first.last, limit=3)
    assert ([one.id for one in second.items], second.last) == ([7, 8], 8)
    assert recent.page(after=8, limit=3).items == []
    assert [one.id for one in recent.page(limit=9, search="LINE 5").items] == [6]
    assert len(recent.page(after=0, limit=9, search="detlab.WEB").items) == 5


def test_what_cannot_be_written_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    recent = RecentLines()
    recent.handle(_record("%d", "no number"))
    recent.handle(_record("forged\n\x1b[2J \ud800" + "x" * 20_000))
    (line,) = recent.page().items
    assert line.text.startswith("forged\\n\\x1b[2J \\ud800x")
    assert len(line.text) < 9_000
    line.model_dump_json()
