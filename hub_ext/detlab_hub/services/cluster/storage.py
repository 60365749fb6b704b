"""Who stores how much: by user, group, project or experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from detlab.schemas.wire.storage import StorageBy, StorageUsage, StorageUse
from detlab_hub.services.admission import storage_quotas
from detlab_hub.services.base.access import person
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.store.queries import experiments, jobs, workspaces
from detlab_hub.store.queries.storage import usage
from detlab_hub.store.queries.storage.usage import Key, Use

NO_PROJECT = "no project"


class Storage(Service):
    """What is stored."""

    async def usage(self, caller: Caller, by: StorageBy = "user", limit: int = 100) -> StorageUsage:
        """Return the bytes of users, groups, projects or experiments, those with most first.

        Args:
            caller: Who asks. Administrators see all; others their own use, that of their groups, and of the projects
                and experiments that they may read.
            by: What the sums are of.
            limit: Most of them; the total is of all.
        """
        viewer = person(caller)

        def read(s: Session) -> StorageUsage:
            found, total = usage.usage(s, by, viewer)
            if by == "user":
                found.setdefault(viewer.name, Use())
            rows = jobs.storage_quotas(s, viewer)
            limits = {row.name: row.size for row in rows if row.kind == by}
            for name in limits:
                found.setdefault(name, Use())
            standings = storage_quotas.standings(s, viewer.name, viewer.groups)
            chosen = sorted(found.items(), key=_most_first)
            shown = chosen[:limit]
            return StorageUsage(
                by=by,
                items=_views(s, by, shown, limits, viewer.name),
                total=_view("total", total),
                more=len(chosen) - len(shown),
                warnings=[one.said for one in standings if one.level],
            )

        return await self._context.look(caller.name, read)


def _most_first(item: tuple[Key, Use]) -> tuple[int, str]:
    key, use = item
    return -(use.used + use.trash_bytes), str(key)


def _views(
    s: Session, by: StorageBy, shown: Sequence[tuple[Key, Use]], limits: Mapping[str, int], asker: str
) -> list[StorageUse]:
    ids = [key for key, _ in shown if isinstance(key, int)]
    if by == "project":
        names = workspaces.labels(s, ids)
        labels = {key: "/".join(name if name[0] != asker else name[1:]) for key, name in names.items()}
        return [_view(labels.get(key, NO_PROJECT) if isinstance(key, int) else NO_PROJECT, use) for key, use in shown]
    if by == "experiment":
        facts = experiments.names(s, ids)
        return [
            _view(facts[key][0], use).model_copy(update={"experiment_id": key, "owner": facts[key][1]})
            for key, use in shown
            if isinstance(key, int) and key in facts
        ]
    return [_view(str(key), use, limits.get(str(key))) for key, use in shown]


def _view(name: str, use: Use, limit: int | None = None) -> StorageUse:
    return StorageUse(
        name=name,
        checkpoints=use.checkpoints,
        checkpoint_bytes=use.checkpoint_bytes,
        trash_bytes=use.trash_bytes,
        other_bytes=use.other_bytes,
        freed_bytes=use.freed_bytes,
        used=use.used,
        limit=limit,
    )
