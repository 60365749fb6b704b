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
from detlab_hub.services.admission.bundles import Bundles
from detlab_hub.services.admission.quotas import Quotas
from detlab_hub.services.admission.user_limits import UserLimits
from detlab_hub.services.agents import drains, token_renewal
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.agents.nodes import Nodes
from detlab_hub.services.checkpoints import collecting
from detlab_hub.services.checkpoints.checkpoints import Checkpoints
from detlab_hub.services.checkpoints.collecting import Collecting
from detlab_hub.services.checkpoints.removals import Removals
from detlab_hub.services.checkpoints.trash import Trash
from detlab_hub.services.cluster.cluster import Cluster
from detlab_hub.services.cluster.credentials import Credentials
from detlab_hub.services.cluster.health import Health
from detlab_hub.services.cluster.metrics import Metrics
from detlab_hub.services.cluster.overview import Overview
from detlab_hub.services.cluster.refusals import Refusals
from detlab_hub.services.cluster.storage import Storage
from detlab_hub.services.cluster.unknown_keys import UnknownKeys
from detlab_hub.services.cluster.usage import Usage
from detlab_hub.services.elastic import provisioning
from detlab_hub.services.elastic.provisioning import Provisioning
from detlab_hub.services.experiments import budgets, removal
from detlab_hub.services.experiments.by_hand import ByHand
from detlab_hub.services.experiments.code import Code
from detlab_hub.services.experiments.edits import Edits
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.figures import Figures
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.experiments.steering import SearchSteering
from detlab_hub.services.experiments.stored_files import EventFiles
from detlab_hub.services.experiments.suggestions import Drawing, Suggestions
from detlab_hub.services.experiments.timeline import Timeline
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.services.ingest.tokens import Tokens
from detlab_hub.services.kernel import audit
from detlab_hub.services.kernel.audit import Audit
from detlab_hub.services.kernel.callers import Caller
from detlab_hub.services.kernel.settings import Settings
from detlab_hub.services.kernel.shell import Shell
from detlab_hub.services.kernel.turn import Lifecycle, Turn
from detlab_hub.services.kernel.wakeups import wait_until
from detlab_hub.services.lifecycle import log_policies, trials_to_make
from detlab_hub.services.lifecycle.allocation_transitions import apply_allocation, send_kill
from detlab_hub.services.lifecycle.task_holder import TaskHolder
from detlab_hub.services.lifecycle.transitions import finish_turn, make_left_trials
from detlab_hub.services.lifecycle.trial_holder import TrialHolder
from detlab_hub.services.lifecycle.uids import UserUids
from detlab_hub.services.logs.log_retention import LogRetention
from detlab_hub.services.logs.matching import PolicyMatcher
from detlab_hub.services.notify.consumers import Consumers, EventConsumer
from detlab_hub.services.notify.webhooks import Webhooks
from detlab_hub.services.placement import passes as placement
from detlab_hub.services.placement.remembered import KnownTasks
from detlab_hub.services.queue.jobs import Jobs
from detlab_hub.services.queue.pools import PoolViews
from detlab_hub.services.queue.queue import Queue
from detlab_hub.services.registry.comparing import Comparisons
from detlab_hub.services.registry.labels import Labels
from detlab_hub.services.registry.models import Models
from detlab_hub.services.registry.versions import Versions
from detlab_hub.services.streams.stream import Stream
from detlab_hub.services.usertasks import collection_tasks, search_tasks, time_limits
from detlab_hub.services.usertasks.checking_tasks import CheckingTasks
from detlab_hub.services.usertasks.collection_tasks import CollectionTasks
from detlab_hub.services.usertasks.hub_client import HubServers
from detlab_hub.services.usertasks.outputs import Outputs
from detlab_hub.services.usertasks.reading_tasks import ReadingTasks
from detlab_hub.services.usertasks.retention import Retention
from detlab_hub.services.usertasks.search_tasks import SearchTasks
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


_LIFECYCLE = Lifecycle(TrialHolder(), TaskHolder(), finish_turn)


