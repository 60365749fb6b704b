"""The packages that are installed here: the environment lock in the lineage of a checkpoint."""

from __future__ import annotations

import os
import platform
import re
import sys
from functools import cache
from pathlib import Path

MOST_PACKAGES = 5_000
_INFO = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._]*)-(?P<version>[^-/]+)\.(?:dist|egg)-info")
_SEPARATORS = re.compile(r"[-_.]+")


@cache
def installed() -> dict[str, str]:
    """Return name -> version of the installed packages, in the order of their names, with `python` and `platform`.

    Read from the names of their folders, which takes milliseconds; of two of one name the one that is imported counts.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        try:
            names = sorted(path.name for path in Path(folder or ".").iterdir())
        except OSError:  # an archive, or not there
            continue
        for name in names:
            if (info := _INFO.fullmatch(name)) is not None and len(found) < MOST_PACKAGES:
                found.setdefault(_SEPARATORS.sub("-", info["name"]).lower(), info["version"])
    ordered = {name: found[name] for name in sorted(found)}
    return {"python": platform.python_version(), "platform": _platform(), **ordered}


def _platform() -> str:
    """Return system, release, machine and C library.

    `platform.platform()` starts a process (`uname -p`), here in the thread that writes checkpoints: a worker of a data
    loader that is forked at this moment inherits the pipe, and until it ends the answer has no end.
    """
    system = os.uname()
    libc = "".join(platform.libc_ver())
    return f"{system.sysname}-{system.release}-{system.machine}" + (f"-with-{libc}" if libc else "")
