"""The table of rights, and the function that answers from it.

Read a row aloud: "to an experiment, its owner has the right OWN, and someone it is shared with for changes WRITE". A
relation that a row does not name gives no right. A caller who is several things to an object has the best of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from detlab_hub.core.rights.model import Agent, Attempt, Kind, Person, Relation, Right, Thing, Who

_READ, _WRITE, _OWN = Right.READ, Right.WRITE, Right.OWN

TABLE: Mapping[Kind, Mapping[Relation, Right]] = {
    Kind.EXPERIMENT: {
        Relation.ADMIN: _OWN,
        Relation.OWNER: _OWN,
        Relation.RUN: _WRITE,
        Relation.EDITOR: _WRITE,
        Relation.READER: _READ,
        Relation.SIBLING: _READ,
        Relation.HOST: _READ,
    },
    Kind.CHECKPOINT: {
        Relation.ADMIN: _OWN,
        Relation.OWNER: _OWN,
        Relation.RUN: _WRITE,
        Relation.EDITOR: _WRITE,
        Relation.READER: _READ,
        Relation.ITSELF: _OWN,
        Relation.SIBLING: _READ,
        Relation.SOURCE: _READ,
        Relation.USES: _READ,
    },
    Kind.MODEL: {
        Relation.ADMIN: _OWN,
        Relation.OWNER: _OWN,
        Relation.RUN: _WRITE,
        Relation.EDITOR: _WRITE,
        Relation.READER: _READ,
    },
    Kind.TASK: {
        Relation.ADMIN: _OWN,
        Relation.OWNER: _OWN,
        Relation.RUN: _WRITE,
        Relation.ITSELF: _READ,
        Relation.HOST: _READ,
    },
    Kind.BUNDLE: {Relation.ADMIN: _READ, Relation.OWNER: _READ, Relation.RUN: _READ, Relation.USES: _READ},
    Kind.JOB: {Relation.ADMIN: _OWN, Relation.OWNER: _OWN, Relation.RUN: _READ},
    Kind.ALLOCATION: {Relation.ADMIN: _READ, Relation.OWNER: _READ, Relation.RUN: _READ},
    Kind.USER: {Relation.ADMIN: _READ, Relation.OWNER: _READ, Relation.RUN: _READ},
    Kind.QUOTA: {Relation.ADMIN: _OWN, Relation.READER: _READ},
    Kind.AGENT: {Relation.ADMIN: _OWN, Relation.USER: _READ},
    Kind.CLUSTER: {Relation.ADMIN: _OWN, Relation.USER: _READ},
    Kind.SITE: {Relation.ADMIN: _OWN},
}


def right_of(who: Who, thing: Thing) -> Right:
    """Return the right of a caller to an object: the best that any of their relations gives (I9)."""
    row, best = TABLE[thing.kind], Right.NONE
    for relation in relations(who, thing):
        given = row.get(relation, Right.NONE)
        best = max(best, given)
    return best


def relations(who: Who, thing: Thing) -> Iterator[Relation]:
    """Find what a caller is to an object."""
    match who:
        case Person():
            yield from _of_person(who, thing)
        case Attempt():
            yield from _of_attempt(who, thing)
        case Agent():
            if who.id in thing.agents:
                yield Relation.HOST
    if thing.used_by and any(right_of(who, one) >= Right.READ for one in thing.used_by):
        yield Relation.USES


def _of_person(who: Person, thing: Thing) -> Iterator[Relation]:
    if who.admin and not who.run:
        yield Relation.ADMIN
    if thing.owner and thing.owner == who.name:
        yield Relation.RUN if who.run else Relation.OWNER
    if thing.users or thing.groups:
        given = [thing.groups[group] for group in who.groups if group in thing.groups]
        if who.name in thing.users:
            given.append(thing.users[who.name])
        if given:
            yield Relation.EDITOR if any(given) else Relation.READER
    yield Relation.USER


def _of_attempt(who: Attempt, thing: Thing) -> Iterator[Relation]:
    if who.trial_id is not None and who.trial_id == thing.trial_id:
        yield Relation.ITSELF
    if who.task_id is not None and who.task_id == thing.task_id:
        yield Relation.ITSELF
    if who.experiment_id is not None:
        if who.experiment_id == thing.experiment_id:
            yield Relation.SIBLING
        if who.experiment_id in thing.source_of:
            yield Relation.SOURCE
