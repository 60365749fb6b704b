"""Stand-ins for what needs NVIDIA's hardware, so that agent and engine do all that they do on a node with GPUs.

They are the driver's library, as an agent asks it, and the hook by which an engine gives GPUs to a container.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_LIBRARY = '''"""What `pynvml` says on a node with these GPUs."""
UUIDS = {uuids!r}
class NVMLError(Exception): pass
class Memory: total = 16 << 30
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return len(UUIDS)
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetName(handle): return "Test GPU"
def nvmlDeviceGetMemoryInfo(handle): return Memory
def nvmlDeviceGetUUID(handle): return UUIDS[handle]
'''


def driver_library(folder: Path, uuids: Sequence[str]) -> dict[str, str]:
    """Make the driver's library of a node with these GPUs; return the environment of an agent that finds it."""
    folder.mkdir(exist_ok=True)
    (folder / "pynvml.py").write_text(_LIBRARY.format(uuids=list(uuids)), encoding="utf-8")
    return {"PYTHONPATH": str(folder)}


def engine_hook(folder: Path) -> Path:
    """Make NVIDIA's hook, which an engine calls before a container with GPUs starts; return its folder, for `PATH`."""
    folder.mkdir(exist_ok=True)
    hook = folder / "nvidia-container-runtime-hook"
    hook.write_text("#!/bin/sh\nexec cat >/dev/null\n", encoding="ascii")
    hook.chmod(0o755)
    return folder
