"""`det experiment set log-retention`, and what `logs` says of lines that are gone."""

from __future__ import annotations

import json

import pytest

from detlab.cli.commands.log_retention import kept_for
from detlab.schemas.logwire import RemovedLogs
from detlab.schemas.wire import TrialState


@pytest.fixture
def experiments(master):
    for _ in range(2):
        master.add_experiment()
    return master


@pytest.mark.parametrize(
    ("options", "days", "told"),
    [
        (
            (1, "--days", 30),
            [30, None],
            "1 experiment changed: output is kept for 30 days after the end of each trial.",
        ),
        ((1, 2, "--forever"), [-1, -1], "2 experiments changed: output is kept until the experiment is deleted."),
        (("--all", "--days", 0), [0, 0], "2 experiments changed: output is kept for less than a day after"),
        ((2, "--default"), [None, None], "1 experiment changed: output is kept as the cluster's operator configured."),
    ],
)
def test_how_long_output_is_kept_is_said(experiments, det, options, days, told) -> None:
    result = det("experiment", "set", "log-retention", *options)
    assert result.exit_code == 0, result.output
    assert told in result.stdout
    assert [view.log_retention_days for view in experiments.experiments.values()] == days
    replied = json.loads(det("e", "set", "log-retention", *options, "--json").stdout)
    assert len(replied["changed"]) == int(told.split()[0])


@pytest.mark.parametrize("options", [(), (1,), (1, "--all", "--days", 3), (1, "--days", 3, "--forever"), ("--all",)])
def test_what_is_not_clear_is_refused(experiments, det, options) -> None:
    result = det("e", "set", "log-retention", *options)
    assert result.exit_code == 2
    assert "add --" in result.stderr
    assert all(view.log_retention_days is None for view in experiments.experiments.values())


def test_an_experiment_is_described_with_it(experiments, det) -> None:
    assert "output" not in det("e", "describe", 1).stdout
    det("e", "set", "log-retention", 1, "--days", 1)
    assert "kept for 1 day after the end of each trial" in det("e", "describe", 1).stdout
    assert kept_for(None) == ""


def test_what_was_removed_is_said_beside_the_lines(experiments, det) -> None:
    experiments.add_trial(1, state=TrialState.COMPLETED)
    for text in ("first", "second"):
        experiments.log(1, text)
    assert det("t", "logs", 1).stderr == "", "its first line is there"
    experiments.removed[1] = RemovedLogs(removed=1, removed_at=1e9)
    del experiments.logs[0]
    for options in ((), ("--tail", 1), ("--search", "second"), ("--level", "ERROR")):
        result = det("t", "logs", 1, *options)
        assert "Trial 1: 1 line from before 2001-09-" in result.stderr
        assert "was removed by retention." in result.stderr
    experiments.removed[1] = RemovedLogs(removed=1200, removed_at=1e9)
    experiments.logs.clear()
    said = det("t", "logs", 1).stderr
    assert "1,200 lines from before" in said
    assert "were removed by retention." in said
    assert "Trial 1 has no output left." in said, "it had some: none is to be waited for"
    assert det("t", "logs", 1, "--json").stderr == ""
