"""The job of a task: the options for sbatch, and the script that starts `detlab.launch.elsewhere` on the nodes."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from detlab.launch.elsewhere import ASK_CERTIFICATE, LEAVE, NODE_NAME, NODE_RANK, VARIABLE
from detlab.schemas.sbatch import ONE_NAME, SbatchNotAllowed, SbatchOption, option_of, parse_all
from detlab.schemas.wire import Launch
from detlab_agent.runtimes.base import SetupFailed
from detlab_agent.runtimes.preparation import Order
from detlab_agent.runtimes.slurm.answers import PREFIX
from detlab_agent.runtimes.slurm.client import OWNERS, THE_AGENTS, Whose
from detlab_agent.runtimes.slurm.options import SlurmOptions

LEAVE_SECONDS = 120
"""Seconds before the time limit at which a trial is asked to leave, if its config does not say."""
REQUEUED = "requeued"
"""The reason in the exit file of a job that Slurm started a second time."""
EXIT, OUTPUT, SERVICE, BEGUN, CHIEF = ".exit", ".out", ".service", ".begun", ".chief"
"""Ends of the names of a job's files."""
END_GRACE, KILL_GRACE = 20, 15
"""Seconds that the launchers of a gang get to end when one of them has failed, and then to deliver."""
_GANG_STEP = ("--kill-on-bad-exit=0", "--wait=0", "--cpu-bind=none", "--mpi=none", "--input=none")
_PASSED = ("HOME", "LOGNAME", "USER", "PATH", "LANG")
_KEYS = ("partition", "account", "qos", "constraint", "reservation", "time")
"""Of the config's block; options of sbatch have the same names."""
CONSTRAINT = "constraint"
_FEATURE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_GPUS = ("gpus-per-node", "gpus-per-task")
_IMAGE = re.compile(r"(?:[a-z][a-z0-9+-]*://)?[A-Za-z0-9/][\x21-\x7e]{0,998}")
"""What the image of a container looks like to each of the programs: a name, a path or an address, and no option."""


File = Callable[[str], str]
"""Returns the word of the shell for one of a job's files, by the end of its name."""


@dataclass(frozen=True)
class JobRequest:
    """A job that is to be submitted.

    Attributes:
        label: What the job is called.
        directory: The folder of its files.
        files: What they are called, without their ends: nobody can guess it.
        whose: The account of the job.
        common: The arguments for sbatch that are not about its name.
        parcel: What the task is made of; its token is in it.
        write: Writes the batch script, from its files and the lines that set its parcel.
        steps: Whether the task runs in a step of the job, and not as its first process.
        nodes: On how many nodes it runs.
        like: What the tasks of an array must have in common beside the script and `common`; None: it is never in one.
    """

    label: str
    directory: PurePath
    files: str
    whose: Whose
    common: tuple[str, ...]
    parcel: str
    write: Callable[[File, Sequence[str]], str]
    steps: bool
    nodes: int = 1
    like: tuple[str, ...] | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """For sbatch."""
        return (
            *self.common,
            f"--job-name={job_name(self.label)}",
            "--dependency=singleton",  # of two jobs of one attempt, the second would wait for the end of the first
            f"--output={self.directory / self.files}{OUTPUT}",
        )

    @property
    def script(self) -> str:
        """The batch script; the task token is in it."""
        return self.write(file_of(self.directory, self.files), [set_parcel(self.parcel)])


@dataclass(frozen=True)
class JobShape:
    """The nodes of a job: how many, and how many slots each has."""

    nodes: int
    slots: int


def job_name(label: str) -> str:
    """Return the name of a job, or of an array of them."""
    return f"{PREFIX}{label}"


def files_name(label: str) -> str:
    """Return what the files of a job are called, without their ends: a name that was never used, and is not guessed."""
    return f"{label}.{secrets.token_hex(8)}"


def files_in(shared: PurePath, directory: PurePath, files: str) -> str:
    """Return where a job's files are in the shared folder, without their ends."""
    return str((directory / files).relative_to(shared))


