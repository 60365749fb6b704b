"""The page that sets up a cluster for a group: its configuration, and all its commands in order, on its own cluster."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import pytest
from docs_snippets import DOCS, blocks

from testbed.cluster import Cluster, running_cluster
from testbed.waiting import until

PAGE = DOCS / "how-to" / "a-cluster-for-twelve-people.md"
TRAIN = """
import detlab as det

with det.core.init() as core:
    core.train.report_validation_metrics(1, {"loss": det.get_cluster_info().trial.hparams["lr"]})
"""

pytestmark = pytest.mark.hub


@pytest.fixture(scope="module")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    (config,) = blocks(PAGE, "python")
    # The one agent of the test is in the pool `default`.
    moved = 'c.DetHub.default_compute_pool = "default"'
    text = config.text.replace('c.DetHub.default_compute_pool = "train"', moved)
    assert moved in text
    with running_cluster(tmp_path_factory.mktemp("twelve"), slots=2, config=text) as running:
        yield running


def test_the_page_sets_up_the_cluster(twelve: Cluster) -> None:
    for block in blocks(PAGE, "yaml"):
        name = block.text.splitlines()[0].removeprefix("# ")
        assert name.endswith(".yaml")
        (twelve.root / name).write_text(block.text)
    (twelve.root / "code").mkdir()
    (twelve.root / "code" / "train.py").write_text(TRAIN)
    said = {}
    for block in blocks(PAGE, "sh"):
        for line in block.text.splitlines():
            # There is no node in the pool `train`, and no network.
            command = line.replace("--pool train", "--pool default").replace("hooks.slack.com", "93.184.216.34")
            done = twelve.det(*shlex.split(command)[1:])
            assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
            said[line] = done.stdout + done.stderr
    assert all(name in said["det user list"] for name in ("ada", "lea", "vision", "speech"))
    assert "ben" in said["det quota list"]
    assert "max_slots: 4" in said["det config-policies describe experiment"]
    assert "small" in said["det template list"]
    dry = said["det experiment create search.yaml code/ --template small -w vision --project digits --dry-run"]
    for given in ("from template small", "from the cluster", "config policy of the cluster", "EUR an hour"):
        assert given in dry, dry
    assert "first" in said["det experiment list -w vision"]
    assert "Welcome. Questions: ada" in twelve.det("master", "cluster-message", "get").stdout
    ended = ("COMPLETED", "ERROR")
    (number,) = [one["id"] for one in json.loads(twelve.det("experiment", "list", "-w", "vision", "--json").stdout)]
    until(
        lambda: json.loads(twelve.det("experiment", "describe", str(number), "--json").stdout)["state"] in ended,
        twelve.logs,
    )
    assert json.loads(twelve.det("experiment", "describe", str(number), "--json").stdout)["state"] == "COMPLETED"
    refused = twelve.det(
        *("experiment", "create", "search.yaml", "code/", "--config", "resources.slots_per_trial=8"), check=False
    )
    assert refused.returncode != 0
    assert "the config policy of the cluster says constraints.resources.max_slots: 4" in refused.stderr


def test_a_member_of_one_group_sees_nothing_of_the_other(twelve: Cluster) -> None:
    with twelve.client(twelve.make_token("custom:detlab:write", user="hana")) as hana:
        names = [one["name"] for one in hana.get("workspaces").json()["items"]]
        assert "speech" in names
        assert "vision" not in names
        assert hana.get("experiments", params={"workspace": f"{twelve.user}/vision"}).status_code == 404
