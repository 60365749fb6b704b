"""Keys of stored configs that this version does not know: a newer master accepted them, and this one cannot apply them.

A database with a newer schema is refused at the start; a new key of the config needs no new schema. Running tasks
continue without it, and the operator is warned: a rule about where a trial may run would otherwise be ignored silently.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.expconf import ExperimentConfig
from detlab.schemas.expconf.blocks.scalars import Block
from detlab.schemas.expconf.checks.walk import visit
from detlab.schemas.expconf.raw.paths import render
from detlab.schemas.taskconf import TaskConfig
from detlab.schemas.wire import ExperimentState, TrialState
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.store.tables import ExperimentRow, TaskRow

_log = logging.getLogger(__name__)
_AT_ONCE = 100
_OVER = [state.value for state in ExperimentState if state.terminal or state is ExperimentState.DELETING]
_ENDED = [state.value for state in TrialState if state.terminal]


def unknown_keys(config: Mapping[str, Any], model: type[Block] = ExperimentConfig) -> list[str]:
    """Return the paths of a stored config's keys that no model of this version has."""
    return [
        render((*path, str(key)))
        for path, at, block in visit(model, dict(config))
        for key in block
        if key not in at.model_fields
    ]


class UnknownKeys(Service):
    """Tells the operator, once after each start of the master."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._told = False

    async def tell(self) -> None:
        """Check the experiments and the tasks that have not ended, in batches; retry if that failed midway."""
        if self._told:
            return
        for read in (_experiments, _tasks):
            after: Any = None
            while (last := await self._context.read(partial(read, after=after))) is not None:
                after = last
        self._told = True


def _experiments(s: Session, after: int | None) -> int | None:
    """Check a batch of experiments; return the last one's id, None if there are no more."""
    query = select(ExperimentRow.id, ExperimentRow.config).where(ExperimentRow.state.not_in(_OVER))
    if after is not None:
        query = query.where(ExperimentRow.id > after)
    last = None
    for last, config in s.execute(query.order_by(ExperimentRow.id).limit(_AT_ONCE)):
        _warn("experiment", last, "submit", unknown_keys(config))
    return last


def _tasks(s: Session, after: str | None) -> str | None:
    """Check a batch of tasks; return the last one's id, None if there are no more."""
    query = select(TaskRow.id, TaskRow.config).where(TaskRow.state.not_in(_ENDED))
    if after is not None:
        query = query.where(TaskRow.id > after)
    last = None
    for last, config in s.execute(query.order_by(TaskRow.id).limit(_AT_ONCE)):
        _warn("task", last, "start", unknown_keys(config, TaskConfig))
    return last


def _warn(what: str, its_id: int | str, verb: str, unknown: list[str]) -> None:
    if unknown:
        _log.warning(
            "%s %s: its config has keys that this version of detlab does not know and ignores: %s."
            " A newer one took it: run that again, or kill the %s and %s it without them",
            what,
            its_id,
            ", ".join(unknown),
            what,
            verb,
        )
