"""Real file systems of a few megabytes, which a test can fill and free again; and processes that are slow on them.

    with small_disk(folder, 16) as disk:
        disk.fill()     # now everybody gets ENOSPC in this folder
        disk.free()

A disk is ext4 in a file, on a loop device of its own. It needs root that may mount. `throttled` puts a process, and
with it all that it starts, into control groups of either version: a share of a CPU, a number of writes a second.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.waiting import until

_GROUPS = Path("/sys/fs/cgroup")
_PERIOD = 100_000
_BLOCK = 1 << 16


class CannotRun(Exception):
    """Nothing can be mounted or throttled here; the message says why, for a skip."""


@dataclass(frozen=True)
class Disk:
    """A small file system.

    Attributes:
        folder: Where it is mounted.
    """

    folder: Path

    @property
    def ballast(self) -> Path:
        """The file that fills it."""
        return self.folder / "ballast"

    def fill(self) -> None:
        """Leave no block of it to anybody."""
        descriptor = os.open(self.ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # Again until nothing is left: what was kept for the worst case is given back when the blocks are written.
            while _fills(descriptor):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free(self) -> None:
        """Give back what `fill` took."""
        self.ballast.unlink(missing_ok=True)

    @property
    def device(self) -> str:
        """Its block device, as MAJOR:MINOR."""
        number = self.folder.stat().st_dev
        return f"{os.major(number)}:{os.minor(number)}"


def _fills(descriptor: int) -> int:
    """Append until there is no room; return how many bytes there was room for."""
    written = 0
    for size in (_BLOCK, 4096):
        try:
            while True:
                written += os.write(descriptor, bytes(size))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    return written


@contextmanager
def small_disk(folder: Path, megabytes: int, mode: int) -> Iterator[Disk]:
    """Mount a file system of its own in a folder, until the end of the context.

    Args:
        folder: Made if it is missing.
        megabytes: Its size.
        mode: Permissions of its top folder.

    Raises:
        CannotRun: Nothing can be mounted here.
    """
    folder.mkdir(parents=True, exist_ok=True)
    image = folder.with_name(f"{folder.name}.ext4")
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    # Blocks as large as pages: with smaller ones SQLite, whose shared memory is a file, would die of a full disk.
    _run("mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", "-O", "^resize_inode", str(image))
    _run("mount", "-o", "loop", str(image), str(folder))
    try:
        (folder / "lost+found").rmdir()
        folder.chmod(mode)
        yield Disk(folder)
    finally:
        _run("umount", "--lazy", str(folder))
        image.unlink()


def _run(*command: str) -> None:
    if os.geteuid() != 0:
        raise CannotRun("needs root, to mount")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        raise CannotRun(f"needs root with {command[0]}") from None
    if done.returncode != 0:
        raise CannotRun(f"needs root that may {command[0]}: {done.stderr.strip()}")


@dataclass(frozen=True)
class Throttle:
    """The groups of a slow process."""

    cpu: Path

    @property
    def periods_held_up(self) -> int:
        """Periods of a tenth of a second in which it was made to wait for a CPU."""
        lines = (self.cpu / "cpu.stat").read_text(encoding="ascii").splitlines()
        (found,) = (int(line.split()[1]) for line in lines if line.startswith("nr_throttled "))
        return found


@contextmanager
def throttled(pid: int, *, cpu: float, disk: Disk, writes: int) -> Iterator[Throttle]:
    """Slow a process down, and all that it starts from now on, until the end of the context.

    Args:
        pid: The process.
        cpu: How much of one CPU it has, such as 0.1.
        disk: Where its writes are slow: those that it waits for (fsync), and with groups of version 2 all.
        writes: How many of them it may make in a second.

    Raises:
        CannotRun: There are no control groups that we may make.
    """
    unified = (_GROUPS / "cgroup.controllers").exists()
    quota = int(cpu * _PERIOD)
    name = f"detlab-test-{uuid.uuid4().hex[:8]}"
    wanted: dict[Path, Mapping[str, str]] = {
        _GROUPS / name: {"cpu.max": f"{quota} {_PERIOD}", "io.max": f"{disk.device} wiops={writes}"}
    }
    if not unified:
        wanted = {
            _GROUPS / "cpu" / name: {"cpu.cfs_period_us": str(_PERIOD), "cpu.cfs_quota_us": str(quota)},
            _GROUPS / "blkio" / name: {"blkio.throttle.write_iops_device": f"{disk.device} {writes}"},
        }
    made: list[Path] = []
    try:
        try:
            for group, settings in wanted.items():
                group.mkdir()
                made.append(group)
                for setting, value in settings.items():
                    (group / setting).write_text(value, encoding="ascii")
                (group / "cgroup.procs").write_text(str(pid), encoding="ascii")
        except OSError as error:
            raise CannotRun(f"needs root that may make control groups: {error}") from error
        yield Throttle(made[0])
    finally:
        for group in made:
            _empty(group)


def _empty(group: Path) -> None:
    """Let the processes of a group go, and remove it."""

    def gone() -> bool:
        for pid in (group / "cgroup.procs").read_text(encoding="ascii").split():
            with contextlib.suppress(OSError):  # it has just ended
                (group.parent / "cgroup.procs").write_text(pid, encoding="ascii")
        try:
            group.rmdir()
        except OSError:
            return False
        return True

    until(gone, f"{group} is not empty", 10)
