"""What becomes of a task that is a server of the Hub: its environment, its port, its use."""

import json
import os
import pty
import pwd
import select
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

import detlab
from detlab.launch import hub_server
from detlab.launch.servers import idle_watch
from testbed.waiting import until

HUB = {
    "DET_SERVICE_ADDRESS": "127.0.0.1",
    "DET_SERVICE_PORT": "4242",
    "JUPYTERHUB_SERVICE_PREFIX": "/user/ada/nb/",
    "JUPYTERHUB_API_TOKEN": "t0ken",
}


def test_the_agents_address_becomes_the_hubs_variables(tmp_path):
    env = hub_server.server_environment(HUB, "notebook", root=tmp_path)
    assert env["JUPYTERHUB_SERVICE_URL"] == "http://127.0.0.1:4242/user/ada/nb/"
    assert env["JUPYTERHUB_DEFAULT_URL"] == "/lab"
    assert env["JUPYTERHUB_ROOT_DIR"] == str(tmp_path)
    assert env["PYTHONSTARTUP"].endswith("startup.py"), "kernels have the magics"


def test_ipv6_is_written_in_brackets(tmp_path):
    env = hub_server.server_environment({**HUB, "DET_SERVICE_ADDRESS": "::1"}, "notebook", root=tmp_path)
    assert env["JUPYTERHUB_SERVICE_URL"].startswith("http://[::1]:4242/")


def test_a_shell_opens_a_terminal_whatever_the_hubs_default(tmp_path):
    env = hub_server.server_environment({**HUB, "JUPYTERHUB_DEFAULT_URL": "/lab"}, "shell", root=tmp_path)
    assert env["JUPYTERHUB_DEFAULT_URL"] == "/terminals/1"


@pytest.mark.parametrize(
    ("account", "shell"),
    [
        ("/bin/sh", "/bin/sh"),
        *((account, "/bin/bash") for account in ("", "/usr/sbin/nologin", "/bin/false", "/no/such/shell", None)),
    ],
)
def test_terminals_run_the_accounts_shell_unless_it_lets_nobody_in(monkeypatch, account, shell):
    def look_up(uid):
        if account is None:
            raise KeyError(uid)
        return pwd.struct_passwd(("ada", "x", uid, uid, "", "/", account))

    monkeypatch.setattr(hub_server.pwd, "getpwuid", look_up)
    assert hub_server.login_shell() == shell


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become an account that does not exist")
@pytest.mark.parametrize(("name", "prompt"), [("ada", "ada@"), ("o.b-1@site", "o.b-1@site@"), ("$(id)", "no name!")])
def test_a_shell_knows_its_user_by_name_where_the_machine_has_no_account_of_it(name, prompt):
    harness = Path(detlab.__file__).resolve().parents[1]
    command = [sys.executable, "-S", "-c", NAMELESS, name, str(harness)]
    said = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True, timeout=60).stdout
    assert prompt in said
    assert "user=" + name in said


NAMELESS = """
import os, pty, sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from detlab.launch import hub_server
os.setuid(54321)
hub = {"DET_SERVICE_ADDRESS": "::1", "DET_SERVICE_PORT": "1", "JUPYTERHUB_USER": sys.argv[1]}
env = {**hub_server.server_environment(hub, "shell", root=Path("/")), "PATH": os.environ["PATH"], "HOME": "/"}
child, terminal = pty.fork()
if not child:
    os.execve("/bin/bash", ["bash"], env)
said = b""
while b"$ " not in said:
    said += os.read(terminal, 4096)
os.write(terminal, b'echo "user=$USER"; exit\\n')
try:
    while True:
        said += os.read(terminal, 4096)
except OSError:
    print(said.decode())
"""


def test_the_users_own_startup_file_follows_ours(tmp_path):
    env = hub_server.server_environment({**HUB, "PYTHONSTARTUP": "/home/ada/mine.py"}, "notebook", root=tmp_path)
    assert env["DETLAB_CHAIN_PYTHONSTARTUP"] == "/home/ada/mine.py"


def test_code_that_came_with_the_task_is_copied_into_the_home(tmp_path):
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    env = {"HOME": str(home), "DET_TASK_ID": "notebook-1"}
    assert hub_server.root_directory(env, {}, work) == home
    assert hub_server.root_directory(env, {"work_dir": "project"}, work) == home / "project"
    (work / "model.py").write_text("x = 1")
    root = hub_server.root_directory(env, {}, work)
    assert root == home / "notebook-1"
    assert (root / "model.py").read_text() == "x = 1"


