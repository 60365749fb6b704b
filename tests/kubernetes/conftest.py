"""Clusters for the tests of Kubernetes: a fake one, and the real one for tests that are marked `kubernetes`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.kubernetes import control_plane as planes
from testbed.kubernetes.dns import names
from testbed.kubernetes.real_node import RealNode, real_node

KEPT = Path(os.environ["DETLAB_KUBERNETES_KEPT"]) if "DETLAB_KUBERNETES_KEPT" in os.environ else None
"""A folder whose cluster is used, and left running: it saves a minute of each run while one writes a test."""


@pytest.fixture(scope="session")
def plane() -> Iterator[planes.ControlPlane]:
    """A control plane of the real Kubernetes for this run."""
    for left in planes.abandoned():
        planes.down(left)
    try:
        found = planes.up(KEPT)
    except planes.CannotRun as error:
        pytest.skip(str(error))
    try:
        yield found
    finally:
        if KEPT is None:
            planes.down(found.directory)


@pytest.fixture(scope="session")
def node(plane: planes.ControlPlane) -> Iterator[RealNode]:
    """Its one real node."""
    try:
        with real_node(plane, keep=KEPT is not None) as found, names(plane):
            yield found
    except planes.CannotRun as error:
        pytest.skip(str(error))
