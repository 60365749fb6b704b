"""The preemption signal, from the master to the code and back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import detlab as det
from detlab.errors import StaleAttempt
from detlab.testing.master import MasterDouble
from detlab.testing.trial_api import TOKEN, TrialApiFault


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> float:
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds, "it did not happen"
        time.sleep(0.01)
    return time.monotonic() - start


def test_the_signal_arrives_through_the_long_poll(in_task: Any, api: MasterDouble) -> None:
    with det.core.init() as core:
        assert core.preempt.should_preempt() is False
        api.wait_for_call("GET task/preempt", 2)  # the second one is long
        api.preempt()
        assert wait_until(core.preempt.should_preempt) < 1.0
        assert api.acks == 1
        assert core.preempt.should_preempt() is True
        assert api.acks == 1
    assert api.calls.count("GET task/preempt") == 2


def test_asking_never_waits_for_the_master(in_task: Any, api: MasterDouble) -> None:
    with det.core.init() as core:
        core.preempt.should_preempt()
        start = time.monotonic()
        for _ in range(1000):
            core.preempt.should_preempt()
        assert time.monotonic() - start < 0.5


def test_closing_does_not_wait_for_the_long_poll(in_task: Any, api: MasterDouble) -> None:
    with det.core.init():
        api.wait_for_call("GET task/preempt", 2)
        start = time.monotonic()
    assert time.monotonic() - start < 1.0


def test_without_auto_ack_the_code_acknowledges(in_task: Any, api: MasterDouble) -> None:
    api.preempt()
    with det.core.init() as core:
        assert core.preempt.should_preempt(auto_ack=False) is True
        assert api.acks == 0
        core.preempt.acknowledge_preemption_signal()
        assert api.acks == 1


def test_the_acknowledgement_is_repeated_until_the_master_has_it(in_task: Any, api: MasterDouble) -> None:
    api.preempt()
    api.faults += [TrialApiFault("task/preempt/ack", 503), TrialApiFault("task/preempt/ack", 500)]
    with det.core.init() as core:
        assert core.preempt.should_preempt() is True
        assert api.acks == 1


def test_an_outage_of_the_poll_is_survived(in_task: Any, api: MasterDouble) -> None:
    api.faults += [TrialApiFault("task/preempt", status) for status in (503, 0, 500, 502)]
    with det.core.init() as core:
        api.preempt()
        wait_until(core.preempt.should_preempt)


def test_the_watcher_reads_the_renewed_token(in_task: Any, api: MasterDouble) -> None:
    api.tokens = {"dttask_new"}
    with det.core.init() as core:
        api.wait_for_call("GET task/preempt")
        (in_task.root / "token").write_text("dttask_new")
        api.preempt()
        wait_until(core.preempt.should_preempt)
    assert TOKEN not in api.tokens


def test_a_newer_attempt_ends_this_one(in_task: Any, api: MasterDouble) -> None:
    api.faults += [TrialApiFault("task/preempt", 409, "stale_attempt")]
    with det.core.init() as core, pytest.raises(StaleAttempt):
        core.preempt.should_preempt()


def test_it_must_be_started(in_task: Any) -> None:
    context = det.core.init()
    with pytest.raises(RuntimeError, match="started"):
        context.preempt.should_preempt()
    context.close()


def test_all_ranks_get_the_chiefs_answer(agree: Callable[..., list[str]], api: MasterDouble) -> None:
    code = """
    from itertools import count
    with start() as core:
        for step in count():  # however long the signal takes beside other work: `agree` ends it after a minute
            if core.preempt.should_preempt():
                break
        print(step)
    """
    from threading import Thread

    def signal() -> None:
        api.wait_for_call("GET task/preempt", 2)
        api.preempt()

    thread = Thread(target=signal)
    thread.start()
    steps = agree(code, 3)
    thread.join()
    assert len(set(steps)) == 1  # in step
    assert api.acks == 1
    assert api.calls.count("GET task/preempt") == 2  # only the chief asks


def test_chief_only(agree: Callable[..., list[str]], api: MasterDouble) -> None:
    code = """
    with det.core.init(distributed=context(), preempt_mode=det.core.PreemptMode.ChiefOnly) as core:
        try:
            print(core.preempt.should_preempt())
        except RuntimeError as error:
            print(error)
    """
    chief, worker = agree(code, 2)
    assert chief == "False"
    assert "ChiefOnly, but rank 1" in worker


def test_workers_ask_master(agree: Callable[..., list[str]], api: MasterDouble) -> None:
    api.preempt()
    code = """
    with det.core.init(distributed=context(), preempt_mode=det.core.PreemptMode.WorkersAskMaster) as core:
        print(core.preempt.should_preempt())
    """
    assert agree(code, 2) == ["True", "True"]
    assert api.calls.count("GET task/preempt") == 2
