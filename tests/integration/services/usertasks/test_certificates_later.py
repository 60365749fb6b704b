"""Servers whose address is known only when they run, as on a batch system: their certificate is made then."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import AsyncIterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from cryptography import x509

from detlab.errors import Conflict, StaleAttempt
from detlab.schemas.taskwire import SpawnRequest, SpawnView
from detlab.schemas.wire import Hello, Launch, MasterMessage, QueueHello, TaskExited, TaskStarted
from detlab_hub.backends.agents import LiveAgents
from detlab_hub.services import Services, Settings
from detlab_hub.services.agents.agents import Agents as AgentsService
from detlab_hub.services.agents.connection import AgentSession
from detlab_hub.services.base.callers import AgentCaller, HubCaller, TaskCaller
from detlab_hub.services.base.fencing import caller_of
from detlab_hub.services.base.server_certificates import ServerAuthority, make_authority
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.services.usertasks.spawns import Spawns
from detlab_hub.store import InlineExecutor, Store
from detlab_hub.store.tables import AllocationRow

HUB = HubCaller()
HERE = "10.0.0.7"


class Place:
    """A notebook that was handed to a batch system."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.told: list[MasterMessage] = []
        self.session: AgentSession | None = None
        self.task_id = ""

    async def begin(self) -> Launch:
        # The agent's own address is one that others reach: it is still not where the notebook is.
        hello = Hello(
            agent_id="batch", slots=[], runtimes=["slurm"], queue=QueueHello(name="Slurm"), uids={}, address="10.0.0.1"
        )
        self.session = await self.services[AgentsService].connect(AgentCaller("batch", ""), hello, self.told.append)
        request = SpawnRequest(
            owner="alice",
            server_name="nb",
            key="key-of-alice",
            base_url="/user/alice/nb/",
            environment={"JUPYTERHUB_API_TOKEN": "x"},
            config={"resources": {"slots": 1}, "runtime": "slurm"},
        )
        self.task_id = (await self.services[Spawns].post(HUB, request)).task_id
        await self.services.schedule()
        return self.launch

    @property
    def launch(self) -> Launch:
        (found,) = [message for message in self.told if isinstance(message, Launch)]
        return found

    async def runs(self, address: str, *, secure: bool) -> SpawnView:
        assert self.session is not None
        name, run = self.launch.allocation_id, self.launch.run
        await self.session.receive(TaskStarted(allocation_id=name, run=run, address=address, port=4242, secure=secure))
        return await self.services[Spawns].get(HUB, self.task_id)

    async def caller(self) -> TaskCaller:
        name = self.launch.allocation_id
        return await self.services.context.read(lambda s: caller_of(s.get_one(AllocationRow, name)))


@pytest.fixture
def authority(tmp_path: Path) -> ServerAuthority:
    found = ServerAuthority(tmp_path / "servers.pem", tmp_path / "servers.key")
    for path, text in zip((found.certificate_file, found.key_file), make_authority(), strict=True):
        path.write_text(text)
    return found


@pytest.fixture
async def place(tmp_path: Path, authority: ServerAuthority) -> AsyncIterator[Place]:
    settings = Settings(state_dir=tmp_path, bundles_dir=tmp_path / "bundles", server_authority=authority)
    store = Store.open(f"sqlite:///{tmp_path / 'det.sqlite'}", holder="test", writer=InlineExecutor())
    yield Place(
        Services(
            store,
            settings=settings,
            clock=partial(next, count(1e6, 0.001)),
            draw=random.Random(7),
            backend=LiveAgents(30.0, 60.0),
        )
    )
    store.close()


async def test_a_server_gets_its_certificate_for_where_its_agent_says_that_it_runs(place: Place) -> None:
    launch = await place.begin()
    assert launch.service is not None
    assert (launch.service.certificate, launch.service.certificate_later) == (None, True)
    caller = await place.caller()
    with pytest.raises(Conflict, match=r"has not said that it is reached at 10\.0\.0\.7"):
        await place.services[Tasks].certificate(caller, HERE)
    view = await place.runs(HERE, secure=True)
    assert (view.address, view.secure) == (HERE, True)
    made = await place.services[Tasks].certificate(caller, HERE)
    read = x509.load_pem_x509_certificate(made.certificate.encode())
    names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(HERE)]
    assert "PRIVATE KEY" in made.key
    assert "PRIVATE KEY" not in repr(made)


async def test_a_task_gets_none_for_an_address_of_others_and_none_when_it_is_over(place: Place) -> None:
    await place.begin()
    caller = await place.caller()
    await place.runs(HERE, secure=True)
    with pytest.raises(Conflict, match=r"has not said that it is reached at 10\.0\.0\.8"):
        await place.services[Tasks].certificate(caller, "10.0.0.8")
    assert place.session is not None
    ended = TaskExited(allocation_id=place.launch.allocation_id, run=place.launch.run, exit_code=0)
    await place.session.receive(ended)
    with pytest.raises(StaleAttempt):
        await place.services[Tasks].certificate(caller, HERE)


async def test_a_server_that_speaks_no_tls_is_reached_without(place: Place) -> None:
    """An older agent, or one whose nodes are this machine."""
    await place.begin()
    view = await place.runs("127.0.0.1", secure=False)
    assert not view.secure
    with pytest.raises(Conflict, match="by TLS"):
        await place.services[Tasks].certificate(await place.caller(), "127.0.0.1")
