"""The reference pages that repeat what the code says are current."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest
from docs_snippets import DOCS

NAMES = (
    "cli.md",
    "magics.md",
    "http-api.md",
    "core-api.md",
    "pytorch.md",
    "client.md",
    "limits.md",
    "plugins.md",
    "rights.md",
)


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_what_the_code_says(generate: ModuleType, name: str) -> None:
    written = (DOCS / "reference" / name).read_text(encoding="utf-8")
    assert written == generate.MAKERS[name](), "run: python docs/generate.py"


def test_every_generated_page_is_checked(generate: ModuleType) -> None:
    assert set(generate.MAKERS) == set(NAMES)
