"""The process that runs a notebook: real papermill, a real kernel, a task's directory, a master that takes outputs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from detlab.run.notebook import where_it_failed
from testbed.task_outputs import Taker, make_cell_dir, taking_outputs

pytestmark = pytest.mark.slow


@pytest.fixture
def master():
    with taking_outputs() as server:
        yield server


@pytest.fixture
def start(tmp_path: Path, master: Taker):
    """Start a run of a notebook with these code cells."""
    running: list[subprocess.Popen[str]] = []

    def go(
        *cells: str, parameters: dict[str, object] | None = None, metadata: dict[str, object] | None = None
    ) -> subprocess.Popen[str]:
        work = make_cell_dir(tmp_path / "task", master.url)
        notebook = nbformat.v4.new_notebook()
        known = {"kernelspec": {"name": "nowhere", "language": "python", "display_name": "x"}}
        notebook.metadata.update(known if metadata is None else metadata)
        for number, text in enumerate(cells):
            cell = nbformat.v4.new_code_cell(text)
            if number == 0 and parameters is not None:
                cell.metadata["tags"] = ["parameters"]
            notebook.cells.append(cell)
        nbformat.write(notebook, work / "nb.ipynb")
        (work / ".det_notebook").mkdir()
        (work / ".det_notebook" / "run.json").write_text(
            json.dumps({"notebook": "nb.ipynb", "parameters": parameters or {}})
        )
        env = {**os.environ, "DET_TASK_DIR": str(work.parent), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "detlab.run.notebook"]
        pipe = subprocess.PIPE
        made = subprocess.Popen(command, cwd=work, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
        running.append(made)
        return made

    yield go
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def executed(master: Taker) -> nbformat.NotebookNode:
    return nbformat.reads(master.taken["executed.ipynb"].decode(), as_version=4)


def said(notebook: nbformat.NotebookNode) -> list[str]:
    found = (output.get("text", "").strip() for cell in notebook.cells for output in cell.get("outputs", []))
    return [text for text in found if text]


def test_a_notebook_runs_with_its_parameters_and_is_handed_over(start, master):
    process = start("lr = 0.1", "print('lr is', lr)", parameters={"lr": 0.5})
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    assert said(executed(master)) == ["lr is 0.5"]
    assert "lr is 0.5" in stdout, "the log has what cells print"
    assert "the kernel 'nowhere' is not installed here; python3 is used instead" in stdout


def test_a_parameter_that_is_no_number_of_json_leaves_a_notebook_that_is_json(start, master):
    def refuse(word: str) -> None:
        raise AssertionError(word)

    process = start("lr = 0.1", "print('NaN', lr)", parameters={"lr": float("nan"), "most": float("-inf")})
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    assert said(executed(master)) == ["NaN nan"]
    stored = json.loads(master.taken["executed.ipynb"], parse_constant=refuse)
    assert stored["metadata"]["papermill"]["parameters"] == {"lr": "NaN", "most": "-Infinity"}


def test_a_cell_that_raises_is_named_with_its_line_and_the_notebook_is_kept(start, master):
    process = start(
        "x = 1", "print('before')", "def f():\n    return 1 / 0\n\nf()", "print('never')", parameters={"x": 2}
    )
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert '  File "nb.ipynb, cell 3 (In [4])", line 4, in <module>\n    f()\nZeroDivisionError' in stderr
    assert "before" in said(executed(master))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_killed_mid_way_keeps_its_partial_notebook(start, master, how):
    process = start("print('first')", "print('second')", "import time\ntime.sleep(600)", "print('never')")
    deadline = time.monotonic() + 60
    while "executed.ipynb" not in master.taken or "second" not in said(executed(master)):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, how)
    process.communicate(timeout=30)
    assert process.returncode == (143 if how is signal.SIGTERM else -9)
    assert said(executed(master))[:2] == ["first", "second"]
    assert "never" not in said(executed(master))


@pytest.mark.slow
def test_partial_notebooks_are_uploaded_at_a_limited_rate(start, master):
    process = start(*(f"print({number})" for number in range(20)))
    begun = time.monotonic()
    process.communicate(timeout=60)
    assert process.returncode == 0
    took = time.monotonic() - begun
    assert said(executed(master)) == [str(number) for number in range(20)]
    assert len(master.history) <= took / 2 + 2, "40 states were written"


@pytest.mark.slow
def test_a_notebook_that_cannot_be_kept_is_a_failure_in_words(start, master):
    master.replies = [(413, {"code": "outputs.too_large", "message": "a task may hold 200 MB"})] * 100
    process = start("print(1)")
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "executed.ipynb could not be stored" in stderr
    assert "a task may hold 200 MB" in stderr


def test_a_notebook_that_is_too_large_is_stored_without_large_outputs_and_kept_whole(
    start, master, tmp_path, monkeypatch
):
    """It was uploaded for ten minutes, with the slot held, and then lost."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    master.most = 300_000
    process = start("print('x' * 400_000)", "print('small')")
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "executed.ipynb was stored without its 1 largest outputs" in stderr
    first, second = said(executed(master))
    assert "an output of 0.4 MB was left out" in first
    assert second == "small"
    (kept,) = (tmp_path / "home").glob("executed-*.ipynb")
    assert said(nbformat.read(kept, as_version=4)) == ["x" * 400_000, "small"]
    assert str(kept) in stderr


