"""What bounds a search with rungs, and any other: exact rungs, trials at a time, invalid points in a row."""

from __future__ import annotations

from fractions import Fraction
from importlib.metadata import entry_points
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab.schemas.expconf.checks.search_plans import plans
from detlab.schemas.expconf.rungs import rungs_within
from detlab_hub.core.searchers import (
    ConcurrencySet,
    Continued,
    CreateTrial,
    Event,
    PauseSearch,
    PauseTrial,
    ResumeTrial,
    Started,
    StopTrial,
    Suggest,
    Suggested,
    TrialExited,
    TrialExitedEarly,
    ValidationReported,
    event_from_json,
    event_to_json,
    make_searcher,
    replay,
)
from detlab_hub.core.searchers.halving.adaptive import plan_brackets
from detlab_hub.core.searchers.halving.hyperband import bracket_sizes
from detlab_hub.core.searchers.halving.rungs import rung_units
from detlab_hub.testing.searchers import Driven, drive

SPACE: dict[str, Any] = {"x": {"type": "double", "minval": 0.0, "maxval": 1.0, "count": 9}}
RUNGS = {"metric": "loss", "time_metric": "step", "max_trials": 30}
CONFIGS: dict[str, dict[str, Any]] = {
    "single": {},
    "random": {"max_trials": 12},
    "grid": {},
    "sobol": {"max_trials": 12},
    "async_halving": {**RUNGS, "max_time": 27, "divisor": 3, "num_rungs": 3},
    "asha": {**RUNGS, "max_time": 27, "divisor": 3},
    "adaptive_asha": {**RUNGS, "max_time": 27, "divisor": 3, "mode": "conservative"},
    "hyperband": {**RUNGS, "max_time": 27},
    "bohb": {**RUNGS, "max_time": 27, "max_brackets": 5, "random_fraction": 1.0},
    "dehb": {**RUNGS, "max_time": 27},
    "tpe": {"max_trials": 6, "startup_trials": 6},
    "gp": {"max_trials": 6, "startup_trials": 6},
    "cmaes": {"max_trials": 6, "startup_trials": 6},
    "nsga2": {"max_trials": 6, "population": 6},
    "bayesian": {"max_trials": 6, "startup_trials": 6},
    "pbt": {"time_metric": "step", "population_size": 4, "num_rounds": 2, "length_per_round": 2},
    "pb2": {"time_metric": "step", "population_size": 4, "num_rounds": 2, "length_per_round": 2},
    "custom": {"max_trials": 12, "entrypoint": "mine:Search"},
}
"""A search by each method of ours."""
BRACKETED = ("adaptive_asha", "hyperband", "bohb")
REPLACING = tuple(name for name in CONFIGS if name not in ("single", "grid", "custom"))


def config_of(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "metric": "loss", **CONFIGS[name], **more}


def most_at_once(driven: Driven) -> int:
    """Return how many trials held a place at the same time: created or resumed, not stopped, paused or ended."""
    held: set[str] = set()
    most = 0
    for event, decisions in zip(driven.journal, driven.decided, strict=True):
        if isinstance(event, TrialExited | TrialExitedEarly):
            held.discard(event.request_id)
        for decision in decisions:
            if isinstance(decision, StopTrial | PauseTrial):
                held.discard(decision.request_id)
            elif isinstance(decision, CreateTrial | ResumeTrial):
                held.add(decision.request_id)
        most = max(most, len(held))
    return most


# --- every method


def test_every_method_of_ours_is_here() -> None:
    ours = {entry.name for entry in entry_points(group="detlab.searchers") if entry.value.startswith("detlab_hub.")}
    assert set(CONFIGS) == ours


def create_all(feed: Any, search: Any) -> list[dict[str, Any]]:
    """Answer as the class of a custom search that creates all its trials at once."""
    if len(feed) > 1:
        return []
    return [{"type": "create", "request_id": str(n), "hparams": {"x": 0.1}} for n in range(12)]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in ("pbt", "pb2")])
def test_max_concurrent_trials_is_honoured(name: str, limit: int) -> None:
    """Below the number of brackets, too; a population has no such key: `population_size` trials train together."""
    config = config_of(name) if name == "single" else config_of(name, max_concurrent_trials=limit)
    for seed in range(3):
        driven = drive(config, SPACE, seed, steps=27, answers=create_all if name == "custom" else None)
        assert most_at_once(driven) <= limit
        assert driven.shutdown is not None
        valid = len(driven.created) - len(driven.invalid)
        assert name not in BRACKETED or valid == driven.search.trials_total, "no bracket is left out"


