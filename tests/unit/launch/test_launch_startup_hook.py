"""A `startup-hook.sh` at the top of the code runs before the entrypoint, in the same shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from detlab.launch.entrypoint import HOOK, HOOK_VARIABLE, with_hook


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


def test_the_operators_hook_runs_before_that_of_the_code(tmp_path: Path) -> None:
    (tmp_path / HOOK).write_text('echo "code sees $SITE"\n', encoding="utf-8")
    env = {**os.environ, HOOK_VARIABLE: "export SITE=lab\necho 'operator'"}
    words = with_hook(["sh", "-c", 'echo "$SITE $1"', "x", "two  words"], tmp_path, env)
    ended = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert ended.stdout == "operator\ncode sees lab\nlab two  words\n"
    failing = {**env, HOOK_VARIABLE: "false"}
    ended = subprocess.run(
        with_hook("echo started", tmp_path, failing), cwd=tmp_path, env=failing, capture_output=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert with_hook("echo", tmp_path / "none", {HOOK_VARIABLE: ""}) == "echo"
