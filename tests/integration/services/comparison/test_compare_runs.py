"""Trials and experiments side by side, through the services: settings, metrics, curves, code, and who sees what."""

from __future__ import annotations

import math
from typing import Any

import pytest
from services_scripted import ALICE, BOB, World, config
from sqlalchemy import select

from detlab.errors import ConfigError
from detlab.schemas.wire import GrantRequest
from detlab.schemas.wire.comparison import MOST_CURVE_TRIALS, MOST_RUNS, RunComparison
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.comparison import comparison as runs
from detlab_hub.services.comparison import metrics
from detlab_hub.services.comparison.comparison import RunComparisons
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.store.tables import TrialRow

HOSTILE = '<img src=x onerror="alert(1)">'


def scoring(launch):
    """Validates twice; the loss is best at the first; the deviation of seeds is that of the trial's number."""
    rate, seed = launch.info.hparams["lr"], launch.info.trial_id
    yield ("metrics", "validation", 1, {"loss": rate + seed / 1000, "acc": 0.9, HOSTILE: 1.0})
    yield ("metrics", "training", 2, {"loss": 9.0, "odd": math.nan})
    yield ("metrics", "validation", 2, {"loss": 2.0 + rate, "acc": 0.5})
    yield ("exit", 0)


class Compared:
    """A world with Alice's experiments of one trial each, and one of Bob's."""

    def __init__(self, world: World) -> None:
        self.world, self.experiments, self.trials = world, [], []
        self.theirs = 0, 0

    async def made(self, caller: Caller = ALICE, **settings: Any) -> tuple[int, int]:
        """Return the ids of a finished experiment and its first trial."""
        made = await self.world.submit(config(**settings), caller)
        await self.world.finish(made.id)
        query = select(TrialRow.id).where(TrialRow.experiment_id == made.id).order_by(TrialRow.idx).limit(1)
        return made.id, await self.world.services.context.read(lambda s: s.scalars(query).one())

    async def compare(self, caller: Caller = ALICE, **asked: Any) -> RunComparison:
        """Return all parts of a comparison as one."""
        service, whole = self.world.services[RunComparisons], RunComparison()
        skip: int | None = 0
        while skip is not None:
            part = await service.compare(caller, **asked, skip=skip)
            lists = {name: [*getattr(whole, name), *getattr(part, name)] for name in ROWS}
            whole = part.model_copy(update=lists)
            skip = part.next
        return whole


ROWS = ("runs", "hyperparameters", "metrics", "config")


@pytest.fixture
async def place(make_world) -> Compared:
    place = Compared(await make_world(scoring))
    await place.world.add_agent()
    for rate in (0.1, 0.2):
        experiment, trial = await place.made(name="mine", hyperparameters={"lr": rate, "opt": {"name": "adam"}})
        place.experiments.append(experiment)
        place.trials.append(trial)
    place.theirs = await place.made(BOB, name="theirs", hyperparameters={"lr": 0.3})
    return place


async def test_trials_side_by_side(place: Compared) -> None:
    found = await place.compare(trials=place.trials)
    assert [(run.kind, run.id, run.name, run.trial_ids) for run in found.runs] == [
        ("trial", trial, "mine", [trial]) for trial in place.trials
    ]
    assert [(row.name, row.values, row.same) for row in found.hyperparameters] == [
        ("lr", [0.1, 0.2], False),
        ("opt.name", ["adam", "adam"], True),
    ]
    rows = {row.name: row for row in found.config}
    assert rows["hyperparameters.lr.val"].values == [0.1, 0.2]
    assert rows["searcher.metric"].same
    first = found.metrics[0]
    assert (first.group, first.name, first.smaller_is_better) == ("validation", "loss", True)
    one = first.values[0]
    assert one is not None
    assert (one.best, one.last, one.max) == (pytest.approx(0.1 + place.trials[0] / 1000), 2.1, 2.1)
    by_name = {(row.group, row.name): row.values[0] for row in found.metrics}
    assert by_name["validation", "acc"].best == 0.9, "at the best validation, which came first"
    assert by_name["validation", "acc"].last == 0.5
    assert math.isnan(by_name["training", "odd"].last)
    assert ("validation", HOSTILE) in by_name, "names stay as they are: front ends show them as text"


async def test_metrics_are_chosen_by_name_and_parts_have_all_rows(place: Compared, monkeypatch) -> None:
    found = await place.compare(trials=place.trials, metrics=["acc"])
    assert [(row.group, row.name) for row in found.metrics] == [("validation", "acc")]
    asked = {"trials": place.trials, "experiments": place.experiments}
    whole = (await place.compare(**asked)).model_dump_json()  # as text: NaN is not itself
    monkeypatch.setattr(runs.pages, "PAGE_BYTES", 2000)
    part = await place.world.services[RunComparisons].compare(ALICE, **asked)
    assert part.next is not None
    assert (await place.compare(**asked)).model_dump_json() == whole


