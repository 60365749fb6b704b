"""The network of a task as the kernel makes it: what comes through, what is left on the host, and how long it takes."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import pytest
from agent_helpers import wait_until

from detlab.launch import network
from detlab.launch.network import Forward
from detlab_agent.runtimes.process.network import (
    DEFAULT_SUBNETS,
    LOCKS,
    NoPrivateNetwork,
    TaskNetworks,
    own_prefix,
)
from detlab_agent.runtimes.process.network import _locked as locked
from testbed.network.islands import why_not
from testbed.waiting import until

INSIDE = """
import os, socket, sys, time
from detlab.launch.network import NetworkPlan, enter
began = time.monotonic()
enter(NetworkPlan.decode(sys.argv[1]))
took = time.monotonic() - began
for kind, host, port in [word.split(",") for word in sys.argv[2:]]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM) as near:
        near.settimeout(3)
        try:
            near.connect((host, int(port)))
            if kind == "udp":
                near.send(b"?")
                near.recv(10)
            print("reached", flush=True)
        except OSError as error:
            print(type(error).__name__, flush=True)
print(took, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def networks(tmp_path: Path):
    if os.geteuid() != 0:
        pytest.skip("only root makes network namespaces")
    made = TaskNetworks(tmp_path, DEFAULT_SUBNETS, [], "http://127.0.0.1:1/")
    try:
        made.open()
    except NoPrivateNetwork as error:
        pytest.skip(f"no network namespaces here: {error}")
    yield made
    until(lambda: not links(made.prefix), seconds=20)  # the kernel removes the last one in its own time
    made.close()
    assert made.prefix.upper() not in rules()


def rules() -> str:
    return "".join(table_rules(table) for table in ("nat", "filter"))


def table_rules(table: str) -> str:
    return subprocess.run(["iptables", "-w", "-t", table, "-S"], capture_output=True, text=True, check=True).stdout


def links(prefix: str) -> list[str]:
    return [name for _, name in socket.if_nameindex() if name.startswith(prefix)]


def enter(plan, *places):
    command = [sys.executable, "-c", INSIDE, plan.encode(), *(",".join(map(str, place)) for place in places)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return child, [child.stdout.readline().strip() for _ in places], float(child.stdout.readline())


def outside() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(("192.0.2.1", 9))
        return asked.getsockname()[0]


LISTENS = """
import socket, sys
from detlab.launch import network
network.enter(network.NetworkPlan.decode(sys.argv[1]))
listening = socket.create_server(("0.0.0.0", 5678))
print(sorted(socket.if_nameindex()), flush=True)
sys.stdin.read()
"""


def test_nobody_on_this_machine_connects_to_a_task(networks):
    """Its rendezvous listens on all addresses, and the names of links say which they are."""
    plan = networks._plan("1.a.1", [])
    command = [sys.executable, "-c", LISTENS, plan.encode()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert "eth0" in child.stdout.readline()
        (link,) = links(networks.prefix)
        own = str(ipaddress.IPv4Address(int(link.removeprefix(networks.prefix), 16) + 2))
        with pytest.raises(TimeoutError):
            socket.create_connection((own, 5678), timeout=1.0)
        child.stdin.close()


def test_no_task_fills_the_table_of_connections(networks):
    most = networks._most_connections
    if most is None:
        pytest.skip("this kernel does not count connections (xt_connlimit)")
    networks._most_connections = 50
    networks._write_rules()
    before = tracked()
    plan = networks._plan("1.a.1", [])
    program = (
        "import socket, sys; from detlab.launch import network; network.enter(network.NetworkPlan.decode(sys.argv[1]));"
        " s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20)\n"
        "for port in range(1, 2001): s.sendto(b'?', (sys.argv[2], port))"
    )
    subprocess.run([sys.executable, "-c", program, plan.encode(), outside()], check=True, timeout=60)
    assert tracked() - before < 500


def tracked() -> int:
    return int(Path("/proc/sys/net/netfilter/nf_conntrack_count").read_text())


def test_rules_that_somebody_has_emptied_are_made_again(networks):
    networks._add([])
    assert f"-j {networks.prefix.upper()}-FWD" in rules()
    subprocess.run(["iptables", "-w", "-D", "FORWARD", "-j", f"{networks.prefix.upper()}-FWD"], check=True)
    networks._looked -= 60.0
    networks._add([])
    assert f"-j {networks.prefix.upper()}-FWD" in rules()


def test_a_namespace_and_its_link_go_with_the_last_process(networks):
    plan = networks._plan("1.a.1", [])
    child, _, took = enter(plan)
    assert len(links(networks.prefix)) == 1
    child.kill()
    child.communicate()
    wait_until(lambda: links(networks.prefix) == [])
    assert took < 2.0, "35 to 50 ms on two free cores"


def test_no_address_comes_or_goes_on_the_host_which_browsers_here_would_take_for_another_network(networks):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as told:
        told.bind((0, ADDRESSES_OF_IPV4 | ADDRESSES_OF_IPV6))
        child, _, _ = enter(networks._plan("1.a.1", []))
        (link,) = links(networks.prefix)
        index = socket.if_nametoindex(link)
        child.kill()
        child.communicate()
        wait_until(lambda: links(networks.prefix) == [])
        told.setblocking(False)
        seen = []
        with contextlib.suppress(BlockingIOError):
            while True:
                seen.append(struct.unpack_from("=I", told.recv(65536), 20)[0])
    assert index not in seen


BRIDGED = """
import subprocess, sys
from pathlib import Path
from detlab_agent.runtimes.process import network
from testbed.network.islands import bridged

ASKS = "import socket; socket.create_connection((sys.argv[1], 9), timeout=3)"

def answer(near, far):
    command = [*near.prefix, sys.executable, "-c", "import sys; " + ASKS, far.address]
    return subprocess.run(command, capture_output=True, text=True, timeout=30).stderr.splitlines()[-1].split(":")[0]

Path("/proc/sys/net/ipv4/ip_forward").write_text("0")
with bridged(2) as found:
    print(answer(*found.islands))
    with network._routed_packets(network.Programs.find()):
        print(answer(*found.islands))
"""


def test_frames_between_the_ports_of_a_bridge_pass_when_the_agent_turns_forwarding_on():
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = ["unshare", "--net", sys.executable, "-c", BRIDGED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["ConnectionRefusedError", "ConnectionRefusedError"], done.stderr


ADDRESSES_OF_IPV4, ADDRESSES_OF_IPV6 = 0x10, 0x100
"""Multicast groups of netlink. A message has a header of 16 bytes, then four bytes, then the index of the device."""


def test_questions_to_a_name_server_of_this_machine_are_answered(networks):
    datagrams = (socket.AF_INET, socket.SOCK_DGRAM)
    with socket.socket(*datagrams) as here, socket.socket(*datagrams) as away:
        here.bind(("127.0.0.1", 0))
        away.bind((outside(), 0))
        port, elsewhere = here.getsockname()[1], away.getsockname()[1]
        ways = [Forward("127.0.0.1", port, "udp"), Forward("127.0.0.53", elsewhere, "udp", outside())]
        networks._add(ways)
        answering = [answer_once(one) for one in (here, away)]
        try:
            asked = [("udp", "127.0.0.1", port), ("udp", "127.0.0.53", elsewhere)]
            child, found, _ = enter(networks._plan("1.a.1", ways), *asked)
            child.communicate("")
        finally:
            for thread in answering:
                thread.join()
    assert found == ["reached", "reached"]


def answer_once(sock):
    def answer() -> None:
        sock.settimeout(10)
        try:
            _, who = sock.recvfrom(10)
            sock.sendto(b"!", who)
        except OSError:
            pass

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def test_an_agent_that_comes_again_finds_its_rules_and_keeps_its_tasks_ways(networks, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as here:
        port = here.getsockname()[1]
        way = Forward("127.0.0.1", port)
        networks._add([way])
        child, found, _ = enter(networks._plan("1.a.1", [way]), ("tcp", "127.0.0.1", port))
        try:
            assert found == ["reached"]
            os.close(networks._held)  # as the kernel does with a killed agent's
            networks._held = -1
            again = TaskNetworks(tmp_path, DEFAULT_SUBNETS, [], "http://127.0.0.1:1/")
            again.open()
            assert again._forwards >= {way}
            assert rules().count(f"-j {again.prefix.upper()}-IN\n") == 1, "the chains are jumped to once"
            again.close()
            assert again.prefix.upper() in rules(), "a task still needs them"
        finally:
            child.kill()
            child.communicate()
        wait_until(lambda: links(networks.prefix) == [])
        other = TaskNetworks(tmp_path / "other", DEFAULT_SUBNETS, [], "http://127.0.0.1:1/")
        other.open()
        assert networks.prefix.upper() not in rules(), "what a killed agent left is removed by the next"
        other.close()


@pytest.mark.soak
def test_agents_that_start_and_end_at_the_same_time_do_not_stop_each_other(networks, tmp_path):
    """Locks of agents that ended meanwhile are gone when this one comes to look at them."""
    failures: list[BaseException] = []

    def come_and_go(name: str) -> None:
        try:
            for _ in range(6):
                one = TaskNetworks(tmp_path / name, DEFAULT_SUBNETS, [], "http://127.0.0.1:1/")
                one.open()
                one.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=come_and_go, args=(f"agent-{place}",)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert networks.prefix.upper() in rules()


def test_the_lock_of_an_agent_that_starts_where_another_removes_what_it_left(networks, tmp_path):
    """Neither does the one refuse to start, nor does the other remove its rules."""
    left = LOCKS / own_prefix(tmp_path / "left")
    left.touch(0o600)
    held = locked(left)
    one = TaskNetworks(tmp_path / "left", DEFAULT_SUBNETS, [], "http://127.0.0.1:1/")
    freed = threading.Timer(0.3, lambda: (left.unlink(), os.close(held)))
    freed.start()
    one.open()  # waits, and locks the file that is there now
    freed.join()
    assert locked(left) is None
    one.close()
    assert not left.exists()


def test_addresses_that_this_machine_uses_are_not_taken(networks, tmp_path):
    away = outside()
    other = TaskNetworks(tmp_path / "other", [f"{away.rsplit('.', 1)[0]}.0/24"], [], "http://127.0.0.1:1/")
    with pytest.raises(NoPrivateNetwork, match="--task-subnet"):
        other.open()


def alias(link: str) -> str:
    said = subprocess.run(["ip", "-j", "link", "show", link], capture_output=True, text=True, check=True).stdout
    return str(json.loads(said)[0].get("ifalias", ""))


def test_links_of_tasks_that_the_agent_does_not_know_are_removed_at_its_start_and_no_others(networks, tmp_path):
    """An agent was killed and its records are gone, but what it had started runs on and holds the link."""
    other = TaskNetworks(tmp_path / "other", DEFAULT_SUBNETS, [], "http://127.0.0.1:1/")
    other.open()
    stale, known, others = (
        enter(of._plan(key, []))[0] for of, key in ((networks, "1.stale.1"), (networks, "1.known.1"), (other, "1.a.1"))
    )
    try:
        by_task = {alias(name): name for name in links("det") if name[:7] in {networks.prefix, other.prefix}}
        assert by_task.keys() == {"detlab:1.stale.1", "detlab:1.known.1", "detlab:1.a.1"}
        networks.sweep({"1.known.1"})
        assert links(networks.prefix) == [by_task["detlab:1.known.1"]]
        assert links(other.prefix) == [by_task["detlab:1.a.1"]], "another agent's, of which this one knows nothing"
        again, _, _ = enter(networks._plan("1.stale.1", []))
        again.kill()
        again.communicate()
    finally:
        for child in (stale, known, others):
            child.kill()
            child.communicate()
    until(lambda: not links(other.prefix), seconds=20)
    other.close()


def test_a_task_gets_other_addresses_where_another_agents_task_has_those_of_its_place(networks, tmp_path):
    """Links of two agents have different names at one place; only their addresses were the same (File exists)."""
    other = TaskNetworks(tmp_path / "other", DEFAULT_SUBNETS, [], "http://127.0.0.1:1/")
    other.open()
    one, *_ = enter(other._plan("1.a.1", []))
    two, *_ = enter(networks._plan("1.a.1", []))
    try:
        (first,), (second,) = links(other.prefix), links(networks.prefix)
        assert first.removeprefix(other.prefix) != second.removeprefix(networks.prefix)
    finally:
        for child in (one, two):
            child.kill()
            child.communicate()
    until(lambda: not links(other.prefix), seconds=20)
    other.close()


def test_an_address_that_another_program_has_is_named_with_its_device_and_what_to_do(networks):
    plan = networks._plan("1.a.1", [])
    place = network.link_at(
        plan, zlib.crc32(plan.key.encode()) % (ipaddress.IPv4Network(plan.subnet).num_addresses // 4)
    )
    script = (
        f"ip link set lo up && ip route add local {place.gateway}/32 dev lo table local\n"
        '"$0" -m detlab.launch.network "$1"; status=$?; ip -o link show type veth; exit $status'
    )
    alone = ["unshare", "--net", "sh", "-c", script, sys.executable, plan.encode()]  # a machine of its own
    done = subprocess.run(alone, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert f"{place.gateway} and {place.own} of a task's link are taken" in done.stderr
    assert f"local {place.gateway} dev lo" in done.stderr
    assert f"ip route show table all root {plan.subnet}" in done.stderr
    assert "det agent run --task-subnet" in done.stderr
    assert done.stdout == "", "the half of a link is not left"


QUICKER = """
import subprocess, sys
from detlab.launch import network

set_up = network._set_up_outside
places = []

def beaten_once(plan, link):
    places.append(link)
    if len(places) > 1:
        return set_up(plan, link)
    route = [plan.ip, "route", "add", "local", f"{link.gateway}/32", "dev", "lo", "table", "local"]
    subprocess.run(route, check=True)
    try:
        set_up(plan, link)
    finally:
        route[2] = "delete"
        subprocess.run(route, check=True)

network._set_up_outside = beaten_once
status = network.main(sys.argv[1:])
print(len(places))
sys.exit(status)
"""


def test_a_task_goes_on_to_the_next_place_where_another_was_quicker_and_has_ended_since(networks):
    """All agents try their plans with one key: the second was refused (File exists), and found nobody at its place."""
    plan = networks._plan("1.a.1", [])
    script = 'ip link set lo up && exec "$0" -c "$1" "$2"'
    alone = ["unshare", "--net", "sh", "-c", script, sys.executable, QUICKER, plan.encode()]  # a machine of its own
    done = subprocess.run(alone, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")
