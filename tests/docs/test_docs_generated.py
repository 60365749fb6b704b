"""The files that repeat what the code says are current."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import click
import pytest
from docs_snippets import DOCS, ROOT

NAMES = (
    "docs/reference/cli.md",
    "docs/reference/magics.md",
    "docs/reference/http-api.md",
    "docs/reference/core-api.md",
    "docs/reference/helm-values.md",
    "docs/reference/pytorch.md",
    "docs/reference/client.md",
    "docs/reference/filters.md",
    "docs/reference/limits.md",
    "docs/reference/plugins.md",
    "docs/reference/rights.md",
    "docs/reference/sbatch-options.md",
    "docs/reference/storage-access.md",
    "docs/reference/determined-names.md",
    "docs/reference/imports.md",
    "docs/explanation/architecture.md",
    "docs/how-to/come-from-determined.md",
    "server_ext/detlab_server/relayed.py",
    "README.md",
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
def test_the_file_is_what_the_code_says(generate: ModuleType, name: str) -> None:
    written = (ROOT / name).read_text(encoding="utf-8")
    assert written == generate.MAKERS[name](), "run: python docs/generate.py"


def test_every_generated_file_is_checked(generate: ModuleType) -> None:
    assert set(generate.MAKERS) == set(NAMES)


def test_commands_of_other_names_exist(generate: ModuleType) -> None:
    """The page of Determined's names, and what `det` says, send nobody to a command that is not there."""
    names = importlib.import_module("reference_pages.determined")
    hints = importlib.import_module("detlab.cli.determined_options")
    texts = [*hints.COMMANDS.values(), *(text for by_name in hints.INSTEAD.values() for text in by_name.values())]
    named = {found for text in texts for found in re.findall(r"\bdet ((?:[a-z][a-z-]+ ?){1,3})", text)}
    words = {text.strip() for text in named}
    assert {"quota set", "search concurrency", "pool list"} <= words
    assert [text for text in words if not _begins_with_a_command(names, text)] == []
    assert not names.exists("experiment nothing-of-that-name")


def _begins_with_a_command(names: ModuleType, text: str) -> bool:
    """Tell whether words, of which the last may belong to the sentence, are a command that is no mere group."""
    words = text.split()
    found = (names.command_of(" ".join(words[:count])) for count in range(len(words), 0, -1))
    command = next((one for one in found if one is not None), None)
    return command is not None and not isinstance(command, click.Group)
