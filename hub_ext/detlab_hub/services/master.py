"""The services of one master, and the loops that keep it alive."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from sqlalchemy import and_, bindparam, or_, select, update
from sqlalchemy.orm import Session

from detlab.errors import Unavailable
from detlab.schemas.taskwire import CreateTask, CreateTaskReply, TaskView
from detlab.schemas.wire import ExperimentState
from detlab_hub.backends.connection import AgentBackend
from detlab_hub.backends.instances.configuration import ElasticPool
from detlab_hub.backends.registry import make_backend
from detlab_hub.core.lifecycle.allocation import DeadlinePassed
from detlab_hub.services.admission.bundle_retention import BundleRetention
from detlab_hub.services.admission.user_limits import UserLimits
from detlab_hub.services.agents import drains, token_renewal
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.alerts import evaluation
from detlab_hub.services.alerts.alerts import Alerts
from detlab_hub.services.alerts.emails import Emails
from detlab_hub.services.alerts.evaluation import AlertEvaluation
from detlab_hub.services.alerts.of_lines import LineRules
from detlab_hub.services.alerts.webhooks import Webhooks
from detlab_hub.services.base import audit
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import ServiceContext, ServiceLookup
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.base.unit_of_work import StateMachines, UnitOfWork
from detlab_hub.services.base.wakeups import wait_until
from detlab_hub.services.checkpoints import collecting
from detlab_hub.services.checkpoints.removals import Removals
from detlab_hub.services.cluster.health import Health
from detlab_hub.services.cluster.refusals import Refusals
from detlab_hub.services.cluster.unknown_keys import UnknownKeys
from detlab_hub.services.elastic import provisioning
from detlab_hub.services.elastic.provisioning import Provisioning
from detlab_hub.services.experiments import budgets, cost_stops, removal
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.figures import Figures
from detlab_hub.services.experiments.idle_gpus import IdleGpuWatch
from detlab_hub.services.experiments.suggestions import Drawing, Suggestions
from detlab_hub.services.lifecycle import log_policies, trials_to_make
from detlab_hub.services.lifecycle.allocation_transitions import apply_allocation, send_kill
from detlab_hub.services.lifecycle.task_holder import TaskHolder
from detlab_hub.services.lifecycle.transitions import finish_turn, make_left_trials
from detlab_hub.services.lifecycle.trial_holder import TrialHolder
from detlab_hub.services.logs.log_retention import LogRetention
from detlab_hub.services.logs.matching import PolicyMatcher
from detlab_hub.services.notify.consumers import Consumers, EventConsumer
from detlab_hub.services.notify.mails import MailSender
from detlab_hub.services.notify.outbox import WebhookSender
from detlab_hub.services.placement import passes as placement
from detlab_hub.services.placement.remembered import PreviousPassTasks
from detlab_hub.services.queue.jobs import Jobs
from detlab_hub.services.schedules import firing
from detlab_hub.services.schedules.firing import ScheduleFiring
from detlab_hub.services.streams.stream import Stream
from detlab_hub.services.tracking.reports import RunReports
from detlab_hub.services.usertasks import collection_tasks, search_tasks, time_limits
from detlab_hub.services.usertasks.checking_tasks import CheckingTasks
from detlab_hub.services.usertasks.hub_client import HubServers
from detlab_hub.services.usertasks.reading_tasks import ReadingTasks
from detlab_hub.services.usertasks.retention import Retention
from detlab_hub.services.usertasks.servers import Servers
from detlab_hub.services.usertasks.spawns import Spawns
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store import Clock, Store, StoreBroken
from detlab_hub.store.queries import consumers, events, tokens
from detlab_hub.store.tables import AllocationRow, ExperimentRow, TokenRow

_log = logging.getLogger(__name__)

LEASE_PERIOD = 5.0
TIDY_PERIOD = 60.0
RETRY_PERIOD = 5.0
"""Waiting allocations are looked at again this often, for reasons that end by themselves."""
PASS_PERIOD = 0.1
"""Seconds between a scheduling pass that left somebody waiting and the next, if no task ends: a search that stops many
trials makes one that waits for each, and the queue does not get shorter by looking at it each time."""
REST = 4.0
"""The next pass waits for so many times the CPU seconds of the last one, whatever has happened, but `MOST_REST` at
most: passes of up to half a second take a fifth of a core. That is nothing in a small cluster, and bounds what many
changes cost in a large one."""
MOST_REST = 2.0
"""The most seconds of that wait, so that nobody waits much longer for a place than a pass takes: passes of two seconds,
one after the other, take half a core, and longer ones more."""
GUARD_PERIOD = 1.0
"""Period in seconds of the check for spawns without a follower and for idle servers."""
RECONCILE_PERIOD = 20.0
"""Period in seconds of the comparison of running servers with the Hub's."""
KILL_AGAIN = 15.0
"""A kill without an exit is sent again after this long."""