def file_of(directory: PurePath, files: str, after: str = "") -> File:
    """Return how a job's script names its files; `after` follows their name, as the shell is to read it."""
    path = str(directory / files)
    return lambda end: f"{shlex.quote(path)}{after}{end}" if after else shlex.quote(f"{path}{end}")


def set_parcel(parcel: str) -> str:
    """Return the line that hands a task what it is made of."""
    return f"export {VARIABLE}={shlex.quote(parcel)}"


def files_of(directory: PurePath, files: str, nodes: int = 1) -> list[PurePath]:
    """Return the files of a job in the shared folder."""
    ends = [EXIT, OUTPUT, SERVICE, BEGUN]
    if nodes > 1:
        ends += [CHIEF, *(exit_of_rank(rank) for rank in range(nodes))]
    return [directory / f"{files}{end}" for end in ends]


def exit_of_rank(rank: int) -> str:
    """Return the end of the name of the exit file of one of several nodes."""
    return f"{EXIT}.{rank}"


def shape_of(launch: Launch) -> JobShape:
    """Return on how many nodes the slots of a launch are, as the master has divided them.

    Raises:
        SetupFailed: The nodes differ: a job has the same on each.
    """
    counts = launch.info.container_slot_counts
    if len(counts) < 2:
        return JobShape(1, len(launch.slots))
    if len(set(counts)) > 1 or sum(counts) != len(launch.slots):
        raise SetupFailed(f"nodes of {', '.join(map(str, counts))} slots: those of a Slurm job have the same number")
    return JobShape(len(counts), counts[0])


def request_of(order: Order, options: SlurmOptions, shared: PurePath, comment: str, *, gpus: bool) -> JobRequest:
    """Return the job for a task.

    Args:
        order: The task.
        options: The agent's settings.
        shared: The shared folder.
        comment: Marks the jobs of this agent.
        gpus: Whether slots are GPUs.

    Raises:
        SetupFailed: Its nodes, its options or its container are not possible, or it is too long.
    """
    launch = order.launch
    asked: Mapping[str, Any] = launch.info.config.get("slurm") or {}
    resources: Mapping[str, Any] = launch.info.config.get("resources") or {}
    shape = shape_of(launch)
    container = str(asked.get("container") or options.container)
    whose = whose_job(order, options, shared)
    directory = whose.folder or shared
    given = _given(asked)
    # Of an option that comes twice sbatch takes the last: the operator's are defaults, and detlab's own decide.
    arguments = [
        *([f"--partition={options.partition}"] if options.partition else []),
        *options.arguments,
        *_processors(shape, resources, given, gpus=gpus),
        *(["--exclusive"] if asked.get("exclusive") else []),
        *(
            one.render()
            for one in given
            if one.name != "gres" and not (launch.slurm_features and one.name == CONSTRAINT)
        ),
        f"--comment={comment}",
        "--no-requeue",
        "--open-mode=truncate",
        f"--export={','.join(_PASSED)}",
        "--chdir=/",
        f"--nodes={shape.nodes}",
        "--ntasks-per-node=1",
        *_devices(shape, asked.get("gpu_type"), given, gpus=gpus),
        f"--signal=B:USR2@{int(asked.get('leave_seconds') or LEAVE_SECONDS)}",
        *_features(launch.slurm_features, options, given),
    ]
    alone = shape.nodes > 1 or launch.service is not None
    return JobRequest(
        launch.allocation_id,
        directory,
        files_name(launch.allocation_id),
        whose,
        tuple(arguments),
        order.parcel(),
        _script(order, options, asked, directory, container, shape.nodes),
        steps=container == "pyxis" and shape.nodes == 1,
        nodes=shape.nodes,
        # The script of an array has the tokens of all: those of one user.
        like=None if alone else (launch.owner, str(order.identity.uid)),
    )


def whose_job(order: Order, options: SlurmOptions, shared: PurePath) -> Whose:
    """Return the account that a task's job has.

    Raises:
        SetupFailed: It would be root's.
    """
    if not options.for_owners:
        return THE_AGENTS if options.host else Whose(os.getuid(), os.getgid())
    uid, gid = order.identity.uid, order.identity.gid
    if uid <= 0 or gid < 0:
        raise SetupFailed(f"the job of {order.launch.owner!r} would be root's: map them to an account")
    return Whose(uid, gid, shared / OWNERS / str(uid))


