"""Operations on the master itself: its log, its settings, its message to everybody, and any call of its API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args
from urllib.parse import parse_qsl

from detlab.client.operations.experiments import one
from detlab.client.transport.calls import Call, Flow, Method, Reply, model, valid_request
from detlab.errors import ConfigError, Problem
from detlab.schemas.wire import API_PREFIX, SERVICE_PREFIX, ClusterView
from detlab.schemas.wire.cluster.master import (
    ClusterMessageReply,
    LogLevel,
    MasterConfig,
    MasterLogPage,
    SetClusterMessage,
    SetMasterConfig,
)

METHODS: tuple[Method, ...] = get_args(Method)


def cluster() -> Flow[ClusterView]:
    """Return a view of the cluster."""
    return one(Call("GET", "cluster", parse=model(ClusterView)))


def logs(
    *, after: int | None = None, limit: int = 100, level: LogLevel = "debug", search: str = ""
) -> Flow[MasterLogPage]:
    """Return lines of the master's log, oldest first: the newest ones, or those behind `after` (administrators)."""
    params: Mapping[str, Any] = {"after": after, "limit": limit, "level": level, "search": search or None}
    return one(Call("GET", "master/logs", params=params, parse=model(MasterLogPage)))


def config() -> Flow[MasterConfig]:
    """Return how the master is set up, with secrets masked (administrators)."""
    return one(Call("GET", "master/config", parse=model(MasterConfig)))


def set_log_level(level: Any) -> Flow[MasterConfig]:
    """Change the level of the master's log until its next start (administrators)."""
    with valid_request():
        body = SetMasterConfig(log_level=level)
    return one(Call("POST", "master/config", json=body, parse=model(MasterConfig)))


def message() -> Flow[ClusterMessageReply]:
    """Return what administrators tell everybody."""
    return one(Call("GET", "cluster/message", parse=model(ClusterMessageReply)))


def set_message(
    text: str, *, begins_at: float | None = None, ends_at: float | None = None
) -> Flow[ClusterMessageReply]:
    """Tell everybody something, instead of what was told before (administrators); times are seconds since the epoch."""
    with valid_request():
        body = SetClusterMessage(text=text, begins_at=begins_at, ends_at=ends_at)
    return one(Call("PUT", "cluster/message", json=body, parse=model(ClusterMessageReply)))


def clear_message() -> Flow[ClusterMessageReply]:
    """Take away what everybody is told; return what it was (administrators)."""
    return one(Call("DELETE", "cluster/message", parse=model(ClusterMessageReply)))


def any_call(method: Method, path: str, body: Any = None) -> Flow[Reply]:
    """Send a request to any route of the API.

    Args:
        method: HTTP verb.
        path: Below `/services/detlab/api/v1/`, with or without that; it may have a query.
        body: JSON to send.

    Raises:
        ConfigError: The path leads out of the API.
    """
    below = path.removeprefix(SERVICE_PREFIX).lstrip("/").removeprefix(API_PREFIX).lstrip("/")
    below, _, asked = below.partition("?")
    if not below or "://" in below or ".." in below.split("/"):
        problem = f"{path[:200]!r} is no route of the API: experiments/1, or /services/detlab/api/v1/experiments/1"
        raise ConfigError([Problem("path", problem)], problem)
    params = dict(parse_qsl(asked, keep_blank_values=True))
    again = method in {"GET", "HEAD"}
    return one(Call(method, below, params=params, json=body, parse=lambda reply: reply, again=again))


def text_of(reply: Reply) -> str:
    """Return the body of a reply as text: JSON in lines, anything else as it is."""
    try:
        return json.dumps(json.loads(reply.body), indent=2, ensure_ascii=False)
    except ValueError:
        return reply.body.decode("utf-8", "replace")
