"""Routes of experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from detlab.schemas.logwire import KeepLogs, KeepLogsReply
from detlab.schemas.wire import (
    Archived,
    CheckpointView,
    CreateExperiment,
    CreateExperimentReply,
    CurvesView,
    EditExperiment,
    ExperimentState,
    ExperimentView,
    TrialView,
    Wire,
)
from detlab.schemas.wire.continuing import ContinueExperiment
from detlab.schemas.wire.finding import ExperimentPage
from detlab.schemas.wire.saved_views import FIELD_CHARS, FILTER_CHARS, MOST_COLUMNS, MOST_SORT_KEYS
from detlab.schemas.wire.storage import DeletionReply
from detlab_hub.core.rights import Action
from detlab_hub.services.experiments.continuing import Continuing
from detlab_hub.services.experiments.edits import Edits
from detlab_hub.services.experiments.experiments import Experiments as ExperimentsService
from detlab_hub.services.finding.finding import RunFinder
from detlab_hub.services.logs.log_retention import LogRetention as LogRetentionService
from detlab_hub.store.queries.trial_order import CONDITION, ORDER
from detlab_hub.web.base import Guarded, RowId
from detlab_hub.web.files import Download
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class TrialPage(Wire):
    """One page of trials."""

    items: list[TrialView]
    next: int | None = None
    """`after` of the next page, or null on the last one."""


class CheckpointList(Wire):
    """One page of committed checkpoints."""

    items: list[CheckpointView]
    next: str | None = None
    """`after` of the next page, or null on the last one."""


class DeleteQuery(Wire):
    """How it is deleted."""

    forget_files: bool = False
    """Give up on files that could not be removed; for administrators, of an experiment that is DELETING."""


Filter = Annotated[str, Field(max_length=FILTER_CHARS)]
FieldText = Annotated[str, Field(max_length=FIELD_CHARS)]
"""The name of a field, as filters have it."""


class Filtered(Wire):
    """Which rows of a table, in which order, with which columns."""

    filter: Filter = ""
    """Which: `accuracy > 0.9 and hparams.lr < 1e-3 and label = paper`."""
    sort: list[FieldText] = Field(default_factory=list, max_length=MOST_SORT_KEYS)
    """Fields in order of importance, with `-` before them for descending; repeat it or separate by commas. Rows
    without a value come last."""
    column: list[FieldText] = Field(default_factory=list, max_length=MOST_COLUMNS)
    """Fields whose values come with each row; repeat it or separate by commas."""


class ListQuery(Filtered):
    """Which experiments."""

    limit: int = Field(50, ge=1, le=1000)
    before: RowId | None = None
    """Only what comes after the experiment of this id: as a rule those with smaller ones."""
    state: ExperimentState | None = None
    owner: str | None = None
    name: str | None = Field(None, max_length=1000)
    """A part of the name."""
    archived: Archived = "no"
    """`no` leaves archived experiments out, `only` leaves out all others."""
    workspace: str | None = Field(None, max_length=1000)
    """Only those that lie in this workspace: a name, OWNER/NAME or an id."""
    project: str | None = Field(None, max_length=1000)
    """Only those of this project of it: a name or an id. Without a workspace: of one's personal one."""


class TrialsQuery(Wire):
    """Which trials."""

    limit: int = Field(200, ge=1, le=2000)
    after: RowId | None = None
    """Only what comes after the trial of this id."""
    sort: Annotated[str, Field(pattern=ORDER)] | None = None
    """GROUP.METRIC: by its least value, ascending; -GROUP.METRIC: by its greatest, descending. Trials without it are
    left out. Default: in creation order."""
    where: list[Annotated[str, Field(pattern=CONDITION)]] = Field(default_factory=list, max_length=20)
    """Conditions on hyperparameters, which all must hold: `lr<=0.01`, `optimizer.name=adam`."""
    filter: Filter = ""
    """A filter, as the list of trials of all experiments takes it; not together with `where`."""


