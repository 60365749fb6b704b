"""What root runs on a new instance of a cloud: it becomes an agent with a token for one enrolment."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from detlab.trust import join_enrolment, parse_fingerprint
from detlab_hub.backends.instances.base import InstanceOrder

TASK_METADATA = "DET_TASK_METADATA"
"""Variable of `det agent run --task-metadata`; agents of earlier versions do not know it."""


def startup_script(
    order: InstanceOrder,
    master: str,
    *,
    fingerprint: str = "",
    setup: str = "",
    command: Sequence[str] = ("det", "agent", "run"),
    arguments: Sequence[str] = (),
) -> str:
    """Return the script: it saves the token in a file of root and becomes the agent.

    It may run at every start of the instance: later ones find the agent's own key, and the token is void.

    Args:
        order: The instance.
        master: Address of the service, as agents reach it.
        fingerprint: Of the master's certificate, which the agent pins; "" for one that an authority has signed.
        setup: Shell commands that root runs before the agent.
        command: The command that starts the agent there.
        arguments: Further options of `det agent run`.
    """
    pin = parse_fingerprint(fingerprint) if fingerprint else None
    enrolment = join_enrolment(order.enrolment_token, pin)
    agent = [
        *command,
        *("--master", master, "--name", order.agent_id, "--dir", "/var/lib/detlab/agent"),
        *("--enrolment-token-file", "/var/lib/detlab/enrolment_token"),
        *arguments,
    ]
    lines = [
        "#!/bin/sh",
        "set -eu",
        "mkdir -p /var/lib/detlab && chmod 711 /var/lib/detlab",
        f"(umask 077 && printf '%s\\n' {shlex.quote(enrolment)} > /var/lib/detlab/enrolment_token)",
        *([setup.rstrip()] if setup.strip() else []),
        f"export {TASK_METADATA}=block",
        f"nohup {shlex.join(agent)} >> /var/log/detlab-agent.log 2>&1 &",
    ]
    return "\n".join(lines) + "\n"
