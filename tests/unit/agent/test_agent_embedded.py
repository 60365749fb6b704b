"""What `det up` tells its agent about containers and the warm pool."""

import json
import os

import pytest
from traitlets.config import Config

from detlab.launch.host import procfs
from detlab_agent.commands import run
from detlab_hub.embedded import inspection
from detlab_hub.embedded.parts import _agent
from detlab_hub.embedded.settings import EmbeddedCluster, has_torch
from detlab_hub.embedded.state import StartPlan, StateFolder


@pytest.mark.parametrize(("docker", "expected"), [(None, None), (True, "process,docker"), (False, "process")])
def test_the_agents_runtimes(tmp_path, docker, expected):
    folder = StateFolder(tmp_path / ".detlab")
    folder.create()
    plan = StartPlan(1, 2, 3, 4, "root", docker=docker, docker_mounts=["/data", "/scratch"], docker_volumes=["/a:ro"])
    argv = list(_agent(folder, plan).argv)
    assert ("--runtime" in argv) is (expected is not None)
    assert expected is None or argv[argv.index("--runtime") + 1] == expected
    assert [argv[i + 1] for i, word in enumerate(argv) if word == "--allow-mount"] == ["/data", "/scratch"]
    assert [argv[i + 1] for i, word in enumerate(argv) if word == "--volume"] == ["/a:ro"]
    known = {option for parameter in run.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in argv[3:] if word.startswith("--")} <= known


def test_what_an_operator_may_say():
    assert EmbeddedCluster().docker == "auto"
    assert EmbeddedCluster(config=Config(EmbeddedCluster={"docker": True})).docker is True
    with pytest.raises(Exception, match="docker"):
        EmbeddedCluster(config=Config(EmbeddedCluster={"docker": "perhaps"}))


@pytest.mark.parametrize(
    ("said", "wish", "expected"),
    [
        (None, "auto", has_torch()),
        (None, False, False),
        (None, True, True),
        (False, True, False),
        (True, False, True),
    ],
)
def test_there_is_a_warm_pool_where_torch_is_unless_someone_says_otherwise(tmp_path, said, wish, expected):
    assert EmbeddedCluster().warm_pool == "auto"
    chosen = EmbeddedCluster(config=Config(EmbeddedCluster={"warm_pool": wish})).keeps_warm_pool(said)
    assert chosen is expected
    folder = StateFolder(tmp_path / ".detlab")
    folder.create()
    argv = _agent(folder, StartPlan(1, 2, 3, 4, "root", warm_pool=chosen)).argv
    assert ("--warm-pool" in argv, "--no-warm-pool" in argv) == (expected, not expected)


def test_the_warm_pools_cost_is_measured_and_its_absence_has_a_reason(tmp_path):
    folder, plan = StateFolder(tmp_path / ".detlab"), StartPlan(1, 2, 3, 4, "root", warm_pool=True)
    folder.create()
    note = tmp_path / ".detlab" / "agent" / "warm_pool.json"
    assert inspection.warm_pool_state(folder, plan) == "none now: the agent has not started it yet"
    note.write_text(json.dumps({"pid": None, "started": None, "reason": "1.0 GiB of memory are free"}))
    for said in (inspection.warm_pool_promise, inspection.warm_pool_state):
        assert said(folder, plan) == "none now: 1.0 GiB of memory are free"
    pid = os.getpid()
    note.write_text(json.dumps({"pid": pid, "started": procfs.start_time(pid), "reason": ""}))
    taken = inspection.proportional_memory(pid)
    assert taken is not None
    assert taken > 1 << 20
    assert inspection.warm_pool_state(folder, plan).startswith(f"on, process {pid} takes ")
    assert "about 0.3 GiB" in inspection.warm_pool_promise(folder, plan)
    note.write_text(json.dumps({"pid": pid, "started": 1, "reason": ""}))
    assert inspection.warm_pool_state(folder, plan) == "none now: it ended; the next trial has it started again"
    assert inspection.warm_pool_state(folder, StartPlan(1, 2, 3, 4, "root")).startswith("off")
