"""User tasks in workspaces: members see the state of each, and nobody but its owner gets at what is in it (I9)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from services_scripted import ALICE, BOB, ROOT, config
from stream_reading import members, reading, until

from detlab.errors import ConfigError, Conflict, Forbidden, NotFound, ResourcesError
from detlab.schemas.jobwire import JobUpdate, QuotaRequest, QuotaTo
from detlab.schemas.taskwire import CreateTask, CreateTaskReply, SpawnRequest, TaskKind
from detlab.schemas.wire import GrantTo, TrialState
from detlab.schemas.wire.projects import MoveTask
from detlab.schemas.wire.workspaces import EditWorkspace, MemberRequest, WorkspaceDefaults
from detlab_hub.core.scheduling import read_pools
from detlab_hub.services import Caller
from detlab_hub.services.admission.quotas import Quotas
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.base.callers import HubCaller
from detlab_hub.services.projects.members import MembersOfWorkspaces
from detlab_hub.services.projects.projects import Projects
from detlab_hub.services.projects.workspaces import Workspaces
from detlab_hub.services.queue.jobs import Jobs
from detlab_hub.services.usertasks.outputs import Outputs
from detlab_hub.services.usertasks.servers import Servers
from detlab_hub.services.usertasks.spawns import Spawns
from detlab_hub.services.usertasks.task_moves import TaskMoves
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.tables import TaskRow

VIC, WANDA, EVE = (replace(BOB, name=name) for name in ("vic", "wanda", "eve"))
SECRET = "hunter2-of-alice"
MASKED = {
    "entrypoint": f"curl -H 'X-Key: {SECRET}' http://x",
    "environment": {"environment_variables": [f"NOTE={SECRET}", f"API_KEY={SECRET}"], "image": "lab/torch:2"},
    "resources": {"slots": 1, "memory": "2G"},
    "bind_mounts": [{"host_path": f"/data/{SECRET}", "container_path": "/data"}],
}


def forever(launch: Any) -> Any:
    yield ("log", None, f"says {SECRET}")
    while True:
        yield ("wait",)


async def lab(make_world: Any, **more: Any) -> Any:
    """A world with alice's workspace of an editor (bob), a viewer (vic) and a second admin (wanda)."""
    world = await make_world(forever, **more)
    await world.workspace("lab", "digits", bob="editor", vic="viewer", wanda="admin")
    return world


async def start(world: Any, caller: Caller = ALICE, **said: Any) -> CreateTaskReply:
    request = CreateTask(kind=TaskKind.COMMAND, name="t", config={"entrypoint": "true", **said})
    return await world.services[UserTasks].create(caller, request)


async def made(world: Any, caller: Caller = ALICE, **said: Any) -> str:
    reply = await start(world, caller, **said)
    assert reply.task is not None
    return reply.task.id


async def ids(world: Any, caller: Caller, **where: Any) -> list[str]:
    return [one.id for one in (await world.services[UserTasks].list(caller, **where)).items]


# --- seen


async def test_i9_members_see_the_state_of_a_task_and_nothing_that_is_in_it(make_world):
    world = await lab(make_world)
    await world.add_agent(slots=2)
    task = await made(world, workspace="lab", project="digits", **MASKED)
    await world.steps(3)
    tasks = world.services[UserTasks]
    own = await tasks.get(ALICE, task)
    assert (own.opens, own.may, own.workspace, own.project) == (True, "own", "lab", "digits")
    assert SECRET in own.config["entrypoint"]
    for member, may in ((BOB, "read"), (VIC, "read"), (WANDA, "write")):
        seen = await tasks.get(member, task)
        assert (seen.name, seen.owner, seen.kind, seen.display_state) == ("t", "alice", TaskKind.COMMAND, "RUNNING")
        assert (seen.slots_needed, seen.resource_pool, seen.may, seen.opens) == (1, "default", may, False)
        assert (seen.url, seen.server_name, seen.agent_id, seen.slots, seen.image) == (None, None, None, [], None)
        assert seen.config == {
            "runtime": own.config["runtime"],
            "resources": {key: own.config["resources"][key] for key in seen.config["resources"]},
            "environment": {"image": own.config["environment"]["image"]},
        }
        assert set(seen.config["resources"]) <= {"slots", "priority", "resource_pool", "shm_size", "memory", "cpus"}
        (listed,) = (await tasks.list(member, workspace="alice/lab")).items
        for view in (seen, listed):
            assert SECRET not in view.model_dump_json()
    with pytest.raises(NotFound, match="there is no task"):
        await tasks.get(EVE, task)


