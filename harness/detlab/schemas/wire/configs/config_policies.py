"""Wire models of config policies: what a cluster or a workspace holds every config to."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from detlab.schemas.wire.base import PersonRequest, Wire
from detlab.schemas.wire.views import ProblemView
from detlab.schemas.wire.workspaces import Reference

Workload = Literal["experiment", "tasks"]
"""What a policy is for: experiments; or user tasks, which Determined calls NTSC."""


class ResourceLimits(Wire):
    """Limits of `resources`."""

    max_slots: int | None = Field(None, ge=0, lt=2**31)
    """Slots that one experiment may hold at a time, or that one user task may ask for; null: any number."""


class PolicyConstraints(Wire):
    """What a config may not go beyond."""

    resources: ResourceLimits = ResourceLimits()
    priority_limit: int | None = Field(None, ge=1, le=99)
    """The best priority that it may have: the smallest number; null: any."""


class PolicyView(Wire):
    """A config policy; one that is not set has neither invariants nor constraints."""

    workload: Workload
    workspace: str = ""
    """Of which workspace, as `OWNER/NAME`; empty: of the cluster."""
    invariant_config: dict[str, Any] = {}
    """A part of a config that is laid over each one, credentials masked."""
    constraints: PolicyConstraints = PolicyConstraints()
    set_by: str = ""
    set_at: float | None = None
    """When it was set; null: it is not."""
    warnings: list[ProblemView] = []
    """When it was set: what of it does not hold for what runs, or beside the policy of the cluster."""


class PolicyQuery(Wire):
    """Which policy."""

    workload: Workload
    workspace: Reference = ""
    """Empty: of the cluster."""


class AskedLimits(ResourceLimits, PersonRequest):
    """The same, as administrators set it."""


class AskedConstraints(PolicyConstraints, PersonRequest):
    """The same, as administrators set it."""

    resources: AskedLimits = AskedLimits()


class SetPolicy(PersonRequest):
    """PUT config-policies: the whole policy, replaced. It ends nothing that runs."""

    workload: Workload
    workspace: Reference = ""
    """Empty: of the cluster, by its administrators."""
    invariant_config: dict[str, Any] = {}
    constraints: AskedConstraints = AskedConstraints()
