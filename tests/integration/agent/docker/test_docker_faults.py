"""The engine and the agent die, together or alone, under running containers: nothing is lost, nothing is left."""

import base64
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from agent_docker import exited, in_container, python
from agent_helpers import TRIALS, AgentProcess, wait_until

COUNTS = """
import os, sys, time
step = 0
while not os.path.exists(os.environ["GATE"]):
    print("step", step, flush=True)
    step += 1
    time.sleep(0.05)
print("last", step, flush=True)
sys.exit(7)
"""


def introduced(master, *runtimes):
    """Wait until the agent is connected and says that it has just these runtimes."""
    master.wait_for(lambda: master.connected() and master.hellos[-1].runtimes == list(runtimes), timeout=40)


def gate(agent):
    return {"GATE": str(agent.shared / "open")}


def shared(agent):
    from detlab.schemas import wire

    return [wire.Mount(host_path=str(agent.shared), container_path=str(agent.shared))]


def counting(master, agent):
    task = in_container(master, python(COUNTS), environment=gate(agent), mounts=shared(agent))
    master.wait_for(lambda: "step 3" in master.texts(task) and task.starts, timeout=40)
    return task


def check_nothing_is_lost(master, task):
    lines = [text.split() for text in master.texts(task, "stdout")]
    assert [int(line[1]) for line in lines if line[0] == "step"] == list(range(len(lines) - 1))
    assert lines[-1] == ["last", str(len(lines) - 1)]


def test_an_engine_that_is_killed_under_a_task_and_started_again_loses_nothing(master, docker_agent):
    engine = docker_agent.engine
    task = counting(master, docker_agent)
    pid = task.starts[0].pid
    engine.kill("dockerd")
    engine.kill("containerd")
    introduced(master, "process")
    seen = len(master.texts(task))
    master.wait_for(lambda: len(master.texts(task)) > seen + 3, what="the task runs on")
    engine.start()
    introduced(master, "process", "docker")
    assert Path(f"/proc/{pid}").exists()
    (docker_agent.shared / "open").touch()
    master.wait_for(exited(task), timeout=40)
    assert (task.exits[0].exit_code, task.exits[0].reason) == (7, "")
    check_nothing_is_lost(master, task)


def test_a_task_that_ends_while_the_engine_is_away_is_reported_when_it_is_back(master, docker_agent):
    engine = docker_agent.engine
    task = counting(master, docker_agent)
    engine.kill("dockerd")
    (docker_agent.shared / "open").touch()
    wait_until(lambda: any(text.startswith("last") for text in master.texts(task)))
    engine.start()
    master.wait_for(exited(task), timeout=40)
    assert (task.exits[0].exit_code, task.exits[0].reason) == (7, "")
    check_nothing_is_lost(master, task)


def test_a_task_is_killed_while_the_engine_is_away(master, docker_agent):
    task = in_container(master, python(TRIALS["IgnoresSigterm"]))
    master.wait_for(lambda: "up" in master.texts(task) and task.starts, timeout=40)
    pid = task.starts[0].pid
    docker_agent.engine.kill("dockerd")
    introduced(master, "process")
    master.send_kill(task, grace=0.5)
    wait_until(lambda: not Path(f"/proc/{pid}/exe").exists(), what="its processes are gone")
    docker_agent.engine.start()
    master.wait_for(exited(task), timeout=40)
    assert task.exits[0].exit_code == -signal.SIGKILL
    wait_until(lambda: docker_agent.engine.containers() == [])


def test_an_engine_that_ends_its_tasks_with_itself_is_not_the_tasks_failure(master, docker_agent):
    """Without live-restore a restart of the engine (an upgrade of its package) ends every container."""
    engine = docker_agent.engine
    engine.stop()
    introduced(master, "process")
    engine.start(live_restore=False)
    introduced(master, "process", "docker")
    task = in_container(master, python(TRIALS["NeverExits"]))
    master.wait_for(lambda: "up" in master.texts(task), timeout=40)
    engine.stop()
    engine.start()
    master.wait_for(exited(task), timeout=60)
    assert task.exits[0].reason == "machine_restarted"
    assert "live-restore" in task.exits[0].message


def test_agent_and_engine_are_killed_and_the_agent_comes_back_first(master, docker_agent):
    task = counting(master, docker_agent)
    docker_agent.kill()
    docker_agent.engine.kill("dockerd")
    docker_agent.start()
    master.wait_for(lambda: task.started >= 2, what="it is taken up again, unseen", timeout=40)
    docker_agent.engine.start()
    (docker_agent.shared / "open").touch()
    master.wait_for(exited(task), timeout=40)
    assert task.exits[0].exit_code == 7
    check_nothing_is_lost(master, task)


