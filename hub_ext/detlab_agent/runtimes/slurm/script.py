"""The job of a task: the options for sbatch, and the script that starts `detlab.launch.elsewhere` on the nodes."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from detlab.launch.elsewhere import LEAVE, VARIABLE
from detlab_agent.runtimes.base import SetupFailed
from detlab_agent.runtimes.preparation import Order
from detlab_agent.slurm_options import SlurmOptions

PREFIX = "detlab-"
"""Names of jobs begin with it; the allocation follows."""
LEAVE_SECONDS = 120
"""Seconds before the time limit at which a trial is asked to leave, if its config does not say."""
REQUEUED = "requeued"
"""The reason in the exit file of a job that Slurm started a second time."""
EXIT, OUTPUT, SERVICE, BEGUN = ".exit", ".out", ".service", ".begun"
"""Ends of the names of a job's files."""
_PASSED = ("HOME", "LOGNAME", "USER", "PATH", "LANG")
_KEYS = {
    "partition": "--partition", "account": "--account", "qos": "--qos", "constraint": "--constraint",
    "reservation": "--reservation", "time": "--time",
}  # fmt: skip


@dataclass(frozen=True)
class Request:
    """A job that is to be submitted.

    Attributes:
        arguments: For sbatch.
        script: The batch script; the task token is in it.
        steps: Whether the task runs in a step of the job, and not as its first process.
    """

    arguments: tuple[str, ...]
    script: str
    steps: bool


@dataclass(frozen=True)
class Shape:
    """The nodes of a job: how many, and how many slots each has."""

    nodes: int
    slots: int


def job_name(allocation_id: str) -> str:
    """Return the name of an allocation's job."""
    return f"{PREFIX}{allocation_id}"


def files_of(directory: PurePath, allocation_id: str) -> list[PurePath]:
    """Return the files of a job in the shared folder."""
    return [directory / f"{allocation_id}{end}" for end in (EXIT, OUTPUT, SERVICE, BEGUN)]


