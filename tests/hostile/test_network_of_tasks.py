"""Tasks of a root agent have networks of their own: ports of other users' tasks and of the host's loopback are far."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from detlab.launch.host import procfs
from testbed.cluster import Cluster
from testbed.servers import Kernel, Person, user
from testbed.waiting import until

pytestmark = [pytest.mark.hub, pytest.mark.timeout(240)]

SETTLED = "SETTLED "
LOOPBACK = "127.0.0.1"

REACH = """
import errno, json, socket
def reach(host, port, timeout=1.5):
    try:
        with socket.create_connection((host, port), timeout=timeout) as near:
            near.settimeout(timeout)
            return "connected"
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)
"""

ADAS_SERVICE = """
import json, socket
held = [socket.create_server(("0.0.0.0", 0)), socket.create_server(("127.0.0.1", 0))]
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
    asked.connect(("192.0.2.1", 9))
    own = asked.getsockname()[0]
print("SETTLED " + json.dumps([own, *(one.getsockname()[1] for one in held)]))
"""

ABOUT_KERNEL = """
import json, os
from ipykernel.connect import get_connection_info
print("SETTLED " + json.dumps({"pid": os.getpid(), "uid": os.getuid(), "task": os.environ["DET_TASK_DIR"],
    "network": os.environ["DET_NETWORK"], "connection": json.loads(get_connection_info())}))
"""

ada, mallory = user("ada"), user("mallory")


@dataclass
class At:
    """A kernel of a user's notebook."""

    who: Person
    kernel: Kernel
    facts: dict[str, Any]

    def settled(self, code: str) -> Any:
        """Run code; return the JSON that it printed."""
        said = self.kernel.run(code)
        line = next((line for line in said.splitlines() if line.startswith(SETTLED)), None)
        assert line is not None, said
        return json.loads(line.removeprefix(SETTLED))

    def reach(self, *places: tuple[str, int]) -> list[str]:
        """Try to connect to each place from the kernel; return how it went."""
        found: list[str] = self.settled(f"{REACH}\nprint('{SETTLED}' + json.dumps([reach(*p) for p in {places!r}]))")
        return found


def at_work(who: Person) -> At:
    assert who.start("lab", slots=0).status_code in {201, 202}
    kernel = Kernel(who.ready("lab"), who.token)
    found = At(who, kernel, {})
    found.facts = found.settled(ABOUT_KERNEL)
    # The server's own socket listens in the host's network, where it was bound; the kernel's are Unix sockets, but one.
    assert listening(found.facts["pid"]) == {"ipykernel_launcher"}
    assert len(tcp_listeners(found.facts["pid"])) == 1
    return found


@pytest.fixture(scope="module")
def adas(ada: Person) -> Iterator[At]:
    yield at_work(ada)
    ada.stop("lab")


@pytest.fixture(scope="module")
def mallorys(mallory: Person) -> Iterator[At]:
    yield at_work(mallory)
    mallory.stop("lab")


def test_a_port_of_another_users_task_cannot_be_reached(adas: At, mallorys: At) -> None:
    own, everywhere, loopback = adas.settled(ADAS_SERVICE)
    assert adas.reach((own, everywhere), (LOOPBACK, everywhere), (LOOPBACK, loopback)) == ["connected"] * 3
    seen = mallorys.reach((own, everywhere), (LOOPBACK, everywhere), (LOOPBACK, loopback), (own, loopback))
    assert seen[1:3] == ["ECONNREFUSED"] * 2
    assert "connected" not in seen


def test_a_service_on_the_hosts_loopback_cannot_be_reached(mallorys: At) -> None:
    """What is not ours (a database, an exporter) is not theirs, by any of the host's addresses."""
    gateway = mallorys.settled(
        "import json\nroutes = [line.split() for line in open('/proc/net/route')]\n"
        "raw = bytes.fromhex(next(words[2] for words in routes if words[1] == '00000000'))[::-1]\n"
        f"print('{SETTLED}' + json.dumps('.'.join(map(str, raw))))"
    )
    with socket.create_server((LOOPBACK, 0)) as here:
        port = here.getsockname()[1]
        seen = mallorys.reach((LOOPBACK, port), ("127.0.1.1", port), (gateway, port), (outside_address(), port))
        assert "connected" not in seen
        here.setblocking(False)
        with pytest.raises(BlockingIOError):
            here.accept()


