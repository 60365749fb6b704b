"""Every list, collection and stream, with every filter that it declares, asked by one tenant about another's things.

Both own a thing of each kind. Whatever ben puts into a filter, no answer holds a text or an id of ada's; and what is
ada's is answered just as what is nobody's, so that not even its being there is told. Routes and parameters come from
the router: a new list, or a new parameter of one, is walked without being named here.
"""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from enum import Enum
from itertools import combinations
from typing import Any

import httpx
import pytest
from pydantic.fields import FieldInfo

from testbed.cluster import Cluster
from testbed.people.tenants import Tenant, deleted_experiment, tenant
from testbed.routes import Asked, verbs

pytestmark = pytest.mark.hub

ADA, BEN = "adas-secret", "bens-own"
NONE_HELD_BACK = "nobodys-mark"
AS_LONG = "nada-secret"
"""Nobody's, for what is answered with a place in the text."""
STREAM_SECONDS = 0.2
READING = {"READ", "WRITE", "ADMIN"}


@dataclass(frozen=True)
class Pair:
    """A value that names something of ada's, and one of the same form that names nothing."""

    hers: str
    nobodys: str


@dataclass(frozen=True)
class World:
    """Whose things there are, and the ids of what ada has deleted."""

    ada: Tenant
    ben: Tenant
    later: str
    """A task that ben made after all that is ada's."""
    gone: tuple[int, int]


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> Iterator[World]:
    with tenant(cluster, "ben", BEN) as ben, tenant(cluster, "ada", ADA) as ada, cluster.client(ben.token) as http:
        gone = deleted_experiment(cluster, ada)
        with cluster.client() as operator:
            for kind, name in (("user", "ada"), ("group", f"{ADA}-group"), ("workspace", ada.ids["workspace"])):
                operator.put("quotas", json={"kind": kind, "name": name, "slots": 7}).raise_for_status()
        config = {"entrypoint": ["true"], "resources": {"slots": 0}}
        made = http.post("tasks", json={"kind": "command", "config": config, "name": f"{BEN} later"})
        yield World(ada, ben, made.raise_for_status().json()["task"]["id"], gone)


@pytest.fixture(scope="module")
def ben(cluster: Cluster, world: World) -> Iterator[httpx.Client]:
    with person(cluster, world.ben) as client:
        yield client


def person(cluster: Cluster, who: Tenant) -> httpx.Client:
    headers = {"Authorization": f"Bearer {who.token}"}
    return httpx.Client(base_url=cluster.service, headers=headers, trust_env=False, timeout=20)


def walked(ids: Mapping[str, str]) -> list[Asked]:
    """Return each GET that people may ask, with ids filled in."""
    found = [
        one for one in verbs(ids) if one.verb == "GET" and {scope.name for scope in one.operation.scopes} & READING
    ]
    return [one for one in found if "oauth" not in one.route]


def parameters(one: Asked) -> dict[str, FieldInfo]:
    return {} if one.operation.query is None else dict(one.operation.query.model_fields)


# --- what to ask


def pairs_of(one: Asked, name: str, info: FieldInfo, world: World) -> list[Pair]:
    """Values for a parameter, by its type.

    Raises:
        NotImplementedError: It has a type that this walk has no values for: add some.
    """
    if special := SPECIAL.get(name):
        return special(world)
    kinds = _types(info.annotation)
    found: list[Pair] = []
    if kinds & {bool}:
        found += [Pair("true", "true"), Pair("false", "false")]
    elif kinds & {int, float}:
        found += _numbers(one, world) if _is_id(info) else [Pair(number, number) for number in ("1", "2", "5")]
    if kinds & {str}:
        found += _texts(world)
    if kinds & {date}:
        found += [Pair("2020-01-01", "2020-01-01")]
    found += [Pair(value, value) for value in _choices(info.annotation)]
    if not found:
        raise NotImplementedError(
            f"{one.route} has a parameter {name} of type {info.annotation}: what could name ada's?"
        )
    return found


def _is_id(info: FieldInfo) -> bool:
    """Whether a number is a `RowId`, by its bound; others are counts and times."""
    return str(2**63) in repr(info)


def _types(annotation: Any) -> set[type]:
    if typing.get_origin(annotation) is typing.Annotated:
        return _types(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in {typing.Union, types.UnionType, list, tuple}:
        return set().union(*map(_types, typing.get_args(annotation)))
    return {annotation} if isinstance(annotation, type) else set()


def _choices(annotation: Any) -> list[str]:
    if typing.get_origin(annotation) is typing.Literal:
        return [str(value) for value in typing.get_args(annotation)]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(one.value) for one in annotation]
    return [value for part in typing.get_args(annotation) for value in _choices(part)]


def _numbers(one: Asked, world: World) -> list[Pair]:
    """Ids that stand beside each other, so that nothing of ben's lies between them."""
    # Positions in ben's own output, in the events of his own search, and in the log of all events.
    if any(word in one.route for word in ("stream", "logs", "search/")):
        return [Pair(number, number) for number in ("0", "1", "5")]
    ids, (experiment, trial) = world.ada.ids, world.gone
    return [Pair(ids["experiment_id"], str(experiment)), Pair(ids["trial_id"], str(trial)), Pair("1", "1")]


