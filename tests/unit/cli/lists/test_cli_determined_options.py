"""Options that Determined's commands have: CSV, orders, and which checkpoint."""

from __future__ import annotations

import csv
import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
import yaml
from click.testing import Result

from detlab.cli.root import det as root
from detlab.schemas.jobwire import JobView
from detlab.schemas.wire import BestView, SeriesView, SummaryView, TrialState
from detlab.schemas.wire.governance.evidence import DepthView, LearningView
from testbed.fake_master.api import FakeMaster

Det = Callable[..., Result]
OTHER_LISTS = {"queue", "audit", "usage", "uids", "instances", "outputs", "metrics"}
"""Commands with another name that print a table."""


def rows(result: Result) -> list[dict[str, str]]:
    assert result.exit_code == 0, result.output
    return list(csv.DictReader(io.StringIO(result.stdout)))


def test_lists_are_printed_as_csv(master: FakeMaster, det: Det) -> None:
    hostile = 'a "quoted", name\x1b[31m\nover two lines ' + "x" * 300
    master.add_experiment(hostile)
    master.add_trial(1, hparams={"lr": 0.1}, best_validation=0.5, steps_completed=7)
    uuid = master.add_checkpoint(1, {"a": b"1"}, steps_completed=7, validation=0.5).uuid
    master.add_agent("node1", slots=2)
    (found,) = rows(det("experiment", "list", "--csv"))
    assert found["ID"] == "1"
    assert found["Name"] == hostile.replace("\x1b[31m\n", " ")  # uncut, and nothing that a terminal obeys
    for command in (("e", "list-trials", 1), ("trial", "list", 1)):
        (trial,) = rows(det(*command, "--csv"))
        assert (trial["trial_id"], trial["best_validation"], trial["hparams.lr"]) == ("1", "0.5", "0.1")
    for command in (("e", "list-checkpoints", 1), ("checkpoint", "list", 1), ("checkpoint", "list", "--trial", 1)):
        (checkpoint,) = rows(det(*command, "--csv"))
        assert checkpoint["Checkpoint"] == uuid
    assert [agent["Agent"] for agent in rows(det("agent", "list", "--csv"))] == ["node1"]
    assert [slot["Agent"] for slot in rows(det("slot", "list", "--csv"))] == ["node1"] * 2


def test_csv_is_for_programs(master: FakeMaster, det: Det) -> None:
    """Regression: some lists gave "22s", "1.3 KiB" and "accuracy 0.98" where others gave numbers."""
    master.add_experiment()
    master.add_trial(1)
    master.add_checkpoint(1, {"a": b"1" * 2000}, steps_completed=7, validation=1 / 3)
    master.add_agent("node1", slots=2)
    (checkpoint,) = rows(det("c", "list", "1", "--csv"))
    assert checkpoint["Size"] == "2000"
    assert checkpoint["Validation"] == str(1 / 3)
    assert float(checkpoint["Written"]) >= 0
    changes = {
        "best": BestView(trial_id=1, trial_index=0, steps_completed=7, value=1 / 7),
        "progress": 0.25,
        "started_at": 1000.5,
    }
    master.experiments[1] = master.experiments[1].model_copy(update=changes)
    (found,) = rows(det("e", "list", "--csv"))
    assert [found[name] for name in ("Best", "Progress", "Started")] == [str(1 / 7), "0.25", "1000.5"]
    assert "25%" in det("e", "list").stdout
    began = time.time() - 500
    ended = master.add_task("shell", state=TrialState.COMPLETED, created_at=began, ended_at=began + 10)
    (task,) = [row for row in rows(det("shell", "list", "-a", "--csv")) if row["ID"] == ended.id]
    assert 500 <= float(task["Age"]) < 1000  # regression: it was how long the task took
    assert "KiB" in det("c", "list", "1").stdout


@pytest.mark.parametrize(
    "command", ["e list", "e list-trials 1", "e list-checkpoints 1", "trial list 1", "agent list", "slot list"]
)
def test_an_empty_list_is_a_header(master: FakeMaster, det: Det, command: str) -> None:
    if "1" in command:
        master.add_experiment()
    result = det(*command.split(), "--csv")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 1)
    assert "," in result.stdout


def test_csv_of_one_command_is_not_of_the_next(master: FakeMaster, det: Det) -> None:
    master.add_experiment("plain")
    assert "," in det("e", "list", "--csv").stdout.splitlines()[0]
    assert "," not in det("e", "list").stdout.splitlines()[0]


def test_lists_are_sorted(master: FakeMaster, det: Det) -> None:
    for name in "bca":
        master.add_experiment(name)
    for best in (0.5, 0.25, None):
        master.add_trial(1, best_validation=best)

    def names(*options: str) -> list[str]:
        return [found["Name"] for found in rows(det("e", "list", "--csv", *options))]

    assert names() == ["a", "c", "b"]  # newest first
    assert names("--sort-by", "NAME") == names("--sort-by", "name", "--order-by", "asc") == ["a", "b", "c"]
    assert names("--sort-by", "name", "--order-by", "desc", "-n", "2") == ["c", "b"]
    assert names("-n", "1") == ["a"]
    assert names("-n", "1", "--all") == names("-a") == ["a", "c", "b"]
    for command in (("e", "list-trials"), ("trial", "list")):
        options = ("--sort-by", "best_validation_metric", "--json")
        assert [trial["id"] for trial in json.loads(det(*command, 1, *options).stdout)] == [2, 1, 3]
    assert det("e", "list", "--sort-by", "shape").exit_code == 2