def test_a_taken_port_is_told_apart_from_other_failures(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        env = {
            **os.environ,
            **HUB,
            "DET_SERVICE_PORT": str(other.getsockname()[1]),
            "DET_MASTER": "http://127.0.0.1:1/",
            "DET_TASK_DIR": str(tmp_path),
        }
        command = [sys.executable, "-m", "detlab.launch.hub_server", "--kind", "notebook"]
        ended = subprocess.run(command, check=False, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == hub_server.PORT_TAKEN
    assert "in use" in ended.stderr


def test_a_package_that_is_missing_is_named(monkeypatch, capsys):
    monkeypatch.setitem(hub_server.NEEDS, "notebook", ("json", "no_such_package"))
    assert hub_server.run("notebook", HUB) == hub_server.MISSING
    assert "no_such_package" in capsys.readouterr().err


@pytest.mark.slow
def _catches(pid, number):
    """Whether a process has a handler for a signal."""
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["SigCgt"], 16) >> (number - 1) & 1


def test_hold_keeps_its_slots_until_it_is_told_to_end():
    child = subprocess.Popen([sys.executable, "-m", "detlab.launch.hub_server", "--kind", "hold"])
    try:
        until(lambda: _catches(child.pid, signal.SIGTERM), "it waits for the signal to end")
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.3)
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0
    finally:
        child.kill()


class Answers(BaseHTTPRequestHandler):
    """A Jupyter server and a master, as far as the watcher asks."""

    kernels: ClassVar[list] = []
    posted: ClassVar[list] = []
    asked: ClassVar[list] = []

    def do_GET(self):
        self.asked.append((self.path, self.headers["Authorization"]))
        status = {"last_activity": "2026-11-21T10:00:00.000000Z"}
        self._say(status if "api/status" in self.path else self.kernels)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.posted.append((self.path, self.headers["Authorization"], body))
        self._say({"idle_timeout": 20.0})

    def _say(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class OnUnixSocket(HTTPServer):
    address_family = socket.AF_UNIX

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)

    def get_request(self):
        return super().get_request()[0], ("near", 0)


@pytest.fixture
def answers(tmp_path):
    """Its address for the master's part; the server's part is on a Unix socket."""
    Answers.kernels, Answers.posted, Answers.asked = [], [], []
    servers = [HTTPServer(("127.0.0.1", 0), Answers), OnUnixSocket(str(tmp_path / "server.sock"), Answers)]
    threads = [threading.Thread(target=server.serve_forever) for server in servers]
    for thread in threads:
        thread.start()
    yield f"http://127.0.0.1:{servers[0].server_port}/"
    for server, thread in zip(servers, threads, strict=True):
        server.shutdown()
        thread.join()
        server.server_close()


def watch(answers, tmp_path, kind="notebook"):
    (tmp_path / "token").write_text("dttask_x")
    env = {
        "JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:1/",
        "JUPYTERHUB_API_TOKEN": "t0ken",
        "DET_MASTER": answers,
        "DET_TASK_DIR": str(tmp_path),
    }
    return idle_watch.IdleWatch(kind, env, os.getpid(), tmp_path / "server.sock")


@pytest.mark.slow
def test_the_watcher_reports_without_being_activity_itself(answers, tmp_path):
    looking = watch(answers, tmp_path)
    assert looking.once()
    ((path, auth, body),) = Answers.posted
    assert path == "/api/v1/task/activity"
    assert auth == "Bearer dttask_x"
    assert body == {"last_activity": 1795255200.0, "busy": False, "detail": ""}
    assert len(Answers.asked) == 2
    assert all("no_track_activity=1" in path and token == "token t0ken" for path, token in Answers.asked)
    assert looking._period == 5.0, "four looks before the end"


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [{"execution_state": "busy"}, {"execution_state": "idle", "connections": 1}])
def test_a_busy_kernel_and_an_open_connection_are_use(answers, tmp_path, kernel):
    Answers.kernels = [kernel]
    assert watch(answers, tmp_path).look().busy


def test_a_server_that_does_not_answer_is_no_report(tmp_path):
    assert watch("http://127.0.0.1:1/", tmp_path).once() is False


def test_tensorboard_was_used_at_its_last_request(answers, tmp_path):
    looking = watch(answers, tmp_path, "tensorboard")
    assert abs(looking.look().last - time.time()) < 60
    (tmp_path / idle_watch.REQUEST_MARK).touch()
    os.utime(tmp_path / idle_watch.REQUEST_MARK, (5000.0, 5000.0))
    assert looking.look().last == 5000.0


def test_a_program_in_a_terminal_is_use_and_an_idle_shell_is_not():
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv("/bin/sh", ["sh"])
    try:
        assert idle_watch.terminal_programs(os.getpid()) == []
        os.write(terminal, b"sleep 30\n")
        deadline = time.monotonic() + 10
        while not idle_watch.terminal_programs(os.getpid()):
            assert time.monotonic() < deadline
            if select.select([terminal], [], [], 0.05)[0]:
                os.read(terminal, 1000)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.close(terminal)
        os.waitpid(pid, 0)
