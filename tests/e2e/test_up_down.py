"""`det up | down | status`: the story of one embedded cluster, told once, with everything real."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from detlab.launch.host.procfs import processes, read_environment
from testbed import waiting
from testbed.cluster import Cluster

pytestmark = [pytest.mark.hub, pytest.mark.timeout(240)]

TRIAL = """
import time
import detlab as det

with det.core.init() as core:
    step, latest = 0, det.get_cluster_info().latest_checkpoint
    if latest is not None:
        with core.checkpoint.restore_path(latest) as path:
            step = int((path / "step").read_text())
    while step < 60:
        step += 1
        core.train.report_training_metrics(steps_completed=step, metrics={"loss": 1.0 / step})
        time.sleep(0.05)
        if core.preempt.should_preempt():
            with core.checkpoint.store_path({"steps_completed": step}) as (path, uuid):
                (path / "step").write_text(str(step))
            raise SystemExit(0)
    core.train.report_validation_metrics(steps_completed=step, metrics={"x": 1.0})
"""

CONFIG = """
name: story
entrypoint: python3 trial.py
searcher: {name: random, metric: x, max_trials: 2}
resources: {slots_per_trial: 1}
max_restarts: 0
"""

SLOTLESS = """
name: slotless
entrypoint: [sleep, "617.25"]
searcher: {name: single, metric: x}
resources: {slots_per_trial: 0}
max_restarts: 0
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that is not up; whatever is left of it at the end is ended."""
    found = Cluster(tmp_path, slots=2)
    yield found
    if (found.folder / "plan.json").exists():
        found.down("--timeout", "5")


def until(holds: Callable[[], Any], what: str, cluster: Cluster, timeout: float = 40.0) -> Any:
    """Return what `holds` gives as soon as it is truthy."""
    return waiting.until(holds, lambda: f"{what}\n{cluster.logs()}", timeout)


def submit(cluster: Cluster, resource_pool: str = "default", steps: int = 60) -> int:
    """Submit the story's experiment by the command line."""
    code = cluster.root / "code"
    code.mkdir(exist_ok=True)
    (code / "trial.py").write_text(TRIAL.replace("step < 60", f"step < {steps}"))
    slots = "slots_per_trial: 1"
    (cluster.root / "story.yaml").write_text(CONFIG.replace(slots, f"{slots}, resource_pool: {resource_pool}"))
    made = cluster.det("experiment", "create", "story.yaml", "code", "--json")
    assert made.returncode == 0, made.stdout + made.stderr
    with cluster.client() as client:
        return int(client.get("experiments").json()["items"][0]["id"])


def trials(cluster: Cluster, experiment: int) -> list[dict[str, Any]]:
    """The trials, empty while the master is away."""
    try:
        with cluster.client() as client:
            reply = client.get(f"experiments/{experiment}/trials")
            return list(reply.json()["items"]) if reply.is_success else []
    except httpx.HTTPError:
        return []


def completed(cluster: Cluster, experiment: int) -> list[dict[str, Any]]:
    """The trials, once all of them are completed."""
    found = trials(cluster, experiment)
    return found if found and all(trial["state"] == "COMPLETED" for trial in found) else []


def healthy(cluster: Cluster) -> bool:
    return cluster.det("status").returncode == 0


