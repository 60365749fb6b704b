"""The import of event files: which ones are read, how far, and what becomes of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from detlab.core.event_files import finding, importing
from detlab.media import EncodedMedia
from detlab.media.signals import write_png
from testbed.event_files import BEGAN, Importing, event, field, file_of, first, name, record, scalar, value_of


def put(folder: Path, *events: bytes, at: float = BEGAN, number: int = 0) -> Path:
    """Write an event file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name(number)
    path.write_bytes(file_of(*events, at=at))
    return path


def test_a_file_is_read_as_it_grows_and_nothing_twice(tmp_path: Path) -> None:
    path = put(tmp_path / "runs" / "x", event(scalar("loss", 1.0), step=0))
    work = Importing(tmp_path).look()
    rest = record(event(scalar("loss", 0.5), step=1)) + record(event(scalar("loss", 0.25), step=2))
    for byte in range(0, len(rest), 7):
        with path.open("ab") as file:
            file.write(rest[byte : byte + 7])
        work.look()
    assert work.taken.points == [("loss", 0, 1.0), ("loss", 1, 0.5), ("loss", 2, 0.25)]
    assert not work.said


def test_numbers_of_one_step_are_one_report_with_its_time(tmp_path: Path) -> None:
    put(
        tmp_path,
        event(scalar("a", 1.0), step=3, at=BEGAN + 5),
        event(scalar("b", 2.0), scalar("c", 3.0), step=3, at=BEGAN + 6),
        event(scalar("a", 4.0), step=4, at=12.0),
        event(scalar("a", 5.0), step=-7, at=BEGAN + 1e9),
    )
    taken = Importing(tmp_path).look().taken
    assert taken.reports == [
        (3, {"a": 1.0, "b": 2.0, "c": 3.0}, BEGAN + 6),
        (4, {"a": 4.0}, BEGAN + 1000),
        (0, {"a": 5.0}, BEGAN + 1000),
    ]


def test_names_that_a_metric_cannot_have_become_near_ones(tmp_path: Path) -> None:
    put(tmp_path, event(scalar("acc@1 <b>", 1.0), scalar("../x", 2.0), scalar("y" * 5000, 3.0)))
    assert [len(one) if one.startswith("y") else one for one, _, _ in Importing(tmp_path).look().taken.points] == [
        "acc_1 _b_",
        "__/x",
        250,
    ]


# --- again = no double ------------------------------------------------------------------------------------


def test_files_of_an_earlier_attempt_are_not_imported_again(tmp_path: Path) -> None:
    """A trial that resumes may bring its folder of events with it, in its code or from a checkpoint."""
    put(tmp_path / "runs", event(scalar("loss", 1.0), step=0))
    first_attempt = Importing(tmp_path).look()
    put(tmp_path / "runs", event(scalar("loss", 0.5), step=1, at=BEGAN + 500), at=BEGAN + 500, number=1)
    second = Importing(tmp_path, since=BEGAN + 400).look()
    assert first_attempt.taken.points == [("loss", 0, 1.0)]
    assert second.taken.points == [("loss", 1, 0.5)]
    assert [one for one in second.said if "begun before this run" in one]


def test_a_copy_of_a_file_is_not_imported_again(tmp_path: Path) -> None:
    put(tmp_path / "runs", event(scalar("loss", 1.0)))
    work = Importing(tmp_path).look()
    shutil.copytree(tmp_path / "runs", tmp_path / "best")
    assert work.look().taken.points == [("loss", 0, 1.0)]


def test_a_file_that_is_replaced_or_cut_off_is_not_read_from_its_start(tmp_path: Path) -> None:
    path = put(tmp_path, event(scalar("loss", 1.0)), event(scalar("loss", 2.0), step=1))
    work = Importing(tmp_path).look()
    path.unlink()
    put(tmp_path, event(scalar("loss", 1.0)))
    assert work.look().taken.points == [("loss", 0, 1.0), ("loss", 1, 2.0)]
    assert len(work.said) == 1
    assert "replaced or cut off" in work.said[0]


# --- folders ----------------------------------------------------------------------------------------------


def test_what_add_scalars_writes_below_a_writer_has_its_folder_in_its_name(tmp_path: Path) -> None:
    put(tmp_path / "runs" / "Nov30_host", event(scalar("loss", 1.0)))
    put(tmp_path / "runs" / "Nov30_host" / "loss_train", event(scalar("loss", 2.0)), number=1)
    assert Importing(tmp_path).look().taken.points == [("loss", 0, 1.0), ("loss_train/loss", 0, 2.0)]


