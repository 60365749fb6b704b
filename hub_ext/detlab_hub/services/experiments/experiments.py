"""The operations of owners on experiments: submit, list, pause and end, delete."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, NotFound, Problem
from detlab.schemas.expconf.checks import search_plans
from detlab.schemas.script_names import normal
from detlab.schemas.wire import (
    Archived,
    CheckpointView,
    CostView,
    CreateExperiment,
    CreateExperimentReply,
    CurvesView,
    ExperimentState,
    ExperimentView,
    ForecastView,
    TrialView,
)
from detlab.schemas.wire.storage import DeletionView
from detlab_hub.core.filters.fields import FilterTable
from detlab_hub.core.filters.meaning import Asker
from detlab_hub.core.lifecycle import experiment as lifecycle
from detlab_hub.core.rights import Action
from detlab_hub.core.scheduling import Job, SchedulerTask
from detlab_hub.core.searchers import SearcherInputError
from detlab_hub.services.admission import cost_caps, feasibility, forking, storage_quotas
from detlab_hub.services.admission.bundles import bundle_file
from detlab_hub.services.admission.configs.layers import layers_for
from detlab_hub.services.admission.destinations import Destination, destination_of, searched
from detlab_hub.services.admission.old_imports import imports_of_determined
from detlab_hub.services.admission.preparing import (
    PreparedConfig,
    check_entrypoint,
    check_references,
    prepare,
    raw_of,
    seed_of,
)
from detlab_hub.services.base import audit, offers, references
from detlab_hub.services.base.access import experiment_for, owns, person
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs import withdrawn
from detlab_hub.services.base.configs.parts import EXPERIMENT
from detlab_hub.services.base.configs.rules import rules_for, rules_of
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.limits.checks import check_queued
from detlab_hub.services.base.masking import masked_config
from detlab_hub.services.base.searches import FirstStep
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.base.warm_start import with_results, with_source
from detlab_hub.services.experiments import removal
from detlab_hub.services.finding.reading import SECONDS, TOO_SLOW, read_request
from detlab_hub.services.lifecycle import uids
from detlab_hub.services.lifecycle.queue_fields import pool_for, queue_fields, request_fields
from detlab_hub.services.lifecycle.rows import slots_per_trial
from detlab_hub.services.lifecycle.transitions import apply_experiment, finish_turn, resume_search, start_search
from detlab_hub.services.lifecycle.trial_holder import without_idle_pause
from detlab_hub.services.placement import passes
from detlab_hub.services.placement.snapshots import is_single_node
from detlab_hub.services.queue import why_waiting
from detlab_hub.services.views import budget_views, experiment_views, pages
from detlab_hub.store.bounded import bounded
from detlab_hub.store.idempotency import key_problems, known_experiment, note_experiment
from detlab_hub.store.queries import checkpoints, events, experiments, limits, trial_order
from detlab_hub.store.queries.finding import search as finding
from detlab_hub.store.queries.jobs import quotas_of
from detlab_hub.store.queries.metrics import curves as metrics
from detlab_hub.store.queries.statements import chunks, first_that_fit
from detlab_hub.store.tables import CheckpointRow, ExperimentRow, TrialRow

_log = logging.getLogger(__name__)
TRIALS_BYTES = pages.PAGE_BYTES // 2
"""Of the trials beside curves, and of their attempts, as JSON."""


class Experiments(Service):
    """Use cases of experiments."""

    def __init__(self, context: ServiceContext, draw: random.Random) -> None:
        super().__init__(context)
        self._draw = draw

    # --- submit

    async def create(self, caller: Caller, request: CreateExperiment) -> CreateExperimentReply:
        """Create an experiment, or report everything that is wrong with it.

        Raises:
            ConfigError: The config has errors, or masks instead of secrets.
            NotFound: There is no such experiment to fork, or no such template, for the caller.
            ResourcesError: No agent could ever run one of its trials.
            BundleError: Its code is not here, or that of the experiment it is a fork of is gone.
            NoUid: No uid is left for the caller.
            TooFast: The caller submits too often.
            TooMany: The caller has too many jobs that have not ended.
            NotAllowed: Its priority is better than the caller may give.
            StorageFull: A quota of bytes is used up.
        """
        if found := key_problems(request.idempotency_key):
            raise ConfigError(found)
        if request.idempotency_key:
            known = await self._context.read(lambda s: self._known(s, caller, request))
            if known is not None:
                return known
        if not request.dry_run:
            self._context.limiter.submission(caller.name, caller.groups)
        # A config of a megabyte takes seconds to parse: other requests should not wait for it.
        workers = self._context.workers
        plain = request.config is not None  # of a text, reading is the most of it
        read = raw_of(request) if plain else await workers.submissions.run(caller.name, raw_of, request)
        forked = await self._context.read(lambda s: forking.forked_experiment(s, caller, request.forked_from))
        settings, named = self._context.settings, request.template
        copied = forked is not None
        layers = await self._context.read(
            lambda s: layers_for(s, caller, read[0], settings, EXPERIMENT, named, forked=copied)
        )
        prepared = await workers.submissions.run(
            caller.name, prepare, request, settings, self._draw, read, layers, forked
        )
        await self._context.read(lambda s: forking.check_code(s, caller, request.bundle, forked))
        await self._context.read(lambda s: check_references(s, caller, prepared.config, request.bundle))
        place = await self._context.read(lambda s: destination_of(s, caller, prepared.config).workspace_id)
        await self._context.read(lambda s: withdrawn.check(s, prepared.config, place))
        prepared.warnings += await self._check_resources(caller, prepared, place)
        prepared.warnings += await storage_quotas.check(self._context, caller, prepared.config)
        archive = None if request.bundle is None else bundle_file(self._context.settings, request.bundle)
        if archive is not None and not await workers.code.run(caller.name, archive.exists):
            raise forking.code_gone(forked)
        prepared.warnings += await workers.code.run(caller.name, check_entrypoint, prepared.config, archive)
        prepared.warnings += await workers.code.run(caller.name, imports_of_determined, archive)
        if request.dry_run:
            return CreateExperimentReply(
                experiment=None,
                created=False,
                warnings=prepared.warning_views,
                config=masked_config(prepared.config),
                forecast=None
                if prepared.config.get("unmanaged")
                else await self._forecast(caller, prepared.config, place),
                given=prepared.given,
                cost=await self._cost(caller, prepared.config),
            )
        # With rare relations between hyperparameters, drawing its first points takes seconds.
        begun = await workers.submissions.run(caller.name, FirstStep.of, prepared.config, seed_of(prepared.config))
        reply = await self._context.write(lambda unit: self._create(unit, caller, request, prepared, begun))
        cost = await self._cost(caller, prepared.config)
        return reply.model_copy(update={"given": prepared.given, "cost": cost}) if reply.created else reply

    async def _cost(self, caller: Caller, config: Mapping[str, Any]) -> CostView | None:
        settings, nodes = self._context.settings, self._context.backend.nodes(self._context.clock())
        quotas = await self._context.read(lambda s: [one.slots for one in quotas_of(s, caller.name, caller.groups)])
        return cost_caps.planned(config, settings.pools, settings.currency, nodes, min(quotas, default=None))

    def _known(self, s: Session, caller: Caller, request: CreateExperiment) -> CreateExperimentReply | None:
        row = None if request.dry_run else known_experiment(s, caller.name, request.idempotency_key)
        if row is None:
            return None
        if not owns(caller, row.owner):  # noted by another act, such as the move of a label, with somebody's experiment
            raise Conflict("this idempotency_key was used for something else", hint="Submit with another key.")
        return self._reply(s, row, caller, created=False)

    def _reply(self, s: Session, row: ExperimentRow, caller: Caller, *, created: bool) -> CreateExperimentReply:
        view = experiment_views.experiment_view(s, row, caller, self._context.pending_reasons)
        return CreateExperimentReply(experiment=view, created=created, config=masked_config(row.config))

    async def _check_resources(self, caller: Caller, prepared: PreparedConfig, place: int | None) -> list[Problem]:
        config = prepared.config
        if config.get("unmanaged"):
            return []
        mounts, what = self._context.settings.governed_mounts, "a trial of this experiment"
        required = feasibility.of_trial(caller.name, caller.groups, config, what, place, mounts=mounts)
        found = await feasibility.check(self._context, required)
        if any(one.path == "searcher.max_concurrent_trials" for one in prepared.warnings):
            return found  # said already, whatever the pool has
        return [*found, *search_plans.blind(config["searcher"], self._slots(required), required.slots)]

    def _slots(self, required: feasibility.Requirements) -> int | None:
        """Return how many slots the pool has; None where trials get their points when a batch system is given them."""
        pool, backend = pool_for(self._context.settings, required.resources, required.slots), self._context.backend
        queue = backend.queues.get(pool.name)
        if queue is not None and not backend.asks_point(queue):
            return None
        return sum(node.slot_count for node in backend.nodes(self._context.clock()) if node.pool == pool.name)

    async def _forecast(self, caller: Caller, config: dict[str, Any], place: int | None) -> ForecastView:
        """Return what would happen to the first trial now."""
        context, slots = self._context, slots_per_trial(config)
        if context.halted:
            pool = queue_fields(context.settings, config, slots, caller)["resource_pool"]
            return ForecastView(pool=pool, reason=why_waiting.halted_code(context.halted), detail=context.halted)
        now, nodes, refusals = context.clock(), context.backend.nodes(context.clock()), dict(context.refusals)
        fields = queue_fields(context.settings, config, slots, caller)
        asked = request_fields(config, context.settings.governed_mounts)
        job = Job("this experiment", fields["priority"], fields["weight"] or 1.0, fields["max_slots"], submitted=now)
        task = SchedulerTask(
            "this trial",
            job.id,
            slots,
            single_node=is_single_node(False, asked["constraints"]),
            user=caller.name,
            groups=caller.groups,
            workspace=place,
            constraints=offers.constraints_of(asked["constraints"]),
            max_time=asked["max_time"],
            runtime=config["runtime"],
            millicpus=asked["millicpus"],
            memory=asked["memory"],
        )
        pool = fields["resource_pool"]
        return await context.read(
            lambda s: passes.forecast(
                s, nodes, refusals, now, context.settings, task, job, pool, context.backend.queues
            )
        )

    def _create(
        self,
        unit: UnitOfWork,
        caller: Caller,
        request: CreateExperiment,
        prepared: PreparedConfig,
        begun: FirstStep | None,
    ) -> CreateExperimentReply:
        known = self._known(unit.session, caller, request)
        if known is not None:
            return known
        check_references(unit.session, caller, prepared.config, request.bundle)
        uids.assign(unit, caller.name)
        jobs = limits.live_jobs(unit.session, caller.name)
        check_queued(unit.settings.limits, caller.name, caller.groups, jobs)
        config = with_results(unit.session, with_source(unit.session, prepared.config))
        place = destination_of(unit.session, caller, config)
        if place.reference:  # whose workspace it is, for who submits the same again
            config = {**config, "workspace": place.reference}
        rules_for(unit.session, place.workspace_id, EXPERIMENT).check(config)  # as of now
        withdrawn.check(unit.session, config, place.workspace_id)
        if request.activate and not config.get("unmanaged"):
            project = None if place.project is None else place.project.id
            cost_caps.check(unit.session, caller, caller.name, unit.now, project=project)
        row = _experiment_row(unit, caller, request, config, place)
        references.record(unit.session, caller, "experiment", row.id, config)
        note_experiment(unit.session, caller.name, request.idempotency_key, row.id, unit.now)
        unit.changed_experiment(row.id)
        audit.note(unit, caller, "experiment.create", f"experiment {row.id}", row.name)
        try:
            start_search(unit, row, begun)
        except SearcherInputError as error:
            raise ConfigError([Problem("searcher", str(error))]) from error
        finish_turn(unit)
        _log.info("experiment %d: submitted by %s", row.id, caller.name)
        reply = self._reply(unit.session, row, caller, created=True)
        halted = [] if config.get("unmanaged") else self._context.halted_warnings
        return reply.model_copy(update={"warnings": [*prepared.warning_views, *halted]})

    # --- look

    async def list(
        self,
        caller: Caller,
        *,
        limit: int = 50,
        before: int | None = None,
        state: str | None = None,
        owner: str | None = None,
        name: str | None = None,
        archived: Archived = "no",
        workspace: str | None = None,
        project: str | None = None,
    ) -> tuple[list[ExperimentView], int | None]:
        """Return one page of experiments, newest first, and the `before` of the next page.

        Callers who are not administrators see their own, those that others share with them, and what lies in
        workspaces of which they are members.

        Raises:
            NotFound: There is no such workspace for the caller, or no such project in it.
        """

        reasons = self._context.pending_reasons

        def page(s: Session) -> tuple[list[ExperimentView], int | None]:
            place, folder = searched(s, caller, workspace, project)
            where = {"workspace_id": place, "project_id": folder}
            ids = experiments.page(s, limit + 1, before, state, owner, name, person(caller), archived, **where)
            views = partial(experiment_views.experiment_views, s, caller=caller, reasons=reasons)
            items, last = pages.of_rows(s, ExperimentRow, ids, limit, views)
            return items, None if last is None else last.id

        return await self._context.look(caller.name, page)

    async def get(self, caller: Caller, experiment_id: int) -> ExperimentView:
        """Return an experiment with its config.

        Raises:
            NotFound: There is no such experiment for the caller.
        """

        def get(s: Session) -> ExperimentView:
            row = experiment_for(s, caller, experiment_id)
            view = experiment_views.experiment_view(s, row, caller, self._context.pending_reasons)
            return view.model_copy(update=self._used(s, row))

        return await self._context.read(get)

    async def trials(
        self,
        caller: Caller,
        experiment_id: int,
        limit: int = 200,
        after: int | None = None,
        *,
        sort: str | None = None,
        where: Sequence[str] = (),
        filter: str = "",  # noqa: A002  (its name in requests)
    ) -> tuple[Sequence[TrialView], int | None]:
        """Return one page of an experiment's trials, and the `after` of the next page.

        Args:
            caller: Who asks.
            experiment_id: Whose trials.
            limit: Most trials of the page.
            after: Id of the last trial of the previous page.
            sort: A metric, as `trial_order.MetricOrder.parse` reads it; None: in creation order.
            where: Conditions, as `trial_order.HyperparameterComparison.parse` reads them.
            filter: A filter; see `core.filters`.

        Raises:
            NotFound: There is no such experiment for the caller.
            ConfigError: The filter cannot be read, or comes together with `where`.
        """
        if filter:
            return await self._filtered_trials(caller, experiment_id, limit, after, sort=sort, where=where, text=filter)
        order = None if sort is None else trial_order.MetricOrder.parse(sort)
        conditions = [trial_order.HyperparameterComparison.parse(text) for text in where]

        def page(s: Session) -> tuple[Sequence[TrialView], int | None]:
            experiment_for(s, caller, experiment_id)
            ids = trial_order.ids(s, experiment_id, limit + 1, order=order, conditions=conditions, after=after)
            views = partial(experiment_views.trial_views, s, reasons=self._context.pending_reasons)
            items, last = pages.of_rows(s, TrialRow, ids, limit, views)
            return items, None if last is None else last.id

        return await self._context.look(caller.name, page)

    async def _filtered_trials(
        self,
        caller: Caller,
        experiment_id: int,
        limit: int,
        after: int | None,
        *,
        sort: str | None,
        where: Sequence[str],
        text: str,
    ) -> tuple[Sequence[TrialView], int | None]:
        asker = Asker(person(caller).name, self._context.clock())
        asked = read_request(FilterTable.TRIALS, text, (), (), asker)
        if where:
            problem = "`where` and `filter` cannot come together: write the conditions of `where` into the filter"
            raise ConfigError([Problem("filter", problem)], problem)
        order = None if sort is None else trial_order.MetricOrder.parse(sort)

        def page(s: Session) -> tuple[Sequence[TrialView], int | None]:
            experiment_for(s, caller, experiment_id)
            wanted = finding.of_experiment(experiment_id, asked.meaning, order)
            with bounded(s, SECONDS, "the filter", TOO_SLOW):
                ids = finding.page(s, person(caller), wanted, limit + 1, after, asker.now)
            views = partial(experiment_views.trial_views, s, reasons=self._context.pending_reasons)
            items, last = pages.of_rows(s, TrialRow, ids, limit, views)
            return items, None if last is None else last.id

        return await self._context.look(caller.name, page)

    async def checkpoints(
        self, caller: Caller, experiment_id: int, metric: str | None = None, **page: Any
    ) -> Sequence[CheckpointView]:
        """Return the items of `checkpoint_page`."""
        return (await self.checkpoint_page(caller, experiment_id, metric, **page))[0]

    async def checkpoint_page(
        self,
        caller: Caller,
        experiment_id: int,
        metric: str | None = None,
        *,
        limit: int = 1000,
        after: str | None = None,
    ) -> tuple[Sequence[CheckpointView], str | None]:
        """Return a page of an experiment's checkpoints, newest first, and the `after` of the next page.

        Args:
            caller: Who asks.
            experiment_id: Whose checkpoints.
            metric: A validation metric, which each has at its step.
            limit: Most checkpoints of the page.
            after: Id of the last checkpoint of the previous page.

        Raises:
            NotFound: There is no such experiment for the caller, or `after` is no checkpoint of it.
        """

        def get(s: Session) -> tuple[Sequence[CheckpointView], str | None]:
            experiment_for(s, caller, experiment_id)
            uuids = checkpoints.of_experiment(s, experiment_id, limit + 1, after)
            views = partial(experiment_views.checkpoint_views, s, metric=metric)
            items, last = pages.of_rows(s, CheckpointRow, uuids, limit, views)
            return items, None if last is None else last.uuid

        return await self._context.look(caller.name, get)

    async def curves(
        self,
        caller: Caller,
        experiment_id: int,
        *,
        group: str | None = None,
        names: Sequence[str] | None = None,
        max_points: int = 500,
        max_trials: int = 100,
        history: bool = False,
    ) -> CurvesView:
        """Return experiment, trials and all curves as of one cursor, for the master's own use: see `curves_part`.

        Raises:
            NotFound: There is no such experiment for the caller.
        """

        def snapshot(s: Session) -> CurvesView:
            row = experiment_for(s, caller, experiment_id)
            chosen = _trials_to_show(s, row, max_trials)
            rows = select(TrialRow).order_by(TrialRow.idx)
            shown = [trial for part in chunks(chosen) for trial in s.scalars(rows.where(TrialRow.id.in_(part)))]
            return CurvesView(
                attempts=experiment_views.attempt_spans(s, shown) if history else [],
                parents=experiment_views.parent_views(s, shown) if history else [],
                cursor=events.head(s),
                experiment=self._shown(s, row, caller),
                trials=experiment_views.trial_views(s, shown, self._context.pending_reasons),
                curves=metrics.series(s, chosen, group, names or None, max_points),
            )

        return await self._context.read(snapshot)

    async def curves_part(
        self,
        caller: Caller,
        experiment_id: int,
        *,
        group: str | None = None,
        names: Sequence[str] | None = None,
        max_points: int = 500,
        max_trials: int = 100,
        history: bool = False,
        skip: int = 0,
    ) -> CurvesView:
        """Return experiment, trials and the first curves as of one cursor, from which the stream continues.

        With `skip` only the curves after so many: the parts that follow, of the same trials.

        Raises:
            NotFound: There is no such experiment for the caller.
        """

        def snapshot(s: Session) -> CurvesView:
            row = experiment_for(s, caller, experiment_id)
            chosen = _trials_to_show(s, row, max_trials)
            page = first_that_fit(s, TrialRow, chosen, len(chosen))
            views = experiment_views.trial_views(s, page.rows, self._context.pending_reasons)
            trials = pages.within(views, TRIALS_BYTES)
            shown = page.rows[: len(trials)]
            curves, following = metrics.series_part(
                s,
                [trial.id for trial in shown],
                group,
                names or None,
                max_points,
                skip=skip,
                most_bytes=pages.PAGE_BYTES,
            )
            reply = CurvesView(
                cursor=events.head(s), experiment=self._shown(s, row, caller), curves=curves, next=following
            )
            if skip:
                return reply
            spans = experiment_views.attempt_spans(s, shown) if history else []
            return reply.model_copy(
                update={
                    "trials": trials,
                    "attempts": pages.within(spans[::-1], TRIALS_BYTES)[::-1],
                    "parents": experiment_views.parent_views(s, shown) if history else [],
                }
            )

        return await self._context.look(caller.name, snapshot)

    def _shown(self, s: Session, row: ExperimentRow, caller: Caller) -> ExperimentView:
        view = experiment_views.experiment_view(s, row, caller, self._context.pending_reasons, full=False)
        return view.model_copy(update=self._used(s, row))

    def _used(self, s: Session, row: ExperimentRow) -> dict[str, Any]:
        return budget_views.used(s, row, self._context.clock(), self._context.settings.currency)

    async def bundle_path(self, caller: Caller, experiment_id: int) -> Path:
        """Return where the experiment's code is stored.

        Raises:
            NotFound: There is no such experiment for the caller, or it has no code.
        """
        row = await self._context.read(lambda s: experiment_for(s, caller, experiment_id))
        if row.bundle is None:
            raise NotFound(f"experiment {experiment_id} was submitted without code")
        return bundle_file(self._context.settings, row.bundle)

    # --- steer

    async def pause(self, caller: Caller, experiment_id: int) -> ExperimentView:
        """Let the trials checkpoint and free their slots.

        Raises:
            Conflict: It has ended or is ending.
            Forbidden: The caller may read it, not change it.
            NotFound: There is no such experiment for the caller.
        """
        return await self._steer(caller, experiment_id, Action.EXPERIMENT_PAUSE, lifecycle.ExperimentPauseRequested())

    async def activate(self, caller: Caller, experiment_id: int) -> ExperimentView:
        """Resume a paused experiment.

        Raises:
            Conflict: It has ended or is ending.
            Forbidden: The caller may read it, not change it.
            NotFound: There is no such experiment for the caller.
        """
        return await self._steer(
            caller, experiment_id, Action.EXPERIMENT_ACTIVATE, lifecycle.ExperimentActivateRequested()
        )

    async def cancel(self, caller: Caller, experiment_id: int) -> ExperimentView:
        """End it; trials may checkpoint first. One that has ended stays as it is.

        Raises:
            Forbidden: The caller may read it, not change it.
            NotFound: There is no such experiment for the caller.
        """
        return await self._steer(caller, experiment_id, Action.EXPERIMENT_CANCEL, lifecycle.ExperimentCancelRequested())

    async def kill(self, caller: Caller, experiment_id: int) -> ExperimentView:
        """End it now. One that has ended stays as it is.

        Raises:
            Forbidden: The caller may read it, not change it.
            NotFound: There is no such experiment for the caller.
        """
        return await self._steer(caller, experiment_id, Action.EXPERIMENT_KILL, lifecycle.ExperimentKillRequested())

    async def _steer(
        self, caller: Caller, experiment_id: int, action: Action, event: lifecycle.Event
    ) -> ExperimentView:
        def steer(unit: UnitOfWork) -> ExperimentView:
            row = experiment_for(unit.session, caller, experiment_id, action)
            before = row.state
            if isinstance(event, lifecycle.ExperimentActivateRequested):
                cost_caps.check(unit.session, caller, row.owner, unit.now, project=row.project_id, experiment=row.id)
                withdrawn.check(unit.session, row.config, row.workspace_id)
                row.warnings = without_idle_pause(cost_caps.without_pause(withdrawn.without_pause(row.warnings)))
                if row.state == ExperimentState.PAUSED:
                    _hold(unit.session, row)
                resume_search(unit, row, caller.name)
            try:
                apply_experiment(unit, row, event)
            except lifecycle.RequestRefusedError as error:
                raise Conflict(f"experiment {experiment_id}: {error}") from error
            if row.state != before:
                audit.note(unit, caller, action.value, f"experiment {experiment_id}", row.name)
            finish_turn(unit)
            return experiment_views.experiment_view(unit.session, row, caller, self._context.pending_reasons)

        return await self._context.write(steer)

    # --- delete

    async def delete(self, caller: Caller, experiment_id: int) -> DeletionView | None:
        """Delete an experiment that has ended: files, then rows. Of one that is DELETING, what is left is tried again.

        Returns:
            What is left for a task to remove; None: all is gone.

        Raises:
            Conflict: It has not ended, or something pins a checkpoint of it.
            Forbidden: It is another user's, who shares it.
            NotFound: There is no such experiment for the caller.
        """
        return await removal.delete_experiment(self._context, caller, experiment_id)

    async def forget_files(self, caller: Caller, experiment_id: int) -> None:
        """Delete the rows of an experiment that is DELETING although files of it are still stored.

        Raises:
            Conflict: Nobody has tried to delete it with its files.
            Forbidden: The caller is no administrator.
            NotFound: There is no such experiment for the caller.
        """
        await removal.forget_files(self._context, caller, experiment_id)


def _hold(s: Session, row: ExperimentRow) -> None:
    """Check that a paused experiment keeps to the config policies of now.

    Raises:
        ConfigError: It does not; another one would have what they set.
    """
    try:
        rules_of(s, row).hold(s, row)
    except ConfigError as error:
        why = f"experiment {row.id} was made before a config policy that does not allow this"
        raise ConfigError(error.problems, f"{why}; one with what it sets: det experiment fork {row.id}") from error


def _experiment_row(
    unit: UnitOfWork, caller: Caller, request: CreateExperiment, config: dict[str, Any], place: Destination
) -> ExperimentRow:
    searcher = config["searcher"]
    workspace_id, project_id = place.made(unit)
    state = ExperimentState.ACTIVE if request.activate else ExperimentState.PAUSED
    row = ExperimentRow(
        name=config["name"],
        description=config.get("description"),
        labels=list(dict.fromkeys(map(normal, config.get("labels") or []))),
        owner=caller.name,
        workspace_id=workspace_id,
        project_id=project_id,
        state=state.value,
        config=config,
        searcher_name=searcher["name"],
        metric=searcher.get("metric") or "",
        smaller_is_better=searcher.get("smaller_is_better") is not False,
        seed=seed_of(config),
        budget=searcher.get("budget"),
        progress=0.0,
        **queue_fields(unit.settings, config, slots_per_trial(config), caller),
        log_retention_days=(config.get("retention_policy") or {}).get("log_retention_days"),
        bundle=request.bundle,
        source=_source(request),
        warnings=[],
        created_at=unit.now,
        paused_at=None if request.activate else unit.now,
    )
    unit.session.add(row)
    unit.session.flush()
    return row


def _source(request: CreateExperiment) -> dict[str, Any]:
    """Return where it came from: as the client says, but that of which it is a fork as it was checked."""
    told = {key: value for key, value in request.source.items() if key != forking.FORKED_FROM}
    return told if request.forked_from is None else {**told, forking.FORKED_FROM: request.forked_from}


def _trials_to_show(s: Session, row: ExperimentRow, limit: int) -> Sequence[int]:
    """Return the ids of all trials; if they are too many, of the best half and the newest half."""
    of_experiment = select(TrialRow.idx, TrialRow.id).where(TrialRow.experiment_id == row.id)
    newest = s.execute(of_experiment.order_by(TrialRow.idx.desc()).limit(limit + 1)).all()
    if len(newest) <= limit:
        return [trial.id for trial in reversed(newest)]
    order = TrialRow.best_validation if row.smaller_is_better else TrialRow.best_validation.desc()
    best = s.execute(
        of_experiment.where(TrialRow.best_validation.is_not(None)).order_by(order, TrialRow.idx).limit((limit + 1) // 2)
    ).all()
    chosen = dict.fromkeys(best)
    for trial in newest:
        if len(chosen) >= limit:
            break
        chosen.setdefault(trial)
    return [trial.id for trial in sorted(chosen)]
