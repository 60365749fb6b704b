"""Calls to the master: tokens, outages, errors. The network is httpx's own mock transport."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from detlab import errors
from detlab.backoff import Backoff
from detlab.client.transport import calls
from detlab.core.session import TaskSession

Reply = Callable[[httpx.Request], httpx.Response]


class Clock:
    """Monotonic time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def connect(tmp_path: Path, clock: Clock):
    (tmp_path / "token").write_text("one\n")
    sessions = []

    def make(reply: Reply) -> TaskSession:
        session = TaskSession(
            "http://master/services/detlab/",
            tmp_path,
            transport=httpx.MockTransport(reply),
            sleep=clock.sleep,
            clock=clock,
        )
        sessions.append(session)
        return session

    yield make
    for session in sessions:
        session.close()


def test_a_call_carries_the_token_and_returns_json(connect: Callable[[Reply], TaskSession]) -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        assert request.headers["Authorization"] == "Bearer one"
        assert str(request.url) == "http://master/services/detlab/api/v1/task/metadata"
        return httpx.Response(200, json={"a": 1})

    assert connect(reply).get("task/metadata") == {"a": 1}


def test_no_content_is_none(connect: Callable[[Reply], TaskSession]) -> None:
    assert connect(lambda _: httpx.Response(204)).call("POST", "task/preempt/ack") is None


def test_the_renewed_token_is_read_again(connect: Callable[[Reply], TaskSession], tmp_path: Path) -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        if request.headers["Authorization"] == "Bearer one":
            (tmp_path / "token").write_text("two")  # the launcher renews it now
            return httpx.Response(401, json={"code": "auth.denied", "message": "expired"})
        return httpx.Response(200, json={})

    assert connect(reply).get("task/metadata") == {}


def test_a_token_that_stays_wrong_is_an_error(connect: Callable[[Reply], TaskSession], clock: Clock) -> None:
    with pytest.raises(errors.AuthError, match="expired"):
        connect(lambda _: httpx.Response(401, json={"code": "auth.denied", "message": "expired"})).get("task/metadata")
    assert 1 <= len(clock.slept) <= 10


def test_an_outage_is_waited_out(connect: Callable[[Reply], TaskSession], clock: Clock) -> None:
    answers: list[httpx.Response | Exception] = [
        httpx.ConnectError("refused"),
        httpx.Response(503),
        httpx.ReadTimeout("slow"),
        httpx.Response(502),
        httpx.Response(200, json={"value": 1}),
    ]

    def reply(_: httpx.Request) -> httpx.Response:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert connect(reply).get("task/best-validation") == {"value": 1}
    assert len(clock.slept) == 4


def test_what_stands_before_the_master_and_does_not_know_the_way_is_an_outage(
    connect: Callable[[Reply], TaskSession], clock: Clock
) -> None:
    """The proxy and the Hub, started anew, answer in the master's stead: a trial that asked then ended as failed."""
    answers = [
        httpx.Response(404, text="Not Found"),
        httpx.Response(302, headers={"Location": "/hub/services/detlab/api/v1/task/metadata"}),
        httpx.Response(403, text="<html>'_xsrf' argument missing from POST</html>"),
        httpx.Response(405, text="<html>"),
        httpx.Response(401, json={"status": 401, "message": "the Hub's own words"}),
        httpx.Response(200, json={"value": 1}),
    ]
    assert connect(lambda _: answers.pop(0)).get("task/metadata") == {"value": 1}
    assert len(clock.slept) == 5

    with pytest.raises(errors.ClusterUnreachable, match="status 404"):
        connect(lambda _: httpx.Response(404, text="Not Found")).get("task/metadata", limit=100)


def test_an_outage_ends_in_an_error_at_the_limit(connect: Callable[[Reply], TaskSession], clock: Clock) -> None:
    def reply(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(errors.ClusterUnreachable, match=r"http://master.* does not answer: refused"):
        connect(reply).get("task/metadata", limit=100)
    assert 80 <= clock.now <= 100


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (409, {"code": "stale_attempt", "message": "run 2 is current"}, errors.StaleAttempt),
        (404, {"code": "not_found", "message": "none"}, errors.NotFound),
        (403, {"code": "auth.forbidden", "message": "not yours"}, errors.Forbidden),
        (400, {"code": "bad", "message": "no"}, errors.ApiError),
    ],
)
def test_refusals_are_not_repeated(
    connect: Callable[[Reply], TaskSession],
    clock: Clock,
    status: int,
    body: dict[str, str],
    kind: type[errors.DetlabError],
) -> None:
    with pytest.raises(kind, match=body["message"]):
        connect(lambda _: httpx.Response(status, json=body)).get("task/metadata")
    assert clock.slept == []


def test_an_answer_that_is_no_json_is_an_error(connect: Callable[[Reply], TaskSession]) -> None:
    with pytest.raises(errors.ApiError, match="this the address of the master"):
        connect(lambda _: httpx.Response(200, text="<html>")).get("task/metadata")


def test_closing_ends_waiting(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one")

    def reply(_: httpx.Request) -> httpx.Response:
        session._closed.set()
        raise httpx.ConnectError("refused")

    session = TaskSession("http://master/", tmp_path, transport=httpx.MockTransport(reply))
    with pytest.raises(errors.ClusterUnreachable):
        session.get("task/metadata")
    session.close()


def test_calls_draw_nothing_from_the_process_generator(connect: Callable[[Reply], TaskSession]) -> None:
    """Regression: a checkpoint that was committed beside the loop shifted the numbers that training drew next."""
    before = random.getstate()
    connect(lambda _: httpx.Response(200, json={})).get("task/metadata")
    Backoff().next_pause()
    calls.Retries().pause(1)
    assert random.getstate() == before


def test_own_http_calls_stay_out_of_the_training_log(
    connect: Callable[[Reply], TaskSession], caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: with basicConfig(level=INFO) each checkpoint wrote an httpx line into the user's log."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="httpx")  # the supervisor, which other tests run in this process, raises it
    connect(lambda _: httpx.Response(200, json={})).get("task/metadata")
    assert [record.name for record in caplog.records if record.name.startswith("http")] == []
    with httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200))) as users_own:
        users_own.get("http://elsewhere/")
    assert any(record.name == "httpx" for record in caplog.records)