def test_the_story_of_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    # a part that does not come up is named, with its last words, and nothing is left running
    cluster.folder.mkdir()
    (cluster.folder / "detlab_config.py").write_text("c.DetHub.db_url = 'sqlite:////proc/nowhere/detlab.sqlite'\n")
    failed = cluster.up()
    assert failed.returncode != 0
    assert "the master does not come up" in failed.stderr
    assert "/proc/nowhere" in failed.stderr
    assert str(cluster.folder / "logs" / "master.log") in failed.stderr
    assert not any(alive(part["pid"]) for part in cluster.report["parts"].values())
    assert not (cluster.folder / "cluster.json").exists()
    (cluster.folder / "detlab_config.py").unlink()

    # mended, it comes up
    began = time.monotonic()
    up = cluster.up()
    took = time.monotonic() - began
    assert up.returncode == 0, up.stdout + up.stderr
    print(f"det up took {took:.1f} s")
    assert f"{cluster.url}/hub/login" in up.stdout
    assert "admin_password" in up.stdout
    assert cluster.password not in up.stdout, "not printed into pipes"
    assert "det down" in up.stdout
    pids = {part: cluster.pid(part) for part in ("supervisor", "proxy", "hub", "master", "agent")}

    # status, in words and as JSON
    status = cluster.det("status", "--json")
    assert status.returncode == 0
    seen = json.loads(status.stdout)
    assert seen["healthy"] is True
    assert seen["view"]["slots_total"] == 2
    assert {part["name"]: part["pid"] for part in seen["parts"]} == {k: v for k, v in pids.items() if k != "supervisor"}

    # a second up is harmless
    again = cluster.up()
    assert again.returncode == 0
    assert f"{cluster.url}/hub/login" in again.stdout
    assert {part: cluster.pid(part) for part in pids} == pids

    # another folder on the taken port fails, names the port and who has it, and touches nothing
    other = Cluster(tmp_path / "other", port=cluster.port)
    other.root.mkdir()
    taken = other.up("--dir", ".detlab")  # without it the cluster above would be meant
    assert taken.returncode != 0
    assert str(cluster.port) in taken.stderr
    assert f"pid {pids['proxy']} " in taken.stderr
    assert "--port" in taken.stderr
    assert not (other.folder / "cluster.json").exists()
    assert {part: cluster.pid(part) for part in pids} == pids

    experiment = submit(cluster)
    until(lambda: sum(t["allocation_state"] == "RUNNING" for t in trials(cluster, experiment)) == 2, "two run", cluster)

    # det down preempts running trials and loses nothing
    down = cluster.down("--timeout", "30")
    assert down.returncode == 0, down.stdout + down.stderr
    assert not (cluster.folder / "cluster.json").exists()
    assert not any(alive(pid) for pid in pids.values())
    assert cluster.down().returncode == 0, "a second down is harmless"
    stopped = cluster.det("status")
    assert stopped.returncode == 1
    assert "det up" in stopped.stdout

    # the next up, attached to a terminal this time, goes on with the experiment, uncounted, from its checkpoints
    with foreground(cluster) as process:
        assert cluster.pid("supervisor") == process.pid
        for trial in until(lambda: completed(cluster, experiment), "the experiment's end", cluster):
            assert trial["restarts"] == 0
            assert trial["run"] == 2
            with cluster.client() as client:
                series = client.get(f"trials/{trial['id']}/metrics", params={"group": "training"}).json()["items"]
            assert series[0]["steps"] == list(range(1, 61)), "no gap and no double"
        pids = {part: cluster.pid(part) for part in pids}
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, cluster.logs()
    assert not any(alive(pid) for pid in pids.values())