async def test_i9_nobody_but_its_owner_gets_at_what_is_in_a_task(make_world):
    world = await lab(make_world)
    await world.add_agent(slots=2)
    task = await made(world, workspace="lab", **MASKED)
    await world.steps(3)
    tasks, outputs, jobs = (world.services[one] for one in (UserTasks, Outputs, Jobs))

    async def followed(caller: Caller) -> None:
        async for _ in tasks.follow_logs(caller, task):
            return

    assert (await tasks.logs(ALICE, task))[0]
    await followed(ALICE)
    for member in (BOB, VIC, WANDA):
        for call in (
            tasks.logs(member, task),
            tasks.logs(member, task, regex="says"),
            followed(member),
            outputs.list(member, task),
            outputs.open(member, task, "sha256:" + "0" * 64),
        ):
            with pytest.raises(Forbidden, match="see its state, not what is in it"):
                await call
        for change in (JobUpdate(priority=1), JobUpdate(pool="default")):
            with pytest.raises(NotFound, match="there is no job"):
                await jobs.update(member, task, change)
    assert task in [one.id for one in (await jobs.list(ALICE)).items]
    for other in (BOB, VIC, WANDA, EVE):
        assert task not in (await jobs.list(other)).model_dump_json()
    for call in (
        tasks.logs(EVE, task),
        followed(EVE),
        outputs.list(EVE, task),
        outputs.open(EVE, task, "sha256:" + "0" * 64),
        tasks.get(EVE, task),
        tasks.end(EVE, task),
        jobs.why(EVE, task),
    ):
        with pytest.raises(NotFound):
            await call


async def test_a_server_that_lies_in_a_workspace_is_not_opened_by_its_members(make_world):
    world = await lab(make_world)
    await world.add_agent(slots=1)
    request = SpawnRequest(
        owner="alice",
        server_name="analysis",
        key="k" * 16,
        kind=TaskKind.NOTEBOOK,
        base_url="/user/alice/analysis/",
        config={"workspace": "lab"},
        environment={"JUPYTERHUB_API_TOKEN": SECRET},
    )
    spawned = await world.services[Spawns].post(HubCaller(), request)
    await world.steps(3)
    own = await world.services[UserTasks].get(ALICE, spawned.task_id)
    assert (own.workspace, own.server_name) == ("lab", "analysis")
    seen = await world.services[UserTasks].get(WANDA, spawned.task_id)
    assert "analysis" not in seen.model_dump_json()
    assert "/user/" not in seen.model_dump_json()
    for name in ("analysis", "alice/analysis"):  # a server's name means one's own alone
        with pytest.raises(NotFound):
            await world.services[UserTasks].get(WANDA, name)
    await world.services[Servers].end(WANDA, spawned.task_id)
    assert (await world.services[UserTasks].get(ALICE, spawned.task_id)).state is not TrialState.ACTIVE


# --- started


async def test_a_task_is_put_where_its_owner_may_put_something(make_world):
    world = await lab(make_world)
    for caller, where, path, said in (
        (ALICE, {"workspace": "nowhere"}, "workspace", "there is no workspace 'nowhere'"),
        (ALICE, {"workspace": "lab", "project": "letters"}, "project", "there is no project 'letters'"),
        (EVE, {"workspace": "alice/lab"}, "workspace", "there is no workspace 'alice/lab'"),
        (EVE, {"workspace": "alice/none"}, "workspace", "there is no workspace 'alice/none'"),
        (BOB, {"workspace": "lab"}, "workspace", "you have no workspace 'lab'"),
    ):
        with pytest.raises(ConfigError) as found:
            await start(world, caller, **where)
        assert [(one.path, said in one.message) for one in found.value.problems] == [(path, True)]
    with pytest.raises(Forbidden, match="takes the role editor"):
        await start(world, VIC, workspace="alice/lab")
    with pytest.raises(ConfigError):
        await start(world, workspace=["lab"])
    spawn = SpawnRequest(owner="vic", key="k" * 16, kind=TaskKind.SHELL, config={"workspace": "alice/lab"})
    with pytest.raises(Forbidden, match="takes the role editor"):
        await world.services[Spawns].post(HubCaller(), spawn)
    task = await made(world, BOB, workspace="alice/lab")
    view = await world.services[UserTasks].get(BOB, task)
    assert (view.workspace, view.config["workspace"], view.opens) == ("alice/lab", "alice/lab", True)
    # alice's workspace, and not her task
    assert (await world.services[UserTasks].get(ALICE, task)).opens is False
    await world.services[Workspaces].edit(ALICE, "lab", EditWorkspace(archived=True))
    with pytest.raises(ConfigError, match="error"):
        await start(world, workspace="lab")


