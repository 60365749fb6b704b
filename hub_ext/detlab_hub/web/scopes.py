"""The vocabulary of scopes, and the decorator that puts one, and a cross-site rule, on every verb.

A scope has to be in the vocabulary before it is used: `needs("raed")` fails at import, not in production. A verb
without `needs` cannot be defined (`base.Guarded` refuses the class), nor can one whose rule against other sites' pages
does not fit its callers, so that a new route is never open by accident. The decorator also reads the handler's
annotations: they define how to parse the path, the query and the body, and the reply, and the OpenAPI document is made
from them.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from pydantic import BaseModel, TypeAdapter

from detlab_hub.core.rights import ACTIONS, Action, CallerKind
from detlab_hub.services import AgentCaller, Caller, EnrolCaller, TaskCaller
from detlab_hub.services.base.callers import ADMIN, READ, WRITE, HubCaller
from detlab_hub.web.crosssite import CrossSite

AnyCaller = Caller | TaskCaller | AgentCaller | EnrolCaller | HubCaller


class Scope(StrEnum):
    """The scopes that a verb can require of its caller."""

    PUBLIC = "public"
    """Nothing. Health, the style sheet and the last step of a login, no more."""
    READ = "read"
    """A person whose Hub token has `custom:detlab:read`."""
    WRITE = "write"
    """A person with `custom:detlab:write`."""
    ADMIN = "admin"
    """A person with `custom:detlab:admin`."""
    TASK = "task"
    """The task token of a current run."""
    AGENT = "agent"
    """The key of an enrolled agent."""
    ENROL = "enrol"
    """An enrolment token."""
    HUB = "hub"
    """The token of the Hub's spawners."""


PEOPLE = frozenset({Scope.READ, Scope.WRITE, Scope.ADMIN})
"""Scopes of people, who may come with a browser's session."""
_HUB_SCOPES = {Scope.READ: READ, Scope.WRITE: WRITE, Scope.ADMIN: ADMIN}


SCOPE_OF = {
    CallerKind.PERSON: Scope.WRITE,
    CallerKind.RUN: Scope.WRITE,
    CallerKind.ADMIN: Scope.ADMIN,
    CallerKind.TASK: Scope.TASK,
    CallerKind.AGENT: Scope.AGENT,
    CallerKind.ENROLMENT: Scope.ENROL,
    CallerKind.SPAWNERS: Scope.HUB,
}
"""The scope that a kind of caller needs for an action that changes something."""
CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
"""Verbs that name their action."""


def scope_name(scope: Scope) -> str:
    """Return what a person calls a scope: the Hub's name, or whose token it is."""
    return _HUB_SCOPES.get(scope, f"{scope} (no Hub token has it)")


def granted(caller: AnyCaller) -> frozenset[Scope]:
    """Return the scopes that a caller holds."""
    match caller:
        case Caller(scopes=held):
            return frozenset(scope for scope, name in _HUB_SCOPES.items() if name in held)
        case TaskCaller():
            return frozenset({Scope.TASK})
        case AgentCaller():
            return frozenset({Scope.AGENT})
        case EnrolCaller():
            return frozenset({Scope.ENROL})
        case HubCaller():
            return frozenset({Scope.HUB})


@dataclass(frozen=True)
class Operation:
    """One verb of one route, as its handler's signature declares it."""

    scopes: frozenset[Scope]
    action: Action | None
    """What it does; None: it changes nothing."""
    cross_site: CrossSite
    summary: str
    status: int
    path: dict[str, type]
    query: type[BaseModel] | None
    body: type[BaseModel] | None
    reply: Any
    """Type of the reply's JSON, or None if the handler writes by itself."""
    media: str
    streams: type[BaseModel] | None = None
    accepts: str | None = None
    """Media type of a body that is not JSON."""
    reads: bool = False
    """Whether it changes nothing, though its verb says so: in a protocol of other makers."""
    encoder: TypeAdapter[Any] | None = field(default=None, repr=False)


