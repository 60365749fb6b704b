"""`DetKubeSpawner` on a real node: its pod runs where the slots are, and one that cannot start says why."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "integration" / "spawners"))

from kube_spawning import POD, failure, reach, starting

from detlab.schemas.wire import AllocationState
from testbed.kubernetes import images
from testbed.kubernetes.control_plane import ADMIN_TOKEN
from testbed.kubernetes.sites import RealSite
from testbed.waiting import soon

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.timeout(240)]
SERVES = ["python3", "-u", "-m", "http.server", "8888"]


@pytest.fixture
def site(plane, node, monkeypatch):
    found = RealSite(plane)
    reach(monkeypatch, plane.url, ADMIN_TOKEN, str(plane.authority))
    yield found
    found.end()
    found.admin.http.close()


def server(site, *command, **more):
    traits = {
        "image": images.PYTHON,
        "image_pull_policy": "Never",
        "namespace": site.namespace,
        "cmd": list(command or SERVES),
        "uid": 1000,
        "delete_grace_period": 0,
    }
    return starting(**(traits | more))


def place(master, site, slots=("gpu0",)):
    running = AllocationState.RUNNING
    master.put("notebook-0", allocation_state=running, agent_id=f"kubernetes/{site.node}", slots=list(slots))


async def test_a_server_runs_on_the_node_of_its_slots_and_stops_with_its_pod(site):
    async with server(site) as (master, mine, task, said):
        place(master, site)
        address = await asyncio.wait_for(task, 120)
        pod = site.admin.get(f"{site.pods}/{POD}")
        assert pod["spec"]["nodeName"] == site.node
        assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
        async with httpx.AsyncClient() as client:
            for _ in range(100):
                try:
                    reply = await client.get(address)
                    break
                except httpx.TransportError:
                    await asyncio.sleep(0.1)
        assert reply.status_code == 200
        assert f"kubernetes/{site.node} has room; the server is being started" in said
        assert any("Started container notebook" in line for line in said)
        assert await mine.poll() is None
        await mine.stop()
        assert master.deleted == ["notebook-0"]


async def test_more_devices_than_the_node_has_are_waited_for_with_the_clusters_reason(site):
    async with server(site, pod_timeout=3) as (master, _, task, said):
        place(master, site, [f"gpu{number}" for number in range(5)])
        error = await failure(task)
        assert "Insufficient nvidia.com/gpu" in error.jupyterhub_message
        assert any(line.startswith("No node takes the pod yet") for line in said)


async def test_an_image_that_the_node_has_not_got_ends_the_start_at_once(site):
    async with server(site, image="localhost/none:1") as (master, _, task, _):
        place(master, site)
        error = await failure(task, 60)
        assert "localhost/none:1 cannot be used" in error.jupyterhub_message
        await soon(lambda: master.deleted == ["notebook-0"])


async def test_a_server_that_ends_at_its_start_shows_its_last_lines(site):
    async with server(site, "python3", "-c", "raise SystemExit('no such <module>')") as (master, _, task, _):
        place(master, site)
        error = await failure(task, 120)
        assert "ended with exit code 1" in error.jupyterhub_message
        assert "no such <module>" in error.jupyterhub_message
        assert "no such &lt;module&gt;" in error.jupyterhub_html_message
