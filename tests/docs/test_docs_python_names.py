"""What pages and examples call on `detlab.client` and `detlab` exists there, and so does all that a client can do."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from docs_snippets import ROOT, blocks, pages

import detlab
from detlab import client
from detlab.client import Client

_NOT_FUNCTIONS = {"close"}
"""Methods of `Client` that a module has no use for: `logout` closes its client."""

_EXAMPLES = sorted([*(ROOT / "examples").rglob("*.py"), *(ROOT / "examples").rglob("*.ipynb")])
_IMPORT = re.compile(r"from detlab import (?:\w+, )*client(?: as (\w+))?|import detlab\.client as (\w+)")
_WHOLE = re.compile(r"import detlab as (\w+)|import (detlab)\b(?!\.)")


def missing(text: str) -> list[str]:
    """The names that a text takes from the module `client`, or from `detlab`, and that are not there."""
    found = []
    module = _IMPORT.search(text)
    # A page's later blocks go on with the name of the first; one that is a Client has these methods as well.
    name = (module[1] or module[2] or "client") if module else "client"
    made = re.search(rf"\b{name}\s*=|\bas {name}:", text)
    if module and not made:
        found += [
            f"client.{word}" for word in re.findall(rf"(?<![\w.]){name}\.(\w+)\(", text) if not hasattr(client, word)
        ]
    whole = _WHOLE.search(text)
    if whole:
        name = whole[1] or whole[2]
        found += [
            f"detlab.{word}" for word in re.findall(rf"(?<![\w.]){name}\.(\w+)\(", text) if not hasattr(detlab, word)
        ]
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_what_pages_call_exists(page: Path) -> None:
    assert missing("\n".join(block.text for block in blocks(page, "python"))) == []


@pytest.mark.parametrize("example", _EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_examples_call_exists(example: Path) -> None:
    assert missing(example.read_text(encoding="utf-8")) == []


def test_every_method_of_a_client_is_a_function_of_the_module() -> None:
    methods = {
        name
        for name, _ in inspect.getmembers(Client, callable)
        if not name.startswith("_") and name not in _NOT_FUNCTIONS
    }
    assert sorted(name for name in methods if not hasattr(client, name)) == []
    assert methods <= set(dir(client))


def test_missing_names_are_found() -> None:
    assert missing("from detlab import client\nclient.no_such(1)") == ["client.no_such"]
    assert missing("from detlab import client as sdk\nsdk.whoami()\nsdk.no_such()") == ["client.no_such"]
    assert missing("import detlab as det\ndet.no_such()") == ["detlab.no_such"]
