"""Names for a container's user and groups, even if the image does not know them.

A task runs under its user's uid of this node, which is unknown to images: shells say "I have no name!", and programs
that look up their user fail. The container gets the image's own `/etc/passwd` and `/etc/group` with the lines that
are missing, as read-only mounts: the image stays as it is, nothing is written into the container, and only the agent
can write what programs inside take for accounts. An image that knows the uid keeps its own name for it.
"""

from __future__ import annotations

import contextlib
import grp
import io
import logging
import tarfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import docker
from docker.types import Mount

from detlab.files import write_atomic
from detlab.launch.host.identity import Identity
from detlab_agent.runtimes.docker.engine import ALLOCATION_LABEL, Engine, EngineAway, EngineRefused, Gone

_log = logging.getLogger(__name__)
PASSWD, GROUP = "/etc/passwd", "/etc/group"
LARGEST = 1 << 20
"""Bytes; an image with more accounts than that is left as it is."""
NAME_BYTES = 64
_SUFFIXES = {PASSWD: ".passwd", GROUP: ".group"}
_MOST_IMAGES = 64
_KINDS = 0x8F28_0000
"""The bits of the engine's file modes (Go's) that a plain file does not have."""
_PUNCTUATION = frozenset("_.@+-")
_NO_CHOICE = frozenset({"sh", "nologin", "false"})
"""Shells of an image's root that are not meant for work. Without a shell, programs choose one, or `sh`."""


@dataclass(frozen=True)
class Accounts:
    """The accounts of an image: its `/etc/passwd` and `/etc/group`."""

    passwd: bytes = b"root:x:0:0:root:/root:/bin/sh\n"
    group: bytes = b"root:x:0:\n"


@dataclass(frozen=True)
class Naming:
    """The name of a container's user.

    Attributes:
        user: Value of USER and LOGNAME; the same as a look-up of the uid, if one is possible.
        files: Path in the container -> content in place of the image's own.
    """

    user: str
    files: dict[str, bytes]


def name_user(accounts: Accounts | None, identity: Identity, home: Path, taken: Collection[str] = ()) -> Naming:
    """Return how a container of an image names its user.

    Args:
        accounts: Of the image; None if they are not known.
        identity: The user it runs as.
        home: HOME inside.
        taken: Targets of other mounts: what they cover is left alone.
    """
    if accounts is None or _covered(PASSWD, taken):
        return Naming(identity.name, {})
    files = {} if _covered(GROUP, taken) else _groups(accounts, identity)
    users = list(_entries(accounts.passwd))
    known = next((name for name, number, _ in users if number == identity.uid), None)
    if known is not None:
        return Naming(known, files)
    if not str(home).isprintable() or ":" in str(home):
        return Naming(identity.name, files)
    user = _free(identity.name, f"user{identity.uid}", {name for name, _, _ in users})
    roots = next((rest[-1] for _, number, rest in users if number == 0 and len(rest) > 3), "")
    shell = "" if PurePosixPath(roots).name in _NO_CHOICE else roots
    line = f"{user}:x:{identity.uid}:{identity.gid}:{user}:{home}:{shell}"
    return Naming(user, {**files, PASSWD: _with(accounts.passwd, [line])})


def _groups(accounts: Accounts, identity: Identity) -> dict[str, bytes]:
    entries = list(_entries(accounts.group))
    names, numbers = {name for name, _, _ in entries}, {number for _, number, _ in entries}
    lines = []
    for gid in dict.fromkeys((identity.gid, *identity.groups)):
        if gid not in numbers:
            wanted = identity.name if gid == identity.gid else _group_here(gid)
            names.add(name := _free(wanted, f"group{gid}", names))
            lines.append(f"{name}:x:{gid}:")
    return {GROUP: _with(accounts.group, lines)} if lines else {}


