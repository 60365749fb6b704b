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
    """It has none of these left now; later it may."""
    QUOTA = "quota"
    """The account may not have more."""
    CREDENTIALS = "credentials"
    """It does not know us, or does not let us."""
    CONFIGURATION = "configuration"
    """The requested object does not exist, or the request is invalid."""
    UNREACHABLE = "unreachable"
    """It did not answer, or asked us to come later."""
    OTHER = "other"


class ProviderError(Exception):
    """A provider did not do what it was asked to.

    Attributes:
        trouble: Of what kind it is.
        message: In words, for people.
        hint: What to do about it.
        may_be_done: Whether it may have done all the same what it was asked to: it did not say that it had not.
    """

    def __init__(self, trouble: Trouble, message: str, hint: str = "", may_be_done: bool | None = None) -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.trouble = trouble
        self.message = message
        self.hint = hint
        unclear = trouble in {Trouble.UNREACHABLE, Trouble.OTHER}
        self.may_be_done = unclear if may_be_done is None else may_be_done


@dataclass(frozen=True, slots=True)
class Order:
    """One instance that is wanted.

    Attributes:
        agent_id: Under which name its agent is to come; no two orders have the same. It is the order's key, too: the
            same order again gives the same instance.
        pool: Of which pool it is.
        now: In seconds.
        enrolment_token: With which its agent may enrol, for a while. It goes into files that root alone reads on the
            instance, never into an address or a command line.
    """

    agent_id: str
    pool: str
    now: float
    enrolment_token: str = field(repr=False)


class Provider(Protocol):
    """Has the instances of one pool. Its list is the truth: no other is kept.

    Its methods may block; all of them raise `ProviderError`. An instance is marked as ours, with its pool and its
    agent's name, in the same step in which it is made, so that none is forgotten when the master dies meanwhile.
    """

    def launch(self, order: Order) -> Instance:
        """Make an instance whose agent enrols by itself; the same order twice makes one."""

    def list(self) -> tuple[Instance, ...]:
        """All that were made and are not quite gone, also by a master before this one. It may lag behind `launch`."""

    def terminate(self, ids: Collection[str]) -> None:
        """End instances, by the ids of `list`. Those that are gone already, or not ours, are left alone."""
