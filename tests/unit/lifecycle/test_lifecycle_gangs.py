"""How an attempt on several agents ends, from the ends of its parts."""

from __future__ import annotations

import itertools

import pytest

from detlab.schemas.wire import AllocationState
from detlab_hub.core.lifecycle.allocation import Allocation, EndAttempt, EndKind, PartsGone, step
from detlab_hub.core.lifecycle.gang import breaks, verdict

F, P, K, X, R, L = (
    EndKind.FINISHED,
    EndKind.PREEMPTED,
    EndKind.KILLED,
    EndKind.FAILED,
    EndKind.REFUSED,
    EndKind.LOST,
)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((F, F), F),
        ((P, P), P),
        ((P, F), P),  # one was out before it heard that they were to leave
        ((K, F), K),
        ((X, K), X),  # the others were killed for the one that failed
        ((X, K, L), L),  # they failed for want of the node that was lost
        ((R, K), R),
        ((L, L), L),
    ],
)
def test_gang_ends_as_the_part_that_decides(ends: tuple[EndKind, ...], expected: EndKind) -> None:
    for order in itertools.permutations(ends):
        assert verdict(order) is expected


def test_gang_is_broken_by_what_fails_is_refused_or_is_lost_only() -> None:
    assert {kind for kind in EndKind if breaks(kind)} == {X, R, L}


@pytest.mark.parametrize("kind", [F, P, K, X, R, L])
def test_gang_that_is_gone_ends_its_allocation_once(kind: EndKind) -> None:
    ended = step(Allocation(AllocationState.TERMINATING, kill_sent_at=1.0), PartsGone(kind))
    assert (ended.state.state, ended.state.end) == (AllocationState.TERMINATED, kind)
    assert EndAttempt(kind) in ended.actions
    assert step(ended.state, PartsGone(F)).actions == ()
