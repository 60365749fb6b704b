"""`client.search_trials`, `det trial search`, lists with filters and `det view` against a real master."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from detlab.cli.root import det as command_of_det
from detlab.client.client import Client
from detlab.errors import ConfigError
from testbed.cluster import Cluster

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]
CONFIG = {
    "name": "found",
    "searcher": {"name": "random", "metric": "loss", "max_trials": 3},
    "hyperparameters": {"x": {"type": "double", "minval": 0.0, "maxval": 9.0}, "opt": "adam"},
    "reproducibility": {"experiment_seed": 1},
}
Det = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def experiment_id(cluster: Cluster) -> int:
    """A search by hand of three trials with the losses 1, 2 and 3, and the label `found-label`."""
    with Client(cluster.url, cluster.token) as client:
        search = client.create_search(CONFIG)
        for number, trial in enumerate(search, 1):
            search.tell(trial, float(number))
        client.get_experiment(search.id).add_label("found-label")
        return search.id


@pytest.fixture
def det(cluster: Cluster, tmp_path: Path) -> Det:
    """Run `det` as a user does."""
    here = {**cluster.environment, "DET_URL": cluster.url, "DET_TOKEN": cluster.token, "HOME": str(tmp_path)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [Path(sys.executable).with_name("det"), *words]
        return subprocess.run(command, env=here, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    return run


def test_a_frame_of_trials(client: Client, experiment_id: int) -> None:
    frame = client.search_trials("label = found-label and loss > 1", sort="-loss", columns=["loss", "loss.min", "no"])
    assert frame["loss"].tolist() == [3.0, 2.0]
    assert frame["experiment_id"].tolist() == [experiment_id] * 2
    assert frame["no"].isna().all()
    assert {"hparams.x", "hparams.opt", "owner", "state"} <= set(frame.columns)
    assert client.search_trials("label = no-such-label", columns="loss").columns.tolist()[-1] == "loss"
    found = client.find_trials(f"experiment = {experiment_id}", limit=1)
    assert (len(found.items), found.next) == (1, found.items[0].id)
    mine = client.list_experiments(filter="label = found-label and loss = 1")
    assert [one.id for one in mine] == [experiment_id], "the loss of an experiment is that of its best trial"
    assert client.list_experiments(filter="label = found-label and loss > 1") == []
    valued = client.list_experiments(filter="label = found-label", sort="-loss", columns=["loss", "hp.opt"])
    assert [one.view.values for one in valued] == [[1.0, "adam"]]
    trials = client.get_experiment(experiment_id).list_trials(filter="loss <= 2")
    assert [one.view.best_validation for one in trials] == [1.0, 2.0]
    with pytest.raises(ConfigError) as refused:
        client.search_trials("loss >")
    assert str(refused.value).splitlines()[1:3] == ["  loss >", "        ^"]
    assert [one.text for one in client.complete_filter("label = found").items] == ["found-label"]


def test_det_prints_writes_and_keeps(det: Det, experiment_id: int, tmp_path: Path) -> None:
    table = det("trial", "search", "label = found-label", "--sort", "loss", "-c", "loss.max", "-c", "label")
    assert table.returncode == 0, table.stderr
    assert [line.split()[7:9] for line in table.stdout.splitlines()[2:]] == [[f"{n}", "found-label"] for n in (1, 2, 3)]
    parquet_of = pytest.importorskip("pyarrow.parquet")  # without it det says how to install it, and prints no table
    text = det("trial", "search", "label = found-label", "-c", "loss", "--csv", "--parquet", "found.parquet").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [float(row["loss"]) for row in rows] == [3.0, 2.0, 1.0]
    parquet = parquet_of.read_table(tmp_path / "found.parquet").to_pylist()
    assert [row["loss"] for row in parquet] == [3.0, 2.0, 1.0]
    assert [math.isclose(row["hparams.x"], float(other["hparams.x"])) for row, other in zip(parquet, rows, strict=True)]
    saved = det("view", "save", "losses", "label = found-label and loss < 3", "--sort", "-loss", "-c", "loss")
    assert saved.stdout == "Saved view losses of trials.\n"
    seen = json.loads(det("trial", "search", "--view", "losses", "--json").stdout)
    assert [one["values"] for one in seen["items"]] == [[2.0], [1.0]]
    assert "losses" in det("view", "list").stdout
    assert det("view", "remove", "losses").stdout == "Removed view losses of trials.\n"
    assert "you have: none" in det("trial", "search", "--view", "losses").stderr
    one = det("trial", "list", str(experiment_id), "--filter", "loss = 2", "--csv").stdout
    assert [row["best_validation"] for row in csv.DictReader(io.StringIO(one))] == ["2.0"]
    assert "found" in det("experiment", "list", "--filter", "label = found-label and hp.opt = adam").stdout
    columns = det("experiment", "list", "--filter", "label = found-label", "-c", "loss", "-c", "trials", "--csv").stdout
    assert columns.splitlines()[1].endswith(",1.0,3")
    det("e", "list", "--filter", "label = found-label", "-c", "loss", "--parquet", "experiments.parquet")
    kept = parquet_of.read_table(tmp_path / "experiments.parquet").to_pylist()
    assert [(row["experiment_id"], row["loss"], row["best"]) for row in kept] == [(experiment_id, 1.0, 1.0)]
    nothing = det("experiment", "list", "--filter", "label = no-such-label")
    assert (nothing.returncode, nothing.stdout) == (0, "No experiments match.\n")


def test_det_points_at_a_mistake_and_tells_of_a_name_that_is_alike(det: Det, experiment_id: int) -> None:
    wrong = det("trial", "search", "lable = paper")
    assert wrong.returncode != 0
    assert "did you mean `label`?" in wrong.stderr
    shown, mark = wrong.stderr.splitlines()[1:3]
    assert mark.index("^") == shown.index("paper"), wrong.stderr
    missing = det("trial", "search", "lost < 1")
    assert missing.stdout == "No trials match.\n"
    assert "'lost' in the group 'validation'; did you mean loss?" in missing.stderr
    assert "did you mean loss?" in det("experiment", "list", "--filter", "lost < 1").stderr
    assert det("trial", "search", "a = 1", "--filter", "b = 1").returncode == 2


def test_a_list_of_experiments_begins_with_a_saved_view(det: Det, experiment_id: int) -> None:
    """A view of experiments could be saved, and no command took it."""
    del experiment_id
    assert det("view", "save", "good", "label = found-label", "--table", "experiments", "-c", "loss").returncode == 0
    listed = det("experiment", "list", "--view", "good", "--csv")
    assert listed.returncode == 0, listed.stderr
    assert [row["loss"] for row in csv.DictReader(io.StringIO(listed.stdout))] == ["1.0"]
    assert "no saved view 'bad' of experiments" in det("experiment", "list", "--view", "bad").stderr
    assert det("view", "remove", "good", "--table", "experiments").returncode == 0


def test_times_are_times_and_columns_of_a_view_of_the_page_are_shown_once(det: Det, experiment_id: int) -> None:
    """`-c created` printed 1.79599e+09, and a view saved on the page repeated each usual column."""
    del experiment_id
    listed = det(
        "experiment", "list", "--filter", "label = found-label", "-c", "created", "-c", "progress", "-c", "best"
    )
    title, _, row = listed.stdout.splitlines()[:3]
    assert title.split()[-3:] == ["created", "progress", "best"]
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +\d+% +1 *$", row), row
    for table, command in (("experiments", ("experiment", "list")), ("trials", ("trial", "search"))):
        columns = [word for name in ("id", "name", "state", "best", "created", "hp.opt") for word in ("-c", name)]
        assert det("view", "save", "page", "label = found-label", "--table", table, *columns).returncode == 0
        titles = det(*command, "--view", "page").stdout.splitlines()[0].split()
        assert [title for title in titles if title.islower()] == ["created", "hp.opt"], titles
        assert det("view", "remove", "page", "--table", table).returncode == 0


def test_a_workspace_is_not_deleted_unasked(det: Det) -> None:
    """Without a terminal to ask at, it said `Interrupted.` and no more."""
    assert det("workspace", "create", "unasked").returncode == 0
    refused = det("workspace", "delete", "unasked")
    assert refused.returncode == 2
    assert "add --yes" in refused.stderr
    assert det("workspace", "delete", "unasked", "--yes").returncode == 0


def test_the_tab_key_offers_experiments_views_and_workspaces(
    det: Det, cluster: Cluster, experiment_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It offered options alone, but for searches, tasks, agents and models."""

    monkeypatch.setenv("DET_URL", cluster.url)
    monkeypatch.setenv("DET_TOKEN", cluster.token)
    completion = ShellComplete(command_of_det, {}, "det", "_DET_COMPLETE")

    def offered(*words: str) -> list[str]:
        return [item.value for item in completion.get_completions(list(words[:-1]), words[-1])]

    assert det("workspace", "create", "for-tab").returncode == 0
    assert det("view", "save", "two words", "label = x", "--table", "experiments").returncode == 0
    mine = str(experiment_id)
    for name in ("describe", "fork", "continue", "archive", "compare", "move"):
        assert mine in offered("experiment", name, ""), name
    assert offered("experiment", "describe", "no") == []
    assert "for-tab" in offered("experiment", "list", "-w", "for")
    assert "for-tab" in offered("workspace", "describe", "for")
    assert "for-tab" in offered("experiment", "move", mine, "for")
    assert offered("experiment", "list", "--view", "tw") == ["'two words'"]
    assert offered("trial", "search", "--view", "tw") == []
    assert offered("view", "remove", "tw") == ["'two words'"]
    assert det("view", "remove", "two words", "--table", "experiments").returncode == 0