def test_the_time_by_which_add_hparams_names_a_folder_is_in_no_name(tmp_path: Path) -> None:
    """It differs from trial to trial, so the metric could not be compared."""
    put(tmp_path / "runs" / "x", event(scalar("loss", 1.0)))
    put(tmp_path / "runs" / "x" / "1796028583.9676049", event(scalar("hp/metric", 3.0)), number=1)
    assert Importing(tmp_path).look().taken.points == [("loss", 0, 1.0), ("hp/metric", 0, 3.0)]


def test_folders_of_training_and_validation_say_so_whichever_is_first(tmp_path: Path) -> None:
    put(tmp_path / "logs" / "validation", event(scalar("epoch_loss", 2.0)))
    put(tmp_path / "logs" / "train", event(scalar("epoch_loss", 1.0)), number=1)
    points = Importing(tmp_path).look().taken.points
    assert points == [("validation/epoch_loss", 0, 2.0), ("training/epoch_loss", 0, 1.0)]


def test_of_several_writers_the_later_ones_are_told_apart(tmp_path: Path) -> None:
    put(tmp_path / "b", event(scalar("loss", 1.0)))
    put(tmp_path / "a", event(scalar("loss", 2.0)), number=1)
    assert Importing(tmp_path).look().taken.points == [("loss", 0, 1.0), ("a/loss", 0, 2.0)]


def test_what_the_trainer_reports_itself_is_not_imported(tmp_path: Path) -> None:
    put(tmp_path / "own" / "rank0", event(scalar("detlab/loss", 1.0), scalar("mine", 2.0)))
    put(tmp_path / "own" / "rank0" / "else", event(scalar("detlab/loss", 1.0)), number=1)
    put(tmp_path / "other", event(scalar("detlab/loss", 3.0)), number=2)
    work = Importing(tmp_path, own=tmp_path / "own").look()
    assert sorted(one for one, _, _ in work.taken.points) == ["detlab/loss", "mine"]


# --- ranks and open files ---------------------------------------------------------------------------------

