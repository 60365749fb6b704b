"""The uid under which each Hub user's tasks run: assigned here, once, for all nodes.

Agents only apply it. If each agent assigned uids, two nodes would give the same one to different users, and on a
storage that both reach one user could read and remove the other's files.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

from sqlalchemy.orm import Session

from detlab.errors import Conflict, StorageError
from detlab.launch.host.identity import how_to_agree
from detlab.schemas.jobwire import UidList, UidView
from detlab.schemas.wire import Hello
from detlab_hub.core.rights import ObjectKind
from detlab_hub.services.base.access import check_administers
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.settings import UidPolicy
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.queries import audit, uids
from detlab_hub.store.tables import UidRow

_log = logging.getLogger(__name__)
_ACTOR = "cluster"
"""As `audit.CLUSTER`, which is above this."""
_SHOWN = 3
"""Disagreements of an agent in one message."""


class NoUid(Conflict):
    """A user cannot have a uid; other users are not affected."""

    default_code = "uids.none"


def assign(unit: UnitOfWork, owner: str) -> UidRow:
    """Return a user's uid, assigned at the first call.

    Raises:
        NoUid: The range is used up, or the user is mapped to the uid of another one.
    """
    row, mapped = unit.session.get(UidRow, owner), unit.settings.uids.mapped.get(owner)
    if row is not None and (mapped is None or row.uid == mapped):
        return row
    following = _next(unit)
    row = unit.session.get(UidRow, owner)  # it may have come from the file of earlier versions just now
    if row is not None and (mapped is None or row.uid == mapped):
        return row
    if mapped is not None:
        other = uids.owner_of(unit.session, mapped)
        if other is not None:
            raise NoUid(
                f"the user map gives {owner!r} the uid {mapped}, under which tasks of {other!r} ran",
                hint="map them to another account (c.DetHub.user_map)",
            )
        return _write(unit, owner, mapped, account=True)
    free = _free(unit.settings.uids, following)
    uids.set_next(unit.session, free + 1)
    return _write(unit, owner, free, account=False)


def is_account(unit: UnitOfWork, row: UidRow) -> bool:
    """Whether a user's uid is that of an account; this remains so when the user is no longer in the map."""
    return row.account or row.owner in unit.settings.uids.mapped


def _write(unit: UnitOfWork, owner: str, uid: int, *, account: bool) -> UidRow:
    row = unit.session.get(UidRow, owner)
    if row is None:
        row = UidRow(owner=owner, uid=uid, account=account, since=unit.now)
        unit.session.add(row)
    else:
        changed = f"account {uid}, before {row.uid}"
        audit.append(unit.session, unit.now, _ACTOR, "user.uid", f"user {owner}", changed)
        row.uid, row.account, row.since = uid, account, unit.now
    unit.session.flush()
    _log.info("tasks of %s run under uid %d%s", owner, uid, ", an account" if account else "")
    return row


def _free(policy: UidPolicy, following: int) -> int:
    low, high = policy.range
    mapped = set(policy.mapped.values())
    for uid in range(max(low, following), high + 1):
        if uid not in mapped and not policy.taken(uid):
            return uid
    raise NoUid(
        f"no uid is left in {low}-{high} for a new user",
        hint="widen c.DetHub.uid_range, or map users to accounts (c.DetHub.user_map)",
    )


def _next(unit: UnitOfWork) -> int:
    """Return the lowest uid that was never assigned; the first call takes over what agents of earlier versions kept."""
    there = uids.lock_next(unit.session)
    if there > 0:
        return there
    policy = unit.settings.uids
    given = {**policy.given, **{name: uid for name, uid in policy.mapped.items() if name in policy.given}}
    shared = {uid for uid, times in Counter(given.values()).items() if times > 1}
    for name, uid in given.items():
        if uid not in shared:
            unit.session.add(UidRow(owner=name, uid=uid, account=name in policy.mapped, since=unit.now))
    low, high = policy.range
    following = (
        max((uid for uid in {*policy.given.values(), *given.values()} if low <= uid <= high), default=low - 1) + 1
    )
    unit.session.flush()
    uids.set_next(unit.session, following)
    return following


def known(s: Session, policy: UidPolicy, owner: str) -> int | None:
    """Return a user's uid, None if none is assigned yet."""
    row = s.get(UidRow, owner)
    if row is not None or uids.has_begun(s):
        return policy.mapped.get(owner) or (None if row is None else row.uid)
    return policy.mapped.get(owner) or policy.given.get(owner)


def file_owner(s: Session, policy: UidPolicy, owner: str) -> int | None:
    """Return the uid that checkpoint files of a user must have; None: the kernel's own check is enough.

    Raises:
        StorageError: This master is root, and no task of the user ever had a uid.
    """
    if not policy.checks_files:
        return None
    uid = known(s, policy, owner)
    if uid is None:
        raise StorageError(
            f"the master runs as root and does not know under which uid the tasks of {owner!r} ran",
            hint="set DetHub.users_file to the users.json of the agents of the earlier version",
        )
    return uid


# --- agents


def check_agent(s: Session, policy: UidPolicy, hello: Hello) -> None:
    """Compare the uids that a node has given with those assigned here, before it counts as connected.

    Raises:
        Conflict: One user's files could become another's on that node.
    """
    if hello.uids is None:
        if hello.serves_user is None:
            raise Conflict(
                "this agent is of an earlier version, which assigns uids by itself: its users could get the uids of "
                "others, and with them their files",
                hint="update detlab on that node to the master's version",
            )
        return
    if not hello.uids:
        return
    assigned = {row.owner: row.uid for row in uids.everyone(s)} if uids.has_begun(s) else policy.given
    found = disagreements(hello.uids, {**assigned, **policy.mapped})
    if found:
        more = f", and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise Conflict(
            f"the uids of this node disagree with the cluster's: {'; '.join(said for _, said in found[:_SHOWN])}{more}",
            hint=how_to_agree(found[0][0]),
        )


def disagreements(given: Mapping[str, int], assigned: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the users whose uid a node has otherwise, or gave to others, each with what is wrong.

    Users who have no uid yet agree with every node: the agent refuses their tasks if they get another one.
    """
    owners = {uid: name for name, uid in assigned.items()}
    found = []
    for name, uid in sorted(given.items()):
        ours, other = assigned.get(name), owners.get(uid)
        if ours is not None and ours != uid:
            found.append((name, f"{name!r} has uid {uid} there and {ours} here"))
        elif ours is None and other is not None:
            found.append((name, f"{name!r} has uid {uid} there, which is that of {other!r} here"))
    return found


class UserUids(Service):
    """The uids that are assigned."""

    async def list(self, caller: Caller) -> UidList:
        """List all of them.

        Raises:
            Forbidden: The caller is not an administrator.
        """
        check_administers(caller, ObjectKind.SITE, "see the uids of users")

        def read(s: Session) -> UidList:
            rows = uids.everyone(s)
            return UidList(
                items=[UidView(user=row.owner, uid=row.uid, account=row.account, since=row.since) for row in rows]
            )

        return await self._context.read(read)