def _given(asked: Mapping[str, Any]) -> list[SbatchOption]:
    """Return the options of the config, read once more: its master may be of an earlier version.

    Raises:
        SetupFailed: One is not allowed.
    """
    try:
        keys = [option_of(key, str(asked[key])) for key in _KEYS if asked.get(key)]
        return [*keys, *parse_all(map(str, asked.get("sbatch_args") or ()))]
    except SbatchNotAllowed as error:
        raise SetupFailed(f"slurm.sbatch_args: {error}") from error


def _processors(
    shape: JobShape, resources: Mapping[str, Any], given: Sequence[SbatchOption], *, gpus: bool
) -> list[str]:
    """Return the options for processors and memory, as far as the config's own options do not say."""
    names, found = {one.name for one in given}, []
    cpus = resources.get("cpus")
    if (cpus or (shape.slots and not gpus)) and not names & {"cpus-per-task", "cpus-per-gpu"}:
        found.append(f"--cpus-per-task={max(1, round(float(cpus or shape.slots)))}")
    if resources.get("memory") and not names & {"mem", "mem-per-cpu", "mem-per-gpu"}:
        found.append(f"--mem={max(1, int(resources['memory']) >> 20)}M")
    return found


def _features(features: Sequence[str], options: SlurmOptions, given: Sequence[SbatchOption]) -> list[str]:
    """Return the one option for features of nodes, where the pool requires some: theirs are beside, not instead.

    Raises:
        SetupFailed: Those of the config or of the agent are not a list of features that must all be there.
    """
    if not features:
        return []
    if bad := [one for one in features if _FEATURE.fullmatch(one) is None]:
        raise SetupFailed(f"the pool requires the Slurm feature {bad[0][:60]!r}, which cannot be one")
    others = [one.value for one in given if one.name == CONSTRAINT]
    others += [one.partition("=")[2] for one in options.arguments if one.startswith("--constraint=")]
    wanted = [(text, text.split("&")) for text in others]
    odd = [text for text, names in wanted if not all(map(_FEATURE.fullmatch, names))]
    if odd:
        raise SetupFailed(
            f"slurm.constraint is {odd[0][:80]!r}: beside what the pool requires for the policy, it can only be"
            " features joined by &"
        )
    every = [*(name for _, names in wanted for name in names), *features]
    return [f"--constraint={'&'.join(dict.fromkeys(every))}"]


def _devices(shape: JobShape, kind: object, given: Sequence[SbatchOption], *, gpus: bool) -> list[str]:
    """Return the option for the devices of each node.

    Raises:
        SetupFailed: The config's options ask for other GPUs than it has slots.
    """
    if kind and not ONE_NAME.fits(str(kind)):
        raise SetupFailed(f"slurm.gpu_type is {str(kind)[:60]!r}: it takes {ONE_NAME.words}")
    for one in given:
        if one.name in _GPUS and int(one.value.rpartition(":")[2]) != (shape.slots if gpus else 0):
            raise SetupFailed(
                f"slurm.sbatch_args: {one.render()} asks for other GPUs than detlab counts: the task has {shape.slots}"
                f" {'slots' if gpus else 'slots, which are processors,'} on each node; resources.slots_per_trial says"
                " how many"
            )
    found = [one.value for one in given if one.name == "gres"]
    if shape.slots and gpus and not any(one.name in _GPUS for one in given):
        found.insert(0, f"gpu:{kind}:{shape.slots}" if kind else f"gpu:{shape.slots}")
    return [f"--gres={','.join(found)}"] if found else []


