"""`det notebook run --cron|--after` and `det schedule` against a fake master."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from detlab.schemas.wire.notebooks.schedules import ScheduleState, ScheduleView

HOSTILE = "\x1b]0;owned\x07[red]evil[/red]\u202e\x9b2J"


@pytest.fixture(autouse=True)
def notebook(workplace: Path) -> None:
    """A notebook with a parameter, which imports a module beside it."""
    cells = [
        {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": "days: int = 7", "outputs": []},
        {"cell_type": "code", "metadata": {}, "source": "import beside", "outputs": []},
    ]
    made = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (workplace / "nightly.ipynb").write_text(json.dumps(made))
    (workplace / "beside.py").write_text("x = 1\n")


def test_a_notebook_by_the_clock(master: Any, det: Any) -> None:
    words = ("--cron", "0 6 * * 1-5", "--timezone", "Europe/Berlin", "-p", "days", "1", "--slots", "2")
    result = det("notebook", "run", "nightly.ipynb", *words, "--name", "nightly", "--template", "small")
    assert result.exit_code == 0, result.output
    (asked,) = master.scheduled
    assert (asked.cron, asked.time_zone, asked.after_experiment) == ("0 6 * * 1-5", "Europe/Berlin", None)
    assert (asked.name, asked.parameters, asked.notebook) == ("nightly", {"days": 1}, "nightly.ipynb")
    assert (asked.config["resources"], asked.template) == ({"slots": 2}, "small")
    assert asked.bundle in master.bundles
    lines = result.stdout.splitlines()
    assert lines[0] == "Schedule 1 (nightly) was made: 0 6 * * 1-5 (Europe/Berlin)."
    assert lines[1] == "  Wed 2033-05-18 05:33 CEST"
    assert "det schedule run-now 1" in result.stdout
    assert master.asked == []


@pytest.mark.parametrize(
    ("after", "experiment", "task"), [("12", 12, None), ("command-3f9a1c20b7d4", None, "command-3f9a1c20b7d4")]
)
def test_a_notebook_after_something(
    master: Any, det: Any, after: str, experiment: int | None, task: str | None
) -> None:
    result = det("notebook", "run", "nightly.ipynb", "--after", after)
    assert result.exit_code == 0, result.output
    (asked,) = master.scheduled
    assert (asked.after_experiment, asked.after_task, asked.cron) == (experiment, task, "")
    assert "was made: after" in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cron", "@daily", "--after", "12"), "exclude each other"),
        (("--cron", "@daily", "-o", "out.ipynb"), "det task outputs"),
    ],
)
def test_what_cannot_go_together(master: Any, det: Any, words: tuple[str, ...], said: str) -> None:
    result = det("notebook", "run", "nightly.ipynb", *words)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert master.scheduled == []


def test_an_empty_cron_is_no_run_of_now(master: Any, det: Any) -> None:
    result = det("notebook", "run", "nightly.ipynb", "--cron", "")
    assert result.exit_code == 2
    assert (master.scheduled, master.asked) == ([], [])


def test_the_life_of_a_schedule(master: Any, det: Any, det_json: Any) -> None:
    assert "No schedules yet" in det("schedule", "list").stdout
    det("notebook", "run", "nightly.ipynb", "--cron", "@daily")
    assert "nightly.ipynb" in det("schedule", "list").stdout
    assert det_json("schedule", "list")[0]["cron"] == "@daily"
    assert "Wed 2033-05-18 03:33 UTC" in det("schedule", "describe", "1").stdout
    assert "paused" in det("schedule", "pause", "1").stdout
    assert det_json("schedule", "describe", "1")["state"] == "paused"
    assert "Due next: Wed 2033-05-18" in det("schedule", "resume", "1").stdout
    assert "was submitted" in det("schedule", "run-now", "1").stdout
    assert det("schedule", "remove", "1").stdout == "Removed schedule 1 (nightly.ipynb).\n"
    gone = det("schedule", "describe", "1")
    assert gone.exit_code != 0
    assert "there is no schedule 1" in gone.stderr


@pytest.mark.parametrize("words", [("list",), ("describe", "7"), ("remove", "7")])
def test_hostile_texts_do_nothing_to_a_terminal(master: Any, det: Any, words: tuple[str, ...]) -> None:
    master.schedules[7] = ScheduleView(
        id=7,
        name=HOSTILE,
        owner=HOSTILE,
        state=ScheduleState.DISABLED,
        reason=HOSTILE,
        cron=HOSTILE,
        time_zone=HOSTILE,
        next_at=2e9,
        next_times=[2e9],
        last_task=HOSTILE,
        note=HOSTILE,
        notebook=HOSTILE,
        parameters={HOSTILE: HOSTILE},
    )
    result = det("schedule", *words)
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    assert "\u202e" not in result.output
    assert "\x9b" not in result.output
