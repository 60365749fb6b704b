"""Stand-ins for what needs NVIDIA's hardware, so that agent and engine do all that they do on a node with GPUs.

They are the driver's library, which the agent's real `pynvml` loads and asks as it does NVIDIA's, and the hook by which
an engine gives GPUs to a container.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

NAME = "Test GPU"
MEMORY = 16 << 30
"""Bytes of each."""
_LIBRARY = """
#include <stdio.h>

static const char *uuids[] = {%s};
enum { COUNT = sizeof uuids / sizeof *uuids, OK = 0, INVALID_ARGUMENT = 2 };
struct memory { unsigned long long total, free, used; };

int nvmlInitWithFlags(unsigned flags) { return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int error) { return "an error of the test's driver"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = COUNT; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, const char ***device) {
    if (index >= COUNT) return INVALID_ARGUMENT;
    *device = uuids + index;
    return OK;
}
int nvmlDeviceGetName(const char **device, char *name, unsigned n) { snprintf(name, n, %s); return OK; }
int nvmlDeviceGetUUID(const char **device, char *uuid, unsigned n) { snprintf(uuid, n, "%%s", *device); return OK; }
int nvmlDeviceGetMemoryInfo(const char **device, struct memory *memory) {
    *memory = (struct memory){%dULL, %dULL, 0};
    return OK;
}
"""


def driver_library(folder: Path, uuids: Sequence[str]) -> dict[str, str]:
    """Make the driver's library of a node with these GPUs; return the environment of an agent that finds it."""
    compiler = shutil.which("cc")
    if compiler is None:
        import pytest  # here: the rehearsal of tests/gpu may run without it

        pytest.skip("the stand-in for NVIDIA's driver needs a C compiler")
    folder.mkdir(exist_ok=True)
    source = folder / "nvml.c"
    names = ", ".join(map(json.dumps, uuids))
    source.write_text(_LIBRARY % (names, json.dumps(NAME), MEMORY, MEMORY), encoding="ascii")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    return {"LD_LIBRARY_PATH": str(folder)}


def engine_hook(folder: Path) -> Path:
    """Make NVIDIA's hook, which an engine calls before a container with GPUs starts; return its folder, for `PATH`."""
    folder.mkdir(exist_ok=True)
    hook = folder / "nvidia-container-runtime-hook"
    hook.write_text("#!/bin/sh\nexec cat >/dev/null\n", encoding="ascii")
    hook.chmod(0o755)
    return folder
