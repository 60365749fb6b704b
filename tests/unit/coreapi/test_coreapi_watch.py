"""The preemption watch without a network, a clock or a thread."""

from __future__ import annotations

from detlab import errors
from detlab.backoff import Backoff
from detlab.core.preemption.watch import POLL_SECONDS, Pause, Poll, PreemptionWatch, StopAsking
from detlab.schemas.wire import PreemptReply

NO, YES = PreemptReply(preempt=False), PreemptReply(preempt=True, reason="pause")


def watch() -> PreemptionWatch:
    return PreemptionWatch(backoff=Backoff(first=1.0, cap=4.0, draw=lambda: 1.0))


def test_the_first_poll_returns_at_once_and_later_ones_are_long() -> None:
    w = watch()
    assert w.next_step() == Poll(0.0)
    w.replied(NO)
    assert w.next_step() == Poll(POLL_SECONDS)
    assert not w.preempted


def test_the_signal_ends_the_watch_and_stays_on() -> None:
    w = watch()
    w.replied(YES)
    assert w.preempted
    assert w.next_step() == StopAsking()
    w.replied(NO)
    assert w.preempted


def test_failures_back_off_and_a_reply_resets() -> None:
    w = watch()
    for pause in (1.0, 2.0):
        w.failed(errors.ClusterUnreachable("down"))
        assert w.next_step() == Pause(pause)
        assert w.next_step() == Poll(0.0)
    w.replied(NO)
    w.failed(errors.ClusterUnreachable("down"))
    assert w.next_step() == Pause(1.0)


def test_an_expired_token_is_only_a_pause() -> None:
    w = watch()
    w.failed(errors.AuthError("expired"))
    assert w.next_step() == Pause(1.0)
    assert w.fatal is None


def test_a_newer_attempt_ends_the_watch() -> None:
    w = watch()
    w.failed(errors.StaleAttempt("run 2 is current"))
    assert w.next_step() == StopAsking()
    assert isinstance(w.fatal, errors.StaleAttempt)
