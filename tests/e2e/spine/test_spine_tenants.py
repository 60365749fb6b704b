"""I9: no tenant sees another's data: over the API, on the node, with a task's token."""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from spine_lab import TRIALS, Lab, is_root, lab_of, landing_page, single, task_dir, until

from detlab.client.resources import Experiment, Trial
from detlab.errors import Forbidden, NotFound
from testbed.cluster import Cluster

pytestmark = pytest.mark.hub


@dataclass
class Tenant:
    """A user with an ended experiment that made a checkpoint."""

    lab: Lab
    experiment: Experiment
    trial: Trial

    @property
    def checkpoint(self) -> Path:
        """Where one of its checkpoints lies."""
        found = self.trial.list_checkpoints()[0]
        return self.lab.cluster.folder / "checkpoints" / found.uuid

    def outcomes(self) -> dict[str, str]:
        """What a `pries.py` trial could read: path -> outcome."""
        lines = [line.text.split(maxsplit=2) for line in self.trial.logs() if line.text.startswith("PRY ")]
        return {words[1]: words[2] for words in lines}


@pytest.fixture(scope="module")
def ada(cluster: Cluster) -> Iterator[Tenant]:
    """Ada: her task holds still while others try to read it."""
    with lab_of(cluster, "ada") as lab:
        hparams = {"steps": 100_000, "save_every": 1, "pause": 0.2}
        experiment = lab.submit(single("toy.py", hparams=hparams, name="ada's own"))
        trial = lab.at_step(lab.first_trial(experiment), 2)
        yield Tenant(lab, experiment, trial)
        experiment.kill()


def test_i9_no_tenant_sees_anothers_data_over_the_api(cluster: Cluster, ada: Tenant, lab: Lab) -> None:
    (checkpoint, *_) = ada.trial.list_checkpoints()
    digest = next(iter(checkpoint.files.values())).digest
    with lab_of(cluster, "ben") as ben, ben.api() as api:
        mine = ben.run(single("dies_on_start.py", name="ben's own"))
        seen = ben.client.list_experiments()
        assert mine.id in [item.id for item in seen]
        assert {item.view.owner for item in seen} == {"ben"}
        assert ben.client.list_experiments(owner="ada") == []
        experiment, trial, uuid = ada.experiment.id, ada.trial.id, checkpoint.uuid
        for path in (
            f"experiments/{experiment}",
            f"experiments/{experiment}/trials",
            f"experiments/{experiment}/curves",
            f"experiments/{experiment}/checkpoints",
            f"experiments/{experiment}/bundle",
            f"experiments/{experiment}/stream",
            f"trials/{trial}",
            f"trials/{trial}/metrics",
            f"trials/{trial}/values",
            f"trials/{trial}/logs",
            f"trials/{trial}/logs/stream",
            f"trials/{trial}/checkpoints",
            f"checkpoints/{uuid}",
            f"checkpoints/{uuid}/files/{digest}",
            f"checkpoints/{uuid}/archive",
        ):
            assert api.get(path).status_code == 404, path
        for path in (
            *(f"experiments/{experiment}/{verb}" for verb in ("pause", "cancel", "kill")),
            f"trials/{trial}/kill",
        ):
            assert api.post(path).status_code == 404, path
        assert api.delete(f"experiments/{experiment}").status_code == 404
        assert api.post("cluster/drain", json={"timeout": 1}).status_code == 403
        assert api.post("agents/enrolments", json={"ttl": 60}).status_code == 403
        warm = single("toy.py")
        warm["searcher"]["source_checkpoint_uuid"] = uuid
        with pytest.raises(Exception, match=r"source_checkpoint_uuid|no checkpoint"):
            ben.submit(warm)
        owners = {event["data"].get("owner") for event in all_events(api) if event["kind"] == "experiment"}
        assert owners == {"ben"}
        page = landing_page(cluster, "ben")
        assert "ben&#x27;s own" in page or "ben&#39;s own" in page or "ben's own" in page
        assert not re.search(r"\bada\b", page)
    assert ada.lab.trial(ada.trial).view.state == "ACTIVE"
    listed = ada.lab.client.list_experiments()  # other tests of this cluster have theirs, too
    assert ada.experiment.id in [item.id for item in listed]
    assert {item.view.owner for item in listed} == {"ada"}
    assert lab.client.get_experiment(ada.experiment.id).view.owner == "ada", "the operator sees everybody's"