_LIFECYCLE = StateMachines(TrialHolder(), TaskHolder(), finish_turn)


class Services(ServiceLookup):
    """Everything that the web layer may ask of the master: its services by their classes, and its loops."""

    def __init__(
        self,
        store: Store,
        *,
        settings: Settings,
        clock: Clock = time.time,
        cpu_clock: Clock = time.thread_time,
        draw: random.Random | None = None,
        hub: HubServers | None = None,
        elastic: Sequence[ElasticPool] = (),
        consumers: Sequence[EventConsumer] = (),
        backend: AgentBackend | None = None,
    ) -> None:
        connections = backend or make_backend(settings.agent_suspect_after, settings.agent_reconnect_wait)
        context = ServiceContext(store=store, settings=settings, clock=clock, backend=connections, lifecycle=_LIFECYCLE)
        super().__init__(context)
        self.settings = settings
        self.connections = connections
        # These need more than the context and other services; and what the operator has configured is checked now.
        self.keep(
            Experiments(context, draw or random.SystemRandom()),
            Agents(context, connections, self[PolicyMatcher], self[LineRules]),
            Servers(context, self[UserTasks], self[Spawns], hub),
            ScheduleFiring(context, self[UserTasks], hub),
            Provisioning(context, elastic),
            Consumers(context, consumers),
            WebhookSender(context),
            Health(context, self.loops),
        )
        self.keep(Jobs(context, self[Provisioning].awaited))
        self._prepare_loops(clock, cpu_clock)

    def _prepare_loops(self, clock: Clock, cpu_clock: Clock) -> None:
        """Set what the loops remember between their steps."""
        self._loops: list[asyncio.Task[None]] = []
        self._cpu_clock = cpu_clock
        self._known_tasks = PreviousPassTasks()
        """The rows and tasks of the newest pass."""
        self._pass_cost = 0.0
        """Seconds of CPU that the newest pass took."""
        self._ticked = clock()
        self._failing: set[str] = set()
        """Loops whose last step failed."""
        self._reachable: dict[str, bool] = {}
        """Agents and whether they were heard lately, when the last tick looked."""
        self._caps_looked = -math.inf

    async def start_task(self, caller: Caller, request: CreateTask) -> CreateTaskReply:
        """Start a user task, by the master or through the Hub."""
        if request.checks is not None:
            return await self[CheckingTasks].start(caller, request)
        if request.reads is not None:
            return await self[ReadingTasks].start(caller, request)
        if request.kind.served_by_hub:
            return await self[Servers].start(caller, request)
        return await self[UserTasks].create(caller, request)

    async def end_task(self, caller: Caller, task_id: str) -> TaskView:
        """End a user task, by the master or through the Hub."""
        return await self[Servers].end(caller, task_id)

    async def start(self) -> None:
        """Restore what was in progress, then run the loops."""
        self.context.started_at = self.context.clock()
        await self.recover()
        periods: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (self.settings.tick, self.tick),
            (self.settings.heartbeat_period, self._beat),
            (LEASE_PERIOD, self._renew_lease),
            (TIDY_PERIOD, self.tidy),
            (RETRY_PERIOD, self._retry_pass),
            (GUARD_PERIOD, self[Spawns].guard),
            (GUARD_PERIOD, self[Servers].cull_idle),
            (GUARD_PERIOD, self[Refusals].write_refusals),
            (GUARD_PERIOD, self[UserLimits].write_hits),
            (RECONCILE_PERIOD, self[Servers].reconcile),
            (firing.PERIOD, self[ScheduleFiring].fire_schedules),
        ]
        if self[Provisioning].elastic:
            periods.append((provisioning.PERIOD, self[Provisioning].poll))
        self._loops = [
            asyncio.create_task(self._every(period, work), name=work.__name__.strip("_")) for period, work in periods
        ]
        self._loops.append(asyncio.create_task(self._schedule_when_kicked(), name="schedule"))
        self._loops.append(asyncio.create_task(self[Suggestions].run(), name="suggestions"))
        self._loops.append(asyncio.create_task(self[Drawing].run(), name="points ahead"))
        self._loops.append(asyncio.create_task(self._until_stopped(self[WebhookSender].run), name="webhooks"))
        if not self.settings.is_copy:
            self._loops.append(asyncio.create_task(self._until_stopped(self[AlertEvaluation].run), name="alerts"))
        if self.settings.smtp is not None:
            self._loops.append(asyncio.create_task(self._until_stopped(self[MailSender].run), name="e-mail"))
        if self[Consumers].names:
            self._loops.append(asyncio.create_task(self[Consumers].run(), name="consumers"))

    async def stop(self) -> None:
        """Stop the loops and release the readers. Tasks run on; the next start continues with them."""
        self.context.stopped = True
        self.context.wakeups.wake_all()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops = []
        await self[Stream].stop()
        await self[Figures].close()
        await self[Servers].stop()
        with contextlib.suppress(Unavailable):  # the database is gone: the refusals of the last second are lost
            await self[Refusals].write_refusals(closing=True)
        await self.context.settle()
        self.context.workers.close()

    def loops(self) -> dict[str, bool]:
        """Name -> whether it runs and its last step went well, of every loop that was started."""
        return {loop.get_name(): not loop.done() and loop.get_name() not in self._failing for loop in self._loops}

    # --- what the loops do; each is one step, so that tests and the simulation can take it themselves

    async def recover(self) -> None:
        """Expect the agents that were there before the start, finish deletions, and ask for a scheduling pass."""
        await self[Agents].expect_known()
        await self.context.write(_renew_task_tokens)
        for blocked in await self.context.read(log_policies.all_excluded):
            self.context.refusals[blocked] = math.inf

        def deleting(s: Session) -> list[int]:
            return list(s.scalars(select(ExperimentRow.id).where(ExperimentRow.state == ExperimentState.DELETING)))

        for experiment_id in [] if self.settings.is_copy else await self.context.read(deleting):
            await removal.remove_experiment(self.context, experiment_id)
        await self[Removals].finish()
        await self[Suggestions].recover()
        self.context.scheduler_kick.set()

    async def tick(self) -> None:
        """Act on deadlines that have passed and on agents that are lost."""
        now = self.context.clock()
        away, self._ticked = now - self._ticked, now
        if away > self.settings.agent_suspect_after:
            _log.warning("this master did not run for %.0f s; agents and tokens of tasks get as much longer", away)
            self.connections.forgive(away)
            await self.context.write(_renew_task_tokens)
        await self[Agents].lose_silent()
        reachable = {node.id: not node.suspect for node in self.connections.nodes(now)}
        if reachable != self._reachable:
            self._reachable = reachable
            await self.context.write(lambda unit: unit.changed_cluster())
        due, over, drained, spent, searched, ended, collected, deleted, unmade = await self.context.read(
            lambda s: (
                _due(s, now),
                time_limits.due(s, now),
                drains.due(s, now),
                budgets.due(s, now),
                search_tasks.due(s),
                [] if self.settings.is_copy else collecting.due(s, now),
                [] if self.settings.is_copy else collection_tasks.due(s, now),
                removal.due(s),
                [] if self.settings.is_copy else trials_to_make.due(s),
            )
        )
        actions: list[Callable[[UnitOfWork], None]] = [partial(_act_on_deadlines, allocation_ids=due)] if due else []
        actions += [partial(time_limits.act, allocation_id=allocation_id) for allocation_id in over]
        actions += [partial(drains.act_on_deadline, agent_id=agent_id) for agent_id in drained]
        actions += [partial(budgets.act, experiment_id=key, reason=reason) for key, reason in spent]
        actions += [partial(search_tasks.act, experiment_id=key) for key in searched]
        actions += [partial(collecting.act, experiment_id=key) for key in ended]
        actions += [partial(collection_tasks.act, experiment_id=key) for key in collected]
        actions += [partial(removal.act, experiment_id=key) for key in deleted]
        actions += [partial(make_left_trials, experiment_id=key) for key in unmade * trials_to_make.PARTS]
        await self._each(actions)
        await self._look_at_costs(now)

    async def _look_at_costs(self, now: float) -> None:
        """Pause what has reached a cap, and tell of GPUs that do nothing: every few seconds, not with each tick."""
        if abs(now - self._caps_looked) >= cost_stops.EVERY:
            self._caps_looked = now
            caps = await self.context.read(lambda s: cost_stops.due(s, now))
            await self._each([partial(cost_stops.act, cap=cap) for cap in caps])
        await self._each(await self[IdleGpuWatch].due())

    async def _each(self, actions: Sequence[Callable[[UnitOfWork], None]]) -> None:
        """Run each action in a unit of work of its own; a failure is raised when the others are done.

        Raises:
            Unavailable: The database is busy or broken; the rest has to wait.
            ExceptionGroup: Some failed otherwise.
        """
        failed = []
        for action in actions:
            try:
                await self.context.write(action)
            except Unavailable:
                raise
            except Exception as error:  # a bug in one must not keep the others where they are; raised below
                failed.append(error)
        if failed:
            raise ExceptionGroup("some deadlines could not be acted upon", failed)

    async def schedule(self) -> None:
        """Assign what can start now and note why everything else waits."""
        context = self.context
        nodes = self.connections.nodes(context.clock())
        halted, refusals, queues = context.halted, dict(context.refusals), dict(self.connections.queues)

        def place(unit: UnitOfWork) -> placement.WaitVerdict:
            began = self._cpu_clock()
            verdict = placement.place(unit, nodes, refusals, self._known_tasks, context.saving, queues, halted=halted)
            # Before the commit: a checkpoint that is committed next is one of theirs, though nobody was told yet.
            context.saving = verdict.saving
            self._pass_cost = self._cpu_clock() - began
            if verdict.texts != context.pending_reasons:
                unit.changed_cluster()
            return verdict

        verdict = await context.write(place)
        context.pending_reasons, context.pending_codes = verdict.texts, verdict.codes

    async def tidy(self) -> None:
        """Extend and purge tokens, trim the event and audit logs, purge refusals, remove old tasks and output.

        Processes of runs that are silent count as lost.
        """
        now = self.context.clock()
        present = [node.id for node in self.connections.nodes(now) if not node.suspect]
        await self.context.write(lambda unit: token_renewal.extend_tokens(unit, present, TIDY_PERIOD))
        lasting = {key for key, until in self.context.refusals.items() if until == math.inf}
        if lasting:
            lasting.difference_update(await self.context.read(log_policies.all_excluded))
        self.context.refusals = {
            key: until for key, until in self.context.refusals.items() if until > now and key not in lasting
        }

        def trim(unit: UnitOfWork) -> int:
            tokens.purge(unit.session, unit.now)
            needed = consumers.slowest(unit.session, self[Consumers].names | {evaluation.CURSOR})
            return events.trim(unit.session, self.settings.event_keep, needed=needed) + audit.trim(
                unit, self.settings.audit_keep
            )

        while await self.context.write(trim):
            await asyncio.sleep(0)
        await self[Removals].finish()
        await self[Retention].sweep()
        await self[ScheduleFiring].sweep()
        await self[BundleRetention].sweep()
        await self[LogRetention].sweep()
        await self[Alerts].sweep()
        await self[Webhooks].sweep()
        await self[Emails].sweep()
        await self[RunReports].sweep()
        await self[UnknownKeys].tell()

    async def _beat(self) -> None:
        self[Agents].heartbeat()

    async def _renew_lease(self) -> None:
        await self.context.store.renew()

    async def _retry_pass(self) -> None:
        if self.context.pending_reasons:
            self.context.scheduler_kick.set()

    # --- the loops

    async def _every(self, period: float, work: Callable[[], Awaitable[None]]) -> None:
        while not self.context.stopped:
            await asyncio.sleep(period)
            self._note_step(work.__name__.strip("_"), done=await self._guarded(work))

    async def _until_stopped(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run what goes on until the master stops, again and again if it fails."""
        while not self.context.stopped:
            if not await self._guarded(work):
                await asyncio.sleep(RETRY_PERIOD)

    async def _schedule_when_kicked(self) -> None:
        loop = asyncio.get_running_loop()
        passed = -math.inf
        while not self.context.stopped:
            await wait_until(self.context.scheduler_kick, 3600.0)
            if (pause_left := passed + min(REST * self._pass_cost, MOST_REST) - loop.time()) > 0:
                await asyncio.sleep(pause_left)
            if (early := passed + PASS_PERIOD - loop.time()) > 0 and self.context.pending_reasons:
                await wait_until(self.context.room, early)
            self.context.scheduler_kick.clear()
            self.context.room.clear()
            done = await self._guarded(self.schedule)
            passed = loop.time()
            self._note_step("schedule", done=done)
            if not done:
                await asyncio.sleep(self.settings.tick)
                self.context.scheduler_kick.set()

    def _note_step(self, name: str, *, done: bool) -> None:
        (self._failing.discard if done else self._failing.add)(name)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Run one step of a loop: a busy database is tried again, a broken one ends the loops."""
        try:
            await work()
        except StoreBroken as error:
            _log.critical("the master stops: %s", error)
            self.context.stopped = True
            self.context.wakeups.wake_all()
        except Unavailable as error:
            _log.warning("%s; trying again", error.message)
            return False
        except Exception:
            # A bug in one step must not end the loop that finds dead agents.
            _log.exception("a step of the master failed; trying again")
            return False
        return True


def _renew_task_tokens(unit: UnitOfWork) -> None:
    """Renew the tokens of tasks after a time without a master, or a jump of its clock: that time does not count."""
    live = select(AllocationRow.id).where(AllocationRow.state.in_(placement.PLACED))
    unit.session.execute(
        update(TokenRow)
        .where(TokenRow.kind == "task", TokenRow.subject.in_(live))
        .values(expires_at=unit.now + unit.settings.task_token_ttl)
        .execution_options(synchronize_session=False)
    )
    tokens.extend_runs(unit.session, live, unit.now + unit.settings.task_token_ttl)


_DUE = select(AllocationRow.id).where(
    AllocationRow.state.in_(placement.PLACED),
    or_(
        and_(AllocationRow.term_at <= bindparam("now"), AllocationRow.kill_sent_at.is_(None)),
        AllocationRow.kill_sent_at <= bindparam("again"),
    ),
)


def _due(s: Session, now: float) -> list[str]:
    """Return the allocations whose time to leave is over, and those that were told so and are still there."""
    return list(s.connection().execute(_DUE, {"now": now, "again": now - KILL_AGAIN}).scalars())


def _act_on_deadlines(unit: UnitOfWork, allocation_ids: list[str]) -> None:
    for allocation_id in allocation_ids:
        row = unit.allocation(allocation_id)
        if row is None or row.state not in placement.PLACED:
            continue
        if row.kill_sent_at is None:
            _log.info("allocation %s: its time to leave is over", row.id)
            apply_allocation(unit, row, DeadlinePassed(unit.now))
        else:
            row.kill_sent_at = unit.now
            send_kill(unit, row)
