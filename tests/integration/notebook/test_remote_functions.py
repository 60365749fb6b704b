"""`@det.remote` in a real kernel on a real cluster: captured cells, output, errors, interrupts, several at once."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from detlab.client import Client
from detlab.schemas.taskwire import TaskEnd
from testbed.cluster import Cluster
from testbed.front.kernels import Notebook
from testbed.waiting import until

pytestmark = pytest.mark.hub

TRAIN = """@det.remote
def train(x):
    print('training on', len(x))
    if len(x) == 0:
        raise ValueError('no data')
    return {'total': scaled(x), 'x': x}
"""


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.url, cluster.token) as found:
        yield found


@pytest.fixture(scope="module")
def functions(notebook: Notebook) -> Notebook:
    """A kernel with functions in cells."""
    for code in (
        "import time, os\nimport numpy as np\nimport detlab as det",
        "%%det_module rf_helper\nimport numpy as np\n\ndef total(x):\n    return float(np.asarray(x).sum())\n",
        "import rf_helper\nSCALE = 10\n\ndef scaled(x):\n    return SCALE * rf_helper.total(x)",
        TRAIN,
        "@det.remote(slots=2)\ndef slots():\n    import json\n    return json.loads(os.environ['DET_SLOT_IDS'])",
        "@det.remote\ndef waits():\n    print('it runs', flush=True)\n    time.sleep(600)",
    ):
        cell = notebook.run(code)
        assert cell.status == "ok", cell.traceback
    return notebook


def slots_used(client: Client) -> int:
    return client.get_cluster().slots_used


def test_a_function_of_a_cell_brings_cells_and_modules_and_returns_its_value(functions, client):
    cell = functions.run("found = train.remote(np.arange(4.0)).result()\n(found['total'], found['x'].tolist())")
    assert cell.status == "ok", cell.traceback
    assert cell.result["text/plain"] == "(60.0, [0.0, 1.0, 2.0, 3.0])"
    assert "training on 4\n" in cell.stdout
    until(lambda: slots_used(client) == 0)


def test_an_exception_is_raised_under_its_name_with_the_cells_own_lines(functions):
    cell = functions.run("train.remote([]).result()")
    assert cell.ename == "ValueError"
    assert re.search(r'File "cell \d+", line 5, in train', cell.traceback), cell.traceback
    assert "no data" in cell.traceback


def test_slots_are_its_own_and_too_many_are_refused_with_how_many_there_are(functions, client):
    assert functions.run("slots.remote().result()").result["text/plain"] == "[0, 1]"
    before = client.list_tasks(limit=1)
    cell = functions.run("slots.options(slots=500).remote()")
    assert cell.status == "error"
    assert "the largest agent has 2" in cell.traceback
    assert client.list_tasks(limit=1) == before


def test_several_run_at_once_and_come_back_in_order(functions):
    cell = functions.run("[found['total'] for found in train.map([[1], [2], [3]]).results()]")
    assert cell.status == "ok", cell.traceback
    assert cell.result["text/plain"] == "[10.0, 20.0, 30.0]"


@pytest.mark.parametrize("headless", [False, True])
def test_an_interrupt_can_kill_and_gives_the_slots_back(open_notebook, client, headless):
    notebook = open_notebook()
    notebook.run("import time\nimport detlab as det\n\n@det.remote\ndef waits():\n    time.sleep(600)")
    before = client.list_tasks(limit=1)

    def runs() -> bool:
        (newest,) = client.list_tasks(limit=1)
        return newest not in before and newest.up

    cell = notebook.run("waits.remote().result()", headless=headless, interrupt_when=runs, answers=["k"])
    assert cell.ename == "CallInterrupted", cell.traceback
    assert "was killed; its slots are free again" in cell.traceback
    assert len(cell.questions) == (0 if headless else 1)
    assert client.list_tasks(limit=1)[0].view.end_reason is TaskEnd.KILLED
    until(lambda: slots_used(client) == 0)


def test_an_interrupt_can_stop_waiting_and_the_call_can_be_cancelled(functions, client):
    cell = functions.run(
        "call = waits.remote()\ncall.result()",
        headless=False,
        interrupt_when=lambda: client.list_tasks(limit=1)[0].up,
        answers=["s"],
    )
    assert cell.ename == "CallInterrupted", cell.traceback
    assert functions.run("call.done()").result["text/plain"] == "False"
    functions.run("call.cancel()")
    until(lambda: slots_used(client) == 0)


def test_mistakes_are_told_before_any_slot_is_asked_for(functions, client):
    before = client.list_tasks(limit=1)
    functions.run("@det.remote\ndef lost(x):\n    return nowhere(x)")
    for code, words in {
        "train(3)": "train.remote(…) on the cluster",
        "train.remote(open('/dev/null'))": "the argument x",
        "lost.remote(1)": "it uses 'nowhere', which is not defined here",
        "train.remote()": "missing a required argument",
    }.items():
        cell = functions.run(code)
        assert cell.status == "error", code
        assert words in cell.traceback, (code, cell.traceback)
    assert client.list_tasks(limit=1) == before
