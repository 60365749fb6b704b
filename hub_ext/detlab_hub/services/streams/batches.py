"""The result of one read of the event log, and the part of it that each reader gets.

A read is made for one reader or for many. What is equal for all (the views of changed objects) is made once, and so is
the output for readers with the same subscription and the same rights: its lines are encoded once. Rights
are those of the snapshot that was read (I9).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from detlab.schemas.wire import Event
from detlab_hub.core.rights import Person, Right, Thing, right_of
from detlab_hub.services.base.access import no_such, person
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.views.task_views import state_of

MEMBERS: str = "workspace"
"""Kind of the event that says that somebody's rights have changed: for reads alone. Those whom it concerns get in its
place that theirs to something may have changed, and not to what."""
CURSOR_EVERY = 1000
"""After this many events that are not for the reader, it gets its new cursor."""

Holders: TypeAlias = dict[int | str, Thing | None]
"""Owners and grants by an experiment's number or a user task's id; None: it does not exist."""


@dataclass(frozen=True)
class Follow:
    """Metrics that a reader of all states wants besides: those of an experiment, all or some."""

    experiment: int
    trial: int | None = None
    """Of this trial alone."""
    group: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Subscription:
    """The events that a reader wants."""

    experiment_id: int | None
    """One experiment with its metrics, or None: the states of all."""
    names: frozenset[str] | None = None
    groups: frozenset[str] | None = None
    follows: tuple[Follow, ...] = ()
    """Whose metrics come with the states of all; an experiment that is not the reader's adds nothing."""

    @cached_property
    def follows_of(self) -> Mapping[int, Sequence[Follow]]:
        """The follows by experiment."""
        found: dict[int, list[Follow]] = {}
        for follow in self.follows:
            found.setdefault(follow.experiment, []).append(follow)
        return found

    @cached_property
    def metrics_of(self) -> frozenset[int]:
        """The experiments whose metrics it wants."""
        if self.experiment_id is not None:
            return frozenset({self.experiment_id})
        return frozenset(follow.experiment for follow in self.follows)


@dataclass(eq=False)
class StreamReader:
    """One stream: who reads what, and how far they are."""

    caller: Caller
    subscription: Subscription
    cursor: int
    sent_cursor: int
    """The last cursor that was sent to the reader."""
    who: Person = field(init=False)
    """The part of a caller that rights depend on."""

    def __post_init__(self) -> None:
        self.who = person(self.caller)


class EventLine:
    """An event and, once it was asked for, its line."""

    __slots__ = ("_encoded", "event")

    def __init__(self, event: Event) -> None:
        self.event = event
        self._encoded: bytes | None = None

    @property
    def encoded(self) -> bytes:
        """The line of the stream, with its end."""
        if self._encoded is None:
            self._encoded = self.event.model_dump_json().encode() + b"\n"
        return self._encoded


class StreamPart:
    """The output for some readers: the same for all of them."""

    def __init__(self, lines: Sequence[EventLine]) -> None:
        self._lines = lines
        self._text: bytes | None = None
        self.last = lines[-1].event.id
        self.framed: bytes | None = None
        """Its encoded form, set by the first sender, so that it is made once for all readers."""

    @property
    def events(self) -> list[Event]:
        """The events."""
        return [line.event for line in self._lines]

    @property
    def text(self) -> bytes:
        """Their lines."""
        return self._text or b"".join(line.encoded for line in self._lines)

    def encode(self) -> None:
        """Make the text now, in this thread."""
        self._text = self.text


@dataclass(frozen=True)
class Slice:
    """The output for one reader of a part of the log that it catches up with."""

    part: StreamPart | None
    upto: int
    more: bool

    def tell(self, reader: StreamReader, put: Callable[[StreamPart], bool]) -> bool:
        """Send it to the reader; False: there is no room, and the reader stays where it was."""
        if self.part is not None:
            if not put(self.part):
                return False
            reader.sent_cursor = self.part.last
        reader.cursor = self.upto
        return True


