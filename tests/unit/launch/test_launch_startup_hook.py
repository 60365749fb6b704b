"""A `startup-hook.sh` at the top of the code runs before the entrypoint, in the same shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from detlab.launch.entrypoint import HOOK, with_hook


def run(entrypoint: str | list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    words = with_hook(entrypoint, folder)
    assert isinstance(words, list)
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("entrypoint", ['echo "$MODE two  words"', ["sh", "-c", 'echo "$MODE $1"', "x", "two  words"]])
def test_the_hook_runs_first_and_its_variables_stay(tmp_path: Path, entrypoint: str | list[str]) -> None:
    (tmp_path / HOOK).write_text("export MODE=fast\necho hook\n", encoding="utf-8")
    assert run(entrypoint, tmp_path).stdout == "hook\nfast two  words\n"


def test_where_the_hook_fails_the_entrypoint_is_not_started(tmp_path: Path) -> None:
    (tmp_path / HOOK).write_text("false\n", encoding="utf-8")
    ended = run(["echo", "started"], tmp_path)
    assert (ended.returncode, ended.stdout) == (1, "")


def test_without_a_hook_nothing_changes(tmp_path: Path) -> None:
    (tmp_path / HOOK).mkdir()
    assert with_hook("echo", tmp_path) == "echo"
    assert with_hook(["echo"], tmp_path) == ["echo"]
