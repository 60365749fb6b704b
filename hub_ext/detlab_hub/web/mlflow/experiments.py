"""MLflow's routes of experiments."""

from __future__ import annotations

from detlab_hub.core.rights import Action
from detlab_hub.services.tracking.experiments import BadRequest
from detlab_hub.services.tracking.experiments import TrackedExperiments as Service
from detlab_hub.web.mlflow.base import Empty, ProtocolHandler, serves, skipped, token_of
from detlab_hub.web.mlflow.messages import (
    ExperimentId,
    ExperimentName,
    ExperimentReply,
    ExperimentsReply,
    ExperimentTag,
    ExperimentTagKey,
    NewExperiment,
    RenameExperiment,
    SearchExperiments,
    as_dict,
    deleted_of,
    experiment_message,
)
from detlab_hub.web.scopes import needs


@serves("experiments/create")
class CreateExperiment(ProtocolHandler):
    """A new experiment."""

    @needs("write", "task", cross_site="bearer", action=Action.RUN_CREATE)
    async def post(self, body: NewExperiment) -> ExperimentId:
        """Make a project; to a trial each name is its experiment."""
        if body.artifact_location and not body.artifact_location.startswith("mlflow-artifacts:"):
            raise BadRequest(
                "an experiment has no artifact_location of its own here: files go to the cluster's storage",
                hint="Leave artifact_location out.",
            )
        number = await self.services[Service].create(self.tracker, body.name, as_dict(body.tags))
        return ExperimentId(experiment_id=number)


@serves("experiments/get-by-name")
class ExperimentByName(ProtocolHandler):
    """One experiment by its name."""

    @needs("read", "task", cross_site="bearer")
    async def get(self, query: ExperimentName) -> ExperimentReply:
        """Return the experiment of a name."""
        facts = await self.services[Service].by_name(self.tracker, query.experiment_name)
        return ExperimentReply(experiment=experiment_message(facts))


@serves("experiments/get")
class OneExperiment(ProtocolHandler):
    """One experiment by its id."""

    @needs("read", "task", cross_site="bearer")
    async def get(self, query: ExperimentId) -> ExperimentReply:
        """Return an experiment."""
        facts = await self.services[Service].get(self.tracker, query.experiment_id)
        return ExperimentReply(experiment=experiment_message(facts))


@serves("experiments/search")
class FoundExperiments(ProtocolHandler):
    """Many experiments."""

    @needs("read", "task", cross_site="bearer")
    async def get(self, query: SearchExperiments) -> ExperimentsReply:
        """Return a page of experiments."""
        return await self.search(query)

    @needs("read", "task", cross_site="bearer", reads=True)
    async def post(self, body: SearchExperiments) -> ExperimentsReply:
        """Return a page of experiments."""
        return await self.search(body)

    async def search(self, asked: SearchExperiments) -> ExperimentsReply:
        """Return a page of experiments."""
        found = await self.services[Service].search(
            self.tracker,
            where=asked.filter,
            order=asked.order_by,
            deleted=deleted_of(asked.view_type),
            limit=min(asked.max_results, 1000),
            skip=skipped(asked.page_token),
        )
        items = [experiment_message(one) for one in found.items]
        return ExperimentsReply(experiments=items or None, next_page_token=token_of(found.next))


@serves("experiments/update")
class UpdateExperiment(ProtocolHandler):
    """Another name."""

    @needs("write", cross_site="bearer", action=Action.PROJECT_EDIT)
    async def post(self, body: RenameExperiment) -> Empty:
        """Rename an experiment."""
        if body.new_name:
            await self.services[Service].rename(self.tracker, body.experiment_id, body.new_name)
        return Empty()


@serves("experiments/delete")
class DeleteExperiment(ProtocolHandler):
    """What nobody needs now."""

    @needs("write", cross_site="bearer", action=Action.PROJECT_EDIT)
    async def post(self, body: ExperimentId) -> Empty:
        """Archive an experiment with its runs; nothing is removed."""
        await self.services[Service].set_deleted(self.tracker, body.experiment_id, True)
        return Empty()


@serves("experiments/restore")
class RestoreExperiment(ProtocolHandler):
    """What somebody needs again."""

    @needs("write", cross_site="bearer", action=Action.PROJECT_EDIT)
    async def post(self, body: ExperimentId) -> Empty:
        """Restore an experiment with its runs."""
        await self.services[Service].set_deleted(self.tracker, body.experiment_id, False)
        return Empty()


@serves("experiments/set-experiment-tag")
class SetExperimentTag(ProtocolHandler):
    """A tag."""

    @needs("write", cross_site="bearer", action=Action.PROJECT_EDIT)
    async def post(self, body: ExperimentTag) -> Empty:
        """Set a tag of an experiment."""
        await self.services[Service].set_tag(self.tracker, body.experiment_id, body.key, body.value)
        return Empty()


@serves("experiments/delete-experiment-tag")
class DeleteExperimentTag(ProtocolHandler):
    """A tag that goes."""

    @needs("write", cross_site="bearer", action=Action.PROJECT_EDIT)
    async def post(self, body: ExperimentTagKey) -> Empty:
        """Remove a tag of an experiment."""
        await self.services[Service].set_tag(self.tracker, body.experiment_id, body.key, None)
        return Empty()
