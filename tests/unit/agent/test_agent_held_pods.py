"""A pod that only keeps the slots of a server which the Hub starts (`detlab-kube`) requests none of its devices."""

from __future__ import annotations

import pytest
from test_agent_containers import GPU, order

from detlab_agent.runtimes.kubernetes.options import KubernetesOptions
from detlab_agent.runtimes.kubernetes.pods import HOLD, Rules, pod

NODE = {"name": "node-1", "labels": {}, "taints": [], "cordoned": False, "allocatable": {"nvidia.com/gpu": "4"}}


@pytest.mark.parametrize(
    ("holds", "limits", "requests"),
    [(False, {"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "2"}), (True, None, HOLD)],
)
def test_the_devices_of_held_slots_are_requested_by_the_hubs_pod_alone(tmp_path, holds, limits, requests):
    made = order(tmp_path, GPU, GPU.model_copy(update={"id": "cuda2"}))
    made.launch.holds = holds
    made.launch.entrypoint = ["python3", "train.py", "--kind", "hold"]  # what it says decides nothing
    rules = Rules(KubernetesOptions(image="lab:1"), "kubernetes")
    found = pod(made, "det-x", NODE, rules)
    (container,) = found["spec"]["containers"]
    assert container["resources"].get("limits") == limits
    assert container["resources"]["requests"] == requests
