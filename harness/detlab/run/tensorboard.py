"""Event files for a TensorBoard from reported metrics: `python -m detlab.run.tensorboard --dir DIR`.

Beside the server of a TensorBoard task; it queries the master, with the server's Hub token, for the experiments that
the task shows, and follows them. One run per trial:

    DIR/exp7/trial12/            reported metrics as `training/loss`, `validation/accuracy` …, and the hyperparameters
    DIR/exp7/trial12/uploaded/   event files that the trial itself wrote, if the checkpoint storage is reachable here
                                 and the trial is of the same user; of an object store with this task's credentials

The records are written through the package tensorboard; torch is not needed.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from detlab.client import Client, Experiment
from detlab.errors import DetlabError, StorageDenied, StorageError, StorageRefused
from detlab.run.stored_events import StoredEvents, open_objects
from detlab.schemas.wire import CurvesView, Event, TrialState, TrialView, decode_float
from detlab.storage.config import from_config
from detlab.storage.own_folders import OwnFolders, tensorboard_folder
from detlab.storage.posix import PosixStorage

logger = logging.getLogger("detlab.tensorboard")

MAX_POINTS = 1000
"""Of a curve in the first picture; TensorBoard keeps no more of it. What comes live is written in full."""
MAX_TRIALS = 2000
"""Of an experiment: TensorBoard itself becomes slow long before."""
UPLOADED_SECONDS = 15.0
"""Between two looks for event files that trials uploaded."""
MAX_UPLOADED = 2 * 1024**3
"""Bytes of them that are copied for one TensorBoard."""
AGAIN_SECONDS = 10.0
BEGUN_MARK = "begun"
"""File in the log directory, made when the first picture of all experiments is written."""
BEGUN_SECONDS = 20.0


class RunFile:
    """The event file of one trial. Points are written once each, in the order in which they come.

    Args:
        folder: Of the run; made when it is first written to.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"events.out.tfevents.{int(time.time()):010d}.detlab"
        self._last: dict[str, int] = {}
        self._attempt = 0
        self._began = False
        self._ended = False

    def begin(self, trial: TrialView) -> None:
        """Write the hyperparameters, once."""
        if self._began or not trial.hparams:
            return
        from tensorboard.plugins.hparams import summary_v2

        self._began = True
        summary = summary_v2.hparams_pb(
            flat(trial.hparams), trial_id=f"trial {trial.id}", start_time_secs=trial.started_at or time.time()
        )
        self._write([_event(summary=summary)])

    def end(self, trial: TrialView) -> None:
        """Write that the trial has ended, once."""
        if self._ended or not self._began or not trial.state.terminal:
            return
        from tensorboard.compat.proto import summary_pb2
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

        self._ended = True
        good = trial.state is TrialState.COMPLETED
        status = api_pb2.Status.STATUS_SUCCESS if good else api_pb2.Status.STATUS_FAILURE
        info = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=trial.ended_at or time.time())
        content = plugin_data_pb2.HParamsPluginData(session_end_info=info)
        summary = summary_pb2.Summary()
        summary.value.add(
            tag=metadata.SESSION_END_INFO_TAG,
            metadata=metadata.create_summary_metadata(content),
            tensor=metadata.NULL_TENSOR,
        )
        self._write([_event(summary=summary)])

    def points(self, tag: str, steps: Sequence[int], values: Sequence[float], times: Sequence[float]) -> None:
        """Write those points of a curve that are new."""
        last = self._last.get(tag, -1)
        new = [
            _scalar(tag, step, value, at)
            for step, value, at in zip(steps, values, times or [0.0] * len(steps), strict=False)
            if step > last
        ]
        if new:
            self._last[tag] = max(last, *steps)
            self._write(new)

    def report(self, group: str, step: int, attempt: int, metrics: Mapping[str, float], at: float) -> None:
        """Write a report as it comes; one of a new attempt replaces what is beyond its step."""
        events = []
        tags = {f"{group}/{name}": value for name, value in metrics.items()}
        if attempt > self._attempt and any(self._last.get(tag, -1) >= step for tag in tags):
            events.append(_restart(step))
            self._last = {tag: min(last, step - 1) for tag, last in self._last.items()}
        self._attempt = max(self._attempt, attempt)
        for tag, value in tags.items():
            if step > self._last.get(tag, -1):
                self._last[tag] = step
                events.append(_scalar(tag, step, value, at))
        if events:
            self._write(events)

    def _write(self, events: Iterable[Any]) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        new = not self._path.exists()
        if new:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            writer = RecordWriter(file)
            if new:
                writer.write(_event(file_version="brain.Event:2").SerializeToString())
            for event in events:
                writer.write(event.SerializeToString())
            writer.flush()


def _event(at: float | None = None, **fields: Any) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event as Record

    return Record(wall_time=time.time() if at is None else at, **fields)


