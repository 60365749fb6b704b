"""The protocol of an elastic pool's provider: launch an instance, list them, end some."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from detlab_hub.core.provisioning import Instance


class Trouble(StrEnum):
    """The kinds of errors of a provider: a closed set."""

    CAPACITY = "capacity"
    """The provider has no such instance left now; it may later."""
    QUOTA = "quota"
    """The account's limit is reached."""
    CREDENTIALS = "credentials"
    """The credentials are unknown, or lack the permission."""
    CONFIGURATION = "configuration"
    """The requested object does not exist, or the request is invalid."""
    UNREACHABLE = "unreachable"
    """The provider did not answer, or asked us to try again later."""
    OTHER = "other"


class ProviderError(Exception):
    """A provider did not carry out a request.

    Attributes:
        trouble: The kind of error.
        message: For people.
        hint: What to do about it.
        may_be_done: Whether it may have carried out the request all the same: it did not report that it had not.
    """

    def __init__(self, trouble: Trouble, message: str, hint: str = "", may_be_done: bool | None = None) -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.trouble = trouble
        self.message = message
        self.hint = hint
        unclear = trouble in {Trouble.UNREACHABLE, Trouble.OTHER}
        self.may_be_done = unclear if may_be_done is None else may_be_done


@dataclass(frozen=True, slots=True)
class InstanceOrder:
    """One instance that is wanted.

    Attributes:
        agent_id: The name under which its agent is to connect, unique to the order. It is also the order's key: the
            same order again gives the same instance.
        pool: Its pool.
        now: The time, in seconds.
        enrolment_token: The token with which its agent may enrol, for a while. It is written to files that only root
            reads on the instance, never into an address or a command line.
    """

    agent_id: str
    pool: str
    now: float
    enrolment_token: str = field(repr=False)


class Provider(Protocol):
    """Manages the instances of one pool. Its list is authoritative: no other is kept.

    Its methods may block; all of them raise `ProviderError`. An instance is marked as ours, with its pool and its
    agent's name, in the same step in which it is made, so that none is lost if the master dies meanwhile.
    """

    def launch(self, order: InstanceOrder) -> Instance:
        """Make an instance whose agent enrols by itself; the same order twice makes one."""

    def list(self) -> tuple[Instance, ...]:
        """List all that were launched, also by earlier masters, and have not quite ended; may lag behind `launch`."""

    def terminate(self, ids: Collection[str]) -> None:
        """End instances, by the ids of `list`. Those that have ended already, or are not ours, are left alone."""
