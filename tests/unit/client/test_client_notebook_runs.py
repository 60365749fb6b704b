"""Notebook runs before they are sent: parameters by name and type, what travels, what is no notebook."""

from __future__ import annotations

import io
import json
import re
import tarfile
import textwrap
from pathlib import Path

import pytest

from detlab.client.notebook_runs import (
    ENTRYPOINT,
    Word,
    checked_parameters,
    parameters_of,
    prepare_notebook_run,
    read_notebook,
)
from detlab.errors import BundleError, ConfigError

DEFAULTS = """\
lr = 0.1
epochs: int = 3
name = 'x'
fast = False
sizes = [1, 2]
maybe: int | None = None
limit = None
typed = compute()  # type: float
free = compute()
"""


def cell(source: str | list[str], *tags: str, kind: str = "code") -> dict[str, object]:
    return {"cell_type": kind, "source": source, "metadata": {"tags": list(tags)}, "outputs": []}


def notebook(*cells: dict[str, object]) -> dict[str, object]:
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": list(cells)}


@pytest.fixture
def parametrised() -> dict[str, object]:
    return notebook(cell("# title", kind="markdown"), cell(DEFAULTS.splitlines(keepends=True), "parameters"))


def test_parameters_and_their_types_are_read_from_the_tagged_cell(parametrised):
    found = parameters_of(parametrised)
    assert {name: parameter.type for name, parameter in found.items()} == {
        "lr": "float",
        "epochs": "int",
        "name": "str",
        "fast": "bool",
        "sizes": "list",
        "maybe": "int",
        "limit": None,
        "typed": "float",
        "free": None,
    }
    assert found["maybe"].optional
    assert parameters_of(notebook(cell("x = 1"))) is None


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("lr", "1e-3", 0.001),
        ("lr", "2", 2),
        ("epochs", "5", 5),
        ("name", "5", "5"),
        ("name", "a b", "a b"),
        ("fast", "true", True),
        ("sizes", "[3, 4]", [3, 4]),
        ("maybe", "null", None),
        ("free", "7", 7),
        ("free", "word", "word"),
        ("typed", ".5", 0.5),
    ],
)
def test_words_of_the_command_line_become_what_the_notebook_says(parametrised, name, text, value):
    assert checked_parameters(parametrised, {name: Word(text)}, "nb")[name] == value


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"lrr": 1}, "lrr: the notebook has no such parameter (did you mean lr?)"),
        ({"epochs": Word("many")}, "epochs: 'many' is not of type int (its default is 3)"),
        ({"epochs": 1.5}, "epochs: must be of type int, not float (its default is 3)"),
        ({"epochs": True}, "epochs: must be of type int, not bool (its default is 3)"),
        ({"fast": 1}, "fast: must be of type bool, not int (its default is False)"),
        ({"lr": None}, "lr: must be of type float, not NoneType (its default is 0.1)"),
        ({"free": object()}, "free: Object of type object is not JSON serializable (its default is compute())"),
    ],
)
def test_a_wrong_name_or_type_is_told_before_anything_is_sent(parametrised, given, problem):
    with pytest.raises(ConfigError) as caught:
        checked_parameters(parametrised, given, "nb.ipynb")
    assert [str(found) for found in caught.value.problems] == [problem]


def test_all_mistakes_are_told_at_once(parametrised):
    with pytest.raises(ConfigError, match="2 parameters cannot be used"):
        checked_parameters(parametrised, {"a": 1, "epochs": "x"}, "nb.ipynb")


def test_a_notebook_without_the_tag_takes_no_parameters():
    with pytest.raises(ConfigError, match="takes no parameters") as caught:
        checked_parameters(notebook(cell("x = 1")), {"x": 2}, "nb.ipynb")
    assert "tagged `parameters`" in str(caught.value.problems[0])


def write(folder: Path, *cells: dict[str, object]) -> Path:
    path = folder / "my notebook.ipynb"
    path.write_text(json.dumps(notebook(*cells)))
    return path


def names(data: bytes) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return set(archive.getnames())


def test_a_notebook_travels_with_the_modules_beside_it_that_it_imports(tmp_path):
    (tmp_path / "beside.py").write_text("import deeper")
    (tmp_path / "deeper.py").write_text("")
    (tmp_path / "timed.py").write_text("")
    (tmp_path / "unneeded.py").write_text("")
    path = write(
        tmp_path,
        cell("lr = 1", "parameters"),
        cell("%matplotlib inline\nif True:\n    !ls\nimport beside"),
        cell("%%bash\nimport unneeded"),
        cell("%%time\nimport timed"),
        cell("this is no python"),
    )
    run = prepare_notebook_run(path, {"lr": 2}, slots=3)
    assert names(run.bundle.data) == {
        ".det_notebook/run.json",
        "my notebook.ipynb",
        "beside.py",
        "deeper.py",
        "timed.py",
    }
    assert run.config == {"entrypoint": ENTRYPOINT, "resources": {"slots": 3}}
    assert run.name == "my notebook.ipynb"