def _script(
    order: Order, options: SlurmOptions, asked: Mapping[str, Any], directory: PurePath, container: str, nodes: int
) -> Callable[[File, Sequence[str]], str]:
    """Return what writes the script of a job, or of an array of them.

    Raises:
        SetupFailed: Its container is not possible.
    """

    def task(file: File) -> list[str]:
        if nodes > 1:
            return _gang(order, options, container, directory, file, nodes)
        command = _command(order, options, container, directory, file(EXIT))
        return [
            *_address(),
            *(_service(order, options, file) if order.launch.service is not None else []),
            "trap '' USR2",  # else it would end the program that has not said yet that it handles it
            command if container != "pyxis" else _in_pyxis(order, directory, command),
        ]

    def write(file: File, parcels: Sequence[str]) -> str:
        lines = [
            "#!/bin/bash",
            "umask 077",
            f"trap 'export {LEAVE}=1' USR2",  # the time limit is near before the task has begun
            *once(file),
            "export SLURM_EXPORT_ENV=ALL TMPDIR=${TMPDIR:-/tmp}",
            'home=$(getent passwd "$(id -u)" | cut -d: -f6); [ -d "$home" ] && export HOME=$home',
            *_python_first(_python(options) if container == "none" else ""),
            *_modules(asked.get("modules") or ()),
            *([f". {shlex.quote(options.setup)} || exit"] if options.setup else []),
            *([str(asked["setup"])] if asked.get("setup") else []),
            *parcels,
            *task(file),
        ]
        return "\n".join(lines) + "\n"

    task(str)  # mistakes are told now
    return write


def _gang(
    order: Order, options: SlurmOptions, container: str, directory: PurePath, file: File, nodes: int
) -> list[str]:
    """Return the lines that start a launcher on each node, and end all when one has failed.

    The first process of the job stays the shell: the agent signals it, and it passes on to the launchers what is for
    all, and to the chief's what is for the trial.
    """
    step = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", *_GANG_STEP]
    node = [
        f"export {NODE_RANK}=$SLURM_PROCID {NODE_NAME}=$SLURMD_NODENAME",
        *_address(),
        "trap '' USR2",
        '[ "$SLURM_PROCID" != 0 ] || printf %s $$ > "$chief_file"',
        _command(order, options, container, directory, '"$exit_file.$SLURM_PROCID"'),
    ]
    if container == "pyxis":
        step += _pyxis(order, directory)
    command = f"{shlex.join(step)} ${{SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK}}"
    signal = 'scancel "$SLURM_JOB_ID" --signal'
    return [
        f"export exit_file chief_file={file(CHIEF)}",
        'rm -f "$chief_file"',
        "ending= step=$$",
        # Nothing of this may outlive the step: not every Slurm ends what a job leaves behind.
        "runs_on() {",  # for so many seconds
        'for ((n = 0; n < $1; n++)); do kill -0 "$step" 2>/dev/null || return; sleep 1; done',
        "}",
        # A rank that has failed leaves the others waiting for it.
        "end_all() {",
        '[ -z "$ending" ] || return; ending=1',
        f"({signal}=TERM; runs_on {END_GRACE} && {signal}=USR1 && runs_on {KILL_GRACE} && {signal}=KILL) &>/dev/null &",
        "}",
        'leave() { (until kill -USR2 $(cat "$chief_file"); do runs_on 1 || exit; done) &>/dev/null & }',
        f"trap end_all HUP; trap leave USR2; trap '{signal}=TERM' TERM; trap '{signal}=USR1' USR1",
        f'[ -z "${LEAVE}" ] || leave; unset {LEAVE}',
        "watch() {",
        "while IFS= read -r line; do",
        "printf '%s\\n' \"$line\" >&2",
        'case $line in "srun: error: "*": task"*": "*) kill -HUP $$ ;; esac',
        "done",
        "}",
        f"{command} bash -c {shlex.quote(chr(10).join(node))} 2> >(watch) &",
        "step=$!",
        'while wait "$step"; kill -0 "$step" 2>/dev/null; do :; done',  # a signal ends a wait
        'wait "$step"; exit',
    ]


def once(file: File) -> list[str]:
    """Return the lines that end a job whose attempt has begun before: the master starts the next attempt.

    Slurm counts how often it has started a job. But a controller that dies may have forgotten one that had begun: asked
    for it by name it knows none, and the same attempt is submitted once more.
    """
    requeued = f'{{"exit_code": null, "reason": "{REQUEUED}", "message": ""}}'
    return [
        f"exit_file={file(EXIT)} begun_file={file(BEGUN)}",
        'first() { (set -C; : > "$begun_file") 2>/dev/null || [ ! -e "$begun_file" ]; }',
        'if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || ! first; then',
        f"    printf '%s' '{requeued}' > \"$exit_file\"; exit 0",
        "fi",
    ]


