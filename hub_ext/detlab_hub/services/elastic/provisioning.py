"""Elastic pools, carried out: list the providers' instances, decide, launch and end.

The providers' own lists are the truth, so that a master that dies right after a launch forgets
no instance. What is kept in memory may be lost: idle times then start again from zero.

Which agents are instances is kept in the database (`instance_records`), so that agents of removed instances leave the
list of agents, independent of the master that launched them: once they run nothing, at the latest when their contact
was lost for so long that their tasks run elsewhere. The time of a launch request is kept there, too, for as long as the
provider's list may lag behind it: also for a master that was started in between, and where a later list is an older
one.

A launch without a reply may have succeeded, also if the same is refused afterwards. The same order is placed again,
which makes no second instance; an abandoned one counts until it would be listed.

Before an instance ends, its agent is closed to new work in the same transaction in which it is seen to run
nothing: no task is placed on an instance that ends.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.elasticwire import ElasticPoolView, InstanceView, ProviderErrorView
from detlab_hub.backends.instances import InstanceOrder, ProviderError, Trouble
from detlab_hub.backends.instances.configuration import ElasticPool
from detlab_hub.core.provisioning import (
    Instance,
    InstanceEnding,
    InstanceState,
    PoolHistory,
    ProvisioningDecision,
    Situation,
    decide,
    launch_failed,
    launched,
    measured,
    with_shape,
)
from detlab_hub.core.provisioning.shape import described
from detlab_hub.core.rights import ObjectKind
from detlab_hub.core.scheduling import Agent
from detlab_hub.services.admission import instance_records
from detlab_hub.services.admission.instance_records import InstanceNote, Learned
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import check_administers
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.placement import snapshots
from detlab_hub.services.placement.active_rows import PLACED
from detlab_hub.store.queries import parts, tokens
from detlab_hub.store.tables import AgentRow, AllocationRow

_log = logging.getLogger(__name__)
PERIOD = 5.0
"""Seconds between two polls: Determined's."""
_LISTED_WITHIN = 120.0
"""Seconds by which a provider's list may lag behind a launch."""
_ERRORS = 10


@dataclass
class _State:
    """The state of a pool that is kept between two polls."""

    history: PoolHistory = field(default_factory=PoolHistory)
    fresh: dict[str, Instance] = field(default_factory=dict)
    """Launched by this master, and not seen in a list yet; by agent."""
    unheard: dict[str, InstanceOrder] = field(default_factory=dict)
    """Orders of this master whose launches had no answer, and that are not seen in a list; by agent."""
    instances: tuple[Instance, ...] = ()
    unlisted: frozenset[str] = frozenset()
    """Of those, the ones that only an earlier master knew by the provider's name: they cannot be queried yet."""
    template: Agent | None = None
    """The shape of an instance, with the observed values."""
    decision: ProvisioningDecision | None = None
    errors: deque[ProviderErrorView] = field(default_factory=lambda: deque(maxlen=_ERRORS))
    enrolled: set[str] = field(default_factory=set)
    """Agents whose enrolment tokens are void already."""


def new_name(pool: str) -> str:
    """Generate the name of an instance's agent; it cannot be guessed, and is never used twice."""
    return f"{pool}-{secrets.token_hex(6)}"


