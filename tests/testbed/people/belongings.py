"""What a user has in a cluster, a thing of each kind that has an address of its own, to be asked for by others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from detlab.client import Client
from testbed.cluster import Cluster
from testbed.people.callers import task_token

OCTETS = {"Content-Type": "application/octet-stream"}
MARK = "operators-own"
"""In the name of everything, and in every file."""
FILE = f"{MARK}: one text for the code, the checkpoint and the output, so that one digest names all three\n"
DIGEST = "sha256:" + hashlib.sha256(FILE.encode()).hexdigest()
POLICY = {
    "version": 1,
    "enforce": "audit",
    "sources": [{"name": MARK}],
    "rules": [{"source": "*", "layers": ".*", "scale": 1.0}],
}
TRIAL = f"""
import pathlib
import detlab as det
from detlab.core.checkpoint import evidence
from detlab.governance import Policy, TrainedParameter, compile_policy

plan = compile_policy(Policy.of({POLICY}), [TrainedParameter("layer.weight", (2, 2))])
segment = {{"policy_hash": plan.policy_hash, "s_hash": plan.s_hash, "counts": {{"{MARK}": 8}}}}
with det.core.init() as core:
    core.alert("{MARK}", "{MARK}")
    core.train.report_validation_metrics(1, {{"x": 1.0}})
    core.train.report_media(1, {{"{MARK}": det.Html("<p>{MARK}</p>")}})
    evidence.record_matrix(core.checkpoint, plan.matrix.body())
    with core.checkpoint.store_path({{"steps_completed": 1, "governance": segment}}) as (folder, _):
        (folder / "own.txt").write_bytes(pathlib.Path("own.txt").read_bytes())
"""
CONFIG = {
    "name": MARK,
    "description": MARK,
    "entrypoint": ["python3", "own.py"],
    "searcher": {"name": "single", "metric": "x", "max_length": 1},
    "max_restarts": 0,
}
WAITER = {"entrypoint": ["python3", "-c", "import time; time.sleep(600)"], "resources": {"slots": 0}}


@dataclass(frozen=True)
class Belongings:
    """The operator's own: a governed trial that is over, with its checkpoint; a command that runs, with its output."""

    ids: dict[str, str]
    """What belongs into a route's braces, and the alert of the trial."""
    token: str
    """The command's own."""


def _workspace(cluster: Cluster) -> tuple[str, str]:
    """Return the ids of a workspace and of a project in it, which are made if they are not there."""
    with cluster.client() as http:
        known = {one["name"]: one for one in http.get("workspaces").raise_for_status().json()["items"]}
        place = known.get(MARK) or http.post("workspaces", json={"name": MARK, "description": MARK}).json()
        projects = f"workspaces/{place['id']}/projects"
        there = {one["name"]: one for one in http.get(projects).raise_for_status().json()["items"]}
        project = there.get(MARK) or http.post(projects, json={"name": MARK, "notes": MARK}).json()
        return str(place["id"]), str(project["id"])


def _run(cluster: Cluster) -> dict[str, str]:
    """Return the ids of a run from elsewhere, with a value, a line of output and a file, and of an object of it."""
    lines = [
        {"kind": "metrics", "seq": 1, "time": 1.0, "step": 0, "values": {MARK: 1.0}},
        {"kind": "log", "seq": 2, "time": 1.0, "text": MARK},
    ]
    with cluster.client() as http:
        begun = http.post("runs", json={"key": MARK, "name": MARK, "writer": "own"}).raise_for_status().json()
        run: str = begun["run"]["id"]
        http.post(f"runs/{run}/writers/own/records", json={"records": lines}).raise_for_status()
        about: dict[str, str | int] = {"key": MARK, "step": 1, "kind": "html", "media_type": "text/html"}
        there = http.put(f"runs/{run}/media", params=about, content=FILE, headers=OCTETS).raise_for_status().json()
        files = f"{cluster.service}mlflow/api/2.0/mlflow-artifacts/artifacts/0"
        http.put(f"{files}/{run}/artifacts/own.txt", content=FILE, headers=OCTETS).raise_for_status()
        return {"run_id": run, "object_id": str(there["id"])}


