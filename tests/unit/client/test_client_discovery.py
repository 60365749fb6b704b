"""Which cluster a command talks to, and that no token goes to another one."""

import json
import os
from pathlib import Path

import pytest

from detlab.client.transport.discovery import Discovery, service_url
from detlab.client.transport.logins import Logins
from detlab.errors import ClusterGuessed, ClusterNotFound, ClusterUnreachable, DetlabError


class Place:
    """A user's folders, and searches in them."""

    def __init__(self, base: Path) -> None:
        self.work = base / "work" / "deep"
        self.work.mkdir(parents=True)
        self.state = base / "state"
        self.state.mkdir()
        self.logins = Logins(base / "config" / "auth.json")

    def cluster(self, folder: Path, port: int, token: str | None = "folder-token") -> Path:
        state = folder / ".detlab"
        (state / "secrets").mkdir(parents=True)
        url = f"http://127.0.0.1:{port}"
        record = {"url": url, "service_url": f"{url}/services/detlab/", "user": "alice"}
        (state / "cluster.json").write_text(json.dumps(record))
        if token:
            (state / "secrets" / "user_token").write_text(f"{token}\n")
        return state

    def search(self, uid: int | None = None, **environ: str) -> Discovery:
        return Discovery(environ, self.work, self.state, self.logins, os.getuid() if uid is None else uid)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://h:8642", "http://h:8642/services/detlab/"),
        ("http://h:8642/", "http://h:8642/services/detlab/"),
        ("http://h:8642/services/detlab", "http://h:8642/services/detlab/"),
        ("http://h:8642/services/detlab/api/v1/me?x=1#y", "http://h:8642/services/detlab/"),
        ("http://h:8642/hub/home", "http://h:8642/services/detlab/"),
        ("http://h/user/alice/lab", "http://h/services/detlab/"),
        ("https://h/jupyter", "https://h/jupyter/services/detlab/"),
        ("https://h/jupyter/hub/login", "https://h/jupyter/services/detlab/"),
        ("https://h/hubris", "https://h/hubris/services/detlab/"),
        (" http://[::1]:8642 ", "http://[::1]:8642/services/detlab/"),
    ],
)
def test_any_address_of_a_hub_gives_the_service(given: str, expected: str) -> None:
    assert service_url(given) == expected


@pytest.mark.parametrize("given", ["localhost:8642", "h", "", "ftp://h", "http://", "http://a:b@h"])
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(ClusterNotFound):
        service_url(given)


def test_explicit_arguments_win(place: Place) -> None:
    place.cluster(place.work, 1)
    found = place.search(DET_URL="http://e:1", DET_TOKEN="env").find("http://x:9", "mine")
    assert (found.url, found.token) == ("http://x:9/services/detlab/", "mine")


def test_nonsense_in_the_environment_does_not_matter_to_who_names_a_cluster(place: Place) -> None:
    found = place.search(DET_URL="nonsense", DET_TOKEN="env").find("http://x:9", "mine")
    assert found.url == "http://x:9/services/detlab/"
    assert place.search(DET_URL="nonsense", DET_TOKEN="env").find("http://x:9").token is None


def test_environment_wins_over_folders(place: Place) -> None:
    place.cluster(place.work, 1)
    found = place.search(DET_URL="http://e:2", DET_TOKEN="env").find()
    assert (found.url, found.token, found.source) == ("http://e:2/services/detlab/", "env", "DET_URL")


def test_a_spawned_server_uses_its_hub_token(place: Place) -> None:
    found = place.search(DET_URL="http://e:2", JUPYTERHUB_API_TOKEN="hub").find()
    assert found.token == "hub"
    assert place.search(DET_URL="http://e:2", DET_TOKEN="d", JUPYTERHUB_API_TOKEN="hub").find().token == "d"


def test_the_nearest_folder_wins(place: Place) -> None:
    place.cluster(place.work.parent, 1)
    assert place.search().find().url.startswith("http://127.0.0.1:1/")
    near = place.cluster(place.work, 2)
    found = place.search().find()
    assert found.url == "http://127.0.0.1:2/services/detlab/"
    assert (found.token, found.folder) == ("folder-token", near)


def test_a_token_in_the_environment_goes_with_a_found_folder(place: Place) -> None:
    place.cluster(place.work, 1)
    assert place.search(DET_TOKEN="env").find().token == "env"


def test_a_folder_of_somebody_else_does_not_count(place: Place) -> None:
    place.cluster(place.work, 1)
    stranger = os.getuid() + 4321
    if os.getuid() != 0:
        with pytest.raises(ClusterNotFound):
            place.search(uid=stranger).find()
        return
    os.chown(place.work / ".detlab", stranger, -1)
    with pytest.raises(ClusterNotFound, match="none that you own"):
        place.search().find()
    os.chown(place.work / ".detlab", 0, -1)
    assert place.search(uid=stranger).find().token == "folder-token"  # root's folders count for everybody
    os.chown(place.work / ".detlab" / "cluster.json", stranger, -1)
    with pytest.raises(ClusterUnreachable):
        place.search().find()


