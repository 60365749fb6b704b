"""`report_media`: whatever is reported, the training goes on, and one warning says what was not logged."""

from __future__ import annotations

import errno
import json
import logging
from pathlib import Path
from typing import Any

import pytest

import detlab as det
from detlab import core
from detlab.core.metrics.media import MediaReporter, MediaSpool
from detlab.media import kinds


def waiting(folder: Path) -> list[dict[str, Any]]:
    """What the launcher finds, in order."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "media"


def test_objects_wait_in_order_with_what_they_are(folder: Path) -> None:
    reporter = MediaReporter(MediaSpool(folder))
    reporter.report(3, {"a/ü": [det.Image([[1]], caption="one"), det.Image([[2]])], "t": "text"})
    facts = waiting(folder)
    assert [(one["key"], one["step"], one["place"], one["kind"], one["caption"]) for one in facts] == [
        ("a/ü", 3, 0, "image", "one"),
        ("a/ü", 3, 1, "image", ""),
        ("t", 3, 0, "text", ""),
    ]
    assert [path.read_bytes() for path in sorted(folder.glob("*.bin"))][2] == b"text"
    assert folder.stat().st_mode & 0o777 == 0o700


class Explodes:
    """Raises whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(f"no {name}")


class Bad(det.media.Media):
    kind = "image"

    def _encode(self) -> tuple[str, bytes]:
        raise MemoryError("too large")


@pytest.mark.parametrize(
    "value",
    [object(), None, 5, Explodes(), Bad(), det.Image(object()), det.Image("/nowhere.png"), [[1, 2]], {"a": 1}],
    ids=lambda v: type(v).__name__,
)
def test_a_bad_object_is_one_warning_that_names_key_type_and_cause(
    folder: Path, caplog: pytest.LogCaptureFixture, value: Any
) -> None:
    reporter = MediaReporter(MediaSpool(folder))
    with caplog.at_level(logging.WARNING):
        for step in range(5):
            reporter.report(step, {"samples": value, "good": "text"})
    (said,) = [record.getMessage() for record in caplog.records]
    assert "'samples'" in said
    assert "was not logged" in said
    assert len(waiting(folder)) == 5, "what is good is logged"


@pytest.mark.parametrize(
    ("steps", "media"),
    [("3", {}), (2**60, {}), (1.5, {}), (None, {}), (3, [det.Text("x")]), (3, None), (float("nan"), {})],
    ids=["text", "huge", "fraction", "none", "list", "nothing", "nan"],
)
def test_a_bad_report_is_a_warning(folder: Path, caplog: pytest.LogCaptureFixture, steps: Any, media: Any) -> None:
    MediaReporter(MediaSpool(folder)).report(steps, media)
    assert "a report was not logged" in caplog.text


@pytest.mark.parametrize("key", ["", "k" * 201, "a\0b", 5, None], ids=repr)
def test_a_bad_key_is_a_warning(folder: Path, caplog: pytest.LogCaptureFixture, key: Any) -> None:
    MediaReporter(MediaSpool(folder)).report(1, {key: "text", "../good": "text"})
    assert "a key is a text of 1 to 200 characters" in caplog.text
    assert [one["key"] for one in waiting(folder)] == ["../good"], "a key is no path"


def test_other_ranks_are_told_and_log_nothing(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    reporter = MediaReporter(MediaSpool(folder), rank=2)
    for step in range(3):
        reporter.report(step, {"a": "text"})
    assert caplog.text.count("reported by the chief (rank 0), and this is rank 2") == 1
    assert not folder.exists()


def test_more_than_a_hundred_of_a_key_are_left_out(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    MediaReporter(MediaSpool(folder)).report(1, {"a": ["t"] * 130})
    assert len(waiting(folder)) == kinds.MOST_AT_ONCE
    assert "30 more than 100 were left out" in caplog.text


def test_while_the_master_is_away_only_so_much_waits(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    reporter = MediaReporter(MediaSpool(folder, most=1000))
    for step in range(20):
        reporter.report(step, {"a": "x" * 300})
    before = len(waiting(folder))
    assert before <= 3
    assert "wait for the master, and more are not kept" in caplog.text
    for path in folder.iterdir():  # the master is back
        path.unlink()
    reporter.report(20, {"a": "x" * 300})
    assert [one["step"] for one in waiting(folder)] == [20]


def test_a_full_disk_leaves_nothing_half(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *args: Any, **more: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    MediaReporter(MediaSpool(folder)).report(1, {"a": "text"})
    assert "No space left on device" in caplog.text
    assert list(folder.iterdir()) == []


def test_off_cluster_media_are_checked_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    context = core.DummyTrainContext()
    with caplog.at_level(logging.INFO):
        context.report_media(3, {"a": det.Image([[1, 2]]), "b": object()})
    assert "media 'a' at step 3: image" in caplog.text
    assert "'b' (object) was not logged" in caplog.text
