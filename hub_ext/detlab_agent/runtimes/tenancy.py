"""Whose tasks run on this node, under which uid, and with which home."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from detlab.launch.host.identity import Identity, IdentityError, UidRules
from detlab.schemas.wire import Launch
from detlab_agent.runtimes.base import RefusedTask, SetupFailed


@dataclass(frozen=True)
class Tenancy:
    """Whose tasks run here, and under which uid.

    Attributes:
        uids: Which uids a root agent accepts; None for an agent that is not root.
        serves: The only user of an agent that is not root.
    """

    uids: UidRules | None
    serves: str | None

    def identity(self, launch: Launch) -> Identity:
        """Return the user as which a task runs here.

        Raises:
            RefusedTask: Tasks of its owner do not run here.
        """
        owner = launch.owner
        if self.uids is not None:
            try:
                return self.uids.identity(owner, launch.uid, account=launch.account)
            except IdentityError as error:
                raise RefusedTask(str(error)) from error
        if owner != self.serves:
            raise RefusedTask(
                f"this agent runs without root and serves user {self.serves!r} only; it cannot keep the tasks of "
                f"{owner!r} apart. Run the agent as root, or one agent per user"
            )
        return Identity(owner, os.getuid(), os.getgid(), Path.home())


def tenancy_elsewhere(accepted: tuple[int, int]) -> Tenancy:
    """Return the tenancy of an agent whose tasks all run on other machines: this machine's accounts mean nothing there.

    Args:
        accepted: First and last uid of users whom the operator has not mapped to an account.
    """
    return Tenancy(UidRules(accepted, name_of=lambda uid: None, group_of=lambda gid: None), None)


@dataclass(frozen=True)
class Homes:
    """Persistent homes of the users who have none of their own on this node.

    Attributes:
        directory: Their parent, in which only the agent may write.
    """

    directory: Path

    def home_of(self, identity: Identity) -> Path:
        """Return the user's own home, or the one that the agent keeps for them, made at the first call.

        Raises:
            SetupFailed: It cannot be made, or what is in its place belongs to another user.
        """
        if identity.home is not None and identity.home.is_dir():
            return identity.home
        path = self.directory / home_name(identity.name)
        try:
            self.directory.mkdir(mode=0o711, parents=True, exist_ok=True)
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                pass
            else:
                if os.geteuid() == 0:
                    os.chown(path, identity.uid, identity.gid)
            info = path.lstat()
        except OSError as error:
            raise SetupFailed(f"the home of {identity.name!r}: {error}") from error
        if path.is_symlink() or not path.is_dir() or info.st_uid != identity.uid:
            raise SetupFailed(
                f"the home {path} belongs to uid {info.st_uid}, and {identity.name!r} is {identity.uid} here: "
                f"give it back (chown -R {identity.uid} {path}) or move it away"
            )
        return path


def home_name(user: str) -> str:
    """Return the name of a user's home: their own, with characters that a file name must not have as %XX.

    Raises:
        SetupFailed: It is empty, or longer than a file name can be.
    """
    name = quote(user, safe="@ ")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if not name or len(name) > 200:
        raise SetupFailed(f"{user[:60]!r}… cannot have a home: the name is empty or too long")
    return name
