"""The contract of storages for object stores: a process is killed before each of its requests, at a proxy."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detlab.storage import StorageManager, from_config
from detlab.storage.objects.store import ObjectStorage
from detlab.testing.storage import StorageContract
from detlab.testing.storage_work import Verb, command
from testbed.objectstores.faultproxy import Answer, Asked, Cut, FaultProxy
from testbed.objectstores.servers import ObjectServer


class ObjectContract(StorageContract):
    """Give a `server` fixture."""

    @pytest.fixture
    def proxy(self, server: ObjectServer) -> Iterator[FaultProxy]:
        """Before the server."""
        proxy = FaultProxy(server.port)
        yield proxy
        proxy.close()

    @pytest.fixture
    def store(self, server: ObjectServer, proxy: FaultProxy, prefix: str) -> StorageManager:
        """An empty place in the bucket."""
        self.server, self.proxy, self.prefix = server, proxy, prefix
        return from_config(server.block(prefix))

    def reopen(self, store: StorageManager) -> StorageManager:
        """Return another store for the same place, without what this one remembers."""
        return from_config(self.config(store))

    def config(self, store: StorageManager) -> dict[str, Any]:
        """Return its block."""
        return self.server.block(self.prefix)

    def alter(self, store: StorageManager, uuid: str, name: str, data: bytes | None) -> None:
        """Write or remove the object."""
        assert isinstance(store, ObjectStorage)
        if data is None:
            store.objects.delete([f"{uuid}/{name}"])
        else:
            store.objects.put(f"{uuid}/{name}", data)

    def killed_before(self, store: StorageManager, event: int, verb: Verb, uuid: str, folder: Path) -> bool:
        """Kill a process of its own when its request of this number arrives, which goes no further."""
        block = self.server.block(self.prefix, port=self.proxy.port)
        died = False

        def before(asked: Asked) -> Answer | None:
            nonlocal died
            if asked.number > event:
                died = True
                process.send_signal(signal.SIGKILL)
                raise Cut
            return None

        with self.proxy.failing(before):
            environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
            process = subprocess.Popen(command(block, verb, uuid, folder), env=environment, stderr=subprocess.PIPE)
            _, errors = process.communicate(timeout=60)
        assert died == (process.returncode == -signal.SIGKILL), errors.decode()
        assert died or process.returncode == 0, errors.decode()
        return died
