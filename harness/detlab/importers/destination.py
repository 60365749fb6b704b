"""Where runs are copied to: the projects of a workspace, by the master's tracking API with the user's own token."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from detlab.errors import ClusterUnreachable, Conflict, Forbidden
from detlab.importers.foreign import ForeignExperiment, ForeignModel, ForeignPoint, ForeignRun
from detlab.importers.names import VALUE_CHARS, key_of, project_name
from detlab.importers.tracking_api import TrackingApi, TrackingRefusal
from detlab.schemas.wire import encode_floats

if TYPE_CHECKING:
    from detlab.schemas.wire.workspaces import WorkspaceView

SOURCE_TAG, DIGEST_TAG, FROM_TAG, PARENT_TAG = (
    "detlab.import.source",
    "detlab.import.digest",
    "detlab.import.from",
    "detlab.import.parent",
)
"""Which run of which system this one is a copy of; what of it was copied completely; from where; its parent there."""
PICKLED_TAG = "detlab.import.pickles"
DEFAULT = "Default"
"""MLflow's experiment for what names none: the project `Uncategorized` of a personal workspace."""
MOST_PLACES, PAGE = 200, 1000
MOST_FILES = 20_000
MOST_PLACE_TAGS, TAGS_CHARS = 150, 90_000
"""Tags of a project, and their characters."""
BATCH, BATCH_TAGS, BATCH_PARAMS = 1000, 100, 100
"""Entries of one request, and tags and parameters among them."""
MOST_CREATED_TAGS = 900
Entry = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run that an import has made.

    Attributes:
        id: Here.
        place: Its project.
        digest: Of what was copied completely; empty: it was not.
        deleted: Whether somebody has deleted it here since.
    """

    id: str
    place: str
    digest: str
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A logged model that an import has made."""

    id: str
    ready: bool


