"""The contract of storages, on s3."""

from __future__ import annotations

import pytest
from object_contract import ObjectContract

from testbed.objectstores.servers import ObjectServer


class TestS3(ObjectContract):
    """See `ObjectContract`."""

    @pytest.fixture
    def server(self, s3_server: ObjectServer) -> ObjectServer:
        """The running store."""
        return s3_server
