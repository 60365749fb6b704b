"""A database on a disk without room: what was acknowledged stays, nobody calls it damaged, and it opens again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from detlab_hub.store import Store, StoreError
from detlab_hub.store.engine import ErrorClass, classify, hint_of, parse_url
from detlab_hub.store.errors import StoreDamaged
from detlab_hub.store.queries.logs import lines
from testbed.small_disks import CannotRun, Disk, small_disk

WRITE_UNTIL_FULL = """
import os, sys
from detlab.schemas.wire import LogRecord
from detlab_hub.store import Store, StoreBroken
from detlab_hub.store.queries.logs import lines

store = Store.open(sys.argv[1], holder="x")
line = LogRecord(seq=1, time=0.0, text="x" * 10_000)
written = 0
try:
    while True:
        store.write_sync(lambda s: lines.append(s, 1, 1, [line]))
        written += 1
except StoreBroken as error:
    print(written, error.message, error.hint, sep="|", flush=True)
os._exit(0)  # as by kill -9: nothing is closed
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    try:
        with small_disk(tmp_path / "disk", 16, 0o700) as found:
            yield found
    except CannotRun as error:
        pytest.skip(str(error))


def test_what_was_acknowledged_on_a_disk_that_became_full_is_there_when_it_has_room(disk: Disk) -> None:
    url = f"sqlite:///{disk.folder}/detlab.sqlite"
    others = disk.folder / "others"
    others.write_bytes(bytes(3 << 20))
    command = [sys.executable, "-c", WRITE_UNTIL_FULL, url]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    written, message, hint = done.stdout.strip().split("|")
    assert int(written) > 10
    assert "database or disk is full" in message
    assert f"df -h {disk.folder}" in hint
    # Also where the memory that its processes share must be made anew, for which there is no room either.
    (disk.folder / "detlab.sqlite-shm").unlink()
    disk.fill()
    before = {path.name: path.read_bytes() for path in disk.folder.glob("detlab.sqlite")}
    with pytest.raises(StoreError) as refused:
        Store.open(url, holder="next")
    assert not isinstance(refused.value, StoreDamaged), "somebody would throw it away"
    assert f"df -h {disk.folder}" in str(refused.value)
    assert {path.name: path.read_bytes() for path in disk.folder.glob("detlab.sqlite")} == before
    disk.free()
    others.unlink()
    store = Store.open(url, holder="next")
    assert store.read_sync(lambda s: lines.count(s, 1)) == int(written)
    store.close()


def test_a_full_disk_of_postgresql_stops_the_master_as_one_of_sqlite_does_and_is_named() -> None:
    class DiskFull(Exception):
        sqlstate = "53100"

    error = DBAPIError.instance(None, None, DiskFull("could not extend file"), Exception)
    assert isinstance(error, DBAPIError)
    assert classify(error) is ErrorClass.BROKEN
    assert "database server's disk" in (hint_of(error.orig, parse_url("postgresql://detlab@db/detlab")) or "")
