"""Queries of what trials, by their numbers, and runs, by their ids, log beyond numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import ColumnElement, delete, func, select, tuple_
from sqlalchemy.orm import Session

from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import MediaRow, clean_text


@dataclass(frozen=True)
class MediaKey:
    """A key of the media of one, summed up."""

    key: str
    kind: str
    count: int
    bytes: int
    first_step: int
    last_step: int


@dataclass(frozen=True)
class MediaSpace:
    """How much one has logged."""

    count: int
    bytes: int


def of_holder(holder: int | str) -> ColumnElement[bool]:
    """Return the condition that an object is of a trial, or of a run."""
    return MediaRow.run_id == holder if isinstance(holder, str) else MediaRow.trial_id == holder


def space_of(s: Session, holder: int | str) -> MediaSpace:
    """Return how many objects one has, and their bytes."""
    query = select(func.count(), func.coalesce(func.sum(MediaRow.size), 0)).where(of_holder(holder))
    count, size = s.execute(query).one()
    return MediaSpace(int(count), int(size))


def replaced_by(s: Session, holder: int | str, key: str, step: int, place: int, attempt: int) -> list[MediaRow]:
    """Return what an object takes the place of.

    The first of a step is of a new report, whose others come after it. An attempt that resumed at an earlier step
    supersedes what earlier attempts logged beyond.
    """
    mine = (of_holder(holder), MediaRow.key == clean_text(key))
    same = MediaRow.step == step if place == 0 else (MediaRow.step == step) & (MediaRow.place == place)
    older = (MediaRow.step >= step) & (MediaRow.attempt < attempt)
    return list(s.scalars(select(MediaRow).where(*mine, same | older)))


def unused_of(s: Session, place: int | str, digests: Sequence[str]) -> list[str]:
    """Return those of some digests that no object of an experiment, or of a run, has."""
    mine = MediaRow.run_id == place if isinstance(place, str) else MediaRow.experiment_id == place
    used: set[str] = set()
    for part in chunks(list(digests)):
        query = select(MediaRow.digest).where(mine, MediaRow.digest.in_(part))
        used.update(s.scalars(query.distinct()))
    return sorted(set(digests) - used)


def keys_of(s: Session, holder: int | str) -> list[MediaKey]:
    """Return the keys of the media of one, by name; one with several kinds is there once for each."""
    query = (
        select(
            MediaRow.key,
            MediaRow.kind,
            func.count(),
            func.coalesce(func.sum(MediaRow.size), 0),
            func.min(MediaRow.step),
            func.max(MediaRow.step),
        )
        .where(of_holder(holder))
        .group_by(MediaRow.key, MediaRow.kind)
        .order_by(MediaRow.key, MediaRow.kind)
    )
    return [
        MediaKey(key, kind, int(count), int(size), first, last)
        for key, kind, count, size, first, last in s.execute(query)
    ]


def steps_of(s: Session, holder: int | str, key: str | None, after: int, limit: int) -> list[int]:
    """Return the steps beyond one at which one has logged media, of one key or of all."""
    query = select(MediaRow.step).where(of_holder(holder), MediaRow.step > after)
    if key is not None:
        query = query.where(MediaRow.key == clean_text(key))
    return list(s.scalars(query.distinct().order_by(MediaRow.step).limit(limit)))


class MediaWanted(NamedTuple):
    """Which of the media of one."""

    key: str | None = None
    kind: str | None = None
    step: int | None = None
    """Of this step alone."""
    at: int | None = None
    """Of each key, those of its newest step up to this one."""
    after: tuple[int, int] | None = None
    """Beyond this (step, id)."""


def ids_of(s: Session, holder: int | str, wanted: MediaWanted, limit: int) -> list[int]:
    """Return the ids of some of the media of one, in the order of their steps."""
    query = select(MediaRow.id).where(of_holder(holder))
    if wanted.key is not None:
        query = query.where(MediaRow.key == clean_text(wanted.key))
    if wanted.kind is not None:
        query = query.where(MediaRow.kind == wanted.kind)
    if wanted.step is not None:
        query = query.where(MediaRow.step == wanted.step)
    if wanted.at is not None:
        newest = (
            select(MediaRow.key, func.max(MediaRow.step))
            .where(of_holder(holder), MediaRow.step <= wanted.at)
            .group_by(MediaRow.key)
        )
        query = query.where(tuple_(MediaRow.key, MediaRow.step).in_(newest))
    if wanted.after is not None:
        step, number = wanted.after
        query = query.where((MediaRow.step > step) | ((MediaRow.step == step) & (MediaRow.id > number)))
    return list(s.scalars(query.order_by(MediaRow.step, MediaRow.id).limit(limit)))


def has_some(s: Session, experiment_id: int) -> bool:
    """Whether trials of an experiment have logged media."""
    return s.scalar(select(MediaRow.id).where(MediaRow.experiment_id == experiment_id).limit(1)) is not None


def forget_some(s: Session, experiment_id: int, limit: int) -> bool:
    """Remove the rows of an experiment's media, whose files are gone; return whether none is left."""
    mine = select(MediaRow.id).where(MediaRow.experiment_id == experiment_id).limit(limit)
    found = list(s.scalars(mine))
    for part in chunks(found):
        s.execute(delete(MediaRow).where(MediaRow.id.in_(part)))
    return len(found) < limit
