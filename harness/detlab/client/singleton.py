"""The functions of `detlab.client`: one client per process, found or logged in."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from detlab.client.client import Client
from detlab.client.facts import TrialMetrics
from detlab.client.ordering import ExperimentSortBy, OrderBy
from detlab.client.registry.facts import ModelSortBy
from detlab.client.registry.models import Model, ModelVersion
from detlab.client.resources import Checkpoint, Experiment, Trial
from detlab.client.search import Search
from detlab.client.submission import ConfigSource
from detlab.client.tasks import Task
from detlab.client.transport.discovery import ClusterAddress, find_cluster
from detlab.errors import DetlabError
from detlab.forking import renew_in_children
from detlab.schemas.poolwire import PoolView
from detlab.schemas.taskwire import TaskKind
from detlab.schemas.wire import AgentView, ExperimentState, UserView
from detlab.schemas.wire.storage import StorageBy, StorageUsage


class Determined(Client):
    """`Client` under the name and with the first argument that Determined's users know.

    Args:
        master: Address of the cluster; None looks for one.
        user: Refused: people log in at the Hub, programs use a token.
        password: Refused likewise.
        token: Hub token.

    Raises:
        DetlabError: A user name or password was given.
    """

    def __init__(
        self,
        master: str | None = None,
        user: str | None = None,
        password: str | None = None,
        *,
        token: str | None = None,
    ) -> None:
        _no_password(user, password)
        super().__init__(master, token)

    def logout(self) -> None:
        """Close the connections; the token stays valid: the Hub revokes it."""
        self.close()

    def get_session_username(self) -> str:
        """Return the name of the user that the token belongs to."""
        return self.whoami().name

    def stream_trials_metrics(self, trial_ids: Iterable[int], group: str) -> Iterator[TrialMetrics]:
        """Do the same as `iter_trials_metrics`, which replaced it in Determined."""
        return self.iter_trials_metrics(trial_ids, group)

    def stream_trials_training_metrics(self, trial_ids: Iterable[int]) -> Iterator[TrialMetrics]:
        """Do the same as `iter_trials_metrics` of `training`, which replaced it in Determined."""
        return self.iter_trials_metrics(trial_ids, "training")

    def stream_trials_validation_metrics(self, trial_ids: Iterable[int]) -> Iterator[TrialMetrics]:
        """Do the same as `iter_trials_metrics` of `validation`, which replaced it in Determined."""
        return self.iter_trials_metrics(trial_ids, "validation")


class _Current:
    """The client of this process, and the cluster it was made for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._chosen = False
        renew_in_children(self)

    def forget_connections(self) -> object:
        """Forget a lock that another thread of the parent process may have held; the client renews itself."""
        self._lock = threading.Lock()
        return None

    def get(self) -> Client:
        with self._lock:
            if self._client is not None and self._chosen:
                return self._client
            # Folder and environment may change in a long-lived kernel: look again, reuse if it is the same.
            return self._use(find_cluster(), chosen=False)

    def choose(self, address: ClusterAddress) -> Client:
        with self._lock:
            return self._use(address, chosen=True)

    def _use(self, address: ClusterAddress, *, chosen: bool) -> Client:
        if self._client is None or self._client.address != address:
            fresh = Client(address=address)
            if self._client is not None:
                self._client.close()
            self._client = fresh
        self._chosen = chosen
        return self._client

    def drop(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
            self._client, self._chosen = None, False


_current = _Current()


def _no_password(user: str | None, password: str | None) -> None:
    if user is not None or password is not None:
        raise DetlabError(
            "detlab takes no user name and password: people log in at the Hub, programs use a token",
            hint="Make a token at the Hub (/hub/token) and give it as token=…, DET_TOKEN or by det login URL",
        )


def current_client() -> Client:
    """Return the client behind this module's functions."""
    return _current.get()


def login(
    master: str | None = None, user: str | None = None, password: str | None = None, *, token: str | None = None
) -> UserView:
    """Choose the cluster for this process; return who the token belongs to.

    Args:
        master: Address of the cluster; None looks for one.
        user: Refused (see `Determined`).
        password: Refused (see `Determined`).
        token: Hub token; None takes the one that belongs to the address.
    """
    _no_password(user, password)
    return _current.choose(find_cluster(master, token)).whoami()


def logout() -> None:
    """Forget the cluster that `login` chose; the next call looks for one again."""
    _current.drop()


def whoami() -> UserView:
    """Return who the token belongs to."""
    return current_client().whoami()


def create_experiment(
    config: ConfigSource,
    model_dir: str | Path | None = None,
    includes: Iterable[str | Path] | None = None,
    *,
    template: ConfigSource | None = None,
    files: Mapping[str, bytes | str] | None = None,
    activate: bool = True,
) -> Experiment:
    """Submit an experiment (see `Client.create_experiment`)."""
    return current_client().create_experiment(
        config, model_dir, includes, template=template, files=files, activate=activate
    )


def create_search(
    config: ConfigSource, *, template: ConfigSource | None = None, idempotency_key: str | None = None
) -> Search:
    """Create a search whose trials you evaluate yourself (see `Client.create_search`)."""
    return current_client().create_search(config, template=template, idempotency_key=idempotency_key)


def get_search(experiment_id: int) -> Search:
    """Return a search whose trials you evaluate yourself."""
    return current_client().get_search(experiment_id)


def get_experiment(experiment_id: int) -> Experiment:
    """Return one experiment."""
    return current_client().get_experiment(experiment_id)


def list_experiments(
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
) -> list[Experiment]:
    """Return experiments, newest first unless told otherwise (see `Client.list_experiments`)."""
    return current_client().list_experiments(
        sort_by,
        order_by,
        experiment_ids,
        labels,
        users,
        states,
        name,
        limit=limit,
        state=state,
        owner=owner,
        archived=archived,
    )


def get_session_username() -> str:
    """Return the name of the user that the token belongs to."""
    return current_client().whoami().name


def iter_trials_metrics(trial_ids: Iterable[int], group: str) -> Iterator[TrialMetrics]:
    """Yield the reports of some trials (see `Client.iter_trials_metrics`)."""
    return current_client().iter_trials_metrics(trial_ids, group)


def stream_trials_metrics(trial_ids: Iterable[int], group: str) -> Iterator[TrialMetrics]:
    """Do the same as `iter_trials_metrics`, which replaced it in Determined."""
    return iter_trials_metrics(trial_ids, group)


def stream_trials_training_metrics(trial_ids: Iterable[int]) -> Iterator[TrialMetrics]:
    """Do the same as `iter_trials_metrics` of `training`, which replaced it in Determined."""
    return iter_trials_metrics(trial_ids, "training")


def stream_trials_validation_metrics(trial_ids: Iterable[int]) -> Iterator[TrialMetrics]:
    """Do the same as `iter_trials_metrics` of `validation`, which replaced it in Determined."""
    return iter_trials_metrics(trial_ids, "validation")


def get_trial(trial_id: int) -> Trial:
    """Return one trial, with its summary."""
    return current_client().get_trial(trial_id)


def get_checkpoint(uuid: str) -> Checkpoint:
    """Return one checkpoint."""
    return current_client().get_checkpoint(uuid)


def list_agents() -> list[AgentView]:
    """Return all agents."""
    return current_client().list_agents()


def list_pools() -> list[PoolView]:
    """Return the resource pools: how each is scheduled, and how full it is."""
    return current_client().list_pools()


def storage_usage(by: StorageBy = "user", *, limit: int | None = None) -> StorageUsage:
    """Return who stores how many bytes (see `Client.storage_usage`)."""
    return current_client().storage_usage(by, limit=limit)


def create_task(
    kind: TaskKind | str,
    config: ConfigSource | None = None,
    model_dir: str | Path | None = None,
    includes: Iterable[str | Path] | None = None,
    *,
    files: Mapping[str, bytes | str] | None = None,
    name: str | None = None,
    experiment_ids: Iterable[int] = (),
    trial_ids: Iterable[int] = (),
) -> Task:
    """Start a notebook, shell, command or TensorBoard (see `Client.create_task`)."""
    return current_client().create_task(
        kind,
        config,
        model_dir,
        includes,
        files=files,
        name=name,
        experiment_ids=experiment_ids,
        trial_ids=trial_ids,
    )


def run_notebook(
    path: str | Path,
    parameters: Mapping[str, Any] | None = None,
    *,
    slots: int | None = None,
    config: ConfigSource | None = None,
    name: str | None = None,
    context: str | Path | None = None,
) -> Task:
    """Run a whole notebook as a task (see `Client.run_notebook`)."""
    submitted = current_client().run_notebook(path, parameters, slots=slots, config=config, name=name, context=context)
    assert submitted.task is not None  # only a dry run has none
    return submitted.task


def get_task(task_id: str) -> Task:
    """Return one user task."""
    return current_client().get_task(task_id)


def list_tasks(
    *,
    limit: int | None = None,
    kind: TaskKind | str | None = None,
    state: str | None = None,
    owner: str | None = None,
) -> list[Task]:
    """Return user tasks, newest first."""
    return current_client().list_tasks(limit=limit, kind=kind, state=state, owner=owner)


# --- registered models


def create_model(
    name: str,
    description: str = "",
    metadata: Mapping[str, Any] | None = None,
    labels: Collection[str] = (),
    *,
    notes: str = "",
) -> Model:
    """Make a model (see `Client.create_model`)."""
    return current_client().create_model(name, description, metadata, labels, notes=notes)


def get_model(identifier: str | int) -> Model:
    """Return a model by its name if it is your own, by `OWNER/NAME`, or by its id."""
    return current_client().get_model(identifier)


def get_model_by_id(model_id: int) -> Model:
    """Return a model by its id."""
    return current_client().get_model_by_id(model_id)


def get_model_version(reference: str) -> ModelVersion:
    """Return a version by `digits@production`, `digits@3`, `digits@1.2.0` or `digits`, which is its newest."""
    return current_client().get_model_version(reference)


def list_models(
    sort_by: ModelSortBy | str = ModelSortBy.NAME,
    order_by: OrderBy | str = OrderBy.ASCENDING,
    name: str | None = None,
    description: str | None = None,
    *,
    labels: Collection[str] = (),
    owner: str | None = None,
    archived: bool | None = False,
    limit: int | None = None,
) -> list[Model]:
    """Return models (see `Client.list_models`)."""
    return current_client().list_models(
        sort_by, order_by, name, description, labels=labels, owner=owner, archived=archived, limit=limit
    )


def get_models(
    sort_by: ModelSortBy | str = ModelSortBy.NAME,
    order_by: OrderBy | str = OrderBy.ASCENDING,
    name: str | None = None,
    description: str | None = None,
) -> list[Model]:
    """Do the same as `list_models`, which replaced it in Determined."""
    return list_models(sort_by, order_by, name, description)


def get_model_labels() -> list[str]:
    """Return the labels of all models, the most frequent first."""
    return current_client().get_model_labels()


def best(metric: str, where: str = "", *, smaller_is_better: bool = False, limit: int = 1) -> list[ModelVersion]:
    """Return the best versions of all models by a metric (see `Client.best`)."""
    return current_client().best(metric, where, smaller_is_better=smaller_is_better, limit=limit)


def load_model(reference: str, path: str | Path | None = None, *, allow_pickle: bool = False, **options: Any) -> Any:
    """Download a registered model, verified, and load it.

    Of a folder with one model in a pickle, which is allowed, that model is returned; else see `Checkpoint.load`.

    Args:
        reference: `digits@production`, `digits@3`, `digits@1.2.0`, or `digits`, which is its newest version.
        path: Folder to keep the files in; None: a folder of this user's cache, so that they are fetched once.
        allow_pickle: Whether files may be unpickled, which can run any code of whoever wrote them.
        options: Of `Checkpoint.load`.

    Examples:
        model = det.load_model("digits@production")
    """
    return get_model_version(reference).load(path, allow_pickle=allow_pickle, **options)
