"""bench/trainer/trainer.py runs and prints its tables; what they say is not judged here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(330)]

SCRIPT = Path(__file__).resolve().parents[3] / "bench" / "trainer" / "trainer.py"
NUMBER = r"[+-]?\d+\.\d+"
SPREAD = rf"{NUMBER} \({NUMBER} … {NUMBER}\)"
# The loop written by hand has no columns "over": time, ratio, CPU, least, loss. The others have three of them.
ROW = re.compile(rf"^  (?P<name>\S.{{18}}\S?) +{NUMBER}(?:(?: +{NUMBER}){{4}}| +{SPREAD}(?: +{NUMBER}){{6}})$", re.M)
PAIRED = re.compile(rf"^  (?P<name>\S.{{18}}\S?)(?: +{NUMBER}){{3}} +[+-]\d+ … [+-]\d+(?: +{NUMBER}){{2}}$", re.M)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--quick", "--rows", "detlab"],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path_factory.mktemp("bench"),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_every_table_has_a_line_for_each_row(printed: str) -> None:
    step, paired, ddp, checkpoint = re.split(r"\n(?=Step|Two processes|Checkpoint)", printed)[1:]
    for table in (step, ddp):
        assert [match["name"].strip() for match in ROW.finditer(table)] == ["hand-written", "detlab"]
        assert re.search(r"^  goal: ", table, re.M)
    assert [match["name"].strip() for match in PAIRED.finditer(paired)] == ["hand-written again", "detlab"]
    assert re.search(r"^  goal: ", paired, re.M)
    for label in ("bare copy", "detlab: submit", "torch.save", "Trainer.fit: step without", "Trainer.fit: longer by"):
        assert re.search(rf"^  {label}.* {NUMBER} s +\({NUMBER} … {NUMBER}\)", checkpoint, re.M), checkpoint


def test_all_rows_did_the_same_work(printed: str) -> None:
    """Each row saw the same samples, in an order of its own: the losses that are reached are close."""
    rows = [line for line in printed.splitlines() if line.startswith(("  hand-written ", "  detlab "))]
    losses = [float(row.split()[-1]) for row in rows]
    assert len(losses) == 7
    assert max(losses) < 0.5 < 2.3  # ln 10 = 2.3: untrained


def test_a_row_whose_package_is_missing_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ABSENT, str(SCRIPT.parent)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "Lightning: lightning is not installed (make bench-trainer)"


ABSENT = """
import importlib.util, sys
sys.path.insert(0, sys.argv[1])
import trainer
found = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "lightning" else found(name)
for name, why in trainer.missing(["hand-written", "Lightning"]).items():
    print(f"{name}: {why}")
"""
