"""Operations on searches that are active: steering, the journal, the replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from detlab.client.operations.experiments import new_key, one
from detlab.client.transport.calls import Call, Flow, field_of, model
from detlab.errors import ConfigError, Problem
from detlab.schemas.wire import ExperimentView, JournalEntry, ReplayedSearch, SearchAct, SteerSearch

JOURNAL_PAGE = 1000


def steer(
    experiment_id: int,
    act: SearchAct,
    *,
    trials: int = 0,
    units: int = 0,
    points: Sequence[Mapping[str, Any]] = (),
    hyperparameters: Mapping[str, Any] | None = None,
    limit: int | None = None,
    trial_ids: Sequence[int] = (),
) -> Flow[ExperimentView]:
    """Carry out one act; it has a key, so that it happens once however often it is sent.

    Raises:
        ConfigError: A number is out of its range, or there are too many points or trials.
    """
    try:
        body = SteerSearch(
            act=act,
            trials=trials,
            units=units,
            points=[dict(point) for point in points],
            hyperparameters=None if hyperparameters is None else dict(hyperparameters),
            limit=limit,
            trial_ids=list(trial_ids),
            idempotency_key=new_key(),
        )
    except ValidationError as error:
        wrong = [Problem(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors(include_url=False)]
        raise ConfigError(wrong) from error
    return one(Call("POST", f"experiments/{int(experiment_id)}/search", json=body, parse=model(ExperimentView)))


def journal(experiment_id: int) -> Flow[list[JournalEntry]]:
    """Fetch all events of a search and what it decided, page by page."""
    found: list[JournalEntry] = []
    while True:
        params = {"after": found[-1].seq if found else 0, "limit": JOURNAL_PAGE}
        path = f"experiments/{int(experiment_id)}/search/journal"
        page = yield Call("GET", path, params=params, parse=field_of("items", list[JournalEntry]))
        found += page
        if len(page) < JOURNAL_PAGE:
            return found


def replay(experiment_id: int, at: int | None) -> Flow[ReplayedSearch]:
    """Fetch the state of a search at one of its events."""
    path = f"experiments/{int(experiment_id)}/search/replay"
    return one(Call("GET", path, params={"at": at}, parse=model(ReplayedSearch)))
