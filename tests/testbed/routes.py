"""Every verb of every route of the master, as its table has them, with ids to fill in."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from detlab_hub.web.routes import API, PAGES
from detlab_hub.web.scopes import Operation, operation_of

NOBODYS = {
    "experiment_id": "999999",
    "trial_id": "999999",
    "media_id": "999999",
    "object_id": "999999",
    "artifact": "999999",
    "model": "999999",
    "workspace": "999999",
    "project": "999999",
    "webhook": "999999",
    "alert_rule": "999999",
    "schedule": "999999",
    "uuid": str(uuid.UUID(int=1)),
    "run_id": "9" * 32,
    "digest": "sha256:" + "0" * 64,
}
"""Ids that do not exist."""
WORDS = {"kind": "best_so_far"}
"""Parts of paths that are no ids, where a word that is there is needed."""


@dataclass(frozen=True)
class Asked:
    """A verb of a route."""

    verb: str
    path: str
    """Below the service, filled in."""
    route: str
    operation: Operation


def verbs(ids: Mapping[str, str] = NOBODYS) -> Iterator[Asked]:
    """Return each verb; a part of a path that has no id gets a word."""
    for prefix, table in (("api/v1/", API), ("", PAGES)):
        for route, handler in table:
            path = re.sub(r"\{(\w+)\}", lambda part: ids.get(part[1], WORDS.get(part[1], "zzz")), route)
            if route == "task/preempt":
                path += "?timeout_seconds=0"
            for verb in handler.SUPPORTED_METHODS:
                operation = operation_of(handler, verb)
                if operation is not None:
                    yield Asked(verb, prefix + path, prefix + route, operation)
