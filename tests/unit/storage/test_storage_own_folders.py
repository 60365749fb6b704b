"""Folders of one's own among those of others: which are ours, also where the file system says another uid."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from detlab.errors import StorageError
from detlab.storage import own_folders
from detlab.storage.own_folders import OwnFolders

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files to another user")
OTHER = 24502
NAME = ".unfinished-1"


@pytest.fixture
def own(tmp_path: Path) -> OwnFolders:
    return OwnFolders(tmp_path)


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Folders that were made to see what a new one looks like."""
    made: list[str] = []
    plain = own_folders.tempfile.mkdtemp

    def mkdtemp(**where: Any) -> str:
        made.append(plain(**where))
        return made[-1]

    monkeypatch.setattr(own_folders.tempfile, "mkdtemp", mkdtemp)
    return made


def names(own: OwnFolders) -> set[str]:
    return {path.name for path in own.root.iterdir()}


def test_a_folder_is_made_once_private_and_found_again(own: OwnFolders, probes: list[str]) -> None:
    assert own.find(NAME) is None
    assert names(own) == set(), "who only looks makes nothing"
    made = own.make(NAME)
    assert made.stat().st_mode & 0o777 == 0o700
    other = OwnFolders(own.root)
    assert other.make(NAME) == other.find(NAME) == made == own.root / NAME
    assert other.find_all(NAME) == [made]
    assert probes == [], "nothing is tried out where nobody is in the way"


def test_in_a_root_that_is_not_there_nothing_is_found(tmp_path: Path) -> None:
    own = OwnFolders(tmp_path / "nowhere")
    assert own.find(NAME) is None
    assert own.find_all(NAME) == []


def in_the_way(path: Path, what: str) -> None:
    match what:
        case "file":
            path.write_text("")
        case "link":
            (path.parent / "elsewhere").mkdir(mode=0o700, exist_ok=True)
            path.symlink_to(path.parent / "elsewhere")
        case "dangling":
            path.symlink_to(path.parent / "nowhere")
        case "open":  # one that we have left open to others, and that was moved here
            path.mkdir()
            path.chmod(0o770)


@pytest.mark.parametrize("what", ["file", "link", "dangling", "open"])
def test_what_is_no_private_folder_of_ours_is_left_alone(own: OwnFolders, what: str) -> None:
    for name in (NAME, f"{NAME}.1"):
        in_the_way(own.root / name, what)
    before = names(own)
    assert own.find(NAME) is None
    assert own.make(NAME) == own.make(NAME) == own.find(NAME) == own.root / f"{NAME}.2"
    assert names(own) == before | {f"{NAME}.2"}
    assert not (own.root / "nowhere").exists()


@needs_root
def test_the_folder_of_another_user_is_left_alone_and_who_gives_it_up_leads_nobody_away(own: OwnFolders) -> None:
    """Else a rank that begins later would put its files where the chief does not look."""
    (own.root / NAME).mkdir()
    os.chown(own.root / NAME, OTHER, OTHER)
    made = own.make(NAME)
    assert made.name == f"{NAME}.1"
    (own.root / NAME).rmdir()
    assert OwnFolders(own.root).make(NAME) == made
    assert names(own) == {made.name}


def test_names_that_only_look_like_ours_are_not_found(own: OwnFolders) -> None:
    for name in (f"{NAME}0", f"{NAME}.0", f"{NAME}.01", f"{NAME}.x", f"{NAME}.1001", f"{NAME}.1.1", f"x{NAME}"):
        (own.root / name).mkdir(mode=0o700)
    assert own.find_all(NAME) == []
    for name in (f"{NAME}.10", f"{NAME}.9", NAME):
        (own.root / name).mkdir(mode=0o700)
    assert [path.name for path in own.find_all(NAME)] == [NAME, f"{NAME}.9", f"{NAME}.10"]


@needs_root
def test_if_all_numbers_are_taken_the_error_names_the_folder_and_whose_it_is(
    own: OwnFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_folders, "LAST", 3)
    for number in range(4):
        path = own.root / (f"{NAME}.{number}" if number else NAME)
        path.mkdir()
        os.chown(path, OTHER, OTHER)
    with pytest.raises(StorageError, match=rf"{own.root / NAME}: what is there is uid {OTHER}'s .*{NAME}\.3"):
        own.make(NAME)


def test_threads_that_begin_at_once_are_given_one_folder(own: OwnFolders) -> None:
    (own.root / NAME).write_text("in the way")
    barrier, made = threading.Barrier(8), []

    def make() -> None:
        barrier.wait()
        made.append(OwnFolders(own.root).make(NAME))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [own.root / f"{NAME}.1"] * 8


# --- file systems that say another uid or mode than that of who made it (NFS with all_squash, CIFS)


def test_where_uids_are_mapped_ours_is_what_has_the_uid_of_our_new_things(
    own: OwnFolders, monkeypatch: pytest.MonkeyPatch, probes: list[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    made = own.make(NAME)
    assert [own.make(NAME), own.find(NAME), *own.find_all(NAME)] == [made] * 3
    assert own.owns(made)
    assert made.name == NAME
    assert len(probes) == 1, "it is found out once"
    assert names(own) == {NAME}, "and nothing of it is left"


@needs_root
def test_where_uids_are_mapped_what_has_another_uid_is_not_ours(
    own: OwnFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    (own.root / NAME).mkdir(mode=0o700)
    os.chown(own.root / NAME, OTHER, OTHER)
    assert own.make(NAME).name == f"{NAME}.1"


def test_where_all_modes_are_open_an_open_folder_is_ours(own: OwnFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = own_folders.tempfile.mkdtemp

    def mkdtemp(**where: Any) -> str:
        path = plain(**where)
        Path(path).chmod(0o755)
        return str(path)

    monkeypatch.setattr(own_folders.tempfile, "mkdtemp", mkdtemp)
    made = own.make(NAME)
    made.chmod(0o755)
    assert own.make(NAME) == made
    made.chmod(0o757)
    assert own.find(NAME) is None, "more open than a new one"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_who_may_only_read_there_has_made_nothing(
    own: OwnFolders, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def mkdtemp(**where: Any) -> str:
        raise OSError(number, os.strerror(number))

    (own.root / NAME).mkdir(mode=0o700)
    monkeypatch.setattr(own_folders.tempfile, "mkdtemp", mkdtemp)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert own.find_all(NAME) == []


def test_a_folder_that_cannot_be_looked_at_now_is_not_taken_for_anothers(
    own: OwnFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one would be made beside it, and parts of one checkpoint would lie in both."""
    own.make(NAME)

    def lstat(path: Path) -> os.stat_result:
        raise OSError(errno.ESTALE, "Stale file handle", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "lstat", lstat)
        with pytest.raises(OSError, match="Stale"):
            own.make(NAME)
    assert names(own) == {NAME}
