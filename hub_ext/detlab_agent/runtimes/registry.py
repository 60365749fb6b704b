"""The runtimes that are installed on this node, found by their names.

A runtime is registered by the entry point `detlab.runtimes` of its distribution, whose name is the runtime's name and
whose value is a factory: it gets a `RuntimeSetup` and returns the runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from detlab.plugins import PluginError, Plugins
from detlab.schemas.runtimes import DOCKER, KUBERNETES, PROCESS
from detlab_agent.runtimes.dispatch import NodeRuntime
from detlab_agent.runtimes.preparation import TaskMaker
from detlab_agent.settings import AgentError, AgentSettings

DEFAULT = (PROCESS, DOCKER)
"""Tried in this order if the operator names no runtime."""


@dataclass(frozen=True, slots=True)
class RuntimeSetup:
    """The arguments from which a runtime is made.

    Attributes:
        maker: Makes the directories of tasks.
        settings: The command line of the agent.
        directory: State directory of the agent, an absolute path; what a runtime keeps there survives the agent.
        environ: Environment of the agent.
        required: Whether the operator asked for this runtime by name.
    """

    maker: TaskMaker
    settings: AgentSettings
    directory: Path
    environ: Mapping[str, str]
    required: bool


Factory = Callable[[RuntimeSetup], NodeRuntime | None]
"""Makes a runtime; None if it cannot work here and is not required.

Raises:
    AgentError: It is required and cannot be made; or its options are wrong.
"""


RUNTIMES: Plugins[Factory] = Plugins("detlab.runtimes", "runtime", extras={DOCKER: "agent", KUBERNETES: "kubernetes"})


def make_runtimes(
    maker: TaskMaker,
    settings: AgentSettings,
    directory: Path,
    environ: Mapping[str, str],
    plugins: Plugins[Factory] = RUNTIMES,
) -> Sequence[NodeRuntime]:
    """Make the runtimes that the operator asked for, or those of `DEFAULT` that work here.

    Args:
        maker: See `RuntimeSetup`.
        settings: Likewise.
        directory: Likewise.
        environ: Likewise.
        plugins: The runtimes by name; by default those that are installed.

    Raises:
        AgentError: A runtime is not installed, cannot be imported, or cannot be made.
    """
    made = []
    for name in settings.runtimes or DEFAULT:
        required = name in settings.runtimes
        factory = _load(name, plugins, required=required)
        if factory is None:
            continue
        runtime = factory(RuntimeSetup(maker, settings, directory, environ, required))
        if runtime is None:
            continue
        if runtime.name != name:
            raise AgentError(
                f"the runtime {plugins.origin(name)} is registered as {name} and calls itself {runtime.name}"
            )
        made.append(runtime)
    return made


def _load(name: str, plugins: Plugins[Factory], *, required: bool) -> Factory | None:
    """Import the factory of a runtime; return None if its requirements are not installed and it is not required."""
    try:
        return plugins.load(name)
    except PluginError as error:
        if not required and isinstance(error.__cause__, ImportError):
            return None
        raise AgentError(f"{error.message}; {error.hint}") from error
