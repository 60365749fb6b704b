"""What "Come from Determined" says is taken, or named and ignored, is."""

from __future__ import annotations

from typing import Any

import pytest
from docs_snippets import DOCS

from detlab.schemas.expconf import check, parse, unsupported_keys

PAGE = (DOCS / "how-to" / "come-from-determined.md").read_text(encoding="utf-8")
SEARCHER = {"name": "single", "metric": "loss"}


def levels(raw: dict[str, Any]) -> set[str]:
    return {problem.level for problem in unsupported_keys(parse({"searcher": SEARCHER, **raw}))}


@pytest.mark.parametrize(
    ("word", "raw"),
    [
        ("`s3`", {"checkpoint_storage": {"type": "s3", "bucket": "b"}}),
        ("`gcs`", {"checkpoint_storage": {"type": "gcs", "bucket": "b"}}),
        (
            "`azure`",
            {"checkpoint_storage": {"type": "azure", "container": "c", "account_url": "https://u.example.org"}},
        ),
    ],
)
def test_object_stores_are_taken(word: str, raw: dict[str, Any]) -> None:
    assert word in PAGE
    assert levels(raw) == set()


@pytest.mark.parametrize(
    ("word", "raw"),
    [
        ("`environment.image`", {"environment": {"image": "mine"}}),
        ("`bind_mounts`", {"bind_mounts": [{"host_path": "/a", "container_path": "/a"}]}),
        ("`propagation`", {"checkpoint_storage": {"type": "shared_fs", "host_path": "/x", "propagation": "shared"}}),
        ("profiler", {"profiling": {"enabled": True}}),
    ],
)
def test_named_and_run_without(word: str, raw: dict[str, Any]) -> None:
    assert word in " ".join(PAGE.split())
    assert levels(raw) == {"warning"}


def test_removed_searchers_are_refused_by_name_with_the_reason() -> None:
    problems = check({"entrypoint": "true", "searcher": {"name": "sync_halving", "metric": "x"}})
    assert any("sync_halving" in problem.message and "removed" in problem.message for problem in problems)
