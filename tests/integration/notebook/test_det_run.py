"""Cells on borrowed slots, in a real kernel on a real cluster: variables, output, errors, interrupts, the queue."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from detlab.client import Client, Task
from detlab.schemas.taskwire import TaskEnd
from testbed.cluster import Cluster
from testbed.front.kernels import Cell, Notebook
from testbed.waiting import until

pytestmark = pytest.mark.hub

TASK = re.compile(r"cell-[0-9a-f]{12}")
WAITS = """%%det_run --slots {slots} {options}
import pathlib, time
print("it runs", flush=True)
while not pathlib.Path({gate!r}).exists():
    time.sleep(0.05)
done = "waited"
"""

SEEN = """%%det_run
import pathlib, time
print("it runs")
for _ in range(400):
    if pathlib.Path({gate!r}).exists():
        break
    time.sleep(0.05)
else:
    raise TimeoutError("nobody has seen the line")
print("and ends")
"""


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.url, cluster.token) as found:
        yield found


@pytest.fixture
def gate() -> Iterator[Path]:
    """A file, not there yet, that a task of any user sees when it is; pytest's own folder is closed."""
    folder = Path(tempfile.mkdtemp(prefix="detlab-gate-"))
    folder.chmod(0o755)
    yield folder / "open"
    shutil.rmtree(folder)


def status(notebook: Notebook, cell: Cell) -> str:
    """The cell's one line about where its task stands."""
    assert len(cell.displays) == 1, [notebook.shown[name] for name in cell.displays]
    return str(notebook.shown[cell.displays[0]]["text/plain"])


def task_of(client: Client, notebook: Notebook, cell: Cell) -> Task:
    found = TASK.search(status(notebook, cell) + cell.stdout)
    assert found
    return client.get_task(found.group())


def newest(client: Client) -> Task:
    return client.list_tasks(limit=1)[0]


def slots_used(client: Client) -> int:
    return client.get_cluster().slots_used


def test_variables_go_there_and_back(notebook, client):
    notebook.run(
        "import numpy as np, torch\ndata = np.arange(6.0).reshape(2, 3)\nsettings = {'lr': 0.1, 'sizes': (1, 2)}"
    )
    cell = notebook.run(
        "%%det_run --in data,settings --out total,state --out settings\n"
        "import torch\n"
        "total = data.sum(axis=0)\n"
        "state = torch.nn.Linear(2, 1).state_dict()\n"
        "settings['seen'] = True\n"
        "settings['sizes']"
    )
    assert cell.status == "ok", cell.traceback
    assert cell.stdout.strip() == "(1, 2)", "the last expression is shown"
    assert "set here: settings, state, total" in status(notebook, cell)
    shown = notebook.run("str((total.tolist(), sorted(state), settings))").result["text/plain"].strip('"')
    assert shown == "([3.0, 5.0, 7.0], ['bias', 'weight'], {'lr': 0.1, 'sizes': (1, 2), 'seen': True})"
    until(lambda: slots_used(client) == 0)


def test_output_is_in_order_with_both_streams_and_hostile_text_is_text(notebook):
    cell = notebook.run(
        "%%det_run\nimport sys, os\n"
        "for i in range(30):\n"
        "    print('out', i)\n    print('err', i, file=sys.stderr)\n"
        "print('<script>alert(1)</script>', '\\x1b]0;title\\x07\\x1b[2J', '\\x1b[31mred\\x1b[0m')\n"
        "os.system('echo from a child')\n"
        "for i in range(5):\n    print(f'\\rbar: {20 * i}%|', end='')\n"
        "print('\\rbar: 100%|')"
    )
    lines = cell.stdout.splitlines()
    assert lines[:60] == [f"{kind} {i}" for i in range(30) for kind in ("out", "err")]
    assert lines[60] == "<script>alert(1)</script> ⟨U+001B⟩]0;title⟨U+0007⟩⟨U+001B⟩[2J \x1b[31mred\x1b[0m"
    assert lines[61] == "from a child"
    assert lines[-1].endswith("bar: 100%|")
    assert len(lines) < 66


def test_a_line_is_in_the_cell_while_it_runs(notebook, gate):
    """The cell ends well only if its first line was seen before its end."""
    seen: list[str] = []

    def look(cell: Cell) -> None:
        if "it runs\n" in cell.stdout and not gate.exists():
            seen.append(cell.stdout)
            gate.touch()

    cell = notebook.run(SEEN.format(gate=str(gate)), look=look)
    assert cell.status == "ok", cell.traceback
    assert seen == ["it runs\n"]
    assert cell.stdout == "it runs\nand ends\n"


