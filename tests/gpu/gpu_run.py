"""Run the checks one after the other, each in a process of its own with a time limit, and report.

    sh tests/gpu/run.sh              on a machine with a GPU
    sh tests/gpu/run.sh --cpu        a rehearsal on any machine
    sh tests/gpu/run.sh --only discovery,oom

Standard library only: a machine on which nothing can be imported is to get a report, too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from gpu_report import Verdict, table

HERE = Path(__file__).resolve().parent
WHOLE = 450.0
"""Seconds for all checks; those that find none left are skipped."""
LIMITS = {
    "discovery": 60,
    "shares": 75,
    "amp_fp16": 60,
    "amp_bf16": 60,
    "resume": 60,
    "ranks_one": 75,
    "ranks_on_shares": 120,
    "oom": 60,
    "warm_pool": 100,
    "step": 75,
    "checkpoint": 75,
    "deepspeed": 60,
    "compile": 120,
}
"""Check -> its limit in seconds, in the order in which they run: what may take long comes last."""
QUICK = ("discovery", "shares", "amp_fp16", "resume", "oom")
"""Those that take a few seconds on a CPU."""
TIME_UP = "the time for all checks was up"
LEAST = 5.0
"""Seconds under which no check is started."""
SHOWN = 40
"""Last lines that are shown of a check that fails."""


def run_check(name: str, options: list[str], folder: Path, limit: float, left: float) -> Verdict:
    """Run one check to its end, to its limit, or until no time is left for any."""
    if left < LEAST:
        return Verdict(name, "SKIP", TIME_UP)
    folder.mkdir(parents=True)
    log, result = folder / "output.txt", folder / "verdict.json"
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, HERE / "gpu_check.py", name, folder, *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            status = process.wait(min(limit, left))
        except subprocess.TimeoutExpired:
            end(process)
            status = None
        finally:
            # What it started and left behind is in its session.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    seconds = time.monotonic() - began
    if status is None:
        verdict = (
            Verdict(name, "FAIL", f"not done within {limit:.0f} s") if limit <= left else Verdict(name, "SKIP", TIME_UP)
        )
    else:
        try:
            verdict = Verdict.read(result)
        except (OSError, ValueError):
            verdict = Verdict(name, "FAIL", f"it died with status {status}")
    if verdict.outcome == "FAIL":
        print("".join(f"    {line}\n" for line in tail(log)), end="")
    return replace(verdict, seconds=seconds)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a check to end what it has started, and end it."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(8)
    if process.poll() is None:
        process.kill()
        process.wait()


def tail(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8", errors="replace").splitlines()[-SHOWN:]


def machine(cpu: bool) -> str:
    """Return one line about the machine; asked in processes of their own, since this one must stay without a driver."""
    torch = _said([sys.executable, "-c", "import torch; print('torch', torch.__version__)"])
    gpu = "a rehearsal on the CPU"
    if not cpu:
        names = "name,memory.total,driver_version"
        gpu = _said(["nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader"]) or "nvidia-smi says nothing"
    node = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return f"{node}, {torch or 'no torch'}; {gpu}"


def _said(command: list[str]) -> str:
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return re.sub(r"\s*\n\s*", "; ", found.stdout.strip()) if found.returncode == 0 else ""


def chosen(only: str, quick: bool) -> list[str]:
    """Return the names of the checks to run, in order.

    Raises:
        SystemExit: There is none of such a name.
    """
    if not only:
        return list(QUICK) if quick else list(LIMITS)
    names = only.split(",")
    if unknown := [name for name in names if name not in LIMITS]:
        raise SystemExit(f"there is no check {', '.join(unknown)}: name some of {', '.join(LIMITS)}")
    return names


def main() -> int:
    """Run what was asked for; return 1 if any check failed, 2 if none passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cpu", action="store_true", help="rehearse on the CPU; with a stand-in for NVIDIA's driver")
    parser.add_argument("--quick", action="store_true", help=f"little of everything, only {', '.join(QUICK)}")
    parser.add_argument("--only", default="", metavar="NAME,…", help=f"of {', '.join(LIMITS)}")
    parser.add_argument("--seconds", type=float, default=WHOLE, help=f"for all of them ({WHOLE:.0f})")
    parser.add_argument("--limit", type=float, default=1000.0, help="most seconds of one check")
    given = parser.parse_args()
    names = chosen(given.only, given.quick)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))  # so that a check that runs is ended, too
    until = time.monotonic() + given.seconds
    title = machine(given.cpu)
    print(title, flush=True)
    options = [*(["--cpu"] if given.cpu else []), *(["--quick"] if given.quick else [])]
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="detgpu-") as name:
        for check in names:
            limit = min(float(LIMITS[check]), given.limit)
            verdicts.append(last := run_check(check, options, Path(name) / check, limit, until - time.monotonic()))
            print(f"{last.outcome} {check} ({last.seconds:.0f} s) {last.reason}".rstrip(), flush=True)
            keep(title, verdicts, Path(name))
    print(f"\n{title}\n\n{table(verdicts)}", end="", flush=True)
    outcomes = [verdict.outcome for verdict in verdicts]
    return 1 if "FAIL" in outcomes else 0 if "PASS" in outcomes else 2


def keep(title: str, verdicts: list[Verdict], folder: Path) -> None:
    """Write report and output to $OUT after each check: what is there counts, should the machine be taken away."""
    out = os.environ.get("OUT")
    if not out:
        return
    place = Path(out)
    place.mkdir(parents=True, exist_ok=True)
    (place / "gpu-report.md").write_text(f"{title}\n\n{table(verdicts)}", encoding="utf-8")
    logs = [f"==> {path.parent.name}\n{path.read_text(errors='replace')}" for path in folder.glob("*/output.txt")]
    (place / "gpu-output.txt").write_text("\n".join(logs), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
