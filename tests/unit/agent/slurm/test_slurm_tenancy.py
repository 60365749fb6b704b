"""Whose tasks an agent of a batch system takes: all users' where each job has its owner's account, else one user's."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from detlab.launch.host.identity import UidRules
from detlab_agent import daemon
from detlab_agent.runtimes.slurm.options import SlurmOptions
from detlab_agent.runtimes.tenancy import Tenancy
from detlab_agent.settings import AgentError, AgentSettings


@dataclass
class Given:
    """What of an agent's settings says whom it serves."""

    slurm: SlurmOptions | None
    serves_user: str | None = None
    uid_range: tuple[int, int] = (20_000, 30_000)

    @property
    def of_runtimes(self) -> dict[str, SlurmOptions]:
        """What the options of runtimes say."""
        return {} if self.slurm is None else {"slurm": self.slurm}


@dataclass
class Made:
    """A runtime."""

    name: str
    tasks_are: str = "elsewhere"


ROOTS = Tenancy(UidRules((20_000, 30_000)), None)
MINE = Tenancy(None, "ada")


def serves(given: Given, own: Tenancy, *made: Made) -> str | None:
    return daemon._tenancy_of(cast(AgentSettings, given), cast(Any, made), own).serves


@pytest.mark.parametrize("host", ["", "login-1"])
def test_an_agent_that_is_not_root_serves_the_user_that_runs_it(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """The page said so, and it served everybody: other users' jobs ran as its operator."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(daemon, "login_name", lambda: "ada")
    given = Given(SlurmOptions(host=host))
    assert serves(given, MINE, Made("slurm")) == "ada"
    assert serves(replace(given, serves_user="ada@example.org"), MINE, Made("slurm")) == "ada@example.org"
    assert serves(Given(None), MINE, Made("slurm")) == "ada", "--runtime slurm"
    assert serves(given, MINE, Made("process", "here"), Made("slurm")) == "ada"
    assert serves(Given(None), MINE, Made("kubernetes")) is None, "a pod has its owner's uid"


def test_an_agent_of_root_serves_all_unless_all_jobs_have_its_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert serves(Given(SlurmOptions()), ROOTS, Made("slurm")) is None
    one = Given(SlurmOptions(as_owner=False), "ada")
    assert serves(one, ROOTS, Made("slurm")) == "ada"
    with pytest.raises(AgentError, match="start an agent for each"):
        serves(one, ROOTS, Made("process", "here"), Made("slurm"))
