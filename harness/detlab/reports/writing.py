"""Writing a report as a file, in the form that its ending says."""

from __future__ import annotations

from pathlib import Path

from detlab.errors import DetlabError
from detlab.files import write_atomic
from detlab.reports.facts import ReportFacts, WrittenReport
from detlab.reports.notebook import report_notebook
from detlab.reports.page import report_page

_FORMS = {".html": report_page, ".ipynb": report_notebook}


def check_form(path: Path) -> None:
    """Check that a report can have this name.

    Raises:
        ValueError: There is no form of this ending.
    """
    if path.suffix.lower() not in _FORMS:
        raise ValueError(f"{path.name[:200]!r} is no name of a report: it ends in {' or '.join(_FORMS)}")


def write_report(facts: ReportFacts, path: Path) -> WrittenReport:
    """Write a report; a file that is there is replaced once all of it is made.

    Args:
        facts: What it shows.
        path: A page, `.html`, or a notebook, `.ipynb`.

    Raises:
        ValueError: There is no form of this ending.
        DetlabError: The file cannot be written.
    """
    check_form(path)
    data = _FORMS[path.suffix.lower()](facts).encode("utf-8", "replace")
    try:
        write_atomic(path, data, mode=None)
    except OSError as error:
        raise DetlabError(f"{path} cannot be written: {error.strerror or error}") from error
    return WrittenReport(path, len(data), len(facts.experiments), len(facts.runs), tuple(facts.left_out))