@contextlib.contextmanager
def locked_for_a_while(cluster: Cluster, seconds: float) -> Iterator[None]:
    """Hold the supervisor's lock for some seconds of the block, once it is free."""
    with (cluster.folder / "supervisor.lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        timer = threading.Timer(seconds, fcntl.flock, (file, fcntl.LOCK_UN))
        timer.start()
        try:
            yield
        finally:
            timer.join()


@contextlib.contextmanager
def foreground(cluster: Cluster) -> Iterator[subprocess.Popen[str]]:
    """`det up --foreground` from its first line on."""
    command = cluster.command("up", "--foreground", "--port", str(cluster.port), "--slots", str(cluster.slots))
    with subprocess.Popen(
        command, cwd=cluster.root, env=cluster.environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "detlab is up.\n", cluster.logs()
            yield process
            assert "Ctrl-C" in process.stdout.read()
        finally:
            process.kill()


ELASTIC = """
c.DetHub.pools = {"elastic": {"provider": {"type": "local", "slots": 2, "max_instances": 1}}}
"""


@pytest.mark.soak
def test_det_down_waits_for_trials_without_slots_too(cluster: Cluster) -> None:
    """It looked at slots alone, and left the processes of such trials behind."""
    assert cluster.up().returncode == 0
    (cluster.root / "slotless.yaml").write_text(SLOTLESS)
    made = cluster.det("experiment", "create", "slotless.yaml", "--json")
    assert made.returncode == 0, made.stderr
    pid = until(lambda: next(sleepers(), None), "the trial runs", cluster)
    down = cluster.down("--timeout", "1")
    assert down.returncode == 0, down.stdout + down.stderr
    assert "Waiting for 1 task to save and leave" in down.stdout
    assert not alive(pid)


@pytest.mark.soak
def test_det_down_ends_agents_of_elastic_pools_also_those_that_a_killed_master_launched(cluster: Cluster) -> None:
    cluster.folder.mkdir()
    (cluster.folder / "detlab_config.py").write_text(ELASTIC)
    up = cluster.up()
    assert up.returncode == 0, up.stdout + up.stderr
    experiment = submit(cluster, resource_pool="elastic", steps=6000)
    until(lambda: sum(t["allocation_state"] == "RUNNING" for t in trials(cluster, experiment)) == 2, "two run", cluster)
    (place,) = (cluster.folder / "instances" / "elastic").glob("elastic-*")
    agent = int((place / "process").read_text().split()[0])
    tasks = [
        found.pid for found in processes() if read_environment(found.pid).get("DET_TASK_DIR", "").startswith(str(place))
    ]
    assert alive(agent)
    assert len(tasks) >= 2
    master = cluster.pid("master")
    assert master is not None
    os.kill(master, signal.SIGKILL)
    until(lambda: cluster.pid("master") not in (None, master) and healthy(cluster), "another master", cluster)

    down = cluster.down("--timeout", "30")
    assert down.returncode == 0, down.stdout + down.stderr
    assert "not ended" not in down.stdout
    assert not any(alive(pid) for pid in (agent, *tasks))
    assert [path.name for path in place.parent.iterdir()] == ["logs"]
    with contextlib.closing(sqlite3.connect(cluster.folder / "db" / "detlab.sqlite")) as database:
        (saved,) = database.execute("SELECT count(*) FROM checkpoints WHERE state = 'COMPLETED'").fetchone()
    assert saved == 2, "its trials saved before they left, as on other agents"


def test_whatever_is_killed_comes_back_and_trials_do_not_notice(cluster: Cluster) -> None:
    assert cluster.up().returncode == 0
    experiment = submit(cluster)
    until(lambda: any(t["steps_completed"] > 0 for t in trials(cluster, experiment)), "a first report", cluster)

    for part in ("proxy", "hub", "agent", "master"):
        before = cluster.pid(part)
        assert before is not None
        os.kill(before, signal.SIGKILL)
        until(lambda part=part, before=before: cluster.pid(part) not in {None, before}, f"{part} again", cluster)
    until(lambda: healthy(cluster), "health after the kills", cluster)
    assert {part["restarts"] for part in cluster.report["parts"].values()} == {1}

    # without its supervisor the cluster works on, and says so; det up takes it over as it is
    parts = {part: cluster.pid(part) for part in ("proxy", "hub", "master", "agent")}
    supervisor = cluster.pid("supervisor")
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: not alive(supervisor), "the supervisor's end", cluster)
    orphaned = cluster.det("status")
    assert orphaned.returncode == 1
    assert "supervisor" in orphaned.stdout
    assert cluster.up().returncode == 0
    assert {part: cluster.pid(part) for part in parts} == parts
    assert cluster.pid("supervisor") != supervisor
    assert healthy(cluster)

    for trial in until(lambda: completed(cluster, experiment), "the experiment's end", cluster):
        assert (trial["restarts"], trial["run"]) == (0, 1)

    # a killed supervisor has its lock until the kernel is done with it: det up does not wait for it for ever
    os.kill(cluster.pid("supervisor") or 0, signal.SIGKILL)
    os.kill(parts["hub"] or 0, signal.SIGKILL)
    with locked_for_a_while(cluster, seconds=1.0):
        again = cluster.up()
    assert again.returncode == 0, again.stderr
    assert alive(cluster.pid("supervisor") or 0)
    parts = {part: cluster.pid(part) for part in parts}

    # det down also ends parts that have no supervisor any more
    os.kill(cluster.pid("supervisor") or 0, signal.SIGKILL)
    down = cluster.down()
    assert down.returncode == 0, down.stderr
    assert not any(alive(pid) for pid in parts.values())


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else; run by others, every test is this")
def test_an_ordinary_user_serves_only_themselves(tmp_path: Path) -> None:
    uid = "23456"
    os.chown(tmp_path, int(uid), int(uid))
    repository = Path(__file__).parents[2]
    become = [sys.executable, "-m", "detlab.launch.become", "--uid", uid, "--gid", uid]
    reach = ["--reach", str(repository), "--reach-rw", str(tmp_path), "--"]
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / ".detlab").mkdir()
    (tmp_path / ".detlab" / "detlab_config.py").write_text("c.EmbeddedCluster.extra_users = ['ben']\n")
    for path in (home, tmp_path / ".detlab"):
        os.chown(path, int(uid), int(uid))
    # the working folder may be closed to that user until it has become reachable
    enter = ["sh", "-c", f'cd "{tmp_path}" && exec "$@"', "sh"]
    cluster = Cluster(tmp_path, slots=1, wrap=[*become, *reach, *enter])
    started = cluster.up()
    try:
        assert started.returncode == 0, started.stdout + started.stderr + cluster.logs()
        assert "root" not in started.stdout.replace(str(tmp_path), "")
        assert cluster.user == f"det{uid}", "the account that `become` gives who has none"
        assert {Path(f"/proc/{cluster.pid(part)}").stat().st_uid for part in ("hub", "master", "agent")} == {int(uid)}
        ben = cluster.make_token("custom:detlab:write", user="ben")
        with cluster.client(ben) as client:
            refused = client.post("experiments", json={"config": yaml.safe_load(CONFIG)})
        assert refused.status_code == 422
        assert "the only agent serves another user" in refused.text
        with cluster.hub() as hub:
            server = hub.post("users/ben/server")
        assert server.status_code >= 400
        assert "not root" in server.text
    finally:
        assert cluster.down("--timeout", "5").returncode == 0


