"""Two users of a cluster who own a thing of each kind, in whose every text stands who owns it."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from detlab.client import Client, Experiment
from testbed.cluster import Cluster
from testbed.people.callers import task_token
from testbed.waiting import until

TRIAL = """
import os
import detlab as det

mark = os.environ["MARK"]
print(f"line of {mark}", flush=True)
with det.core.init() as core:
    core.alert(f"alert of {mark}", f"told by {mark}")
    core.train.report_metrics(f"{mark}-group", 1, {f"{mark}-metric": 1.0, f"{mark}-text": mark})
    core.train.report_validation_metrics(1, {"x": 1.0})
    core.train.report_media(1, {f"{mark}-media": det.Html(f"<p>{mark}</p>", caption=f"caption of {mark}")})
    core.train.set_status(f"status of {mark}")
    with core.checkpoint.store_path({"steps_completed": 1, "note": mark}) as (folder, _):
        (folder / f"{mark}.txt").write_text(mark)
"""


@dataclass(frozen=True)
class Tenant:
    """A user, and the ids of what they own."""

    name: str
    mark: str
    """In every text of theirs."""
    token: str
    ids: dict[str, str]
    """What belongs into a route's braces."""
    tasks: tuple[str, ...]

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that nobody else is to see."""
        return (self.mark, f'"{self.name}"', self.ids["uuid"], *self.tasks)


def config_of(mark: str) -> dict[str, Any]:
    """A search of one trial with a text of its owner's in every field that takes one."""
    return {
        "name": f"{mark} experiment",
        "description": f"described by {mark}",
        "labels": [f"{mark}-label"],
        "workspace": f"{mark} workspace",
        "project": f"{mark} project",
        "data": {"path": f"/{mark}/data"},
        "environment": {"environment_variables": [f"MARK={mark}"]},
        "hyperparameters": {f"{mark}_lr": 0.5},
        "log_policies": [{"pattern": f".*line of {mark}.*", "name": f"{mark} policy"}],
        "entrypoint": ["python3", f"{mark}.py"],
        "searcher": {"name": "single", "metric": "x", "max_length": 1},
        "max_restarts": 0,
    }


@contextmanager
def tenant(cluster: Cluster, name: str, mark: str) -> Iterator[Tenant]:
    """Let a user make a thing of each kind; tasks are ended at the end."""
    token = cluster.make_token("custom:detlab:write", user=name)
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(Client(cluster.url, token))
        place = _workspace(cluster, token, mark)
        told = _told(cluster, token, mark, place["workspace_id"])
        experiment = client.create_experiment(config_of(mark), files={f"{mark}.py": TRIAL})
        tasks = list(_tasks(client, mark, experiment.id))
        for task in tasks:
            stack.callback(task.kill)
        digest = _output(cluster, tasks[0].id, mark)
        assert experiment.wait(60) == "COMPLETED", cluster.logs()
        _share(cluster, token, experiment)
        (trial,) = experiment.list_trials()
        (checkpoint,) = trial.list_checkpoints()
        (media,) = trial.list_media()
        ids = {
            "experiment_id": str(experiment.id),
            "trial_id": str(trial.id),
            "media_id": str(media.id),
            "uuid": checkpoint.uuid,
            "digest": digest,
            "task_id": tasks[0].id,
            "job_id": tasks[0].id,
            "workspace": str(place["workspace_id"]),
            "project": str(place["id"]),
            **told,
        }
        yield Tenant(name, mark, token, ids, tuple(task.id for task in tasks))


def _workspace(cluster: Cluster, token: str, mark: str) -> dict[str, Any]:
    """Make what the config names, with members; return the project."""
    with cluster.client(token) as http:
        made = http.post("workspaces", json={"name": f"{mark} workspace", "description": f"described by {mark}"})
        place = f"workspaces/{made.raise_for_status().json()['id']}"
        members = {"kind": "group", "name": "nobodys-group", "role": "admin"}
        http.put(f"{place}/members", json=members).raise_for_status()
        project = {"name": f"{mark} project", "description": f"described by {mark}", "notes": f"notes of {mark}"}
        found: dict[str, Any] = http.post(f"{place}/projects", json=project).raise_for_status().json()
        return found


