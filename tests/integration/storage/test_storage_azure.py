"""The contract of storages, on azure."""

from __future__ import annotations

import pytest
from object_contract import ObjectContract

from testbed.objectstores.servers import ObjectServer


class TestAzure(ObjectContract):
    """See `ObjectContract`."""

    @pytest.fixture
    def server(self, azure_server: ObjectServer) -> ObjectServer:
        """The running store."""
        return azure_server
