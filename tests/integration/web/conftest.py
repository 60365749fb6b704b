"""One real cluster for all tests of this folder, and a master in this process that asks the same Hub."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from jupyterhub.services.auth import HubOAuth
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from detlab_hub.services import Services, Settings
from detlab_hub.store import Store
from detlab_hub.web.auth import Identifier, close_hub_client, make_hub_auth
from detlab_hub.web.bodies import MOST_READ
from detlab_hub.web.routes import Background, WebSettings, make_application
from testbed.cluster import Cluster, running_cluster
from testbed.master_forks import Masters, masters


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A whole cluster with three users, `det up` to `det down`."""
    config = "c.EmbeddedCluster.extra_users = ['ben', 'ada']\n"
    with running_cluster(tmp_path_factory.mktemp("cluster"), slots=2, config=config) as running:
        yield running


@pytest.fixture(scope="package")
def forks(cluster: Cluster) -> Iterator[Masters]:
    """Starts masters as processes; they ask the cluster's Hub who people are."""
    with masters(cluster.environment) as found:
        yield found


@dataclass
class Master:
    """A master in this process."""

    base: str
    services: Services
    application: Any
    token: str
    hub: HubOAuth

    def client(self, token: str | None = None) -> httpx.AsyncClient:
        """A client of its API, as the operator or with another token."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return httpx.AsyncClient(base_url=f"{self.base}api/v1/", headers=headers, trust_env=False, timeout=20)

    @property
    def open_streams(self) -> int:
        """How many streams are open."""
        return len(self.application.settings["streams"])


@pytest.fixture
def hub_port(cluster: Cluster) -> int:
    """Where the master of `master` finds the Hub; a module may put something in between."""
    return int(cluster.plan["hub_port"])


@pytest.fixture
def silence() -> float:
    """Seconds without a word of an agent of `master` after which its tasks run elsewhere; a module may say fewer."""
    return 25.0


@pytest.fixture
async def master(
    cluster: Cluster, hub_port: int, silence: float, tmp_path: Path, sqlite_url: str
) -> AsyncIterator[Master]:
    """A master of its own, in this process, with an empty SQLite database; it asks the cluster's Hub."""
    store = Store.open(sqlite_url, holder="test")
    settings = Settings(
        state_dir=tmp_path,
        bundles_dir=tmp_path / "bundles",
        bundle_limit=300_000,
        agent_suspect_after=min(10.0, silence / 2),
        agent_reconnect_wait=silence,
    )
    services = Services(store, settings=settings)
    await services.start()
    hub = make_hub_auth(
        api_url=f"http://127.0.0.1:{hub_port}/hub/api",
        api_token=(cluster.folder / "secrets" / "service_token").read_text().strip(),
        base_url="/services/detlab/",
        hub_prefix="/hub/",
    )
    background = Background()
    web = WebSettings(cookie_secret=b"x" * 32, hub_public_url="/hub/", background=background)
    application = make_application(services, Identifier(hub, services), web)
    server = HTTPServer(application, max_body_size=MOST_READ)
    sockets = bind_sockets(0, "127.0.0.1", family=socket.AF_INET)
    server.add_sockets(sockets)
    port = sockets[0].getsockname()[1]
    yield Master(f"http://127.0.0.1:{port}/services/detlab/", services, application, cluster.token, hub)
    server.stop()
    await application.settings["streams"].close()
    await server.close_all_connections()
    await background.wait()
    await services.stop()
    store.close()
    await close_hub_client()
