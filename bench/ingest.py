"""Metrics through the master's REST API, acknowledged after their commit, beside MLflow's tracking server.

    python bench/ingest.py                                   SQLite and PostgreSQL, medians of five rounds
    python bench/ingest.py --databases sqlite --no-peers     ours alone, about a minute
    python bench/ingest.py --quick --no-peers --databases sqlite
    make bench-ingest BENCH_ARGS="--json"

A row is one (trial, metric, step, value). A report has 1,000 of them: 100 steps of 10 metrics, as a launcher sends what
its trial has spooled. Clients are threads with a connection each; bodies are made before the clock starts, so that the
server is what is measured, ours by `POST task/records` and MLflow by `runs/log-batch`, in the same way. The floor
writes the same rows into the same table: `executemany` on SQLite, COPY on PostgreSQL, one commit for each 1,000,
synced. In the end the master is killed (kill -9) and started again, and every row is read back by the API.

CPU is that of the server's process and, on PostgreSQL, of the database's processes too. Databases sync each commit.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from master import API, Connection, Master, running_master, running_trials
from measure import Figure, absent, beside, conclude, cpu_of, median_of, options, percentile, spread
from mlflow_server import NAME as MLFLOW
from mlflow_server import Server as Mlflow
from mlflow_server import mlflow_server

from testbed.cluster import UNLIMITED, running_cluster
from testbed.databases import postgres

STEPS, NAMES = 100, 10
ROWS = STEPS * NAMES
CLIENTS = (1, 8)
THEN = {1: 5000.0, 8: 11500.0}
"""Rows per second of MLflow when the goals were set."""
TIMES = 10.0
LOGGED_TIMES = 5.0
"""How much faster than MLflow's own server our master is to be by MLflow's own protocol."""
PROTOCOL = "/services/detlab/mlflow"
CPU_GOAL, CPU_THEN = 1.5, 12.0
SMALL_P50, SMALL_P95, SMALL_THEN = 3.0, 10.0, 52.0
TABLE = (
    "CREATE TABLE points (series_id BIGINT, step BIGINT, run INTEGER, value {0}, flag SMALLINT, time {0},"
    " PRIMARY KEY (series_id, step))"
)
COLUMNS = "series_id, step, run, value, flag, time"


def value_at(name: int, step: int) -> float:
    """Return what metric number `name` is at a step."""
    return math.sin(step / 50 + name)


@dataclass
class Sender:
    """One client's connection, and what it has sent.

    Attributes:
        send: Sends a body and returns when it is acknowledged.
        body: Makes the next report, of `steps` steps of `names` metrics.
    """

    send: Callable[[bytes], object]
    body: Callable[[int, int], bytes]


class Trial:
    """A running trial of ours as a client."""

    def __init__(self, master: Master, launch: dict[str, Any]) -> None:
        self.id = int(launch["info"]["trial_id"])
        self.steps = 0
        self._seq = 0
        self.http = Connection(master.address, launch["task_token"])
        self.sender = Sender(self._send, self._body)

    def report_now(self, count: int = 1) -> None:
        """Make so many reports in one request, each of one metric, the time."""
        records = []
        for _ in range(count):
            self._seq += 1
            self.steps += 1
            head = {"kind": "metrics", "seq": self._seq, "time": time.time(), "group": "training"}
            records.append({**head, "steps_completed": self.steps, "metrics": {"sent": time.time()}})
        self._send(json.dumps({"stream": "metrics", "records": records}).encode())

    def _send(self, body: bytes) -> None:
        ack = json.loads(self.http.ask("POST", f"{API}task/records", body))
        assert not ack["refused"], ack

    def _body(self, steps: int, names: int) -> bytes:
        records = []
        for _ in range(steps):
            self._seq += 1
            self.steps += 1
            found = {f"m{name}": value_at(name, self.steps) for name in range(names)}
            head = {"kind": "metrics", "seq": self._seq, "time": time.time(), "group": "training"}
            records.append({**head, "steps_completed": self.steps, "metrics": found})
        return json.dumps({"stream": "metrics", "records": records}).encode()


class Run:
    """A run as a client of MLflow's protocol, of MLflow's own server or of our master."""

    def __init__(self, run: str, http: Connection, below: str = "") -> None:
        self._run, self._path = run, f"{below}/api/2.0/mlflow/runs/log-batch"
        self._steps = 0
        self.http = http
        self.sender = Sender(self._send, self._body)

    @classmethod
    def of_peer(cls, server: Mlflow, name: str) -> Run:
        """Make a run of MLflow's own server."""
        return cls(server.make_run(name), Connection(server.address, ""))

    @classmethod
    def of_ours(cls, master: Master) -> Run:
        """Make a run that no cluster started, of a user."""
        http = master.person()
        made = http.ask("POST", f"{PROTOCOL}/api/2.0/mlflow/runs/create", b'{"experiment_id": "0"}')
        return cls(json.loads(made)["run"]["info"]["run_id"], http, PROTOCOL)

    def _send(self, body: bytes) -> None:
        self.http.ask("POST", self._path, body)

    def _body(self, steps: int, names: int) -> bytes:
        found = []
        for _ in range(steps):
            self._steps += 1
            now = int(time.time() * 1000)
            found += [
                {"key": f"m{name}", "value": value_at(name, self._steps), "timestamp": now, "step": self._steps}
                for name in range(names)
            ]
        return json.dumps({"run_id": self._run, "metrics": found}).encode()