class Services:
    """Everything that the web layer may ask of the master."""

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
        self.settings = settings
        self.shell = Shell(store=store, settings=settings, clock=clock, backend=connections, lifecycle=_LIFECYCLE)
        self.connections = connections
        self.grants = Grants(self.shell)
        self.removals = Removals(self.shell)
        self.collecting = Collecting(self.shell)
        self.collection_tasks, self.reading_tasks = CollectionTasks(self.shell), ReadingTasks(self.shell)
        self._prepare_storage()
        self.edits = Edits(self.shell)
        self.steering = SearchSteering(self.shell)
        self.by_hand = ByHand(self.shell)
        self.experiments = Experiments(self.shell, draw or random.SystemRandom())
        self.suggestions, self.drawing = Suggestions(self.shell), Drawing(self.shell)
        self.figures = Figures(self.experiments)
        self.consumers = Consumers(self.shell, consumers)
        self.trials = Trials(self.shell)
        self.checkpoints = Checkpoints(self.shell)
        self.policies = PolicyMatcher(self.shell)
        self.tasks = Tasks(self.shell, self.policies)
        self.usertasks = UserTasks(self.shell)
        self.search_tasks = SearchTasks(self.shell)
        self.spawns = Spawns(self.shell)
        self.servers = Servers(self.shell, self.usertasks, self.spawns, hub)
        self.agents = Agents(self.shell, connections, self.policies)
        self.bundles = Bundles(self.shell)
        self.bundle_retention = BundleRetention(self.shell, self.bundles)
        self.outputs = Outputs(self.shell)
        self.retention = Retention(self.shell, self.outputs)
        self.log_retention = LogRetention(self.shell)
        self._unknown_keys = UnknownKeys(self.shell)
        self.cluster = Cluster(self.shell)
        self.tokens = Tokens(self.shell)
        self.stream = Stream(self.shell)
        self.overview = Overview(self.shell, self.cluster, self.agents)
        self.queue = Queue(self.shell)
        self.provisioning = Provisioning(self.shell, elastic)
        self.jobs = Jobs(self.shell, self.provisioning.awaited)
        self.pools = PoolViews(self.shell)
        self.quotas = Quotas(self.shell)
        self.timeline = Timeline(self.shell)
        self.code = Code(self.shell)
        self._prepare_registry()
        self.nodes = Nodes(self.shell, self.agents)
        self.credentials = Credentials(self.shell)
        self.metrics = Metrics(self.shell, self.cluster)
        self.health = Health(self.shell, self.loops)
        self._prepare_records()
        self._prepare_loops(clock, cpu_clock)

    def _prepare_records(self) -> None:
        """Make what tells who did what, and who uses how much."""
        self.usage = Usage(self.shell)
        self.storage = Storage(self.shell)
        self.uids = UserUids(self.shell)
        self.audit = Audit(self.shell)
        self.refusals = Refusals(self.shell)
        self.limits = UserLimits(self.shell)

    def _prepare_storage(self) -> None:
        """Make what looks after stored files."""
        self.checking_tasks = CheckingTasks(self.shell)
        self.event_files = EventFiles(self.shell)
        self.trash = Trash(self.shell)

    def _prepare_registry(self) -> None:
        self.models = Models(self.shell)
        self.versions = Versions(self.shell)
        self.version_labels = Labels(self.shell)
        self.comparisons = Comparisons(self.shell, self.code)
        self.webhooks = Webhooks(self.shell)

    def _prepare_loops(self, clock: Clock, cpu_clock: Clock) -> None:
        """Set what the loops remember between their steps."""
        self._loops: list[asyncio.Task[None]] = []
        self._cpu_clock = cpu_clock
        self._known_tasks = KnownTasks()
        """The rows and tasks of the newest pass."""
        self._pass_cost = 0.0
        """Seconds of CPU that the newest pass took."""
        self._ticked = clock()
        self._failing: set[str] = set()
        """Loops whose last step failed."""
        self._reachable: dict[str, bool] = {}
        """Agents and whether they were heard lately, when the last tick looked."""

    async def start_task(self, caller: Caller, request: CreateTask) -> CreateTaskReply:
        """Start a user task, by the master or through the Hub."""
        if request.checks is not None:
            return await self.checking_tasks.start(caller, request)
        if request.reads is not None:
            return await self.reading_tasks.start(caller, request)
        if request.kind.served_by_hub:
            return await self.servers.start(caller, request)
        return await self.usertasks.create(caller, request)

    async def end_task(self, caller: Caller, task_id: str) -> TaskView:
        """End a user task, by the master or through the Hub."""
        return await self.servers.end(caller, task_id)

    async def start(self) -> None:
        """Restore what was in progress, then run the loops."""
        self.shell.started_at = self.shell.clock()
        await self.recover()
        periods: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (self.settings.tick, self.tick),
            (self.settings.heartbeat_period, self._beat),
            (LEASE_PERIOD, self._renew_lease),
            (TIDY_PERIOD, self.tidy),
            (RETRY_PERIOD, self._retry_pass),
            (GUARD_PERIOD, self.spawns.guard),
            (GUARD_PERIOD, self.servers.cull_idle),
            (GUARD_PERIOD, self.refusals.write_refusals),
            (GUARD_PERIOD, self.limits.write_hits),
            (RECONCILE_PERIOD, self.servers.reconcile),
        ]
        if self.provisioning.elastic:
            periods.append((provisioning.PERIOD, self.provisioning.poll))
        self._loops = [
            asyncio.create_task(self._every(period, work), name=work.__name__.strip("_")) for period, work in periods
        ]
        self._loops.append(asyncio.create_task(self._schedule_when_kicked(), name="schedule"))
        self._loops.append(asyncio.create_task(self.suggestions.run(), name="suggestions"))
        self._loops.append(asyncio.create_task(self.drawing.run(), name="points ahead"))
        if self.settings.webhooks:
            self._loops.append(asyncio.create_task(self._until_stopped(self.webhooks.run), name="webhooks"))
        if self.consumers.names:
            self._loops.append(asyncio.create_task(self.consumers.run(), name="consumers"))

    async def stop(self) -> None:
        """Stop the loops and release the readers. Tasks run on; the next start continues with them."""
        self.shell.stopped = True
        self.shell.wakeups.wake_all()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops = []
        await self.stream.stop()
        await self.figures.close()
        await self.servers.stop()
        with contextlib.suppress(Unavailable):  # the database is gone: the refusals of the last second are lost
            await self.refusals.write_refusals(closing=True)
        await self.shell.settle()
        self.shell.workers.close()

    def loops(self) -> dict[str, bool]:
        """Name -> whether it runs and its last step went well, of every loop that was started."""
        return {loop.get_name(): not loop.done() and loop.get_name() not in self._failing for loop in self._loops}

    # --- what the loops do; each is one step, so that tests and the simulation can take it themselves

    async def recover(self) -> None:
        """Expect the agents that were there before the start, finish deletions, and ask for a scheduling pass."""
        await self.agents.expect_known()
        await self.shell.write(_renew_task_tokens)
        for blocked in await self.shell.read(log_policies.all_excluded):
            self.shell.refusals[blocked] = math.inf

        def deleting(s: Session) -> list[int]:
            return list(s.scalars(select(ExperimentRow.id).where(ExperimentRow.state == ExperimentState.DELETING)))

        for experiment_id in [] if self.settings.is_copy else await self.shell.read(deleting):
            await removal.remove_experiment(self.shell, experiment_id)
        await self.removals.finish()
        await self.suggestions.recover()
        self.shell.scheduler_kick.set()

    async def tick(self) -> None:
        """Act on deadlines that have passed and on agents that are lost."""
        now = self.shell.clock()
        away, self._ticked = now - self._ticked, now
        if away > self.settings.agent_suspect_after:
            _log.warning("this master did not run for %.0f s; agents and tokens of tasks get as much longer", away)
            self.connections.forgive(away)
            await self.shell.write(_renew_task_tokens)
        await self.agents.lose_silent()
        reachable = {node.id: not node.suspect for node in self.connections.nodes(now)}
        if reachable != self._reachable:
            self._reachable = reachable
            await self.shell.write(lambda turn: turn.changed_cluster())
        due, over, drained, spent, searched, ended, collected, deleted, unmade = await self.shell.read(
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
        actions: list[Callable[[Turn], None]] = [partial(_act_on_deadlines, allocation_ids=due)] if due else []
        actions += [partial(time_limits.act, allocation_id=allocation_id) for allocation_id in over]
        actions += [partial(drains.act_on_deadline, agent_id=agent_id) for agent_id in drained]
        actions += [partial(budgets.act, experiment_id=key, reason=reason) for key, reason in spent]
        actions += [partial(search_tasks.act, experiment_id=key) for key in searched]
        actions += [partial(collecting.act, experiment_id=key) for key in ended]
        actions += [partial(collection_tasks.act, experiment_id=key) for key in collected]
        actions += [partial(removal.act, experiment_id=key) for key in deleted]
        actions += [partial(make_left_trials, experiment_id=key) for key in unmade * trials_to_make.PARTS]
        await self._each(actions)

    async def _each(self, actions: Sequence[Callable[[Turn], None]]) -> None:
        """Run each action in a turn of its own; a failure is raised when the others are done.

        Raises:
            Unavailable: The database is busy or broken; the rest has to wait.
            ExceptionGroup: Some failed otherwise.
        """
        failed = []
        for action in actions:
            try:
                await self.shell.write(action)
            except Unavailable:
                raise
            except Exception as error:  # a bug in one must not keep the others where they are; raised below
                failed.append(error)
        if failed:
            raise ExceptionGroup("some deadlines could not be acted upon", failed)

    async def schedule(self) -> None:
        """Assign what can start now and note why everything else waits."""
        shell = self.shell
        nodes = self.connections.nodes(shell.clock())
        halted, refusals, queues = shell.halted, dict(shell.refusals), dict(self.connections.queues)

        def place(turn: Turn) -> placement.Verdict:
            began = self._cpu_clock()
            verdict = placement.place(turn, nodes, refusals, self._known_tasks, shell.saving, queues, halted=halted)
            # Before the commit: a checkpoint that is committed next is one of theirs, though nobody was told yet.
            shell.saving = verdict.saving
            self._pass_cost = self._cpu_clock() - began
            if verdict.texts != shell.pending_reasons:
                turn.changed_cluster()
            return verdict

        verdict = await shell.write(place)
        shell.pending_reasons, shell.pending_codes = verdict.texts, verdict.codes

    async def tidy(self) -> None:
        """Extend and purge tokens, trim the event and audit logs, purge refusals, remove old tasks and output."""
        now = self.shell.clock()
        present = [node.id for node in self.connections.nodes(now) if not node.suspect]
        await self.shell.write(lambda turn: token_renewal.extend_tokens(turn, present, TIDY_PERIOD))
        lasting = {key for key, until in self.shell.refusals.items() if until == math.inf}
        if lasting:
            lasting.difference_update(await self.shell.read(log_policies.all_excluded))
        self.shell.refusals = {
            key: until for key, until in self.shell.refusals.items() if until > now and key not in lasting
        }

        def trim(turn: Turn) -> int:
            tokens.purge(turn.session, turn.now)
            needed = consumers.slowest(turn.session, self.consumers.names)
            return events.trim(turn.session, self.settings.event_keep, needed=needed) + audit.trim(
                turn, self.settings.audit_keep
            )

        while await self.shell.write(trim):
            await asyncio.sleep(0)
        await self.removals.finish()
        await self.retention.sweep()
        await self.bundle_retention.sweep()
        await self.log_retention.sweep()
        await self._unknown_keys.tell()

    async def _beat(self) -> None:
        self.agents.heartbeat()

    async def _renew_lease(self) -> None:
        await self.shell.store.renew()

    async def _retry_pass(self) -> None:
        if self.shell.pending_reasons:
            self.shell.scheduler_kick.set()

    # --- the loops

    async def _every(self, period: float, work: Callable[[], Awaitable[None]]) -> None:
        while not self.shell.stopped:
            await asyncio.sleep(period)
            self._note_step(work.__name__.strip("_"), done=await self._guarded(work))

    async def _until_stopped(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run what goes on until the master stops, again and again if it fails."""
        while not self.shell.stopped:
            if not await self._guarded(work):
                await asyncio.sleep(RETRY_PERIOD)

    async def _schedule_when_kicked(self) -> None:
        loop = asyncio.get_running_loop()
        passed = -math.inf
        while not self.shell.stopped:
            await wait_until(self.shell.scheduler_kick, 3600.0)
            if (pause_left := passed + min(REST * self._pass_cost, MOST_REST) - loop.time()) > 0:
                await asyncio.sleep(pause_left)
            if (early := passed + PASS_PERIOD - loop.time()) > 0 and self.shell.pending_reasons:
                await wait_until(self.shell.room, early)
            self.shell.scheduler_kick.clear()
            self.shell.room.clear()
            done = await self._guarded(self.schedule)
            passed = loop.time()
            self._note_step("schedule", done=done)
            if not done:
                await asyncio.sleep(self.settings.tick)
                self.shell.scheduler_kick.set()

    def _note_step(self, name: str, *, done: bool) -> None:
        (self._failing.discard if done else self._failing.add)(name)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Run one step of a loop: a busy database is tried again, a broken one ends the loops."""
        try:
            await work()
        except StoreBroken as error:
            _log.critical("the master stops: %s", error)
            self.shell.stopped = True
            self.shell.wakeups.wake_all()
        except Unavailable as error:
            _log.warning("%s; trying again", error.message)
            return False
        except Exception:
            # A bug in one step must not end the loop that finds dead agents.
            _log.exception("a step of the master failed; trying again")
            return False
        return True


def _renew_task_tokens(turn: Turn) -> None:
    """Renew the tokens of tasks after a time without a master, or a jump of its clock: that time does not count."""
    live = select(AllocationRow.id).where(AllocationRow.state.in_(placement.PLACED))
    turn.session.execute(
        update(TokenRow)
        .where(TokenRow.kind == "task", TokenRow.subject.in_(live))
        .values(expires_at=turn.now + turn.settings.task_token_ttl)
        .execution_options(synchronize_session=False)
    )
    tokens.extend_runs(turn.session, live, turn.now + turn.settings.task_token_ttl)


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


def _act_on_deadlines(turn: Turn, allocation_ids: list[str]) -> None:
    for allocation_id in allocation_ids:
        row = turn.allocation(allocation_id)
        if row is None or row.state not in placement.PLACED:
            continue
        if row.kill_sent_at is None:
            _log.info("allocation %s: its time to leave is over", row.id)
            apply_allocation(turn, row, DeadlinePassed(turn.now))
        else:
            row.kill_sent_at = turn.now
            send_kill(turn, row)
