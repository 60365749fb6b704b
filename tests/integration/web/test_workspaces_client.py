"""Workspaces by `det` and by the SDK, on a real cluster: Determined's commands, names and classes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from detlab.client import AsyncClient, Client
from detlab.errors import ConfigError, Conflict, Forbidden, NotFound
from testbed.cluster import Cluster

pytestmark = pytest.mark.hub

CONFIG = {
    "name": "digits",
    "entrypoint": ["true"],
    "searcher": {"name": "single", "metric": "x", "max_length": 1},
    "resources": {"slots_per_trial": 0},
}


@pytest.fixture
def ben(cluster: Cluster) -> Any:
    with Client(cluster.url, cluster.make_token("custom:detlab:write", user="ben")) as client:
        yield client


def said(cluster: Cluster, *words: str) -> Any:
    """What a command prints as JSON."""
    return json.loads(cluster.det(*words, "--json", check=True).stdout)


def refused(cluster: Cluster, *words: str) -> str:
    done = cluster.det(*words)
    assert done.returncode in {1, 2}, done.stdout
    return done.stderr


def test_a_team_by_commands(cluster: Cluster, ben: Client, tmp_path: Path) -> None:
    config = tmp_path / "search.yaml"
    config.write_text(json.dumps(CONFIG))
    unknown = refused(cluster, "e", "create", str(config), "-w", "by commands")
    assert "make it: det workspace create 'by commands'" in unknown
    made = said(cluster, "w", "create", "by commands", "--description", "x")
    number, place = str(made["id"]), f"{made['owner']}/by commands"
    assert "differ only in case" in refused(cluster, "workspace", "create", "BY COMMANDS")
    said(cluster, "p", "create", "by commands", "digits")
    said(cluster, "workspace", "add-member", number, "--user", "ben", "--role", "editor")
    said(cluster, "rbac", "assign-role", "viewer", "-w", number, "-g", "vision")
    assert {(one["name"], one["role"]) for one in said(cluster, "w", "list-members", number)} >= {
        ("ben", "editor"),
        ("vision", "viewer"),
    }
    groups = {one["group"]: one["roles"] for one in said(cluster, "ug", "list")}
    assert {"workspace": place, "role": "viewer"} in groups["vision"]
    assert "last user who is an admin" in refused(cluster, "w", "remove-member", number, "--user", made["owner"])
    words = ("-w", "by commands", "--project", "digits")
    created = said(cluster, "e", "create", str(config), "--paused", *words)["experiment"]
    assert (created["workspace"], created["project"]) == ("by commands", "digits")
    assert [one["id"] for one in said(cluster, "e", "list", *words)] == [created["id"]]
    assert [one["id"] for one in said(cluster, "p", "list-experiments", "by commands", "digits")] == [created["id"]]
    assert "1 experiment lies in it" in refused(cluster, "p", "delete", number, "digits", "-y")
    assert ben.get_experiment(created["id"]).view.may == "write"
    moved = cluster.det("e", "move", str(created["id"]), check=True).stdout
    assert "to Uncategorized / Uncategorized" in moved
    with pytest.raises(NotFound):
        ben.get_experiment(created["id"])
    shown = cluster.det("e", "describe", str(created["id"]), check=True).stdout
    assert "workspace" not in shown, "who names none never meets them"
    given = said(cluster, "w", "set-defaults", number, "--storage", "{type: s3, bucket: lab}")
    assert given["defaults"]["checkpoint_storage"] == {"type": "s3", "bucket": "lab"}
    told = cluster.det("e", "create", str(config), "--dry-run", *words)
    assert f"checkpoint_storage.bucket: lab (from workspace {place})" in told.stderr
    for verb in ("archive", "unarchive"):
        said(cluster, "p", verb, number, "digits")
        said(cluster, "w", verb, number)
    said(cluster, "p", "edit", number, "digits", "--name", "numbers")
    assert said(cluster, "p", "describe", number, "NUMBERS")["name"] == "numbers"
    said(cluster, "p", "delete", number, "numbers", "-y")
    said(cluster, "w", "delete", number, "-y")


def test_tasks_of_a_team_by_commands_and_in_python(cluster: Cluster, ben: Client) -> None:
    made = said(cluster, "w", "create", "of tasks", "--description", "x")
    number, place = str(made["id"]), f"{made['owner']}/of tasks"
    said(cluster, "p", "create", "of tasks", "digits")
    given = "{environment_variables: [TEAM=tasks]}"
    said(cluster, "w", "set-defaults", number, "--environment", given)
    said(cluster, "workspace", "add-member", number, "--user", "ben", "--role", "editor")
    words = ("-w", "of tasks", "--project", "digits")
    assert "make it: det workspace create" in refused(cluster, "cmd", "run", "-w", "nowhere", "--", "true")
    ran = cluster.det(
        "cmd", "run", "--slots", "0", "--name", "hers", "--detach", "--json", *words, "--", "sleep", "600"
    )
    assert ran.returncode == 0, ran.stderr
    assert "TEAM=tasks" in ran.stderr
    assert f"(from workspace {place})" in ran.stderr
    task = json.loads(ran.stdout)["id"]
    try:
        for group in ("cmd", "task"):
            assert [one["id"] for one in said(cluster, group, "list", *words)] == [task]
        assert "workspace" in cluster.det("cmd", "describe", task, check=True).stdout
        (seen,) = ben.list_tasks(workspace=place, project="digits")
        assert (seen.id, seen.view.opens, seen.view.may, seen.url) == (task, False, "read", None)
        assert task not in [one.id for one in ben.list_tasks()], "what is not asked for by its place is his own"
        with pytest.raises(Forbidden, match="see its state"):
            seen.logs()
        with pytest.raises(Forbidden, match="admins of its workspace"):
            seen.kill()
        mine = ben.create_task("command", {"entrypoint": ["true"], "resources": {"slots": 0}}, workspace=place)
        assert mine.view.workspace == place
        mine.move()
        assert mine.view.workspace == ""
        moved = cluster.det("cmd", "move", task, check=True).stdout
        assert f"Moved command {task} to your personal workspace" in moved
        with pytest.raises(NotFound):
            ben.get_task(task)
        quota = said(cluster, "quota", "set", "--workspace", "of tasks", "--slots", "3")
        # Other tests of this cluster have quotas of others.
        assert [one["slots"] for one in quota if one.get("workspace") == place] == [3]
        assert place in cluster.det("quota", "list", check=True).stdout
        left = said(cluster, "quota", "remove", "-w", number)
        assert not [one for one in left if one.get("workspace") == place]
        assert "slots alone" in refused(cluster, "quota", "set", "-w", number, "--storage", "1G")
        assert "name exactly one" in refused(cluster, "quota", "set", "-w", number, "--user", "ben", "--slots", "1")
    finally:
        cluster.det("cmd", "kill", task)
    said(cluster, "w", "delete", number, "-y")


def test_det_tells_a_stranger_nothing_of_a_task_and_lets_a_viewer_do_nothing_to_it(cluster: Cluster) -> None:
    """The commands of tasks, as ben gives them: to what is nobody's, and to what is not his, the same answer."""
    his = {"DET_URL": cluster.url, "DET_TOKEN": cluster.make_token("custom:detlab:write", user="ben")}
    ben = replace(cluster, extra={**cluster.extra, **his})
    number = str(said(cluster, "w", "create", "quiet")["id"])
    place = f"{cluster.user}/quiet"
    words = (
        "--slots",
        "0",
        "--name",
        "hers-alone",
        "--detach",
        "-w",
        "quiet",
        "--",
        "sh",
        "-c",
        "echo keyword; sleep 600",
    )
    task = said_with(cluster, "cmd", "run", "--json", *words)["id"]
    asks = [
        (group, verb)
        for group, verbs in {
            "task": ("describe", "logs", "kill", "move"),
            "cmd": ("describe", "logs", "kill", "move"),
            "shell": ("open", "logs", "kill"),
            "notebook": ("open", "logs", "kill"),
            "job": ("why",),
        }.items()
        for verb in verbs
    ]
    nobodys = "command-0123456789ab"
    try:
        for group, verb in asks:
            told, unknown = refused(ben, group, verb, task), refused(ben, group, verb, nobodys)
            assert told.replace(task, nobodys) == unknown, (group, verb)
            named = refused(ben, group, verb, "hers-alone")
            assert "hers-alone" not in named.replace("'hers-alone'", ""), (group, verb)
        for group in ("task", "cmd", "job"):
            assert task not in ben.det(group, "list", check=True).stdout
        assert "there is no workspace" in refused(ben, "task", "list", "-w", place)
        assert "there is no workspace" in refused(ben, "cmd", "run", "-w", place, "--", "true")
        assert "there is no workspace" in refused(ben, "notebook", "start", "-w", place)
        said(cluster, "workspace", "add-member", number, "--user", "ben", "--role", "viewer")
        assert [one["id"] for one in said(ben, "task", "list", "-w", place)] == [task]
        shown = ben.det("task", "describe", task, check=True).stdout
        assert "keyword" not in shown
        assert f"Only {cluster.user} opens it" in shown
        for group in ("task", "cmd"):
            assert "not what is in it" in refused(ben, group, "logs", task)
            assert "admins of its workspace may end it" in refused(ben, group, "kill", task)
            assert "may move it" in refused(ben, group, "move", task)
        for start in (("cmd", "run", "-w", place, "--", "true"), ("shell", "start", "-w", place)):
            assert "takes the role editor" in refused(ben, *start)
        said(cluster, "workspace", "remove-member", number, "--user", "ben")
        for group, verb in asks:
            assert refused(ben, group, verb, task).replace(task, nobodys) == refused(ben, group, verb, nobodys)
    finally:
        cluster.det("cmd", "kill", task)
    said(cluster, "w", "delete", number, "-y")


