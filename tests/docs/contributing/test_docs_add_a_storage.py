"""The page on storages names the whole interface, the entry point group, and what the contract suite asks for."""

from __future__ import annotations

import re

from docs_snippets import DOCS

from detlab.schemas.storage_types import STORAGES
from detlab.storage import StorageManager, StorageType
from detlab.testing.storage import StorageContract

PAGE = (DOCS / "contributing" / "add-a-storage.md").read_text(encoding="utf-8")


def methods(of: type) -> set[str]:
    return {name for name in vars(of) if not name.startswith("_")}


def test_each_method_of_the_interface_has_its_row() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \|", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == methods(StorageManager)
    assert all(f"def {name}(" in PAGE for name in methods(StorageType))


def test_what_a_test_class_overrides_is_there() -> None:
    block = PAGE[PAGE.index("class TestTape") :].split("\n\n", 1)[0]
    overridden = set(re.findall(r"def (\w+)\(", block)) - {"store"}
    assert overridden == {name for name in dir(StorageContract) if not name.startswith(("_", "test_"))} - {"source"}


def test_the_group_is_the_one_that_is_searched() -> None:
    assert f'[project.entry-points."{STORAGES.group}"]' in PAGE