async def test_who_works_alone_meets_no_workspace(make_world):
    world = await make_world(forever)
    task = await made(world)
    row = world.store.read_sync(lambda s: s.get_one(TaskRow, task))
    assert (row.workspace_id, row.project_id) == (None, None)
    view = await world.services[UserTasks].get(ALICE, task)
    assert (view.workspace, view.project, view.opens) == ("", "", True)
    assert "workspace" not in view.config
    assert await ids(world, ALICE, workspace="Uncategorized") == [task]
    assert await ids(world, BOB, workspace="Uncategorized") == []


async def test_what_the_workspace_gives_is_applied_checked_and_shown(make_world):
    pools, _ = read_pools({"default": {}, "a100": {}})
    world = await lab(make_world, pools=pools)
    environment = {"environment_variables": ["TEAM=vision"]}
    storage = {"type": "s3", "bucket": "lab-checkpoints"}
    given = WorkspaceDefaults(resource_pool="a100", environment=environment, checkpoint_storage=storage)
    await world.services[Workspaces].edit(ROOT, "alice/lab", EditWorkspace(defaults=given))
    reply = await start(world, BOB, workspace="alice/lab")
    assert [(one.path, one.source) for one in reply.given] == [
        ("resources.resource_pool", "workspace alice/lab"),
        ("environment.environment_variables", "workspace alice/lab"),
    ]
    assert (reply.task.resource_pool, reply.config["resources"]["resource_pool"]) == ("a100", "a100")
    assert "TEAM=vision" in str(reply.config["environment"])
    own = await start(world, BOB, workspace="alice/lab", resources={"resource_pool": "default"})
    assert own.task.resource_pool == "default"
    assert (await start(world, BOB)).given == []
    with pytest.raises(ConfigError):  # of what names its workspace wrongly nothing is taken
        await start(world, EVE, workspace="alice/lab")


# --- ended, moved, deleted


async def test_admins_of_its_workspace_may_end_a_task_and_others_may_not(make_world):
    world = await lab(make_world)
    await world.add_agent(slots=2)
    task = await made(world, workspace="lab")
    await world.steps(3)
    for member in (BOB, VIC):
        with pytest.raises(Forbidden, match="admins of its workspace may end it now"):
            await world.services[UserTasks].end(member, task)
    with pytest.raises(Forbidden, match="may end it now"):
        await world.services[UserTasks].end(replace(WANDA, run="1.a.0"), task)
    with pytest.raises(NotFound):
        await world.services[UserTasks].end(EVE, task)
    assert (await world.services[UserTasks].get(ALICE, task)).state is TrialState.ACTIVE
    told = await world.services[UserTasks].end(WANDA, task)
    assert (told.opens, told.config) == (False, told.config)
    assert SECRET not in told.model_dump_json()
    page = await world.services[Audit].page(ROOT, action="task.kill")
    assert [(item.actor, item.subject) for item in page.items] == [("wanda", f"task {task}")]


