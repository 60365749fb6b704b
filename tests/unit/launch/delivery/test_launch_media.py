"""Media on their way to the master: in order, through outages, each until it is settled; a refusal is said once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qs, urlsplit

import pytest

import detlab as det
from detlab.core.metrics.media import MediaReporter, MediaSpool
from detlab.launch.delivery.media import MediaSender
from detlab.launch.delivery.sender import TransportError

Answer = Callable[[dict[str, str]], tuple[int, dict[str, Any]]]


class Master:
    """Takes files, or not."""

    def __init__(self, answer: Answer = lambda _: (200, {})) -> None:
        self.answer = answer
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.away = 0
        self.closed = False

    def put_file(self, path: str, file: BinaryIO, size: int, token: str) -> tuple[int, bytes]:
        assert token == "secret"
        if self.away:
            self.away -= 1
            raise TransportError("gone")
        facts = {name: one for name, (one,) in parse_qs(urlsplit(path).query).items()}
        body = file.read()
        assert len(body) == size
        status, reply = self.answer(facts)
        if status == 200:
            self.taken.append((facts, body))
        return status, json.dumps(reply).encode()

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "media"


def report(folder: Path, *texts: str) -> None:
    reporter = MediaReporter(MediaSpool(folder))
    for step, text in enumerate(texts):
        reporter.report(step, {"k&=/ü": det.Text(text, caption="c")})


def sent(folder: Path, master: Master, timeout: float = 20.0) -> tuple[int, list[str], MediaSender]:
    """Send what is there; return how many are left, and what was said."""
    said: list[str] = []
    sender = MediaSender(lambda: master, folder, lambda: "secret", said.append)
    sender.start()
    return sender.finish(timeout), said, sender


def test_all_arrive_in_order_and_nothing_is_left(folder: Path) -> None:
    master = Master()
    report(folder, "a", "b", "c")
    assert sent(folder, master)[:2] == (0, [])
    assert [body for _, body in master.taken] == [b"a", b"b", b"c"]
    first = dict(master.taken[0][0])
    assert abs(float(first.pop("logged_at")) - time.time()) < 60
    assert first == {
        "key": "k&=/ü",
        "step": "0",
        "place": "0",
        "kind": "text",
        "media_type": "text/plain",
        "caption": "c",
    }
    assert list(folder.iterdir()) == []
    assert master.closed


def test_an_outage_is_waited_out(folder: Path) -> None:
    master = Master()
    master.away = 2
    report(folder, "a", "b")
    assert sent(folder, master)[0] == 0
    assert [body for _, body in master.taken] == [b"a", b"b"]


@pytest.mark.parametrize("status", [401, 429, 500, 502, 503])
def test_what_may_pass_is_tried_again(folder: Path, status: int) -> None:
    answers: Iterator[tuple[int, dict[str, Any]]] = iter([(status, {}), (200, {})])
    master = Master(lambda _: next(answers))
    report(folder, "a")
    assert sent(folder, master)[0] == 0
    assert len(master.taken) == 1


@pytest.mark.parametrize("status", [400, 403, 404, 405, 409, 413, 422])
def test_a_refusal_is_said_once_and_the_next_goes_on(folder: Path, status: int) -> None:
    told = {"code": "media.refused", "message": "it is no image"}
    master = Master(lambda facts: (200, {}) if facts["step"] == "2" else (status, told))
    report(folder, "a", "b", "c", "d")
    left, said, sender = sent(folder, master)
    assert (left, sender.dropped, [body for _, body in master.taken]) == (0, 3, [b"c"])
    (line,) = said
    assert "it is no image" in line
    assert list(folder.iterdir()) == []


def test_a_newer_attempt_ends_it(folder: Path) -> None:
    master = Master(lambda _: (409, {"code": "stale_attempt", "message": "attempt 2 owns it now"}))
    report(folder, "a", "b")
    assert sent(folder, master)[:2] == (0, [])


def test_a_master_that_stays_away_is_given_up_and_counted(folder: Path) -> None:
    master = Master()
    master.away = 10**6
    report(folder, "a", "b")
    assert sent(folder, master, timeout=1.0)[0] == 2


def test_what_something_else_put_into_the_folder_ends_nothing(folder: Path) -> None:
    master = Master()
    report(folder, "a")
    (folder / "0.json").write_text("{")
    (folder / "1.json").write_text('{"key": 1}')
    (folder / "2.json").mkdir()
    (folder / "9.bin").write_text("alone")
    left, said, _ = sent(folder, master, timeout=5.0)
    assert [body for _, body in master.taken] == [b"a"]
    assert "cannot be read" in said[0]
    assert left <= 1


def test_where_nothing_is_logged_nothing_is_asked(folder: Path) -> None:
    def never() -> Master:
        raise AssertionError

    sender = MediaSender(never, folder, lambda: "secret", lambda _: None)
    sender.start()
    assert sender.finish() == 0
