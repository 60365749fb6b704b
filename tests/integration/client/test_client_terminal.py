"""`det shell open` against the terminals of a real Jupyter server."""

import os
import select
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from detlab.cli.terminal.local import EscapeWatch
from detlab.cli.terminal.output import CLEAR
from detlab.cli.terminal.server import Terminals
from detlab.client.transport.discovery import ClusterAddress
from detlab.testing.ports import free_port
from testbed.front.local_terminal import on_a_terminal
from testbed.network.cut_proxy import CutProxy
from testbed.waiting import until

ATTACH = """
import sys
from detlab.cli.output.failures import show
from detlab.cli.terminal.local import attach
from detlab.client.transport.discovery import ClusterAddress

base, token, name = sys.argv[1:4]
address = ClusterAddress(f"{base}/services/detlab/", token, "the test")
try:
    end, name = attach(address, f"{base}/user/ada/shell-1/", name or None)
except Exception as error:
    sys.exit(show(error))
print(f"<{end.value} {name}>", file=sys.stderr)
"""


@dataclass
class Server:
    """A Jupyter server where the Hub would have it."""

    base: str
    token: str = "a-token"

    def terminals(self) -> list[str]:
        """The names of its terminals."""
        headers = {"Authorization": f"token {self.token}"}
        found = httpx.get(f"{self.base}/user/ada/shell-1/api/terminals", headers=headers, trust_env=False)
        return [item["name"] for item in found.raise_for_status().json()]

    def command(self, name: str = "", token: str | None = None) -> list[str]:
        """The command line that attaches."""
        return [sys.executable, "-c", ATTACH, self.base, token or self.token, name]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root: Path = tmp_path_factory.mktemp("terminals")
    port = free_port()
    words = [
        "--ServerApp.base_url=/user/ada/shell-1/", f"--ServerApp.port={port}", "--ServerApp.port_retries=0",
        "--IdentityProvider.token=a-token", "--no-browser", f"--ServerApp.root_dir={root}", "--allow-root",
        "--ServerApp.terminado_settings=shell_command=['/bin/bash', '--norc', '--noprofile']",
    ]  # fmt: skip
    environ = {**os.environ, "HOME": str(root), "PS1": "$ "}
    with subprocess.Popen(
        [sys.executable, "-m", "jupyter_server", *words], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            found = Server(f"http://127.0.0.1:{port}")
            deadline = time.monotonic() + 120
            while True:
                try:
                    found.terminals()
                    break
                except httpx.HTTPError:
                    assert process.poll() is None, process.stderr and process.stderr.read()
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
            yield found
        finally:
            process.kill()


def test_keys_go_there_and_ctrl_d_ends_it(server: Server) -> None:
    with on_a_terminal(server.command(), rows=40, columns=111) as terminal:
        terminal.type(b"echo sum $((40+2))\r")
        terminal.until(b"sum 42")
        terminal.type(b"stty size\r")
        terminal.until(b"40 111")
        terminal.type("echo gr\u00fc\u00dfe | rev\r".encode())
        terminal.press_ctrl_d("e\u00df\u00fcrg".encode())
        assert terminal.end() == 0
    assert b"<over " in terminal.seen


def test_ctrl_c_interrupts_there_not_here(server: Server) -> None:
    with on_a_terminal(server.command()) as terminal:
        # Said by what then sleeps: the keys must not come while the shell is still between the two.
        terminal.type(b"sh -c 'echo g$((0))o; exec sleep 300'; echo $((1+1))no\r")
        terminal.until(b"g0o")
        terminal.type(b"\x03")
        terminal.type(b"echo st$((3*3))ll\r")
        terminal.press_ctrl_d(b"st9ll")
        assert terminal.end() == 0
    assert b"2no" not in terminal.seen


def test_a_changed_window_is_told(server: Server) -> None:
    with on_a_terminal(server.command()) as terminal:
        terminal.type(b"echo a$((1+1))\r")
        terminal.until(b"a2")
        terminal.resize(33, 77)
        terminal.type(b"while [ \"$(stty size)\" != '33 77' ]; do sleep 0.05; done; echo n$((4+4))w\r")
        terminal.press_ctrl_d(b"n8w")
        assert terminal.end() == 0


def test_leaving_and_coming_back(server: Server) -> None:
    with on_a_terminal(server.command()) as terminal:
        terminal.type(b"kept=va$((6+1))ue; echo re$((5+5))\r")
        terminal.until(b"re10")
        terminal.type(b"~.")
        assert terminal.end() == 0
    name = terminal.seen.rpartition(b"<left ")[2].partition(b">")[0].decode()
    assert name in server.terminals()
    with on_a_terminal(server.command(name)) as terminal:
        terminal.type(b"echo found $kept\r")
        terminal.press_ctrl_d(b"found va7ue")
        assert terminal.end() == 0
    assert name not in server.terminals()


def test_what_is_piped_in_is_sent_and_the_terminal_ends(server: Server) -> None:
    for give in ("pipe", "file"):
        text = b"sleep 0.3; echo piped $((20+3))"
        source = {"input": text}
        if give == "file":
            path = Path(os.environ.get("TMPDIR", "/tmp")) / f"det-terminal-{os.getpid()}"
            path.write_bytes(text)
            source = {"stdin": path.open("rb")}
        done = subprocess.run(server.command(), capture_output=True, timeout=60, check=False, **source)
        if give == "file":
            source["stdin"].close()
            path.unlink()
        assert done.returncode == 0, done.stderr
        assert b"piped 23" in done.stdout
        assert b"<over " in done.stderr


def test_a_wrong_token_and_a_terminal_that_is_gone(server: Server) -> None:
    done = subprocess.run(server.command(token="wrong"), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "refused this token" in done.stderr
    assert "access:servers" in done.stderr
    done = subprocess.run(server.command("99"), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "terminal '99' no longer exists" in done.stderr


def test_a_server_that_was_just_started_is_waited_for(server: Server) -> None:
    """Regression: its first answers may be 404, from whatever serves the address before it does."""
    refused = []

    class Front(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(size)
            if len(refused) < 2:
                refused.append(self.path)
                self.send_error(404)
                return
            made = httpx.post(
                server.base + self.path, content=body, headers={"Authorization": self.headers["Authorization"]}
            )
            self.send_response(made.status_code)
            self.end_headers()
            self.wfile.write(made.content)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Front) as front:
        threading.Thread(target=front.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{front.server_port}"
        address = ClusterAddress(f"{base}/services/detlab/", server.token, "the test")
        name = Terminals(address, f"{base}/user/ada/shell-1/").make()
        front.shutdown()
    assert refused == ["/user/ada/shell-1/api/terminals"] * 2
    assert name in server.terminals()


def test_the_terminal_is_put_back(server: Server) -> None:
    with on_a_terminal(server.command()) as terminal:
        before = termios.tcgetattr(terminal.descriptor)
        terminal.type(b"echo r$((7*7))w\r")
        terminal.until(b"r49w")
        assert termios.tcgetattr(terminal.descriptor)[3] & termios.ECHO == 0
        terminal.process.terminate()
        terminal.until(b"\r\n")
        assert terminal.process.wait(30) == 143
        assert termios.tcgetattr(terminal.descriptor) == before


@pytest.fixture
def proxy(server: Server) -> Iterator[CutProxy]:
    """A way to the server that can be cut."""
    with CutProxy(int(server.base.rpartition(":")[2])) as found:
        yield found


def by(proxy: CutProxy) -> Server:
    """The server as seen through the proxy."""
    return Server(f"http://127.0.0.1:{proxy.port}")


def test_a_cut_connection_comes_back_to_the_same_terminal_with_its_screen(server: Server, proxy: CutProxy) -> None:
    with on_a_terminal(by(proxy).command()) as terminal:
        terminal.type(b"kept=va$((6+1))ue; echo re$((5+5))\r")
        terminal.until(b"re10")
        for _ in range(2):
            terminal.seen = b""
            proxy.cut()
            terminal.until(b"[connection lost")
            terminal.until(CLEAR.encode())
            terminal.until(b"re10")  # said again
        terminal.type(b"echo found $kept\r")
        terminal.press_ctrl_d(b"found va7ue")
        assert terminal.end() == 0
    assert b"<over " in terminal.seen


def test_an_outage_is_waited_out_and_what_was_said_meanwhile_is_shown(server: Server, proxy: CutProxy) -> None:
    mark = Path(os.environ.get("TMPDIR", "/tmp")) / f"det-outage-{os.getpid()}"
    with on_a_terminal(by(proxy).command()) as terminal:
        terminal.type(f"echo re$((5+5)); while [ ! -e {mark} ]; do sleep 0.05; done; echo la$((8+8))er\r".encode())
        terminal.until(b"re10")
        proxy.close()
        terminal.until(b"[connection lost")
        mark.touch()
        terminal.type(b"lost keys")
        proxy.open()
        terminal.until(b"la16er")
        mark.unlink()
        terminal.type(b"echo al$((4+4))ve\r")
        terminal.press_ctrl_d(b"al8ve")
        assert terminal.end() == 0


class Piped:
    """What `det shell open` writes when its output is no terminal; what it says beside it is in a file."""

    def __init__(self, command: list[str], beside: Path) -> None:
        self.seen = b""
        self.beside = beside
        with beside.open("wb") as file:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file)

    def type(self, text: bytes) -> None:
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def until(self, text: bytes, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not come within {seconds} s; this did: {self.seen!r}"
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, f"it ended without {text!r}: {self.seen!r}"
            self.seen += data

    def until_lost(self, times: int) -> None:
        until(lambda: self.beside.read_bytes().count(b"[connection lost") == times, self.beside.read_text)


def test_piped_output_comes_once_through_cuts_and_an_outage(server: Server, proxy: CutProxy, tmp_path: Path) -> None:
    gates = [tmp_path / "first", tmp_path / "second"]
    waits = [f"while [ ! -e {gate} ]; do sleep 0.05; done" for gate in gates]
    terminal = Piped(by(proxy).command(), tmp_path / "stderr")
    with terminal.process as process:
        try:
            said = f"echo re$((5+5)); {waits[0]}; echo la$((8+8))er; {waits[1]}; echo en$((9+9))d\n"
            terminal.type(said.encode())
            terminal.until(b"re10")
            proxy.close()
            terminal.until_lost(1)
            gates[0].touch()  # what is said now, nobody hears
            proxy.open()
            terminal.until(b"la16er")
            proxy.cut()
            terminal.until_lost(2)
            gates[1].touch()
            terminal.until(b"en18d")
            terminal.type(b"exit\n")
            terminal.seen += process.stdout.read()
            assert process.wait(30) == 0, terminal.beside.read_text()
        finally:
            process.kill()
    for word in (b"re10", b"la16er", b"en18d", b"$((5+5))"):
        assert terminal.seen.count(word) == 1, (word, terminal.seen)
    assert b"connection" not in terminal.seen, "what is ours is not in the pipe"
    assert CLEAR.encode() not in terminal.seen
    assert b"missing" not in terminal.beside.read_bytes()


@pytest.mark.parametrize("keys", [b"\x03", b"~."])
def test_an_outage_can_be_left_and_the_terminal_lives_on(server: Server, proxy: CutProxy, keys: bytes) -> None:
    with on_a_terminal(by(proxy).command()) as terminal:
        terminal.type(b"echo re$((5+5))\r")
        terminal.until(b"re10")
        proxy.close()
        terminal.until(b"[connection lost")
        terminal.type(keys)
        assert terminal.end() == 0
    name = terminal.seen.rpartition(b"<left ")[2].partition(b">")[0].decode()
    assert name in server.terminals()


def test_a_terminal_that_ended_during_an_outage_is_over(server: Server, proxy: CutProxy) -> None:
    with on_a_terminal(by(proxy).command()) as terminal:
        terminal.type(b"echo re$((5+5))\r")
        terminal.until(b"re10")
        proxy.close()
        terminal.until(b"[connection lost")
        headers = {"Authorization": f"token {server.token}"}
        for name in server.terminals():
            httpx.delete(f"{server.base}/user/ada/shell-1/api/terminals/{name}", headers=headers, trust_env=False)
        proxy.open()
        assert terminal.end() == 0
    assert b"<over " in terminal.seen


@pytest.mark.parametrize(
    ("typed", "sent", "leaves"),
    [
        ("ls\r", "ls\r", False), ("~.", "", True), ("a~.", "a~.", False), ("x\r~.", "x\r", True), ("~~.", "~.", False),
        ("~a", "~a", False), ("\r~", "\r", False),
    ],
)  # fmt: skip
def test_the_way_out_of_a_terminal_that_hangs(typed: str, sent: str, leaves: bool) -> None:
    assert EscapeWatch().feed(typed) == (sent, leaves)
    watch = EscapeWatch()
    parts = [watch.feed(key) for key in typed]
    assert "".join(part for part, _ in parts) == sent
    assert parts[-1][1] is leaves
