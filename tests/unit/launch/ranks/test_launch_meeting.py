"""How the nodes of a trial find each other, and what torchrun is told of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from detlab.core.distributed import rendezvous as _rendezvous
from detlab.info import ClusterInfo
from detlab.launch.delivery.sender import TransportError
from detlab.launch.ranks.rendezvous import Meeting, MeetingError, free_ports, interface_of, meet, meeting_environment
from detlab.launch.torch_distributed import torchrun_command

MEETING = Meeting(1, ("10.0.0.1", "10.0.0.2", "10.0.0.3"), 4001, 4002, "ab" * 32)


class Answers:
    """A master that says these things, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    def post(self, path: str, body: bytes, token: str) -> tuple[int, bytes]:
        assert (path.partition("?")[0], token) == ("task/rendezvous", "dttask_x")
        self.asked.append(json.loads(body))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        status, said = answer
        return status, json.dumps(said).encode()

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def info(tmp_path: Path) -> ClusterInfo:
    (tmp_path / "token").write_text("dttask_x", encoding="ascii")
    raw = {
        "master_url": "http://127.0.0.1:1/",
        "cluster_id": "c",
        "agent_id": "right",
        "slot_ids": [0, 1],
        "task_id": "1.a",
        "allocation_id": "1.a.1",
        "task_type": "COMMAND",
        "run": 1,
        "container_addrs": ["10.0.0.1", "10.0.0.2"],
        "container_rank": 1,
        "container_slot_counts": [2, 2],
    }
    (tmp_path / "info.json").write_text(json.dumps(raw), encoding="utf-8")
    return ClusterInfo.from_task_dir(tmp_path)


READY = (200, {"ready": True, "missing": [], "port": 4001, "messages_port": 4002, "key": "cd" * 32})
WAITING = (200, {"ready": False, "missing": ["left"]})


def test_a_node_waits_for_the_others_through_an_outage_and_says_the_same_each_time(info: ClusterInfo) -> None:
    master = Answers(WAITING, TransportError("away"), (502, {}), WAITING, READY)
    found = meet(info, master, pytest.fail)
    assert (found.node, found.chief, found.address, found.port, found.messages_port) == (
        1,
        "10.0.0.1",
        "10.0.0.2",
        4001,
        4002,
    )
    assert all(asked == master.asked[0] for asked in master.asked)
    assert "key" not in master.asked[0], "only the chief makes the secret"


def test_the_chief_tells_its_ports_and_a_secret_of_its_own_each_time(info: ClusterInfo) -> None:
    chief = replace(info, container_rank=0)
    master = Answers(READY, READY)
    meet(chief, master, pytest.fail)
    meet(chief, master, pytest.fail)
    first, second = master.asked
    assert (first["number"], second["number"]) == (1, 2)
    assert first["port"] != first["messages_port"]
    assert len(bytes.fromhex(first["key"])) == 32
    assert first["key"] != second["key"]


def test_nodes_that_know_their_own_addresses_meet_there(info: ClusterInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_NODE_ADDRESS", "10.2.0.9")
    master = Answers((200, {**READY[1], "addresses": ["10.1.0.7", "10.2.0.9"]}))
    found = meet(info, master, pytest.fail)
    assert master.asked[0]["address"] == "10.2.0.9"
    assert (found.chief, found.address) == ("10.1.0.7", "10.2.0.9")


@pytest.mark.parametrize("status", [409, 403, 422])
def test_a_refusal_ends_the_wait_with_the_masters_words(info: ClusterInfo, status: int) -> None:
    with pytest.raises(MeetingError, match="attempt 1 is over"):
        meet(info, Answers((status, {"code": "x", "message": "attempt 1 is over"})), pytest.fail)


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422])
@pytest.mark.parametrize("said", [{"message": "no such page"}, "a page", {"detail": "Not Found"}])
def test_what_a_proxy_says_in_the_masters_stead_does_not_end_the_wait(
    info: ClusterInfo, status: int, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that was started anew answered 404 for a while; the attempt failed for it, and was counted."""
    monkeypatch.setattr("detlab.launch.ranks.rendezvous.time.sleep", lambda _: None)
    master = Answers((status, said), READY)
    assert meet(info, master, pytest.fail).port == 4001
    assert len(master.asked) == 2


def test_torchrun_is_told_the_masters_order_of_nodes() -> None:
    command = torchrun_command(
        [], ["train.py"], {"DET_SLOT_IDS": "[0, 1]", "DET_ALLOCATION_ID": "1.a.1"}, "py", MEETING
    )
    told = dict(word.partition("=")[::2] for word in command if word.startswith("--") and "=" in word)
    assert told == {
        "--nproc_per_node": "2",
        "--max_restarts": "0",
        "--rdzv_id": "1.a.1",
        "--nnodes": "3",
        "--node_rank": "1",
        "--rdzv_backend": "static",
        "--master_addr": "10.0.0.1",
        "--master_port": "4001",
        "--local_addr": "10.0.0.2",
    }


def test_ranks_are_told_the_chief_its_port_and_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
    told = meeting_environment(replace(MEETING, addresses=("10.9.8.7", "127.0.0.1")))
    assert told == {
        "DET_CHIEF_IP": "10.9.8.7",
        "DET_CHIEF_PORT": "4002",
        "DET_RANK_KEY": "ab" * 32,
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
    }
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    assert "NCCL_SOCKET_IFNAME" not in meeting_environment(replace(MEETING, addresses=("10.9.8.7", "127.0.0.1")))
    monkeypatch.setenv("DET_CHIEF_PORT", told["DET_CHIEF_PORT"])
    monkeypatch.setenv("DET_RANK_KEY", told["DET_RANK_KEY"])
    assert _rendezvous.agreed_port() == 4002
    assert _rendezvous.shared_secret(None, one_node=False) == bytes.fromhex("ab" * 32)


def test_interfaces_are_found_by_their_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") is None, "an address of documentation, which no machine has"
    assert interface_of("no such host.invalid") is None


def test_free_ports_are_different() -> None:
    assert len(set(free_ports(8))) == 8
