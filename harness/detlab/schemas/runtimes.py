"""Names of runtimes: a runtime is a way in which an agent runs tasks.

The set is open. Agents find runtimes by the entry point `detlab.runtimes` and report the names of theirs to the master,
which judges at submit whether an agent of the pool has the one that is asked for.
"""

from __future__ import annotations

import re
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

_CAPABILITIES = frozenset(
    """
    ALL AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND BPF CHECKPOINT_RESTORE CHOWN DAC_OVERRIDE DAC_READ_SEARCH
    FOWNER FSETID IPC_LOCK IPC_OWNER KILL LEASE LINUX_IMMUTABLE MAC_ADMIN MAC_OVERRIDE MKNOD NET_ADMIN NET_BIND_SERVICE
    NET_BROADCAST NET_RAW PERFMON SETFCAP SETGID SETPCAP SETUID SYSLOG SYS_ADMIN SYS_BOOT SYS_CHROOT SYS_MODULE SYS_NICE
    SYS_PACCT SYS_PTRACE SYS_RAWIO SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG WAKE_ALARM
    """.split()  # noqa: SIM905 - a list of them takes a page
)


def is_capability(name: str) -> bool:
    """Whether a text is the name of a capability of Linux, with or without `CAP_`."""
    return name.removeprefix("CAP_") in _CAPABILITIES


_IMAGE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]{1,5})?(/[A-Za-z0-9][A-Za-z0-9._-]*)*(:[A-Za-z0-9_.-]{1,128})?"
    r"(@[A-Za-z0-9_+.-]+:[0-9a-f]+)?"
)


def is_image(name: str) -> bool:
    """Whether a text may be the name of an image of containers: a reference without a scheme or a password."""
    return len(name) <= 500 and _IMAGE.fullmatch(name) is not None
