"""A fake master and clients that talk to it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from detlab.client.aclient import AsyncClient
from detlab.client.client import Client
from detlab.client.transport.calls import Retries
from testbed.fake_master.api import FakeMaster

QUICK = Retries(first=0.01, cap=0.02)


@pytest.fixture(autouse=True)
def _nobody_elses_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("DET_URL", "DET_TOKEN", "JUPYTERHUB_API_TOKEN", "DET_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg-state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg-config"))


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    with FakeMaster() as running:
        yield running


@pytest.fixture
def client(master: FakeMaster) -> Iterator[Client]:
    with Client(master.url, master.token, backoff=QUICK) as made:
        yield made


@pytest.fixture
async def aclient(master: FakeMaster) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(master.url, master.token, backoff=QUICK) as made:
        yield made
