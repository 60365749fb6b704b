"""What a cell ships, where its mistakes are, what Tab offers."""

import json

import pytest

from detlab.errors import ConfigError, Problem
from detlab_magics.actions import interrupted
from detlab_magics.cells.modules import CellModules
from detlab_magics.cells.outside import outside_warnings
from detlab_magics.cells.prepare import Places, prepare, read_config
from detlab_magics.completion import Completion
from detlab_magics.errors import MagicError
from detlab_magics.kernel import KernelSession
from detlab_magics.magics import explain_misplaced
from detlab_magics.plaintext import in_notebook

BASE = {"searcher": {"name": "single", "metric": "loss"}}


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    modules = CellModules()

    def ship(entrypoint, *, cells=(), files=(), context=None):
        modules.cells.clear()
        for number, (name, text) in enumerate(dict(cells).items(), 1):
            modules.capture(name, text, number)
        for path, text in dict(files).items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        prepared = prepare({**BASE, "entrypoint": entrypoint}, modules, context=context)
        return {file.path for file in prepared.bundle.files}

    return ship


def test_cells_that_the_entrypoint_names_go_with_what_they_import(shipped):
    cells = {"a_train": "import a_data", "a_data": "x = 1", "a_other": "y = 1"}
    assert shipped("python3 a_train.py --fast", cells=cells) == {"a_train.py", "a_data.py"}
    assert shipped("python3 -m a_other", cells=cells) == {"a_other.py"}
    assert shipped(["python3", "a_data.py"], cells=cells) == {"a_data.py"}


def test_a_module_mentioned_in_passing_is_not_shipped(shipped):
    cells = {"b_train": "b_data = 3  # not the module b_data", "b_data": "x = 1"}
    assert shipped("python3 b_train.py", cells=cells) == {"b_train.py"}


def test_an_unknown_entrypoint_takes_all_cells(shipped):
    assert shipped("sh -c 'exec $START'", cells={"c_one": "", "c_two": ""}) == {"c_one.py", "c_two.py"}


def test_local_files_that_cells_import_go_too(shipped):
    files = {"mylib.py": "import deeper", "deeper.py": "", "unused.py": "", "pkg/__init__.py": "", "pkg/part.py": ""}
    found = shipped("python3 d_train.py", cells={"d_train": "import mylib, pkg.part"}, files=files)
    assert found == {"d_train.py", "mylib.py", "deeper.py", "pkg/__init__.py", "pkg/part.py"}


def test_a_local_script_takes_the_cells_that_it_imports(shipped):
    files = {"run.py": "import e_model, helper", "helper.py": ""}
    cells = {"e_model": "", "e_unrelated": ""}
    assert shipped("python3 run.py", cells=cells, files=files) == {"run.py", "helper.py", "e_model.py"}


def test_a_local_module_is_found_by_its_dotted_name(shipped):
    files = {"proj/__init__.py": "", "proj/train.py": "from proj import data", "proj/data.py": ""}
    assert shipped("python3 -m proj.train", files=files) == {"proj/__init__.py", "proj/train.py", "proj/data.py"}


def test_a_folder_goes_whole_with_the_cells_that_its_script_imports(shipped, tmp_path):
    files = {"code/go.py": "import f_model", "code/note.txt": "hi", "outside.py": ""}
    cells = {"f_model": "", "f_unrelated": ""}
    assert shipped("python3 go.py", cells=cells, files=files, context=tmp_path / "code") == {
        "go.py",
        "note.txt",
        "f_model.py",
    }


def test_mistakes_have_the_line_of_the_cell():
    text = "\nname: x\nsearcher:\n  name: single\n  stop: [1, {deep: 2}]\n"
    places = Places(text, "cell 3")
    assert [places.line(p) for p in ("name", "searcher.name", "searcher.stop[1].deep", "searcher.metric", "x")] == [
        2, 4, 5, 3, None,
    ]  # fmt: skip
    problems = [Problem("searcher.name", "late"), Problem("name", "early"), Problem("", "all")]
    error = places.explain(ConfigError(problems))
    assert str(error).splitlines()[1:] == ["  all", "  line 2, name: early", "  line 4, searcher.name: late"]