def _texts(world: World) -> list[Pair]:
    ids = world.ada.ids
    return [
        Pair("ada", "zed"),
        Pair(ADA, NONE_HELD_BACK),
        Pair(f"{ADA} experiment", f"{NONE_HELD_BACK} experiment"),
        Pair(f"ada/{ADA} workspace", f"ada/{NONE_HELD_BACK} workspace"),
        Pair(f"ada/{ADA} workspace:{ADA} template", f"ada/{ADA} workspace:{NONE_HELD_BACK} template"),
        Pair(f"{ADA}-group", f"{NONE_HELD_BACK}-group"),
        Pair(f"{ADA}-metric", f"{NONE_HELD_BACK}-metric"),
        Pair(f"line of {ADA}", f"line of {NONE_HELD_BACK}"),
        *(Pair(task, f"{task.partition('-')[0]}-000000000000") for task in world.ada.tasks),
        Pair(ids["uuid"], "00000000-0000-4000-8000-000000000001"),
        *(Pair(word, word) for word in ("ACTIVE", "COMPLETED", "command", "tensorboard", "default", ".", "")),
    ]


def _sorts(world: World) -> list[Pair]:
    del world
    return [
        Pair(f"{sign}{ADA}-group.{ADA}-metric", f"{sign}{NONE_HELD_BACK}-group.{NONE_HELD_BACK}-metric")
        for sign in ("", "-")
    ]


def _conditions(world: World) -> list[Pair]:
    del world
    return [Pair(f"{ADA}_lr<=1", f"{NONE_HELD_BACK}_lr<=1"), Pair(f"{ADA}_lr!=1", f"{NONE_HELD_BACK}_lr!=1")]


def _follows(world: World) -> list[Pair]:
    def text(experiment: object, trial: object) -> str:
        return json.dumps([{"experiment": int(str(experiment)), "trial": int(str(trial))}])

    return [Pair(text(world.ada.ids["experiment_id"], world.ada.ids["trial_id"]), text(*world.gone))]


def _filters(world: World) -> list[Pair]:
    """Filters that can be read, and some that cannot, whose mistakes are at the same place."""
    ids, (experiment, trial) = world.ada.ids, world.gone
    assert len(AS_LONG) == len(ADA)
    texts = [
        "label = {0}-label or label ~ {0}",
        "name ~ {0}",
        "hparams.{0}_lr <= 1",
        "not hp.{0}_lr is null",
        "{0}-group.{0}-metric > 0",
        "{0}-group.{0}-metric.last is null",
        "{0} experiment",
        "label = {0}-la",
        "hp.{0}",
        "{0}",
    ]
    return [
        *(Pair(text.format(ADA), text.format(AS_LONG)) for text in texts),
        Pair("owner = ada", "owner = zed"),
        Pair("owner = ", "owner = "),
        Pair(f"experiment = {ids['experiment_id']}", f"experiment = {experiment}"),
        Pair(f"trial < {ids['trial_id']}", f"trial < {trial}"),
        Pair("", ""),
    ]


def _columns(world: World) -> list[Pair]:
    del world
    texts = ["hparams.{0}_lr", "{0}-group.{0}-metric", "{0}-metric.max", "{0} x"]
    return [*(Pair(text.format(ADA), text.format(AS_LONG)) for text in texts), Pair("owner", "owner")]


SPECIAL = {"sort": _sorts, "where": _conditions, "follow": _follows, "filter": _filters, "column": _columns}
"""Parameters whose text has a form of its own."""


def queries(one: Asked, world: World) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Return each query twice, with hers and with nobody's: each value alone, and the first ones of all two by two."""
    fields = parameters(one)
    values = {name: pairs_of(one, name, info, world) for name, info in fields.items()}
    if one.operation.streams is not None:  # each takes its time
        values = {name: [pair for pair in pairs if "ada" in pair.hers] or pairs for name, pairs in values.items()}
    yield {}, {}
    for name, pairs in values.items():
        for pair in pairs:
            yield {name: pair.hers}, {name: pair.nobodys}
            if "limit" in fields and name != "limit":
                yield {name: pair.hers, "limit": "1"}, {name: pair.nobodys, "limit": "1"}
    firsts = {name: pairs[0] for name, pairs in values.items() if one.operation.streams is None}
    for (name, pair), (other, beside) in combinations(firsts.items(), 2):
        yield {name: pair.hers, other: beside.hers}, {name: pair.nobodys, other: beside.nobodys}


# --- what is answered


def ask(client: httpx.Client, one: Asked, query: Mapping[str, str]) -> tuple[int, str]:
    """Status and text of the reply; of a stream, what it says at first."""
    request = client.build_request("GET", one.path, params=dict(query))
    reply = client.send(request, stream=True)
    if one.operation.streams is not None:  # read by httpcore when it begins with the body
        request.extensions["timeout"]["read"] = STREAM_SECONDS
    text = b""
    try:
        for part in reply.iter_bytes():
            text += part
    except httpx.ReadTimeout:
        pass
    finally:
        reply.close()
    return reply.status_code, text.decode(errors="replace")