@dataclass
class Taken:
    """What one side took, over the rounds."""

    rates: list[float] = field(default_factory=list)
    """Rows per second."""
    cpu: list[float] = field(default_factory=list)
    """CPU seconds per 100,000 rows, the database's included."""
    own: list[float] = field(default_factory=list)
    """Of them the server's own."""

    def add(self, rows: int, seconds: float, own: float, database: float) -> None:
        """Add a round."""
        self.rates.append(rows / seconds)
        self.cpu.append((own + database) / rows * 1e5)
        self.own.append(own / rows * 1e5)


@dataclass
class Database:
    """Where a server keeps its rows: a fresh URL for each, and the processes whose CPU counts."""

    kind: str
    fresh: Callable[[str], str]
    pids: Callable[[], Sequence[int]]
    floor: Callable[[Path, int], tuple[float, float]]
    """Write so many reports bare; (seconds, CPU seconds)."""


def load(senders: Sequence[Sender], reports: int) -> float:
    """Send so many reports from each client at the same time; return the seconds."""
    bodies = [[sender.body(STEPS, NAMES) for _ in range(reports)] for sender in senders]
    failed: list[BaseException] = []
    gate = threading.Barrier(len(senders) + 1)

    def work(sender: Sender, own: list[bytes]) -> None:
        gate.wait()
        try:
            for body in own:
                sender.send(body)
        except BaseException as error:  # raised by the main thread
            failed.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(senders, bodies, strict=True)]
    for thread in threads:
        thread.start()
    gate.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if failed:
        raise failed[0]
    return seconds


def one_round(taken: Taken, senders: Sequence[Sender], reports: int, server: int, database: Database) -> None:
    """Load a server once and note what it took."""
    own, other = cpu_of([server]), cpu_of(database.pids())
    seconds = load(senders, reports)
    taken.add(reports * ROWS * len(senders), seconds, cpu_of([server]) - own, cpu_of(database.pids()) - other)


