"""A task's code can write into its own spool: that is noticed, nothing counts twice, and what follows is delivered."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab.launch.delivery.output import LogSpool
from detlab.launch.delivery.spool import IDLE_POLLS, MAX_GAP, MAX_LINE, Damage, SpoolReader, open_regular

MANY = 10**6


def line(seq: int, text: str = "x" * 40) -> bytes:
    return json.dumps({"kind": "metrics", "seq": seq, "text": text}).encode() + b"\n"


class Metrics:
    """A spool as the Core API writes it: appended to the file that lies there, the count in a file beside it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "metrics.jsonl"
        self.last = 0
        self.reader = SpoolReader(lambda: open_regular(self.path), expects=1, written=lambda: self.last)

    def append(self, count: int = 1) -> None:
        with self.path.open("ab") as file:
            for _ in range(count):
                self.last += 1
                file.write(line(self.last))

    def read(self) -> list[int]:
        return [entry.seq for entry in self.reader.read(MANY, MANY)]

    def settled(self) -> list[int]:
        """Read as a delivery does that is to finish."""
        found = self.read()
        while not self.reader.settle():
            found += self.read()
        return found


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Metrics]:
    made = Metrics(tmp_path)
    yield made
    made.reader.close()


def test_an_ordinary_spool_has_no_damage(spool: Metrics) -> None:
    for _ in range(3):
        spool.append(2)
        assert len(spool.read()) == 2
    assert spool.settled() == []
    assert spool.reader.damage == Damage()
    assert not spool.reader.damage


def test_cut_off_after_it_was_read_nothing_is_lost_and_what_follows_comes(spool: Metrics) -> None:
    spool.append(5)
    spool.read()
    os.truncate(spool.path, 0)
    assert spool.read() == []
    spool.append(2)
    assert spool.read() == [6, 7]
    assert spool.settled() == []
    assert spool.reader.damage == Damage(shrunk=1)


def test_cut_off_before_it_was_read_the_lost_ones_are_counted(spool: Metrics) -> None:
    spool.append(5)
    spool.read()
    spool.append(3)
    os.truncate(spool.path, 0)
    spool.append()
    assert spool.read() == [9]
    assert spool.reader.damage == Damage(shrunk=1, lost=3)


def test_cut_off_with_nothing_after_it_is_found_at_the_end_and_nobody_waits_for_it(spool: Metrics) -> None:
    spool.append(4)
    os.truncate(spool.path, 0)
    assert spool.settled() == []
    assert (spool.reader.damage, spool.reader.seq) == (Damage(lost=4), 4)
    spool.append()
    assert spool.read() == [5]
    assert spool.reader.damage.lost == 4


def test_a_record_that_is_just_being_counted_is_not_lost(spool: Metrics) -> None:
    spool.append()
    spool.read()
    spool.last += 1  # appended and counted after our read
    for _ in range(IDLE_POLLS):
        spool.read()
    with spool.path.open("ab") as file:
        file.write(line(2))
    assert spool.read() == [2]
    assert spool.settled() == []
    assert not spool.reader.damage


@pytest.mark.parametrize("cut", [1, 30, 77, 100, 150])
def test_cut_off_in_the_middle_of_a_line_it_is_read_again_from_its_start(spool: Metrics, cut: int) -> None:
    """The Core API cuts the torn line off before it appends."""
    spool.append(3)
    spool.read()
    whole = spool.path.read_bytes()[:cut]
    spool.path.write_bytes(whole[: whole.rfind(b"\n") + 1])
    spool.append(2)
    assert spool.settled() == [4, 5]
    assert spool.reader.damage.lost == 0
    assert spool.reader.damage.shrunk <= 1


def test_cut_off_and_grown_beyond_what_was_read_between_two_looks(spool: Metrics) -> None:
    spool.append(3)
    spool.read()
    os.truncate(spool.path, 0)
    spool.append(9)
    assert spool.read() == [4, 5, 6, 7, 8, 9, 10, 11, 12], "found before our offset, in their order"
    assert spool.reader.damage.lost == 0


def test_another_file_in_its_place_is_read_once_the_old_one_is(spool: Metrics) -> None:
    spool.append(3)
    assert spool.read() == [1, 2, 3]
    spool.path.rename(spool.path.with_name("away"))
    spool.append(2)
    assert [seq for _ in range(IDLE_POLLS + 1) for seq in spool.read()] == [4, 5], "within a second, the task going on"
    other = spool.path.with_name("other")
    other.write_bytes(line(5) + line(6))
    spool.last = 6
    other.rename(spool.path)
    assert spool.settled() == [6]
    assert spool.reader.damage == Damage(replaced=2)


def test_a_removed_file_is_waited_for(spool: Metrics) -> None:
    spool.append(3)
    spool.read()
    spool.path.unlink()
    assert spool.settled() == []
    spool.append()
    assert spool.settled() == [4]
    assert spool.reader.damage == Damage(replaced=1)


