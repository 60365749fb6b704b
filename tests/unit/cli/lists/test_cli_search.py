"""`det search`: each act reaches the master as it is meant, once; the journal and the replay as people read them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from detlab.client import Client
from detlab.client.aclient import AsyncClient
from detlab.schemas.wire import JournalEntry, ReplayedSearch, ReplayedTrial
from testbed.fake_master.api import ApiFault, FakeMaster

HOSTILE = "eve\x1b[31m\x07"
COMMANDS = ("extend", "add", "retry", "bounds", "concurrency", "stop", "promote", "metric", "journal", "replay")


@pytest.fixture
def searched(master: FakeMaster) -> FakeMaster:
    """A master with an experiment."""
    master.add_experiment()
    return master


def last(master: FakeMaster) -> dict[str, Any]:
    """What the newest act says, but its key."""
    return master.steered[-1].model_dump(exclude_defaults=True, exclude={"idempotency_key"})


@pytest.mark.parametrize(
    ("words", "said", "sent"),
    [
        (("extend", 1, "--trials", 20), "extended by 20 trials", {"act": "extend", "trials": 20}),
        (("extend", 1, "--units", 3), "extended by 3 units", {"act": "extend", "units": 3}),
        (
            ("extend", 1, "--trials", 1, "--units", 3),
            "extended by 1 trial and 3 units",
            {"act": "extend", "trials": 1, "units": 3},
        ),
        (("add", 1, '{"lr": 0.5}'), "1 point added", {"act": "add", "points": [{"lr": 0.5}]}),
        (
            ("add", 1, '{"lr": 0.5}', '{"lr": 1e-4, "net": {"width": 3}}'),
            "2 points added",
            {"act": "add", "points": [{"lr": 0.5}, {"lr": 1e-4, "net": {"width": 3}}]},
        ),
        (("retry", 1), "failed trials are retried", {"act": "retry"}),
        (("retry", 1, 31, 32), "failed trials are retried", {"act": "retry", "trial_ids": [31, 32]}),
        (("concurrency", 1, 8), "8 trials at a time", {"act": "concurrency", "limit": 8}),
        (("concurrency", 1, 0), "any number of trials at a time", {"act": "concurrency", "limit": 0}),
        (("stop", 1, 31), "trial 31 is stopped", {"act": "stop", "trial_ids": [31]}),
        (("promote", 1, 31), "trial 31 is promoted", {"act": "promote", "trial_ids": [31]}),
        (("metric", 1, "val_loss"), "its metric is 'val_loss'", {"act": "metric", "metric": "val_loss"}),
    ],
)
def test_an_act_reaches_the_master_and_is_said(
    searched: FakeMaster,
    det: Callable[..., Result],
    det_json: Callable[..., Any],
    words: tuple[object, ...],
    said: str,
    sent: dict[str, Any],
) -> None:
    assert det("search", *words).stdout == f"Experiment 1: {said}\n"
    assert last(searched) == sent
    assert det_json("search", *words)["id"] == 1
    assert last(searched) == sent
    first, second = searched.steered
    assert first.idempotency_key != second.idempotency_key, "two acts are two acts"


@pytest.mark.parametrize("head", ["", "name: digits\nhyperparameters:\n"])
def test_bounds_are_read_as_a_config_is(
    searched: FakeMaster, det: Callable[..., Result], tmp_path: Path, head: str
) -> None:
    """From a whole config or the block alone; 1e-4 is a number, which YAML 1.1 takes for a text."""
    indent = "  " if head else ""
    (tmp_path / "narrow.yaml").write_text(f"{head}{indent}lr: {{type: double, minval: 1e-4, maxval: 1e-2}}\n")
    assert (
        det("search", "bounds", 1, "narrow.yaml").stdout
        == "Experiment 1: further trials have the new bounds; those that wait for slots or have begun keep theirs\n"
    )
    lr = {"type": "double", "minval": 0.0001, "maxval": 0.01}
    assert last(searched) == {"act": "bounds", "hyperparameters": {"lr": lr}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lr: {type: double, minval: 1, minval: 2, maxval: 3}\n", "minval"),
        ("lr: [1\n", "line"),
        ("- lr\n", "has no hyperparameters"),
        ("hyperparameters: 3\n", "has no hyperparameters"),
    ],
)
def test_bounds_that_cannot_be_read(
    searched: FakeMaster, det: Callable[..., Result], tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "narrow.yaml").write_text(text)
    refused = det("search", "bounds", 1, "narrow.yaml")
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert searched.steered == []


def test_bounds_of_bytes_that_are_no_text(searched: FakeMaster, det: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "narrow.yaml").write_bytes(b"\xff\xfe\x00")
    refused = det("search", "bounds", 1, "narrow.yaml")
    assert refused.exit_code == 2
    assert "cannot be read" in refused.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("extend", 1), "give --trials or --units"),
        (("extend", 1, "--trials", -1), "-1"),
        (("add", 1), "POINT"),
        (("add", 1, "lr=0.1"), "is not JSON"),
        (("add", 1, "[1]"), "is not a mapping"),
        (("add", 1, '{"lr": NaN}'), "NaN"),
        (("concurrency", 1, "many"), "many"),
        (("stop", 1), "TRIAL"),
        (("promote", 1, "x"), "x"),
        (("replay", 1, "--at", -2), "-2"),
        (("bounds", 1, "nowhere.yaml"), "nowhere.yaml"),
    ],
)
def test_mistakes_of_a_command_reach_no_master(
    searched: FakeMaster, det: Callable[..., Result], words: tuple[object, ...], said: str
) -> None:
    refused = det("search", *words)
    assert refused.exit_code == 2, refused.output
    assert said in refused.stderr
    assert searched.steered == []


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (("extend", 1, "--trials", 10_001), "trials"),
        (("extend", 1, "--units", 10**13), "units"),
        (("concurrency", 1, 10_001), "limit"),
        (("add", 1, *["{}"] * 1001), "points"),
        (("retry", 1, *range(1001)), "trial_ids"),
    ],
)
def test_acts_that_are_too_large_are_refused_by_name(
    searched: FakeMaster, det: Callable[..., Result], words: tuple[object, ...], path: str
) -> None:
    refused = det("search", *words)
    assert refused.exit_code == 2
    assert path in refused.stderr
    assert "Traceback" not in refused.output
    assert searched.steered == []


def test_a_refusal_of_the_master_is_told(searched: FakeMaster, det: Callable[..., Result]) -> None:
    refused = det("search", "extend", 7, "--trials", 1)
    assert refused.exit_code == 1
    assert "experiment 7" in refused.stderr
    assert "has no event 9" in det("search", "replay", 1, "--at", 9).stderr


def test_an_act_whose_answer_is_lost_is_sent_again_with_its_key(
    searched: FakeMaster, det: Callable[..., Result]
) -> None:
    searched.faults.append(ApiFault("POST", "experiments/1/search", "lose_reply"))
    assert det("search", "extend", 1, "--trials", 1).exit_code == 0
    first, second = searched.steered
    assert first.idempotency_key == second.idempotency_key


def test_a_journal_is_listed_with_authors_and_decisions(
    searched: FakeMaster, det: Callable[..., Result], det_json: Callable[..., Any]
) -> None:
    assert det("search", "journal", 1).stdout == "No events yet.\n"
    made = [{"type": "create_trial", "request_id": name} for name in ("a", "b")]
    events: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        ({"type": "started"}, made),
        ({"type": "validation_reported", "request_id": "0123456789", "metric": "NaN", "time": 4.0}, []),
        ({"type": "extended", "trials": 3, "author": HOSTILE}, [*made, {"type": "pause_trial", "request_id": "a"}]),
    ]
    searched.journals[1] = [
        JournalEntry(seq=at, at=1e9, event=event, decisions=decided) for at, (event, decided) in enumerate(events, 1)
    ]
    shown = det("search", "journal", 1).stdout
    assert "\x1b" not in shown
    assert "\x07" not in shown
    lines = [line.rstrip() for line in shown.splitlines()]
    assert lines[0].split() == ["Event", "When", "What", "By", "Decided"]
    assert lines[-3].endswith("create trials a, b")
    assert "validation reported of trial 01234567: metric: NaN, time: 4.0" in lines[-2]
    assert "extended: 3 further trials" in lines[-1]
    assert lines[-1].endswith("create trials a, b; pause trial a")
    assert [one["seq"] for one in det_json("search", "journal", 1)] == [1, 2, 3]
    assert [one["seq"] for one in det_json("search", "journal", 1, "--acts")] == [3]


def test_a_journal_names_trials_by_number_and_shows_points_and_edits_in_full(
    searched: FakeMaster, det: Callable[..., Result]
) -> None:
    first, second = (searched.add_trial(1, hparams={"lr": rate}) for rate in (0.1, 0.2))
    space = {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}, "net": {"width": {"vals": [1, 2]}}}
    point = {"lr": 0.01, "net": {"width": 2}, **{f"layer{n}": n for n in range(4)}}
    stops = [{"type": "stop_trial", "request_id": one.request_id, "finished": False} for one in (first, second)]
    events: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        ({"type": "trial_exited", "request_id": first.request_id}, []),
        ({"type": "points_added", "points": [point], "author": "alice"}, []),
        ({"type": "space_edited", "space": space, "author": "alice"}, []),
        ({"type": "budget_spent", "reason": "4 slot hours"}, [{**stops[0], "evidence": "4 slot hours"}, stops[1]]),
    ]
    searched.journals[1] = [
        JournalEntry(seq=at, at=1e9, event=event, decisions=decided) for at, (event, decided) in enumerate(events, 1)
    ]
    lines = [line.rstrip() for line in det("search", "journal", 1).stdout.splitlines()][-4:]
    assert f"trial {first.id} exited" in lines[0]
    assert "points added: lr: 0.01, net: {width: 2}, layer0: 0, " in lines[1]
    assert "layer3: 3" in lines[1]
    assert "bounds edited: lr: {type: log, base: 10, minval: -4, maxval: -1}, net: {width: {vals: [1, 2]}}" in lines[2]
    assert lines[3].endswith(f"stop trials {first.id} (4 slot hours), {second.id}")


def test_a_replay_says_why_trials_were_stopped(
    searched: FakeMaster, det: Callable[..., Result], det_json: Callable[..., Any]
) -> None:
    trials = [
        ReplayedTrial(
            id=4, index=0, request_id="a", hparams={"lr": 0.1}, state="ended", why="place 3 of 4", best=0.5, reports=2
        ),
        ReplayedTrial(index=1, request_id="b", hparams={"lr": 0.2, HOSTILE: HOSTILE}, state="paused"),
    ]
    found = ReplayedSearch(at=7, events=9, time=1e9, progress=0.5, trials_total=4, trials=trials, over=False)
    searched.replays[1] = [found.model_copy(update={"at": 9, "over": True}), found]
    shown = det("search", "replay", 1, "--at", 7).stdout
    assert shown.startswith("After event 7 of 9 (")
    assert "2 of 4 trials made, 50% done\n" in shown
    assert "place 3 of 4" in shown
    assert "Best seen" in shown, "what the search was told of, which may be less than the trial's own best"
    assert "#1" in shown, "a trial that has no row yet"
    assert "\x1b" not in shown
    assert "; the search is over" in det("search", "replay", 1).stdout
    assert det_json("search", "replay", 1, "--at", 7) == found.model_dump(mode="json")


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_with_an_example(det: Callable[..., Result], command: str) -> None:
    said = det("search", command, "--help")
    assert said.exit_code == 0
    assert f"  det search {command} 7" in said.stdout
    assert command in det("search", "--help").stdout


def test_both_clients_steer_alike(searched: FakeMaster) -> None:
    acts: list[tuple[str, tuple[Any, ...]]] = [
        ("extend_search", (2, 3)),
        ("add_points", ([{"lr": 0.5}],)),
        ("retry_failed", ([4],)),
        ("edit_bounds", ({"lr": 0.5},)),
        ("set_concurrency", (0,)),
        ("stop_trial", (4,)),
        ("promote_trial", (4,)),
    ]
    searched.journals[1] = [JournalEntry(seq=at, event={"type": "started"}, decisions=[]) for at in (1, 2)]
    with Client(searched.url, searched.token) as client:
        item = client.get_experiment(1)
        for name, values in acts:
            getattr(item, name)(*values)
        assert [one.seq for one in item.search_journal()] == [1, 2]

    async def steer() -> list[int]:
        async with AsyncClient(searched.url, searched.token) as client:
            item = await client.get_experiment(1)
            for name, values in acts:
                await getattr(item, name)(*values)
            return [one.seq for one in await item.search_journal()]

    assert asyncio.run(steer()) == [1, 2]
    sent = [one.model_dump(exclude={"idempotency_key"}) for one in searched.steered]
    assert sent[: len(acts)] == sent[len(acts) :]
    assert [one["act"] for one in sent[: len(acts)]] == list(COMMANDS[:7])
    assert len({one.idempotency_key for one in searched.steered}) == 2 * len(acts)
