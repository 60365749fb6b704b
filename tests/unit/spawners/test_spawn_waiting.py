"""A spawner and a master that goes away, forgets, refuses, and comes back."""

import asyncio

import pytest
from spawn_master import answering, listening, refused, spawn_view, user

from detlab.schemas.taskwire import TaskEnd
from detlab.schemas.wire import AllocationState
from detlab_hub.spawners import DetSpawner, HoldingMixin, SpawnFailed
from detlab_hub.spawners.allocation import PORT_TAKEN
from testbed.waiting import soon


class Spawner(DetSpawner):
    def get_env(self):
        return {"JUPYTERHUB_API_TOKEN": "secret"}


def spawner(master, cls=Spawner, **more):
    return cls(user=user(), service_url=master.url, service_token="dthub_x", **more)


async def test_a_spawn_waits_claims_and_returns_the_address():
    async with listening() as master, answering() as port:
        mine = spawner(master)
        starting = asyncio.create_task(mine.start())
        await soon(lambda: mine.task_id)
        assert await mine.poll() is None, "what waits is not over"
        master.run("notebook-0", port)
        assert await asyncio.wait_for(starting, 10) == f"http://127.0.0.1:{port}"
        assert master.claimed == ["notebook-0"]
        assert master.posts[0]["environment"] == {"JUPYTERHUB_API_TOKEN": "secret"}
        assert mine.get_state() == {"task_id": "notebook-0"}
        await mine.stop()
        assert master.deleted == ["notebook-0"]
        assert await mine.poll() == 0


async def test_a_broken_stream_posts_the_same_key_and_the_environment_again():
    async with listening() as master, answering() as port:
        master.cut = 2
        starting = asyncio.create_task(spawner(master).start())
        await soon(lambda: len(master.posts) >= 3)
        master.run("notebook-0", port)
        await asyncio.wait_for(starting, 10)
        assert len({post["key"] for post in master.posts}) == 1
        assert all(post["environment"] for post in master.posts)
        assert not master.deleted


async def test_a_master_that_is_away_is_waited_for_and_the_page_says_so():
    async with listening() as master, answering() as port:
        await master.leave()
        mine = spawner(master)
        starting = asyncio.create_task(mine.start())
        await soon(lambda: "does not answer" in mine._news.last)
        master.listen()
        await soon(lambda: master.views)
        master.run("notebook-0", port)
        await asyncio.wait_for(starting, 10)


async def test_a_master_that_stays_away_fails_the_start_and_not_the_running_server():
    async with listening() as master:
        mine = spawner(master, master_patience=0)
        await master.leave()
        with pytest.raises(SpawnFailed) as failed:
            await mine.start()
        assert failed.value.reason == "master_away"
        mine.load_state({"task_id": "notebook-9"})
        assert await mine.poll() is None
        master.listen()
        assert await mine.poll() == 1, "the master does not know it"


async def test_a_cancelled_wait_gives_the_place_back_even_while_it_was_being_asked_for():
    async with listening() as master:
        master.post_gate.clear()
        mine = spawner(master)
        starting = asyncio.create_task(mine.start())
        await soon(lambda: master.views)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        master.post_gate.set()
        await soon(lambda: master.deleted == ["notebook-0"])


async def test_the_hub_may_forget_a_server_without_stopping_it():
    async with listening() as master, answering() as port:
        mine = spawner(master)
        starting = asyncio.create_task(mine.start())
        await soon(lambda: master.views)
        master.run("notebook-0", port)
        await starting
        mine.clear_state()
        await soon(lambda: master.deleted == ["notebook-0"])
        assert mine.get_state() == {}


async def test_a_server_that_dies_says_why_with_its_last_lines():
    async with listening() as master:
        starting = asyncio.create_task(spawner(master).start())
        await soon(lambda: master.views)
        master.end("notebook-0", TaskEnd.FAILED, exit_code=3, reason="boom", log_tail=["<b>last</b>"])
        with pytest.raises(SpawnFailed) as failed:
            await starting
        assert "boom" in failed.value.jupyterhub_message
        assert "&lt;b&gt;last" in failed.value.jupyterhub_html_message


async def test_a_port_that_was_taken_in_between_is_asked_for_again():
    async with listening() as master, answering() as port:
        starting = asyncio.create_task(spawner(master).start())
        await soon(lambda: master.views)
        master.end("notebook-0", TaskEnd.FAILED, exit_code=PORT_TAKEN)
        await soon(lambda: "notebook-1" in master.views)
        master.run("notebook-1", port)
        assert await asyncio.wait_for(starting, 10) == f"http://127.0.0.1:{port}"


async def test_a_server_that_never_answers_is_given_up():
    async with listening() as master:
        starting = asyncio.create_task(spawner(master, answer_timeout=0).start())
        await soon(lambda: master.views)
        master.run("notebook-0", 1)
        with pytest.raises(SpawnFailed) as failed:
            await starting
        assert failed.value.reason == "timeout"
        await soon(lambda: master.deleted)


async def test_what_the_master_refuses_is_said_with_every_mistake():
    async with listening() as master:
        problems = [{"path": path, "message": "is wrong"} for path in ("runtime", "idle_timeout")]
        master.refuse = 422, {"code": "config.invalid", "message": "2 mistakes", "problems": problems}
        with pytest.raises(SpawnFailed) as failed:
            await spawner(master).start()
        for label in ("Runtime", "Idle"):
            assert label in failed.value.jupyterhub_message