def test_numbers_that_go_back_are_noticed_and_count_once(spool: Metrics) -> None:
    spool.append(3)
    with spool.path.open("ab") as file:
        file.write(line(2, "another value") + line(1))
    spool.append()
    assert spool.read() == [1, 2, 3, 4]
    assert spool.reader.damage == Damage(repeated=2)


def test_a_forged_number_does_not_hide_what_follows(spool: Metrics) -> None:
    spool.append(2)
    with spool.path.open("ab") as file:
        file.write(line(2 + MAX_GAP + 1) + line(10**30) + b'{"seq": true}\n{"seq": -5}\n')
    spool.append(2)
    assert spool.read() == [1, 2, 3, 4]
    assert spool.reader.damage.lost == 0


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_of_a_hundred_megabytes_is_passed_over_in_bounded_memory(spool: Metrics, end: bytes) -> None:
    spool.append(2)
    with spool.path.open("ab") as file:
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(b"\n" + line(3) + end)
    spool.last = 3
    tracemalloc.start()
    try:
        assert spool.settled() == [1, 2, 3]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * MAX_LINE


def test_a_garbage_line_without_an_end_holds_up_nothing_before_it(spool: Metrics) -> None:
    spool.append(2)
    with spool.path.open("ab") as file:
        for _ in range(20):
            file.write(b"x" * (1 << 20))
    assert spool.settled() == [1, 2]


@pytest.mark.parametrize("size", [10_000, 100 << 20, 1 << 42])
def test_a_hole_of_any_size_is_leapt_over(spool: Metrics, size: int) -> None:
    spool.append(2)
    os.truncate(spool.path, size)
    spool.append(2)
    assert spool.settled() == [1, 2, 3, 4]
    assert spool.reader.damage.lost == 0


class Logs:
    """The launcher's own spool, whose writer never looks where the file ends."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "logs.jsonl"
        self.spool = LogSpool(self.path)
        self.reader = SpoolReader(
            self.spool.open_reader, expects=1, end=lambda: self.spool.size, written=lambda: self.spool.last
        )

    def say(self, *texts: str) -> None:
        self.spool.write("stdout", [text.encode() for text in texts])

    def read(self) -> list[str]:
        return [json.loads(entry.line)["text"] for entry in self.reader.read(MANY, MANY)]


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    made = Logs(tmp_path)
    yield made
    made.reader.close()
    made.spool.close()


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def extended(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"garbage\n" * 1000)


def widened(path: Path) -> None:
    os.truncate(path, 1 << 40)


def replaced(path: Path) -> None:
    path.unlink()
    path.write_bytes(line(1) + line(10**6))


@pytest.mark.parametrize("harm", [emptied, extended, widened, replaced])
def test_output_that_follows_is_delivered_whatever_was_done_to_its_spool(
    logs: Logs, harm: Callable[[Path], None]
) -> None:
    logs.say("a", "b")
    assert logs.read() == ["a", "b"]
    harm(logs.path)
    logs.say("c")
    assert logs.read() == ["c"]
    logs.say("d")
    assert logs.read() == ["d"]
    assert logs.reader.settle()
    assert logs.reader.damage.lost == 0


def test_output_that_was_cut_off_before_it_was_read_is_counted(logs: Logs) -> None:
    logs.say("a", "b")
    emptied(logs.path)
    logs.say("c")
    assert logs.read() == ["c"]
    assert logs.reader.damage.lost == 2


ACTS = st.lists(st.sampled_from(["append", "read", "empty", "cut", "replace", "garbage", "hole", "older"]), max_size=25)


@settings(max_examples=150, deadline=None)
@given(ACTS)
def test_whatever_is_done_no_record_comes_twice_or_out_of_order_and_all_are_there_or_lost(
    tmp_path_factory: pytest.TempPathFactory, acts: list[str]
) -> None:
    spool = Metrics(tmp_path_factory.mktemp("spool"))
    spool.append()
    found: list[int] = []
    for act in acts:
        size = spool.path.stat().st_size if spool.path.exists() else 0
        match act:
            case "append":
                spool.append(2)
            case "read":
                found += spool.read()
            case "empty":
                os.truncate(spool.path, 0)
            case "cut":
                whole = spool.path.read_bytes()[: size // 2]
                spool.path.write_bytes(whole[: whole.rfind(b"\n") + 1])
            case "replace":
                spool.path.rename(spool.path.with_name("away"))
                spool.append()
            case "garbage":
                with spool.path.open("ab") as file:
                    file.write(b'{"seq": "no"}\n\xff\n')
            case "hole":
                os.truncate(spool.path, size + 100_000)
            case "older":
                with spool.path.open("ab") as file:
                    file.write(line(1))
    found += spool.settled()
    spool.append()
    found += spool.settled()
    spool.reader.close()
    assert found == sorted(set(found))
    assert found[-1] == spool.last, "what follows is delivered"
    assert len(found) + spool.reader.damage.lost == spool.last, "each is delivered or counted as lost"
