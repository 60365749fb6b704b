"""Rights stretched: a notebook run's token at its owner's things, grants at what they do not give, names at strangers'.

`ada` owns an experiment with checkpoints and a model. `mallory` has a grant to change both, and whatever else she makes
herself. A notebook run of ada's has been taken over: the attacker has its token, and nothing else of hers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from detlab.client import Client
from detlab.errors import NotFound
from testbed.cluster import Cluster
from testbed.people.callers import task_token

pytestmark = pytest.mark.hub

TRIAL = """
import detlab as det

with det.core.init() as core:
    for step in (1, 2, 3):
        core.train.report_validation_metrics(step, {"x": 1.0})
        with core.checkpoint.store_path({"steps_completed": step}) as (folder, _):
            (folder / "weights.txt").write_text("ada's")
"""
CONFIG = {
    "name": "adas",
    "entrypoint": ["python3", "own.py"],
    "searcher": {"name": "single", "metric": "x", "max_length": 1},
    "checkpoint_storage": {"save_trial_latest": 3},
    "max_restarts": 0,
}
SLEEPS = {"entrypoint": ["sleep", "600"], "resources": {"slots": 0}}
TO_MALLORY = {"kind": "user", "name": "mallory", "write": True}


@dataclass(frozen=True)
class World:
    """What there is, and who asks."""

    cluster: Cluster
    experiment: int
    checkpoints: list[str]
    model: int
    ada: httpx.Client
    mallory: httpx.Client
    run: httpx.Client

    def state(self) -> dict[str, object]:
        """What ada sees of her own."""
        paths = (
            f"experiments/{self.experiment}",
            f"experiments/{self.experiment}/grants",
            f"models/{self.model}",
            f"models/{self.model}/versions",
            f"models/{self.model}/grants",
            "storage/trash",
        )
        found = {path: self.ada.get(path).raise_for_status().json() for path in paths}
        found["storage/trash"].pop("at")
        return found


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> Iterator[World]:
    tokens = {name: cluster.make_token("custom:detlab:write", user=name) for name in ("ada", "mallory")}
    with Client(cluster.url, tokens["ada"]) as client:
        experiment = client.create_experiment(CONFIG, files={"own.py": TRIAL})
        run = client.create_task("notebook_run", SLEEPS)
        assert experiment.wait(120) == "COMPLETED", cluster.logs()
        (trial,) = experiment.list_trials()
        uuids = [one.uuid for one in sorted(trial.list_checkpoints(), key=lambda one: one.view.steps_completed)]
        model = client.create_model("prod")
        model.register_version(uuids[0], labels=["production"])
        task_token(cluster, run.id)  # it runs
        (path,) = (cluster.folder / "agent" / "tasks").glob(f"{run.id}.*/run_token")
        with (
            cluster.client(tokens["ada"]) as ada,
            cluster.client(tokens["mallory"]) as mallory,
            cluster.client(path.read_text().strip()) as stolen,
        ):
            assert stolen.get("me").json()["name"] == "ada"
            before = ada.get("storage/trash").json()["checkpoints"]  # other tests share the cluster
            ada.delete(f"checkpoints/{uuids[1]}").raise_for_status()
            assert ada.get("storage/trash").json()["checkpoints"] == before + 1
            yield World(cluster, experiment.id, uuids, model.model_id, ada, mallory, stolen)
        run.kill()


def test_a_stolen_run_token_deletes_shares_hides_and_purges_nothing(world: World) -> None:
    """It emptied its owner's whole trash, and deleted a version with labels by force."""
    model, experiment, uuid = f"models/{world.model}", f"experiments/{world.experiment}", world.checkpoints[2]
    before = world.state()
    for verb, path, body in (
        ("POST", "storage/trash", {}),
        ("POST", "storage/trash", {"experiment_id": world.experiment}),
        ("DELETE", f"{model}/versions/1?force=true", None),
        ("DELETE", f"{model}?force=true", None),
        ("POST", f"{model}/edit", {"archived": True}),
        ("POST", f"{model}/edit", {"name": "gone"}),
        ("PUT", f"{model}/grants", TO_MALLORY),
        ("PUT", f"{experiment}/grants", TO_MALLORY),
        ("POST", f"{experiment}/edit", {"archived": True}),
        ("POST", f"{experiment}/gc", {"now": True, "purge": True}),
        ("POST", "log-retention", {"days": 0, "all": True}),
        ("POST", "log-retention", {"days": 0, "experiments": [world.experiment]}),
        ("DELETE", experiment, None),
        ("DELETE", f"{experiment}/tensorboard-files", None),
        ("DELETE", f"checkpoints/{uuid}?now=true", None),
        ("DELETE", f"checkpoints/{world.checkpoints[1]}?now=true", None),
        ("POST", f"checkpoints/{uuid}/remove-files", {"globs": ["*"]}),
        ("POST", f"checkpoints/{world.checkpoints[1]}/undelete", None),
        ("DELETE", f"checkpoints/{uuid}/bookmark", None),
        ("POST", f"jobs/{world.experiment}", {"weight": 9}),
        ("POST", "tasks", {"kind": "notebook", "config": {}}),
    ):
        reply = world.run.request(verb, path, json=body)
        assert (reply.status_code, reply.json()["code"]) == (403, "auth.forbidden"), (verb, path, reply.text)
        assert "notebook run" in reply.json()["message"], reply.text
    assert world.state() == before