async def test_of_thousands_of_metrics_those_of_the_validation_are_there_first(place: Compared, monkeypatch) -> None:
    """Each trial has as many as fit, and the table says how many are left out."""
    whole = await place.compare(trials=place.trials)
    monkeypatch.setattr(metrics, "MOST_SUMMARIES", 3)
    assert [row for row in (await place.compare(trials=place.trials)).metrics if row.group == "validation"] == [
        row for row in whole.metrics if row.group == "validation"
    ]
    monkeypatch.setattr(metrics, "MOST_METRICS", 1)
    few = await place.compare(trials=place.trials)
    assert [row.name for row in few.metrics] == ["loss"]
    assert few.metrics_left_out == len(whole.metrics) - 1


async def test_i9_what_is_hidden_is_absent_like_what_there_is_not(place: Compared) -> None:
    """A shared link: the reader sees what they may, and of the rest its id alone."""
    experiment, trial = place.theirs
    asked = {"trials": [place.trials[0], trial, 987_654], "experiments": [experiment, place.experiments[1], 987_654]}
    found = await place.compare(**asked)
    assert [run.id for run in found.runs] == [place.trials[0], place.experiments[1]]
    assert (found.absent_trials, found.absent_experiments) == ([trial, 987_654], [experiment, 987_654])
    assert "theirs" not in found.model_dump_json()
    service = place.world.services[RunComparisons]
    curves = await service.curves(ALICE, [trial, place.trials[0], 987_654], names=["loss"])
    assert {one.trial_id for one in curves.items} == {place.trials[0]}
    assert curves.absent_trials == [trial, 987_654]
    code = await service.code(ALICE, asked["trials"], asked["experiments"])
    assert code.experiments == place.experiments
    assert (code.absent_trials, code.absent_experiments) == ([trial, 987_654], [experiment, 987_654])
    await place.world.services[Grants].put(BOB, experiment, GrantRequest(kind="user", name="alice"))
    assert [run.name for run in (await place.compare(experiments=[experiment])).runs] == ["theirs"]
    nobody = await place.compare(Caller("mallory"), **asked)
    assert (nobody.runs, nobody.metrics, nobody.config) == ([], [], [])


async def test_for_an_experiment_with_seeds_the_point_with_the_best_mean_stands(make_world) -> None:
    """Not the trial with the best value: a single good seed says little."""

    def lucky(launch):
        rate, seed = launch.info.hparams["lr"], launch.info.trial_id
        value = 0.0 if rate == 0.2 and seed == first_seed(launch) else rate
        yield ("metrics", "validation", 1, {"loss": value + (0.7 if rate == 0.2 and value else 0.0)})
        yield ("exit", 0)

    seen: dict[float, int] = {}

    def first_seed(launch) -> int:
        return seen.setdefault(launch.info.hparams["lr"], launch.info.trial_id)

    place = Compared(await make_world(lucky))
    await place.world.add_agent(slots=4)
    made = await place.world.submit(
        config(
            hyperparameters={"lr": {"type": "categorical", "vals": [0.1, 0.2]}},
            searcher={"name": "grid", "metric": "loss", "seeds": 2},
        ),
        ALICE,
    )
    await place.world.finish(made.id)
    best = await place.world.services[Experiments].get(ALICE, made.id)
    assert best.best is not None
    assert best.best.value == 0.0
    run = (await place.compare(experiments=[made.id])).runs[0]
    assert (run.seeds, len(run.trial_ids), run.hparams) == (2, 2, {"lr": 0.1})
    assert (run.best, run.deviation) == (pytest.approx(0.1), pytest.approx(0.0))


async def test_bounds(place: Compared) -> None:
    service = place.world.services[RunComparisons]
    for wrong in ([], range(1, MOST_RUNS + 2)):
        with pytest.raises(ConfigError, match=rf"name 1 to {MOST_RUNS} trials, experiments and runs"):
            await service.compare(ALICE, list(wrong))
        with pytest.raises(ConfigError, match="nothing to compare"):
            await service.code(ALICE, list(wrong))
    with pytest.raises(ConfigError, match=f"name 1 to {MOST_CURVE_TRIALS} trials and runs"):
        await service.curves(ALICE, list(range(1, MOST_CURVE_TRIALS + 2)))
    twice = await place.compare(trials=[place.trials[0]] * 60)
    assert len(twice.runs) == 1, "each run counts once"


def test_a_long_setting_is_cut_and_still_told_apart() -> None:
    from detlab.schemas.wire.registry import Difference

    long = runs._short(Difference(name="notes", values=["x" * 100_000, {"a": ["y" * 5000]}, math.inf, None]))
    assert [len(one) for one in long.values[:2]] == [runs.VALUE_BYTES + 1] * 2
    assert long.values[2:] == ["Infinity", None]
