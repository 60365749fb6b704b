"""`%det_search`: the words of `det search` in a notebook."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest

from detlab.client import Client
from detlab.client.operations import experiments
from detlab.errors import NotFound
from detlab_magics import searchacts
from detlab_magics.errors import MagicError
from detlab_magics.kernel import KernelSession
from testbed.fake_master.api import FakeMaster


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    with FakeMaster() as running:
        running.add_experiment()
        running.add_trial(1)
        yield running


@pytest.fixture
def session(master: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> Iterator[KernelSession]:
    monkeypatch.setattr(experiments, "_SUBMITTED", deque(maxlen=1))  # of tests before, in this process
    with Client(master.url, master.token) as client:
        yield KernelSession(connected=client)


def test_an_act_is_carried_out_and_said(master: FakeMaster, session: KernelSession) -> None:
    assert searchacts.run(session, "extend 1 --trials 8") == "Experiment 1: extended by 8 trials"
    assert searchacts.run(session, """add 1 '{"lr": 0.5}'""") == "Experiment 1: 1 point added"
    assert [(one.act, one.trials, one.points) for one in master.steered] == [
        ("extend", 8, []),
        ("add", 0, [{"lr": 0.5}]),
    ]


def test_without_an_id_the_last_submitted_experiment_is_meant(master: FakeMaster, session: KernelSession) -> None:
    with pytest.raises(MagicError, match="which experiment"):
        searchacts.run(session, "extend --trials 8")
    session.latest = 1
    assert searchacts.run(session, "extend --trials 8") == "Experiment 1: extended by 8 trials"
    assert "%det_search replay 1" in searchacts.run(session, "show"), "hints name the magic"


def test_an_experiment_that_code_has_submitted_is_the_last_one_too(master: FakeMaster, session: KernelSession) -> None:
    made = session.client().create_experiment({"name": "from code", "entrypoint": "python a.py"})
    assert session.experiment_id(None) == made.id
    session.latest = 1  # as when another one is continued by a magic
    assert session.experiment_id(None) == 1
    again = session.client().create_experiment({"name": "from code", "entrypoint": "python a.py"})
    assert session.experiment_id(None) == again.id != 1


@pytest.mark.parametrize(
    ("line", "said", "hint"),
    [
        ("stop 31", "stop 31: is 31 an experiment or a trial", "stop 1 31"),
        ("promote 1", "promote 1: is 1 an experiment or a trial", "promote ID 1"),
        ("tell 31 loss=0.3", "tell 31: is 31 an experiment or a trial", "tell 1 31"),
        ("retry 31", "retry 31: is 31 an experiment or a trial", "retry 1 31"),
        ("concurrency 8", "concurrency 8: is 8 an experiment or a limit", "concurrency 1 8"),
    ],
)
def test_a_number_that_may_be_an_experiment_or_a_trial_is_refused(
    master: FakeMaster, session: KernelSession, line: str, said: str, hint: str
) -> None:
    session.latest = 1
    with pytest.raises(MagicError) as caught:
        searchacts.run(session, line)
    assert said in str(caught.value)
    assert hint in str(caught.value)
    assert not master.steered


def test_retry_of_the_last_submitted_experiment_is_clear(master: FakeMaster, session: KernelSession) -> None:
    session.latest = 1
    searchacts.run(session, "retry 1")
    searchacts.run(session, "retry")
    searchacts.run(session, "retry 1 1")
    assert [(one.act, one.trial_ids) for one in master.steered] == [("retry", []), ("retry", []), ("retry", [1])]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("extnd 1", "No such command 'extnd'. Did you mean 'extend'"),
        ("extend 1", "give --trials or --units"),
        ("extend 1 --trials x", "'x' is not a valid integer"),
        ("add 1 {lr}", "is not JSON"),
        ("add 1 '{", "cannot be split into words"),
    ],
)
def test_mistakes_are_short_and_send_nothing(master: FakeMaster, session: KernelSession, line: str, said: str) -> None:
    with pytest.raises(MagicError, match=said):
        searchacts.run(session, line)
    assert not master.steered


def test_what_the_master_refuses_is_an_error(session: KernelSession) -> None:
    with pytest.raises(NotFound):
        searchacts.run(session, "concurrency 9 2")


def test_help_has_examples_and_needs_no_cluster() -> None:
    session = KernelSession()
    for line in ("", "--help"):
        assert "Usage: %det_search" in searchacts.run(session, line)
        assert "%det_search extend 7 --trials 20" in searchacts.run(session, line)
    assert "--units INTEGER" in searchacts.run(session, "extend --help")
    assert session.connected is None


def test_acts_options_ids_figures_and_trials_are_offered() -> None:
    def offered(line: str) -> list[str]:
        *before, word = line.split(" ")
        return searchacts.offers(before, word, ["7", "8"], ["31"])

    assert "extend" in offered("ex")
    assert "--trials" in offered("extend 7 --t")
    assert offered("extend ") == ["7", "8"]
    assert offered("plot 7 imp") == ["importance"]
    assert offered("stop 7 ") == ["31"]
