"""Pods of the fake cluster keep the contract of runtimes."""

import pytest
from pod_helpers import PodContract


class TestPods(PodContract):
    @pytest.fixture(autouse=True)
    def _cluster(self, cluster):
        self.cluster = cluster

    def pods(self, agent):
        return self.cluster.objects("pods", "default")
