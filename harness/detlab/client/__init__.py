"""The SDK: detlab from Python, blocking and asynchronous.

    from detlab import client

    experiment = client.create_experiment("search.yaml", "code/")
    experiment.wait()
    experiment.top_checkpoint().download("best")

The functions of this module use the same cluster as the command line in the same place (see
`detlab.client.transport.discovery`), or the one given to `login`. `Client` and `AsyncClient` take an explicit cluster;
`Determined` is `Client` under the name that users of Determined know. Importing this module imports neither httpx nor
pydantic: names are loaded when they are used.
"""

from __future__ import annotations

import importlib.util
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detlab.client.aclient import AsyncClient as AsyncClient
    from detlab.client.aclient import AsyncSubmitted as AsyncSubmitted
    from detlab.client.aclient import AsyncSubmittedTask as AsyncSubmittedTask
    from detlab.client.aresources import AsyncCheckpoint as AsyncCheckpoint
    from detlab.client.aresources import AsyncExperiment as AsyncExperiment
    from detlab.client.aresources import AsyncTrial as AsyncTrial
    from detlab.client.artifacts.alogged import AsyncArtifactCollection as AsyncArtifactCollection
    from detlab.client.artifacts.alogged import AsyncArtifactVersion as AsyncArtifactVersion
    from detlab.client.artifacts.draft import Artifact as Artifact
    from detlab.client.artifacts.logged import ArtifactCollection as ArtifactCollection
    from detlab.client.artifacts.logged import ArtifactVersion as ArtifactVersion
    from detlab.client.asearch import AsyncSearch as AsyncSearch
    from detlab.client.atasks import AsyncTask as AsyncTask
    from detlab.client.bundling.bundle import Bundle as Bundle
    from detlab.client.bundling.bundle import BundleFile as BundleFile
    from detlab.client.bundling.bundle import build_bundle as build_bundle
    from detlab.client.bundling.capture import Captured as Captured
    from detlab.client.bundling.capture import capture_imports as capture_imports
    from detlab.client.client import Client as Client
    from detlab.client.client import Submitted as Submitted
    from detlab.client.client import SubmittedTask as SubmittedTask
    from detlab.client.facts import TrialMetrics as TrialMetrics
    from detlab.client.ordering import CheckpointSortBy as CheckpointSortBy
    from detlab.client.ordering import CheckpointState as CheckpointState
    from detlab.client.ordering import ExperimentSortBy as ExperimentSortBy
    from detlab.client.ordering import LogLevel as LogLevel
    from detlab.client.ordering import OrderBy as OrderBy
    from detlab.client.ordering import TrialSortBy as TrialSortBy
    from detlab.client.projects.aworkspaces import AsyncProject as AsyncProject
    from detlab.client.projects.aworkspaces import AsyncWorkspace as AsyncWorkspace
    from detlab.client.projects.workspaces import Project as Project
    from detlab.client.projects.workspaces import Workspace as Workspace
    from detlab.client.registry.amodels import AsyncModel as AsyncModel
    from detlab.client.registry.amodels import AsyncModelVersion as AsyncModelVersion
    from detlab.client.registry.facts import ModelSortBy as ModelSortBy
    from detlab.client.registry.models import Model as Model
    from detlab.client.registry.models import ModelVersion as ModelVersion
    from detlab.client.resources import Checkpoint as Checkpoint
    from detlab.client.resources import Experiment as Experiment
    from detlab.client.resources import Trial as Trial
    from detlab.client.search import Search as Search
    from detlab.client.singleton import Determined as Determined
    from detlab.client.singleton import act_on_experiments as act_on_experiments
    from detlab.client.singleton import add_alert_rule as add_alert_rule
    from detlab.client.singleton import best as best
    from detlab.client.singleton import compare as compare
    from detlab.client.singleton import compare_code as compare_code
    from detlab.client.singleton import compare_curves as compare_curves
    from detlab.client.singleton import complete_filter as complete_filter
    from detlab.client.singleton import confirm_alert_email as confirm_alert_email
    from detlab.client.singleton import create_experiment as create_experiment
    from detlab.client.singleton import create_model as create_model
    from detlab.client.singleton import create_search as create_search
    from detlab.client.singleton import create_task as create_task
    from detlab.client.singleton import create_webhook as create_webhook
    from detlab.client.singleton import create_workspace as create_workspace
    from detlab.client.singleton import current_client as current_client
    from detlab.client.singleton import delete_run as delete_run
    from detlab.client.singleton import delete_webhook as delete_webhook
    from detlab.client.singleton import delete_workspace as delete_workspace
    from detlab.client.singleton import download_run_media as download_run_media
    from detlab.client.singleton import empty_trash as empty_trash
    from detlab.client.singleton import find_trials as find_trials
    from detlab.client.singleton import get_alert_email as get_alert_email
    from detlab.client.singleton import get_artifact as get_artifact
    from detlab.client.singleton import get_artifact_collection as get_artifact_collection
    from detlab.client.singleton import get_checkpoint as get_checkpoint
    from detlab.client.singleton import get_cluster as get_cluster
    from detlab.client.singleton import get_experiment as get_experiment
    from detlab.client.singleton import get_model as get_model
    from detlab.client.singleton import get_model_by_id as get_model_by_id
    from detlab.client.singleton import get_model_labels as get_model_labels
    from detlab.client.singleton import get_model_version as get_model_version
    from detlab.client.singleton import get_models as get_models
    from detlab.client.singleton import get_project as get_project
    from detlab.client.singleton import get_queue as get_queue
    from detlab.client.singleton import get_run as get_run
    from detlab.client.singleton import get_run_artifacts as get_run_artifacts
    from detlab.client.singleton import get_run_metric as get_run_metric
    from detlab.client.singleton import get_run_output as get_run_output
    from detlab.client.singleton import get_schedule as get_schedule
    from detlab.client.singleton import get_search as get_search
    from detlab.client.singleton import get_session_username as get_session_username
    from detlab.client.singleton import get_task as get_task
    from detlab.client.singleton import get_trash as get_trash
    from detlab.client.singleton import get_trial as get_trial
    from detlab.client.singleton import get_webhook as get_webhook
    from detlab.client.singleton import get_workspace as get_workspace
    from detlab.client.singleton import iter_experiments as iter_experiments
    from detlab.client.singleton import iter_tasks as iter_tasks
    from detlab.client.singleton import iter_trials_metrics as iter_trials_metrics
    from detlab.client.singleton import list_agents as list_agents
    from detlab.client.singleton import list_alert_rules as list_alert_rules
    from detlab.client.singleton import list_alerts as list_alerts
    from detlab.client.singleton import list_artifacts as list_artifacts
    from detlab.client.singleton import list_experiments as list_experiments
    from detlab.client.singleton import list_models as list_models
    from detlab.client.singleton import list_pools as list_pools
    from detlab.client.singleton import list_run_media as list_run_media
    from detlab.client.singleton import list_runs as list_runs
    from detlab.client.singleton import list_saved_views as list_saved_views
    from detlab.client.singleton import list_schedules as list_schedules
    from detlab.client.singleton import list_tasks as list_tasks
    from detlab.client.singleton import list_webhook_calls as list_webhook_calls
    from detlab.client.singleton import list_webhooks as list_webhooks
    from detlab.client.singleton import list_workspaces as list_workspaces
    from detlab.client.singleton import load_model as load_model
    from detlab.client.singleton import log_artifact as log_artifact
    from detlab.client.singleton import login as login
    from detlab.client.singleton import logout as logout
    from detlab.client.singleton import pause_schedule as pause_schedule
    from detlab.client.singleton import read_alerts as read_alerts
    from detlab.client.singleton import read_run_media as read_run_media
    from detlab.client.singleton import register_folder as register_folder
    from detlab.client.singleton import remove_alert_email as remove_alert_email
    from detlab.client.singleton import remove_alert_rule as remove_alert_rule
    from detlab.client.singleton import remove_schedule as remove_schedule
    from detlab.client.singleton import remove_view as remove_view
    from detlab.client.singleton import report as report
    from detlab.client.singleton import restore_run as restore_run
    from detlab.client.singleton import resume_schedule as resume_schedule
    from detlab.client.singleton import run_notebook as run_notebook
    from detlab.client.singleton import run_schedule as run_schedule
    from detlab.client.singleton import save_view as save_view
    from detlab.client.singleton import schedule_notebook as schedule_notebook
    from detlab.client.singleton import search_trials as search_trials
    from detlab.client.singleton import search_versions as search_versions
    from detlab.client.singleton import set_alert_email as set_alert_email
    from detlab.client.singleton import storage_usage as storage_usage
    from detlab.client.singleton import stream_trials_metrics as stream_trials_metrics
    from detlab.client.singleton import stream_trials_training_metrics as stream_trials_training_metrics
    from detlab.client.singleton import stream_trials_validation_metrics as stream_trials_validation_metrics
    from detlab.client.singleton import submit as submit
    from detlab.client.singleton import submit_task as submit_task
    from detlab.client.singleton import test_webhook as test_webhook
    from detlab.client.singleton import undo as undo
    from detlab.client.singleton import whoami as whoami
    from detlab.client.tasks import Task as Task
    from detlab.client.transport.discovery import ClusterAddress as ClusterAddress
    from detlab.client.transport.discovery import find_cluster as find_cluster
    from detlab.client.transport.downloads import DownloadMode as DownloadMode
    from detlab.schemas.taskwire import TaskKind as TaskKind
    from detlab.schemas.wire import ExperimentState as ExperimentState
    from detlab.schemas.wire import TrialState as TrialState

