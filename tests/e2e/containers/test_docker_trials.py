"""Trials in containers on a real cluster with a real Docker engine: the digits search, a pause, faults."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from spine_lab import Lab, lab_of, single, until

from detlab.client.resources import Experiment
from detlab.schemas.wire import ExperimentState, TrialState
from testbed.agents import Agent, printed_agent
from testbed.cluster import running_cluster
from testbed.containers import docker, docker_images

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits_trial"
EPOCHS = 4


@pytest.fixture(scope="module")
def site(meeting_place: Path, docker_engine: docker.Engine) -> Iterator[Lab]:
    """The operator of a cluster whose trials run in containers unless they say otherwise."""
    root = meeting_place / "containers"
    root.mkdir(mode=0o755)
    mounts = [str(path) for path in [*docker_images.host_mounts(), meeting_place]]
    config = (
        f"c.EmbeddedCluster.docker = True\nc.EmbeddedCluster.docker_mounts = {mounts!r}\n"
        "c.DetHub.default_runtime = 'docker'\n"
    )
    with (
        running_cluster(root, slots=4, config=config, extra={"DOCKER_HOST": docker_engine.url}) as running,
        lab_of(running) as lab,
    ):
        yield lab


def contained(config: dict[str, Any], *mounts: Path) -> dict[str, Any]:
    """The config with an image, and this machine's programs in it."""
    binds = [{"host_path": str(p), "container_path": str(p), "read_only": True} for p in docker_images.host_mounts()]
    binds += [{"host_path": str(path), "container_path": str(path)} for path in mounts]
    environment = {"image": docker_images.EMPTY, "environment_variables": ["OMP_NUM_THREADS=1"]}
    return {**config, "environment": environment, "bind_mounts": binds}


@pytest.fixture(scope="module")
def digits(site: Lab) -> Experiment:
    """The example's search, smaller."""
    config: dict[str, Any] = yaml.safe_load((EXAMPLE / "search.yaml").read_text(encoding="utf-8"))
    config["hyperparameters"]["max_epochs"] = EPOCHS
    config["searcher"] |= {"max_time": EPOCHS, "max_trials": 3, "max_concurrent_trials": 2}
    return site.client.create_experiment(contained(config), EXAMPLE)


@pytest.mark.soak
def test_the_digits_search_runs_in_containers(
    site: Lab, digits: Experiment, docker_engine: docker.Engine, tmp_path: Path
) -> None:
    until("two containers run at once", lambda: len(docker_engine.containers()) >= 2, 60)
    ended = site.completed(digits, 200)
    trials = ended.list_trials()
    assert len(trials) == 3
    assert {trial.state for trial in trials} == {TrialState.COMPLETED}, site.tell(digits)
    assert all(trial.view.restarts == 0 for trial in trials), site.tell(digits)
    best = ended.view.best
    assert best is not None
    assert (site.client.get_trial(best.trial_id).view.best_validation or 0) > 0.7
    checkpoint = site.client.get_trial(best.trial_id).list_checkpoints()[0]
    assert checkpoint.download(tmp_path / "best")
    assert (tmp_path / "best" / "model_0.safetensors").exists()
    until("the containers are gone", lambda: docker_engine.containers() == [], 20)


def test_a_trial_in_a_container_is_paused_and_resumes_where_it_was(site: Lab) -> None:
    config = single("toy.py", hparams={"steps": 60, "pause": 0.05, "save_every": 5, "every": 10})
    experiment = site.submit(contained(config))
    trial = site.at_step(site.first_trial(experiment), 10, 60)
    experiment.pause()
    until("it is paused", lambda: experiment.reload().state is ExperimentState.PAUSED, 60)
    until("its container is gone", lambda: site.slots_of(experiment) == [], 30)
    experiment.activate()
    site.completed(experiment, 90)
    steps = site.steps(trial)
    assert steps == sorted(set(steps))
    begins, (left,) = site.journal(trial, "start"), site.journal(trial, "preempted")
    assert [int(more[0]) for _, _, more in begins] == [0, int(left[2][0])], "at first from nothing, then from its pause"
    assert int(left[2][0]) >= 10
    assert site.trial(trial).view.restarts == 0


