"""What a launcher leaves in the output of its job, and what is found there."""

from __future__ import annotations

import io
import json

import pytest

from detlab.launch.delivery import undelivered
from detlab.launch.taskdir import TaskDir


@pytest.fixture
def task(tmp_path):
    found = TaskDir(tmp_path)
    found.spool.mkdir()
    return found


def records(count: int, text: str = "line") -> str:
    return "".join(json.dumps({"seq": seq, "text": f"{text} {seq}"}) + "\n" for seq in range(1, count + 1))


def left(task: TaskDir) -> str:
    out = io.BytesIO()
    undelivered.leave(task, out)
    return out.getvalue().decode()


def test_what_was_not_acknowledged_is_found_again_in_its_order(task):
    task.stream("logs").write_text(records(5))
    task.acked("logs").write_text("2")
    task.stream("metrics").write_text(records(3, "loss"))
    task.launcher_log.write_text("the master does not answer\n")
    found, other = undelivered.find("a line of somebody else\n" + left(task))
    assert [json.loads(line)["seq"] for line in found["logs"]] == [3, 4, 5]
    assert [json.loads(line)["text"] for line in found["metrics"]] == ["loss 1", "loss 2", "loss 3"]
    assert other == ["a line of somebody else", "detlab: the launcher: the master does not answer"]


def test_the_newest_output_is_kept_where_it_is_too_much(task, monkeypatch):
    monkeypatch.setitem(undelivered.MOST_BYTES, "logs", 2000)
    task.stream("logs").write_text(records(500))
    found, _ = undelivered.find(left(task))
    numbers = [json.loads(line)["seq"] for line in found["logs"]]
    assert numbers[-1] == 500
    assert numbers == list(range(numbers[0], 501))
    assert 20 < len(numbers) < 100


def test_torn_and_forged_lines_are_no_records(task):
    task.stream("logs").write_text(records(1) + '{"seq": 2, "te')
    text = left(task) + "\n".join(
        f"{undelivered.MARK} {rest}"
        for rest in ("", "logs", "logs {", "logs []", "evil {}", 'logs {"seq": -1}', "logs 7")
    )
    found, other = undelivered.find(text)
    assert len(found["logs"]) == 1
    assert not found["metrics"]
    assert len(other) == 7


def test_brackets_in_brackets_are_no_record():
    found, other = undelivered.find(f"{undelivered.MARK} logs " + '{"seq":' + "[" * 20_000)
    assert not any(found.values())
    assert len(other) == 1


def test_nothing_is_left_of_a_task_that_never_began(tmp_path):
    assert left(TaskDir(tmp_path / "none")) == ""
