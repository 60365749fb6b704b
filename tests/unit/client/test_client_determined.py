"""Names, arguments and orders of Determined's SDK."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from detlab import client as sdk
from detlab.client.aclient import AsyncClient
from detlab.client.client import Client
from detlab.client.ordering import line_filter
from detlab.errors import Conflict
from detlab.experimental import client as determined
from detlab.schemas.wire import BestView, Event, ExperimentState, LogLine, SeriesView, TrialState
from testbed.fake_master.api import ApiFault, FakeMaster


def best(value: float) -> BestView:
    return BestView(trial_id=1, trial_index=0, steps_completed=1, value=value)


@pytest.fixture
def four(master: FakeMaster) -> FakeMaster:
    master.add_experiment("a", labels=["x", "y"], owner="alice", started_at=30.0, best=best(0.5), trials={"ACTIVE": 2})
    master.add_experiment("b", labels=["x"], owner="bob", state=ExperimentState.PAUSED, started_at=10.0)
    master.add_experiment("c", owner="alice", state=ExperimentState.ERROR, best=best(0.25), trials={"ERROR": 3})
    master.add_experiment("d", owner="carol", state=ExperimentState.ERROR, started_at=20.0, trials={"ERROR": 1})
    return master


def names(found: list[Any]) -> str:
    return "".join(item.name for item in found)


def test_experiments_are_chosen_and_sorted(four: FakeMaster, client: Client) -> None:
    found = client.list_experiments
    assert names(found()) == "dcba"  # newest first, as before
    assert names(found(sdk.ExperimentSortBy.NAME)) == names(found("name", "asc")) == "abcd"
    assert names(found(sdk.ExperimentSortBy.ID, sdk.OrderBy.DESC)) == "dcba"
    assert names(found(sdk.ExperimentSortBy.START_TIME)) == "bdac"  # what has no value comes last
    assert names(found(sdk.ExperimentSortBy.START_TIME, sdk.OrderBy.DESCENDING)) == "adbc"
    assert names(found(sdk.ExperimentSortBy.SEARCHER_METRIC_VAL))[:2] == "ca"
    assert names(found(sdk.ExperimentSortBy.NUM_TRIALS, "desc"))[:3] == "cad"
    assert names(found(sdk.ExperimentSortBy.NAME, limit=2)) == "ab"
    assert names(found(experiment_ids=[1, 3, 99])) == "ca"
    assert names(found(labels=["x"])) == "ba"
    assert names(found(labels=["x", "y"])) == "a"
    assert names(found(users=["bob", "carol"])) == "db"
    assert names(found(states=[sdk.ExperimentState.ERROR, "PAUSED"], limit=2)) == "dc"
    assert names(found(None, sdk.OrderBy.ASCENDING, [1, 2], ["x"], ["bob"], ["PAUSED"])) == "b"
    with pytest.raises(ValueError, match="shape"):
        found("shape")
    with pytest.raises(ValueError, match="LOST"):
        found(states=["LOST"])


def test_an_experiments_labels_and_description(master: FakeMaster, client: Client) -> None:
    master.add_experiment("a", labels=["y", "x"], description="for the paper")
    found = client.get_experiment(1)
    assert (found.labels, found.description) == ({"x", "y"}, "for the paper")


def test_trials_are_sorted(master: FakeMaster, client: Client) -> None:
    master.add_experiment()
    master.add_trial(1, best_validation=0.5, started_at=1.0, ended_at=9.0, restarts=1, state=TrialState.COMPLETED)
    master.add_trial(1, started_at=3.0, steps_completed=7)
    master.add_trial(1, best_validation=0.25, started_at=2.0, ended_at=3.0, state=TrialState.COMPLETED)
    experiment = client.get_experiment(1)

    def order(*arguments: Any) -> list[int]:
        trials = [trial.id for trial in experiment.list_trials(*arguments)]
        assert [trial.id for trial in experiment.iter_trials(*arguments)] == trials
        assert [trial.id for trial in experiment.get_trials(*arguments)] == trials
        return trials

    by = sdk.TrialSortBy
    assert order() == [1, 2, 3]
    assert order(by.ID, sdk.OrderBy.DESCENDING) == [3, 2, 1]
    assert order(by.BEST_VALIDATION_METRIC) == [3, 1, 2]
    assert order(by.BEST_VALIDATION_METRIC, "desc") == [1, 3, 2]
    assert order(by.DURATION) == [3, 1, 2]
    assert order("steps_completed", "desc")[0] == 2
    assert [trial.id for trial in experiment.iter_trials(by.START_TIME, "asc", 2)] == [1, 3]
    assert [trial.id for trial in experiment.list_trials(limit=2)] == [1, 2]
    with pytest.raises(ValueError, match="shape"):
        order("shape")


@pytest.fixture
def lines(master: FakeMaster) -> FakeMaster:
    master.add_experiment()
    master.add_trial(1, state=TrialState.COMPLETED)
    for index, (level, rank, stdtype) in enumerate(
        [
            ("INFO", 0, "stdout"),
            ("ERROR", 1, "stderr"),
            (None, 1, "stdout"),
            ("DEBUG", 0, "stderr"),
            ("WARNING", 2, "stdout"),
        ]
    ):
        master.log(1, f"line {index}", level=level, rank=rank, stdtype=stdtype)
    return master


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        ({}, "01234"),
        ({"head": 2}, "01"),
        ({"head": 0}, ""),
        ({"tail": 2}, "34"),
        ({"tail": 0}, ""),
        ({"tail": 3, "head": 1}, "2"),
        ({"rank_ids": [0, 2]}, "034"),
        ({"rank_ids": [1], "tail": 1}, "2"),
        ({"stdtypes": ["stderr"]}, "13"),
        ({"min_level": sdk.LogLevel.WARNING}, "14"),
        ({"min_level": "INFO"}, "0124"),
        ({"search_text": "line 3"}, "3"),
        ({"timestamp_before": "2001-01-01T00:00:00+00:00"}, ""),
        ({"timestamp_after": datetime(2001, 1, 1, tzinfo=UTC)}, "01234"),
    ],
    ids=str,
)
@pytest.mark.parametrize("follow", [False, True])
def test_logs_are_filtered(lines: FakeMaster, client: Client, filters: Any, numbers: str, follow: bool) -> None:
    trial = client.get_trial(1)
    assert "".join(line.text[-1] for line in trial.iter_logs(follow, **filters)) == numbers


async def test_logs_are_filtered_asynchronously(lines: FakeMaster, aclient: AsyncClient) -> None:
    trial = await aclient.get_trial(1)
    assert [line.text async for line in trial.iter_logs(True, rank_ids=[1], tail=1)] == ["line 2"]
    assert names(await aclient.list_experiments(sdk.ExperimentSortBy.NAME)) == "digits"


def test_times_of_lines_are_compared() -> None:
    line = LogLine(text="x", time=100.0)
    assert line_filter(timestamp_after=100, timestamp_before=100.5)(line)
    assert not line_filter(timestamp_before=100)(line)
    assert not line_filter(timestamp_after="1970-01-01T00:01:41+00:00")(line)
    with pytest.raises(ValueError, match="LOUD"):
        line_filter(min_level="LOUD")


def test_metrics_under_determineds_names(master: FakeMaster, client: Client) -> None:
    master.add_experiment()
    for trial_id in (1, 2):
        master.add_trial(1)
        master.series[trial_id] = [
            SeriesView(
                trial_id=trial_id, group=group, name="loss", steps=[1, 2], values=[0.5, 0.25], times=[10.0, 20.0]
            )
            for group in ("training", "validation")
        ]
    trial = client.get_trial(1)
    for found in (trial.stream_training_metrics(), trial.stream_metrics("training")):
        assert [(item.group, item.total_batches, item.metrics) for item in found] == [
            ("training", 1, {"loss": 0.5}),
            ("training", 2, {"loss": 0.25}),
        ]
    (first, _) = trial.stream_validation_metrics()
    assert (first.group, first.end_time) == ("validation", datetime.fromtimestamp(10, UTC))
    both = list(client.iter_trials_metrics([2, 1], "validation"))
    assert [(item.trial_id, item.steps_completed) for item in both] == [(2, 1), (2, 2), (1, 1), (1, 2)]


@pytest.mark.slow
def test_checkpoints_under_determineds_names(master: FakeMaster, client: Client) -> None:
    master.add_experiment()
    master.add_trial(1)
    old = master.add_checkpoint(1, {"a": b"1"}, steps_completed=1, validation=0.25)
    new = master.add_checkpoint(1, {"a": b"2"}, steps_completed=2, validation=0.5)
    trial = client.get_trial(1)
    assert [item.uuid for item in trial.get_checkpoints(sdk.CheckpointSortBy.BATCH_NUMBER, sdk.OrderBy.DESC)] == [
        new.uuid,
        old.uuid,
    ]
    assert trial.select_checkpoint(True).uuid == new.uuid
    assert trial.select_checkpoint(best=True).reload().uuid == old.uuid
    experiment = client.get_experiment(1)
    for owner in (trial, experiment):
        assert owner.top_checkpoint().uuid == owner.top_checkpoint("val_loss", True).uuid == old.uuid
        assert owner.top_checkpoint("val_loss", False).uuid == new.uuid
        with pytest.raises(ValueError, match="together"):
            owner.top_checkpoint("val_loss")
        with pytest.raises(ValueError, match="sorted by 'accuracy': no validation reported it"):
            owner.top_checkpoint("accuracy", False)
    assert trial.select_checkpoint(False, True, None, "val_loss", False).uuid == new.uuid
    assert [item.uuid for item in experiment.top_n_checkpoints(5, "steps_completed", False)] == [new.uuid, old.uuid]
    assert client.get_checkpoint(old.uuid).view.state == sdk.CheckpointState.COMPLETED


def test_checkpoints_are_compared_by_any_metric(master: FakeMaster, client: Client) -> None:
    master.add_experiment()
    master.add_trial(1)
    curve = {"trial_id": 1, "steps": [1, 2, 3]}
    master.series[1] = [
        SeriesView(group="validation", name="accuracy", values=[0.25, 0.75, 0.5], **curve),
        SeriesView(group="training", name="loss", values=[3.0, 2.0, 1.0], **curve),
    ]
    one, two, three = (master.add_checkpoint(1, {"a": b"1"}, steps_completed=step) for step in (1, 2, 3))
    for owner in (client.get_trial(1), client.get_experiment(1)):
        assert owner.top_checkpoint("accuracy", False).uuid == two.uuid
        assert owner.top_checkpoint("accuracy", True).uuid == one.uuid
        found = [item.uuid for item in owner.list_checkpoints("accuracy", "desc")]
        assert found == [two.uuid, three.uuid, one.uuid]
        with pytest.raises(ValueError, match="no validation reported it"):
            owner.top_checkpoint("loss", True)  # in training only
    master.checkpoints[two.uuid] = two.model_copy(update={"state": "PARTIALLY_DELETED"})
    assert client.get_experiment(1).top_checkpoint("accuracy", False).uuid == three.uuid
    (report,) = client.get_checkpoint(three.uuid).get_metrics("validation")
    assert (report.steps_completed, report.metrics) == (3, {"accuracy": 0.5})
    assert [report.group for report in client.get_checkpoint(one.uuid).get_metrics()] == ["training", "validation"]


def test_checkpoints_are_changed_and_deleted(master: FakeMaster, client: Client) -> None:
    master.add_experiment()
    master.add_trial(1)
    uuid = master.add_checkpoint(1, {"a.pt": b"1", "b.log": b"2"}, metadata={"old": 1}).uuid
    item = client.get_checkpoint(uuid)
    item.add_metadata({"new": [1, {"deep": None}]})
    item.remove_metadata(["old", "none"])
    assert item.metadata == master.checkpoints[uuid].metadata == {"new": [1, {"deep": None}]}
    item.remove_files(["*.log"])
    assert (item.state, list(item.files)) == (sdk.CheckpointState.PARTIALLY_DELETED, ["a.pt"])
    master.faults.append(ApiFault("DELETE", "checkpoints", "lose_reply"))
    item.delete()
    assert item.deleted
    assert client.get_checkpoint(uuid).state is sdk.CheckpointState.DELETED


def test_experiments_are_edited_and_archived(master: FakeMaster, client: Client) -> None:
    master.add_experiment("a", labels=["x"], state=ExperimentState.COMPLETED)
    master.add_experiment("b")
    item = client.get_experiment(1)
    item.set_name("aa")
    item.set_description("wide")
    item.set_notes("diverges")
    item.add_label("y")
    item.remove_label("x")
    assert (item.name, item.description, item.notes, item.labels) == ("aa", "wide", "diverges", {"y"})
    item.set_labels({"z"})
    assert client.get_experiment(1).labels == {"z"}
    item.archive()
    assert item.archived
    assert names(client.list_experiments()) == "b"
    assert names(client.list_experiments(archived=True)) == "aa"
    assert names(client.list_experiments(archived=None)) == "baa"
    item.unarchive()
    assert names(client.list_experiments()) == "baa"
    with pytest.raises(Conflict, match="archived"):
        client.get_experiment(2).archive()


def test_notes_are_known_until_somebody_changes_them(master: FakeMaster, client: Client) -> None:
    view = master.add_experiment(notes="mine", edited_at=1.0)
    item = client.get_experiment(1)
    told = view.model_copy(update={"notes": None}).model_dump(mode="json")
    item.learn(Event(id=2, kind="experiment", experiment_id=1, data=told))
    assert item.notes == "mine"
    item.learn(Event(id=3, kind="experiment", experiment_id=1, data={**told, "edited_at": 2.0}))
    assert item.notes is None


async def test_experiments_are_edited_asynchronously(master: FakeMaster, aclient: AsyncClient) -> None:
    master.add_experiment("a")
    item = await aclient.get_experiment(1)
    await item.add_label("x")
    assert item.labels == {"x"}


def test_the_metadata_of_a_checkpoint_is_written(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    master.add_experiment()
    master.add_trial(1)
    uuid = master.add_checkpoint(1, {"a": b"1"}, metadata={"steps_completed": 3, "note": "grün"}).uuid
    written = client.get_checkpoint(uuid).write_metadata_file(tmp_path / "metadata.json")
    assert json.loads(written.read_bytes()) == {"steps_completed": 3, "note": "grün"}


def test_the_session_under_determineds_names(master: FakeMaster) -> None:
    master.add_experiment()
    master.add_trial(1)
    master.series[1] = [SeriesView(trial_id=1, group="training", name="loss", steps=[1], values=[0.5])]
    session = determined.Determined(master.url, token=master.token)
    assert session.get_session_username() == "alice"
    assert len(list(session.stream_trials_metrics([1], "training"))) == 1
    assert len(list(session.stream_trials_training_metrics([1]))) == 1
    assert list(session.stream_trials_validation_metrics([1])) == []
    session.logout()


def test_a_mode_of_download_may_be_the_enum(master: FakeMaster, client: Client, tmp_path: Any) -> None:
    master.add_experiment()
    master.add_trial(1)
    uuid = master.add_checkpoint(1, {"a": b"1"}).uuid
    folder = client.get_checkpoint(uuid).download(tmp_path / "here", sdk.DownloadMode.MASTER)
    assert (folder / "a").read_bytes() == b"1"


def test_waiting_takes_determineds_interval(master: FakeMaster, client: Client) -> None:
    master.add_experiment(state=ExperimentState.COMPLETED)
    master.add_trial(1)
    assert client.get_experiment(1).wait(interval=0.5) is ExperimentState.COMPLETED
    assert client.get_experiment(1).await_first_trial(interval=0.1).id == 1


# Names of `determined.experimental.client` 0.38.1 that are there, without those of models, projects, users and OAuth.
NAMES = """
Checkpoint CheckpointOrderBy CheckpointSortBy CheckpointState Determined DownloadMode Experiment ExperimentOrderBy
ExperimentReference ExperimentSortBy ExperimentState LogLevel OrderBy TrainingMetrics Trial TrialMetrics TrialOrderBy
TrialReference TrialSortBy TrialState ValidationMetrics create_experiment get_checkpoint get_experiment
get_session_username get_trial iter_trials_metrics list_experiments login logout stream_trials_metrics
stream_trials_training_metrics stream_trials_validation_metrics
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_the_clients_names_are_there(name: str) -> None:
    assert getattr(determined, name) is not None
