"""The table of rights, and the function that answers from it.

Read a row aloud: "to an experiment, its owner has the right OWN, and someone it is shared with for changes WRITE". A
relation that a row does not name gives no right. A caller who is several things to an object has the best of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from detlab_hub.core.rights.model import (
    AgentIdentity,
    AttemptIdentity,
    CallerRelation,
    ObjectKind,
    Person,
    Right,
    Role,
    Thing,
    Who,
)

_READ, _WRITE, _OWN = Right.READ, Right.WRITE, Right.OWN

TABLE: Mapping[ObjectKind, Mapping[CallerRelation, Right]] = {
    ObjectKind.EXPERIMENT: {
        CallerRelation.ADMIN: _OWN,
        CallerRelation.OWNER: _OWN,
        CallerRelation.RUN: _WRITE,
        CallerRelation.EDITOR: _WRITE,
        CallerRelation.READER: _READ,
        CallerRelation.WORKSPACE_ADMIN: _OWN,
        CallerRelation.WORKSPACE_EDITOR: _WRITE,
        CallerRelation.WORKSPACE_VIEWER: _READ,
        CallerRelation.SIBLING: _READ,
        CallerRelation.HOST: _READ,
    },
    ObjectKind.CHECKPOINT: {
        CallerRelation.ADMIN: _OWN,
        CallerRelation.OWNER: _OWN,
        CallerRelation.RUN: _WRITE,
        CallerRelation.EDITOR: _WRITE,
        CallerRelation.READER: _READ,
        CallerRelation.WORKSPACE_ADMIN: _OWN,
        CallerRelation.WORKSPACE_EDITOR: _WRITE,
        CallerRelation.WORKSPACE_VIEWER: _READ,
        CallerRelation.ITSELF: _OWN,
        CallerRelation.SIBLING: _READ,
        CallerRelation.SOURCE: _READ,
        CallerRelation.USES: _READ,
    },
    ObjectKind.MODEL: {
        CallerRelation.ADMIN: _OWN,
        CallerRelation.OWNER: _OWN,
        CallerRelation.RUN: _WRITE,
        CallerRelation.EDITOR: _WRITE,
        CallerRelation.READER: _READ,
        CallerRelation.WORKSPACE_ADMIN: _OWN,
        CallerRelation.WORKSPACE_EDITOR: _WRITE,
        CallerRelation.WORKSPACE_VIEWER: _READ,
    },
    ObjectKind.ARTIFACT: {
        CallerRelation.ADMIN: _OWN,
        CallerRelation.OWNER: _OWN,
        CallerRelation.RUN: _WRITE,
        CallerRelation.WORKSPACE_ADMIN: _OWN,
        CallerRelation.WORKSPACE_EDITOR: _WRITE,
        CallerRelation.WORKSPACE_VIEWER: _READ,
    },
    ObjectKind.WORKSPACE: {
        CallerRelation.ADMIN: _OWN,
        CallerRelation.OWNER: _OWN,
        CallerRelation.RUN: _WRITE,
        CallerRelation.WORKSPACE_ADMIN: _OWN,
        CallerRelation.WORKSPACE_EDITOR: _WRITE,
        CallerRelation.WORKSPACE_VIEWER: _READ,
    },
    ObjectKind.TRACKED_RUN: {
        CallerRelation.ADMIN: _OWN,
        CallerRelation.OWNER: _OWN,
        CallerRelation.RUN: _WRITE,
        CallerRelation.EDITOR: _WRITE,
        CallerRelation.READER: _READ,
        CallerRelation.WORKSPACE_ADMIN: _OWN,
        CallerRelation.WORKSPACE_EDITOR: _WRITE,
        CallerRelation.WORKSPACE_VIEWER: _READ,
        CallerRelation.ITSELF: _WRITE,
        CallerRelation.SIBLING: _READ,
    },
    ObjectKind.TASK: {
        CallerRelation.ADMIN: _OWN,
        CallerRelation.OWNER: _OWN,
        CallerRelation.RUN: _WRITE,
        CallerRelation.ITSELF: _READ,
        CallerRelation.HOST: _READ,
    },
    ObjectKind.TASK_STATE: {
        CallerRelation.ADMIN: _OWN,
        CallerRelation.OWNER: _OWN,
        CallerRelation.RUN: _WRITE,
        CallerRelation.WORKSPACE_ADMIN: _WRITE,
        CallerRelation.WORKSPACE_EDITOR: _READ,
        CallerRelation.WORKSPACE_VIEWER: _READ,
    },
    ObjectKind.BUNDLE: {
        CallerRelation.ADMIN: _READ,
        CallerRelation.OWNER: _READ,
        CallerRelation.RUN: _READ,
        CallerRelation.USES: _READ,
    },
    ObjectKind.JOB: {CallerRelation.ADMIN: _OWN, CallerRelation.OWNER: _OWN, CallerRelation.RUN: _READ},
    ObjectKind.ALLOCATION: {CallerRelation.ADMIN: _READ, CallerRelation.OWNER: _READ, CallerRelation.RUN: _READ},
    ObjectKind.USER: {CallerRelation.ADMIN: _READ, CallerRelation.OWNER: _READ, CallerRelation.RUN: _READ},
    ObjectKind.QUOTA: {CallerRelation.ADMIN: _OWN, CallerRelation.READER: _READ},
    ObjectKind.WEBHOOK: {CallerRelation.ADMIN: _OWN, CallerRelation.OWNER: _OWN, CallerRelation.RUN: _READ},
    ObjectKind.ALERT_RULE: {CallerRelation.ADMIN: _OWN, CallerRelation.OWNER: _OWN, CallerRelation.RUN: _READ},
    ObjectKind.SCHEDULE: {CallerRelation.ADMIN: _OWN, CallerRelation.OWNER: _OWN, CallerRelation.RUN: _READ},
    ObjectKind.AGENT: {CallerRelation.ADMIN: _OWN, CallerRelation.USER: _READ},
    ObjectKind.CLUSTER: {CallerRelation.ADMIN: _OWN, CallerRelation.USER: _READ},
    ObjectKind.SITE: {CallerRelation.ADMIN: _OWN},
}


def right_of(who: Who, thing: Thing) -> Right:
    """Return the right of a caller to an object: the best that any of their relations gives (I9)."""
    row, best = TABLE[thing.kind], Right.NONE
    for relation in relations(who, thing):
        given = row.get(relation, Right.NONE)
        best = max(best, given)
    return best


def relations(who: Who, thing: Thing) -> Iterator[CallerRelation]:
    """Find what a caller is to an object."""
    match who:
        case Person():
            yield from _of_person(who, thing)
        case AttemptIdentity():
            yield from _of_attempt(who, thing)
        case AgentIdentity():
            if who.id in thing.agents:
                yield CallerRelation.HOST
    if thing.used_by and any(right_of(who, one) >= Right.READ for one in thing.used_by):
        yield CallerRelation.USES


def _of_person(who: Person, thing: Thing) -> Iterator[CallerRelation]:
    if who.admin and not who.run:
        yield CallerRelation.ADMIN
    if thing.owner and thing.owner == who.name:
        yield CallerRelation.RUN if who.run else CallerRelation.OWNER
    if thing.users or thing.groups:
        given = [thing.groups[group] for group in who.groups if group in thing.groups]
        if who.name in thing.users:
            given.append(thing.users[who.name])
        if given:
            yield CallerRelation.EDITOR if any(given) else CallerRelation.READER
    if (thing.members or thing.member_groups) and (role := role_of(who, thing)) is not None:
        yield by_role(who, role)
    yield CallerRelation.USER


def role_of(who: Person, thing: Thing) -> Role | None:
    """Return the best role of a user in the workspace of an object; None: they are no member of it."""
    roles = [thing.member_groups[group] for group in who.groups if group in thing.member_groups]
    if who.name in thing.members:
        roles.append(thing.members[who.name])
    return max(roles, default=None)


def by_role(who: Person, role: Role) -> CallerRelation:
    """Return what a member is to what lies in the workspace; the notebook run of an admin is an editor."""
    match role:
        case Role.ADMIN if not who.run:
            return CallerRelation.WORKSPACE_ADMIN
        case Role.VIEWER:
            return CallerRelation.WORKSPACE_VIEWER
        case _:
            return CallerRelation.WORKSPACE_EDITOR


def _of_attempt(who: AttemptIdentity, thing: Thing) -> Iterator[CallerRelation]:
    if who.trial_id is not None and who.trial_id == thing.trial_id:
        yield CallerRelation.ITSELF
    if who.task_id is not None and who.task_id == thing.task_id:
        yield CallerRelation.ITSELF
    if who.experiment_id is not None:
        if who.experiment_id == thing.experiment_id:
            yield CallerRelation.SIBLING
        if who.experiment_id in thing.source_of:
            yield CallerRelation.SOURCE
