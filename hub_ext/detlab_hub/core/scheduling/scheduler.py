"""Who starts now: strict priority, one agent per request.

Order: priority (lower number first), submission, order within a submission. A request that could run but
finds no room now *reserves* every agent on which it could ever run; later requests start only on agents where
no waiting predecessor could. Nothing is known of how long tasks run, so this is the only backfill that cannot
delay anybody: a small late job never overtakes a large early one on the slots that the large one waits for,
and a large job never holds back those that run where it cannot.

Requests that wait for another cause than room (`max_slots`, no suitable agent at all) reserve nothing. Tasks
without slots are planned apart: they neither wait for slots nor reserve any.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from detlab_hub.core.scheduling.fitting import Room, best_room, count_slots, may_ever_run, why_never
from detlab_hub.core.scheduling.model import AgentView, Assignment, Plan, Reason, ReasonCode, Request, Snapshot


def schedule(snapshot: Snapshot) -> Plan:
    """Plan what starts now. A pure function: the same snapshot gives the same plan.

    Every pending request is either assigned or has the one dominant reason why it waits.
    """
    ordered = sorted(
        snapshot.pending,
        key=lambda request: (request.priority, request.submitted_at, request.order, request.allocation_id),
    )
    planner = _Planner(snapshot)
    for request in ordered:
        planner.place(request)
    return Plan(tuple(planner.assignments), planner.reasons)


def impossible(
    snapshot: Snapshot, slots: int, user: str, max_slots: int | None = None, *, runtime: str = "process"
) -> Reason | None:
    """Why something of this size could never start on the agents known now; None if it could.

    For refusing a submit. With no agent connected nothing is refused: one may still come.
    """
    request = Request("", None, user, slots, max_slots=max_slots, runtime=runtime)
    over = _over_max_slots(request)
    if over is not None or not snapshot.agents:
        return over
    return why_never(request, snapshot.agents)


def could_run(agent: AgentView, slots: int, user: str) -> bool:
    """Whether an empty agent has the slots for a user's task, whatever its runtimes."""
    return agent.serves_user in (None, user) and len(agent.slots) >= slots


def _over_max_slots(request: Request) -> Reason | None:
    if request.max_slots is None or request.slots <= request.max_slots:
        return None
    return Reason(
        ReasonCode.OVER_MAX_SLOTS,
        f"needs {count_slots(request.slots)}, more than the experiment's max_slots {request.max_slots}",
    )


class _Planner:
    """One pass over the ordered requests."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.assignments: list[Assignment] = []
        self.reasons: dict[str, Reason] = {}
        self._agents = sorted(snapshot.agents, key=lambda agent: agent.id)
        self._rooms = {agent.id: Room(agent) for agent in self._agents}
        self._held: Counter[int] = Counter()
        for experiment_id, slots in snapshot.running:
            if experiment_id is not None:
                self._held[experiment_id] += slots
        self._reserved_by: dict[str, Request] = {}

    def place(self, request: Request) -> None:
        """Assign the request, or say why it waits."""
        reason = _over_max_slots(request) or self._at_max_slots(request)
        if reason is None:
            reason = why_never(request, self._agents) or self._fit(request)
        if reason is not None:
            self.reasons[request.allocation_id] = reason

    def _at_max_slots(self, request: Request) -> Reason | None:
        if request.max_slots is None or request.experiment_id is None or request.slots == 0:
            return None
        held = self._held[request.experiment_id]
        if held + request.slots <= request.max_slots:
            return None
        left = request.max_slots - held
        detail = "" if left <= 0 else f": {held} in use, needs {request.slots} more"
        return Reason(ReasonCode.AT_MAX_SLOTS, f"experiment is at its max_slots {request.max_slots}{detail}")

    def _fit(self, request: Request) -> Reason | None:
        possible = [room for room in self._rooms.values() if may_ever_run(request, room.agent)]
        open_rooms = [room for room in possible if room.open]
        reserved = self._reserved_by if request.slots else {}
        room = best_room(request, (room for room in open_rooms if room.agent.id not in reserved))
        if room is None:
            return self._wait(request, possible, open_rooms)
        slots = room.take(request.slots)
        self.assignments.append(Assignment(request.allocation_id, room.agent.id, slots))
        if request.experiment_id is not None:
            self._held[request.experiment_id] += request.slots
        return None

    def _wait(self, request: Request, possible: Sequence[Room], open_rooms: Sequence[Room]) -> Reason:
        if not open_rooms:
            return Reason(ReasonCode.UNAVAILABLE, "; ".join(_why_closed(room) for room in possible))
        if request.slots == 0:
            return Reason(ReasonCode.NO_FREE_SLOTS, "every agent already runs as many tasks without slots as it may")
        in_the_way = self._predecessor(request, open_rooms)
        for room in possible:
            self._reserved_by.setdefault(room.agent.id, request)
        if in_the_way is not None:
            # A reason is shown to the owner of what waits, who may not know whose the other is.
            who = in_the_way.allocation_id if in_the_way.user == request.user else "a task of somebody else"
            return Reason(
                ReasonCode.BEHIND, f"waits behind {who}, which comes first and needs {count_slots(in_the_way.slots)}"
            )
        return _no_free_slots(request, open_rooms)

    def _predecessor(self, request: Request, rooms: Iterable[Room]) -> Request | None:
        for room in rooms:
            if room.has_room(request.slots) and room.agent.id in self._reserved_by:
                return self._reserved_by[room.agent.id]
        return None


def _why_closed(room: Room) -> str:
    if room.agent.suspect:
        return f"contact to agent {room.agent.id} is lost, waiting for it to come back"
    return f"agent {room.agent.id} takes no new work"


def _no_free_slots(request: Request, rooms: Sequence[Room]) -> Reason:
    if len(rooms) == 1:
        free, total = len(rooms[0].free), len(rooms[0].agent.slots)
        have = f"{free} of {total} free"
    else:
        best = max(rooms, key=lambda room: (len(room.free), room.agent.id))
        free = sum(len(room.free) for room in rooms)
        total = sum(len(room.agent.slots) for room in rooms)
        have = f"{free} of {total} free"
        if free >= request.slots:
            have += f", at most {len(best.free)} of them on one agent"
    return Reason(ReasonCode.NO_FREE_SLOTS, f"waits for {request.slots} free {_slots(request)}: {have}")


def _slots(request: Request) -> str:
    return "slot" if request.slots == 1 else "slots"
