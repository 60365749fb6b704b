"""Request bodies in memory are counted by user and in total; senders of uploads are judged by what they send."""

from __future__ import annotations

import pytest
from tornado.web import _has_stream_request_body

from detlab.errors import Unavailable
from detlab_hub.services.base.callers import AgentCaller, Caller, EnrolCaller, HubCaller, TaskCaller
from detlab_hub.services.base.threads import Tickets, user_of
from detlab_hub.web.base import Guarded
from detlab_hub.web.bodies import BodyLimits, Buffer, Pace
from detlab_hub.web.pages import Nowhere
from detlab_hub.web.routes import rules
from detlab_hub.web.scopes import Scope, operation_of

LIMITS = BodyLimits(silence=60.0, slowest=10_000, window=120.0)


@pytest.fixture
def memory() -> Tickets:
    return Tickets("bytes of request bodies", 100, 150)


def test_a_declared_body_is_counted_before_it_comes_and_once(memory: Tickets) -> None:
    buffer = Buffer(memory, "ada")
    buffer.reserve(60)
    for _ in range(6):
        buffer.add(b"x" * 10)
    assert (memory.held("ada"), bytes(buffer.data)) == (60, b"x" * 60)
    buffer.release()
    buffer.release()
    assert (memory.held("ada"), memory.held()) == (0, 0)


def test_a_body_of_unknown_length_is_counted_as_it_comes(memory: Tickets) -> None:
    buffer = Buffer(memory, "ada")
    buffer.add(b"x" * 60)
    assert memory.held("ada") == 60
    with pytest.raises(Unavailable) as caught:
        buffer.add(b"x" * 41)
    assert caught.value.code == "unavailable.busy"
    assert "a user may have 100" in str(caught.value)
    assert memory.held("ada") == len(buffer.data) == 60


def test_one_user_is_refused_where_another_is_not(memory: Tickets) -> None:
    Buffer(memory, "mallory").reserve(100)
    with pytest.raises(Unavailable, match="you have 100 bytes"):
        Buffer(memory, "mallory").reserve(1)
    Buffer(memory, "ada").reserve(50)
    assert memory.held() == 150


def test_all_users_together_are_bounded_and_a_refusal_counts_nothing(memory: Tickets) -> None:
    Buffer(memory, "mallory").reserve(100)
    ada = Buffer(memory, "ada")
    with pytest.raises(Unavailable, match="there may be 150"):
        ada.reserve(51)
    assert (memory.held("ada"), memory.held()) == (0, 100)
    ada.release()
    assert memory.held() == 100


def test_kinds_of_callers_have_accounts_of_their_own() -> None:
    callers = [Caller("ada"), TaskCaller("a1", 1, 1, 1), AgentCaller("n1"), EnrolCaller(), HubCaller()]
    assert len({user_of(caller) for caller in callers}) == len(callers)


def test_no_verb_that_anybody_may_call_has_a_body_that_is_kept() -> None:
    operations = [operation_of(cls, verb) for _, cls in rules() for verb in cls.SUPPORTED_METHODS]
    public = [found for found in operations if found is not None and Scope.PUBLIC in found.scopes]
    assert public
    assert all(found.body is None for found in public)


def test_a_pause_of_a_minute_is_too_long_however_much_came_before() -> None:
    pace = Pace(LIMITS)
    assert pace.fault(1.0, 50_000_000) is None
    assert pace.patience == 60.0
    assert pace.fault(60.0, 0) == "nothing came for 60 s"


def test_a_pause_over_the_end_of_a_window_is_one_pause() -> None:
    pace = Pace(LIMITS)
    assert pace.fault(50.0, 1_000_000) is None
    assert pace.fault(50.0, 1_000_000) is None
    assert pace.patience == 20.0
    assert pace.fault(20.0, 0) is None
    assert pace.patience == 40.0
    assert pace.fault(40.0, 0) == "nothing came for 60 s"


@pytest.mark.parametrize(("each", "judged"), [(9_900, "1,188,000 bytes came in 120 s"), (10_000, None)])
def test_an_upload_brings_ten_kilobytes_a_second(each: int, judged: str | None) -> None:
    pace = Pace(LIMITS)
    faults = [pace.fault(1.0, each) for _ in range(120)]
    assert set(faults[:-1]) == {None}
    assert faults[-1] == judged


def test_each_window_is_judged_for_itself() -> None:
    pace = Pace(LIMITS)
    assert pace.fault(1.0, 1_000_000_000) is None
    assert [pace.fault(1.0, 1) for _ in range(119)] == [None] * 119
    assert [pace.fault(1.0, 1) for _ in range(120)][-1] == "120 bytes came in 120 s"


def test_no_route_collects_a_body_before_its_limit_is_known() -> None:
    """The server itself lets through bodies of any size, so that each route can refuse them in words."""
    served = [*(cls for _, cls in rules("/services/detlab/")), Nowhere]
    assert len(served) > 50
    assert [cls.__name__ for cls in served if not issubclass(cls, Guarded)] == []
    assert [cls.__name__ for cls in served if not _has_stream_request_body(cls)] == []
