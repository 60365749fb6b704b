"""The master at rest and under watch: its start, its memory, its idle CPU, and 500 streams through the Hub's proxy.

    python bench/rest.py
    python bench/rest.py --quick --no-peers            20 streams, a few seconds
    python bench/rest.py --parts streams --streams 100
    make bench-rest BENCH_ARGS="--json"

*Start*: from the command to the first healthy answer, on a database that is there already; the floor is a Python that
imports what the master imports. *At rest*: half a minute after that, resident memory, and CPU over the following
20 seconds. *Streams*: one trial makes 100 reports each second, and so many readers follow its experiment through
configurable-http-proxy. Its reports go to the master as a launcher sends them, which looks every 50 ms: five in a
request. Each carries the time at which it was sent; what counts is until a reader has read it, and that each reader
gets every one, once and in order. CPU is that of master plus proxy, as a share of one core; the readers run in a
process of their own. Beside it stand a floor, the same lines, at the pace of the master's looks, from a server that
does nothing but write (`load/fanout.py`), through the same proxy; the same reports with one reader alone; and a request
for each report, as a hundred trials would make that report once a second.
MLflow's server stands beside start and rest.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import httpx
from ingest import Trial
from master import API, Master, Node, running_trials
from measure import Figure, absent, conclude, cpu_of, median_of, memory_of, options, percentile, spread
from mlflow_server import NAME as MLFLOW
from mlflow_server import mlflow_server

from detlab.launch.delivery.sender import POLL
from detlab_hub.services.streams.tails import PERIOD
from testbed.cluster import UNLIMITED, Cluster, running_cluster

START, MEMORY, IDLE = 3.0, 150.0, 1.0
"""Seconds; MB; percent of a core."""
LATE, BUSY = 100.0, 40.0
"""Milliseconds at the 99th percentile; percent of a core."""
RATE = 100
"""Reports each second."""
TOGETHER = round(RATE * POLL)
"""Reports of a request, as the launcher of one trial finds them."""
READERS = str(Path(__file__).parent / "load" / "readers.py")
"""The process that reads all streams."""
FANOUT = str(Path(__file__).parent / "load" / "fanout.py")
"""The server of the floor, which only writes."""


@dataclass
class Rest:
    """What was seen of a server by itself, by round."""

    starts: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)

    def look(self, pid: int, seconds: float, given: argparse.Namespace) -> None:
        """Look at a server that has nothing to do."""
        self.starts.append(seconds)
        time.sleep(1 if given.quick else 30)
        span = 2 if given.quick else 20
        before = cpu_of([pid])
        time.sleep(span)
        self.idle.append((cpu_of([pid]) - before) / span * 100)
        self.memory.append(memory_of([pid]))


@dataclass
class Watched:
    """What was seen of the streams, by round."""

    lost: int = 0
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    parts: list[tuple[float, float, float, float]] = field(default_factory=list)
    """CPU of master, proxy and readers, percent of a core; reports each second."""


def rest(cluster: Cluster, root: Path, given: argparse.Namespace) -> list[Figure]:
    """Measure starts and rest, ours and MLflow's."""
    ours, peer = Rest(), Rest()
    floors = []
    why = absent(MLFLOW, given)
    master = Master(cluster, root / "rest")
    master.start()  # makes the database
    master.end()
    for number in range(given.rounds):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import detlab_hub.app"], check=True)
        floors.append(time.perf_counter() - began)
        seconds = master.start()
        ours.look(master.pid, seconds, given)
        master.end()
        if not why:
            with mlflow_server(root / f"mlflow{number}") as server:
                peer.look(server.pid, server.seconds, given)

    def row(label: str, values: list[float], unit: str, goal: float | None = None) -> Figure:
        if not values:
            return Figure(label, None, note=why)
        return Figure(label, median_of(values), unit, at_most=goal, note=spread(values))

    return [
        row("detlab: cold start to healthy", ours.starts, "s", START),
        row("  floor: python imports what the master does", floors, "s"),
        row("  MLflow: cold start to healthy", peer.starts, "s"),
        row("detlab: memory at rest", ours.memory, "MB", MEMORY),
        row("  MLflow: memory at rest", peer.memory, "MB"),
        row("detlab: CPU at rest", ours.idle, "%", IDLE),
        row("  MLflow: CPU at rest", peer.idle, "%"),
    ]


def read_by(cluster: Cluster, path: str, streams: int, count: int) -> subprocess.Popen[str]:
    """Start the readers of a path behind the proxy; return when all streams are open."""
    command = [sys.executable, READERS, "127.0.0.1", str(cluster.port), path, cluster.token, str(streams), str(count)]
    readers = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert readers.stdout is not None
    assert readers.stdout.readline().strip() == "open"
    return readers


