"""The pages for those who come with a search from elsewhere name what there is, and their code compiles."""

from __future__ import annotations

import re

import pytest
from docs_snippets import DOCS, blocks

from detlab.schemas.expconf.blocks.hyperparameters import DoubleHyperparameter
from detlab.schemas.expconf.blocks.searchers import BUILT_IN
from detlab.schemas.imports.katib import keys
from detlab.schemas.imports.katib import search as katib
from detlab.schemas.imports.wandb import spaces
from detlab.schemas.imports.wandb import sweep as wandb

HOW_TO = DOCS / "how-to"
KATIB_KEYS = {key.split(".")[-1].removesuffix("[]") for key in [*keys.TARGETS, *keys.REASONS]}
WANDB_KEYS = {part for key in [*wandb.TARGETS, *wandb.REASONS] for part in key.split(".")}
KNOWN = {
    "come-from-katib.md": {*katib.ALGORITHMS, *katib.REFUSED, *KATIB_KEYS},
    "come-from-wandb-sweeps.md": {*wandb.METHODS, *WANDB_KEYS, *spaces.DISTRIBUTIONS},
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_the_table_of_differences_calls_a_key_or_a_method_is_one(name: str) -> None:
    table = (HOW_TO / name).read_text(encoding="utf-8").split("## What differs", 1)[1]
    first = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| ")]
    named = {word for cell in first for word in re.findall(r"`([^`]+)`", cell)}
    assert len(named) > 2
    assert named - KNOWN[name] == set()


@pytest.mark.parametrize("name", KNOWN)
def test_the_code_compiles(name: str) -> None:
    found = blocks(HOW_TO / name, "python")
    assert found
    for block in found:
        compile(block.text, name, "exec")


def test_every_method_is_on_the_page_for_those_who_come_from_determined() -> None:
    page = (HOW_TO / "come-from-determined.md").read_text(encoding="utf-8")
    rows = page.split("| **search** | | |", 1)[1].split("| **scheduling** | | |", 1)[0]
    words = {word for quoted in re.findall(r"`([^`]+)`", rows) for word in quoted.split()}
    assert set(BUILT_IN) - words == set()
    assert {"when", "step", "prior"} <= set(DoubleHyperparameter.model_fields) & words
