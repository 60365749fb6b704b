"""An elastic pool in a living master: demand brings a real agent, idleness sends it away, demand brings another."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from provider_contract import living
from sqlalchemy import select
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from detlab.errors import Forbidden
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab_hub.backends.instances import InstanceOrder, ProviderError, Trouble
from detlab_hub.backends.instances.configuration import ElasticPool, Surroundings, make_pools
from detlab_hub.core.provisioning import Instance
from detlab_hub.core.scheduling import read_pools
from detlab_hub.services import Caller, Services, Settings
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.elastic.provisioning import Provisioning
from detlab_hub.services.ingest.tokens import Tokens
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store import Store
from detlab_hub.store.tables import AgentRow, TokenRow
from detlab_hub.web.auth import Identifier, make_hub_auth
from detlab_hub.web.routes import Background, WebSettings, make_application
from testbed.gcp.compute import compute

ADMIN = Caller("ada", frozenset(), admin=True)


@dataclass
class Elastic:
    """A master in this process with one elastic pool of agents of this machine; its looks are taken by the test."""

    services: Services
    pool: ElasticPool
    root: Path
    later: float = 0.0

    @property
    def state(self) -> Any:
        """Of the pool."""
        return self.services[Provisioning]._pools["elastic"][1]

    async def look_until(self, condition: Callable[[], bool | Awaitable[bool]], seconds: float = 120.0) -> None:
        """Take looks until something holds."""

        until = time.monotonic() + seconds
        while True:
            await self.services[Provisioning].poll()
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            assert time.monotonic() < until, self.said()
            await asyncio.sleep(0.2)

    def said(self) -> str:
        """For a failure."""
        logs = "\n".join(path.read_text() for path in self.root.rglob("*.log"))
        return f"{self.services[Provisioning].list(ADMIN)}\n{logs}"

    async def submit(self) -> str:
        config = {"entrypoint": "true", "resources": {"slots": 1, "resource_pool": "elastic"}}
        reply = await self.services[UserTasks].create(ADMIN, CreateTask(kind=TaskKind.COMMAND, config=config))
        assert reply.task is not None
        return reply.task.id

    async def done(self, task_id: str) -> bool:
        view = await self.services[UserTasks].get(ADMIN, task_id)
        assert view.exit_code in {None, 0}, view
        return view.state.terminal


@pytest.fixture
async def elastic(sqlite_url: str) -> AsyncIterator[Elastic]:
    root = Path(tempfile.mkdtemp(prefix="detlab-elastic-"))
    root.chmod(0o711)
    sockets = bind_sockets(0, "127.0.0.1", family=socket.AF_INET)
    base = f"http://127.0.0.1:{sockets[0].getsockname()[1]}/services/detlab/"
    provider = {"type": "local", "slots": 1, "max_instances": 1, "max_idle_agent_period": 0.5}
    pools, mistakes = read_pools({"elastic": {"provider": provider}})
    assert not mistakes
    options = () if os.geteuid() == 0 else ("--serves-user", ADMIN.name)
    (pool,) = make_pools(pools, Surroundings(root / "instances", base, "c1", ("--runtime", "process", *options)))
    store = Store.open(sqlite_url, holder="test")
    settings = Settings(state_dir=root, bundles_dir=root / "bundles", service_url=base, pools=pools)
    services = Services(store, settings=settings, elastic=[pool])
    await services.start()
    for loop in services._loops:
        if loop.get_name() == "poll":
            loop.cancel()
    hub = make_hub_auth(api_url="http://127.0.0.1:1/hub/api", api_token="x", base_url="/", hub_prefix="/hub/")
    web = WebSettings(cookie_secret=b"x" * 32, hub_public_url="/hub/", background=Background())
    application = make_application(services, Identifier(hub, services), web)
    server = HTTPServer(application)
    server.add_sockets(sockets)
    try:
        yield Elastic(services, pool, root)
    finally:
        pool.provider.terminate([instance.id for instance in pool.provider.list()])
        server.stop()
        await application.settings["streams"].close()
        await server.close_all_connections()
        await web.background.wait()
        await services.stop()
        store.close()
        shutil.rmtree(root)


async def test_demand_brings_an_agent_idleness_sends_it_away_and_demand_brings_another(elastic: Elastic) -> None:
    await elastic.services[Provisioning].poll()
    assert elastic.services[Provisioning].list(ADMIN)[0].instances == []
    names = []
    for _ in range(2):
        task = await elastic.submit()
        await elastic.look_until(lambda: bool(elastic.state.instances))
        names.append(elastic.state.instances[0].agent_id)
        await elastic.look_until(lambda task=task: elastic.done(task))
        await elastic.look_until(lambda: not elastic.state.instances)
        assert not living(elastic.pool.provider)
    assert len(set(names)) == 2

    def left(s: Any) -> tuple[list[str], list[str]]:
        kinds = s.scalars(select(TokenRow.kind).where(TokenRow.kind.in_(["enrol", "agent"])))
        return list(s.scalars(select(AgentRow.id))), list(kinds)

    assert await elastic.services.context.read(left) == ([], [])
    page = await elastic.services[Audit].page(ADMIN, action="instance")
    assert [item.action for item in page.items] == ["instance.end", "instance.launch"] * 2


async def test_a_later_master_adopts_what_an_earlier_one_launched_and_launches_no_second(elastic: Elastic) -> None:
    await elastic.submit()
    await elastic.look_until(lambda: bool(elastic.state.instances))
    launched = elastic.state.instances[0].id
    elastic.state.fresh.clear()  # all that it had in memory
    elastic.state.instances = ()
    elastic.state.history = type(elastic.state.history)()
    await elastic.services[Provisioning].poll()
    assert [instance.id for instance in elastic.state.instances] == [launched]


@dataclass
class Refusing:
    """A provider's answer that no local one gives: it has no machines left."""

    real: Any
    orders: list[InstanceOrder]

    def launch(self, order: InstanceOrder) -> Instance:
        self.orders.append(order)
        raise ProviderError(Trouble.CAPACITY, "none left", "another type may be there")

    def list(self) -> tuple[Instance, ...]:
        return self.real.list()

    def terminate(self, ids: Collection[str]) -> None:
        self.real.terminate(ids)


