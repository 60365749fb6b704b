"""Operations on templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detlab.client.operations.experiments import one, pages
from detlab.client.transport.calls import Call, Flow, model, valid_request
from detlab.schemas.wire.configs.templates import SetTemplate, TemplateView

_template = model(TemplateView)


def templates(workspace: str | int | None = None) -> Flow[list[TemplateView]]:
    """List the templates that the caller may see, or those of one workspace; `cluster`: those of the cluster."""
    return pages("templates", TemplateView, "after", None, {"workspace": workspace})


def template(name: str) -> Flow[TemplateView]:
    """Fetch a template with its config: `WORKSPACE:NAME`, `cluster:NAME`, or the name of one's own."""
    return one(Call("GET", "templates/one", params={"name": name}, parse=_template))


def set_template(name: str, config: Mapping[str, Any] | str, **more: Any) -> Flow[TemplateView]:
    """Make or replace a template; `more` are further fields of `SetTemplate`."""
    with valid_request():
        said: dict[str, Any] = {"config_yaml": config} if isinstance(config, str) else {"config": dict(config)}
        body = SetTemplate(name=name, **said, **more)
    return one(Call("PUT", "templates", json=body, parse=_template))


def remove_template(name: str) -> Flow[TemplateView]:
    """Remove a template; return it as it was."""
    return one(Call("DELETE", "templates/one", params={"name": name}, parse=_template, again=False))
