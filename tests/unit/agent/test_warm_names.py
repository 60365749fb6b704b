"""Which files beside a program keep it from being forked: those that it would import instead of what is loaded."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import ModuleType

import pytest

from detlab.warm.interpreter import _names_in


@pytest.mark.parametrize(
    "name",
    ["logging.yaml", "json.txt", "torch", "logging.d", "numpy.ipynb", "logging.py.bak", "logging/readme.md", "json"],
)
def test_data_with_the_name_of_a_module_does_not_start_each_trial_cold(tmp_path: Path, name: str) -> None:
    """`logging.yaml` beside the code was taken for a module of that name."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("x")
    assert not _names_in(tmp_path) & {"logging", "json", "torch", "numpy"}


@pytest.mark.parametrize(
    "name",
    ["logging.py", "logging.pyc", "logging.cpython-311-x86_64-linux-gnu.so", "logging.so", "logging/__init__.py"],
)
def test_a_module_with_the_name_of_a_loaded_one_does(tmp_path: Path, name: str) -> None:
    assert logging.__file__
    if name.endswith("-gnu.so") and sys.version_info[:2] != (3, 11):
        pytest.skip("names of modules in C have the version")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("x")
    assert "logging" in _names_in(tmp_path)


def test_a_folder_that_would_add_to_a_loaded_package_without_a_file_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spread = ModuleType("google")
    spread.__path__ = []
    monkeypatch.setitem(sys.modules, "google", spread)
    (tmp_path / "google").mkdir()
    assert _names_in(tmp_path) == {"google"}