async def test_a_move_changes_who_sees_it_and_is_its_owners(make_world):
    world = await lab(make_world)
    await world.workspace("other", eve="viewer")
    task = await made(world, workspace="lab", project="digits")
    move = world.services[TaskMoves].move
    for member in (BOB, WANDA):
        with pytest.raises(Forbidden, match="only they and administrators may move it"):
            await move(member, task, MoveTask())
    with pytest.raises(NotFound):
        await move(EVE, task, MoveTask(workspace="alice/other"))
    with pytest.raises(Forbidden, match="notebook run"):
        await move(replace(ALICE, run="1.a.0"), task, MoveTask(workspace="other"))
    with pytest.raises(ConfigError):
        await move(ALICE, task, MoveTask(workspace="bob/none"))
    view = await move(ALICE, task, MoveTask(workspace="other"))
    assert (view.workspace, view.project, view.opens) == ("other", "Uncategorized", True)
    assert await ids(world, EVE, workspace="alice/other") == [task]
    with pytest.raises(NotFound):
        await world.services[UserTasks].get(WANDA, task)
    assert await ids(world, WANDA, workspace="alice/lab") == []
    back = await move(ALICE, task, MoveTask())
    assert (back.workspace, back.workspace_id) == ("", None)
    with pytest.raises(NotFound):
        await world.services[UserTasks].get(EVE, task)
    root = await move(ROOT, task, MoveTask())  # to its owner's, not to root's
    assert root.workspace_id is None
    page = await world.services[Audit].page(ROOT, action="task.move")
    assert [item.actor for item in page.items] == ["alice", "alice"]


async def test_a_workspace_with_a_living_task_is_not_deleted_and_ended_ones_are_their_owners_again(make_world):
    world = await lab(make_world)
    task = await made(world, BOB, workspace="alice/lab", project="digits")
    (view,) = (await world.services[Projects].list(ALICE, "lab")).items
    assert (view.name, view.tasks) == ("digits", 1)
    for call in (
        world.services[Workspaces].delete(ALICE, "lab"),
        world.services[Projects].delete(ALICE, "lab", "digits"),
    ):
        with pytest.raises(Conflict, match="1 user task"):
            await call
    await world.services[UserTasks].end(BOB, task)
    await world.services[Projects].delete(ALICE, "lab", "digits")
    assert await ids(world, ALICE, workspace="lab") == []
    world.now += 1
    other = await made(world, BOB, workspace="alice/lab")
    await world.services[UserTasks].end(ALICE, other)
    await world.services[Workspaces].delete(ALICE, "lab")
    for one in (task, other):
        with pytest.raises(NotFound):
            await world.services[UserTasks].get(ALICE, one)
        assert (await world.services[UserTasks].get(BOB, one)).workspace_id is None
    assert await ids(world, BOB, workspace="Uncategorized") == [other, task]


# --- lists and streams


async def test_lists_of_a_workspace_have_the_tasks_of_all_members_in_pages(make_world):
    world = await lab(make_world)
    found = []
    for number, caller in enumerate([ALICE, BOB, ALICE, BOB]):
        world.now += 1
        where = {"workspace": "alice/lab", **({"project": "digits"} if number < 2 else {})}
        found.append(await made(world, caller, **where))
    mine = await made(world)
    newest = found[::-1]
    for member in (ALICE, BOB, VIC, WANDA, ROOT):
        assert await ids(world, member, workspace="alice/lab") == newest
        assert await ids(world, member, workspace="alice/lab", project="digits") == newest[2:]
        assert await ids(world, member, workspace="alice/lab", owner="bob") == [newest[0], newest[2]]
        assert await ids(world, member, workspace="alice/lab", limit=3, before=newest[0]) == newest[1:]
    # one's own without a name, as before there were workspaces: clients take those for theirs to open
    assert await ids(world, VIC) == []
    assert await ids(world, BOB) == [found[3], found[1]]
    assert await ids(world, ALICE) == [mine, found[2], found[0]]
    with pytest.raises(NotFound, match="there is no workspace"):
        await ids(world, EVE, workspace="alice/lab")
    with pytest.raises(NotFound, match="before which a page could begin"):
        await ids(world, EVE, before=newest[0])


async def test_i9_a_role_that_is_taken_away_ends_what_members_see(make_world):
    world = await lab(make_world)
    await world.services[MembersOfWorkspaces].put(
        ALICE, "lab", MemberRequest(kind="group", name="readers", role="viewer")
    )
    grace = replace(EVE, name="grace", groups=frozenset({"readers"}))
    task = await made(world, workspace="lab")
    assert await ids(world, grace, workspace="alice/lab") == [task]
    for kind, name, member in (("user", "wanda", WANDA), ("group", "readers", grace)):
        await world.services[MembersOfWorkspaces].remove(ALICE, "lab", GrantTo(kind=kind, name=name))
        for call in (
            world.services[UserTasks].get(member, task),
            world.services[UserTasks].end(member, task),
            world.services[UserTasks].list(member, workspace="alice/lab"),
        ):
            with pytest.raises(NotFound):
                await call


