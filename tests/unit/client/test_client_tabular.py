"""Trials and metrics as pandas frames and as CSV."""

import csv
import io

from detlab.client.client import Client
from detlab.client.tabular import csv_text, metric_rows
from detlab.schemas.wire import SeriesView, TrialState
from testbed.fake_master.api import FakeMaster


def test_trials_as_a_frame_have_a_column_for_each_hyperparameter(master: FakeMaster, client: Client) -> None:
    number = master.add_experiment().id
    master.add_trial(number, hparams={"lr": 0.1, "net": {"depth": 3}}, best_validation=0.5)
    master.add_trial(number, hparams={"lr": 0.2}, state=TrialState.COMPLETED)
    frame = client.get_experiment(number).trials_frame()
    assert list(frame["trial_id"]) == [1, 2]
    assert list(frame["hparams.lr"]) == [0.1, 0.2]
    assert frame["hparams.net.depth"][0] == 3
    assert list(frame["state"]) == ["ACTIVE", "COMPLETED"]


def test_an_experiment_without_metrics_has_an_empty_frame_with_its_columns(master: FakeMaster, client: Client) -> None:
    master.add_experiment()
    frame = client.get_experiment(1).metrics_frame("validation")
    assert frame.empty
    assert list(frame.columns) == ["trial_id", "group", "name", "steps_completed", "value", "time"]


def test_metrics_are_a_row_for_each_value() -> None:
    curve = SeriesView(trial_id=3, group="validation", name="loss", steps=[1, 2], values=[0.5, float("nan")], times=[9])
    first, second = metric_rows([curve])
    assert first == {
        "trial_id": 3, "group": "validation", "name": "loss", "steps_completed": 1, "value": 0.5, "time": 9.0,
    }  # fmt: skip
    assert second["time"] is None


def test_csv_has_all_columns_and_no_control_characters() -> None:
    text = csv_text([{"a": 1}, {"a": None, "b,\x1b": 'say "hi"\n\x1b[31m'}])
    assert "\x1b" not in text
    header, first, second = csv.reader(io.StringIO(text))
    assert header[0] == "a"
    assert first == ["1", ""]
    assert second[0] == ""
    assert 'say "hi"' in second[1]


def test_csv_of_labels_is_no_list_of_python() -> None:
    assert list(csv.reader(io.StringIO(csv_text([{"labels": ["a", "b c"]}, {"labels": []}])))) == [
        ["labels"], ["a, b c"], [""]
    ]  # fmt: skip


def test_csv_of_nothing_is_an_empty_line() -> None:
    assert csv_text([]).strip() == ""
