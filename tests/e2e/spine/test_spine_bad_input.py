"""Bad input on the real cluster: what, where, likely cause, next command."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from spine_lab import TRIALS, Lab, asha, landing_page, single, until

from detlab.client import Client
from detlab.client.resources import Experiment, Trial
from detlab.errors import DetlabError
from detlab.schemas.wire import EndReason, ExperimentState, FailureView, TrialState
from testbed.cluster import Cluster

pytestmark = pytest.mark.hub

UNWRITABLE = "/proc/sys"
"""A folder in which not even root can make another one."""
HOSTILE = "<img src=x onerror=alert(1)>[red]\x1b[2J\u202e"


@pytest.fixture(scope="module")
def submitted(lab: Lab) -> dict[str, Experiment]:
    """Everything that goes wrong only when it runs, submitted at once."""
    hostile = single("hostile_metric.py", name=HOSTILE)
    hostile["searcher"]["metric"] = HOSTILE
    configs: dict[str, dict[str, Any]] = {
        "fails_in_step_7": single("fails_in_step_7.py", max_restarts=1),
        "imports_nothing": single("imports_nothing.py", max_restarts=5),
        "missing_file": single("toy.py", entrypoint=["sh", "-c", "cd / && exec python3 nowhere.py"]),
        "missing_command": single("toy.py", entrypoint=["no-such-command-anywhere", "--now"]),
        "missing_in_shell": single("toy.py", entrypoint="no-such-command-anywhere --now"),
        "dies_on_start": single("dies_on_start.py"),
        "nan_loss": single("nan_loss.py"),
        "never_reports_single": single("never_reports.py"),
        "never_reports_asha": asha("never_reports.py", 2, 4),
        "hostile_metric": hostile,
        "invalid_hp": _invalid_hp(),
        "unwritable_storage": single(
            "toy.py",
            hparams={"steps": 4, "save_every": 2},
            checkpoint_storage={"type": "shared_fs", "host_path": UNWRITABLE},
            max_restarts=1,
        ),
    }
    return {name: lab.submit(config) for name, config in configs.items()}


def _invalid_hp() -> dict[str, Any]:
    config = single("invalid_hp.py", hparams={"least": 0.5})
    config["searcher"] |= {"name": "random", "max_trials": 3, "max_concurrent_trials": 1}
    return config


def failed(lab: Lab, experiment: Experiment, restarts: int = 0) -> tuple[Trial, FailureView]:
    """Wait for the end of an experiment that must fail; return its trial and failure card."""
    ended = lab.finish(experiment, 60)
    assert ended.state is ExperimentState.ERROR, lab.tell(ended)
    trial = ended.list_trials()[0]
    assert trial.state is TrialState.ERROR
    assert trial.view.restarts == restarts
    assert trial.view.failure is not None
    assert ended.view.failure is not None
    assert ended.view.failure.message == trial.view.failure.message
    return trial, trial.view.failure


def test_an_exception_in_step_7_gives_a_card_with_the_line_and_the_last_20_lines(
    lab: Lab, submitted: dict[str, Experiment]
) -> None:
    trial, card = failed(lab, submitted["fails_in_step_7"], restarts=1)
    source = (TRIALS / "fails_in_step_7.py").read_text().splitlines()
    line = next(number for number, text in enumerate(source, 1) if "return 1.0" in text)
    assert (card.kind, card.exit_code) == ("exception", 1)
    assert card.message == "ZeroDivisionError: float division by zero"
    assert card.where == f"fails_in_step_7.py, line {line}"
    assert len(card.log_tail) <= 20
    assert card.log_tail[-1] == card.message
    assert "step 7" in card.log_tail
    assert lab.steps(trial) == list(range(1, 7))
    shown = lab.cluster.det("e", "describe", str(trial.experiment_id))
    assert shown.returncode == 0, shown.stderr
    for part in (card.message, card.where, "    | step 7", f"det trial logs {trial.id}"):
        assert part in shown.stdout


def test_a_module_that_fails_to_import_gives_a_card_with_file_and_line(
    lab: Lab, submitted: dict[str, Experiment]
) -> None:
    _, card = failed(lab, submitted["imports_nothing"])
    source = (TRIALS / "imports_nothing.py").read_text().splitlines()
    line = next(number for number, text in enumerate(source, 1) if text.startswith("import no_such"))
    assert card.kind == "import"
    assert card.where == f"imports_nothing.py, line {line}"
    assert "no_such_module_anywhere" in card.message
    assert "not restarted" in (card.hint or "")
    assert card.log_tail


@pytest.mark.parametrize(
    ("name", "missing", "code"),
    [
        ("missing_file", "nowhere.py", 2),
        ("missing_command", "no-such-command-anywhere", 127),
        ("missing_in_shell", "no-such-command-anywhere", 127),
    ],
)
def test_a_missing_entrypoint_is_named(
    lab: Lab, submitted: dict[str, Experiment], name: str, missing: str, code: int
) -> None:
    _, card = failed(lab, submitted[name])
    assert card.kind == "config"
    assert card.exit_code == code
    assert missing in card.message
    assert "entrypoint" in f"{card.message} {card.hint}"


def test_a_trial_that_dies_on_start_gives_its_last_words(lab: Lab, submitted: dict[str, Experiment]) -> None:
    _, card = failed(lab, submitted["dies_on_start"])
    assert (card.kind, card.exit_code) == ("unknown", 3)
    assert card.log_tail == ["I will not start"]
    assert card.hint


def test_a_storage_that_cannot_be_written_fails_the_trial_and_its_card_names_the_place(
    lab: Lab, submitted: dict[str, Experiment]
) -> None:
    trial, card = failed(lab, submitted["unwritable_storage"])
    assert (card.kind, card.exit_code) == ("exception", 1)
    assert UNWRITABLE in card.message
    assert (card.where or "").startswith("toy.py, line ")
    assert "the checkpoint storage must be there, and writable" in (card.hint or "")
    assert card.command == f"det trial logs {trial.id}"
    assert trial.view.summary == {}, "it costs no training, and no restart"


def test_nan_loss_is_kept_and_ranked_last_and_the_trial_goes_on(lab: Lab, submitted: dict[str, Experiment]) -> None:
    ended = lab.completed(submitted["nan_loss"])
    (trial,) = ended.list_trials()
    with lab.api() as api:
        (series,) = api.get(f"trials/{trial.id}/metrics", params={"group": "training", "name": "loss"}).json()["items"]
    assert series["values"] == [0.5, 0.25, "NaN", "Infinity", "-Infinity"]
    summary = lab.trial(trial).view.summary["training"]["loss"]
    assert (summary.count, summary.nan_count, summary.max) == (5, 1, math.inf)
    assert ended.view.best is not None
    assert not math.isnan(ended.view.best.value)
    shown = lab.cluster.det("t", "metrics", str(trial.id))
    assert "nan" in shown.stdout.lower()
    assert json.loads(lab.cluster.det("t", "metrics", str(trial.id), "--json").stdout)


def test_never_reporting_under_asha_pauses_the_search_which_continues_with_mended_code(
    lab: Lab, submitted: dict[str, Experiment], tmp_path: Path
) -> None:
    search = submitted["never_reports_asha"]
    until("the pause", lambda: search.reload().state is ExperimentState.PAUSED, 60)
    card = search.view.failure
    assert card is not None
    assert "without ever reporting the searcher metric 'error'" in card.message
    assert card.command == f"det experiment activate {search.id}"
    shown = lab.cluster.det("e", "describe", str(search.id)).stdout
    assert "without ever reporting" in shown
    assert f"det search code {search.id} FOLDER" in " ".join(shown.split())
    mended = tmp_path / "never_reports.py"
    mended.write_text((TRIALS / "toy.py").read_text(encoding="utf-8"), encoding="utf-8")
    assert lab.cluster.det("search", "code", str(search.id), str(tmp_path)).returncode == 0
    assert lab.cluster.det("e", "activate", str(search.id)).returncode == 0
    lab.completed(search, 90)
    assert search.view.failure is None


def test_never_reporting_under_single_is_completed_with_a_visible_warning(
    lab: Lab, submitted: dict[str, Experiment]
) -> None:
    ended = lab.completed(submitted["never_reports_single"])
    (trial,) = ended.list_trials()
    for warnings in (ended.view.warnings, trial.view.warnings):
        assert any("never reported" in text and "'error'" in text for text in warnings), warnings
    for shown in (("e", "describe", str(ended.id)), ("t", "describe", str(trial.id)), ("e", "wait", str(ended.id))):
        said = lab.cluster.det(*shown)
        assert said.returncode == (4 if "wait" in shown else 0), "who waits for a search must not take it for a success"
        assert "never reported 'error'" in said.stdout + said.stderr, shown


def test_invalid_hp_is_replaced_under_random_and_the_trial_is_completed(
    lab: Lab, submitted: dict[str, Experiment]
) -> None:
    ended = lab.completed(submitted["invalid_hp"], 60)
    trials = ended.list_trials()
    assert {trial.state for trial in trials} == {TrialState.COMPLETED}
    invalid = [trial for trial in trials if trial.hparams["x"] < 0.5]
    good = [trial for trial in trials if trial.hparams["x"] >= 0.5]
    assert invalid, "the seed draws one below 0.5"
    assert len(good) == 3, "an invalid one does not use up the budget"
    assert {trial.view.end_reason for trial in invalid} == {EndReason.INVALID_HP}
    assert all(trial.view.restarts == 0 and trial.view.failure is None for trial in trials)


def test_a_hostile_metric_name_is_shown_as_text_everywhere(lab: Lab, submitted: dict[str, Experiment]) -> None:
    ended = lab.completed(submitted["hostile_metric"])
    (trial,) = ended.list_trials()
    of_experiment, of_trial = str(ended.id), str(trial.id)
    for shown in (
        ("e", "describe", of_experiment),
        ("e", "wait", of_experiment),
        ("e", "list"),
        ("t", "describe", of_trial),
        ("t", "metrics", of_trial),
        ("t", "logs", of_trial),
    ):
        said = lab.cluster.det(*shown)
        assert said.returncode == 0, said.stderr
        assert "\x1b" not in said.stdout + said.stderr, shown
        assert "\u202e" not in said.stdout + said.stderr, shown
    described = lab.cluster.det("t", "describe", str(trial.id)).stdout
    assert "[red]" in re.sub(r"\s+", "", described), "rich markup is text"
    with lab.api() as api:
        reply = api.get(f"trials/{trial.id}")
        assert reply.headers["content-type"].startswith("application/json")
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert HOSTILE in reply.json()["summary"]["training"]
        curves = api.get(f"experiments/{ended.id}/curves", params={"name": HOSTILE}).json()["curves"]
    assert {series["name"] for series in curves} == {HOSTILE}
    page = landing_page(lab.cluster, lab.cluster.user)
    assert "<img src=x" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


# --- refused at once


def refused(lab: Lab, config: Path, folder: Path = TRIALS) -> str:
    """`det e create` must refuse this; return what it says. Nothing is created."""
    before = len(lab.client.list_experiments(limit=1000))
    said = lab.cluster.det("e", "create", str(config), str(folder))
    assert said.returncode == 2, said.stdout + said.stderr
    assert "Traceback" not in said.stderr
    assert len(lab.client.list_experiments(limit=1000)) == before
    return said.stderr


def test_malformed_yaml_is_refused_with_line_and_column(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("name: x\nsearcher:\n  name: single\n  metric: [a, b\nentrypoint: run\n")
    said = refused(lab, path)
    assert "broken.yaml" in said
    assert "line 5" in said
    assert "column" in said


def test_an_entrypoint_file_that_is_not_in_the_bundle_is_refused(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(single("toy.py", entrypoint=["python3", "nowhere.py"])))
    said = refused(lab, path)
    assert "entrypoint: " in said
    assert "'nowhere.py'" in said


def test_unknown_keys_are_refused_all_at_once_with_their_paths(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "unknown.yaml"
    config = single("toy.py", entrypointt="x")
    config["searcher"]["max_trails"] = 3
    config["resources"] = {"slot_per_trial": 1}
    path.write_text(yaml.safe_dump(config))
    said = refused(lab, path)
    for name in ("unknown.yaml has 3 errors", "entrypointt", "searcher.max_trails", "resources.slot_per_trial"):
        assert name in said
    assert f"det config check {path}" in said


def test_impossible_resources_are_refused_at_submit_with_the_reason(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "greedy.yaml"
    path.write_text(yaml.safe_dump(single("toy.py", resources={"slots_per_trial": 64})))
    said = refused(lab, path)
    assert "64" in said
    assert re.search(rf"\b{lab.cluster.slots}\b", said), "how many there are"
    assert "det agent list" in said


def test_a_bundle_that_is_too_large_is_refused_with_the_largest_files(lab: Lab, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "toy.py").write_bytes((TRIALS / "toy.py").read_bytes())
    with (code / "dataset.bin").open("wb") as file:
        for _ in range(100):
            file.write(os.urandom(1 << 20))
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(single("toy.py")))
    said = lab.cluster.det("e", "create", str(path), str(code))
    assert said.returncode != 0
    assert "dataset.bin" in said.stderr
    assert ".detignore" in said.stderr
    assert "95" in said.stderr, "the limit"


def test_a_user_of_a_read_only_token_is_told_which_scope_is_missing(lab: Lab, cluster: Cluster) -> None:
    token = cluster.make_token("custom:detlab:read", "access:services!service=detlab")
    with Client(cluster.url, token) as client:
        assert client.whoami().name == cluster.user
        with pytest.raises(DetlabError, match="custom:detlab:write"):
            client.create_experiment(single("toy.py"), TRIALS)
