"""Operations of the model registry."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from detlab.client.operations.experiments import new_key, one
from detlab.client.ordering import known_limit
from detlab.client.transport.calls import Call, Flow, field_of, model, valid_request
from detlab.errors import ConfigError, Problem
from detlab.schemas.wire import Archived, GrantList, GrantRequest, GrantView
from detlab.schemas.wire.registry import (
    Comparison,
    CreateModel,
    CreateVersion,
    EditModel,
    EditVersion,
    LabelMove,
    LineageGraph,
    ModelList,
    ModelView,
    MoveLabel,
    RemoveLabel,
    VersionList,
    VersionView,
)

_PAGE = 1000
Name = str | int
"""A model's name, `OWNER/NAME` or id; a version's number, semantic version or label."""


def split_reference(reference: str) -> tuple[str, str]:
    """Return (model, version) of `digits@production`, `digits@3`, `ada/digits@1.2.0` or `digits`, which is the newest.

    The owner before a `/` may be an address with an `@` of its own.

    Raises:
        ConfigError: Nothing is before or after the `@`: in a script, a variable may be empty.
    """
    owner, slash, rest = reference.rpartition("/")
    name, at, version = rest.rpartition("@")
    if not at:
        return reference, "latest"
    if not name or not version:
        problem = f"{reference!r} names no {'version after' if name else 'model before'} the @"
        raise ConfigError([Problem("reference", problem)], problem, hint="digits@latest is the newest version")
    return f"{owner}{slash}{name}", version


def names_version(reference: str) -> bool:
    """Whether a reference names a version; an `@` in the owner's name is none."""
    return "@" in reference.rpartition("/")[2]


_Body = TypeVar("_Body", bound=BaseModel)


def _checked(cls: type[_Body], fields: dict[str, Any]) -> _Body:
    """Return a body.

    Raises:
        ConfigError: A field cannot have this value; all such fields are listed.
    """
    what = "version" if "Version" in cls.__name__ else "model"
    with valid_request(f"this cannot be written about a {what}"):
        return cls.model_validate(fields)


def create_model(**fields: Any) -> Flow[ModelView]:
    """Make a model; not repeated, as a second one of its name would be refused."""
    body = _checked(CreateModel, fields)
    return one(Call("POST", "models", json=body, parse=model(ModelView), again=False))


def get_model(name: Name) -> Flow[ModelView]:
    """Fetch a model."""
    return one(Call("GET", _model(name), parse=model(ModelView)))


def list_models(
    *,
    limit: int | None = None,
    name: str | None = None,
    owner: str | None = None,
    labels: Collection[str] = (),
    archived: Archived | None = "no",
    workspace: str | int | None = None,
) -> Flow[list[ModelView]]:
    """Fetch models, newest first; page after page until there are enough."""
    found: list[ModelView] = []
    after: int | None = None
    limit = known_limit(limit)
    while limit is None or len(found) < limit:
        count = _PAGE if limit is None else min(_PAGE, limit - len(found))
        words = json.dumps(list(labels)) if labels else None
        query = {"limit": count, "after": after, "name": name, "owner": owner, "label": words, "archived": archived}
        query["workspace"] = workspace
        page: ModelList = yield Call("GET", "models", params=query, parse=model(ModelList))
        found += page.items
        after = page.after
        if after is None:
            break
    return found


def model_labels() -> Flow[list[str]]:
    """Fetch the labels of all models, the most frequent first."""
    return one(Call("GET", "model-labels", parse=field_of("items", list[str])))


def edit_model(name: Name, /, **changes: Any) -> Flow[ModelView]:
    """Change fields of `EditModel`; each names the wanted result, so this can safely be repeated."""
    return one(Call("POST", f"{_model(name)}/edit", json=_checked(EditModel, changes), parse=model(ModelView)))


def delete_model(name: Name, *, force: bool = False) -> Flow[ModelView]:
    """Delete a model with its versions."""
    query = {"force": "true" if force else None}
    return one(Call("DELETE", _model(name), params=query, parse=model(ModelView), again=False))


# --- versions


def register(name: Name, /, **fields: Any) -> Flow[VersionView]:
    """Register a checkpoint; a key of its own lets the request be repeated, with which no label moves twice."""
    body = _checked(CreateVersion, {"idempotency_key": new_key(), **fields})
    return one(Call("POST", f"{_model(name)}/versions", json=body, parse=model(VersionView)))


def get_version(name: Name, version: Name) -> Flow[VersionView]:
    """Fetch a version."""
    return one(Call("GET", _version(name, version), parse=model(VersionView)))


