"""Removing what others made."""

import os
import shutil
import subprocess
import sys

import pytest

from detlab.trees import remove_below, remove_tree

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="uids can only be changed by root")


def nest(path, levels):
    """Make directories in one another, deeper than a path may be long."""
    path.mkdir()
    here = os.open(path, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def test_a_tree_of_many_kinds_is_removed_and_nothing_else(tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "kept").write_text("x")
    tree = tmp_path / "tree"
    (tree / "a" / "b" / "c").mkdir(parents=True)
    (tree / "a" / "file").write_text("x")
    (tree / "a" / "b" / "link").symlink_to(victim)
    (tree / "link").symlink_to(victim)
    (tree / "dangling").symlink_to("nowhere")
    os.mkfifo(tree / "a" / "fifo")
    (tree / "a" / "b").chmod(0o500)
    remove_tree(tree)
    assert not tree.exists()
    assert (victim / "kept").read_text() == "x"


@pytest.mark.slow
def test_a_tree_thousands_of_levels_deep_is_removed(tmp_path):
    nest(tmp_path / "deep", 3000)
    with pytest.raises(RecursionError):
        shutil.rmtree(tmp_path / "deep")  # why this module exists
    remove_tree(tmp_path / "deep")
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_removed_already(tmp_path):
    remove_tree(tmp_path / "nothing")
    remove_tree(tmp_path / "nothing" / "below")


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_is_no_directory_is_left(tmp_path, kind):
    other = tmp_path / "other"
    other.mkdir()
    name = tmp_path / "name"
    if kind == "link":
        name.symlink_to(other)
    else:
        name.write_text("x")
    with pytest.raises(OSError, match="name"):
        remove_tree(name)
    assert other.is_dir()
    assert name.is_symlink() or name.is_file()


@needs_root
@pytest.mark.parametrize("foreign", ["", "inner"])
def test_nothing_of_another_owner_is_removed(tmp_path, foreign):
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    (tree / "inner" / "file").write_text("x")
    for path in (tree, tree / "inner"):
        os.chown(path, 23077, 23077)
    os.chown(tree / foreign, 23078, 23078)
    with pytest.raises(PermissionError, match="23078"):
        remove_below(tmp_path, "tree", owner=23077)
    assert (tree / "inner" / "file").read_text() == "x"
    os.chown(tree / foreign, 23077, 23077)
    remove_below(tmp_path, "tree", owner=23077)
    assert not tree.exists()


REMOVING = """
import sys
from pathlib import Path
from detlab.trees import remove_below
sys.addaudithook(lambda event, args: print(args[0]) if event == "os.remove" else None)
remove_below(Path(sys.argv[1]), "tree", first="middle")
"""


def test_one_file_is_removed_before_all_others(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("first", "middle", "last"):
        (tree / name).write_text("x")
    command = [sys.executable, "-c", REMOVING, str(tmp_path)]
    removed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert removed[0] == "middle"
    assert sorted(removed) == ["first", "last", "middle"]
    assert not tree.exists()
