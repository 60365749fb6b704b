"""What tasks report and ask: records, checkpoints, preemption, tokens, live streams."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math

import pytest
from services_scripted import ALICE, BOB, DIGEST, ROOT, asha, config, report, training

from detlab.errors import CheckpointError, Conflict, Forbidden, NotFound
from detlab.schemas.checkpoint_ids import checkpoint_id
from detlab.schemas.wire import (
    CheckpointFile,
    CommitCheckpoint,
    EnrolRequest,
    ExperimentState,
    LogRecord,
    MetricsRecord,
    ProgressRecord,
    RecordBatch,
    StatusRecord,
)
from detlab_hub.services import AgentCaller, EnrolCaller
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.checkpoints.checkpoints import Checkpoints
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.services.ingest.tokens import Tokens
from detlab_hub.services.master import TIDY_PERIOD
from detlab_hub.services.streams.stream import Stream
from detlab_hub.store.queries.metrics import curves
from detlab_hub.store.tables import SearcherJournal
from testbed.waiting import soon

UUID = checkpoint_id(0x11111111111141118111111111111111, trial_id=1)


def idle(launch):
    while True:
        yield ("wait",)


async def one_task(make_world, script=idle, searcher=None, **more):
    """A world with one running task that does nothing by itself."""
    world = await make_world(script, **more)
    agent = await world.add_agent()
    made = await world.submit(config(searcher))
    await world.steps(2)
    (task,) = agent.tasks.values()
    return world, made, task


def metrics(seq, values, *, group="validation", step=1, time=5.0):
    return MetricsRecord(seq=seq, time=time, group=group, steps_completed=step, metrics=values)


async def test_records_are_taken_once_and_in_order(make_world):
    world, _made, task = await one_task(make_world)
    first = [metrics(1, {"loss": 1.0}), metrics(2, {"loss": 0.5}, step=2)]
    assert (await task.send("metrics", *first)).acked == 2
    assert (await task.send("metrics", *first, metrics(3, {"loss": 0.25}, step=3))).acked == 3
    assert (await task.send("metrics", first[0])).acked == 3
    trial = await world.services[Trials].get(ALICE, task.caller.trial_id)
    assert trial.summary["validation"]["loss"].count == 3
    assert (trial.best_validation, trial.latest_validation, trial.steps_completed) == (0.25, 0.25, 3)
    lines = [LogRecord(seq=n, time=1.0, text=f"line {n}", rank=n % 2) for n in (1, 2, 3)]
    assert (await task.send("logs", *lines)).acked == 3
    assert (await task.send("logs", *lines)).acked == 3
    got, edges = await world.services[Trials].logs(ALICE, trial.id)
    assert [line.text for line in got] == ["line 1", "line 2", "line 3"]
    assert (edges.next, edges.older) == (None, None)
    page, edges = await world.services[Trials].logs(ALICE, trial.id, limit=2)
    assert edges.next is not None
    rest, _ = await world.services[Trials].logs(ALICE, trial.id, after=edges.next)
    assert [line.text for line in page + rest] == ["line 1", "line 2", "line 3"]
    tail, _ = await world.services[Trials].logs(ALICE, trial.id, tail=1)
    assert [line.text for line in tail] == ["line 3"]
    ranked, _ = await world.services[Trials].logs(ALICE, trial.id, rank=1)
    assert [line.text for line in ranked] == ["line 1", "line 3"]


async def test_records_that_can_never_be_taken_do_not_block_the_rest(make_world):
    world, _made, task = await one_task(make_world)
    ack = await task.send(
        "metrics",
        metrics(1, {"loss": 1.0}, group="bad.group"),
        metrics(2, {"n" * 513: 1.0}),
        metrics(3, {"x": ["y" * 300_000]}),
        metrics(4, {"x": 1.0}, step=2**70),
        LogRecord(seq=5, time=1.0, text="wrong stream"),
        metrics(6, {f"m{n}": 1.0 for n in range(20_001)}),
        metrics(7, {"loss": 0.5, "<img onerror=x>": 1.0, "matrix": [[1, 2], [3, 4]], "huge": 10**400}),
        metrics(2**70, {"loss": 1.0}),
    )
    assert ack.acked == 7
    assert [refused.seq for refused in ack.refused] == [2**70, 1, 2, 3, 4, 5, 6]
    assert all(refused.code and refused.message for refused in ack.refused)
    trial = await world.services[Trials].get(ALICE, task.caller.trial_id)
    assert trial.summary["validation"]["<img onerror=x>"].last == 1.0
    values, _ = await world.services[Trials].values(ALICE, trial.id)
    assert {value["name"]: value["value"] for value in values} == {"matrix": [[1, 2], [3, 4]], "huge": 10**400}


async def test_records_with_times_that_are_none_are_kept(make_world):
    world, _made, task = await one_task(make_world)
    nan, inf = float("nan"), float("inf")
    await task.send("metrics", metrics(1, {"loss": 1.0}, time=nan), ProgressRecord(seq=2, time=1.0, progress=nan))
    await task.send("logs", LogRecord(seq=1, time=inf, rank=2**40, text="a\x00b\ud800"))
    trial = await world.services[Trials].get(ALICE, task.caller.trial_id)
    assert trial.summary["validation"]["loss"].count == 1
    ((line,), _) = await world.services[Trials].logs(ALICE, trial.id)
    assert (line.rank, line.time) == (None, world.now)


async def test_records_a_metric_that_is_minus_infinity_is_not_the_best(make_world):
    """A training that had diverged won the search, and its checkpoint was "the best"."""
    world, made, task = await one_task(make_world)
    for step, loss in ((1, -math.inf), (2, 0.5), (3, -math.inf)):
        await task.send("metrics", metrics(step, {"loss": loss}, step=step))
    assert (await world.view(made.id)).best.value == 0.5
    trial = await world.services[Trials].get(ALICE, task.caller.trial_id)
    assert (trial.best_validation, trial.latest_validation) == (0.5, -math.inf)

    def stored(s):
        low = curves.trial_best(s, trial.id, "validation", "loss", True)
        return low, curves.experiment_best(s, made.id, "validation", "loss", True)

    assert await world.services.context.read(stored) == ((2, 0.5), (trial.id, 2, 0.5))


async def test_records_of_progress_and_status_show_up(make_world):
    world, made, task = await one_task(make_world)
    await task.send(
        "metrics", ProgressRecord(seq=1, time=1.0, progress=0.5), StatusRecord(seq=2, time=1.0, status="warm")
    )
    trial = await world.services[Trials].get(ALICE, task.caller.trial_id)
    assert (trial.progress, trial.status) == (0.5, "warm")
    assert (await world.view(made.id)).progress == 0.5
    await world.reboot()
    await task.send("metrics", metrics(3, {"loss": 1.0}))
    assert (await world.view(made.id)).progress == 0.5


async def test_records_prove_that_a_task_runs_before_its_agent_says_so(make_world):
    world = await make_world(idle)
    agent = await world.add_agent()
    made = await world.submit(config())
    await world.services.schedule()
    launch = next(message for message in agent.inbox if message.type == "launch")
    await agent._launch(launch)
    agent.drop()
    (task,) = agent.tasks.values()
    await task.send("metrics", metrics(1, {"loss": 1.0}))
    (trial,) = await world.trials(made.id)
    assert trial.display_state == "RUNNING"


async def test_records_a_damaged_journal_fails_the_experiment_not_the_master(make_world):
    world, made, task = await one_task(make_world, searcher=asha(trials=2, concurrent=1))

    def damage(s):
        s.get(SearcherJournal, (made.id, 1)).event = {"type": "from the future"}

    world.store.write_sync(damage)
    await world.reboot()
    await task.send("metrics", metrics(1, {"loss": 1.0, "batches": 1}))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.ERROR
    assert "journal" in view.failure.message


# --- preemption


async def test_records_preempt_wakes_at_once(make_world):
    world, made, task = await one_task(make_world)
    waiting = asyncio.create_task(world.services[Tasks].preempt(task.caller, 60))
    await soon(lambda: world.services.context.wakeups.has_waiters(("allocation", task.caller.allocation_id)))
    assert not waiting.done()
    await world.services[Experiments].pause(ALICE, made.id)
    reply = await asyncio.wait_for(waiting, 2)
    assert (reply.preempt, reply.reason) == (True, "pause")
    assert (await world.services[Tasks].preempt(task.caller, 60)).preempt


async def test_records_preempt_returns_when_its_time_is_over(make_world):
    world, _made, task = await one_task(make_world)
    reply = await asyncio.wait_for(world.services[Tasks].preempt(task.caller, 0.05), 5)
    assert not reply.preempt


# --- checkpoints


def commit(**more):
    fields = {
        "uuid": UUID,
        "steps_completed": 3,
        "files": {"a/b.pt": CheckpointFile(size=3, digest=DIGEST)},
        "manifest_digest": DIGEST,
        **more,
    }
    return CommitCheckpoint(**fields)


async def test_I5_a_commit_is_idempotent_and_never_replaced(make_world):
    world, made, task = await one_task(make_world)
    tasks = world.services[Tasks]
    first = await tasks.commit_checkpoint(task.caller, commit(metadata={"a": 1}))
    assert await tasks.commit_checkpoint(task.caller, commit(metadata={"a": 1})) == first
    with pytest.raises(Conflict):
        await tasks.commit_checkpoint(task.caller, commit(manifest_digest="sha256:" + "1" * 64))
    (trial,) = await world.trials(made.id)
    assert trial.latest_checkpoint == UUID
    assert (await tasks.get_checkpoint(task.caller, UUID)).metadata == {"a": 1}
    await tasks.delete_checkpoint(task.caller, UUID)
    await tasks.delete_checkpoint(task.caller, UUID)
    with pytest.raises(NotFound):
        await tasks.get_checkpoint(task.caller, UUID)
    assert (await world.trials(made.id))[0].latest_checkpoint is None
    with pytest.raises(Conflict):
        await tasks.commit_checkpoint(task.caller, commit())


WRONG_COMMITS: list[dict] = [
    {"uuid": "../../etc"},
    {"uuid": UUID.replace("1", "A")},
    {"manifest_digest": "md5:x"},
    {"steps_completed": -1},
    {"steps_completed": 2**60},
    {"files": {"../x": CheckpointFile(size=1, digest=DIGEST)}},
    {"files": {"/etc/passwd": CheckpointFile(size=1, digest=DIGEST)}},
    {"files": {"a//b": CheckpointFile(size=1, digest=DIGEST)}},
    {"files": {"a/./b": CheckpointFile(size=1, digest=DIGEST)}},
    {"files": {"": CheckpointFile(size=1, digest=DIGEST)}},
    {"files": {"x": CheckpointFile(size=-1, digest=DIGEST)}},
    {"files": {"x": CheckpointFile(size=1, digest="sha256:zz")}},
    {"metadata": {"x": "y" * 2_000_000}},
]


async def test_records_manifests_that_are_none_are_refused(make_world):
    world, made, task = await one_task(make_world)
    for wrong in WRONG_COMMITS:
        with pytest.raises(CheckpointError):
            await world.services[Tasks].commit_checkpoint(task.caller, commit(**wrong))
    assert await world.services[Experiments].checkpoints(ALICE, made.id) == []


async def test_records_checkpoint_files_are_served_by_digest_and_verified(make_world, tmp_path):
    world, _made, task = await one_task(make_world)
    data = b"weights"
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    folder = tmp_path / "checkpoints" / UUID / "a"
    folder.mkdir(parents=True)
    (folder / "b.pt").write_bytes(data)
    await world.services[Tasks].commit_checkpoint(
        task.caller, commit(files={"a/b.pt": CheckpointFile(size=len(data), digest=digest)})
    )
    found = await world.services[Checkpoints].open_file(ALICE, UUID, digest)
    assert (b"".join(found.chunks), found.size) == (data, len(data))
    with pytest.raises(NotFound):
        await world.services[Checkpoints].open_file(ALICE, UUID, DIGEST)
    (folder / "b.pt").write_bytes(b"altered")
    found = await world.services[Checkpoints].open_file(ALICE, UUID, digest)
    with pytest.raises(CheckpointError, match="not what was committed"):
        next(filter(None, found.chunks))
    secret = tmp_path / "secret"
    secret.write_bytes(data)
    (folder / "b.pt").unlink()
    (folder / "b.pt").symlink_to(secret)
    with pytest.raises(NotFound):
        await world.services[Checkpoints].open_file(ALICE, UUID, digest)


async def test_records_a_manifest_whose_sizes_are_not_those_of_the_files_is_refused(make_world, tmp_path):
    world, made, task = await one_task(make_world)
    folder = tmp_path / "checkpoints" / UUID
    folder.mkdir(parents=True)
    (folder / "b.pt").write_bytes(b"weights")
    with pytest.raises(CheckpointError, match="has 7 bytes in the storage, not the 6"):
        await world.services[Tasks].commit_checkpoint(
            task.caller, commit(files={"b.pt": CheckpointFile(size=6, digest=DIGEST)})
        )
    assert await world.services[Experiments].checkpoints(ALICE, made.id) == []
    seen_elsewhere = {"b.pt": CheckpointFile(size=7, digest=DIGEST), "c.pt": CheckpointFile(size=9, digest=DIGEST)}
    await world.services[Tasks].commit_checkpoint(task.caller, commit(files=seen_elsewhere))


async def test_records_a_task_reads_only_its_own_checkpoints(make_world):
    world = await make_world(idle)
    agent = await world.add_agent(slots=2)
    await world.submit(config())
    await world.submit(config(), caller=BOB)
    await world.steps(2)
    mine, other = agent.tasks.values()
    await world.services[Tasks].commit_checkpoint(mine.caller, commit())
    for call in (
        world.services[Tasks].get_checkpoint(other.caller, UUID),
        world.services[Tasks].delete_checkpoint(other.caller, UUID),
    ):
        with pytest.raises(NotFound):
            await call
    with pytest.raises(Forbidden):
        await world.services[Tasks].commit_checkpoint(other.caller, commit())


async def test_records_metadata_and_best_validation(make_world):
    world, _made, task = await one_task(make_world)
    tasks = world.services[Tasks]
    assert await tasks.get_metadata(task.caller) == {}
    await tasks.put_metadata(task.caller, {"a": {"b": 1}})
    assert await tasks.get_metadata(task.caller) == {"a": {"b": 1}}
    assert (await tasks.best_validation(task.caller)).value is None
    await task.send("metrics", metrics(1, {"loss": 2.0}), metrics(2, {"loss": "NaN"}, step=2))
    assert (await tasks.best_validation(task.caller)).value == 2.0


# --- tokens


async def test_records_tokens_expire_renew_and_are_known_by_their_hash(make_world):
    world, _made, task = await one_task(make_world, task_token_ttl=100.0, agent_reconnect_wait=1e9)
    tokens, old = world.services[Tokens], task.launch.task_token
    assert await tokens.resolve(old) == task.caller
    world.now += 60
    fresh = await world.services[Tasks].renew_token(task.caller)
    assert await tokens.resolve(old) == task.caller
    world.now += 60
    assert await tokens.resolve(old) is None
    assert await tokens.resolve(fresh.token) == task.caller
    assert await tokens.resolve("dttask_" + "x" * 43) is None
    assert await tokens.resolve("some hub token") is None
    await world.services.tidy()
    assert await tokens.resolve(fresh.token) == task.caller


async def test_records_a_long_outage_of_the_master_does_not_cost_a_task_its_token(make_world):
    world, _made, task = await one_task(make_world, task_token_ttl=100.0)
    world.now += 5000
    await world.reboot()
    assert await world.services[Tokens].resolve(task.launch.task_token) == task.caller


async def test_a_launcher_that_is_cut_off_longer_than_its_token_lives_is_not_locked_out(make_world):
    """Its agent is there and holds the task: for as long as that is so, the token outlives its date."""
    world, _made, task = await one_task(make_world, task_token_ttl=100.0)
    for _ in range(10):  # two hundred seconds in which the launcher does not come through
        await world.steps(4, 5.0)
        await world.services.tidy()
    assert await world.services[Tokens].resolve(task.launch.task_token) == task.caller
    fresh = await world.services[Tasks].renew_token(task.caller)
    assert (await task.send("logs", LogRecord(seq=1, time=1.0, text="back"))).acked == 1
    for _ in range(6):
        await world.steps(4, 5.0)
        await world.services[Tasks].renew_token(task.caller)
        await world.services.tidy()
    assert await world.services[Tokens].resolve(task.launch.task_token) is None, "who renews needs nobody's word"
    assert await world.services[Tokens].resolve(fresh.token) is None


async def test_no_token_ends_between_two_looks_at_late_launchers_however_short_its_life_is(make_world):
    """One of two minutes had half of it left at one look, and had ended at the next (seed 2758)."""
    world, _made, task = await one_task(make_world, task_token_ttl=2 * TIDY_PERIOD, agent_reconnect_wait=1e9)
    for _ in range(6):
        await world.steps(12, TIDY_PERIOD / 12)
        await world.services.tidy()
        assert await world.services[Tokens].resolve(task.launch.task_token) == task.caller


async def test_nobody_vouches_for_the_launcher_of_a_lost_agent(make_world):
    world, _made, task = await one_task(make_world, task_token_ttl=100.0, agent_reconnect_wait=1e9)
    world.agents["node"].drop()
    for _ in range(10):
        world.now += 20
        await world.services.tidy()
    assert await world.services[Tokens].resolve(task.launch.task_token) is None


async def test_records_enrolment(make_world):
    secret = "dtenrol_embedded"
    world = await make_world(enrolment_secret_hash=hashlib.sha256(secret.encode()).hexdigest())
    agents, tokens = world.services[Agents], world.services[Tokens]
    with pytest.raises(Forbidden):
        await agents.create_enrolment(ALICE, 60)
    made = await agents.create_enrolment(ROOT, 60)
    for token in (secret, made.token):
        caller = await tokens.resolve(token)
        assert isinstance(caller, EnrolCaller)
        reply = await agents.enrol(caller, EnrolRequest(agent_id="node"))
        assert await tokens.resolve(reply.token) == AgentCaller("node")
    first = reply.token
    again = await agents.enrol(caller, EnrolRequest(agent_id="node"))
    assert await tokens.resolve(first) is None
    assert await tokens.resolve(again.token) == AgentCaller("node")
    world.now += 61
    assert await tokens.resolve(made.token) is None
    with pytest.raises(Conflict, match="protocol"):
        await agents.enrol(caller, EnrolRequest(agent_id="node", protocol=99))
    with pytest.raises(Conflict):
        await agents.enrol(caller, EnrolRequest(agent_id="a\nb"))


async def test_records_nobody_enrols_under_the_name_of_a_connected_agent(make_world):
    """Any enrolment token gave the key of any agent, and with it the launches, code and tokens of its tasks."""
    world = await make_world()
    agent = await world.add_agent("node")
    with pytest.raises(Conflict, match="is connected"):
        await world.services[Agents].enrol(EnrolCaller(), EnrolRequest(agent_id="node"))
    agent.drop()
    reply = await world.services[Agents].enrol(EnrolCaller(), EnrolRequest(agent_id="node"))
    assert await world.services[Tokens].resolve(reply.token) == AgentCaller("node")


async def test_records_an_agent_delivers_only_for_its_own_tasks(make_world):
    world, _made, task = await one_task(make_world)
    batch = RecordBatch(stream="logs", records=[LogRecord(seq=1, time=1.0, text="left behind")])
    allocation = task.caller.allocation_id
    assert (await world.services[Agents].records(AgentCaller("node"), allocation, batch)).acked == 1
    for agent, name in ((AgentCaller("other"), allocation), (AgentCaller("node"), "1.x.1")):
        with pytest.raises(Forbidden):
            await world.services[Agents].records(agent, name, batch)
    with pytest.raises(Forbidden):
        await world.services[Agents].connect(AgentCaller("x"), world.agents["node"].hello(), lambda message: None)


async def test_records_slots_of_others_are_shown_without_their_allocation(make_world):
    world, _made, task = await one_task(make_world)
    shown = {}
    for caller in (ALICE, BOB, ROOT):
        (agent,) = await world.services[Agents].list(caller)
        shown[caller.name] = agent.slots[0].allocation_id
    assert shown == {"alice": task.caller.allocation_id, "bob": "another user", "root": task.caller.allocation_id}


# --- streams


async def collect(stream, until, seconds=5.0):
    """Read batches until a predicate over all events so far holds."""
    got = []

    async def read():
        async for batch in stream:
            got.extend(batch)
            if until(got):
                return

    await asyncio.wait_for(read(), seconds)
    await stream.aclose()
    return got


async def test_records_the_stream_goes_on_from_the_snapshot(make_world):
    world, made, task = await one_task(make_world)
    await task.send("metrics", metrics(1, {"loss": 1.0, "acc": 0.1}))
    snapshot = await world.services[Experiments].curves(ALICE, made.id, group="validation", names=["loss"])
    assert [curve.values for curve in snapshot.curves] == [[1.0]]
    await task.send("metrics", metrics(2, {"loss": "NaN", "acc": 0.2}, step=2), metrics(3, {"acc": 1.0}, step=3))
    stream = world.services[Stream].events(ALICE, made.id, after=snapshot.cursor, names=["loss"])
    got = await collect(stream, lambda events: len(events) >= 2)
    (metric,) = [event for event in got if event.kind == "metrics"]
    assert metric.data["metrics"] == {"loss": "NaN"}
    (trial,) = [event for event in got if event.kind == "trial"]
    assert trial.data["steps_completed"] == 3
    assert all(event.id > snapshot.cursor for event in got)
    for event in got:
        json.dumps(event.model_dump(mode="json"), allow_nan=False)


async def test_records_the_stream_wakes_on_commit_and_ends_with_the_services(make_world):
    world, made, task = await one_task(make_world)
    stream = world.services[Stream].events(ALICE, made.id)
    reading = asyncio.create_task(collect(stream, lambda events: any(e.kind == "metrics" for e in events)))
    await soon(lambda: world.services.context.wakeups.has_waiters("streams"))
    await task.send("metrics", metrics(1, {"loss": 1.0}))
    assert await asyncio.wait_for(reading, 5)
    stream = world.services[Stream].events(ALICE, None)
    waiting = asyncio.ensure_future(anext(stream))
    await soon(lambda: world.services.context.wakeups.has_waiters("streams"))
    await world.services.stop()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(waiting, 5)


async def test_records_a_cursor_that_was_trimmed_gets_a_resync(make_world):
    world, made, task = await one_task(make_world, event_keep=3)
    for seq in range(1, 20):
        await task.send("metrics", metrics(seq, {"loss": 1.0}, step=seq))
    await world.services.tidy()
    got = await collect(world.services[Stream].events(ALICE, made.id, after=1), bool)
    assert [event.kind for event in got] == ["resync"]
    got = await collect(world.services[Stream].events(ALICE, made.id, after=10**9), bool)
    assert [event.kind for event in got] == ["resync"]


async def test_I9_the_stream_of_everything_shows_ones_own(make_world):
    world = await make_world(training(2))
    await world.add_agent()
    mine = await world.submit(config())
    other = await world.submit(config(), caller=BOB)
    await world.finish(mine.id)
    await world.finish(other.id)
    for caller, wanted in ((ALICE, {mine.id}), (ROOT, {mine.id, other.id})):
        stream = world.services[Stream].events(caller, None, after=0)
        got = await collect(
            stream,
            lambda events, wanted=wanted: (
                {e.experiment_id for e in events if e.kind == "experiment" and e.data["state"] == "COMPLETED"} >= wanted
            ),
        )
        assert {event.experiment_id for event in got if event.kind != "cluster"} == wanted
        assert not any(event.data for event in got if event.kind == "cluster"), "it tells nothing of anybody"
        assert "metrics" not in {event.kind for event in got}


async def test_records_log_streams_end_with_the_trial(make_world):
    def script(launch):
        yield ("log", None, "one")
        yield ("log", None, "two")
        yield report(1, loss=1.0)
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config())
    (trial,) = await world.trials(made.id)
    lines = []

    async def read():
        async for batch in world.services[Stream].logs(ALICE, trial.id):
            lines.extend(line.text for line in batch)

    reading = asyncio.create_task(read())
    await world.finish(made.id)
    await asyncio.wait_for(reading, 5)
    assert lines == ["one", "two"]


async def test_records_curves_of_many_trials_show_the_best_and_the_newest(make_world):
    def script(launch):
        yield report(1, loss=abs(launch.info.trial_index - 2.0))
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent(slots=4)
    searcher = {"name": "random", "metric": "loss", "max_trials": 10, "max_concurrent_trials": 4}
    made = await world.submit(config(searcher))
    await world.finish(made.id)
    snapshot = await world.services[Experiments].curves(ALICE, made.id, max_trials=4)
    assert [trial.index for trial in snapshot.trials] == [1, 2, 8, 9]
    assert {curve.trial_id for curve in snapshot.curves} == {trial.id for trial in snapshot.trials}
