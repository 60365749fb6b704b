"""uids of hub users."""

import json
import os
import pwd
import subprocess
import sys

import pytest

from detlab.launch.identity import IdentityError, UserIds, parse_range


def users(path, uid_range=(100, 104), mapped=None, taken=lambda uid: False):
    return UserIds(path, uid_range, mapped, taken)


def test_a_user_gets_one_uid_for_ever(tmp_path):
    path = tmp_path / "users.json"
    assert users(path).uid_for("alice") == 100
    assert users(path).uid_for("bob") == 101
    assert users(path).uid_for("alice") == 100
    assert json.loads(path.read_text()) == {"alice": 100, "bob": 101}


def test_uids_of_the_system_and_mapped_ones_are_never_allocated(tmp_path):
    ids = users(tmp_path / "u", mapped={"carol": 101}, taken=lambda uid: uid == 100)
    assert ids.uid_for("alice") == 102
    assert ids.uid_for("carol") == 101


def test_the_uid_of_a_removed_user_is_the_last_to_be_given_again(tmp_path):
    path = tmp_path / "u"
    path.write_text('{"bob": 102}')
    given = [users(path).uid_for(name) for name in ("a", "b", "c", "d")]
    assert given == [103, 104, 100, 101]
    with pytest.raises(IdentityError, match="uid-range"):
        users(path).uid_for("e")


@pytest.mark.parametrize("uid", [0, -1, True, "7"])
def test_nobody_is_mapped_to_root_or_nonsense(tmp_path, uid):
    with pytest.raises(IdentityError):
        users(tmp_path / "u", mapped={"alice": uid})


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 0}', '{"a": "7"}', '{"a": true}'])
def test_a_damaged_map_stops_everything(tmp_path, text):
    (tmp_path / "u").write_text(text)
    with pytest.raises(IdentityError, match="damaged"):
        users(tmp_path / "u").uid_for("alice")


@pytest.mark.parametrize("text", ["", "5", "a-b", "0-10", "9-3", "-5-6"])
def test_bad_ranges(text):
    with pytest.raises(ValueError, match="range"):
        parse_range(text)


def test_a_range():
    assert parse_range("20000-29999") == (20000, 29999)


def test_processes_that_ask_at_once_get_different_uids(tmp_path):
    path = tmp_path / "users.json"
    program = (
        "import sys; from detlab.launch.identity import UserIds; from pathlib import Path\n"
        "ids = UserIds(Path(sys.argv[1]), (70000, 70999))\n"
        "for n in range(20): ids.uid_for(f'{sys.argv[2]}{n}')\n"
    )
    runs = [subprocess.Popen([sys.executable, "-c", program, str(path), name]) for name in "abcd"]
    assert [run.wait(60) for run in runs] == [0, 0, 0, 0]
    given = json.loads(path.read_text())
    assert len(given) == len(set(given.values())) == 80
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.getuid() not in given.values()


def test_a_mapped_account_brings_its_groups_and_home_but_never_roots(tmp_path, monkeypatch):
    account = pwd.struct_passwd(("dora", "x", 101, 0, "", "/home/dora", "/bin/sh"))
    monkeypatch.setattr("detlab.launch.identity.pwd.getpwuid", lambda uid: account)
    monkeypatch.setattr("detlab.launch.identity.os.getgrouplist", lambda name, gid: [gid, 0, 44, 27])
    identity = users(tmp_path / "u", mapped={"alice": 101}).identity_for("alice")
    assert (identity.uid, identity.gid, identity.groups) == (101, 101, (27, 44))
    assert str(identity.home) == "/home/dora"


def test_an_allocated_uid_has_no_home_and_no_further_groups(tmp_path):
    identity = users(tmp_path / "u").identity_for("alice")
    assert (identity.uid, identity.gid, identity.groups, identity.home) == (100, 100, (), None)
