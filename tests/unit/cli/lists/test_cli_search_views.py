"""`det search`: acts on a search, a search at a glance, its figures as files, and another search like it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import Result

from detlab.cli.root import det as command
from detlab.schemas.wire import BestView, BudgetView, JournalEntry, ReplayedSearch, StandingView
from testbed.fake_master.api import FakeMaster

SEARCHER = {
    "name": "async_halving",
    "metric": "val_loss",
    "num_rungs": 3,
    "divisor": 4,
    "max_time": 32,
    "max_trials": 20,
}
SPACE = {"lr": {"type": "double", "minval": 0.1, "maxval": 1.0}}  # of search.yaml
HOSTILE = "eve\x1b[31m"


@pytest.fixture
def searched(master: FakeMaster) -> FakeMaster:
    """A master with a search that people steered."""
    master.add_experiment(
        searcher="async_halving",
        config={"name": "digits", "searcher": SEARCHER},
        bundle="tree:" + "a" * 64,
        trials_total=20,
        trials={"COMPLETED": 3, "ACTIVE": 2, "RUNNING": 2},
        best=BestView(trial_id=1, trial_index=0, steps_completed=9, value=0.25),
        budgets=[BudgetView(name="slot_hours", limit=10, used=4)],
    )
    named = [master.add_trial(1, hparams={"lr": rate}).request_id for rate in (0.1, 0.2)]
    events: list[dict[str, Any]] = [
        {"type": "started"},
        {"type": "extended", "trials": 4, "units": 2, "author": "alice"},
        {"type": "points_added", "points": [{"lr": 0.3}], "author": "alice"},
        {"type": "trials_retried", "request_ids": named, "author": HOSTILE},
        {"type": "space_edited", "space": {"lr": {}, "layers": {}}, "author": "alice"},
        {"type": "concurrency_set", "limit": 8, "author": "alice"},
        {"type": "concurrency_set", "author": "alice"},
        {"type": "stop_requested", "request_id": named[1], "author": "alice"},
        {"type": "promotion_requested", "request_id": named[0], "author": "alice"},
        {"type": "continued", "author": "alice"},
    ]
    master.journals[1] = [JournalEntry(seq=n, at=1e9, event=one, decisions=[]) for n, one in enumerate(events, 1)]
    return master


def test_a_search_at_a_glance_counts_the_trials_of_each_rung(searched: FakeMaster, det: Callable[..., Result]) -> None:
    rungs = [
        StandingView(where="rung 1 of 2, at epochs 1", counts={"running": 2, "promoted": 1, "stopped": 3}),
        StandingView(where="rung 2 of 2, at epochs 4", counts={"running": 1, "promoted": 0, "finished": 5}),
    ]
    found = ReplayedSearch(at=3, events=3, progress=0.5, trials_total=20, standing=rungs, trials=[], over=False)
    searched.replays[1] = [found]
    lines = det("search", "show", 1).stdout.splitlines()
    (head,) = [line.split() for line in lines if line.startswith("Where")]
    assert head == ["Where", "Running", "Promoted", "Stopped", "Finished"]
    assert [line.split()[-3:] for line in lines if line.startswith("rung ")] == [["2", "1", "3"], ["1", "0", "5"]]


def test_a_search_at_a_glance(searched: FakeMaster, det: Callable[..., Result]) -> None:
    shown = det("search", "show", 1).stdout
    for part in (
        "async_halving, for the least val_loss",
        "2, 8, 34",
        "max_time=34",
        "max_trials=27",
        "3/20 trials done, 2 running",
        "0.25 (trial 1, step 9)",
        "15 trials, 6 of 10 slot hours left",
    ):
        assert part in shown
    said = [line.split(maxsplit=4)[-1].strip() for line in shown.splitlines() if " alice " in line]
    assert said == [
        "extended: 4 further trials, 2 further units for the longest",
        "points added: lr: 0.3",
        "bounds edited: lr: {}, layers: {}",
        "concurrency: 8 trials at a time",
        "concurrency: no limit",
        "trial 2 stopped",
        "trial 1 promoted",
        "continued",
    ]
    assert "failed trials retried: 1, 2" in shown
    assert "started" not in [line.split()[-1] for line in shown.splitlines() if line]
    assert "\x1b" not in shown


def test_a_search_at_a_glance_as_json(searched: FakeMaster, det_json: Callable[..., Any]) -> None:
    found = det_json("search", "show", 1)
    assert found["experiment"]["budgets"] == [{"name": "slot_hours", "limit": 10, "used": 4}]
    assert [one["seq"] for one in found["acts"]] == list(range(2, 11)), "what people did, not every event"


def test_a_search_without_results_or_acts(master: FakeMaster, det: Callable[..., Result]) -> None:
    master.add_experiment()
    shown = det("search", "show", 1).stdout
    assert "no result yet" in shown
    assert "Who" not in shown
    assert "rungs" not in shown


@pytest.mark.parametrize("ending", ["html", "svg", "json"])
def test_a_figure_becomes_a_file(
    searched: FakeMaster, det: Callable[..., Result], workplace: Path, ending: str
) -> None:
    done = det("search", "plot", 1, "timeline", "-o", f"figure.{ending}")
    assert done.exit_code == 0, done.output
    text = (workplace / f"figure.{ending}").read_text()
    assert "Trials on slots" in text
    assert {"html": "<html>" in text, "svg": text.startswith("<svg"), "json": text.startswith("{")}[ending]


def test_a_figure_has_a_name_of_its_own_and_prints_as_json(
    searched: FakeMaster, det: Callable[..., Result], det_json: Callable[..., Any], workplace: Path
) -> None:
    assert det("search", "plot", 1).stdout == "best_so_far of experiment 1: search-1-best_so_far.html\n"
    assert (workplace / "search-1-best_so_far.html").stat().st_size > 1_000_000, "with plotly.js: it needs no network"
    assert set(det_json("search", "plot", 1, "timeline")) >= {"data", "layout"}
    assert det_json("search", "plot", 1, "timeline", "-o", "t.svg") == {"path": "t.svg"}


def test_a_png_is_drawn_or_what_it_needs_is_said(
    searched: FakeMaster, det: Callable[..., Result], workplace: Path
) -> None:
    done = det("search", "plot", 1, "timeline", "-o", "x.png")
    if find_spec("kaleido") is None:
        assert done.exit_code != 0
        assert "a PNG needs plotly's kaleido, which does not work here" in done.stderr
        assert "pip install kaleido" in done.stderr
        assert not (workplace / "x.png").exists()
    else:
        assert (workplace / "x.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("pie",), "no figure 'pie': choose one of best_so_far"),
        (("timeline", "--set", "against=time"), "timeline has no option against"),
        (("best_so_far", "--set", "against=noise"), "no budget 'noise': choose one of trials"),
        (("timeline", "-o", "t.bmp"), "no format '.bmp': the file ends in .html"),
        (("timeline", "-o", "no/t.svg"), "no/t.svg cannot be written: No such file or directory"),
    ],
)
def test_mistakes_of_a_figure(
    searched: FakeMaster, det: Callable[..., Result], words: tuple[str, ...], said: str
) -> None:
    refused = det("search", "plot", 1, *words)
    assert refused.exit_code != 0
    assert said in refused.stderr
    assert "Traceback" not in refused.output


def test_a_clone_with_another_method_has_no_keys_that_were_not_set(
    searched: FakeMaster, det: Callable[..., Result]
) -> None:
    config = searched.experiments[1].config or {}
    config["searcher"] = {"name": "random", "metric": "x", "max_trials": 4, "max_length": None, "divisor": 4}
    words = ("--set", "searcher.name=tpe", "--set", "searcher.divisor=null")
    assert det("search", "clone", 1, *words).exit_code == 0
    sent = (searched.submitted[0].config or {})["searcher"]
    assert sent == {"name": "tpe", "metric": "x", "max_trials": 4}


def test_a_clone_has_the_config_and_the_code(searched: FakeMaster, det: Callable[..., Result]) -> None:
    done = det("search", "clone", 1, "--set", "searcher.max_trials=50", "--name", "longer", "--paused")
    assert done.stdout.splitlines()[0] == "Created experiment 2, like experiment 1"
    assert "det experiment activate 2" in done.stdout
    [made] = searched.submitted
    assert made.config == {"name": "longer", "searcher": {**SEARCHER, "max_trials": 50}}
    assert made.bundle == "tree:" + "a" * 64
    assert made.forked_from == 1
    assert not made.activate
    assert searched.experiments[1].config == {"name": "digits", "searcher": SEARCHER}


def test_a_clone_begins_with_the_results(searched: FakeMaster, det_json: Callable[..., Any]) -> None:
    searched.experiments[1].config["searcher"] = {"name": "tpe", "warm_start": [7], "metric": "x"}  # type: ignore[index]
    assert det_json("search", "clone", 1, "--warm-start")["id"] == 2
    assert (searched.submitted[0].config or {})["searcher"]["warm_start"] == [7, 1]
    assert searched.submitted[0].activate


def test_a_masked_secret_of_a_clone_is_the_masters_to_put_back(
    searched: FakeMaster, det: Callable[..., Result]
) -> None:
    storage = {"type": "s3", "bucket": "b", "access_key": "********", "secret_key": "********"}
    searched.experiments[1].config["checkpoint_storage"] = storage  # type: ignore[index]
    assert det("search", "clone", 1, "--set", "checkpoint_storage.access_key=AK").exit_code == 0
    [made] = searched.submitted
    assert (made.config or {})["checkpoint_storage"] == {**storage, "access_key": "AK"}
    assert made.forked_from == 1


@pytest.mark.parametrize(
    ("words", "act"),
    [
        (("extend", 1, "--trials", 8), {"act": "extend", "trials": 8}),
        (("add", 1, '{"lr": 0.1}'), {"act": "add", "points": [{"lr": 0.1}]}),
        (("retry", 1, 1, 2), {"act": "retry", "trial_ids": [1, 2]}),
        (
            ("bounds", 1, "search.yaml"),
            {"act": "bounds", "hyperparameters": SPACE},
        ),
        (("concurrency", 1, 0), {"act": "concurrency", "limit": 0}),
        (("stop", 1, 2), {"act": "stop", "trial_ids": [2]}),
        (("promote", 1, 2), {"act": "promote", "trial_ids": [2]}),
    ],
)
def test_each_act_is_sent_as_it_is_said(
    searched: FakeMaster, det: Callable[..., Result], words: tuple[object, ...], act: dict[str, Any]
) -> None:
    done = det("search", *words)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("Experiment 1: ")
    [sent] = searched.steered
    told = sent.model_dump()
    assert {name: told[name] for name in act} == act
    assert sent.idempotency_key


@pytest.mark.parametrize(("words", "offered"), [("det search show ", "1"), ("det search plot 1 impo", "importance")])
def test_ids_and_figures_are_completed(
    searched: FakeMaster, det: Callable[..., Result], words: str, offered: str
) -> None:
    completion = ShellComplete(command, {}, "det", "_DET_COMPLETE")
    *before, typed = words.split(" ")[1:]
    assert offered in [item.value for item in completion.get_completions(before, typed)]
