"""A borrowed cell before it is sent: what it ships, what is refused; and its output on the way into the notebook."""

from __future__ import annotations

import io
import json
import tarfile

import numpy as np
import pytest

from detlab.client import Client
from detlab.client.task_facts import TaskFacts
from detlab.errors import BundleTooLarge
from detlab.remote_functions.output import BATCH_CHARS, MOST_CHARS, CellOutput, shown
from detlab.run.values import decode
from detlab.schemas.poolwire import PoolView
from detlab.schemas.taskwire import TaskKind, TaskView
from detlab.schemas.wire import AllocationState, TrialState
from detlab_magics.borrowed.running import CellFailed, status_of
from detlab_magics.borrowed.shipping import check_text, names_of, ship
from detlab_magics.cells.modules import CellModules
from detlab_magics.completion import Completion
from detlab_magics.errors import MagicError
from detlab_magics.kernel import KernelSession
from detlab_magics.magics import magic_options, magic_table
from detlab_magics.taskactions import Borrow, TaskListing, _config, link_to
from testbed.fake_master.api import FakeMaster


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def content(shipment) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(shipment.bundle.data)) as archive:
        return {m.name: archive.extractfile(m).read() for m in archive.getmembers()}


# --- what goes


def test_a_cell_ships_itself_its_variables_and_what_it_imports(folder):
    modules = CellModules()
    modules.capture("r_train", "import r_data\n", 1)
    modules.capture("r_data", "x = 1\n", 2)
    modules.capture("r_other", "x = 2\n", 3)
    (folder / "beside.py").write_text("import deeper\n")
    (folder / "deeper.py").write_text("")
    (folder / "unneeded.py").write_text("")
    text = "# %%det_run\nimport r_train, beside\n"
    namespace = {"a": np.arange(3), "b": 1}
    found = content(ship(text, "cell 4", namespace, modules, ins=["a"], outs=["c"]))
    assert set(found) == {
        ".det_cell/cell.py",
        ".det_cell/cell.json",
        ".det_cell/0.value",
        "r_train.py",
        "r_data.py",
        "beside.py",
        "deeper.py",
    }
    assert json.loads(found[".det_cell/cell.json"]) == {"name": "cell 4", "in": {"a": "0.value"}, "out": ["c"]}
    assert decode(found[".det_cell/0.value"]).tolist() == [0, 1, 2]
    assert found[".det_cell/cell.py"].decode() == text, "line n of the file is line n of the cell"


def test_a_pickled_variable_brings_the_module_of_its_class(folder, monkeypatch):
    modules = CellModules()
    modules.capture("r_nets", "class Net:\n    pass\n", 1)
    modules.install()
    try:
        import r_nets

        shipment = ship("# %%det_run\nprint(net)", "cell 2", {"net": r_nets.Net()}, modules, ins=["net"])
    finally:
        modules.uninstall()
        monkeypatch.delitem(__import__("sys").modules, "r_nets", raising=False)
    assert "r_nets.py" in content(shipment)
    assert shipment.pickled == {"net": "r_nets.Net"}


def test_a_context_folder_is_shipped_whole(folder):
    (folder / "code").mkdir()
    (folder / "code" / "data.txt").write_text("x")
    shipment = ship("# %%det_run\nx = 1", "cell 1", {}, CellModules(), context=folder / "code")
    assert "data.txt" in content(shipment)


def test_an_unknown_variable_is_named_with_its_neighbour(folder):
    with pytest.raises(MagicError, match="--in losss: no variable 'losss' in this notebook, did you mean loss"):
        ship("# %%det_run\nx = 1", "cell 1", {"loss": 1}, CellModules(), ins=["losss"])


def test_variables_over_the_limit_are_named_with_their_sizes(folder, monkeypatch):
    monkeypatch.setattr("detlab.remote_functions.packing.build_bundle", too_large)
    namespace = {"big": np.zeros(1_000_000), "small": 1}
    with pytest.raises(BundleTooLarge) as caught:
        ship("# %%det_run\nx = 1", "cell 1", namespace, CellModules(), ins=["small", "big"])
    assert "big (7.6 MB)" in caught.value.hint


def too_large(*_, **__):
    raise BundleTooLarge("too much")


