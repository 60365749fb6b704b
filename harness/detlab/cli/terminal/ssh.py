"""SSH to a shell: a terminal of its server carries the bytes, so that an editor's remote mode works through the Hub.

`det shell proxy ID` is what `ssh` runs as its ProxyCommand. In a terminal of the shell it starts
`detlab.launch.servers.ssh_stream`, which starts `sshd` there; lines of base64 go back and forth. The key of `det` is
made once, and never leaves this machine; its public half goes along with each connection.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detlab.cli.output.printing import clean, note
from detlab.cli.terminal.local import need_library
from detlab.cli.terminal.server import Terminals
from detlab.client.transport.discovery import SERVICE_PATH, ClusterAddress
from detlab.client.transport.logins import user_config_folder
from detlab.errors import DetlabError

if TYPE_CHECKING:
    from websocket import WebSocket

_ACCOUNT = re.compile(r"[\w.][\w.@+-]*\$?", re.ASCII)
START = "stty raw -echo; exec python3 -m detlab.launch.servers.ssh_stream\r"
READY = "detlab-ssh: "
CHUNK = 12 * 1024
PING_SECONDS = 20.0
START_SECONDS = 60.0
SHOWN = 300
"""Characters of what a terminal said in place of an answer."""


@dataclass(frozen=True, slots=True)
class SshHost:
    """How `ssh` reaches a shell.

    Attributes:
        name: What it is called in a configuration of SSH: the task's id.
        user: The account there.
        key: File of the private key.
        proxy: The ProxyCommand.
    """

    name: str
    user: str
    key: Path
    proxy: str

    def options(self) -> dict[str, str]:
        """Return the options of `ssh`. The host's key is new each time and not looked at: the channel is the Hub's."""
        return {
            "ProxyCommand": self.proxy,
            "User": self.user,
            "IdentityFile": _quoted(str(self.key)),
            "IdentitiesOnly": "yes",
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": os.devnull,
            "LogLevel": "ERROR",
        }

    def command(self, more: Sequence[str] = ()) -> str:
        """Return the line that opens it: `ssh -o … NAME`, with more options of `ssh` if there are any."""
        words = [word for key, value in self.options().items() for word in ("-o", f"{key}={value}")]
        return shlex.join(["ssh", *words, *more, self.name])

    def block(self) -> str:
        """Return the block for `~/.ssh/config`."""
        return "\n".join([f"Host {self.name}", *(f"    {key} {value}" for key, value in self.options().items())])


def host_of(address: ClusterAddress, server_url: str, task_id: str) -> SshHost:
    """Return how `ssh` reaches a shell, after a look whether it can.

    Raises:
        DetlabError: There is no `ssh` here, or no `sshd` there.
    """
    need_library()
    key = own_key()
    with SshStream(address, server_url, key) as stream:
        user = stream.user
    det = shutil.which(sys.argv[0]) or shutil.which("det")
    program = [det] if det else [sys.executable, "-c", "from detlab.cli import main; main()"]
    base = address.url.removesuffix(f"{SERVICE_PATH}/")
    proxy = shlex.join([*program, "-m", base, "shell", "proxy", task_id]).replace("%", "%%")
    return SshHost(task_id, user, key, proxy)


def carry(address: ClusterAddress, server_url: str) -> None:
    """Carry one SSH connection between a shell and standard input and output.

    Raises:
        DetlabError: The shell cannot serve SSH, or does not answer.
    """
    need_library()
    for number in (signal.SIGHUP, signal.SIGTERM):  # ssh ends its ProxyCommand so; the terminal must not stay
        signal.signal(number, lambda *_: sys.exit(0))
    with SshStream(address, server_url, own_key()) as stream:
        stream.carry(sys.stdin.fileno(), sys.stdout.fileno())


def own_key() -> Path:
    """Return the file of this user's private key for shells; make it if there is none.

    Raises:
        DetlabError: OpenSSH is not installed, or the key cannot be written.
    """
    key = user_config_folder() / "ssh" / "id_ed25519"
    if key.exists() and key.with_suffix(".pub").exists():
        return key
    keygen = shutil.which("ssh-keygen")
    if keygen is None or shutil.which("ssh") is None:
        raise DetlabError("there is no ssh here", hint="Install OpenSSH's client, or open the shell: det shell open ID")
    try:
        key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        key.unlink(missing_ok=True)
    except OSError as error:
        raise DetlabError(f"{key} cannot be written: {error.strerror or error}") from error
    made = subprocess.run(
        [keygen, "-q", "-t", "ed25519", "-N", "", "-C", "detlab", "-f", str(key)],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if made.returncode:
        raise DetlabError(f"ssh-keygen made no key at {key}: {' '.join(made.stderr.split())[-SHOWN:]}")
    return key


class SshStream:
    """The bytes of one SSH connection, in a terminal of a shell's server that is removed at the end.

    Attributes:
        user: The account there.
    """

    def __init__(self, address: ClusterAddress, server_url: str, key: Path) -> None:
        self._terminals = Terminals(address, server_url)
        self._public = " ".join(key.with_suffix(".pub").read_text(encoding="utf-8").split()[:2])
        self._rest = ""
        self.user = ""

    def __enter__(self) -> SshStream:
        self._name = self._terminals.make()
        try:
            self._socket: WebSocket = self._terminals.connect(self._name)
            self._begin()
        except BaseException:
            self._terminals.remove(self._name)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(DetlabError):
            self._terminals.remove(self._name)
        self._socket.close(timeout=1)

    def _begin(self) -> None:
        self._send(START)
        lines = self._lines(time.monotonic() + START_SECONDS)
        told = self._told(lines)
        if told.get("state") == "listening":
            self._send(json.dumps({"key": self._public}) + "\n")
            told = self._told(lines)
        if told.get("state") != "ready":
            raise DetlabError(
                f"the shell cannot serve SSH: {told.get('reason', 'no reason was given')}",
                hint="A terminal needs no sshd: det shell open ID",
            )
        self.user = str(told.get("user", ""))
        if not _ACCOUNT.fullmatch(self.user):  # it becomes a line of somebody's configuration
            raise DetlabError(f"the shell runs as {clean(self.user)[:SHOWN]!r}, which cannot be the name of an account")

    def _told(self, lines: Iterator[str]) -> dict[str, Any]:
        seen: list[str] = []
        for line in lines:
            _, ready, told = line.partition(READY)  # a shell may write sequences for the terminal before it
            if ready:
                with contextlib.suppress(ValueError):
                    return dict(json.loads(told))
            seen.append(line)
        said = " ".join(" ".join(seen[-4:]).split())[-SHOWN:]
        raise DetlabError(
            f"the shell did not start SSH: {said or 'it said nothing'}",
            hint="Its Python must have detlab of this version: python3 -m detlab.launch.servers.ssh_stream",
        )

    def _send(self, text: str) -> None:
        self._socket.send(json.dumps(["stdin", text]))

    def _lines(self, until: float | None = None) -> Iterator[str]:
        """Yield the lines that the terminal writes, until it ends or this moment has come."""
        import websocket

        while True:
            line, end, rest = self._rest.partition("\n")
            if end:
                self._rest = rest
                yield line.strip("\r")
                continue
            if until is not None and time.monotonic() > until:
                return
            try:
                data = self._socket.recv()
                kind, *said = json.loads(data) if data else ("disconnect",)
            except (OSError, ValueError, TypeError, websocket.WebSocketException):
                return
            if kind == "disconnect":
                return
            if kind == "stdout" and said:
                self._rest += str(said[0])

    def carry(self, source: int, target: int) -> None:
        """Carry bytes from one descriptor, and to the other, until either side ends."""
        threading.Thread(target=self._outwards, args=(source,), name="ssh-out", daemon=True).start()
        threading.Thread(target=self._stay, name="ssh-ping", daemon=True).start()
        for line in self._lines():
            try:
                data = base64.b64decode(line, validate=True)
            except ValueError:  # the last words of sshd
                note(clean(line))
                continue
            while data:
                data = data[os.write(target, data) :]

    def _outwards(self, source: int) -> None:
        import websocket

        with contextlib.suppress(OSError, websocket.WebSocketException):
            while data := os.read(source, CHUNK):
                self._send(base64.b64encode(data).decode() + "\n")
            self._socket.close(timeout=1)

    def _stay(self) -> None:
        import websocket

        with contextlib.suppress(OSError, websocket.WebSocketException):
            while True:
                time.sleep(PING_SECONDS)
                self._socket.ping()


def _quoted(path: str) -> str:
    """Return a path for a configuration of SSH, which takes `%` for a variable."""
    escaped = path.replace("%", "%%")
    return f'"{escaped}"' if " " in escaped else escaped
