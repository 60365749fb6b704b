"""One real cluster for most tests of the spine, with four users; those that kill parts start their own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from spine_lab import Lab, asha, lab_of

from detlab.client.resources import Experiment
from testbed.cluster import Cluster, running_cluster


@pytest.fixture(scope="package")
def cluster(meeting_place: Path) -> Iterator[Cluster]:
    """A whole cluster, `det up` to `det down`; its operator and three more users.

    In a folder that everybody may enter, so that permissions alone keep tenants apart; the clusters of other tests
    are in closed folders, where tasks get a view of their own. Plain trials are forked from the agent's warm pool, as
    dozens of them import torch; in the clusters of other tests they start cold.
    """
    config = "c.EmbeddedCluster.extra_users = ['ada', 'ben', 'cleo']\n"
    root = meeting_place / "cluster"
    root.mkdir(mode=0o755)
    with running_cluster(root, slots=6, config=config, extra={"DETLAB_WARM_POOL": "1"}) as running:
        yield running


@pytest.fixture(scope="package")
def stubborn() -> dict[str, Experiment]:
    """Two searches whose only trial does not poll, by the name of its script; `lab` starts them."""
    return {}


@pytest.fixture(scope="package")
def lab(cluster: Cluster, stubborn: dict[str, Experiment], request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The operator at that cluster."""
    with lab_of(cluster) as found:
        if any("stubborn" in getattr(item, "fixturenames", ()) for item in request.session.items):
            # They take 10 and 15 seconds: they run beside the other tests, which they need not wait for.
            for script in ("ignores_sigterm", "never_exits"):
                stubborn[script] = found.submit(asha(f"{script}.py", 1, 1, rungs=1, name=script))
        yield found


@pytest.fixture(scope="package")
def meeting_place() -> Iterator[Path]:
    """A folder that tasks of any user can look into: a file in it lets a waiting trial go on.

    Not under pytest's own folder, which any other pytest of this user makes private again when it starts.
    """
    folder = Path(tempfile.mkdtemp(prefix="detlab-meeting-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
