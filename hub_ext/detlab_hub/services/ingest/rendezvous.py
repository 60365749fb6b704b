"""The rendezvous of an attempt's nodes: which have come, and where the chief listens. None starts before all have."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from sqlalchemy.orm import Session

from detlab.errors import Conflict
from detlab.schemas.wire import Arrival, Rendezvous
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.base.fencing import current_holder
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle import gangs
from detlab_hub.services.lifecycle.launching import LOCALHOST
from detlab_hub.store.queries import parts
from detlab_hub.store.tables import AgentRow, PartRow


def arrive(unit: UnitOfWork, task: TaskCaller, arrival: Arrival) -> Rendezvous:
    """Record that a node has arrived. Repeating it changes nothing.

    Raises:
        Conflict: The attempt has no such node, or two of its nodes are on machines that cannot reach each other.
        StaleAttempt: The attempt is over.
    """
    row, _ = current_holder(unit.session, task)
    everywhere = parts.of_allocation(unit.session, row)
    mine = next((part for part in everywhere if part.rank == arrival.node), None)
    if mine is None or row.nodes < 2:  # one alone has nobody to wait for
        raise Conflict(f"attempt {row.run} has {row.nodes} node(s), and no node {arrival.node} of several")
    gangs.reported(unit, row, arrival.node)
    told = arrival.model_dump()
    if mine.meeting != told:
        mine.meeting = told
        _check_addresses(unit.session, everywhere)
    reply = _reply(unit.session, everywhere, arrival.number)
    if reply.ready:
        unit.outbox.wake_allocations.add(row.id)
    return reply


def read(s: Session, task: TaskCaller, number: int) -> Rendezvous:
    """Return the state of a rendezvous.

    Args:
        s: A session.
        task: One of the attempt's nodes.
        number: Which rendezvous of the attempt.

    Raises:
        StaleAttempt: The attempt is over.
    """
    row, _ = current_holder(s, task)
    return _reply(s, parts.of_allocation(s, row), number)


def _reply(s: Session, everywhere: Sequence[PartRow], number: int) -> Rendezvous:
    there = {part.rank: Arrival.model_validate(part.meeting) for part in everywhere if part.meeting is not None}
    missing = [part.agent_id for part in everywhere if part.rank not in there or there[part.rank].number < number]
    if missing or not there[0].port:
        return Rendezvous(missing=missing)
    chief = there[0]
    addresses = [_address_of(s, part) or LOCALHOST for part in everywhere]
    return Rendezvous(
        ready=True, port=chief.port, messages_port=chief.messages_port, key=chief.key, addresses=addresses
    )


def _address_of(s: Session, part: PartRow) -> str:
    """Return where a node is reached: as it says itself, or else its agent; "" if neither knows."""
    said = (part.meeting or {}).get("address")
    agent = None if said else s.get(AgentRow, part.agent_id)
    return str(said or ("" if agent is None else agent.address))


def _check_addresses(s: Session, everywhere: Sequence[PartRow]) -> None:
    """Refuse loopback addresses if the nodes are on several machines.

    Such an address is reached from its own machine only; torch listens on every node, not on the chief's alone.

    Raises:
        Conflict: One of the nodes has such an address, and they are on more than one machine.
    """
    machines = {part.meeting["machine"] for part in everywhere if part.meeting and part.meeting["machine"]}
    if len(machines) < 2:
        return
    for part in everywhere:
        told = _address_of(s, part)
        if part.meeting is not None:
            told = told or LOCALHOST
        if told and _is_loopback(told):
            raise Conflict(
                f"agent {part.agent_id} says that it is reached at {told}, and other nodes of this "
                "trial are on other machines",
                hint="start each agent with --address and an address at which the other machines reach it",
            )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