@pytest.mark.parametrize("name", BRACKETED)
def test_a_limit_below_the_brackets_may_be_set_while_the_search_runs(name: str) -> None:
    """Trials that run go on; no other begins until there is a place, and with more places all brackets run again."""
    search = make_searcher(config_of(name, max_concurrent_trials=8), SPACE, 1)
    running = [one.request_id for one in search.step(Started()) if isinstance(one, CreateTrial)]
    assert len(running) >= 6
    assert search.step(ConcurrencySet(1, "ada")) == []
    while len(running) > 1:
        made = search.step(TrialExitedEarly(running[0], "errored")) + search.step(TrialExited(running.pop(0)))
        assert not any(isinstance(one, CreateTrial) for one in made) or not running
    made = search.step(ConcurrencySet(6, "ada"))
    assert sum(isinstance(one, CreateTrial) for one in made) == 5


@pytest.mark.parametrize("name", BRACKETED)
def test_searches_from_before_the_limit_held_replay_as_they_were(name: str) -> None:
    """A journal without a number of rules has one trial for each bracket, as it was decided."""
    config = config_of(name, max_concurrent_trials=1)
    then = make_searcher(config, SPACE, 3, rules=0)
    decided = [then.step(Started(rules=0))]
    assert len(decided[0]) == len(then.method.brackets) > 1  # type: ignore[attr-defined]
    journal: list[Event] = [event_from_json({"type": "started"})]
    again, _ = replay(config, SPACE, 3, journal, decided)
    assert again.fingerprint() == then.fingerprint()
    assert event_to_json(Started())["rules"] > 0
    assert event_from_json(event_to_json(Started())) == Started()


# --- rungs

divisors = st.one_of(st.integers(2, 12), st.sampled_from([1.1, 1.5, 2.5, 10 / 4, 3.3]), st.floats(1.05, 12.0))