def shape_of(slots: int, per_node: int | None, largest: int) -> Shape:
    """Return on how many nodes so many slots are.

    Args:
        slots: Of the whole task.
        per_node: Slots of each node, as the config says.
        largest: Slots of the largest node; 0: not known.

    Raises:
        SetupFailed: They cannot be divided so.
    """
    if per_node is None:
        if not largest or slots <= largest:
            return Shape(1, slots)
        per_node = max(number for number in range(1, largest + 1) if slots % number == 0)
    if slots % per_node and slots > per_node:
        raise SetupFailed(f"{slots} slots cannot be divided into nodes of {per_node} (slurm.slots_per_node)")
    return Shape(max(1, slots // per_node), min(slots, per_node))


def request_of(
    order: Order, options: SlurmOptions, directory: PurePath, comment: str, *, largest: int, gpus: bool
) -> Request:
    """Return the job for a task.

    Args:
        order: The task.
        options: The agent's settings.
        directory: The shared folder.
        comment: Marks the jobs of this agent.
        largest: Slots of the cluster's largest node.
        gpus: Whether slots are GPUs.

    Raises:
        SetupFailed: Its nodes or its container are not possible, or it is too long.
    """
    launch = order.launch
    asked: Mapping[str, Any] = launch.info.config.get("slurm") or {}
    resources: Mapping[str, Any] = launch.info.config.get("resources") or {}
    shape = shape_of(len(launch.slots), asked.get("slots_per_node"), largest)
    if shape.nodes > 1:
        raise SetupFailed(f"{len(launch.slots)} slots need {shape.nodes} nodes of Slurm, and a trial has one")
    container = str(asked.get("container") or options.container)
    arguments = [
        f"--job-name={job_name(launch.allocation_id)}",
        f"--comment={comment}",
        "--no-requeue",
        "--dependency=singleton",  # of two jobs of one attempt, the second would wait for the end of the first
        f"--output={directory / launch.allocation_id}{OUTPUT}",
        "--open-mode=truncate",
        f"--export={','.join(_PASSED)}",
        "--chdir=/",
        f"--nodes={shape.nodes}",
        "--ntasks-per-node=1",
        *_devices(shape, asked.get("gpu_type"), resources, gpus=gpus),
        *([f"--partition={options.partition}"] if options.partition else []),
        *options.arguments,
        *(f"{option}={asked[key]}" for key, option in _KEYS.items() if asked.get(key)),
        *(["--exclusive"] if asked.get("exclusive") else []),
        f"--signal=B:USR2@{asked.get('leave_seconds') or LEAVE_SECONDS}",
        *(asked.get("sbatch_args") or ()),
    ]
    if options.as_owner and order.identity.uid != 0 and _is_root():
        arguments += [f"--uid={order.identity.uid}", f"--gid={order.identity.gid}"]
    return Request(tuple(arguments), _script(order, options, asked, directory, container), container == "pyxis")


def _is_root() -> bool:
    return os.geteuid() == 0


def _devices(shape: Shape, kind: str | None, resources: Mapping[str, Any], *, gpus: bool) -> list[str]:
    """Return the options for what each node gives the task: devices, processors and memory."""
    found = []
    if shape.slots and gpus:
        found.append(f"--gres=gpu:{kind}:{shape.slots}" if kind else f"--gres=gpu:{shape.slots}")
    cpus = resources.get("cpus")
    if cpus or (shape.slots and not gpus):
        found.append(f"--cpus-per-task={max(1, round(float(cpus or shape.slots)))}")
    if resources.get("memory"):
        found.append(f"--mem={max(1, int(resources['memory']) >> 20)}M")
    return found


def _script(order: Order, options: SlurmOptions, asked: Mapping[str, Any], directory: PurePath, container: str) -> str:
    exit_file = f"{directory / order.launch.allocation_id}{EXIT}"
    command = _command(order, options, container, ["--exit-file", exit_file])
    lines = [
        "#!/bin/bash",
        "umask 077",
        f"trap 'export {LEAVE}=1' USR2",  # the time limit is near before the task has begun
        *once(directory, order.launch.allocation_id),
        "export SLURM_EXPORT_ENV=ALL TMPDIR=${TMPDIR:-/tmp}",
        'home=$(getent passwd "$(id -u)" | cut -d: -f6); [ -d "$home" ] && export HOME=$home',
        *_modules(asked.get("modules") or ()),
        *([f". {shlex.quote(options.setup)} || exit"] if options.setup else []),
        *([str(asked["setup"])] if asked.get("setup") else []),
        *_address(),
        *(_service(order, options, directory) if order.launch.service is not None else []),
        f"export {VARIABLE}={shlex.quote(order.parcel())}",
        "trap '' USR2",  # else it would end the program that has not said yet that it handles it
        command,
    ]
    return "\n".join(lines) + "\n"


def once(directory: PurePath, allocation_id: str) -> list[str]:
    """Return the lines that end a job whose attempt has begun before: the master starts the next attempt.

    Slurm counts how often it has started a job. But a controller that dies may have forgotten one that had begun: asked
    for it by name it knows none, and the same attempt is submitted once more.
    """
    requeued = f'{{"exit_code": null, "reason": "{REQUEUED}", "message": ""}}'
    file = str(directory / allocation_id)
    return [
        f"exit_file={shlex.quote(file + EXIT)} begun_file={shlex.quote(file + BEGUN)}",
        'first() { (set -C; : > "$begun_file") 2>/dev/null || [ ! -e "$begun_file" ]; }',
        'if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || ! first; then',
        f"    printf '%s' '{requeued}' > \"$exit_file\"; exit 0",
        "fi",
    ]


def _modules(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    words = " ".join(map(shlex.quote, names))
    return ["type module >/dev/null 2>&1 || . /etc/profile", f"module load {words} || exit"]


def _address() -> list[str]:
    """Return the lines that find out where others reach this node: Slurm's address of it, or else its own first one."""
    return [
        'DET_NODE_ADDRESS=$(scontrol --oneliner show node "$SLURMD_NODENAME" 2>/dev/null'
        " | sed -n 's/.* NodeAddr=\\([^ ]*\\).*/\\1/p')",
        'found=$(getent ahostsv4 "${DET_NODE_ADDRESS:-$(hostname)}" 2>/dev/null | sed -n "1s/ .*//p")',
        "export DET_NODE_ADDRESS=${found:-${DET_NODE_ADDRESS:-$(hostname)}}",
    ]


def _service(order: Order, options: SlurmOptions, directory: PurePath) -> list[str]:
    """Return the lines that choose a free port of the node, and tell the agent of it."""
    program = "import socket; s = socket.socket(); s.bind(('', 0)); print(s.getsockname()[1])"
    target = f"{directory / order.launch.allocation_id}{SERVICE}"
    return [
        f"port=$({shlex.quote(_python(options))} -c {shlex.quote(program)}) || exit",
        "export DET_SERVICE_ADDRESS=$DET_NODE_ADDRESS DET_SERVICE_PORT=$port",
        f"service_file={shlex.quote(target)}",
        'printf "%s %s" "$DET_NODE_ADDRESS" "$port" > "$service_file.partial"',
        'mv "$service_file.partial" "$service_file"',
    ]


def _python(options: SlurmOptions) -> str:
    return options.python or sys.executable


def _command(order: Order, options: SlurmOptions, container: str, arguments: Sequence[str]) -> str:
    """Return the line that starts the task.

    Raises:
        SetupFailed: It is to run in a container, and names no image.
    """
    module = ["-s", "-P", "-m", "detlab.launch.elsewhere", *arguments]
    if container == "none":
        return shlex.join(["exec", _python(options), *module])
    spec = order.launch.container
    image = "" if spec is None else spec.image
    if spec is None or not image:
        raise SetupFailed(f"slurm.container is {container}, and environment.image names no image")
    inside = ["python3", *module]
    folder = str(PurePath(arguments[-1]).parent)
    mounts = [f"{folder}:{folder}"]
    mounts += [f"{m.host_path}:{m.container_path}{':ro' if m.read_only else ''}" for m in spec.mounts]
    if container == "pyxis":
        words = ["srun", "--kill-on-bad-exit=0", f"--container-image={image}", f"--container-mounts={','.join(mounts)}"]
        return shlex.join(["exec", *words, "--no-container-mount-home", *inside])
    source = image if "://" in image or image.startswith("/") else f"docker://{image}"
    binds = [word for mount in mounts for word in ("--bind", mount)]
    gpus = "$([ -e /dev/nvidiactl ] && echo --nv)"
    program = '"$(command -v apptainer || command -v singularity || echo apptainer)"'
    return f"exec {program} exec --writable-tmpfs {gpus} {shlex.join([*binds, source, *inside])}"