WRITER = """
import sys
file = open(sys.argv[1], "ab")
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def writers() -> Iterator[Callable[..., int]]:
    """Start processes that have an event file open, with a rank."""
    started: list[subprocess.Popen[str]] = []

    def start(path: Path, rank: str | None, code: str = WRITER) -> int:
        env = {key: value for key, value in os.environ.items() if key != "RANK"}
        env |= {} if rank is None else {"RANK": rank}
        process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=-1, stdout=-1, text=True, env=env)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        return process.pid

    yield start
    for process in started:
        process.communicate("")


def test_of_several_ranks_the_files_of_the_first_are_read(tmp_path: Path, writers: Callable[..., int]) -> None:
    """Wherever they are, and also where all ranks write into one folder."""
    seen = []
    for rank in ("0", "1"):
        path = put(tmp_path / "anywhere", event(scalar("loss", float(rank))), number=int(rank))
        seen.append(writers(path, rank))
    one = put(tmp_path / "looked_at", event(scalar("of_rank_1", 1.0)))
    one.rename(one.with_name(name(0, process=seen[1])))
    work = Importing(tmp_path / "looked_at", processes=lambda: seen).look()
    assert work.taken.points == [("loss", 0, 0.0)]


def test_a_file_that_is_only_read_by_a_process_is_not_its_own(tmp_path: Path, writers: Callable[..., int]) -> None:
    path = put(tmp_path / "old", event(scalar("loss", 1.0)))
    process = writers(path, None, WRITER.replace('"ab"', '"rb"'))
    assert not Importing(tmp_path / "none", processes=lambda: [process]).look().taken.points


# --- hostile ----------------------------------------------------------------------------------------------


def test_links_pipes_and_folders_are_refused(tmp_path: Path) -> None:
    secret = put(tmp_path / "elsewhere", event(scalar("secret", 1.0)))
    place = tmp_path / "place"
    put(place, event(scalar("loss", 1.0)), number=9)
    (place / name(1)).symlink_to(secret)
    os.mkfifo(place / name(2))
    (place / name(3)).mkdir()
    (place / name(4)).symlink_to("/dev/zero")
    (place / "linked").symlink_to(secret.parent)
    work = Importing(place).look()
    assert work.taken.points == [("loss", 0, 1.0)]
    assert len(work.said) == 1, "a warning, once"


def test_one_warning_for_each_trouble_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / name()
    good = [record(event(scalar("loss", float(step)), step=step)) for step in range(4)]
    bad = record(b"\xff" * 30) + record(b"x", damaged=True)
    path.write_bytes(record(first()) + good[0] + bad + good[1] + bad + good[2] + record(b"x", length=2**63) + good[3])
    work = Importing(tmp_path).look().look()
    assert [step for _, step, _ in work.taken.points] == [0, 1, 2]
    assert len(work.said) == 2
    assert all("training goes on" in one for one in work.said)


def test_what_is_said_has_no_codes_for_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / f"\x1b[31m{name()}"
    path.write_bytes(b"no event file at all")
    (said,) = Importing(tmp_path).look().said
    assert said.isprintable()


def test_a_search_looks_at_so_many_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "MOST_IN_FOLDER", 20)
    put(tmp_path / "runs", event(scalar("loss", 1.0)))
    for number in range(100):
        (tmp_path / "data" / str(number)).mkdir(parents=True)
    assert [path.parent.name for path in finding.in_folders([tmp_path])] == ["runs"]
    monkeypatch.setattr(finding, "MOST_ENTRIES", 2)
    assert not finding.in_folders([tmp_path])


def test_files_names_and_bytes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "MOST_FILES", 3)
    monkeypatch.setattr(importing, "MOST_NAMES", 4)
    for number in range(6):
        put(tmp_path / str(number), *[event(scalar(f"n{number}{tag}", 1.0)) for tag in range(3)], number=number)
    work = Importing(tmp_path).look()
    assert len(work.taken.points) == 4
    assert len(work.said) == 2
    monkeypatch.setattr(importing, "MOST_BYTES", 10)
    assert not Importing(tmp_path).look().taken.reports[5:]


def test_of_thousands_of_objects_some_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "ALL_OF_KEY", 5)
    monkeypatch.setattr(importing, "TENTH_OF_KEY", 30)
    image = value_of("i", field(4, field(4, write_png(1, 1, 1, [b"a"]))))
    put(tmp_path, *[event(image, step=step) for step in range(1, 301)])
    work = Importing(tmp_path).look()
    assert [step for _, step, _, _ in work.taken.objects] == [1, 2, 3, 4, 5, 10, 20, 30, 100, 200, 300]
    assert len(work.said) == 1


def test_an_object_that_is_none_is_said_and_the_next_is_kept(tmp_path: Path) -> None:
    bad, good = (value_of("i", field(4, field(4, body))) for body in (b"\x80\x04pickle", write_png(1, 1, 1, [b"a"])))
    put(tmp_path, event(bad), event(good, step=1))
    work = Importing(tmp_path).look()
    assert [(key, step) for key, step, _, _ in work.taken.objects] == [("i", 1)]
    assert "by its first bytes" in work.said[0]


class Full:
    """A target whose disk is full."""

    def metrics(self, step: int, values: dict[str, float], at: float) -> None:
        raise OSError(28, "No space left on device")

    def media(self, key: str, step: int, place: int, encoded: EncodedMedia) -> None:
        raise OSError(28, "No space left on device")


def test_nothing_that_goes_wrong_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = value_of("i", field(4, field(4, write_png(1, 1, 1, [b"a"]))))
    put(tmp_path, event(scalar("a", 1.0)), event(image))
    said: list[str] = []
    importing.EventImport(Full(), [tmp_path, tmp_path / "none"], said.append, since=BEGAN).look(last=True)
    assert len(said) == 2
    broken = importing.EventImport(Full(), [tmp_path], said.append, since=BEGAN, poll=0.01)
    monkeypatch.setattr(importing, "in_folders", lambda _: 1 / 0)
    broken.start()
    assert broken.finish(10)
    assert "ZeroDivisionError" in said[-1]


def test_the_end_waits_no_longer_than_it_may(tmp_path: Path) -> None:
    free = threading.Event()

    class Waits(Full):
        def metrics(self, step: int, values: dict[str, float], at: float) -> None:
            free.wait()

    put(tmp_path, event(scalar("a", 1.0)))
    said: list[str] = []
    work = importing.EventImport(Waits(), [tmp_path], said.append, since=BEGAN, poll=0.01)
    work.start()
    assert not work.finish(0.1)
    assert "could not be read within 0.1 s" in said[0]
    free.set()
    assert work.finish(10)
