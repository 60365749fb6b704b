"""The one atomic write: what a reader, a full disk, a umask and a second writer see."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from detlab.files import write_atomic


@pytest.fixture
def strict_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_a_file_is_replaced_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text("old")
    assert write_atomic(path, b"new", durable=True) == path
    assert path.read_bytes() == b"new"
    assert names_in(tmp_path) == ["state.json"]


@pytest.mark.usefixtures("strict_umask")
@pytest.mark.parametrize(("mode", "found"), [(0o600, 0o600), (0o644, 0o644), (None, 0o600)])
def test_the_mode_is_the_one_that_was_asked_for(tmp_path: Path, mode: int | None, found: int) -> None:
    write_atomic(tmp_path / "file", b"", mode=mode)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == found


def test_a_file_that_is_there_is_kept_where_that_is_asked_for(tmp_path: Path) -> None:
    for content in (b"first", b"second"):
        write_atomic(tmp_path / "secret", content, replace=False)
    assert (tmp_path / "secret").read_bytes() == b"first"
    assert names_in(tmp_path) == ["secret"]


def test_a_name_may_be_as_long_as_names_are(tmp_path: Path) -> None:
    name = "\N{SNOWMAN}" * 85  # 255 bytes
    write_atomic(tmp_path / name, b"new")
    assert names_in(tmp_path) == [name]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("of somebody else")
    (tmp_path / "link").symlink_to("target")
    write_atomic(tmp_path / "link", b"new")
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "of somebody else"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    program = f"""
import resource, signal
from pathlib import Path
from detlab.files import write_atomic
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, {resource.RLIM_INFINITY}))
try:
    write_atomic(Path({str(path)!r}), b"x" * 1001)
except OSError:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"
    assert path.read_text() == "old"
    assert names_in(tmp_path) == ["file"]


def test_a_reader_sees_whole_contents_while_several_write(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = {bytes([letter]) * 100_000 for letter in b"abcd"}
    write_atomic(path, min(contents))

    def write(content: bytes) -> None:
        for _ in range(30):
            write_atomic(path, content)

    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        seen.add(path.read_bytes())
    assert seen <= contents
    assert names_in(tmp_path) == ["file"]
