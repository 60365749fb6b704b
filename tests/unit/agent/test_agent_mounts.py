"""Mounts of directories in which users may rename things.

The engine follows the path again, as root, and a user who may rename what is in a folder chooses where it leads.
"""

import os
from pathlib import Path

import pytest
from test_agent_containers import CPU, order

from detlab.schemas import wire
from detlab_agent.runtimes.base import RefusedTask
from detlab_agent.runtimes.docker.container import Allowance, changeable, mounts_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")


def source(tmp_path, host):
    spec = wire.ContainerSpec(image="i", mounts=[wire.Mount(host_path=str(host), container_path="/x")])
    (tmp_path / "allowed").mkdir(exist_ok=True)
    return mounts_for(order(tmp_path, CPU), spec, Allowance([tmp_path / "allowed"]), None)[-1]["Source"]


@pytest.mark.parametrize("mode", [0o755, 0o700, 0o1755])
def test_a_folder_of_a_user_is_mounted_and_what_is_in_it_is_not(tmp_path, mode):
    own = tmp_path / "allowed/ada"
    (own / "set").mkdir(parents=True)
    own.chmod(mode)
    os.chown(own, 23000, 23000)
    assert source(tmp_path, own) == str(own)
    with pytest.raises(RefusedTask, match=rf"may rename what is in {own},.*mount {own} itself"):
        source(tmp_path, own / "set")


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
def test_what_is_in_a_folder_that_others_write_is_not_mounted(tmp_path, mode):
    shared = tmp_path / "allowed/shared"
    (shared / "set").mkdir(parents=True)
    shared.chmod(mode)
    assert source(tmp_path, shared) == str(shared)
    with pytest.raises(RefusedTask, match=f"may rename what is in {shared}"):
        source(tmp_path, shared / "set")


def test_in_a_sticky_folder_what_is_roots_stays(tmp_path):
    shared = tmp_path / "allowed"
    (shared / "roots").mkdir(parents=True)
    (shared / "adas").mkdir()
    shared.chmod(0o1777)
    os.chown(shared / "adas", 23000, 23000)
    assert source(tmp_path, shared / "roots") == str(shared / "roots")
    with pytest.raises(RefusedTask, match="may rename what is in"):
        source(tmp_path, shared / "adas")


def test_a_link_that_comes_in_between_is_not_followed(tmp_path):
    (tmp_path / "allowed").mkdir()
    (tmp_path / "allowed/x").symlink_to("/etc")
    assert changeable(tmp_path / "allowed/x") == tmp_path / "allowed"
    assert changeable(tmp_path / "allowed/x/passwd") == tmp_path / "allowed"
    assert changeable(Path("/etc/passwd")) is None


def test_a_neighbour_whose_name_begins_in_the_same_way_is_not_allowed(tmp_path):
    (tmp_path / "allowed-evil").mkdir()
    with pytest.raises(RefusedTask, match="this agent allows"):
        source(tmp_path, tmp_path / "allowed-evil")
