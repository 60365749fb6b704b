"""Event files: written from what the master says, read back by TensorBoard's own reader."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from tensorboard.plugins.hparams import metadata, plugin_data_pb2

from detlab.run.tensorboard import ExperimentFiles, copy_events, flat
from detlab.schemas.wire import CurvesView, Event, ExperimentState, ExperimentView, SeriesView, TrialState, TrialView


def trial(number: int, state: TrialState = TrialState.ACTIVE, **more) -> TrialView:
    return TrialView(id=number, index=0, experiment_id=7, request_id=str(number), state=state, **more)


def snapshot(trials: list[TrialView], *curves: SeriesView) -> CurvesView:
    experiment = ExperimentView.model_construct(id=7, state=ExperimentState.ACTIVE)
    return CurvesView.model_construct(cursor=1, experiment=experiment, trials=trials, curves=list(curves))


def curve(number: int, steps: list[int], values: list[float], name: str = "loss") -> SeriesView:
    return SeriesView(
        trial_id=number, group="training", name=name, steps=steps, values=values, times=[1.0 + s for s in steps]
    )


def metrics(number: int, step: int, run: int = 1, **values: float | str) -> Event:
    data = {"group": "training", "steps_completed": step, "run": run, "metrics": values}
    return Event(id=1, kind="metrics", time=float(step), experiment_id=7, trial_id=number, data=data)


class Board:
    """TensorBoard's own view of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = EventMultiplexer(size_guidance={"scalars": 0, "tensors": 0})

    def points(self, run: str, tag: str) -> list[tuple[int, float]]:
        self._seen.AddRunsFromDirectory(str(self._folder))
        self._seen.Reload()
        accumulator = self._seen.GetAccumulator(run)
        if tag in accumulator.Tags()["scalars"]:
            return [(event.step, round(event.value, 5)) for event in accumulator.Scalars(tag)]
        from tensorboard.util.tensor_util import make_ndarray

        return [(e.step, round(float(make_ndarray(e.tensor_proto)), 5)) for e in accumulator.Tensors(tag)]

    def hparams(self, run: str) -> dict[str, plugin_data_pb2.HParamsPluginData]:
        self.points(run, "training/loss")
        content = self._seen.GetAccumulator(run).PluginTagToContent("hparams")
        return {tag: plugin_data_pb2.HParamsPluginData.FromString(data) for tag, data in content.items()}


@pytest.fixture
def files(tmp_path: Path) -> ExperimentFiles:
    return ExperimentFiles(tmp_path / "exp7")


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path)


def test_a_snapshot_then_events_come_once_each_and_in_order(files, board):
    files.take(snapshot([trial(1)], curve(1, [1, 2], [0.5, 0.25])))
    files.take(metrics(1, 2, loss=0.25))  # in the snapshot already
    files.take(metrics(1, 3, loss=0.125))
    assert board.points("exp7/trial1", "training/loss") == [(1, 0.5), (2, 0.25), (3, 0.125)]
    files.take(metrics(1, 4, loss=0.0625))
    assert board.points("exp7/trial1", "training/loss")[-1] == (4, 0.0625), "while it grows"


def test_a_second_snapshot_after_lost_events_adds_only_what_is_new(files, board):
    files.take(snapshot([trial(1)], curve(1, [1, 2], [1.0, 2.0])))
    files.take(snapshot([trial(1)], curve(1, [1, 2, 3], [1.0, 2.0, 3.0])))
    assert board.points("exp7/trial1", "training/loss") == [(1, 1.0), (2, 2.0), (3, 3.0)]


def test_a_restarted_trial_replaces_what_was_beyond_its_step(files, board):
    for step in (1, 2, 3, 4):
        files.take(metrics(1, step, loss=float(step)))
    for step in (3, 4, 5):
        files.take(metrics(1, step, run=2, loss=10.0 * step))
    assert board.points("exp7/trial1", "training/loss") == [(1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0), (5, 50.0)]


def test_one_run_per_trial_and_only_the_trials_that_were_asked_for(tmp_path, board):
    files = ExperimentFiles(tmp_path / "exp7", only=frozenset({2}))
    files.take(snapshot([trial(1), trial(2)], curve(1, [1], [1.0]), curve(2, [1], [2.0])))
    files.take(metrics(1, 2, loss=1.0))
    assert board.points("exp7/trial2", "training/loss") == [(1, 2.0)]
    assert not (tmp_path / "exp7" / "trial1").exists()


def test_nan_and_infinity_and_names_of_any_kind_are_written(files, board):
    name = "../../<b>\u2028 /x"
    files.take(metrics(1, 1, **{name: "NaN", "loss": "Infinity"}))
    assert math.isnan(board.points("exp7/trial1", f"training/{name}")[0][1])
    assert board.points("exp7/trial1", "training/loss") == [(1, math.inf)]


def test_hyperparameters_and_the_end_are_written_once(files, board):
    begun = trial(1, hparams={"lr": 0.1, "net": {"layers": 3, "wide": True}, "sizes": [1, 2]}, started_at=5.0)
    for _ in range(2):
        files.take(snapshot([begun], curve(1, [1], [1.0])))
    ended = begun.model_copy(update={"state": TrialState.COMPLETED, "ended_at": 9.0})
    for _ in range(2):
        files.take(Event(id=2, kind="trial", experiment_id=7, trial_id=1, data=ended.model_dump(mode="json")))
    found = board.hparams("exp7/trial1")
    start = found[metadata.SESSION_START_INFO_TAG].session_start_info
    assert start.hparams["lr"].number_value == 0.1
    assert start.hparams["net.layers"].number_value == 3
    assert start.hparams["net.wide"].bool_value is True
    assert start.hparams["sizes"].string_value == "[1, 2]"
    assert found[metadata.SESSION_END_INFO_TAG].session_end_info.end_time_secs == 9.0


def test_nested_hyperparameters_are_flattened():
    assert flat({"a": {"b": {"c": 1}}, "n": None, "s": "x"}) == {"a.b.c": 1, "n": "null", "s": "x"}


def test_uploaded_event_files_are_copied_as_they_grow_and_links_are_not_followed(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep").mkdir(parents=True)
    events = source / "deep" / "events.out.tfevents.1"
    events.write_bytes(b"abc")
    (source / "secret.txt").write_text("no event file")
    (source / "x.tfevents.link").symlink_to("/etc/passwd")
    copied: dict[Path, tuple[int, int]] = {}
    copy_events(source, target, copied)
    events.write_bytes(b"abcdef")
    copy_events(source, target, copied)
    assert [p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file()] == [
        "deep/events.out.tfevents.1"
    ]
    assert (target / "deep" / "events.out.tfevents.1").read_bytes() == b"abcdef"
    copy_events(tmp_path / "nowhere", target, copied)
