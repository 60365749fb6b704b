"""Trials over several nodes of a real Slurm: one job, a launcher on each node, and one end for all."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from slurm_lab import SlurmLab, slurm_lab
from spine_lab import until

from detlab.client.resources import Experiment, Trial

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.timeout(480)]

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits_trial"
MINUTE = 60
SCRIPT = '''
"""The example, which says where its ranks are, and pauses in each batch."""
import os
import time

import train


class Trial(train.DigitsTrial):
    def train_batch(self, batch, epoch_idx, batch_idx):
        time.sleep(self.context.get_hparam("pause"))
        return super().train_batch(batch, epoch_idx, batch_idx)


train.DigitsTrial = Trial
if __name__ == "__main__":
    where = os.environ["DET_AGENT_ID"], os.environ.get("CUDA_VISIBLE_DEVICES")
    print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "on", *where, flush=True)
    train.main()
'''


@pytest.fixture(scope="module")
def place() -> Iterator[SlurmLab]:
    with slurm_lab() as made:
        yield made


@pytest.fixture(autouse=True)
def no_job_is_left(place: SlurmLab) -> Iterator[None]:
    yield
    until("no job is left", lambda: not place.slurm.jobs(), MINUTE)
    until(
        "no file is left",
        lambda: not [path for path in (place.agent.folder / "jobs").rglob("*") if path.is_file()],
        MINUTE,
    )


@pytest.fixture
def code(tmp_path: Path) -> Path:
    shutil.copy(EXAMPLE / "train.py", tmp_path)
    (tmp_path / "paused.py").write_text(SCRIPT, encoding="utf-8")
    return tmp_path


def submit(place: SlurmLab, code: Path, slots: int, slurm: dict[str, Any], **hparams: Any) -> Experiment:
    config = yaml.safe_load((EXAMPLE / "distributed.yaml").read_text(encoding="utf-8"))
    config["entrypoint"] = "python3 -m detlab.launch.torch_distributed paused.py"
    config["hyperparameters"] |= {"max_epochs": 3, "pause": 0.0, **hparams}
    config["environment"] = {"environment_variables": ["OMP_NUM_THREADS=1"]}
    config |= {"runtime": "slurm", "slurm": slurm, "max_restarts": 1}
    config["resources"] = {"resource_pool": "slurm", "slots_per_trial": slots}
    return place.lab.client.create_experiment(config, code)


def ranks_of(trial: Trial) -> dict[int, int]:
    """The processes of a trial by rank; not those that only pass on what they print."""
    found: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "environ").read_bytes().split(b"\0")
            line = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        variables = dict(word.decode(errors="replace").partition("=")[::2] for word in words)
        mine = variables.get("DET_TRIAL_ID") == str(trial.id) and "RANK" in variables
        if mine and b"paused.py" in line and b"wrap_rank" not in line:
            found[int(variables["RANK"])] = int(folder.name)
    return found


def said(trial: Trial) -> set[tuple[int | None, str]]:
    return {(line.rank, line.text) for line in trial.logs() if line.text.startswith("rank ")}


def test_a_trial_that_is_larger_than_a_node_is_one_job_on_two(place: SlurmLab, code: Path) -> None:
    made = submit(place, code, 4, {})
    (nodes,) = until(
        "the job runs", lambda: place.slurm.ask("squeue", "-h", "-t", "running", "-o", "%D %N").splitlines(), MINUTE
    )
    assert nodes == "2 n[0-1]"
    (trial,) = place.lab.completed(made, 3 * MINUTE).list_trials()
    assert (trial.view.run, trial.view.restarts, len(trial.view.slots)) == (1, 0, 4)
    assert place.lab.steps(trial) == [18, 36, 54], "the chief alone reports"
    assert said(trial) == {(rank, f"rank {rank} of 4 on batch/n{rank // 2} 0,1") for rank in range(4)}, place.lab.tell(
        made
    )


def test_a_rank_that_dies_ends_all_and_the_trial_goes_on_in_the_next_job(place: SlurmLab, code: Path) -> None:
    made = submit(place, code, 2, {"slots_per_node": 1}, max_epochs=8, pause=0.05)
    trial = place.lab.at_step(place.lab.first_trial(made), 36, 2 * MINUTE)
    ranks = ranks_of(trial)
    assert sorted(ranks) == [0, 1]
    os.kill(ranks[1], signal.SIGKILL)
    (trial,) = place.lab.completed(made, 4 * MINUTE).list_trials()
    assert (trial.view.run, trial.view.restarts) == (2, 1)
    assert place.lab.steps(trial) == [18 * epoch for epoch in range(1, 9)]
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks.values())


def test_a_job_over_two_nodes_is_adopted_by_the_next_agent_and_killed_as_one(place: SlurmLab, code: Path) -> None:
    made = submit(place, code, 2, {"slots_per_node": 1}, max_epochs=1000, pause=0.05)
    trial = place.lab.at_step(place.lab.first_trial(made), 18, 2 * MINUTE)
    place.agent.kill()
    time.sleep(1)
    place.agent.start()
    place.lab.at_step(trial, place.lab.trial(trial).view.steps_completed + 18, MINUTE)
    assert place.lab.trial(trial).view.run == 1
    ranks = ranks_of(trial)
    made.kill()
    place.lab.finish(made, MINUTE)
    until("its processes are gone", lambda: not any(Path(f"/proc/{pid}").exists() for pid in ranks.values()), MINUTE)


def test_at_the_time_limit_all_nodes_have_saved_and_left(place: SlurmLab, code: Path) -> None:
    slurm = {"slots_per_node": 1, "time": 2, "leave_seconds": 40}
    made = submit(place, code, 2, slurm, max_epochs=25, pause=0.2)  # 90 s, and a job has 80
    (trial,) = place.lab.completed(made, 6 * MINUTE).list_trials()
    assert trial.view.run >= 2
    assert trial.view.restarts == 0
    steps = place.lab.steps(trial)  # also where it left, in the middle of an epoch
    assert steps == sorted(set(steps)), "none is doubled"
    assert steps[-1] == 25 * 18
    assert "TIMEOUT" not in place.slurm.ask("squeue", "-h", "-t", "all", "-o", "%T")
