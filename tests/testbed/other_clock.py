"""Another clock for a process and all that it starts, by a library that answers in place of the C library's.

Only the time of day is another one, as on a machine whose clock was set wrong: what measures how long something takes
goes on as before.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_LIBRARY = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    const char *by = getenv("OTHER_CLOCK_BY");
    if (!failed && by && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += atol(by);
    return failed;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""


def missing() -> str:
    """Return why there can be no other clock here; "" if there can."""
    return "" if shutil.which("cc") else "no cc: apt-get install gcc libc6-dev"


def other_clock(folder: Path, seconds: int) -> dict[str, str]:
    """Return the variables that put the clock of a process by so many seconds.

    Args:
        folder: Takes the library; all who are to load it can read there.
        seconds: How much later it is; negative: earlier.
    """
    library = folder / "other_clock.so"
    if not library.exists():
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), "-x", "c", "-"]
        subprocess.run(command, input=_LIBRARY, text=True, check=True)
    return {"LD_PRELOAD": str(library), "OTHER_CLOCK_BY": str(seconds)}