@dataclass
class StreamBatch:
    """The result of a read beyond `after`, up to and including `upto`."""

    after: int
    upto: int
    time: float
    metrics_of: frozenset[int] | None
    """Experiments whose metrics it holds; None: of all."""
    lost: bool = False
    """Events after `after` were trimmed, or are too many to send."""
    more: bool = False
    lines: Sequence[EventLine] = ()
    holders: Holders = field(default_factory=dict)
    forgets: bool = False
    """Rights have changed in this stretch: what is remembered of holders from before it counts no more."""
    _rights: dict[Any, tuple[Right, ...]] = field(default_factory=dict)
    _parts: dict[Any, StreamPart | None] = field(default_factory=dict)
    _variants: dict[tuple[int, Right, bool], EventLine] = field(default_factory=dict)
    """By event, right, and whether it is a right to all of it, not to a task's state alone."""

    def serves(self, reader: StreamReader) -> bool:
        """Whether all that the reader wants of this stretch of the log is in it."""
        one = reader.subscription.experiment_id
        if one is not None and one not in self.holders and not self.lost:
            return False  # the read began before the reader came: the experiment's owner was not read
        return reader.cursor >= self.after and (
            self.metrics_of is None or reader.subscription.metrics_of <= self.metrics_of
        )

    def behind(self, reader: StreamReader) -> bool:
        """Whether the reader has looked later than this and knows all that is in it; its rights are older, too."""
        # A cursor beyond the head that was found is not ahead of the log but of another one: it is lost.
        return self.after <= self.upto <= reader.cursor and reader.cursor > self.after

    def part(self, reader: StreamReader) -> StreamPart | None:
        """Return the output for a reader; None: nothing.

        Raises:
            NotFound: The caller may not read the experiment, or no longer, or it does not exist.
        """
        if self.lost:
            return self._single("resync")
        rights = self._rights_of(reader)
        if reader.cursor > self.after:  # joined in the middle
            return _part(list(self._visible(reader.subscription, rights, reader.cursor)))
        key = (id(reader.subscription), rights)
        if key not in self._parts:
            self._parts[key] = _part(list(self._visible(reader.subscription, rights, self.after)))
        found = self._parts[key]
        return self._single("cursor") if found is None and self.upto - reader.sent_cursor >= CURSOR_EVERY else found

    def slice_for(self, reader: StreamReader) -> Slice:
        """Return the output for a reader, encoded in this thread and without the rest; raises what `part` does."""
        part = self.part(reader)
        if part is not None:
            part.encode()
        return Slice(part, self.upto, self.more)

    def _single(self, kind: Any) -> StreamPart | None:
        if kind not in self._parts:
            self._parts[kind] = StreamPart([EventLine(Event(id=self.upto, kind=kind, time=self.time))])
        return self._parts[kind]

    def _rights_of(self, reader: StreamReader) -> tuple[Right, ...]:
        one = reader.subscription.experiment_id
        key = (reader.who, one)
        if key not in self._rights:
            about = self.holders.values() if one is None else [self.holders.get(one)]
            who = reader.who
            self._rights[key] = tuple(Right.NONE if thing is None else right_of(who, thing) for thing in about)
        found = self._rights[key]
        if one is not None and found[0] is Right.NONE:
            exists = self.holders.get(one) is not None
            raise no_such(f"there is no experiment {one}", exists=exists, hint="det experiment list")
        return found

    def _visible(self, subscription: Subscription, rights: tuple[Right, ...], after: int) -> Iterator[EventLine]:
        one = subscription.experiment_id
        held = dict(zip(self.holders if one is None else [one], rights, strict=True))
        for line in self.lines:
            event = line.event
            if event.id <= after or (one is not None and event.experiment_id != one):
                continue
            right = Right.READ if event.kind == "cluster" else held.get(_holder_of(event) or "", Right.NONE)
            if right is Right.NONE:
                if event.kind == "task" and (state := held.get(state_key(event.task_id), Right.NONE)):
                    yield self._state(line, state)
                continue
            if event.kind == "metrics":
                yield from _filtered(line, subscription)
            elif event.kind in {"experiment", "task"} and "may" in event.data:
                yield self._variant(line, right)
            elif event.kind == MEMBERS:
                yield self._told_of_rights(line)
            else:
                yield line

    def _variant(self, line: EventLine, right: Right) -> EventLine:
        """Return the view of an experiment or a user task for readers with this right."""
        key = (line.event.id, right, True)
        if key not in self._variants:
            data = {**line.event.data, "may": right.wire}
            self._variants[key] = EventLine(line.event.model_copy(update={"data": data}))
        return self._variants[key]

    def _state(self, line: EventLine, right: Right) -> EventLine:
        """Return what members of a task's workspace see of it, for those with this right to its state."""
        key = (line.event.id, right, False)
        if key not in self._variants:
            data = {**state_of(line.event.data), "may": right.wire} if line.event.data else {}
            self._variants[key] = EventLine(line.event.model_copy(update={"data": data}))
        return self._variants[key]

    def _told_of_rights(self, line: EventLine) -> EventLine:
        """Return that somebody's rights to something may have changed, and not to what."""
        key = (line.event.id, Right.READ, True)
        if key not in self._variants:
            told = Event(id=line.event.id, kind="cursor", time=line.event.time, data={"rights": True})
            self._variants[key] = EventLine(told)
        return self._variants[key]


def _part(lines: Sequence[EventLine]) -> StreamPart | None:
    return StreamPart(lines) if lines else None


def _holder_of(event: Event) -> int | str | None:
    if event.kind == MEMBERS:
        return rights_key(event.id)
    match event.kind:
        case "task":
            return event.task_id
        case "model":
            return model_key(event.data["id"])
        case _:
            return event.experiment_id


def state_key(task_id: str | None) -> str:
    """Return the key among the holders of what members of its workspace see of a user task."""
    return f"state of {task_id}"


def model_key(model_id: int) -> str:
    """Return the key of a model among the holders."""
    return f"model:{model_id}"


def rights_key(event_id: int) -> str:
    """Return the key among the holders of those whom a change of rights concerns."""
    return f"rights:{event_id}"


def _filtered(line: EventLine, subscription: Subscription) -> list[EventLine]:
    """Return a metrics event with the names and groups that are wanted; nothing if it has none of them."""
    if subscription.experiment_id is None:
        return _followed(line, subscription.follows_of.get(line.event.experiment_id or 0, ()))
    if subscription.groups is not None and line.event.data.get("group") not in subscription.groups:
        return []
    return _named(line, subscription.names)


def _followed(line: EventLine, follows: Sequence[Follow]) -> list[EventLine]:
    """Return a metrics event with what any of the follows wants of it."""
    event = line.event
    group = event.data.get("group")
    fitting = [follow for follow in follows if follow.trial in {None, event.trial_id} and follow.group in {None, group}]
    if not fitting:
        return []
    names = {follow.name for follow in fitting}
    return _named(line, None if None in names else names)


def _named(line: EventLine, names: Collection[str | None] | None) -> list[EventLine]:
    if names is None:
        return [line]
    event = line.event
    wanted = {name: value for name, value in event.data.get("metrics", {}).items() if name in names}
    if not wanted:
        return []
    return [EventLine(event.model_copy(update={"data": {**event.data, "metrics": wanted}}))]
