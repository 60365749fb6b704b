"""Callers whose token was good once: it expired, was revoked, its task is over, or its attempt was replaced.

Of those that the Hub knows none has been used: the master may take the Hub's word for half a minute, whatever becomes
of the token meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx

from detlab.client import Client
from detlab.launch.host import procfs
from testbed.cluster import Cluster
from testbed.people.belongings import WAITER
from testbed.people.callers import SLEEPER, task_token
from testbed.waiting import until

SOON = 1
"""Seconds that the short-lived ones live."""


def ended_bearers(cluster: Cluster) -> dict[str, str]:
    """One Authorization header per way to end; none is worth anything any more."""
    with cluster.client() as operator, cluster.hub() as hub, Client(cluster.url, cluster.token) as client:
        made = {
            "expired enrolment": operator.post("agents/enrolments", json={"ttl": SOON}).json()["token"],
            "expired Hub": _hub_token(cluster, hub, expires_in=SOON)["token"],
        }
        born = time.monotonic()
        task = client.create_task("command", WAITER)
        made["revoked Hub"] = _revoked_hub_token(cluster, hub)
        made["revoked enrolment"] = operator.post("agents/enrolments", json={"ttl": 600}).json()["token"]
        made["revoked agent"] = _enrolled(cluster, made["revoked enrolment"], f"revoked-{uuid.uuid4()}")
        sent_away = f"sent-away-{uuid.uuid4()}"
        made["agent sent away"] = _enrolled(cluster, made["revoked enrolment"], sent_away)
        for kind in ("revoked enrolment", "revoked agent"):
            operator.delete(f"tokens/{_digest(made[kind])[:12]}").raise_for_status()
        operator.delete(f"agents/{sent_away}").raise_for_status()

        made["ended task"] = task_token(cluster, task.id)
        made["expired task"] = _renewed(cluster, made["ended task"])
        _let_an_hour_pass(cluster, made["expired task"])
        assert _status(cluster, made["expired task"]) == 401
        assert _status(cluster, made["ended task"]) == 200
        task.kill()
        until(lambda: _status(cluster, made["ended task"]) != 200, "the end of the task")
        time.sleep(max(0.0, born + SOON + 0.5 - time.monotonic()))
    return {kind: f"Bearer {token}" for kind, token in made.items()}


@contextmanager
def replaced_bearer(cluster: Cluster) -> Iterator[str]:
    """The Authorization header of a trial's attempt that was killed, has been used before, and whose successor runs."""
    with Client(cluster.url, cluster.token) as client:
        experiment = client.create_experiment({**SLEEPER, "name": "replaced", "max_restarts": 1})
        token = task_token(cluster, experiment.id)
        (first,) = _task_dirs(cluster, experiment.id)
        assert _status(cluster, token) == 200
        _kill_program(first)
        trial = experiment.await_first_trial(60)
        until(lambda: len(_task_dirs(cluster, experiment.id) - {first}) == 1, cluster.logs)
        until(lambda: client.get_trial(trial.id).view.allocation_state == "RUNNING", cluster.logs)
        yield f"Bearer {token}"
        view = client.get_trial(trial.id).view
        assert (view.run, view.state, view.allocation_state) == (2, "ACTIVE", "RUNNING"), "the successor is unharmed"
        experiment.kill()


def _task_dirs(cluster: Cluster, experiment: int) -> set[Path]:
    """Of the attempts of an experiment's trials that were launched and are not cleared away."""
    return {path.parent for path in (cluster.folder / "agent" / "tasks").glob(f"{experiment}.*/launcher.json")}


def _kill_program(task: Path) -> None:
    """End what a task runs, which its launcher reports."""
    launcher = int(json.loads((task / "launcher.json").read_text())["pid"])

    def killed() -> bool:
        program = [process for process in procfs.task_processes(task, None, None) if process.pid != launcher]
        return bool(procfs.send_signal(program, signal.SIGKILL)) if program else False

    until(killed, "the program does not start")


def _hub_token(cluster: Cluster, hub: httpx.Client, expires_in: int) -> dict[str, str]:
    body = {"scopes": ["custom:detlab:admin"], "expires_in": expires_in}
    found: dict[str, str] = hub.post(f"users/{cluster.user}/tokens", json=body).raise_for_status().json()
    return found


def _revoked_hub_token(cluster: Cluster, hub: httpx.Client) -> str:
    made = _hub_token(cluster, hub, expires_in=600)
    hub.delete(f"users/{cluster.user}/tokens/{made['id']}").raise_for_status()
    return made["token"]


def _ask(cluster: Cluster, verb: str, path: str, token: str, json: object = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{cluster.service}api/v1/{path}"
    return httpx.request(verb, url, headers=headers, trust_env=False, timeout=20, json=json)


def _enrolled(cluster: Cluster, enrolment: str, agent: str) -> str:
    return str(
        _ask(cluster, "POST", "agents/enrol", enrolment, json={"agent_id": agent}).raise_for_status().json()["token"]
    )


def _status(cluster: Cluster, token: str) -> int:
    return _ask(cluster, "GET", "task/preempt?timeout_seconds=0", token).status_code


def _renewed(cluster: Cluster, token: str) -> str:
    return str(_ask(cluster, "POST", "task/token", token).raise_for_status().json()["token"])


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _let_an_hour_pass(cluster: Cluster, token: str) -> None:
    """For this token alone: its row says that it ended a second ago. It has not been used since it was made."""
    path = cluster.folder / "db" / "detlab.sqlite"
    with closing(sqlite3.connect(path, timeout=20)) as database, database:
        changed = database.execute(
            "UPDATE tokens SET expires_at = ? WHERE hash = ? AND expires_at > ?",
            (time.time() - 1, _digest(token), time.time() + 600),
        )
        assert changed.rowcount == 1