def test_a_reference_in_a_comment_is_left_alone():
    config, _ = read_config("# use ${nothing}\nname: ${x}", {"x": 1}, "cell 1")
    assert config == {"name": 1}


def test_a_variable_that_yaml_cannot_hold_is_refused():
    with pytest.raises(MagicError, match="the variable 'model' is a object, which a configuration cannot hold"):
        read_config("name: ${model}", {"model": object()}, "cell 1")
    with pytest.raises(MagicError, match="expressions are not evaluated"):
        read_config("name: ${1 + 1}", {}, "cell 1")


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        ("%%det_module a\nx", None),
        ("# hi\n\n%%det_experiment --wait\na: b\n", "det_experiment comment"),
        ("x = 1\n%%det_module a\ncode", "det_module code"),
        ("%load_ext detlab_magics\n%%det_module a\ncode", "det_module code"),
        ('s = """\n%%det_module a\n"""', None),
        ("%%time\n%%det_module a\ncode", None),
        ("", None),
    ],
)
def test_a_cell_magic_in_the_wrong_line_is_noticed(cell, found):
    def complete(text):
        try:
            compile("\n".join("pass" if line.startswith("%") else line for line in text.splitlines()), "", "exec")
        except SyntaxError:
            return False
        return True

    lines = cell.splitlines(keepends=True)
    after = explain_misplaced(complete)(lines)
    assert (after == lines) == (found is None)
    if found is not None:
        assert f"'{found}'" in after[0]


def test_completion_asks_nobody_before_a_magic_has_connected():
    offers = Completion(KernelSession(), {"det_watch": ["--wait"]}).offers
    assert offers([], "%det_watch ") == ("", [])
    assert offers([], "%det_watch --w") == ("--w", ["--wait"])
    assert "resources:" in offers(["%%det_experiment"], "reso")[1]
    assert offers([], "reso") == ("", [])


def test_hints_name_magics_where_there_are_some():
    assert in_notebook("the whole output: det trial logs 7") == "the whole output: %det_logs 7"
    assert in_notebook("det experiment list, det e kill 3") == "%det_list, %det_kill 3"
    assert in_notebook("det up") == "det up"
    assert in_notebook("det search show 7") == "%det_search show 7"
    assert in_notebook("its own: det trial logs 7 --rank 1") == "its own: %det_logs 7 --rank 1"


def test_a_second_interrupt_within_two_seconds_offers_to_kill():
    session = KernelSession()
    assert "to watch it again: %det_watch 7" in str(interrupted(session, 7))
    second = str(interrupted(session, 7))
    assert "it is still active. To kill it: %det_kill 7" in second
    session.interrupted_at -= 3
    assert "%det_watch 7" in str(interrupted(session, 7))