def _python_first(python: str) -> list[str]:
    """Return the line that puts the task's Python before the system's: modules and setup may put others before it."""
    where = PurePath(python)
    return [f"export PATH={shlex.quote(str(where.parent))}:$PATH"] if where.is_absolute() else []


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
        # Many systems have a machine's own name as a loopback address.
        'case "$DET_NODE_ADDRESS/$found" in 127.*) ;; */127.*) found=$(hostname -I | cut -d" " -f1) ;; esac',
        "export DET_NODE_ADDRESS=${found:-${DET_NODE_ADDRESS:-$(hostname)}}",
    ]


def _service(order: Order, options: SlurmOptions, file: File) -> list[str]:
    """Return the lines that choose a free port of the node, and tell the agent of it."""
    program = "import socket; s = socket.socket(); s.bind(('', 0)); print(s.getsockname()[1])"
    service = order.launch.service
    return [
        *([f"export {ASK_CERTIFICATE}=1"] if service is not None and service.certificate_later else []),
        f"port=$({shlex.quote(_python(options))} -c {shlex.quote(program)}) || exit",
        "export DET_SERVICE_ADDRESS=$DET_NODE_ADDRESS DET_SERVICE_PORT=$port",
        f"service_file={file(SERVICE)}",
        'printf "%s %s" "$DET_NODE_ADDRESS" "$port" > "$service_file.partial"',
        'mv "$service_file.partial" "$service_file"',
    ]


def _python(options: SlurmOptions) -> str:
    return options.python or sys.executable


def _command(order: Order, options: SlurmOptions, container: str, directory: PurePath, exit_file: str) -> str:
    """Return the line that starts the task on its node.

    Args:
        order: The task.
        options: The agent's settings.
        container: What runs its image.
        directory: The shared folder.
        exit_file: Its exit file, as a word of the shell.

    Raises:
        SetupFailed: It is to run in a container, and names no image.
    """
    module = f"{shlex.join(order.program())} --exit-file {exit_file}"
    if container == "none":
        return f"exec {shlex.quote(_python(options))} {module}"
    if container == "pyxis":
        return f"exec python3 {module}"
    image, mounts = _image(order, container, directory)
    source = image if "://" in image or image.startswith("/") else f"docker://{image}"
    binds = [word for mount in mounts for word in ("--bind", mount)]
    gpus = "$([ -e /dev/nvidiactl ] && echo --nv)"
    program = '"$(command -v apptainer || command -v singularity || echo apptainer)"'
    return f"exec {program} exec --writable-tmpfs {gpus} {shlex.join([*binds, source])} python3 {module}"


def _in_pyxis(order: Order, directory: PurePath, command: str) -> str:
    """Return the line that starts the command of a job on one node in a step with a container."""
    step = shlex.join(["srun", "--kill-on-bad-exit=0", *_pyxis(order, directory)])
    return f"exec {step} {command.removeprefix('exec ')}"


def _pyxis(order: Order, directory: PurePath) -> list[str]:
    """Return the options of srun for a step in a container.

    Raises:
        SetupFailed: No image is named.
    """
    image, mounts = _image(order, "pyxis", directory)
    return [f"--container-image={image}", f"--container-mounts={','.join(mounts)}", "--no-container-mount-home"]


def _image(order: Order, container: str, directory: PurePath) -> tuple[str, list[str]]:
    """Return the image of a task, and what of the node is seen in it.

    Raises:
        SetupFailed: No image is named, or what is named could be an option of the program that runs it.
    """
    spec = order.launch.container
    if spec is None or not spec.image:
        raise SetupFailed(f"slurm.container is {container}, and environment.image names no image")
    if not _IMAGE.fullmatch(spec.image):
        raise SetupFailed(
            f"environment.image: {spec.image[:200]!r} is no image: write registry/name:tag or an absolute path"
        )
    mounts = [f"{directory}:{directory}"]
    mounts += [f"{m.host_path}:{m.container_path}{':ro' if m.read_only else ''}" for m in spec.mounts]
    return spec.image, mounts
