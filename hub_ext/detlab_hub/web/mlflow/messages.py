"""Messages of the protocol about experiments, runs, metrics and logged models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from detlab_hub.services.tracking.experiments import BadRequest
from detlab_hub.services.tracking.facts import PlaceFacts, RunFacts
from detlab_hub.services.tracking.logging import LoggedBatch
from detlab_hub.services.tracking.models import LoggedModelFacts
from detlab_hub.services.tracking.runs import STATUSES
from detlab_hub.store.queries.tracking.points import LoggedPoint
from detlab_hub.web.mlflow.base import Message

Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
ViewType = Literal["ACTIVE_ONLY", "DELETED_ONLY", "ALL"]
_VIEWS: Mapping[Any, str] = {1: "ACTIVE_ONLY", 2: "DELETED_ONLY", 3: "ALL"}
_DELETED: Mapping[str, bool | None] = {"ACTIVE_ONLY": False, "DELETED_ONLY": True, "ALL": None}
_STATUS_NUMBERS = dict(enumerate(STATUSES, 1))


def _named(names: Mapping[Any, str]) -> BeforeValidator:
    """Take an enum's number as its name."""
    return BeforeValidator(lambda value: names.get(value, value))


View = Annotated[ViewType, _named(_VIEWS)]
Status = Annotated[str, _named(_STATUS_NUMBERS)]


def deleted_of(view: str) -> bool | None:
    """Return which runs a view has: only deleted ones, none of them, or both (None)."""
    return _DELETED[view]


class KeyValue(Message):
    """A parameter, or a tag."""

    key: str
    value: str = ""


class Entry(Message):
    """One that is sent: it names its key, and its value may be empty."""

    key: str = Field(min_length=1)
    value: str = ""


def as_dict(entries: Sequence[Entry]) -> dict[str, str]:
    """Return entries by their keys."""
    return {one.key: one.value for one in entries}


def as_list(entries: Mapping[str, str]) -> list[KeyValue] | None:
    """Return entries as a message has them; none at all if there are none."""
    return [KeyValue(key=key, value=value) for key, value in entries.items()] or None


# --- experiments


class Experiment(Message):
    """An experiment: a project here, or an experiment with its trials."""

    experiment_id: str
    name: str
    artifact_location: str
    lifecycle_stage: str
    creation_time: int
    last_update_time: int
    tags: list[KeyValue] | None = None


class ExperimentReply(Message):
    """One experiment."""

    experiment: Experiment


class ExperimentId(Message):
    """Which experiment."""

    experiment_id: str = Field(min_length=1)


class ExperimentName(Message):
    """Which experiment, by its name."""

    experiment_name: str = Field(min_length=1)


class NewExperiment(Message):
    """A new experiment."""

    name: str = Field(min_length=1, max_length=1000)
    artifact_location: str = ""
    tags: list[Entry] = Field(default=[])


class RenameExperiment(ExperimentId):
    """Another name for one."""

    new_name: str = ""


class ExperimentTag(ExperimentId, Entry):
    """A tag of an experiment."""


class ExperimentTagKey(ExperimentId):
    """The key of one."""

    key: str = Field(min_length=1)


class SearchExperiments(Message):
    """Which experiments."""

    max_results: int = Field(1000, ge=1, le=50_000)
    page_token: str = ""
    filter: str = ""
    order_by: list[str] = Field(default=[])
    view_type: View = "ACTIVE_ONLY"


class ExperimentsReply(Message):
    """A page of experiments."""

    experiments: list[Experiment] | None = None
    next_page_token: str | None = None


def experiment_message(facts: PlaceFacts) -> Experiment:
    """Return an experiment as a message."""
    return Experiment(
        experiment_id=facts.id,
        name=facts.name,
        artifact_location=f"mlflow-artifacts:/{facts.id}",
        lifecycle_stage=stage(facts.deleted),
        creation_time=facts.created_ms,
        last_update_time=facts.updated_ms,
        tags=as_list(facts.tags),
    )


def stage(deleted: bool) -> str:
    """Return MLflow's word for whether something is deleted."""
    return "deleted" if deleted else "active"


# --- runs


class MetricMessage(Message):
    """One value of a metric."""

    key: str
    value: float
    timestamp: int
    step: int
    run_id: str | None = None
    model_id: str | None = None


class RunInfo(Message):
    """A run without what was logged."""

    run_id: str
    run_uuid: str
    run_name: str
    experiment_id: str
    user_id: str
    status: str
    start_time: int
    end_time: int | None = None
    artifact_uri: str
    lifecycle_stage: str


class RunData(Message):
    """What was logged into a run."""

    metrics: list[MetricMessage] | None = None
    params: list[KeyValue] | None = None
    tags: list[KeyValue] | None = None