def test_what_a_task_binds_is_seen_by_nobody_else(adas: At, mallorys: At) -> None:
    port = quiet_port()
    inode = mallorys.settled(
        f"import json, os, socket\nheld = socket.create_server(('0.0.0.0', {port}))\n"
        f"print('{SETTLED}' + json.dumps(str(os.fstat(held.fileno()).st_ino)))"
    )
    assert inode in tcp_listeners(mallorys.facts["pid"])
    assert inode not in tcp_listeners(os.getpid())
    assert mallorys.reach((LOOPBACK, port)) == ["connected"]
    assert adas.reach((LOOPBACK, port)) == ["ECONNREFUSED"]
    with pytest.raises(ConnectionRefusedError), socket.create_connection((LOOPBACK, port), timeout=2):
        pass


def test_a_kernel_has_no_port_and_its_sockets_are_its_users(adas: At, mallorys: At) -> None:
    """Over TCP any task subscribed to another user's IOPub, and read code and output."""
    connection = adas.facts["connection"]
    assert connection["transport"] == "ipc"
    path = f"{connection['ip']}-{connection['iopub_port']}"
    assert len(path) <= 107
    assert Path(path).is_socket()
    assert Path(path).parent.stat().st_mode & 0o777 == 0o700
    tried = mallorys.settled(
        "import json, socket\nwith socket.socket(socket.AF_UNIX) as near:\n"
        f"    try:\n        near.connect({path!r})\n        said = 'connected'\n"
        f"    except OSError as error:\n        said = type(error).__name__\nprint('{SETTLED}' + json.dumps(said))"
    )
    assert tried == "PermissionError"


def test_a_task_reaches_the_master_the_hub_and_the_world(cluster: Cluster, mallorys: At) -> None:
    assert mallorys.facts["network"] == "private"
    status = mallorys.settled(
        "import json, os, urllib.request\n"
        "places = [os.environ['DET_MASTER'] + 'health', os.environ['JUPYTERHUB_API_URL'], os.environ['DET_URL']]\n"
        "opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))\n"
        f"print('{SETTLED}' + json.dumps([opener.open(place, timeout=10).status for place in places]))"
    )
    assert status == [200, 200, 200]
    with world() as (host, port):
        assert mallorys.reach((host, port)) == ["connected"]


def test_a_port_of_a_server_cannot_be_won_by_a_shell_of_the_node(cluster: Cluster, ada: Person, mallorys: At) -> None:
    """A program that watches for the port from the first moment on, in the host's network and under another uid."""
    over, wins, tries = threading.Event(), [], [0]
    uid = mallorys.facts["uid"]
    records = cluster.folder / "agent" / "tasks"
    known = set(records.glob("*.json"))

    def watch() -> None:
        while not over.is_set():
            for record in set(records.glob("*.json")) - known:
                with contextlib.suppress(OSError, ValueError, KeyError):
                    port = json.loads(record.read_text())["port"]
                    tries[0] += 1
                    if port and bound_as(uid, int(port)):
                        wins.append(port)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        ada.start("raced", slots=0, kind="shell")
        ada.ready("raced")
        ada.stop("raced")
    finally:
        over.set()
        watcher.join()
    assert tries[0] > 20
    assert wins == []


def bound_as(uid: int, port: int) -> bool:
    """Whether a user of this machine could listen there now. The uid matters for shared ports (SO_REUSEPORT)."""
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        with socket.socket() as taken:
            os.fchown(taken.fileno(), uid, uid)
            taken.setsockopt(socket.SOL_SOCKET, option, 1)
            try:
                taken.bind((LOOPBACK, port))
            except OSError:
                continue
            return True
    return False


def quiet_port() -> int:
    """A port that is free on the host and that the kernel gives to nobody who asks for any port."""
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = [*range(1024, first), *range(last + 1, 65536)]
    random.shuffle(ports)
    for port in ports:
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("", port))
            return port
    raise RuntimeError(f"no port outside of {first}-{last} is free on this machine")


# --- every listening socket of a task ---------------------------------------------------------------------------

HARMLESS = {
    "debugpy.adapter": "in the private namespace, opened when a page asks for the debugger",
    "ipykernel_launcher": "a PULL socket for what forked processes print: takes only what begins with the kernel's own"
    " 16 random bytes, and says nothing; and what the user's own code opens",
    "torch.distributed.run": "torchrun's rendezvous, on the namespace's loopback",
    "wrap_rank": "rank 0's store and gloo's pairs, between the ranks of one node",
    "ranks.py": "the same",
}
"""Whose listening TCP sockets may be found in a task's namespace, and why each harms nobody."""

RANKS = """
import sys, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
dist.init_process_group("gloo")
loader = DataLoader(TensorDataset(torch.arange(64)), batch_size=1, num_workers=1, persistent_workers=True)
for batch in loader:
    dist.all_reduce(batch[0])
print("READY", flush=True)
time.sleep(120)
"""