class ImportDestination:
    """A workspace, or one project of it. Threads may share it.

    Args:
        api: The master.
        workspace: None: the personal one.
        project: Into which all runs go; empty: one of the name of each experiment.
    """

    def __init__(self, api: TrackingApi, workspace: WorkspaceView | None, project: str = "") -> None:
        self.api = api
        self._workspace = workspace
        self._project = project
        self._names: dict[str, str] = {}
        self._taken: dict[str, str] = {}
        self._places: dict[str, str] = {}
        self._lock = threading.Lock()

    def check(self) -> None:
        """Check that the user may put runs there, before anything is read.

        Raises:
            Conflict: The workspace is archived.
            Forbidden: They may not.
        """
        one = self._workspace
        if one is None:
            return
        if one.may == "read":
            raise Forbidden(
                f"you may look at workspace {one.name!r}, and put nothing into it",
                hint=f"An admin of it may make you an editor: det workspace members add {one.owner}/{one.name} USER",
            )
        if one.archived_at is not None:
            raise Conflict(f"workspace {one.name!r} is archived: it takes nothing new")

    def name_all(self, experiments: Sequence[ForeignExperiment]) -> None:
        """Decide on the project of each experiment: two whose names differ too little for two projects get numbers."""
        for one in experiments:
            name = one.name if self._is_default(one) else project_name(one.name, one.id)
            key = name.casefold()
            if self._taken.setdefault(key, one.id) != one.id:
                name = project_name(f"{name}-{one.id}", one.id)
                self._taken[name.casefold()] = one.id
            self._names[one.id] = name

    def _is_default(self, one: ForeignExperiment) -> bool:
        return self._workspace is None and one.name == DEFAULT

    def project(self, experiment: ForeignExperiment) -> str:
        """Return the name of the project of an experiment."""
        return self._project or self._names[experiment.id]

    def _full(self, project: str) -> str:
        if self._workspace is None:
            return project
        return f"{self._workspace.owner}/{self._workspace.name}/{project}"

    def find(self, experiment: ForeignExperiment) -> str | None:
        """Return the id of the project of an experiment; None: there is none yet."""
        try:
            reply = self.api.get("experiments/get-by-name", experiment_name=self._full(self.project(experiment)))
        except TrackingRefusal as refusal:
            if refusal.absent:
                return None
            raise
        return str(reply["experiment"]["experiment_id"])

    def make(self, experiment: ForeignExperiment) -> str:
        """Return the id of the project of an experiment, which is made if there is none."""
        with self._lock:
            name = self.project(experiment)
            if name not in self._places:
                found = self.find(experiment)
                if found is None:
                    with suppress(_Exists):
                        found = self._created(self._full(name), {} if self._project else experiment.tags)
                self._places[name] = found or self.find(experiment) or ""
            return self._places[name]

    def _created(self, name: str, tags: Mapping[str, str]) -> str:
        fitting = [(key, value[:VALUE_CHARS]) for key, value in tags.items() if key_of(key) == key]
        size = itertools.accumulate(len(value) for _, value in fitting)
        kept = [one for one, before in zip(fitting, size, strict=True) if before <= TAGS_CHARS][:MOST_PLACE_TAGS]
        body = {"name": name, "tags": [{"key": key, "value": value} for key, value in kept]}
        try:
            return str(self.api.post("experiments/create", body)["experiment_id"])
        except TrackingRefusal as refusal:
            if refusal.error_code == "RESOURCE_ALREADY_EXISTS":
                raise _Exists from refusal
            raise

    # --- what is there

    def _all_places(self) -> list[str]:
        """Return the ids of all projects of the workspace: a project may have been renamed since, or a run moved."""
        prefix = self._full("")
        found = []
        for one in self.api.pages("POST", "experiments/search", "experiments", max_results=PAGE, view_type="ALL"):
            name = str(one.get("name"))
            if name.startswith(prefix) and (prefix or "/" not in name):
                found.append(str(one["experiment_id"]))
        return found if prefix else ["0", *found]

    def known_runs(self, kind: str) -> dict[str, KnownRun]:
        """Return what imports of a kind of system have made in the workspace, by the ids there."""
        found: dict[str, KnownRun] = {}
        places = list(dict.fromkeys(self._all_places()))
        for start in range(0, len(places), MOST_PLACES):
            asked = {
                "experiment_ids": places[start : start + MOST_PLACES],
                "filter": f"tags.`{SOURCE_TAG}` LIKE '{kind}:%'",
                "run_view_type": "ALL",
                "max_results": PAGE,
            }
            for one in self.api.pages("POST", "runs/search", "runs", **asked):
                key, run = _known(one)
                # Two imports at the same time may have made two: the complete one counts.
                if key and (key not in found or (run.digest and not found[key].digest)):
                    found[key] = run
        return found

    def known_models(self, kind: str, places: Sequence[str]) -> dict[str, KnownModel]:
        """Return the logged models that imports have made in some projects, by their ids there."""
        found: dict[str, KnownModel] = {}
        for one in self.api.pages(
            "POST", "logged-models/search", "models", experiment_ids=list(places), max_results=200
        ):
            info = one.get("info") or {}
            key = _tags(info).get(SOURCE_TAG, "")
            if key.startswith(f"{kind}:") and not (key in found and found[key].ready):
                found[key] = KnownModel(str(info["model_id"]), info.get("status") == "LOGGED_MODEL_READY")
        return found

    # --- runs

    def create_run(self, place: str, run: ForeignRun, tags: Mapping[str, str]) -> str:
        """Begin the copy of a run; return its id.

        It is not asked again blindly where no answer came: a run with the same source is looked for first.
        """
        body = {
            "experiment_id": place,
            "run_name": run.name[:500],
            "user_id": run.user[:256],
            "start_time": max(run.started_ms, 0),
            "tags": [{"key": key, "value": value} for key, value in tags.items()],
        }
        for attempt in range(5):
            try:
                reply = self.api.post("runs/create", body, again=False)
                return str(reply["run"]["info"]["run_id"])
            except ClusterUnreachable:
                if attempt == 4:
                    raise
                self.api.wait(1.0 + attempt)
                if found := self._made(place, tags[SOURCE_TAG]):
                    return found
        raise AssertionError

    def _made(self, place: str, key: str) -> str:
        quoted = key.replace("'", "")
        asked = {"experiment_ids": [place], "filter": f"tags.`{SOURCE_TAG}` = '{quoted}'", "max_results": 2}
        for one in self.api.pages("POST", "runs/search", "runs", **asked):
            return str(one["info"]["run_id"])
        return ""

    def log(self, run_id: str, batch: Mapping[str, Sequence[Any]]) -> None:
        """Log metrics, parameters and tags, all of them or none; again changes nothing."""
        if any(batch.values()):
            self.api.post("runs/log-batch", {"run_id": run_id, **batch})

    def end(self, run_id: str, run: ForeignRun) -> None:
        """Say how a run has ended."""
        more = {} if run.ended_ms is None else {"end_time": max(run.ended_ms, 0)}
        self.api.post("runs/update", {"run_id": run_id, "status": run.status, **more})

    def log_inputs(self, run_id: str, datasets: Sequence[Any], models: Sequence[str]) -> None:
        """Log the data sets and models that a run uses."""
        if datasets or models:
            used = [{"model_id": one} for one in models]
            self.api.post("runs/log-inputs", {"run_id": run_id, "datasets": list(datasets), "models": used})

    def log_outputs(self, run_id: str, models: Sequence[tuple[str, int]]) -> None:
        """Log the models that a run has made."""
        if models:
            made = [{"model_id": one, "step": step} for one, step in models]
            self.api.post("runs/outputs", {"run_id": run_id, "models": made})

    def put_file(self, place: str, run_id: str, path: str, file: BinaryIO, size: int) -> None:
        """Upload a file of a run; one of the same path is replaced."""
        self.api.put_file(f"{place}/{run_id}/artifacts/{path}", file, size)

    def files_there(self, run_id: str) -> set[tuple[str, int]]:
        """Return path and size of the files that a run has already."""
        found: set[tuple[str, int]] = set()
        pending = [""]
        while pending and len(found) < MOST_FILES:
            folder = pending.pop()
            reply = self.api.get("artifacts/list", run_id=run_id, **({"path": folder} if folder else {}))
            for one in reply.get("files") or []:
                if one.get("is_dir"):
                    pending.append(str(one["path"]))
                else:
                    found.add((str(one["path"]), int(one.get("file_size") or 0)))
        return found

    # --- logged models

    def create_model(self, place: str, run_id: str, model: ForeignModel, tags: Mapping[str, str]) -> str:
        """Begin a logged model; return its id."""
        params = [{"key": key, "value": value} for key, value in model.params.items()]
        body = {
            "experiment_id": place,
            "name": model.name,
            "model_type": model.model_type,
            "source_run_id": run_id,
            "params": params[:100],
            "tags": [{"key": key, "value": value} for key, value in tags.items()][:1000],
        }
        reply = self.api.post("logged-models", body, again=False)
        made = str(reply["model"]["info"]["model_id"])
        if params[100:]:
            self.api.post(f"logged-models/{made}/params", {"params": params[100:1000]})
        return made

    def put_model_file(self, place: str, model_id: str, path: str, file: BinaryIO, size: int) -> None:
        """Upload a file of a logged model."""
        self.api.put_file(f"{place}/models/{model_id}/artifacts/{path}", file, size)

    def end_model(self, model_id: str, tags: Mapping[str, str]) -> None:
        """Say that a model is complete: its files stay as they are from now on."""
        way = f"api/2.0/mlflow/logged-models/{model_id}"
        if tags:
            said = [{"key": key, "value": value} for key, value in tags.items()]
            self.api.ask("PATCH", f"{way}/tags", body={"tags": said})
        self.api.ask("PATCH", way, body={"status": "LOGGED_MODEL_READY"})


