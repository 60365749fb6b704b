"""The protocol between the agent and its zygote (`detlab.warm`): one message, with three descriptors, per launcher.

The descriptors are the launcher's log, the pipe on which it reports that it begins or why it could not become its user,
and the pipe on which the agent lets it continue: until the agent has recorded the launcher, the task does not start. If
a launcher ends without a message on the first pipe, its task has not started, and is then started cold.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

MAX_MESSAGE = 1 << 18
DESCRIPTORS = 3
GO = b"g"
BEGUN = b"{}\n"
"""What a launcher says last before it begins."""
ROOM = "DETLAB_ROOM"
"""A variable that makes room in the zygote for the environments of its children; see `detlab.warm.title`."""
CONTROL = "DETLAB_ZYGOTE"
"""The variable that names the zygote's descriptor of the connection."""


@dataclass(frozen=True)
class ForkRequest:
    """A launcher to fork.

    Attributes:
        directory: The task's directory.
        env: The launcher's whole environment.
        command: What the launcher calls itself in the process table.
        uid: As whom it runs; None to stay who we are.
        gid: Its group.
        groups: Further groups.
        reach: Directories that its user must reach and write to.
        reach_read: Paths that its user must read.
        cgroups: Directories of the control groups that it joins.
        network: Plan of its own network (`detlab.launch.network`); None for the machine's.
    """

    directory: str
    env: dict[str, str]
    command: list[str]
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()
    reach: tuple[str, ...] = ()
    reach_read: tuple[str, ...] = ()
    cgroups: tuple[str, ...] = ()
    network: str | None = None

    def encode(self) -> bytes:
        """Return the message."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> ForkRequest:
        """Read a message of our own agent."""
        value: dict[str, Any] = json.loads(data)
        for name in ("groups", "reach", "reach_read", "cgroups"):
            value[name] = tuple(value[name])
        return cls(**value)
