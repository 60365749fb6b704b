"""Keys of stored configs that this version does not know: a newer master took them, and this one cannot act on them.

A database that a newer schema has is refused at the start; a new key of the config needs no new schema. What runs goes
on without it, and the operator is told: a rule that says where a trial may run would otherwise just stop to count.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.expconf.paths import render
from detlab.schemas.expconf.walking import visit_blocks
from detlab.schemas.wire import ExperimentState
from detlab_hub.services.shell import Shell
from detlab_hub.store.tables import ExperimentRow

_log = logging.getLogger(__name__)
_AT_ONCE = 100
_OVER = [state.value for state in ExperimentState if state.terminal or state is ExperimentState.DELETING]


def unknown_keys(config: Mapping[str, Any]) -> list[str]:
    """The paths of a stored config's keys that no model of this version has."""
    return [
        render((*path, str(key)))
        for path, model, block in visit_blocks(dict(config))
        for key in block
        if key not in model.model_fields
    ]


class UnknownKeys:
    """Tells the operator, once after each start of the master."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._told = False

    async def tell(self) -> None:
        """Look at the experiments that have not ended, some at a time."""
        if self._told:
            return
        self._told, after = True, 0
        while (last := await self._shell.read(partial(_tell, after=after))) is not None:
            after = last


def _tell(s: Session, after: int) -> int | None:
    """Look at some; the last of them, None: there are no more."""
    query = (
        select(ExperimentRow.id, ExperimentRow.config)
        .where(ExperimentRow.id > after, ExperimentRow.state.not_in(_OVER))
        .order_by(ExperimentRow.id)
        .limit(_AT_ONCE)
    )
    last = None
    for last, config in s.execute(query):
        if unknown := unknown_keys(config):
            _log.warning(
                "experiment %d: its config has keys that this version of detlab does not know and ignores: %s."
                " A newer one took it: run that again, or kill the experiment and submit it without them",
                last,
                ", ".join(unknown),
            )
    return last
