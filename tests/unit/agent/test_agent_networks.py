"""Networks of tasks, without a kernel: addresses, what a launch may open, and the rules as they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detlab.launch.network import Forward, NetworkPlan, link_at
from detlab.schemas import wire
from detlab.testing.master import MasterDouble
from detlab_agent.runtimes.process.network import TaskNetworks, forwards_of, loopback_resolvers, own_prefix

PLAN = NetworkPlan("detab12", "10.213.0.0/16", "1.a.1", (Forward("127.0.0.1", 8642),), "/sbin/ip", "/sbin/restore")


def test_each_link_has_a_name_of_its_own_that_the_kernel_takes() -> None:
    links = [link_at(PLAN, index) for index in range(2**14)]
    assert len({link.name for link in links}) == len(links)
    assert max(len(link.name) for link in links) <= 15
    assert (links[0].gateway, links[0].own) == ("10.213.0.1", "10.213.0.2")
    assert (links[-1].gateway, links[-1].own) == ("10.213.255.253", "10.213.255.254")


def test_a_plan_survives_the_command_line() -> None:
    assert NetworkPlan.decode(PLAN.encode()) == PLAN


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://127.0.0.1:8642/services/detlab/", [Forward("127.0.0.1", 8642)]),
        ("http://localhost:80/", [Forward("127.0.0.1", 80)]),
        ("https://127.0.0.5/", [Forward("127.0.0.5", 443)]),
        ("http://10.0.0.1:8642/", []),
        ("http://[::1]:8642/", []),
        ("https://hub.example.org/", []),
        ("", []),
    ],
)
def test_only_ports_of_the_hosts_loopback_are_forwarded(url: str, found: list[Forward]) -> None:
    assert forwards_of([url]) == found


def test_a_name_server_on_the_hosts_loopback_is_reached(tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text(
        "search lan\nnameserver 127.0.0.1\nnameserver 10.0.0.1\n# nameserver 127.0.0.9\n"
    )
    assert set(loopback_resolvers(tmp_path / "resolv.conf")) == {
        Forward("127.0.0.1", 53, "tcp"),
        Forward("127.0.0.1", 53, "udp"),
    }
    assert loopback_resolvers(tmp_path / "none") == []


def test_whom_systemd_resolved_asks_is_asked_by_tasks_themselves(tmp_path: Path) -> None:
    """It listens on 127.0.0.53 of the device lo, which no other namespace reaches: Ubuntu's default."""
    (tmp_path / "stub").write_text("nameserver 127.0.0.53\n")
    (tmp_path / "asked").write_text("nameserver fe80::1\nnameserver 192.0.2.53\n")
    (tcp, udp) = loopback_resolvers(tmp_path / "stub", tmp_path / "asked")
    assert (tcp, udp) == (
        Forward("127.0.0.53", 53, "tcp", "192.0.2.53"),
        Forward("127.0.0.53", 53, "udp", "192.0.2.53"),
    )


def launch(**more: Any) -> wire.Launch:
    with MasterDouble() as master:
        return master.allocate(["true"], **more).launch


def test_variables_of_an_experiment_open_no_port() -> None:
    """A trial that names the host's SSH as its Hub would reach it, if its word counted."""
    hostile = {"JUPYTERHUB_API_URL": "http://127.0.0.1:22/", "DET_URL": "http://127.0.0.1:5432/"}
    networks = TaskNetworks(Path("/agent"), ["10.213.0.0/16"], [5000], "http://127.0.0.1:8642/services/detlab/")
    trial = launch(environment=hostile)
    assert networks.wanted(trial) == forwards_of([trial.info.master_url])
    server = launch(environment=hostile, service=wire.ServiceSpec())
    assert Forward("127.0.0.1", 5432) not in networks.wanted(server), "and only what the Hub itself sets, of a server's"


def test_ranks_of_several_nodes_stay_in_the_machines_network() -> None:
    networks = TaskNetworks(Path("/agent"), ["10.213.0.0/16"], [], "http://127.0.0.1:1/")
    gang = launch()
    info = gang.info.model_copy(update={"container_addrs": ["10.0.0.1", "10.0.0.2"]})
    assert networks.plan(gang.model_copy(update={"info": info})) is None


def test_the_rules_let_a_task_reach_what_is_forwarded_and_no_other_task() -> None:
    networks = TaskNetworks(Path("/agent"), ["10.213.0.0/16"], [5000], "http://127.0.0.1:8642/services/detlab/")
    links, chain = own_prefix(Path("/agent")), own_prefix(Path("/agent")).upper()
    rules = networks.rules().splitlines()
    forwarded = [line for line in rules if "-j DNAT" in line]
    assert [line.split("--dport ")[1].split()[0] for line in forwarded] == ["5000", "8642"]
    assert all(f"-i {links}+ -d 10.213.0.0/16" in line for line in forwarded)
    inward = [line for line in rules if line.startswith(f"-A {chain}-IN ")]
    assert inward[-1] == f"-A {chain}-IN -i {links}+ -d 127.0.0.0/8 -j DROP"
    onward = [line for line in rules if line.startswith(f"-A {chain}-FWD ")]
    assert "--ctstate NEW -m connlimit --connlimit-above" in onward.pop(0)
    assert f"-A {chain}-OUT -o {links}+ -m conntrack --ctstate NEW -j DROP" in rules
    assert onward[0] == f"-A {chain}-FWD -i {links}+ -o det+ -j DROP"
    assert onward[-1] == f"-A {chain}-FWD -o {links}+ -j DROP"
