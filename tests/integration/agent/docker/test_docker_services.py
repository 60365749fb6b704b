"""Tasks that serve HTTP, in processes and containers: their port, their user's home, the image's Python alone."""

import json
import os
import socket
import sys
import time

import httpx
import pytest
from agent_docker import exited, in_container, in_spec, python
from agent_helpers import wait_until

from detlab.schemas import wire
from detlab.testing.master import MasterDouble

SERVES = """
import http.server, os, socket
class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{os.environ['DET_ALLOCATION_ID']} {os.getuid()}".encode())
    def log_message(self, *args):
        pass
where = os.environ["DET_SERVICE_ADDRESS"], int(os.environ["DET_SERVICE_PORT"])
held = os.environ.get("DET_SERVICE_FD")
server = http.server.HTTPServer(where, Hello, bind_and_activate=held is None)
if held is not None:
    server.socket = socket.socket(fileno=int(held))
print("serving", os.environ["DET_SERVICE_ADDRESS"], flush=True)
server.serve_forever()
"""


def ask(start):
    return httpx.get(f"http://{start.address}:{start.port}/", trust_env=False, timeout=10).text


def check_service(master, agent, task, listens):
    master.wait_for(lambda: f"serving {listens}" in master.texts(task) and task.starts, timeout=40)
    first = task.starts[0]
    assert ask(first).split()[0] == task.launch.allocation_id
    agent.kill()
    assert ask(first).split()[0] == task.launch.allocation_id
    agent.start()
    master.wait_for(lambda: task.started >= 2, what="it is announced again")
    assert (task.starts[-1].address, task.starts[-1].port) == (first.address, first.port)
    master.send_kill(task)
    master.wait_for(exited(task))


def test_a_process_serves_on_the_port_that_the_agent_chose(master, docker_agent):
    task = master.launch([sys.executable, "-u", "-c", SERVES], service=wire.ServiceSpec())
    check_service(master, docker_agent, task, "127.0.0.1")


def test_a_container_in_the_hosts_network_serves_there(master, docker_agent):
    task = in_container(master, python(SERVES), service=wire.ServiceSpec())
    check_service(master, docker_agent, task, "127.0.0.1")


@pytest.fixture
def near_master(docker_engine):
    """A master that containers on the engine's bridge reach."""
    with MasterDouble(address=docker_engine.gateway) as double:
        yield double


def test_a_container_on_the_bridge_is_published_on_the_agents_address(near_master, docker_agents):
    agent = docker_agents("--insecure-http", url=near_master)
    near_master.wait_for(near_master.connected, what="the agent connects")
    task = in_container(near_master, python(SERVES), service=wire.ServiceSpec())
    check_service(near_master, agent, task, "0.0.0.0")


def test_without_a_free_port_a_service_is_refused(master, docker_agents):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        docker_agents("--service-ports", f"{port}-{port}")
        master.wait_for(master.connected, what="the agent connects")
        task = in_container(master, python(SERVES), service=wire.ServiceSpec())
        master.wait_for(exited(task), timeout=40)
        assert task.exits[0].reason == "refused"
        assert f"no free port in {port}-{port}" in task.exits[0].message


def port_of(agent, task):
    """The port of a task as soon as the agent has noted it: long before the task could listen there."""
    record = agent.directory / "tasks" / f"{task.launch.allocation_id}.json"
    return wait_until(lambda: record.exists() and json.loads(record.read_text())["port"])


def bound(port):
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError:
        return None


def take_port(agent, task):
    """Take the port of a task in the moment in which the agent gives it back for the engine."""
    port = port_of(agent, task)
    deadline = time.monotonic() + 20
    while (taken := bound(port)) is None:
        assert time.monotonic() < deadline
    return taken


@pytest.mark.parametrize("kind", ["process", "docker"])
def test_a_port_cannot_be_taken_at_any_time(master, docker_agent, kind):
    """The server bound it two seconds after it was chosen: whoever watched the process list was first."""
    task = master.launch([sys.executable, "-c", SERVES], service=wire.ServiceSpec(), **in_spec(kind))
    port, tries = port_of(docker_agent, task), 0
    while "serving 127.0.0.1" not in master.texts(task):
        assert bound(port) is None
        assert not task.exits, master.texts(task)
        tries += 1
    assert tries > 100
    master.send_kill(task)
    while not task.exits:
        assert bound(port) is None
    assert bound(port) is None, "and not after its end, while the Hub's proxy may still lead there"