def test_the_cluster_started_last_comes_after_folders(place: Place, tmp_path: Path) -> None:
    last = place.cluster(tmp_path / "elsewhere", 3)
    (place.state / "last").write_text(f"{last}\n")
    assert place.search().find().folder == last
    place.cluster(place.work, 4)
    assert place.search().find().url.startswith("http://127.0.0.1:4/")


def test_a_stopped_folder_does_not_hide_a_running_cluster_which_is_a_guess_then(place: Place, tmp_path: Path) -> None:
    last = place.cluster(tmp_path / "elsewhere", 3)
    (place.state / "last").write_text(str(last))
    near = place.cluster(place.work, 4)
    (near / "cluster.json").unlink()
    found = place.search().find()
    assert found.folder == last
    assert str(near) in str(found.guess)
    (place.state / "last").unlink()
    place.logins.store("http://h/services/detlab/", "login-token")
    assert str(near) in str(place.search().find().guess)
    above = place.cluster(place.work.parent, 5)
    found = place.search().find()
    assert found.folder == above
    assert found.guess is not None


def test_what_nobody_named_is_a_guess_and_only_read(place: Place, tmp_path: Path) -> None:
    last = place.cluster(tmp_path / "elsewhere", 3)
    (place.state / "last").write_text(str(last))
    guessed = place.search().find()
    assert str(last) in str(guessed.guess)
    guessed.unchanged("GET")
    for method in ("POST", "PUT", "DELETE"):
        with pytest.raises(ClusterGuessed) as caught:
            guessed.unchanged(method)
        assert "det -m http://127.0.0.1:3 " in str(caught.value.hint)
    assert place.search(DET_TOKEN="env").find().guess is not None  # a token names no cluster
    named = [place.search().find("http://127.0.0.1:3"), place.search(DET_URL="http://127.0.0.1:3").find()]
    place.cluster(place.work, 4)
    named.append(place.search().find())
    for address in named:
        assert address.guess is None
        address.unchanged("POST")


def test_a_command_about_a_state_folder_follows_the_same_order(place: Place, tmp_path: Path) -> None:
    assert place.search().state_folder_of() == (Path(".detlab"), None)
    last = place.cluster(tmp_path / "elsewhere", 3)
    (place.state / "last").write_text(str(last))
    folder, guessed = place.search().state_folder_of()
    assert folder == last
    assert guessed is not None
    assert guessed.folder == last
    assert place.search().state_folder_of("http://127.0.0.1:3") == (last, None)
    assert place.search(DET_URL="http://127.0.0.1:3").state_folder_of() == (last, None)
    above = place.cluster(place.work.parent, 4)
    assert place.search().state_folder_of() == (above, None)
    with pytest.raises(DetlabError, match="no state folder"):
        place.search().state_folder_of("http://h:1")
    with pytest.raises(DetlabError, match="no state folder"):
        place.search(DET_URL="http://h:1").state_folder_of()
    (above / "cluster.json").unlink()
    folder, other = place.search().state_folder_of()
    assert folder == above  # a command about a folder means the near one, running or not
    assert other is not None
    assert other.folder == last
    (place.state / "last").unlink()
    assert place.search().state_folder_of() == (above, None)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to make a folder of root's")
def test_a_command_about_a_state_folder_does_not_mean_that_of_root(place: Place) -> None:
    """In JupyterLab's terminal `det status` said that no cluster runs, since it may not look into root's folder."""
    place.cluster(place.work.parent, 4)
    here = place.search(uid=1234, DET_URL="http://127.0.0.1:4", DET_TOKEN="mine")
    assert here.find().url.startswith("http://127.0.0.1:4/")
    with pytest.raises(DetlabError, match="no state folder of yours"):
        here.state_folder_of()


def test_a_folder_whose_cluster_is_down_is_named_where_there_is_no_other(place: Place) -> None:
    near = place.cluster(place.work, 4)
    (near / "cluster.json").unlink()
    with pytest.raises(ClusterUnreachable) as caught:
        place.search().find()
    assert str(near) in caught.value.message
    assert f"det up --dir {near}" in str(caught.value.hint)


def test_the_login_comes_last(place: Place) -> None:
    place.logins.store("http://h/services/detlab/", "login-token")
    found = place.search().find()
    assert (found.url, found.token) == ("http://h/services/detlab/", "login-token")
    assert place.logins.path.stat().st_mode & 0o777 == 0o600


