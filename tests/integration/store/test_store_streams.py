"""Logs and events."""

from __future__ import annotations

from typing import Any

import pytest

from detlab.schemas.wire import LogRecord
from detlab_hub.store import Store
from detlab_hub.store.queries import events
from detlab_hub.store.queries.logs import lines as logs


def lines(*texts: str, rank: int | None = None) -> list[LogRecord]:
    return [LogRecord(seq=n, time=float(n), text=text, rank=rank) for n, text in enumerate(texts, 1)]


def append(store: Store, trial_id: int, records: list[LogRecord], run: int = 1) -> int:
    return store.write_sync(lambda s: logs.append(s, trial_id, run, records))


def texts(store: Store, trial_id: int, **query: Any) -> list[str]:
    return [line.text for line in store.read_sync(lambda s: logs.page(s, trial_id, **query))]


# --- logs -----------------------------------------------------------------------------------------------------


def test_lines_come_in_order_page_by_page(store: Store, trial_id: int) -> None:
    append(store, trial_id, lines(*(f"line {n}" for n in range(10))))
    append(store, trial_id + 1, lines("of another trial"))
    append(store, trial_id, lines("line 10"), run=2)
    seen: list[str] = []
    after = 0
    while page := store.read_sync(lambda s, after=after: logs.page(s, trial_id, after, 4)):
        assert len(page) <= 4
        seen += [line.text for line in page]
        after = page[-1].id
    assert seen == [f"line {n}" for n in range(11)]
    last = store.read_sync(lambda s: logs.page(s, trial_id, tail=1))[0]
    assert (last.run, last.trial_id, last.stdtype, last.time) == (2, trial_id, "stdout", 1.0)


def test_the_last_lines_and_backwards_from_there(store: Store, trial_id: int) -> None:
    append(store, trial_id, lines(*map(str, range(10))))
    tail = store.read_sync(lambda s: logs.page(s, trial_id, tail=3))
    assert [line.text for line in tail] == ["7", "8", "9"]
    assert texts(store, trial_id, before=tail[0].id, limit=4) == ["3", "4", "5", "6"]
    assert texts(store, trial_id, after=tail[0].id) == ["8", "9"]
    assert texts(store, trial_id, tail=100, limit=2) == ["8", "9"]