class Provisioning(Service):
    """The elastic pools of this master.

    Args:
        context: Store and clock.
        pools: The pools.
        name: Names the agent of a new instance.
    """

    def __init__(
        self,
        context: ServiceContext,
        pools: Sequence[ElasticPool] = (),
        name: Callable[[str], str] = new_name,
    ) -> None:
        super().__init__(context)
        self._name = name
        self._pools = {pool.name: (pool, _State()) for pool in pools}

    @property
    def elastic(self) -> bool:
        """Whether there is any elastic pool."""
        return bool(self._pools)

    def list(self, caller: Caller) -> list[ElasticPoolView]:
        """List the pools with their instances and the last errors of their providers.

        Raises:
            Forbidden: The caller is not an administrator.
        """
        check_administers(caller, ObjectKind.SITE, "see instances")
        now = self._context.clock()
        return [self._view(pool, state, now) for pool, state in self._pools.values()]

    def awaited(self, pool: str, task: str) -> str:
        """Return which instances of a pool a task waits for, and since when; "" if it waits for none. None is named."""
        _, state = self._pools.get(pool, (None, None))
        if state is None or state.decision is None:
            return ""
        if task in state.decision.unfit and state.template is not None:
            return (
                "no instance is launched for it: as many as there may be could not run it"
                f" (each has {described(state.template)})"
            )
        found = state.decision.awaited.get(task)
        if found is None:
            return ""
        asked = [one.launched_at for one in state.instances if one.agent_id in found.starting]
        held_back = state.decision.held_back
        said = []
        if asked:
            said.append(f"waiting for {_count(len(asked))}, asked {self._context.clock() - min(asked):.0f} s ago")
        if found.new:
            why = "being asked for" if held_back is None else f"wanted ({held_back[1]})"
            said.append(f"{_count(found.new)}{' more' if asked else ''} {why}")
        return "; ".join(said)

    def _view(self, pool: ElasticPool, state: _State, now: float) -> ElasticPoolView:
        decision = state.decision
        return ElasticPoolView(
            name=pool.name,
            min_instances=pool.limits.min_instances,
            max_instances=pool.limits.max_instances,
            wanted=0 if decision is None else decision.wanted,
            held_back="" if decision is None or decision.held_back is None else decision.held_back[1],
            instances=[
                InstanceView(
                    id=instance.id,
                    agent_id=instance.agent_id,
                    state=instance.state.value,
                    agent_state=self._context.backend.state_of(instance.agent_id, now),
                    launched_at=instance.launched_at,
                    spot=instance.spot,
                )
                for instance in state.instances
            ],
            errors=list(reversed(state.errors)),
        )

    # --- the loop

    async def poll(self) -> None:
        """Poll every pool once, concurrently: a slow provider delays only its own pool."""
        if self._context.settings.is_copy:  # the instances are the original's
            return
        looks = (self._look_at(pool, state) for pool, state in self._pools.values())
        for found in await asyncio.gather(*looks, return_exceptions=True):
            if isinstance(found, BaseException):
                raise found

    async def _look_at(self, pool: ElasticPool, state: _State) -> None:
        try:
            listed = await asyncio.to_thread(pool.provider.list)
        except ProviderError as error:
            self._note(pool, state, "list", error)
            return
        now = self._context.clock()
        before = state.instances
        situation, notes = await self._situation(pool, state, listed, now)
        state.instances = situation.instances
        decision = decide(situation, state.history, pool.limits)
        state.decision, state.history = decision, decision.history
        await self._void_tokens(state)
        await self._note_listed(pool, notes, {i.agent_id for i in listed}, now)
        gone = (notes.keys() | {i.agent_id for i in before}) - {i.agent_id for i in situation.instances}
        gone -= state.unheard.keys()
        # One that still speaks is none whose instance is gone: a provider's list may be wrong for a while.
        await self._forget([one for one in sorted(gone) if self._context.backend.state_of(one, now) != "connected"])
        await self._end(pool, state, decision.endings)
        if not self._context.halted:
            await self._launch(pool, state, decision.launch)

    async def _situation(
        self, pool: ElasticPool, state: _State, listed: Sequence[Instance], now: float
    ) -> tuple[Situation, Mapping[str, InstanceNote]]:
        """Return the pool as the scheduler sees it, with every busy agent; and the records of its instances."""
        context, nodes, refusals = self._context, self._context.backend.nodes(now), dict(self._context.refusals)

        def read(s: Session) -> tuple[Situation, Mapping[str, InstanceNote], Learned | None]:
            snapshot = snapshots.snapshots(s, nodes, refusals, now, context.settings)[pool.name]
            held = frozenset(parts.agents_with(s, PLACED))
            notes = instance_records.of_pool(s, pool.name)
            known = instance_records.learned(s, pool.name, pool.like, now)
            return Situation(snapshot, pool.template, tuple(listed), now, held), notes, known

        situation, notes, known = await context.read(read)
        notes = await self._not_ahead(notes, now)
        alike = {agent_id for agent_id, note in notes.items() if note.like == pool.like}
        seen = measured(agent for agent in situation.pool.agents if agent.id in alike)
        before = known
        if seen is not None and with_shape(pool.template, seen) != pool.template:
            known = Learned(seen, now) if known is None else known.with_seen(seen, now)
        if known is not None and known is not before:
            await context.write(partial(instance_records.keep_learned, pool=pool.name, like=pool.like, known=known))
        state.template = with_shape(pool.template, None if known is None else known.shape)
        instances = self._with_unlisted(state, listed, notes, now)
        full = replace(situation, template=state.template, instances=instances, unlisted=state.unlisted)
        return full, notes

    async def _not_ahead(self, notes: Mapping[str, InstanceNote], now: float) -> Mapping[str, InstanceNote]:
        """Correct the records of instances that claim to have been requested later than now, and return all records.

        Such records come from a clock that was put back: for that much time an instance that never comes would count,
        and none would be launched in its place.
        """
        mended = {
            agent_id: replace(note, asked_at=now)
            for agent_id, note in notes.items()
            if note.asked_at is not None and note.asked_at > now
        }
        if mended:

            def keep(unit: UnitOfWork) -> None:
                for agent_id, note in mended.items():
                    instance_records.keep(unit, agent_id, note)

            await self._context.write(keep)
        return {**notes, **mended}

    def _with_unlisted(
        self, state: _State, listed: Sequence[Instance], notes: Mapping[str, InstanceNote], now: float
    ) -> tuple[Instance, ...]:
        """Return listed instances, and launches so recent that the list may lag behind."""
        names = {instance.agent_id for instance in listed}
        # Placed again for a while only: what is given up then counts, as below, from when it was asked for last. As in
        # notes, none is of a later time than now: a clock that was set back delays nothing.
        state.unheard = {
            name: replace(order, now=min(order.now, now))
            for name, order in state.unheard.items()
            if name in notes and name not in names and now < order.now + _LISTED_WITHIN
        }
        asked = {
            agent_id: note.asked_at
            for agent_id, note in notes.items()
            if note.asked_at is not None
            and now < note.asked_at + _LISTED_WITHIN
            and agent_id not in names | state.unheard.keys()
        }
        # What speaks is there, whatever a list says.
        asked |= {
            agent_id: note.asked_at or now
            for agent_id, note in notes.items()
            if agent_id not in names | asked.keys() and self._context.backend.state_of(agent_id, now) == "connected"
        }
        known = {one.agent_id: one for one in state.instances if one.agent_id not in state.unlisted} | state.fresh
        state.unlisted = frozenset(asked.keys() - known.keys())
        state.fresh = {name: one for name, one in state.fresh.items() if name in asked}
        unknown = (Instance(name, name, InstanceState.PENDING, launched_at=asked[name]) for name in state.unlisted)
        return (*listed, *(known[name] for name in asked if name in known), *unknown)

    async def _note_listed(
        self, pool: ElasticPool, notes: Mapping[str, InstanceNote], listed: set[str], now: float
    ) -> None:
        """Record the listed instances for good, and those that were launched before such records existed.

        An instance is recorded for good when no list can be older than it, and not as soon as its agent connects:
        agents fall silent for a while, and if a list then lacks the instance, nobody knows whether the instance is gone
        or the list is old.
        """

        def is_news(agent_id: str) -> bool:
            note = notes.get(agent_id)
            if note is None or note.asked_at is None:
                return note is None
            return now >= note.asked_at + _LISTED_WITHIN

        new = [agent_id for agent_id in sorted(listed) if is_news(agent_id)]
        if new:

            def note(unit: UnitOfWork) -> None:
                for agent_id in new:
                    known = notes.get(agent_id, InstanceNote(pool.name))
                    instance_records.keep(unit, agent_id, replace(known, asked_at=None))

            await self._context.write(note)

    def _note(self, pool: ElasticPool, state: _State, what: str, error: ProviderError) -> None:
        """Keep an error for people; when the same one recurs, only its time changes."""
        view = ProviderErrorView(
            time=self._context.clock(), doing=what, trouble=error.trouble.value, message=error.message, hint=error.hint
        )
        last = state.errors[-1] if state.errors else None
        if last is not None and (last.doing, last.message) == (view.doing, view.message):
            state.errors[-1] = view.model_copy(update={"times": last.times + 1})
            return
        state.errors.append(view)
        _log.warning("elastic pool %s: %s: %s", pool.name, what, error)

    # --- launches

    async def _launch(self, pool: ElasticPool, state: _State, count: int) -> None:
        for _ in range(count):
            order = await self._order(pool, state)
            try:
                made = await asyncio.to_thread(pool.provider.launch, order)
            except ProviderError as error:
                state.history = launch_failed(state.history, self._context.clock())
                self._note(pool, state, "launch", error)
                # What was asked for before may have been done then, whatever is said of this time.
                if error.may_be_done or order.agent_id in state.unheard:
                    state.unheard[order.agent_id] = order
                else:
                    await self._context.write(partial(_give_up, agent_id=order.agent_id))
                return  # the rest is for the next poll
            now = self._context.clock()
            state.unheard.pop(order.agent_id, None)
            state.history = launched(state.history, 1, now)
            state.fresh[made.agent_id] = replace(made, launched_at=now)
            state.instances = (*state.instances, made)
            _log.info("elastic pool %s: launched %s as agent %s", pool.name, made.id, made.agent_id)

    async def _order(self, pool: ElasticPool, state: _State) -> InstanceOrder:
        """Return the next order: first those without an answer, so that there are never more instances than allowed."""
        for order in state.unheard.values():
            await self._context.write(partial(_ask_again, pool=pool, agent_id=order.agent_id))
            return order
        return await self._context.write(partial(_order, pool=pool, agent_id=self._name(pool.name)))

    async def _void_tokens(self, state: _State) -> None:
        """Make void the enrolment tokens of connected agents: each has its own key and needs the token no more."""
        now = self._context.clock()
        there = {i.agent_id for i in state.instances if self._context.backend.state_of(i.agent_id, now) == "connected"}
        new = sorted(there - state.enrolled)
        if new:

            def void(unit: UnitOfWork) -> None:
                for agent_id in new:
                    instance_records.void_token(unit, agent_id)

            await self._context.write(void)
        state.enrolled = there

    # --- endings

    async def _end(self, pool: ElasticPool, state: _State, endings: Sequence[InstanceEnding]) -> None:
        known = {instance.id: instance for instance in state.instances}
        for ending in endings:
            instance = known[ending.id]
            if instance.trouble:
                failed = ProviderError(Trouble(instance.trouble), instance.why, instance.hint)
                self._note(pool, state, "launch", failed)
            if not await self._context.write(partial(_close, agent_id=instance.agent_id)):
                continue  # a task was placed there since we looked
            try:
                await asyncio.to_thread(pool.provider.terminate, [instance.id])
            except ProviderError as error:
                self._note(pool, state, "terminate", error)
                return
            _log.info("elastic pool %s: ended %s: %s", pool.name, instance.id, ending.detail)
            state.fresh.pop(instance.agent_id, None)
            state.instances = tuple(i for i in state.instances if i.id != instance.id)
            await self._forget([instance.agent_id], f"{pool.name}: {ending.detail}")

    async def _forget(self, agent_ids: Sequence[str], why: str = "its instance is gone") -> None:
        """Remove agents whose instances are gone from the list, once they run nothing."""
        for agent_id in agent_ids:
            if await self._context.write(partial(_strike, agent_id=agent_id, why=why)):
                self._context.backend.dismiss(agent_id)