def _scalar(tag: str, step: int, value: float, at: float) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return _event(at or None, step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)]))


def _restart(step: int) -> Any:
    from tensorboard.compat.proto.event_pb2 import SessionLog

    return _event(step=step, session_log=SessionLog(status=SessionLog.SessionStatus.START))


def flat(hparams: Mapping[str, Any], prefix: str = "") -> dict[str, bool | float | str]:
    """Return nested hyperparameters as `outer.inner` -> a value that TensorBoard can compare."""
    found: dict[str, bool | float | str] = {}
    for name, value in hparams.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, bool | int | float | str):
            found[f"{prefix}{name}"] = value
        else:
            found[f"{prefix}{name}"] = json.dumps(value)
    return found


class ExperimentFiles:
    """The event files of one experiment.

    Args:
        folder: Of the experiment.
        only: Trials to show; None: all.
    """

    def __init__(self, folder: Path, only: frozenset[int] | None = None) -> None:
        self._folder = folder
        self._only = only
        self._runs: dict[int, RunFile] = {}
        self.trials: set[int] = set()
        """Those that are shown."""

    def take(self, item: CurvesView | Event) -> None:
        """Write what a snapshot or an event says."""
        if isinstance(item, CurvesView):
            self._take_snapshot(item)
        elif item.kind == "trial":
            self._take_trial(TrialView.model_validate(item.data))
        elif item.kind == "metrics" and item.trial_id is not None:
            run = self._run(item.trial_id)
            if run is not None:
                found = {name: decode_float(value) for name, value in item.data["metrics"].items()}
                metrics = {name: value for name, value in found.items() if value is not None}
                at = float(item.data.get("time") or item.time)
                run.report(
                    str(item.data["group"]), int(item.data["steps_completed"]), int(item.data["run"]), metrics, at
                )

    def _take_snapshot(self, snapshot: CurvesView) -> None:
        for trial in snapshot.trials:
            run = self._run(trial.id)
            if run is not None:
                run.begin(trial)
        for series in snapshot.curves:
            run = self._run(series.trial_id)
            if run is not None:
                run.points(f"{series.group}/{series.name}", series.steps, series.values, series.times)
        for trial in snapshot.trials:
            self._take_trial(trial)

    def _take_trial(self, trial: TrialView) -> None:
        run = self._run(trial.id)
        if run is not None:
            run.begin(trial)
            run.end(trial)

    def _run(self, trial_id: int) -> RunFile | None:
        if self._only is not None and trial_id not in self._only:
            return None
        if trial_id not in self._runs:
            if len(self._runs) >= MAX_TRIALS:
                return None
            self._runs[trial_id] = RunFile(self._folder / f"trial{trial_id}")
            self.trials.add(trial_id)
        return self._runs[trial_id]