class CurvesQuery(Wire):
    """Which curves, and how finely."""

    group: str | None = None
    name: list[str] = Field(default_factory=list)
    """Metric names; repeat it or separate by commas; none means all."""
    max_points: int = Field(500, ge=2, le=10_000)
    """Points a curve is down-sampled to; extremes and the last point stay exact."""
    max_trials: int = Field(100, ge=1, le=10_000)
    skip: int = Field(0, ge=0, lt=2**31)
    """Curves of the parts before: the `next` of the part before, asked for with the same values."""
    history: bool = False
    """Whether the attempts of the trials, with their slots, and their parents come with it."""


class CheckpointsQuery(Wire):
    """Which checkpoints, and what they are to be compared by."""

    limit: int = Field(1000, ge=1, le=1000)
    after: str | None = Field(None, max_length=200)
    """Only what comes after the checkpoint of this id."""

    metric: str | None = Field(None, max_length=1000)
    """A validation metric, whose value at its step each checkpoint then has in `metrics`."""


@route("experiments", relayed=True)
class Experiments(Guarded):
    """All experiments."""

    @needs("write", cross_site="xsrf", action=Action.EXPERIMENT_CREATE)
    async def post(self, body: CreateExperiment) -> CreateExperimentReply:
        """Submit an experiment; the same idempotency key gives the same experiment."""
        return await self.services[ExperimentsService].create(self.person, body)

    @needs("read", cross_site="xsrf")
    async def get(self, query: ListQuery) -> ExperimentPage:
        """List experiments, newest first or in an order, all or those that fulfil a filter."""
        wanted = query.model_dump(mode="json")
        if query.filter or query.sort or query.column:
            return await self.services[RunFinder].experiments(self.person, **wanted)
        wanted = {name: value for name, value in wanted.items() if name not in Filtered.model_fields}
        items, following = await self.services[ExperimentsService].list(self.person, **wanted)
        return ExperimentPage(items=items, next=following)


@route("experiments/{experiment_id}", relayed=True)
class Experiment(Guarded):
    """One experiment."""

    @needs("read", cross_site="xsrf")
    async def get(self, experiment_id: int) -> ExperimentView:
        """Return an experiment with its resolved config."""
        return await self.services[ExperimentsService].get(self.person, experiment_id)

    @needs("write", cross_site="xsrf", action=Action.EXPERIMENT_DELETE)
    async def delete(self, experiment_id: int, query: DeleteQuery) -> DeletionReply:
        """Delete an experiment that has ended, with its trials, metrics, logs, checkpoints and event files."""
        if query.forget_files:
            await self.services[ExperimentsService].forget_files(self.person, experiment_id)
            return DeletionReply(deleted=experiment_id)
        left = await self.services[ExperimentsService].delete(self.person, experiment_id)
        return DeletionReply(deleted=experiment_id, left=left)


@route("experiments/{experiment_id}/edit", relayed=True)
class Edit(Guarded):
    """What people wrote about it."""

    @needs("write", cross_site="xsrf", action=Action.EXPERIMENT_EDIT)
    async def post(self, experiment_id: int, body: EditExperiment) -> ExperimentView:
        """Change name, description, notes or labels, archive it or undo that; null leaves a field as it is."""
        return await self.services[Edits].edit(self.person, experiment_id, body)


@route("experiments/{experiment_id}/pause", relayed=True)
class Pause(Guarded):
    """Pausing."""

    @needs("write", cross_site="xsrf", action=Action.EXPERIMENT_PAUSE)
    async def post(self, experiment_id: int) -> ExperimentView:
        """Pause: trials checkpoint and give their slots back."""
        return await self.services[ExperimentsService].pause(self.person, experiment_id)


