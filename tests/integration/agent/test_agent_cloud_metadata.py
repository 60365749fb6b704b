"""Tasks do not reach a cloud's metadata service: a stand-in at its address, seen from each place that tasks run in."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from detlab_agent.cloud_metadata import ADDRESSES, ADDRESSES6, MetadataGuard
from detlab_agent.settings import AgentError
from testbed.network.islands import why_not
from testbed.waiting import until

METADATA = "169.254.169.254"
SERVES = """
import socket, threading
def serve(listening):
    while True:
        if listening.type == socket.SOCK_DGRAM:
            said, who = listening.recvfrom(100)
            listening.sendto(b"here", who)
        else:
            near, _ = listening.accept()
            near.sendall(b"credentials")
            near.close()
for port, kind in [(80, socket.SOCK_STREAM), (443, socket.SOCK_STREAM), (53, socket.SOCK_STREAM),
                   (53, socket.SOCK_DGRAM), (123, socket.SOCK_DGRAM)]:
    listening = socket.socket(socket.AF_INET, kind)
    listening.bind(("0.0.0.0", port))
    if kind == socket.SOCK_STREAM:
        listening.listen()
    threading.Thread(target=serve, args=[listening], daemon=True).start()
print("serves", flush=True)
input()
"""
ASKS = """
import json, os, socket, sys
uid = int(sys.argv[1])
if uid:
    os.setgid(uid); os.setuid(uid)
found = {}
for name, port, kind in [("http", 80, socket.SOCK_STREAM), ("https", 443, socket.SOCK_STREAM),
                         ("dns", 53, socket.SOCK_DGRAM), ("dns-tcp", 53, socket.SOCK_STREAM),
                         ("ntp", 123, socket.SOCK_DGRAM)]:
    with socket.socket(socket.AF_INET, kind) as near:
        near.settimeout(1.0)
        try:
            near.connect(("169.254.169.254", port))
            if kind == socket.SOCK_DGRAM:
                near.send(b"?")
            found[name] = bool(near.recv(100))
        except OSError:
            found[name] = False