def test_the_debugger_of_a_kernel_listens_where_nobody_else_is(adas: At) -> None:
    before = tcp_listeners(adas.facts["pid"])
    started = adas.kernel.run("import debugpy\nprint(debugpy.listen(('127.0.0.1', 0)))")
    assert "127.0.0.1" in started
    assert tcp_listeners(adas.facts["pid"]) > before, "the debugger does listen"
    assert listening(adas.facts["pid"]) <= set(HARMLESS)
    assert same_namespace(adas.facts["pid"], os.getpid()) is False


@pytest.mark.soak
def test_every_listening_socket_of_ranks_and_loaders_is_known(cluster: Cluster, open_folder: Path) -> None:
    code = open_folder / "ranks"
    code.mkdir()
    (code / "ranks.py").write_text(RANKS)
    from detlab.client import Client

    token = cluster.make_token("inherit", user="mallory")
    config = {
        "name": "ranks",
        "entrypoint": ["python3", "-m", "detlab.launch.torch_distributed", "ranks.py"],
        "resources": {"slots_per_trial": 2},
        "searcher": {"name": "single", "metric": "loss"},
        "max_restarts": 0,
    }
    with Client(cluster.url, token) as client:
        experiment = client.create_experiment(config, code)
        trial = experiment.await_first_trial(30)

        def both() -> bool:
            return sum("READY" in line.text for line in trial.logs()) == 2

        until(both, lambda: "\n".join(line.text for line in trial.logs(tail=40)), 60)
        try:
            said = {
                path.parent: json.loads(path.read_text()) for path in cluster.folder.glob("agent/tasks/*/launch.json")
            }
            (folder,) = [path for path, launch in said.items() if launch["info"]["trial_id"] == trial.id]
            launcher = json.loads((folder / "launcher.json").read_text())["pid"]
            found = listening(launcher)
            assert found, "torch's store listens"
            assert found <= set(HARMLESS)
            assert same_namespace(launcher, os.getpid()) is False
        finally:
            experiment.kill()


def tcp_listeners(pid: int) -> set[str]:
    """The inodes of the TCP sockets that listen in the network namespace of a process."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                found.add(words[9])
    return found


def listening(pid: int) -> set[str]:
    """Which programs listen in the namespace of a process: a word of `HARMLESS`, or else the whole command line."""
    inodes, found = tcp_listeners(pid), set()
    for process in procfs.processes():
        if same_namespace(process.pid, pid) and inodes & sockets_of(process.pid):
            command = " ".join(procfs.read_command(process.pid))
            known = (name for name in HARMLESS if name.replace(".", "/") in command or name in command)
            found.add(next(known, command))
    return found


def sockets_of(pid: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(entry.readlink())
            if target.startswith("socket:["):
                found.add(target[8:-1])
    return found


def same_namespace(one: int, other: int) -> bool | None:
    """Whether two processes have one network; None when one of them is gone."""
    try:
        return Path(f"/proc/{one}/ns/net").readlink() == Path(f"/proc/{other}/ns/net").readlink()
    except OSError:
        return None


# --- the world ----------------------------------------------------------------------------------------------------


SERVE = """
import socket, time
held = socket.create_server(("0.0.0.0", 8080))
print("up", flush=True)
time.sleep(60)
"""


def outside_address() -> str:
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(("192.0.2.1", 9))
        return str(asked.getsockname()[0])


@contextlib.contextmanager
def world() -> Iterator[tuple[str, int]]:
    """A machine behind this one: a namespace that has a route to nobody but us, and a service in it."""
    name, address = f"world{os.getpid()}", "198.18.77.2"
    ip = ["ip", "-netns", name]
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        link = f"wrld{os.getpid() % 100000}"
        subprocess.run(["ip", "link", "add", link, "type", "veth", "peer", "name", "up0", "netns", name], check=True)
        subprocess.run(["ip", "addr", "add", "198.18.77.1/30", "dev", link], check=True)
        subprocess.run(["ip", "link", "set", link, "up"], check=True)
        subprocess.run([*ip, "addr", "add", f"{address}/30", "dev", "up0"], check=True)
        subprocess.run([*ip, "link", "set", "up0", "up"], check=True)
        serve = (
            "import socket, time\ns = socket.create_server(('0.0.0.0', 8080))\nprint('up', flush=True)\ntime.sleep(60)"
        )
        command = ["ip", "netns", "exec", name, "python3", "-c", serve]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"up\n"
            try:
                yield address, 8080
            finally:
                server.kill()
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
