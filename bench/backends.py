"""What a cluster costs that an agent speaks for: how fast pods are made, what the agent and the master need for each.

    python bench/backends.py                    on the real Kubernetes (make test-kubernetes builds it), as root
    python bench/backends.py --quick            a tenth of the pods
    make bench-backends BENCH_ARGS="--json"

Nodes of the rows on pods are fake ones of a real control plane: the API server, the scheduler and etcd do their work,
and no kubelet takes a processor's time. "Bound" is when the last pod has its node, from the first Launch on. The
master's CPU is that of its process for whole trials, from submission to end, whose pods end at once.

The starts are on a real node: from the Launch to the report that the task runs, and beside it from the call of
`kubectl run` until the API says that its pod runs; they take turns. What kubectl takes until it has asked for the pod
is in the note: a cluster that is asked by another client starts its pods sooner by that.

The last rows have no cluster: agents of the fleet, by their own code, say that they speak for so many nodes, and a
master with its database takes that in. The second of them is what one node that comes or goes costs: the agent says all
anew.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/integration/agent"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/kubernetes/agent"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kubernetes_agents import SETTINGS, ClusterAgent, RealKube
from load.fleet import Fleet, LightAgent
from master import Master
from measure import Figure, conclude, cpu_of, memory_of, options, spread

from detlab.client import Client
from detlab.schemas.wire import ContainerSpec
from detlab.testing.master import FakeAllocation, MasterDouble
from testbed.agents import printed_agent
from testbed.cluster import UNLIMITED, running_cluster
from testbed.kubernetes import images
from testbed.kubernetes.control_plane import ControlPlane, control_plane, program
from testbed.kubernetes.dns import names
from testbed.kubernetes.fake_nodes import fake_nodes
from testbed.kubernetes.real_node import real_node
from testbed.waiting import until

PODS, MOST = 300, 1000
NODES, GPUS = 40, 32
SPEAKERS, SPOKEN_FOR, SLOTS = 10, 1000, 8
"""Agents of the last rows, the nodes of each, and the slots of each node."""
REST = 10.0
"""Seconds in which nothing happens."""
BOUND, MEMORY, CPU, STARTED = 10.0, 120.0, 25.0, 0.5
"""Goals: seconds, MB, milliseconds a pod, seconds longer than kubectl run."""
EXIT = json.dumps({"exit_code": 0})


@contextmanager
def agent_of(kube: RealKube, place: Path) -> Iterator[tuple[MasterDouble, ClusterAgent]]:
    """An agent that speaks for the nodes, and the double of a master."""
    with MasterDouble(address=kube.here) as master:
        (place / "agent").mkdir(exist_ok=True)
        agent = ClusterAgent(master, place / "agent", kube, settings={"pending_limit": 600})
        agent.start()
        try:
            agent.connected()
            yield master, agent
        finally:
            agent.end()


def launch(master: MasterDouble, number: int, node: str = "", program: str = "pass") -> FakeAllocation:
    """Launch a task on one slot of a node."""
    return master.launch(
        ["python3", "-c", program],
        runtime="kubernetes",
        node=node or f"fake-{number % NODES}",
        slots=[f"gpu{number // NODES}" if not node else "gpu0"],
        container=ContainerSpec(image=images.PYTHON),
    )


def pods_bound(plane: ControlPlane, place: Path, count: int, most: int) -> list[Figure]:
    """Measure how fast pods are bound, and the agent's memory when there are many."""
    kube = RealKube(plane, place)
    with ExitStack() as stack:
        stack.callback(kube.end)
        nodes = stack.enter_context(fake_nodes(plane))
        for number in range(NODES):
            nodes.add(f"fake-{number}", gpus=GPUS)
        master, agent = stack.enter_context(agent_of(kube, place))
        pid = agent.process.pid
        idle = memory_of([pid])

        def bound() -> int:
            return sum(bool(pod["spec"].get("nodeName")) for pod in kube.pods())

        before, began = cpu_of([pid]), time.perf_counter()
        for number in range(count):
            launch(master, number)
        until(lambda: bound() >= count, lambda: f"{bound()} are bound\n{agent.log.read_text()[-2000:]}", 300, 0.1)
        seconds, cpu = time.perf_counter() - began, cpu_of([pid]) - before
        for number in range(count, most):
            launch(master, number)
        until(lambda: bound() >= most, lambda: f"{bound()} are bound", 600, 1.0)
        memory = memory_of([pid])
    return [
        Figure(f"{count} pods admitted and bound", seconds, "s", at_most=BOUND, note=f"agent: {cpu:.1f} s of CPU"),
        Figure(f"the agent's memory with {most} pods", memory, "MB", at_most=MEMORY, note=f"without: {idle:.0f}"),
    ]