def one_round(
    found: Watched,
    cluster: Cluster,
    server: int,
    path: str,
    streams: int,
    count: int,
    report: Callable[[int], object],
    together: int = 1,
) -> None:
    """Open the streams, report so often, and hear what the readers read.

    Args:
        found: Where it is added.
        cluster: Whose proxy it goes through.
        server: Process id of who sends.
        path: What is read.
        streams: How many read it.
        count: How many reports.
        report: Called at its time, with the number of the first.
        together: How many reports it makes at a time.
    """
    with read_by(cluster, path, streams, count) as readers:
        assert readers.stdout is not None
        pids = [pid for pid in (server, cluster.pid("proxy"), readers.pid) if pid is not None]
        before = [cpu_of([pid]) for pid in pids]
        began = time.perf_counter()
        for number in range(0, count, together):
            time.sleep(max(0.0, began + number / RATE - time.perf_counter()))
            report(number)
        taken = time.perf_counter() - began
        cpu = [(cpu_of([pid]) - then) / taken * 100 for pid, then in zip(pids, before, strict=True)]
        said: dict[str, Any] = json.loads(readers.stdout.read())
    found.lost += streams - said["whole"]
    found.p50.append(percentile(said["late"], 50) * 1000)
    found.p99.append(percentile(said["late"], 99) * 1000)
    found.busy.append(cpu[0] + cpu[1])
    found.parts.append((cpu[0], cpu[1], cpu[2], count / taken))


def floor_round(found: Watched, cluster: Cluster, streams: int, count: int) -> None:
    """The same from a server that only writes, through the same proxy."""
    command = [sys.executable, FANOUT, str(streams), str(count), str(RATE), str(PERIOD), "2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        target = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        token = (cluster.folder / "secrets" / "proxy_token").read_text().strip()
        route = f"http://127.0.0.1:{cluster.plan['proxy_api_port']}/api/routes/floor"
        head = {"Authorization": f"token {token}"}
        httpx.post(route, json={"target": target}, headers=head, trust_env=False).raise_for_status()
        begin = server.stdin

        def report(number: int) -> None:
            if number == 0:
                begin.write("\n")
                begin.flush()

        one_round(found, cluster, server.pid, "/floor", streams, count, report)
        begin.close()
        httpx.delete(route, headers=head, trust_env=False).raise_for_status()


def watch(cluster: Cluster, given: argparse.Namespace) -> list[Figure]:
    """Measure the streams of the cluster's own master, through its proxy."""
    master = Master(cluster, cluster.folder, port=int(cluster.plan["master_port"]))
    master.enrolment = (cluster.folder / "secrets" / "enrolment_token").read_text().strip()
    with cluster.client() as http:  # so that the trial is given to the node without processes
        for agent in http.get("agents").json():
            http.post(f"agents/{agent['id']}/disable").raise_for_status()
    node = Node(master, 1, name="streams")
    node.connect()
    (launch,) = running_trials(master, node, 1)
    trial = Trial(master, launch)
    trial.report_now()
    path = f"{API}experiments/{launch['info']['experiment_id']}/stream"
    streams, seconds = (20, 2.0) if given.quick else (given.streams, 10.0)
    count = int(seconds * RATE)
    server = cluster.pid("master")
    assert server is not None
    found, floor, alone, single = Watched(), Watched(), Watched(), Watched()

    def all_at_once(_: int) -> None:
        trial.report_now(TOGETHER)

    for _ in range(given.rounds):
        floor_round(floor, cluster, streams, count)
        one_round(found, cluster, server, path, streams, count, all_at_once, TOGETHER)
        one_round(alone, cluster, server, path, 1, count, all_at_once, TOGETHER)
        one_round(single, cluster, server, path, streams, count, lambda _: trial.report_now())
    node.hang_up()
    label = f"detlab, {streams} streams at {RATE} events/s through the proxy"
    return [
        Figure(f"{label}: readers that lost any", found.lost + single.lost, "", at_most=0),
        Figure("  … until read, p99", median_of(found.p99), "ms", at_most=LATE, note=p50_of(found)),
        Figure(
            "    floor: the same lines from a server that only writes", median_of(floor.p99), "ms", note=p50_of(floor)
        ),
        Figure("  … CPU", median_of(found.busy), "%", at_most=BUSY, note=who_of(found, "master")),
        Figure("    floor: that server", median_of(floor.busy), "%", note=who_of(floor, "server")),
        Figure("    of it the reports: with one reader", median_of(alone.busy), "%", note=who_of(alone, "master")),
        Figure("  … a request for each: until read, p99", median_of(single.p99), "ms", note=p50_of(single)),
        Figure("  … a request for each: CPU", median_of(single.busy), "%", note=who_of(single, "master")),
    ]


def p50_of(found: Watched) -> str:
    """The median delay as text."""
    return f"p50 {median_of(found.p50):.0f}"


def who_of(found: Watched, server: str) -> str:
    """Who took the CPU, as text."""
    own, proxy, readers, rate = (median_of(part[place] for part in found.parts) for place in range(4))
    return f"{server} {own:.0f} %, proxy {proxy:.0f} %; besides the readers {readers:.0f} %; {rate:.0f} reports/s"


def main() -> int:
    """Print the table; with --check status 1 if a goal is missed."""

    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--parts", nargs="*", choices=["rest", "streams"], default=["rest", "streams"])
        parser.add_argument("--streams", type=int, default=500)

    given = options(__doc__ or "", more)
    rows: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "hub").mkdir()
        with running_cluster(root / "hub", slots=1, config=UNLIMITED) as cluster:
            if "rest" in given.parts:
                rows += rest(cluster, root, given)
            if "streams" in given.parts:
                rows += watch(cluster, given)
    return conclude("The master at rest, and watched", rows, given)


if __name__ == "__main__":
    sys.exit(main())
