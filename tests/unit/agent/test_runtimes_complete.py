"""Each runtime that comes with detlab has all that the agent asks of one: a seam grows while others are written."""

from __future__ import annotations

import pytest

from detlab_agent.runtimes.dispatch import NodeRuntime
from detlab_agent.runtimes.docker.runtime import DockerRuntime
from detlab_agent.runtimes.kubernetes.runtime import KubernetesRuntime
from detlab_agent.runtimes.process.runtime import ProcessRuntime
from detlab_agent.runtimes.registry import RUNTIMES
from detlab_agent.runtimes.slurm.runtime import SlurmRuntime

KINDS = (ProcessRuntime, DockerRuntime, KubernetesRuntime, SlurmRuntime)


@pytest.mark.parametrize("kind", KINDS)
def test_no_runtime_lacks_a_member_of_the_seam(kind: type) -> None:
    wanted = {name for name in {**vars(NodeRuntime), **NodeRuntime.__annotations__} if not name.startswith("_")}
    assert {"queue", "nodes", "make", "tasks_are"} <= wanted
    assert {name for name in wanted if not hasattr(kind, name)} == set()


def test_these_are_all_that_come_with_detlab() -> None:
    ours = {name for name in RUNTIMES.names() if RUNTIMES.origin(name).startswith("detlab")}
    assert {kind.name for kind in KINDS} >= ours