async def test_who_is_no_member_any_more_keeps_their_own_tasks_and_sees_nobody_elses(make_world):
    world = await lab(make_world)
    await world.add_agent(slots=2)
    theirs, hers = await made(world, BOB, workspace="alice/lab"), await made(world, workspace="lab")
    await world.services[MembersOfWorkspaces].remove(ALICE, "lab", GrantTo(kind="user", name="bob"))
    assert (await world.services[UserTasks].get(BOB, theirs)).opens
    assert await ids(world, BOB) == [theirs]
    with pytest.raises(NotFound):
        await world.services[UserTasks].get(BOB, hers)
    with pytest.raises(ConfigError):
        await start(world, BOB, workspace="alice/lab")
    with pytest.raises(ConfigError):
        await world.services[TaskMoves].move(BOB, theirs, MoveTask(workspace="alice/lab", project="digits"))
    assert not (await world.services[UserTasks].get(WANDA, theirs)).opens
    await world.services[UserTasks].end(WANDA, theirs)
    assert (await world.services[TaskMoves].move(BOB, theirs, MoveTask())).workspace_id is None


async def test_i9_streams_tell_members_the_state_and_end_with_the_role(make_world):
    world = await lab(make_world)
    task = await made(world, **MASKED)
    async with (
        reading(world, ALICE, None) as alice,
        reading(world, VIC, None) as vic,
        reading(world, WANDA, None) as wanda,
        reading(world, EVE, None) as eve,
    ):
        await until(lambda: members(world) == 4)

        def of(sink: Any) -> list[dict[str, Any]]:
            return [event.data for event in sink.got if event.task_id == task and event.data]

        await world.services[TaskMoves].move(ALICE, task, MoveTask(workspace="lab"))
        await until(lambda: of(vic) and of(wanda) and of(alice))
        assert (of(alice)[-1]["opens"], of(alice)[-1]["may"]) == (True, "own")
        assert (of(vic)[-1]["opens"], of(vic)[-1]["may"], of(vic)[-1]["workspace"]) == (False, "read", "lab")
        assert of(wanda)[-1]["may"] == "write"
        for sink in (vic, wanda):
            assert SECRET not in str([event.data for event in sink.got])
            assert of(sink)[-1]["image"] is None
        await world.services[MembersOfWorkspaces].remove(ALICE, "lab", GrantTo(kind="user", name="vic"))
        await until(lambda: any(event.data.get("rights") for event in vic.got))
        seen = len(of(vic))
        await world.services[UserTasks].end(ALICE, task)
        await until(lambda: of(wanda)[-1]["state"] == of(alice)[-1]["state"] == "CANCELED")
        assert len(of(vic)) == seen
        await world.services[TaskMoves].move(ALICE, task, MoveTask())
        told = len(of(wanda))
        await until(lambda: of(alice)[-1]["workspace"] == "")
        await until(lambda: any(event.data.get("rights") for event in wanda.got))
        assert len(of(wanda)) == told
        assert not [event for event in eve.got if event.kind != "cluster"]


# --- quotas of workspaces


def quota(name: str, slots: int) -> QuotaRequest:
    return QuotaRequest(kind="workspace", name=name, slots=slots)


async def test_a_workspaces_quota_holds_back_what_lies_in_it_and_nothing_else(make_world):
    world = await lab(make_world)
    await world.add_agent(slots=4)
    found = await world.services[Quotas].put(ROOT, quota("alice/lab", 2))
    assert [(one.workspace, one.slots) for one in found.workspaces] == [("alice/lab", 2)]
    assert found.items == []
    first = await made(world, workspace="lab", resources={"slots": 1})
    world.now += 1
    second = await made(world, BOB, workspace="alice/lab", resources={"slots": 1})
    world.now += 1
    await world.submit(config(workspace="lab"))
    third = await made(world, BOB, workspace="alice/lab", resources={"slots": 1})
    elsewhere = await made(world, BOB, resources={"slots": 1})
    await world.steps(4)
    states = {
        one: (await world.services[UserTasks].get(ROOT, one)).display_state for one in (first, second, third, elsewhere)
    }
    assert states == {first: "RUNNING", second: "RUNNING", third: "QUEUED", elsewhere: "RUNNING"}
    waits = await world.services[UserTasks].get(BOB, third)
    assert "workspace alice/lab holds 2 of a quota of 2 slots" in waits.pending_reason
    (used,) = (await world.services[Quotas].list(VIC)).workspaces
    assert (used.held, used.waiting) == (2, 2)
    assert waits.pending_reason.endswith("; see det quota list")
    with pytest.raises(ResourcesError, match=r"of workspace alice/lab: 2 \(2 held now\)") as refused:
        await start(world, workspace="lab", resources={"slots": 3})
    assert "det quota list" in refused.value.hint
    await world.services[TaskMoves].move(BOB, third, MoveTask())  # it counts there no more
    await world.steps(3)
    assert (await world.services[UserTasks].get(BOB, third)).display_state == "RUNNING"