def test_nothing_found_says_what_was_tried_and_what_to_do(place: Place) -> None:
    with pytest.raises(ClusterNotFound) as caught:
        place.search().find()
    for part in ("DET_URL", ".detlab", "started last", "auth.json"):
        assert part in caught.value.message
    assert "det up" in str(caught.value.hint)
    assert "det login URL" in str(caught.value.hint)


def test_no_token_goes_to_another_address(place: Place) -> None:
    place.cluster(place.work, 1)
    place.logins.store("http://h/services/detlab/", "login-token")
    environ = {"DET_URL": "http://e:2", "DET_TOKEN": "env", "JUPYTERHUB_API_TOKEN": "hub"}
    assert place.search(**environ).find("http://evil:9").token is None
    assert place.search().find("http://evil:9").token is None
    assert place.search(**environ).find("http://h").token == "login-token"
    assert place.search().find("http://127.0.0.1:1").token == "folder-token"


@pytest.mark.parametrize("content", ["", "[]", '{"url": 7}', "\x00", '{"url": "nonsense"}'])
def test_a_damaged_record_does_not_crash_the_search(place: Place, content: str) -> None:
    state = place.cluster(place.work, 1)
    (state / "cluster.json").write_text(content)
    with pytest.raises((ClusterUnreachable, ClusterNotFound)):
        place.search().find()


def test_a_token_is_not_in_the_repr(place: Place) -> None:
    place.cluster(place.work, 1)
    assert "folder-token" not in repr(place.search().find())


def test_logins_are_kept_apart_and_forgotten(tmp_path: Path) -> None:
    logins = Logins(tmp_path / "deep" / "auth.json")
    assert logins.current() is None
    assert logins.forget() is False
    logins.store("http://a/", "1")
    logins.store("http://b/", "2")
    assert logins.current() == ("http://b/", "2")
    assert logins.token("http://a/") == "1"
    assert logins.forget() is True
    assert logins.current() == ("http://a/", "1")
    assert [path.name for path in logins.path.parent.iterdir()] == ["auth.json"]


def test_a_damaged_login_file_says_which_file(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    path.write_text("{")
    with pytest.raises(DetlabError, match=str(path)):
        Logins(path).current()


def test_a_notebook_run_has_its_own_token_for_its_own_master(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "run_token"
    file.write_text("dtrun_abc\n")
    place.cluster(place.work, 1)
    master = "http://10.0.0.5:8642/services/detlab/"
    run = {"DET_MASTER": master, "DET_TOKEN_FILE": str(file)}
    found = place.search(**run).find()
    assert (found.url, found.token, found.source, found.guess) == (master, "dtrun_abc", "this notebook run", None)
    assert place.search(**run).find("http://10.0.0.5:8642").token == "dtrun_abc"
    assert place.search(**run).find("http://10.0.0.6:8642").token is None
    assert place.search(**run, DET_URL="http://10.0.0.6:8642").find().token is None
    assert place.search(**run, DET_URL=master, DET_TOKEN="mine").find().token == "mine"
    file.unlink()
    assert place.search(**run).find().token == "folder-token"


def test_a_cluster_that_is_not_the_last_started_has_its_token_when_its_url_is_named(
    place: Place, tmp_path: Path
) -> None:
    """Regression: `det -m URL`, as the hint said, found a token for the cluster started last only."""
    first, second = place.cluster(tmp_path / "one", 3, "first"), place.cluster(tmp_path / "two", 4, "second")
    (place.state / "last").write_text(f"{second}\n")
    (place.state / "started").write_text(f"{second}\n{first}\n{tmp_path / 'gone'}\n")
    assert place.search().find("http://127.0.0.1:3").token == "first"
    assert place.search(DET_URL="http://127.0.0.1:3").find().token == "first"
    assert place.search().find("http://127.0.0.1:4").token == "second"
    assert place.search().find("http://127.0.0.1:5").token is None
    assert place.search().state_folder_of("http://127.0.0.1:3") == (first, None)
    assert place.search().find().folder == second  # it is read without a name, no other


def test_a_start_without_dir_takes_the_folder_above(place: Place, tmp_path: Path) -> None:
    """Regression: it made a new, empty cluster below the one that all other commands meant."""
    here = place.work / ".detlab"
    last = place.cluster(tmp_path / "elsewhere", 3)
    (place.state / "last").write_text(str(last))
    assert place.search().folder_to_start() == here
    above = place.cluster(place.work.parent, 4)
    assert place.search().folder_to_start() == above
    (above / "cluster.json").unlink()  # stopped
    assert place.search().folder_to_start() == above
    assert place.search(uid=os.getuid() + 4321).folder_to_start() == here
    here.mkdir()
    assert place.search().folder_to_start() == here