print(json.dumps(found))
"""
GUARDS = """
from detlab_agent.cloud_metadata import MetadataGuard
guard = MetadataGuard()
guard.open()
assert guard.is_there()
"""
ALL = {"http": True, "https": True, "dns": True, "dns-tcp": True, "ntp": True}
NAMES_ONLY = {"http": False, "https": False, "dns": True, "dns-tcp": True, "ntp": True}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


@dataclass
class Node:
    """A machine of a cloud, a network namespace: beyond it the metadata service, behind it a container's network."""

    name: str

    def at(self, place: str) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.name}{place}", "--"]

    def run(self, *command: str, place: str = "n") -> str:
        done = subprocess.run([*self.at(place), *command], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def asks(self, uid: int, place: str = "n") -> dict[str, bool]:
        """What a program of this user gets from the metadata service."""
        return json.loads(self.run("/usr/bin/python3", "-c", ASKS, str(uid), place=place))

    def guard(self) -> None:
        """As the agent does it."""
        self.run(sys.executable, "-c", textwrap.dedent(GUARDS))

    def rules(self) -> str:
        return self.run("iptables-save")


@pytest.fixture
def node() -> Iterator[Node]:
    if why := why_not():
        pytest.skip(why)
    name = "dm" + secrets.token_hex(3)
    with ExitStack() as undo:
        for place in "mnc":  # metadata, node, container
            ip("netns", "add", name + place)
            undo.callback(ip, "netns", "del", name + place)
            ip("-n", name + place, "link", "set", "lo", "up")
        for far, there, here in (("m", f"{METADATA}/32", "10.99.1.1/24"), ("c", "10.99.2.2/24", "10.99.2.1/24")):
            ip("-n", name + "n", "link", "add", f"to-{far}", "type", "veth", "peer", "name", "eth0",
               "netns", name + far)  # fmt: skip
            ip("-n", name + "n", "addr", "add", here, "dev", f"to-{far}")
            ip("-n", name + "n", "link", "set", f"to-{far}", "up")
            ip("-n", name + far, "addr", "add", there, "dev", "eth0")
            ip("-n", name + far, "link", "set", "eth0", "up")
        ip("-n", name + "n", "route", "add", METADATA, "dev", "to-m")
        ip("-n", name + "m", "route", "add", "default", "via", "10.99.1.1", "dev", "eth0", "onlink")
        ip("-n", name + "c", "route", "add", "default", "via", "10.99.2.1")
        made = Node(name)
        made.run("/bin/sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        serving = subprocess.Popen(
            [*made.at("m"), "/usr/bin/python3", "-c", SERVES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        undo.callback(end, serving)
        assert serving.stdout is not None
        assert serving.stdout.readline() == "serves\n"
        yield made


def end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()


def test_tasks_of_the_machine_s_network_and_containers_reach_names_and_time_only_and_root_all(node: Node) -> None:
    """A task read the instance's startup script, with the enrolment token, and the tokens of its service account."""
    assert node.asks(0) == ALL
    assert node.asks(20001) == ALL
    assert node.asks(0, "c") == ALL
    node.guard()
    assert node.asks(0) == ALL, "the cloud's own agents run as root"
    assert node.asks(20001) == NAMES_ONLY
    assert node.asks(0, "c") == NAMES_ONLY, "root in a container is not root here"
    assert node.asks(20001, "c") == NAMES_ONLY


def test_rules_of_others_that_come_later_open_no_way(node: Node) -> None:
    """As a restarted Docker engine, and the networks of tasks, put theirs in front."""
    node.guard()
    node.run("iptables", "-I", "FORWARD", "-j", "ACCEPT")
    node.run("iptables", "-t", "nat", "-A", "POSTROUTING", "-o", "to-m", "-j", "MASQUERADE")
    assert node.asks(0, "c") == NAMES_ONLY


@pytest.mark.parametrize("table", ["filter", "raw"])
def test_a_rule_of_others_that_was_put_in_front_is_overtaken(node: Node, table: str) -> None:
    """An ACCEPT before ours let tasks through, and the look whether ours was there found it."""
    node.guard()
    chain = "OUTPUT" if table == "filter" else "PREROUTING"
    node.run("iptables", "-t", table, "-I", chain, "-j", "ACCEPT")
    place = "n" if table == "filter" else "c"
    assert node.asks(20001, place) == ALL
    hold = "from detlab_agent.cloud_metadata import MetadataGuard; MetadataGuard().hold()"
    node.run(sys.executable, "-c", hold)
    assert node.asks(20001, place) == NAMES_ONLY
    assert node.rules().count("-j DETLAB-METADATA\n") == 1
    assert node.rules().count("-j DETLAB-METADATA-IN\n") == 1
    assert f"-A {chain} -j ACCEPT\n" in node.rules(), "others' rules stay"


def test_rules_that_were_flushed_are_missed_and_made_again_once(node: Node) -> None:
    node.guard()
    node.guard()
    assert node.rules().count("-j DETLAB-METADATA\n") == 1
    assert node.rules().count("-j DETLAB-METADATA-IN\n") == 1
    look = "from detlab_agent.cloud_metadata import MetadataGuard; print(MetadataGuard().is_there())"
    for table, flush in (("filter", ("-F",)), ("raw", ("-F", "PREROUTING")), ("filter", ("-F", "DETLAB-METADATA"))):
        node.run("iptables", "-t", table, *flush)
        assert node.run(sys.executable, "-c", look).strip() == "False"
        node.guard()
        assert node.run(sys.executable, "-c", look).strip() == "True"
        assert node.asks(20001) == NAMES_ONLY


TASK = """
import subprocess, sys
from pathlib import Path
from detlab.launch.network import enter
from detlab_agent.runtimes.process.network import DEFAULT_SUBNETS, TaskNetworks
networks = TaskNetworks(Path(sys.argv[1]), ["10.99.64.0/24"], [], "http://127.0.0.1:1/")
networks.open()
try:
    plan = networks._plan("1.a.1", [])
    inside = ("import sys; from detlab.launch.network import *; enter(NetworkPlan.decode(sys.argv.pop(1)));"
              "exec(sys.argv.pop(1))")
    done = subprocess.run([sys.executable, "-c", inside, plan.encode(), sys.argv[2], "20001"],
                          capture_output=True, text=True, timeout=60)
    print(done.stdout or done.stderr)
finally:
    networks.close()
"""


@pytest.mark.parametrize("guarded", [False, True], ids=["open", "guarded"])
def test_a_task_with_a_network_of_its_own_does_not_reach_it(node: Node, tmp_path: Path, guarded: bool) -> None:
    if guarded:
        node.guard()
    said = node.run(sys.executable, "-c", TASK, str(tmp_path), ASKS)
    assert json.loads(said) == (NAMES_ONLY if guarded else ALL)


def run_agent(tmp_path: Path, node: Node) -> subprocess.Popen[str]:
    (tmp_path / "token").write_text("dtenrol_x")
    (tmp_path / "token").chmod(0o600)
    command = [sys.executable, "-m", "detlab_agent", "--master", "http://127.0.0.1:1/", "--dir", str(tmp_path / "a"),
               "--enrolment-token-file", str(tmp_path / "token"), "--runtime", "process", "--task-network", "host",
               "--slots", "1"]  # fmt: skip
    environ = {**os.environ, "DET_TASK_METADATA": "block"}
    return subprocess.Popen(
        [*node.at("n"), *command], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def test_the_agent_of_an_instance_makes_the_rules_before_it_takes_a_task(node: Node, tmp_path: Path) -> None:
    with run_agent(tmp_path, node) as agent:
        try:
            until(lambda: node.asks(20001) == NAMES_ONLY, seconds=30)
        finally:
            agent.terminate()
            agent.communicate(timeout=30)
    assert node.asks(20001) == NAMES_ONLY, "its tasks continue, and the rules stay"


def test_an_agent_that_must_block_and_cannot_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 20001)
    with pytest.raises(AgentError, match="only an agent that is root"):
        MetadataGuard().open()
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(AgentError, match=r"iptables not found .*--task-metadata allow"):
        MetadataGuard().open()


def test_the_addresses_are_networks() -> None:
    import ipaddress

    assert all(ipaddress.IPv4Network(one) for one in ADDRESSES)
    assert all(ipaddress.IPv6Network(one) for one in ADDRESSES6)
    assert any(ipaddress.IPv4Address(METADATA) in ipaddress.IPv4Network(one) for one in ADDRESSES)
