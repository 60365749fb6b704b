"""The asynchronous client: find the cluster, submit, list, fetch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from detlab.client.aresources import AsyncCheckpoint, AsyncExperiment, AsyncTrial
from detlab.client.artifacts.acalls import AsyncArtifactCalls
from detlab.client.asearch import AsyncSearch
from detlab.client.atasks import AsyncTask
from detlab.client.bundling.bundle import Bundle
from detlab.client.bundling.secret_files import secret_warnings
from detlab.client.facts import TrialMetrics, reports
from detlab.client.notebook_runs import prepare_notebook_run
from detlab.client.operations import agents as agent_operations
from detlab.client.operations import experiments as operations
from detlab.client.operations import pools as pool_operations
from detlab.client.operations import storage as storage_operations
from detlab.client.operations import tasks as task_operations
from detlab.client.ordering import (
    ExperimentSortBy,
    OrderBy,
    archived_filter,
    choose_experiments,
    several,
    sort_views,
)
from detlab.client.parts.aalerts import AsyncAlertCalls
from detlab.client.parts.abatches import AsyncBatchCalls
from detlab.client.parts.afinding import AsyncFindingCalls
from detlab.client.parts.aruns import AsyncRunCalls
from detlab.client.parts.aschedules import AsyncScheduleCalls
from detlab.client.projects.acalls import AsyncWorkspaceCalls
from detlab.client.registry.acalls import AsyncRegistryCalls
from detlab.client.registry.amodels import AsyncModelVersion
from detlab.client.registry.facts import folder_config
from detlab.client.submission import ConfigSource, config_mapping, pack, submission_of, task_submission_of
from detlab.client.transport.calls import Progress, Retries
from detlab.client.transport.discovery import ClusterAddress, find_cluster, with_token
from detlab.client.transport.session import AsyncSession
from detlab.errors import DetlabError
from detlab.schemas.poolwire import PoolView
from detlab.schemas.taskwire import QueueItem, TaskKind
from detlab.schemas.wire import (
    AgentView,
    ClusterView,
    CostView,
    ExperimentState,
    ForecastView,
    GivenView,
    ProblemView,
    UserView,
)
from detlab.schemas.wire.storage import EmptyTrash, StorageBy, StorageUsage, TrashView

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True, slots=True)
class AsyncSubmitted:
    """The result of submitting an experiment.

    Attributes:
        experiment: The experiment; None after a dry run.
        created: False if the same submit had made it before.
        warnings: Of the master, such as of keys that have no effect yet, and of files that hold secrets.
        config: The resolved config.
        bundle: The code that was sent, or None.
        forecast: After a dry run: what would happen now; None from a master that makes no forecast.
        given: Values that the workspace gives, each with where it comes from.
        cost: What it will cost; None: its pool has no price.
    """

    experiment: AsyncExperiment | None
    created: bool
    warnings: list[ProblemView]
    config: dict[str, Any]
    bundle: Bundle | None
    forecast: ForecastView | None = None
    given: Sequence[GivenView] = ()
    cost: CostView | None = None


@dataclass(frozen=True, slots=True)
class AsyncSubmittedTask:
    """The result of requesting a user task.

    Attributes:
        task: The task; None after a dry run.
        created: False if the same request had made it before.
        warnings: Of the master, and of files that hold secrets.
        config: The resolved config.
        bundle: The code that was sent, or None.
        given: Values that the workspace gives, each with where it comes from.
    """

    task: AsyncTask | None
    created: bool
    warnings: list[ProblemView]
    config: dict[str, Any]
    bundle: Bundle | None
    given: Sequence[GivenView] = ()


class AsyncClient(
    AsyncRegistryCalls,
    AsyncArtifactCalls,
    AsyncFindingCalls,
    AsyncBatchCalls,
    AsyncWorkspaceCalls,
    AsyncRunCalls,
    AsyncScheduleCalls,
    AsyncAlertCalls,
):
    """An asynchronous client of one cluster. Cheap to make: it connects on the first call.

    Args:
        url: Address of the Hub or the service; None looks for a cluster (see `detlab.client.transport.discovery`).
        token: Hub token; None takes the one that was found with the address.
        timeout: Seconds to wait for the answer to one call.
        address: A cluster that was found already, instead of `url` and `token`.
        backoff: When failed calls are repeated.
        transport: Replaces httpx's transport (for a test or a tunnel).

    Raises:
        ClusterNotFound: Nothing names a cluster.
        AuthError: There is no token for it.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 60.0,
        address: ClusterAddress | None = None,
        backoff: Retries | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.address = with_token(address or find_cluster(url, token))
        self.session = AsyncSession(self.address, timeout=timeout, backoff=backoff, transport=transport)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address.url!r})"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        await self.session.close()

    # --- cluster ------------------------------------------------------------------------------------------

    async def whoami(self) -> UserView:
        """Return who the token belongs to."""
        return await self.session.run(operations.whoami())

    async def get_cluster(self) -> ClusterView:
        """Return the current state of the cluster."""
        return await self.session.run(operations.cluster())

    async def list_agents(self) -> list[AgentView]:
        """Return all agents."""
        return await self.session.run(agent_operations.agents())

    async def list_pools(self) -> list[PoolView]:
        """Return the resource pools: how each is scheduled, and how full it is."""
        return await self.session.run(pool_operations.pools())

    # --- experiments --------------------------------------------------------------------------------------

    async def create_experiment(
        self,
        config: ConfigSource,
        model_dir: str | Path | None = None,
        includes: Iterable[str | Path] | None = None,
        *,
        template: ConfigSource | None = None,
        files: Mapping[str, bytes | str] | None = None,
        activate: bool = True,
    ) -> AsyncExperiment:
        """Submit an experiment.

        Args:
            config: A mapping, the path of a YAML file, or YAML text of several lines.
            model_dir: The directory that holds the code; it becomes the trials' working directory.
            includes: Further files and directories, each put at the top.
            template: What holds where `config` says nothing: a template of the master by its name, or a config.
            files: In-memory files by path.
            activate: Start it at once; False creates it paused.

        Raises:
            ConfigError: The config has mistakes; all of them are in `problems`.
            BundleError: The code cannot be packed.
        """
        submitted = await self.submit(
            config,
            bundle=await asyncio.to_thread(pack, model_dir, includes, files),
            template=template,
            activate=activate,
        )
        assert submitted.experiment is not None  # only a dry run has none
        return submitted.experiment

    async def submit(
        self,
        config: ConfigSource,
        *,
        bundle: Bundle | None = None,
        template: ConfigSource | None = None,
        activate: bool = True,
        dry_run: bool = False,
        idempotency_key: str | None = None,
        source: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
        forked_from: int | None = None,
        code: str | None = None,
    ) -> AsyncSubmitted:
        """Submit code and config; return the experiment with the master's warnings and the resolved config.

        If the answer is lost, the request is repeated with the same key, so the experiment is never created twice.

        Args:
            config: See `create_experiment`.
            bundle: The code, from `build_bundle`; None is an empty directory.
            template: What holds where `config` says nothing: a template of the master by its name, or a config.
            activate: Start it at once; False creates it paused.
            dry_run: Only validate it.
            idempotency_key: Requests with the same key create one experiment; default: a new key.
            source: Provenance for people (notebook, cell, line maps).
            progress: Called with (bytes sent, bytes in all) while the code is uploaded.
            forked_from: The experiment as whose copy the config began; see `Experiment.fork`.
            code: Digest of code that the master has, such as `bundle` of an experiment's view, instead of a bundle.

        Raises:
            ConfigError: The config has mistakes; all of them are in `problems`.
        """
        submission = submission_of(
            config,
            bundle=bundle,
            template=template,
            activate=activate,
            dry_run=dry_run,
            idempotency_key=idempotency_key,
            source=source,
            progress=progress,
            forked_from=forked_from,
            code=code,
        )
        reply = await self.session.run(operations.submit(submission))
        experiment = AsyncExperiment(self.session, reply.experiment) if reply.experiment else None
        warnings = [*reply.warnings, *secret_warnings(bundle)]
        return AsyncSubmitted(
            experiment, reply.created, warnings, reply.config, bundle, reply.forecast, reply.given, reply.cost
        )

    async def get_experiment(self, experiment_id: int) -> AsyncExperiment:
        """Return one experiment."""
        return AsyncExperiment(self.session, await self.session.run(operations.experiment(experiment_id)))

    async def create_search(
        self,
        config: ConfigSource,
        *,
        template: ConfigSource | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncSearch:
        """Create a search whose trials you evaluate yourself; the cluster runs nothing for it.

        Args:
            config: See `create_experiment`; it needs `searcher` and `hyperparameters`, and no entrypoint.
            template: What holds where `config` says nothing: a template of the master by its name, or a config.
            idempotency_key: Requests with the same key create one search; default: a new key.

        Raises:
            ConfigError: The config has mistakes; all of them are in `problems`.

        Examples:
            search = client.create_search({
                "searcher": {"name": "tpe", "metric": "loss", "max_trials": 20},
                "hyperparameters": {"lr": {"type": "log", "minval": -4, "maxval": -1}},
            })
            for trial in search:
                search.tell(trial, evaluate(**trial.hyperparameters))
            print(search.describe())
        """
        by_hand = {**config_mapping(config), "unmanaged": True}
        submitted = await self.submit(by_hand, template=template, idempotency_key=idempotency_key)
        assert submitted.experiment is not None  # only a dry run has none
        return AsyncSearch(self.session, submitted.experiment.view)

    async def get_search(self, experiment_id: int) -> AsyncSearch:
        """Return a search whose trials you evaluate yourself, to go on with it."""
        return AsyncSearch(self.session, await self.session.run(operations.experiment(experiment_id)))

    async def list_experiments(
        self,
        sort_by: ExperimentSortBy | str | None = None,
        order_by: OrderBy | str = OrderBy.ASCENDING,
        experiment_ids: Collection[int] | None = None,
        labels: Collection[str] | None = None,
        users: Collection[str] | None = None,
        states: Collection[ExperimentState | str] | None = None,
        name: str | None = None,
        *,
        limit: int | None = None,
        state: str | None = None,
        owner: str | None = None,
        archived: bool | None = False,
        filter: str = "",  # noqa: A002  (its name in requests)
        sort: Collection[str] | str = (),
        columns: Collection[str] | str = (),
        workspace: str | int | None = None,
        project: str | int | None = None,
        project_id: int | None = None,
    ) -> list[AsyncExperiment]:
        """Return experiments, newest first unless told otherwise; those without the key come last.

        Args:
            sort_by: The key.
            order_by: The direction, if there is a key.
            experiment_ids: Only these.
            labels: Only those with all of these labels.
            users: Only those of these users.
            states: Only those in one of these states.
            name: Only those of this name.
            limit: Return at most this many of them.
            state: Only those in this state.
            owner: Only those of this user.
            archived: False leaves archived ones out, True all others; None leaves out none.
            filter: Which: `label = paper and accuracy > 0.9`; metrics and hyperparameters are those of the best trial.
            sort: Fields in order of importance, with `-` before them for descending, instead of a key.
            columns: Fields whose values each experiment then has in `view.values`.
            workspace: Only those that lie in this one: its name, `OWNER/NAME` or id.
            project: Only those of this project of it, or of your personal one.
            project_id: Or: only those of this project of any workspace.

        Raises:
            NotFound: There is no such workspace or project.
            ValueError: There is no such key, direction or state.
            ConfigError: The filter cannot be read; it says where.
        """
        key = None if sort_by is None else ExperimentSortBy(sort_by)
        here = any(given is not None for given in (key, experiment_ids, labels, users, states))
        first = None if here else limit
        which = archived_filter(archived)
        folder = project if project_id is None else project_id
        wanted = operations.experiments(
            limit=first,
            state=state,
            owner=owner,
            name=name,
            archived=which,
            filter=filter,
            sort=several(sort) or (),
            columns=several(columns) or (),
            workspace=workspace,
            project=folder,
        )
        views = await self.session.run(wanted)
        if here:
            views = choose_experiments(views, experiment_ids=experiment_ids, labels=labels, users=users, states=states)
            views = (sort_views(views, key, order_by) if key is not None else views)[:limit]
        return [AsyncExperiment(self.session, view) for view in views]

    async def iter_experiments(self) -> AsyncIterator[AsyncExperiment]:
        """Yield all experiments, newest first."""
        for experiment in await self.list_experiments():
            yield experiment

    # --- trials, checkpoints ------------------------------------------------------------------------------

    async def get_trial(self, trial_id: int) -> AsyncTrial:
        """Return one trial, with its summary."""
        return AsyncTrial(self.session, await self.session.run(operations.trial(trial_id)))

    async def iter_trials_metrics(self, trial_ids: Iterable[int], group: str) -> AsyncIterator[TrialMetrics]:
        """Yield the reports of some trials, trial by trial and in order of step.

        Args:
            trial_ids: The trials.
            group: `training`, `validation` or a group of the code's own.
        """
        for trial_id in trial_ids:
            series = await self.session.run(operations.trial_metrics(trial_id, group=group))
            for report in reports(series):
                yield report

    async def get_checkpoint(self, uuid: str) -> AsyncCheckpoint:
        """Return one checkpoint."""
        return AsyncCheckpoint(self.session, await self.session.run(operations.checkpoint(uuid)))

    # --- registered models --------------------------------------------------------------------------------

    async def register_folder(
        self,
        model: str | int,
        folder: str | Path,
        *,
        notice: Callable[[AsyncExperiment], object] = lambda experiment: None,
        **more: Any,
    ) -> AsyncModelVersion:
        """Make a folder, such as a model that was made elsewhere, a version of a registered model.

        It is sent like the code of an experiment, within the limit of that, and a trial without slots saves it as its
        checkpoint. Nothing in it is opened.

        Args:
            model: The model's name or id.
            folder: Its content becomes the files of the version.
            notice: Called with the experiment once it is submitted.
            more: Of `AsyncModel.register_version`: `name`, `semver`, `labels` …

        Raises:
            BundleError: The folder cannot be sent.
            DetlabError: The trial failed.
        """
        into = await self.get_model(model)
        source = Path(folder).resolve()
        bundle = await asyncio.to_thread(pack, None, [source])
        submitted = await self.submit(folder_config(into.name, source.name), bundle=bundle)
        assert submitted.experiment is not None  # only a dry run has none
        experiment = submitted.experiment
        notice(experiment)
        state = await experiment.wait()
        saved = await experiment.list_checkpoints() if state is ExperimentState.COMPLETED else []
        if not saved:
            raise DetlabError(
                f"the folder was not saved: experiment {experiment.id} is {state}",
                hint=f"det experiment logs {experiment.id}",
            )
        return await into.register_version(saved[0].uuid, **more)

    # --- user tasks ---------------------------------------------------------------------------------------

    async def create_task(
        self,
        kind: TaskKind | str,
        config: ConfigSource | None = None,
        model_dir: str | Path | None = None,
        includes: Iterable[str | Path] | None = None,
        *,
        files: Mapping[str, bytes | str] | None = None,
        name: str | None = None,
        experiment_ids: Iterable[int] = (),
        trial_ids: Iterable[int] = (),
        workspace: str | int | None = None,
        project: str | int | None = None,
    ) -> AsyncTask:
        """Start a notebook, shell, command or TensorBoard.

        Args:
            kind: `notebook`, `shell`, `command` or `tensorboard`.
            config: A mapping, the path of a YAML file, or YAML text (`detlab.schemas.taskconf`).
            model_dir: A directory whose content is copied to the task's working directory.
            includes: Further files and directories, each put at the top.
            files: In-memory files by path.
            name: Display name.
            experiment_ids: What a TensorBoard shows.
            trial_ids: Single trials that a TensorBoard shows.
            workspace: Where it is to lie, whose members see its state: a name, `OWNER/NAME` or id. Nobody but you opens
                it.
            project: A name or id; default: the one for what names none.

        Raises:
            ConfigError: The config has mistakes; all of them are in `problems`.
            BundleError: The code cannot be packed.
        """
        submitted = await self.submit_task(
            kind,
            config,
            bundle=await asyncio.to_thread(pack, model_dir, includes, files),
            name=name,
            experiment_ids=experiment_ids,
            trial_ids=trial_ids,
            workspace=workspace,
            project=project,
        )
        assert submitted.task is not None  # only a dry run has none
        return submitted.task

    async def submit_task(
        self,
        kind: TaskKind | str,
        config: ConfigSource | None = None,
        *,
        bundle: Bundle | None = None,
        name: str | None = None,
        experiment_ids: Iterable[int] = (),
        trial_ids: Iterable[int] = (),
        dry_run: bool = False,
        idempotency_key: str | None = None,
        source: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
        workspace: str | int | None = None,
        project: str | int | None = None,
        template: str | None = None,
    ) -> AsyncSubmittedTask:
        """Request a user task; return it with the master's warnings and the resolved config.

        If the answer is lost, the request is repeated with the same key, so the task is never created twice.

        Args:
            kind: The kind of task.
            config: See `create_task`.
            bundle: The code, from `build_bundle`.
            name: Display name.
            experiment_ids: What a TensorBoard shows.
            trial_ids: Single trials that a TensorBoard shows.
            dry_run: Only validate it.
            idempotency_key: Requests with the same key create one task; default: a new key.
            source: Where it comes from, for people: fields of `TaskSource`.
            progress: Called with (bytes sent, bytes in all) while the code is uploaded.
            workspace: See `create_task`.
            project: See `create_task`.
            template: A template of the master that is laid under the config: `NAME` or `WORKSPACE:NAME`.
        """
        submission = task_submission_of(
            kind,
            config,
            bundle=bundle,
            name=name,
            experiment_ids=experiment_ids,
            trial_ids=trial_ids,
            dry_run=dry_run,
            idempotency_key=idempotency_key,
            source=source,
            progress=progress,
            workspace=workspace,
            project=project,
            template=template,
        )
        reply = await self.session.run(task_operations.create_task(submission))
        task = AsyncTask(self.session, reply.task) if reply.task else None
        warnings = [*reply.warnings, *secret_warnings(bundle)]
        return AsyncSubmittedTask(task, reply.created, warnings, reply.config, bundle, reply.given)

    async def run_notebook(
        self,
        path: str | Path,
        parameters: Mapping[str, Any] | None = None,
        *,
        slots: int | None = None,
        config: ConfigSource | None = None,
        name: str | None = None,
        context: str | Path | None = None,
        dry_run: bool = False,
        idempotency_key: str | None = None,
        progress: Progress | None = None,
        template: str | None = None,
    ) -> AsyncSubmittedTask:
        """Run a whole notebook as a task; its output `executed.ipynb` grows with each cell.

        Args:
            path: The notebook.
            parameters: Values for variables of its cell tagged `parameters`.
            slots: Number of slots; default 1.
            config: Task config (`detlab.schemas.taskconf`).
            name: Display name; default: the file's.
            context: Folder to ship; None: the notebook and the modules beside it that it imports.
            dry_run: Only validate it.
            idempotency_key: Requests with the same key create one task; default: a new key.
            progress: Called with (bytes sent, bytes in all) while the code is uploaded.
            template: A template of the master that is laid under the config.

        Raises:
            ConfigError: Parameters or config have mistakes; all of them are in `problems`.
            BundleError: The file is not a notebook, or the code cannot be packed.
        """
        run = await asyncio.to_thread(
            prepare_notebook_run, path, parameters, config=config, slots=slots, name=name, context=context
        )
        made = await self.submit_task(
            TaskKind.NOTEBOOK_RUN,
            run.config,
            bundle=run.bundle,
            name=run.name,
            dry_run=dry_run,
            idempotency_key=idempotency_key,
            source=run.source,
            progress=progress,
            template=template,
        )
        return replace(made, warnings=[*run.warnings, *made.warnings])

    async def get_task(self, task_id: str) -> AsyncTask:
        """Return one user task."""
        return AsyncTask(self.session, await self.session.run(task_operations.task(task_id)))

    async def list_tasks(
        self,
        *,
        limit: int | None = None,
        kind: TaskKind | str | None = None,
        state: str | None = None,
        owner: str | None = None,
        workspace: str | int | None = None,
        project: str | int | None = None,
    ) -> list[AsyncTask]:
        """Return user tasks, newest first.

        Args:
            limit: Most of them; None: all.
            kind: Only of this kind.
            state: Only in this state.
            owner: Only this user's.
            workspace: Those of all its members, of others' the state alone: its name, `OWNER/NAME` or id.
            project: Only those of this project of it; without a workspace of your personal one.

        Raises:
            NotFound: There is no such workspace or project.
        """
        views = await self.session.run(
            task_operations.tasks(
                limit=limit, kind=kind, state=state, owner=owner, workspace=workspace, project=project
            )
        )
        return [AsyncTask(self.session, view) for view in views]

    async def iter_tasks(self) -> AsyncIterator[AsyncTask]:
        """Yield all user tasks, newest first."""
        for task in await self.list_tasks():
            yield task

    async def storage_usage(self, by: StorageBy = "user", *, limit: int | None = None) -> StorageUsage:
        """Return who stores how many bytes: checkpoints, trash, code and task outputs.

        Args:
            by: `user`, `group`, `project` or `experiment`. Administrators see all; others their own use, that of their
                groups, and the projects and experiments that they may read.
            limit: Most of them, those with most bytes first; None: a hundred. The total is of all.
        """
        return await self.session.run(storage_operations.usage(by, limit))

    async def get_trash(self) -> TrashView:
        """Return your deleted checkpoints that can still be restored, by experiment."""
        return await self.session.run(storage_operations.trash())

    async def empty_trash(self, *, until: float | None = None) -> TrashView:
        """Remove your deleted checkpoints now, for good.

        Args:
            until: Only what was deleted before: `at` of what `get_trash` has shown; None: all.
        """
        return await self.session.run(storage_operations.empty_trash(EmptyTrash(until=until)))

    async def get_queue(self) -> list[QueueItem]:
        """Return what waits for slots, in the order in which the scheduler considers it."""
        return await self.session.run(task_operations.queue())