def test_a_published_port_that_was_taken_in_between_is_said(near_master, docker_agents):
    """On the bridge it is the engine that cannot have it."""
    agent = docker_agents("--insecure-http", url=near_master)
    near_master.wait_for(near_master.connected, what="the agent connects")
    task = in_container(near_master, python(SERVES), service=wire.ServiceSpec())
    with take_port(agent, task):
        near_master.wait_for(exited(task), timeout=40)
    assert task.exits[0].reason == "setup"
    assert "was taken by another program before the task could use it" in task.exits[0].message
    assert agent.engine.containers() == []


HOME = """
import json, os, pathlib
home = pathlib.Path.home()
(home / "notes").open("a").write("x")
seen = home.stat()
print(json.dumps([str(home), (home / "notes").read_text(), seen.st_mode & 0o777, seen.st_uid == os.getuid()]))
"""


def test_a_home_persists_over_tasks_and_runtimes(master, docker_agent):
    expected = docker_agent.directory / "homes" / "alice"
    first = in_container(master, python(HOME), user_home=True)
    master.wait_for(exited(first), timeout=40)
    assert json.loads(master.texts(first)[-1]) == [str(expected), "x", 0o700, True]
    second = master.launch([sys.executable, "-c", HOME], user_home=True)
    master.wait_for(exited(second), timeout=40)
    assert json.loads(master.texts(second)[-1]) == [str(expected), "xx", 0o700, True]
    without = in_container(master, python(HOME))
    master.wait_for(exited(without), timeout=40)
    assert json.loads(master.texts(without)[-1])[:2] == [str(docker_agent.task_dir(without) / "home"), "x"]


@pytest.mark.parametrize(("owner", "name"), [("../../x", "%2E.%2F..%2Fx"), ("..", "%2E."), ("a/b", "a%2Fb")])
def test_a_hostile_name_has_a_home_of_its_own_in_the_homes(master, docker_agent, owner, name):
    task = in_container(master, python(HOME), user_home=True, owner=owner)
    master.wait_for(exited(task), timeout=40)
    assert json.loads(master.texts(task)[-1])[0] == str(docker_agent.directory / "homes" / name)


def test_a_home_that_is_somebody_elses_is_not_given(master, docker_agent):
    (docker_agent.directory / "homes").mkdir(exist_ok=True)
    (docker_agent.directory / "homes" / "alice").symlink_to("/etc")
    task = in_container(master, python(HOME), user_home=True)
    master.wait_for(exited(task), timeout=40)
    assert task.exits[0].reason == "setup"
    assert "belongs to uid 0" in task.exits[0].message


def test_python_alone_is_enough_for_the_launcher(master, docker_agent):
    """The image's Python has no package at all: no httpx, no pydantic."""
    program = (
        f"import sys; import importlib.util as u; print(u.find_spec('httpx'), '{os.sep}opt{os.sep}detlab' in sys.path)"
    )
    task = in_container(
        master,
        ["python3", "-c", program],
        mounts=[wire.Mount(host_path=str(docker_agent.shared), container_path=f"{sys.prefix}/lib", read_only=True)],
    )
    master.wait_for(exited(task), timeout=40)
    assert master.texts(task) == ["None True"], (task.exits, master.texts(task))


def test_an_experiments_pythonpath_does_not_hide_detlab(master, docker_agent):
    task = in_container(
        master, python("import detlab, sys; print('/mine' in sys.path)"), environment={"PYTHONPATH": "/mine"}
    )
    master.wait_for(exited(task), timeout=40)
    assert master.texts(task) == ["True"]


@pytest.mark.soak
def test_the_package_of_a_container_stays_as_it_was(master, docker_agent):
    task = in_container(master, python("import detlab; print(detlab.__file__)"))
    master.wait_for(exited(task), timeout=40)
    assert master.texts(task) == ["/opt/detlab/detlab/__init__.py"]
    wait_until(lambda: len(list((docker_agent.directory / "package").iterdir())) == 1)
