"""Experiments, trials and checkpoints as asynchronous objects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from detlab.client import tabular
from detlab.client.facts import (
    TrialMetrics,
    first_page,
    front_reports,
    front_wanted,
    granted_to,
    last_known,
    no_checkpoint,
    no_trial,
    settled,
    states_feed,
    timed_out,
    write_code,
)
from detlab.client.operations import experiments
from detlab.client.ordering import (
    CheckpointSortBy,
    OrderBy,
    TrialSortBy,
    newest_checkpoint,
    other_metric,
    sort_views,
)
from detlab.client.parts.aedits import AsyncExperimentEdits
from detlab.client.parts.afiles import AsyncCheckpointFiles
from detlab.client.parts.aoutput import AsyncTrialOutput
from detlab.client.submission import ConfigSource, fork_of, pack
from detlab.client.transport.afeeds import Notice, follow
from detlab.client.transport.calls import Flow
from detlab.client.transport.interrupts import short_interrupts, stopped_waiting
from detlab.client.transport.session import AsyncSession
from detlab.client.transport.streaming import EventFeed, event_feed, listed
from detlab.errors import ClusterUnreachable, NotFound, Unavailable
from detlab.schemas.wire import (
    CheckpointView,
    CurvesView,
    Event,
    ExperimentState,
    ExperimentView,
    GrantView,
    TrialView,
)
from detlab.schemas.wire.storage import DeletionView


class AsyncExperiment(AsyncExperimentEdits):
    """An experiment, asynchronous."""

    def __init__(self, session: AsyncSession, view: ExperimentView) -> None:
        super().__init__(view)
        self._session = session

    async def reload(self) -> AsyncExperiment:
        """Fetch the current state from the master; return itself."""
        self.view = await self._session.run(experiments.experiment(self.id))
        return self

    async def activate(self) -> None:
        """Start it, or resume it after a pause."""
        self.view = await self._session.run(experiments.act(self.id, "activate"))

    async def fork(
        self,
        changes: Mapping[str, Any] | None = None,
        *,
        config: ConfigSource | None = None,
        model_dir: str | Path | None = None,
        includes: Iterable[str | Path] | None = None,
        files: Mapping[str, bytes | str] | None = None,
        name: str | None = None,
        workspace: str | int | None = None,
        project: str | int | None = None,
        warm_start: bool = False,
        activate: bool = True,
    ) -> AsyncExperiment:
        """Begin another experiment with its config and code, but for what is changed; return that.

        Its own secrets go along if you own it; those of others are not given away.

        Args:
            changes: Values to change, by path: `{"searcher.max_trials": 50}`.
            config: A whole config instead of its own: a mapping, the path of a YAML file, or YAML text.
            model_dir: The directory that holds other code, in place of its own.
            includes: Further files and directories of other code.
            files: In-memory files of other code, by path.
            name: Another name.
            workspace: Where it is to lie: a name, `OWNER/NAME` or id; by default beside this one, or in your personal
                one if you may only read this one.
            project: The project of it.
            warm_start: Let the search begin with the results of this one's trials; for methods that have a model.
            activate: Start it at once; False creates it paused.

        Raises:
            ConfigError: The config has mistakes, or secrets of somebody else; all of them are in `problems`.
            BundleError: Its code is gone, or other code cannot be packed.
        """
        await self.reload()
        wanted = fork_of(
            self.view,
            changes or {},
            config=config,
            bundle=await asyncio.to_thread(pack, model_dir, includes, files),
            name=name,
            workspace=workspace,
            project=project,
            warm_start=warm_start,
            activate=activate,
        )
        reply = await self._session.run(experiments.submit(wanted))
        assert reply.experiment is not None  # only a dry run has none
        return AsyncExperiment(self._session, reply.experiment)

    async def clone(
        self,
        changes: Mapping[str, Any] | None = None,
        *,
        warm_start: bool = False,
        name: str | None = None,
        activate: bool = True,
    ) -> AsyncExperiment:
        """Begin another experiment with its config and code: `fork`, by the name that it had for searches."""
        return await self.fork(changes, warm_start=warm_start, name=name, activate=activate)

    async def pause(self) -> None:
        """Have its trials write a checkpoint and free their slots; `activate` continues."""
        self.view = await self._session.run(experiments.act(self.id, "pause"))

    async def cancel(self) -> None:
        """End it gracefully: trials may still write a checkpoint."""
        self.view = await self._session.run(experiments.act(self.id, "cancel"))

    async def kill(self) -> None:
        """End it at once."""
        self.view = await self._session.run(experiments.act(self.id, "kill"))

    async def share(self, *, user: str | None = None, group: str | None = None, write: bool = False) -> list[GrantView]:
        """Let a user or a group of the Hub see the experiment; return all its grants.

        Args:
            user: Name of the user.
            group: Name of the group, instead of a user.
            write: Also let them pause, activate, cancel and kill it.

        Raises:
            ValueError: Neither a user nor a group is given, or both.
            Forbidden: The experiment belongs to somebody else.
        """
        return await self._session.run(experiments.share(self.id, *granted_to(user, group), write=write))

    async def unshare(self, *, user: str | None = None, group: str | None = None) -> list[GrantView]:
        """Revoke what `share` granted; return the remaining grants.

        Raises:
            ValueError: Neither a user nor a group is given, or both.
            NotFound: It is not shared with them.
        """
        return await self._session.run(experiments.unshare(self.id, *granted_to(user, group)))

    async def list_grants(self) -> list[GrantView]:
        """With whom the experiment is shared."""
        return await self._session.run(experiments.grants(self.id))

    async def delete(self, *, forget_files: bool = False) -> DeletionView | None:
        """Remove an ended experiment with its checkpoints and event files; files go first.

        Args:
            forget_files: Give up on files that could not be removed; for administrators, after a `delete` without it.

        Returns:
            What a task has still to remove, until when the experiment is DELETING; None: all is gone.
        """
        return (await self._session.run(experiments.delete_experiment(self.id, forget_files=forget_files))).left

    async def delete_tensorboard_files(self) -> DeletionView | None:
        """Remove the TensorBoard event files of an experiment that has ended; the rest of it stays.

        Returns:
            What a task has still to remove; None: they are gone.
        """
        return (await self._session.run(experiments.delete_event_files(self.id))).left

    async def wait(
        self, timeout: float | None = None, *, interval: float | None = None, notice: Notice | None = None
    ) -> ExperimentState:
        """Follow the experiment to its end and return the state it ended in.

        If the master pauses it because of a failure, such as an error in the class of a custom search, this returns
        PAUSED; `view.failure` says why, and what to do. A pause by a user does not end the waiting.

        Args:
            timeout: Seconds to wait at most; None waits to the end, through outages of the master of up to an
                hour.
            interval: Not used: events are followed, nothing is polled. For Determined's scripts.
            notice: Called whenever the connection breaks.

        Raises:
            TimeoutError: It has not ended within `timeout`.
            NotFound: It was deleted, or is no longer shared with you, before its final state was known.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            snapshot = await self._session.run(first_page(self.id))
            self.learn(snapshot)
            if not settled(self.view):
                feed = states_feed(self.id, snapshot.cursor)
                with short_interrupts(stopped_waiting("experiment", self.id)):
                    async for event in self._follow(feed, deadline=deadline, notice=notice):
                        self.learn(event)
                        if settled(self.view):
                            break
            if self.state is not ExperimentState.DELETED:
                await self.reload()
        except NotFound as error:
            self.view = last_known(self.view, error)
        if not settled(self.view):
            raise timed_out(self.view, timeout)
        return self.state

    async def await_first_trial(self, timeout: float | None = None, *, interval: float | None = None) -> AsyncTrial:
        """Wait for the first trial and return it.

        Args:
            timeout: Seconds to wait at most; None waits without a limit.
            interval: Not used: events are followed, nothing is polled. For Determined's scripts.

        Raises:
            TimeoutError: There is no trial within `timeout`.
            DetlabError: The experiment ended, or was paused because of a failure, without a trial.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        snapshot = await self._session.run(first_page(self.id))
        trials = await self.list_trials(limit=1)
        if trials:
            return trials[0]
        self.learn(snapshot)
        if settled(self.view):
            raise no_trial(self.view)
        with short_interrupts(stopped_waiting("experiment", self.id)):
            async for event in self._follow(states_feed(self.id, snapshot.cursor), deadline=deadline):
                self.learn(event)
                if isinstance(event, CurvesView) or event.kind == "trial":
                    trials = await self.list_trials(limit=1)
                    if trials:
                        return trials[0]
                if settled(self.view):
                    break
        if settled((await self.reload()).view):
            raise no_trial(self.view)
        raise timed_out(self.view, timeout)

    async def list_trials(
        self,
        sort_by: TrialSortBy | str = TrialSortBy.ID,
        order_by: OrderBy | str = OrderBy.ASCENDING,
        *,
        limit: int | None = None,
        filter: str = "",  # noqa: A002  (its name in requests)
    ) -> list[AsyncTrial]:
        """Return its trials, in creation order unless told otherwise; those without the key come last.

        Args:
            sort_by: The key.
            order_by: The direction.
            limit: Return at most this many of them.
            filter: Which: `accuracy > 0.9 and hparams.lr < 1e-3`; empty: all.

        Raises:
            ConfigError: The filter cannot be read; it says where.
        """
        plain = (TrialSortBy(sort_by), OrderBy(order_by)) == (TrialSortBy.ID, OrderBy.ASCENDING)
        wanted = experiments.experiment_trials(self.id, limit=limit if plain else None, filter=filter)
        views = await self._session.run(wanted)
        chosen = views if plain else sort_views(views, TrialSortBy(sort_by), order_by)[:limit]
        return [AsyncTrial(self._session, view) for view in chosen]

    async def trials_frame(self) -> Any:
        """Return its trials as a pandas frame, a row each; hyperparameters are columns `hparams.NAME`.

        Raises:
            DetlabError: pandas is not installed.
        """
        return tabular.frame(tabular.trial_rows(await self._session.run(experiments.experiment_trials(self.id))))

    async def metrics_frame(
        self, group: str | None = None, name: str | None = None, *, max_points: int | None = None
    ) -> Any:
        """Return the metrics of its trials as a pandas frame, a row for each value.

        Args:
            group: Only this group: `training`, `validation` or one of the code's own.
            name: Only this metric.
            max_points: Most points of a curve; longer ones are thinned. None: 10,000, the most there can be.

        Raises:
            DetlabError: pandas is not installed.
        """
        snapshot = await self.curves(group=group, name=name, max_points=max_points or tabular.MOST_POINTS)
        return tabular.frame(tabular.metric_rows(snapshot.curves), tabular.METRIC_COLUMNS)

    async def unsaved_trials(self) -> list[AsyncTrial]:
        """Return the running trials that have no checkpoint yet: a pause loses what they did, unless they save then."""
        if not (await self.reload()).view.trials.get("RUNNING"):
            return []
        return [trial for trial in await self.list_trials() if trial.unsaved]

    async def iter_trials(
        self,
        sort_by: TrialSortBy | str = TrialSortBy.ID,
        order_by: OrderBy | str = OrderBy.ASCENDING,
        limit: int | None = None,
    ) -> AsyncIterator[AsyncTrial]:
        """Yield its trials in the order of `list_trials`."""
        for trial in await self.list_trials(sort_by, order_by, limit=limit):
            yield trial

    async def get_trials(
        self, sort_by: TrialSortBy | str = TrialSortBy.ID, order_by: OrderBy | str = OrderBy.ASCENDING
    ) -> list[AsyncTrial]:
        """Do the same as `list_trials`, which replaced it in Determined."""
        return await self.list_trials(sort_by, order_by)

    async def list_checkpoints(
        self,
        sort_by: CheckpointSortBy | str | None = None,
        order_by: OrderBy | str | None = None,
        max_results: int | None = None,
    ) -> list[AsyncCheckpoint]:
        """Return its checkpoints, best first unless told otherwise (see `sort_checkpoints`)."""
        found = await self._session.run(
            experiments.experiment_checkpoints(self.id, other_metric(sort_by, self.view.metric))
        )
        return [
            AsyncCheckpoint(self._session, item)
            for item in self.sorted_checkpoints(found, sort_by, order_by, max_results)
        ]

    async def top_n_checkpoints(
        self, limit: int, sort_by: CheckpointSortBy | str | None = None, smaller_is_better: bool | None = None
    ) -> list[AsyncCheckpoint]:
        """Return the validated checkpoints with the best values of the searcher metric.

        Args:
            limit: Return at most this many.
            sort_by: A validation metric, or another key; None: the searcher metric.
            smaller_is_better: Which end of it is best; goes together with `sort_by`.

        Raises:
            ValueError: One of the last two is given without the other, or no checkpoint has a value of that metric.
        """
        found = await self._session.run(
            experiments.experiment_checkpoints(self.id, other_metric(sort_by, self.view.metric))
        )
        best = self.best_first(found, limit, sort_by, smaller_is_better)
        return [AsyncCheckpoint(self._session, item) for item in best]

    async def top_checkpoint(
        self, sort_by: CheckpointSortBy | str | None = None, smaller_is_better: bool | None = None
    ) -> AsyncCheckpoint:
        """Return the checkpoint with the best value of the searcher metric (see `top_n_checkpoints`).

        Raises:
            DetlabError: No checkpoint was validated yet.
        """
        best = await self.top_n_checkpoints(1, sort_by, smaller_is_better)
        if not best:
            raise no_checkpoint(self.id)
        return best[0]

    async def download_code(self, output_dir: str | Path | None = None) -> Path:
        """Write the code it runs as a tar.gz into a folder (default: here) and return the file."""
        return write_code(self.id, await self._session.run(experiments.experiment_bundle(self.id)), output_dir)

    async def curves(
        self,
        *,
        group: str | None = None,
        name: str | None = None,
        max_points: int | None = None,
        max_trials: int | None = None,
        history: bool = False,
    ) -> CurvesView:
        """Return a snapshot of trials and curves, with the cursor from which `stream` continues.

        Args:
            group: Only curves of this group.
            name: Only curves of this metric, or of several, with commas between.
            max_points: Points of a curve.
            max_trials: Trials, the best and the newest.
            history: Whether the trials' attempts, with their slots, and their parents come with it.
        """
        wanted = experiments.curves(
            self.id, group=group, name=name, max_points=max_points, max_trials=max_trials, history=history
        )
        snapshot = await self._session.run(wanted)
        self.learn(snapshot)
        return snapshot

    async def plot(self, kind: str = "learning_curves", **options: Any) -> Any:
        """Return a plotly figure of its trials.

        Args:
            kind: `best_so_far`, `learning_curves`, `importance`, `parallel_coordinates`, `metric_by_hyperparameter`,
                `slice`, `contour`, `pareto_front`, `timeline` or `lineage`: functions of `detlab.viz`.
            **options: Of that function, such as `metric="loss"`, `group="training"`, `max_trials=20`.

        Raises:
            ValueError: There is no such figure.
            DetlabError: plotly is not installed.
        """
        from detlab.viz import kinds

        wanted = kinds.request(kind, self.view.metric, config=self.config, **options)
        return kinds.plot(await self.curves(**wanted), kind, config=self.config, **options)

    async def pareto_front(
        self, metrics: Sequence[str] | None = None, *, maximize: Collection[str] = ()
    ) -> list[TrialMetrics]:
        """Return the trials that no other one beats in all metrics, each as its last validation that has them all.

        Trials that break one of the config's constraints there are left out. The best by the first metric comes first.

        Args:
            metrics: Validation metrics; default those of `searcher.metrics`.
            maximize: Those of them of which greater values are better. The searcher's own metrics need no mention.

        Raises:
            ValueError: There are fewer than two metrics.
        """
        wanted = front_wanted(await self._configured(), metrics)
        return front_reports(await self.curves(**wanted), self.config or {}, metrics, maximize)

    async def _configured(self) -> dict[str, Any]:
        """Return the config; items of a list have none."""
        if self.config is None:
            await self.reload()
        return self.config or {}

    async def stream(
        self,
        after: int | None = None,
        *,
        names: tuple[str, ...] = (),
        groups: tuple[str, ...] = (),
        notice: Notice | None = None,
    ) -> AsyncIterator[Event]:
        """Yield the events after a cursor (None: from now on), through disconnects, until the experiment has ended.

        If the master no longer keeps the events after the cursor, one `resync` event follows whose data is a
        fresh `CurvesView` as JSON; later events continue from there.
        """
        if after is None:  # a cursor from the beginning, or a break before the first event would lose some
            after = (await self._session.run(first_page(self.id))).cursor
        feed = event_feed(self.id, after, names=names, groups=groups)
        async for item in self._follow(feed, notice=notice):
            self.learn(item)
            yield self.resync_event(item) if isinstance(item, CurvesView) else item

    async def watch(
        self,
        *,
        group: str | None = None,
        name: str | None = None,
        max_points: int | None = None,
        max_trials: int | None = None,
        notice: Notice | None = None,
    ) -> AsyncIterator[CurvesView | Event]:
        """Yield a snapshot, then the events after it; another snapshot wherever events were lost.

        Args:
            group: Only metrics of this group.
            name: Only these metrics, with commas between, as of `curves`.
            max_points: Points of a curve of the snapshot.
            max_trials: Trials of the snapshot, the best and the newest.
            notice: Called at every break with the error, and the seconds until the next attempt.
        """
        snapshot = await self.curves(group=group, name=name, max_points=max_points, max_trials=max_trials)
        yield snapshot
        if snapshot.experiment.state.terminal:
            return
        feed = event_feed(self.id, snapshot.cursor, names=listed(name), groups=(group,) if group else ())
        again = experiments.curves
        async for item in self._follow(
            feed,
            snapshot=lambda: again(self.id, group=group, name=name, max_points=max_points, max_trials=max_trials),
            notice=notice,
        ):
            self.learn(item)
            yield item

    async def _ended(self) -> bool:
        return (await self._session.run(experiments.experiment(self.id))).state.terminal

    async def _follow(
        self,
        feed: EventFeed[Event],
        *,
        snapshot: Callable[[], Flow[CurvesView]] | None = None,
        deadline: float | None = None,
        notice: Notice | None = None,
    ) -> AsyncIterator[CurvesView | Event]:
        async for event in follow(self._session, feed, self._ended, deadline=deadline, notice=notice):
            if event.kind != "resync":
                yield event
                continue
            try:
                fresh = await self._session.run(snapshot() if snapshot else experiments.curves(self.id))
            except (ClusterUnreachable, Unavailable):
                feed.resume_from(event.id if feed.cursor is None else feed.cursor)  # and be told to resync again
                continue
            feed.resume_from(fresh.cursor)
            yield fresh
            if fresh.experiment.state.terminal:
                return


class AsyncTrial(AsyncTrialOutput):
    """A trial, asynchronous."""

    def __init__(self, session: AsyncSession, view: TrialView) -> None:
        super().__init__(view)
        self._session = session

    async def reload(self) -> AsyncTrial:
        """Fetch the current state from the master, with the summary; return itself."""
        self.view = await self._session.run(experiments.trial(self.id))
        return self

    async def kill(self) -> None:
        """End this trial; its experiment continues."""
        self.view = await self._session.run(experiments.kill_trial(self.id))

    async def get_experiment(self) -> AsyncExperiment:
        """Return its experiment."""
        return AsyncExperiment(self._session, await self._session.run(experiments.experiment(self.experiment_id)))

    async def plot(self, **options: Any) -> Any:
        """Return a plotly figure of its metrics, with the options of `detlab.viz.trial_metrics`.

        Raises:
            DetlabError: plotly is not installed.
        """
        from detlab import viz

        if "restarts" not in options:
            await self.reload()
            options["restarts"] = self.restart_steps
        return viz.trial_metrics(await self._session.run(experiments.trial_metrics(self.id)), **options)

    async def list_checkpoints(
        self,
        sort_by: CheckpointSortBy | str | None = None,
        order_by: OrderBy | str | None = None,
        max_results: int | None = None,
    ) -> list[AsyncCheckpoint]:
        """Return its checkpoints, best first unless told otherwise."""
        experiment = await self.get_experiment()
        other = other_metric(sort_by, experiment.view.metric)
        found = await self._session.run(experiments.trial_checkpoints(self.id, other))
        order = experiment.sorted_checkpoints(found, sort_by, order_by, max_results)
        return [AsyncCheckpoint(self._session, item) for item in order]

    async def get_checkpoints(
        self, sort_by: CheckpointSortBy | str | None = None, order_by: OrderBy | str | None = None
    ) -> list[AsyncCheckpoint]:
        """Do the same as `list_checkpoints`, which replaced it in Determined."""
        return await self.list_checkpoints(sort_by, order_by)

    async def top_checkpoint(
        self, sort_by: CheckpointSortBy | str | None = None, smaller_is_better: bool | None = None
    ) -> AsyncCheckpoint:
        """Return its checkpoint with the best value of the searcher metric (see `Experiment.top_n_checkpoints`).

        Raises:
            DetlabError: No checkpoint was validated yet.
        """
        experiment = await self.get_experiment()
        other = other_metric(sort_by, experiment.view.metric)
        found = await self._session.run(experiments.trial_checkpoints(self.id, other))
        best = experiment.best_first(found, 1, sort_by, smaller_is_better)
        if not best:
            raise no_checkpoint(self.experiment_id)
        return AsyncCheckpoint(self._session, best[0])

    async def select_checkpoint(
        self,
        latest: bool = False,
        best: bool = False,
        uuid: str | None = None,
        sort_by: CheckpointSortBy | str | None = None,
        smaller_is_better: bool | None = None,
    ) -> AsyncCheckpoint:
        """Return one checkpoint: the latest, the best, or the one with this id; give exactly one of these arguments.

        Args:
            latest: The one of the most steps.
            best: The one with the best value of the searcher metric.
            uuid: The one with this id.
            sort_by: With `best`: see `Experiment.top_n_checkpoints`.
            smaller_is_better: Goes together with `sort_by`.

        Raises:
            ValueError: None or several of the arguments were given.
            DetlabError: There is no such checkpoint.
        """
        if sum((latest, best, uuid is not None)) != 1:
            raise ValueError("choose exactly one of latest, best and uuid")
        if uuid is not None:
            return AsyncCheckpoint(self._session, await self._session.run(experiments.checkpoint(uuid)))
        if best:
            return await self.top_checkpoint(sort_by, smaller_is_better)
        newest = newest_checkpoint(await self._session.run(experiments.trial_checkpoints(self.id)))
        if newest is None:
            raise no_checkpoint(self.experiment_id)
        return AsyncCheckpoint(self._session, newest)


class AsyncCheckpoint(AsyncCheckpointFiles):
    """A committed checkpoint, asynchronous."""

    def __init__(self, session: AsyncSession, view: CheckpointView) -> None:
        super().__init__(view)
        self._session = session

    async def reload(self) -> AsyncCheckpoint:
        """Fetch the current state from the master; return itself."""
        self.view = await self._session.run(experiments.checkpoint(self.uuid))
        return self

    async def get_trial(self) -> AsyncTrial:
        """Return the trial that wrote it."""
        return AsyncTrial(self._session, await self._session.run(experiments.trial(self.trial_id)))
