"""One trial over two agents: the loss of one process; a rank or an agent that dies ends the attempt everywhere."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from spine_lab import Lab, lab_of, until

from detlab.client.resources import Trial
from detlab.errors import ResourcesError
from testbed.agents import Agent, printed_agent
from testbed.cluster import Cluster, running_cluster

pytestmark = [pytest.mark.hub, pytest.mark.timeout(480)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits_trial"
MINUTE = 60
EPOCHS = 3
SCRIPT = '''
"""The example without what depends on how a batch is divided: the statistics of batches, and drawn noise."""
import os
import time

import train
from torch import nn


def build_model(channels, dropout):
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2 * channels * 16, 10),
    )


class Trial(train.DigitsTrial):
    def train_batch(self, batch, epoch_idx, batch_idx):
        time.sleep(self.context.get_hparam("pause"))
        return super().train_batch(batch, epoch_idx, batch_idx)


train.build_model, train.DigitsTrial = build_model, Trial
if __name__ == "__main__":
    print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "on", os.environ["DET_AGENT_ID"], flush=True)
    train.main()
'''


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    config = "c.DetHub.agent_reconnect_wait = 20.0\n"
    with running_cluster(tmp_path_factory.mktemp("nodes"), slots=1, config=config) as running:
        yield running


@pytest.fixture(scope="module")
def second(place: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """Another agent of one slot, so that two slots are on two nodes."""
    printed = place.det("agent", "enrol")
    assert printed.returncode == 0, printed.stderr
    command = printed.stderr.rpartition("→")[2].strip() + f" --serves-user {place.user}"
    folder = tmp_path_factory.mktemp("second")
    folder.chmod(0o755)
    with printed_agent(command, printed.stdout.strip(), folder, "second", place.environment) as agent:
        agent.until_it_says("connected to cluster")
        yield agent


@pytest.fixture(scope="module")
def lab(place: Cluster, second: Agent) -> Iterator[Lab]:
    with lab_of(place) as found:
        yield found


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("code")
    shutil.copy(EXAMPLE / "train.py", folder)
    (folder / "plain.py").write_text(SCRIPT, encoding="utf-8")
    return folder


def config_of(slots: int, **hparams: Any) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((EXAMPLE / "distributed.yaml").read_text(encoding="utf-8"))
    config["entrypoint"] = "python3 -m detlab.launch.torch_distributed plain.py"
    config["hyperparameters"] |= {"max_epochs": EPOCHS, "pause": 0.0, **hparams}
    config["environment"] = {"environment_variables": ["OMP_NUM_THREADS=1"]}
    config["resources"] = {"slots_per_trial": slots}
    return config


def curve(lab: Lab, trial: Trial, group: str, name: str) -> dict[int, float]:
    with lab.api() as api:
        query = {"group": group, "name": name, "max_points": 1000}
        (series,) = api.get(f"trials/{trial.id}/metrics", params=query).json()["items"]
    return dict(zip(series["steps"], series["values"], strict=True))


def ranks_of(trial: Trial, run: int) -> dict[int, int]:
    """The processes of an attempt by rank; not those that only pass on what they print."""
    found: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "environ").read_bytes().split(b"\0")
            line = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        variables = dict(word.decode(errors="replace").partition("=")[::2] for word in words)
        mine = variables.get("DET_TRIAL_ID") == str(trial.id)
        of_run = variables.get("DET_ALLOCATION_ID", "").endswith(f".{run}") and "RANK" in variables
        if mine and of_run and b"plain.py" in line and b"wrap_rank" not in line:
            found[int(variables["RANK"])] = int(folder.name)
    return found


def test_a_trial_over_two_agents_has_the_loss_of_one_process(lab: Lab, code: Path) -> None:
    both = lab.client.create_experiment(config_of(2), code)
    alone = lab.client.create_experiment(config_of(1), code)
    (over_two,) = lab.completed(both, 2 * MINUTE).list_trials()
    (one,) = lab.completed(alone, 2 * MINUTE).list_trials()
    assert (over_two.view.run, over_two.view.restarts) == (1, 0)
    assert sorted(slot.partition("/")[0] for slot in over_two.view.slots) == sorted(
        agent.id for agent in lab.client.list_agents()
    )
    for group in ("training", "validation"):
        expected, found = curve(lab, one, group, "loss"), curve(lab, over_two, group, "loss")
        assert list(found) == list(expected) == [18 * epoch for epoch in range(1, EPOCHS + 1)]
        assert list(found.values()) == pytest.approx(list(expected.values()), rel=1e-5)
    said = {(line.rank, line.text) for line in over_two.logs() if line.text.startswith("rank ")}
    chief = over_two.view.agent_id
    (other,) = {agent.id for agent in lab.client.list_agents()} - {chief}
    assert said == {(0, f"rank 0 of 2 on {chief}"), (1, f"rank 1 of 2 on {other}")}


SUMS = """
import os
import torch, torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "on", os.environ["DET_AGENT_ID"], "sum", int(total))
dist.destroy_process_group()
"""


def test_a_command_over_two_agents_is_one_group_of_processes_and_an_ordinary_one_is_refused(
    lab: Lab, tmp_path: Path
) -> None:
    (tmp_path / "sums.py").write_text(SUMS)
    config = {
        "entrypoint": "python3 -m detlab.launch.torch_distributed sums.py",
        "resources": {"slots": 2},
        "environment": {"environment_variables": ["OMP_NUM_THREADS=1"]},
    }
    with pytest.raises(ResourcesError, match="the largest agent has 1"):
        lab.client.create_task("command", config, tmp_path)
    config["resources"] = {"slots": 2, "is_single_node": False}
    task = lab.client.create_task("command", config, tmp_path)
    assert task.wait(2 * MINUTE).value == "COMPLETED", [line.text for line in task.logs()]
    agents = {agent.id for agent in lab.client.list_agents()}
    assert {slot.partition("/")[0] for slot in task.view.slots} == agents
    chief = task.view.agent_id
    (other,) = agents - {chief}
    said = {line.text for line in task.logs() if line.text.startswith("rank ")}
    assert said == {f"rank 0 of 2 on {chief} sum 3", f"rank 1 of 2 on {other} sum 3"}


def test_a_node_of_a_command_that_fails_ends_the_others(lab: Lab, tmp_path: Path) -> None:
    script = (
        "import sys, time, detlab\nif detlab.get_cluster_info().container_rank:\n    sys.exit(7)\ntime.sleep(600)\n"
    )
    (tmp_path / "fails.py").write_text(script)
    resources = {"slots": 2, "is_single_node": False}
    task = lab.client.create_task("command", {"entrypoint": "python3 fails.py", "resources": resources}, tmp_path)
    assert task.wait(MINUTE).value == "ERROR"
    assert task.exit_code == 7
    assert not [slot for agent in lab.client.list_agents() for slot in agent.slots if slot.allocation_id]


WAITS = """
import os, time
import torch, torch.distributed as dist
import detlab as det

