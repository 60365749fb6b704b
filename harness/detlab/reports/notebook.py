"""A report as a notebook: headings and outputs that are there before anything runs.

The code of a cell shows the same as it is then, with the rights of whoever runs it. HTML stands in outputs alone, where
Jupyter makes it harmless as long as nobody trusts the notebook; headings are Markdown in which every mark is written as
its number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from detlab.reports.facts import ReportFacts
from detlab.reports.figures import ReportPicture
from detlab.reports.page import picture_html
from detlab.reports.parts import ReportPart, parts_of

_NO_MATH = 'class="tex2jax_ignore mathjax_ignore"'
"""Of an element in which `$…$` is text."""
_MARK = re.compile(r"[^\w ]|_", re.ASCII)


def report_notebook(facts: ReportFacts) -> str:
    """Return a report as the text of a notebook of format 4.5, which nothing has to run."""
    cells = [cell for part in parts_of(facts, jumps=False) for cell in _cells(part)]
    named = [{**cell, "id": f"part-{at}"} for at, cell in enumerate(cells)]
    notebook = {
        "cells": named,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            "title": facts.title,
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _cells(part: ReportPart) -> Iterator[dict[str, Any]]:
    heading = f"{'#' * part.level} <span {_NO_MATH}>{_entities(part.title)}</span>"
    yield {"cell_type": "markdown", "metadata": {}, "source": heading}
    # The facts stand below the last picture; each picture before it has a cell of its own, which draws it again.
    for one in part.pictures[:-1]:
        yield _cell(one.source, [_drawn(one)])
    outputs = [_drawn(one) for one in part.pictures[-1:]]
    if part.html:
        outputs.append(_output({"text/html": f"<div {_NO_MATH}>{part.html}</div>", "text/plain": part.title}))
    if outputs:
        yield _cell(part.pictures[-1].source if part.pictures else part.source, outputs)


def _cell(source: str, outputs: list[dict[str, Any]]) -> dict[str, Any]:
    hidden = {} if source else {"jupyter": {"source_hidden": True}}
    return {"cell_type": "code", "execution_count": None, "metadata": hidden, "outputs": outputs, "source": source}


def _drawn(one: ReportPicture) -> dict[str, Any]:
    return _output({"text/html": picture_html(one), "image/svg+xml": one.svg, "text/plain": one.about})


def _output(data: dict[str, str]) -> dict[str, Any]:
    return {"output_type": "display_data", "data": data, "metadata": {}}


def _entities(text: str) -> str:
    """Return a text as Markdown that shows the text itself."""
    return _MARK.sub(lambda found: f"&#{ord(found[0])};", text)