async def test_errors_are_shown_to_administrators_tokens_of_failed_launches_are_void_and_tries_are_spaced(
    elastic: Elastic,
) -> None:
    provisioning = elastic.services[Provisioning]
    refusing = Refusing(elastic.pool.provider, [])
    provisioning._pools["elastic"] = (replace(elastic.pool, provider=refusing), elastic.state)
    await elastic.submit()
    for _ in range(5):
        await provisioning.poll()
    assert len(refusing.orders) == 1
    (view,) = provisioning.list(ADMIN)
    assert [(e.doing, e.trouble, e.message, e.hint) for e in view.errors] == [
        ("launch", "capacity", "none left", "another type may be there")
    ]
    assert "failed: tried again in" in view.held_back
    assert view.wanted == 1
    assert await elastic.services[Tokens].resolve(refusing.orders[0].enrolment_token) is None
    with pytest.raises(Forbidden):
        provisioning.list(Caller("bob"))


async def test_a_stock_out_after_the_answer_is_the_pool_s_reason_and_launches_are_spaced(
    elastic: Elastic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Google accepts a launch and says later that it has none: the pool waited for it without a reason."""
    provisioning = elastic.services[Provisioning]
    with compute() as google:
        google.credentials(tmp_path / "account.json")
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
        said = {
            "type": "gcp",
            "project": "lab-project",
            "zone": "europe-west4-a",
            "endpoint_url": google.address,
            "boot_disk_source_image": "lab",
            "cpu_slots_allowed": True,
            "instance_type": {"gpu_num": 0},
        }
        pools, _ = read_pools({"elastic": {"provider": said}})
        (pool,) = make_pools(pools, Surroundings(elastic.root, "https://hub.example.org", "c1"))
        real = elastic.pool
        provisioning._pools["elastic"] = (replace(real, provider=pool.provider), elastic.state)
        google.fails("ZONE_RESOURCE_POOL_EXHAUSTED", "try another zone.")
        await elastic.submit()
        for _ in range(5):
            await provisioning.poll()
        (view,) = provisioning.list(ADMIN)
        (error,) = view.errors
        assert (error.doing, error.trouble) == ("launch", "capacity")
        assert "the zone has no n1-standard-32 left now: try another zone." in error.message
        assert "another zone" in error.hint
        assert view.instances == []
        assert "the last launch failed: tried again in" in view.held_back
        (waits,) = elastic.state.decision.awaited
        assert "the last launch failed" in provisioning.awaited("elastic", waits)
        (first,) = google.requests("instances.insert")
        script = first.body["metadata"]["items"][0]["value"]
        token = script.partition("printf '%s\\n' ")[2].partition(" ")[0]
        assert token.startswith("dtenrol_")
        assert await elastic.services[Tokens].resolve(token) is None
        assert google.refused == []
        provisioning._pools["elastic"] = (real, elastic.state)
