"""Operations on searches that are active: steering, the journal, the replay; ask and tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detlab.client.operations.experiments import new_key, one, upload
from detlab.client.plain_values import plain
from detlab.client.transport.calls import Call, Flow, field_of, model, valid_request
from detlab.schemas.wire import (
    Asked,
    AskTrial,
    ExperimentView,
    JournalEntry,
    Outcome,
    ReplayedSearch,
    SearchAct,
    StandingView,
    SteeredExperiment,
    SteerSearch,
    TellTrial,
    Told,
)
from detlab.schemas.wire.searches import MOST_WAIT

if TYPE_CHECKING:
    from detlab.client.bundling.bundle import Bundle

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
    bundle: str | None = None,
    metric: str = "",
) -> Flow[SteeredExperiment]:
    """Carry out one act; it has a key, so that it happens once however often it is sent.

    Raises:
        ConfigError: A number is out of its range, or there are too many points or trials.
    """
    with valid_request("this cannot be done to a search"):
        body = SteerSearch(
            act=act,
            trials=trials,
            units=units,
            points=[dict(point) for point in points],
            hyperparameters=None if hyperparameters is None else dict(hyperparameters),
            limit=limit,
            trial_ids=list(trial_ids),
            bundle=bundle,
            metric=metric,
            idempotency_key=new_key(),
        )
    return one(Call("POST", f"experiments/{int(experiment_id)}/search", json=body, parse=model(SteeredExperiment)))


def replace_code(experiment_id: int, bundle: Bundle | None) -> Flow[ExperimentView]:
    """Upload code for the class of a custom search or the trials of another one, and have it used."""
    if bundle is not None:
        yield from upload(bundle)
    view: ExperimentView = yield from steer(experiment_id, "code", bundle=None if bundle is None else bundle.digest)
    return view


def ask(experiment_id: int, timeout: float, *, again: bool, trial_id: int | None, key: str) -> Flow[Asked]:
    """Ask for a trial to evaluate; a repeated request with the same key returns the same trial."""
    with valid_request():
        body = AskTrial(timeout=min(timeout, MOST_WAIT), again=again, trial_id=trial_id, idempotency_key=key)
    return one(Call("POST", f"experiments/{int(experiment_id)}/search/ask", json=body, parse=model(Asked)))


def tell(
    experiment_id: int,
    trial_id: int,
    *,
    run: int | None,
    metrics: Mapping[str, Any],
    step: int | None,
    state: Outcome,
    message: str,
) -> Flow[Told]:
    """Report the result of a trial; can safely be repeated."""
    told = plain(metrics, "metrics")
    with valid_request():
        body = TellTrial(trial_id=trial_id, run=run, metrics=told, steps_completed=step, state=state, message=message)
    return one(Call("POST", f"experiments/{int(experiment_id)}/search/tell", json=body, parse=model(Told)))


def journal(experiment_id: int, *, acts: bool = False) -> Flow[list[JournalEntry]]:
    """Fetch the events of a search and its decisions, page by page; with `acts` only what users did."""
    found: list[JournalEntry] = []
    while True:
        params = {"after": found[-1].seq if found else 0, "limit": JOURNAL_PAGE, "only": "acts" if acts else None}
        path = f"experiments/{int(experiment_id)}/search/journal"
        page = yield Call("GET", path, params=params, parse=field_of("items", list[JournalEntry]))
        found += page
        if len(page) < JOURNAL_PAGE:
            return found


def standing(experiment_id: int) -> Flow[list[StandingView]]:
    """Fetch how many trials are at each rung, round or generation of a search."""
    path = f"experiments/{int(experiment_id)}/search/replay"
    return one(Call("GET", path, params={"only": "standing"}, parse=field_of("standing", list[StandingView])))


def replay(experiment_id: int, at: int | None) -> Flow[ReplayedSearch]:
    """Fetch the state of a search at one of its events."""
    path = f"experiments/{int(experiment_id)}/search/replay"
    return one(Call("GET", path, params={"at": at}, parse=model(ReplayedSearch)))