def test_lines_of_one_rank_and_by_search(store: Store, trial_id: int) -> None:
    append(store, trial_id, lines("Loss 1", "other", rank=0))
    append(store, trial_id, lines("loss 2", "100% done_", rank=1))
    assert texts(store, trial_id, rank=1) == ["loss 2", "100% done_"]
    assert texts(store, trial_id, search="LOSS") == ["Loss 1", "loss 2"]
    assert texts(store, trial_id, search="loss", rank=0) == ["Loss 1"]
    assert texts(store, trial_id, search="%") == ["100% done_"]
    assert texts(store, trial_id, search="e_") == ["100% done_"]
    assert texts(store, trial_id, search="none") == []
    assert texts(store, trial_id, search="l", tail=1) == ["loss 2"]


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", "\x1b[31mred\x1b[0m", "<script>", "tab\there", ""])
def test_any_line_is_stored(store: Store, trial_id: int, text: str) -> None:
    append(store, trial_id, lines(text))
    (found,) = texts(store, trial_id)
    assert len(found) == len(text)


def test_a_long_line_is_cut_and_marked(store: Store, trial_id: int) -> None:
    append(store, trial_id, lines("é" * 20_000 + "\n"))
    (found,) = texts(store, trial_id)
    assert len(found.encode()) <= logs.LINE_BYTES
    assert found.endswith("[line cut at 16 kB]")


def test_no_lines_are_no_trouble(store: Store, trial_id: int) -> None:
    assert append(store, trial_id, []) == 0
    assert texts(store, trial_id) == []
    assert store.read_sync(lambda s: logs.count(s, trial_id)) == 0


# --- events ---------------------------------------------------------------------------------------------------


def add_events(store: Store, count: int, experiment_id: int = 1, kind: str = "trial") -> list[int]:
    return store.write_sync(lambda s: [events.append(s, kind, 1.5, experiment_id, 7, {"n": n}) for n in range(count)])


def test_events_are_read_beyond_a_cursor(store: Store) -> None:
    ids = add_events(store, 5)
    found = store.read_sync(lambda s: events.after(s, ids[1], 2))
    assert [(event.id, event.data["n"]) for event in found] == [(ids[2], 2), (ids[3], 3)]
    assert (found[0].kind, found[0].time, found[0].experiment_id, found[0].trial_id) == ("trial", 1.5, 1, 7)


def test_events_of_one_experiment_or_some_kinds(store: Store) -> None:
    add_events(store, 2, experiment_id=1)
    metrics_ids = add_events(store, 2, experiment_id=2, kind="metrics")
    state_ids = add_events(store, 1, experiment_id=2, kind="experiment")

    def ids(**query: Any) -> list[int]:
        return [event.id for event in store.read_sync(lambda s: events.after(s, 0, **query))]

    assert ids(experiment_id=2) == metrics_ids + state_ids
    assert ids(experiment_id=2, kinds={"experiment", "trial"}) == state_ids
    assert ids(experiment_id=3) == []


@pytest.mark.parametrize("others", [(), tuple(range(100, 100 + events.FEW))])
def test_metrics_of_followed_experiments_come_with_some_kinds(store: Store, others: tuple[int, ...]) -> None:
    """A few are asked for by a statement that is compiled once, many by one with a list: the same comes."""
    states = add_events(store, 2, experiment_id=1, kind="experiment")
    followed = add_events(store, 2, experiment_id=2, kind="metrics")
    add_events(store, 2, experiment_id=3, kind="metrics")
    add_events(store, 1, experiment_id=2, kind="trial")
    more = add_events(store, 1, experiment_id=1, kind="experiment")

    def ids(after: int = 0, limit: int = 1000, follow: tuple[int, ...] = (2,)) -> list[int]:
        query = {"kinds": ("experiment", "task"), "followed": (*follow, *others)}
        return [event.id for event in store.read_sync(lambda s: events.after(s, after, limit, **query))]

    assert ids() == states + followed + more
    assert ids(follow=()) == states + more
    assert ids(after=states[1], limit=2) == followed
    found = store.read_sync(lambda s: events.after(s, states[1], kinds=(), followed=(2, *others)))
    assert [(event.id, event.kind, event.time, event.experiment_id, event.data) for event in found] == [
        (number, "metrics", 1.5, 2, {"n": place}) for place, number in enumerate(followed)
    ]


def test_ids_grow_for_ever_also_after_everything_was_trimmed(store: Store) -> None:
    assert store.read_sync(lambda s: (events.head(s), events.floor(s))) == (0, 0)
    ids = add_events(store, 10)
    assert store.write_sync(lambda s: events.trim(s, 3)) == 7
    assert store.read_sync(lambda s: (events.head(s), events.floor(s))) == (ids[-1], ids[6])
    assert [event.id for event in store.read_sync(lambda s: events.after(s, ids[6]))] == ids[7:]
    assert store.write_sync(lambda s: events.trim(s, 0)) == 3
    assert store.read_sync(lambda s: (events.head(s), events.floor(s))) == (ids[-1], ids[-1])
    assert store.read_sync(lambda s: events.after(s, 0)) == []
    assert add_events(store, 1)[0] > ids[-1]


def test_ids_grow_after_trim_and_restart(db_url: str) -> None:
    store = Store.open(db_url, holder="one")
    ids = add_events(store, 3)
    store.write_sync(lambda s: events.trim(s, 0))
    store.close()
    store = Store.open(db_url, holder="two")
    assert store.read_sync(events.head) == ids[-1]
    assert add_events(store, 1)[0] > ids[-1]
    store.close()


def test_a_trim_is_bounded_per_call(store: Store) -> None:
    add_events(store, 25)
    removed = []
    while gone := store.write_sync(lambda s: events.trim(s, 5, limit=8)):
        removed.append(gone)
    assert removed == [8, 8, 4]
    assert len(store.read_sync(lambda s: events.after(s, 0))) == 5
