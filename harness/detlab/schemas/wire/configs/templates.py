"""Wire models of templates: named parts of a config, which lie in a workspace or belong to the cluster."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from detlab.schemas.text_limits import DESCRIPTION_CHARS
from detlab.schemas.wire.base import PersonRequest, Wire
from detlab.schemas.wire.views import ProblemView
from detlab.schemas.wire.workspaces import REFERENCE_CHARS, FolderName, Reference

CLUSTER = "cluster"
"""What names the templates of the whole cluster, in place of a workspace: `cluster:NAME`."""
TEMPLATE_CHARS = 2 * REFERENCE_CHARS
"""Most characters of `WORKSPACE:NAME`."""


class TemplateView(Wire):
    """A template."""

    name: str
    workspace: str = ""
    """Where it lies, as `OWNER/NAME`; `cluster`: it is for everybody."""
    reference: str = ""
    """What names it wherever a template is asked for: `WORKSPACE:NAME`."""
    owner: str
    """Who made it."""
    base: str = ""
    """The template that it stands on, by its reference; empty: on none."""
    description: str = ""
    config: dict[str, Any] | None = None
    """A part of a config, credentials masked; only on a single template."""
    merged: dict[str, Any] | None = None
    """With what it stands on under it; likewise."""
    version: int = 1
    """How often it was set."""
    set_by: str = ""
    set_at: float = 0.0
    default: bool = False
    """Whether its workspace lays it under each experiment that names no template."""
    warnings: list[ProblemView] = []


class TemplateList(Wire):
    """One page of templates, by their ids."""

    items: list[TemplateView]
    after: int | None = None
    """`after` of the next page; null: this is the last one."""


class SetTemplate(PersonRequest):
    """PUT templates: one of this name in the same place is replaced."""

    name: FolderName
    workspace: Reference = ""
    """The workspace; empty: the caller's personal one; `cluster`: for everybody, by administrators."""
    config: dict[str, Any] | None = None
    config_yaml: str | None = None
    """Its text instead."""
    base: str = Field("", max_length=TEMPLATE_CHARS)
    """A template of the same place or of the cluster that is laid under it; empty: none."""
    description: str = Field("", max_length=DESCRIPTION_CHARS)
    create: bool = False
    """Whether one that is there already is left alone, and the request refused."""
