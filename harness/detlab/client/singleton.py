"""The functions of `detlab.client`: one client per process, found or logged in."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from detlab.client.client import Client
from detlab.client.facts import TrialMetrics
from detlab.client.ordering import OrderBy
from detlab.client.registry.facts import ModelSortBy
from detlab.client.registry.models import Model
from detlab.client.submission import ConfigSource
from detlab.client.tasks import Task
from detlab.client.transport.discovery import ClusterAddress, find_cluster
from detlab.errors import DetlabError
from detlab.forking import renew_in_children
from detlab.schemas.wire import UserView

Given = ParamSpec("Given")
Found = TypeVar("Found")


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


def _of_current(method: Callable[Concatenate[Client, Given], Found]) -> Callable[Given, Found]:
    """Make a function of a method of `Client`, with its signature and docstring, for the client of this process."""

    @functools.wraps(method)
    def call(*arguments: Given.args, **options: Given.kwargs) -> Found:
        found: Found = getattr(current_client(), method.__name__)(*arguments, **options)
        return found

    call.__module__, call.__qualname__ = __name__, method.__name__
    signature = inspect.signature(method)
    call.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore[attr-defined]  # see inspect
    return call


whoami = _of_current(Client.whoami)
create_experiment = _of_current(Client.create_experiment)
create_search = _of_current(Client.create_search)
get_search = _of_current(Client.get_search)
get_experiment = _of_current(Client.get_experiment)
list_experiments = _of_current(Client.list_experiments)
iter_trials_metrics = _of_current(Client.iter_trials_metrics)
get_trial = _of_current(Client.get_trial)
get_checkpoint = _of_current(Client.get_checkpoint)
list_agents = _of_current(Client.list_agents)
list_pools = _of_current(Client.list_pools)
storage_usage = _of_current(Client.storage_usage)
create_task = _of_current(Client.create_task)
get_task = _of_current(Client.get_task)
list_tasks = _of_current(Client.list_tasks)
create_model = _of_current(Client.create_model)
create_workspace = _of_current(Client.create_workspace)
delete_workspace = _of_current(Client.delete_workspace)
get_workspace = _of_current(Client.get_workspace)
list_workspaces = _of_current(Client.list_workspaces)
get_model = _of_current(Client.get_model)
get_model_by_id = _of_current(Client.get_model_by_id)
get_model_version = _of_current(Client.get_model_version)
list_models = _of_current(Client.list_models)
get_model_labels = _of_current(Client.get_model_labels)
get_artifact = _of_current(Client.get_artifact)
get_artifact_collection = _of_current(Client.get_artifact_collection)
get_run_artifacts = _of_current(Client.get_run_artifacts)
list_artifacts = _of_current(Client.list_artifacts)
log_artifact = _of_current(Client.log_artifact)
best = _of_current(Client.best)
search_trials = _of_current(Client.search_trials)
find_trials = _of_current(Client.find_trials)
compare = _of_current(Client.compare)
compare_curves = _of_current(Client.compare_curves)
compare_code = _of_current(Client.compare_code)
report = _of_current(Client.report)
act_on_experiments = _of_current(Client.act_on_experiments)
complete_filter = _of_current(Client.complete_filter)
empty_trash = _of_current(Client.empty_trash)
get_cluster = _of_current(Client.get_cluster)
get_project = _of_current(Client.get_project)
get_queue = _of_current(Client.get_queue)
get_trash = _of_current(Client.get_trash)
iter_experiments = _of_current(Client.iter_experiments)
iter_tasks = _of_current(Client.iter_tasks)
list_saved_views = _of_current(Client.list_saved_views)
add_alert_rule = _of_current(Client.add_alert_rule)
confirm_alert_email = _of_current(Client.confirm_alert_email)
get_alert_email = _of_current(Client.get_alert_email)
remove_alert_email = _of_current(Client.remove_alert_email)
set_alert_email = _of_current(Client.set_alert_email)
create_webhook = _of_current(Client.create_webhook)
delete_webhook = _of_current(Client.delete_webhook)
get_webhook = _of_current(Client.get_webhook)
list_alert_rules = _of_current(Client.list_alert_rules)
list_alerts = _of_current(Client.list_alerts)
list_webhook_calls = _of_current(Client.list_webhook_calls)
list_webhooks = _of_current(Client.list_webhooks)
get_schedule = _of_current(Client.get_schedule)
list_schedules = _of_current(Client.list_schedules)
pause_schedule = _of_current(Client.pause_schedule)
remove_schedule = _of_current(Client.remove_schedule)
resume_schedule = _of_current(Client.resume_schedule)
run_schedule = _of_current(Client.run_schedule)
schedule_notebook = _of_current(Client.schedule_notebook)
read_alerts = _of_current(Client.read_alerts)
remove_alert_rule = _of_current(Client.remove_alert_rule)
test_webhook = _of_current(Client.test_webhook)
register_folder = _of_current(Client.register_folder)  # type: ignore[arg-type]  # its further names might be `self`
remove_view = _of_current(Client.remove_view)
save_view = _of_current(Client.save_view)
search_versions = _of_current(Client.search_versions)
submit = _of_current(Client.submit)
submit_task = _of_current(Client.submit_task)
undo = _of_current(Client.undo)
list_runs = _of_current(Client.list_runs)
get_run = _of_current(Client.get_run)
get_run_metric = _of_current(Client.get_run_metric)
get_run_output = _of_current(Client.get_run_output)
list_run_media = _of_current(Client.list_run_media)
read_run_media = _of_current(Client.read_run_media)
download_run_media = _of_current(Client.download_run_media)
delete_run = _of_current(Client.delete_run)
restore_run = _of_current(Client.restore_run)


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


def get_session_username() -> str:
    """Return the name of the user that the token belongs to."""
    return current_client().whoami().name


def stream_trials_metrics(trial_ids: Iterable[int], group: str) -> Iterator[TrialMetrics]:
    """Do the same as `iter_trials_metrics`, which replaced it in Determined."""
    return iter_trials_metrics(trial_ids, group)


def stream_trials_training_metrics(trial_ids: Iterable[int]) -> Iterator[TrialMetrics]:
    """Do the same as `iter_trials_metrics` of `training`, which replaced it in Determined."""
    return iter_trials_metrics(trial_ids, "training")


def stream_trials_validation_metrics(trial_ids: Iterable[int]) -> Iterator[TrialMetrics]:
    """Do the same as `iter_trials_metrics` of `validation`, which replaced it in Determined."""
    return iter_trials_metrics(trial_ids, "validation")


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


# --- registered models


def get_models(
    sort_by: ModelSortBy | str = ModelSortBy.NAME,
    order_by: OrderBy | str = OrderBy.ASCENDING,
    name: str | None = None,
    description: str | None = None,
) -> list[Model]:
    """Do the same as `list_models`, which replaced it in Determined."""
    return list_models(sort_by, order_by, name, description)


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
