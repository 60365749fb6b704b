"""The audit log and the course of an experiment: who did what, in the transaction of the action."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, BOB, ROOT, CrashError, Flaw, config, training

from detlab.errors import Conflict, Forbidden, NotFound
from detlab.schemas.taskwire import CreateTask, SpawnRequest, TaskKind
from detlab.schemas.wire import CreateExperiment
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.base.callers import HubCaller
from detlab_hub.services.cluster.cluster import Cluster
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.timeline import Timeline
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.usertasks.spawns import Spawns
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.queries import audit as rows

DAY = 86400.0


async def actions(world, **wanted):
    page = await world.services[Audit].page(ROOT, **wanted)
    return [(item.actor, item.action, item.subject) for item in reversed(page.items)]


async def test_faces_audit_names_who_steered_what(make_world):
    world = await make_world(training(50))
    await world.add_agent()
    made = await world.submit(config(name="mine"))
    number = made.id
    await world.services[Experiments].pause(ALICE, number)
    await world.services[Experiments].pause(ALICE, number)
    await world.services[Experiments].activate(ROOT, number)
    await world.steps(3)
    (trial,) = await world.trials(number)
    await world.services[Trials].kill(ALICE, trial.id)
    await world.services[Experiments].kill(ROOT, number)
    await world.finish(number)
    await world.services[Experiments].delete(ALICE, number)
    assert await actions(world) == [
        ("alice", "experiment.create", f"experiment {number}"),
        ("alice", "experiment.pause", f"experiment {number}"),
        ("root", "experiment.activate", f"experiment {number}"),
        ("alice", "trial.kill", f"trial {trial.id}"),
        ("root", "experiment.kill", f"experiment {number}"),
        ("alice", "experiment.delete", f"experiment {number}"),
    ], "what changed nothing is no action; the log outlives the experiment"


async def test_faces_audit_has_no_deed_that_was_refused_or_repeated(make_world):
    world = await make_world(training(3))
    made = await world.submit(config(), idempotency_key="k")
    await world.submit(config(), idempotency_key="k")
    await world.services[Experiments].create(ALICE, CreateExperiment(config=config(), dry_run=True))
    for refused, action in ((NotFound, "pause"), (NotFound, "kill")):
        with pytest.raises(refused):
            await getattr(world.services[Experiments], action)(BOB, made.id)
    with pytest.raises(Conflict):
        await world.services[Experiments].delete(ALICE, made.id)
    assert await actions(world) == [("alice", "experiment.create", f"experiment {made.id}")]


@pytest.mark.parametrize("after_commit", [False, True])
async def test_faces_audit_and_deed_are_one_commit(make_world, after_commit):
    """The master dies before or after the commit of a kill: the action and its note are both there or both not."""
    world = await make_world(training(50))
    await world.add_agent()
    made = await world.submit(config())
    world.flaw = Flaw(at=world.writes[0] + 2, after_commit=after_commit)
    await world.reboot()
    with pytest.raises(CrashError):
        await world.services[Experiments].kill(ALICE, made.id)
    await world.reboot()
    noted = ("alice", "experiment.kill", f"experiment {made.id}") in await actions(world)
    killed = (await world.view(made.id)).state in ("STOPPING_KILLED", "CANCELED")
    assert noted is killed is after_commit


async def test_faces_audit_pages_and_filters(make_world):
    world = await make_world()
    for number in range(7):
        await world.submit(config(), ALICE if number % 2 else BOB)
    await world.services[Cluster].drain(ROOT, 5)
    seen, before = [], None
    while True:
        page = await world.services[Audit].page(ROOT, limit=3, before=before)
        seen += [item.id for item in page.items]
        before = page.next
        if before is None:
            break
    assert len(seen) == len(set(seen)) == 8
    assert seen == sorted(seen, reverse=True)
    assert {who for who, _, _ in await actions(world, actor="alice")} == {"alice"}
    assert await actions(world, action="cluster.drain") == [("root", "cluster.drain", "cluster")]
    assert len(await actions(world, action="experiment")) == 7
    assert await actions(world, action="exp") == []
    assert await actions(world, actor="al%") == await actions(world, action="e_periment") == []
    assert await actions(world, actor="nobody\x00", action="\ud800") == []


async def test_faces_audit_is_for_administrators(make_world):
    world = await make_world()
    with pytest.raises(Forbidden):
        await world.services[Audit].page(ALICE)


async def test_faces_audit_keeps_hostile_names_as_they_are(make_world):
    world = await make_world()
    name = "<script>alert(1)</script>\x1b[31m"
    await world.submit(config(name=name))
    (item,) = (await world.services[Audit].page(ROOT)).items
    assert item.detail.startswith("<script>")


async def test_faces_audit_drops_what_is_older_than_its_retention(make_world):
    world = await make_world(audit_keep=10 * DAY)
    made = await world.submit(config())
    world.now += 6 * DAY
    world.store.renew_lease()
    await world.services[Experiments].pause(ALICE, made.id)
    await world.services.tidy()
    assert len(await actions(world)) == 2
    world.now += 5 * DAY
    await world.services.tidy()
    assert [action for _, action, _ in await actions(world)] == ["experiment.pause"]


async def test_faces_audit_trims_in_steps(make_world):
    world = await make_world()

    def fill(unit):
        for number in range(rows.TRIM_BATCH + 500):
            rows.append(unit.session, float(number), "alice", "x.y", "z")

    await world.services.context.write(fill)
    assert await world.services.context.write(lambda unit: rows.trim(unit.session, 1200.0)) == rows.TRIM_BATCH
    assert await world.services.context.write(lambda unit: rows.trim(unit.session, 1200.0)) == 200
    assert await world.services.context.write(lambda unit: rows.trim(unit.session, 1200.0)) == 0


# --- the course of an experiment


async def test_faces_timeline_tells_the_course_of_an_experiment(make_world):
    world = await make_world(training(4))
    await world.add_agent()
    made = await world.submit(config())
    await world.steps(2)
    await world.services[Experiments].pause(ROOT, made.id)
    await world.steps(4)
    await world.services[Experiments].activate(ALICE, made.id)
    await world.finish(made.id)
    view = await world.services[Timeline].view(ALICE, made.id)
    (trial,) = await world.trials(made.id)
    said = [item.what for item in view.items]
    times = [item.time for item in view.items]
    assert times == sorted(times)
    assert said[0] == "created"
    assert said[-1] in ("ended", "trial ended", "attempt ended")
    for what, count in {
        "created": 1,
        "started": 1,
        "trial created": 1,
        "attempt started": 2,
        "attempt ended": 2,
        "paused": 1,
        "activated": 1,
        "trial ended": 1,
        "ended": 1,
    }.items():
        assert said.count(what) == count, what
    assert said.count("checkpoint") >= 2
    by = {item.what: item for item in view.items}
    assert by["paused"].detail == "by root"
    assert by["attempt started"].trial_id == trial.id
    assert by["attempt started"].run == 2
    assert by["ended"].detail == "COMPLETED"


async def test_faces_timeline_of_somebody_else_does_not_exist(make_world):
    world = await make_world()
    made = await world.submit(config())
    with pytest.raises(NotFound):
        await world.services[Timeline].view(BOB, made.id)
    assert (await world.services[Timeline].view(ROOT, made.id)).items


async def test_faces_timeline_of_a_long_course_is_cut(make_world, monkeypatch):
    world = await make_world(training(2))
    await world.add_agent(slots=4)
    made = await world.submit(config({"name": "random", "metric": "loss", "max_trials": 8}))
    await world.finish(made.id)
    monkeypatch.setattr("detlab_hub.services.experiments.timeline.LIMIT", 10)
    view = await world.services[Timeline].view(ALICE, made.id)
    assert len(view.items) == 11
    assert view.items[0].what == "earlier"
    assert view.items[-1].what == "ended"


async def test_faces_audit_names_who_made_and_ended_a_task(make_world):
    world = await make_world()
    wanted = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "true"}, name="<i>mine</i>", idempotency_key="k")
    task = (await world.services[UserTasks].create(ALICE, wanted)).task
    await world.services[UserTasks].create(ALICE, wanted)
    with pytest.raises(NotFound):
        await world.services[UserTasks].end(BOB, task.id)
    await world.services[UserTasks].end(ROOT, task.id)
    await world.services[UserTasks].end(ROOT, task.id)
    assert await actions(world) == [
        ("alice", "task.create", f"task {task.id}"),
        ("root", "task.kill", f"task {task.id}"),
    ]


async def test_faces_audit_says_that_a_server_was_stopped_through_the_hub(make_world):
    world = await make_world()
    wanted = SpawnRequest(owner="alice", server_name="nb", key="k" * 16, base_url="/user/alice/nb/")
    task = (await world.services[Spawns].post(HubCaller(), wanted)).task_id
    await world.services[Spawns].delete(HubCaller(), task)
    await world.services[Spawns].delete(HubCaller(), task)
    assert await actions(world) == [("alice", "task.create", f"task {task}"), ("hub", "task.stop", f"task {task}")]
