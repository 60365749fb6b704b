"""The exchange of rank states between the nodes of a trial, through the master, which the launchers reach anyway.

Each launcher reports the states of its ranks periodically, and receives the last reported states of the others. Old
states are ignored: a silent node is handled by its agent and the master, and no rank is named for it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Protocol

from detlab.errors import AuthError
from detlab.info import read_token
from detlab.launch.delivery.sender import TransportError
from detlab.launch.ranks.judging import Sign

_POLLS = 3.0
"""Number of polls for which a sign of another node is valid after it was made."""
_NAMES = frozenset(field.name for field in fields(Sign))
_LONGEST_INTERVAL = 30.0


class Posts(Protocol):
    """The part of a `Transport` that is needed."""

    def post(self, path: str, body: bytes, token: str) -> tuple[int, bytes]:
        """See `Transport.post`."""


class OtherNodes:
    """The ranks of a trial's other nodes.

    Args:
        task_dir: The task's directory, where its token is.
        node: This node's name: that of its agent.
        number: Its place in the order of nodes.
        transport: To the master.
        limit: Seconds after which a rank that does not arrive counts as hanging.
    """

    def __init__(self, task_dir: Path, node: str, number: int, transport: Posts, limit: float) -> None:
        self.node = node
        self._task_dir = task_dir
        self._number = number
        self._transport = transport
        self.use_limit(limit)

    def use_limit(self, limit: float) -> None:
        """Exchange as often as a limit needs, in seconds."""
        self.interval = max(0.05, min(_LONGEST_INTERVAL, limit / 10))

    def exchange(self, own: Iterable[Sign]) -> Mapping[int, Sign]:
        """Send the state of our ranks; return that of the other nodes' by rank, empty while the master is away.

        Args:
            own: Our ranks; empty while this node's own clocks cannot be trusted.
        """
        body = json.dumps({"node": self._number, "signs": [asdict(sign) for sign in own]}).encode()
        try:
            status, content = self._transport.post("task/ranks", body, read_token(self._task_dir))
            told = json.loads(content)["signs"] if status == 200 else []
            signs_of_others = [_sign(one) for one in told if float(one["age"]) <= _POLLS * self.interval]
        except (TransportError, AuthError, ValueError, KeyError, TypeError):
            return {}  # nobody is named by what is not known
        return {sign.rank: sign for sign in signs_of_others}


def _sign(told: Mapping[str, Any]) -> Sign:
    """Parse a sign from another node.

    Raises:
        ValueError: A time in it is not a finite number.
    """
    sign = Sign(**{name: value for name, value in told.items() if name in _NAMES})
    if not all(math.isfinite(number) for number in (sign.since, sign.still, sign.silent, sign.idle, sign.limit)):
        raise ValueError("a time is no number")
    return sign
