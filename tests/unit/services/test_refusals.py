"""What is written into the audit log of access that was refused, and that it cannot be used to fill it."""

from __future__ import annotations

import pytest

from detlab_hub.services.cluster.refusals import ROWS_AT_ONCE, ROWS_PER_HOUR, SUMMARY_PERIOD, WINDOW, RefusedCall, Tally


def refused(path: str = "experiments/7", actor: str = "mallory", verb: str = "GET") -> RefusedCall:
    return RefusedCall(actor, verb, "experiments/{experiment_id}", path, "not theirs, told not_found")


def told(tally: Tally, now: float) -> list[tuple[str, str, str]]:
    return [(row.actor, row.subject, row.detail) for row in tally.due(now)]


def test_the_first_refusal_is_written_at_once_and_the_rest_of_a_minute_with_their_number() -> None:
    tally = Tally()
    tally.note(refused(), "127.0.0.1", 100.0)
    (first,) = told(tally, 101.0)
    assert first == (
        "mallory",
        "GET experiments/7",
        "not theirs, told not_found; route experiments/{experiment_id}; from 127.0.0.1",
    )
    for second in range(50):
        tally.note(refused(), "127.0.0.1", 101.0 + second)
    assert told(tally, 152.0) == []
    (rest,) = told(tally, 100.0 + WINDOW)
    assert rest[2].startswith("50 times; ")
    assert told(tally, 1000.0) == []


def test_a_window_in_which_nothing_followed_leaves_no_second_row() -> None:
    tally = Tally()
    tally.note(refused(), "127.0.0.1", 0.0)
    assert len(told(tally, 0.0)) == 1
    assert told(tally, WINDOW) == []
    tally.note(refused(), "127.0.0.1", WINDOW)
    assert len(told(tally, WINDOW)) == 1


def test_users_verbs_and_objects_are_counted_apart() -> None:
    tally = Tally()
    for one in (refused(), refused("experiments/8"), refused(actor="eve"), refused(verb="DELETE")):
        tally.note(one, "127.0.0.1", 0.0)
    assert len(told(tally, 0.0)) == 4


@pytest.mark.soak
def test_one_who_tries_every_number_fills_nothing() -> None:
    """A day of a thousand different objects a minute: some hundred rows, and no refusal uncounted."""
    tally, rows, noted = Tally(), [], 0
    for minute in range(24 * 60):
        now = 60.0 * minute
        for number in range(1000):
            tally.note(refused(f"experiments/{minute}-{number}"), "127.0.0.1", now)
            noted += 1
        rows += tally.due(now)
    rows += tally.due(0.0, closing=True)
    summaries = [row for row in rows if row.subject == "several"]
    single = len(rows) - len(summaries)
    assert single <= ROWS_AT_ONCE + 24 * ROWS_PER_HOUR
    assert len(summaries) <= 24 * 3600 / SUMMARY_PERIOD + 1
    assert single + sum(int(row.detail.split()[0].replace(",", "")) for row in summaries) == noted


def test_the_ration_of_one_user_is_not_that_of_another() -> None:
    tally = Tally()
    for number in range(ROWS_AT_ONCE + 10):
        tally.note(refused(f"experiments/{number}"), "127.0.0.1", 0.0)
    tally.note(refused(actor="eve"), "127.0.0.1", 0.0)
    rows = told(tally, 0.0)
    assert [row[0] for row in rows].count("mallory") == ROWS_AT_ONCE
    assert [row[0] for row in rows].count("eve") == 1


def test_a_clock_that_goes_back_closes_a_window_early_and_counts_on() -> None:
    tally = Tally()
    tally.note(refused(), "127.0.0.1", 1000.0)
    assert len(told(tally, 1000.0)) == 1
    tally.note(refused(), "127.0.0.1", 400.0)
    assert len(told(tally, 400.0)) == 1