def test_a_flood_of_output_stays_below_the_limit_and_the_end_is_there(notebook):
    cell = notebook.run("%%det_run\nfor i in range(60_000):\n    print(i, 'x' * 60)\nprint('the end')")
    assert cell.status == "ok", cell.traceback
    assert cell.stdout.startswith("0 xxx")
    assert cell.stdout.endswith("the end\n")
    assert len(cell.stdout) < 1_500_000, "of 4 MB"
    assert "lines left out: det task logs cell-" in cell.stdout


def test_an_exception_is_raised_with_the_cells_own_lines(notebook):
    notebook.run("%%det_module r_helper\ndef fail(x):\n    raise KeyError(x)\n")
    cell = notebook.run("%%det_run --out before\nimport r_helper\nbefore = 1\nr_helper.fail('key')")
    assert cell.ename == "KeyError", "stops Run-All under its own name"
    assert re.search(r'File "cell \d+", line 4, in <module>', cell.traceback)
    assert "r_helper.fail('key')" in cell.traceback
    assert re.search(r'File "cell \d+ \(r_helper.py\)", line 3, in fail', cell.traceback), (
        "captured cells by their names"
    )
    assert "detlab" not in cell.traceback
    assert "Traceback" not in cell.stdout, "told once"
    assert notebook.run("before").result["text/plain"] == "1", "what was set before it came back"


def test_mistakes_are_told_before_any_slot_is_asked_for(notebook, client):
    before = newest(client).id
    for code, words in {
        "%%det_run --in nothing_there\nx = 1": "no variable 'nothing_there'",
        "%%det_run --out a-b\nx = 1": "not a valid variable name",
        "%%det_run\n!ls": "line 2",
        "%%det_run\nfor": "SyntaxError",
        "%%det_run --slots many\nx = 1": "invalid int value",
        "%%det_run --runtime magic\nx = 1": "no agent of pool default has the runtime 'magic'",
        "%det_run": "two percent signs",
        "x = 1\n%%det_run\ny = 1": "must be the first line",
    }.items():
        cell = notebook.run(code)
        assert cell.status == "error", code
        assert words in cell.traceback + cell.ename, (code, cell.traceback)
    assert newest(client).id == before


def test_more_slots_than_there_are_are_refused_with_how_many_there_are(notebook, client):
    before = client.list_tasks(limit=1)
    cell = notebook.run("%%det_run --slots 500\nx = 1")
    assert cell.status == "error"
    assert "the largest agent has 2" in cell.traceback
    assert client.list_tasks(limit=1) == before


def test_two_slots_are_both_its_own(notebook):
    cell = notebook.run(
        "%%det_run --slots 2 --out slots\nimport os, json\nslots = json.loads(os.environ['DET_SLOT_IDS'])"
    )
    assert cell.status == "ok", cell.traceback
    assert notebook.run("slots").result["text/plain"] == "[0, 1]"


def test_waiting_shows_place_and_reason_on_one_line_and_then_it_runs(open_notebook, client, gate):
    first, second = open_notebook(), open_notebook()
    held = first.run(WAITS.format(slots=2, options="--detach", gate=str(gate)))
    assert held.status == "ok", held.traceback
    holder = task_of(client, first, held) if held.displays else client.get_task(TASK.search(held.stdout).group())
    until(lambda: holder.reload().view.allocation_state == "RUNNING")
    seen: list[str] = []

    def waits() -> bool:
        seen.append(second.text())
        if "waits for 1 slot" in seen[-1] and "position 1" in seen[-1]:
            holder.kill()
        return False

    cell = second.run("%%det_run --out x\nx = 5", interrupt_when=waits)
    assert cell.status == "ok", cell.traceback
    waiting = next(text for text in seen if "position 1" in text)
    assert re.fullmatch(r"cell-\w+: waits for 1 slot, position 1: \S.*", waiting), waiting
    assert second.run("x").result["text/plain"] == "5"


def test_a_cell_that_waits_leaves_the_queue_on_interrupt(open_notebook, client, tmp_path_factory):
    first, second = open_notebook(), open_notebook()
    held = first.run(WAITS.format(slots=2, options="--detach", gate="/nowhere/at/all"))
    assert held.status == "ok", held.traceback
    holder = task_of(client, first, held) if held.displays else client.get_task(TASK.search(held.stdout).group())
    try:
        cell = second.run("%%det_run\nx = 1", interrupt_when=lambda: "position 1" in second.text())
        assert cell.ename == "StoppedWatching"
        assert "was taken out of the queue" in cell.traceback
        assert "canceled" in status(second, cell) or "killed" in status(second, cell)
    finally:
        holder.kill()