class _Exists(Exception):
    """Somebody has made it meanwhile."""


def _known(one: Mapping[str, Any]) -> tuple[str, KnownRun]:
    info, tags = one["info"], _tags(one.get("data") or {})
    deleted = info.get("lifecycle_stage") == "deleted"
    run = KnownRun(str(info["run_id"]), str(info["experiment_id"]), tags.get(DIGEST_TAG, ""), deleted)
    return tags.get(SOURCE_TAG, ""), run


def _tags(one: Mapping[str, Any]) -> dict[str, str]:
    return {str(tag["key"]): str(tag.get("value", "")) for tag in one.get("tags") or []}


def metric_entry(point: ForeignPoint) -> dict[str, Any]:
    """Return a value of a metric as a message; what is not finite is a text."""
    return {
        "key": point.key,
        "value": encode_floats(point.value),
        "timestamp": point.time_ms,
        "step": point.step,
    }


def batches(entries: Iterator[Entry]) -> Iterator[dict[str, list[Any]]]:
    """Yield entries, as (`metrics`, `params` or `tags`; message), in requests of the size that the master takes."""
    most = {"metrics": BATCH, "params": BATCH_PARAMS, "tags": BATCH_TAGS}
    batch: dict[str, list[Any]] = {kind: [] for kind in most}
    count = 0
    for kind, entry in entries:
        if count == BATCH or len(batch[kind]) == most[kind]:
            yield batch
            batch, count = {name: [] for name in most}, 0
        batch[kind].append(entry)
        count += 1
    yield batch
