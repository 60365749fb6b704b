"""Every command of `det` against a fake master: what it prints, what it asks for, how it exits."""

import json
import re
import threading
from pathlib import Path

import click
import pytest

from detlab.errors import Problem
from detlab.schemas.wire import (
    BestView,
    ExperimentState,
    FailureView,
    ProblemView,
    SeriesView,
    SummaryView,
    TrialState,
)
from detlab.testing.api import FakeMaster, Fault

HOSTILE = "\x1b]0;owned\x07\x1b[31m[red]evil[/red]\x1b[0m\u202egnp\x9b2J\nsecond <img src=x onerror=alert(1)>"
SHOWN = "[red]evil[/red]gnp second <img src=x onerror=alert(1)>"


# --- create -----------------------------------------------------------------------------------------------


def test_create_lists_the_code_and_names_the_next_steps(master, det) -> None:
    master.warnings = [ProblemView(path="resources.shm_size", message="has no effect", level="warning")]
    result = det("experiment", "create", "search.yaml", "code")
    assert result.exit_code == 0
    assert "Code: 1 file, 9 B (sha256:" in result.stdout
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
    assert "would take it" in result.stdout
    assert not master.experiments


def test_a_lost_reply_does_not_double_the_submit(master, det) -> None:
    master.faults.append(Fault("POST", "experiments", "lose_reply"))
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
    assert {item["path"] for item in json.loads(result.stdout)} == {"searcher.max_trials", "sercher"}


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


def test_following_tells_the_story_once(master, det) -> None:
    thread = ends_soon_after_create(master, ExperimentState.COMPLETED)
    master.faults.append(Fault("GET", "experiments/1/stream", "cut_mid_line", lines=1))
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
    assert "runs on" in result.stderr


def test_an_interrupt_stops_watching_only(master, det, monkeypatch: pytest.MonkeyPatch) -> None:
    from detlab.client.resources import Experiment

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    master.add_experiment()
    monkeypatch.setattr(Experiment, "wait", interrupted)
    result = det("e", "wait", 1)
    assert result.exit_code == 130
    assert "Experiment 1 runs on" in result.stderr
    assert "det experiment kill 1" in result.stderr
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


# --- lists and descriptions -------------------------------------------------------------------------------


def test_empty_states_say_what_to_do(master, det) -> None:
    assert det("e", "list").stdout == "No experiments yet. Try: det experiment create CONFIG DIR\n"
    assert det("e", "list", "--name", "x").stdout == "No experiment like that.\n"
    assert "det agent run" in det("agent", "list").stdout
    assert "det agent run" in det("slot", "list").stdout
    master.add_trial(master.add_experiment().id)
    assert det("t", "metrics", 1).stdout == "No metrics yet.\n"
    assert "no output yet" in det("t", "logs", 1).stderr
    for words in (("e", "list-checkpoints", 1), ("c", "list", 1), ("c", "list", "--trial", 1)):
        assert det(*words).stdout == "No checkpoints yet.\n"
    master.update_trial(1, state=TrialState.CANCELED)
    assert det("c", "list", "--trial", 1).stdout == "Trial 1 has ended (CANCELED) without a checkpoint.\n"
    master.update_experiment(1, state=ExperimentState.COMPLETED)
    for words in (("e", "lc", 1), ("e", "lc", 1, "--best", 2), ("c", "list", 1)):
        assert det(*words).stdout == "Experiment 1 has ended (COMPLETED) without a checkpoint.\n"
    master.add_experiment()
    for words in (("e", "list-trials", 2), ("t", "list", 2)):
        assert det(*words).stdout == "No trials yet.\n"
    assert "no trials yet" in det("e", "logs", 2).stderr