@pytest.mark.parametrize(
    ("words", "names"), [(None, []), (["a,b"], ["a", "b"]), (["a", "b,c"], ["a", "b", "c"]), (["a,,a"], ["a"])]
)
def test_names_are_separated_by_commas(words, names):
    assert names_of(words, "--in") == names


@pytest.mark.parametrize("word", ["a.b", "1", "a b", "class", "x[0]"])
def test_what_is_no_name_is_refused(word):
    with pytest.raises(MagicError, match="not a valid variable name"):
        names_of([word], "--out")


@pytest.mark.parametrize("line", ["!ls", "    !ls", "%time f()"])
def test_lines_that_only_ipython_knows_are_refused_with_their_number(line):
    body = f"if True:\n{line}" if line.startswith(" ") else line
    with pytest.raises(MagicError, match=r"line \d of cell 3: .*plain Python"):
        check_text(f"# %%det_run\nx = 1\n{body}", "cell 3")


def test_a_percent_sign_within_python_is_none():
    check_text('# %%det_run\nx = """\n%d\n""" % 3\ny = 7 \\\n  % 2', "cell 3")


def test_an_empty_cell_is_refused():
    with pytest.raises(MagicError, match="empty"):
        check_text("# %%det_run\n\n# only a comment\n", "cell 3")


def test_a_syntax_error_is_the_cells_own():
    with pytest.raises(SyntaxError) as caught:
        check_text("# %%det_run\nx = 1\nfor\n", "cell 3")
    assert (caught.value.filename, caught.value.lineno) == ("cell 3", 3)


def test_an_image_means_a_container_unless_it_is_said_otherwise():
    assert _config(Borrow("", 1))["resources"] == {"slots": 1}
    assert "runtime" not in _config(Borrow("", 1))
    assert _config(Borrow("", 1, image="i"))["runtime"] == "docker"
    assert _config(Borrow("", 1, slots=2, pool="gpu", priority=3))["resources"] == {
        "slots": 2,
        "resource_pool": "gpu",
        "priority": 3,
    }


# --- what comes


class Written:
    def __init__(self) -> None:
        self.messages: list[str] = []
        self.now = 0.0
        self.output = CellOutput(self.messages.append, "det task logs T", clock=lambda: self.now)

    @property
    def text(self) -> str:
        return "".join(self.messages)

    def say(self, *lines: str) -> None:
        for line in lines:
            self.output.add(line)
        self.now += 1.0
        assert self.output.due == bool(lines)
        self.output.flush()


def test_lines_come_in_order_and_in_batches():
    written = Written()
    written.say("a", "b")
    assert written.messages == ["a\nb\n"]
    written.output.add("c")
    assert not written.output.due, "not again at once"
    written.output.close()
    assert written.text == "a\nb\nc\n"


def test_a_progress_bar_takes_its_own_place():
    written = Written()
    written.say("Epoch 1:  10%|#     | 1/10", "Epoch 1:  20%|##    | 2/10")
    written.say("Epoch 1:  30%|###   | 3/10")
    written.say("done", "Epoch 2:   5%|", "Epoch 3:   5%|")
    written.output.close()
    assert written.text == (
        "Epoch 1:  20%|##    | 2/10\rEpoch 1:  30%|###   | 3/10\ndone\nEpoch 2:   5%|\nEpoch 3:   5%|\n"
    )


def test_a_flood_is_far_below_jupyters_limit_and_says_what_is_left_out():
    written = Written()
    written.say(*(f"line {number}" for number in range(100_000)))
    (message,) = written.messages
    assert len(message) < BATCH_CHARS + 200
    assert message.startswith("line 0\nline 1\n")
    assert message.endswith("line 99999\n")
    assert "lines left out: det task logs T" in message


def test_endless_output_ends_with_its_last_lines():
    written = Written()
    for batch in range(2 * MOST_CHARS // BATCH_CHARS):
        written.say(*(f"{batch} {'x' * 990}" for _ in range(19)))
    written.say("the very last")
    before = len(written.text)
    assert before < MOST_CHARS + 2 * BATCH_CHARS
    written.output.close()
    assert written.text.endswith("the very last\n")
    assert "too much output for a notebook" in written.text


def test_two_lines_that_are_longer_than_a_batch_are_cut_not_dropped():
    written = Written()
    written.say("a" * 16_000, "b" * 16_000)
    assert "aaa" in written.text
    assert "bbb" in written.text
    assert len(written.text) < BATCH_CHARS + 200


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07\x1b[2J", "⟨U+001B⟩]0;title⟨U+0007⟩⟨U+001B⟩[2J"),
        ("a\x00b\x08c", "a⟨U+0000⟩b⟨U+0008⟩c"),
        ("\u202egnp.exe", "⟨U+202E⟩gnp.exe"),
        ("old\rnew", "new"),
        ("tab\tstop", "tab     stop"),
    ],
)
def test_hostile_text_is_text(text, seen):
    assert shown(text) == seen


