"""What the agent finds by NVIDIA's management library, and what a task on a share of a device may take."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu_report import Run, SkippedError, Verdict

from detlab.core.metrics.system import NodeReader
from detlab.schemas.shares import devices_of, divide, fractions
from detlab.schemas.wire import SlotView
from detlab_agent.slots import discover_slots, load_nvml, slot_environment

HERE = Path(__file__).resolve().parent
PARTS = 4
STAND_IN = "DETGPU_STAND_IN"
"""Set in a rehearsal's process that has been started with the stand-in for the driver."""


def discovery(run: Run) -> None:
    """The agent's discovery names each GPU and its memory as torch does; the profiler reads its use."""
    if run.cpu and STAND_IN not in os.environ:
        _again_with_a_driver(run)
        return
    nvml = load_nvml()
    if nvml is None:
        raise SkippedError("the package nvidia-ml-py is not installed")
    slots = discover_slots(nvml, {})
    assert all(slot.kind == "cuda" for slot in slots), f"no GPU was found, only {slots}"
    assert all(slot.uuid and slot.name and slot.memory > 0 for slot in slots), slots
    for slot in slots:
        run.figure(f"slot {slot.id}", slot.name, f"{slot.memory / 2**30:.1f} GiB, uuid {(slot.uuid or '')[:12]}…")
    if run.cpu:
        return
    import torch  # here: a rehearsal does without the seconds that it takes

    visible = discover_slots(nvml, os.environ)
    assert len(visible) == torch.cuda.device_count(), (visible, torch.cuda.device_count())
    for index, slot in enumerate(visible):
        told = torch.cuda.get_device_properties(index)
        assert told.name == slot.name, (told.name, slot.name)
        ratio = told.total_memory / slot.memory
        assert 0.9 < ratio <= 1.0, f"torch says {told.total_memory} bytes, NVML {slot.memory}"
        run.figure(f"memory of {slot.id} that torch sees", f"{ratio:.1%}", "of what NVML reports")
    only = slot_environment(visible[:1], 0)
    assert only["CUDA_VISIBLE_DEVICES"] == visible[0].uuid
    gpus = NodeReader({**os.environ, **only}).read().gpus
    assert len(gpus) == 1, gpus
    assert 0 < gpus[0].free_memory <= visible[0].memory, gpus
    run.figure(
        "profiler: free memory of the task's GPU", f"{gpus[0].free_memory / 2**30:.1f} GiB", f"use {gpus[0].util} %"
    )


def _again_with_a_driver(run: Run) -> None:
    """Run the check with the stand-in of the tests for NVIDIA's library, which the loader must find from the start."""
    try:
        from testbed.containers.gpus import driver_library
    except ImportError as error:
        raise SkippedError(f"the stand-in for the driver cannot be made: {error}") from error
    if shutil.which("cc") is None:
        raise SkippedError("the stand-in for the driver needs a C compiler")
    environment = driver_library(run.folder / "driver", ["GPU-stand-in-0", "GPU-stand-in-1"])
    subprocess.run(
        [sys.executable, HERE / "gpu_check.py", "discovery", run.folder.parent, "--cpu"],
        env={**os.environ, **environment, STAND_IN: "1"},
        timeout=50,
        check=True,
    )
    verdict = Verdict.read(run.folder.parent / "verdict.json")
    assert verdict.outcome == "PASS", verdict.reason
    run.figures += verdict.figures


def devices(run: Run) -> list[SlotView]:
    """Return the devices of this node; in a rehearsal a CPU slot with the memory of a small GPU."""
    if run.cpu:
        return [SlotView(id="cpu0", kind="cpu", name="CPU", memory=8 << 30)]
    found = discover_slots(load_nvml(), os.environ)
    assert found
    assert found[0].kind == "cuda", "nvidia-ml-py is missing: no GPU is discovered"
    return found


def task_environment(had: Sequence[SlotView]) -> dict[str, str]:
    """Return the environment of a task that has these slots, as agent and launcher make it: each device once."""
    names = [slot.id for slot in had]
    each = {slot.device or slot.id: slot for slot in had}
    whole = [each[name] for name in devices_of(names)]
    return {
        **os.environ,
        **slot_environment(whole, 0),
        "DET_SLOT_IDS": json.dumps(list(range(len(whole)))),
        "DET_DEVICE_SHARES": json.dumps(fractions(names, [slot.shares for slot in had])),
    }


def start(command: Sequence[str | Path], environment: Mapping[str, str], folder: Path) -> subprocess.Popen[str]:
    """Start a program as a launcher does: in a folder of its own, both outputs together."""
    folder.mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(
        [*command],
        cwd=folder,
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def shares(run: Run) -> None:
    """Two tasks on quarters of one device: each gets its part of the memory, and no more, beside the other."""
    quarters = divide(devices(run)[:1], PARTS)
    assert sum(slot.memory for slot in quarters) <= devices(run)[0].memory
    environments = [task_environment([slot]) for slot in quarters[:2]]
    assert [json.loads(env["DET_DEVICE_SHARES"]) for env in environments] == [[1 / PARTS]] * 2
    assert json.loads(task_environment(quarters)["DET_DEVICE_SHARES"]) == []
    command = [sys.executable, HERE / "gpu_share_task.py"]
    tasks = [start(command, environment, run.folder / str(i)) for i, environment in enumerate(environments)]
    try:
        # Each holds its part until both have it.
        for task in tasks:
            assert task.stdout is not None
            lines = []
            for line in task.stdout:
                lines.append(line)
                if line.startswith("HOLDS "):
                    break
            else:
                raise AssertionError(f"a task on a share ended: {''.join(lines)}")
            held = json.loads(lines[-1].removeprefix("HOLDS "))
            run.figure("task on a quarter", f"holds {held['held'] / 2**30:.1f} GiB", held["beyond"])
        for task in tasks:
            output, _ = task.communicate("end\n", timeout=30)
            assert task.returncode == 0, output
    finally:
        for task in tasks:
            task.kill()
            task.wait()
            assert task.stdin is not None
            assert task.stdout is not None
            task.stdin.close()
            task.stdout.close()
