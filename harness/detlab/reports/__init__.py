"""Reports: a snapshot of experiments and runs as one HTML page or one notebook, which need no cluster to be read.

What is shown comes in as views of the master (`facts`), every text of people goes out escaped. Nothing here speaks HTTP
or runs code, and no figure is drawn here: `detlab.viz` does that.
"""

from detlab.reports.facts import MOST_THINGS, ReportedExperiment, ReportedRun, ReportFacts, ReportImage, WrittenReport
from detlab.reports.notebook import report_notebook
from detlab.reports.page import report_page
from detlab.reports.writing import check_form, write_report

__all__ = [
    "MOST_THINGS",
    "ReportFacts",
    "ReportImage",
    "ReportedExperiment",
    "ReportedRun",
    "WrittenReport",
    "check_form",
    "report_notebook",
    "report_page",
    "write_report",
]
