"""Wire models of elastic pools."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.wire import Wire


class InstanceView(Wire):
    """A machine, or a process, that the master launched for an elastic pool."""

    id: str
    """The provider's name for it."""
    agent_id: str
    state: str
    """pending, running, stopped or ending, as the provider says"""
    agent_state: str
    """connected, suspect or lost; also lost before it first connects"""
    launched_at: float = 0.0
    spot: bool = False


class ProviderErrorView(Wire):
    """What a provider did not do."""

    time: float
    """When last."""
    times: int = 1
    """How many times in a row."""
    doing: str
    """list, launch or terminate"""
    trouble: str
    """capacity, quota, credentials, configuration, unreachable or other"""
    message: str
    hint: str = ""


class ElasticPoolView(Wire):
    """An elastic pool."""

    name: str
    min_instances: int
    max_instances: int
    wanted: int = 0
    """New instances that the waiting tasks ask for."""
    held_back: str = ""
    """Why fewer are launched; empty if all are."""
    instances: list[InstanceView] = Field(default_factory=list)
    errors: list[ProviderErrorView] = Field(default_factory=list)
    """The last ones, newest first."""


class ElasticPoolList(Wire):
    """GET instances."""

    items: list[ElasticPoolView] = Field(default_factory=list)
