"""The page of the HTTP API, from the route table and the handlers' annotations."""

from __future__ import annotations

from typing import Any

from reference_pages.markdown import page, table


def http_api() -> str:
    """The page of the HTTP API, from the route table and the handlers' annotations."""
    from detlab_hub.web.routes import API
    from detlab_hub.web.scopes import Scope, operation_of, scope_name

    intro = """
All below `/services/detlab/api/v1/` of the Hub's address, JSON in and out. `GET openapi.json` serves the whole contract
as OpenAPI 3.1; the models are in `harness/detlab/schemas/wire/` and `taskwire.py`.

    curl -H "Authorization: Bearer $DET_TOKEN" http://127.0.0.1:8642/services/detlab/api/v1/experiments

- A token goes into the header `Authorization: Bearer TOKEN` (or `token TOKEN`), never into a URL.
- A reply that is no success is an `ErrorView`: `code`, `message`, `hint`, and the `problems` of a configuration.
- NaN and the infinities travel as the strings `"NaN"`, `"Infinity"` and `"-Infinity"`.
- A stream is one JSON object a line (ndjson); an empty line keeps the connection alive. `after` takes the cursor of the
  last event seen; a cursor that is too old gets an event of kind `resync`.
"""
    holders = {
        Scope.PUBLIC: "everybody",
        Scope.TASK: "the task token of a current run",
        Scope.AGENT: "the key of an enrolled agent",
        Scope.ENROL: "an enrolment token",
    }
    scopes = [(f"`{s}`", holders.get(s) or f"people whose Hub token has `{scope_name(s)}`") for s in Scope]
    groups: dict[str, list[tuple[str, ...]]] = {}
    for path, handler in API:
        for verb in ("GET", "HEAD", "POST", "PUT", "DELETE"):
            operation = operation_of(handler, verb)
            if operation is None:
                continue
            query = ", ".join(operation.query.model_fields) if operation.query is not None else ""
            cells = (
                f"`{verb} {path}`",
                " or ".join(sorted(operation.scopes)),
                f"`{query}`" if query else "",
                body_of(operation),
                reply_of(operation),
                operation.summary.splitlines()[0],
            )
            first = path.split("/")[0]
            groups.setdefault("cluster" if first in {"openapi.json", "me", "stream"} else first, []).append(cells)
    header = ("call", "scope", "query", "body", "reply", "")
    parts = [f"## {name}\n\n{table(header, rows)}" for name, rows in groups.items()]
    outside = (
        "Beside the API, `GET /services/detlab/health` (public) answers 200, or 503 once the master has found that it"
        " cannot write; it does not ask the database. `GET /services/detlab/ready` (public) does: 200, or 503 while the"
        " master cannot read and write within five seconds. An answer counts for two seconds."
    )
    return page("HTTP API", intro, outside, "## Scopes", table(("scope", "who has it"), scopes), *parts)


def body_of(operation: Any) -> str:
    """What is sent."""
    if operation.body is not None:
        return f"`{operation.body.__name__}`"
    return f"`{operation.accepts}`" if operation.accepts else ""


def reply_of(operation: Any) -> str:
    """What comes back."""
    if operation.streams is not None:
        return f"stream of `{operation.streams.__name__}`"
    if operation.reply is None:
        return "" if operation.media == "application/json" else f"`{operation.media}`"
    arguments = getattr(operation.reply, "__args__", ())
    if getattr(operation.reply, "__origin__", None) is list:
        return f"list of `{arguments[0].__name__}`"
    return f"`{getattr(operation.reply, '__name__', operation.reply)}`"