def test_cells_are_counted_as_in_the_notebook_that_was_sent():
    error = {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[0;36mCell\x1b[0m In[2], line 7"]}
    cells = [
        {"metadata": {"tags": ["papermill-error-cell-tag"]}, "outputs": []},
        {"metadata": {"tags": ["injected-parameters"]}, "outputs": []},
        {"metadata": {}, "cell_type": "markdown"},
        {"metadata": {}, "outputs": [error], "execution_count": 2, "source": "x"},
    ]
    assert where_it_failed({"cells": cells}, "n") == [
        "Traceback (most recent call last):",
        '  File "n, cell 2 (In [2])", line 7, in <module>',
        "E: v",
    ]
    assert where_it_failed({"cells": cells[:3]}, "n") is None


def test_a_cell_that_failed_elsewhere_is_named_with_its_line():
    """A failing `%%det_run` was told with `line ?`."""
    traceback = [
        "Traceback (most recent call last):",
        '  File "cell 3 (helper.py)", line 9, in fail',
        '  File "cell 16", line 2, in <module>',
        "    fail()",
    ]
    error = {"output_type": "error", "ename": "E", "evalue": "v", "traceback": traceback}
    cell = {"metadata": {}, "outputs": [error], "execution_count": 16, "source": "%%det_run\nfail()"}
    assert where_it_failed({"cells": [cell]}, "n") == [
        "Traceback (most recent call last):",
        '  File "n, cell 1 (In [16])", line 2, in <module>',
        "    fail()",
        "E: v",
    ]


@pytest.mark.parametrize(
    ("ends", "said_why"),
    [
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL; it probably ran out of memory"),
        ("import ctypes; ctypes.string_at(0)", "ended by SIGSEGV, a fault in native code"),
        ("os._exit(3)", "ended with code 3, as by os._exit"),
    ],
)
def test_a_cell_that_kills_its_kernel_is_named_and_its_output_kept(start, master, ends, said_why):
    """The run ended with a traceback of nbclient's that named no cell."""
    run = start(
        "x = 1",
        "print('first', flush=True)",
        f"import os, time\nprint('before the end', flush=True); time.sleep(1)\n{ends}",
        "print('never')",
    )
    _, stderr = run.communicate(timeout=60)
    assert run.returncode == 1
    assert 'File "nb.ipynb, cell 3' in stderr
    assert said_why in stderr.splitlines()[-1]
    assert "nbclient" not in stderr, "none of our own frames"
    notebook = executed(master)
    assert said(notebook) == ["first", "before the end"]
    (error,) = [one for cell in notebook.cells for one in cell.get("outputs", []) if one["output_type"] == "error"]
    assert error["ename"] == "KernelDied"


@pytest.mark.parametrize(
    "metadata", [{}, *({"kernelspec": {"name": name, "display_name": "P"}} for name in ("python3", "python9"))]
)
def test_a_notebook_that_does_not_say_its_language_runs_as_python(start, master, metadata):
    run = start("a = 1", "print('ran', a)", parameters={"a": 2}, metadata=metadata)
    _, stderr = run.communicate(timeout=60)
    assert run.returncode == 0, stderr
    assert said(executed(master)) == ["ran 2"]
