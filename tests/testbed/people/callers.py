"""Everybody who may call a cluster's master, by an Authorization header of each kind."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from testbed.cluster import Cluster
from testbed.waiting import until

NO_TOKENS = frozenset({"garbage", "malformed", "old task"})
"""Kinds whose header holds no secret of anybody's."""
SLEEPER = {
    "name": "sleeper",
    "entrypoint": ["python3", "-c", "import time; time.sleep(600)"],
    "searcher": {"name": "single", "metric": "x", "max_length": 1},
    "max_restarts": 0,
}


def task_token(cluster: Cluster, of: int | str) -> str:
    """The token of the running trial of an experiment, or of a running user task, from its task's directory."""
    folder = cluster.folder / "agent" / "tasks"

    def running() -> list[Path]:
        found = [path for path in folder.glob(f"{of}.*/token") if path.stat().st_size]
        return [path for path in found if (path.parent / "launcher.json").exists()]

    return until(running, cluster.logs)[0].read_text().strip()


@contextmanager
def bearers(cluster: Cluster) -> Iterator[dict[str, str]]:
    """One Authorization header per kind of caller, all of them real; the task is ended at the end."""
    with cluster.client() as client:
        enrolment = client.post("agents/enrolments", json={"ttl": 600}).json()["token"]
        made = httpx.post(
            f"{cluster.service}api/v1/agents/enrol",
            json={"agent_id": f"caller-{uuid.uuid4()}"},
            headers={"Authorization": f"Bearer {enrolment}"},
            trust_env=False,
        )
        experiment = client.post("experiments", json={"config": SLEEPER}).json()["experiment"]["id"]
    yield {
        "garbage": "Bearer nonsense",
        "malformed": "Basic cm9vdDpyb290",
        "old task": "Bearer dttask_" + "x" * 43,
        "other scopes": f"token {cluster.make_token('read:users!user')}",
        "read": f"token {cluster.make_token('custom:detlab:read')}",
        "write": f"Bearer {cluster.make_token('custom:detlab:write')}",
        "admin": f"bearer {cluster.token}",
        "agent": f"Bearer {made.json()['token']}",
        "enrolment": f"Bearer {enrolment}",
        "task": f"Bearer {task_token(cluster, experiment)}",
        "spawners": f"Bearer {(cluster.folder / 'secrets' / 'spawner_token').read_text().strip()}",
    }
    with cluster.client() as client:
        client.post(f"experiments/{experiment}/kill")