def test_checkpoints_that_are_deleted_are_listed_as_such_and_are_never_the_best(master, det, workplace: Path) -> None:
    master.add_trial(master.add_experiment().id)
    gone, kept = (
        master.add_checkpoint(1, {"w": b"x"}, validation=loss, steps_completed=steps, state=state)
        for loss, steps, state in ((0.1, 9, "DELETED"), (0.5, 2, "COMPLETED"))
    )
    first, second = det("c", "list", 1).stdout.splitlines()[-2:]
    assert gone.uuid in first
    assert "deleted" in first
    assert kept.uuid in second
    assert "deleted" not in second
    assert gone.uuid not in det("e", "lc", 1, "--best", 5).stdout
    for number, words in enumerate((("e", "download", 1), ("t", "download", 1), ("t", "download", 1, "--latest"))):
        assert det(*words, "-o", f"got{number}").exit_code == 0
    assert [path.name for path in (workplace / "got0").iterdir()] == [kept.uuid]
    assert (workplace / "got2" / "w").exists()


def test_a_list_of_the_best_checkpoints_says_when_none_was_validated(master, det) -> None:
    master.add_trial(master.add_experiment().id)
    master.add_checkpoint(1, {"w": b"x"}, steps_completed=3)
    said = "No checkpoint has a value of the searcher metric. All of them: det e list-checkpoints 1\n"
    assert det("e", "lc", 1, "--best", 1).stdout == said


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (ExperimentState.ACTIVE, "2 running"),
        (ExperimentState.PAUSED, "2 pausing"),
        (ExperimentState.STOPPING_CANCELED, "2 stopping"),
    ],
)
def test_trials_that_are_leaving_are_not_said_to_run(master, det, state: ExperimentState, word: str) -> None:
    master.add_experiment(trials={"ACTIVE": 2, "RUNNING": 2, "COMPLETED": 1}, trials_total=3, state=state)
    for words in (("e", "list"), ("e", "describe", 1)):
        shown = " ".join(det(*words).stdout.split())
        assert word in shown
        assert ("running" in shown) is (state is ExperimentState.ACTIVE)


def everything(master: FakeMaster, text: str) -> str:
    """Put a text into every place that users can write to; return a checkpoint's id."""
    failure = FailureView(kind="exception", message=text, trial_id=1, rank=1, where=text, log_tail=[text], hint=text)
    best = BestView(trial_id=1, trial_index=0, steps_completed=1, value=float("nan"))
    master.add_experiment(
        text, owner=text, description=text, labels=[text], metric=text, warnings=[text], failure=failure, best=best,
        workspace=text, project=text, pending_reason=text, state=ExperimentState.ERROR, config={text: text},
    )  # fmt: skip
    master.add_trial(
        1, hparams={text: text}, state=TrialState.ERROR, failure=failure, status=text, warnings=[text],
        summary={text: {text: SummaryView(count=1, last=float("inf"))}}, best_validation=float("nan"),
        pending_reason=text, agent_id=text,
    )  # fmt: skip
    master.series[1] = [
        SeriesView(trial_id=1, group=text, name=text, steps=[1, 2], values=[float("nan"), 1.5], times=[1, 2])
    ]
    master.log(1, text, rank=0)
    master.add_agent(text)
    return master.add_checkpoint(1, {"weights.bin": b"x"}, metadata={text: text}, validation=0.5).uuid


def commands(uuid: str) -> list[tuple[object, ...]]:
    return [
        ("e", "list"), ("e", "describe", 1), ("e", "list-trials", 1), ("e", "list-checkpoints", 1),
        ("e", "config", 1), ("t", "list", 1), ("t", "describe", 1), ("t", "metrics", 1), ("c", "list", 1),
        ("c", "describe", uuid), ("agent", "list"), ("slot", "list"), ("u", "whoami"), ("version",),
    ]  # fmt: skip


def test_texts_of_users_neither_control_the_terminal_nor_are_markup(master, det) -> None:
    uuid = everything(master, HOSTILE)
    for words in [*commands(uuid), ("e", "logs", 1), ("t", "logs", 1), ("e", "wait", 1)]:
        result = det(*words)
        for character in result.output:
            assert character == "\n" or character.isprintable(), (words, character)
    assert f"[rank 0] {SHOWN}" in det("t", "logs", 1).stdout
    assert SHOWN in det("e", "describe", 1).stdout


