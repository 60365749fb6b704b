"""The process that runs a borrowed cell: a real process, a task's directory, and a master that takes outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from detlab.errors import NotInCluster, StorageError
from detlab.info import ClusterInfo
from detlab.run.cell import compiled
from detlab.run.outputs import LatestUpload, OutputRefused, TaskOutputs
from detlab.run.values import decode, encode
from testbed.task_outputs import Taker, make_cell_dir, taking_outputs
from testbed.waiting import until


@pytest.fixture
def master():
    with taking_outputs() as server:
        yield server


class Ran:
    """How a cell ended."""

    def __init__(self, master: Taker, done: subprocess.CompletedProcess[bytes]) -> None:
        self.status = done.returncode
        self.stdout = done.stdout.decode()
        self.stderr = done.stderr.decode()
        self.report = json.loads(master.taken["cell.json"])
        self.values = {n.removesuffix(".value"): decode(d) for n, d in master.taken.items() if n.endswith(".value")}


@pytest.fixture
def run(tmp_path: Path, master: Taker):
    def go(text: str, *, out: tuple[str, ...] = (), more: dict[str, str] | None = None, **values: object) -> Ran:
        work = make_cell_dir(tmp_path / "task", master.url)
        folder = work / ".det_cell"
        folder.mkdir()
        for name, content in (more or {}).items():
            (work / name).write_text(content)
        names = {name: f"{number}.value" for number, name in enumerate(values)}
        for name, file in names.items():
            (folder / file).write_bytes(encode(values[name], name).data)
        # The first line of a borrowed cell is the magic's own.
        (folder / "cell.py").write_text("# %%det_run\n" + textwrap.dedent(text).lstrip("\n"))
        (folder / "cell.json").write_text(json.dumps({"name": "cell 7", "out": list(out), "in": names}))
        env = {**os.environ, "DET_TASK_DIR": str(work.parent), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "detlab.run.cell"]
        return Ran(master, subprocess.run(command, cwd=work, env=env, capture_output=True, timeout=60, check=False))

    return go


def test_variables_go_in_and_results_come_back(run):
    ran = run(
        """
        import numpy as np
        total = int(a.sum()) + b
        c = np.ones(3) * b
        total
        """,
        out=("total", "c"),
        a=np.arange(4),
        b=10,
    )
    assert ran.status == 0
    assert ran.report == {"ok": True, "pickled": {}}
    assert ran.values["total"] == 16
    assert ran.values["c"].tolist() == [10.0] * 3
    assert ran.stdout == "16\n", "the last expression is shown"


def test_stdout_and_stderr_are_in_order(run):
    ran = run(
        """
        import sys, os
        for i in range(50):
            print("out", i)
            print("err", i, file=sys.stderr)
        os.system("echo from a child; echo its errors >&2")
        """
    )
    lines = [f"{kind} {i}" for i in range(50) for kind in ("out", "err")]
    assert ran.stdout.splitlines()[:100] == lines
    assert ran.stdout.splitlines()[100:102] == ["from a child", "its errors"]
    assert ran.stderr == ""


def test_an_exception_names_the_cells_own_line_and_what_was_set_before_comes_back(run):
    ran = run(
        """
        import helper
        x = 1
        helper.fail(x)
        """,
        out=("x", "y"),
        more={"helper.py": "def fail(x):\n    raise ValueError(f'bad {x}')\n"},
    )
    assert ran.status == 1
    error = ran.report["error"]
    assert (error["type"], error["message"], error["line"]) == ("ValueError", "bad 1", 4)
    shown = "\n".join(error["traceback"])
    assert 'File "cell 7", line 4, in <module>' in shown
    assert "helper.fail(x)" in shown, "with the text of the line"
    assert 'File "helper.py", line 2, in fail' in shown
    assert "detlab/run" not in shown
    assert shown in ran.stderr, "the log has it, too"
    assert ran.values == {"x": 1}


def test_a_name_that_the_cell_did_not_set_is_an_error_after_the_others_came_back(run):
    ran = run("x = 1", out=("y", "x"))
    assert ran.status == 1
    assert "--out y: the cell has set no variable 'y'" in ran.report["error"]["message"]
    assert ran.values == {"x": 1}


def test_a_name_that_was_not_set_before_a_clean_exit_is_an_error(run):
    """The notebook kept its former value of the name, and nothing was said."""
    ran = run("import sys\nx = 1\nsys.exit(0)\ny = 2", out=("y", "x"))
    assert ran.status == 1
    assert "--out y: the cell has set no variable 'y'" in ran.report["error"]["message"]
    assert ran.values == {"x": 1}


def test_a_class_of_the_cell_itself_is_refused_with_what_to_do(run):
    ran = run("class Net: pass\nnet = Net()", out=("net",))
    assert "%%det_module" in ran.report["error"]["message"]
    assert len(ran.report["error"]["traceback"]) == 1, "no frames of ours"


def test_what_is_pickled_is_said(run):
    ran = run("import fractions\nf = fractions.Fraction(1, 3)", out=("f",))
    assert ran.report["pickled"] == {"f": "fractions.Fraction"}


@pytest.mark.parametrize(
    ("text", "status", "ok"),
    [("raise SystemExit", 0, True), ("import sys; sys.exit(3)", 3, False), ("raise SystemExit('enough')", 1, False)],
)
def test_exits_are_ends(run, text, status, ok):
    ran = run("x = 1\n" + text, out=("x",))
    assert (ran.status, ran.report["ok"]) == (status, ok)
    assert ran.values == {"x": 1}


@pytest.mark.slow
def test_top_level_await_and_a_thread_left_behind(run):
    ran = run(
        """
        import asyncio, threading
        threading.Thread(target=threading.Event().wait, daemon=False).start()
        await asyncio.sleep(0)
        x = await asyncio.sleep(0, result=5)
        x
        """,
        out=("x",),
    )
    assert ran.values == {"x": 5}
    assert ran.stdout == "5\n"


def test_a_syntax_error_has_the_cells_name_and_line():
    with pytest.raises(SyntaxError) as caught:
        compiled("# first\nx = 1\ny = (\n", "cell 7")
    assert caught.value.filename == "cell 7"
    assert caught.value.lineno == 3


def test_a_semicolon_hides_the_last_value(run):
    assert run("3;").stdout == ""


# --- handing over


@pytest.fixture
def outputs(tmp_path, master):
    work = make_cell_dir(tmp_path / "task", master.url)
    return TaskOutputs(ClusterInfo.from_task_dir(work.parent), patience=3.0)


def test_an_upload_is_repeated_while_the_master_is_away_and_with_a_renewed_token(outputs, master, tmp_path):
    master.replies = [(503, {}), (401, {"code": "auth.denied", "message": "expired"})]
    outputs.put("a b.txt", b"x")
    assert master.taken == {"a b.txt": b"x"}
    assert master.tokens == ["Bearer dttask_x"] * 3


def test_a_refusal_is_told_in_the_masters_words(outputs, master):
    master.replies = [(413, {"code": "output.too_large", "message": "over the quota of 200 MB", "hint": "less"})]
    with pytest.raises(StorageError, match="over the quota of 200 MB") as caught:
        outputs.put("x.value", b"x")
    assert caught.value.hint == "less"


def test_a_refusal_before_the_body_is_read_is_told_at_once(outputs, master):
    """The connection broke while the file was sent, which was taken for an outage, for ten minutes."""
    master.most = 1_000_000
    with pytest.raises(StorageError, match="status 413"):
        outputs.put("x.value", bytes(100_000_000))
    assert len(master.tokens) == 1


def test_outside_of_a_task_nothing_can_be_handed_over(monkeypatch):
    monkeypatch.delenv("DET_TASK_DIR", raising=False)
    with pytest.raises(NotInCluster):
        TaskOutputs()


def test_only_the_newest_state_is_uploaded_and_the_last_one_always(outputs, master):
    upload = LatestUpload(outputs.put, "n.ipynb", interval=0.05)
    for number in range(200):
        upload.offer(b"%d" % number)
    assert upload.close(10)
    assert master.taken["n.ipynb"] == b"199"
    assert len(master.history) < 50


def test_a_last_state_that_cannot_be_uploaded_is_said(tmp_path):
    problems: list[Exception] = []

    def broken(name: str, data: bytes) -> None:
        raise StorageError("no")

    upload = LatestUpload(broken, "n.ipynb", interval=0.01, failed=problems.append)
    upload.offer(b"1")
    assert not upload.close(10)
    assert problems


def test_a_state_that_was_refused_is_sent_again_only_at_the_end_and_smaller_ones_at_once(outputs, master):
    """Each cell of a notebook over the limit sent all of it again, to hear the same answer."""
    master.most = 1_000
    problems: list[Exception] = []
    upload = LatestUpload(outputs.put, "n.ipynb", interval=0.01, failed=problems.append)
    upload.offer(bytes(2_000))
    until(lambda: problems)
    upload.offer(bytes(2_001))
    with pytest.raises(AssertionError, match="not within"):
        until(lambda: len(problems) > 1, seconds=0.5)
    upload.offer(b"small")
    until(lambda: master.taken)
    upload.offer(bytes(3_000))
    assert not upload.close(10), "the last state was not handed over"
    assert master.taken == {"n.ipynb": b"small"}
    assert [type(problem) for problem in problems] == [OutputRefused, OutputRefused]


def test_a_state_that_failed_is_sent_again_though_no_other_follows():
    sent: list[bytes] = []

    def fails_once(name: str, data: bytes) -> None:
        sent.append(data)
        if len(sent) == 1:
            raise StorageError("no")

    upload = LatestUpload(fails_once, "n.ipynb", interval=0.01)
    upload.offer(b"1")
    until(lambda: len(sent) == 2)
    assert upload.close(10)
    assert sent == [b"1", b"1"]
