"""The options that runtimes have on the command line of `det agent run`: each runtime's own."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from detlab.errors import DetlabError
from detlab_agent import commands
from detlab_agent.endpoints import Endpoints
from detlab_agent.runtimes.flags import FLAGS, RuntimeFlags, asked_for, read_flags
from detlab_agent.runtimes.kubernetes.flags import KubernetesFlags
from detlab_agent.runtimes.slurm.options import SlurmOptions
from detlab_agent.settings import AgentError, AgentSettings


def settings(tmp_path: Path, *runtimes: str) -> AgentSettings:
    return AgentSettings(Endpoints("http://127.0.0.1:1"), tmp_path, "node", runtimes=runtimes)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs the command up to the agent, and returns the agent's settings."""
    found: list[AgentSettings] = []

    async def run_agent(given: AgentSettings) -> None:
        found.append(given)

    def start(*arguments: str) -> AgentSettings:
        monkeypatch.setattr(commands, "run_agent", run_agent)
        words = ["--master", "http://127.0.0.1:1/", "--dir", str(tmp_path), *arguments]
        done = CliRunner().invoke(commands.run, words, catch_exceptions=False)
        if done.exit_code:
            raise AgentError(done.output)
        return found.pop()

    return start


def test_the_command_knows_no_option_of_a_single_runtime() -> None:
    """It had 36 parameters, those of Kubernetes and Slurm among them."""
    own = set(inspect.signature(commands.run.callback).parameters)
    assert not [name for name in own if name.startswith(("slurm", "kube", "namespace"))]
    given = {parameter.name for parameter in commands.run.params}
    flags = [FLAGS.load(name) for name in FLAGS.names()]
    assert {flag.flag for flag in flags} == {"kubernetes", "slurm"} <= given - own


def test_every_option_is_a_setting_an_argument_or_a_runtimes(started: Any) -> None:
    taken = {field.name for field in fields(AgentSettings)} | set(inspect.signature(commands.run.callback).parameters)
    of_runtimes = {word.name for name in FLAGS.names() for word in _options(FLAGS.load(name))}
    assert {parameter.name for parameter in commands.run.params} <= taken | of_runtimes
    one = started("--pool", "big", "--task-port", "8080", "--cpus", "0", "--uid-range", "5000-6000")
    assert (one.pool, one.task_ports, one.cpus, one.uid_range) == ("big", (8080,), 0, (5000, 6000))


def _options(flags: RuntimeFlags) -> list[click.Parameter]:
    def command() -> None:
        pass

    for option in flags.options:
        command = option(command)
    return click.command(command).params


def test_each_runtime_reads_its_options(started: Any, tmp_path: Path) -> None:
    one = started("--slurm", "--slurm-partition", "gpu", "--slurm-as", "agent", "--slurm-arg=--qos=low")
    assert one.runtimes == ("slurm",)
    assert one.of_runtimes["slurm"] == SlurmOptions(partition="gpu", as_owner=False, arguments=("--qos=low",))
    (tmp_path / "kube").write_text("{}")
    other = started("--kubernetes", "--kubeconfig", str(tmp_path / "kube"), "--namespace", "lab", "--kube-context", "c")
    assert (other.runtimes, other.slots, other.address) == (("kubernetes",), 0, "")
    assert other.of_runtimes["kubernetes"] == KubernetesFlags(tmp_path / "kube", "c", "lab", None)
    plain = started()
    assert plain.runtimes == ()
    assert plain.of_runtimes == {"kubernetes": KubernetesFlags(), "slurm": SlurmOptions()}


def test_named_runtimes_have_their_options_too(started: Any) -> None:
    """`--runtime slurm` read none of them without `--slurm`."""
    named = started("--runtime", "process,slurm", "--slurm-partition", "gpu")
    assert named.runtimes == ("process", "slurm")
    assert named.of_runtimes["slurm"].partition == "gpu"


@pytest.mark.parametrize("more", [["--slurm"], ["--runtime", "process"], ["--runtime", "slurm"]])
def test_an_agent_for_a_cluster_runs_nothing_else(started: Any, more: list[str]) -> None:
    with pytest.raises(AgentError, match="do not go together"):
        started("--kubernetes", *more)


def test_the_options_of_a_package_come_with_its_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    from detlab_agent.runtimes.flags import RuntimeFlags, runtime_flags

    podman = RuntimeFlags("podman", (click.option("--podman", is_flag=True),), lambda given: "read")
    monkeypatch.setattr(FLAGS, "names", lambda: ["podman"])
    monkeypatch.setattr(FLAGS, "load", lambda name: podman)

    @click.command()
    @runtime_flags
    def run(**given: Any) -> None:
        click.echo(f"{asked_for(given)} {read_flags(given)}")

    assert CliRunner().invoke(run, ["--podman"]).output == "['podman'] {'podman': 'read'}\n"
    assert CliRunner().invoke(run, []).output == "[] {'podman': 'read'}\n"


def test_a_runtime_without_options_is_no_mistake() -> None:
    with pytest.raises(DetlabError):
        FLAGS.load("process")