class Handler(Protocol):
    """The part of a handler that the wrapper made by `needs` uses."""

    def admitted(self) -> bool:
        """Whether the caller was let in."""

    def read_query(self, model: type[BaseModel]) -> BaseModel:
        """Parse the query string."""

    def read_body(self, model: type[BaseModel]) -> BaseModel:
        """Parse the JSON body."""

    def send(self, operation: Operation, value: Any) -> None:
        """Write the reply."""


def needs(
    *scopes: str,
    cross_site: str,
    action: Action | None = None,
    status: int = 200,
    media: str = "application/json",
    streams: type[BaseModel] | None = None,
    accepts: str | None = None,
    reads: bool = False,
) -> Callable[[Callable[..., Awaitable[Any]]], Callable[..., Coroutine[Any, Any, None]]]:
    """Declare which scopes (any of them) a verb asks for, and bind its arguments by their annotations.

    Parameters named like a group of the route come from the path; `query` and `body` are pydantic models.

    Args:
        scopes: Names of the vocabulary, at least one.
        cross_site: When a browser's session counts: a name of `CrossSite`.
        action: What a verb that changes something does: a row of the table in `core.rights.actions`.
        status: Status of success.
        media: Media type of the reply, when the handler writes it by itself.
        streams: Model of each line of an ndjson stream.
        accepts: Media type of the body, when it is not JSON.
        reads: Whether it changes nothing, though its verb does elsewhere: for protocols of other makers.

    Raises:
        ValueError: There is no scope, or a scope or rule is not in the vocabulary; or the scopes are not those of the
            callers that the table lets ask for the action (at import).
    """
    if not scopes:
        raise ValueError("a verb needs at least one scope")
    wanted, rule = frozenset(Scope(name) for name in scopes), CrossSite(cross_site)
    if action is not None and wanted != (right := {SCOPE_OF[kind] for kind in ACTIONS[action].callers}):
        raise ValueError(f"{action} is for the scopes {', '.join(sorted(right))}, not {', '.join(sorted(wanted))}")

    def decorate(method: Callable[..., Awaitable[Any]]) -> Callable[..., Coroutine[Any, Any, None]]:
        operation = _describe(
            method, wanted, action, rule, status=status, media=media, streams=streams, accepts=accepts, reads=reads
        )

        @functools.wraps(method)
        async def call(self: Handler, **groups: str) -> None:
            if not self.admitted():
                return
            arguments: dict[str, Any] = {name: operation.path[name](text) for name, text in groups.items()}
            if operation.query is not None:
                arguments["query"] = self.read_query(operation.query)
            if operation.body is not None:
                arguments["body"] = self.read_body(operation.body)
            self.send(operation, await method(self, **arguments))

        call.operation = operation  # type: ignore[attr-defined]  # for operation_of
        return call

    return decorate


def _describe(
    method: Callable[..., Awaitable[Any]],
    scopes: frozenset[Scope],
    action: Action | None,
    cross_site: CrossSite,
    *,
    status: int,
    media: str,
    streams: type[BaseModel] | None,
    accepts: str | None,
    reads: bool,
) -> Operation:
    hints = typing.get_type_hints(method, include_extras=True)
    reply = hints.pop("return", None)
    reply = None if reply is type(None) else reply
    names = [name for name in inspect.signature(method).parameters if name != "self"]
    doc = (inspect.getdoc(method) or "").strip()
    if not doc:
        raise ValueError(f"{method.__qualname__} has no docstring; it is the summary in the OpenAPI document")
    return Operation(
        scopes=scopes,
        action=action,
        cross_site=cross_site,
        summary=doc,
        status=status,
        path={name: hints[name] for name in names if name not in {"query", "body"}},
        query=hints.get("query"),
        body=hints.get("body"),
        reply=reply,
        media="application/x-ndjson" if streams else media,
        streams=streams,
        accepts=accepts,
        reads=reads,
        encoder=TypeAdapter(reply) if reply is not None else None,
    )


def operation_of(handler_class: type, verb: str) -> Operation | None:
    """Return what a handler class declares for an HTTP verb, or None if it does not serve it."""
    found = getattr(getattr(handler_class, verb.lower(), None), "operation", None)
    return found if isinstance(found, Operation) else None
