"""MLflow's routes of models that runs log."""

from __future__ import annotations

from detlab_hub.core.rights import Action
from detlab_hub.services.tracking.models import LoggedModels
from detlab_hub.web.mlflow.base import Empty, NotServed, ProtocolHandler, serves, skipped, token_of
from detlab_hub.web.mlflow.messages import (
    EndLoggedModel,
    LoggedModelParams,
    LoggedModelReply,
    LoggedModelsReply,
    LoggedModelTags,
    NewLoggedModel,
    SearchLoggedModels,
    as_dict,
    model_message,
)
from detlab_hub.web.scopes import needs


@serves("logged-models")
class NewModel(ProtocolHandler):
    """A new model."""

    @needs("write", "task", cross_site="bearer", action=Action.RUN_LOG)
    async def post(self, body: NewLoggedModel) -> LoggedModelReply:
        """Begin a model, whose files are uploaded next."""
        facts = await self.services[LoggedModels].create(
            self.tracker,
            run_id=body.source_run_id,
            name=body.name,
            model_type=body.model_type,
            params=as_dict(body.params),
            tags=as_dict(body.tags),
        )
        return LoggedModelReply(model=model_message(facts))


@serves("logged-models/{model_id}")
class OneModel(ProtocolHandler):
    """One model."""

    @needs("read", "task", cross_site="bearer")
    async def get(self, model_id: str) -> LoggedModelReply:
        """Return a model."""
        return LoggedModelReply(model=model_message(await self.services[LoggedModels].get(self.tracker, model_id)))

    @needs("write", "task", cross_site="bearer", action=Action.RUN_LOG)
    async def patch(self, model_id: str, body: EndLoggedModel) -> LoggedModelReply:
        """Say whether its files are complete."""
        facts = await self.services[LoggedModels].edit(self.tracker, model_id, status=body.status)
        return LoggedModelReply(model=model_message(facts))

    @needs("read", "task", cross_site="bearer", reads=True)
    async def delete(self, model_id: str) -> Empty:
        """Refuse: it goes with its run."""
        raise NotServed("a logged model goes with its run: delete that one instead")


@serves("logged-models/{model_id}/params")
class ModelParams(ProtocolHandler):
    """Parameters of a model."""

    @needs("write", "task", cross_site="bearer", action=Action.RUN_LOG)
    async def post(self, model_id: str, body: LoggedModelParams) -> Empty:
        """Add parameters."""
        await self.services[LoggedModels].edit(self.tracker, model_id, params=as_dict(body.params))
        return Empty()


@serves("logged-models/{model_id}/tags")
class ModelTags(ProtocolHandler):
    """Tags of a model."""

    @needs("write", "task", cross_site="bearer", action=Action.RUN_LOG)
    async def patch(self, model_id: str, body: LoggedModelTags) -> LoggedModelReply:
        """Set tags."""
        facts = await self.services[LoggedModels].edit(self.tracker, model_id, tags=as_dict(body.tags))
        return LoggedModelReply(model=model_message(facts))


@serves("logged-models/{model_id}/tags/{tag}")
class ModelTag(ProtocolHandler):
    """One of them."""

    @needs("write", "task", cross_site="bearer", action=Action.RUN_LOG)
    async def delete(self, model_id: str, tag: str) -> Empty:
        """Remove a tag."""
        await self.services[LoggedModels].edit(self.tracker, model_id, remove_tag=tag)
        return Empty()


@serves("logged-models/search")
class FoundModels(ProtocolHandler):
    """Many models."""

    @needs("read", "task", cross_site="bearer", reads=True)
    async def post(self, body: SearchLoggedModels) -> LoggedModelsReply:
        """Return a page of the models of some experiments, the newest first."""
        found = await self.services[LoggedModels].search(
            self.tracker,
            body.experiment_ids,
            where=body.filter,
            limit=body.max_results,
            skip=skipped(body.page_token),
        )
        items = [model_message(one) for one in found.items]
        return LoggedModelsReply(models=items or None, next_page_token=token_of(found.next))
