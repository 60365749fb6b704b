"""`%det_report`: the words of `det report` in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detlab.cli.commands.finding.report import report
from detlab.client import Client
from detlab.reports import WrittenReport
from detlab_magics.commandwords import carry_out, words_of
from detlab_magics.completion import Completion
from detlab_magics.errors import MagicError
from detlab_magics.kernel import KernelSession


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the client was asked to report."""
    found: list[dict[str, Any]] = []

    def made(self: Client, path: Path, **wanted: Any) -> WrittenReport:
        found.append(wanted)
        return WrittenReport(path, 2048, 2, 1, ["Only the newest 2 experiments are here."])

    monkeypatch.setattr(Client, "report", made)
    return found


@pytest.fixture
def session() -> Iterator[KernelSession]:
    with Client("http://hub.example", "t") as client:
        yield KernelSession(connected=client)


def told(session: KernelSession, line: str) -> str:
    return carry_out(report, "%det_report", session, words_of(line))


def test_the_words_are_those_of_the_command(session: KernelSession, asked: list[dict[str, Any]]) -> None:
    said = told(session, "--project vision/digits --experiment 7 --title 'Two words' -o x.ipynb")
    assert said.splitlines() == ["Only the newest 2 experiments are here.", "x.ipynb: 2 experiments, 1 run, 2.0 KiB"]
    [wanted] = asked
    assert (wanted["project"], wanted["experiments"], wanted["title"]) == ("vision/digits", (7,), "Two words")


def test_notes_are_read_from_their_file(session: KernelSession, asked: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "why.md").write_text("Why", encoding="utf-8")
    told(session, f"--run baseline --notes {tmp_path / 'why.md'}")
    assert (asked[0]["notes"], asked[0]["notes_file"]) == ("Why", str(tmp_path / "why.md"))
    (tmp_path / "why.md").write_bytes(b"\xff\xfe")
    with pytest.raises(MagicError, match="cannot be read"):
        told(session, f"--run baseline --notes {tmp_path / 'why.md'}")


def test_mistakes_are_short_and_help_needs_no_cluster(session: KernelSession, asked: list[dict[str, Any]]) -> None:
    with pytest.raises(MagicError, match="name what it is of"):
        told(session, "")
    with pytest.raises(MagicError, match=r"\.html or \.ipynb"):
        told(session, "--run x -o x.pdf")
    with pytest.raises(MagicError, match="cannot be split"):
        told(session, "--title 'open")
    assert "Write a report" in carry_out(report, "%det_report", KernelSession(), ["--help"])
    assert asked == []


def test_options_are_completed(session: KernelSession) -> None:
    word, offers = Completion(session, {}).offers([], "%det_report --fil")
    assert (word, offers) == ("--fil", ["--filter"])
