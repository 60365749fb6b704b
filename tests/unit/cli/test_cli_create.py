"""Submitting, waiting for and steering experiments by `det`, against a fake master."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from detlab.schemas.wire import (
    BestView,
    ExperimentState,
    FailureView,
    ProblemView,
    TrialState,
)
from testbed.fake_master.api import ApiFault, FakeMaster

# --- create -----------------------------------------------------------------------------------------------


def test_create_lists_the_code_and_names_the_next_steps(master, det) -> None:
    master.warnings = [ProblemView(path="resources.shm_size", message="has no effect", level="warning")]
    result = det("experiment", "create", "search.yaml", "code")
    assert result.exit_code == 0
    assert "Code: 1 file, 9 B (tree:" in result.stdout
    assert "  train.py  9 B" in result.stdout
    assert "Created experiment 1" in result.stdout
    assert "det experiment wait 1" in result.stdout
    assert result.stderr == "warning: resources.shm_size: has no effect\n"
    assert list(master.bundles) == [master.submitted[0].bundle]
    assert master.submitted[0].config_yaml.startswith("name: digits")


def test_create_changes_keys_and_merges_a_template(master, det, workplace: Path) -> None:
    (workplace / "base.yaml").write_text("max_restarts: 1\nname: base\n")
    result = det(
        "e", "create", "search.yaml", "--config", "searcher.max_trials=4", "--config", "hyperparameters.lr=1e-3",
        "--name", "small", "--template", "base.yaml", "--paused",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    config = master.submitted[0].config
    assert config["searcher"]["max_trials"] == 4
    assert config["hyperparameters"]["lr"] == 0.001
    assert (config["name"], config["max_restarts"]) == ("small", 1)
    assert master.experiments[1].state is ExperimentState.PAUSED
    assert "det experiment activate 1" in result.stdout


def test_create_reads_standard_input(master, det) -> None:
    assert det("e", "create", "-", input="name: piped\n").exit_code == 0
    assert master.submitted[0].config_yaml.strip() == "name: piped"


def test_a_config_of_one_line_without_an_end_is_read(master, det, workplace: Path) -> None:
    (workplace / "short.json").write_text('{"name": "short"}')
    assert det("e", "create", "short.json").exit_code == 0
    assert master.submitted[0].config_yaml.strip() == '{"name": "short"}'


def test_create_includes_files(master, det, workplace: Path) -> None:
    (workplace / "extra.py").write_text("x")
    result = det("e", "create", "search.yaml", "code", "-i", "extra.py")
    assert "extra.py  1 B" in result.stdout


def test_create_as_json(master, det_json) -> None:
    told = det_json("e", "create", "search.yaml", "code")
    assert told["experiment"]["id"] == 1
    assert [file["path"] for file in told["bundle"]["files"]] == ["train.py"]


def test_a_dry_run_makes_nothing(master, det) -> None:
    result = det("e", "create", "search.yaml", "code", "--dry-run")
    assert result.exit_code == 0
    assert "accepts it" in result.stdout
    assert not master.experiments


def test_a_lost_reply_does_not_double_the_submit(master, det) -> None:
    master.faults.append(ApiFault("POST", "experiments", "lose_reply"))
    assert det("e", "create", "search.yaml", "code").exit_code == 0
    assert list(master.experiments) == [1]


def test_config_mistakes_are_all_named_and_nothing_is_sent(master, det, workplace: Path) -> None:
    (workplace / "bad.yaml").write_text("sercher: {}\nsearcher: {name: random, metric: x, max_trials: 0}\n")
    result = det("e", "create", "bad.yaml", "code")
    assert result.exit_code == 2
    lines = [line.strip() for line in result.stderr.splitlines()]
    assert "searcher.max_trials: must be at least 1, not 0" in lines
    assert any(line.startswith("sercher: ") for line in lines)
    assert master.requests == []
    result = det("e", "create", "bad.yaml", "code", "--json")
    assert result.exit_code == 2
    assert {item["path"] for item in json.loads(result.stdout)["problems"]} == {"searcher.max_trials", "sercher"}


def test_mistakes_that_only_the_master_knows(master, det) -> None:
    master.problems = [ProblemView(path="entrypoint", message="runs 'x.py', which is not in the code")]
    result = det("e", "create", "search.yaml", "code")
    assert result.exit_code == 2
    assert "  entrypoint: runs 'x.py', which is not in the code" in result.stderr


@pytest.mark.parametrize("text", ["a: [1\n", "- a\n", "a: 1\na: 2\n", "\tname: x\n"])
def test_malformed_configs(master, det, workplace: Path, text: str) -> None:
    (workplace / "bad.yaml").write_text(text)
    result = det("e", "create", "bad.yaml")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert "Traceback" not in result.output


def test_files_that_are_not_there(master, det) -> None:
    assert "nowhere.yaml cannot be read" in det("e", "create", "nowhere.yaml", "code").stderr
    result = det("e", "create", "search.yaml", "nowhere")
    assert result.exit_code == 1
    assert "the context directory nowhere does not exist" in result.stderr


def test_a_bundle_that_is_too_large(master, det, workplace: Path) -> None:
    with (workplace / "code" / "data.bin").open("wb") as file:
        file.truncate(96 * 2**20)
    result = det("e", "create", "search.yaml", "code")
    assert result.exit_code == 1
    assert "96.0 MiB  data.bin" in result.stderr
    assert "code/.detignore" in result.stderr
    assert master.requests == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "status"),
    [(ExperimentState.COMPLETED, 0), (ExperimentState.CANCELED, 3), (ExperimentState.ERROR, 4)],
)
def test_follow_and_wait_exit_0_only_on_completed(master, det, state: ExperimentState, status: int) -> None:
    timer = ends_soon_after_create(master, state)
    assert det("e", "create", "search.yaml", "code", "-f").exit_code == status
    timer.join()
    assert det("e", "wait", 1).exit_code == status
    assert det("e", "wait", 1, "--json").exit_code == status


def ends_soon_after_create(master: FakeMaster, state: ExperimentState) -> threading.Thread:
    def end() -> None:
        master.await_request("GET", "experiments/1/stream")
        master.add_trial(1, hparams={"lr": 0.5})
        best = BestView(trial_id=1, trial_index=0, steps_completed=7, value=0.25, checkpoint="c-1")
        master.update_experiment(1, best=best, trials={"ACTIVE": 1, "RUNNING": 1})
        master.update_trial(1, state=TrialState.COMPLETED)
        master.update_experiment(1, state=state, trials={"COMPLETED": 1})

    thread = threading.Thread(target=end)
    thread.start()
    return thread


BROKEN = FailureView(
    kind="searcher",
    message="mine.py, line 5, in initial_operations: ZeroDivisionError: division by zero",
    hint="Mend the class: det search code 1 FOLDER",
    command="det experiment activate 1",
)


def test_following_a_search_that_the_master_pauses_ends_with_its_failure_card(master, det) -> None:
    def pause() -> None:
        master.await_request("GET", "experiments/1/stream")
        master.update_experiment(1, state=ExperimentState.PAUSED, failure=BROKEN)

    thread = threading.Thread(target=pause)
    thread.start()
    result = det("e", "create", "search.yaml", "code", "-f")
    thread.join()
    assert result.exit_code == 4
    assert f"Failed (searcher): {BROKEN.message}" in result.stderr
    assert "det search code 1 FOLDER" in result.stderr
    assert "→ det experiment activate 1" in result.stderr
    assert result.stdout.count("experiment 1: PAUSED") == 1
    assert "Experiment 1 PAUSED after" in result.stdout
    waited = det("e", "wait", 1)
    assert (waited.exit_code, BROKEN.message in waited.stderr) == (4, True)
    shown = det("search", "show", 1).stdout
    assert "PAUSED" in shown
    assert BROKEN.message in shown
    assert "→ det experiment activate 1" in shown


def test_following_tells_the_story_once(master, det) -> None:
    thread = ends_soon_after_create(master, ExperimentState.COMPLETED)
    master.faults.append(ApiFault("GET", "experiments/1/stream", "cut_mid_line", lines=1))
    result = det("e", "create", "search.yaml", "code", "-f")
    thread.join()
    assert result.stdout.count("best val_loss 0.25 (trial 1, step 7)") == 1
    assert "trial 1: ACTIVE  lr=0.5" in result.stdout
    assert "Experiment 1 COMPLETED" in result.stdout
    assert "det checkpoint download c-1" in result.stdout


# --- wait, steer ------------------------------------------------------------------------------------------


def test_waiting_in_vain(master, det) -> None:
    master.add_experiment()
    result = det("e", "wait", 1, "--timeout", "0.2")
    assert result.exit_code == 5
    assert "continues" in result.stderr


def test_an_interrupt_stops_watching_only(master) -> None:
    master.add_experiment()
    command = [sys.executable, "-c", "from detlab.cli import main; main()", "e", "wait", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        master.await_request("GET", "experiments/1/stream")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Experiment 1 continues" in errors
    assert "det experiment kill 1" in errors
    assert "Traceback" not in errors
    assert master.experiments[1].state is ExperimentState.ACTIVE


@pytest.mark.parametrize(
    ("action", "state"), [("pause", "PAUSED"), ("activate", "ACTIVE"), ("cancel", "CANCELED"), ("kill", "CANCELED")]
)
def test_steering_several(master, det, det_json, action: str, state: str) -> None:
    master.add_experiment()
    master.add_experiment()
    result = det("e", action, 1, 2)
    assert result.exit_code == 0
    assert result.stdout == f"Experiment 1: {state}\nExperiment 2: {state}\n"
    master.add_experiment()
    assert [item["state"] for item in det_json("e", action, 3)] == [state]


def test_pause_names_running_trials_that_have_saved_nothing(master, det, det_json) -> None:
    master.add_experiment(trials={"RUNNING": 2})
    master.add_trial(1, allocation_state="RUNNING", latest_checkpoint="abc")
    bare = master.add_trial(1, allocation_state="RUNNING")
    master.add_trial(1, allocation_state="PENDING")
    result = det("e", "pause", 1)
    assert result.exit_code == 0
    assert f"no checkpoint yet of trial {bare.id} of experiment 1" in result.stderr
    assert result.stdout == "Experiment 1: PAUSED\n"
    assert "warning" not in det("e", "activate", 1).stderr


def test_deleting_asks(master, det, workplace: Path) -> None:
    master.add_experiment(state=ExperimentState.COMPLETED)
    result = det("e", "delete", 1)
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert master.experiments
    assert det("e", "delete", 1, "-y").stdout == "Deleted experiment 1\n"
    assert not master.experiments
    master.add_experiment()
    result = det("e", "delete", 1, "-y")
    assert result.exit_code == 1
    assert "has not ended" in result.stderr


def test_files_of_secrets_are_named_when_they_are_uploaded(det, det_json, workplace: Path) -> None:
    for name in (".env", ".env.example", "keys/id_rsa", "environment.py"):
        (workplace / "code" / name).parent.mkdir(exist_ok=True)
        (workplace / "code" / name).write_text("A=1\n")
    told = det("e", "create", "search.yaml", "code").stderr
    assert "uploaded with the code, for all who may see it: .env, keys/id_rsa" in told
    assert "name it in .detignore" in told
    (workplace / "code" / ".detignore").write_text(".env\nkeys/\n")
    assert det("e", "create", "search.yaml", "code").stderr == ""


@pytest.mark.parametrize("text", ["", "# nothing yet\n"])
def test_an_empty_config_is_named_before_any_code_is_packed(det, workplace: Path, text: str) -> None:
    (workplace / "empty.yaml").write_text(text)
    done = det("e", "create", "empty.yaml", workplace)
    assert done.exit_code == 2
    assert "Error: empty.yaml has 1 error" in done.stderr
    assert "Code:" not in done.stdout