def test_a_stolen_run_token_shares_no_checkpoint_by_way_of_anothers_model(world: World) -> None:
    """Mallory lets ada change a model of hers, unasked, and registers there as ada."""
    made = world.mallory.post("models", json={"name": "trap"}).raise_for_status().json()["id"]
    to_ada = {"kind": "user", "name": "ada", "write": True}
    world.mallory.put(f"models/{made}/grants", json=to_ada).raise_for_status()
    reply = world.run.post(f"models/{made}/versions", json={"checkpoint": world.checkpoints[2]})
    assert (reply.status_code, "would share it" in reply.text) == (403, True), reply.text
    assert world.mallory.get(f"checkpoints/{world.checkpoints[2]}").status_code == 404
    world.mallory.delete(f"models/{made}").raise_for_status()


def test_a_grant_for_changes_deletes_and_archives_nothing_and_passes_nothing_on(world: World) -> None:
    """It deleted versions, archived the model, and kept a checkpoint, shared with others, after it was withdrawn."""
    experiment, model = f"experiments/{world.experiment}", f"models/{world.model}"
    for path in (experiment, model):
        world.ada.put(f"{path}/grants", json=TO_MALLORY).raise_for_status()
    before = world.state()
    own = world.mallory.post("models", json={"name": "loot"}).raise_for_status().json()["id"]
    for verb, path, body in (
        ("DELETE", f"{model}/versions/1?force=true", None),
        ("POST", f"{model}/edit", {"archived": True}),
        ("POST", f"{model}/edit", {"name": "gone"}),
        ("PUT", f"{model}/grants", {"kind": "user", "name": "eve"}),
        ("POST", f"{experiment}/edit", {"archived": True}),
        ("PUT", f"{experiment}/grants", {"kind": "user", "name": "eve"}),
        ("POST", "log-retention", {"days": 0, "experiments": [world.experiment]}),
        ("POST", "storage/trash", {"experiment_id": world.experiment}),
        ("POST", f"models/{own}/versions", {"checkpoint": world.checkpoints[2]}),
        ("POST", f"models/{own}/versions", {"experiment_id": world.experiment}),
    ):
        reply = world.mallory.request(verb, path, json=body)
        assert (reply.status_code, reply.json()["code"]) == (403, "auth.forbidden"), (verb, path, reply.text)
    assert world.state() == before
    assert world.mallory.post("storage/trash", json={}).json()["checkpoints"] == 0, "her own trash, which is empty"
    assert world.state() == before
    for path in (experiment, model):
        world.ada.delete(f"{path}/grants", params={"kind": "user", "name": "mallory"}).raise_for_status()
    for uuid in world.checkpoints:
        assert world.mallory.get(f"checkpoints/{uuid}").status_code == 404
    world.mallory.delete(f"models/{own}").raise_for_status()


def test_a_name_of_ones_own_is_never_a_strangers(world: World) -> None:
    """Mallory's `prod` made ada's ambiguous; and when hers was renamed, her code loaded mallory's."""
    theirs = world.mallory.post("models", json={"name": "prod"}).raise_for_status().json()["id"]
    world.mallory.put(f"models/{theirs}/grants", json={"kind": "user", "name": "ada"}).raise_for_status()
    token = world.cluster.make_token("custom:detlab:write", user="ada")
    with Client(world.cluster.url, token) as ada:
        assert ada.get_model("prod").model_id == world.model
        assert ada.get_model_version("prod@production").view.model_id == world.model
        world.ada.post(f"models/{world.model}/edit", json={"name": "prod-2"}).raise_for_status()
        for ask in (lambda: ada.get_model("prod"), lambda: ada.get_model_version("prod@latest")):
            with pytest.raises(NotFound, match="you have no model 'prod'") as refused:
                ask()
            assert "mallory/prod" in refused.value.hint
        assert ada.get_model("mallory/prod").model_id == theirs
        world.mallory.delete(f"models/{theirs}/grants", params={"kind": "user", "name": "ada"}).raise_for_status()
        with pytest.raises(NotFound, match="there is no model"):
            ada.get_model("mallory/prod")
        world.ada.post(f"models/{world.model}/edit", json={"name": "prod"}).raise_for_status()
        assert ada.get_model("prod").model_id == world.model