class RunInputs(Message):
    """What a run uses."""

    dataset_inputs: list[Any] | None = None
    model_inputs: list[Any] | None = None


class RunOutputs(Message):
    """What a run makes."""

    model_outputs: list[Any] | None = None


class Run(Message):
    """A run."""

    info: RunInfo
    data: RunData
    inputs: RunInputs | None = None
    outputs: RunOutputs | None = None


class RunReply(Message):
    """One run."""

    run: Run


class RunInfoReply(Message):
    """One run, after a change."""

    run_info: RunInfo


class RunId(Message):
    """Which run: either name of the field will do."""

    run_id: str = ""
    run_uuid: str = ""

    @property
    def id(self) -> str:
        """The run.

        Raises:
            BadRequest: None is named.
        """
        if not (found := self.run_id or self.run_uuid):
            raise BadRequest("the field run_id is missing")
        return found


class NewRunMessage(Message):
    """A new run."""

    experiment_id: str = "0"
    user_id: str = ""
    run_name: str = ""
    start_time: Int64 = 0
    tags: list[Entry] = Field(default=[], max_length=1000)


class UpdateRun(RunId):
    """Changes to a run; what is not said stays."""

    status: Status | None = None
    end_time: Int64 | None = None
    run_name: str | None = None


class SearchRuns(Message):
    """Which runs."""

    experiment_ids: list[str] = Field(default=[])
    filter: str = ""
    run_view_type: View = "ACTIVE_ONLY"
    max_results: int = Field(1000, ge=1, le=50_000)
    order_by: list[str] = Field(default=[], max_length=20)
    page_token: str = ""


class RunsReply(Message):
    """A page of runs."""

    runs: list[Run] | None = None
    next_page_token: str | None = None


def artifact_uri(place: str, run_id: str) -> str:
    """Return where a client finds the files of a run: it asks the server that it talks to."""
    return f"mlflow-artifacts:/{place}/{run_id}/artifacts"


def info_message(facts: RunFacts) -> RunInfo:
    """Return a run without what was logged."""
    return RunInfo(
        run_id=facts.id,
        run_uuid=facts.id,
        run_name=facts.name,
        experiment_id=facts.place,
        user_id=facts.user,
        status=facts.status,
        start_time=facts.started_ms,
        end_time=facts.ended_ms,
        artifact_uri=artifact_uri(facts.place, facts.id),
        lifecycle_stage=stage(facts.deleted),
    )


def metric_message(point: LoggedPoint) -> MetricMessage:
    """Return a value of a metric as a message."""
    return MetricMessage.model_construct(key=point.key, value=point.value, timestamp=point.time_ms, step=point.step)


def run_message(facts: RunFacts) -> Run:
    """Return a run as a message."""
    data = RunData(
        metrics=[metric_message(one) for one in facts.metrics] or None,
        params=as_list(facts.params),
        tags=as_list(facts.tags),
    )
    inputs = RunInputs(dataset_inputs=list(facts.datasets) or None, model_inputs=list(facts.models_in) or None)
    outputs = RunOutputs(model_outputs=list(facts.models_out) or None)
    return Run(
        info=info_message(facts),
        data=data,
        inputs=inputs if facts.datasets or facts.models_in else None,
        outputs=outputs if facts.models_out else None,
    )


# --- what is logged


class LogMetric(RunId):
    """One value of a metric."""

    key: str = Field(min_length=1)
    value: float
    timestamp: Int64
    step: Int64 = 0
    model_id: str = ""

    def batch(self) -> LoggedBatch:
        """Return it as a batch."""
        return LoggedBatch(
            [LoggedPoint(self.key, self.value, self.timestamp, self.step)],
            models={0: self.model_id} if self.model_id else None,
        )


class LogEntry(RunId, Entry):
    """One parameter or tag."""


class RunTagKey(RunId):
    """The key of a tag."""

    key: str = Field(min_length=1)


class BatchMetric(Message):
    """One value of a metric in a batch."""

    key: str = Field(min_length=1)
    value: float
    timestamp: Int64
    step: Int64 = 0
    model_id: str = ""


class LogBatch(RunId):
    """Metrics, parameters and tags."""

    metrics: list[BatchMetric] = Field(default=[])
    params: list[Entry] = Field(default=[])
    tags: list[Entry] = Field(default=[])

    def batch(self) -> LoggedBatch:
        """Return it as a batch."""
        return LoggedBatch(
            [LoggedPoint(one.key, one.value, one.timestamp, one.step) for one in self.metrics],
            [(one.key, one.value) for one in self.params],
            [(one.key, one.value) for one in self.tags],
            {place: one.model_id for place, one in enumerate(self.metrics) if one.model_id} or None,
        )