@settings(deadline=None)
@given(
    divisor=divisors, exponent=st.integers(0, 12), beside=st.sampled_from([0, 0, -1, 1]), num_rungs=st.integers(1, 9)
)
def test_rungs_are_exact_at_every_power(divisor: float, exponent: int, beside: int, num_rungs: int) -> None:
    """Against the definition: as many as there are powers up to the end, each at its whole part of the end."""
    step = Fraction(str(float(divisor)))
    end = max(1, int(step**exponent) + beside)
    assert rungs_within(end, divisor, 99) == sum(step**n <= end for n in range(99))
    units = [max(1, int(Fraction(end) / step ** (num_rungs - 1 - level))) for level in range(num_rungs)]
    assert rung_units(num_rungs, divisor, end) == units
    assert bracket_sizes(num_rungs, divisor) == [
        -int(-(num_rungs * step**level / (level + 1)) // 1) for level in range(num_rungs - 1, -1, -1)
    ]


@pytest.mark.parametrize("name", ["asha", "adaptive_asha", "hyperband", "bohb", "dehb"])
@pytest.mark.parametrize(("divisor", "power"), [(10, 3), (6, 3), (5, 3), (3, 4), (4, 3), (2, 4), (13, 2), (1.1, 2)])
def test_the_first_rung_is_one_unit_where_max_time_is_a_power(name: str, divisor: float, power: int) -> None:
    """`asha` with max_time 1000 and divisor 10 had its first rung at 10: the logarithm is 2.9999999999999996."""
    end = 121 if divisor == 1.1 else int(divisor**power)
    config = config_of(name, max_time=end, divisor=divisor, max_trials=20_000, max_concurrent_trials=1)
    first = make_searcher(config, SPACE, 1).method.first_units
    assert first == (82 if divisor == 1.1 else 1)


def test_trials_divide_exactly_over_brackets() -> None:
    """49 brackets of one rung share 49 trials: 1/49 * 49 is less than one with floats, and one got 49 - 48 * 0."""
    assert [one.max_trials for one in plan_brackets([1] * 49, 49, 0, 4)] == [1] * 49
    assert [one.max_trials for one in plan_brackets([1] * 49, 49 * 2, 0, 4)] == [2] * 49


def test_the_check_counts_rungs_as_the_search_does() -> None:
    """Of 999 trials at divisor 10 none comes to a fourth rung, and the search has only three."""
    searcher = {"name": "asha", "metric": "m", "time_metric": "batches", "max_time": 1000, "divisor": 10}
    assert list(plans({"searcher": {**searcher, "max_trials": 999}})) == []
    assert list(plans({"searcher": {**searcher, "max_trials": 1000}})) == []
    (told,) = plans({"searcher": {**searcher, "max_trials": 999, "num_rungs": 4}})
    assert "none is promoted beyond rung 3" in told.message


# --- invalid points


def ended_invalid(config: dict[str, Any], most: int, seed: int = 1) -> tuple[Any, int, list[PauseSearch]]:
    """Let every trial be invalid until the search is paused; return it, its trials and the pauses."""
    search = make_searcher(config, SPACE, seed)
    waiting: list[Event] = [Started()]
    made, paused = 0, []
    while waiting and not paused:
        assert made <= most, "the search goes on for ever"
        for decision in search.step(waiting.pop(0)):
            match decision:
                case CreateTrial(request_id):
                    made += 1
                    waiting += [TrialExitedEarly(request_id, "invalid_hp"), TrialExited(request_id)]
                case Suggest(ticket):
                    waiting.append(Suggested(ticket, ()))
                case PauseSearch():
                    paused.append(decision)
    return search, made, paused


@pytest.mark.parametrize("name", REPLACING)
@pytest.mark.parametrize("trials", [2, 20, 1000])
def test_a_search_whose_points_are_all_invalid_is_paused_and_says_why(name: str, trials: int) -> None:
    """172 trials of `max_trials: 2` were made in three minutes, and more would have been."""
    more = {"population_size": min(trials, 40)} if name in ("pbt", "pb2") else {"max_trials": trials}
    search, made, paused = ended_invalid(config_of(name, **more), most=200)
    assert len(paused) == 1, "it was paused"
    assert "points in a row were invalid" in paused[0].reason
    assert "det search bounds" in paused[0].hint
    assert made <= max(10, min(trials, 100)) + 40, "as many as were running when the last one was too many"
    assert search.shutdown is None, "a user may mend it"


@pytest.mark.parametrize("name", ["single", "grid"])
def test_a_search_that_replaces_no_point_ends(name: str) -> None:
    search, made, paused = ended_invalid(config_of(name), most=200)
    assert not paused
    assert made == search.trials_total
    assert search.shutdown is not None


def test_points_with_several_seeds_are_counted_as_points() -> None:
    _, made, paused = ended_invalid(config_of("random", max_trials=2, seeds=5, max_concurrent_trials=5), most=60)
    assert paused
    assert made >= 50


def test_a_search_that_is_activated_is_paused_again_after_as_many() -> None:
    search, _, _ = ended_invalid(config_of("random", max_trials=2, max_concurrent_trials=1), most=20)
    waiting: list[Event] = [Continued("ada")]
    open_ones = [name for name in search._requested if name not in search._closed]
    waiting += [event for one in open_ones for event in (TrialExitedEarly(one, "invalid_hp"), TrialExited(one))]
    made = 0
    while waiting:
        for decision in search.step(waiting.pop(0)):
            if isinstance(decision, CreateTrial):
                made += 1
                one = decision.request_id
                waiting += [TrialExitedEarly(one, "invalid_hp"), TrialExited(one)]
            if isinstance(decision, PauseSearch):
                return
        assert made <= 12
    pytest.fail("it was not paused again")


def test_a_valid_point_between_starts_the_count_again() -> None:
    """Nine of ten points are invalid: slow, but it comes to its end."""
    search = make_searcher(config_of("random", max_trials=4, max_concurrent_trials=1), SPACE, 1)
    waiting: list[Event] = [Started()]
    made = 0
    while waiting:
        for decision in search.step(waiting.pop(0)):
            assert not isinstance(decision, PauseSearch)
            if isinstance(decision, CreateTrial):
                made += 1
                name = decision.request_id
                invalid = [TrialExitedEarly(name, "invalid_hp")] if made % 10 else [ValidationReported(name, 0.5, 1.0)]
                waiting += [*invalid, TrialExited(name)]
    assert made == 40
    assert search.shutdown is not None


def test_a_journal_in_which_more_points_were_invalid_replays_as_it_was() -> None:
    config = config_of("random", max_trials=2, max_concurrent_trials=1)
    then = make_searcher(config, SPACE, 3, rules=0)
    journal: list[Event] = [event_from_json({"type": "started"})]
    decided = [then.step(journal[0])]
    for _ in range(60):
        (trial,) = [one for decisions in decided for one in decisions if isinstance(one, CreateTrial)][-1:]
        for event in (TrialExitedEarly(trial.request_id, "invalid_hp"), TrialExited(trial.request_id)):
            journal.append(event)
            decided.append(then.step(event))
    search, _ = replay(config, SPACE, 3, journal, decided)
    assert search.fingerprint() == then.fingerprint()


def test_every_trial_that_ends_early_for_another_reason_counts_towards_the_budget() -> None:
    """An early exit, a failure and a cancel are no invalid points: they are not replaced."""
    for name in REPLACING:
        driven = drive(config_of(name), SPACE, 1, failures=1.0, invalid=0.0)
        assert driven.shutdown is not None
        assert len(driven.created) <= driven.search.trials_total
