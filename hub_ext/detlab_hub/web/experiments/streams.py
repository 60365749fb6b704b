"""Routes that stream: events of one experiment or of all, and the log lines of a trial."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Json, WithJsonSchema

from detlab.schemas.wire import Event, LogLine, Wire
from detlab_hub.services.streams.stream import Follow, Stream
from detlab_hub.web.base import RowId
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs
from detlab_hub.web.streaming import StreamHandler

FOLLOWS = 500
"""Most entries of `follow`."""
TEXT = {"type": "string", "contentMediaType": "application/json"}


class EventsQuery(Wire):
    """From where, and which metrics."""

    after: RowId | None = None
    """Cursor to resume after; without it the stream starts now."""
    names: list[str] = Field(default_factory=list)
    """Metric names to send; none means all."""
    groups: list[str] = Field(default_factory=list)
    """Metric groups to send; none means all."""


class FollowView(Wire):
    """Metrics that come on the stream of all states, too."""

    experiment: RowId
    trial: RowId | None = None
    """Of this trial alone."""
    group: str | None = None
    name: str | None = None

    def wanted(self) -> Follow:
        """Return what the service takes."""
        return Follow(self.experiment, self.trial, self.group, self.name)


class AllEventsQuery(Wire):
    """From where, and whose metrics besides."""

    after: RowId | None = None
    """Cursor to resume after; without it the stream starts now."""
    follow: Annotated[Json[Annotated[tuple[FollowView, ...], Field(max_length=FOLLOWS)]], WithJsonSchema(TEXT)] = Field(
        default_factory=tuple
    )
    """JSON: [{"experiment": 12, "group": "validation", "name": "loss"}, {"experiment": 12, "trial": 7}].

    One stream then serves all views of a page. What is not there, or not the caller's, is left out.
    """


class LogsQuery(Wire):
    """From where."""

    after: RowId = 0
    """Only lines with a larger id."""


@route("experiments/{experiment_id}/stream", relayed=True)
class ExperimentStream(StreamHandler):
    """One experiment, live."""

    @needs("read", cross_site="xsrf", streams=Event)
    async def get(self, experiment_id: int, query: EventsQuery) -> None:
        """Follow an experiment: its state, trials, metrics and checkpoints."""
        names, groups = query.names or None, query.groups or None
        source = self.services[Stream].events(self.person, experiment_id, after=query.after, names=names, groups=groups)
        await self.stream(source)


@route("stream", relayed=True)
class AllStream(StreamHandler):
    """Everything the caller may see, live."""

    @needs("read", cross_site="xsrf", streams=Event)
    async def get(self, query: AllEventsQuery) -> None:
        """Follow the states of all experiments, trials and tasks, and the metrics of those in `follow`."""
        follows = [one.wanted() for one in query.follow]
        await self.stream(self.services[Stream].events(self.person, None, after=query.after, follows=follows))


@route("trials/{trial_id}/logs/stream", relayed=True)
class LogStream(StreamHandler):
    """The output of a trial, live."""

    @needs("read", cross_site="xsrf", streams=LogLine)
    async def get(self, trial_id: int, query: LogsQuery) -> None:
        """Follow a trial's output; the stream ends when the trial has ended."""
        await self.stream(self.services[Stream].logs(self.person, trial_id, query.after))
