"""Hostile text in a notebook that was saved and converted: every output of ours is text there, too."""

from __future__ import annotations

from html.parser import HTMLParser

import nbformat
import pytest
from nbconvert import HTMLExporter

from detlab.client.rendering import card, table
from detlab.schemas.wire import (
    BestView,
    CurvesView,
    ExperimentView,
    FailureView,
    SeriesView,
    TrialView,
)
from detlab_magics.plaintext import plain, plain_lines
from detlab_magics.tables import Listing, StatusTable, html_table
from detlab_magics.view import ViewState, mimebundle

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(1)><svg/onload=alert(1)>"
MARKDOWN = "[click](javascript:alert(1)) ![x](x) **bold** `code`"
MATH = r"$\href{javascript:alert(1)}{x}$ \(x\) $$y$$"
TERMINAL = "\x1b[31mred\x1b]0;owned\x07\x9b2J\x08"
SLY = "\u202egnp.exe\u2066\u200f\u061c"
TEXTS = {"script": SCRIPT, "markdown": MARKDOWN, "math": MATH, "terminal": TERMINAL, "sly": SLY}
VOID = {"img", "br", "meta", "link", "input", "hr", "col"}
ACTIVE = {"script", "iframe", "object", "embed", "link", "meta", "form", "base", "svg", "style"}


def outputs(text: str) -> dict[str, dict[str, str]]:
    """Every kind of output that our objects and magics have, of views in which all is this text."""
    failure = FailureView(kind=text, message=text, where=text, log_tail=[text], hint=text)
    values = {"id": 7, "name": text, "owner": text, "state": "ERROR", "metric": text, "created_at": 1000.0}
    best = BestView(trial_id=1, trial_index=0, value=0.5, steps_completed=1)
    experiment = ExperimentView(
        **values, description=text, labels=[text], warnings=[text], failure=failure, best=best, pending_reason=text
    )
    ids = {"id": 1, "index": 0, "experiment_id": 7, "request_id": "r"}
    trial = TrialView(**ids, state="ERROR", hparams={text: text, "n": {text: [text]}})
    curves = [SeriesView(trial_id=1, group="validation", name=text, steps=[1, 3], values=[0.7, 0.5])]
    state = ViewState.start(CurvesView(cursor=10, experiment=experiment, trials=[trial], series=curves))
    listing = Listing([experiment], active=False)
    status = StatusTable([plain(text)], [(plain(text), plain(text))])
    return {
        "view": {key: value for key, value in mimebundle(state, note=text).items() if key != "image/svg+xml"},
        "listing": {"text/html": listing._repr_html_(), "text/plain": repr(listing)},
        "status": {"text/html": status._repr_html_(), "text/plain": repr(status)},
        "card": {"text/html": card(text, {text: text, "b": [text]})},
        "table": {"text/html": table([text], [[text, None, 0.5]])},
        "cells": {"text/html": html_table([plain(text)], [[plain(text)]])},
        "line": {"text/plain": plain_lines(text)},
    }


class Page(HTMLParser):
    """What of a converted notebook is in its outputs: elements, attributes, text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.depth = 0
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.unguarded = ""
        self.guards: list[bool] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            words = (dict(attrs).get("class") or "").split()
            inside = bool(self.guards) and self.guards[-1]
            self.guards.append(inside or tag == "pre" or {"mathjax_ignore", "tex2jax_ignore"} <= set(words))

    def handle_endtag(self, tag: str) -> None:
        if self.guards and tag not in VOID:
            self.guards.pop()

    def handle_data(self, data: str) -> None:
        self.text += data
        if not (self.guards and self.guards[-1]):
            self.unguarded += data


def converted(text: str) -> str:
    """All outputs in a notebook that was saved, as nbconvert writes them."""
    shown = [{media: content} for data in outputs(text).values() for media, content in data.items()]
    cell = nbformat.v4.new_code_cell("det_view", outputs=[nbformat.v4.new_output("display_data", one) for one in shown])
    saved = nbformat.reads(nbformat.writes(nbformat.v4.new_notebook(cells=[cell])), 4)
    html, _ = HTMLExporter(template_name="basic").from_notebook_node(saved)
    return str(html)


@pytest.fixture(scope="module")
def harmless() -> list[str]:
    """Elements of the outputs when nothing is hostile."""
    return [tag for tag, _ in Page(converted("harmless")).elements]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", TEXTS)
def test_hostile_text_in_a_saved_notebook_is_text_in_its_html(harmless, name):
    page = Page(converted(TEXTS[name]))
    elements = [tag for tag, _ in page.elements]
    assert elements == harmless, "the text has become no element of the page"
    assert not ACTIVE & set(elements)
    for tag, attributes in page.elements:
        assert not [key for key in attributes if key.startswith("on")], tag
        for key in ("href", "src", "action", "formaction"):
            value = attributes.get(key) or ""
            assert value.startswith(("data:image/svg+xml;base64,", "#")) or not value, (tag, value)
    assert not set(page.text) & set("\x1b\x07\x08\x9b\u202e\u2066\u200f\u061c")
    if name == "math":
        assert "$" in page.text
        assert "$" not in page.unguarded, "where MathJax looks for formulas there is none"
    if name in {"script", "markdown"}:
        assert page.text.count(TEXTS[name][:12]) > 10, "it is shown as it is"


def test_the_picture_of_a_view_is_an_image_without_scripts():
    """A picture in an <img> runs nothing; the same picture by itself has nothing that runs."""
    import base64
    import re
    import xml.etree.ElementTree as ET

    for text in TEXTS.values():
        failure = FailureView(kind=text, message=text)
        values = {"id": 7, "name": text, "owner": text, "state": "ERROR", "metric": text, "created_at": 1000.0}
        view = ExperimentView(**values, failure=failure)
        trial = TrialView(id=1, index=0, experiment_id=7, request_id="r", state="ERROR", hparams={text: text})
        series = [SeriesView(trial_id=1, group="validation", name=text, steps=[1, 3], values=[0.7, 0.5])]
        state = ViewState.start(CurvesView(cursor=1, experiment=view, trials=[trial], series=series))
        bundle = mimebundle(state)
        inline = re.search(r"base64,([A-Za-z0-9+/=]+)", bundle["text/html"])
        assert inline is not None
        assert base64.b64decode(inline[1]).decode() == bundle["image/svg+xml"]
        for element in ET.fromstring(bundle["image/svg+xml"]).iter():
            tag = element.tag.rpartition("}")[2]
            assert tag in {"svg", "g", "path", "text", "title", "rect", "line", "circle", "polyline", "style", "desc"}
            assert not [key for key in element.attrib if key.startswith("on") or "href" in key]
