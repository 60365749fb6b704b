"""Cells as modules, and notebook variables in YAML."""

import inspect
import multiprocessing
import pathlib
import stat
import sys
import traceback

import pytest
import yaml

from detlab_magics.borrowed.shipping import check_text
from detlab_magics.cells.expand import Expansion
from detlab_magics.cells.modules import CellModules
from detlab_magics.errors import MagicError
from detlab_magics.kernel import KernelSession
from detlab_magics.magic_lines import short_errors
from detlab_magics.magics import magic_table
from detlab_magics.plaintext import name_cells


@pytest.fixture
def modules():
    cells = CellModules()
    cells.install()
    yield cells
    cells.uninstall()
    for name in cells.cells:
        sys.modules.pop(name, None)


def test_a_cell_is_importable_and_its_tracebacks_name_cell_and_line(modules):
    modules.capture("cell_a", "def invert(x):\n    return 1 / x\n", 14)
    import cell_a

    with pytest.raises(ZeroDivisionError) as caught:
        cell_a.invert(0)
    shown = "".join(traceback.format_exception(caught.value))
    assert 'File "cell 14 (cell_a.py)", line 3, in invert' in shown  # the magic itself is line 1 of the cell
    assert "return 1 / x" in shown


def test_a_cell_runs_at_import_not_at_capture(modules):
    modules.capture("cell_b", "raise RuntimeError('now')", 3)
    with pytest.raises(RuntimeError, match="now"):
        import cell_b  # noqa: F401  (that it can be imported is the point)


def test_the_later_cell_of_a_name_wins(modules):
    modules.capture("cell_c", "VALUE = 1", 1)
    import cell_c

    assert cell_c.VALUE == 1
    modules.capture("cell_c", "VALUE = 2", 2)
    import cell_c as again

    assert again.VALUE == 2
    assert modules.provenance()["cell_c.py"]["cell"] == 2


def test_a_syntax_error_is_at_the_cells_own_line(modules):
    with pytest.raises(SyntaxError) as caught:
        modules.capture("cell_d", "x = 1\ny = = 2\n", 5)
    assert (caught.value.filename, caught.value.lineno) == ("cell 5 (cell_d.py)", 3)


def test_a_syntax_error_of_a_cell_is_shown_without_our_frames(modules):
    class Magics:
        session = KernelSession()

        @short_errors
        def run(self, compile_cell):
            compile_cell()

    with pytest.raises(MagicError) as caught:
        Magics().run(lambda: modules.capture("cell_d", "x = 1\ny = = 2\n", 5))
    [shown] = caught.value._render_traceback_()
    assert shown.splitlines() == [
        "\x1b[0;31mSyntaxError\x1b[0m: invalid syntax",
        '  File "cell 5 (cell_d.py)", line 3',
        "    y = = 2",
        "        ^",
    ]
    with pytest.raises(MagicError) as caught:
        Magics().run(lambda: check_text("# %%det_run\n x = 1\n", "cell 3"))
    assert caught.value.kind == "IndentationError"
    with pytest.raises(SyntaxError):  # of a file of the user's own: Python's frames say who imports it
        Magics().run(lambda: compile("y = = 2", "train.py", "exec"))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_worker_processes_import_a_cell(modules, method):
    """It was nowhere on disk: a DataLoader with workers that are spawned ended with ModuleNotFoundError."""
    modules.capture("cell_w", "def double(x):\n    return 2 * x\n", 7)
    import cell_w

    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.map(cell_w.double, [1, 2]) == [2, 4]
        modules.capture("cell_w", "def double(x):\n    return 3 * x\n", 8)
    import cell_w

    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.map(cell_w.double, [1, 2]) == [3, 6], "the same size, within the same second"


def test_workers_of_joblib_import_a_cell(modules):
    """Its workers live on between calls: they see the text that was current when they first imported the module."""
    joblib = pytest.importorskip("joblib")
    modules.capture("cell_j", "def double(x):\n    return 2 * x\n", 7)
    import cell_j

    try:
        assert joblib.Parallel(n_jobs=2)(joblib.delayed(cell_j.double)(number) for number in (1, 2)) == [2, 4]
    finally:
        joblib.externals.loky.get_reusable_executor().shutdown(wait=True)


def test_a_cell_has_a_file_and_source(modules):
    modules.capture("cell_f", "class Net:\n    def run(self):\n        return 1\n", 4)
    import cell_f

    folder = pathlib.Path(cell_f.__file__).parent
    assert inspect.getsource(cell_f) == pathlib.Path(cell_f.__file__).read_text()
    assert inspect.getsource(cell_f.Net).startswith("class Net:")
    assert inspect.getsource(cell_f.Net.run).strip().startswith("def run")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modules.uninstall()
    assert not folder.exists()
    assert str(folder) not in sys.path


def test_a_forked_child_does_not_remove_the_folder(modules):
    modules.capture("cell_k", "", 4)
    child = multiprocessing.get_context("fork").Process(target=modules.uninstall)
    child.start()
    child.join()
    assert child.exitcode == 0
    assert modules.files["cell_k"].exists()