@route("experiments/{experiment_id}/activate", relayed=True)
class Activate(Guarded):
    """Activating."""

    @needs("write", cross_site="xsrf", action=Action.EXPERIMENT_ACTIVATE)
    async def post(self, experiment_id: int) -> ExperimentView:
        """Go on with a paused experiment."""
        return await self.services[ExperimentsService].activate(self.person, experiment_id)


@route("experiments/{experiment_id}/cancel", relayed=True)
class Cancel(Guarded):
    """Cancelling."""

    @needs("write", cross_site="xsrf", action=Action.EXPERIMENT_CANCEL)
    async def post(self, experiment_id: int) -> ExperimentView:
        """Cancel: trials may checkpoint before they end."""
        return await self.services[ExperimentsService].cancel(self.person, experiment_id)


@route("experiments/{experiment_id}/kill", relayed=True)
class Kill(Guarded):
    """Killing."""

    @needs("write", cross_site="xsrf", action=Action.EXPERIMENT_KILL)
    async def post(self, experiment_id: int) -> ExperimentView:
        """Kill all trials now."""
        return await self.services[ExperimentsService].kill(self.person, experiment_id)


@route("experiments/{experiment_id}/continue", relayed=True)
class ContinueOne(Guarded):
    """Going on after the end."""

    @needs("write", cross_site="xsrf", action=Action.EXPERIMENT_CONTINUE)
    async def post(self, experiment_id: int, body: ContinueExperiment) -> ExperimentView:
        """Let trials of an experiment that has ended train on from their checkpoints, perhaps for longer."""
        return await self.services[Continuing].go_on(self.person, experiment_id, body)


@route("log-retention")
class LogRetention(Guarded):
    """For how long output is kept."""

    @needs("write", cross_site="xsrf", action=Action.EXPERIMENT_KEEP_LOGS)
    async def post(self, body: KeepLogs) -> KeepLogsReply:
        """Say for how long the output of experiments is kept; the same again changes nothing."""
        return await self.services[LogRetentionService].keep(self.person, body)


@route("experiments/{experiment_id}/bundle")
class Bundle(Download):
    """The code of an experiment."""

    @needs("read", cross_site="xsrf", media="application/gzip")
    async def get(self, experiment_id: int) -> None:
        """Download the code that the experiment runs, a tar.gz."""
        path: Path = await self.services[ExperimentsService].bundle_path(self.person, experiment_id)
        await self.send_path(path, "application/gzip")


@route("experiments/{experiment_id}/trials", relayed=True)
class Trials(Guarded):
    """The trials of an experiment."""

    @needs("read", cross_site="xsrf")
    async def get(self, experiment_id: int, query: TrialsQuery) -> TrialPage:
        """List trials, in creation order or by a metric."""
        items, following = await self.services[ExperimentsService].trials(
            self.person, experiment_id, **query.model_dump()
        )
        return TrialPage(items=items, next=following)


@route("experiments/{experiment_id}/checkpoints", relayed=True)
class Checkpoints(Guarded):
    """The checkpoints of an experiment."""

    @needs("read", cross_site="xsrf")
    async def get(self, experiment_id: int, query: CheckpointsQuery) -> CheckpointList:
        """List the committed checkpoints."""
        items, following = await self.services[ExperimentsService].checkpoint_page(
            self.person, experiment_id, **query.model_dump()
        )
        return CheckpointList(items=items, next=following)


@route("experiments/{experiment_id}/curves", relayed=True)
class Curves(Guarded):
    """The snapshot that a live view starts from."""

    @needs("read", cross_site="xsrf")
    async def get(self, experiment_id: int, query: CurvesQuery) -> CurvesView:
        """Return experiment, trials and down-sampled curves as of a cursor of the event stream."""
        return await self.services[ExperimentsService].curves_part(
            self.person,
            experiment_id,
            group=query.group,
            names=query.name or None,
            max_points=query.max_points,
            max_trials=query.max_trials,
            history=query.history,
            skip=query.skip,
        )