def _count(instances: int) -> str:
    return "1 instance" if instances == 1 else f"{instances} instances"


def _order(unit: UnitOfWork, pool: ElasticPool, agent_id: str) -> InstanceOrder:
    """Make an order with a token that is valid while the agent is waited for, whichever request brings the instance."""
    until = unit.now + _LISTED_WITHIN + pool.limits.max_agent_starting_period
    token = instance_records.issue_token(unit, agent_id, until)
    instance_records.keep(unit, agent_id, InstanceNote(pool.name, pool.like, unit.now))
    audit.note(unit, audit.CLUSTER, "instance.launch", f"agent {agent_id}", f"of the elastic pool {pool.name}")
    return InstanceOrder(agent_id, pool.name, unit.now, token)


def _ask_again(unit: UnitOfWork, pool: ElasticPool, agent_id: str) -> None:
    """Record that an instance is requested again now: a list may lag behind its launch."""
    instance_records.keep(unit, agent_id, InstanceNote(pool.name, pool.like, unit.now))


def _give_up(unit: UnitOfWork, agent_id: str) -> None:
    """Abandon a failed launch: no agent will connect by this name."""
    instance_records.void_token(unit, agent_id)
    instance_records.forget(unit, agent_id)


def _is_busy(s: Session, agent_id: str) -> bool:
    placed = select(AllocationRow.id).where(parts.on_agent(agent_id), AllocationRow.state.in_(PLACED))
    return s.scalars(placed.limit(1)).first() is not None


def _close(unit: UnitOfWork, agent_id: str) -> bool:
    """Let nothing start on an agent any more; False if something runs there."""
    if _is_busy(unit.session, agent_id):
        return False
    row = unit.session.get(AgentRow, agent_id)
    if row is not None and row.enabled:
        row.enabled = False
        unit.changed_cluster()
    return True


def _strike(unit: UnitOfWork, agent_id: str, why: str) -> bool:
    """Remove an agent that will not return, with its key; False if something is still placed there."""
    if _is_busy(unit.session, agent_id):
        return False
    _give_up(unit, agent_id)
    tokens.revoke(unit.session, "agent", agent_id)
    row = unit.session.get(AgentRow, agent_id)
    if row is not None:
        unit.session.delete(row)
    audit.note(unit, audit.CLUSTER, "instance.end", f"agent {agent_id}", why)
    unit.changed_cluster()
    return True
