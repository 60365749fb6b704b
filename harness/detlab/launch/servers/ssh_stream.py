"""SSH within a terminal of a shell: `python3 -m detlab.launch.servers.ssh_stream`, started by `det shell proxy`.

The bytes of one SSH connection pass as lines of base64 in both directions: a terminal carries text only. The first line
in is JSON with the public key that may log in; the first line out says whether `sshd` runs, and as whom. It is the
machine's (or the image's) own OpenSSH, started for this connection alone, with the environment of the task. Nothing
listens at a port: who reaches the terminal has shown the Hub's token.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import threading
import tty
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from detlab.short_folder import short_folder

READY = "detlab-ssh: "
"""What the first line out begins with."""
CHUNK = 12 * 1024
PLACES = ("/usr/sbin", "/usr/local/sbin", "/sbin")
"""Where `sshd` is, besides PATH."""
PRIVILEGE_FOLDER = Path("/run/sshd")
"""`sshd` of root refuses to start without it; a service manager would have made it."""
_OF_THE_TERMINAL = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "TERM", "COLUMNS", "LINES", "SSH_AUTH_SOCK"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY = re.compile(r"[a-z0-9@.-]+ [A-Za-z0-9+/=]+")
CONFIG = """\
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
AuthenticationMethods publickey
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile none
PrintMotd no
LogLevel ERROR
ClientAliveInterval 30
ClientAliveCountMax 4
Subsystem sftp internal-sftp
"""


class NoSSH(Exception):
    """SSH cannot be served here; the message says why and what helps."""


def sshd_config(folder: Path, environment: Mapping[str, str]) -> str:
    """Return the configuration of `sshd`: one key, files in this folder, and the environment of the task."""
    told = " ".join(
        '"{}={}"'.format(name, value.replace("\\", "\\\\").replace('"', '\\"'))
        for name, value in sorted(environment.items())
        if name not in _OF_THE_TERMINAL and _NAME.fullmatch(name) and value.isprintable()
    )
    return CONFIG.format(folder=folder) + (f"SetEnv {told}\n" if told else "")


def account() -> str:
    """Return the name of the account that this runs as.

    Raises:
        NoSSH: The machine has none of this uid, without which OpenSSH lets nobody in.
    """
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError as error:
        raise NoSSH(
            f"sshd needs an account, and uid {os.getuid()} has none here; start the shell in a container (--image)"
        ) from error


def program(name: str) -> str:
    """Return the path of a program of OpenSSH.

    Raises:
        NoSSH: It is not installed.
    """
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(PLACES))
    if found is None:
        raise NoSSH(f"there is no {name} here; install openssh-server in the image, or on the node")
    return found


def prepare(folder: Path, key: str) -> list[str]:
    """Write what `sshd` reads into a private folder; return its command line.

    Raises:
        NoSSH: OpenSSH is not installed, or the key is none.
    """
    if not _KEY.fullmatch(key):
        raise NoSSH("the public key is malformed")
    server = program("sshd")
    made = subprocess.run(
        [program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host_key")],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if made.returncode:
        raise NoSSH(f"ssh-keygen failed: {' '.join(made.stderr.split())[-200:]}")
    (folder / "authorized_keys").write_text(f"{key}\n", encoding="utf-8")
    (folder / "config").write_text(sshd_config(folder, os.environ), encoding="utf-8")
    if os.getuid() == 0:
        with contextlib.suppress(OSError):
            PRIVILEGE_FOLDER.mkdir(mode=0o755, exist_ok=True)
    return [server, "-i", "-e", "-f", str(folder / "config")]


def say(**told: str) -> None:
    """Write the first line out."""
    sys.stdout.write(f"{READY}{json.dumps(told)}\n")
    sys.stdout.flush()


def serve(lines: BinaryIO, out: BinaryIO) -> int:
    """Serve one connection; return the exit status."""
    say(state="listening")
    try:
        key = str(json.loads(lines.readline())["key"])
        user = account()
        with short_folder() as folder:
            command = prepare(folder, key)
            say(state="ready", user=user)
            return _carry(command, folder / "errors", lines, out)
    except (ValueError, KeyError, TypeError, NoSSH, OSError) as error:
        say(state="refused", reason=str(error))
        return 1


def _carry(command: list[str], errors: Path, lines: BinaryIO, out: BinaryIO) -> int:
    near, far = socket.socketpair()
    with near, errors.open("wb") as log:
        with far:
            child = subprocess.Popen(command, stdin=far.fileno(), stdout=far.fileno(), stderr=log)
        threading.Thread(target=_inwards, args=(lines, near), name="ssh-in", daemon=True).start()
        with contextlib.suppress(OSError):
            while data := near.recv(CHUNK):
                out.write(base64.b64encode(data) + b"\n")
                out.flush()
        child.kill()
        status = child.wait()
    for line in errors.read_text(encoding="utf-8", errors="replace").splitlines()[-3:]:
        sys.stdout.write(f"{line}\n")
    return max(0, status)


def _inwards(lines: BinaryIO, near: socket.socket) -> None:
    """Carry what comes from the terminal; the end of the lines, or of the sense in them, ends the connection."""
    with contextlib.suppress(OSError, binascii.Error):
        while line := lines.readline(4 * CHUNK):
            near.sendall(base64.b64decode(line, validate=False))
    with contextlib.suppress(OSError):
        near.shutdown(socket.SHUT_RDWR)


def main() -> int:
    """Take the terminal for bytes, not for a person, and serve."""
    if os.isatty(0):
        tty.setraw(0)
    return serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # a plain exit would wait for the thread that reads the terminal
