"""An ordinary user fills the disk of the state folder: nothing ends for good, and it is said what is full."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import detlab_hub.embedded
from testbed.cluster import Cluster, running_cluster
from testbed.people.other_users import User
from testbed.small_disks import CannotRun, Disk, small_disk
from testbed.waiting import until

pytestmark = [
    pytest.mark.hub,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users, and mount"),
]

ROOT = Path(__file__).resolve().parents[2]
MALLORY = 23456
TRIAL = """
import detlab as det
with det.core.init() as core:
    core.train.report_validation_metrics(steps_completed=1, metrics={"x": 1.0})
"""
CONFIG = """
name: after
entrypoint: python3 trial.py
searcher: {name: single, metric: x, max_length: 1}
resources: {slots_per_trial: 1}
"""


@pytest.fixture
def site(open_folder: Path) -> Iterator[tuple[Cluster, Disk]]:
    """A cluster whose state folder has a disk of its own."""
    root = open_folder / "full"
    root.mkdir(mode=0o755)
    try:
        with (
            small_disk(root / ".detlab", 96, 0o711) as disk,
            running_cluster(root, config="c.EmbeddedCluster.docker = False\n") as cluster,
        ):
            yield cluster, disk
    except CannotRun as error:
        pytest.skip(str(error))
    finally:
        shutil.rmtree(root)


def kill(cluster: Cluster, part: str) -> int:
    pid = cluster.pid(part)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def test_the_cluster_outlives_a_full_disk_says_so_and_comes_back_by_itself(site: tuple[Cluster, Disk]) -> None:
    cluster, disk = site
    supervisor = cluster.pid("supervisor")
    mine = Disk(disk.folder / "checkpoints")  # a folder into which every user may write
    mallory = User(MALLORY)
    try:
        mallory(mine.fill)
        killed = {part: kill(cluster, part) for part in ("hub", "master", "proxy", "agent")}
        until(lambda: all(cluster.pid(part) != pid for part, pid in killed.items()), cluster.logs, 20)
        said = " ".join(cluster.det("status").stdout.split())
        assert f"the disk of {disk.folder} is full: " in said
        assert " bytes free;" in said
        assert f"df -h {disk.folder}" in said
        # again, with whatever has come up meanwhile: the supervisor has nowhere to write that down
        for part in killed:
            if cluster.pid(part) is not None:
                kill(cluster, part)
        until(lambda: any(row["restarts"] >= 2 for row in cluster.report["parts"].values()), cluster.logs, 20)
        assert cluster.pid("supervisor") == supervisor
        os.kill(supervisor or 0, 0)
    finally:
        mine.free()
        mallory.end()

    until(lambda: cluster.det("status").returncode == 0, cluster.logs, 60)
    assert cluster.pid("supervisor") == supervisor
    (cluster.root / "code").mkdir()
    (cluster.root / "code" / "trial.py").write_text(TRIAL)
    (cluster.root / "after.yaml").write_text(CONFIG)
    made = cluster.det("experiment", "create", "after.yaml", "code", "--json")
    assert made.returncode == 0, made.stdout + made.stderr
    with cluster.client() as api:
        until(lambda: api.get("experiments").json()["items"][0]["state"] == "COMPLETED", cluster.logs, 60)


@pytest.mark.soak
def test_on_a_full_disk_det_up_says_so_and_leaves_alone_what_runs(site: tuple[Cluster, Disk]) -> None:
    cluster, disk = site
    before = {part: cluster.pid(part) for part in ("hub", "master", "proxy", "agent")}
    kill(cluster, "supervisor")
    disk.fill()
    try:
        refused = cluster.up()
        assert refused.returncode != 0
        assert f"the disk of {disk.folder} is full: " in refused.stderr
        assert "df -h" in refused.stderr
        assert {part: cluster.pid(part) for part in before} == before
        for pid in before.values():
            os.kill(pid or 0, 0)
    finally:
        disk.free()
    assert cluster.up().returncode == 0
    assert cluster.det("status").returncode == 0


def test_the_proxy_outlives_lines_of_its_log_for_which_there_is_no_room(tmp_path: Path) -> None:
    node = shutil.which("node")
    assert node, "the proxy runs on node"
    winston = ROOT / "labextension" / "node_modules" / "winston"
    if not winston.is_dir():
        pytest.skip("npm ci in labextension/ first")
    script = tmp_path / "logs.cjs"
    script.write_text(f"""
const {{createLogger, transports}} = require({str(winston)!r});
const log = createLogger({{transports: [new transports.Console()]}});
const fs = require('node:fs');
log.warn('before'); console.error('before');
fs.unlinkSync(process.argv[2]);
log.warn('after'); console.error('after');
process.exitCode = 7;
""")
    try:
        with small_disk(tmp_path / "disk", 8, 0o755) as disk:
            log = disk.folder / "log"
            with log.open("ab") as output:
                disk.fill()
                loaded = Path(detlab_hub.embedded.__file__).parent / "lasting_output.cjs"
                argv = [node, f"--require={loaded}", str(script), str(disk.ballast)]
                done = subprocess.run(argv, stdout=output, stderr=output, check=False, timeout=60)
            assert done.returncode == 7, log.read_text()
            assert "before" not in log.read_text()
            assert log.read_text().count("after") == 2
    except CannotRun as error:
        pytest.skip(str(error))
