"""Three nodes in network namespaces, TLS between them and the master; kills, pauses and pulled cables.

Each attempt appends its token to a shared file. Afterwards that file and the master's history must be one: each step
of each trial was done by the attempt whose report counts, none began twice, no slot had two owners, nothing is missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest
from spine_lab import TRIALS, single

from detlab.client import Client, operations
from detlab.client.discovery import ClusterAddress
from detlab.client.resources import Experiment, Trial
from detlab.schemas.wire import ExperimentState
from detlab.trust import pinning
from testbed import processes
from testbed.cluster import Cluster, running_cluster
from testbed.islands import Island, Sea, sea, why_not
from testbed.token_book import Line, read_book, violations
from testbed.waiting import until

STEPS = 90
TRIALS_AT_ONCE = 2
"""One less than nodes: whoever is lost begins again at once, while the attempt that was cut off still runs."""
LOST = 10.0
"""Seconds until an agent counts as lost here; the cable stays out for longer than that, once."""

BACK = 40.0
"""Seconds in which a launcher that was cut off has tried again, at the latest."""


@dataclass
class Node:
    """An agent in its namespace, started again as often as it is killed."""

    island: Island
    command: list[str]
    folder: Path
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, in the directory that it has."""
        with (self.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.island.prefix, *self.command], env=self.environment, stdout=log, stderr=log
            )

    def signal(self, number: int) -> None:
        """Send the agent a signal; its tasks get none."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill it and start it again."""
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()
        self.start()


@dataclass
class Place:
    """The cluster, its nodes, the book."""

    cluster: Cluster
    client: Client
    nodes: list[Node]
    book: Path
    deeds: list[str] = field(default_factory=list)

    def say_late(self, node: Node, last: Line) -> None:
        """Send a request of an attempt that is over, as one that was long on its way; nothing but the fence stops it.

        Reports of such an attempt would be refused by the store as well. Its token has not expired.
        """
        token = (node.folder / "agent" / "tasks" / last.token / "token").read_text()
        text = f"run {last.run} does step {last.step}"
        record = {"kind": "log", "seq": 2**40, "time": last.time, "stdtype": "stdout", "text": text}
        known = json.loads((self.cluster.folder / "cluster.json").read_text())
        address = f"{known['service_url']}api/v1/task/records"
        with httpx.Client(verify=pinning(known["certificate"]), trust_env=False, timeout=30) as late:
            headers = {"Authorization": f"Bearer {token.strip()}"}
            reply = late.post(address, json={"stream": "logs", "records": [record]}, headers=headers)
        assert (reply.status_code, reply.json().get("code")) == (409, "stale_attempt"), reply.text

    def tell(self) -> str:
        """What happened, for a failing test's message."""
        logs = [f"--- {node.island.name}\n{(node.folder / 'agent.log').read_text()[-3000:]}" for node in self.nodes]
        return "\n".join([*self.deeds, self.cluster.logs(), *logs])


