"""What an import has done, as people read it."""

from __future__ import annotations

from detlab.cli.output.printing import clean, say, table
from detlab.importers.report import COPIED, FAILED, PRESENT, RESUMED, WENT_ON, ImportReport
from detlab.schemas.wire.storage import size_text

_SHOWN = 10
"""Failures that are printed; `--json` has more."""


def print_report(report: ImportReport) -> None:
    """Print projects with their runs, what was copied beside them, and what was left out."""
    if not report.experiments:
        say(f"{clean(report.source)} has no runs.")
    else:
        _print_experiments(report)
        say(f"{_counts(report)}")
    for one in report.failures[:_SHOWN]:
        say(f"Not copied: run {clean(one.run)}: {clean(one.why)}")
    if report.runs(FAILED) > _SHOWN:
        say(f"… {report.runs(FAILED):,} runs in all; --json has the others")
    if report.counts["pickles"]:
        say(
            f"{report.counts['pickles']:,} files are pickles: loading one runs code of whoever made it. Their runs and"
            " models have the tag detlab.import.pickles."
        )
    if report.left_out:
        say("Left out:")
        for why, found in report.left_out.items():
            shown = ", ".join(clean(example) for example in found.examples)
            more = ", …" if found.count > len(found.examples) else ""
            say(f"  {found.count:,} {why}{f' ({shown}{more})' if shown else ''}")
    if report.failures:
        say("Run the same command again to try those that were not copied.")


def _print_experiments(report: ImportReport) -> None:
    columns = ("From", "Project", "New", "Gone on", "There already", "Not copied")
    rows = [
        (
            one.source,
            one.project,
            one.runs[COPIED] + one.runs[RESUMED],
            one.runs[WENT_ON],
            one.runs[PRESENT],
            one.runs[FAILED],
        )
        for one in report.experiments
    ]
    table(columns, rows, right=columns[2:])


def _counts(report: ImportReport) -> str:
    counts, where = report.counts, clean(report.workspace) or "your personal workspace"
    runs = report.runs(COPIED, RESUMED, WENT_ON)
    said = [f"{counts['points']:,} values of metrics"] if not report.dry else []
    said += [
        f"{counts['files']:,} files ({size_text(counts['bytes'])})",
        f"{counts['logged_models']:,} logged models",
        f"{counts['models']:,} registered models with {counts['versions']:,} new versions",
    ]
    verb = "Would copy" if report.dry else "Copied"
    return f"{verb} {runs:,} runs into {where}: {', '.join(said)}."