def test_a_module_found_by_sys_path_elsewhere_is_warned_of(tmp_path, monkeypatch):
    """`sys.path.append("../src")`: the import worked in the notebook, and failed in the trial, half an hour later."""
    for path in ("nb/local.py", "nb/below/near.py", "src/afar.py", "src/packaged/__init__.py", "src/unused.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    monkeypatch.chdir(tmp_path / "nb")
    for folder in ("../src", str(tmp_path / "nb" / "below"), ""):
        monkeypatch.syspath_prepend(folder)
    modules = CellModules()
    modules.capture("f_train", "import json, numpy, detlab, local, f_data\nfrom packaged.part import x\nimport near", 1)
    modules.capture("f_data", "import afar", 2)
    prepared = prepare({**BASE, "entrypoint": "python3 f_train.py"}, modules)
    told = outside_warnings(prepared.bundle, None)
    assert [warning.message.partition(",")[0] for warning in told] == [
        f"afar is imported from {tmp_path / 'src'}",
        f"near is imported from {tmp_path / 'nb' / 'below'}",
        f"packaged is imported from {tmp_path / 'src'}",
    ]
    assert {warning.level for warning in told} == {"warning"}
    whole = prepare({**BASE, "entrypoint": "python3 f_train.py"}, modules, context=tmp_path)
    assert outside_warnings(whole.bundle, tmp_path) == []
    modules.uninstall()


def key_of(text, counter, config, *, cell_id="a", folder=None):
    modules = CellModules()
    modules.capture("same_train", text, counter, cell_id)
    source = {"cell_id": cell_id, "where": f"cell {counter + 1}"}
    return prepare({**BASE, "entrypoint": "python3 same_train.py", **config}, modules, source=source, context=folder)


SAME = 'import os\n\nTEXT = """a  \nb"""\nprint(TEXT)'


@pytest.mark.parametrize(
    "again",
    [
        SAME,
        SAME + "\n",
        SAME + "\n\n   \n",
        SAME.replace("import os", "import os   \t"),
        SAME.replace('"""\nprint', '"""  \nprint'),
        SAME.replace("\n", "\r\n"),
    ],
)
def test_a_notebook_that_runs_again_has_the_same_code(shipped, again):
    """The execution counter stood in the module's first line: a running search was submitted again."""
    first = key_of(SAME, 8, {"hyperparameters": {"lr": 0.1, "deep": {"a": 1, "b": 2}}})
    second = key_of(again, 31, {"hyperparameters": {"deep": {"b": 2, "a": 1}, "lr": 0.1}}, cell_id="b")
    assert (second.bundle.digest, second.key) == (first.bundle.digest, first.key)
    assert second.source["cells"] == {"same_train.py": {"cell": 31, "cell_id": "b", "line_offset": 0}}


@pytest.mark.parametrize(
    "other", [SAME.replace("a  \n", "a\n"), SAME.replace("import os", "import os  # why"), "\n" + SAME]
)
def test_what_python_reads_makes_other_code(shipped, other):
    assert key_of(SAME, 8, {}).key != key_of(other, 8, {}).key


def test_a_notebook_in_the_context_is_the_same_code_after_it_ran(shipped, tmp_path):
    """Jupyter saves outputs and counters into the file while its own cell submits the folder."""
    cell = {"cell_type": "code", "id": "x1", "source": ["a = 1\n", "a"], "metadata": {"tags": ["parameters"]}}
    book = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": {"name": "python3", "language": "python"}}}
    ran = {**cell, "id": "y2", "source": "a = 1\na", "execution_count": 7}
    ran |= {"outputs": [{"output_type": "stream", "name": "stdout", "text": "1"}]}
    ran["metadata"] = {"execution": {"iopub.status.idle": "2024"}, "tags": ["parameters"]}
    later = {"papermill": {"duration": 1}, **book["metadata"], "language_info": {"name": "python", "version": "3"}}
    digests, keys = set(), set()
    for found in (
        {**book, "cells": [{**cell, "outputs": [], "execution_count": None}]},
        {**book, "cells": [{**ran, "execution_count": 8}], "metadata": {**later}},
        {**book, "cells": [ran], "metadata": {**later}},
    ):
        found["metadata"].setdefault("language_info", {"name": "python"})
        (tmp_path / "nb.ipynb").write_text(json.dumps(found))
        prepared = key_of(SAME, 1, {}, folder=tmp_path)
        digests.add(prepared.bundle.digest)
        keys.add(prepared.key)
    assert len(digests) == len(keys) == 1
    (tmp_path / "nb.ipynb").write_text(json.dumps({**book, "cells": [{**cell, "source": "a = 2"}]}))
    assert key_of(SAME, 1, {}, folder=tmp_path).bundle.digest not in digests


@pytest.mark.parametrize("text", ["", "no json", "[1]", '{"cells": 3}', '{"cells": [1, "x"], "nbformat": 4}'])
def test_a_file_that_is_no_notebook_is_shipped_as_it_is_or_at_least_shipped(shipped, tmp_path, text):
    (tmp_path / "nb.ipynb").write_text(text)
    assert "nb.ipynb" in {file.path for file in key_of(SAME, 1, {}, folder=tmp_path).bundle.files}
