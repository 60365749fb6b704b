"""The state machines: tables, examples in the order of section 5.4, and properties over any events."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab.schemas.wire import AllocationState, EndReason, ExperimentState, TrialState
from detlab_hub.core.lifecycle import allocation as a
from detlab_hub.core.lifecycle import experiment as e
from detlab_hub.core.lifecycle import gang
from detlab_hub.core.lifecycle import trial as t
from detlab_hub.core.lifecycle.allocation import EndKind, PreemptReason
from detlab_hub.core.lifecycle.table import (
    ALLOCATION_ORDER,
    STOPPING_ORDER,
    TRANSITIONS,
    IllegalTransitionError,
    check_move,
    check_progress,
    degrade,
)

# --- the table


def test_lifecycle_stopping_states_only_degrade():
    for place, state in enumerate(STOPPING_ORDER):
        stopping = TRANSITIONS[state] & set(STOPPING_ORDER)
        assert stopping == set(STOPPING_ORDER[place + 1 :])


def test_lifecycle_terminal_states_lead_to_deleting_or_back_when_a_user_continues():
    for state in ("COMPLETED", "CANCELED", "ERROR"):
        assert TRANSITIONS[state] == {"ACTIVE", "PAUSED", "DELETING"}
    assert TRANSITIONS["DELETED"] == frozenset()


def test_lifecycle_illegal_moves_are_refused():
    with pytest.raises(IllegalTransitionError, match="COMPLETED cannot become STOPPING_KILLED"):
        check_move("COMPLETED", "STOPPING_KILLED")
    with pytest.raises(IllegalTransitionError):
        check_progress(AllocationState.RUNNING, AllocationState.PENDING)


@pytest.mark.parametrize("old", STOPPING_ORDER)
@pytest.mark.parametrize("wanted", STOPPING_ORDER)
def test_lifecycle_degrade_takes_the_worse(old, wanted):
    worse = STOPPING_ORDER[max(STOPPING_ORDER.index(old), STOPPING_ORDER.index(wanted))]
    assert degrade(old, wanted) == worse
    assert degrade("ACTIVE", wanted) == wanted


# --- allocations


GRACES = a.Graces(preemption=100, stop=10, stop_acked=60)
RUNNING = a.Allocation(state=AllocationState.RUNNING)


def leave(reason: PreemptReason, now: float = 0.0) -> a.LeaveRequested:
    return a.LeaveRequested(reason, now, GRACES)


def ends(step: a.AllocationStep) -> list[EndKind]:
    return [action.kind for action in step.actions if isinstance(action, a.EndAttempt)]


def kills(step: a.AllocationStep) -> bool:
    return any(isinstance(action, a.SendKill) for action in step.actions)


def test_lifecycle_stop_has_ten_seconds_unacknowledged_and_sixty_acknowledged():
    asked = a.step(RUNNING, leave(PreemptReason.STOP, 1000.0)).state
    assert asked.term_at == 1010.0
    assert not kills(a.step(asked, a.DeadlinePassed(1009.9)))
    assert kills(a.step(asked, a.DeadlinePassed(1010.0)))
    acked = a.step(asked, a.LeaveAcknowledged(1005.0, GRACES)).state
    assert acked.term_at == 1060.0
    assert not kills(a.step(acked, a.DeadlinePassed(1059.0)))
    assert kills(a.step(acked, a.DeadlinePassed(1060.0)))


@pytest.mark.parametrize("reason", [PreemptReason.PAUSE, PreemptReason.DRAIN, PreemptReason.CANCEL])
def test_lifecycle_other_requests_have_the_preemption_timeout(reason):
    asked = a.step(RUNNING, leave(reason, 1000.0)).state
    assert asked.term_at == 1100.0
    assert a.step(asked, a.LeaveAcknowledged(1001.0, GRACES)).state.term_at == 1100.0


def test_lifecycle_a_stop_shortens_the_deadline_of_a_pause_and_stays_the_reason():
    paused = a.step(RUNNING, leave(PreemptReason.PAUSE, 1000.0)).state
    stopped = a.step(paused, leave(PreemptReason.STOP, 1001.0)).state
    assert (stopped.preempt_reason, stopped.term_at) == (PreemptReason.STOP, 1011.0)
    again = a.step(stopped, leave(PreemptReason.DRAIN, 1002.0)).state
    assert (again.preempt_reason, again.term_at) == (PreemptReason.STOP, 1011.0)


@pytest.mark.parametrize("later", [PreemptReason.PAUSE, PreemptReason.DRAIN, PreemptReason.DEVICE])
def test_a_preemption_stays_one_when_its_node_is_drained_or_loses_a_slot_or_the_trial_is_paused(
    later: PreemptReason,
) -> None:
    """Else it was forgotten, and the trial preempted once more than the bound allows (I10)."""
    preempted = a.step(RUNNING, leave(PreemptReason.PREEMPT, 1000.0)).state
    both = a.step(preempted, leave(later, 1001.0)).state
    assert (both.preempt_reason, both.preempt_at) == (PreemptReason.PREEMPT, 1000.0)
    ended = a.step(both, leave(PreemptReason.CANCEL, 1002.0)).state
    assert ended.preempt_reason is PreemptReason.CANCEL


def test_a_trial_that_was_paused_is_not_ended_when_its_attempt_outlives_the_maximum_time_while_it_saves():
    """It was completed for good, and its user, who only wanted its slots, could not go on with it."""
    paused = t.step(t.TrialStatus(attempt=t.Attempt.LIVE, run=1), t.TrialPauseRequested()).state
    assert t.step(paused, t.TimeUp()) == t.TrialStep(paused)
    gone = t.step(paused, t.TrialAttemptEnded(EndKind.PREEMPTED)).state
    assert gone.state is TrialState.PAUSED
    assert t.step(gone, t.TrialActivateRequested()).actions == (t.RequestTrialAllocation(2),)


def test_lifecycle_nothing_is_saved_before_a_task_runs():
    assigned = a.Allocation(state=AllocationState.ASSIGNED)
    step = a.step(assigned, leave(PreemptReason.PAUSE))
    assert kills(step)
    assert step.state.state is AllocationState.TERMINATING
    assert ends(a.step(a.Allocation(), leave(PreemptReason.PAUSE))) == [EndKind.WITHDRAWN]


@pytest.mark.parametrize(
    ("state", "exit_code", "kind"),
    [
        (RUNNING, 0, EndKind.FINISHED),
        (RUNNING, 1, EndKind.FAILED),
        (RUNNING, -9, EndKind.FAILED),
        (RUNNING, None, EndKind.FAILED),
        (a.Allocation(AllocationState.RUNNING, acked_at=1.0), 0, EndKind.PREEMPTED),
        (a.Allocation(AllocationState.RUNNING, acked_at=1.0), 1, EndKind.FAILED),
        (a.Allocation(AllocationState.TERMINATING, kill_sent_at=1.0), 137, EndKind.KILLED),
        (a.Allocation(AllocationState.TERMINATING, kill_sent_at=1.0), 0, EndKind.KILLED),
        (a.Allocation(AllocationState.TERMINATING, acked_at=1.0, kill_sent_at=2.0), 0, EndKind.PREEMPTED),
    ],
)
def test_lifecycle_how_a_part_ended_that_exited(state, exit_code, kind):
    assert a.kind_of_exit(state, exit_code) is kind


@pytest.mark.parametrize("kind", [kind for kind in EndKind if kind is not EndKind.WITHDRAWN])
def test_lifecycle_an_attempt_on_one_node_ends_as_its_only_part(kind):
    gone = a.PartsGone(gang.verdict([kind]))
    step = a.step(RUNNING, gone)
    assert ends(step) == [kind]
    assert step.state.state is AllocationState.TERMINATED
    assert a.step(step.state, gone) == a.AllocationStep(step.state)


times = st.floats(min_value=0, max_value=1e6)
allocation_events = st.one_of(
    st.just(a.Assigned()),
    st.just(a.AllocationStarted()),
    st.builds(leave, st.sampled_from(list(PreemptReason)), times),
    st.builds(a.LeaveAcknowledged, times, st.just(GRACES)),
    st.builds(a.AllocationKillRequested, times),
    st.builds(a.DeadlinePassed, times),
    st.builds(a.PartsGone, st.sampled_from(EndKind)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(allocation_events, max_size=12))
def test_lifecycle_allocations_never_go_back_and_end_once(events):
    state, ended = a.Allocation(), 0
    for event in events:
        step = a.step(state, event)
        assert ALLOCATION_ORDER.index(step.state.state) >= ALLOCATION_ORDER.index(state.state)
        ended += len(ends(step))
        state = step.state
    assert ended == (1 if state.state is AllocationState.TERMINATED else 0)
    assert (state.end is not None) == (state.state is AllocationState.TERMINATED)


# --- trials


def live(**more) -> t.TrialStatus:
    return t.TrialStatus(**{"attempt": t.Attempt.LIVE, "run": 1, "metric": t.MetricState.SEEN, **more})


def closed(step: t.TrialStep) -> bool:
    return any(isinstance(action, t.CloseTrial) for action in step.actions)


def requested(step: t.TrialStep) -> list[int]:
    return [action.run for action in step.actions if isinstance(action, t.RequestTrialAllocation)]


def told(step: t.TrialStep) -> list[str]:
    return [action.reason for action in step.actions if isinstance(action, t.TellSearcherEarly)]


@pytest.mark.parametrize(
    ("trial", "kind", "state", "reason", "early"),
    [
        # 1. a stopping state becomes its terminal one, ERROR if the task failed by itself
        (live(state=TrialState.STOPPING_COMPLETED, end_reason=EndReason.STOPPED), EndKind.PREEMPTED,
         TrialState.COMPLETED, EndReason.STOPPED, []),
        (live(state=TrialState.STOPPING_COMPLETED, end_reason=EndReason.STOPPED), EndKind.KILLED,
         TrialState.COMPLETED, EndReason.STOPPED, []),
        (live(state=TrialState.STOPPING_COMPLETED, end_reason=EndReason.STOPPED), EndKind.LOST,
         TrialState.COMPLETED, EndReason.STOPPED, []),
        (live(state=TrialState.STOPPING_COMPLETED, end_reason=EndReason.STOPPED), EndKind.FAILED,
         TrialState.ERROR, EndReason.ERROR, ["errored"]),
        (live(state=TrialState.STOPPING_CANCELED, end_reason=EndReason.CANCELED), EndKind.PREEMPTED,
         TrialState.CANCELED, EndReason.CANCELED, ["user_canceled"]),
        (live(state=TrialState.STOPPING_KILLED, end_reason=EndReason.KILLED), EndKind.KILLED,
         TrialState.CANCELED, EndReason.KILLED, ["user_canceled"]),
        (live(state=TrialState.STOPPING_ERROR, end_reason=EndReason.ERROR), EndKind.KILLED,
         TrialState.ERROR, EndReason.ERROR, ["errored"]),
        # 6. failures are counted, and at last it is over
        (live(restarts=5), EndKind.FAILED, TrialState.ERROR, EndReason.ERROR, ["errored"]),
        (live(max_restarts=0), EndKind.FAILED, TrialState.ERROR, EndReason.ERROR, ["errored"]),
        # 7. exit 0 of its own accord
        (live(), EndKind.FINISHED, TrialState.COMPLETED, EndReason.COMPLETED, []),
        (live(metric=t.MetricState.REQUIRED), EndKind.FINISHED, TrialState.ERROR, EndReason.NO_METRICS, ["errored"]),
        (live(metric=t.MetricState.UNKNOWN, early_exit=t.USER_REQUESTED_STOP), EndKind.FINISHED,
         TrialState.ERROR, EndReason.NO_METRICS, ["errored"]),
        (live(state=TrialState.PAUSED), EndKind.FINISHED, TrialState.COMPLETED, EndReason.COMPLETED, []),
        # 8. InvalidHP, even after a preemption
        (live(early_exit=t.INVALID_HP), EndKind.FAILED, TrialState.COMPLETED, EndReason.INVALID_HP, []),
        (live(early_exit=t.INVALID_HP), EndKind.FINISHED, TrialState.COMPLETED, EndReason.INVALID_HP, []),
        (live(early_exit=t.INVALID_HP), EndKind.PREEMPTED, TrialState.COMPLETED, EndReason.INVALID_HP, []),
        (live(early_exit=t.INVALID_HP, metric=t.MetricState.REQUIRED), EndKind.FINISHED,
         TrialState.COMPLETED, EndReason.INVALID_HP, []),
        (live(early_exit=t.ERRORED), EndKind.FINISHED, TrialState.ERROR, EndReason.ERROR, ["errored"]),
        (live(early_exit=t.USER_REQUESTED_STOP), EndKind.PREEMPTED, TrialState.COMPLETED, EndReason.COMPLETED, []),
    ],
)  # fmt: skip
def test_lifecycle_exits_that_end_a_trial(trial, kind, state, reason, early):
    step = t.step(trial, t.TrialAttemptEnded(kind))
    assert (step.state.state, step.state.end_reason, told(step)) == (state, reason, early)
    assert closed(step)
    assert requested(step) == []


@pytest.mark.parametrize("kind", [EndKind.LOST, EndKind.REFUSED, EndKind.KILLED, EndKind.WITHDRAWN, EndKind.PREEMPTED])
def test_lifecycle_what_is_never_counted_runs_again(kind):
    step = t.step(live(restarts=5), t.TrialAttemptEnded(kind))
    assert requested(step) == [2]
    assert step.state.restarts == 5
    paused = t.step(live(state=TrialState.PAUSED), t.TrialAttemptEnded(kind))
    assert (paused.state.state, paused.actions) == (TrialState.PAUSED, ())


@pytest.mark.parametrize("state", [TrialState.ACTIVE, TrialState.PAUSED])
def test_lifecycle_a_metric_that_no_trial_has_reported_pauses_the_search_and_keeps_the_trial(state):
    step = t.step(live(state=state, metric=t.MetricState.UNKNOWN), t.TrialAttemptEnded(EndKind.FINISHED))
    assert (step.state.state, step.state.end_reason) == (TrialState.PAUSED, None)
    assert step.actions == (t.PauseWithoutMetric(),)
    assert requested(t.step(step.state, t.TrialActivateRequested())) == [2]


def test_lifecycle_a_failure_that_lasts_ends_a_trial_at_once_and_only_a_failure_does():
    step = t.step(live(restarts=1), t.TrialAttemptEnded(EndKind.FAILED, t.Retry.NEVER))
    assert (step.state.state, step.state.end_reason, step.state.restarts) == (TrialState.ERROR, EndReason.ERROR, 1)
    assert closed(step)
    assert requested(step) == []
    invalid = t.step(live(early_exit=t.INVALID_HP), t.TrialAttemptEnded(EndKind.FAILED, t.Retry.NEVER))
    assert invalid.state.end_reason is EndReason.INVALID_HP


@pytest.mark.parametrize("restarts", [0, 1, 5])
def test_lifecycle_an_attempt_whose_checkpoint_was_gone_burns_no_restart_where_an_earlier_one_serves(restarts):
    old = live(restarts=restarts)
    step = t.step(old, t.TrialAttemptEnded(EndKind.FAILED, t.Retry.FREE))
    assert requested(step) == [old.run + 1]
    assert (step.state.state, step.state.restarts) == (TrialState.ACTIVE, restarts)
    paused = t.step(live(state=TrialState.PAUSED), t.TrialAttemptEnded(EndKind.FAILED, t.Retry.FREE))
    assert (paused.state.state, paused.actions) == (TrialState.PAUSED, ())
    told = t.step(live(early_exit=t.INVALID_HP), t.TrialAttemptEnded(EndKind.FAILED, t.Retry.FREE))
    assert told.state.end_reason is EndReason.INVALID_HP


@pytest.mark.parametrize(
    ("event", "state", "reason"),
    [
        (t.StopDecided(finished=False), TrialState.COMPLETED, EndReason.STOPPED),
        (t.TrialCancelRequested(), TrialState.CANCELED, EndReason.CANCELED),
        (t.Condemned(), TrialState.ERROR, EndReason.ERROR),
    ],
)
def test_lifecycle_who_is_slain_while_leaving_ends_as_was_decided(event, state, reason):
    """A trial killed from outside between the search's stop and its own end was an error, and the search was told."""
    leaving = t.step(live(), event).state
    step = t.step(leaving, t.TrialAttemptEnded(EndKind.FAILED, killed=True))
    assert (step.state.state, step.state.end_reason) == (state, reason)
    assert told(step) == (
        [] if state is TrialState.COMPLETED else told(t.step(leaving, t.TrialAttemptEnded(EndKind.KILLED)))
    )
    assert t.step(leaving, t.TrialAttemptEnded(EndKind.FAILED)).state.state is TrialState.ERROR
    assert requested(t.step(live(), t.TrialAttemptEnded(EndKind.FAILED, killed=True))) == [2]
    assert t.step(live(), t.TrialAttemptEnded(EndKind.FAILED, killed=True)).state.restarts == 1


