"""What an agent says of itself is input: everything in it has a limit, and the refusal names the field."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from detlab.errors import Conflict
from detlab.schemas.wire import AgentMessage, Hello
from detlab_hub.services import Settings
from detlab_hub.services.agents.hello import LABELS, NAME_CHARS, RUNTIMES, TASKS, check_hello
from detlab_hub.web.cluster.agents import said_of
from detlab_hub.web.routes import AGENT_MESSAGE_LIMIT

SETTINGS = Settings(state_dir=Path(), bundles_dir=Path())
MESSAGE: TypeAdapter[Any] = TypeAdapter(AgentMessage)
PLAIN: dict[str, Any] = {"type": "hello", "agent_id": "a", "slots": [{"id": "cpu0"}], "uids": {}}
LONG = "x" * (NAME_CHARS + 1)
BOUND = 40 * AGENT_MESSAGE_LIMIT
"""Bytes that one message may take while it is read: as many times its size as Python objects take of `{}`."""


def hello(**said: Any) -> Hello:
    return Hello.model_validate({**PLAIN, **said})


def slot(**said: Any) -> dict[str, Any]:
    return {"slots": [{"id": "cpu0", **said}]}


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"slots": [{"id": "cpu0"}, {"id": "cpu1"}, {"id": "cpu0"}]}, "slots: 'cpu0' is there twice"),
        ({"slots": [{"id": f"cpu{n}"} for n in range(1025)]}, "slots: 1025 are more than the limit of 1024"),
        ({"max_zero_slot_tasks": 1001}, "max_zero_slot_tasks: 1001 are more than the limit of 1000"),
        ({"max_zero_slot_tasks": 10**30}, "max_zero_slot_tasks"),
        ({"max_zero_slot_tasks": -1}, "max_zero_slot_tasks is negative"),
        (slot(id=""), "slots"),
        (slot(id="a\nb"), "slots"),
        (slot(id=LONG), "slots"),
        (slot(name=LONG), "slots"),
        (slot(uuid=LONG), "slots"),
        (slot(device=LONG), "slots"),
        (slot(allocation_id=LONG), "slots"),
        (slot(memory=-1), "slots"),
        (slot(memory=2**63), "slots"),
        (slot(shares=10**9), "slots"),
        ({"version": LONG}, "version"),
        ({"process": LONG}, "process"),
        ({"pool": LONG}, "pool"),
        ({"serves_user": LONG}, "serves_user"),
        ({"runtimes": [LONG]}, "runtimes"),
        ({"runtimes": ["process"] * (RUNTIMES + 1)}, "runtimes"),
        ({"labels": {LONG: "x"}}, "labels"),
        ({"labels": {"x": LONG}}, "labels"),
        ({"labels": {str(n): "" for n in range(LABELS + 1)}}, "labels"),
        ({"tasks": [{"allocation_id": LONG, "run": 1}]}, "tasks"),
        ({"tasks": [{"allocation_id": "a", "run": 2**63}]}, "tasks"),
        ({"tasks": [{"allocation_id": "a", "run": 1}] * (TASKS + 1)}, "tasks"),
        ({"uids": {"ada": 0}}, "uids"),
        ({"uids": {"ada": 2**32}}, "uids"),
        ({"uids": {LONG: 20_000}}, "uids"),
    ],
)
def test_what_no_node_has_is_refused_by_the_name_of_its_field(said: dict[str, Any], field: str) -> None:
    check_hello(hello(), SETTINGS)
    with pytest.raises(Conflict, match="the agent's Hello is refused") as refusal:
        check_hello(hello(**said), SETTINGS)
    assert field in refusal.value.message
    assert len(refusal.value.message) < 300


def test_an_operator_may_allow_more() -> None:
    wide = Settings(Path(), Path(), agent_slots_limit=3, agent_zero_slot_tasks_limit=5000)
    check_hello(hello(slots=[{"id": str(n)} for n in range(3)], max_zero_slot_tasks=5000), wide)
    with pytest.raises(Conflict, match="agent_slots_limit"):
        check_hello(hello(slots=[{"id": str(n)} for n in range(4)]), wide)


def test_an_agent_that_comes_back_says_what_runs_on_its_slots() -> None:
    """It was refused with its running tasks, which then counted as lost."""
    check_hello(hello(**slot(allocation_id="1.2.1"), tasks=[{"allocation_id": "1.2.1", "run": 1}]), SETTINGS)
    with pytest.raises(Conflict, match="has a device"):
        check_hello(hello(**slot(device="cuda0")), SETTINGS)


def test_very_many_users_are_refused_before_each_is_looked_at() -> None:
    with pytest.raises(ValidationError, match="more than 50000 keys"):
        hello(uids={str(number): "" for number in range(50_001)})


def checked_config(message: str) -> str:
    """What the master says of a first message, short of its database."""
    try:
        parsed = MESSAGE.validate_json(message)
        if isinstance(parsed, Hello):
            check_hello(parsed, SETTINGS)
    except ValidationError as error:
        return said_of(error)
    except Conflict as error:
        return str(error)
    return ""


def filled(field: str, item: str) -> str:
    """A Hello of the largest size that is read, all of it in one field."""
    begin, end = ("{", "}") if ":" in item else ("[", "]")
    head = json.dumps({name: value for name, value in PLAIN.items() if name != field})[:-1]
    count = (AGENT_MESSAGE_LIMIT - len(head) - 100) // (len(item) + 8)
    items = ",".join(item.replace("#", str(number)) for number in range(count))
    return f'{head}, "{field}": {begin}{items}{end}}}'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "item"),
    [
        ("slots", '{"id":"#"}'),
        ("slots", '{"id":""}'),
        ("slots", "{}"),
        ("slots", "1"),
        ("slots", "[]"),
        ("tasks", "1"),
        ("tasks", '{"allocation_id":"","run":1}'),
        ("runtimes", "1"),
        ("runtimes", '""'),
        ("labels", '"#":""'),
        ("labels", '"#":1'),
        ("uids", '"#":1'),
        ("uids", '"#":""'),
        ("unheard_of", "[]"),
        ("unheard_of", '"#":[]'),
    ],
)
def test_no_hello_costs_more_than_bounded_memory(field: str, item: str) -> None:
    message = filled(field, item)
    assert len(message) <= AGENT_MESSAGE_LIMIT
    tracemalloc.start()
    try:
        assert len(checked_config(message)) < 1000
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < BOUND


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
_FIELDS = st.sampled_from([*sorted(Hello.model_fields), "more"])


@pytest.mark.slow
@settings(max_examples=200)
@given(st.dictionaries(_FIELDS, _JSON, max_size=6))
def test_any_hello_is_taken_or_refused_in_words(said: dict[str, Any]) -> None:
    assert len(checked_config(json.dumps({**PLAIN, **said}))) < 1000
