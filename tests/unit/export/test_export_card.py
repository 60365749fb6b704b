"""Model cards: made of what was recorded alone, and safe to render whatever users wrote."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import mistune
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from detlab.export.card import escaped, model_card
from detlab.export.contents import Contents
from detlab.export.front_matter import front_matter
from detlab.schemas.wire.registry import Lineage, VersionView
from detlab.visible import visible

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1))",
    "![x](http://evil.example/pixel.png)",
    "<http://evil.example>",
    "http://evil.example and www.evil.example and me@evil.example",
    "a | b | c |\n| --- |",
    "x\n\n# Heading\n\n<b>bold</b>",
    "```\n</code><script>",
    "`a` **b** _c_ ~~d~~ $e$",
    "&lt;script&gt; &amp; &#60;b&#62;",
    "\\<b\\> \\[a\\](b)",
    "- list",
    "1. list",
    "===",
    "    indented",
    "[ref]: http://evil.example 'x'",
    "a\u202egpj.exe\u200b\x1b[31m",
    "[^1] {{ template }} :smile: <!-- -->",
)


class Elements(HTMLParser):
    """Collects the tags, attributes and text of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_comment(self, data: str) -> None:
        self.tags.add("!--")

    def handle_data(self, data: str) -> None:
        self.text += data


def rendered(markdown: str) -> list[Elements]:
    """What two renderers make of it, with HTML let through and bare addresses made to links."""
    common = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    plugins = ["table", "url", "strikethrough", "footnotes", "task_lists", "math"]
    other = mistune.create_markdown(escape=False, plugins=plugins)
    return [Elements(str(page)) for page in (common.render(markdown), other(markdown))]


def test_a_card_has_what_was_recorded(version: VersionView, contents: Contents) -> None:
    card = model_card(version, contents)
    for page in rendered(card):
        for fact in (
            "digits version 3",
            "Semantic version: 1.2.0",
            "Labels now: production",
            "Registered: 2025-06-15 15:06 UTC by ada",
            "Experiment: 7 (digits, wide)",
            "Steps completed: 200",
            "Searched by: accuracy; larger is better",
            "sha256:" + "cd" * 32,
            "sha256:" + "ef" * 32,
            "training.loss",
            "0.9375",
            "net.width",
            "2.13.0+cpu",
            "code/model_def.py",
            contents.files["model_0.safetensors"].digest,
            'det.load_model("digits@3")',
            "See the paper.",
        ):
            assert fact in page.text, fact
        assert "manifest.json" not in page.text
        assert page.tags <= {"hr", "h1", "h2", "ul", "li", "p", "br", "blockquote", "pre", "code", "strong"} | TABLE
    assert "pickles" not in card


def block_of(card: str) -> dict[str, Any]:
    """The YAML at the head, as Hugging Face's library reads it."""
    found = re.match(r"^\s*---[ \t]*\n(.*?)\n---[ \t]*\n", card, re.DOTALL)
    assert found is not None
    return yaml.safe_load(found[1])


def test_a_card_begins_with_the_block_that_the_hub_reads(version: VersionView, contents: Contents) -> None:
    """The Hub showed a card without library, tags and results."""
    said = {
        "license": "apache-2.0",
        "language": ["en", "de"],
        "pipeline_tag": "image-classification",
        "tags": ["digits"],
        "base_model": "<script>",
        "private": "x",
    }
    told = version.model_copy(update={"metadata": said})
    block = block_of(model_card(told, contents))
    index = block.pop("model-index")
    assert block == {
        "license": "apache-2.0",
        "pipeline_tag": "image-classification",
        "library_name": "pytorch",
        "language": ["en", "de"],
        "tags": ["detlab", "digits"],
        "datasets": ["digits-v3"],
        "metrics": ["accuracy", "training.loss"],
    }
    (result,) = index[0]["results"]
    assert index[0]["name"] == "digits"
    assert result["task"] == {"type": "image-classification"}
    assert result["dataset"] == {"type": "digits-v3", "name": "digits-v3"}
    assert {"type": "accuracy", "name": "accuracy", "value": 0.9375} in result["metrics"]


def test_a_metric_of_the_validation_stands_once(version: VersionView, contents: Contents) -> None:
    card = model_card(version, contents)
    assert card.count("accuracy | ") == 1
    assert "validation" not in card.split("## How to load it")[0].split("## Metrics")[1]


def test_the_block_invents_no_results(contents: Contents) -> None:
    bare = VersionView(model_id=1, model="bare", version=1, lineage=Lineage(metrics={"loss": float("nan"), "a": 1.0}))
    block = block_of(model_card(bare, contents))
    assert block == {"library_name": "pytorch", "tags": ["detlab"], "metrics": ["a"]}


@pytest.mark.slow
@given(st.text(max_size=80))
def test_any_text_in_the_block_is_that_text_to_yaml_and_text_to_markdown(text: str) -> None:
    made = Lineage(metrics={text: 1.0}, data={text: "1"})
    card = front_matter(VersionView(model_id=1, model=text, version=1, lineage=made), Contents(Path(), {}, {}))
    index = block_of(card)["model-index"][0]
    assert index["name"] == visible(text, keep="")[:500]
    for page in rendered(card):
        assert page.tags <= {"hr", "p", "ul", "li"}
        assert not page.attributes


TABLE = {"table", "thead", "tbody", "tr", "th", "td"}


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_users_is_text_in_every_place(text: str, version: VersionView, contents: Contents) -> None:
    made = version.lineage.model_copy(
        update={
            "experiment_name": text,
            "metric": text,
            "metrics": {text: 1.0},
            "hyperparameters": {text: text, "in": {text: [text]}},
            "environment": {text: text},
            "data": {text: text},
            "device": text,
            "submitter": text,
            "parents": [text],
        }
    )
    facts = {"model": text, "name": text, "comment": text, "notes": f"{text}\n{text}", "labels": [text], "owner": text}
    hostile = version.model_copy(update=facts | {"lineage": made, "semver": text})
    plain = rendered(model_card(version, contents))
    for page, before in zip(rendered(model_card(hostile, contents)), plain, strict=True):
        assert page.tags <= before.tags | {"br"}
        assert not page.attributes - before.attributes - {"class"}
        assert "\u202e" not in page.text
        assert "\x1b" not in page.text
        assert "".join(visible(text, keep="\n").split())[:12] in "".join(page.text.split())


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_one_paragraph_of_text(text: str) -> None:
    for page in rendered(f"before {escaped(text)} after"):
        assert page.tags == {"p"}
    for page in rendered(f"- name: {escaped(text)}\n"):
        assert page.tags == {"ul", "li"}
    for page in rendered(f"> {escaped(text)}  \n"):
        assert page.tags <= {"blockquote", "p"}


def test_long_values_are_cut_and_nothing_is_invented(contents: Contents) -> None:
    bare = VersionView(model_id=1, model="bare", version=1, comment="x" * 10_000, lineage=Lineage())
    card = model_card(bare, contents)
    assert "x" * 500 + "…" in card
    assert "Nothing was recorded" in card
    assert "No data sets were declared" in card
    for heading in ("Metrics", "Hyperparameters", "Environment", "Notes"):
        assert f"## {heading}" not in card
    assert "None" not in card