@pytest.mark.parametrize("restarts", [0, 5])
def test_lifecycle_who_is_slain_before_it_could_pause_is_paused(restarts):
    """A trial killed just before a withdrawal paused it ended as an error: its exit was counted after the pause."""
    leaving = t.step(live(restarts=restarts, max_restarts=restarts), t.TrialPauseRequested()).state
    step = t.step(leaving, t.TrialAttemptEnded(EndKind.FAILED, killed=True))
    assert (step.state.state, step.state.restarts, step.actions) == (TrialState.PAUSED, restarts, ())
    held = t.step(live(max_restarts=0), t.HoldDecided()).state
    step = t.step(held, t.TrialAttemptEnded(EndKind.FAILED, killed=True))
    assert (step.state.state, step.actions) == (TrialState.PAUSED, (t.TellSearcherPaused(),))
    assert t.step(leaving, t.TrialAttemptEnded(EndKind.FAILED)).state.state is TrialState.ERROR
    told = t.step(
        live(state=TrialState.PAUSED, early_exit=t.INVALID_HP), t.TrialAttemptEnded(EndKind.FAILED, killed=True)
    )
    assert told.state.end_reason is EndReason.INVALID_HP


def test_lifecycle_failures_are_counted_up_to_max_restarts():
    trial, runs = t.step(t.TrialStatus(max_restarts=2, metric=t.MetricState.SEEN), t.TrialRowCreated()).state, 1
    while not trial.state.terminal:
        trial = t.step(trial, t.TrialAttemptEnded(EndKind.FAILED)).state
        runs += not trial.state.terminal
    assert (runs, trial.restarts, trial.state) == (3, 2, TrialState.ERROR)


