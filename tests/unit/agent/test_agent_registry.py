"""Runtimes are found by name among the entry points, and an operator learns what is wrong with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detlab.plugins import Plugins
from detlab_agent.endpoints import Endpoints
from detlab_agent.runtimes.registry import DEFAULT, RUNTIMES, RuntimeSetup, make_runtimes
from detlab_agent.settings import AgentError, AgentSettings

NOBODY: Any = None


class Recorded:
    """A runtime that remembers what it was made of."""

    name = "slurm"

    def __init__(self, setup: RuntimeSetup) -> None:
        self.setup = setup


def recorded(setup: RuntimeSetup) -> Any:
    return Recorded(setup)


def absent(setup: RuntimeSetup) -> None:
    """A runtime that cannot work here."""
    assert not setup.required


def point(name: str, attribute: str, module: str = __name__) -> dict[str, str]:
    return {name: f"{module}:{attribute}"}


def plugins(points: dict[str, str]) -> Plugins[Any]:
    """Runtimes that are installed by these entry points alone."""
    return Plugins("tests.runtimes", RUNTIMES.what, points, extras={"docker": "agent"})


def made(tmp_path: Path, names: tuple[str, ...], points: dict[str, str]) -> Any:
    settings = AgentSettings(Endpoints("http://127.0.0.1:1"), tmp_path, "node", runtimes=names)
    return make_runtimes(NOBODY, settings, tmp_path, {"SLURM_CONF": "/etc/slurm"}, plugins(points))


def test_those_of_detlab_are_installed() -> None:
    assert set(RUNTIMES.names()) >= set(DEFAULT)


def test_a_runtime_is_made_by_its_name_from_what_the_agent_is_told(tmp_path: Path) -> None:
    (runtime,) = made(tmp_path, ("slurm",), point("slurm", "recorded"))
    assert runtime.setup.required
    assert runtime.setup.environ == {"SLURM_CONF": "/etc/slurm"}
    assert runtime.setup.directory == tmp_path


def test_without_names_those_of_detlab_are_tried_and_no_others(tmp_path: Path) -> None:
    points = point("process", "absent") | point("docker", "absent") | point("slurm", "recorded")
    assert made(tmp_path, (), points) == []


def test_one_that_cannot_be_imported_is_an_error_only_where_it_was_asked_for(tmp_path: Path) -> None:
    points = point("process", "absent") | point("docker", "make", "no_such_library")
    assert made(tmp_path, (), points) == []
    with pytest.raises(AgentError, match=r"docker.*no_such_library.*pip install --upgrade 'detlab\[agent\]'"):
        made(tmp_path, ("docker",), points)


def test_one_that_is_not_installed_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match=r"no runtime 'vm' here; installed: docker, slurm"):
        made(tmp_path, ("vm",), point("slurm", "recorded") | point("docker", "absent"))
    with pytest.raises(AgentError, match="installed: none; reinstall detlab: its entry points are missing"):
        made(tmp_path, (), {})


def test_one_that_is_registered_under_another_name_than_its_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="registered as vm"):
        made(tmp_path, ("vm",), point("vm", "recorded"))
