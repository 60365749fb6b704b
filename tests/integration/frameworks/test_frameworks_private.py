"""The level `dp`, where Opacus is installed: the checks of programs/private_checks.py, in that environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from framework_task import PYTHON, ROOT, needs_frameworks

FOLDERS = (ROOT / "harness", ROOT / "tests", ROOT / "tests/integration/pytorch", Path(__file__).parent / "programs")


def check(*arguments: str) -> None:
    needs_frameworks()
    paths = os.pathsep.join(map(str, FOLDERS))
    program = Path(__file__).parent / "programs" / "private_checks.py"
    done = subprocess.run(
        [PYTHON, "-m", "pytest", "-p", "no:cacheprovider", "-q", str(program), *arguments],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_training_at_the_level_dp() -> None:
    check("-m", "not soak")


@pytest.mark.soak
def test_an_audit_in_one_run_finds_no_more_than_was_spent() -> None:
    check("-m", "soak")
