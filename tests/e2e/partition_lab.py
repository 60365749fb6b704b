"""What the run under kill, pause and partition is made of: nodes in network namespaces, and the Nemesis."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from spine_lab import TRIALS, single

from detlab.client import Client
from detlab.client.resources import Experiment
from detlab.client.transport.discovery import ClusterAddress
from detlab.trust import pinning
from testbed import processes
from testbed.cluster import Cluster, running_cluster
from testbed.network.islands import Island, Sea, sea
from testbed.token_book import Line, read_book
from testbed.waiting import until

SEED = int(os.environ.get("DETLAB_JEPSEN_SEED", "7"))
"""Of the order of the actions, and of whom they strike."""
NODES = 4
"""One more than the trials fill: whoever loses a node begins again at once, while the attempt that was cut off still
runs there."""
LOST = 10.0
"""Seconds until an agent counts as lost here; a cable stays out for longer than that, once for each trial."""
BACK = 40.0
"""Seconds in which a launcher that was cut off has tried again, at the latest."""
ENDLESS = 10_000
"""Steps of a trial that ends when the Nemesis has."""
URGENT = 3
"""Steps of the one for which others leave."""
CONFIG = f"""
c.DetHub.agent_reconnect_wait = {LOST}
c.DetHub.pools = {{"default": {{"scheduler": "priority", "preemption": True}}}}
"""


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
    """The cluster, its nodes, the book, and who writes there."""

    cluster: Cluster
    client: Client
    nodes: list[Node]
    book: Path
    calm: Path
    """Once it is there, all trials end."""
    actions: list[str] = field(default_factory=list)
    ranks: dict[int, int] = field(default_factory=dict)
    """Of each trial, on so many nodes it runs."""

    def submit(self, name: str, nodes: int, steps: int, **resources: Any) -> Experiment:
        """Submit a trial over so many nodes that writes to the book."""
        hparams = {"book": str(self.book), "calm": str(self.calm), "steps": steps, "save_every": 5, "pause": 0.5}
        wanted = {"slots_per_trial": nodes, **resources}
        config = single("writes_tokens.py", name=name, max_restarts=20, resources=wanted, hparams=hparams)
        made = self.client.create_experiment(config, TRIALS)
        self.ranks[made.await_first_trial(60).id] = nodes
        return made

    def connected(self) -> bool:
        """Whether all agents are, this machine's own among them."""
        return sum(agent.state == "connected" for agent in self.client.list_agents()) == NODES + 1

    def settle(self) -> None:
        """Wait until nothing is broken any more, and each trial has ended or its newest attempt does steps."""
        until(lambda: self.connected() and self._all_run(), self.tell, 90)

    def _all_run(self) -> bool:
        done = {(line.trial, line.run, line.rank) for line in read_book(self.book) if line.what == "step"}
        views = [(self.client.get_trial(trial).view, ranks) for trial, ranks in self.ranks.items()]
        return all(
            view.state.terminal or all((view.id, view.run, rank) in done for rank in range(ranks))
            for view, ranks in views
        )

    def say_late(self, node: Node, last: Line) -> None:
        """Send a request of an attempt that is over, as one that was long on its way; nothing but the fence stops it.

        Reports of such an attempt would be refused by the store as well. Its token has not expired.
        """
        token = (node.folder / "agent" / "tasks" / last.token / "token").read_text()
        text = f"run {last.run} does step {last.step}"
        record = {"kind": "log", "seq": 2**40, "time": last.time, "stdtype": "stdout", "text": text}
        known = json.loads((self.cluster.folder / "cluster.json").read_text())
        address = f"{known['service_url']}api/v1/task/records?node={last.rank}"
        with httpx.Client(verify=pinning(known["certificate"]), trust_env=False, timeout=30) as late:
            headers = {"Authorization": f"Bearer {token.strip()}"}
            reply = late.post(address, json={"stream": "logs", "records": [record]}, headers=headers)
        assert (reply.status_code, reply.json().get("code")) == (409, "stale_attempt"), reply.text

    def tell(self) -> str:
        """What happened, for a failing test's message."""
        logs = [f"--- {node.island.name}\n{(node.folder / 'agent.log').read_text()[-3000:]}" for node in self.nodes]
        return "\n".join([f"DETLAB_JEPSEN_SEED={SEED}", *self.actions, self.cluster.logs(), *logs])


@contextmanager
def a_place(root: Path, meeting_place: Path) -> Iterator[Place]:
    """A master on a bridge and nodes on it, by the enrolment strings that it prints; its own agent takes no work."""
    book = meeting_place / "book"
    book.touch()
    book.chmod(0o666)
    with ExitStack() as stack:
        net = stack.enter_context(sea(NODES))
        more = ["--ip", net.address, "--tls"]
        cluster = stack.enter_context(running_cluster(root, slots=1, config=CONFIG, more=more))
        known = json.loads((cluster.folder / "cluster.json").read_text())
        address = ClusterAddress(known["service_url"], cluster.token, "a test", certificate=known["certificate"])
        client = stack.enter_context(Client(address=address))
        nodes = stack.enter_context(_nodes(cluster, net, root))
        found = Place(cluster, client, nodes, book, meeting_place / "calm")
        until(found.connected, found.tell)
        own = next(agent.id for agent in client.list_agents() if not agent.id.startswith("node-"))
        assert cluster.det("agent", "disable", own).returncode == 0
        yield found


