"""The contract of storages, on gcs."""

from __future__ import annotations

import pytest
from object_contract import ObjectContract

from testbed.objectstores.servers import ObjectServer


class TestGcs(ObjectContract):
    """See `ObjectContract`."""

    @pytest.fixture
    def server(self, gcs_server: ObjectServer) -> ObjectServer:
        """The running store."""
        return gcs_server