async def test_what_is_submitted_at_once_in_two_pools_never_exceeds_a_workspaces_quota(make_world):
    pools, _ = read_pools({"default": {}, "a100": {}})
    world = await lab(make_world, pools=pools)
    await world.add_agent(slots=8)
    far = await world.add_agent("far", slots=8)
    far.drop()
    plain = far.hello
    far.hello = lambda: plain().model_copy(update={"pool": "a100"})
    await far.connect()
    await world.services[Quotas].put(ROOT, quota("alice/lab", 3))

    def begin(caller: Caller, pool: str) -> Any:
        return made(world, caller, workspace="alice/lab", resources={"slots": 1, "resource_pool": pool})

    asked = [begin(caller, pool) for caller in (ALICE, BOB, WANDA) for pool in ("default", "a100") for _ in range(2)]
    tasks = await asyncio.gather(*asked, world.submit(config(workspace="lab")))

    async def held() -> int:
        (used,) = (await world.services[Quotas].list(VIC)).workspaces
        return used.held

    for _ in range(5):
        await world.steps(1)
        assert await held() <= 3
    assert await held() == 3
    running = [one for one in tasks[:-1] if (await world.services[UserTasks].get(ROOT, one)).started_at is not None]
    for one in running[:2]:
        await world.services[UserTasks].end(ROOT, one)
    for _ in range(5):
        await world.steps(1)
        assert await held() <= 3
    assert await held() == 3
    await world.services[Quotas].put(ROOT, quota("alice/lab", 1))  # ends nothing, and lets nothing start
    await world.steps(3)
    assert await held() == 3


async def test_who_sets_and_sees_the_quota_of_a_workspace(make_world):
    world = await lab(make_world)
    quotas = world.services[Quotas]
    for caller in (ALICE, WANDA, EVE):
        with pytest.raises(Forbidden, match="only administrators"):
            await quotas.put(caller, quota("alice/lab", 9))
    with pytest.raises(NotFound, match="there is no workspace"):
        await quotas.put(ROOT, quota("alice/none", 1))
    await world.submit(config())
    personal = next(one for one in (await world.services[Workspaces].list(ALICE)).items if one.personal)
    with pytest.raises(Conflict, match="personal one, which has no quota"):
        await quotas.put(ROOT, quota(str(personal.id), 1))
    await quotas.put(ROOT, quota("alice/lab", 4))
    assert [one.slots for one in (await quotas.list(VIC)).workspaces] == [4]
    assert (await quotas.list(EVE)).workspaces == []
    assert (await world.services[Workspaces].get(VIC, "alice/lab")).quota == 4
    with pytest.raises(ValueError, match="slots alone"):
        QuotaRequest(kind="workspace", name="alice/lab", storage=5)
    with pytest.raises(NotFound, match="has no quota of storage"):
        await quotas.remove(ROOT, QuotaTo(kind="workspace", name="alice/lab"), "storage")
    left = await quotas.remove(ROOT, QuotaTo(kind="workspace", name="alice/lab"))
    assert left.workspaces == []
    with pytest.raises(NotFound, match="has no quota"):
        await quotas.remove(ROOT, QuotaTo(kind="workspace", name="alice/lab"))
    page = await world.services[Audit].page(ROOT, action="quota")
    assert [item.detail for item in page.items] == [
        "no quota any more, before 4, of alice/lab",
        "4 slots, before none, of alice/lab",
    ]
