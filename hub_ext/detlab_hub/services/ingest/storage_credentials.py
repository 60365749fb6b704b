"""Short-lived credentials for the storage of a trial or a task of collection, from the operator's own function."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import Unavailable
from detlab.schemas.wire import StorageCredentials
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.base.context import ServiceContext
from detlab_hub.services.base.fencing import current_attempt, current_holder
from detlab_hub.services.base.threads import user_of
from detlab_hub.store.queries.storage.collection import collected_by, read_by
from detlab_hub.store.tables import ExperimentRow, TaskRow

_log = logging.getLogger(__name__)
_MOST_KEYS, _MOST_CHARS = 10, 20_000
_KEYS_OF_S3 = {"access_key": "access_key_id", "secret_key": "secret_access_key", "session_token": "token"}
"""Keys of a block -> names of credentials."""


async def for_task(context: ServiceContext, task: TaskCaller) -> StorageCredentials:
    """Return credentials for the task's own storage; without values if the operator gives none for it.

    They are in no log, row, event or view. What goes wrong is told without the words of the operator's function, which
    may hold secrets: the master's log has its type.

    Raises:
        StaleAttempt: The attempt is over.
        Unavailable: The operator's function failed, or threads of all tasks wait for it.
    """
    give = context.settings.storage_credentials
    owner, block = await context.read(lambda s: _storage_of(s, task))
    if give is None:
        return StorageCredentials()
    try:
        return _checked(await context.workers.credentials.run(user_of(task), give, owner, block))
    except Exception as error:  # the operator's own code
        _log.warning("storage_credentials failed for %s: %s", owner, type(error).__name__)
    raise Unavailable(
        "the cluster could not get credentials for the checkpoint storage",
        hint="its operator finds the cause in the master's log; the task asks again",
    )


async def with_keys(context: ServiceContext, owner: str, block: Mapping[str, Any]) -> dict[str, Any]:
    """Return an owner's block as the master opens it: an `s3` block without keys with the operator's short-lived ones.

    They reach no more than that owner may; the master's own, which serve otherwise, may reach nothing at all.
    """
    give, own = context.settings.storage_credentials, dict(block)
    if give is None or block.get("type") != "s3" or block.get("access_key"):
        return own
    try:
        found = _checked(await context.workers.credentials.run(owner, give, owner, own))
    except Exception as error:  # the operator's own code
        _log.warning("storage_credentials failed for %s: %s", owner, type(error).__name__)
        return own
    keys = {key: found.values[name] for key, name in _KEYS_OF_S3.items() if found.values.get(name)}
    return own | keys if {"access_key", "secret_key"} <= keys.keys() else own


def _storage_of(s: Session, task: TaskCaller) -> tuple[str, dict[str, Any]]:
    """Return the owner and the storage of a trial that may still write, or a task that removes or reads checkpoints."""
    _, holder = current_holder(s, task)
    read = read_by(s, holder) if isinstance(holder, TaskRow) else None
    if read is not None:
        return s.get_one(ExperimentRow, read.experiment_id).owner, dict(read.storage)
    experiment = collected_by(s, holder) if isinstance(holder, TaskRow) else None
    if experiment is None:
        _, trial = current_attempt(s, task)
        experiment = s.get_one(ExperimentRow, trial.experiment_id)
    return experiment.owner, dict(experiment.config.get("checkpoint_storage") or {})


def _checked(given: Any) -> StorageCredentials:
    if given is None:
        return StorageCredentials()
    if not isinstance(given, Mapping) or len(given) > _MOST_KEYS:
        raise TypeError("not a mapping of a few credentials")
    values = {str(key): str(value) for key, value in given.items() if key != "expires_at" and value is not None}
    if any(len(value) > _MOST_CHARS for value in values.values()):
        raise ValueError("too long")
    expires_at = given.get("expires_at")
    if isinstance(expires_at, datetime):
        expires_at = expires_at.timestamp()
    return StorageCredentials(values=values, expires_at=None if expires_at is None else float(expires_at))
