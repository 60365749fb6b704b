"""Which cluster `det` talks to where nobody named one: told when read, refused when changed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from detlab.client import Client
from detlab.errors import ClusterGuessed
from testbed.fake_master.api import FakeMaster

Det = Callable[..., Result]


@pytest.fixture
def last(master: FakeMaster, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of the fake master, elsewhere, as of the cluster started last; nothing here names it."""
    monkeypatch.delenv("DET_URL")
    monkeypatch.delenv("DET_TOKEN")
    folder = workplace / "elsewhere" / ".detlab"
    (folder / "secrets").mkdir(parents=True)
    (folder / "cluster.json").write_text(json.dumps({"url": master.url}))
    (folder / "secrets" / "user_token").write_text(master.token)
    notes = workplace / "xdg-state" / "detlab"
    notes.mkdir(parents=True)
    (notes / "last").write_text(f"{folder}\n")
    return folder


def test_a_guessed_cluster_is_read_and_named(det: Det, master: FakeMaster, last: Path) -> None:
    listed = det("e", "list")
    assert listed.exit_code == 0, listed.output
    assert f"Cluster: {master.url}" in listed.stderr
    assert str(last) in listed.stderr
    as_json = det("e", "list", "--json")
    assert json.loads(as_json.stdout) == []
    assert "a guess" in as_json.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("e", "kill", "1"),
        ("e", "pause", "1"),
        ("e", "create", "search.yaml", "code"),
        ("t", "kill", "1"),
        ("cmd", "run", "true"),
        ("job", "update", "x", "--priority", "3"),
        ("agent", "disable", "a"),
    ],
)
def test_verbs_that_change_things_refuse_a_guess(
    det: Det, master: FakeMaster, last: Path, words: tuple[str, ...]
) -> None:
    master.add_trial(master.add_experiment().id)
    refused = det(*words)
    assert refused.exit_code == 1, refused.output
    assert "a guess" in refused.stderr
    assert "det -m http://127.0.0.1:" in refused.stderr
    assert {method for method, _ in master.requests} <= {"GET", "HEAD"}


def test_down_and_status_mean_the_cluster_that_list_reads(det: Det, master: FakeMaster, last: Path) -> None:
    refused = det("down")
    assert refused.exit_code == 1
    assert f"det down --dir {last}" in refused.stderr
    shown = det("status")
    assert f"Cluster: {master.url}" in shown.stderr
    assert str(last) in shown.stdout


def test_down_in_a_folder_whose_cluster_is_stopped_leaves_the_other_alone(
    det: Det, last: Path, workplace: Path
) -> None:
    (workplace / ".detlab" / "secrets").mkdir(parents=True)
    again = det("down")
    assert again.exit_code == 0, again.output
    assert str(workplace / ".detlab") in again.output
    assert (last / "cluster.json").exists()
    shown = det("status")
    assert shown.exit_code == 1
    assert f"no cluster runs on {workplace / '.detlab'}" in shown.stdout.replace("\n", "")
    assert "Other commands run here read from" in shown.stderr


def test_the_python_client_too_only_reads_a_guess(master: FakeMaster, last: Path) -> None:
    with Client() as client:
        assert client.list_experiments() == []
        with pytest.raises(ClusterGuessed, match=str(last)):
            client.submit({"entrypoint": "true"})
