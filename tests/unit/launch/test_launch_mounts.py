"""Which directories are covered and what is bound back in: the plan, without mounting."""

import os

import pytest

from detlab.launch.host.mounts import Need, make_plan, passable, trace

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a plan is made by root, who can look everywhere")
UID = 23070


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "t"
    root.mkdir()
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_mode & 0o001 == 0:
            return root, parent  # pytest's own directories may be closed already
    return root, None


def closed(path):
    path.mkdir(parents=True)
    path.chmod(0o700)
    return path


def test_nothing_to_do_where_everything_can_be_entered():
    assert make_plan([Need(__import__("pathlib").Path("/usr/bin"))], UID, [UID]).covers == ()


def test_the_topmost_closed_directory_is_covered_and_needs_are_bound(tree):
    root, above = tree
    outer = closed(root / "outer")
    inner = closed(outer / "inner")
    (inner / "lib").mkdir()
    plan = make_plan([Need(inner / "lib"), Need(outer / "missing")], UID, [UID])
    assert len(plan.covers) == 1
    assert plan.covers[0] in {outer, *outer.parents}
    assert plan.covers[0] == (above if above else outer) or plan.covers[0] in outer.parents
    assert plan.binds == (Need(inner / "lib"),)


def test_a_bind_inside_another_is_left_out_unless_it_is_writable(tree):
    root, _ = tree
    shut = closed(root / "shut")
    (shut / "a" / "b").mkdir(parents=True)
    (shut / "a" / "w").mkdir()
    plan = make_plan([Need(shut / "a" / "b"), Need(shut / "a" / "w", writable=True), Need(shut / "a")], UID, [UID])
    assert plan.binds == (Need(shut / "a"), Need(shut / "a" / "w", writable=True))


def test_links_behind_a_cover_are_made_again(tree):
    root, _ = tree
    shut = closed(root / "shut")
    (shut / "real").mkdir()
    (shut / "link").symlink_to("real")
    plan = make_plan([Need(shut / "link")], UID, [UID])
    assert plan.binds == (Need(shut / "real"),)
    assert (shut / "link", "real") in plan.links


def test_trace_follows_links_and_stops_at_loops(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "l").symlink_to("d/../d")
    assert trace(tmp_path / "l").target == tmp_path / "d"
    (tmp_path / "x").symlink_to("y")
    (tmp_path / "y").symlink_to("x")
    with pytest.raises(OSError, match="too many"):
        trace(tmp_path / "x")


def test_mode_bits_decide_who_may_pass(tmp_path):
    tmp_path.chmod(0o710)
    os.chown(tmp_path, 23071, 23072)
    assert passable(tmp_path, 23071, [1])
    assert passable(tmp_path, UID, [23072])
    assert not passable(tmp_path, UID, [UID])
    tmp_path.chmod(0o011)
    assert not passable(tmp_path, 23071, [23072]), "the owner's bits count for the owner, like in the kernel"