def test_json_is_strict_everywhere(master, det_json) -> None:
    uuid = everything(master, HOSTILE)
    for words in commands(uuid):
        assert det_json(*words)
    assert det_json("e", "list")[0]["name"] == HOSTILE
    assert det_json("t", "metrics", 1)[0]["metrics"] == {HOSTILE: "NaN"}


def test_tables_to_a_pipe_are_not_cut(master, det) -> None:
    name = "a-long-name-" * 8
    master.add_experiment(name)
    assert name in det("e", "list").stdout


def test_a_failure_card_names_what_where_and_next(master, det) -> None:
    failure = FailureView(
        kind="import",
        message="ModuleNotFoundError: No module named 'nonsense'",
        trial_id=1,
        rank=2,
        exit_code=1,
        where="cell 14, line 3",
        log_tail=["Traceback", "ModuleNotFoundError"],
        hint="ship the module",
    )
    master.add_experiment(state=ExperimentState.ERROR, failure=failure)
    master.add_trial(1, state=TrialState.ERROR, failure=failure)
    for words in (("e", "describe", 1), ("t", "describe", 1), ("e", "wait", 1)):
        told = det(*words).output
        assert "Failed (import): ModuleNotFoundError: No module named 'nonsense'" in told
        assert "where: trial 1, rank 2, exit code 1, cell 14, line 3" in told
        assert "    | Traceback" in told
        assert "→ ship the module" in told
        assert "→ det trial logs 1" in told


def test_the_card_of_what_was_stopped_or_waits_is_shown_in_place_of_a_failure(master, det) -> None:
    stopped = FailureView(kind="user_stop", message=HOSTILE, hint="nothing failed", command="det trial logs 1")
    lost = FailureView(kind="lost", message="it was lost", trial_id=1, hint="it goes on", command="det agent list")
    master.add_experiment(state=ExperimentState.CANCELED, card=stopped)
    master.add_trial(1, state=TrialState.ACTIVE, card=lost)
    for words in (("e", "describe", 1), ("e", "wait", 1)):
        told = det(*words).output
        assert f"Stopped (user_stop): {SHOWN}" in told
        assert "  → nothing failed\n  → det trial logs 1\n" in told
    told = det("t", "describe", 1).output
    assert "Interrupted (lost): it was lost" in told
    assert "  → it goes on\n  → det agent list\n" in told


def commands_of_cards() -> list[str]:
    """Every command that a card can name, with numbers in place of what is filled in."""
    from detlab_hub.services import endings, failures

    found = set()
    for module in (endings, failures):
        text = re.sub(r"\{[^{}]*\}", "1", Path(module.__file__).read_text(encoding="utf-8"))
        found.update(re.findall(r"\bdet (?:trial|task|experiment|agent|queue)[a-z0-9 -]*", text))
    return sorted(one.replace("logs 11", "logs 1 --rank 1").strip() for one in found)


def test_every_command_that_a_card_names_exists() -> None:
    from detlab.cli.root import det

    known = commands_of_cards()
    assert {"det agent list", "det queue", "det trial logs 1", "det trial logs 1 --rank 1"} <= set(known)
    for line in known:
        context, words = click.Context(det), line.split()[1:]
        command: click.Command = det
        while isinstance(command, click.Group):
            _, found, words = command.resolve_command(context, words)
            assert found is not None, line
            command = found
        command.make_context(command.name, words)


def test_warnings_of_an_experiment_are_shown(master, det) -> None:
    master.add_experiment(state=ExperimentState.COMPLETED, warnings=["trial 3 never reported 'val_loss'"])
    for words in (("e", "describe", 1), ("e", "wait", 1)):
        assert "warning: trial 3 never reported 'val_loss'" in det(*words).output


