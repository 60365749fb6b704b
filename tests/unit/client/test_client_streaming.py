"""Streams without a network: any chunking and any disconnects give every event once and in order."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.client.transport.calls import Reply, Retries
from detlab.client.transport.streaming import EventFeed, Lines, Reconnect, ends_experiment, event_feed, log_feed
from detlab.errors import ApiError, AuthError, Unavailable
from detlab.schemas.wire import Event, LogLine

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(st.lists(TEXTS, max_size=8), st.lists(st.integers(0, 10_000), max_size=12))
def test_lines_survive_any_chunking(texts: list[str], cuts: list[int]) -> None:
    whole = [LogLine(id=n, trial_id=1, text=text).model_dump_json().encode() for n, text in enumerate(texts, 1)]
    lines = Lines()
    found = [line for chunk in split(b"".join(line + b"\n" for line in whole), cuts) for line in lines.feed(chunk)]
    assert found == whole


def test_unicode_line_separators_do_not_cut_a_line() -> None:
    """Regression: httpx's iter_lines cuts at U+2028, U+0085 and others, which JSON text may hold."""
    feed = log_feed(1, None)
    text = "a\u2028b\x85c\u2029d\x0be\x1cf"
    [line] = Lines().feed(LogLine(id=1, trial_id=1, text=text).model_dump_json().encode() + b"\n")
    item = feed.line(line)
    assert item is not None
    assert item.text == text


@given(
    st.integers(1, 30),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3)), max_size=10),
)
def test_disconnects_lose_and_repeat_nothing(count: int, breaks: list[tuple[int, int]]) -> None:
    """The master sends from the cursor, minus some overlap; each connection breaks after some bytes."""
    events = [Event(id=3 * n, kind="metrics", experiment_id=1, data={"n": n}) for n in range(1, count + 1)]
    feed = event_feed(1, 0)
    got: list[int] = []
    for many, overlap in [*breaks, (10**9, 0)]:
        after = (feed.cursor or 0) - 3 * overlap
        data = b"".join(event.model_dump_json().encode() + b"\n" for event in events if event.id > after)
        for line in Lines().feed(data[:many]):
            item = feed.line(line)
            if item is not None:
                got.append(item.data["n"])
    assert got == list(range(1, count + 1))
    assert feed.cursor == 3 * count


def test_cursor_events_move_the_cursor_silently() -> None:
    feed = event_feed(1, 5)
    assert feed.line(Event(id=9, kind="cursor").model_dump_json().encode()) is None
    assert feed.call().query() == {"after": "9"}


def test_a_resync_is_passed_on_whatever_its_id_and_a_jump_reconnects() -> None:
    feed = event_feed(1, 50)
    item = feed.line(Event(id=3, kind="resync").model_dump_json().encode())
    assert item is not None
    assert item.kind == "resync"
    assert feed.cursor == 50
    feed.resume_from(80)
    assert feed.done_here
    assert feed.jump() == 0.0
    assert not feed.done_here
    assert feed.call().query()["after"] == "80"


def test_resyncs_in_a_row_slow_down() -> None:
    feed = event_feed(1, 50)
    for _ in range(6):
        feed.line(Event(id=3, kind="resync").model_dump_json().encode())
    assert feed.jump() > 0.5


def test_the_end_of_the_experiment_ends_the_feed() -> None:
    feed = event_feed(1, 0)
    feed.line(Event(id=1, kind="experiment", data={"state": "ACTIVE"}).model_dump_json().encode())
    assert not feed.finished
    feed.line(Event(id=2, kind="experiment", data={"state": "ERROR"}).model_dump_json().encode())
    assert feed.finished
    assert not ends_experiment(Event(id=3, kind="experiment", data={"state": "a state of the future"}))


def test_a_stream_past_the_end_finishes_by_the_silence_of_a_new_connection() -> None:
    """Regression: two keep-alives that were sent before the end, and read after it, hid the last lines."""
    feed = log_feed(1, 4)
    feed.call()
    feed.line(b"")
    assert feed.silent
    feed.checked(ended=True)  # by now the end, a second keep-alive before it and the last line are on their way
    assert not feed.finished
    assert feed.done_here
    feed.jump()
    assert feed.call().query() == {"after": "4"}
    item = feed.line(LogLine(id=5, trial_id=1, text="the last").model_dump_json().encode())
    assert item is not None
    for _ in range(2):
        assert not feed.finished
        feed.line(b"")
        feed.checked(ended=True)
    assert feed.finished


def test_failures_back_off_and_give_up() -> None:
    feed = EventFeed(Event, "x", patience=3, backoff=Retries(first=1.0, cap=3.0))
    error = ApiError("gone")
    pauses = [feed.lost(error) for _ in range(3)]
    assert 0.5 <= pauses[0] <= 1.0
    assert 1.0 <= pauses[1] <= 2.0
    assert 1.5 <= pauses[2] <= 3.0
    with pytest.raises(ApiError, match="gone"):
        feed.lost(error)


def test_progress_resets_the_patience() -> None:
    feed = EventFeed(Event, "x", patience=1)
    feed.lost(ApiError("gone"))
    feed.line(Event(id=1, kind="cursor").model_dump_json().encode())
    feed.lost(ApiError("gone"))


def test_heads_are_judged() -> None:
    feed = event_feed(1, None)
    feed.check(Reply(200))
    with pytest.raises(Reconnect) as caught:
        feed.check(Reply(503, b"Service Unavailable"))
    assert isinstance(caught.value.error, Unavailable)
    with pytest.raises(AuthError):
        feed.check(Reply(401, b'{"code": "auth.denied", "message": "no"}'))


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"id": "x"}', b"\xff\xfe"])
def test_nonsense_in_a_stream_is_an_error(data: bytes) -> None:
    with pytest.raises(ApiError, match="is invalid"):
        event_feed(1, None).line(data)
