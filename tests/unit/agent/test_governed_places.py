"""No spelling of a path brings a task to governed data that it is not placed for: the node looks at what paths are."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from test_agent_containers import CPU, order
from test_kubernetes_mounts import NODE, RULES

from detlab.schemas import wire
from detlab_agent.runtimes.base import SetupFailed
from detlab_agent.runtimes.closed_places import check_sources
from detlab_agent.runtimes.docker.container import Allowance, mounts_for
from detlab_agent.runtimes.kubernetes.pods import pod


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node whose operator allows all of `srv`, in which `patients` is governed, and `disk` is where it really is."""
    (tmp_path / "srv/public/set").mkdir(parents=True)
    (tmp_path / "disk/patients/2024").mkdir(parents=True)
    (tmp_path / "srv/patients").symlink_to(tmp_path / "disk/patients")
    (tmp_path / "srv/public/link").symlink_to(tmp_path / "srv/patients/2024")
    (tmp_path / "srv/public/up").symlink_to(tmp_path / "srv")
    (tmp_path / "srv/public/far").symlink_to(tmp_path / "disk/patients/2024")
    return tmp_path


def sources(node: Path, host: str, *, closed: bool = True, volumes: tuple[str, ...] = ()) -> list[str]:
    mounts = [wire.Mount(host_path=f"{node}/{host}", container_path="/x")] if host else []
    places = [f"{node}/srv/patients"] if closed else []
    spec = wire.ContainerSpec(image="i", mounts=mounts, closed=places)
    every = [wire.Mount(host_path=f"{node}/{one}", container_path="/v") for one in volumes]
    allowance = Allowance([node / "srv", node / "disk"], volumes=every)
    return [str(one["Source"]) for one in mounts_for(order(node / "agent", CPU), spec, allowance, None)]


@pytest.mark.parametrize(
    "host",
    [
        "srv/public/link",
        "srv/public/far",
        "srv/public/up",
        "srv/public/up/patients",
        "srv/public/link/..",
        "srv/public/link/../2024",
        "srv/patients",
        "disk/patients",
        "disk/patients/2024",
        "disk",
        "disk/./public/../patients",
        "srv//public/up/public/../patients/",
    ],
)
def test_a_path_that_leads_to_governed_data_is_refused_whatever_it_is_called(node: Path, host: str) -> None:
    """A link in a public directory, or another name of the disk, was mounted: the master had seen its text alone."""
    with pytest.raises(SetupFailed, match=r"leads to .*srv/patients, which is governed data"):
        sources(node, host)
    assert sources(node, host, closed=False)


def test_what_is_beside_and_a_task_that_is_placed_for_it_are_not_in_the_way(node: Path) -> None:
    assert f"{node}/srv/public" in sources(node, "srv/public")
    assert f"{node}/srv/public/set" in sources(node, "srv/public/set")
    assert f"{node}/disk/patients/2024" in sources(node, "srv/public/link", closed=False)


def test_a_volume_of_all_containers_of_an_agent_is_looked_at_too(node: Path) -> None:
    with pytest.raises(SetupFailed, match="governed data"):
        sources(node, "", volumes=("srv/public/link",))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_file_system_that_is_mounted_twice_is_the_same_place(node: Path) -> None:
    again = node / "srv/public/again"
    again.mkdir()
    mounted = subprocess.run(["mount", "--bind", f"{node}/disk/patients", str(again)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounts are not allowed here")
    try:
        with pytest.raises(SetupFailed, match="governed data"):
            check_sources([str(again / "2024")], [f"{node}/srv/patients"])
    finally:
        subprocess.run(["umount", str(again)], check=True)


@pytest.mark.parametrize(("host", "fits"), [("/data/public", False), ("/data/sets/x", True), ("/scratch/x", True)])
def test_a_pod_gets_no_part_of_a_directory_in_which_links_may_lead_to_it(tmp_path: Path, host: str, fits: bool) -> None:
    wanted = order(tmp_path, CPU)
    mount = wire.Mount(host_path=host, container_path="/in")
    wanted.launch.container = wire.ContainerSpec(image="i", mounts=[mount], closed=["/data/patients"])
    if fits:
        assert pod(wanted, "det-1", NODE, RULES)
        return
    with pytest.raises(SetupFailed, match="links in it may lead to /data/patients"):
        pod(wanted, "det-1", NODE, RULES)