class Dataset(Message):
    """A data set that a run uses."""

    name: str = Field(min_length=1, max_length=500)
    digest: str = Field(min_length=1, max_length=100)
    source_type: str = Field("", max_length=500)
    source: str = Field("", max_length=65_535)
    """Shown, and never opened."""
    schema_: str | None = Field(None, alias="schema", max_length=65_535)
    profile: str | None = Field(None, max_length=65_535)


class DatasetInput(Message):
    """A data set with how it is used."""

    dataset: Dataset
    tags: list[Entry] = Field(default=[])


class ModelInput(Message):
    """A logged model."""

    model_id: str = Field(min_length=1, max_length=100)


class ModelOutput(ModelInput):
    """A logged model at a step."""

    step: Int64 = 0


class LogInputs(RunId):
    """What a run uses."""

    datasets: list[DatasetInput] = Field(default=[], max_length=1000)
    models: list[ModelInput] = Field(default=[], max_length=1000)


class LogOutputs(RunId):
    """What a run makes."""

    models: list[ModelOutput] = Field(default=[], max_length=1000)


class LogModel(RunId):
    """A model, as clients of MLflow 2 note it."""

    model_json: str = "{}"


class GetHistory(RunId):
    """Which metric."""

    metric_key: str = Field(min_length=1)
    max_results: int = Field(25_000, ge=1)
    page_token: str = ""


class MetricsReply(Message):
    """A page of values."""

    metrics: list[MetricMessage] | None = None
    next_page_token: str | None = None


# --- files


class ListArtifacts(RunId):
    """Which folder of a run."""

    path: str = ""


class FileInfo(Message):
    """A file or a folder."""

    path: str
    is_dir: bool
    file_size: int | None = None


class ArtifactsReply(Message):
    """The files in a folder."""

    root_uri: str | None = None
    files: list[FileInfo] | None = None
    next_page_token: str | None = None


class ArtifactsQuery(Message):
    """Which folder, below all of them."""

    path: str = ""


# --- logged models


class NewLoggedModel(Message):
    """A new model of a run."""

    experiment_id: str = "0"
    name: str = ""
    model_type: str = ""
    source_run_id: str = ""
    params: list[Entry] = Field(default=[], max_length=100)
    tags: list[Entry] = Field(default=[], max_length=1000)


class LoggedModelInfo(Message):
    """A model without what was logged of it."""

    model_id: str
    experiment_id: str
    name: str
    creation_timestamp_ms: int
    last_updated_timestamp_ms: int
    artifact_uri: str
    status: str
    model_type: str | None = None
    source_run_id: str
    tags: list[KeyValue] | None = None


class LoggedModelData(Message):
    """What was logged of a model."""

    params: list[KeyValue] | None = None
    metrics: list[MetricMessage] | None = None


class LoggedModel(Message):
    """A model that a run has logged."""

    info: LoggedModelInfo
    data: LoggedModelData


class LoggedModelReply(Message):
    """One model."""

    model: LoggedModel


class LoggedModelsReply(Message):
    """A page of models."""

    models: list[LoggedModel] | None = None
    next_page_token: str | None = None


class LoggedModelParams(Message):
    """More parameters of a model."""

    params: list[Entry] = Field(default=[], max_length=1000)


class LoggedModelTags(Message):
    """Tags of a model."""

    tags: list[Entry] = Field(default=[], max_length=1000)


class EndLoggedModel(Message):
    """What has become of a model's files."""

    status: Annotated[
        str,
        _named(
            {1: "LOGGED_MODEL_PENDING", 2: "LOGGED_MODEL_READY", 3: "LOGGED_MODEL_UPLOAD_FAILED"},
        ),
    ]


class ModelOrder(Message):
    """A key of an order, which is not looked at: the newest models come first."""

    field_name: str = ""
    ascending: bool = True


class SearchLoggedModels(Message):
    """Which models."""

    experiment_ids: list[str] = Field(default=[])
    filter: str = ""
    max_results: int = Field(100, ge=1, le=50_000)
    order_by: list[ModelOrder] = Field(default=[], max_length=20)
    page_token: str = ""


def model_message(facts: LoggedModelFacts) -> LoggedModel:
    """Return a model as a message."""
    info = LoggedModelInfo(
        model_id=facts.id,
        experiment_id=facts.place,
        name=facts.name,
        creation_timestamp_ms=facts.created_ms,
        last_updated_timestamp_ms=facts.updated_ms,
        artifact_uri=f"mlflow-artifacts:/{facts.place}/models/{facts.id}/artifacts",
        status=facts.status,
        model_type=facts.model_type or None,
        source_run_id=facts.run_id,
        tags=as_list(facts.tags),
    )
    metrics = [MetricMessage.model_validate(one) for one in facts.metrics] or None
    return LoggedModel(info=info, data=LoggedModelData(params=as_list(facts.params), metrics=metrics))