def test_lifecycle_a_missing_metric_is_a_warning_where_the_search_can_do_without():
    step = t.step(live(metric=t.MetricState.MISSED), t.TrialAttemptEnded(EndKind.FINISHED))
    assert step.state.state is TrialState.COMPLETED
    assert t.WarnNeverReported() in step.actions


def test_lifecycle_invalid_hp_is_told_to_the_searcher_once():
    step = t.step(live(), t.EarlyExitReported(t.INVALID_HP))
    assert told(step) == ["invalid_hp"]
    assert t.step(step.state, t.EarlyExitReported(t.INVALID_HP)).actions == ()
    stop = t.step(step.state, t.StopDecided())
    assert stop.state.end_reason is EndReason.INVALID_HP


def test_lifecycle_a_trial_without_a_task_ends_at_once():
    waiting = t.TrialStatus(state=TrialState.PAUSED, run=1)
    for event, state in [
        (t.StopDecided(), TrialState.COMPLETED),
        (t.TrialCancelRequested(), TrialState.CANCELED),
        (t.TrialKillRequested(), TrialState.CANCELED),
        (t.Condemned(), TrialState.ERROR),
    ]:
        step = t.step(waiting, event)
        assert step.state.state is state
        assert closed(step)


def test_lifecycle_activated_while_still_leaving_asks_again_when_it_has_left():
    paused = t.step(live(), t.TrialPauseRequested()).state
    active = t.step(paused, t.TrialActivateRequested())
    assert requested(active) == []
    assert requested(t.step(active.state, t.TrialAttemptEnded(EndKind.PREEMPTED))) == [2]


