"""`%det_search`: the words of `det search` in a notebook."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from detlab.client import Client
from detlab.errors import NotFound
from detlab.testing.api import FakeMaster
from detlab_magics import searchacts
from detlab_magics.errors import MagicError
from detlab_magics.kernel import KernelSession


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    with FakeMaster() as running:
        running.add_experiment()
        running.add_trial(1)
        yield running


@pytest.fixture
def session(master: FakeMaster) -> Iterator[KernelSession]:
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