# --- where it stands, how it ended


def view(**more) -> TaskView:
    given = {
        "id": "cell-1",
        "kind": TaskKind.CELL,
        "name": "n",
        "owner": "o",
        "state": TrialState.ACTIVE,
        "slots_needed": 2,
    }
    return TaskView(**{**given, **more})


def test_waiting_is_one_line_with_place_and_reason():
    line = status_of(view(allocation_state=AllocationState.PENDING, place=3, pending_reason="needs 2 slots\n1 is free"))
    assert line == "cell-1: waits for 2 slots, position 3: needs 2 slots 1 is free"
    assert (
        status_of(view(allocation_state=AllocationState.RUNNING, agent_id="n1")) == "cell-1: running with 2 slots on n1"
    )
    pulling = view(
        allocation_state=AllocationState.PULLING, agent_id="n1", stage_message="pulling x, 4 %", slots_needed=1
    )
    assert status_of(pulling) == "cell-1: starting with 1 slot on n1: pulling x, 4 %"


def test_a_remote_error_shows_its_own_traceback_and_nothing_else():
    error = CellFailed(
        "bad", traceback=["Traceback (most recent call last):", '  File "cell 1", line 2', "ValueError: bad"]
    )
    assert error._render_traceback_() == [
        "Traceback (most recent call last):", '  File "cell 1", line 2', "\x1b[0;31mValueError\x1b[0m: bad",
    ]  # fmt: skip


class _Task(TaskFacts):
    def __init__(self, given: TaskView, url: str | None) -> None:
        self.view = given
        self._url = url

    @property
    def url(self) -> str | None:
        return self._url


def test_links_and_lists_escape_names():
    task = _Task(view(name="<img src=x>", kind=TaskKind.NOTEBOOK), 'http://h/user/a/"><b>/')
    markup = link_to(task)["text/html"] + TaskListing([task], "notebook")._repr_html_()
    assert "<img" not in markup
    assert '"><b>' not in markup
    assert "No active notebooks." in repr(TaskListing([], "notebook"))


# --- help and completion


def test_the_magics_are_listed_with_their_options():
    table = dict(magic_table())
    assert table["%%det_run"].startswith("Run the cell in a fresh process on borrowed slots")
    assert {"%det_tensorboard", "%det_notebook", "%det_list"} <= set(table)
    assert {"--slots", "--in", "--out", "--image", "--runtime", "--detach", "--name"} <= set(magic_options()["det_run"])


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("%%det_run --in lo", ["loss", "_lo", "data"]),
        ("%%det_run --in data,lo", ["data,loss"]),
        ("%%det_run --slots 1 --out ", ["loss", "data"]),
        ("%%det_run --runtime ", ["docker", "process"]),
        ("%%det_run --de", ["--detach"]),
    ],
)
def test_completion_offers_variables_and_options(line, offers):
    completion = Completion(KernelSession(), magic_options(), lambda: ["loss", "data", "_hidden"])
    _, found = completion.offers([], line)
    assert {offer for offer in offers if not offer.startswith("_")} <= set(found)
    assert not any("_hidden" in offer for offer in found)


def test_completion_offers_the_pools_that_one_word_names():
    with FakeMaster() as master:
        master.pools = [
            PoolView(name=name, scheduler="priority", fitting="best", priority=42)
            for name in ("default", "gpu", "two words")
        ]
        session = KernelSession()
        completion = Completion(session, magic_options())
        assert completion.offers([], "%%det_run --pool ") == ("", [])  # nobody has connected yet
        with Client(master.url, master.token) as session.connected:
            assert completion.offers([], "%%det_run --pool g") == ("g", ["default", "gpu"])
        with Client(master.url, "no-token-of-theirs") as session.connected:
            assert completion.offers([], "%%det_run --pool g") == ("g", [])