@pytest.fixture
def place(tmp_path: Path, meeting_place: Path) -> Iterator[Place]:
    """A master on a bridge and three nodes on it, by the enrolment strings that it prints."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    book = meeting_place / "book"
    book.touch()
    book.chmod(0o666)
    config = f"c.DetHub.agent_reconnect_wait = {LOST}\n"
    with ExitStack() as stack:
        net = stack.enter_context(sea(3))
        more = ["--ip", net.address, "--tls"]
        cluster = stack.enter_context(running_cluster(tmp_path, slots=1, config=config, more=more))
        known = json.loads((cluster.folder / "cluster.json").read_text())
        address = ClusterAddress(known["service_url"], cluster.token, "a test", certificate=known["certificate"])
        client = stack.enter_context(Client(address=address))
        nodes = stack.enter_context(_nodes(cluster, net, tmp_path))
        found = Place(cluster, client, nodes, book)
        until(lambda: _connected(client) == 4, found.tell)
        own = next(agent.id for agent in client.list_agents() if not agent.id.startswith("node-"))
        assert cluster.det("agent", "disable", own).returncode == 0
        yield found


@contextmanager
def _nodes(cluster: Cluster, net: Sea, root: Path) -> Iterator[list[Node]]:
    nodes = []
    for number, island in enumerate(net.islands, 1):
        printed = cluster.det("agent", "enrol")
        assert "@sha256:" in printed.stdout, printed.stderr
        folder = root / f"node-{number}"
        folder.mkdir(mode=0o755)
        token = folder / "token"
        token.touch(mode=0o600)
        token.write_text(printed.stdout)
        command = [sys.executable, "-m", "detlab_agent", "--master", f"https://{net.address}:{cluster.port}"]
        command += ["--name", f"node-{number}", "--slots", "1", "--dir", str(folder / "agent")]
        command += ["--enrolment-token-file", str(token), "--users-file", str(cluster.folder / "users.json")]
        nodes.append(Node(island, command, folder, cluster.environment))
    for node in nodes:
        node.start()
    try:
        yield nodes
    finally:
        for node in nodes:
            if node.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    node.signal(signal.SIGCONT)
                processes.end(node.process, 20)


def _connected(client: Client) -> int:
    return sum(agent.state == "connected" for agent in client.list_agents())


class Nemesis:
    """Does every kind of harm, in an order that is drawn, and heals it before the next."""

    def __init__(self, place: Place, seed: int) -> None:
        self.fenced = False
        """A launcher whose attempt was over has been refused."""
        self._place = place
        self._draw = random.Random(seed)

    def rage(self) -> None:
        """Do all of it."""
        deeds: list[Callable[[], str]] = [
            self.kill_agent,
            self.kill_agent,
            self.pause_agent,
            self.kill_master,
            self.kill_task,
            lambda: self.cut(2.0),
        ]
        self._draw.shuffle(deeds)
        deeds.append(self.cut_and_freeze)
        for deed in deeds:
            began = time.time()
            self._place.deeds.append(f"{began:.1f} {deed()}, until {time.time():.1f}")
            time.sleep(self._draw.uniform(0.5, 2.0))

    def _node(self) -> Node:
        return self._draw.choice(self._place.nodes)

    def kill_agent(self) -> str:
        node = self._node()
        node.kill()
        return f"{node.island.name}: agent killed"

    def pause_agent(self) -> str:
        node = self._node()
        node.signal(signal.SIGSTOP)
        time.sleep(3.0)
        node.signal(signal.SIGCONT)
        return f"{node.island.name}: agent paused"

    def kill_master(self) -> str:
        pid = self._place.cluster.pid("master")
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        return "master killed"

    def kill_task(self) -> str:
        lines = read_book(self._place.book)
        ended = {line.token for line in lines if line.what == "end"}
        alive = {line.pid: line for line in lines if line.token not in ended and _runs(line)}
        if not alive:
            return "no task to kill"
        pid = self._draw.choice(sorted(alive))
        os.kill(pid, signal.SIGKILL)
        return f"{alive[pid].token}: process killed"

    def cut(self, seconds: float) -> str:
        node = self._node()
        node.island.cut()
        time.sleep(seconds)
        node.island.mend()
        return f"{node.island.name}: cut off for {seconds:g} s"

    def cut_and_freeze(self) -> str:
        """Have a launcher come back that was cut off before its agent does, which would end it.

        What it has kept comes with a token that has not expired, when another attempt owns the trial.
        """
        last = next(line for line in reversed(read_book(self._place.book)) if _runs(line))
        node = self._place.nodes[int(last.agent.removeprefix("node-")) - 1]
        node.signal(signal.SIGSTOP)
        node.island.cut()
        client = self._place.client
        until(lambda: client.get_trial(last.trial).view.run > last.run, self._place.tell, 60)
        self._place.say_late(node, last)
        node.island.mend()
        said = node.folder / "agent" / "tasks" / last.token / "launcher.log"
        deadline = time.monotonic() + BACK
        while not self.fenced and time.monotonic() < deadline:
            self.fenced = "fenced: " in said.read_text()
            time.sleep(0.2)
        node.signal(signal.SIGCONT)
        return f"{node.island.name}: cut off, agent frozen; {last.token} is fenced: {self.fenced}"


def _runs(line: Line) -> bool:
    """Whether the process that wrote a line is still that one."""
    try:
        return b"writes_tokens" in Path(f"/proc/{line.pid}/cmdline").read_bytes()
    except OSError:
        return False


def _effective(place: Place, experiment: Experiment) -> dict[int, list[tuple[int, int]]]:
    """Of each trial, the reports that count."""
    found = {}
    for trial in experiment.list_trials():
        series = place.client.session.run(operations.trial_metrics(trial.id, group="training", max_points=10_000))
        (curve,) = [one for one in series if one.name == "run"]
        found[trial.id] = [(int(step), int(value)) for step, value in zip(curve.steps, curve.values, strict=True)]
    return found


def _runs_that_spoke(trial: Trial) -> list[int]:
    """The attempts whose output the master took, line by line in the order in which it did.

    Reports of an attempt that is over are refused by the store as well; what it prints, by the fence alone.
    """
    found = (re.fullmatch(r"run (\d+) does step \d+", line.text) for line in trial.logs())
    return [int(match[1]) for match in found if match]


@pytest.mark.hub
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_each_trial_runs_once_in_effect_under_kill_pause_and_partition(place: Place) -> None:
    experiments = [
        place.client.create_experiment(
            single(
                "writes_tokens.py",
                name=f"book {number}",
                max_restarts=20,
                hparams={"book": str(place.book), "steps": STEPS, "save_every": 5, "pause": 0.5},
            ),
            TRIALS,
        )
        for number in range(TRIALS_AT_ONCE)
    ]
    until(lambda: sum(line.what == "step" for line in read_book(place.book)) >= 3, place.tell)
    nemesis = Nemesis(place, seed=7)
    nemesis.rage()
    effective = {}
    for experiment in experiments:
        experiment.wait(120)
        ended = experiment.reload()
        assert ended.state is ExperimentState.COMPLETED, place.tell()
        effective |= _effective(place, ended)
        for trial in ended.list_trials():
            said = _runs_that_spoke(trial)
            assert said == sorted(said), f"an attempt that was over was heard: {said}\n{place.tell()}"
    lines = read_book(place.book)
    assert len(effective) == TRIALS_AT_ONCE
    assert violations(lines, effective, STEPS) == [], place.tell()
    assert nemesis.fenced, place.tell()
    assert max(line.run for line in lines) > 1, "nothing that was done had an effect"
    assert {line.agent for line in lines} >= {"node-1", "node-2", "node-3"}


def _history() -> tuple[list[Line], dict[int, list[tuple[int, int]]]]:
    """Two attempts of one trial on two nodes: the first is cut off after step 2, the second goes on from step 1."""
    first = Line("begin", "1.a.1", 1, 1, "node-1", ("cpu0",), 10, 0, 0.0)
    second = replace(first, token="1.a.2", run=2, agent="node-2", pid=20, time=5.0)
    lines = [
        first,
        *(replace(first, what="step", step=step, time=float(step)) for step in (1, 2, 3)),
        second,
        *(replace(second, what="step", step=step, time=5.0 + step) for step in (2, 3)),
        replace(second, what="end", step=3, time=9.0),
    ]
    return lines, {1: [(1, 1), (2, 2), (3, 2)]}


def test_the_checker_lets_a_partitioned_attempt_pass_whose_reports_do_not_count() -> None:
    assert violations(*_history(), 3) == []


def test_the_checker_finds_what_is_planted() -> None:
    lines, effective = _history()
    overlapping = [replace(line, agent="node-1", time=line.time - 3) if line.run == 2 else line for line in lines]
    cases: list[tuple[list[Line], dict[int, list[tuple[int, int]]], str]] = [
        ([*lines, lines[4]], effective, "began 2 times"),
        (lines[1:], effective, "never began"),
        ([*lines, replace(lines[4], token="1.a.2b")], effective, "is 2 attempts"),
        (overlapping, effective, "at once"),
        (lines, {1: [(1, 1), (3, 2)]}, "not each of 3 once"),
        (lines, {1: [(1, 1), (2, 2), (2, 2), (3, 2)]}, "not each of 3 once"),
        (lines, {1: [(1, 2), (2, 1), (3, 2)]}, "counts after a later one"),
        (lines, {1: [(1, 2), (2, 2), (3, 2)]}, "done 0 times"),
        ([*lines, lines[5]], effective, "done 2 times"),
        (lines, {1: [(1, 1), (2, 1), (3, 1)]}, "run 2 is the last"),
        (lines, {1: []}, "not each of 3 once"),
    ]
    for book, counted, words in cases:
        assert any(words in found for found in violations(book, counted, 3)), words