def test_an_interrupt_can_stop_watching_and_the_cell_can_be_joined_again(open_notebook, client):
    notebook = open_notebook()
    code = "%%det_run --out y\nimport time\nprint('started', flush=True)\ntime.sleep(3)\ny = 'later'"
    cell = notebook.run(
        code, headless=False, interrupt_when=lambda: "running" in notebook.text(), answers=["s"], timeout=90
    )
    assert cell.ename == "StoppedWatching"
    (question,) = cell.questions
    assert "still runs" in question
    task = newest(client)
    assert f"%det_run {task.id}" in cell.traceback
    assert not task.state.terminal, "it runs on"
    again = notebook.run(f"%det_run {task.id}")
    assert again.status == "ok", again.traceback
    assert "started" in again.stdout
    assert notebook.run("y").result["text/plain"] == "'later'"


def test_an_interrupt_can_go_on_watching(open_notebook):
    notebook = open_notebook()
    code = "%%det_run --out y\nimport time\ntime.sleep(2)\ny = 3"
    cell = notebook.run(code, headless=False, interrupt_when=lambda: "running" in notebook.text(), answers=[""])
    assert cell.status == "ok", cell.traceback
    assert len(cell.questions) == 1
    assert notebook.run("y").result["text/plain"] == "3"


@pytest.mark.parametrize("headless", [False, True])
def test_an_interrupt_can_kill_and_gives_the_slots_back(open_notebook, client, headless):
    notebook = open_notebook()
    code = "%%det_run\nimport time\ntime.sleep(600)"
    cell = notebook.run(code, headless=headless, interrupt_when=lambda: "running" in notebook.text(), answers=["k"])
    assert cell.ename == "StoppedWatching"
    assert "was killed; its slots are free again" in cell.traceback
    assert len(cell.questions) == (0 if headless else 1)
    assert newest(client).view.end_reason is TaskEnd.KILLED
    assert slots_used(client) == 0


def test_a_cell_that_is_killed_from_elsewhere_is_an_error_and_says_so(notebook, client):
    def kill() -> bool:
        if "running" in notebook.text():
            task = newest(client)
            if not task.state.terminal:
                task.kill()
        return False

    notebook.shown.clear()
    cell = notebook.run("%%det_run\nprint('here', flush=True)\nimport time\ntime.sleep(600)", interrupt_when=kill)
    assert cell.ename == "CellFailed"
    assert "was killed" in cell.traceback


def test_a_process_that_dies_without_a_word_is_an_error_with_its_exit(notebook):
    cell = notebook.run("%%det_run --out x\nx = 1\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert cell.ename == "CellFailed"
    assert "137" in cell.traceback or "SIGKILL" in cell.traceback or "signal" in cell.traceback, cell.traceback
    assert notebook.run("'x' in dir()").result["text/plain"] in {"True", "False"}


def test_a_class_of_a_captured_cell_comes_back_pickled_and_one_of_the_cell_itself_is_refused(notebook):
    notebook.run("%%det_module r_nets\nclass Net:\n    def __init__(self, size):\n        self.size = size\n")
    cell = notebook.run("%%det_run --out net\nfrom r_nets import Net\nnet = Net(7)")
    assert cell.status == "ok", cell.traceback
    assert "net came back as a pickle (r_nets.Net)" in cell.stdout
    assert notebook.run("net.size").result["text/plain"] == "7"
    cell = notebook.run("%%det_run --out thing\nclass Thing: pass\nthing = Thing()")
    assert cell.ename == "ValueProblem"
    assert "%%det_module" in cell.traceback


def test_detach_returns_at_once_with_the_task(notebook, client):
    cell = notebook.run("%%det_run --detach --out z --name later\nz = 11")
    assert cell.status == "ok", cell.traceback
    assert notebook.run("_.kind.value, _.name").result["text/plain"] == "('cell', 'later')"
    task = client.get_task(TASK.search(cell.stdout).group())
    joined = notebook.run(f"%det_run {task.id}")
    assert joined.status == "ok", joined.traceback
    assert notebook.run("z").result["text/plain"] == "11"


def test_help_and_completion(notebook):
    notebook.run("some_data = 1")
    text = notebook.run("%det_run?").payload[0]["data"]["text/plain"]
    assert "%%det_run --slots 1 --in data" in text
    assert notebook.complete("%%det_run --det") == ["--detach"]
    assert "some_data" in notebook.complete("%%det_run --in some_d")[0]


def test_a_notebook_listing_is_empty_with_words(notebook):
    cell = notebook.run("%det_notebook")
    assert notebook.shown[cell.displays[0]]["text/plain"] == "No active notebooks."
