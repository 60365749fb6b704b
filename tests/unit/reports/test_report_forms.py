"""Reports as pages and as notebooks: what stands in them, and that texts of people are only ever texts."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
from markdown_it import MarkdownIt

from detlab.errors import DetlabError
from detlab.reports import ReportFacts, report_notebook, report_page, write_report
from detlab.reports.figures import drawn_metrics
from detlab.reports.notes import notes_html
from detlab.reports.page import SCRIPT, STYLE, policy
from testbed.reports import compared, hostile, project

HOSTILE = (
    "<script>alert(1)</script>",
    "</title></style></script></pre><img src=x onerror=alert(1)>",
    "\"><a href='javascript:alert(1)' onclick=alert(1)>x</a>",
    "[click](javascript:alert(1)) ![x](http://evil.example/pixel.png) <http://evil.example>",
    "x\n\n# Heading\n\n<b>bold</b>\n\n| a |\n|:-:|\n| <i>b</i> |",
    '```</code><script>\n</textarea>\n```\n~~~x" onload=alert(1)\n~~~',
    "$\\href{javascript:alert(1)}{x}$ \\(y\\) {{ template }} <!-- -->",
    "a\u202egpj.exe\u200b\x1b[31m\x00'; DROP--",
    "&lt;script&gt; &#60;b&#62; &amp;",
)
PLAIN = {"section", "h1", "h2", "h3", "h4", "h5", "h6", "p", "div", "table", "thead", "tbody", "tr", "th", "td", "code"}
PLAIN |= {"pre", "a", "ul", "ol", "li", "br", "details", "summary", "figure", "figcaption", "img", "strong", "em", "s"}
PLAIN |= {"hr", "blockquote", "span"}
OF_PAGE = {"html", "head", "meta", "title", "style", "body", "main", "nav", "script"}
ATTRIBUTES = {"class", "id", "href", "rel", "src", "alt", "data-sort", "scope", "aria-label", "start"}
OF_HEAD = {"lang", "charset", "http-equiv", "content", "name"}


each_text = pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))


@pytest.fixture
def facts() -> ReportFacts:
    return project()


class Seen(HTMLParser):
    """The tags, attributes and texts of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.outline: list[tuple[str, str]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"/{tag}")

    def handle_comment(self, data: str) -> None:
        self.tags.append("!--")

    def handle_data(self, data: str) -> None:
        self.text += data
        last = next((tag for tag in reversed(self.tags) if tag not in {"/th"}), "")
        if last in {"h1", "h2", "h3", "h4"} or (last == "th" and data.strip()):
            self.outline.append((last, data))

    def values(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]

    def opened(self) -> set[str]:
        return {tag for tag in self.tags if not tag.startswith("/")}


def check_links(seen: Seen, address: str) -> None:
    for href in seen.values("href"):
        assert href.startswith((address, "#", "http://", "https://", "mailto:")), href
    for source in seen.values("src"):
        kind, _, data = source.partition(";base64,")
        assert kind in {"data:image/png", "data:image/svg+xml"}, source[:80]
        if kind == "data:image/svg+xml":
            check_picture(base64.b64decode(data).decode())


def check_picture(svg: str) -> None:
    root = ET.fromstring(svg)
    tags = {one.tag.rpartition("}")[2] for one in root.iter()}
    assert tags <= {"svg", "style", "text", "path", "circle", "g", "clipPath", "rect"}
    names = {name for one in root.iter() for name in one.attrib}
    assert not {name for name in names if name.startswith("on") or "href" in name}


# --- the page