@pytest.mark.soak
def test_three_det_up_at_once_and_one_after_a_restart_with_the_clock_put_back(cluster: Cluster) -> None:
    command = cluster.command("up", "--port", str(cluster.port), "--slots", "2")
    environment = cluster.environment
    started = [
        subprocess.Popen(
            command, cwd=cluster.root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(3)
    ]
    said = [(one.communicate(timeout=120)[0], one.returncode) for one in started]
    assert [code for _, code in said] == [0, 0, 0], said
    assert sorted("is up already" in text for text, _ in said) == [False, True, True]
    assert len({cluster.pid(part) for part in ("supervisor", "proxy", "hub", "master", "agent")}) == 5
    assert healthy(cluster)

    # the machine goes down, and starts with a clock that is years behind
    for part in ("supervisor", "proxy", "hub", "master", "agent"):
        pid = cluster.pid(part)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    year = 365 * 86400.0
    report = cluster.report
    report["started_at"] += year
    for part in report["parts"].values():
        part["started_at"] += year
    (cluster.folder / "supervisor.json").write_text(json.dumps(report))
    boot = json.dumps({"boot": "00000000-0000-0000-0000-000000000000", "namespace": "pid:[1]", "pid": 1, "start": 1})
    with contextlib.closing(sqlite3.connect(cluster.folder / "db" / "detlab.sqlite")) as database, database:
        database.execute("UPDATE lease SET expires_at = expires_at + ?, process = ?", (year, boot))
    again = cluster.up()
    assert again.returncode == 0, again.stdout + again.stderr + cluster.logs()
    seen = json.loads(cluster.det("status", "--json").stdout)
    assert seen["healthy"] is True
    assert all(part["uptime"] < 600 for part in seen["parts"])


def sleepers() -> Iterator[int]:
    """Processes of the trial without slots."""
    for one in processes():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{one.pid}/cmdline").read_bytes() == b"sleep\x00617.25\x00":
                yield one.pid


def alive(pid: int | None) -> bool:
    """Whether a process runs (a zombie does not)."""
    if pid is None:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
