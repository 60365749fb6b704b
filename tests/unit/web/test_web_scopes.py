"""Default deny: no verb without a scope, no scope that is not in the vocabulary."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tornado.web import RequestHandler

from detlab.schemas.wire import API_PREFIX, SERVICE_PREFIX
from detlab_hub.core.rights import ACTIONS, Action
from detlab_hub.services import AgentCaller, Caller, EnrolCaller, TaskCaller
from detlab_hub.web.base import Guarded
from detlab_hub.web.crosssite import CrossSite
from detlab_hub.web.routes import API, PAGES, PROTOCOLS, rules
from detlab_hub.web.scopes import Scope, granted, needs, operation_of

ARCHITECTURE = Path(__file__).parents[3] / "docs" / "explanation" / "architecture.md"


def served_verbs(handler: type[RequestHandler]) -> list[str]:
    """Verbs for which the class has code of its own or inherited, other than tornado's refusal."""
    refusal = RequestHandler._unimplemented_method
    return [verb for verb in handler.SUPPORTED_METHODS if getattr(handler, verb.lower()) is not refusal]


def test_a_misspelt_scope_fails_at_import() -> None:
    with pytest.raises(ValueError, match="raed"):
        needs("raed", cross_site="xsrf")


def test_a_verb_needs_at_least_one_scope() -> None:
    with pytest.raises(ValueError, match="at least one"):
        needs(cross_site="xsrf")


def test_a_verb_needs_a_rule_for_other_sites() -> None:
    with pytest.raises(TypeError, match="cross_site"):
        needs("read")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="xsfr"):
        needs("read", cross_site="xsfr")


@pytest.mark.parametrize(
    ("verb", "scope", "rule", "why"),
    [
        ("get", "read", "open", "what is public is open to all sites, and nothing else is"),
        ("get", "public", "page", "what is public is open to all sites, and nothing else is"),
        ("get", "read", "token", "a verb for people says when theirs counts"),
        ("get", "task", "xsrf", "one for programs takes none"),
        ("get", "task", "bearer", "one for programs takes none"),
        ("post", "write", "link", "a POST asks for the XSRF token"),
        ("delete", "write", "page", "a DELETE asks for the XSRF token"),
    ],
)
def test_a_verb_whose_rule_does_not_fit_cannot_be_defined(verb: str, scope: str, rule: str, why: str) -> None:
    @needs(scope, cross_site=rule, action=Action.EXPERIMENT_EDIT if scope == "write" else None)
    async def method(self: object) -> None:
        """Do something."""

    with pytest.raises(TypeError, match=rf"Odd\.{verb} cannot be {rule} to other sites: .*{why}"):
        type("Odd", (Guarded,), {verb: method})


def test_a_handler_without_a_scope_cannot_be_defined() -> None:
    with pytest.raises(TypeError, match=r"Open\.delete declares no scope"):

        class Open(Guarded):
            async def delete(self) -> None:
                """Nobody said who may."""


def test_a_verb_that_changes_something_and_names_no_action_cannot_be_defined() -> None:
    @needs("write", cross_site="xsrf")
    async def method(self: object) -> None:
        """Change something."""

    for verb in ("post", "put", "patch", "delete"):
        with pytest.raises(TypeError, match=rf"Odd\.{verb} names no action"):
            type("Odd", (Guarded,), {verb: method})


def test_a_verb_that_only_reads_in_a_protocol_of_others_names_no_action_and_takes_no_session() -> None:
    @needs("read", "task", cross_site="bearer", reads=True)
    async def method(self: object) -> None:
        """Look something up."""

    made = type("Reading", (Guarded,), {"post": method})
    operation = operation_of(made, "POST")
    assert operation is not None
    assert (operation.action, operation.reads, operation.cross_site.sessions) == (None, True, False)


def test_a_scope_that_is_not_for_the_callers_of_the_action_fails_at_import() -> None:
    with pytest.raises(ValueError, match=r"quota\.set is for the scopes admin, not write"):
        needs("write", cross_site="xsrf", action=Action.QUOTA_SET)


def test_every_action_has_a_route() -> None:
    """One of its own, or that of another action within which it is carried out."""
    named = [
        operation.action
        for _, handler in [*API, *PROTOCOLS]
        for verb in served_verbs(handler)
        if (operation := operation_of(handler, verb)) is not None and operation.action is not None
    ]
    assert {one for one in Action if ACTIONS[one].within is None} == set(named)
    assert {ACTIONS[one].within for one in Action} - {None} <= set(named)