def test_i9_what_is_shared_with_a_group_of_the_hub_is_seen_by_who_is_in_it(cluster: Cluster, ada: Tenant) -> None:
    team = f"vision {uuid.uuid4()}"
    with cluster.hub() as hub:
        for path, body in ((f"groups/{team}", None), (f"groups/{team}/users", {"users": ["ben"]})):
            hub.post(path, json=body).raise_for_status()
    experiment = ada.experiment.id
    with lab_of(cluster, "ben") as ben, lab_of(cluster, "cleo") as cleo:
        for other in (ben, cleo):
            with pytest.raises(NotFound):
                other.client.get_experiment(experiment)
        ada.experiment.share(group=team)
        seen = ben.client.get_experiment(experiment)
        assert seen.list_trials()[0].id == ada.trial.id
        assert experiment in [item.id for item in ben.client.list_experiments()]
        assert [grant.name for grant in seen.list_grants()] == [team]
        for action in (seen.kill, seen.delete, lambda: seen.share(user="cleo")):
            with pytest.raises(Forbidden, match="ada"):
                action()
        with pytest.raises(NotFound):
            cleo.client.get_experiment(experiment)
        ada.experiment.share(user="cleo", write=True)
        theirs = cleo.client.get_experiment(experiment)
        theirs.pause()
        theirs.activate()
        follow_until_it_is_cut(cleo, experiment, lambda: ada.experiment.unshare(user="cleo"))
        ada.experiment.unshare(group=team)
        for other in (ben, cleo):
            with pytest.raises(NotFound):
                other.client.get_experiment(experiment)


@pytest.mark.skipif(not is_root(), reason="only an agent that is root gives each user's tasks a uid of their own")
def test_i9_a_trial_starts_from_a_shared_checkpoint_whose_files_its_user_cannot_open(
    cluster: Cluster, ada: Tenant
) -> None:
    """They belong to another uid, which lets nobody read them: the master hands them over, as a download does."""
    source = ada.trial.list_checkpoints()[0]
    step = source.steps_completed
    ada.experiment.share(user="ben")
    with lab_of(cluster, "ben") as ben:
        config = single("toy.py", name="goes on from ada's", hparams={"steps": step + 3})
        config["searcher"]["source_checkpoint_uuid"] = source.uuid
        ended = ben.completed(ben.submit(config))
        reported = [one.steps_completed for one in ben.first_trial(ended).iter_metrics("validation")]
        assert min(reported) == step + 1, "it went on from ada's weights"
    ada.experiment.unshare(user="ben")


def follow_until_it_is_cut(lab: Lab, experiment: int, cut: Callable[[], object]) -> None:
    """Read an experiment's stream; after `cut` not even its keep-alives (5 s) come any more."""
    with (
        lab.api() as api,
        api.stream("GET", f"experiments/{experiment}/stream", params={"after": 0}, timeout=8) as reply,
    ):
        lines = reply.iter_lines()
        assert json.loads(next(lines))["experiment_id"] == experiment
        cut()
        with pytest.raises(httpx.TransportError):
            read_all(lines)


def read_all(lines: Iterator[str]) -> None:
    for line in lines:
        assert not line or json.loads(line)


def all_events(api: httpx.Client) -> list[dict[str, Any]]:
    """What the stream of all experiments says about the past, until it has nothing more to say."""
    found = []
    try:
        with api.stream("GET", "stream", params={"after": 0}, timeout=1.0) as reply:
            for line in reply.iter_lines():
                if line:
                    found.append(json.loads(line))
    except httpx.ReadTimeout:
        assert found
    return found


@pytest.mark.skipif(not is_root(), reason="only an agent that is root serves several users")
def test_i9_no_tenants_task_reads_anothers_files_or_the_masters_secrets(cluster: Cluster, ada: Tenant) -> None:
    theirs = task_dir(cluster, ada.trial)
    secrets = cluster.folder / "secrets"
    paths = {
        "their task": theirs,
        "their token": theirs / "token",
        "their spool": theirs / "spool" / "metrics.jsonl",
        "their code": theirs / "work" / "toy.py",
        "their checkpoint": ada.checkpoint,
        "their state": ada.checkpoint / "state.json",
        "secrets": secrets,
        "user_token": secrets / "user_token",
        "password": secrets / "admin_password",
        "enrolment": secrets / "enrolment_token",
        "database": cluster.folder / "db" / "detlab.sqlite",
        "hub database": cluster.folder / "db" / "jupyterhub.sqlite",
        "bundles": cluster.folder / "bundles",
        "agent key": cluster.folder / "agent" / "key.json",
        "tasks": cluster.folder / "agent" / "tasks",
        "plan": cluster.folder / "plan.json",
        "master log": cluster.folder / "logs" / "master.log",
        "environment of the master": Path(f"/proc/{cluster.pid('master')}/environ"),
        "passwords of the machine": Path("/etc/shadow"),
    }
    assert all(path.exists() for name, path in paths.items() if name != "agent key")
    with lab_of(cluster, "ben") as lab:
        hparams = {"paths": [str(path) for path in paths.values()]}
        ended = lab.completed(lab.submit(single("pries.py", hparams=hparams)))
        ben = Tenant(lab, ended, lab.first_trial(ended))
        outcomes = ben.outcomes()
        for name, path in paths.items():
            assert outcomes[str(path)].startswith("refused"), f"{name}: {outcomes[str(path)]}"
        uids = cluster.uids
        assert outcomes["uid"] == str(uids["ben"])
        assert uids["ben"] != uids["ada"]
        assert theirs.stat().st_uid == uids["ada"]
        assert theirs.stat().st_mode & 0o777 == 0o700
        assert ben.checkpoint.stat().st_uid == uids["ben"]
        seen = {line.text.split()[1] for line in ben.trial.logs() if line.text.startswith("PRY-ENV ")}
        assert "PATH" in seen
        assert not {name for name in seen if "TOKEN" in name or "SECRET" in name or name.startswith("JUPYTERHUB")}


