"""The pages on adding a node and on sharing GPUs: their commands, in order, on one cluster with the pages' pools."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from docs_snippets import DOCS, ROOT, blocks
from test_docs_commands import judge, words

from detlab.errors import Conflict
from detlab_agent.endpoints import Endpoints
from detlab_hub.core.scheduling import read_pools
from detlab_hub.services.agents.arrivals import check_protocol
from testbed import processes
from testbed.agents import Agent, printed_agent
from testbed.cluster import Cluster
from testbed.network.tls_peers import make_pair
from testbed.waiting import until

NODE = DOCS / "how-to" / "add-a-node.md"
SHARE = DOCS / "how-to" / "share-gpus-fairly.md"
TRAIN = """
import time
import detlab as det

with det.core.init() as core:
    for step in range(1, 100_000):
        time.sleep(0.1)
        core.train.report_validation_metrics(step, {"loss": 1.0 / step})
        if core.preempt.should_preempt():
            break
"""


def lines(page: Path) -> list[list[str]]:
    """The commands of each shell block."""
    return [block.text.splitlines() for block in blocks(page, "sh")]


def det(cluster: Cluster, line: str) -> str:
    done = cluster.det(*shlex.split(line)[1:])
    assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    return done.stdout


def started_by_the_page(cluster: Cluster) -> str:
    """The page's `det agent run`, for this cluster."""
    (command,) = next(block for block in lines(NODE) if block[0].startswith("det agent run"))
    (address,) = re.findall(r"--master (\S+)", command)
    return command.replace(address, cluster.url)


