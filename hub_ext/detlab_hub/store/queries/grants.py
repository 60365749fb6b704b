"""Grants: the users and groups that may read an experiment, or change it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, Select, and_, delete, or_, select
from sqlalchemy.orm import Session

from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import GrantRow, clean_text

USER = "user"
GROUP = "group"


def granted_ids(user: str, groups: Collection[str]) -> Select[int]:
    """A query for the experiments that a user may read by a grant."""
    return select(GrantRow.experiment_id).where(_to(user, groups))


def among(s: Session, experiment_ids: Sequence[int], user: str, groups: Collection[str]) -> dict[int, bool]:
    """Those of some experiments that a user may read by a grant; True: the best grant permits changes, too."""
    found: dict[int, bool] = {}
    for part in chunks(list(experiment_ids)):
        query = select(GrantRow.experiment_id, GrantRow.write).where(GrantRow.experiment_id.in_(part))
        for experiment_id, write in s.execute(query.where(_to(user, groups))):
            found[experiment_id] = write or found.get(experiment_id, False)
    return found


def of_experiment(s: Session, experiment_id: int) -> list[GrantRow]:
    """The grants of an experiment, users first."""
    query = select(GrantRow).where(GrantRow.experiment_id == experiment_id)
    return list(s.scalars(query.order_by(GrantRow.kind.desc(), GrantRow.name)))


def of_experiments(s: Session, experiment_ids: Sequence[int]) -> dict[int, list[GrantRow]]:
    """The grants of some experiments, by experiment; none for one that is not shared."""
    found: dict[int, list[GrantRow]] = {}
    for part in chunks(list(experiment_ids)):
        for row in s.scalars(select(GrantRow).where(GrantRow.experiment_id.in_(part))):
            found.setdefault(row.experiment_id, []).append(row)
    return found


def stored(name: str) -> str:
    """The name of a user or group as grants hold it."""
    return clean_text(name)


def put(s: Session, row: GrantRow) -> None:
    """Make a grant, or change the one to the same user or group."""
    s.merge(row)


def remove(s: Session, experiment_id: int, kind: str, name: str) -> bool:
    """Take a grant back; False: there was none."""
    query = delete(GrantRow).where(
        GrantRow.experiment_id == experiment_id, GrantRow.kind == kind, GrantRow.name == clean_text(name)
    )
    return bool(getattr(s.execute(query), "rowcount", 0))


def _to(user: str, groups: Collection[str]) -> ColumnElement[bool]:
    to_user = and_(GrantRow.kind == USER, GrantRow.name == clean_text(user))
    if not groups:
        return to_user
    return or_(to_user, and_(GrantRow.kind == GROUP, GrantRow.name.in_(sorted(map(clean_text, groups)))))