trial_events = st.one_of(
    st.sampled_from(
        [
            t.TrialRowCreated(),
            t.StopDecided(),
            t.TrialPauseRequested(),
            t.TrialActivateRequested(),
            t.TrialCancelRequested(),
            t.TrialKillRequested(),
            t.Condemned(),
        ]
    ),
    st.builds(t.EarlyExitReported, st.sampled_from(t.EARLY_EXITS)),
    st.builds(t.TrialAttemptEnded, st.sampled_from(list(EndKind))),
)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 3), st.sampled_from(list(t.MetricState)), st.lists(trial_events, max_size=20))
def test_lifecycle_trials_only_degrade_and_end_once(max_restarts, metric, events):
    trial, closings = t.TrialStatus(max_restarts=max_restarts, metric=metric), 0
    for event in events:
        if isinstance(event, t.TrialAttemptEnded) and trial.attempt is t.Attempt.NONE:
            continue
        step = t.step(trial, event)
        check_move(trial.state, step.state.state)
        assert step.state.restarts <= max_restarts
        assert step.state.run >= trial.run
        for action in step.actions:
            if isinstance(action, t.AskToLeave | t.KillTrialAttempt):
                assert trial.attempt is t.Attempt.LIVE
            if isinstance(action, t.RequestTrialAllocation):
                assert trial.attempt is t.Attempt.NONE or isinstance(event, t.TrialAttemptEnded)
        closings += closed(step)
        trial = step.state
    assert closings == (1 if trial.state.terminal else 0)
    if trial.state.terminal:
        assert trial.end_reason is not None
        assert trial.attempt is t.Attempt.NONE


