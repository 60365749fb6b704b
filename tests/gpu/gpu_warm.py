"""The warm pool of a real agent: no driver is opened before the fork, and a forked trial trains on the GPU."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gpu_report import Run, SkippedError

from detlab.launch.host import procfs
from detlab.testing.master import FakeAllocation, MasterDouble

READY = re.compile(r"zygote (\d+) is ready")
COLD = {"DETLAB_WARM_POOL": "0"}
PROGRAM = """
import sys, json
warm = "torch" in sys.modules
import torch
initialised = torch.cuda.is_initialized()
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(8, 2).to(device)
optimizer = torch.optim.Adam(model.parameters())
loss = model(torch.ones(4, 8, device=device)).square().mean()
loss.backward()
optimizer.step()
print(json.dumps({"warm": warm, "initialised": initialised, "device": device, "loss": loss.item()}), flush=True)
"""


@contextmanager
def _agent(master: MasterDouble, root: Path, options: list[str]) -> Iterator[Path]:
    """Run `det agent run`; yield its log."""
    token, log = root / "enrolment_token", root / "agent.log"
    token.write_text(master.enrolment_token)
    token.chmod(0o600)
    command = [sys.executable, "-m", "detlab_agent", "--master", master.url, "--dir", str(root / "agent")]
    command += [
        "--name",
        "agent",
        "--enrolment-token-file",
        str(token),
        "--runtime",
        "process",
        "--warm-pool",
        *options,
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield log
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        if process.poll() is None:
            process.kill()
            process.wait()
        for folder in (root / "agent" / "tasks").glob("*/"):
            procfs.send_signal(procfs.task_processes(folder, None, None), signal.SIGKILL)
        print(log.read_text(errors="replace"))


def _zygote(log: Path, seconds: float) -> int:
    """Wait for a zygote that is ready, and return its pid."""
    until = time.monotonic() + seconds
    while True:
        text = log.read_text(errors="replace")
        if "no warm pool" in text:
            raise AssertionError(next(line for line in text.splitlines() if "no warm pool" in line))
        if found := READY.findall(text):
            return int(found[-1])
        if time.monotonic() > until:
            raise AssertionError(f"no zygote is ready after {seconds:.0f} s")
        time.sleep(0.05)


def _bundle() -> bytes:
    data, code = io.BytesIO(), PROGRAM.encode()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        info = tarfile.TarInfo("train.py")
        info.size = len(code)
        tar.addfile(info, io.BytesIO(code))
    return data.getvalue()


def _trial(master: MasterDouble, bundle: str, slot: str, environment: dict[str, str]) -> tuple[dict[str, Any], float]:
    """Run the program as a trial; return what it says, and the seconds until it had taken a step."""
    began = time.monotonic()
    task: FakeAllocation = master.launch(["python3", "train.py"], bundle=bundle, slots=[slot], environment=environment)
    master.wait_for(lambda: master.texts(task, "stdout") or task.exits, timeout=60, what="the trial says something")
    seconds = time.monotonic() - began
    master.wait_for(lambda: task.exits, timeout=60, what="the trial ends")
    assert task.exits[0].exit_code == 0, (task.exits, master.texts(task))
    return json.loads(master.texts(task, "stdout")[-1]), seconds


def _untouched(pid: int) -> str:
    """Check that a process has opened no GPU; return whether the driver's library is mapped."""
    opened = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            opened.append(str(link.readlink()))
    assert not [name for name in opened if name.startswith("/dev/nvidia")], opened
    maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    assert "/dev/nvidia" not in maps
    return "the driver's library is mapped, not used" if "libcuda.so" in maps else "the driver's library is not loaded"


def warm_pool(run: Run) -> None:
    """A zygote that has opened no GPU; a trial that is forked from it, and one that starts cold, take a step."""
    if "MemAvailable" in (text := Path("/proc/meminfo").read_text()):
        free = int(re.findall(r"MemAvailable:\s+(\d+)", text)[0]) * 1024
        if free < 3 << 30:
            raise SkippedError(f"the warm pool needs 2 GiB of free memory, and {free >> 20} MiB are free")
    options = ["--slots", "1", *(() if os.geteuid() == 0 else ("--serves-user", "alice"))]
    with tempfile.TemporaryDirectory(prefix="detgpu-") as name, MasterDouble() as master:
        root = Path(name)
        root.chmod(0o711)
        began = time.monotonic()
        with _agent(master, root, options) as log:
            master.wait_for(master.connected, timeout=30, what="the agent connects")
            pid = _zygote(log, 80)
            run.figure("zygote ready after", f"{time.monotonic() - began:.1f} s", _untouched(pid))
            bundle = master.add_bundle(_bundle())
            slot = "cpu0" if run.cpu else "cuda0"
            for kind, environment in (("forked", {}), ("cold", COLD)):
                found, seconds = _trial(master, bundle, slot, environment)
                assert found["warm"] == (kind == "forked"), found
                assert not found["initialised"], found
                assert found["device"] == run.device, found
                run.figure(f"first step of a trial, {kind}", f"{seconds:.2f} s", f"on {found['device']}")