@pytest.mark.parametrize("line", ["%time f()", "!pip list", "    !ls"])
def test_a_line_of_ipython_in_a_module_is_refused_with_what_to_write(modules, line):
    with pytest.raises(MagicError, match=r"line 3 of cell 5 \(cell_m.py\).*magics and shell lines") as caught:
        modules.capture("cell_m", f"if True:\n{line}\n", 5)
    assert "subprocess.run" in str(caught.value)
    assert "cell_m" not in modules.cells


@pytest.mark.parametrize("name", ["1a", "a-b", "class", "a.b", "", "../x"])
def test_impossible_module_names_are_refused(modules, name):
    with pytest.raises(MagicError, match="module name"):
        modules.capture(name, "", 1)


def test_a_cell_cannot_hide_an_installed_package(modules):
    with pytest.raises(MagicError, match="would hide it"):
        modules.capture("json", "", 1)


def test_log_lines_of_captured_cells_are_named_by_cell():
    line = '  File "/tmp/x/tasks/1.a.1/work/train.py", line 12, in main'
    cells = {"train.py": {"cell": 14, "line_offset": 0}}
    assert name_cells(line, cells) == '  File "cell 14 (train.py)", line 12, in main'
    assert name_cells("plain /train.py text", cells) == "plain /train.py text"


class Scalar:
    def tolist(self):
        return 4


def expand(text, **names):
    expansion = Expansion(names)
    return expansion.unmask(yaml.safe_load(expansion.mask(text)))


def test_a_reference_keeps_its_type_alone_and_is_text_within_text():
    text = "a: {x: ${n}, y: [${s}, 2]}\nname: run-${n}\n${s}: key\nlist: ${l}\nnumpy: ${z}"
    assert expand(text, n=4, s="a: b", l=[1, {"q": None}], z=Scalar()) == {
        "a": {"x": 4, "y": ["a: b", 2]},
        "name": "run-4",
        "a: b": "key",
        "list": [1, {"q": None}],
        "numpy": 4,
    }


def test_a_value_that_looks_like_a_reference_is_not_expanded_again():
    assert expand("a: ${x}", x="${y}") == {"a": "${y}"}


def test_doubled_dollar_writes_the_text():
    assert expand("cmd: echo $${HOME}") == {"cmd": "echo ${HOME}"}


def test_only_the_notebooks_own_variables_are_suggested():
    """It was "did you mean ${open}?", a function of IPython's."""
    with pytest.raises(MagicError) as caught:
        Expansion({"open": open, "In": [], "_nope": 1}).mask("a: ${nope}\nb: ${IN}")
    assert "did you mean" not in str(caught.value)


def test_all_unknown_names_are_told_at_once_with_cell_lines():
    with pytest.raises(MagicError) as caught:
        Expansion({"epochs": 3}).mask("a: ${epoch}\nb: 1\nc: ${nothing}")
    assert "line 2 of the cell: no variable 'epoch' in this notebook, did you mean ${epochs}?" in str(caught.value)
    assert "line 4 of the cell: no variable 'nothing'" in str(caught.value)


def test_a_module_in_the_way_is_named(modules, tmp_path, monkeypatch):
    (tmp_path / "in_the_way.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MagicError, match=r"'in_the_way' already exists here \(in_the_way\.py\)"):
        modules.capture("in_the_way", "x = 1\n", 3)
    with pytest.raises(MagicError, match=r"already exists here \(/.*json/__init__\.py\)"):
        modules.capture("json", "x = 1\n", 3)


def test_the_list_of_magics_describes_each():
    """Regression: %det_logs was described as "trial", the second line of its usage."""
    found = dict(magic_table())
    assert found["%det_logs"].startswith("Print a trial's output")
    assert [name for name, text in found.items() if " " not in text] == []


@pytest.mark.parametrize("word", ["args", "args_no_hyphens", "args_no_boolean_flags", "args_json"])
def test_what_the_launcher_fills_in_is_not_swallowed_by_a_variable_of_the_notebook(word):
    text = f'entrypoint: [python3, -m, detlab.launch.hparams, --, python3, train.py, "${{{word}}}", "${{epochs}}"]'
    expansion = Expansion({"args": "of argparse", word: "mine", "epochs": 3})
    found = expansion.unmask(yaml.safe_load(expansion.mask(text)))
    assert found["entrypoint"][-2:] == [f"${{{word}}}", 3]
    other = Expansion({word: "mine"})
    assert other.unmask(yaml.safe_load(other.mask(f"name: ${{{word}}}"))) == {"name": "mine"}


def test_names_that_only_the_launcher_knows_stay_in_every_body():
    expansion = Expansion({})
    text = "a: --lr=${hparams.lr}\nb: ${env.USER}"
    assert expansion.unmask(yaml.safe_load(expansion.mask(text))) == {"a": "--lr=${hparams.lr}", "b": "${env.USER}"}
    with pytest.raises(MagicError, match=r"detlab\.launch\.hparams"):
        Expansion({}).mask("entrypoint: python3 train.py ${args}")