# --- experiments


@pytest.mark.parametrize(
    ("old", "event", "new"),
    [
        (ExperimentState.ACTIVE, e.ExperimentPauseRequested(), ExperimentState.PAUSED),
        (ExperimentState.PAUSED, e.ExperimentActivateRequested(), ExperimentState.ACTIVE),
        (ExperimentState.PAUSED, e.ExperimentCancelRequested(), ExperimentState.STOPPING_CANCELED),
        (ExperimentState.STOPPING_CANCELED, e.ExperimentKillRequested(), ExperimentState.STOPPING_KILLED),
        (ExperimentState.STOPPING_KILLED, e.ExperimentCancelRequested(), ExperimentState.STOPPING_KILLED),
        (ExperimentState.STOPPING_KILLED, e.LastTrialClosed(), ExperimentState.CANCELED),
        (ExperimentState.STOPPING_ERROR, e.LastTrialClosed(), ExperimentState.ERROR),
        (ExperimentState.ACTIVE, e.LastTrialClosed(), ExperimentState.ACTIVE),
        (ExperimentState.ACTIVE, e.SearchEnded(cancel=False, failure=False), ExperimentState.COMPLETED),
        (ExperimentState.PAUSED, e.SearchEnded(cancel=False, failure=False), ExperimentState.COMPLETED),
        (ExperimentState.ACTIVE, e.SearchEnded(cancel=False, failure=True), ExperimentState.ERROR),
        (ExperimentState.ACTIVE, e.SearchEnded(cancel=True, failure=False), ExperimentState.CANCELED),
        (ExperimentState.STOPPING_KILLED, e.SearchEnded(cancel=False, failure=False), ExperimentState.STOPPING_KILLED),
        (ExperimentState.COMPLETED, e.ExperimentKillRequested(), ExperimentState.COMPLETED),
        (ExperimentState.COMPLETED, e.ExperimentReopened(), ExperimentState.ACTIVE),
        (ExperimentState.CANCELED, e.ExperimentReopened(), ExperimentState.ACTIVE),
        (ExperimentState.ERROR, e.ExperimentReopened(), ExperimentState.ACTIVE),
    ],
)
def test_lifecycle_experiment_moves(old, event, new):
    assert e.step(old, event).state is new


