"""What administrators tell everybody at the top of all pages."""

from __future__ import annotations

import json

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Problem
from detlab.schemas.wire.cluster.master import ClusterMessageReply, ClusterMessageView, SetClusterMessage
from detlab_hub.core.rights import ObjectKind
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import administers, check_administers
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.tables import Meta

_KEY = "cluster_message"


class ClusterMessage(Service):
    """The message to everybody; there is one, or none."""

    async def get(self, caller: Caller) -> ClusterMessageReply:
        """Return the message; who is no administrator gets one that counts now."""
        now = self._context.clock()
        found = await self._context.read(kept)
        shown = found is not None and (administers(caller, ObjectKind.CLUSTER) or counts(found, now))
        return ClusterMessageReply(message=found if shown else None)

    async def put(self, caller: Caller, request: SetClusterMessage) -> ClusterMessageReply:
        """Set the message, instead of the one before.

        Raises:
            ConfigError: It would end before it begins, or has ended.
            Forbidden: The caller is no administrator.
        """
        check_administers(caller, ObjectKind.CLUSTER, "tell everybody something")

        def put(unit: UnitOfWork) -> ClusterMessageReply:
            begins = unit.now if request.begins_at is None else request.begins_at
            if request.ends_at is not None and request.ends_at <= max(begins, unit.now):
                problem = "it must end after it begins, and later than now"
                raise ConfigError([Problem("ends_at", problem)], f"the message is not set: {problem}")
            made = ClusterMessageView(
                text=request.text, set_by=caller.name, set_at=unit.now, begins_at=begins, ends_at=request.ends_at
            )
            unit.session.merge(Meta(key=_KEY, value=made.model_dump_json()))
            audit.note(unit, caller, "cluster.set_message", "cluster", request.text)
            unit.changed_cluster()
            return ClusterMessageReply(message=made)

        return await self._context.write(put)

    async def clear(self, caller: Caller) -> ClusterMessageReply:
        """Take the message away; return what it was.

        Raises:
            Forbidden: The caller is no administrator.
        """
        check_administers(caller, ObjectKind.CLUSTER, "clear the message to everybody")

        def clear(unit: UnitOfWork) -> ClusterMessageReply:
            row = unit.session.get(Meta, _KEY)
            was = kept(unit.session)
            if row is not None:
                unit.session.delete(row)
                audit.note(unit, caller, "cluster.clear_message", "cluster", "" if was is None else was.text)
                unit.changed_cluster()
            return ClusterMessageReply(message=was)

        return await self._context.write(clear)


def kept(s: Session) -> ClusterMessageView | None:
    """Return the message that is set, also if it has ended or not begun."""
    row = s.get(Meta, _KEY)
    return None if row is None else ClusterMessageView.model_validate(json.loads(row.value))


def now(s: Session, clock: float) -> ClusterMessageView | None:
    """Return the message that is shown at a time, in seconds since the epoch."""
    found = kept(s)
    return found if found is not None and counts(found, clock) else None


def counts(message: ClusterMessageView, now: float) -> bool:
    """Whether a message is shown now."""
    return message.begins_at <= now and (message.ends_at is None or now < message.ends_at)