def numbered(value: Any, of: Tenant) -> bool:
    """Whether JSON names an experiment or a trial of a tenant by its number."""
    match value:
        case dict():
            pairs = (("experiment_id", "experiment_id"), ("trial_id", "trial_id"))
            if any(str(value.get(key)) == of.ids[which] for key, which in pairs):
                return True
            return any(numbered(part, of) for part in value.values())
        case list():
            return any(numbered(part, of) for part in value)
    return False


def said(query: Mapping[str, str]) -> list[str]:
    """What a question says, the longest first: of filters and fields also each word, since answers point at one."""
    words = list(query.values())
    for name in {"filter", "column", "sort"} & query.keys():
        words += query[name].removeprefix("-").split(".", 1)
        words += [
            word for part in query[name].split() for word in [part, *part.split(".")] if ADA in word or AS_LONG in word
        ]
    return sorted(dict.fromkeys(words), key=len, reverse=True)


def leaks(text: str, query: Mapping[str, str], of: Tenant) -> list[str]:
    """What a reply says of a tenant that the question did not say itself."""
    for value in said(query):
        text = text.replace(json.dumps(value)[1:-1], "ASKED").replace(value or "\0", "ASKED")
    found = [secret for secret in of.secrets if secret in text]
    for line in text.splitlines():
        try:
            told = json.loads(line)
        except ValueError:
            continue
        found += ["the number of an experiment or trial"] if numbered(told, of) else []
    return found


_NAMES = "now|time|age|cursor|waited|uptime|heard_at|last_seen|checked_at|workspace_id|project_id"
VOLATILE = re.compile(rf'"({_NAMES})": ?[^,}}\]]+')
"""What changes by itself; and small numbers of ben's own, which an asked one may be equal to."""


def plain(reply: tuple[int, str], query: Mapping[str, str], other: Mapping[str, str]) -> tuple[int, str]:
    """A reply without what was asked, here or in the other question, and without what changes by itself.

    Both, as a small number of the one stands in texts of both: `should be at least 2`. Of a filter also what it
    compares with: a note names it where nothing has it.
    """
    status, text = reply
    compared = [asked["filter"].split()[-1] for asked in (query, other) if asked.get("filter", "").strip()]
    for value in [*said(query), *said(other), *compared]:
        if value:
            text = re.sub(rf"(?<![\w-]){re.escape(json.dumps(value)[1:-1])}(?![\w-])", "ASKED", text)
            text = re.sub(rf"(?<![\w-]){re.escape(value)}(?![\w-])", "ASKED", text)
    return status, VOLATILE.sub("", text)


# --- the walk


def test_both_tenants_own_what_the_walk_looks_for(cluster: Cluster, world: World) -> None:
    """Each sees their own marks at nearly every route: the walk does not pass because there is nothing to see."""
    for who in (world.ada, world.ben):
        with person(cluster, who) as client:
            shown = {one.route for one in walked(who.ids) if who.mark in ask(client, one, {"after": "0"})[1]}
        kinds = ("experiments", "trials", "tasks", "checkpoints", "jobs", "overview", "stream", "logs")
        kinds += ("templates", "webhooks", "alerts", "alerts/rules", "schedules")
        assert len(shown) >= 15, sorted(shown)
        assert [kind for kind in kinds if not any(kind in route for route in shown)] == []


def test_no_list_or_stream_tells_a_tenant_of_another_whatever_the_filter(world: World, ben: httpx.Client) -> None:
    found: dict[str, object] = {}
    asked = 0
    for one in walked(world.ben.ids):
        for hers, nobodys in queries(one, world):
            reply = ask(ben, one, hers)
            asked += 1
            where = f"{one.route} {hers}"
            if reply[0] >= 500:
                found[where] = reply
            if leaked := leaks(reply[1], hers, world.ada):
                found[where] = leaked
            elif hers != nobodys and one.operation.streams is None:
                others = ask(ben, one, nobodys)
                if plain(reply, hers, nobodys) != plain(others, nobodys, hers):
                    found[where] = f"{reply} is not what is said of nobody's: {others}"
    assert found == {}, "\n".join(f"{where}: {what}"[:1500] for where, what in found.items())
    assert asked >= 500


def test_a_page_of_tasks_begins_at_ones_own_task_only(world: World, ben: httpx.Client) -> None:
    """Were ada's task taken, the answer would say which of ben's tasks are older."""
    own = ben.get("api/v1/tasks", params={"before": world.later}).raise_for_status().json()["items"]
    assert [task["id"] for task in own if task["id"] in world.ben.tasks] == list(reversed(world.ben.tasks))
    assert {task["owner"] for task in own} == {"ben"}  # other tests of this cluster may have begun some of his
    refused = [
        ben.get("api/v1/tasks", params={"before": name}) for name in (world.ada.tasks[0], "command-000000000000")
    ]
    assert [reply.status_code for reply in refused] == [404, 404]
    assert "its `next`" in refused[0].json()["hint"]
