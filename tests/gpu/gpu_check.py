"""Run one check: `python gpu_check.py NAME FOLDER [--cpu] [--quick]`, started by gpu_run.py."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import traceback
from pathlib import Path

from gpu_report import Run, SkippedError, Verdict

MODULES = {
    "discovery": "gpu_devices",
    "shares": "gpu_devices",
    "amp_fp16": "gpu_training",
    "amp_bf16": "gpu_training",
    "resume": "gpu_training",
    "compile": "gpu_training",
    "ranks_one": "gpu_ranks",
    "ranks_on_shares": "gpu_ranks",
    "oom": "gpu_failures",
    "warm_pool": "gpu_warm",
    "step": "gpu_speed",
    "checkpoint": "gpu_speed",
    "deepspeed": "gpu_deepspeed",
}
"""Check -> the module that has a function of its name."""


def check(name: str, run: Run) -> Verdict:
    """Run a check and say how it ended."""
    try:
        _check_gpu(run)
        module = importlib.import_module(MODULES[name])
        getattr(module, name)(run)
    except SkippedError as reason:
        return Verdict(name, "SKIP", str(reason), figures=tuple(run.figures))
    except BaseException as error:
        traceback.print_exc()
        return Verdict(name, "FAIL", f"{type(error).__name__}: {error}", figures=tuple(run.figures))
    return Verdict(name, "PASS", figures=tuple(run.figures))


def _check_gpu(run: Run) -> None:
    """Check that torch can use the GPU that is to be tried.

    Raises:
        RuntimeError: It cannot, and every check would be one of the CPU.
    """
    if run.cpu:
        return
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(f"torch {torch.__version__} sees no GPU; a rehearsal without one: sh tests/gpu/run.sh --cpu")


def main() -> int:
    """Leave the verdict in the folder; return 0 whatever it is."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=MODULES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    # So that `finally` ends what a check has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("the time was up"))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # equal results of equal runs
    if given.cpu:
        os.environ.update(CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
    for name in [name for name in os.environ if name.startswith("DET_")]:
        del os.environ[name]  # this may itself be a task
    folder = given.folder.resolve() / "work"
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    check(given.name, Run(given.cpu, given.quick, folder)).write(given.folder.resolve() / "verdict.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
