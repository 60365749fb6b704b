"""Mail servers for tests: started, killed, started again on the same port, and asked what they have taken."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from email import message_from_string, policy
from email.message import EmailMessage
from importlib.util import find_spec
from pathlib import Path

from detlab_hub.services.base.server_certificates import ServerAuthority, make_authority

SERVING = Path(__file__).with_name("serving.py")
KINDS = ["small", *(["smtpd"] if find_spec("smtpd") else [])]
"""In the clear: ours, and the standard library's where it has one."""


@dataclass
class MailServer:
    """A mail server in a process of its own.

    Attributes:
        folder: Where it keeps what it takes.
        kind: See `serving.py`.
        login: User and password that it asks for.
    """

    folder: Path
    kind: str = "small"
    login: tuple[str, str] | None = None
    port: int = 0
    _process: subprocess.Popen[str] | None = None

    @property
    def authority(self) -> str:
        """The certificate to believe."""
        return str(self.folder / "ca.pem")

    def start(self) -> MailServer:
        """Start it; it listens when this returns."""
        command = [sys.executable, "-W", "ignore", str(SERVING), self.kind, str(self.folder), str(self.port)]
        if self.kind in ("starttls", "tls"):
            command += [*self._certificate(), *(self.login or ())]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def _certificate(self) -> tuple[str, str]:
        names = [self.folder / name for name in ("ca.pem", "ca.key", "own.pem", "own.key")]
        if not names[0].exists():
            for path, text in zip(names[:2], make_authority(), strict=True):
                path.write_text(text)
            for path, text in zip(names[2:], ServerAuthority(names[0], names[1]).issue("127.0.0.1"), strict=True):
                path.write_text(text)
        return str(names[2]), str(names[3])

    def kill(self) -> None:
        """Kill it, as a crash does."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGKILL)
            self.wait()

    def wait(self) -> None:
        """Wait until it has ended."""
        if self._process is not None:
            assert self._process.stdout is not None
            self._process.wait(20)
            self._process.stdout.close()
            self._process = None

    @property
    def kept(self) -> list[dict[str, str]]:
        """What it has taken, as it was said."""
        path = self.folder / "mails"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def mails(self) -> list[EmailMessage]:
        """The mails that it has taken, in their order."""
        found = []
        for one in self.kept:
            mail = message_from_string(one["data"].replace("\r\n", "\n"), policy=policy.default)
            assert isinstance(mail, EmailMessage)
            found.append(mail)
        return found

    @property
    def subjects(self) -> list[str]:
        """Their subjects."""
        return [str(mail["Subject"]) for mail in self.mails]
