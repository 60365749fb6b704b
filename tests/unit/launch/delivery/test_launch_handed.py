"""A server behind a relay takes a socket that listens from the beginning: nobody comes in between."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from detlab.launch.handed import handing

LIKE_JUPYTER = """
import asyncio, os, sys
from tornado import web
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

def passed_on():
    # what a kernel would have
    found = [int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
    return [one for one in found if one > 2 and os.get_inheritable(one)]

class Page(web.RequestHandler):
    def get(self):
        self.finish(f"{os.getpid()} {sys.argv[1:]} {passed_on()}")

async def main(port):
    for one in bind_sockets(port, "127.0.0.1"):  # whether the port can be had
        one.close()
    assert bind_sockets(0, "127.0.0.1")[0].getsockname()[1] != port
    HTTPServer(web.Application([("/", Page)])).listen(port, "127.0.0.1")
    await asyncio.Event().wait()

asyncio.run(main(int(sys.argv[1])))
"""


def test_a_server_serves_on_the_socket_that_it_was_handed(tmp_path: Path) -> None:
    """The port was drawn, given back and bound by the server later: in between anybody could have it."""
    (tmp_path / "like_jupyter.py").write_text(LIKE_JUPYTER)
    listening = socket.create_server(("127.0.0.1", 0), backlog=8)
    port = listening.getsockname()[1]
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("127.0.0.1", port))
    private = socket.socket(socket.AF_UNIX)
    private.bind(str(tmp_path / "s"))
    private.listen()
    both = [listening.fileno(), private.fileno()]
    command = handing([sys.executable, "-m", "like_jupyter", str(port), "more"], port, both)
    child = subprocess.Popen(command, cwd=tmp_path, pass_fds=both, env={**os.environ})
    try:
        listening.close()
        private.close()
        # Who asks before the server is there is answered when it is.
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
            assert answer.read().decode() == f"{child.pid} ['{port}', 'more'] []"
        with socket.socket(socket.AF_UNIX) as near:
            near.settimeout(30)
            near.connect(str(tmp_path / "s"))
            near.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert near.recv(100).startswith(b"HTTP/1.1 200")
    finally:
        child.kill()
        child.wait()