def master_cpu(plane: ControlPlane, place: Path, count: int) -> Figure:
    """Measure what whole trials as pods cost the master."""
    kube = RealKube(plane, place)
    config = "c.DetHub.pools = {'pods': {}}\n" + UNLIMITED
    hparams = {"x": {"type": "int", "minval": 1, "maxval": count, "count": count}}
    experiment = {
        "name": "pods",
        "entrypoint": ["python3", "train.py"],
        "runtime": "kubernetes",
        "hyperparameters": hparams,
        "searcher": {"name": "grid", "metric": "loss", "max_concurrent_trials": count},
        "resources": {"resource_pool": "pods", "slots_per_trial": 1},
        "max_restarts": 0,
    }
    with ExitStack() as stack:
        stack.callback(kube.end)
        nodes = stack.enter_context(fake_nodes(plane, ends=EXIT))
        for number in range(NODES):
            nodes.add(f"fake-{number}", gpus=GPUS)
        (place / "hub").mkdir()
        cluster = stack.enter_context(running_cluster(place / "hub", slots=1, config=config))
        printed = cluster.det("agent", "enrol", check=True)
        settings = place / "settings-of-trials.yaml"
        settings.write_text(json.dumps({**SETTINGS, "pending_limit": 600}))
        command = printed.stderr.rpartition("→")[2].strip()
        command += f" --kubernetes --kubeconfig {kube.kubeconfig} --kubernetes-settings {settings} --pool pods"
        folder = place / "agent-of-trials"
        folder.mkdir()
        agent = stack.enter_context(printed_agent(command, printed.stdout.strip(), folder, "kube", cluster.environment))
        agent.until_it_says("connected to cluster")
        pid = cluster.pid("master") or 0
        before = cpu_of([pid])
        with Client(cluster.url, cluster.token) as client:
            made = client.create_experiment(experiment, files={"train.py": "pass\n"})
            made.wait(600)
            states = [trial.state for trial in made.reload().list_trials(limit=count)]
        used = cpu_of([pid]) - before
    if len(states) != count or not all(state.terminal for state in states):
        raise SystemExit(f"the trials did not end: {len(states)} of {count}")
    return Figure("the master's CPU for each pod of a trial", 1000 * used / count, "ms", at_most=CPU)


