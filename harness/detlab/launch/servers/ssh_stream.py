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
PASSWD, GROUPS = Path("/etc/passwd"), Path("/etc/group")
OVERFLOW_GROUP = Path("/proc/sys/kernel/overflowgid")
"""What a user namespace shows in place of a group that it does not know."""
PRIVILEGE_FOLDER = Path("/run/sshd")
"""`sshd` of root refuses to start without it; a service manager would have made it."""
_OF_THE_TERMINAL = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "TERM", "COLUMNS", "LINES", "SSH_AUTH_SOCK"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USER = re.compile(r"[A-Za-z_][\w.@+-]*", re.ASCII)
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


def account(folder: Path) -> tuple[str, list[str]]:
    """Return the name of the account that this runs as, and what stands before the command line of `sshd`.

    OpenSSH lets nobody in who has no account. Where the uid has none on this machine, `sshd` gets a view of its own of
    `/etc/passwd`, in namespaces that an ordinary user may make.

    Raises:
        NoSSH: There is no account, and none can be shown.
    """
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_name, []
    passwd = PASSWD.read_text(encoding="utf-8", errors="replace")
    name = os.environ.get("USER", "")
    if not _USER.fullmatch(name) or f"\n{name}:" in f"\n{passwd}":  # another account's, which may be locked
        name = "det"
    (folder / "passwd").write_text(passwd_with(name, os.environ, passwd), encoding="utf-8")
    groups = GROUPS.read_text(encoding="utf-8", errors="replace")
    (folder / "group").write_text(f"tty:x:{group_of_terminals()}:\n{groups}", encoding="utf-8")
    before = within(folder)
    tried = [*before, "true"] if all(map(shutil.which, ("unshare", "setpriv"))) else ["false"]
    if subprocess.run(tried, capture_output=True, check=False, stdin=subprocess.DEVNULL).returncode:
        raise NoSSH(
            f"sshd needs an account, uid {os.getuid()} has none here, and this machine lets users make no namespaces; "
            "start the shell in a container (--image)"
        )
    return name, before


def passwd_with(name: str, environment: Mapping[str, str], passwd: str) -> str:
    """Return a `/etc/passwd` with this process's uid under a name; it comes first."""
    home, login = environment.get("HOME", "/"), environment.get("SHELL", "/bin/sh")
    home, login = ("/" if not text.isprintable() or ":" in text else text for text in (home, login))
    return f"{name}:x:{os.getuid()}:{os.getgid()}::{home}:{login}\n{passwd}"


def group_of_terminals() -> int:
    """Return the group that a terminal has as seen from a user namespace: `sshd` wants it to be `tty`."""
    near, far = os.openpty()
    try:
        group = os.fstat(far).st_gid
    finally:
        os.close(near)
        os.close(far)
    return group if group == os.getgid() else int(OVERFLOW_GROUP.read_text(encoding="ascii"))


def within(folder: Path) -> list[str]:
    """Return the words before a command that sees a folder's `passwd` and `group` in `/etc`, and has no more rights."""
    mounts = 'mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/group" /etc/group'
    script = f'{mounts} && exec setpriv --ambient-caps=-all --inh-caps=-all "$@"'
    unshare = ["unshare", "--user", "--map-current-user", "--keep-caps", "--mount"]
    return [*unshare, "sh", "-c", script, str(folder)]


def program(name: str) -> str:
    """Return the path of a program of OpenSSH.

    Raises:
        NoSSH: It is not installed.
    """
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(PLACES))
    if found is None:
        raise NoSSH(f"there is no {name} here; install openssh-server in the image, or on the node")
    return found


def prepare(folder: Path, key: str, keygen: list[str]) -> None:
    """Write what `sshd` reads into a private folder.

    Args:
        folder: The folder.
        key: The public key that may log in.
        keygen: The command line of `ssh-keygen`, without its arguments.

    Raises:
        NoSSH: The key is none, or none could be made for this host.
    """
    if not _KEY.fullmatch(key):
        raise NoSSH("the public key is malformed")
    made = subprocess.run(
        [*keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host_key")],
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


def say(**told: str) -> None:
    """Write the first line out."""
    sys.stdout.write(f"{READY}{json.dumps(told)}\n")
    sys.stdout.flush()


def serve(lines: BinaryIO, out: BinaryIO) -> int:
    """Serve one connection; return the exit status."""
    say(state="listening")
    try:
        key = str(json.loads(lines.readline())["key"])
        with short_folder() as folder:
            server, keygen = program("sshd"), program("ssh-keygen")
            user, before = account(folder)
            prepare(folder, key, [*before, keygen])
            say(state="ready", user=user)
            command = [*before, server, "-i", "-e", "-f", str(folder / "config")]
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
