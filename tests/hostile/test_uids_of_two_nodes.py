"""Two nodes as the guide sets them up: who runs on the second one first is not the user who ran on the first one first.

Agents that assigned uids by themselves gave the same one, 20000, to both, and with it the other's checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detlab.client import Client
from detlab.client.resources import Experiment
from testbed.agents import Agent, printed_agent
from testbed.cluster import Cluster

pytestmark = pytest.mark.hub
SAVES = """
import os
import detlab as det
with det.core.init() as core:
    with core.checkpoint.store_path({"steps_completed": 1}) as (folder, uuid):
        (folder / "weights").write_text("private")
    core.train.report_validation_metrics(1, {"error": 1.0})
print("uid", os.getuid())
"""
PRIES = """
import os, pathlib, shutil, sys
folder = pathlib.Path(sys.argv[1])
def attempt(name, act):
    try:
        act()
    except OSError as error:
        print(name, "refused", error.errno)
    else:
        print(name, "done")
attempt("list", lambda: list(folder.iterdir()))
attempt("read", lambda: (folder / "weights").read_bytes())
attempt("write", lambda: (folder / "weights").write_text("mine"))
attempt("add", lambda: (folder / "more").write_text("mine"))
attempt("rename", lambda: folder.rename(folder.with_name("taken")))
attempt("delete", lambda: shutil.rmtree(folder))
print("uid", os.getuid())
"""


def run(cluster: Cluster, user: str, code: str, *arguments: str, node: str = "") -> tuple[Experiment, list[str]]:
    """Run a program as a user's trial, on a node with a label; return it and what it printed."""
    config: dict[str, Any] = {
        "name": f"{user}'s",
        "entrypoint": ["python3", "-c", code, *arguments],
        "searcher": {"name": "single", "metric": "error"},
        "max_restarts": 0,
        "resources": {"slots_per_trial": 1, "constraints": {"labels": {"node": node}} if node else {}},
    }
    scopes = ("custom:detlab:read", "custom:detlab:write", "read:users!user")
    with Client(cluster.url, cluster.make_token(*scopes, user=user)) as client:
        ended = client.create_experiment(config)
        ended.wait(60)
        (trial,) = ended.list_trials()
        lines = [line.text for line in trial.logs()]
    return ended, lines


def uid_in(lines: list[str]) -> int:
    (found,) = [int(line.split()[1]) for line in lines if line.startswith("uid ")]
    return found


@pytest.fixture(scope="module")
def first(cluster: Cluster) -> tuple[Path, int]:
    """Ada's checkpoint, made on the first node while there was no other, and her uid there."""
    ended, lines = run(cluster, "ada", SAVES)
    with Client(cluster.url, cluster.token) as client:
        (checkpoint,) = client.get_experiment(ended.id).list_checkpoints()
    folder = cluster.folder / "checkpoints" / checkpoint.uuid
    assert (folder / "weights").read_text() == "private", lines
    return folder, uid_in(lines)


@pytest.fixture(scope="module")
def second(cluster: Cluster, open_folder: Path, first: tuple[Path, int]) -> Iterator[Agent]:
    """A second node, by the printed command, on which nobody ran yet."""
    printed = cluster.det("agent", "enrol")
    command = f"{printed.stderr.rpartition('→')[2].strip()} --label node=two"
    folder = open_folder / "second"
    folder.mkdir(mode=0o755)
    with printed_agent(command, printed.stdout.strip(), folder, "second", cluster.environment) as agent:
        agent.until_it_says("connected to cluster")
        yield agent


def test_who_runs_on_the_second_node_first_has_nothing_of_who_ran_on_the_first(
    cluster: Cluster, first: tuple[Path, int], second: Agent
) -> None:
    folder, adas = first
    _, lines = run(cluster, "mallory", PRIES, str(folder), node="two")
    outcomes = dict(line.split(maxsplit=1) for line in lines if line.split()[0] in PRIES)
    mallorys = int(outcomes.pop("uid"))
    assert mallorys != adas
    assert outcomes.keys() == {"list", "read", "write", "add", "rename", "delete"}, lines
    assert {outcome.split()[0] for outcome in outcomes.values()} == {"refused"}, outcomes
    assert [(path.name, path.read_text()) for path in folder.iterdir() if path.name == "weights"] == [
        ("weights", "private")
    ]
    assert folder.stat().st_uid == adas
    assert cluster.uids["ada"] == adas
    assert cluster.uids["mallory"] == mallorys


def test_each_user_has_the_same_uid_on_both_nodes(cluster: Cluster, first: tuple[Path, int], second: Agent) -> None:
    _, lines = run(cluster, "ada", SAVES, node="two")
    assert uid_in(lines) == first[1]
