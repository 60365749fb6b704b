"""What the docs say of GPUs is either shown by tests/gpu/run.sh or marked as not tried."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "contributing/try-on-a-gpu.md"
SPEAKS = re.compile(r"\b(?:NCCL|NVML|CUDA|cuda0|float16|nvidia-container-toolkit|gpu_util)|`gpu_util")
MARK = "ot tried on a GPU](../contributing/try-on-a-gpu.md)"
NO_CLAIM = {
    "explanation/architecture.md",  # a name of a variable
    "reference/cli.md",  # examples of names of slots
    "reference/dependencies.md",
    "reference/experiment-config.md",  # names of keys and of policies
    "reference/glossary.md",
    "reference/http-api.md",
    "contributing/try-on-a-gpu.md",
}
"""Pages that name these things and say nothing of how detlab behaves with them."""


def speaking() -> list[str]:
    pages = {str(path.relative_to(DOCS)): path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")}
    return sorted(name for name, text in pages.items() if SPEAKS.search(text) and name not in NO_CLAIM)


def test_some_pages_speak_of_gpus() -> None:
    assert {"reference/scheduling.md", "how-to/port-your-pytorch-loop.md", "reference/core-api.md"} <= {*speaking()}


@pytest.mark.parametrize("page", speaking())
def test_a_page_that_speaks_of_gpus_says_that_it_was_not_tried(page: str) -> None:
    assert MARK in (DOCS / page).read_text(encoding="utf-8")


def test_the_page_on_gpus_names_checks_that_exist() -> None:
    rows = re.findall(r"^\| \[.*\| (.*?) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    program = (DOCS.parent / "tests/gpu/gpu_check.py").read_text(encoding="utf-8")
    assert named
    assert {name for name in named if f'"{name}": "gpu_' not in program} == set()
