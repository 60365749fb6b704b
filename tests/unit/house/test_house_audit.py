"""`make audit` calls nothing looked up that was not."""

from __future__ import annotations

import sys

import pytest

from testbed.audit import UNKNOWN, judged, main

CLEAN = {"name": "aiohttp", "version": "3.14.1", "vulns": []}
FAULT = {"id": "PYSEC-2024-1", "aliases": ["CVE-2024-23334"], "fix_versions": ["3.9.2"], "description": "x"}
FAULTY = {"name": "aiohttp", "version": "3.9.1", "vulns": [FAULT]}
SKIPPED = {"name": "yarl", "skip_reason": "Dependency not found on PyPI and could not be audited: yarl (1.25.1)"}


@pytest.mark.parametrize(
    ("packages", "status", "said"),
    [
        ([CLEAN], 0, "1 of 1 packages looked up, 0 known faults"),
        ([FAULTY, CLEAN], 1, "aiohttp 3.9.1: PYSEC-2024-1 CVE-2024-23334, mended in 3.9.2"),
        ([SKIPPED, SKIPPED], 3, "0 of 2 packages looked up"),
        ([CLEAN, SKIPPED], 3, "nothing is known of them: yarl"),
        ([FAULTY, SKIPPED], 1, "nothing is known of them: yarl"),
        ([], 3, "nothing is known of them: all"),
    ],
)
def test_what_was_not_looked_up_is_no_success(packages: list[dict[str, object]], status: int, said: str) -> None:
    lines, found = judged(packages)
    assert found == status
    assert said in "\n".join(lines)


def test_an_audit_that_ends_without_a_report_says_that_nothing_was_looked_up(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(sys.executable, "constraints.txt") == UNKNOWN
    assert "No package was looked up: pip-audit ended with 2: " in capfd.readouterr().err
