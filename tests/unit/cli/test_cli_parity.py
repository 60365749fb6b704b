"""Commands and options of Determined's that came last, and errors as JSON in one form."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from detlab.schemas.jobwire import JobView
from detlab.schemas.wire import ErrorView, SeriesView
from testbed.fake_master.api import FakeMaster

Det = Callable[..., Result]


def test_priority_and_weight_are_set_as_in_determined(master: FakeMaster, det: Det, det_json: Any) -> None:
    master.jobs = [
        JobView(id="7", kind="experiment", owner="ada", state="RUNNING", pool="default", order=1, priority=42)
    ]
    assert det("e", "set", "priority", 7, 10).stdout.startswith("Experiment 7: priority 10")
    assert det_json("e", "set", "weight", 7, 2.5)["weight"] == 2.5
    assert det("e", "set", "priority", 7, 100).exit_code == 2
    assert det("e", "set", "weight", 7, 0).exit_code == 2


def test_experiments_are_described_by_a_list_with_commas(master: FakeMaster, det: Det, det_json: Any) -> None:
    for name in "ab":
        master.add_experiment(name)
    assert [one["id"] for one in det_json("e", "describe", "1,2")] == [1, 2]
    refused = det("e", "describe", "1,x")
    assert refused.exit_code == 2
    assert "is no id of an experiment" in refused.stderr


def test_a_label_of_ten_thousand_characters_is_refused_and_not_repeated(master: FakeMaster, det: Det) -> None:
    master.add_experiment()
    for act in ("add", "remove"):
        refused = det("e", "label", act, 1, "x" * 10_000)
        assert refused.exit_code == 2
        assert "200 characters" in refused.stderr
        assert len(refused.stderr) < 500
    assert master.experiments[1].labels == []


def test_the_best_by_another_metric_is_downloaded(master: FakeMaster, det: Det) -> None:
    master.add_trial(master.add_experiment().id)
    for words in (("e", "download", 1), ("t", "download", 1)):
        for alone in (("--sort-by", "accuracy"), ("--smaller-is-better", "false")):
            refused = det(*words, *alone)
            assert refused.exit_code == 2
            assert "go together" in refused.stderr
    assert "leave out --latest" in det(
        "t", "download", 1, "--latest", "--sort-by", "a", "--smaller-is-better", "no"
    ).stderr  # fmt: skip
    master.add_checkpoint(1, {"w": b"1"}, validation=0.1, steps_completed=1)
    metric = master.experiments[1].metric
    for words in (("e", "download", 1, "-o", "e"), ("t", "download", 1, "-o", "t")):
        assert det(*words, "--sort-by", metric, "--smaller-is-better", "true").exit_code == 0


def test_a_support_bundle_has_what_helps_and_no_secret(master: FakeMaster, det: Det, workplace: Path) -> None:
    master.add_trial(master.add_experiment().id)
    master.series[1] = [SeriesView(trial_id=1, group="training", name="loss", steps=[1], values=[float("nan")])]
    master.log(1, "out of memory", rank=0)
    done = det("trial", "support-bundle", 1, "-o", "help")
    assert done.exit_code == 0, done.stderr
    path = workplace / "help" / "trial-1-support.tar.gz"
    assert f"{Path('help') / path.name}" in done.stdout
    with tarfile.open(path) as archive:
        found = {Path(one.name).name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
    assert {*found} == {"trial.json", "experiment.json", "versions.json", "metrics.json", "output.txt"}
    assert b"out of memory" in found["output.txt"]
    assert json.loads(found["metrics.json"])[0]["metrics"] == {"loss": "NaN"}
    assert json.loads(found["trial.json"])["id"] == 1
    assert json.loads(found["versions.json"])["client"]


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (("e", "describe", "99", "--json"), 1, "not_found"),
        (("e", "create", "bad.yaml", "--json"), 2, "config.invalid"),
        (("e", "create", "nowhere.yaml", "--json"), 2, "config.invalid"),
        (("e", "describe", "x", "--json"), 2, "usage"),
        (("e", "list", "--frobnicate", "--json"), 2, "usage"),
        (("frobnicate", "--json"), 2, "usage"),
    ],
)
def test_every_error_as_json_has_the_form_of_the_masters_replies(
    master: FakeMaster, det: Det, workplace: Path, words: tuple[str, ...], status: int, code: str
) -> None:
    """It was a list for a config, `{"error": …}` for others, and text alone for a wrong option."""
    (workplace / "bad.yaml").write_text("searcher: {name: randm, metrik: loss}\n")
    result = det(*words)
    assert result.exit_code == status
    told = ErrorView.model_validate_json(result.stdout)
    assert told.code == code
    assert told.message
    assert set(json.loads(result.stdout)) == {"code", "message", "hint", "problems"}
    if "bad.yaml" in words:
        assert {one.path for one in told.problems} >= {"searcher.name", "searcher.metrik"}
