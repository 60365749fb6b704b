# Made from aresources.py by harness/make_sync.py: edit that one, not this.
"""Experiments, trials and checkpoints as blocking objects."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from detlab.client.facts import (
    CheckpointFacts,
    ExperimentFacts,
    TrialFacts,
    TrialMetrics,
    first_page,
    granted_to,
    last_known,
    no_checkpoint,
    reports,
    states_feed,
    timed_out,
    wanted,
    write_code,
)
from detlab.client.operations import experiments
from detlab.client.operations import logs as log_operations
from detlab.client.ordering import CheckpointSortBy, OrderBy, newest_checkpoint
from detlab.client.transport.calls import Flow, Progress
from detlab.client.transport.downloads import DownloadMode, download
from detlab.client.transport.feeds import Notice, follow, log_lines
from detlab.client.transport.session import Session
from detlab.client.transport.streaming import Feed, event_feed, log_feed
from detlab.errors import ClusterUnreachable, DetlabError, NotFound, Unavailable
from detlab.schemas.logwire import RemovedLogs
from detlab.schemas.wire import (
    CheckpointView,
    CurvesView,
    Event,
    ExperimentState,
    ExperimentView,
    GrantView,
    LogLine,
    TrialView,
)


class Experiment(ExperimentFacts):
    """An experiment, blocking."""

    def __init__(self, session: Session, view: ExperimentView) -> None:
        super().__init__(view)
        self._session = session

    def reload(self) -> Experiment:
        """Fetch the current state from the master; return itself."""
        self.view = self._session.run(experiments.experiment(self.id))
        return self

    def activate(self) -> None:
        """Start it, or resume it after a pause."""
        self.view = self._session.run(experiments.act(self.id, "activate"))

    def pause(self) -> None:
        """Have its trials write a checkpoint and free their slots; `activate` continues."""
        self.view = self._session.run(experiments.act(self.id, "pause"))

    def cancel(self) -> None:
        """End it gracefully: trials may still write a checkpoint."""
        self.view = self._session.run(experiments.act(self.id, "cancel"))

    def kill(self) -> None:
        """End it at once."""
        self.view = self._session.run(experiments.act(self.id, "kill"))

    def share(self, *, user: str | None = None, group: str | None = None, write: bool = False) -> list[GrantView]:
        """Let a user or a group of the Hub see the experiment; return all its grants.

        Args:
            user: Name of the user.
            group: Name of the group, instead of a user.
            write: Also let them pause, activate, cancel and kill it.

        Raises:
            ValueError: Neither a user nor a group is given, or both.
            Forbidden: The experiment belongs to somebody else.
        """
        return self._session.run(experiments.share(self.id, *granted_to(user, group), write=write))

    def unshare(self, *, user: str | None = None, group: str | None = None) -> list[GrantView]:
        """Revoke what `share` granted; return the remaining grants.

        Raises:
            ValueError: Neither a user nor a group is given, or both.
            NotFound: It is not shared with them.
        """
        return self._session.run(experiments.unshare(self.id, *granted_to(user, group)))

    def list_grants(self) -> list[GrantView]:
        """With whom the experiment is shared."""
        return self._session.run(experiments.grants(self.id))

    def delete(self) -> None:
        """Remove an ended experiment with its checkpoints."""
        self._session.run(experiments.delete_experiment(self.id))

    def wait(self, timeout: float | None = None, *, notice: Notice | None = None) -> ExperimentState:
        """Follow the experiment to its end and return the state it ended in.

        Args:
            timeout: Seconds to wait at most; None waits to the end, through outages of the master of up to an
                hour.
            notice: Called whenever the connection breaks.

        Raises:
            TimeoutError: It has not ended within `timeout`.
            NotFound: It was deleted, or is no longer shared with you, before its final state was known.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            snapshot = self._session.run(first_page(self.id))
            self.learn(snapshot)
            if not self.state.terminal:
                feed = states_feed(self.id, snapshot.cursor)
                for event in self._follow(feed, deadline=deadline, notice=notice):
                    self.learn(event)
            if self.state is not ExperimentState.DELETED:
                self.reload()
        except NotFound as error:
            self.view = last_known(self.view, error)
        if not self.state.terminal:
            raise timed_out(self.view, timeout)
        return self.state

    def await_first_trial(self, timeout: float | None = None) -> Trial:
        """Wait for the first trial and return it.

        Args:
            timeout: Seconds to wait at most; None waits without a limit.

        Raises:
            TimeoutError: There is no trial within `timeout`.
            DetlabError: The experiment ended without a trial.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        snapshot = self._session.run(first_page(self.id))
        trials = self.list_trials(limit=1)
        if trials:
            return trials[0]
        for event in self._follow(states_feed(self.id, snapshot.cursor), deadline=deadline):
            self.learn(event)
            if isinstance(event, CurvesView) or event.kind == "trial":
                trials = self.list_trials(limit=1)
                if trials:
                    return trials[0]
        if self.reload().state.terminal:
            raise DetlabError(f"experiment {self.id} ended ({self.state.value}) without a trial")
        raise timed_out(self.view, timeout)

    def list_trials(self, *, limit: int | None = None) -> list[Trial]:
        """Return its trials in creation order."""
        views = self._session.run(experiments.experiment_trials(self.id, limit=limit))
        return [Trial(self._session, view) for view in views]

    def iter_trials(self) -> Iterator[Trial]:
        """Yield its trials in creation order."""
        yield from self.list_trials()

    def list_checkpoints(
        self,
        sort_by: CheckpointSortBy | str | None = None,
        order_by: OrderBy | str | None = None,
        max_results: int | None = None,
    ) -> list[Checkpoint]:
        """Return its checkpoints, best first unless told otherwise (see `sort_checkpoints`)."""
        found = self._session.run(experiments.experiment_checkpoints(self.id))
        return [
            Checkpoint(self._session, item) for item in self.sorted_checkpoints(found, sort_by, order_by, max_results)
        ]

    def top_n_checkpoints(self, limit: int) -> list[Checkpoint]:
        """Return the validated checkpoints with the best values of the searcher metric."""
        found = self._session.run(experiments.experiment_checkpoints(self.id))
        return [Checkpoint(self._session, item) for item in self.best_first(found, limit)]

    def top_checkpoint(self) -> Checkpoint:
        """Return the checkpoint with the best value of the searcher metric.

        Raises:
            DetlabError: No checkpoint was validated yet.
        """
        best = self.top_n_checkpoints(1)
        if not best:
            raise no_checkpoint(self.id)
        return best[0]

    def download_code(self, output_dir: str | Path | None = None) -> Path:
        """Write the code it runs as a tar.gz into a folder (default: here) and return the file."""
        return write_code(self.id, self._session.run(experiments.experiment_bundle(self.id)), output_dir)

    def curves(
        self,
        *,
        group: str | None = None,
        name: str | None = None,
        max_points: int | None = None,
        max_trials: int | None = None,
    ) -> CurvesView:
        """Return a snapshot of trials and curves, with the cursor from which `stream` continues."""
        snapshot = self._session.run(
            experiments.curves(self.id, group=group, name=name, max_points=max_points, max_trials=max_trials)
        )
        self.learn(snapshot)
        return snapshot

    def plot(self, kind: str = "learning_curves", **options: Any) -> Any:
        """Return a plotly figure of its trials.

        Args:
            kind: `learning_curves`, `parallel_coordinates` or `metric_by_hyperparameter`: functions of `detlab.viz`.
            **options: Of that function, such as `metric="loss"`, `group="training"`, `max_trials=20`.

        Raises:
            ValueError: There is no such figure.
            DetlabError: plotly is not installed.
        """
        from detlab.viz import search

        wanted = search.request(kind, self.view.metric, **options)
        return search.plot(self.curves(**wanted), kind, config=self.config, **options)

    def stream(
        self,
        after: int | None = None,
        *,
        names: tuple[str, ...] = (),
        groups: tuple[str, ...] = (),
        notice: Notice | None = None,
    ) -> Iterator[Event]:
        """Yield the events after a cursor (None: from now on), through disconnects, until the experiment has ended.

        If the master no longer keeps the events after the cursor, one `resync` event follows whose data is a
        fresh `CurvesView` as JSON; later events continue from there.
        """
        if after is None:  # a cursor from the beginning, or a break before the first event would lose some
            after = self._session.run(first_page(self.id)).cursor
        feed = event_feed(self.id, after, names=names, groups=groups)
        for item in self._follow(feed, notice=notice):
            self.learn(item)
            yield self.resync_event(item) if isinstance(item, CurvesView) else item

    def watch(
        self,
        *,
        group: str | None = None,
        name: str | None = None,
        max_points: int | None = None,
        max_trials: int | None = None,
        notice: Notice | None = None,
    ) -> Iterator[CurvesView | Event]:
        """Yield a snapshot, then the events after it; another snapshot wherever events were lost."""
        snapshot = self.curves(group=group, name=name, max_points=max_points, max_trials=max_trials)
        yield snapshot
        if snapshot.experiment.state.terminal:
            return
        feed = event_feed(self.id, snapshot.cursor, names=(name,) if name else (), groups=(group,) if group else ())
        again = experiments.curves
        for item in self._follow(
            feed,
            snapshot=lambda: again(self.id, group=group, name=name, max_points=max_points, max_trials=max_trials),
            notice=notice,
        ):
            self.learn(item)
            yield item

    def _ended(self) -> bool:
        return self._session.run(experiments.experiment(self.id)).state.terminal

    def _follow(
        self,
        feed: Feed[Event],
        *,
        snapshot: Callable[[], Flow[CurvesView]] | None = None,
        deadline: float | None = None,
        notice: Notice | None = None,
    ) -> Iterator[CurvesView | Event]:
        for event in follow(self._session, feed, self._ended, deadline=deadline, notice=notice):
            if event.kind != "resync":
                yield event
                continue
            try:
                fresh = self._session.run(snapshot() if snapshot else experiments.curves(self.id))
            except (ClusterUnreachable, Unavailable):
                feed.resume_from(event.id if feed.cursor is None else feed.cursor)  # and be told to resync again
                continue
            feed.resume_from(fresh.cursor)
            yield fresh
            if fresh.experiment.state.terminal:
                return


class Trial(TrialFacts):
    """A trial, blocking."""

    def __init__(self, session: Session, view: TrialView) -> None:
        super().__init__(view)
        self._session = session

    def reload(self) -> Trial:
        """Fetch the current state from the master, with the summary; return itself."""
        self.view = self._session.run(experiments.trial(self.id))
        return self

    def kill(self) -> None:
        """End this trial; its experiment continues."""
        self.view = self._session.run(experiments.kill_trial(self.id))

    def get_experiment(self) -> Experiment:
        """Return its experiment."""
        return Experiment(self._session, self._session.run(experiments.experiment(self.experiment_id)))

    def logs(
        self, tail: int | None = None, *, rank: int | None = None, search: str | None = None, node: str | None = None
    ) -> list[LogLine]:
        """Return its last `tail` lines of output, or all of them."""
        if tail is not None:
            call = experiments.trial_logs(self.id, tail=tail, rank=rank, search=search, node=node)
            return self._session.run(call)[0]
        return list(self.iter_logs(rank=rank, search=search, node=node))

    def iter_logs(
        self,
        follow: bool = False,
        *,
        after: int | None = None,
        rank: int | None = None,
        search: str | None = None,
        node: str | None = None,
        notice: Notice | None = None,
    ) -> Iterator[LogLine]:
        """Yield its output line by line.

        Args:
            follow: Continue until the trial has ended, through disconnects.
            after: Id of the last line that is already known.
            rank: Only this rank's lines.
            search: Only lines that contain this text.
            node: Only lines that were written on this agent.
            notice: Called whenever the connection breaks while following.
        """
        if follow:
            for line in self._follow_logs(after, notice):
                if wanted(line, rank, search, node):
                    yield line
            return
        for line in log_lines(
            self._session, partial(experiments.trial_logs_after, self.id, rank=rank, search=search, node=node), after
        ):
            yield line

    def removed_logs(self) -> RemovedLogs:
        """Return how much of its output retention has removed, and when."""
        return self._session.run(log_operations.removed(self.id))

    def search_logs(
        self,
        search: str | None = None,
        *,
        regex: str | None = None,
        rank: int | None = None,
        level: str | None = None,
        stream: str | None = None,
        since: float | None = None,
        until: float | None = None,
        node: str | None = None,
    ) -> Iterator[LogLine]:
        """Yield the lines of its output so far that match all of these conditions; the master does the search.

        Args:
            search: Lines that contain this text; the case of ASCII letters does not matter.
            regex: Lines in which this regular expression (RE2 syntax) is found.
            rank: Lines of this rank.
            level: Lines at least this severe: DEBUG, INFO, WARNING, ERROR or CRITICAL.
            stream: Lines written to this stream: stdout, stderr or launcher.
            since: Lines written at or after this time, in seconds since the epoch.
            until: Lines written before this time, in seconds since the epoch.
            node: Lines written on this agent.
        """
        like: dict[str, Any] = {
            "search": search, "regex": regex, "rank": rank, "node": node, "level": level, "stream": stream,
            "since": since, "until": until,
        }  # fmt: skip
        yield from log_lines(self._session, partial(experiments.trial_logs_after, self.id, **like))

    def _follow_logs(self, after: int | None, notice: Notice | None) -> Iterator[LogLine]:
        return follow(
            self._session,
            log_feed(self.id, after),
            self._ended,
            notice=notice,
        )

    def _ended(self) -> bool:
        return self._session.run(experiments.trial(self.id)).state.terminal

    def iter_metrics(
        self, group: str | None = None, *, names: Sequence[str] | None = None, max_points: int | None = None
    ) -> Iterator[TrialMetrics]:
        """Yield its reports in order of step, of one group or of all, with these metrics or with all."""
        flow = experiments.trial_metrics(self.id, group=group, names=names, max_points=max_points)
        series = self._session.run(flow)
        yield from reports(series)

    def plot(self, **options: Any) -> Any:
        """Return a plotly figure of its metrics, with the options of `detlab.viz.trial_metrics`.

        Raises:
            DetlabError: plotly is not installed.
        """
        from detlab import viz

        return viz.trial_metrics(self._session.run(experiments.trial_metrics(self.id)), **options)

    def list_checkpoints(
        self,
        sort_by: CheckpointSortBy | str | None = None,
        order_by: OrderBy | str | None = None,
        max_results: int | None = None,
    ) -> list[Checkpoint]:
        """Return its checkpoints, best first unless told otherwise."""
        found = self._session.run(experiments.trial_checkpoints(self.id))
        order = self.get_experiment().sorted_checkpoints(found, sort_by, order_by, max_results)
        return [Checkpoint(self._session, item) for item in order]

    def top_checkpoint(self) -> Checkpoint:
        """Return its checkpoint with the best value of the searcher metric.

        Raises:
            DetlabError: No checkpoint was validated yet.
        """
        found = self._session.run(experiments.trial_checkpoints(self.id))
        best = self.get_experiment().best_first(found, 1)
        if not best:
            raise no_checkpoint(self.experiment_id)
        return Checkpoint(self._session, best[0])

    def select_checkpoint(self, *, latest: bool = False, best: bool = False, uuid: str | None = None) -> Checkpoint:
        """Return one checkpoint: the latest, the best, or the one with this id; give exactly one of the arguments.

        Raises:
            ValueError: None or several of the arguments were given.
            DetlabError: There is no such checkpoint.
        """
        if sum((latest, best, uuid is not None)) != 1:
            raise ValueError("choose exactly one of latest, best and uuid")
        if uuid is not None:
            return Checkpoint(self._session, self._session.run(experiments.checkpoint(uuid)))
        if best:
            return self.top_checkpoint()
        newest = newest_checkpoint(self._session.run(experiments.trial_checkpoints(self.id)))
        if newest is None:
            raise no_checkpoint(self.experiment_id)
        return Checkpoint(self._session, newest)


class Checkpoint(CheckpointFacts):
    """A committed checkpoint, blocking."""

    def __init__(self, session: Session, view: CheckpointView) -> None:
        super().__init__(view)
        self._session = session

    def download(
        self,
        path: str | Path | None = None,
        mode: DownloadMode = "auto",
        *,
        progress: Progress | None = None,
    ) -> Path:
        """Download its files to a folder (default `checkpoints/<uuid>`) and return that folder.

        Every file is verified by its digest, and the folder appears complete or not at all.

        Args:
            path: Folder to create. If it already holds the checkpoint, nothing is transferred.
            mode: `direct` copies from the storage, which must be mounted here; `master` downloads through the
                master; `auto` copies if it can.
            progress: Called with (bytes done, bytes in all).

        Raises:
            StorageError: Something else is at `path`, or the storage cannot be read from here.
            CheckpointError: A file is damaged.
            ValueError: There is no such mode.
        """
        target = Path(path) if path is not None else self._default_target()
        return self._session.run(download(self.view, target, mode, progress))

    def get_trial(self) -> Trial:
        """Return the trial that wrote it."""
        return Trial(self._session, self._session.run(experiments.trial(self.trial_id)))