@contextmanager
def _nodes(cluster: Cluster, net: Sea, root: Path) -> Iterator[list[Node]]:
    nodes: list[Node] = []
    try:
        for number, island in enumerate(net.islands, 1):
            nodes.append(_node(cluster, net, island, root / f"node-{number}"))
            nodes[-1].start()
        yield nodes
    finally:
        for node in nodes:
            if node.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    node.signal(signal.SIGCONT)
                processes.end(node.process, 20)


def _node(cluster: Cluster, net: Sea, island: Island, folder: Path) -> Node:
    printed = cluster.det("agent", "enrol")
    assert "@sha256:" in printed.stdout, printed.stderr
    folder.mkdir(mode=0o755)
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(printed.stdout)
    command = [sys.executable, "-m", "detlab_agent", "--master", f"https://{net.address}:{cluster.port}"]
    command += ["--name", folder.name, "--address", island.address, "--slots", "1", "--dir", str(folder / "agent")]
    command += ["--enrolment-token-file", str(token)]
    return Node(island, command, folder, cluster.environment)


class Nemesis:
    """Does every kind of harm, in an order that is drawn, and heals it before the next."""

    def __init__(self, place: Place, trials: Sequence[int]) -> None:
        self.fenced: dict[int, Line] = {}
        """Of each trial the last line of a rank whose node was lost, and whose launcher was refused later on."""
        self.killed: Line | None = None
        """One of the lines of a process that was killed."""
        self.urgent: Experiment | None = None
        """For what the others had to leave."""
        self._place = place
        self._trials = trials
        self._draw = random.Random(SEED)

    def rage(self) -> None:
        """Do all of it."""
        actions: list[Callable[[], str]] = [
            self.kill_agent,
            self.kill_agent,
            self.pause_agent,
            self.kill_master,
            self.kill_task,
            self.preempt,
            partial(self.cut, 2.0),
        ]
        self._draw.shuffle(actions)
        cuts: list[Callable[[], str]] = [partial(self.cut_and_freeze, trial) for trial in self._trials]
        self._draw.shuffle(cuts)
        for action in [*actions, *cuts]:
            began = time.time()
            self._place.actions.append(f"{began:.1f} {action()}, until {time.time():.1f}")
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
        pid = until(lambda: self._place.cluster.pid("master"), self._place.tell)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        return "master killed"

    def kill_task(self) -> str:
        alive = until(self._alive, self._place.tell)
        self.killed = alive[self._draw.choice(sorted(alive))]
        os.kill(self.killed.pid, signal.SIGKILL)
        return f"{self.killed.token} (rank {self.killed.rank}): process killed"

    def _alive(self) -> dict[int, Line]:
        """By process id, who is neither at the end nor about to leave."""
        lines = read_book(self._place.book)
        ended = {line.token for line in lines if line.what in {"end", "preempted"}}
        return {line.pid: line for line in lines if line.token not in ended and _runs(line)}

    def cut(self, seconds: float) -> str:
        node = self._node()
        node.island.cut()
        time.sleep(seconds)
        node.island.mend()
        return f"{node.island.name}: cut off for {seconds:g} s"

    def preempt(self) -> str:
        """Have something more urgent need every node; the next action strikes when all others have left."""
        place = self._place
        place.settle()
        self.urgent = place.submit("urgent", NODES, URGENT, priority=1)
        until(lambda: self._left() >= set(self._trials), place.tell)
        return f"experiment {self.urgent.id} has all nodes"

    def _left(self) -> set[int]:
        """Trials that were asked to leave and did."""
        lines = read_book(self._place.book)
        return {trial for trial, ranks in self._place.ranks.items() if ranks == _ranks_that_left(lines, trial)}

    def cut_and_freeze(self, trial: int) -> str:
        """Have a launcher come back that was cut off before its agent does, which would end it.

        What it has kept comes with a token that has not expired, when another attempt owns the trial.
        """
        place = self._place
        place.settle()
        rank = self._draw.randrange(place.ranks[trial])
        lines = read_book(place.book)
        last = next(line for line in reversed(lines) if (line.trial, line.rank) == (trial, rank) and _runs(line))
        node = place.nodes[int(last.agent.removeprefix("node-")) - 1]
        node.signal(signal.SIGSTOP)
        node.island.cut()
        until(lambda: place.client.get_trial(trial).view.run > last.run, place.tell, 60)
        place.say_late(node, last)
        node.island.mend()
        said = node.folder / "agent" / "tasks" / last.token / "launcher.log"
        deadline = time.monotonic() + BACK
        while "fenced: " not in said.read_text() and time.monotonic() < deadline:
            time.sleep(0.2)
        if "fenced: " in said.read_text():
            self.fenced[trial] = last
        node.signal(signal.SIGCONT)
        return (
            f"{node.island.name}: cut off, agent frozen; {last.token} (rank {rank}) is fenced: {trial in self.fenced}"
        )


def _ranks_that_left(lines: list[Line], trial: int) -> int:
    left = [(line.run, line.rank) for line in lines if (line.trial, line.what) == (trial, "preempted")]
    return len({rank for run, rank in left if run == max(left)[0]})


def _runs(line: Line) -> bool:
    """Whether the process that wrote a line is still that one."""
    try:
        return b"writes_tokens" in Path(f"/proc/{line.pid}/cmdline").read_bytes()
    except OSError:
        return False