def list_versions(name: Name, limit: int | None = None) -> Flow[list[VersionView]]:
    """Fetch a model's versions, newest first; page after page until there are enough."""
    found: list[VersionView] = []
    after: int | None = None
    limit = known_limit(limit)
    while limit is None or len(found) < limit:
        count = _PAGE if limit is None else min(_PAGE, limit - len(found))
        path = f"{_model(name)}/versions"
        page: VersionList = yield Call("GET", path, params={"limit": count, "after": after}, parse=model(VersionList))
        found += page.items
        after = page.after
        if after is None:
            break
    return found


def edit_version(name: Name, version: Name, /, **changes: Any) -> Flow[VersionView]:
    """Change fields of `EditVersion`; can safely be repeated."""
    body = _checked(EditVersion, changes)
    return one(Call("POST", f"{_version(name, version)}/edit", json=body, parse=model(VersionView)))


def delete_version(name: Name, version: Name, *, force: bool = False) -> Flow[VersionView]:
    """Delete a version."""
    query = {"force": "true" if force else None}
    return one(Call("DELETE", _version(name, version), params=query, parse=model(VersionView), again=False))


def lineage(name: Name, version: Name) -> Flow[LineageGraph]:
    """Fetch where a version comes from, as a graph."""
    return one(Call("GET", f"{_version(name, version)}/lineage", parse=model(LineageGraph)))


def search(
    best: str | None, where: str = "", *, smaller_is_better: bool = False, limit: int = 100
) -> Flow[list[VersionView]]:
    """Fetch versions of all models by a condition, best first by a metric or newest first; page after page."""
    found: list[VersionView] = []
    after: int | None = None
    while len(found) < limit:
        query = {
            "best": best,
            "where": where or None,
            "smaller_is_better": "true" if smaller_is_better else None,
            "limit": min(limit - len(found), _PAGE),
            "after": after,
        }
        page: VersionList = yield Call("GET", "model-versions", params=query, parse=model(VersionList))
        found += page.items
        after = page.after
        if after is None:
            break
    return found


def compare(name: Name, versions: Collection[Name]) -> Flow[Comparison]:
    """Fetch versions side by side."""
    query = {"versions": ",".join(map(str, versions)) or None}
    return one(Call("GET", f"{_model(name)}/compare", params=query, parse=model(Comparison)))


# --- labels


def move_label(name: Name, label: str, version: Name, reason: str = "", expected: int | None = None) -> Flow[LabelMove]:
    """Give a label to a version; a key of its own lets the request be repeated, with which it moves once."""
    with valid_request():
        body = MoveLabel(version=version, reason=reason, expected=expected, idempotency_key=new_key())
    path = f"{_model(name)}/labels/{quote(label, safe='')}"
    return one(Call("POST", path, json=body, parse=model(LabelMove)))


def remove_label(name: Name, label: str, reason: str = "", expected: int | None = None) -> Flow[LabelMove]:
    """Take a label away."""
    with valid_request():
        body = RemoveLabel(reason=reason, expected=expected)
    path = f"{_model(name)}/labels/{quote(label, safe='')}/remove"
    return one(Call("POST", path, json=body, parse=model(LabelMove), again=False))


def history(name: Name, label: str | None = None, limit: int = 200) -> Flow[list[LabelMove]]:
    """Fetch the moves of a model's labels, newest first."""
    path = f"{_model(name)}/labels"
    return one(Call("GET", path, params={"limit": limit, "label": label}, parse=field_of("items", list[LabelMove])))


# --- grants


def grants(name: Name) -> Flow[list[GrantView]]:
    """Fetch with whom a model is shared."""
    return one(Call("GET", f"{_model(name)}/grants", parse=_items))


def share(name: Name, kind: str, to: str, *, write: bool = False) -> Flow[list[GrantView]]:
    """Share a model; can safely be repeated."""
    with valid_request():
        body = GrantRequest.model_validate({"kind": kind, "name": to, "write": write})
    return one(Call("PUT", f"{_model(name)}/grants", json=body, parse=_items))


def unshare(name: Name, kind: str, to: str) -> Flow[list[GrantView]]:
    """Take a grant back."""
    query = {"kind": kind, "name": to}
    return one(Call("DELETE", f"{_model(name)}/grants", params=query, parse=_items, again=False))


def _items(reply: Any) -> Any:
    return model(GrantList)(reply).items


def _model(name: Name) -> str:
    return f"models/{quote(str(name), safe='')}"


def _version(name: Name, version: Name) -> str:
    return f"{_model(name)}/versions/{quote(str(version), safe='')}"
