"""The files that repeat what the code says are current."""

from __future__ import annotations

import importlib.util
from types import ModuleType

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
    "docs/reference/limits.md",
    "docs/reference/plugins.md",
    "docs/reference/rights.md",
    "docs/reference/sbatch-options.md",
    "docs/reference/storage-access.md",
    "docs/reference/determined-names.md",
    "docs/reference/imports.md",
    "docs/explanation/architecture.md",
    "server_ext/detlab_server/relayed.py",
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
    """The page of Determined's names sends nobody to a command that is not there, or past one that is."""
    names = importlib.import_module("reference_pages.determined")
    targets = {words: target.split(" --")[0].removeprefix("det ") for words, target in names.OTHER_COMMANDS.items()}
    assert [target for target in targets.values() if not names.exists(target)] == []
    assert [words for words in targets if names.exists(words)] == []
    listed = {f"{group} {leaf}" for group, leaves in names.COMMANDS.items() for leaf in leaves.split()}
    assert set(targets) <= listed
    assert not names.exists("experiment nothing-of-that-name")