@pytest.fixture(scope="module")
def node(docs_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """The page's node, enrolled and running."""
    enrol = next(block for block in lines(NODE) if "enrol" in block[0])
    assert enrol == ["det agent enrol > token"]
    token = det(docs_cluster, "det agent enrol").strip()
    folder = tmp_path_factory.mktemp("node")
    with printed_agent(started_by_the_page(docs_cluster), token, folder, "node-2", docs_cluster.environment) as agent:
        agent.until_it_says("enrolled as node-2", "connected to cluster")
        yield agent


@pytest.mark.hub
def test_the_node_is_there(docs_cluster: Cluster, node: Agent) -> None:
    look = next(block for block in lines(NODE) if "det agent list" in block)
    assert all("node-2" in det(docs_cluster, line) for line in look if "pool" not in line)
    pools = json.loads(det(docs_cluster, "det pool list --json"))
    assert {pool["name"]: pool["slots_total"] for pool in pools} == {
        "default": 2,
        "train": 1,
        "deadline": 0,
        "small": 0,
    }
    (agent,) = (one for one in json.loads(det(docs_cluster, "det agent list --json")) if one["id"] == "node-2")
    assert (agent["state"], agent["pool"], agent["labels"]) == ("connected", "train", {"rack": "r7"})


@pytest.mark.soak
@pytest.mark.hub
def test_gpus_are_shared(docs_cluster: Cluster, node: Agent) -> None:
    (config,) = blocks(SHARE, "yaml")
    assert yaml.safe_load(config.text)["resources"]["resource_pool"] == "train"
    (docs_cluster.root / "sweep.yaml").write_text(config.text)
    (docs_cluster.root / "code").mkdir()
    (docs_cluster.root / "code" / "train.py").write_text(TRAIN)
    look, submit, _, caps, quotas, stored, change = lines(SHARE)
    for line in look:
        assert "train" in det(docs_cluster, line)
    assert all("would start now" in det(docs_cluster, line) for line in submit[:2])
    views = [json.loads(det(docs_cluster, f"{line} --json"))["experiment"] for line in submit[2:]]
    made = [view["id"] for view in views]
    try:
        until(lambda: '"running"' in det(docs_cluster, "det job list --pool train --json"), docs_cluster.logs)
        named = {"--project 3": f"--project {views[0]['project_id']}", "--experiment 12": f"--experiment {made[0]}"}
        capped = [det(docs_cluster, re.sub("|".join(named), lambda found: named[found[0]], line)) for line in caps]
        assert re.search(r"user +ada +0\.00 +500 ", capped[3])
        assert re.search(rf"experiment +{made[0]} +0\.00 +40 ", capped[3])
        assert "experiment" not in capped[4]
        det(docs_cluster, f"det quota remove {named['--project 3']}")
        held = [det(docs_cluster, line) for line in quotas]
        assert "vision" in held[2]
        assert "No quotas." in held[4]
        room = {line: det(docs_cluster, line) for line in stored}
        assert "500.0 GiB" in room["det quota set --user ada --storage 500GB"]
        assert "2.0 TiB" in room["det quota list"]
        assert "vision" in room["det storage usage --by group"]
        assert "No quotas." in room["det quota remove --group vision"]
        ids = {"7": str(made[0]), "8": str(made[1])}
        told = {line: det(docs_cluster, re.sub(r"\b[78]\b", lambda found: ids[found[0]], line)) for line in change}
        assert str(made[1]) in told["det job list --pool train"]
        assert "weight 3" in told["det job update 8 --weight 3"]
        assert "position 1" in told["det job update 8 --ahead-of 7"]
        assert "in the pool deadline, priority 10" in told["det job update 8 --pool deadline --priority 10"]
    finally:
        for number in made:
            docs_cluster.det("experiment", "kill", str(number))


def test_the_pools_of_the_page_are_ones() -> None:
    for block in blocks(SHARE, "python"):
        c = SimpleNamespace(DetHub=SimpleNamespace())
        exec(block.text, {"c": c})
        pools, errors = read_pools(c.DetHub.pools)
        assert not errors, block
        assert c.DetHub.pools.keys() <= pools.by_name.keys()


@pytest.mark.hub
def test_a_device_is_shared(docs_cluster: Cluster, tmp_path: Path) -> None:
    describe, slots, run = next(block for block in lines(SHARE) if "det slot list" in block)
    token = det(docs_cluster, "det agent enrol").strip()
    command = started_by_the_page(docs_cluster).replace("--pool train", "--pool small")
    with printed_agent(command, token, tmp_path, "node-3", docs_cluster.environment) as agent:
        agent.until_it_says("connected to cluster")
        assert "each device is 4 slots" in det(docs_cluster, describe)
        listed = [line for line in det(docs_cluster, slots).splitlines() if "node-3" in line]
        assert [line.split()[1] for line in listed] == ["cpu0.0", "cpu0.1", "cpu0.2", "cpu0.3"]
        assert all("1/4 of cpu0" in line and line.rstrip().endswith("free") for line in listed)
        assert "my parts: [0.25]" in det(docs_cluster, run)
        det(docs_cluster, "det agent remove node-3 --yes")


@pytest.mark.hub
def test_the_node_is_closed_emptied_and_removed(docs_cluster: Cluster, node: Agent) -> None:
    (close,) = (block for block in lines(NODE) if any("drain" in line for line in block))
    told = [det(docs_cluster, line) for line in close]
    assert "disabled" in told[0]
    assert "enabled" in told[1]
    assert "drain" in told[4]
    node.until_it_says("the master refuses the enrolment token")
    left = json.loads(det(docs_cluster, "det agent list --json"))
    assert "connected" not in [one["state"] for one in left if one["id"] == "node-2"]


def refused(tmp_path: Path, command: str) -> str:
    """What an agent says that does not come; it may go on trying."""
    log = tmp_path / "log"
    with log.open("wb") as out:
        running = subprocess.Popen(shlex.split(command), cwd=tmp_path, stdout=out, stderr=out)
    try:
        until(
            lambda: running.poll() is not None or "WARNING" in log.read_text() or "ERROR" in log.read_text(),
            log.read_text,
        )
    finally:
        processes.end(running, 20)
    return log.read_text()


@pytest.mark.hub
def test_what_it_says_when_it_does_not_come(docs_cluster: Cluster, tmp_path: Path) -> None:
    told = re.findall(
        r"^\| `(.+?)` \|", NODE.read_text(encoding="utf-8").partition("## When it does not connect")[2], re.M
    )
    not_enrolled, refuses, taken, renewed, plain, another, shared, overlap, protocol, *elsewhere = told
    # How it comes to these is shown by unit/agent/test_agent_networks.py and
    # integration/services/agents/test_uids.py: here they are the words that the code has.
    code = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "hub_ext").rglob("*.py")))
    for said in (shared, overlap, *elsewhere):
        assert said.removeprefix("the master refuses this agent: ") in code, said
    assert len(elsewhere) == 3
    with pytest.raises(Conflict, match=protocol):
        check_protocol(10_000)
    certificate, _ = make_pair(tmp_path, "pin")
    seen = Endpoints("https://hub.example.org:8642", certificate).refused()  # how it comes to that: e2e/tls/test_tls.py
    assert re.search(re.escape(renewed).replace("…", ".+"), str(seen)), seen
    run = f"{started_by_the_page(docs_cluster)} --dir state --slots 1".replace(
        "det ", shlex.join(docs_cluster.command()) + " ", 1
    )
    (tmp_path / "token").touch(mode=0o600)
    (tmp_path / "token").write_text("dtenrol_of_nobody\n")
    assert refuses in refused(tmp_path, run)
    assert not_enrolled in refused(tmp_path, run.replace("--enrolment-token-file token", ""))
    assert plain in refused(tmp_path, run.replace(docs_cluster.url, "http://hub.example.org:8642"))
    (tmp_path / "token").write_text(det(docs_cluster, "det agent enrol"))
    first = next(
        one["id"] for one in json.loads(det(docs_cluster, "det agent list --json")) if one["state"] == "connected"
    )
    assert taken.replace("node-2", first) in refused(tmp_path, run.replace("node-2", first))
    assert another in refused(tmp_path, run.replace("--dir state", f"--dir {docs_cluster.folder / 'agent'}"))


def test_the_unit_starts_what_there_is() -> None:
    (block,) = (one for one in blocks(NODE, "ini") if "ExecStart" in one.text)
    unit = configparser.RawConfigParser(strict=True)
    unit.read_string(block.text)
    program, _, rest = unit["Service"]["ExecStart"].partition(" ")
    assert Path(program).name == "det"
    assert judge(words(f"det {rest}")) is None
    assert unit["Service"]["KillMode"] == "process"
