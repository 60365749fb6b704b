"""The uid of a Hub user's tasks on a node: the master assigns it, the node's agent applies it."""

from __future__ import annotations

import grp
import json
import os
import pwd
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_RANGE = (20_000, 59_999)
"""uids that the master assigns."""
ACCEPTED_RANGE = (1_000, 2**31 - 2)
"""uids that an agent takes from the master: those below are of the system's own accounts."""


class IdentityError(Exception):
    """A user cannot have a uid, or cannot have it here; the message says why and what to do."""


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
        ValueError: It is not two numbers, is empty, or includes 0.
    """
    first, separator, last = text.partition("-")
    if not separator or not first.strip().isdigit() or not last.strip().isdigit():
        raise ValueError(f"{text!r} is not a range of uids: write for example 20000-59999")
    low, high = int(first), int(last)
    if low < 1 or high < low:
        raise ValueError(f"{text!r} is not a range of uids: it is empty or holds 0, which is root")
    return low, high


def account_name(uid: int) -> str | None:
    """Return the name of the account that has a uid on this machine, None if none has."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def group_with(gid: int) -> tuple[str, tuple[str, ...]] | None:
    """Return name and members of the group that has a gid on this machine, None if none has."""
    try:
        found = grp.getgrgid(gid)
    except KeyError:
        return None
    return found.gr_name, tuple(found.gr_mem)


def read_uids(path: Path) -> dict[str, int]:
    """Read a JSON object of hub user -> uid; a file that does not exist is an empty one.

    Raises:
        IdentityError: It is something else, or contains uid 0.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return {}
    users: dict[str, int] | None
    try:
        users = json.loads(text)
    except ValueError:
        users = None
    # Without it one user's uid, and so the files, could be another's: better no task than that.
    if not isinstance(users, dict) or not all(type(uid) is int and uid > 0 for uid in users.values()):
        raise IdentityError(f"{path} is damaged: restore it from a backup; it records the owners of files")
    return users


@dataclass(frozen=True)
class UidRules:
    """What a root agent accepts of the uids that the master assigns.

    A system user who happens to have the same name as a hub user is not used: people who may create hub users could
    else take over system accounts. Only the operator's map, in the master, leads to an existing account.

    Attributes:
        accepted: First and last uid of users whom the operator has not mapped to an account.
        given: Hub user -> uid of tasks that ran on this node before, whose files may still be here.
        name_of: The name of the account that has a uid on this machine.
        group_of: Name and members of the group that has a gid on this machine.
    """

    accepted: tuple[int, int] = ACCEPTED_RANGE
    given: Mapping[str, int] = field(default_factory=dict)
    name_of: Callable[[int], str | None] = account_name
    group_of: Callable[[int], tuple[str, tuple[str, ...]] | None] = group_with

    def identity(self, name: str, uid: int | None, *, account: bool) -> Identity:
        """Return whom a user's tasks run as.

        Args:
            name: The hub user.
            uid: As the master says.
            account: Whether the operator has mapped the user to an account, whose groups and home are then used too.

        Raises:
            IdentityError: Tasks may not run under this uid here.
        """
        if uid is None:
            raise IdentityError(f"the master does not send the uid for tasks of {name!r}: update the master")
        self._check(name, uid, account=account)
        if not account or self.name_of(uid) is None:
            self._check_group(name, uid)
            return Identity(name, uid, uid)
        entry = pwd.getpwuid(uid)
        gid = entry.pw_gid or uid
        if not entry.pw_gid:
            self._check_group(name, uid)
        groups = {group for group in os.getgrouplist(entry.pw_name, gid) if group > 0}
        return Identity(name, uid, gid, Path(entry.pw_dir), tuple(sorted(groups - {gid})))

    def _check_group(self, name: str, uid: int) -> None:
        """Refuse a uid whose number, as a group's, would give a task the rights of a group of this node."""
        found = self.group_of(uid)
        if found is None or found == (name, ()):
            return
        group, members = found
        has = f", whose members are {', '.join(members[:3])}{' …' if len(members) > 3 else ''}" if members else ""
        raise IdentityError(
            f"tasks of {name!r} cannot run under uid {uid} on this node: their group would have the same number, and "
            f"gid {uid} is that of the group {group!r} here{has}: choose another c.DetHub.uid_range in the master, "
            "where no node has groups, or map the user to an account (c.DetHub.user_map)"
        )

    def _check(self, name: str, uid: int, *, account: bool) -> None:
        low, high = self.accepted
        if account and uid < min(low, ACCEPTED_RANGE[0]):
            raise IdentityError(
                f"tasks of {name!r} cannot run under uid {uid} on this node: uids below {min(low, ACCEPTED_RANGE[0])} "
                "are the system's; map the user to another account (c.DetHub.user_map)"
            )
        if not account and not low <= uid <= high:
            raise IdentityError(
                f"uid {uid} of {name!r} is outside of {low}-{high}, which this node accepts: give the agent another "
                "--uid-range, or the master another c.DetHub.uid_range"
            )
        if not account and (taken := self.name_of(uid)) is not None:
            raise IdentityError(
                f"uid {uid} of {name!r} is that of the account {taken!r} on this node: give that account another uid "
                "(usermod -u), or map the user to it if it is theirs (c.DetHub.user_map)"
            )
        for other, theirs in self.given.items():
            if (other == name) != (theirs == uid):
                raise IdentityError(
                    f"tasks of {other!r} ran on this node under uid {theirs}, but the master assigns {uid} to {name!r}:"
                    f" {how_to_agree(other)}"
                )


def how_to_agree(name: str) -> str:
    """Explain to an administrator how to fix a node whose files belong to other uids than the master assigns."""
    return (
        f"on that node give the files of {name!r} to the master's uid (chown -R), remove the line from the agent's "
        "users.json or --user-map, and start the agent again; or start it with an empty --dir"
    )