dist.init_process_group("gloo")
with det.core.init(distributed=det.core.DistributedContext.from_torch_distributed()) as core:
    for step in range(3):
        dist.all_reduce(torch.ones(1))
    print("rank", dist.get_rank(), "on", os.environ["DET_AGENT_ID"], flush=True)
    if dist.get_rank() == 1:
        time.sleep(3600)  # it never comes
    dist.all_reduce(torch.ones(1))
"""


@pytest.mark.soak
def test_a_rank_on_another_node_that_never_comes_to_a_collective_is_named_and_all_slots_are_free(
    lab: Lab, tmp_path: Path
) -> None:
    (tmp_path / "waits.py").write_text(WAITS)
    config = config_of(2)
    config |= {"entrypoint": "python3 -m detlab.launch.torch_distributed waits.py", "max_restarts": 0}
    config["environment"] = {"environment_variables": ["OMP_NUM_THREADS=1", "DET_HANG_TIMEOUT=4"]}
    made = lab.client.create_experiment(config, tmp_path)
    (trial,) = lab.finish(made, 2 * MINUTE).list_trials()
    (other,) = {agent.id for agent in lab.client.list_agents()} - {trial.view.agent_id}
    card = lab.trial(trial).view.card
    assert card is not None
    assert (card.kind, card.rank) == ("hang", 1), card
    assert card.message.startswith(f"rank 1 (node {other}, host "), card.message
    assert "while rank 0 waits in all_reduce()" in card.message
    assert any("time.sleep" in text or "waits.py" in text for text in card.log_tail), "its stacks"
    free = [slot for agent in lab.client.list_agents() for slot in agent.slots if slot.allocation_id is None]
    assert len(free) == 2


@pytest.mark.soak
def test_a_dead_rank_and_a_dead_agent_end_the_attempt_everywhere_and_the_trial_resumes(
    lab: Lab, code: Path, second: Agent
) -> None:
    made = lab.client.create_experiment(config_of(2, max_epochs=1000, pause=0.02), code)
    trial = lab.at_step(lab.first_trial(made), 36, 2 * MINUTE)
    ranks = ranks_of(trial, 1)
    assert sorted(ranks) == [0, 1]
    os.kill(ranks[1], signal.SIGKILL)
    resumed = until("the second attempt", lambda: _running(lab, trial, 2), 2 * MINUTE)
    assert resumed.view.restarts == 1
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks.values())
    before = lab.trial(trial).view
    assert before.latest_checkpoint is not None, "it went on from a checkpoint"
    lab.at_step(trial, before.steps_completed + 18, 2 * MINUTE)

    ranks = ranks_of(trial, 2)
    gone, left = (0, 1) if lab.trial(trial).view.agent_id == "second" else (1, 0)
    second.process.send_signal(signal.SIGKILL)
    os.kill(ranks[gone], signal.SIGSTOP)  # it does not fail: its machine is gone
    waiting = until("the loss of the agent", lambda: _pending(lab, trial, 3), 2 * MINUTE)
    assert waiting.view.restarts == 1, "an agent that was lost is no failure of the trial"
    assert not Path(f"/proc/{ranks[left]}").exists()
    os.kill(ranks[gone], signal.SIGKILL)
    made.kill()
    lab.finish(made)


def _running(lab: Lab, trial: Trial, run: int) -> Trial | None:
    now = lab.trial(trial)
    return now if now.view.run == run and now.view.allocation_state == "RUNNING" else None


def _pending(lab: Lab, trial: Trial, run: int) -> Trial | None:
    now = lab.trial(trial)
    return now if now.view.run == run and now.view.allocation_state == "PENDING" else None
