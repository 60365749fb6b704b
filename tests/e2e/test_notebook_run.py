"""`det notebook run` at a real cluster: parameters, the executed notebook, failures by cell and line, a kill."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import nbformat
import pytest
from spine_lab import WRITE, Lab, until

from detlab import client as det_client
from detlab.client import Task
from detlab.errors import ConfigError, NotFound
from detlab.schemas.taskwire import TaskEnd, TaskKind
from testbed.cluster import Cluster

pytestmark = pytest.mark.hub


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Write a notebook of these code cells; the first holds the parameters."""

    def go(name: str, *cells: str) -> Path:
        notebook = nbformat.v4.new_notebook()
        notebook.metadata["kernelspec"] = {"name": "python3", "language": "python", "display_name": "Python 3"}
        notebook.cells = [nbformat.v4.new_code_cell(text) for text in cells]
        notebook.cells[0].metadata["tags"] = ["parameters"]
        nbformat.write(notebook, tmp_path / name)
        return tmp_path / name

    return go


def said(notebook: Any) -> str:
    return "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))


def executed(task: Task) -> Any:
    """The executed notebook as it is now; of a run that goes on it may be replaced between list and read."""
    while True:
        (output,) = task.outputs()
        assert output.name == "executed.ipynb"
        try:
            return nbformat.reads(task.read_output(output).decode(), as_version=4)
        except NotFound:
            assert not task.reload().state.terminal


def det(cluster: Cluster, *arguments: object) -> subprocess.CompletedProcess[str]:
    return cluster.det(*map(str, arguments))


def test_a_notebook_runs_with_parameters_and_the_executed_one_is_brought(cluster, lab, write, tmp_path):
    (tmp_path / "beside.py").write_text("X = 'from beside'\n")
    path = write("run.ipynb", "lr = 0.1\nname = 'a'", "import beside\nprint(lr, name, beside.X)")
    out = tmp_path / "out" / "run.ipynb"
    done = det(cluster, "notebook", "run", path, "-p", "lr", "1e-2", "-p", "name", "7", "-o", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0.01 7 from beside" in done.stdout, "its output is streamed"
    assert "0.01 7 from beside" in said(nbformat.read(out, as_version=4))
    task = lab.client.list_tasks(kind=TaskKind.NOTEBOOK_RUN, limit=1)[0]
    assert (task.name, task.view.end_reason) == ("run.ipynb", TaskEnd.COMPLETED)
    (output,) = task.outputs()
    with cluster.client(cluster.make_token(*WRITE, user="ada")) as other:
        for path in ("outputs", f"outputs/{output.digest}", "logs"):
            assert other.get(f"tasks/{task.id}/{path}").status_code == 404, "somebody else learns nothing of it"
    with cluster.client() as own:
        kept = own.get(f"tasks/{task.id}/outputs/{output.digest}")
        assert kept.headers["Content-Disposition"].startswith("attachment"), "a notebook is never shown as a page"
    fetched = det(cluster, "task", "outputs", task.id, "-o", tmp_path / "again")
    assert fetched.returncode == 0, fetched.stderr
    assert json.loads((tmp_path / "again" / "executed.ipynb").read_text())["nbformat"] == 4


def test_wrong_parameters_are_told_before_anything_is_sent(cluster, lab, write):
    before = len(lab.client.list_tasks())
    path = write("bad.ipynb", "lr = 0.1\nepochs: int = 3", "1")
    done = det(cluster, "notebook", "run", path, "-p", "lrr", "1", "-p", "epochs", "many")
    assert done.returncode == 2
    assert "lrr: the notebook has no such parameter (did you mean lr?)" in done.stderr
    assert "epochs: 'many' is not of type int" in done.stderr
    with pytest.raises(ConfigError):
        lab.client.run_notebook(path, {"epochs": "3"})
    assert len(lab.client.list_tasks()) == before


def test_a_cell_that_raises_is_named_with_its_line_in_log_and_failure(cluster, lab, write, tmp_path):
    path = write("fails.ipynb", "x = 1", "print('before')", "def f():\n    return 1 / 0\n\nf()")
    out = tmp_path / "failed.ipynb"
    done = det(cluster, "notebook", "run", path, "-p", "x", "2", "-o", out)
    assert done.returncode == 1
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert "fails.ipynb, cell 3 (In [4]), line 4" in done.stderr + done.stdout
    assert "before" in said(nbformat.read(out, as_version=4)), "what ran is kept"
    failure = lab.client.list_tasks(kind=TaskKind.NOTEBOOK_RUN, limit=1)[0].view.failure
    assert failure is not None
    assert "ZeroDivisionError" in failure.message


def test_a_run_that_is_killed_mid_way_keeps_its_partial_notebook(lab, write):
    path = write("long.ipynb", "x = 1", "print('first')", "print('second')", "import time\ntime.sleep(600)")
    task = lab.client.run_notebook(path).task
    assert task is not None

    def partial() -> bool:
        return bool(task.outputs()) and "second" in said(executed(task))

    until("the partial notebook is there while it runs", partial, 60)
    assert not task.reload().state.terminal
    task.kill()
    task.wait(60)
    assert task.view.end_reason is TaskEnd.KILLED
    assert "second" in said(executed(task))


def test_a_detached_run_goes_on_by_itself_and_the_functions_of_the_client_do_the_same(cluster, lab, write, monkeypatch):
    path = write("alone.ipynb", "x = 1", "print('x is', x)")
    done = det(cluster, "notebook", "run", path, "--detach", "--json")
    assert done.returncode == 0, done.stderr
    task = lab.client.get_task(json.loads(done.stdout)["id"])
    monkeypatch.setenv("DET_URL", cluster.url)
    monkeypatch.setenv("DET_TOKEN", cluster.token)
    other = det_client.run_notebook(path, {"x": 5}, slots=0, name="by hand")
    assert other.name == "by hand"
    for found, text in ((task, "x is 1"), (other, "x is 5")):
        found.wait(90)
        assert found.view.end_reason is TaskEnd.COMPLETED
        assert text in said(executed(found))
    det_client.logout()


def test_what_is_no_notebook_is_refused(cluster: Cluster, lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "text.ipynb").write_text("hello")
    done = det(cluster, "notebook", "run", tmp_path / "text.ipynb")
    assert done.returncode != 0
    assert "is no notebook" in done.stderr
    assert "Traceback" not in done.stderr
