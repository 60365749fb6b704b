"""A report as one HTML page: it loads nothing, and of scripts runs the one below alone, which sorts tables."""

from __future__ import annotations

import base64
import hashlib
import html

from detlab.reports.facts import ReportFacts
from detlab.reports.figures import ReportPicture
from detlab.reports.parts import ReportPart, headings, parts_of

_CONTENTS = 3
"""So many headings have a table of contents."""
SCRIPT = """
const order = new Intl.Collator(undefined, { numeric: true });
const numeric = keys => keys.every(key => key === '' || !Number.isNaN(Number(key)));
for (const table of document.querySelectorAll('table.sorts')) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, at) => {
    if (!head.textContent) return;
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener('click', () => {
      const up = head.getAttribute('aria-sort') !== 'ascending';
      heads.forEach(one => one.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
      const body = table.tBodies[0];
      const key = row => row.cells[at].dataset.sort || '';
      const rows = [...body.rows];
      const count = numeric(rows.map(key));
      const compare = (a, b) => (count ? Number(a) - Number(b) : order.compare(a, b)) * (up ? 1 : -1);
      rows.sort((a, b) => (key(a) === '') - (key(b) === '') || compare(key(a), key(b)));
      body.append(...rows);
    });
  });
}
"""
STYLE = """
:root { color-scheme: light dark; --ink: #1f2733; --quiet: #5b6776; --line: #d9dee5; --back: #ffffff; --band: #f5f7fa;
  --link: #1a5fb4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e8ee; --quiet: #a3adba; --line: #3a434f; --back: #14181e;
  --band: #1d232b; --link: #86b6f5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1100px; padding: 2rem 1.25rem 4rem; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .75rem; padding-top: 1rem; border-top: 1px solid var(--line);
  overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
a { color: var(--link); }
p, .left, .warned, nav { max-width: 48rem; }
nav ul { columns: 20rem; padding-left: 1.2rem; }
nav li { overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .7rem .35rem 0; text-align: left; vertical-align: top; }
.facts th { color: var(--quiet); font-weight: 500; min-width: 9rem; }
.rows thead th { white-space: nowrap; }
.rows td { max-width: 24rem; overflow-wrap: break-word; }
.t { white-space: nowrap; }
.rows th.n, .rows td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.sorts button { all: unset; cursor: pointer; font-weight: 600; }
.sorts button:hover { text-decoration: underline; }
.sorts button:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
th[aria-sort=ascending] button::after { content: " \\2191" / ""; }
th[aria-sort=descending] button::after { content: " \\2193" / ""; }
code, pre { font: .85rem/1.45 ui-monospace, monospace; }
code { overflow-wrap: anywhere; }
pre { background: var(--band); border: 1px solid var(--line); border-radius: 4px; margin: .5rem 0; overflow-x: auto;
  padding: .6rem .8rem; }
summary { cursor: pointer; font-weight: 600; margin-top: 1.25rem; }
img { max-width: 100%; height: auto; }
.curves { display: block; margin: 1rem 0; }
.media { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1rem 0; }
.media figure { margin: 0; max-width: 320px; }
figcaption { color: var(--quiet); font-size: .85rem; overflow-wrap: anywhere; }
.notes { border-left: 3px solid var(--line); margin: 1rem 0; max-width: 48rem; overflow-wrap: anywhere;
  padding-left: 1rem; }
.warned { color: var(--quiet); }
@media print { .rows td, pre { overflow-wrap: anywhere; white-space: pre-wrap; } h2 { break-after: avoid; } }
"""


def report_page(facts: ReportFacts) -> str:
    """Return a report as a page that opens without a cluster and without a network."""
    parts = list(parts_of(facts))
    title = html.escape(parts[0].title)
    body = "\n".join([_part(parts[0]), _contents(parts), *map(_part, parts[1:])])
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy())}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer"><meta name="generator" content="detlab">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style></head>\n"
        f"<body>\n<main>\n{body}\n</main>\n<script>{SCRIPT}</script>\n</body></html>\n"
    )


def policy() -> str:
    """Return the page's own policy: pictures within it, its style and its script, by their digests."""
    return (
        f"default-src 'none'; img-src data:; style-src '{_digest(STYLE)}'; script-src '{_digest(SCRIPT)}';"
        " base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _contents(parts: list[ReportPart]) -> str:
    found = headings(parts)
    if len(found) < _CONTENTS:
        return ""
    lines = "".join(f'<li><a href="#{html.escape(at)}">{html.escape(title)}</a></li>' for at, title in found)
    return f'<nav aria-label="Contents"><ul>{lines}</ul></nav>'


def _part(part: ReportPart) -> str:
    heading = f'<h{part.level} id="{html.escape(part.anchor)}">{html.escape(part.title)}</h{part.level}>'
    pictures = "".join(picture_html(one, "curves") for one in part.pictures)
    return f"<section>{heading}\n{pictures}{part.html}</section>"


def picture_html(picture: ReportPicture, kind: str = "") -> str:
    """Return a picture as an element whose names and styles are its own, and which runs nothing."""
    data = base64.b64encode(picture.svg.encode()).decode()
    named = f' class="{kind}"' if kind else ""
    return f'<img{named} alt="{html.escape(picture.about)}" src="data:image/svg+xml;base64,{data}">\n'