class Feeder:
    """Follows the experiments of a TensorBoard, each in a thread of its own.

    Args:
        client: Connected as the TensorBoard's owner.
        folder: The log directory.
        cluster_id: Part of the name under which trials upload event files.
    """

    def __init__(self, client: Client, folder: Path, cluster_id: str) -> None:
        self._client = client
        self._folder = folder
        self._cluster_id = cluster_id
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._begun: list[threading.Event] = []

    def start(self, experiments: Sequence[int], trials: Sequence[int] = ()) -> None:
        """Begin to follow whole experiments and single trials.

        Raises:
            DetlabError: A trial does not exist.
        """
        chosen: dict[int, set[int] | None] = dict.fromkeys(experiments)
        for trial_id in trials:
            only = chosen.setdefault(self._client.get_trial(trial_id).experiment_id, set())
            if only is not None:
                only.add(trial_id)
        for experiment_id, some in chosen.items():
            begun = threading.Event()
            self._begun.append(begun)
            arguments = (experiment_id, None if some is None else frozenset(some), begun)
            thread = threading.Thread(target=self._follow, args=arguments, name=f"exp{experiment_id}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End at the next chance."""
        self._stop.set()

    def wait(self) -> None:
        """Wait until it is stopped."""
        self._stop.wait()

    def wait_begun(self, seconds: float) -> None:
        """Wait, at most `seconds`, until each experiment's first picture is written or has failed."""
        deadline = time.monotonic() + seconds
        for begun in self._begun:
            begun.wait(max(0.0, deadline - time.monotonic()))

    def _follow(self, experiment_id: int, only: frozenset[int] | None, begun: threading.Event) -> None:
        files = ExperimentFiles(self._folder / f"exp{experiment_id}", only)
        copying: threading.Thread | None = None
        while not self._stop.is_set():
            try:
                experiment = self._client.get_experiment(experiment_id)
                if copying is None:
                    copying = threading.Thread(target=self._copy, args=(experiment, files), daemon=True)
                    copying.start()
                for item in experiment.watch(max_points=MAX_POINTS, max_trials=MAX_TRIALS):
                    files.take(item)
                    begun.set()
                    if self._stop.is_set():
                        return
                # Ended: what a trial said last is in a snapshot, whichever event came last.
                files.take(experiment.curves(max_points=MAX_POINTS, max_trials=MAX_TRIALS))
                return
            except DetlabError as problem:
                logger.warning("experiment %d: %s", experiment_id, problem.message)
            except Exception:
                # A bug or a full disk in one experiment must not end the others.
                logger.exception("experiment %d: its event files could not be written", experiment_id)
            begun.set()
            self._stop.wait(AGAIN_SECONDS)

    def _copy(self, experiment: Experiment, files: ExperimentFiles) -> None:
        """Copy event files that trials uploaded, as long as there may be new ones."""
        root = storage_root(experiment.view.config or {})
        stored = _stored_events(experiment) if root is None else None
        if root is None and stored is None:
            return
        copied: dict[Path, tuple[int, int]] = {}
        while True:
            ended = experiment.state.terminal
            for trial_id in sorted(files.trials):
                name = tensorboard_folder(self._cluster_id, experiment.id, trial_id)
                target = self._folder / f"exp{experiment.id}" / f"trial{trial_id}"
                try:
                    if stored is not None:
                        stored.copy(name, target / "uploaded")
                    elif root is not None:
                        copy_own_events(root, name, target, copied)
                except (StorageDenied, StorageRefused) as problem:
                    logger.warning("event files of experiment %d are not shown: %s", experiment.id, problem.message)
                    return
                except (OSError, StorageError) as problem:  # not reachable from this node
                    logger.info("trial %d: %s", trial_id, problem)
            if ended or self._stop.wait(UPLOADED_SECONDS):
                return


def _stored_events(experiment: Experiment) -> StoredEvents | None:
    """Return the event files of an object store, of the user's own experiment alone.

    Another's block may name an address of his, which must not see this user's credentials.
    """
    view = experiment.view
    if view.owner != os.environ.get("JUPYTERHUB_USER"):
        return None
    objects = open_objects((view.config or {}).get("checkpoint_storage") or {})
    return None if objects is None else StoredEvents(objects, MAX_UPLOADED)


def storage_root(config: Mapping[str, Any]) -> Path | None:
    """Return the directory of an experiment's checkpoint storage, if it is one that is here."""
    try:
        store = from_config(config.get("checkpoint_storage") or {})
    except DetlabError:
        return None
    root = store.root if isinstance(store, PosixStorage) else None
    return root if root is not None and os.access(root, os.R_OK | os.X_OK) else None


def copy_own_events(root: Path, name: str, target: Path, copied: dict[Path, tuple[int, int]]) -> None:
    """Copy the event files of one trial, from our user's own folders alone: others could put theirs under this name."""
    for source in OwnFolders(root).find_all(name):
        copy_events(source, target / f"uploaded{source.name.removeprefix(name)}", copied)


def copy_events(source: Path, target: Path, copied: dict[Path, tuple[int, int]]) -> None:
    """Copy event files that are new or have grown; links are not followed."""
    if not source.is_dir() or source.is_symlink():
        return
    for path in sorted(source.rglob("*tfevents*")):
        if path.is_symlink() or not path.is_file():
            continue
        status = path.stat()
        version = (status.st_size, status.st_mtime_ns)
        if copied.get(path) == version:
            continue
        if sum(size for size, _ in copied.values()) + status.st_size > MAX_UPLOADED:
            logger.warning("%s and later files are not shown: over %d bytes", path, MAX_UPLOADED)
            return
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        # Only what is new: TensorBoard reads a file while it grows, and must never see it shorter.
        with path.open("rb") as old, place.open("ab") as new:
            old.seek(new.tell())
            shutil.copyfileobj(old, new)
        copied[path] = version


def _own_client() -> Client:
    return Client(os.environ["DET_MASTER"], os.environ["JUPYTERHUB_API_TOKEN"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Write event files until the process is ended; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m detlab.run.tensorboard", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="the log directory")
    parser.add_argument("--experiment", type=int, action="append", help="default: what the task shows")
    parser.add_argument("--trial", type=int, action="append")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="tensorboard: %(message)s")
    client = _own_client()
    feeder = Feeder(client, options.dir, os.environ.get("DET_CLUSTER_ID", ""))
    experiments, trials = options.experiment or [], options.trial or []
    while not (experiments or trials):
        try:
            view = client.get_task(os.environ["DET_TASK_ID"]).view
        except DetlabError as problem:
            logger.warning("%s", problem.message)
            time.sleep(AGAIN_SECONDS)
            continue
        experiments, trials = view.experiment_ids, view.trial_ids
        if not (experiments or trials):
            return 0
    feeder.start(experiments, trials)
    feeder.wait_begun(BEGUN_SECONDS)
    (options.dir / BEGUN_MARK).touch()
    feeder.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