def small(sender: Sender, count: int) -> list[float]:
    """Return the milliseconds of so many reports of one metric, one after the other."""
    found = []
    for _ in range(count):
        body = sender.body(1, 1)
        began = time.perf_counter()
        sender.send(body)
        found.append((time.perf_counter() - began) * 1000)
    return found[count // 10 :]


# --- databases and their floors ---------------------------------------------------------------------------


def rows_of(number: int) -> list[tuple[int, int, int, float, int, float]]:
    """Return the rows of one report."""
    steps = range(number * STEPS, (number + 1) * STEPS)
    return [(name, step, 1, value_at(name, step), 0, float(step)) for step in steps for name in range(NAMES)]


def bare_sqlite(path: Path, reports: int) -> tuple[float, float]:
    """Write reports by `executemany`."""
    batches = [rows_of(number) for number in range(reports)]
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(TABLE.format("DOUBLE") + " WITHOUT ROWID")
    began, cpu = time.perf_counter(), time.process_time()
    for batch in batches:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO points VALUES (?, ?, ?, ?, ?, ?)", batch)
        connection.execute("COMMIT")
    found = time.perf_counter() - began, time.process_time() - cpu
    connection.close()
    path.unlink()
    return found


def bare_postgres(server: postgres.Server, reports: int) -> tuple[float, float]:
    """Write reports by COPY."""
    import psycopg

    batches = [rows_of(number) for number in range(reports)]
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS points")
        connection.execute(TABLE.format("DOUBLE PRECISION").encode())
        began, cpu = time.perf_counter(), time.process_time() + cpu_of(server.processes()[:1])
        for batch in batches:
            with connection.cursor().copy(f"COPY points ({COLUMNS}) FROM STDIN".encode()) as copy:
                for row in batch:
                    copy.write_row(row)
        return time.perf_counter() - began, time.process_time() + cpu_of(server.processes()[:1]) - cpu


@contextmanager
def database_of(kind: str, folder: Path) -> Iterator[Database]:
    """SQLite in the folder, or a PostgreSQL server that syncs its commits."""
    if kind == "sqlite":
        yield Database(
            kind,
            lambda name: f"sqlite:///{folder / name}.sqlite",
            list,
            lambda scratch, reports: bare_sqlite(scratch / "bare.sqlite", reports),
        )
        return
    server = postgres.up(durable=True)
    try:

        def made(name: str) -> str:
            server.sql(f"CREATE DATABASE {name}")
            return server.url(name)

        first = server.processes()[:1]
        yield Database(kind, made, lambda: first, lambda _, reports: bare_postgres(server, reports))
    finally:
        postgres.down(server.directory)


# --- one database -----------------------------------------------------------------------------------------


@dataclass
class Found:
    """All that was measured on one database."""

    ours: dict[int, Taken] = field(default_factory=lambda: {count: Taken() for count in CLIENTS})
    peer: dict[int, Taken] = field(default_factory=lambda: {count: Taken() for count in CLIENTS})
    logged: Taken = field(default_factory=Taken)
    """Of one client of MLflow's protocol, by our master."""
    small_logged: list[list[float]] = field(default_factory=list)
    floor: Taken = field(default_factory=Taken)
    small: list[list[float]] = field(default_factory=list)
    small_peer: list[list[float]] = field(default_factory=list)
    read_back: int = 0


def measure(cluster: Any, folder: Path, database: Database, given: argparse.Namespace) -> Found:
    """Measure ours, the floor and the peer in turns; then kill the master and read back what it acknowledged."""
    found, quick = Found(), given.quick
    with ExitStack() as stack:
        url = database.fresh("detlab_ingest")
        master, node = stack.enter_context(running_master(cluster, folder / "master", url, slots=sum(CLIENTS)))
        trials = [Trial(master, launch) for launch in running_trials(master, node, sum(CLIENTS))]
        for trial in trials:
            stack.callback(trial.http.close)
        ours = {1: [trials[0].sender], 8: [trial.sender for trial in trials[1:]]}
        run = Run.of_ours(master)
        stack.callback(run.http.close)
        peers: dict[int, list[Sender]] = {}
        mlflow = None
        if not absent(MLFLOW, given):
            mlflow = stack.enter_context(mlflow_server(folder / "mlflow", database.fresh("mlflow_ingest")))
            runs = [Run.of_peer(mlflow, f"run{number}").sender for number in range(sum(CLIENTS))]
            peers = {1: runs[:1], 8: runs[1:]}
        for number in range(given.rounds + 1):  # the first one fills caches
            turn = found if number or quick else Found()
            if number and quick:
                break
            for count in CLIENTS:
                reports = (5 if quick else 60) if count == 1 else (2 if quick else 20)
                one_round(turn.ours[count], ours[count], reports, master.pid, database)
                if mlflow is not None:
                    one_round(turn.peer[count], peers[count], max(reports // 4, 1), mlflow.pid, database)
            one_round(turn.logged, [run.sender], 5 if quick else 60, master.pid, database)
            turn.small_logged.append(small(run.sender, 20 if quick else 300))
            reports = 5 if quick else 60
            seconds, cpu = database.floor(folder, reports)
            turn.floor.add(reports * ROWS, seconds, cpu, 0.0)
            turn.small.append(small(ours[1][0], 20 if quick else 300))
            if mlflow is not None:
                turn.small_peer.append(small(peers[1][0], 10 if quick else 60))
        found.read_back = read_back(master, trials)
    return found


def read_back(master: Master, trials: Sequence[Trial]) -> int:
    """Kill the master, start it again, and read every row; return how many there are.

    Raises:
        SystemExit: One that was acknowledged is missing, doubled or another one.
    """
    master.end(signal.SIGKILL)
    master.start()
    person, total = master.person(), 0
    for trial in trials:
        path = f"{API}trials/{trial.id}/metrics?group=training&max_points=100000"
        for series in json.loads(person.ask("GET", path))["items"]:
            name, count = int(series["name"][1:]), series["total"]
            wanted = [value_at(name, step) for step in series["steps"]]
            sound = count == len(series["steps"]) and series["values"] == wanted
            whole = name > 0 or series["steps"] == list(range(1, trial.steps + 1))
            if not (sound and whole):
                raise SystemExit(f"trial {trial.id}, {series['name']}: not what was acknowledged")
            total += count
    person.close()
    return total


# --- the table --------------------------------------------------------------------------------------------


def figures(kind: str, found: Found, why: str) -> list[Figure]:
    """Return the rows of one database."""
    rows = []
    for count in CLIENTS:
        ours, peer = found.ours[count], found.peer[count]
        now = median_of(peer.rates) if peer.rates else None
        goal = beside(TIMES * THEN[count], THEN[count], now, more=True)
        who = f"{kind}, {count} client{'s' * (count > 1)}"
        times = f"; {median_of(ours.rates) / now:.1f} times MLflow" if now else ""
        rows.append(_row(f"detlab, {who}", ours.rates, "rows/s", more=True, goal=goal, note=times))
        rows.append(_row(f"  MLflow log_batch, {who}", peer.rates, "rows/s", why=why))
    now = median_of(found.peer[1].rates) if found.peer[1].rates else None
    goal = beside(LOGGED_TIMES * THEN[1], THEN[1], now, more=True)
    times = f"; {median_of(found.logged.rates) / now:.1f} times MLflow" if now else ""
    label = f"detlab by MLflow's log_batch, {kind}, 1 client"
    rows.append(_row(label, found.logged.rates, "rows/s", more=True, goal=goal, note=times))
    rows.append(_row(f"  floor: {'COPY' if kind == 'postgres' else 'executemany'}", found.floor.rates, "rows/s"))
    ours, peer = found.ours[1], found.peer[1]
    goal = beside(CPU_GOAL, CPU_THEN, median_of(peer.cpu) if peer.cpu else None)
    own = f"; the master's own {median_of(ours.own):.2f}"
    rows.append(_row(f"detlab, {kind}: CPU per 100,000 rows", ours.cpu, "s", goal=goal, note=own))
    rows.append(_row(f"detlab, {kind}: the same with 8 clients", found.ours[8].cpu, "s"))
    rows.append(_row(f"  MLflow, {kind}: CPU per 100,000 rows", peer.cpu, "s", why=why))
    rows.append(_row("  floor: CPU per 100,000 rows", found.floor.cpu, "s"))
    for percent, absolute in ((50, SMALL_P50), (95, SMALL_P95)):
        ours_ms = [percentile(taken, percent) for taken in found.small]
        peer_ms = [percentile(taken, percent) for taken in found.small_peer]
        goal = beside(absolute, SMALL_THEN, median_of(peer_ms) if peer_ms else None)
        rows.append(_row(f"detlab, {kind}: one small report, p{percent}", ours_ms, "ms", goal=goal))
        rows.append(_row(f"  MLflow, {kind}: one small log_batch, p{percent}", peer_ms, "ms", why=why))
    logged_ms = [percentile(taken, 50) for taken in found.small_logged]
    peer_ms = [percentile(taken, 50) for taken in found.small_peer]
    goal = beside(SMALL_THEN / LOGGED_TIMES, SMALL_THEN, median_of(peer_ms) if peer_ms else None)
    rows.append(_row(f"detlab by MLflow's log_batch, {kind}: a small one, p50", logged_ms, "ms", goal=goal))
    rows.append(Figure(f"detlab, {kind}: rows read back after kill -9", found.read_back, "", note="all that was said"))
    return rows


def _row(
    label: str,
    values: list[float],
    unit: str,
    *,
    goal: float | None = None,
    more: bool = False,
    note: str = "",
    why: str = "",
) -> Figure:
    if not values:
        return Figure(label, None, unit, note=why)
    bounds = {"at_least" if more else "at_most": goal}
    return Figure(label, median_of(values), unit, **bounds, note=f"{spread(values)}{note}".removeprefix("; "))


def main() -> int:
    """Print the table; with --check status 1 if a goal is missed."""

    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--databases", nargs="*", choices=["sqlite", "postgres"], default=["sqlite", "postgres"])

    given = options(__doc__ or "", more)
    rows: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "hub").mkdir()
        with running_cluster(root / "hub", slots=1, config=UNLIMITED) as cluster:
            for kind in given.databases:
                (root / kind).mkdir()
                with database_of(kind, root / kind) as database:
                    rows += figures(kind, measure(cluster, root / kind, database, given), absent(MLFLOW, given))
    return conclude("Metrics through the REST API", rows, given)


if __name__ == "__main__":
    sys.exit(main())