def test_a_trials_checkpoint_is_downloaded_by_its_uuid(master: FakeMaster, det: Det, tmp_path: Path) -> None:
    master.add_experiment()
    for trial in (1, 2):
        master.add_trial(1)
        master.add_checkpoint(trial, {"a": b"%d" % trial}, steps_completed=1, validation=0.5)
    old, other = master.checkpoints.values()
    master.add_checkpoint(1, {"a": b"3"}, steps_completed=2, validation=0.1)
    result = det("trial", "download", 1, "--uuid", old.uuid, "-q", "-o", tmp_path / "here")
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'here'}\n")
    assert (tmp_path / "here" / "a").read_bytes() == b"1"
    result = det("trial", "download", 1, "--uuid", other.uuid)
    assert result.exit_code == 2
    assert f"checkpoint {other.uuid} is of trial 2, not of trial 1" in result.output
    assert "choose one of" in det("trial", "download", 1, "--uuid", old.uuid, "--latest").output


def test_a_trial_is_described_with_its_metrics(master: FakeMaster, det: Det) -> None:
    master.add_experiment()
    master.add_trial(1)
    master.series[1] = [SeriesView(trial_id=1, group="training", name="loss", steps=[1, 2], values=[0.5, 0.25])]
    assert "0.25" not in det("t", "describe", 1).stdout
    assert "0.25" in det("t", "describe", 1, "--metrics").stdout
    told = json.loads(det("t", "describe", 1, "--metrics", "--json").stdout)
    assert [report["metrics"] for report in told["metrics"]] == [{"loss": 0.5}, {"loss": 0.25}]
    assert [(found["name"], found["value"]) for found in rows(det("t", "metrics", 1, "--csv"))] == [
        ("loss", "0.5"),
        ("loss", "0.25"),
    ]
    assert det("t", "describe", 1, "--metrics-summary").exit_code == 0


def test_a_governed_trial_is_described_with_what_each_source_gave_to_each_layer(master: FakeMaster, det: Det) -> None:
    master.add_experiment()
    master.add_trial(1, summary={"validation": {"gov/coverage": SummaryView(count=1, last=1.0)}})
    depth = DepthView(steps_completed=6, layers=["body", "\x1b[1mhead"], shares=[[0.4, 0.6], [0.0, 1.0]])
    seen = LearningView(trial_id=1, sources=["trusted", "web"], share={"trusted": 0.75, "web": 0.25}, depth=depth)
    master.answers["trials/1/governance"] = seen.model_dump(mode="json")
    lines = [line.split() for line in det("t", "describe", 1).stdout.splitlines()]
    assert ["layer", "trusted", "web"] in lines
    assert ["body", "40.0", "%", "0"] in lines
    assert any(line[-4:] == ["60.0", "%", "100.0", "%"] and "\x1b" not in "".join(line) for line in lines)
    assert ["Samples:", "trusted", "75.0", "%,", "web", "25.0", "%"] in lines
    told = json.loads(det("t", "describe", 1, "--json").stdout)["governance"]
    assert told == seen.model_dump(mode="json")
    master.answers["trials/1/governance"] = LearningView(trial_id=1).model_dump(mode="json")
    assert "gave" not in det("t", "describe", 1).stdout
    master.add_trial(1)
    assert "governance" not in json.loads(det("t", "describe", 2, "--json").stdout)


def test_logs_take_determineds_names_of_filters(master: FakeMaster, det: Det) -> None:
    master.add_experiment()
    master.add_trial(1, state=TrialState.COMPLETED)
    master.log(1, "one", rank=0, node="n1", stdtype="stderr")
    master.log(1, "two", rank=1, node="n2")
    for option in (("--rank-id", 0), ("--agent-id", "n1"), ("--stdtype", "stderr")):
        result = det("t", "logs", 1, *option)
        assert result.exit_code == 0, result.output
    assert "one" in det("t", "logs", 1, "--rank-id", 0).stdout
    assert "two" not in det("t", "logs", 1, "--rank-id", 0).stdout
    result = det("t", "logs", 1, "--timestamp-after", "2001-01-01T00:00", "--timestamp-before", "2101-01-01T00:00")
    assert result.exit_code == 0, result.output


def bundled(master: FakeMaster) -> set[str]:
    """The files of the bundle that was uploaded last."""
    *_, data = master.bundles.values()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return set(archive.getnames())


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, (*path, name)
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name), command


def options_of(command: click.Command) -> set[str]:
    return {option for each in command.params for option in each.opts}


def test_each_list_can_be_had_as_csv() -> None:
    lists = {path: command for path, command in leaves(root) if path[-1].startswith("list") or path[-1] in OTHER_LISTS}
    assert len(lists) >= 16
    assert [path for path, command in lists.items() if "--csv" not in options_of(command)] == []


