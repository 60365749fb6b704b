"""What runtimes add to the command line of `det agent run`: each its own options, registered beside its factory.

An entry point of the group `detlab.runtime_flags` has the name of the runtime, and its value is a `RuntimeFlags`. It is
imported by `det agent run --help`, so it imports nothing that its runtime alone needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from detlab.plugins import Plugins
from detlab.schemas.runtimes import KUBERNETES, SLURM

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class RuntimeFlags:
    """The options of one runtime.

    Attributes:
        flag: The argument of the option that asks for the runtime, as `--runtime` does.
        options: `click.option(…)` for each, in the order of the help. No two runtimes have an argument in common.
        read: Makes of the arguments what the runtime finds in `AgentSettings.of_runtimes` under its name.
        whole_cluster: Whether an agent that is asked for the runtime by `flag` speaks for a cluster whose machines run
            all tasks, and runs none on its own.
    """

    flag: str
    options: tuple[Callable[[Any], Any], ...]
    read: Callable[[Mapping[str, Any]], Any]
    whole_cluster: bool = False


FLAGS: Plugins[RuntimeFlags] = Plugins(
    "detlab.runtime_flags",
    "options of a runtime",
    {
        KUBERNETES: "detlab_agent.runtimes.kubernetes.flags:FLAGS",
        SLURM: "detlab_agent.runtimes.slurm.options:FLAGS",
    },
)


def runtime_flags(command: Command) -> Command:
    """Add the options of all runtimes to a command, which gets them as further arguments."""
    for name in reversed(FLAGS.names()):
        for option in reversed(FLAGS.load(name).options):
            command = option(command)
    return command


def read_flags(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of each runtime that has options, by its name."""
    return {name: FLAGS.load(name).read(given) for name in FLAGS.names()}


def asked_for(given: Mapping[str, Any]) -> list[str]:
    """Return the runtimes that were asked for by options of their own."""
    return [name for name in FLAGS.names() if given[FLAGS.load(name).flag]]
