"""Routes of searches: steering, the journal, the replay; ask and tell."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from detlab.schemas.wire import (
    Asked,
    AskTrial,
    JournalEntry,
    ReplayedSearch,
    SteeredExperiment,
    SteerSearch,
    TellTrial,
    Told,
    Wire,
)
from detlab_hub.core.rights import Action
from detlab_hub.services.experiments.by_hand import ByHand
from detlab_hub.services.experiments.steering import SearchSteering
from detlab_hub.web.base import Guarded, RowId
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class JournalQuery(Wire):
    """Which events."""

    after: RowId = 0
    """Only events with a greater number."""
    limit: int = Field(500, ge=1, le=5000)
    only: Literal["acts"] | None = None
    """`acts`: only what people did to the search."""


class JournalPage(Wire):
    """One page of a search's journal, in order."""

    items: list[JournalEntry]
    next: int | None = None
    """`after` of the next page, or null on the last one."""


class ReplayQuery(Wire):
    """At which event."""

    at: RowId | None = None
    """Number of the last event that counts; default the newest."""
    only: Literal["standing"] | None = None
    """`standing`: without the list of trials."""


@route("experiments/{experiment_id}/search", relayed=True)
class Steer(Guarded):
    """What users do to a search."""

    @needs("write", cross_site="xsrf", action=Action.SEARCH_STEER)
    async def post(self, experiment_id: int, body: SteerSearch) -> SteeredExperiment:
        """Extend the search, add points, retry failed trials, edit bounds or concurrency, stop or promote a trial."""
        return await self.services[SearchSteering].steer(self.person, experiment_id, body)


@route("experiments/{experiment_id}/search/ask")
class Ask(Guarded):
    """Trials that users evaluate themselves."""

    @needs("write", cross_site="xsrf", action=Action.SEARCH_ASK)
    async def post(self, experiment_id: int, body: AskTrial) -> Asked:
        """Get the next trial of an unmanaged experiment, or why there is none; the caller evaluates it."""
        return await self.services[ByHand].ask(self.person, experiment_id, body)


@route("experiments/{experiment_id}/search/tell")
class Tell(Guarded):
    """Values of such trials."""

    @needs("write", cross_site="xsrf", action=Action.SEARCH_TELL)
    async def post(self, experiment_id: int, body: TellTrial) -> Told:
        """Tell the value of a trial of an unmanaged experiment, or how its evaluation ended."""
        return await self.services[ByHand].tell(self.person, experiment_id, body)


@route("experiments/{experiment_id}/search/journal", relayed=True)
class Journal(Guarded):
    """The journal of a search."""

    @needs("read", cross_site="xsrf")
    async def get(self, experiment_id: int, query: JournalQuery) -> JournalPage:
        """List the events of a search and the decisions each of them caused."""
        items, following = await self.services[SearchSteering].journal(
            self.person, experiment_id, query.after, query.limit, acts=query.only == "acts"
        )
        return JournalPage(items=items, next=following)


@route("experiments/{experiment_id}/search/replay", relayed=True)
class Replay(Guarded):
    """The replay of a search."""

    @needs("read", cross_site="xsrf")
    async def get(self, experiment_id: int, query: ReplayQuery) -> ReplayedSearch:
        """Compute the state of a search at one of its events: what each trial was doing, and why those stopped were."""
        found = await self.services[SearchSteering].replay(self.person, experiment_id, query.at)
        return found if query.only is None else found.model_copy(update={"trials": []})