def said_with(cluster: Cluster, *words: str) -> Any:
    """What a command prints as JSON that has `--json` among its words, before those of another command."""
    return json.loads(cluster.det(*words, check=True).stdout)


def test_a_team_in_python(cluster: Cluster, ben: Client) -> None:
    with Client(cluster.url, cluster.token) as client:
        place = client.create_workspace("in python")
        project = place.create_project("digits", notes="# Notes")
        assert [one.name for one in place.list_projects()] == ["digits"]
        assert (project.notes, project.workspace_id) == ("# Notes", place.id)
        with pytest.raises(NotFound):
            ben.get_workspace(place.reference)
        place.add_member(user="ben")
        assert ben.get_workspace(place.reference).role == "viewer"
        with pytest.raises(Forbidden):
            ben.create_experiment({**CONFIG, "workspace": place.reference})
        with pytest.raises(ConfigError, match="you have no workspace"):
            ben.create_experiment({**CONFIG, "workspace": "in python"})
        experiment = client.create_experiment(CONFIG)
        experiment.move_to_project(project.id)
        assert [one.id for one in ben.list_experiments(project_id=project.id)] == [experiment.id]
        assert [one.id for one in ben.list_experiments(workspace=place.id, project="digits")] == [experiment.id]
        with pytest.raises(Conflict):
            place.delete()
        experiment.move()
        place.remove_member(user="ben")
        assert place.id not in {one.id for one in ben.list_workspaces()}
        project.delete()
        place.delete()


async def test_the_asynchronous_client_has_the_same(cluster: Cluster) -> None:
    async with AsyncClient(cluster.url, cluster.token) as client:
        place = await client.create_workspace("asynchronously")
        project = await place.create_project("digits")
        await project.set_description("handwritten")
        assert (await (await place.get_project("digits")).reload()).description == "handwritten"
        await place.delete()
