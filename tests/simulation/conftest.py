"""At the end of a run: how often each kind of fault happened in the seeds."""

from __future__ import annotations

from typing import Any

from simulation.runs import told


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what the chunks of seeds have counted."""
    for line in told.lines(report for reports in terminalreporter.stats.values() for report in reports):
        terminalreporter.write_line(line)
