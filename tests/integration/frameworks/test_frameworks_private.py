"""Policies with libraries of an environment of their own: Opacus (the level `dp`, T2), Lightning, the Trainer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from framework_task import PYTHON, ROOT, needs_frameworks

PROGRAMS = Path(__file__).parent / "programs"
SHARED = ("harness", "tests", "tests/docs", "tests/integration/pytorch", "tests/unit/governance")
FOLDERS = (*(ROOT / one for one in SHARED), PROGRAMS)


def check(*arguments: str, program: Path = PROGRAMS / "private_checks.py") -> None:
    needs_frameworks()
    paths = os.pathsep.join(map(str, FOLDERS))
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


def test_t2_routed_gradients_are_those_of_opacus_for_each_sample() -> None:
    check(program=PROGRAMS / "oracle_checks.py")


def test_lightning_and_the_trainer_train_under_a_policy_as_the_page_prints_it() -> None:
    check(program=PROGRAMS / "governed_doors.py")
