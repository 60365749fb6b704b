"""Templates, defaults, config policies and caps of cost by `det`, as their pages print them, on a real cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from detlab.client.client import Client
from detlab.client.operations.configs.templates import remove_template
from testbed.cluster import Cluster

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]

SEARCH = "name: layered\nentrypoint: 'true'\nmax_restarts: 0\nsearcher: {name: single, metric: x}\n"
SITE = "environment: {environment_variables: [A=1, API_KEY=hush]}\n"
LARGE = "resources: {slots_per_trial: 2}\nmax_restarts: 7\n"
POLICY = """
invariant_config: {environment: {environment_variables: [P=9]}}
constraints: {resources: {max_slots: 1}, priority_limit: 40}
"""

Det = Callable[..., str]


@pytest.fixture
def det(cluster: Cluster) -> Det:
    """Run a command; return all that it printed. What is refused is asked for by its exit code."""
    for name, text in {"search": SEARCH, "site": SITE, "large": LARGE, "policy": POLICY}.items():
        (cluster.root / f"{name}.yaml").write_text(text)

    def run(*words: str, code: int = 0) -> str:
        done = cluster.det(*words)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    return run


def test_a_template_goes_into_experiments_and_stays_masked(cluster: Cluster, det: Det, client: Client) -> None:
    workspace = client.create_workspace("layers")
    place = f"{cluster.user}/layers"
    assert "holds credentials" in det("template", "set", "site", "site.yaml", "--workspace", place)
    assert f"Set template {place}:large, version 1." in det(
        "template", "set", "large", "large.yaml", "--workspace", place, "--base", "site"
    )
    shown = det("template", "describe", f"{place}:large", "--merged")
    assert "A=1" in shown
    assert "hush" not in shown
    assert "in a loop" in det("template", "set", "site", "site.yaml", "-w", place, "--base", "large", code=1)
    assert "gives template" in det("workspace", "set-defaults", place, "--template", "large")
    told = det("e", "create", "search.yaml", "--dry-run", "-w", place)
    assert "resources.slots_per_trial: 2 (from template large" in told
    assert "hush" not in told
    workspace.set_defaults(task_container_defaults={"startup_hook": "true"})
    gives = client.get_workspace("layers").view.defaults
    assert (gives.template, gives.task_container_defaults) == ("", {"startup_hook": "true"})
    for name in ("large", "site"):
        client.session.run(remove_template(f"{place}:{name}"))
    workspace.delete()


@pytest.fixture
def policy(det: Det) -> Iterator[None]:
    """A policy of the cluster, while the test runs."""
    det("config-policies", "set", "experiment", "policy.yaml")
    yield
    det("config-policies", "delete", "experiment")


@pytest.mark.usefixtures("policy")
def test_a_config_policy_of_the_cluster_refuses_with_its_text(det: Det) -> None:
    assert "max_slots: 1" in det("config-policies", "describe", "experiment")
    assert 'environment_variables: ["P=9"] (from config policy of the cluster)' in det(
        "e", "create", "search.yaml", "--dry-run"
    )
    refused = det("e", "create", "search.yaml", "--dry-run", "--config", "resources.slots_per_trial=2", code=2)
    assert "the config policy of the cluster says constraints.resources.max_slots: 1" in refused


def test_a_reached_cap_of_cost_refuses_by_every_door(cluster: Cluster, det: Det) -> None:
    """Also the Hub's: what its form or `det` starts there is refused with the same text."""
    assert "reached" in det("quota", "set", "--user", cluster.user, "--cost", "0")
    try:
        for words in (
            ("e", "create", "search.yaml"),
            ("cmd", "run", "--slots", "1", "--", "true"),
            ("notebook", "start", "--slots", "1"),
        ):
            refused = det(*words, code=1)
            assert f"the cap of user {cluster.user} is reached" in refused
            assert f"det quota set --user {cluster.user} --cost AMOUNT" in refused
    finally:
        det("quota", "remove", "--user", cluster.user)
