"""Output of ended trials goes after its days, in small steps; what is gone is said, and cursors hold over it."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest
from services_scripted import ALICE, BOB, ROOT, CrashError, Flaw, FlawedStore, config, seen_storage
from sqlalchemy import func, select

from detlab.errors import Forbidden, NotFound
from detlab.schemas.logwire import KeepLogs
from detlab.schemas.wire import GrantRequest, LogRecord
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.logs import log_retention
from detlab_hub.services.logs.log_retention import next_cleaning
from detlab_hub.store.queries.logs import chunks as logchunks
from detlab_hub.store.queries.logs import cuts, lines
from detlab_hub.store.tables import LogChunk, LogCut

DAY = 86400.0
LINES = 12


def says(launch):
    for n in range(LINES):
        yield ("log", 0, f"line {n}")
    yield ("metrics", "validation", 1, {"loss": 1.0})


def talks_on(launch):
    for n in range(LINES):
        yield ("log", 0, f"line {n}")
    while True:
        yield ("wait",)


@pytest.fixture(autouse=True)
def a_line_in_each_chunk(monkeypatch):
    monkeypatch.setattr(logchunks, "CHUNK_CHARS", 1)
    monkeypatch.setattr(logchunks, "SMALL_CHARS", 0)


async def ended(world, **more):
    """The trial of an experiment that has ended."""
    if not world.agents:
        await world.add_agent()
    made = await world.submit(config(**more))
    await world.finish(made.id)
    (trial,) = await world.trials(made.id)
    return made.id, trial.id


async def lines_of(world, trial_id, **wanted):
    found, edges = await world.services[Trials].logs(ALICE, trial_id, **wanted)
    return [line.id for line in found], edges


async def clean(world, days):
    """Let so many days pass, and the cleaning at their end; return how many chunks are gone."""
    world.now += days * DAY
    return await world.services[log_retention.LogRetention].sweep()


async def test_output_goes_when_its_days_are_over_and_the_page_says_so(make_world):
    world = await make_world(says)
    _, trial_id = await ended(world, retention_policy={"log_retention_days": 30})
    _, kept = await ended(world)
    _, for_ever = await ended(world, retention_policy={"log_retention_days": -1})
    assert await clean(world, 29) == 0, "not a day too early"
    assert (await lines_of(world, trial_id))[1].removed == 0
    assert await clean(world, 2) == LINES
    when = world.now
    assert await lines_of(world, trial_id) == ([], lines.Edges(removed=LINES, removed_at=when))
    for wanted in ({"tail": 5}, {"search": "line"}, {"before": 4}, {"tail": 0}, {"regex": "line [1-9]"}):
        found, edges = await lines_of(world, trial_id, **wanted)
        assert (found, edges.removed, edges.removed_at) == ([], LINES, when), wanted
    assert (await lines_of(world, trial_id, after=3))[1].removed == 0, "the next page does not say it again"
    for other in (kept, for_ever):
        assert len((await lines_of(world, other))[0]) == LINES
    assert await clean(world, 10_000) == 0


async def test_the_masters_default_counts_where_the_experiment_says_nothing(make_world):
    world = await make_world(says, log_retention_days=7)
    _, trial_id = await ended(world)
    _, longer = await ended(world, retention_policy={"log_retention_days": 9})
    assert await clean(world, 8) == LINES
    assert (await lines_of(world, trial_id))[0] == []
    assert len((await lines_of(world, longer))[0]) == LINES
    assert await clean(world, 2) == LINES


async def test_what_has_not_ended_keeps_all_its_lines(make_world):
    world = await make_world(talks_on)
    await world.add_agent()
    made = await world.submit(config(retention_policy={"log_retention_days": 0}))
    await world.steps(LINES + 3)
    (trial,) = await world.trials(made.id)
    assert await clean(world, 1) == 0
    assert len((await lines_of(world, trial.id))[0]) == LINES
    await world.services[Experiments].pause(ALICE, made.id)
    await world.steps(3)
    assert await clean(world, 1) == 0, "one that is paused goes on some day"
    await world.services[Experiments].kill(ALICE, made.id)
    await world.steps(3)
    assert await clean(world, 1) == LINES, "0 days: at the next cleaning"


async def test_it_is_cleaned_after_a_start_and_then_once_a_day_at_the_hour(make_world):
    world = await make_world(says, log_cleaning_hour=3)
    await ended(world, retention_policy={"log_retention_days": 0})
    assert await world.services[log_retention.LogRetention].sweep() == LINES
    _, later = await ended(world, retention_policy={"log_retention_days": 0})
    assert await world.services[log_retention.LogRetention].sweep() == 0
    world.now = next_cleaning(world.now, 3)
    await world.services.tidy()
    assert (await lines_of(world, later))[1].removed == LINES


def test_the_hour_is_that_of_the_masters_time_zone():
    moment = datetime(2026, 3, 1, 12, 30).timestamp()
    assert next_cleaning(moment, 3) == datetime(2026, 3, 2, 3).timestamp()
    assert next_cleaning(moment, 13) == datetime(2026, 3, 1, 13).timestamp()
    exactly = datetime(2026, 3, 1, 13).timestamp()
    assert next_cleaning(exactly, 13) == datetime(2026, 3, 2, 13).timestamp()


@pytest.mark.parametrize("after_commit", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_crash_between_any_two_steps_of_a_cleaning_is_made_good(make_world, monkeypatch, at, after_commit):
    monkeypatch.setattr(log_retention, "CHUNKS_PER_STEP", 5)  # three steps: 5, 5 and 2
    world = await make_world(says)
    _, trial_id = await ended(world, retention_policy={"log_retention_days": 1})
    world.now += 2 * DAY
    world.services.context.store = FlawedStore(world.store, Flaw(at, after_commit), [0])
    with pytest.raises(CrashError):
        await world.services[log_retention.LogRetention].sweep()
    gone = min(5 * (at if after_commit else at - 1), LINES)
    await world.reboot()
    found, edges = await lines_of(world, trial_id)
    assert found == list(range(gone + 1, LINES + 1)), "the oldest go first"
    assert edges.removed == gone, "what is gone is counted, whenever the master dies"
    assert await world.services[log_retention.LogRetention].sweep() == LINES - gone
    assert (await lines_of(world, trial_id))[1].removed == LINES


async def test_a_cleaning_takes_so_many_steps_at_a_time_and_goes_on_where_it_was(make_world, monkeypatch):
    monkeypatch.setattr(log_retention, "CHUNKS_PER_STEP", 2)
    monkeypatch.setattr(log_retention, "STEPS_PER_SWEEP", 4)
    monkeypatch.setattr(log_retention, "TRIALS_PER_READ", 1)
    monkeypatch.setattr(log_retention, "READS_PER_SWEEP", 2)
    world = await make_world(says)
    trials = [(await ended(world, retention_policy={"log_retention_days": 0}))[1] for _ in range(3)]
    gone = [await world.services[log_retention.LogRetention].sweep() for _ in range(8)]
    assert sum(gone) == 3 * LINES
    assert max(gone) <= 8
    for trial_id in trials:
        assert (await lines_of(world, trial_id))[1].removed == LINES


async def test_lines_come_in_while_a_cleaning_is_under_way(make_world, monkeypatch):
    monkeypatch.setattr(log_retention, "CHUNKS_PER_STEP", 1)
    world = await make_world(says)
    _, old = await ended(world, retention_policy={"log_retention_days": 0})
    _, other = await ended(world)
    steps = []
    real = cuts.cut

    def counted(*args):
        steps.append(real(*args))
        return steps[-1]

    monkeypatch.setattr(cuts, "cut", counted)
    cleaning = asyncio.create_task(world.services[log_retention.LogRetention].sweep())
    while not steps:
        await asyncio.sleep(0)
    line = LogRecord(seq=1, time=world.now, text="new")
    await world.services.context.write(lambda unit: lines.append(unit.session, other, 1, [line]))
    assert len(steps) < LINES, "it waited for a step of the cleaning, not for all"
    assert await cleaning == LINES
    assert len((await lines_of(world, other))[0]) == LINES + 1
    assert (await lines_of(world, old))[0] == []


async def test_ids_go_on_after_a_cut_and_a_follower_misses_nothing(make_world, monkeypatch):
    monkeypatch.setattr(log_retention, "CHUNKS_PER_STEP", 5)
    monkeypatch.setattr(log_retention, "STEPS_PER_SWEEP", 1)
    world = await make_world(says)
    _, trial_id = await ended(world, retention_policy={"log_retention_days": 0})
    assert await world.services[log_retention.LogRetention].sweep() == 5
    assert (await lines_of(world, trial_id, after=3))[0] == list(range(6, LINES + 1))
    assert (await lines_of(world, trial_id, before=8))[0] == [6, 7]
    assert (await lines_of(world, trial_id, before=4))[0] == []
    monkeypatch.setattr(log_retention, "STEPS_PER_SWEEP", 200)
    assert await world.services[log_retention.LogRetention].sweep() == LINES - 5
    known = LINES
    line = LogRecord(seq=1, time=world.now, text="continued")
    await world.services.context.write(lambda unit: lines.append(unit.session, trial_id, 2, [line]))
    parts = world.services.context.follow_lines("ada", trial_id, lambda s: True, known)
    followed = [line async for part in parts for line in part]
    assert [(line.id, line.text) for line in followed] == [(LINES + 1, "continued")]


async def test_only_the_owner_of_an_experiment_says_how_long_its_output_is_kept(make_world):
    world = await make_world(says)
    experiment_id, trial_id = await ended(world)
    keep = world.services[log_retention.LogRetention].keep
    with pytest.raises(NotFound):
        await keep(BOB, KeepLogs(days=0, experiments=[experiment_id]))
    for write in (False, True):
        await world.services[Grants].put(ALICE, experiment_id, GrantRequest(kind="user", name="bob", write=write))
        with pytest.raises(Forbidden, match="only they, admins of its workspace and"):
            await keep(BOB, KeepLogs(days=0, experiments=[experiment_id]))
    assert (await keep(BOB, KeepLogs(days=0, all=True))).changed == [], "all of his own: none"
    assert (await keep(ROOT, KeepLogs(days=0, all=True))).changed == [], "nor everybody's, for an administrator"
    assert await clean(world, 10) == 0
    assert (await keep(ALICE, KeepLogs(days=1, experiments=[experiment_id]))).changed == [experiment_id]
    assert (await keep(ALICE, KeepLogs(days=1, experiments=[experiment_id]))).changed == [], "the same again"
    assert (await world.services[Experiments].get(ALICE, experiment_id)).log_retention_days == 1
    noted = [(one.actor, one.subject) for one in (await world.services[Audit].page(ROOT, action="experiment")).items]
    assert ("alice", f"experiment {experiment_id}") in noted
    assert await clean(world, 1) == LINES
    assert (await lines_of(world, trial_id))[1].removed == LINES


async def test_all_of_ones_own_at_once_and_back_to_the_default(make_world):
    world = await make_world(says)
    made = [(await ended(world))[0] for _ in range(3)]
    keep = world.services[log_retention.LogRetention].keep
    assert (await keep(ALICE, KeepLogs(days=0, all=True))).changed == made
    assert (await keep(ALICE, KeepLogs(days=None, experiments=made[:2]))).changed == made[:2]
    assert await clean(world, 1) == LINES


async def test_with_an_experiment_goes_what_was_noted_of_its_output(make_world, tmp_path):
    world = await make_world(says, **seen_storage(tmp_path))
    experiment_id, _ = await ended(world, retention_policy={"log_retention_days": 0})
    assert await clean(world, 1) == LINES
    await world.services[Experiments].delete(ALICE, experiment_id)
    left = await world.services.context.read(
        lambda s: [s.scalar(select(func.count()).select_from(table)) for table in (LogChunk, LogCut)]
    )
    assert left == [0, 0]


async def test_what_is_being_deleted_is_left_to_that(make_world, tmp_path):
    """A master that died after it had said that an experiment is to go: what of it is there is the deletion's."""
    world = await make_world(says, **seen_storage(tmp_path))
    experiment_id, _ = await ended(world, retention_policy={"log_retention_days": 0})
    world.services.context.store = FlawedStore(world.store, Flaw(1, after_commit=True), [0])
    with pytest.raises(CrashError):
        await world.services[Experiments].delete(ALICE, experiment_id)
    world.services.context.store = world.store
    assert (await world.view(experiment_id)).state == "DELETING"
    assert await clean(world, 1) == 0
    chunks = await world.services.context.read(lambda s: s.scalar(select(func.count()).select_from(LogChunk)))
    assert chunks == LINES
    await world.reboot()
    with pytest.raises(NotFound):
        await world.view(experiment_id)
