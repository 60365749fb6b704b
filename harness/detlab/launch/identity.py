"""Which uid a hub user's tasks run under: mapped by the operator, or allocated once and kept for ever."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from detlab.launch.taskdir import write_atomic

DEFAULT_RANGE = (20_000, 29_999)


class IdentityError(Exception):
    """A user cannot be given a uid; the message says why and what to do."""


@dataclass(frozen=True)
class Identity:
    """Whom a task runs as.

    Attributes:
        name: The hub user.
        uid: Never 0.
        gid: Primary group, never 0.
        home: None when the user has no home directory of their own.
        groups: Further groups, of a mapped account.
    """

    name: str
    uid: int
    gid: int
    home: Path | None = None
    groups: tuple[int, ...] = ()


def parse_range(text: str) -> tuple[int, int]:
    """Read `A-B`, both included.

    Raises:
        ValueError: Not two numbers, empty, or with 0 in it.
    """
    first, separator, last = text.partition("-")
    if not separator or not first.strip().isdigit() or not last.strip().isdigit():
        raise ValueError(f"{text!r} is no range of uids: write for example 20000-29999")
    low, high = int(first), int(last)
    if low < 1 or high < low:
        raise ValueError(f"{text!r} is no range of uids: it is empty or holds 0, which is root")
    return low, high


def _exists_in_passwd(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


class UserIds:
    """Map hub users to uids; the same for every process that names the same file.

    A system user who happens to have the same name is not used: whoever may create hub users could else take over
    system accounts. Only an operator's map leads to an existing account.

    Args:
        path: `users.json`, made on the first allocation; changes are made under a lock beside it.
        uid_range: First and last uid that may be allocated.
        mapped: Hub user -> uid, by the operator; wins over allocation.
        taken: Whether a uid belongs to an account of the system.
    """

    def __init__(
        self,
        path: Path,
        uid_range: tuple[int, int] = DEFAULT_RANGE,
        mapped: Mapping[str, int] | None = None,
        taken: Callable[[int], bool] = _exists_in_passwd,
    ) -> None:
        self._path = path
        self._range = uid_range
        self._mapped = dict(mapped or {})
        self._taken = taken
        for name, uid in self._mapped.items():
            if not isinstance(uid, int) or isinstance(uid, bool) or uid < 1:
                raise IdentityError(f"the user map gives {name!r} the uid {uid!r}: tasks never run as root")

    def uid_for(self, name: str) -> int:
        """Return the user's uid, allocating one at the first call. Never 0.

        Raises:
            IdentityError: The range is used up, or the file is damaged.
        """
        if name in self._mapped:
            return self._mapped[name]
        with self._locked():
            users = self._read()
            if name not in users:
                users[name] = self._free(set(users.values()) | set(self._mapped.values()))
                data = json.dumps(users, indent=1, sort_keys=True).encode()
                write_atomic(self._path, data, mode=0o644, durable=True)
            return users[name]

    def known(self, name: str) -> int | None:
        """Return the user's uid, None while there is none; allocates nothing.

        Raises:
            IdentityError: The file is damaged.
        """
        return self._mapped.get(name) or self._read().get(name)

    def identity_for(self, name: str) -> Identity:
        """Return whom a user's tasks run as; a mapped account brings its own groups and home."""
        uid = self.uid_for(name)
        if name in self._mapped:
            try:
                account = pwd.getpwuid(uid)
            except KeyError:
                return Identity(name, uid, uid)
            gid = account.pw_gid or uid
            groups = {group for group in os.getgrouplist(account.pw_name, gid) if group > 0}
            return Identity(name, uid, gid, Path(account.pw_dir), tuple(sorted(groups - {gid})))
        return Identity(name, uid, uid)

    def _free(self, used: set[int]) -> int:
        low, high = self._range
        # Above the highest used one first: a uid whose user was removed from the file may still own files.
        start: int = max((uid for uid in used if low <= uid <= high), default=low - 1) + 1
        candidates: list[int] = [*range(start, high + 1), *range(low, min(start, high + 1))]
        for uid in candidates:
            if uid not in used and not self._taken(uid):
                return uid
        raise IdentityError(
            f"no uid left in {low}-{high} for a new user: widen the agent's --uid-range or map users (--user-map)"
        )

    def _read(self) -> dict[str, int]:
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        users: dict[str, int] | None
        try:
            users = json.loads(text)
        except ValueError:
            users = None
        # A lost map would hand one user's uid, and so the files, to another: better no task than that.
        if not isinstance(users, dict) or not all(
            isinstance(name, str) and type(uid) is int and uid > 0 for name, uid in users.items()
        ):
            raise IdentityError(f"{self._path} is damaged: restore it from a backup; it says whose files are whose")
        return users

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._path.with_name(self._path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)