def test_a_page_has_this_structure(facts: ReportFacts) -> None:
    seen = Seen(report_page(facts))
    assert [text for tag, text in seen.outline if tag in {"h1", "h2", "h3", "h4"}] == [
        "Digits",
        "Notes",
        "The project",
        "Experiments",
        "Runs",
        "Experiment 7: digits, wide",
        "Why",
        "Checkpoints of trial 12",
        "Registered models",
        "Artifacts",
        "Commands",
        "Experiment 9: digits, deep",
        "Commands",
        "Run baseline",
        "Commands",
    ]
    heads = [text for tag, text in seen.outline if tag == "th"]
    columns = ["ID", "Name", "State", "Method", "Best", "Hyperparameters of the best", "Trials", "Owner"]
    columns += ["Started", "Took", "Cost"]
    at = heads.index("ID")
    assert heads[at : at + len(columns)] == columns
    for said in (
        "ada, 2026-09-21 17:00 UTC",
        "2 experiments and 1 run",
        "det report --project vision/digits -o digits.html",
        "Only the newest 2 experiments are here.",
        "Handwritten digits",
        "loss 0.25 at step 300",
        "lr=0.05, layers=2, optimizer.name=adam",
        "1h 02m",
        "3.50",
        "sha256:" + "ab" * 32,
        "det experiment fork 7",
        "det checkpoint download c-12",
        "det model download digits@3",
        "det artifact download cats:v2",
        "name: adaptive_asha",
        "deadbeef, with 2 changed files",
        "train.py --lr 0.1",
        "5 more logged objects on its page.",
        "trial 11 restarted once",
    ):
        assert said in seen.text, said


def test_what_links_lead_to(facts: ReportFacts) -> None:
    seen = Seen(report_page(facts))
    address = facts.address
    for path in (
        "experiments/7",
        "experiments/3",
        "trials/12",
        "runs/" + "6f0c" * 8,
        "models/digits/versions/3",
        "artifacts/cats/versions/2",
        "workspaces/ada%2Fvision/projects/digits",
    ):
        assert address + path in seen.values("href"), path
    anchors = {href[1:] for href in seen.values("href") if href.startswith("#")}
    assert anchors
    assert anchors <= set(seen.values("id"))


def test_an_address_of_no_web_page_makes_no_links(facts: ReportFacts) -> None:
    seen = Seen(report_page(replace(facts, address="javascript:alert(1)//")))
    assert {href[0] for href in seen.values("href")} == {"#"}