def _group_here(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


def _entries(content: bytes) -> Iterator[tuple[str, int, list[str]]]:
    """Yield name, number and further fields of each valid line; other lines have another syntax."""
    for line in content.decode("utf-8", "surrogateescape").split("\n"):
        name, *fields = line.split(":")
        if name and len(fields) > 1 and fields[1].isascii() and fields[1].isdigit():
            yield name, int(fields[1]), fields[2:]


def _with(content: bytes, lines: Sequence[str]) -> bytes:
    end = b"" if not content or content.endswith(b"\n") else b"\n"
    return content + end + "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


def _free(wanted: str, otherwise: str, taken: set[str]) -> str:
    """Return a name that is valid in these files and not yet used there."""
    if not _can_stand(wanted) or wanted in taken:
        wanted = otherwise
    while wanted in taken:
        wanted += "_"
    return wanted


def _can_stand(name: str) -> bool:
    """Whether a name is safe in files and prompts: letters, digits and `_.@+-`, a letter first."""
    fits = 0 < len(name.encode("utf-8", "surrogateescape")) <= NAME_BYTES
    return fits and (name[0].isalpha() or name[0] == "_") and all(c.isalnum() or c in _PUNCTUATION for c in name)


def _covered(path: str, targets: Collection[str]) -> bool:
    return any(PurePosixPath(path).is_relative_to(target) for target in targets)


# --- the files of a task ------------------------------------------------------------------------------------


def write_names(record: Path, naming: Naming) -> list[Mount]:
    """Write the files of a task beside its record and return their mounts.

    Raises:
        OSError: The disk is full or failing.
    """
    mounts = []
    for target, content in naming.files.items():
        path = record.with_suffix(_SUFFIXES[target])
        write_atomic(path, content)
        path.chmod(0o644)  # whatever the agent's umask is: the container's user reads it
        mounts.append(Mount(target, str(path), type="bind", read_only=True))
    return mounts


def forget_names(record: Path) -> None:
    """Remove the files of a task."""
    for suffix in _SUFFIXES.values():
        record.with_suffix(suffix).unlink(missing_ok=True)


def sweep_names(directory: Path, keeps: Callable[[str], bool]) -> None:
    """Remove the files of all tasks except those whose allocation is kept."""
    for suffix in _SUFFIXES.values():
        for path in directory.glob(f"*{suffix}"):
            if path.is_file() and not keeps(path.stem):
                path.unlink(missing_ok=True)


# --- what images know ---------------------------------------------------------------------------------------


class ImageAccounts:
    """The accounts of images, each read once, from a container that is never started."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[str, Accounts | None] = {}

    def of(self, image: str) -> Accounts | None:
        """Return the accounts of an image (its id); None if they cannot be read, which is logged.

        Raises:
            EngineAway: The engine does not answer.
        """
        if image not in self._known:
            try:
                found = self._read(image)
            except (EngineRefused, Gone) as error:  # perhaps not so the next time
                _log.warning("users of image %s have no name: %s", image, error)
                return None
            if len(self._known) >= _MOST_IMAGES:
                self._known.clear()
            self._known[image] = found
        return self._known[image]

    def _read(self, image: str) -> Accounts | None:
        labels = {**self._engine.labels, ALLOCATION_LABEL: ""}  # of none: `sweep` removes what a killed agent leaves
        made = self._engine.ask(
            lambda client: client.api.create_container(image, ["true"], labels=labels, network_disabled=True)
        )["Id"]
        try:
            passwd, group = (self._file(made, path) for path in (PASSWD, GROUP))
        except _Unreadable as error:
            _log.warning("users of image %s have no name: %s", image, error)
            return None
        finally:
            with contextlib.suppress(EngineAway, EngineRefused):  # it is found by its labels later
                self._engine.remove(made)
        nothing = Accounts()
        return Accounts(nothing.passwd if passwd is None else passwd, nothing.group if group is None else group)

    def _file(self, container: str, path: str) -> bytes | None:
        """Return the content of a file; None if there is none.

        Raises:
            _Unreadable: It is not a plain file, or too large.
        """
        try:
            return self._engine.ask(lambda client: _fetch(client, container, path))
        except Gone:
            self._engine.inspect(container)  # if it is the container that has gone, that is raised
            return None


class _Unreadable(Exception):
    """Not a plain file of a reasonable size."""


def _fetch(client: docker.DockerClient, container: str, path: str, *, linked: bool = False) -> bytes:
    stream, stat = client.api.get_archive(container, path)
    try:
        target = (stat or {}).get("linkTarget")
        if not target or linked:
            return _content(path, stream, stat or {})
    finally:
        stream.close()
    return _fetch(client, container, target, linked=True)  # the engine has followed it to its end, inside the image


def _content(path: str, stream: Any, stat: dict[str, Any]) -> bytes:
    if int(stat.get("mode", _KINDS)) & _KINDS or int(stat.get("size", 0)) > LARGEST:
        raise _Unreadable(f"{path} is no plain file of at most {LARGEST >> 20} MiB")
    try:
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
            file = archive.extractfile(archive.getmembers()[0])
            return b"" if file is None else file.read()
    except (tarfile.TarError, IndexError) as error:
        raise _Unreadable(f"{path}: {error}") from error
