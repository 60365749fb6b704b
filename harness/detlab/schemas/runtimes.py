"""Names of runtimes: a runtime is a way in which an agent runs tasks.

The set is open. Agents find runtimes by the entry point `detlab.runtimes` and report the names of theirs to the master,
which judges at submit whether an agent of the pool has the one that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

PROCESS = "process"
"""A process on the node."""
DOCKER = "docker"
"""A container of the node's Docker engine."""
KUBERNETES = "kubernetes"
"""A pod of the Kubernetes cluster that the agent speaks for."""
SLURM = "slurm"
"""A job of a Slurm cluster."""
KNOWN = (PROCESS, DOCKER, KUBERNETES, SLURM)
"""Those that come with detlab. An agent may have any of them later, so that their names are never mistakes."""
PATTERN = "^[a-z][a-z0-9_-]{0,62}$"
"""Of a name."""
ADDRESS_LATER = frozenset({SLURM})
"""Those that learn only from the running task where it is reached, so that its certificate is made then."""
ANY = ""
"""Of an allocation that may run in any way, since it runs no code of users: one that holds slots."""


def chosen(runtime: str, offered: Sequence[str]) -> str:
    """Return how an allocation is run on an agent: plain processes before all else where it may be any way."""
    return runtime or next((name for name in (PROCESS, *offered) if name in offered), PROCESS)


def takes_image(runtime: str) -> bool:
    """Whether tasks of this runtime may run in a container: all do but plain processes."""
    return runtime != PROCESS


SLURM_REFUSES = "Slurm refuses the job"
"""So begins what an agent says of a job that Slurm does not take as it was asked for: nor would it take the next."""
