"""Every promise of docs/explanation/security.md is broken once by a planted fault, and the tests beside it see that.

`make test` looks whether each fault still fits the code, and tries some of the quick ones, each day others; `make soak`
tries all (DETLAB_ALL_FAULTS=1). A fault that fits the code no more: plant it anew in the code as it is. A promise
without one: write one (`planted.py` says how), or say in `WITHOUT_FAULT` why there can be none. Some break no line of
that page, but what tests once missed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from planted import REPOSITORY, Fault, copy_project, failed, faults, run_tests

FAULTS = faults()
ALL = bool(os.environ.get("DETLAB_ALL_FAULTS"))
AT_A_TIME = 4
"""Of the quick ones each day has its own in `make test`, as planted bugs of the simulation have."""
QUICK = [fault for fault in FAULTS if fault.quick]
_TURNS = -(-len(QUICK) // AT_A_TIME)
TRIED = FAULTS if ALL else QUICK[date.today().toordinal() % _TURNS :: _TURNS]
WITHOUT_FAULT = {
    "no request made from the API's description ends in a failure": "finds unknown faults; it has no one of its own",
    "versions of packages": "pins, not code",
}
"""Promises that no planted fault breaks, by their first words, and why."""


def promises() -> dict[str, list[str]]:
    """The lines of the table, and the tests that each names."""
    page = (REPOSITORY / "docs" / "explanation" / "security.md").read_text(encoding="utf-8")
    table = page.partition("## Tests")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "shown by" not in line]
    return {row.split("|")[1].strip(): re.findall(r"`(tests/[\w/.]+)`", row) for row in rows}


PROMISES = promises()


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_is_broken_by_a_planted_fault(promise: str) -> None:
    if any(promise.startswith(words) for words in WITHOUT_FAULT):
        return
    named = set(PROMISES[promise])
    planted = [fault for fault in FAULTS if fault.promise and promise.startswith(fault.promise)] or FAULTS
    seen_by = {node.partition("::")[0] for fault in planted for node in fault.tests}
    assert seen_by & named, f"no planted fault breaks this promise so that one of its tests sees it: {promise}"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_fits_the_code_and_names_tests_that_are_there(fault: Fault) -> None:
    assert fault.text().count(fault.old) == 1, f"its text is not in {fault.file} once: plant {fault.name} anew"
    changed = fault.text().replace(fault.old, fault.new)
    assert changed != fault.text()
    if fault.file.endswith(".py"):
        compile(changed, fault.file, "exec")
    assert fault.tests
    for node in fault.tests:
        path, _, name = node.partition("::")
        assert re.search(rf"^(async )?def {name}\(", (REPOSITORY / path).read_text(encoding="utf-8"), re.MULTILINE), (
            node
        )


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A copy of this project."""
    folder = tmp_path / "project"
    copy_project(folder)
    yield folder
    shutil.rmtree(folder)


def _place(node: str) -> tuple[str, int]:
    """Where a test stands: those of a file may build on the ones before."""
    path, _, name = node.partition("::")
    return path, (REPOSITORY / path).read_text(encoding="utf-8").index(f"def {name}(")


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_tests_pass_in_a_copy_without_a_fault(project: Path) -> None:
    """Else a failure below would say nothing."""
    nodes = sorted({node for fault in TRIED for node in fault.tests}, key=_place)
    passed, said = run_tests(project, nodes)
    assert passed, said[-6000:]


@pytest.mark.soak
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("fault", TRIED, ids=lambda fault: fault.name)
def test_a_planted_fault_is_seen(fault: Fault, project: Path) -> None:
    fault.plant(project)
    _, said = run_tests(project, fault.tests)
    missed = set(fault.tests) - failed(said)
    assert not missed, f"{fault.name} is not seen by {sorted(missed)}\n{said[-4000:]}"
