"""A storage that the task's user may not write to: one short error that names the folder, its owner and what helps."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

STRANGER = 24517
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be somebody else")

SAVES = """
import os, sys
from detlab import core  # before the user changes: the sources may be closed to it
os.setgid({uid})
os.setuid({uid})
with core.init(checkpoint_storage={root!r}) as context:
    {ask}
"""
STORE = "with context.checkpoint.store_path({'steps_completed': 1}) as (path, uuid): (path / 'x').touch()"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that others may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="detlab-denied-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def said(root: Path, ask: str = STORE) -> list[str]:
    """What a script that saves there as a stranger prints before it fails."""
    code = SAVES.format(uid=STRANGER, root=str(root), ask=ask)
    env = {**os.environ, "HOME": "/nonexistent"}
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, env=env, timeout=60
    )
    assert done.returncode == 1
    return [line for line in done.stderr.splitlines() if "detlab.core" not in line.split(":")[0]]


def test_a_closed_folder_is_named_with_its_owner_and_the_command_that_opens_it(place: Path) -> None:
    """It took three tracebacks, each twice, and named neither."""
    root = place / "locked"
    root.mkdir(mode=0o755)
    lines = said(root)
    assert [line for line in lines if line.lstrip().startswith("File")] == ['  File "<string>", line 7, in <module>']
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2].startswith(f"detlab.errors.StorageDenied: cannot make {root}/.stage-")
    facts = f"Permission denied: {root} belongs to root (uid 0), mode 0755; this is uid {STRANGER}"
    assert lines[-2].endswith(facts)
    assert f"chmod 1777 {root};" in lines[-1]
    assert len(lines) <= 5


def test_a_folder_that_does_not_exist_is_not_to_be_made_by_opening_the_one_above(place: Path) -> None:
    root = place / "mounted" / "here"
    *_, error, hint = said(root)
    assert f"{place} belongs to root (uid 0), mode 0755" in error
    assert hint.startswith(f"{root} does not exist. Is a disk not mounted?")
    assert f"mkdir -p -m 1777 {root};" in hint


def test_a_folder_behind_a_closed_one_names_the_closed_one(place: Path) -> None:
    closed = place / "closed"
    (closed / "open").mkdir(parents=True)
    (closed / "open").chmod(0o1777)
    closed.chmod(0o700)
    *_, error, hint = said(closed / "open")
    assert f"{closed} belongs to root (uid 0), mode 0700" in error
    assert f"chmod o+x {closed};" in hint


def test_an_error_of_the_script_itself_is_shown_whole(place: Path) -> None:
    lines = said(place, "import json; json.loads('{')")
    assert sum(line.lstrip().startswith("File") for line in lines) > 2
    assert lines[-1].startswith("json.decoder.JSONDecodeError")
