"""MLflow's routes of runs, and of what is logged into them."""

from __future__ import annotations

from detlab_hub.core.rights import Action
from detlab_hub.services.tracking.logging import LoggedBatch, RunLogging
from detlab_hub.services.tracking.runs import NewRun, TrackedRuns
from detlab_hub.web.mlflow.base import Empty, ProtocolHandler, serves, skipped, token_of
from detlab_hub.web.mlflow.messages import (
    GetHistory,
    LogBatch,
    LogEntry,
    LogInputs,
    LogMetric,
    LogModel,
    LogOutputs,
    MetricsReply,
    NewRunMessage,
    RunId,
    RunInfoReply,
    RunReply,
    RunsReply,
    RunTagKey,
    SearchRuns,
    UpdateRun,
    as_dict,
    deleted_of,
    info_message,
    metric_message,
    run_message,
)
from detlab_hub.web.scopes import needs

MODEL_HISTORY = "mlflow.log-model.history"
MOST_POINTS = 25_000
"""Values of one page of a metric."""


@serves("runs/create")
class CreateRun(ProtocolHandler):
    """A new run."""

    @needs("write", "task", cross_site="bearer", action=Action.RUN_CREATE)
    async def post(self, body: NewRunMessage) -> RunReply:
        """Begin a run; the first of a trial's code is the trial itself."""
        wanted = NewRun(body.experiment_id, body.run_name, body.user_id, body.start_time, as_dict(body.tags))
        return RunReply(run=run_message(await self.services[TrackedRuns].create(self.tracker, wanted)))


@serves("runs/get")
class GetRun(ProtocolHandler):
    """One run."""

    @needs("read", "task", cross_site="bearer")
    async def get(self, query: RunId) -> RunReply:
        """Return a run with its parameters, tags and the newest value of each metric."""
        return RunReply(run=run_message(await self.services[TrackedRuns].get(self.tracker, query.id)))


@serves("runs/update")
class UpdatedRun(ProtocolHandler):
    """A run that goes on, or has ended."""

    @needs("write", "task", cross_site="bearer", action=Action.RUN_LOG)
    async def post(self, body: UpdateRun) -> RunInfoReply:
        """Change a run's status, end or name; a trial goes on whatever is said of its end."""
        facts = await self.services[TrackedRuns].update(
            self.tracker, body.id, status=body.status, ended_ms=body.end_time, name=body.run_name
        )
        return RunInfoReply(run_info=info_message(facts))


@serves("runs/delete")
class DeleteRun(ProtocolHandler):
    """What nobody needs now."""

    @needs("write", cross_site="bearer", action=Action.RUN_DELETE)
    async def post(self, body: RunId) -> Empty:
        """Mark a run as deleted; nothing is removed."""
        await self.services[TrackedRuns].set_deleted(self.tracker, body.id, True)
        return Empty()


@serves("runs/restore")
class RestoreRun(ProtocolHandler):
    """What somebody needs again."""

    @needs("write", cross_site="bearer", action=Action.RUN_DELETE)
    async def post(self, body: RunId) -> Empty:
        """Restore a run."""
        await self.services[TrackedRuns].set_deleted(self.tracker, body.id, False)
        return Empty()


@serves("runs/search")
class FoundRuns(ProtocolHandler):
    """Many runs."""

    @needs("read", "task", cross_site="bearer", reads=True)
    async def post(self, body: SearchRuns) -> RunsReply:
        """Return a page of the runs of some experiments."""
        found = await self.services[TrackedRuns].search(
            self.tracker,
            body.experiment_ids,
            where=body.filter,
            order=body.order_by,
            deleted=deleted_of(body.run_view_type),
            limit=body.max_results,
            skip=skipped(body.page_token),
        )
        items = [run_message(one) for one in found.items]
        return RunsReply(runs=items or None, next_page_token=token_of(found.next))