def _artifact(cluster: Cluster, version: int) -> str:
    """Return the id of an artifact with versions up to one, as that of the model."""
    with cluster.client() as http:
        for number in range(1, version + 1):
            names = ("own.txt", *(f"{more}.txt" for more in range(2, number + 1)))
            files = [{"path": name, "size": len(FILE), "digest": DIGEST} for name in names]
            wanted = {"files": files, "comment": MARK}
            http.post(f"artifacts/{MARK}/versions", json=wanted).raise_for_status()
            http.put(f"artifacts/{MARK}/files/{DIGEST}", content=FILE, headers=OCTETS).raise_for_status()
            made = http.post(f"artifacts/{MARK}/versions", json=wanted).raise_for_status().json()
        assert made["version"]["version"] >= version
        return str(made["artifact_id"])


def _told(cluster: Cluster) -> dict[str, str]:
    """Return the ids of a webhook, of a rule for alerts, and of a schedule."""
    with cluster.client() as http:
        known = {one["name"]: one for one in http.get("webhooks").raise_for_status().json()["items"]}
        body = {"name": MARK, "url": "https://93.184.216.34/"}
        hook = known.get(MARK) or http.post("webhooks", json=body).raise_for_status().json()
        rule = http.post("alerts/rules", json={"kind": "alert"}).raise_for_status().json()
        # Due in a far year: it is to start nothing.
        plan = {"name": MARK, "notebook": MARK, "parameters": {MARK: MARK}, "cron": "0 0 29 2 */7"}
        made = http.post("schedules", json=plan).raise_for_status().json()["schedule"]
        return {"webhook": str(hook["id"]), "alert_rule": str(rule["id"]), "schedule": str(made["id"])}


def _of_trial(cluster: Cluster, trial_id: int) -> dict[str, str]:
    """Return the ids of what a trial has recorded: its matrix, and its alert."""
    with cluster.client() as http:
        (entry,) = http.get(f"trials/{trial_id}/ledger").raise_for_status().json()["items"]
        told = http.get("alerts").raise_for_status().json()["items"]
        (alert,) = (one["id"] for one in told if (one["title"], one["trial_id"]) == (MARK, trial_id))
        return {"s_hash": entry["body"]["s_hash"], "alert": str(alert)}


def _configs(cluster: Cluster, place: str) -> None:
    """Set a template of this name, and a policy, in a workspace."""
    template = {"name": MARK, "workspace": place, "config": {"labels": [MARK]}, "description": MARK}
    policy = {"workload": "experiment", "workspace": place, "invariant_config": {"labels": [MARK]}}
    with cluster.client() as http:
        http.put("templates", json=template).raise_for_status()
        http.put("config-policies", json=policy).raise_for_status()


@contextmanager
def belongings(cluster: Cluster) -> Iterator[Belongings]:
    """Make them; the command is ended at the end."""
    with Client(cluster.url, cluster.token) as client:
        place, project = _workspace(cluster)
        task = client.create_task("command", WAITER, name=MARK, workspace=place, project=project)
        _configs(cluster, place)
        governed = {**CONFIG, "governance": POLICY}
        experiment = client.create_experiment(governed, files={"own.py": TRIAL, "own.txt": FILE})
        token = task_token(cluster, task.id)
        stored = httpx.put(
            f"{cluster.service}api/v1/task/outputs/own.txt",
            content=FILE,
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"},
            trust_env=False,
        )
        assert stored.json()["digest"] == DIGEST, stored.text
        assert experiment.wait(60) == "COMPLETED", cluster.logs()
        (trial,) = experiment.list_trials()
        (checkpoint,) = trial.list_checkpoints()
        (media,) = trial.list_media()
        known = {model.name: model for model in client.get_models()}
        model = known.get(MARK) or client.create_model(MARK, MARK)
        version = model.register_version(checkpoint.uuid, comment=MARK, labels=["own"], reason=MARK)
        ids = {
            **_run(cluster),
            **_told(cluster),
            **_of_trial(cluster, trial.id),
            "artifact": _artifact(cluster, version.model_version),
            "workspace": place,
            "project": project,
            "model": str(model.model_id),
            "version": str(version.model_version),
            "label": "own",
            "experiment_id": str(experiment.id),
            "trial_id": str(trial.id),
            "media_id": str(media.id),
            "uuid": checkpoint.uuid,
            "digest": DIGEST,
            "task_id": task.id,
            "job_id": str(experiment.id),
            "slot_id": "cpu0",
        }
        yield Belongings(ids, token)
        task.kill()
