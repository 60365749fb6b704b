"""The relay to the Hub says the master's name in `Host`: a server in front of it may choose the site by that."""

from __future__ import annotations

import http.client
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from detlab.launch.servers.relays import Relays, Target


class ByName(BaseHTTPRequestHandler):
    """A front with several sites."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200 if self.headers.get_all("Host") == ["hub.example.org"] else 404)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")  # as Caddy, nginx and Node do
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def test_requests_through_the_relay_reach_the_site_of_that_name() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), ByName) as front:
        threading.Thread(target=front.serve_forever, daemon=True).start()
        listening = socket.create_server(("127.0.0.1", 0))
        port = Relays().add(listening, Target("127.0.0.1", front.server_port, name="hub.example.org"))
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        for size in (1, 300_000, 7):  # one after the other by one client, as a session has it
            client.request("POST", "/hub/api/users/ann/activity", b"x" * size, {"Connection": "keep-alive"})
            answer = client.getresponse()
            assert (answer.status, len(answer.read())) == (200, size)
        client.close()
        front.shutdown()
