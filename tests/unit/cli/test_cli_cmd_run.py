"""`det cmd run` against a fake master: what it starts, prints and exits with."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from detlab.schemas import taskconf
from detlab.schemas.taskwire import TaskKind
from detlab.schemas.wire import FailureView
from testbed.fake_master.api import ApiFault, FakeMaster


def ends(master: FakeMaster, code: int, *lines: str) -> Callable:
    def run(view):
        master.bring_up(view.id)
        for line in lines:
            master.task_log(view.id, line)
        master.end_task(view.id, code)

    return run


@pytest.mark.parametrize("code", [0, 1, 3, 77])
def test_a_command_ends_with_its_exit_code(master, det, code: int) -> None:
    master.on_create = ends(master, code, "one", "two")
    result = det("cmd", "run", "--slots", "0", "--", "python", "x.py", "--epochs", "3", "-f")
    assert result.exit_code == code
    assert result.stdout == "one\ntwo\n"
    assert (f"Command command-0001: failed, exit code {code}." in result.stderr) == (code != 0)
    assert master.asked[0].config == {
        "resources": {"slots": 0},
        "entrypoint": ["python", "x.py", "--epochs", "3", "-f"],
    }


def test_options_after_the_command_are_the_commands(master, det) -> None:
    master.on_create = ends(master, 0)
    assert det("cmd", "run", "ls", "--slots", "9", "--help").exit_code == 0
    assert master.asked[0].config == {"entrypoint": ["ls", "--slots", "9", "--help"]}
    assert det("cmd", "run", "ls | wc -l").exit_code == 0
    assert master.asked[1].config == {"entrypoint": "ls | wc -l"}


def test_a_workspace_goes_with_the_config(master, det) -> None:
    master.on_create = ends(master, 0)
    assert det("cmd", "run", "-w", "ada/vision", "--project", "digits", "x").exit_code == 0
    assert master.asked[0].config == {"workspace": "ada/vision", "project": "digits", "entrypoint": ["x"]}
    assert det("cmd", "run", "--project-id", "7", "-c", "workspace=lab", "x").exit_code == 0
    assert master.asked[1].config == {"workspace": "lab", "project": "7", "entrypoint": ["x"]}
    both = det("cmd", "run", "--project-id", "7", "--project", "digits", "x")
    assert (both.exit_code, "not both" in both.stderr) == (2, True)


def test_a_command_killed_by_a_signal(master, det) -> None:
    master.on_create = lambda view: master.end_task(view.id, -9)
    assert det("cmd", "run", "x").exit_code == 137


def test_a_command_that_somebody_kills(master, det) -> None:
    master.on_create = lambda view: master.update_task(view.id, state="CANCELED", end_reason="killed")
    result = det("cmd", "run", "x")
    assert result.exit_code == 3
    assert "Command command-0001: killed." in result.stderr


def test_a_command_of_an_unknown_image_shows_the_card(master, det) -> None:
    failure = FailureView(kind="image", message="there is no image nope:1", hint="docker pull nope:1")
    master.on_create = lambda view: master.update_task(view.id, state="ERROR", failure=failure)
    result = det("cmd", "run", "--image", "nope:1", "x")
    assert result.exit_code == 4
    assert "Failed (image): there is no image nope:1" in result.stderr
    assert "docker pull nope:1" in result.stderr


def test_a_command_without_words_is_told_what_is_missing(master, det) -> None:
    result = det("cmd", "run")
    assert result.exit_code == 2
    assert "entrypoint: is required (det cmd run -- python train.py)" in result.stderr


def test_a_command_from_a_file(master, det, workplace: Path) -> None:
    master.on_create = ends(master, 0)
    (workplace / "job.yaml").write_text("entrypoint: [make, all]\n")
    assert det("cmd", "run", "--config-file", "job.yaml").exit_code == 0
    assert master.asked[0].config == {"entrypoint": ["make", "all"]}


def test_a_command_takes_code_along(master, det, workplace: Path) -> None:
    master.on_create = ends(master, 0)
    (workplace / "more.py").write_text("2")
    assert det("cmd", "run", "--context", "code", "-i", "more.py", "x").exit_code == 0
    assert list(master.bundles) == [master.asked[0].bundle]


def test_a_context_that_is_too_large_names_the_largest_files(master, det, workplace: Path, monkeypatch) -> None:
    (workplace / "code" / "data.bin").write_bytes(b"x" * 2**20)
    monkeypatch.setattr("detlab.client.submission.build_bundle", _small_limit())
    result = det("cmd", "run", "--context", "code", "x")
    assert result.exit_code == 1
    assert "the limit is 0 MiB" in result.stderr
    assert "data.bin" in result.stderr
    assert ".detignore" in result.stderr
    assert master.asked == []


def _small_limit() -> Callable:
    from functools import partial

    from detlab.client.bundling.bundle import build_bundle

    return partial(build_bundle, most_bytes=1000)


def test_standard_error_stays_apart(master, det) -> None:
    def run(view):
        master.bring_up(view.id)
        master.task_log(view.id, "result")
        master.task_log(view.id, "complaint", stdtype="stderr")
        master.end_task(view.id)

    master.on_create = run
    result = det("cmd", "run", "x")
    assert (result.stdout, "complaint" in result.stderr) == ("result\n", True)


def test_a_command_as_json(master, det) -> None:
    master.on_create = ends(master, 5, "noise")
    result = det("cmd", "run", "--json", "x")
    assert result.exit_code == 5
    assert json.loads(result.stdout)["exit_code"] == 5


def test_a_broken_stream_loses_and_doubles_no_line(master, det) -> None:
    master.faults.append(ApiFault("GET", "tasks/.*/logs/stream", "cut_mid_line", 2))
    master.on_create = ends(master, 0, *(f"line {n}" for n in range(6)))
    assert det("cmd", "run", "x").stdout.splitlines() == [f"line {n}" for n in range(6)]


def test_a_lost_reply_does_not_double_the_command(master, det) -> None:
    master.faults.append(ApiFault("POST", "tasks", "lose_reply"))
    master.on_create = ends(master, 0)
    assert det("cmd", "run", "x").exit_code == 0
    assert len(master.tasks) == 1


# --- det task create ----------------------------------------------------------------------------------------


def test_a_task_may_be_on_several_nodes_unless_its_config_says_otherwise(master, det, tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text("entrypoint: python3 convert.py\nresources: {slots: 4}\n")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "convert.py").write_text("")
    result = det("task", "create", str(tmp_path / "task.yaml"), str(tmp_path / "own"))
    assert result.exit_code == 0, result.stderr
    assert "command-0001" in result.stdout
    (asked,) = master.asked
    assert asked.kind == "command"
    assert asked.config == {"entrypoint": "python3 convert.py", "resources": {"slots": 4, "is_single_node": False}}
    assert asked.bundle in master.bundles
    (tmp_path / "one.yaml").write_text("entrypoint: x\nresources: {is_single_node: true}\n")
    assert det("task", "create", str(tmp_path / "one.yaml"), "--slots", "2").exit_code == 0
    assert master.asked[1].config["resources"] == {"is_single_node": True, "slots": 2}


def test_a_task_is_followed_if_that_is_asked_for(master, det) -> None:
    master.on_create = ends(master, 3, "one")
    result = det("task", "create", "--entrypoint", "convert | wc -l", "--slots", "2", "-f")
    assert (result.exit_code, result.stdout) == (3, "one\n")
    assert master.asked[0].config["entrypoint"] == "convert | wc -l"


def test_a_task_without_an_entrypoint_or_with_two_configs_is_refused(master, det, tmp_path: Path) -> None:
    assert "entrypoint: is required" in det("task", "create", "--slots", "2").stderr
    (tmp_path / "a.yaml").write_text("entrypoint: x\n")
    twice = det("task", "create", str(tmp_path / "a.yaml"), "--config-file", str(tmp_path / "a.yaml"))
    assert (twice.exit_code, "name the same thing" in twice.stderr) == (2, True)
    fork = det("task", "create", str(tmp_path / "a.yaml"), "--fork", "x")
    assert "--fork of Determined is not here: tasks have no parents here" in fork.stderr
    assert master.asked == []


def test_only_commands_are_spread_over_nodes() -> None:
    raw = {"entrypoint": "x", "resources": {"is_single_node": False}}
    assert taskconf.check(raw, TaskKind.COMMAND) == []
    for kind in (TaskKind.CELL, TaskKind.NOTEBOOK, TaskKind.SHELL, TaskKind.NOTEBOOK_RUN):
        (problem,) = taskconf.check(raw, kind)
        assert problem.path == "resources.is_single_node"