async def test_a_reached_cap_of_cost_is_said_at_once():
    async with listening() as master:
        master.refuse = 409, {"code": "conflict", "message": "the cap of user ada is reached", "hint": "raise it"}
        with pytest.raises(SpawnFailed) as failed:
            await spawner(master).start()
        assert "the cap of user ada is reached" in failed.value.jupyterhub_message
        assert "raise it" in failed.value.jupyterhub_message


async def test_wrong_options_are_never_posted():
    async with listening() as master:
        mine = spawner(master)
        mine.user_options = {"slots": -1, "colour": "red"}
        assert "colour" in (await refused(mine, master)).jupyterhub_message


async def test_a_refused_form_comes_back_with_what_was_typed():
    async with listening() as master:
        mine = spawner(master)
        with pytest.raises(SpawnFailed):
            mine.read_form({"slots": ["-3"], "idle_timeout": ["whenever"]})
        form = await mine.get_options_form()
        assert 'value="whenever"' in form
        assert 'value="-3"' in form
        assert "whenever" not in await mine.get_options_form(), "once"


async def test_the_form_closes_what_no_node_has_and_is_there_without_the_master_too():
    async with listening() as master:
        master.closed = {"docker": "no node has a container engine now"}
        mine = spawner(master)
        assert '<option value="docker" disabled>' in await mine.get_options_form()
        await master.leave()
        assert '<option value="docker">' in await mine.get_options_form()
        master.listen()


async def test_only_the_operator_of_a_cluster_without_root_gets_a_server():
    async with listening() as master:
        assert (await refused(spawner(master, only_user="olga"), master)).reason == "not_root"


# --- sites whose Hub reaches the engine itself


def held(base):
    """A spawner of another kind, mixed with ours, whose engine is a list of what was done."""
    from jupyterhub.spawner import Spawner as HubSpawner

    class Engine(HubSpawner):
        done: list
        status = None

        async def start(self):
            self.done.append("start")
            return "127.0.0.1", 8888

        async def stop(self, now=False):
            self.done.append("stop")
            self.status = 0

        async def poll(self):
            return self.status

        async def progress(self):
            yield {"progress": 90, "message": "from the engine"}

    class Held(base, Engine):
        def get_env(self):
            return {"JUPYTERHUB_API_TOKEN": "secret"}

    return Held


async def test_a_holding_spawner_starts_its_server_once_the_slots_are_its():
    async with listening() as master:
        mine = spawner(master, held(HoldingMixin))
        mine.done = []
        starting = asyncio.create_task(mine.start())
        await soon(lambda: master.views)
        assert master.posts[0]["hold"] is True
        assert master.posts[0]["environment"] == {}, "no token leaves the Hub"
        assert not mine.done
        master.put("notebook-0", allocation_state=AllocationState.RUNNING, agent_id="node-1")
        assert await asyncio.wait_for(starting, 10) == ("127.0.0.1", 8888)
        said = [event["message"] async for event in mine.progress()]
        assert said[-1] == "from the engine"
        assert await mine.poll() is None
        await mine.stop()
        assert mine.done == ["start", "stop"]
        assert master.deleted == ["notebook-0"]


async def test_a_held_server_ends_with_its_allocation():
    async with listening() as master:
        mine = spawner(master, held(HoldingMixin))
        mine.done = []
        starting = asyncio.create_task(mine.start())
        await soon(lambda: master.views)
        master.put("notebook-0", allocation_state=AllocationState.RUNNING)
        await starting
        master.end("notebook-0", TaskEnd.IDLE)
        assert await mine.poll() == 0
        assert mine.done == ["start", "stop"]


async def test_the_docker_spawner_is_made_and_gets_the_gpus_of_its_slots():
    from detlab_hub.spawners.docker import DetDockerSpawner

    async with listening() as master:
        mine = spawner(master, DetDockerSpawner, extra_host_config={"network_mode": "host"})
        master.views["x"] = spawn_view(gpu_uuids=["GPU-1"])
        mine.use(master.views["x"])
        made = await mine.host_config()
        (request,) = made.pop("device_requests")
        assert request["DeviceIDs"] == ["GPU-1"]
        assert made == {"network_mode": "host"}
        mine.use(spawn_view())
        assert await mine.host_config() == {"network_mode": "host"}
        mine.load_state({"task_id": "notebook-5", "object_id": "abc"})
        assert mine.get_state()["task_id"] == "notebook-5"
        assert mine.get_state()["object_id"] == "abc"


async def _later(spawner):
    return {"network_mode": spawner.user.name}


@pytest.mark.parametrize("given", [_later, lambda spawner: {"network_mode": spawner.user.name}])
async def test_the_docker_spawner_asks_the_sites_function_at_each_start(given, monkeypatch):
    from dockerspawner import DockerSpawner

    from detlab_hub.spawners.docker import DetDockerSpawner

    seen = []

    async def create(spawner):
        seen.append(spawner.extra_host_config)

    monkeypatch.setattr(DockerSpawner, "create_object", create)
    async with listening() as master:
        mine = spawner(master, DetDockerSpawner, extra_host_config=given)
        for gpus in (["GPU-1"], ["GPU-2"], []):
            mine.use(spawn_view(gpu_uuids=gpus))
            await mine.create_object()
        assert mine.extra_host_config is given, "the site's own is kept"
    assert [made["network_mode"] for made in seen] == [mine.user.name] * 3
    assert [[r["DeviceIDs"] for r in made.get("device_requests", [])] for made in seen] == [
        [["GPU-1"]],
        [["GPU-2"]],
        [],
    ]