def test_an_agent_and_an_engine_that_are_killed_cost_a_trial_nothing(
    site: Lab, docker_engine: docker.Engine, meeting_place: Path
) -> None:
    gates = meeting_place / "gates"  # not the meeting place itself, in which the agent's own mounts are
    gates.mkdir(mode=0o755)
    gate = gates / "container-gate"
    config = single("toy.py", hparams={"steps": 40, "pause": 0.05, "hold_until": str(gate)})
    experiment = site.submit(contained(config, gates))
    trial = site.at_step(site.first_trial(experiment), 5, 60)
    old = site.cluster.pid("agent")
    assert old is not None
    docker_engine.kill("dockerd")
    os.kill(old, signal.SIGKILL)
    until("the agent is started again", lambda: site.cluster.pid("agent") not in {None, old}, 40)
    docker_engine.start()
    gate.touch()
    site.completed(experiment, 90)
    assert site.trial(trial).view.restarts == 0
    assert site.steps(trial) == list(range(1, 41))


def test_an_unknown_image_is_said_to_the_user(site: Lab) -> None:
    config = contained(single("toy.py"))
    config["environment"]["image"] = "localhost:9/testbed/empti:1"
    ended = site.finish(site.submit(config), 90)
    assert ended.state is ExperimentState.ERROR
    told = site.tell(ended)
    assert "localhost:9/testbed/empti:1 is not on this node and cannot be pulled" in told
    assert docker_images.EMPTY in told


GANG = """
import os
from pathlib import Path

import torch
import torch.distributed as dist

import detlab as det

dist.init_process_group("gloo")
with det.core.init(distributed=det.core.DistributedContext.from_torch_distributed()) as core:
    rank, total = dist.get_rank(), torch.ones(1)
    dist.all_reduce(total)
    where = "in a container" if Path("/.dockerenv").exists() else "on the bare node"
    print("rank", rank, "of", int(total), where, "on", os.environ["DET_AGENT_ID"], flush=True)
    told = core.distributed.allgather(f"hello of {rank}")
    if rank == 0:
        print(*told, flush=True)
        core.train.report_validation_metrics(1, {"error": 0.5})
"""


@pytest.fixture
def second(site: Lab, meeting_place: Path, docker_engine: docker.Engine) -> Iterator[Agent]:
    """Another agent with containers; of both, one slot is open."""
    cluster = site.cluster
    (own,) = json.loads(cluster.det("agent", "list", "--json").stdout)
    for slot in own["slots"][1:]:
        assert cluster.det("slot", "disable", own["id"], slot["id"]).returncode == 0
    printed = cluster.det("agent", "enrol")
    command = f"{printed.stderr.rpartition('→')[2].strip()} --serves-user {cluster.user} --runtime process,docker"
    for path in [*docker_images.host_mounts(), meeting_place]:
        command += f" --allow-mount {path}"
    folder = meeting_place / "second"
    folder.mkdir(mode=0o755)
    environment = {**cluster.environment, "DOCKER_HOST": docker_engine.url}
    with printed_agent(command, printed.stdout.strip(), folder, "second", environment) as agent:
        agent.until_it_says("connected to cluster")
        yield agent


@pytest.mark.soak
def test_a_trial_over_two_agents_runs_in_containers(site: Lab, second: Agent, tmp_path: Path) -> None:
    """Last: two slots are all that is open."""
    (tmp_path / "gang.py").write_text(GANG, encoding="utf-8")
    config = contained(single("gang.py", resources={"slots_per_trial": 2}))
    config["entrypoint"] = "python3 -m detlab.launch.torch_distributed gang.py"
    made = site.client.create_experiment(config, tmp_path)
    (trial,) = site.completed(made, 120).list_trials()
    assert (trial.view.run, trial.view.restarts) == (1, 0), site.tell(made)
    said = {line.text for line in trial.logs()}
    chief = trial.view.agent_id
    (other,) = {agent.id for agent in site.client.list_agents()} - {chief}
    assert f"rank 0 of 2 in a container on {chief}" in said, site.tell(made)
    assert f"rank 1 of 2 in a container on {other}" in said
    assert "hello of 0 hello of 1" in said