@pytest.mark.parametrize("old", [ExperimentState.COMPLETED, ExperimentState.STOPPING_CANCELED])
@pytest.mark.parametrize("event", [e.ExperimentPauseRequested(), e.ExperimentActivateRequested()])
def test_lifecycle_what_has_ended_or_is_ending_cannot_be_paused_or_activated(old, event):
    with pytest.raises(e.RequestRefusedError, match=str(old)):
        e.step(old, event)


@pytest.mark.parametrize(
    "old", [ExperimentState.ACTIVE, ExperimentState.PAUSED, ExperimentState.STOPPING_KILLED, ExperimentState.DELETING]
)
def test_lifecycle_only_what_has_ended_is_reopened(old):
    with pytest.raises(e.RequestRefusedError, match="has not ended"):
        e.step(old, e.ExperimentReopened())


@pytest.mark.parametrize("state", [TrialState.COMPLETED, TrialState.ERROR, TrialState.CANCELED])
def test_lifecycle_a_reopened_trial_waits_for_its_search_and_begins_with_a_new_attempt(state):
    ended = t.TrialStatus(state, run=3, restarts=2, early_exit=t.ERRORED, end_reason=EndReason.ERROR)
    reopened = t.step(ended, t.TrialReopened())
    assert reopened.actions == ()
    assert reopened.state == t.TrialStatus(TrialState.PAUSED, run=3, hold=t.Hold.SEARCH)
    assert t.step(reopened.state, t.TrialActivateRequested()).actions == ()
    resumed = t.step(reopened.state, t.ReleaseDecided())
    assert resumed.actions == (t.RequestTrialAllocation(4),)
    assert resumed.state.state is TrialState.ACTIVE
    # Anything else leaves what has ended as it is, and one that has not is not reopened.
    assert t.step(ended, t.ReleaseDecided()).state is ended
    assert t.step(resumed.state, t.TrialReopened()).state is resumed.state


experiment_events = st.one_of(
    st.sampled_from(
        [
            e.ExperimentPauseRequested(),
            e.ExperimentActivateRequested(),
            e.ExperimentCancelRequested(),
            e.ExperimentKillRequested(),
            e.SearchBroke(),
            e.LastTrialClosed(),
        ]
    ),
    st.builds(e.SearchEnded, cancel=st.booleans(), failure=st.booleans()),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(experiment_events, max_size=12))
def test_lifecycle_experiments_only_degrade_and_finish_once(events):
    state, finished = ExperimentState.ACTIVE, 0
    for event in events:
        try:
            step = e.step(state, event)
        except e.RequestRefusedError:
            continue
        check_move(state, step.state)
        finished += sum(isinstance(action, e.FinishExperiment) for action in step.actions)
        state = step.state
    assert finished == (1 if state.terminal else 0)
