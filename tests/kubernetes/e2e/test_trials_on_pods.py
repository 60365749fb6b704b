"""A whole cluster of detlab whose trials and commands run as pods of the fake Kubernetes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "e2e"))

from spine_lab import TRIALS, Lab, single

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
