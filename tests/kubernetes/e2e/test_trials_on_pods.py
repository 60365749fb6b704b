"""A whole cluster of detlab whose trials and commands run as pods of the fake Kubernetes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "e2e"))

from spine_lab import TRIALS, Lab, single

from detlab.schemas.wire import TrialState
from testbed.kubernetes.fake.cluster import FakeCluster
from testbed.waiting import until

pytestmark = [
    pytest.mark.hub,
    pytest.mark.timeout(480),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: pods run as other users"),
]

POOL = "pods"
MEETS = """
import os, torch, torch.distributed as dist
import detlab as det

dist.init_process_group("gloo")
with det.core.init(distributed=det.core.DistributedContext.from_torch_distributed()) as core:
    total = torch.ones(1)
    dist.all_reduce(total)
    print("rank", dist.get_rank(), "sum", int(total), "at", os.environ["DET_NODE_ADDRESS"], flush=True)
    if dist.get_rank() == 0:
        core.train.report_validation_metrics(1, {"error": 0.5})
"""


def on_pods(slots: int = 1, **more: Any) -> dict[str, Any]:
    return {"runtime": "kubernetes", "resources": {"resource_pool": POOL, "slots_per_trial": slots}, **more}


def test_a_trial_runs_as_a_pod_of_the_node_that_the_master_chose(lab: Lab, kube: FakeCluster) -> None:
    made = lab.client.create_experiment(single("toy.py", **on_pods()), TRIALS)
    (trial,) = lab.completed(made, 120).list_trials()
    assert trial.view.agent_id in {"kube/gpu-1", "kube/gpu-2"}
    assert (trial.view.run, trial.view.restarts) == (1, 0)
    assert not kube.objects("pods")
    assert not kube.objects("secrets")


@pytest.mark.soak
def test_a_trial_over_two_nodes_meets_at_the_addresses_of_its_pods(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "meets.py").write_text(MEETS)
    config = single("toy.py", **on_pods(2))
    config["entrypoint"] = "python3 -m detlab.launch.torch_distributed meets.py"
    made = lab.client.create_experiment(config, tmp_path)
    (trial,) = lab.completed(made, 180).list_trials()
    said = {(line.rank, *line.text.split()[:4]) for line in trial.logs() if line.text.startswith("rank ")}
    assert said == {(0, "rank", "0", "sum", "2"), (1, "rank", "1", "sum", "2")}, lab.tell(made)


def test_a_pod_that_is_evicted_is_made_anew_and_no_restart_is_counted(lab: Lab, kube: FakeCluster) -> None:
    made = lab.client.create_experiment(single("never_exits.py", **on_pods()), TRIALS)
    trial = lab.first_trial(made)
    first = _running(kube)
    kube.evict(first)
    second = _running(kube, beside=first)
    assert second != first
    view = lab.trial(trial).view
    assert (view.run, view.restarts) == (2, 0), lab.tell(made)
    made.kill()
    lab.finish(made, 60)


@pytest.mark.soak
def test_a_trial_that_is_preempted_goes_on_at_its_step_in_a_new_pod(lab: Lab) -> None:
    """By a checkpoint on the volume that all pods mount."""
    long = on_pods(
        hyperparameters={"x": {"type": "categorical", "vals": [1, 2]}, "steps": 60, "pause": 0.25, "save_every": 20}
    )
    long["resources"]["priority"] = 60
    long["searcher"] = {"name": "grid", "metric": "error"}
    made = lab.submit(single("toy.py") | long)
    for trial in until(lambda: made.list_trials()[1:] and made.list_trials(), "both trials", 60) or ():
        lab.at_step(trial, 3, 120)
    urgent = on_pods()
    urgent["resources"]["priority"] = 30
    lab.completed(lab.submit(single("toy.py", **urgent)), 180)
    views = [trial.view for trial in lab.completed(made, 180).list_trials()]
    assert sorted(view.run for view in views) == [1, 2], lab.tell(made)
    assert [(view.restarts, view.steps_completed) for view in views] == [(0, 60), (0, 60)]
    (again,) = (trial for trial in made.list_trials() if trial.view.run == 2)
    ((_, _, (left,)),) = lab.journal(again, "preempted")
    assert [begun for _, _, (begun, _) in lab.journal(again, "start")] == ["0", left], lab.tell(made)
    assert 3 <= int(left) < 60


def test_a_storage_that_ends_with_the_pod_is_refused_before_the_first_step(lab: Lab) -> None:
    lost = {"type": "shared_fs", "host_path": "/opt/checkpoints-of-nobody"}
    made = lab.finish(lab.submit(single("toy.py", **on_pods(), checkpoint_storage=lost, max_restarts=3)), 120)
    (trial,) = made.list_trials()
    assert (trial.view.state, trial.view.restarts) == (TrialState.ERROR, 0), lab.tell(made)
    said = [line.text for line in trial.logs() if "checkpoints would be lost" in line.text]
    assert said, lab.tell(made)
    assert "checkpoint_storage.host_path" in said[-1]
    assert not lab.journal(trial, "start")


def _running(kube: FakeCluster, beside: str = "") -> str:
    def found() -> str | None:
        for pod in kube.objects("pods"):
            name = str(pod["metadata"]["name"])
            if name != beside and pod["status"].get("phase") == "Running":
                return name
        return None

    name = until(found, "a pod runs", 60)
    assert name is not None
    return name
