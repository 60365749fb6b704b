"""docs/explanation/security.md names tests that are there, and faults that no pinned package has any more."""

from __future__ import annotations

import re

from docs_snippets import DOCS, ROOT
from packaging.utils import canonicalize_name
from packaging.version import Version

PAGE = (DOCS / "explanation" / "security.md").read_text(encoding="utf-8")


def pins() -> dict[str, Version]:
    """What CI installs."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = (line.partition("==") for line in lines if "==" in line and not line.startswith("#"))
    return {canonicalize_name(name): Version(version.partition(";")[0].strip()) for name, _, version in found}


def test_every_test_that_is_named_is_there() -> None:
    named = set(re.findall(r"`(tests/[\w/.]+)`", PAGE))
    assert len(named) > 15
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []


def test_every_line_of_the_table_names_a_test() -> None:
    table = PAGE.partition("## Tests")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "shown by" not in line]
    assert len(rows) > 10
    assert [row for row in rows if "`tests/" not in row] == []


def test_no_pinned_package_has_a_fault_that_is_listed() -> None:
    listed = re.findall(r"^\| ([\w-]+) \| (CVE-\d{4}-\d+|GHSA[\w-]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert len(listed) > 10
    pinned = pins()
    assert [(name, fault) for name, fault, mended in listed if pinned[canonicalize_name(name)] < Version(mended)] == []