def test_i3_only_the_current_attempt_can_write_and_its_token_does_nothing_else(
    cluster: Cluster, ada: Tenant, lab: Lab, tmp_path: Path
) -> None:
    for name in ("pries.py", "two_ranks.py"):  # other code than hers: a bundle that her task does not run
        shutil.copy(TRIALS / name, tmp_path)
    other = lab.client.create_experiment(single("pries.py", hparams={"paths": []}), tmp_path)
    assert other.view.bundle != ada.experiment.view.bundle
    token = (task_dir(cluster, ada.trial) / "token").read_text().strip()
    assert token.startswith("dttask_")
    with cluster.client(token) as task:
        assert task.get("task/preempt", params={"timeout_seconds": 0}).json()["preempt"] is False
        assert task.get("task/best-validation").status_code == 200
        for path in (
            "me",
            "cluster",
            "agents",
            "experiments",
            f"experiments/{ada.experiment.id}",
            f"trials/{ada.trial.id}",
            f"trials/{ada.trial.id}/metrics",
            f"trials/{ada.trial.id}/logs",
            f"experiments/{other.id}",
            "stream",
        ):
            assert task.get(path).status_code == 403, path
        assert task.post(f"experiments/{ada.experiment.id}/kill").status_code == 403
        assert task.post("experiments", json={"config": {}}).status_code == 403
        theirs = lab.first_trial(lab.completed(other))
        (checkpoint,) = theirs.list_checkpoints()
        assert task.get(f"task/checkpoints/{checkpoint.uuid}").status_code == 404, "another trial's"
        assert task.delete(f"task/checkpoints/{checkpoint.uuid}").status_code == 404
        assert task.get(f"bundles/{ada.experiment.view.bundle}").status_code == 200, "what it runs"
        assert task.get(f"bundles/{theirs.get_experiment().view.bundle}").status_code == 404, "another's"
    (said,) = [line.text.split()[-1] for line in theirs.logs() if line.text.startswith("PRY token")]
    with cluster.client(said) as late:
        metrics = {"kind": "metrics", "seq": 99, "time": 0.0, "group": "training", "steps_completed": 9}
        batch = {"stream": "metrics", "records": [{**metrics, "metrics": {"late": 1.0}}]}
        for reply in (
            late.post("task/records", json=batch),
            late.get("task/preempt", params={"timeout_seconds": 0}),
            late.put("task/metadata", json={"a": 1}),
            late.post("task/token"),
            late.get(f"task/checkpoints/{checkpoint.uuid}"),
        ):
            refused(reply)
    assert "late" not in lab.trial(theirs).view.summary.get("training", {})


def refused(reply: httpx.Response) -> None:
    """The run is over: its token is unknown, or its attempt is stale; in words."""
    assert reply.status_code in (401, 409), reply.text
    assert reply.json()["code"] in ("stale_attempt", "auth.denied")


def test_i3_an_attempt_that_was_paused_cannot_write_any_more(cluster: Cluster, ada: Tenant) -> None:
    token = (task_dir(cluster, ada.trial) / "token").read_text().strip()
    ada.experiment.pause()
    until("it has left", lambda: ada.lab.trial(ada.trial).view.allocation_state == "TERMINATED", 15)
    with cluster.client(token) as old:
        refused(old.put("task/metadata", json={"who": "an old attempt"}))
    ada.experiment.activate()
    until("it runs again", lambda: ada.lab.trial(ada.trial).view.allocation_state == "RUNNING", 15)
    with cluster.client(token) as old:
        refused(old.put("task/metadata", json={"who": "an old attempt"}))
    assert ada.lab.trial(ada.trial).view.metadata == {}
    with pytest.raises(NotFound):
        ada.lab.client.get_trial(10**9)
