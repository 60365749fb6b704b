"""Put what a zygote has in memory on large pages: a fork copies one entry for each page, and its end undoes it.

Of 240 MiB in pages of 4 KiB that are sixty thousand entries, 10 ms for each fork and as much for each end. A fork that
writes still copies 4 KiB at a time: the kernel splits a large page for it (Linux since 5.8).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from pathlib import Path

from detlab.launch.host.procfs import PROC

_MADV_COLLAPSE = 25
_SIZE = 2 << 20
"""Bytes of a large page on x86-64 and, with pages of 4 KiB, on ARM; elsewhere the kernel refuses or rounds."""


def large_ranges(lines: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the whole large pages within private memory of no file, as `/proc/PID/maps` shows it."""
    for line in lines:
        place, permissions, _, _, inode, *name = line.split(None, 5)
        # Not the stack: where the command and the environment lie must stay where the kernel reads it.
        if permissions != "rw-p" or inode != "0" or (name and name[0].strip() != "[heap]"):
            continue
        first, last = (int(number, 16) for number in place.split("-"))
        begin, end = -(-first // _SIZE) * _SIZE, last // _SIZE * _SIZE
        if begin < end:
            yield begin, end


def use_large_pages(maps: Path = PROC / "self" / "maps") -> int:
    """Ask the kernel for large pages (Linux since 6.1); return how many bytes it has put on them."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    done = 0
    for begin, end in large_ranges(maps.read_text(encoding="utf-8", errors="replace").splitlines()):
        # What it refuses (no large page is free, none are allowed here) stays as it is, and works as well.
        if libc.madvise(begin, end - begin, _MADV_COLLAPSE) == 0:
            done += end - begin
    return done