def test_a_verb_without_a_docstring_cannot_be_described() -> None:
    with pytest.raises(ValueError, match="docstring"):

        @needs("read", cross_site="xsrf")
        async def get(self: object) -> None:
            pass


def test_every_verb_of_every_route_declares_its_scope() -> None:
    seen = 0
    for pattern, handler in rules():
        assert issubclass(handler, Guarded), f"{pattern} is outside of the guard"
        verbs = served_verbs(handler)
        assert verbs, f"{pattern} serves nothing"
        for verb in verbs:
            operation = operation_of(handler, verb)
            assert operation is not None, f"{verb} {pattern} declares no scope"
            assert operation.scopes
            assert isinstance(operation.cross_site, CrossSite), f"{verb} {pattern} has no rule for other sites"
            seen += 1
    assert seen >= 45


def test_only_health_style_and_login_are_public() -> None:
    public = {
        path
        for path, handler in [*API, *PAGES, *PROTOCOLS]
        for verb in served_verbs(handler)
        if Scope.PUBLIC in getattr(operation_of(handler, verb), "scopes", ())
    }
    assert public == {
        "health",
        "ready",
        "oauth_callback",
        "static/{asset_name}",
        "mlflow/",
        "mlflow/health",
        "mlflow/version",
    }


READ_BY_BOTH = {
    "artifacts/{artifact}",
    "artifacts/{artifact}/versions",
    "artifacts/{artifact}/versions/{version}",
    "artifacts/{artifact}/versions/{version}/file",
    "artifacts/{artifact}/versions/{version}/files",
}
"""What trials read by their tokens, and people on the page of the Hub: a session is a person's, and changes nothing."""


def test_cookies_never_reach_agents_and_tasks() -> None:
    both = set()
    for path, handler in API:
        for verb in served_verbs(handler):
            operation = operation_of(handler, verb)
            assert operation is not None
            if operation.scopes == {Scope.READ, Scope.TASK} and operation.cross_site.sessions:
                assert (verb, operation.action) == ("GET", None), path
                both.add(path)
                continue
            programs = operation.scopes & {Scope.TASK, Scope.AGENT, Scope.ENROL, Scope.HUB}
            assert operation.cross_site.sessions is not (bool(programs) or Scope.PUBLIC in operation.scopes), path
    assert both == READ_BY_BOTH


def documented() -> set[tuple[str, str, frozenset[str]]]:
    """(path, verb, scopes) of the table in docs/explanation/architecture.md, section 3."""
    table = ARCHITECTURE.read_text().partition("<!-- routes:")[2].partition("<!-- end of routes -->")[0]
    return {
        (path, verb, frozenset(scopes.split(" or ")))
        for path, verbs in re.findall(r"`([^`]*)`((?: [A-Z]+ \[[a-z ]+\])+)", table)
        for verb, scopes in re.findall(r"([A-Z]+) \[([a-z ]+)\]", verbs)
    }


def test_the_documented_routes_are_the_routes() -> None:
    wanted = documented()
    assert len(wanted) >= 150
    assert wanted == {
        (prefix + path, verb, frozenset(map(str, operation.scopes)))
        for prefix, routes in (("", API), (SERVICE_PREFIX, [*PAGES, *PROTOCOLS]))
        for path, handler in routes
        for verb in served_verbs(handler)
        if (operation := operation_of(handler, verb)) is not None
    }


@pytest.mark.parametrize(
    ("caller", "expected"),
    [
        (Caller("ann", frozenset({"custom:detlab:read"})), {Scope.READ}),
        (Caller("ann", frozenset({"custom:detlab:read", "custom:detlab:write"})), {Scope.READ, Scope.WRITE}),
        (Caller("ann", frozenset({"custom:detlab:read!user=ben", "admin:users"})), set()),
        (TaskCaller("1.a.0", 1, 1, 0), {Scope.TASK}),
        (AgentCaller("host"), {Scope.AGENT}),
        (EnrolCaller(), {Scope.ENROL}),
    ],
)
def test_granted_scopes(caller: object, expected: set[Scope]) -> None:
    assert granted(caller) == expected


def test_prefix_of_the_api() -> None:
    assert all(pattern.startswith(re.escape(SERVICE_PREFIX)) for pattern, _ in rules())
    assert SERVICE_PREFIX + API_PREFIX == "/services/detlab/api/v1/"


def test_every_path_is_served_by_the_handler_that_the_table_has_for_it() -> None:
    in_order = rules()
    for path, handler in API:
        asked = SERVICE_PREFIX + API_PREFIX + re.sub(r"\{\w+\}", "7", path)
        found = next(cls for pattern, cls in in_order if re.fullmatch(pattern, asked))
        assert found is handler, path
