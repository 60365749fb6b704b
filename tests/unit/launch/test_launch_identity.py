"""As whom a hub user's tasks run on a node: what a root agent takes of the uids that the master assigns."""

import pwd

import pytest

from detlab.launch.host.identity import ACCEPTED_RANGE, IdentityError, UidRules, group_with, parse_range, read_uids

NONE_HELD_BACK = {}


def rules(accounts=NONE_HELD_BACK, **more):
    return UidRules(name_of=accounts.get, **more)


def test_an_assigned_uid_has_no_home_and_no_further_groups():
    identity = rules().identity("alice", 20_000, account=False)
    assert (identity.uid, identity.gid, identity.groups, identity.home) == (20_000, 20_000, (), None)


@pytest.mark.parametrize("account", [False, True])
@pytest.mark.parametrize("uid", [-1, 0, 1, 33, 999])
def test_root_and_the_systems_own_accounts_are_nobodys(uid, account):
    with pytest.raises(IdentityError, match=f"uid {uid}"):
        rules(accounts={uid: "daemon"}).identity("alice", uid, account=account)


@pytest.mark.parametrize("uid", [ACCEPTED_RANGE[1] + 1, 2**32 - 1])
def test_a_uid_that_the_kernel_takes_for_none_is_refused(uid):
    with pytest.raises(IdentityError, match="uid-range"):
        rules().identity("alice", uid, account=False)


def test_a_node_may_accept_fewer_uids():
    node = rules(accepted=(30_000, 30_999))
    assert node.identity("alice", 30_999, account=False).uid == 30_999
    with pytest.raises(IdentityError, match="uid_range"):
        node.identity("alice", 31_000, account=False)
    assert node.identity("alice", 1005, account=True).uid == 1005, "accounts are the operator's decision"


def test_a_master_that_assigns_no_uids_is_to_be_updated():
    with pytest.raises(IdentityError, match="update the master"):
        rules().identity("alice", None, account=False)


@pytest.mark.parametrize("name", ["carol", "alice"])
def test_the_uid_of_an_account_is_used_only_if_the_operator_says_so(name):
    """An account that happens to have the user's name is no exception: people choose names of Hub users."""
    with pytest.raises(IdentityError, match=f"account '{name}'"):
        rules(accounts={20_000: name}).identity("alice", 20_000, account=False)


@pytest.mark.parametrize("account", [False, True])
@pytest.mark.parametrize(
    ("group", "told"),
    [
        (("staff", ()), "the group 'staff' here: choose another c.DetHub.uid_range"),
        (("staff", ("ben", "carol", "dora", "eve")), "the group 'staff' here, whose members are ben, carol, dora …:"),
        (("alice", ("ben",)), "the group 'alice' here, whose members are ben:"),
    ],
)
def test_a_number_that_is_a_groups_on_this_node_gives_nobody_its_rights(group, told, account):
    """A site with groups of LDAP from 20000 up."""
    node = rules(group_of={20_000: group}.get)
    with pytest.raises(IdentityError) as refused:
        node.identity("alice", 20_000, account=account)
    assert told in str(refused.value)
    assert "c.DetHub.user_map" in str(refused.value)
    assert node.identity("alice", 20_001, account=account).gid == 20_001


def test_a_group_of_ones_own_is_no_obstacle():
    assert rules(group_of={20_000: ("alice", ())}.get).identity("alice", 20_000, account=False).gid == 20_000


def test_the_groups_of_this_machine_are_looked_up():
    assert group_with(0)[0] == "root"
    assert group_with(2**31 - 7) is None


@pytest.mark.parametrize(
    ("given", "uid", "told"),
    [
        ({"alice": 20_007}, 20_000, "alice"),
        ({"ben": 20_000}, 20_000, "ben"),
        ({"ben": 20_000, "alice": 20_001}, 20_000, "ben"),
    ],
)
def test_files_of_earlier_tasks_are_not_given_to_others(given, uid, told):
    with pytest.raises(IdentityError, match="chown -R") as error:
        rules(given=given).identity("alice", uid, account=False)
    assert repr(told) in str(error.value)
    assert str(given[told]) in str(error.value)


def test_what_the_node_gave_before_and_the_master_gives_now_may_be_the_same():
    node = rules(given={"alice": 20_000, "ben": 20_001})
    assert [node.identity(name, uid, account=False).uid for name, uid in node.given.items()] == [20_000, 20_001]
    assert node.identity("carol", 20_002, account=False).uid == 20_002


def test_a_mapped_account_brings_its_groups_and_home_but_never_roots(monkeypatch):
    account = pwd.struct_passwd(("dora", "x", 1101, 0, "", "/home/dora", "/bin/sh"))
    monkeypatch.setattr("detlab.launch.host.identity.pwd.getpwuid", lambda uid: account)
    monkeypatch.setattr("detlab.launch.host.identity.os.getgrouplist", lambda name, gid: [gid, 0, 44, 27])
    identity = UidRules().identity("alice", 1101, account=True)
    assert (identity.uid, identity.gid, identity.groups) == (1101, 1101, (27, 44))
    assert str(identity.home) == "/home/dora"


def test_a_mapped_account_that_this_node_does_not_have_is_a_number():
    identity = rules().identity("alice", 1101, account=True)
    assert (identity.uid, identity.gid, identity.groups, identity.home) == (1101, 1101, (), None)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 0}', '{"a": "7"}', '{"a": true}'])
def test_a_damaged_map_stops_everything(tmp_path, text):
    (tmp_path / "u").write_text(text)
    with pytest.raises(IdentityError, match="damaged"):
        read_uids(tmp_path / "u")


def test_no_map_is_an_empty_one(tmp_path):
    assert read_uids(tmp_path / "u") == {}


@pytest.mark.parametrize("text", ["", "5", "a-b", "0-10", "9-3", "-5-6"])
def test_bad_ranges(text):
    with pytest.raises(ValueError, match="range"):
        parse_range(text)


def test_a_range():
    assert parse_range("20000-29999") == (20000, 29999)
