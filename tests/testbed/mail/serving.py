"""A mail server on loopback, as a program: it writes what it takes into a file, and then says that it has it.

    python serving.py KIND FOLDER PORT [CERTIFICATE KEY [USER PASSWORD]]

It prints the port, which is a free one where PORT is 0.
KIND is `smtpd` (the standard library's, up to Python 3.11), `small` (this one, in the clear), `starttls` or `tls`.
What files of these names in FOLDER make it do: `hangs`: it takes connections and says nothing; `dies`: it ends once it
has written the next mail, before it says so. Recipients `gone@…` are refused for good, `busy@…` for now; mails with
`XJUNK` in them are refused for good.
"""

from __future__ import annotations

import base64
import json
import os
import socketserver
import ssl
import sys
import time
from pathlib import Path
from typing import Any

KIND, FOLDER, PORT = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
CERTIFICATE, KEY = (sys.argv[4], sys.argv[5]) if len(sys.argv) > 5 else ("", "")
LOGIN = sys.argv[6:8]


def keep(sender: str, recipients: list[str], data: bytes, login: str = "") -> None:
    """Write a mail, before anybody is told that it was taken."""
    line = {"from": sender, "to": recipients, "data": data.decode("latin-1"), "login": login}
    with (FOLDER / "mails").open("a") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())
    if (FOLDER / "dies").exists():
        (FOLDER / "dies").unlink()
        os._exit(9)


def context() -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(CERTIFICATE, KEY)
    return found


class Conversation(socketserver.BaseRequestHandler):
    """One client."""

    def setup(self) -> None:
        self.encrypted, self.login, self.sender = KIND == "tls", "", ""
        self.to: list[str] = []
        if self.encrypted:
            self.request = context().wrap_socket(self.request, server_side=True)
        self.lines = self.request.makefile("rb")

    def say(self, text: str) -> None:
        self.request.sendall(text.encode() + b"\r\n")

    def handle(self) -> None:
        while (FOLDER / "hangs").exists():
            time.sleep(0.05)
        self.say("220 mail.test ready")
        while line := self.lines.readline():
            verb, _, rest = line.decode().strip().partition(" ")
            if verb.upper() == "QUIT":
                return self.say("221 bye")
            getattr(self, f"on_{verb.lower()}", self.unknown)(rest)
        return None

    def unknown(self, rest: str) -> None:
        self.say("502 what?")

    def on_ehlo(self, rest: str) -> None:
        offers = ["mail.test"]
        offers += ["STARTTLS"] if KIND == "starttls" and not self.encrypted else []
        offers += ["AUTH PLAIN"] if LOGIN and self.encrypted else []
        for place, offer in enumerate(offers):
            self.say(f"250{' ' if place == len(offers) - 1 else '-'}{offer}")

    def on_starttls(self, rest: str) -> None:
        self.say("220 go on")
        self.request = context().wrap_socket(self.request, server_side=True)
        self.lines, self.encrypted = self.request.makefile("rb"), True

    def on_auth(self, rest: str) -> None:
        _, user, password = base64.b64decode(rest.partition(" ")[2]).decode().split("\0")
        self.login = user if [user, password] == LOGIN else ""
        self.say("235 welcome" if self.login else "535 no")

    def on_mail(self, rest: str) -> None:
        if LOGIN and not self.login:
            return self.say("530 log in first")
        self.sender, self.to = rest[rest.index("<") + 1 : rest.index(">")], []
        return self.say("250 fine")

    def on_rcpt(self, rest: str) -> None:
        address = rest[rest.index("<") + 1 : rest.index(">")]
        if address.startswith("gone@"):
            return self.say("550 5.1.1 secret words of the server")
        if address.startswith("busy@"):
            return self.say("451 4.3.2 not now")
        self.to.append(address)
        return self.say("250 fine")

    def on_data(self, rest: str) -> None:
        self.say("354 go on")
        data = b""
        while (line := self.lines.readline()) not in (b".\r\n", b""):
            data += line.removeprefix(b".")
        if b"XJUNK" in data:
            return self.say("554 5.7.1 junk")
        keep(self.sender, self.to, data, self.login)
        return self.say("250 taken")

    def on_rset(self, rest: str) -> None:
        self.say("250 fine")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def serve_smtpd() -> None:
    import asyncore
    import smtpd

    class Keeping(smtpd.SMTPServer):
        def process_message(self, peer: Any, mailfrom: str, rcpttos: list[str], data: bytes, **more: Any) -> None:
            keep(mailfrom, rcpttos, data)

    keeping = Keeping(("127.0.0.1", PORT), None)
    print(keeping.socket.getsockname()[1], flush=True)
    asyncore.loop(0.1)


if __name__ == "__main__":
    if KIND == "smtpd":
        serve_smtpd()
    else:
        server = Server(("127.0.0.1", PORT), Conversation)
        print(server.server_address[1], flush=True)
        server.serve_forever()
