"""What works is made from what is registered, and no page says "not yet" of what is there."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from docs_snippets import DOCS, ROOT, pages

sys.path.insert(0, str(DOCS))
from reference_pages import what_works

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REGISTERED = {name for names in PROJECT["entry-points"].values() for name in names}
"""Names that a page writes as code."""
KNOWN = {"aws", "azure", "docker", "gcp", "gcs", "katib", "kubernetes", "s3", "slurm"}
"""Names that a page writes as words."""
_DENIED = re.compile(r"\bnot (?:here |there |supported |implemented )?yet\b|\bno [\w-]+ yet\b", re.IGNORECASE)
_QUOTED = re.compile(r"\"[^\"]*\"")


def denied(text: str) -> list[str]:
    """The sentences and cells of a text that say "not yet" of what is registered."""
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in re.split(r"(?<=[.;!?])\s+(?=[A-Z`*\[])|\|", paragraph):
            plain = _QUOTED.sub("", sentence)
            words = set(re.findall(r"[\w-]+", plain.lower()))
            code = set(re.findall(r"`([\w-]+)`", plain))
            if _DENIED.search(plain) and (words & KNOWN or code & REGISTERED):
                found.append(" ".join(sentence.split()))
    return found


@pytest.mark.parametrize(
    "text",
    [
        "Not yet: Kubernetes and Slurm.",
        "| runtimes | not yet: `docker` |",
        "Checkpoints in S3 are not supported yet.",
        "There is no Slurm yet, but there will be.",
    ],
)
def test_a_denial_of_what_is_there_is_found(text: str) -> None:
    assert len(denied(text)) == 1


MEASURED = "not measured yet"
"""`sobol` is there; how good it is was not measured."""


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_says_not_yet_of_what_is_registered(page: Path) -> None:
    text = page.read_text(encoding="utf-8").replace(MEASURED, "")
    assert page.name == "CHANGELOG.md" or denied(text) == []


@pytest.mark.parametrize("absent", what_works.NOT_YET, ids=lambda absent: absent.text)
def test_what_the_readme_misses_is_still_missing(absent: what_works.Absent) -> None:
    assert not absent.exists(), "it is there: remove its line in docs/reference_pages/what_works.py"


def test_the_readme_lists_what_is_registered() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text == what_works.readme(), "run: python docs/generate.py"
    listed = text.partition(what_works.START)[2].partition(what_works.END)[0]
    for group in ("detlab.searchers", "detlab.stopping", "detlab.strategies"):
        for name in PROJECT["entry-points"][group]:
            assert f"`{name}`" in listed
    for words, group in ((what_works.RUNTIMES, "runtimes"), (what_works.STORAGES, "storages")):
        assert set(words) == set(PROJECT["entry-points"][f"detlab.{group}"]), "every one has its words"