def test_no_spreadsheet_takes_a_text_for_a_formula(master: FakeMaster, det: Det) -> None:
    for name in ("=HYPERLINK(1)", "-1", "+cmd|' /C calc'!A0", "@SUM(A1)", "plain"):
        master.add_experiment(name)
    found = [row["Name"] for row in rows(det("e", "list", "--csv", "--sort-by", "id"))]
    assert found == ["'=HYPERLINK(1)", "-1", "'+cmd|' /C calc'!A0", "'@SUM(A1)", "plain"]
    master.add_trial(1, hparams={"=a": "=1+1", "lr": -0.5}, best_validation=-0.25)
    (trial,) = rows(det("trial", "list", 1, "--csv"))
    assert (trial["hparams.=a"], trial["hparams.lr"], trial["best_validation"]) == ("'=1+1", "-0.5", "-0.25")


def test_tasks_are_listed_by_id_in_order_and_as_csv(master: FakeMaster, det: Det) -> None:
    ids = {name: master.add_task("shell", name).id for name in ("b-shell", "a-shell")}
    quiet = det("shell", "list", "-q", "--sort-by", "name").stdout.split()
    assert quiet == [ids["a-shell"], ids["b-shell"]]
    assert det("shell", "list", "-q", "--sort-by", "name", "--order-by", "desc", "-n", 1).stdout.split() == quiet[1:]
    assert {row["ID"] for row in rows(det("shell", "list", "-a", "--csv"))} == set(quiet)
    assert len(det("notebook", "list", "--csv").stdout.splitlines()) == 1


def test_a_kill_that_is_forced_skips_unknown_ids(master: FakeMaster, det: Det) -> None:
    view = master.add_task("shell")
    assert det("shell", "kill", "shell-nowhere12345", view.id).exit_code == 1
    assert not master.tasks[view.id].state.terminal
    result = det("shell", "kill", "-f", "shell-nowhere12345", view.id)
    assert (result.exit_code, master.tasks[view.id].state.terminal) == (0, True)
    assert "skipped: there is no shell 'shell-nowhere12345'" in result.stderr


def test_tasks_get_files_and_directories_of_the_node(master: FakeMaster, det: Det, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("a,b\n")
    det(
        "notebook", "start", "-d", "-i", "labels.csv", "-v", "/data:/data:ro", "--volume", "/scratch:/s", "--no-browser"
    )
    (view,) = master.tasks.values()
    assert view.config["bind_mounts"] == [
        {"host_path": "/data", "container_path": "/data", "read_only": True},
        {"host_path": "/scratch", "container_path": "/s"},
    ]
    assert view.config["runtime"] == "docker"
    assert bundled(master) == {"labels.csv"}
    assert det("shell", "start", "-d", "--context", "code", "-i", "labels.csv").exit_code == 0
    assert bundled(master) == {"labels.csv", "train.py"}


@pytest.mark.parametrize("text", ["/data", "data:/data", "/data:data", "/data:/data:rx", ":/data"])
def test_a_volume_that_is_none_is_refused(master: FakeMaster, det: Det, text: str) -> None:
    result = det("shell", "start", "-d", "-v", text)
    assert (result.exit_code, list(master.tasks)) == (2, [])
    assert "is not HOST:CONTAINER with absolute paths" in result.stderr


def test_a_process_has_no_volumes(master: FakeMaster, det: Det) -> None:
    result = det("cmd", "run", "-d", "--runtime", "process", "-v", "/data:/data", "true")
    assert (result.exit_code, list(master.tasks)) == (2, [])
    assert "needs a container" in result.stderr
    assert "--image IMAGE" in result.stderr


def test_logs_are_filtered_by_source(master: FakeMaster, det: Det) -> None:
    master.add_experiment()
    master.add_trial(1, state=TrialState.COMPLETED)
    for stdtype in ("stdout", "launcher", "stderr"):
        master.log(1, f"from {stdtype}", stdtype=stdtype)
    assert det("t", "logs", 1, "--source", "task").stdout.splitlines() == ["from stdout", "from stderr"]
    assert det("t", "logs", 1, "--source", "launcher", "-f").stdout.splitlines() == ["from launcher"]


def test_a_task_shows_its_config_and_gets_another_priority(master: FakeMaster, det: Det) -> None:
    det("cmd", "run", "-d", "-c", "resources.slots=2", "true")
    (view,) = master.tasks.values()
    assert yaml.safe_load(det("cmd", "config", view.id).stdout)["resources"] == {"slots": 2}
    assert json.loads(det("task", "config", view.id, "--json").stdout)["entrypoint"] == ["true"]
    assert det("shell", "config", view.id).exit_code == 1
    master.jobs = [JobView(id=view.id, kind="command", owner="alice", state="queued", order=1, priority=42)]
    assert det("cmd", "set", "priority", view.id, 7).stdout == f"Command {view.id}: priority 7\n"
    assert master.jobs[0].priority == 7
    assert det("cmd", "set", "priority", view.id, 100).exit_code == 2
