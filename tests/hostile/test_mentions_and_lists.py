"""An ordinary user fills their own configs with others' checkpoint ids, and asks for lists of them without reading.

Nothing of it pins what is another's, or delays another's requests, and the master's memory stays what it was.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from bounds import SLEEPER, Bystander, api, memory_of, unread

from detlab.client import Client
from detlab_hub.services.views.pages import PAGE_BYTES, VIEW_BYTES
from testbed.cluster import Cluster

pytestmark = pytest.mark.hub

MIB = 1024**2
CONFIGS, TEXT = 80, 380_000
OPEN = 60
MOST_MEMORY = 200 * MIB
"""For sixty lists at once; each had 72 to 99 MB."""
PATIENCE = 5.0
"""Seconds within which another user is answered, on a machine that does other things, too; it was 20 and 99."""
SAVES = """
import detlab as det

with det.core.init() as core:
    core.train.report_validation_metrics(1, {"loss": 1.0})
    with core.checkpoint.store_path({"steps_completed": 1}) as (folder, _):
        (folder / "state").write_text("ada's")
"""


def saved(cluster: Cluster, token: str) -> str:
    """The id of a checkpoint of a user whose experiment has ended."""
    config = {**SLEEPER, "name": "saves", "entrypoint": ["python3", "saves.py"]}
    with Client(cluster.url, token) as client:
        experiment = client.create_experiment(config, files={"saves.py": SAVES})
        assert experiment.wait(90) == "COMPLETED", cluster.logs()
        (checkpoint,) = experiment.list_checkpoints()
        return checkpoint.uuid


def mentioning(uuid: str, number: int) -> dict[str, Any]:
    """A config with another's checkpoint in every text, as large as one may be."""
    filling = f"{uuid} " * ((TEXT - 20_000) // 37)
    return {
        **SLEEPER,
        "name": f"{number} {uuid}",
        "description": f"{uuid} " * 200,
        "labels": [uuid],
        "hyperparameters": {"source_checkpoint_uuid": filling},
        "environment": {"environment_variables": [f"CHECKPOINT={uuid}"]},
        "data": {"source_checkpoint_uuid": uuid},
        "entrypoint": ["sleep", "600", uuid],
    }


@pytest.fixture(scope="module")
def ada(cluster: Cluster) -> Iterator[httpx.Client]:
    token = cluster.make_token("custom:detlab:write", "custom:detlab:read", user="ada")
    with api(cluster, token) as client:
        yield client


@pytest.fixture(scope="module")
def uuid(cluster: Cluster) -> str:
    return saved(cluster, cluster.make_token("custom:detlab:write", user="ada"))


@pytest.fixture(scope="module")
def mallory(cluster: Cluster, uuid: str) -> Iterator[str]:
    """Mallory's token, with as many paused experiments that name ada's checkpoint everywhere."""
    token = cluster.make_token("custom:detlab:write", user="mallory")
    with api(cluster, token) as client:
        made = []
        for number in range(CONFIGS):
            reply = client.post("experiments", json={"config": mentioning(uuid, number), "activate": False})
            assert reply.status_code == 200, reply.text
            made.append(reply.json()["experiment"]["id"])
        yield token
        for number in made:
            client.post(f"experiments/{number}/kill").raise_for_status()


def test_every_page_of_the_largest_experiments_is_small_and_all_come(cluster: Cluster, mallory: str) -> None:
    seen: list[int] = []
    with api(cluster, mallory) as client:
        before: int | None = None
        while not seen or before is not None:
            params = {"limit": 1000} | ({} if before is None else {"before": before})
            reply = client.get("experiments", params=params).raise_for_status()
            assert len(reply.content) <= PAGE_BYTES + VIEW_BYTES
            seen += [one["id"] for one in reply.json()["items"]]
            before = reply.json()["next"]
    assert len(seen) == len(set(seen)) >= CONFIGS


def test_sixty_open_lists_of_one_user_cost_little_memory_and_delay_nobody(
    cluster: Cluster, mallory: str, ada: httpx.Client
) -> None:
    memory = memory_of(cluster)
    ada.get("me").raise_for_status()
    before = memory.reset()
    bystander = Bystander(ada)
    slowest = 0.0
    with contextlib.ExitStack() as stack:
        for path in ("experiments?limit=1000", "overview", "jobs"):
            stack.enter_context(unread(cluster, mallory, path, OPEN // 3))
        with bystander.asking():
            end = time.monotonic() + 5
            while time.monotonic() < end:
                began = time.monotonic()
                ada.get("me").raise_for_status()
                slowest = max(slowest, time.monotonic() - began)
                time.sleep(0.05)
        grown = memory.peak() - before
    assert bystander.failed == []
    assert max(slowest, *bystander.took) < PATIENCE
    assert grown < MOST_MEMORY


def test_a_mention_of_anothers_checkpoint_neither_pins_it_nor_delays_its_deletion(
    mallory: str, uuid: str, ada: httpx.Client
) -> None:
    """Owner and administrator got 409; each delete read all configs, and all writes of all users waited."""
    assert mallory
    assert ada.get(f"checkpoints/{uuid}/pins").raise_for_status().json()["items"] == []
    began = time.monotonic()
    reply = ada.delete(f"checkpoints/{uuid}")
    assert reply.status_code == 200, reply.text
    assert time.monotonic() - began < PATIENCE