def test_a_context_folder_travels_whole_and_a_config_is_kept(tmp_path):
    (tmp_path / "data.csv").write_text("1")
    path = write(tmp_path, cell("x = 1"))
    run = prepare_notebook_run(path, config={"resources": {"slots": 2, "priority": 5}}, slots=1, context=tmp_path)
    assert "data.csv" in names(run.bundle.data)
    assert run.config["resources"] == {"slots": 1, "priority": 5}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a notebook"),
        ("[]", "not a notebook of format 4"),
        ('{"nbformat": 3, "worksheets": []}', "not a notebook of format 4"),
        ('{"nbformat": 4, "cells": ["x"]}', "not a notebook of format 4"),
        (json.dumps(notebook(cell("#", kind="markdown"))), "has no code"),
        ("[" * 100_000, "is not a notebook"),
    ],
)
def test_what_is_no_notebook_is_refused(tmp_path, text, words):
    path = tmp_path / "nb.ipynb"
    path.write_text(text)
    with pytest.raises(BundleError, match=words):
        read_notebook(path)


def test_a_missing_notebook_is_refused(tmp_path):
    with pytest.raises(BundleError, match="No such file"):
        prepare_notebook_run(tmp_path / "absent.ipynb")


def test_folders_put_on_sys_path_that_do_not_travel_are_named(tmp_path):
    for name in ("src", "lab/inside", "whole"):
        (tmp_path / name).mkdir(parents=True)
    text = """
    import os, sys
    sys.path.append("../src")
    sys.path.insert(0, os.path.join("..", "whole"))
    sys.path += ["inside"]
    sys.path.append(".")
    sys.path.append("/nowhere/on/this/machine")
    names.append("../src/x")
    """
    file = write(tmp_path / "lab", cell(textwrap.dedent(text)), cell("%pip install x"))
    named = [warning.message.split(" is put")[0] for warning in prepare_notebook_run(file).warnings]
    assert sorted(named) == ["'../src'", "'../whole'", "'inside'"]
    assert all("--context FOLDER" in warning.hint for warning in prepare_notebook_run(file).warnings)
    assert prepare_notebook_run(file, context=tmp_path).warnings == []


def test_a_notebook_whose_cells_ask_for_slots_holds_none_itself(tmp_path):
    """On a cluster without more slots its first such cell waited for ever for the one that the run held."""
    cells = (cell("x = 1"), cell("%%det_run --out z\nz = 1"), cell(["s = %det_experiment a.yaml"]), cell("%det"))
    file = write(tmp_path, *cells)
    run = prepare_notebook_run(file)
    assert run.config["resources"] == {"slots": 0}
    assert [one.message for one in run.warnings] == [
        "code cells 2, 3 ask the cluster for slots, so the run itself holds none"
    ]
    run = prepare_notebook_run(file, slots=2)
    assert run.config["resources"] == {"slots": 2}
    assert "while the run itself holds 2: it waits for ever" in run.warnings[0].message
    run = prepare_notebook_run(file, config={"resources": {"slots": 0}})
    assert (run.config["resources"], run.warnings) == ({"slots": 0}, [])
    assert "resources" not in prepare_notebook_run(write(tmp_path, cell("x = 1"))).config


def in_kernel(tmp_path, metadata):
    path = tmp_path / "nb.ipynb"
    path.write_text(json.dumps({**notebook(cell("x = 1")), "metadata": metadata}))
    return prepare_notebook_run(path)


@pytest.mark.parametrize(
    ("metadata", "told", "hint"),
    [
        ({"kernelspec": {"name": "ir", "language": "R", "display_name": "R"}}, "a notebook in R", "Rscript"),
        ({"language_info": {"name": "R"}, "kernelspec": {"name": "ir"}}, "a notebook in R", "Rscript"),
        ({"kernelspec": {"name": "ir", "display_name": "R"}}, "a notebook in r (kernel 'ir')", "Rscript"),
        ({"kernelspec": {"name": "julia-1.10", "language": "julia"}}, "a notebook in julia", "julia FILE.jl"),
        ({"kernelspec": {"name": "julia-1.10"}}, "a notebook in julia", "julia FILE.jl"),
        ({"language_info": {"name": "julia"}}, "a notebook in julia", "julia FILE.jl"),
        ({"kernelspec": {"name": "deno", "language": "typescript"}}, "a notebook in typescript", "det command run"),
        ({"kernelspec": {"name": "mine"}}, "does not say its language", '"language": "python"'),
        ({"kernelspec": {"name": "mine", "language": ""}}, "does not say its language", '"language": "python"'),
        ({"kernelspec": {"name": "mine", "language": None}}, "does not say its language", '"language": "python"'),
    ],
)
def test_a_notebook_that_is_not_python_is_refused_before_it_queues(tmp_path, metadata, told, hint):
    with pytest.raises(BundleError, match=re.escape(told)) as caught:
        in_kernel(tmp_path, metadata)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"kernelspec": None},
        {"kernelspec": {"name": "python3"}},
        {"kernelspec": {"name": "mine", "language": "python"}},
        {"kernelspec": {"name": "mine"}, "language_info": {"name": "python"}},
        {"kernelspec": {"name": "conda-env-x-py"}},
        {"kernelspec": {"name": "x", "language": "Python"}},
    ],
)
def test_a_python_notebook_is_taken_whatever_its_kernel_is_called(tmp_path, metadata):
    assert in_kernel(tmp_path, metadata).name == "nb.ipynb"
