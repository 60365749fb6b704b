"""Pods that would reach the cluster, its Services or other users: an ordinary user submits them, and none is taken.

What of it the agent refuses again, on the fake cluster and on the real one, is in
`tests/kubernetes/agent/test_kubernetes_hostile.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from testbed.cluster import Cluster
from testbed.kubernetes.pod_attacks import AGENTS_ALONE, LABELS, NEVER

pytestmark = pytest.mark.hub

OPERATORS_CHOICE = {"not allowed", "a domain in large letters", "the user's domain, but not quite"}
"""Labels that another operator may allow."""
ATTACKS: dict[str, dict[str, Any]] = {
    **{name: {"spec": NEVER[name]} for name in NEVER.keys() - AGENTS_ALONE},
    **{f"label: {name}": {"metadata": {"labels": LABELS[name]}} for name in LABELS.keys() - OPERATORS_CHOICE},
}


@pytest.fixture
def mallory(cluster: Cluster) -> Iterator[httpx.Client]:
    with cluster.client(cluster.make_token("custom:detlab:write", user="mallory")) as client:
        yield client


def test_no_attack_by_a_pod_spec_is_taken_at_submit(mallory: httpx.Client) -> None:
    """Each was run as it was written, but for a list of what had been thought of."""
    taken = []
    for name, asked in sorted(ATTACKS.items()):
        environment = {"pod_spec": asked}
        trial = {
            "entrypoint": "true",
            "runtime": "kubernetes",
            "searcher": {"name": "single", "metric": "x"},
            "environment": environment,
        }
        task = {"entrypoint": ["true"], "runtime": "kubernetes", "environment": environment}
        for reply in (
            mallory.post("experiments", json={"config": trial}),
            mallory.post("tasks", json={"kind": "command", "config": task}),
        ):
            problems = [one["path"] for one in reply.json().get("problems", [])]
            if reply.status_code != 422 or not any(path.startswith("environment.pod_spec.") for path in problems):
                taken.append((name, reply.status_code, reply.text[:300]))
    assert not taken


def test_all_of_its_mistakes_are_told_in_one_reply(mallory: httpx.Client) -> None:
    spec = {"hostNetwork": True, "volumes": [{"name": "v", "nfs": {}}], "containers": [{"name": "s", "imagee": "x"}]}
    task = {"entrypoint": ["true"], "environment": {"pod_spec": {"spec": spec}}}
    reply = mallory.post("tasks", json={"kind": "command", "config": task})
    told = {one["path"].removeprefix("environment.pod_spec.spec."): one["hint"] for one in reply.json()["problems"]}
    assert told.keys() == {"hostNetwork", "volumes[0].nfs", "containers[0].imagee", "containers[0].image"}
    assert told["containers[0].imagee"].startswith("did you mean `image`? allowed here: name, image, ")
