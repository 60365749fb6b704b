"""The scheduler: who starts, where, and in which words the others wait."""

import hashlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detlab_hub.core.scheduling import (
    AgentView,
    Assignment,
    ReasonCode,
    Request,
    Snapshot,
    impossible,
    schedule,
)

calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A loaded machine is no failure."""


def agent(name, slots, used=0, **fields):
    ids = tuple(f"{name}/{i}" for i in range(slots))
    return AgentView(name, ids, frozenset(ids[:used]), **fields)


def request(name, slots, **fields):
    return Request(name, fields.pop("experiment_id", 1), fields.pop("user", "alice"), slots, **fields)


def plan(agents, pending, running=()):
    return schedule(Snapshot(tuple(agents), tuple(pending), tuple(running)))


def where(result):
    return {a.allocation_id: a.agent_id for a in result.assignments}


def words(result):
    return {name: reason.text for name, reason in result.reasons.items()}


def test_scheduling_first_come_first_served_within_a_priority():
    late, early, urgent = (
        request("late", 1, submitted_at=2.0),
        request("early", 1, submitted_at=1.0),
        request("urgent", 1, submitted_at=3.0, priority=1),
    )
    result = plan([agent("a", 2)], [late, early, urgent])
    assert [a.allocation_id for a in result.assignments] == ["urgent", "early"]
    assert words(result) == {"late": "waits for 1 free slot: 0 of 2 free"}


def test_scheduling_trials_of_one_experiment_go_in_creation_order():
    result = plan([agent("a", 1)], [request("t1", 1, order=1), request("t0", 1, order=0)])
    assert where(result) == {"t0": "a"}


def test_scheduling_takes_the_free_slots_in_the_agents_order():
    view = AgentView("a", ("g0", "g1", "g2", "g3"), frozenset({"g0", "g2"}))
    assert plan([view], [request("r", 2)]).assignments == (Assignment("r", "a", ("g1", "g3")),)


def test_scheduling_best_fit_takes_the_fullest_agent_that_has_room():
    agents = [agent("empty", 4), agent("half", 4, used=2), agent("full", 4, used=4)]
    assert where(plan(agents, [request("r", 2)])) == {"r": "half"}
    assert where(plan(agents, [request("r", 3)])) == {"r": "empty"}


def test_scheduling_ties_go_by_the_distance_of_the_md5_words():
    def word(name):
        return int.from_bytes(hashlib.md5(name.encode()).digest()[:8], "little")

    names = ["a", "b", "c", "d"]
    chosen = set()
    for i in range(40):
        name = f"1.trial-{i}.1"
        expected = min(names, key=lambda agent_id: (word(name) - word(agent_id)) % 2**64)
        assert where(plan([agent(n, 2) for n in names], [request(name, 1)])) == {name: expected}
        chosen.add(expected)
    assert len(chosen) > 1


def test_scheduling_a_small_late_job_does_not_overtake_a_large_early_one_on_its_agent():
    """The large job would starve if small ones kept filling the agent it waits for."""
    result = plan(
        [agent("a", 4, used=2)], [request("large", 4), request("small", 1, submitted_at=1.0, experiment_id=2)]
    )
    assert where(result) == {}
    assert words(result) == {
        "large": "waits for 4 free slots: 2 of 4 free",
        "small": "waits behind large, which comes first and needs 4 slots",
    }
    assert result.reasons["small"].code is ReasonCode.BEHIND


def test_scheduling_a_large_early_job_does_not_block_agents_that_are_too_small_for_it():
    result = plan([agent("a", 4, used=2), agent("b", 2)], [request("large", 4), request("small", 1, submitted_at=1.0)])
    assert where(result) == {"small": "b"}


@pytest.mark.parametrize(
    "blocked",
    [
        request("never", 9),
        request("foreign", 1, user="bob"),
        request("capped", 2, experiment_id=7, max_slots=2),
    ],
)
def test_scheduling_what_does_not_wait_for_room_holds_nobody_back(blocked):
    result = plan(
        [agent("a", 4, serves_user="alice")],
        [blocked, request("next", 4, submitted_at=1.0)],
        running=[(7, 2)],
    )
    assert where(result) == {"next": "a"}
    assert blocked.allocation_id in result.reasons


def test_scheduling_max_slots_counts_what_runs_and_what_starts_now():
    pending = [request(f"t{i}", 1, order=i, max_slots=3, experiment_id=5) for i in range(4)]
    result = plan([agent("a", 8)], [*pending, request("other", 1, experiment_id=6, order=9)], [(5, 1), (6, 4)])
    assert set(where(result)) == {"t0", "t1", "other"}
    assert words(result) == dict.fromkeys(["t2", "t3"], "experiment is at its max_slots 3")


def test_scheduling_max_slots_with_a_remainder_too_small_says_so():
    result = plan([agent("a", 8)], [request("t", 2, max_slots=3)], [(1, 2)])
    assert words(result) == {"t": "experiment is at its max_slots 3: 2 in use, needs 2 more"}


@pytest.mark.parametrize(
    ("agents", "wanted", "code", "text"),
    [
        ([], request("r", 1), "no_agent", "no agent is connected"),
        (
            [agent("a", 2), agent("b", 1)],
            request("r", 4),
            "too_large",
            "needs 4 slots; the largest agent has 2",
        ),
        ([agent("a", 0)], request("r", 1), "too_large", "needs 1 slot; the largest agent has 0"),
        (
            [agent("a", 2), agent("b", 8, serves_user="bob")],
            request("r", 4),
            "too_large",
            "needs 4 slots; the largest agent that serves user alice has 2",
        ),
        (
            [agent("x", 4, serves_user="bob")],
            request("r", 1),
            "wrong_user",
            "no agent runs tasks of user alice: agent x serves only user bob",
        ),
        (
            [agent("a", 2), agent("b", 2)],
            request("r", 1, excluded_agents=frozenset({"a", "b"})),
            "excluded",
            "every agent that is large enough is excluded for this trial: a, b",
        ),
        (
            [agent("a", 2)],
            request("r", 2, max_slots=1),
            "over_max_slots",
            "needs 2 slots, more than the experiment's max_slots 1",
        ),
        ([agent("a", 2, accepting=False)], request("r", 1), "unavailable", "agent a takes no new work"),
        (
            [agent("a", 2, suspect=True)],
            request("r", 1),
            "unavailable",
            "contact to agent a is lost, waiting for it to come back",
        ),
        (
            [agent("a", 2, used=1), agent("b", 2, used=1)],
            request("r", 2),
            "no_free_slots",
            "waits for 2 free slots: 2 of 4 free, at most 1 of them on one agent",
        ),
        ([agent("a", 4, used=4)], request("r", 2), "no_free_slots", "waits for 2 free slots: 0 of 4 free"),
    ],
)
def test_scheduling_the_reason_in_plain_words(agents, wanted, code, text):
    result = plan(agents, [wanted])
    assert result.assignments == ()
    assert result.reasons == {"r": result.reasons["r"]}
    assert (result.reasons["r"].code, result.reasons["r"].text) == (code, text)


def test_scheduling_zero_slot_tasks_run_anywhere_up_to_a_hundred_per_agent():
    busy = agent("a", 1, used=1, zero_slot_tasks=98)
    pending = [request(f"z{i}", 0, order=i) for i in range(3)]
    result = plan([busy], pending)
    assert where(result) == {"z0": "a", "z1": "a"}
    assert all(a.slots == () for a in result.assignments)
    assert result.reasons["z2"].code is ReasonCode.NO_FREE_SLOTS
    assert plan([agent("none", 0)], pending[:1]).assignments == (Assignment("z0", "none", ()),)


def test_scheduling_zero_slot_tasks_go_where_others_already_are():
    idle, visited, busy = agent("a", 0), agent("b", 2, zero_slot_tasks=50), agent("c", 2, used=1)
    assert where(plan([idle, visited, busy], [request("z", 0)])) == {"z": "c"}
    for name in ("z1", "z2", "z3"):
        assert where(plan([idle, visited], [request(name, 0)])) == {name: "b"}


def test_scheduling_zero_slot_tasks_do_not_wait_behind_slots_nor_for_max_slots():
    result = plan(
        [agent("a", 2, used=1)],
        [request("large", 2), request("zero", 0, order=1, max_slots=1)],
        [(1, 1)],
    )
    assert where(result) == {"zero": "a"}


@pytest.mark.parametrize(
    ("agents", "slots", "user", "max_slots", "code"),
    [
        ([], 4, "alice", None, None),
        ([agent("a", 4, used=4)], 4, "alice", None, None),
        ([agent("a", 4, suspect=True)], 4, "alice", None, None),
        ([agent("a", 4, accepting=False)], 4, "alice", None, None),
        ([agent("a", 4)], 5, "alice", None, "too_large"),
        ([agent("a", 4, serves_user="bob")], 0, "alice", None, "wrong_user"),
        ([agent("a", 4, serves_user="bob")], 4, "bob", None, None),
        ([agent("a", 4)], 2, "alice", 1, "over_max_slots"),
        ([agent("a", 0)], 0, "alice", None, None),
    ],
)
def test_scheduling_impossible_at_submit(agents, slots, user, max_slots, code):
    reason = impossible(Snapshot(tuple(agents)), slots, user, max_slots)
    assert (None if reason is None else reason.code) == code


# --- always -------------------------------------------------------------------------------------------------

USERS = ["alice", "bob"]


@st.composite
def snapshots(draw):
    agents = []
    for name in draw(st.lists(st.sampled_from("abcde"), unique=True, max_size=4)):
        slots = draw(st.integers(0, 5))
        ids = [f"{name}/{i}" for i in range(slots)]
        used = draw(st.sets(st.sampled_from(ids))) if ids else set()
        agents.append(
            AgentView(
                name,
                tuple(ids),
                frozenset(used),
                serves_user=draw(st.sampled_from([None, None, *USERS])),
                accepting=draw(st.sampled_from([True, True, True, False])),
                suspect=draw(st.sampled_from([False, False, False, True])),
                zero_slot_tasks=draw(st.sampled_from([0, 99, 100])),
            )
        )
    limits = {e: draw(st.sampled_from([None, 1, 3])) for e in range(3)}
    pending = []
    for i in range(draw(st.integers(0, 8))):
        experiment = draw(st.integers(0, 2))
        pending.append(
            Request(
                f"r{i}",
                experiment,
                draw(st.sampled_from(USERS)),
                draw(st.integers(0, 4)),
                priority=draw(st.sampled_from([1, 42, 99])),
                submitted_at=float(draw(st.integers(0, 2))),
                order=i,
                max_slots=limits[experiment],
                excluded_agents=frozenset(draw(st.sets(st.sampled_from("abcde"), max_size=1))),
            )
        )
    running = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=3))
    return Snapshot(tuple(agents), tuple(pending), tuple(running))


@calm
@given(snapshots())
def test_scheduling_i2_a_slot_has_at_most_one_owner(snapshot):
    agents = {view.id: view for view in snapshot.agents}
    requests = {r.allocation_id: r for r in snapshot.pending}
    taken = set()
    for assignment in schedule(snapshot).assignments:
        view = agents[assignment.agent_id]
        assert len(assignment.slots) == requests[assignment.allocation_id].slots
        for slot in assignment.slots:
            assert slot in view.slots
            assert slot not in view.used
            assert slot not in taken
            taken.add(slot)


@calm
@given(snapshots())
def test_scheduling_every_request_is_placed_or_has_a_reason(snapshot):
    result = schedule(snapshot)
    assert sorted([*where(result), *result.reasons]) == sorted(r.allocation_id for r in snapshot.pending)
    assert all(reason.text for reason in result.reasons.values())


@calm
@given(snapshots())
def test_scheduling_only_on_agents_that_may_take_the_task(snapshot):
    agents = {view.id: view for view in snapshot.agents}
    requests = {r.allocation_id: r for r in snapshot.pending}
    zero = dict.fromkeys(agents, 0)
    for assignment in schedule(snapshot).assignments:
        view, wanted = agents[assignment.agent_id], requests[assignment.allocation_id]
        assert view.serves_user in (None, wanted.user)
        assert view.accepting
        assert not view.suspect
        assert view.id not in wanted.excluded_agents
        zero[view.id] += wanted.slots == 0
        assert wanted.slots != 0 or view.zero_slot_tasks + zero[view.id] <= 100


@calm
@given(snapshots())
def test_scheduling_max_slots_is_respected(snapshot):
    requests = {r.allocation_id: r for r in snapshot.pending}
    started = {}
    for assignment in schedule(snapshot).assignments:
        wanted = requests[assignment.allocation_id]
        started[wanted.experiment_id] = started.get(wanted.experiment_id, 0) + wanted.slots
    for experiment, slots in started.items():
        limit = next(r.max_slots for r in snapshot.pending if r.experiment_id == experiment)
        held = sum(n for e, n in snapshot.running if e == experiment)
        assert limit is None or slots == 0 or held + slots <= limit


@calm
@given(snapshots(), st.randoms(use_true_random=False))
def test_scheduling_is_deterministic_whatever_the_order_of_the_snapshot(snapshot, random):
    agents, pending = list(snapshot.agents), list(snapshot.pending)
    random.shuffle(agents)
    random.shuffle(pending)
    shuffled = schedule(Snapshot(tuple(agents), tuple(pending), snapshot.running))
    assert shuffled == schedule(snapshot)


@calm
@given(snapshots())
def test_scheduling_no_later_request_takes_what_an_earlier_one_waits_for(snapshot):
    """On an agent where a request could ever run, nothing later starts while that request waits for room."""
    result = schedule(snapshot)
    placed = where(result)
    order = sorted(snapshot.pending, key=lambda r: (r.priority, r.submitted_at, r.order))
    for i, early in enumerate(order):
        reason = result.reasons.get(early.allocation_id)
        if reason is None or early.slots == 0 or reason.code not in ("no_free_slots", "behind"):
            continue
        could = {
            view.id
            for view in snapshot.agents
            if view.serves_user in (None, early.user)
            and view.id not in early.excluded_agents
            and len(view.slots) >= early.slots
        }
        for late in order[i + 1 :]:
            assert late.slots == 0 or placed.get(late.allocation_id) not in could


@calm
@given(snapshots())
def test_scheduling_wastes_no_slot_on_a_single_user_cluster_of_one_slot_tasks(snapshot):
    """Where nothing can be reserved (all need one slot), whoever waits for room finds none free."""
    pending = tuple(
        Request(r.allocation_id, None, "alice", 1, r.priority, r.submitted_at, r.order) for r in snapshot.pending
    )
    agents = tuple(AgentView(v.id, v.slots, v.used) for v in snapshot.agents)
    result = schedule(Snapshot(agents, pending))
    free = sum(len(v.slots) - len(v.used) for v in agents)
    assert len(result.assignments) == min(free, len(pending))