def test_nothing_runs_or_loads_but_the_script_and_the_style_by_their_digests(facts: ReportFacts) -> None:
    page = report_page(facts)
    seen = Seen(page)
    assert seen.tags.count("script") == 1
    assert page.count(f"<script>{SCRIPT}</script>") == 1
    assert page.count(f"<style>{STYLE}</style>") == 1
    assert policy() in seen.values("content")
    for text, kind in ((SCRIPT, "script-src"), (STYLE, "style-src")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy()
    assert "unsafe" not in policy()
    assert policy().startswith("default-src 'none'; ")


@each_text
def test_texts_of_people_are_texts_on_the_page(facts: ReportFacts, text: str) -> None:
    page = report_page(hostile(facts, text))
    seen = Seen(page)
    assert seen.opened() <= PLAIN | OF_PAGE
    assert seen.tags.count("script") == 1
    assert seen.tags.count("style") == 1
    assert {name for _, name, _ in seen.attributes} <= ATTRIBUTES | OF_HEAD
    assert {tag for tag, name, _ in seen.attributes if name in OF_HEAD} <= {"html", "meta"}
    assert set(seen.values("class")) <= {
        "wide",
        "facts",
        "rows",
        "rows sorts",
        "n",
        "t",
        "notes",
        "media",
        "curves",
        "left",
        "warned",
    }
    check_links(seen, facts.address)
    assert not re.search("[\u202e\u200b\x1b\x00]", page)


def test_a_search_by_several_numbers_is_shown_with_all_of_them(facts: ReportFacts) -> None:
    """The first metric alone was shown, and its best trial, which breaks the constraint."""
    page = report_page(replace(facts, experiments=[compared()], runs=[]))
    text = " ".join(Seen(page).text.split())
    for said in (
        "loss (smaller is better), accuracy (greater is better)",
        "latency at most 5",
        "trial 23: loss 0.5, accuracy 0.8, latency 2, means over its seeds",
        "1 trial with invalid hyperparameters: 27",
        "2 of each point",
        "1 on the Pareto front",
        "COMPLETED (invalid hyperparameters)",
        "0.2 ± 0.14",
    ):
        assert said in text, said
    trials = {
        found[1]: found[0] for found in re.finditer(r'<tr><td class="n" data-sort="(2\d)">.*?</tr>', page, re.DOTALL)
    }
    assert list(trials) == ["21", "22", "23", "24", "25", "26", "27"]
    assert {number for number, row in trials.items() if "★" in row} == {"23", "24"}
    assert {number for number, row in trials.items() if ">broken<" in row} == {"21", "22"}
    assert {number for number, row in trials.items() if ">kept<" in row} == {"23", "24", "25", "26"}


def test_a_search_by_several_objectives_has_a_picture_of_each_and_of_the_pareto_front(facts: ReportFacts) -> None:
    """The first objective alone was drawn."""
    reported = replace(facts, experiments=[compared()], runs=[])
    drawn = re.findall(r'<img class="curves" alt="([^"]*)"', report_page(reported))
    assert [one.split("\n")[0] for one in drawn] == [
        "loss of experiment 8",
        "accuracy of experiment 8",
        "Pareto front of experiment 8",
    ]
    cells = [cell for cell in json.loads(report_notebook(reported))["cells"] if "get_experiment(8)" in cell["source"]]
    assert [cell["source"] for cell in cells if compile(cell["source"], "cell", "exec")] == [
        f"from detlab import client\n\nclient.get_experiment(8).plot({options})"
        for options in ("", "metric='accuracy'", "'pareto_front'")
    ]
    assert [len(cell["outputs"]) for cell in cells] == [1, 1, 2]


def test_a_search_by_more_objectives_asks_for_all_their_curves() -> None:
    view = compared().view
    assert drawn_metrics(view) == ["loss", "accuracy"]
    assert drawn_metrics(view.model_copy(update={"config": None})) == ["loss"]


def test_names_of_metrics_that_are_those_of_columns_are_metrics(facts: ReportFacts) -> None:
    one = compared()
    names = {"loss": "Front", "accuracy": "Constraints", "latency": "<b>\n"}
    results = one.results
    assert results is not None
    curves = [curve.model_copy(update={"name": names[curve.name]}) for curve in results.curves]
    text = json.dumps(one.view.config)
    for name, other in names.items():
        text = text.replace(json.dumps(name), json.dumps(other))
    view = one.view.model_copy(update={"config": json.loads(text), "metric": "Front"})
    changed = replace(one, view=view, results=results.model_copy(update={"curves": curves}))
    page = report_page(replace(facts, experiments=[changed], runs=[]))
    seen = Seen(page)
    heads = [text for tag, text in seen.outline if tag == "th"]
    assert (heads.count("Front"), heads.count("Constraints")) == (2, 3), "one of the latter is a fact"
    assert page.count(">broken<") == 2
    assert seen.opened() <= PLAIN | OF_PAGE


def test_pictures_of_other_types_are_counted_not_shown(facts: ReportFacts) -> None:
    first = facts.experiments[0]
    svg = replace(first.images[0], view=first.images[0].view.model_copy(update={"media_type": "image/svg+xml"}))
    seen = Seen(report_page(replace(facts, experiments=[replace(first, images=[svg])], runs=[])))
    assert [source for source in seen.values("src") if not source.startswith("data:image/svg+xml")] == []
    assert len(seen.values("src")) == 1  # the curves
    assert "6 more logged objects on its page." in seen.text


def test_without_plotly_the_page_says_why_there_are_no_curves(
    facts: ReportFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise DetlabError("figures need plotly, which is not installed in this Python", code="plotly_missing")

    for module in ("detlab.reports.figures", "detlab.viz.search", "detlab.viz.trial"):
        monkeypatch.setattr(f"{module}.plotly_module", missing)
    seen = Seen(report_page(facts))
    assert "There are no curves: figures need plotly" in seen.text
    assert [source[:15] for source in seen.values("src")] == ["data:image/png;"]


def test_variables_named_as_secrets_are_masked(facts: ReportFacts) -> None:
    """A report leaves the cluster, where who may read an experiment sees its variables."""
    first = facts.experiments[0]
    variables = {"cpu": ["HF_TOKEN=planted", "OMP_NUM_THREADS=4"], "cuda": {"AWS_SECRET_ACCESS_KEY": "planted"}}
    config = {"environment": {"environment_variables": variables, "image": "x"}}
    view = first.view.model_copy(update={"config": config})
    for text in (report_page, report_notebook):
        made = text(replace(facts, experiments=[replace(first, view=view)]))
        assert "planted" not in made
        assert "HF_TOKEN=********" in made
        assert "OMP_NUM_THREADS=4" in made
    assert config["environment"]["environment_variables"] is variables


# --- the notebook


def test_a_notebook_is_valid_and_nothing_of_it_has_run(facts: ReportFacts) -> None:
    book = nbformat.reads(report_notebook(facts), as_version=4)
    nbformat.validate(book)
    assert {cell.cell_type for cell in book.cells} == {"markdown", "code"}
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert {cell.execution_count for cell in code} == {None}
    assert {output.output_type for cell in code for output in cell.outputs} == {"display_data"}
    sources = [cell.source for cell in code if cell.source]
    assert sources[0] == "from detlab import client\n\nclient.get_experiment(7).plot()"
    pictures = [one.data for cell in code for one in cell.outputs if "image/svg+xml" in one.data]
    assert len(pictures) == 2
    for data in pictures:
        check_picture(data["image/svg+xml"])


@each_text
def test_texts_of_people_are_texts_in_the_notebook(facts: ReportFacts, text: str) -> None:
    book = nbformat.reads(report_notebook(hostile(facts, text)), as_version=4)
    nbformat.validate(book)
    for cell in book.cells:
        if cell.cell_type == "markdown":
            assert "\n" not in cell.source
            rendered = Seen(MarkdownIt("commonmark", {"html": True}).render(cell.source))
            assert rendered.opened() <= {"h1", "h2", "span"}
            assert set(rendered.values("class")) == {"tex2jax_ignore mathjax_ignore"}
            continue
        called = {type(node).__name__ for node in ast.walk(ast.parse(cell.source))}
        assert called <= {"Module", "ImportFrom", "alias", "Expr", "Call", "Attribute", "Name", "Load", "Constant"}
        for output in cell.outputs:
            seen = Seen(output.data["text/html"])
            assert seen.opened() <= PLAIN
            assert {name for _, name, _ in seen.attributes} <= ATTRIBUTES
            check_links(seen, facts.address)


def test_links_of_a_notebook_lead_to_the_cluster(facts: ReportFacts) -> None:
    book = json.loads(report_notebook(facts))
    html = "".join(one["data"]["text/html"] for cell in book["cells"] for one in cell.get("outputs", []))
    assert {href.startswith(facts.address) for href in Seen(html).values("href")} == {True}


# --- notes


@each_text
def test_notes_have_no_html_of_their_own(text: str) -> None:
    seen = Seen(notes_html(text))
    assert seen.opened() <= PLAIN - {"img", "details", "figure", "h1", "h2", "h3"}
    assert {name for _, name, _ in seen.attributes} <= {"class", "href", "rel", "start"}
    assert set(seen.values("class")) == {"notes"}
    check_links(seen, "https://")


def test_notes_are_markdown() -> None:
    html = notes_html(
        "# One\n\n3. *a*\n4. `b`\n\n| x | y |\n|:-:|--:|\n| 1 | ~~2~~ |\n\n[paper](https://arxiv.org) [x](/etc)"
    )
    for part in (
        "<h4>One</h4>",
        '<ol start="3">',
        "<em>a</em>",
        "<code>b</code>",
        "<th>x</th>",
        "<s>2</s>",
        '<a rel="noopener noreferrer nofollow" href="https://arxiv.org">paper</a>',
        '<a rel="noopener noreferrer nofollow">x</a>',
    ):
        assert part in html, html
    assert notes_html(" \n") == ""


def test_long_notes_end() -> None:
    assert len(notes_html("> " * 5000 + "x\n" + "[" * 50_000)) < 1_000_000


# --- files


def test_a_report_is_written_whole_and_its_ending_is_its_form(facts: ReportFacts, tmp_path: Path) -> None:
    page = write_report(facts, tmp_path / "a.HTML")
    assert page.path.read_text(encoding="utf-8") == report_page(facts)
    assert (page.size, page.experiments, page.runs) == (page.path.stat().st_size, 2, 1)
    assert page.left_out == ("Only the newest 2 experiments are here.",)
    book = write_report(facts, tmp_path / "a.ipynb")
    assert json.loads(book.path.read_text(encoding="utf-8"))["nbformat"] == 4
    with pytest.raises(ValueError, match=r"ends in \.html or \.ipynb"):
        write_report(facts, tmp_path / "a.pdf")
    with pytest.raises(DetlabError, match="cannot be written"):
        write_report(facts, tmp_path / "no" / "a.html")
