"""The connection: enrolment, silence before authentication, return after every trouble."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from hashlib import sha256
from pathlib import Path

import pytest
from agent_helpers import AgentProcess, make_bundle, trial, wait_until

from detlab.governance.attestation import attestation_key, attestation_problem, installed_code
from detlab.testing.master import MasterDouble


def options():
    return () if os.geteuid() == 0 else ("--serves-user", "alice")


def exited(allocation):
    return lambda: allocation.exits


def test_the_key_is_private_and_enrolment_happens_once(master, agent):
    key = agent.directory / "key.json"
    assert key.stat().st_mode & 0o777 == 0o600
    before = key.read_bytes()
    agent.kill()
    wait_until(lambda: not master.connected())
    agent.token_file.write_text("used up")
    agent.start()
    master.wait_for(master.connected)
    assert key.read_bytes() == before
    assert len(master.agent_tokens) == 1
    hello = master.hellos[-1]
    assert (hello.agent_id, [slot.id for slot in hello.slots]) == ("agent", ["cpu0", "cpu1"])
    assert hello.serves_user == (None if os.geteuid() == 0 else "alice")


def test_a_master_that_lost_its_memory_gets_a_new_enrolment(master, agent):
    master.stop()
    master.agent_tokens.clear()
    master.start()
    master.wait_for(master.connected, timeout=30)
    assert len(master.agent_tokens) == 1


def test_a_wrong_enrolment_token_is_told_and_tried_again(master, open_tmp):
    agent = AgentProcess(master, open_tmp / "agent", *options())
    agent.token_file.write_text("dtenrol_wrong")
    agent.start()
    try:
        wait_until(lambda: "refuses the enrolment token" in agent.log.read_text())
        assert not master.hellos
        agent.token_file.write_text(master.enrolment_token)
        master.wait_for(master.connected, timeout=30)
    finally:
        agent.end()


def test_a_hub_that_answers_in_the_masters_stead_does_not_refuse_the_agent(master, open_tmp):
    master.in_its_stead["enrol"] += [403, 404, 302]
    agent = AgentProcess(master, open_tmp / "agent", *options())
    agent.start()
    try:
        master.wait_for(master.connected, timeout=40)
        assert "refuses" not in agent.log.read_text()
        assert len(master.agent_tokens) == 1
    finally:
        agent.end()


def test_without_key_and_token_the_agent_says_what_is_missing(master, open_tmp):
    command = [sys.executable, "-m", "detlab_agent", "--master", master.url, "--dir", str(open_tmp / "a")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    assert "--enrolment-token-file" in done.stderr


def test_one_directory_serves_one_agent(master, agent):
    command = [sys.executable, "-m", "detlab_agent", "--master", master.url, "--dir", str(agent.directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    assert "another agent" in done.stderr


class Listener:
    """A server that is no master: it keeps what it is told and answers as a script says."""

    def __init__(self, reply):
        self.reply = reply
        self.heard = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            try:
                peer, _ = self.socket.accept()
            except OSError:
                return
            with peer:
                peer.settimeout(5)
                data = b""
                while b"\r\n\r\n" not in data:
                    data += peer.recv(4096)
                peer.sendall(self.reply)
                try:
                    while piece := peer.recv(4096):
                        data += piece
                except TimeoutError:
                    pass
                self.heard.append(data)

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(10)


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
        b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    ],
)
def test_nothing_is_said_before_the_connection_is_authenticated(open_tmp, reply):
    """Neither slots nor tasks: only the handshake leaves the agent, and no redirect takes the token elsewhere."""
    listener = Listener(reply)
    directory = open_tmp / "agent"
    directory.mkdir()
    (directory / "key.json").write_text('{"agent_id": "agent", "token": "dtagent_k"}')
    command = [sys.executable, "-m", "detlab_agent", "--master", listener.url, "--dir", str(directory)]
    process = subprocess.Popen([*command, "--name", "agent", "--slots", "2"], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(listener.heard) >= 2, timeout=40)
    finally:
        process.terminate()
        process.wait(20)
        listener.close()
    for request in listener.heard:
        head, _, rest = request.partition(b"\r\n\r\n")
        assert head.startswith(b"GET /services/detlab/api/v1/agents/connect ")
        assert b"Authorization: Bearer dtagent_k" in head
        assert rest == b""
        assert b"cpu0" not in request


def test_heartbeats_keep_coming_and_silence_is_noticed(master, agent):
    """SIGSTOP the agent: the connection stays open but dead; after SIGCONT it speaks again."""
    task = master.launch(trial("NeverExits"))
    master.wait_for(lambda: "up" in master.texts(task))
    agent.process.send_signal(signal.SIGSTOP)
    master.stop()
    master.start()
    agent.process.send_signal(signal.SIGCONT)
    master.wait_for(master.connected, timeout=40)
    assert [t.allocation_id for t in master.hellos[-1].tasks] == [task.launch.allocation_id]
    assert len({hello.process for hello in master.hellos}) == 1, "the same process"
    master.send_kill(task)
    master.wait_for(exited(task))


FILES = make_bundle({"a.txt": ("a", 0o644)})


@pytest.mark.parametrize(
    ("kind", "good", "evil"),
    [("sha256:", b"good", b"evil"), ("tree:", FILES, make_bundle({"a.txt": ("b", 0o644)})), ("tree:", FILES, b"evil")],
    ids=["bytes", "files", "no-bundle"],
)
def test_a_bundle_that_is_not_what_its_digest_says_is_not_run(master, agent, kind, good, evil):
    digest = master.add_bundle(good)
    assert digest.startswith(kind)
    master.bundles[digest] = evil
    task = master.launch("true", bundle=digest)
    master.wait_for(exited(task))
    assert task.exits[0].reason == "setup"
    assert "digest" in task.exits[0].message or "not a valid tar.gz" in task.exits[0].message
    assert not list((agent.directory / "bundles").glob("*")), "it is not kept"


def test_a_bundle_that_nobody_has_is_said(master, agent):
    task = master.launch("true", bundle="sha256:" + "0" * 64)
    master.wait_for(exited(task))
    assert task.exits[0].reason == "setup"


def test_a_proxy_that_does_not_know_the_way_to_a_bundle_fails_no_trial(master, agent):
    master.in_its_stead["bundle"] += [404, 302, 403]
    task = master.launch("true", bundle=master.add_bundle(make_bundle({"a.txt": ("a", 0o644)})))
    master.wait_for(exited(task), timeout=60)
    assert task.exits[0].exit_code == 0, task.exits[0]


def test_a_hostile_bundle_is_not_run(master, agent):
    task = master.launch("true", bundle=master.add_bundle(b"no tar at all"))
    master.wait_for(exited(task))
    assert task.exits[0].reason == "setup"
    wait_until(lambda: not agent.task_dir(task).exists())


def test_the_environment_of_a_task_is_scrubbed_and_complete(open_tmp, monkeypatch):
    monkeypatch.setenv("OPERATORS_SECRET", "s")
    with MasterDouble() as master:
        agent = AgentProcess(master, open_tmp / "agent", *options())
        agent.start()
        try:
            master.wait_for(master.connected)
            task = master.launch("env", environment={"MINE": "yes", "DET_TRIAL_ID": "999"}, slots=["cpu1"])
            master.wait_for(exited(task))
        finally:
            agent.end()
        env = dict(line.partition("=")[::2] for line in master.texts(task))
    assert "OPERATORS_SECRET" not in env
    assert env["MINE"] == "yes"
    expected = {
        "DET_TASK_DIR": str(agent.task_dir(task)),
        "DET_MASTER": master.url,
        "DET_CLUSTER_ID": "double",
        "DET_AGENT_ID": "agent",
        "DET_EXPERIMENT_ID": "1",
        "DET_TRIAL_ID": "1",
        "DET_TRIAL_SEED": "7",
        "DET_ALLOCATION_ID": task.launch.allocation_id,
        "DET_TASK_TYPE": "TRIAL",
        "DET_RUNTIME": "process",
        "DET_SLOT_IDS": "[0]",
        "DET_HPARAMS": '{"lr": 0.1}',
        "DET_UNIQUE_PORT_OFFSET": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "USER": "alice",
        "PWD": str(agent.task_dir(task) / "work"),
    }
    assert {key: env.get(key) for key in expected} == expected
    assert env["PATH"].split(":")[0] == str(Path(sys.executable).parent)
    assert not any("token" in key.lower() or value.startswith("dttask_") for key, value in env.items())


def test_an_agent_answers_the_challenges_of_its_master_with_its_own_key(master, open_tmp):
    master.nonce = "ab" * 16
    agent = AgentProcess(master, open_tmp / "agent", *options())
    agent.start()
    try:
        wait_until(lambda: master.attestations, 30, "it attests")
        (said,) = master.attestations
        token = json.loads((agent.directory / "key.json").read_text())["token"]
        key = attestation_key(sha256(token.encode()).hexdigest())
        expected = {"nonce": master.nonce, "cluster_id": "double", "agent_id": "agent", "key": key}
        assert attestation_problem(said, **expected) == ""
        assert installed_code() in said.code
        master.nonce = "cd" * 16
        wait_until(lambda: len(master.attestations) > 1, 30, "it answers the next one, too")
        assert attestation_problem(master.attestations[-1], **{**expected, "nonce": master.nonce}) == ""
    finally:
        agent.end()