_HOMES = {
    "detlab.client.aclient": ("AsyncClient", "AsyncSubmitted", "AsyncSubmittedTask"),
    "detlab.client.aresources": ("AsyncCheckpoint", "AsyncExperiment", "AsyncTrial"),
    "detlab.client.artifacts.alogged": ("AsyncArtifactCollection", "AsyncArtifactVersion"),
    "detlab.client.artifacts.draft": ("Artifact",),
    "detlab.client.artifacts.logged": ("ArtifactCollection", "ArtifactVersion"),
    "detlab.client.asearch": ("AsyncSearch",),
    "detlab.client.atasks": ("AsyncTask",),
    "detlab.client.bundling.bundle": ("Bundle", "BundleFile", "build_bundle"),
    "detlab.client.bundling.capture": ("Captured", "capture_imports"),
    "detlab.client.client": ("Client", "Submitted", "SubmittedTask"),
    "detlab.client.transport.discovery": ("ClusterAddress", "find_cluster"),
    "detlab.client.transport.downloads": ("DownloadMode",),
    "detlab.client.facts": ("TrialMetrics",),
    "detlab.client.ordering": (
        "CheckpointSortBy",
        "CheckpointState",
        "ExperimentSortBy",
        "LogLevel",
        "OrderBy",
        "TrialSortBy",
    ),
    "detlab.client.projects.aworkspaces": ("AsyncProject", "AsyncWorkspace"),
    "detlab.client.projects.workspaces": ("Project", "Workspace"),
    "detlab.client.registry.amodels": ("AsyncModel", "AsyncModelVersion"),
    "detlab.client.registry.facts": ("ModelSortBy",),
    "detlab.client.registry.models": ("Model", "ModelVersion"),
    "detlab.client.resources": ("Checkpoint", "Experiment", "Trial"),
    "detlab.client.search": ("Search",),
    "detlab.client.singleton": (
        "Determined",
        "act_on_experiments",
        "best",
        "compare",
        "compare_code",
        "compare_curves",
        "complete_filter",
        "create_experiment",
        "create_model",
        "create_search",
        "create_task",
        "create_workspace",
        "current_client",
        "delete_workspace",
        "empty_trash",
        "find_trials",
        "get_artifact",
        "get_artifact_collection",
        "get_checkpoint",
        "get_cluster",
        "get_experiment",
        "get_model",
        "get_model_by_id",
        "get_model_labels",
        "get_model_version",
        "get_models",
        "get_project",
        "get_queue",
        "get_run_artifacts",
        "get_search",
        "get_session_username",
        "get_task",
        "get_trash",
        "get_trial",
        "get_workspace",
        "iter_experiments",
        "iter_tasks",
        "iter_trials_metrics",
        "list_agents",
        "list_artifacts",
        "list_experiments",
        "list_models",
        "list_pools",
        "list_saved_views",
        "add_alert_rule",
        "confirm_alert_email",
        "get_alert_email",
        "remove_alert_email",
        "set_alert_email",
        "create_webhook",
        "delete_webhook",
        "get_webhook",
        "list_alert_rules",
        "list_alerts",
        "list_webhook_calls",
        "list_webhooks",
        "read_alerts",
        "remove_alert_rule",
        "test_webhook",
        "list_tasks",
        "list_workspaces",
        "load_model",
        "log_artifact",
        "login",
        "logout",
        "register_folder",
        "remove_view",
        "run_notebook",
        "get_schedule",
        "list_schedules",
        "pause_schedule",
        "remove_schedule",
        "resume_schedule",
        "run_schedule",
        "schedule_notebook",
        "save_view",
        "search_trials",
        "search_versions",
        "storage_usage",
        "stream_trials_metrics",
        "stream_trials_training_metrics",
        "stream_trials_validation_metrics",
        "submit",
        "submit_task",
        "delete_run",
        "get_run",
        "get_run_metric",
        "get_run_output",
        "list_runs",
        "list_run_media",
        "read_run_media",
        "download_run_media",
        "report",
        "restore_run",
        "undo",
        "whoami",
    ),
    "detlab.client.tasks": ("Task",),
    "detlab.schemas.taskwire": ("TaskKind",),
    "detlab.schemas.wire": ("ExperimentState", "TrialState"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def _refuse_stale_modules(script: Path) -> None:
    """Refuse a checkout whose blocking client is missing or was made from other sources, as after `git pull`."""
    spec = importlib.util.spec_from_file_location("make_sync", script)
    if script.parent.name != "harness" or not script.is_file() or spec is None or spec.loader is None:
        return  # no checkout: what is installed was made when it was built
    make_sync = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_sync)
    if stale := make_sync.stale():
        raise ImportError(
            f"detlab.client: modules of this checkout are missing, or were made from other sources than these: "
            f"{', '.join(stale)}. Run: python {script}"
        )


_refuse_stale_modules(Path(__file__).parents[2] / "make_sync.py")


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