# --- logs -------------------------------------------------------------------------------------------------


def test_logs_of_several_trials(master, det) -> None:
    master.add_experiment()
    for _ in range(2):
        master.add_trial(1)
    for n in range(4):
        master.log(1 + n % 2, f"line {n}", rank=n // 2)
    assert det("e", "logs", 1).stdout.splitlines()[0] == "[trial 1] [rank 0] line 0"
    assert det("e", "logs", 1, "--trial", 2).stdout == "[rank 0] line 1\n[rank 1] line 3\n"
    assert det("e", "logs", 1, "--tail", 1).stdout == "[trial 1] [rank 1] line 2\n[trial 2] [rank 1] line 3\n"
    assert det("t", "logs", 1, "--rank", 1).stdout == "[rank 1] line 2\n"
    assert det("e", "logs", 1, "--head", 1).stdout == "[trial 1] [rank 0] line 0\n[trial 2] [rank 0] line 1\n"
    assert det("t", "logs", 2, "--head", 1, "--rank", 1).stdout == "[rank 1] line 3\n"
    assert det("t", "logs", 1, "--head", 9).stdout == "[rank 0] line 0\n[rank 1] line 2\n"
    for more in (("--tail", 1), ("-f",)):
        assert "--head shows the first lines: leave out --tail and -f" in det("t", "logs", 1, "--head", 1, *more).stderr
    assert det("t", "logs", 1, "--search", "nothing").stdout == ""
    for words in (("e", "logs", 1, "-f"), ("e", "logs", 1, "--trial", 9)):
        assert det(*words).exit_code == 2
    lines = det("t", "logs", 1, "--json").stdout.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["line 0", "line 2"]


@pytest.mark.parametrize("tail", [None, 0, 2])
def test_following_logs_misses_and_repeats_nothing(master, det, tail: int | None) -> None:
    master.add_trial(master.add_experiment().id)
    for n in range(5):
        master.log(1, f"line {n}")

    def end() -> None:
        master.await_request("GET", "trials/1/logs/stream")
        master.log(1, "the last")
        master.update_trial(1, state=TrialState.COMPLETED)

    ender = threading.Thread(target=end)
    ender.start()
    words = ["t", "logs", 1, "-f", *(["--tail", tail] if tail is not None else [])]
    result = det(*words)
    ender.join()
    first = 0 if tail is None else 5 - tail
    assert result.stdout.splitlines() == [*(f"line {n}" for n in range(first, 5)), "the last"]


def test_a_progress_bar_in_the_output_is_one_line(master, det) -> None:
    master.add_trial(master.add_experiment().id)
    master.log(1, "10%\r50%\r100%\r")
    assert det("t", "logs", 1).stdout == "100%\n"


# --- downloads --------------------------------------------------------------------------------------------


def test_downloads(master, det, det_json, workplace: Path) -> None:
    assert det("e", "create", "search.yaml", "code").exit_code == 0
    master.add_trial(1)
    worse = master.add_checkpoint(1, {"w": b"worse"}, validation=0.9, steps_completed=2)
    better = master.add_checkpoint(1, {"w": b"better"}, validation=0.1, steps_completed=1)
    assert det("t", "download", 1, "-o", "best").exit_code == 0
    assert (workplace / "best" / "w").read_bytes() == b"better"
    assert det("t", "download", 1, "--latest").exit_code == 0
    assert (workplace / "checkpoints" / worse.uuid / "w").read_bytes() == b"worse"
    assert det_json("c", "download", better.uuid, "-o", "here")["path"] == "here"
    assert det("t", "download", 1, "--best", "--latest").exit_code == 2
    result = det("c", "download", worse.uuid, "-o", "best")
    assert result.exit_code == 1
    assert "best exists and is not this checkpoint" in result.stderr
    assert det("e", "download-model-def", 1, "-o", "out").exit_code == 0
    assert (workplace / "out" / "experiment_1_code.tar.gz").read_bytes() == next(iter(master.bundles.values()))


def test_experiment_download_is_the_best_checkpoints_as_in_determined(master, det, det_json, workplace: Path) -> None:
    # It was the code, which is `download-model-def` in Determined.
    master.add_trial(master.add_experiment().id)
    assert "no validated checkpoint" in det("e", "download", 1).stderr
    worst, best, middle = (
        master.add_checkpoint(1, {"w": b"%d" % steps}, validation=loss, steps_completed=steps).uuid
        for steps, loss in enumerate((0.9, 0.1, 0.5), 1)
    )
    assert det("e", "download", 1).exit_code == 0
    assert [folder.name for folder in (workplace / "checkpoints").iterdir()] == [best]
    assert (workplace / "checkpoints" / best / "w").read_bytes() == b"2"
    got = det_json("e", "download", 1, "--top-n", 2, "-o", "two")
    assert got == [{"uuid": uuid, "path": str(Path("two") / uuid)} for uuid in (best, middle)]
    assert det("e", "download", 1, "-q", "--top-n", 9, "-o", "all").stdout.split() == [
        str(Path("all") / uuid) for uuid in (best, middle, worst)
    ]


# --- login ------------------------------------------------------------------------------------------------


def test_login_tries_the_token_and_remembers_it(master, det, workplace: Path, monkeypatch) -> None:
    monkeypatch.delenv("DET_URL")
    monkeypatch.delenv("DET_TOKEN")
    assert "no cluster found" in det("e", "list").stderr
    assert det("login", master.url, "--token-file", "-", input="wrong").exit_code == 1
    assert "no cluster found" in det("e", "list").stderr
    result = det("login", f"{master.url}/hub/home", "--token-file", "-", input=f"{master.token}\n")
    assert result.exit_code == 0, result.output
    assert "as alice" in result.stdout
    file = workplace / "xdg-config" / "detlab" / "auth.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "alice" in det("user", "whoami").stdout
    assert det("logout").stdout == "Logged out.\n"
    assert "no cluster found" in det("e", "list").stderr


def test_login_needs_a_token_that_nobody_can_see(master, det) -> None:
    result = det("login", master.url)
    assert result.exit_code == 2
    assert "--token-file" in result.stderr
    assert det("login", master.url, "--token-file", "-", input="two words").exit_code == 1


# --- errors -----------------------------------------------------------------------------------------------


def test_errors_are_one_block(master, det) -> None:
    result = det("e", "describe", 99)
    assert result.exit_code == 1
    assert result.stderr == "Error: there is no experiment 99\n"
    result = det("e", "describe", 99, "--json")
    assert json.loads(result.stdout)["error"]["code"] == "not_found"
    assert result.exit_code == 1


def test_a_wrong_token(master, det, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_TOKEN", "wrong")
    result = det("e", "list")
    assert result.exit_code == 1
    assert "no valid token" in result.stderr
    assert "det login URL" in result.stderr


def test_a_cluster_that_is_not_running(det, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_URL", "http://127.0.0.1:9")
    result = det("e", "list")
    assert result.exit_code == 1
    assert "no answer from http://127.0.0.1:9/services/detlab/ (named by DET_URL)" in result.stderr
    assert "det up" in result.stderr


def test_the_master_can_be_named(master, det, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_URL", "http://127.0.0.1:9")
    assert det("-m", master.url, "e", "list").exit_code == 1  # DET_TOKEN belongs to DET_URL
    monkeypatch.delenv("DET_URL")
    assert det("-m", master.url, "e", "list").exit_code == 0


def test_debug_shows_the_traceback(det, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_DEBUG", "1")
    assert "Traceback" in det("e", "describe", 99).stderr


def test_problems_print_as_path_and_message() -> None:
    from detlab.cli.failures import problem_line

    assert problem_line(Problem("a.b", "is \x1b[1mwrong", "fix it")) == "a.b: is wrong (fix it)"
