"""`det notebook run` at a real cluster: parameters, the executed notebook, failures by cell and line, a kill."""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import nbformat
import pytest
from spine_lab import WRITE, Lab, until

from detlab import client as det_client
from detlab.client import Task
from detlab.errors import ConfigError, NotFound
from detlab.schemas.taskwire import TaskEnd, TaskKind
from detlab.schemas.wire import TrialState
from testbed.cluster import Cluster
from testbed.servers import logged_in, xsrf

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


GATED = """
import pathlib, time
print('first')
"""
HELD = """
while not pathlib.Path(gate).exists():
    time.sleep(0.05)
print('second', who)
"""


@pytest.mark.soak
def test_a_run_survives_the_logout_of_its_user_with_the_token_revoked(cluster, lab, write, meeting_place, tmp_path):
    """Nothing of the person is left, neither session nor token nor login file, and the run goes on to its end."""
    gate = meeting_place / "logout-gate"
    path = write("leaves.ipynb", f"who = 'nobody'\ngate = {str(gate)!r}", GATED, HELD)
    ada = Laptop(cluster, "ada", tmp_path)
    with closing(logged_in(cluster, "ada")) as page:
        identity, token = new_token(page, "ada")
        assert ada.det("login", cluster.url, "--token-file", "-", stdin=token).returncode == 0
        started = ada.det("notebook", "run", path, "-p", "who", "ada", "--slots", "0", "--detach", "--json")
        assert started.returncode == 0, started.stderr
        task = lab.client.get_task(json.loads(started.stdout)["id"])
        assert task.view.owner == "ada"
        until("its first cell has run", lambda: bool(task.outputs()) and "first" in said(executed(task)), 60)
        assert ada.det("logout").stdout.strip() == "Logged out."
        assert page.delete(f"/hub/api/users/ada/tokens/{identity}", params={"_xsrf": xsrf(page)}).status_code == 204
        assert page.get("/hub/home").url.path == "/hub/home"
        page.get("/hub/logout")
        assert page.get("/hub/home").url.path == "/hub/login", "the session is over"
    assert "det login" in ada.det("task", "list").stderr, "this machine has no login any more"
    headers = {"Authorization": f"token {token}"}
    assert httpx.get(f"{cluster.url}/hub/api/user", headers=headers, trust_env=False).status_code == 403
    assert not task.reload().state.terminal, "the run does not mind"
    gate.touch()
    task.wait(60)
    assert (task.view.state, task.view.end_reason) == (TrialState.COMPLETED, TaskEnd.COMPLETED)
    assert "first" in said(executed(task))
    with closing(logged_in(cluster, "ada")) as page:  # the person comes back
        _, token = new_token(page, "ada")
    assert ada.det("login", cluster.url, "--token-file", "-", stdin=token).returncode == 0
    assert ada.det("task", "outputs", task.id, "-o", tmp_path / "kept").returncode == 0
    assert "second ada" in said(nbformat.read(tmp_path / "kept" / "executed.ipynb", as_version=4))


@dataclass
class Laptop:
    """A person's own machine: `det` finds no cluster there but the one of its login file."""

    cluster: Cluster
    name: str
    folder: Path

    def det(self, *words: object, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run `det` there."""
        home = self.folder / f"home-{self.name}"
        home.mkdir(exist_ok=True)
        return subprocess.run(
            self.cluster.command(*map(str, words)), cwd=home, env={**self.cluster.environment, "HOME": str(home)},
            input=stdin, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip


def new_token(page: httpx.Client, name: str) -> tuple[str, str]:
    """Make a token as the Hub's token page does; return its id and itself."""
    scopes = ["custom:detlab:write", "access:services!service=detlab"]
    asked = {"note": "laptop", "expires_in": 3600, "scopes": scopes}
    reply = page.post(f"/hub/api/users/{name}/tokens", params={"_xsrf": xsrf(page)}, json=asked)
    assert reply.status_code == 201, reply.text
    return reply.json()["id"], reply.json()["token"]


def test_what_is_no_notebook_is_refused(cluster: Cluster, lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "text.ipynb").write_text("hello")
    done = det(cluster, "notebook", "run", tmp_path / "text.ipynb")
    assert done.returncode != 0
    assert "is not a notebook" in done.stderr
    assert "Traceback" not in done.stderr


ASKS = """
import json, os
from detlab.experimental import client
found = client.get_experiment(made.id)
print(json.dumps({"made": found.id, "owner": found.view.owner, "said": "DET_TOKEN" in os.environ}))
with open(os.environ["DET_TOKEN_FILE"]) as file:
    token = file.read()
print(oct(os.stat(os.environ["DET_TOKEN_FILE"]).st_mode & 0o777), token.startswith("dtrun_"))
with open(there, "w") as copy:
    copy.write(token)
"""


def test_magics_work_in_a_notebook_run_whose_token_ends_with_it(cluster, lab, write, tmp_path, meeting_place):
    """The run had no token: its first magic failed, after the form had found no mistakes."""
    stolen = meeting_place / "stolen"
    stolen.touch()
    stolen.chmod(0o666)
    path = write(
        "asks.ipynb",
        f"there = {str(stolen)!r}",
        "%%det_experiment --out made\nentrypoint: 'true'\nsearcher: {name: single, metric: x}\nname: from a run\n",
        ASKS,
    )
    out = tmp_path / "asked.ipynb"
    done = det(cluster, "notebook", "run", path, "-o", out)
    assert done.returncode == 0, done.stdout + done.stderr
    told = said(nbformat.read(out, as_version=4))
    (facts,) = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert lab.client.get_experiment(facts["made"]).name == "from a run"
    assert (facts["owner"], facts["said"]) == (cluster.user, False)
    assert "0o600 True" in told
    token = stolen.read_text()
    assert token not in told
    assert token not in cluster.logs(100_000)
    with cluster.client(token) as thief:
        assert thief.get("me").status_code == 401


def test_a_notebook_runs_by_itself_after_another_run_has_completed(cluster, lab, write, tmp_path):
    (tmp_path / "beside.py").write_text("X = 'from beside'\n")
    first = lab.client.run_notebook(write("first.ipynb", "x = 1", "print(x)")).task
    path = write("second.ipynb", "lr = 0.1", "import beside\nprint(lr, beside.X)")
    done = det(cluster, "notebook", "run", path, "-p", "lr", "1e-2", "--after", first.id, "--json")
    assert done.returncode == 0, done.stderr
    number = json.loads(done.stdout)["id"]
    path.unlink()
    assert first.wait(60) is TrialState.COMPLETED

    def started() -> Any:
        return lab.client.get_schedule(number).last_task

    run = lab.client.get_task(until("the second run is started", started, 60))
    assert run.wait(60) is TrialState.COMPLETED
    assert run.view.schedule_id == number
    assert "0.01 from beside" in said(executed(run))
    assert lab.client.get_schedule(number).state == "done"
    assert f"{run.id} (COMPLETED)" in det(cluster, "schedule", "describe", number).stdout
    assert det(cluster, "schedule", "remove", number).returncode == 0
