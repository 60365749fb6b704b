"""Reading in directories of others, addresses, user maps."""

import json
import os

import pytest

from detlab.errors import DetlabError
from detlab.launch.host.identity import Identity
from detlab_agent.daemon import AgentError, read_user_map
from detlab_agent.endpoints import UnsafeMaster, find_endpoints
from detlab_agent.runtimes import preparation
from detlab_agent.runtimes.preparation import directories
from detlab_agent.runtimes.taskfiles import open_owned, read_owned_object, read_owned_tail


def test_a_regular_file_of_the_owner_is_read(tmp_path):
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "x.json").write_text('{"a": 1}')
    assert read_owned_object(tmp_path, "spool/x.json", os.getuid()) == {"a": 1}
    assert read_owned_tail(tmp_path, "spool/x.json", os.getuid(), 3) == "1}"
    assert read_owned_object(tmp_path, "none.json", os.getuid()) is None


def link_file(tmp_path):
    (tmp_path / "real").write_text("{}")
    (tmp_path / "x").symlink_to("real")
    return "x"


def link_directory(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x").write_text("{}")
    (tmp_path / "d").symlink_to("real")
    return "d/x"


def fifo(tmp_path):
    os.mkfifo(tmp_path / "x")
    return "x"


def directory(tmp_path):
    (tmp_path / "x").mkdir()
    return "x"


@pytest.mark.parametrize("make", [link_file, link_directory, fifo, directory])
def test_anything_else_counts_as_missing(tmp_path, make):
    name = make(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_owned(tmp_path, name, os.getuid())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_somebody_else_counts_as_missing(tmp_path):
    (tmp_path / "x").write_text("{}")
    os.chown(tmp_path / "x", 23080, 23080)
    with pytest.raises(FileNotFoundError):
        open_owned(tmp_path, "x", 23081)
    with open_owned(tmp_path, "x", 23080) as file:
        assert file.read() == b"{}"


@pytest.mark.parametrize("text", ["[1]", "no json", ""])
def test_what_is_no_object_counts_as_missing(tmp_path, text):
    (tmp_path / "x").write_text(text)
    assert read_owned_object(tmp_path, "x", os.getuid()) is None


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8642", "http://localhost:8642/", "http://[::1]:8642/services/detlab"]
)
def test_plain_http_to_this_machine_is_fine(url):
    endpoints = find_endpoints(url)
    assert endpoints.connect.startswith("ws://")
    assert endpoints.connect.endswith("/services/detlab/api/v1/agents/connect")
    assert endpoints.bundle("sha256:ab").endswith("/api/v1/bundles/sha256:ab")


def test_https_becomes_wss():
    assert find_endpoints("https://hub.example.org/").connect == (
        "wss://hub.example.org/services/detlab/api/v1/agents/connect"
    )


@pytest.mark.parametrize("url", ["http://10.0.0.7:8642", "http://hub.example.org", "http://127.0.0.1.evil.org"])
def test_no_token_over_plain_http_to_another_machine(url):
    with pytest.raises(UnsafeMaster, match="insecure-http"):
        find_endpoints(url)
    assert find_endpoints(url, insecure_http=True).base.startswith(url)


@pytest.mark.parametrize("url", ["", "ftp://x", "hub:8642", "http://user:pw@127.0.0.1/"])
def test_what_is_no_address(url):
    with pytest.raises(DetlabError):
        find_endpoints(url)


def test_user_maps(tmp_path):
    path = tmp_path / "map.json"
    path.write_text(json.dumps({"alice": 1005}))
    assert read_user_map(path) == {"alice": 1005}
    for bad in ("[]", "{", '{"alice": 0}', '{"alice": "5"}', '{"alice": true}'):
        path.write_text(bad)
        with pytest.raises(AgentError, match=r"map\.json"):
            read_user_map(path)


def test_the_operators_directories_are_reached_where_they_exist(tmp_path):
    assert directories([str(tmp_path), str(tmp_path / "none"), "relative"]) == [tmp_path]
    assert directories([]) == []


def test_a_second_name_of_somebodys_file_counts_as_missing(tmp_path):
    """Where the kernel allows it, a user can make a hard link to a file of root."""
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "x").hardlink_to(tmp_path / "secret")
    with pytest.raises(FileNotFoundError):
        open_owned(tmp_path, "x", os.getuid())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_root_is_not_read_for_a_user(tmp_path):
    (tmp_path / "x").write_text("{}")
    with pytest.raises(FileNotFoundError):
        open_owned(tmp_path, "x", 23081)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_link_put_in_while_the_directory_is_given_away_gives_nothing_else(tmp_path, monkeypatch):
    """The root was given first: then another process of the user could swap a directory for a link to /etc."""
    victim, root = tmp_path / "victim", tmp_path / "root"
    victim.mkdir()
    (root / "work").mkdir(parents=True)
    for folder in (victim, root / "work"):
        (folder / "shadow").write_text("x")
    change_owner = os.lchown

    def swap_then_change(path, uid, gid):
        inside = root.stat().st_uid == uid  # the user gets in as soon as the root is theirs
        if inside and not (root / "work").is_symlink():
            (root / "work").rename(root / "away")
            (root / "work").symlink_to(victim)
        change_owner(path, uid, gid)

    monkeypatch.setattr(os, "lchown", swap_then_change)
    preparation.give(root, Identity("eve", 23082, 23082))
    assert (victim / "shadow").stat().st_uid == 0
    assert root.stat().st_uid == (root / "work" / "shadow").stat().st_uid == 23082