def starts(plane: ControlPlane, place: Path, rounds: int) -> Figure:
    """Measure the start of a task on an idle real node beside `kubectl run`."""
    ours, theirs, asked = [], [], []
    kube = RealKube(plane, place)
    kubectl = [program("kubectl"), "--kubeconfig", str(plane.kubeconfig()), "--namespace", kube.namespace]
    with ExitStack() as stack:
        stack.callback(kube.end)
        stack.enter_context(real_node(plane))
        stack.enter_context(names(plane))
        master, _ = stack.enter_context(agent_of(kube, place))
        for number in range(rounds + 1):
            began = time.perf_counter()
            run = ["run", f"plain-{number}", f"--image={images.PYTHON}", "--image-pull-policy=Never", "--restart=Never"]
            subprocess.run([*kubectl, *run, "--command", "--", "sleep", "30"], check=True, capture_output=True)
            told = time.perf_counter() - began
            kube.site.phase(f"plain-{number}", "Running")
            plain = time.perf_counter() - began
            kube.admin.delete(f"{kube.site.pods}/plain-{number}", {"gracePeriodSeconds": 0})
            began = time.perf_counter()
            task = launch(master, number, "real-1", "import time; time.sleep(60)")
            master.wait_for(lambda task=task: task.started, 60)
            took = time.perf_counter() - began
            if number:  # the first ones fill caches
                ours.append(took)
                theirs.append(plain)
                asked.append(told)
            master.send_kill(task, 0.5)
            master.wait_for(lambda task=task: task.exits, 60)
    beside = statistics.median(theirs)
    more = statistics.median(ours) - beside
    note = f"{statistics.median(ours):.2f} s ({spread(ours)}), kubectl run {beside:.2f} s ({spread(theirs)})"
    note += f", of it {statistics.median(asked):.2f} s until it had asked"
    return Figure("submit to running on a real node, more than kubectl run", more, "s", at_most=STARTED, note=note)


def many_nodes(place: Path, agents: int, nodes: int) -> list[Figure]:
    """Measure what agents that speak for many nodes cost a master."""
    (place / "hub-of-nodes").mkdir()
    with running_cluster(place / "hub-of-nodes", slots=1, config=UNLIMITED) as cluster:
        master = Master(cluster, place / "master")
        master.start()
        fleet = Fleet(master, place / "keys", agents, SLOTS, nodes)
        first = fleet.agents[0]

        def welcomed(some: list[LightAgent]) -> bool:
            return all(agent.welcomes > nodes for agent in some)

        try:
            idle, before, began = master.memory, master.cpu, time.perf_counter()
            fleet.connect()
            until(lambda: welcomed(fleet.agents), "all nodes are there", 540, 0.02)
            took, used = time.perf_counter() - began, master.cpu - before
            fleet.forget_welcomes()
            before, began = master.cpu, time.perf_counter()
            fleet.do(first.connector.introduce_again)
            until(lambda: welcomed([first]), "the first agent is back", 300, 0.02)
            again, used_again = time.perf_counter() - began, master.cpu - before
            before = master.cpu
            time.sleep(REST)
            rest = 100 * (master.cpu - before) / REST
            memory = master.memory
        finally:
            fleet.close()
            master.end()
    whole = f"{agents * nodes:,} nodes of {agents} agents"
    return [
        Figure(f"{whole}, until a new master has them", took, "s", note=f"{used:.1f} s of its CPU"),
        Figure(f"one agent says its {nodes:,} nodes anew", again, "s", note=f"{used_again:.1f} s of the master's CPU"),
        Figure(f"the master's CPU with {whole}, at rest", rest, "% of a core"),
        Figure(f"the master's memory with {whole}", memory, "MB", note=f"without: {idle:.0f}"),
    ]


def on_kubernetes(place: Path, given: argparse.Namespace, part: int) -> list[Figure]:
    """Measure what needs a cluster."""
    figures: list[Figure] = []
    with control_plane() as plane:
        if given.only in {None, "bound"}:
            figures += pods_bound(plane, place, PODS // part, MOST // part)
        if given.only in {None, "master"}:
            figures.append(master_cpu(plane, place, PODS // part))
        if given.only in {None, "starts"}:
            figures.append(starts(plane, place, 2 if given.quick else given.rounds))
    return figures


def main() -> int:
    """Measure everything."""

    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--only", choices=["bound", "master", "starts", "nodes"], help="one part")

    given = options(__doc__ or "", more)
    part = 10 if given.quick else 1
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as folder:
        place = Path(folder)
        place.chmod(0o755)
        if given.only != "nodes":
            figures += on_kubernetes(place, given, part)
        if given.only in {None, "nodes"}:
            figures += many_nodes(place, SPEAKERS // part, SPOKEN_FOR // part)
    return conclude("A cluster that an agent speaks for", figures, given)


if __name__ == "__main__":
    sys.exit(main())
