"""Folders of runs, and which processes of them live."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from detlab.track.errors import RunFolderError
from detlab.track.folder import RunDescription, RunFolder, ScriptProcess, folders_in, is_run_key


def test_a_folder_says_what_its_run_is_and_the_first_word_holds(tmp_path: Path) -> None:
    RunFolder.made(tmp_path, RunDescription("one", project="vision", name="first", started=5.0))
    again = RunFolder.made(tmp_path, RunDescription("one", project="other", name="second"))
    assert again.run == RunDescription("one", project="vision", name="first", started=5.0)
    assert RunFolder.opened(tmp_path / "one").run == again.run
    assert (tmp_path / ".gitignore").read_text() == "*\n"


def test_each_process_has_records_of_its_own(tmp_path: Path) -> None:
    folder = RunFolder.made(tmp_path, RunDescription("one"))
    names = [folder.new_writer(), folder.new_writer()]
    assert sorted(names) == folder.writers()
    assert folder.process_of(names[0]).pid == os.getpid()
    assert folder.process_of(names[0]).lives is True


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": 1, "key": "../up"}', '{"key": "a"}'])
def test_what_is_no_run_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RunFolderError, match=r"no folder of a run"):
        RunFolder.opened(tmp_path)


def test_a_folder_of_a_later_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"version": 2, "key": "a"}))
    with pytest.raises(RunFolderError, match="newer detlab"):
        RunFolder.opened(tmp_path)


@pytest.mark.parametrize("key", ["..", "../a", "a/b", "", ".hidden", "-o", "a" * 129, "a\n", "é"])
def test_a_key_is_never_a_path(key: str) -> None:
    assert not is_run_key(key)


def test_folders_are_found_below_what_is_named(tmp_path: Path) -> None:
    above = tmp_path / "detlab-runs"
    for key in ("b", "a"):
        RunFolder.made(above, RunDescription(key))
    for named in (above, tmp_path):
        assert [one.run.key for one in folders_in([named])] == ["a", "b"]
    assert [one.run.key for one in folders_in([above / "b", above])] == ["b", "a"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunFolderError, match="no run in"):
        folders_in([tmp_path / "empty"])


def test_a_process_that_was_killed_is_known_to_be_dead_and_a_later_one_with_its_number_is_another() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = ScriptProcess.own(child.pid)
    assert identity.lives is True
    assert replace(identity, began="1").lives is False
    child.kill()
    child.communicate()
    assert identity.lives is False


def test_of_a_process_of_another_machine_nothing_is_known() -> None:
    mine = ScriptProcess.own()
    assert replace(mine, host="elsewhere").lives is None
    assert replace(mine, boot="before").lives is None
    assert ScriptProcess().lives is None