def test_containers_that_no_record_names_are_removed_and_those_of_others_stay(master, docker_agent, open_tmp):
    task = in_container(master, python(TRIALS["NeverExits"]))
    master.wait_for(lambda: "up" in master.texts(task), timeout=40)
    docker_agent.kill()
    record = docker_agent.directory / "tasks" / f"{task.launch.allocation_id}.json"
    other = AgentProcess(master, open_tmp / "other", *docker_agent.options)
    other.log = open_tmp / "other.log"
    other.start()  # of the same name, at the same engine
    try:
        wait_until(lambda: "connected" in other.log.read_text(), what="the other agent is there")
        assert len(docker_agent.engine.containers()) == 1
    finally:
        other.terminate()
    record.unlink()
    docker_agent.start()
    wait_until(lambda: docker_agent.engine.containers() == [], what="the container is removed")


def test_a_container_that_somebody_removes_is_lost_and_its_output_is_not(master, docker_agent):
    task = in_container(master, python(TRIALS["NeverExits"]))
    master.wait_for(lambda: "up" in master.texts(task), timeout=40)
    docker_agent.engine.remove_containers()
    master.wait_for(exited(task))
    assert task.exits[0].reason == "launcher_lost"
    assert "removed" in task.exits[0].message or "status 137" in task.exits[0].message


def test_without_an_engine_a_container_is_refused_and_processes_run(master, open_tmp, docker_agents):
    agent = docker_agents("--docker-host", f"unix://{open_tmp}/none.sock")
    master.wait_for(master.connected, what="the agent connects")
    assert master.hellos[-1].runtimes == ["process"]
    task = in_container(master, ["true"])
    master.wait_for(exited(task))
    assert task.exits[0].reason == "refused"
    assert f"unix://{open_tmp}/none.sock does not answer" in task.exits[0].message
    assert "systemctl start docker" in task.exits[0].message
    plain = master.launch([sys.executable, "-c", "print('fine')"])
    master.wait_for(exited(plain))
    assert plain.exits[0].exit_code == 0
    assert agent.process.poll() is None


def test_an_agent_of_processes_alone_refuses_containers(master, docker_agents):
    docker_agents("--runtime", "process")
    master.wait_for(master.connected, what="the agent connects")
    task = in_container(master, ["true"])
    master.wait_for(exited(task))
    assert (task.exits[0].reason, "--runtime process,docker" in task.exits[0].message) == ("refused", True)


def test_a_pull_is_broken_off_when_its_task_is_killed(master, docker_agent):
    """A registry that accepts and never answers: the pull would take minutes."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        image = f"127.0.0.1:{silent.getsockname()[1]}/slow:1"
        task = in_container(master, ["true"], image=image)
        master.wait_for(lambda: task.stages, timeout=40)
        assert image in task.stages[0].message
        began = time.monotonic()
        master.send_kill(task)
        master.wait_for(exited(task))
        assert time.monotonic() - began < 5
        assert "before it started" in task.exits[0].message


@contextmanager
def closed_registry() -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A registry that wants a password and has no image: its address, and (path, Authorization) of what it is asked."""
    asked: list[tuple[str, str | None]] = []

    class Closed(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = self.headers.get("Authorization")
            asked.append((self.path, given))
            self.send_response(404 if "/manifests/" in self.path else 200 if given else 401)
            if not given:
                self.send_header("WWW-Authenticate", 'Basic realm="closed"')
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Nothing to standard error."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Closed) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()


def test_a_registry_gets_the_tasks_own_credentials_and_nobody_else_does(master, docker_agent):
    auth = {"username": "ada", "password": "registry-secret-41"}
    encoded = base64.b64encode(b"ada:registry-secret-41").decode()
    said: list[str] = []
    for given, last in ((auth, ("/v2/closed/manifests/1", f"Basic {encoded}")), (None, ("/v2/", None))):
        with closed_registry() as (address, asked):
            task = in_container(master, ["true"], image=f"{address}/closed:1", registry_auth=given)
            master.wait_for(exited(task), timeout=40)
        assert last in asked, asked
        assert {header for _, header in asked} == {None, last[1]}, "what it wants, and never anything else"
        assert task.exits[0].reason == "setup"
        assert f"{address}/closed:1 is not on this node and cannot be pulled" in task.exits[0].message
        said += [task.exits[0].message, *(stage.message for stage in task.stages), *master.texts(task)]
    docker_agent.terminate()
    kept = [path.read_text(errors="replace") for path in docker_agent.directory.rglob("*") if path.is_file()]
    for text in [*said, *kept, docker_agent.log.read_text()]:
        assert "registry-secret-41" not in text
        assert encoded not in text


@pytest.mark.parametrize("options", [("--runtime", "vm"), ("--service-ports", "9"), ("--service-ports", "0-9")])
def test_options_that_cannot_be(options):
    command = [sys.executable, "-P", "-m", "detlab_agent", "--master", "http://127.0.0.1:1", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 2
    assert options[1] in done.stderr