def _told(cluster: Cluster, token: str, mark: str, place: int) -> dict[str, str]:
    """Set a template, a policy, a webhook, a rule and a schedule there; return the ids of the last three."""
    template = {"name": f"{mark} template", "workspace": str(place), "description": f"described by {mark}"}
    policy = {"workload": "experiment", "workspace": str(place), "invariant_config": {"labels": [f"{mark}-policy"]}}
    hook = {"name": f"{mark} hook", "url": f"https://93.184.216.34/{mark}", "workspace": str(place)}
    with cluster.client(token) as http:
        http.put("templates", json={**template, "config": {"labels": [f"{mark}-template"]}}).raise_for_status()
        http.put("config-policies", json=policy).raise_for_status()
        made = http.post("webhooks", json=hook).raise_for_status().json()
        rule = {"kind": "failed", "workspace": str(place), "webhook": made["id"]}
        rule_id = http.post("alerts/rules", json=rule).raise_for_status().json()["id"]
        plan = {"name": f"{mark} schedule", "notebook": f"/{mark}/n.ipynb", "parameters": {mark: mark}}
        where = {"workspace": str(place), "project": f"{mark} project"}
        plan |= {"config": {**where, "description": f"described by {mark}"}, "cron": "0 0 29 2 */7"}
        planned = http.post("schedules", json=plan).raise_for_status().json()["schedule"]["id"]
        return {"webhook": str(made["id"]), "alert_rule": str(rule_id), "schedule": str(planned)}


def _tasks(client: Client, mark: str, experiment_id: int) -> Iterator[Any]:
    """One of each kind that the master runs, with the first one running, and a server of the Hub."""
    waits = ["python3", "-c", f"import time; print('line of {mark}', flush=True); time.sleep(600)"]
    place = {"workspace": f"{mark} workspace", "project": f"{mark} project"}
    block = {"entrypoint": waits, "description": f"described by {mark}", "resources": {"slots": 0}, **place}
    yield client.create_task("command", block, name=f"{mark} command")
    yield client.create_task("command", {**block, "resources": {"slots": 1}}, name=f"{mark} with slots")
    shown = {"description": f"described by {mark}", "resources": {"slots": 0}, **place}
    yield client.create_task("tensorboard", shown, name=f"{mark} tensorboard", experiment_ids=[experiment_id])


def _output(cluster: Cluster, task_id: str, mark: str) -> str:
    text = f"output of {mark}"
    headers = {"Authorization": f"Bearer {task_token(cluster, task_id)}", "Content-Type": "application/octet-stream"}
    where = f"{cluster.service}api/v1/task/outputs/{mark}.txt"
    httpx.put(where, content=text, headers=headers, trust_env=False).raise_for_status()
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _share(cluster: Cluster, token: str, experiment: Experiment) -> None:
    with cluster.client(token) as http:
        body = {"kind": "group", "name": "nobodys-group", "write": False}
        http.put(f"experiments/{experiment.id}/grants", json=body).raise_for_status()


def deleted_experiment(cluster: Cluster, owner: Tenant) -> tuple[int, int]:
    """Ids of an experiment and its trial that were there and are not any more."""
    with Client(cluster.url, owner.token) as client, cluster.client(owner.token) as http:
        experiment = client.create_experiment(config_of(owner.mark), files={f"{owner.mark}.py": TRIAL})
        (trial,) = until(lambda: list(experiment.list_trials()), cluster.logs)
        http.post(f"experiments/{experiment.id}/kill").raise_for_status()
        experiment.wait(60)
        http.delete(f"experiments/{experiment.id}").raise_for_status()
        return experiment.id, trial.id
