"""The script for a machine with a GPU, rehearsed on the CPU: it must not rot between two such machines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_check import MODULES
from gpu_run import LIMITS, QUICK, WHOLE
from gpu_unpack import fits

HERE = Path(__file__).resolve().parent


def rehearse(out: Path, *options: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        ["sh", HERE / "run.sh", *options],
        env={**os.environ, "PYTHON": sys.executable, "OUT": str(out), **environment},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.soak
def test_the_quick_checks_pass_on_a_cpu_and_leave_a_report(tmp_path: Path) -> None:
    status, output = rehearse(tmp_path / "out", "--cpu", "--quick")
    assert status == 0, output
    report = (tmp_path / "out" / "gpu-report.md").read_text()
    assert report in output
    assert re.findall(r"^\| (\w+) \| PASS \|", report, re.MULTILINE) == list(QUICK)
    assert "| discovery: slot cuda1 | Test GPU | 16.0 GiB" in report
    assert "| resume: losses after a resume that are equal to the bit | 20 of 20 |" in report


def test_without_a_gpu_every_check_of_one_fails_and_says_so(tmp_path: Path) -> None:
    status, output = rehearse(tmp_path / "out", "--only", "oom", CUDA_VISIBLE_DEVICES="")
    assert status == 1
    assert re.search(r"FAIL oom .* sees no GPU; a rehearsal without one: sh tests/gpu/run.sh --cpu", output), output


@pytest.mark.soak
def test_a_check_that_hangs_fails_at_its_limit_and_one_without_time_is_skipped(tmp_path: Path) -> None:
    status, output = rehearse(tmp_path / "out", "--cpu", "--only", "step", "--limit", "1")
    assert status == 1
    assert re.search(r"^FAIL step \(\d+ s\) not done within 1 s", output, re.MULTILINE), output
    status, output = rehearse(tmp_path / "out", "--cpu", "--only", "step", "--seconds", "1")
    assert status == 2
    assert re.search(r"^SKIP step \(0 s\) the time for all checks was up", output, re.MULTILINE), output


def test_every_check_has_a_limit_and_its_line_in_the_readme() -> None:
    assert set(MODULES) == set(LIMITS)
    assert set(QUICK) <= set(LIMITS)
    assert WHOLE <= 8 * 60
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", (HERE / "README.md").read_text(), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"\w+", row)} == set(LIMITS)


@pytest.mark.parametrize(
    ("tags", "fit"),
    [
        ("py3-none-any", True),
        ("py2.py3-none-any", True),
        (f"cp3{sys.version_info.minor}-cp3{sys.version_info.minor}-manylinux_2_28_x86_64", True),
        ("cp38-abi3-manylinux_2_17_x86_64", True),
        ("cp399-abi3-manylinux_2_17_x86_64", False),
        ("cp310-cp310-manylinux_2_17_x86_64", False),
    ],
)
def test_only_wheels_for_this_python_are_unpacked(tags: str, fit: bool) -> None:
    assert fits(f"a_package-1.0-{tags}.whl") is fit