@serves("runs/log-metric")
class LoggedMetric(ProtocolHandler):
    """One value."""

    @needs("write", "task", cross_site="bearer", action=Action.RUN_LOG)
    async def post(self, body: LogMetric) -> Empty:
        """Log a value of a metric."""
        await self.services[RunLogging].log(self.tracker, body.id, body.batch())
        return Empty()


@serves("runs/log-parameter")
class LoggedParameter(ProtocolHandler):
    """One parameter."""

    @needs("write", "task", cross_site="bearer", action=Action.RUN_LOG)
    async def post(self, body: LogEntry) -> Empty:
        """Log a parameter, which keeps its first value."""
        await self.services[RunLogging].log(self.tracker, body.id, LoggedBatch(params=[(body.key, body.value)]))
        return Empty()


@serves("runs/set-tag")
class SetTag(ProtocolHandler):
    """One tag."""

    @needs("write", "task", cross_site="bearer", action=Action.RUN_LOG)
    async def post(self, body: LogEntry) -> Empty:
        """Set a tag."""
        await self.services[RunLogging].log(self.tracker, body.id, LoggedBatch(tags=[(body.key, body.value)]))
        return Empty()


@serves("runs/delete-tag")
class DeleteTag(ProtocolHandler):
    """One tag that goes."""

    @needs("write", "task", cross_site="bearer", action=Action.RUN_LOG)
    async def post(self, body: RunTagKey) -> Empty:
        """Remove a tag."""
        await self.services[RunLogging].delete_tag(self.tracker, body.id, body.key)
        return Empty()


@serves("runs/log-batch")
class LoggedBatchOf(ProtocolHandler):
    """Many values."""

    @needs("write", "task", cross_site="bearer", action=Action.RUN_LOG)
    async def post(self, body: LogBatch) -> Empty:
        """Log metrics, parameters and tags, all of them or none."""
        await self.services[RunLogging].log(self.tracker, body.id, body.batch())
        return Empty()


@serves("runs/log-inputs")
class LoggedInputs(ProtocolHandler):
    """What a run uses."""

    @needs("write", "task", cross_site="bearer", action=Action.RUN_LOG)
    async def post(self, body: LogInputs) -> Empty:
        """Log data sets and models that a run uses."""
        datasets = [one.model_dump(by_alias=True, exclude_none=True) for one in body.datasets]
        models = [one.model_dump() for one in body.models]
        await self.services[RunLogging].add_inputs(self.tracker, body.id, datasets=datasets, models_in=models)
        return Empty()


@serves("runs/outputs")
class LoggedOutputs(ProtocolHandler):
    """What a run makes."""

    @needs("write", "task", cross_site="bearer", action=Action.RUN_LOG)
    async def post(self, body: LogOutputs) -> Empty:
        """Log models that a run makes."""
        models = [one.model_dump() for one in body.models]
        await self.services[RunLogging].add_inputs(self.tracker, body.id, models_out=models)
        return Empty()


@serves("runs/log-model")
class LoggedModelOf(ProtocolHandler):
    """A model of a client of MLflow 2."""

    @needs("write", "task", cross_site="bearer", action=Action.RUN_LOG)
    async def post(self, body: LogModel) -> Empty:
        """Note a model whose files are among the run's."""
        await self.services[RunLogging].add_to_list(self.tracker, body.id, MODEL_HISTORY, body.model_json)
        return Empty()


@serves("metrics/get-history")
class MetricHistory(ProtocolHandler):
    """All values of a metric."""

    @needs("read", "task", cross_site="bearer")
    async def get(self, query: GetHistory) -> MetricsReply:
        """Return a page of the values of a metric, by step and time."""
        limit = min(query.max_results, MOST_POINTS)
        found = await self.services[RunLogging].history(
            self.tracker, query.id, query.metric_key, limit, query.page_token
        )
        return MetricsReply(metrics=[metric_message(one) for one in found.points] or None, next_page_token=found.after)
