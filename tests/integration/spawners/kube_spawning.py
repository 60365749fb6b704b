"""A `DetKubeSpawner` that starts a server against an API server, the fake one or the real one."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from kubernetes_asyncio.client import Configuration

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "spawners"))

from spawn_master import listening, user

from detlab_hub.spawners import SpawnFailed
from detlab_hub.spawners.kube import DetKubeSpawner
from testbed.waiting import soon

POD = "jupyter-ada"


def reach(monkeypatch, url, token, authority=None):
    """Have spawners reach an API server in this way."""
    configured = Configuration(host=url, api_key={"BearerToken": f"Bearer {token}"}, ssl_ca_cert=authority)
    monkeypatch.setattr("kubespawner.spawner.load_config", lambda **kwargs: Configuration.set_default(configured))


@asynccontextmanager
async def starting(**more):
    """A server that is being started: its allocation is there, and its pod is made."""
    async with listening() as master:
        hub = SimpleNamespace(api_url="http://hub:8081/hub/api", base_url="/hub/", public_host="", server=None)
        site = {"image": "registry.example/lab:4", "namespace": "default", "cmd": ["jupyterhub-singleuser"]}
        mine = DetKubeSpawner(user=user(), hub=hub, service_url=master.url, service_token="dthub_x", **(site | more))
        mine.api_token, mine.oauth_client_id = "hub-token", "jupyterhub-user-ada"
        said: list[str] = []

        async def read():
            async for event in mine.progress():
                said.append(event["message"])

        task = asyncio.create_task(mine.start())
        reading = asyncio.create_task(read())
        try:
            await soon(lambda: master.views)
            yield master, mine, task, said
        finally:
            for one in (task, reading):
                one.cancel()
            await asyncio.gather(task, reading, return_exceptions=True)
            await DetKubeSpawner._stop_all_reflectors()


async def failure(task, seconds=20):
    with pytest.raises(SpawnFailed) as failed:
        await asyncio.wait_for(task, seconds)
    return failed.value
