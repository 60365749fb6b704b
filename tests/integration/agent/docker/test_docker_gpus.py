"""GPUs of containers: what a real engine is asked for and does, with and without NVIDIA's part of it."""

import json
from pathlib import Path

import pytest
from agent_docker import exited, in_container, python
from agent_helpers import TRIALS, wait_until

from testbed.containers import gpus

UUIDS = ["GPU-aaaa0000-0000-0000-0000-000000000000", "GPU-bbbb1111-0000-0000-0000-000000000000"]


@pytest.fixture
def gpu_agent(master, docker_agents, open_tmp):
    """An agent of a node with two GPUs."""
    process = docker_agents(environ=gpus.driver_library(open_tmp / "driver", UUIDS))
    master.wait_for(master.connected, what="the agent connects")
    assert [(slot.id, slot.kind, slot.uuid, slot.name, slot.memory) for slot in master.hellos[-1].slots] == [
        ("cuda0", "cuda", UUIDS[0], gpus.NAME, gpus.MEMORY),
        ("cuda1", "cuda", UUIDS[1], gpus.NAME, gpus.MEMORY),
    ]
    return process


@pytest.fixture
def gpu_engine(docker_engine, open_tmp):
    """An engine with NVIDIA's hook; afterwards it is as it was."""
    docker_engine.stop()
    docker_engine.start(programs=gpus.engine_hook(open_tmp / "hook"))
    yield docker_engine
    docker_engine.remove_containers()
    docker_engine.stop()
    docker_engine.start()


def inspected(engine, task):
    status, reply = engine.request("GET", f"/containers/detlab-{task.launch.allocation_id}/json")
    assert status == 200, reply
    return json.loads(reply)


def variables(pid):
    """The environment of a container's first process, as the engine made it."""
    pairs = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(pair.partition("=")[::2] for pair in pairs if pair)


def test_the_engine_is_asked_for_the_gpus_of_the_slots_and_no_others(master, gpu_engine, gpu_agent):
    at_once = [in_container(master, python(TRIALS["NeverExits"]), slots=slots) for slots in (["cuda0"], ["cuda1"], [])]
    for task in at_once:
        check_gpus(master, gpu_engine, task)
    for task in at_once[:2]:
        master.send_kill(task, grace=0.5)
        master.wait_for(exited(task))
    check_gpus(master, gpu_engine, in_container(master, python(TRIALS["NeverExits"]), slots=["cuda0", "cuda1"]))


def check_gpus(master, engine, task):
    """The container of a task runs, with the GPUs of its slots as the engine itself tells."""
    master.wait_for(lambda: ("up" in master.texts(task) and task.starts) or task.exits, timeout=40)
    assert not task.exits, task.exits
    wanted = [uuid for index, uuid in enumerate(UUIDS) if f"cuda{index}" in task.launch.slots]
    requests = inspected(engine, task)["HostConfig"]["DeviceRequests"] or []
    request = {"Driver": "nvidia", "Count": 0, "DeviceIDs": wanted, "Options": {}}
    assert requests == ([{**request, "Capabilities": [["gpu", "compute", "utility"]]}] if wanted else [])
    seen = variables(task.starts[0].pid)
    assert seen["NVIDIA_VISIBLE_DEVICES"] == (",".join(wanted) or "void")
    assert seen.get("NVIDIA_DRIVER_CAPABILITIES") == ("compute,utility" if wanted else None), "set by the engine"


def test_an_engine_without_nvidias_part_refuses_gpus_says_how_to_mend_it_and_keeps_nothing(master, gpu_agent):
    engine = gpu_agent.engine
    task = in_container(master, ["true"], slots=["cuda0", "cuda1"])
    master.wait_for(exited(task), timeout=40)
    said = task.exits[0].message
    assert task.exits[0].reason == "setup"
    assert said.startswith(f"the engine at {engine.url} of agent agent cannot give cuda0, cuda1 to a container")
    assert 'could not select device driver "nvidia" with capabilities: [[gpu compute utility]]' in said
    assert "nvidia-ctk runtime configure --runtime=docker && systemctl restart docker" in said
    assert "runtime: process" in said
    assert task.starts == []
    wait_until(lambda: engine.containers() == [], what="no container is left")
    again = in_container(master, ["true"], slots=[])
    master.wait_for(exited(again), timeout=40)
    assert again.exits[0].exit_code == 0, "what needs no GPU runs"
    plain = master.launch(["sh", "-c", "echo has $CUDA_VISIBLE_DEVICES"], slots=["cuda0", "cuda1"])
    master.wait_for(exited(plain), timeout=40)
    assert master.texts(plain) == [f"has {','.join(UUIDS)}"], "and the same slots are free for a process"
