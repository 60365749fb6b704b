"""A line in `/etc/passwd` for a task whose uid has no account on its node.

git, ssh and `getpass.getuser()` refuse to work for a uid that nobody has. The task gets the node's own files with one
line more, bound over `/etc/passwd` and `/etc/group` in a mount namespace of its own; no other process sees them, and
they are root's. It is a convenience: where the kernel allows no such mount, the task starts without.
"""

from __future__ import annotations

import os
import pwd
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from detlab.launch.host.mounts import bind_file, enter_namespace

PASSWD, GROUP = Path("/etc/passwd"), Path("/etc/group")
_FOLDERS = ("/run", "/dev/shm", "/tmp")  # noqa: S108  (root's file, named by mkstemp, bound by its descriptor)
_NAME = re.compile(r"[A-Za-z_][\w.@+-]{0,31}", re.ASCII)


def give_account(uid: int, gid: int, environment: Mapping[str, str]) -> bool:
    """Show this process, which must be root's, and its children an account for `uid`; return whether they now see one.

    Args:
        uid: The task's.
        gid: Its primary group.
        environment: Names the user (`USER`), home (`HOME`) and shell (`SHELL`).
    """
    if _is_known(uid):
        return True
    try:
        passwd, group = (path.read_text(encoding="utf-8", errors="surrogateescape") for path in (PASSWD, GROUP))
        enter_namespace()
        _show(group_with(gid, name_of(uid, environment, group), group), GROUP)
        _show(passwd_with(uid, gid, environment, passwd), PASSWD)
    except OSError:
        return False
    return _is_known(uid)


def name_of(uid: int, environment: Mapping[str, str], existing: str) -> str:
    """Return the name for a uid: the user's, unless it cannot be one or another account, or group, has it."""
    wished = environment.get("USER", "")
    taken = {line.partition(":")[0] for line in existing.splitlines()}
    return wished if _NAME.fullmatch(wished) and wished not in taken else f"det{uid}"


def passwd_with(uid: int, gid: int, environment: Mapping[str, str], passwd: str) -> str:
    """Return the text of `/etc/passwd` with a line for `uid`. It has no password, and is the last one."""
    home, shell = environment.get("HOME", "/"), environment.get("SHELL", "/bin/sh")
    home, shell = ("/" if ":" in text or not text.isprintable() else text for text in (home, shell))
    name = name_of(uid, environment, passwd)
    return f"{_ended(passwd)}{name}:x:{uid}:{gid}:{name}:{home}:{shell}\n"  # git takes the full name for an author's


def group_with(gid: int, name: str, group: str) -> str:
    """Return the text of `/etc/group` with a line for `gid`, if it has none."""
    if any(line.split(":")[2:3] == [str(gid)] for line in group.splitlines()):
        return group
    return f"{_ended(group)}{name}:x:{gid}:\n"


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _is_known(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _show(text: str, path: Path) -> None:
    """Bind a text over a file, read-only. The file that holds it is root's, and has no name any more."""
    # Not in the task's TMPDIR, which is its user's: they might put something else in its place.
    folder = next((one for one in _FOLDERS if os.access(one, os.W_OK)), None)
    descriptor, name = tempfile.mkstemp(prefix="detlab-account-", dir=folder)
    try:
        os.write(descriptor, text.encode(errors="surrogateescape"))
        os.fchmod(descriptor, 0o644)
        bind_file(Path(f"/proc/self/fd/{descriptor}"), path)
    finally:
        os.close(descriptor)
        Path(name).unlink()
