"""The table of routes is what the handlers declare, and the relay carries what a route gives to it, nothing else."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

import pytest

from detlab_hub.core.rights import Action
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import page, route, routes_of
from detlab_hub.web.routes import API, PAGES, RELAYED, declared, handlers
from detlab_hub.web.scopes import PEOPLE, needs, operation_of
from detlab_server.relay import RELAYED as PASSED_ON
from detlab_server.relayed import PATHS

IDS = {"uuid": "00000000-0000-0000-0000-000000000001", "digest": "sha256:" + "0" * 64, "label": "best", "kind": "a_b"}
NUMBERS = count(1)


def handler(scope: str = "read", action: Action | None = None) -> Any:
    """Return a class with one verb, and no route."""

    @needs(scope, cross_site="token" if scope == "task" else "xsrf", action=action)
    async def method(self: object) -> None:
        """Do something."""

    return type(f"Handler{next(NUMBERS)}", (Guarded,), {"post" if action else "get": method})


def filled(path: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda part: IDS.get(part[1], "7"), path)


def test_every_handler_in_the_modules_has_a_route() -> None:
    bases = {base for cls in handlers() for base in cls.__mro__[1:]}
    serving = {cls for cls in handlers() if any(operation_of(cls, verb) for verb in cls.SUPPORTED_METHODS)}
    without = {cls.__name__ for cls in serving - bases if not routes_of(cls)}
    assert without == {"Nowhere"}, "that of all other paths"


def test_a_path_without_braces_is_tried_before_one_with_braces_that_fits_it() -> None:
    any_of, word, deeper = (route(path)(handler()) for path in ("a/{id}", "a/word", "a/{id}/b"))
    assert [one.path for one, _ in declared([any_of, word, deeper])] == ["a/word", "a/{id}", "a/{id}/b"]


def test_what_running_tasks_ask_for_is_tried_first() -> None:
    assert [path for path, _ in API[:2]] == ["task/preempt", "task/records"]
    with pytest.raises(ValueError, match="whole path"):
        route("tasks/{task_id}", often=True)


def test_two_handlers_of_one_path_are_refused_whatever_their_parts_are_called() -> None:
    one, other = route("a/{first}")(handler()), route("a/{second}")(handler())
    with pytest.raises(ValueError, match="is served by Handler"):
        declared([one, other])
    assert len(declared([one, page("a/{second}")(handler())])) == 2, "a page is not below the API's prefix"


def test_a_class_does_not_serve_the_paths_of_its_base() -> None:
    base = route("a")(handler())
    assert routes_of(type("Derived", (base,), {})) == ()
    both = page("b", "c")(page("a")(handler()))
    assert [one.path for one in routes_of(both)] == ["a", "b", "c"]


@pytest.mark.parametrize(("scope", "action"), [("task", None), ("hub", Action.SPAWN_START), ("public", None)])
def test_a_route_that_is_not_for_people_cannot_be_relayed(scope: str, action: Action | None) -> None:
    @needs(scope, cross_site="open" if scope == "public" else "token", action=action)
    async def method(self: object) -> None:
        """Do something."""

    cls = type("NotForPeople", (Guarded,), {"post" if action else "get": method})
    with pytest.raises(ValueError, match=r"a cannot be relayed: NotForPeople\.\w+ is not for people"):
        route("a", relayed=True)(cls)


def test_a_route_by_which_people_and_trials_read_is_relayed_and_one_of_agents_and_people_is_not() -> None:
    @needs("read", "task", cross_site="xsrf")
    async def both(self: object) -> None:
        """Do something."""

    @needs("read", "agent", cross_site="xsrf")
    async def nodes(self: object) -> None:
        """Do something."""

    [found] = routes_of(route("a", relayed=True)(type("Both", (Guarded,), {"get": both})))
    assert found.relayed
    with pytest.raises(ValueError, match="is not for people"):
        route("a", relayed=True)(type("Nodes", (Guarded,), {"get": nodes}))


@pytest.mark.parametrize("scope", sorted(PEOPLE))
def test_a_route_is_not_relayed_because_of_its_scope(scope: str) -> None:
    [found] = routes_of(route("a")(handler(scope)))
    assert not found.relayed


def test_the_relay_passes_on_the_routes_that_say_so_and_no_other() -> None:
    assert sorted(RELAYED) == list(PATHS), "run: python docs/generate.py"
    for path, _ in API:
        assert bool(PASSED_ON.fullmatch(filled(path))) is (path in RELAYED), path
    for path in ("audit", "tokens", "cluster/drain", "limits", "uids", "experiments/{experiment_id}/bundle"):
        assert path in dict(API)
        assert path not in RELAYED, "nothing in the front ends of JupyterLab asks for it"


def test_pages_are_not_in_the_api() -> None:
    assert {"health", "oauth_callback", ""} <= {path for path, _ in PAGES}
    assert not {"health", "oauth_callback", ""} & {path for path, _ in API}
